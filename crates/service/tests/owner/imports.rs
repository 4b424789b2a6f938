//! What is imported again, where it was or at another node: docs/decisions/0042.

use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{EntryId, Failure, FlagChange, Flags, MailboxCall, Reply, SessionId},
    machine::{Input, Machine as _},
    owner::{Config, import_upload},
};

use super::{
    pair::{Pair, importing},
    world::{ANNE, World, name},
};

/// What it is at its source.
const ENTRY: EntryId = EntryId([3; 16]);

fn import() -> MailboxCall {
    importing(ENTRY, import_upload(ENTRY, ANNE, &[9; 32]))
}

fn seen(uids: Vec<u32>) -> MailboxCall {
    MailboxCall::Store {
        session: SessionId(1),
        name: name("INBOX"),
        uids,
        change: FlagChange::Add,
        flags: Flags::from_iter([whimbrel_mailbox::Flag::Seen]),
        unchanged_since: None,
    }
}

fn added(reply: Reply) -> usize {
    match reply {
        Reply::Appended { uids, .. } => uids.len(),
        other => panic!("{other:?}"),
    }
}

fn is_message(row: &RowKey) -> bool {
    matches!(row, RowKey::Message(_))
}

fn is_tombstone(row: &RowKey) -> bool {
    matches!(row, RowKey::Tombstone(_))
}

fn is_content(row: &RowKey) -> bool {
    matches!(row, RowKey::Content(_))
}

/// One node has had time to collect, the other has not: if it forgot the import, a message would live at one and be dead at the other, which would
/// stall the account when it is changed.
#[test]
fn nodes_agree_on_what_was_imported_again() {
    let mut pair = Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    });
    pair.nodes[1].config.collect_after_seconds = 1_000_000;
    pair.restart(1);
    assert_eq!(added(pair.call(0, import())), 1);
    pair.settle();
    pair.remove(0, "INBOX");
    let kept = |pair: &Pair, node: usize| {
        let of = |is: fn(&RowKey) -> bool| pair.nodes[node].rows_of(is).len();
        let bodies = pair.nodes[node].held.len();
        (of(is_message), of(is_content), bodies, of(is_tombstone))
    };
    // Vectors are told now and then.
    let time_passes = |pair: &mut Pair| {
        for _ in 0..40 {
            pair.settle();
            pair.pass(0, 1);
            pair.input(1, Input::Time);
        }
    };
    time_passes(&mut pair);
    let (collected, not_yet) = ((0, 0, 0, 1), (1, 1, 1, 0));
    assert_eq!((kept(&pair, 0), kept(&pair, 1)), (collected, not_yet));
    assert_eq!(added(pair.call(0, import())), 0);
    pair.restart(0);
    for node in 0..2 {
        assert_eq!(added(pair.call(node, import())), 0);
    }
    pair.settle();
    pair.nodes[1].config.collect_after_seconds = 1;
    pair.restart(1);
    assert_eq!(pair.uids(1, "INBOX"), []);
    time_passes(&mut pair);
    assert_eq!((kept(&pair, 0), kept(&pair, 1)), (collected, collected));
    for node in 0..2 {
        assert_eq!(added(pair.call(node, import())), 0);
    }
    pair.settle();
    let uids = pair.uids(0, "INBOX");
    pair.call(0, seen(uids));
    pair.settle();
    assert_eq!(pair.stalled(), 0);
    assert_eq!(pair.uids(0, "INBOX"), pair.uids(1, "INBOX"));
}

/// Where nobody has it otherwise it takes no room for ever, and comes back.
#[test]
fn a_node_alone_forgets_what_was_imported() {
    let mut world = World::new();
    assert_eq!(added(world.call(import())), 1);
    let uids = world.uids("INBOX");
    let remove = MailboxCall::Remove {
        name: name("INBOX"),
        uids,
    };
    assert!(matches!(world.call(remove), Reply::Done));
    assert_eq!(added(world.call(import())), 0);
    world.collect();
    assert_eq!(world.rows_of(is_message), 0);
    assert_eq!(added(world.call(import())), 1);
}

/// It is made a cluster: the log that the other node is given has neither the import, nor its removal, which would keep the second one dead there.
#[test]
fn what_was_forgotten_alone_is_in_no_log() {
    let mut pair = Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    });
    pair.unlink();
    let peers = std::mem::take(&mut pair.nodes[0].config.peers);
    pair.restart(0);
    assert_eq!(added(pair.call(0, import())), 1);
    pair.remove(0, "INBOX");
    pair.pass(0, 2);
    assert_eq!(pair.nodes[0].rows_of(is_message).len(), 0);
    assert_eq!(added(pair.call(0, import())), 1);
    pair.nodes[0].config.peers = peers;
    pair.restart(0);
    pair.link();
    for _ in 0..4 {
        pair.settle();
    }
    let uids = pair.uids(0, "INBOX");
    assert_eq!(uids.len(), 1);
    pair.call(0, seen(uids.clone()));
    pair.settle();
    assert_eq!((pair.uids(1, "INBOX"), pair.stalled()), (uids, 0));
}

/// The first node is lost before anybody has the body from it: who imports the message again has brought it, and is not told that all is here already
/// while it is not.
#[test]
fn an_import_brings_a_body_that_was_lost_elsewhere() {
    let mut pair = Pair::new();
    pair.create(0, "box");
    pair.settle();
    pair.nowhere = true;
    assert_eq!(added(pair.call(0, import())), 1);
    pair.settle();
    pair.unlink();
    let missing = |pair: &Pair| {
        let reports = pair.nodes[1].owner.reports();
        reports.iter().map(|of| of.blobs_missing).sum::<u64>()
    };
    assert_eq!((pair.uids(1, "INBOX").len(), missing(&pair)), (0, 1));
    // The name was in use: it is on its way.
    let reply = pair.call(1, importing(ENTRY, [5; 16]));
    assert!(
        matches!(reply, Reply::Failed(Failure::Temporary)),
        "{reply:?}"
    );
    assert_eq!(added(pair.call(1, import())), 0);
    assert_eq!((pair.uids(1, "INBOX").len(), missing(&pair)), (1, 0));
    pair.restart(1);
    assert_eq!(pair.uids(1, "INBOX").len(), 1);
}

/// The name of its upload was in use: another node may make the same message with the body that is called so, and a third one would ask for one of both.
#[test]
fn in_a_cluster_an_import_has_the_body_that_others_give_it() {
    let other = || importing(ENTRY, [5; 16]);
    let mut pair = Pair::new();
    pair.unlink();
    let reply = pair.call(1, other());
    assert!(
        matches!(reply, Reply::Failed(Failure::Temporary)),
        "{reply:?}"
    );
    assert_eq!(pair.uids(1, "INBOX"), []);
    assert_eq!(added(pair.call(1, import())), 1);
    assert_eq!(added(pair.call(1, other())), 0, "it is here");
    // Nobody else makes it.
    assert_eq!(added(World::new().call(other())), 1);
}
