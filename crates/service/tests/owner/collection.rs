//! What is removed leaves nothing behind.

use std::collections::VecDeque;

use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{MailboxCall, Reply},
    machine::{Input, RequestId},
};

use super::{
    remote_batches::{create, two_accounts},
    world::{ANNE, World, bea, name},
};

/// A collection is cut between messages: a crash between two of its commits leaves no content row and no hold of a blob behind that nothing leads
/// to any more.
#[test]
fn a_crash_within_a_collection_leaves_nothing_for_ever() {
    let mut commits = 0;
    for power in 0.. {
        let mut world = World::new();
        world.fill("INBOX", 10_000);
        // Some have copies, of which the last one to go takes the content row along.
        let uids = world.uids("INBOX");
        let copied = world.transfer("INBOX", uids[2_000..5_000].to_vec(), "Sent", false);
        assert!(matches!(copied, Some(Reply::Copied { .. })), "{copied:?}");
        let contents = |key: &RowKey| matches!(key, RowKey::Content(_));
        let messages = |key: &RowKey| matches!(key, RowKey::Message(_));
        for mailbox in ["INBOX", "Sent"] {
            let uids = world.uids(mailbox);
            let reply = world.call(MailboxCall::Remove {
                name: name(mailbox),
                uids,
            });
            assert!(matches!(reply, Reply::Done), "{reply:?}");
        }
        assert_eq!(
            (world.rows_of(messages), world.rows_of(contents)),
            (13_000, 10_000)
        );
        assert_eq!(world.held.len(), 10_000);
        world.power_for_rows = power;
        world.collect();
        let crashed = world.power_for_rows == 0;
        // What is left can be read.
        world.restart();
        assert!(world.uids("INBOX").is_empty());
        assert_eq!(world.rows_of(contents), world.held.len());
        world.collect();
        assert_eq!((world.rows_of(messages), world.rows_of(contents)), (0, 0));
        assert_eq!(world.held.len(), 0);
        if !crashed {
            break;
        }
        commits += 1;
    }
    assert!(commits > 3, "{commits}");
}

/// A delivery that the store still holds back belongs to what is removed with its account.
#[test]
fn an_account_is_removed_with_what_is_still_being_written() {
    for holds_lazy in [false, true] {
        let mut world = World::new();
        world.fill("INBOX", 3);
        world.holds_lazy = holds_lazy;
        world.deliver(3);
        assert_eq!(world.held.len(), if holds_lazy { 3 } else { 4 });
        world.input(Input::Purge(ANNE), RequestId(0));
        world.let_go();
        assert_eq!((world.rows_of(|_| true), world.held.len()), (0, 0));
    }
}

/// The store takes no writes for a while, or cannot be read: the removal goes on by itself, after a pause and not at once.
#[test]
fn a_removal_of_an_account_goes_on_after_a_failure() {
    for (refuses, fails_loads) in [(1, 0), (3, 0), (0, 1), (0, 2), (2, 2)] {
        let mut world = World::new();
        world.fill("INBOX", 3);
        (world.refuses, world.fails_loads) = (refuses, fails_loads);
        let begun = world.now.mono_micros;
        world.input(Input::Purge(ANNE), RequestId(0));
        assert!(world.rows_of(|_| true) > 0);
        world.collect();
        assert_eq!((world.rows_of(|_| true), world.held.len()), (0, 0));
        let failures = (refuses + fails_loads) as u64;
        let paused = world.now.mono_micros - begun;
        assert!(paused >= failures * 1_000_000, "{paused} for {failures}");
    }
}

/// What was written to both last is one commit, for which both wait.
#[test]
fn two_accounts_that_are_removed_behind_one_commit_are_gone() {
    let mut pair = two_accounts();
    pair.nodes[1].slow = Some(VecDeque::new());
    pair.forge_all(vec![(bea(), create("new")), (ANNE, create("new"))]);
    for account in [ANNE, bea()] {
        pair.nodes[1].removed.insert(account);
        pair.input(1, Input::Purge(account));
    }
    for ticket in pair.nodes[1].slow.take().unwrap() {
        pair.input(1, Input::Committed(ticket));
    }
    pair.settle();
    let rows = pair.nodes[1].rows.keys();
    assert_eq!(rows.filter(|key| key.first() == Some(&b'a')).count(), 0);
}
