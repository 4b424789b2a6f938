//! Breaks one rule of the crate after the other on purpose and sees whether the comparison objects.

#[path = "../../../crdt/mutants/harness.rs"]
mod harness;

use crate::{Oracle, compare, history};

/// Every name is that of a switch in `crdt` or `mailbox`. Those that the model does not cover, and one that random histories
/// hardly meet, are left to `tests/mutants.rs`.
const MUTANTS: &[&str] = &[
    "announce-forgotten",
    "claim-for-any-placement",
    "claim-last-wins",
    "claims-ahead-of-epoch",
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
    "flags-keep-modseq",
    "import-is-a-delivery",
    "imports-leave-nothing",
    "join-brings-back",
    "join-drops-hidden",
    "join-forgets-killed",
    "join-keeps-removed",
    "late-is-shown",
    "living-message-without-mailbox",
    "mark-goes-with-name",
    "modseq-given-twice",
    "move-does-not-keep",
    "move-does-not-undelete",
    "move-last-arrival-wins",
    "rename-shows-below-mark",
    "renamed-keeps-modseq",
    "rescue-does-not-keep",
    "set-loses",
    "store-raises-the-dead",
    "target-gets-no-dot",
    "vanished-forgotten",
    "vanishing-keeps-highest",
];

/// Histories that each may survive.
const SEEDS: u64 = 3_000;

/// True when each was noticed.
pub(crate) fn run() -> bool {
    harness::run(MUTANTS, SEEDS, object)
}

/// The first history that objects.
fn object(seeds: u64) -> Option<String> {
    let path = std::env::var("WHIMBREL_ORACLE").unwrap_or_default();
    let mut oracle = match Oracle::start(&path) {
        Ok(oracle) => oracle,
        // No oracle, no objection: all survive.
        Err(why) => {
            println!("oracle: {why}");
            return None;
        }
    };
    for seed in 1..=seeds {
        let (setting, actions) = history::generate(seed);
        if let Err(error) = compare::compare(&mut oracle, &setting, &actions) {
            let error: String = error.chars().take(90).collect();
            return Some(format!("at seed {seed} ({error})"));
        }
    }
    None
}
