//! Breaks one rule after the other on purpose and sees whether the property tests object.
//!
//! `cargo xtask mutants whimbrel-mailbox [NAME...]`; `WHIMBREL_SEEDS` is how many random
//! histories each may survive before it is tried on the named ones.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{renewal, world};

/// Every name is that of a switch in `crdt` or `mailbox`.
const MUTANTS: &[&str] = &[
    "announce-forgotten",
    "claim-for-any-placement",
    "claim-last-wins",
    "collects-mailbox-of-hidden",
    "collects-unfinished-deliveries",
    "collects-unstable",
    "counter-ignores-claims",
    "delete-removes-unseen",
    "deleted-set-wins",
    "delivery-placed-now",
    "delivery-revives",
    "expunge-forgets-a-dot",
    "expunge-removes-unseen",
    "expunge-spares-delivery",
    "first-import-stays",
    "first-spelling-stays",
    "hidden-since-not-restarted",
    "join-brings-back",
    "join-drops-hidden",
    "join-forgets-killed",
    "join-keeps-first-import",
    "join-keeps-removed",
    "last-spelling-wins",
    "late-is-shown",
    "late-not-claimed",
    "left-mailbox-not-restarted",
    "living-message-without-mailbox",
    "mark-goes-with-name",
    "move-does-not-keep",
    "move-does-not-undelete",
    "move-last-arrival-wins",
    "nobody-waits",
    "rename-shows-again",
    "rename-shows-below-mark",
    "replaced-keeps-uid",
    "rescue-does-not-keep",
    "second-restore-not-renewed",
    "set-loses",
    "store-raises-the-dead",
    "superseded-claim-forgotten",
    "takeover-claims-nothing",
    "target-gets-no-dot",
    "vanished-forgotten",
];

#[test]
#[ignore = "long: cargo xtask mutants"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 400, object));
}

/// The first test that objects.
fn object(seeds: u64) -> Option<String> {
    for seed in 1..=seeds {
        let (setting, actions) = world::generate(seed);
        if let Err(error) = world::try_run(&setting, &actions) {
            return Some(format!("at seed {seed} ({})", summary(&error)));
        }
    }
    for (name, scenario) in world::scenarios::SCENARIOS {
        match std::panic::catch_unwind(scenario) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(format!("by {name} ({})", summary(&error))),
            Err(_) => return Some(format!("by {name} (panic)")),
        }
    }
    let restored = std::panic::catch_unwind(renewal::each_older_copy_is_renewed);
    restored.err().map(|_| "by a second restore".to_owned())
}

fn summary(error: &str) -> String {
    error
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(90)
        .collect()
}
