//! Breaks one rule after the other on purpose and sees whether a test objects.
//!
//! `cargo xtask mutants whimbrel-relay [NAME...]`.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use crate::{destinations, dsn, limits, replies, schedule, srs};

/// Every name is that of a switch in this crate.
const MUTANTS: &[&str] = &[
    "421-is-like-any-other",
    "552-fails-recipients",
    "all-back-at-once",
    "any-hash",
    "auth-fails-mail",
    "case-counts",
    "controls-quoted",
    "dead-forgotten-first",
    "expired-untried",
    "failed-is-no-data",
    "first-key-alone",
    "greedy-fills-all",
    "key-by-order",
    "late-told-again",
    "lost-at-once",
    "lost-behind-the-dot-at-once",
    "most-connections-first",
    "named-by-time",
    "never-dead",
    "never-ignored",
    "no-jitter",
    "none-kept",
    "null-senders-told",
    "one-family-is-all",
    "one-host-is-all",
    "overdue-at-once",
    "own-alone-left-out",
    "own-senders-rewritten",
    "refused-session-fails-all",
    "reused-counts",
    "short-hash-counts",
    "starttls-fails-mail",
    "success-returns-all",
    "success-told-unasked",
    "valid-for-ever",
];

#[test]
#[ignore = "long: each rule is broken in a process of its own"]
fn broken_rules_are_noticed() {
    assert!(harness::run(MUTANTS, 1, object));
}

/// The first test that objects.
fn object(_seeds: u64) -> Option<String> {
    let cases = [
        destinations::ALL,
        dsn::ALL,
        limits::ALL,
        replies::ALL,
        schedule::ALL,
        srs::ALL,
    ];
    cases.into_iter().flatten().find_map(|(name, case)| {
        std::panic::catch_unwind(case)
            .err()
            .map(|_| format!("by {name}"))
    })
}
