//! Breaks one rule after the other on purpose and sees whether the test that stands beside it objects.
//!
//! `cargo xtask mutants whimbrel-service [NAME...]`. Here are rules that show in one situation, which random clusters meet rarely: a test makes it.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use std::panic::catch_unwind;

use whimbrel_crdt::mutants::broken;

use crate::{
    owner::{confirm, cut, failover, leaving, snapshots, unannounced},
    queue,
};

/// Names of switches in `service`, and the test that must fail.
const MUTANTS: &[(&str, fn())] = &[
    (
        "answers-without-all",
        leaving::who_lacks_something_does_not_answer,
    ),
    (
        "deliveries-are-not-held",
        queue::nothing_is_forgotten_while_a_delivery_waits,
    ),
    (
        "failed-deliveries-keep-their-hands",
        queue::what_fails_makes_room_at_once,
    ),
    (
        "hidden-is-reported",
        failover::what_is_hidden_is_not_said_to_be_shown,
    ),
    (
        "left-in-part",
        leaving::who_has_an_account_in_part_does_not_leave,
    ),
    (
        "one-account-takes-all-hands",
        queue::one_account_leaves_hands_to_others,
    ),
    (
        "read-again-counter-not-told",
        cut::a_counter_is_told_when_the_account_was_read_again,
    ),
    (
        "refused-stays",
        confirm::a_commit_that_fails_refuses_nothing_that_is_there,
    ),
    (
        "removed-comes-back-by-state",
        snapshots::a_removed_account_does_not_come_back_with_a_state,
    ),
    (
        "reported-before-sync",
        failover::what_is_not_durable_is_not_said_to_be_shown,
    ),
    (
        "state-without-hidden",
        snapshots::an_account_that_cannot_be_joined_can_be_removed,
    ),
    (
        "unannounced-is-known",
        unannounced::new_mail_is_told_after_a_full_disk,
    ),
];

#[test]
#[ignore = "long: cargo xtask mutants"]
fn broken_rules_are_noticed() {
    let names: Vec<&str> = MUTANTS.iter().map(|(name, _)| *name).collect();
    assert!(harness::run(&names, 1, object));
}

/// The test of the broken rule, if it fails; without a broken rule the first of all that does.
fn object(_: u64) -> Option<String> {
    let of_rule = MUTANTS.iter().filter(|(name, _)| broken(name));
    let any = MUTANTS.iter().any(|(name, _)| broken(name));
    let mut tests = of_rule.chain(MUTANTS.iter().filter(|_| !any));
    let failed = tests.find(|(_, test)| catch_unwind(test).is_err());
    failed.map(|(name, _)| format!("by the test of {name}"))
}
