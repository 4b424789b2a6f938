//! Breaks one rule after the other on purpose and sees whether a test objects: the scenarios first, then random histories.
//!
//! `cargo xtask mutants whimbrel-dns [NAME...]`; `WHIMBREL_SEEDS` is how many histories each may survive.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{histories, scenarios};

/// Every name is that of a switch in this crate.
const MUTANTS: &[&str] = &[
    "alias-loops-followed",
    "aliases-unbounded",
    "cache-unbounded",
    "case-not-checked",
    "failure-is-no-name",
    "failures-not-held",
    "guesses-unbounded",
    "id-not-checked",
    "other-names-taken",
    "question-not-checked",
    "questions-not-joined",
    "questions-unbounded",
    "referral-is-no-data",
    "server-not-checked",
    "soa-of-another-zone",
    "streams-unbounded",
    "truncated-taken",
    "ttl-unbounded",
    "two-servers-at-once",
    "upper-code-ignored",
];

#[test]
#[ignore = "long: each rule is broken in a process of its own"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 300, object));
}

/// The first test that objects.
fn object(seeds: u64) -> Option<String> {
    let scenario = |(name, scenario): &(&str, fn())| {
        let caught = std::panic::catch_unwind(*scenario).err();
        caught.map(|_| format!("by {name}"))
    };
    scenarios::ALL.iter().find_map(scenario).or_else(|| {
        (1..=seeds).find_map(|seed| {
            let caught = std::panic::catch_unwind(|| histories::history(seed)).err();
            caught.map(|_| format!("at seed {seed}"))
        })
    })
}
