//! Breaks one rule after the other on purpose and sees whether the laws object.
//!
//! `cargo xtask mutants whimbrel-directory [NAME...]`; `WHIMBREL_SEEDS` is how many random histories each may survive.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::world;

/// Every name is that of a switch in `crdt` or `directory`.
const MUTANTS: &[&str] = &[
    "alias-stays",
    "change-revives",
    "credential-by-arrival",
    "floor-forgotten",
    "join-brings-back",
    "join-forgets-floors",
    "join-keeps-removed",
    "latest-decoy",
    "latest-holds",
    "quota-by-arrival",
    "removal-takes-unseen",
    "uid-validity-of-any-slot",
];

#[test]
#[ignore = "long: cargo xtask mutants"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 400, object));
}

/// The first law that objects.
fn object(seeds: u64) -> Option<String> {
    use proptest::{
        prelude::any,
        test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
    };
    use world::{laws, steps};

    let cases = u32::try_from(seeds).unwrap_or(u32::MAX);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let histories = (2..=4usize, steps(60));
    let converge = runner.run(&histories, |(count, history)| {
        laws::replicas_converge(count, &history)
    });
    if let Err(error) = converge {
        return Some(format!("by convergence ({})", summary(&error.to_string())));
    }
    let histories = (2..=4usize, steps(60), any::<u64>());
    let joined = runner.run(&histories, |(count, history, order)| {
        laws::joining_is_applying(count, &history, order)
    });
    let error = joined.err()?;
    Some(format!("by a join ({})", summary(&error.to_string())))
}

fn summary(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.chars().take(90).collect()
}
