//! Breaks one rule after the other on purpose and sees whether a test objects: the scenarios first, then counts and cases, then random histories.
//!
//! `cargo xtask mutants whimbrel-queue [NAME...]`; `WHIMBREL_SEEDS` is how many histories each may survive.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{cases, counts, histories, scenarios};

/// Every name is that of a switch in this crate.
const MUTANTS: &[&str] = &[
    "accepted-before-the-own-disk",
    "accepted-by-f-minus-one",
    "acting-owner-keeps-its-list",
    "acts-at-once-after-a-start",
    "acts-before-acceptance",
    "adopts-a-changed-list",
    "adopts-before-earlier-terminated",
    "adopts-without-asking",
    "alone-in-doubt",
    "asked-once",
    "asked-peers-forgotten",
    "asker-is-no-holder",
    "away-for-the-whole-time",
    "away-forgotten-at-a-start",
    "away-is-dead",
    "away-is-missing",
    "deaf-peers-waited-for",
    "deleted-before-the-disk",
    "deleted-while-delivering",
    "deletes-what-another-has-not",
    "doubt-is-no-copy",
    "doubt-judged-by-those-linked",
    "doubt-never-cleared",
    "doubt-only-in-memory",
    "doubt-vouches",
    "doubts-look-the-same",
    "excluded-chosen",
    "finished-for-the-sender-alone",
    "first-answer-counts",
    "given-up-and-kept",
    "holders-not-joined",
    "known-before-the-disk",
    "least-of-the-moment",
    "least-without-deliveries",
    "least-without-tombstones",
    "least-without-writes",
    "leave-before-all-have-stored",
    "leave-before-the-disk",
    "leave-confirms",
    "leaves-at-an-older-word",
    "leaves-the-set-at-any-version",
    "leaves-though-others-are-unnamed",
    "leaves-with-a-delivery-under-way",
    "leaves-with-a-store-under-way",
    "lost-adoption-not-acted-on",
    "lost-copy-not-stored-again",
    "new-owners-are-no-holders",
    "no-comparison",
    "no-repair",
    "no-tombstones",
    "old-link-goes-on",
    "older-disk-acts",
    "older-disk-adopts",
    "one-way-link-kept",
    "progress-not-compared",
    "progress-replaced",
    "repair-without-rate",
    "requests-not-cancelled",
    "returning-drops-copy",
    "rewritten-list-sent-before-the-disk",
    "rewritten-with-the-same-term",
    "sent-copies-forgotten",
    "sent-only-in-memory",
    "slow-peer-kept",
    "stale-dropped",
    "stored-before-the-disk",
    "stored-of-any-version",
    "stored-of-nothing-ignored",
    "takes-with-fewer-peers",
    "ticket-accepted-in-part",
    "tombstone-confirms",
    "tombstone-does-not-learn",
    "tombstone-for-the-list-only",
    "tombstone-only-in-memory",
    "tombstones-look-the-same",
    "tombstones-written-at-once",
    "unheard-is-dead",
    "unknown-confirms",
    "unknown-of-before-counts",
    "unknown-takes-out",
    "unready-to-leave-answers-at-once",
    "waits-for-all-for-ever",
    "waits-for-removed-members",
    "wave-before-all-were-met",
    "wave-without-all",
    "wave-without-own",
];

#[test]
#[ignore = "long: each rule is broken in a process of its own"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 3000, object));
}

/// The first test that objects.
fn object(seeds: u64) -> Option<String> {
    let case = |name: &str, case: fn()| {
        std::panic::catch_unwind(case)
            .err()
            .map(|_| format!("by {name}"))
    };
    let scenario = |(name, scenario): &(&str, fn())| case(name, *scenario);
    scenarios::ALL
        .iter()
        .find_map(scenario)
        .or_else(|| {
            let counts = counts::a_tuple_costs_the_same_in_every_cluster;
            case("the counts", counts)
        })
        .or_else(|| case("the tables", cases::the_tables_of_the_paper))
        .or_else(|| case("a relation", || assert!(cases::relations(3, 2, 1) > 0)))
        .or_else(|| history(seeds))
}

fn history(seeds: u64) -> Option<String> {
    (1..=seeds).find_map(|seed| {
        let run = || histories::history(seed, false).0.breach;
        let breach = std::panic::catch_unwind(run).unwrap_or(Some("panic".to_owned()));
        let breach: String = breach?.chars().take(90).collect();
        Some(format!("at seed {seed} ({breach})"))
    })
}
