//! Breaks one rule after the other on purpose and sees whether random histories object.
//!
//! `cargo xtask mutants whimbrel-queue [NAME...]`; `WHIMBREL_SEEDS` is how many histories each may survive.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{cases, histories};

/// Every name is that of a switch in this crate.
const MUTANTS: &[&str] = &[
    "accepted-before-the-own-disk",
    "accepted-by-f-minus-one",
    "acts-at-once-after-a-start",
    "acts-before-acceptance",
    "adopts-before-earlier-terminated",
    "adopts-without-asking",
    "asked-peers-forgotten",
    "deleted-before-the-disk",
    "deletes-what-another-has-not",
    "doubt-is-no-copy",
    "doubt-vouches",
    "finished-for-the-sender-alone",
    "first-answer-counts",
    "holders-not-joined",
    "least-of-the-moment",
    "least-without-tombstones",
    "leave-before-all-have-stored",
    "leave-before-the-disk",
    "leaves-though-others-are-unnamed",
    "leaves-with-a-store-under-way",
    "lost-copy-not-stored-again",
    "no-comparison",
    "no-repair",
    "no-tombstones",
    "older-disk-acts",
    "older-disk-adopts",
    "one-way-link-kept",
    "progress-replaced",
    "returning-drops-copy",
    "rewritten-list-sent-before-the-disk",
    "rewritten-with-the-same-term",
    "sent-copies-forgotten",
    "stored-before-the-disk",
    "stored-of-any-version",
    "tombstone-does-not-learn",
    "tombstone-for-the-list-only",
    "unknown-confirms",
    "unknown-of-before-counts",
    "wave-before-all-were-met",
    "wave-without-all",
];

#[test]
#[ignore = "long: each rule is broken in a process of its own"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 3000, object));
}

/// The first history that objects.
fn object(seeds: u64) -> Option<String> {
    let case = |name: &str, case: fn()| {
        std::panic::catch_unwind(case)
            .err()
            .map(|_| format!("by {name}"))
    };
    case("the tables", cases::the_tables_of_the_paper)
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
