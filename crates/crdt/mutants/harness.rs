//! Breaks rules on purpose, one after the other, and tells which are noticed. Part of each crate's example `mutants`; it is no part of the library,
//! which is pure.

use std::process::ExitCode;

use whimbrel_crdt::mutants::break_rule;

/// Tries each rule, or those that the command line names. `object` is given how many seeds to try (`WHIMBREL_SEEDS`, or `seeds`), and says what
/// has objected.
pub(crate) fn run(
    rules: &[&'static str],
    seeds: u64,
    object: fn(u64) -> Option<String>,
) -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let wanted = std::env::var("WHIMBREL_SEEDS").ok();
    let seeds = wanted.and_then(|text| text.parse().ok()).unwrap_or(seeds);
    // A panic is an objection like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut caught, mut survived) = (0, 0);
    for name in rules
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
    // Unbroken, the same tests must be content.
    if let Some(by) = object(10) {
        println!("no rule broken: objection {by}");
        survived += 1;
    }
    println!("mutants: {caught} caught, {survived} survived");
    if survived == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
