//! Breaks one rule after the other on purpose and sees whether the simulated clusters object.
//!
//! `cargo run -p whimbrel-sim --features mutants --example mutants [NAME...]`; `WHIMBREL_SEEDS` is how many clusters each may survive.

/// Every name is that of a switch in `service`, `mailbox` or `replication`. Those of rules that show only where streams lose frames or logs are cut
/// are seen by `replication`'s own histories.
#[cfg(feature = "mutants")]
const MUTANTS: &[&str] = &[
    "applied-early",
    "body-not-awaited",
    "foreign-not-applied",
    "late-is-shown",
    "late-not-claimed",
    "resume-skips-unapplied",
];

#[cfg(feature = "mutants")]
fn main() -> std::process::ExitCode {
    use whimbrel_crdt::mutants::break_rule;

    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let seeds = std::env::var("WHIMBREL_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|text| text.parse().ok()).unwrap_or(100);
    // A panic is an objection like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut caught, mut survived) = (0, 0);
    for name in MUTANTS
        .iter()
        .filter(|name| chosen.is_empty() || chosen.iter().any(|c| c == *name))
    {
        break_rule(Some(name));
        let objection = object(seeds);
        break_rule(None);
        match objection {
            Some(by) => {
                caught += 1;
                println!("mutant {name}: caught {by}");
            }
            None => {
                survived += 1;
                println!("mutant {name}: SURVIVED");
            }
        }
    }
    // Unbroken, the same clusters must be content.
    if let Some(by) = object(10) {
        println!("no rule broken: objection {by}");
        survived += 1;
    }
    println!("mutants: {caught} caught, {survived} survived");
    if survived == 0 {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    }
}

/// The first cluster that objects.
#[cfg(feature = "mutants")]
fn object(seeds: u64) -> Option<String> {
    use whimbrel_sim::cluster::{self, Plan};

    (1..=seeds).find_map(|seed| {
        match std::panic::catch_unwind(|| cluster::run(&Plan::new(seed), false)) {
            Ok(Ok(_)) => None,
            Ok(Err(breach)) => {
                let line = breach.0.lines().next().unwrap_or_default().to_owned();
                let line: String = line.chars().take(110).collect();
                Some(format!("at seed {seed} ({line})"))
            }
            Err(_) => Some(format!("at seed {seed} (panic)")),
        }
    })
}
