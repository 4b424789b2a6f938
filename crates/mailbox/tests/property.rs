//! Random histories against the oracle and the clients' models.
//!
//! `WHIMBREL_SEEDS` and `WHIMBREL_FIRST_SEED` choose how many and which; a failing seed is printed and shrunk.

use crate::world;

use world::{Stats, generate, shrink, try_run};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn random_histories() {
    let first = number("WHIMBREL_FIRST_SEED", 1);
    let seeds = number("WHIMBREL_SEEDS", 400);
    let mut total = Stats::default();
    let (mut concurrent_ops, mut all_ops) = (0, 0);
    for seed in first..first + seeds {
        let (setting, actions) = generate(seed);
        match try_run(&setting, &actions) {
            Ok(stats) => {
                assert!(
                    stats.ops >= 30,
                    "seed {seed} has only {} operations",
                    stats.ops
                );
                if !setting.serial {
                    concurrent_ops += stats.concurrent;
                    all_ops += stats.ops;
                }
                total.ops += stats.ops;
                total.messages += stats.messages;
                total.uids_reassigned += stats.uids_reassigned;
                total.overlooked += stats.overlooked;
                total.wander_new += stats.wander_new;
                total.collected += stats.collected;
                total.oracle_checks += stats.oracle_checks;
                total.pending += stats.pending;
                total.takeover_uids += stats.takeover_uids;
                total.cut += stats.cut;
            }
            Err(error) => {
                eprintln!("seed {seed} fails: {error}");
                let (short, error) = shrink(&setting, &actions);
                eprintln!("{setting:?}");
                for action in &short {
                    eprintln!("  {action:?}");
                }
                panic!("seed {seed}: {error} ({} actions)", short.len());
            }
        }
    }
    println!("{seeds} seeds: {total:?}, concurrent {concurrent_ops} of {all_ops}");
    assert!(
        concurrent_ops * 3 >= all_ops,
        "at least a third is concurrent: {concurrent_ops} of {all_ops}"
    );
    assert!(
        total.uids_reassigned > 0
            && total.collected > 0
            && total.pending > 0
            && total.takeover_uids > 0
            && total.cut > 0
    );
}
