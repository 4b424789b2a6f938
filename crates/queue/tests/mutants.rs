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
    "deleted-before-the-disk",
    "deletes-what-another-has-not",
    "leave-before-all-have-stored",
    "leave-before-the-disk",
    "lost-copy-not-stored-again",
    "no-comparison",
    "no-repair",
    "no-tombstones",
    "one-way-link-kept",
    "progress-replaced",
    "returning-drops-copy",
    "rewritten-list-sent-before-the-disk",
    "stored-before-the-disk",
    "tombstone-for-the-list-only",
    "wave-without-all",
];

/// Rules whose breach a few thousand histories seldom show, or not at all: tried only when `WHIMBREL_MUTANTS` names them.
const RARE: &[&str] = &[
    "asked-peers-forgotten",
    "doubt-is-no-copy",
    "doubt-vouches",
    "finished-for-the-sender-alone",
    "first-answer-counts",
    "holders-not-joined",
    "least-of-the-moment",
    "least-without-tombstones",
    "leaves-though-others-are-unnamed",
    "leaves-with-a-store-under-way",
    "older-disk-acts",
    "older-disk-adopts",
    "rewritten-with-the-same-term",
    "sent-copies-forgotten",
    "stored-of-any-version",
    "tombstone-does-not-learn",
    "unknown-confirms",
    "unknown-of-before-counts",
    "wave-before-all-were-met",
];

#[test]
#[ignore = "long: each rule is broken in a process of its own"]
fn broken_rules_are_noticed() {
    let named = std::env::var_os("WHIMBREL_MUTANTS").is_some();
    let rules = if named {
        [MUTANTS, RARE].concat()
    } else {
        MUTANTS.to_vec()
    };
    assert!(harness::run(&rules, 3000, object));
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
