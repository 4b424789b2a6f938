//! Breaks one rule after the other on purpose and sees whether the simulated histories object.
//!
//! `cargo xtask mutants whimbrel-replication [NAME...]`; `WHIMBREL_SEEDS` is how many random histories each
//! may survive, after the named ones.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{blobs, world};

/// Every name is that of a switch in this crate.
const MUTANTS: &[&str] = &[
    "absent-not-asked",
    "acks-before-sync",
    "ahead-applied",
    "amnesia-unnoticed",
    "announced-without-number",
    "any-life",
    "applied-before-sync",
    "applied-early",
    "behind-unnoticed",
    "blob-unverified",
    "budget-exceeded",
    "chain-unchecked",
    "clock-unguarded",
    "closed-log-goes-on",
    "closed-not-asked",
    "closed-too-early",
    "counter-not-told",
    "cut-at-own-pace",
    "donor-never-left",
    "duplicate-taken",
    "excepted-counts",
    "excused-all-the-same",
    "fork-unnoticed",
    "former-life-counts",
    "gap-taken",
    "gifts-are-not-counted",
    "handed-again-after-join",
    "heard-without-number",
    "joined-too-early",
    "jump-unnoticed",
    "left-before-all-is-here",
    "measured-before-the-jump",
    "nothing-forwarded",
    "nothing-passed-on",
    "nothing-sent-again",
    "older-state-taken",
    "fixed-for-an-earlier-question",
    "earlier-question-answered",
    "own-of-before-not-asked",
    "own-of-before-not-counted",
    "readers-of-an-older-link",
    "reads-side-by-side",
    "removed-ones-heard",
    "report-without-number",
    "resume-skips-unapplied",
    "rows-not-asked-again",
    "rows-not-sent-again",
    "rows-wait-for-batches",
    "rows-with-a-gap",
    "rows-without-room",
    "said-before-stored",
    "slot-given-twice",
    "snapshot-kept",
    "stable-beyond-a-state",
    "state-before-membership",
    "state-before-sync",
    "stops-when-alone",
    "stranded-told",
    "stranded-waited-for",
    "the-silent-are-waited-for",
    "upper-median",
    "wait-counts-who-remembers-more",
    "wait-without-blobs",
    "window-ignored",
    "window-never-smaller",
    "syncing-ends-a-log",
    "syncing-trust-each-other",
];

#[test]
#[ignore = "long: cargo xtask mutants"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 300, object));
}

/// The first history that objects.
fn object(seeds: u64) -> Option<String> {
    let tried = |test: &dyn Fn() -> Result<(), String>| match std::panic::catch_unwind(
        std::panic::AssertUnwindSafe(test),
    ) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(
            error
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(110)
                .collect(),
        ),
        Err(_) => Some("panic".to_owned()),
    };
    let bodies = || {
        blobs::nobody_is_believed_without_the_hash();
        Ok(())
    };
    if tried(&bodies).is_some() {
        return Some("by a body of other bytes".into());
    }
    for (name, scenario) in world::named() {
        if let Some(error) = tried(scenario) {
            return Some(format!("by \"{name}\" ({error})"));
        }
    }
    for seed in 1..=seeds {
        if let Some(error) = tried(&|| world::membership::run(seed)) {
            return Some(format!("by a membership ({error})"));
        }
        if let Some(error) = tried(&|| world::readers::run(seed)) {
            return Some(format!("by readers, seed {seed} ({error})"));
        }
    }
    for seed in 1..=seeds {
        if let Some(error) = tried(&|| world::run(seed)) {
            return Some(format!("at seed {seed} ({error})"));
        }
    }
    None
}
