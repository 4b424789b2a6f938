//! Compares the crate with the model that was made from the proofs, on random histories.
//!
//! `cargo xtask proofs` makes the model's program, the oracle, and runs this with its path in `WHIMBREL_ORACLE`. `WHIMBREL_SEEDS` and
//! `WHIMBREL_FIRST_SEED` choose how many seeds and which; `WHIMBREL_JOBS` how many at a time. A history in which less than a third is concurrent, or
//! that is too short, is not counted. With the feature `mutants`, `--mutants` breaks rules on purpose, and each must be noticed.

mod compare;
mod history;
mod model;
mod modseq;
#[cfg(feature = "mutants")]
mod mutants;
mod seen;
#[path = "../../tests/world/shrink.rs"]
mod shrink;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use model::Oracle;

/// So many histories have everything in them.
const MANY: u64 = 1_000;

/// Disagreements that are shrunk and told: after some the rest is more of the same.
const TOLD_MAX: u64 = 3;

#[derive(Default)]
struct Totals {
    histories: u64,
    ops: u64,
    concurrent: u64,
    disagreements: u64,
    happened: [u64; history::ALL.len()],
}

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    if std::env::args().any(|argument| argument == "--mutants") {
        return if mutants::run() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let Ok(path) = std::env::var("WHIMBREL_ORACLE") else {
        println!("cargo xtask proofs makes the oracle and names it in WHIMBREL_ORACLE");
        return ExitCode::FAILURE;
    };
    let first = number("WHIMBREL_FIRST_SEED", 1);
    let end = first + number("WHIMBREL_SEEDS", 1_000);
    let next = Arc::new(AtomicU64::new(first));
    let totals = Arc::new(Mutex::new(Totals::default()));
    let jobs: Vec<_> = (0..number("WHIMBREL_JOBS", 2))
        .map(|_| {
            let (path, next, totals) = (path.clone(), Arc::clone(&next), Arc::clone(&totals));
            std::thread::spawn(move || work(&path, &next, end, &totals))
        })
        .collect();
    let failed = jobs
        .into_iter()
        .filter_map(|job| match job.join() {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some("a thread panics".to_owned()),
        })
        .inspect(|why| println!("oracle: {why}"))
        .count();
    let Ok(totals) = totals.lock() else {
        return ExitCode::FAILURE;
    };
    let mut happened = String::new();
    let mut never = false;
    for (what, count) in history::ALL.iter().zip(totals.happened) {
        happened += &format!(" {what}={count}");
        if count == 0 && totals.histories >= MANY {
            println!("oracle: {what} never happened");
            never = true;
        }
    }
    println!(
        "oracle: histories={} disagreements={} ops={} concurrent={}{happened}",
        totals.histories, totals.disagreements, totals.ops, totals.concurrent
    );
    if failed == 0 && !never && totals.disagreements == 0 && totals.histories > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Compares seeds until there are none left.
fn work(path: &str, next: &AtomicU64, end: u64, totals: &Mutex<Totals>) -> Result<(), String> {
    let mut oracle = Oracle::start(path)?;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(());
        }
        let (setting, actions) = history::generate(seed);
        let compared = compare::compare(&mut oracle, &setting, &actions);
        let mut totals = totals.lock().map_err(|_| "a thread panics".to_owned())?;
        match compared {
            Ok(trace) if !trace.counts() => {}
            Ok(trace) => {
                totals.histories += 1;
                totals.ops += trace.ops;
                totals.concurrent += trace.concurrent;
                trace.tally(&mut totals.happened);
            }
            Err(error) => {
                totals.histories += 1;
                totals.disagreements += 1;
                println!("oracle: seed {seed}: {error}");
                if totals.disagreements <= TOLD_MAX {
                    let (short, error) = compare::shrink(&mut oracle, &setting, &actions);
                    println!("oracle: seed {seed}, {} actions: {error}", short.len());
                    println!("{setting:?}");
                    for action in &short {
                        println!("  {action:?}");
                    }
                }
            }
        }
    }
}
