//! Breaks rules on purpose, one after the other, and tells which are noticed. Part of each crate's tests `mutants`, and of oracle and explorer; it is
//! no part of the library, which is pure.
//!
//! Each rule is broken in a process of its own, as many at a time as there are cores. [`NAMES`] and [`SHARE`] choose among the rules.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use whimbrel_crdt::mutants::break_rule;

/// Set for a process that breaks this one rule.
const ONE: &str = "WHIMBREL_ONE_MUTANT";

/// Rules, with spaces between them; all when it is not set.
const NAMES: &str = "WHIMBREL_MUTANTS";

/// `K/N`: of N shares of the rules the one with number K, from 0.
const SHARE: &str = "WHIMBREL_MUTANTS_SHARE";

/// Tries the rules that are chosen. `object` is given how many seeds to try (`WHIMBREL_SEEDS`, or `seeds`), and says what has objected.
/// True when each rule was noticed.
pub(crate) fn run(rules: &[&'static str], seeds: u64, object: fn(u64) -> Option<String>) -> bool {
    let wanted = std::env::var("WHIMBREL_SEEDS").ok();
    let seeds = wanted.and_then(|text| text.parse().ok()).unwrap_or(seeds);
    // A panic is an objection like any other.
    std::panic::set_hook(Box::new(|_| {}));
    if let Ok(one) = std::env::var(ONE) {
        for name in rules.iter().filter(|name| **name == one) {
            break_rule(Some(name));
            // A test runner may have begun the line.
            match object(seeds) {
                Some(by) => println!("\nmutant {name}: caught {by}"),
                None => println!("\nmutant {name}: SURVIVED"),
            }
        }
        return true;
    }
    println!();
    let rules = chosen(rules);
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
    survived == 0
}

fn chosen(rules: &[&'static str]) -> Vec<&'static str> {
    let names = std::env::var(NAMES).unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    let share = std::env::var(SHARE).ok();
    let share = share.and_then(|text| {
        let (number, of) = text.split_once('/')?;
        Some((number.parse::<usize>().ok()?, of.parse::<usize>().ok()?))
    });
    let (number, of) = share.unwrap_or((0, 1));
    rules
        .iter()
        .copied()
        .filter(|name| names.is_empty() || names.contains(name))
        .enumerate()
        .filter(|(at, _)| at % of.max(1) == number)
        .map(|(_, name)| name)
        .collect()
}

/// Breaks a rule in a process of its own, and gives the line that says what came of it.
fn alone(name: &str) -> String {
    let output = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        // A test runner is told once more which test it is to run.
        command.args(std::env::args_os().skip(1)).env(ONE, name);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
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
