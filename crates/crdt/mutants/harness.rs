//! Breaks rules on purpose, one after the other, and tells which are noticed. Part of each crate's example `mutants`; it is no part of the library,
//! which is pure.
//!
//! Which rule is broken is of a whole process: so each is broken in one of its own, as many at a time as there are cores.

use std::{
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use whimbrel_crdt::mutants::break_rule;

/// Set for a process that breaks the one rule that its command line names.
const ONE: &str = "WHIMBREL_ONE_MUTANT";

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
    let rules: Vec<&'static str> = rules
        .iter()
        .copied()
        .filter(|name| chosen.is_empty() || chosen.iter().any(|c| c == name))
        .collect();
    if std::env::var_os(ONE).is_some() {
        for name in rules {
            break_rule(Some(name));
            match object(seeds) {
                Some(by) => println!("mutant {name}: caught {by}"),
                None => println!("mutant {name}: SURVIVED"),
            }
        }
        return ExitCode::SUCCESS;
    }
    let (next, caught) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(name) = rules.get(next.fetch_add(1, Ordering::Relaxed)) {
            let line = alone(name);
            println!("{line}");
            if line.starts_with(&format!("mutant {name}: caught")) {
                caught.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let caught = caught.into_inner();
    let mut survived = rules.len() - caught;
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

/// Breaks a rule in a process of its own, and gives the line that says what came of it.
fn alone(name: &str) -> String {
    let output = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        let command = command.arg(name).env(ONE, "1").stdin(Stdio::null());
        command.stderr(Stdio::inherit()).output()
    });
    let failed = |cause: &str| format!("mutant {name}: SURVIVED ({cause})");
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let line = text.lines().find(|line| line.starts_with("mutant "));
            line.map_or_else(|| failed("it has told nothing"), str::to_owned)
        }
        Err(error) => failed(&error.to_string()),
    }
}
