//! What is imported again after it was removed: docs/decisions/0042.

use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{EntryId, FlagChange, Flags, MailboxCall, Reply, SessionId},
    machine::Input,
    owner::Config,
};

use crate::{
    pair::{Pair, appending},
    world::{World, name},
};

fn import() -> MailboxCall {
    let MailboxCall::Append { name, messages, .. } = appending("INBOX", 1) else {
        unreachable!("it appends");
    };
    let messages = messages.into_iter();
    MailboxCall::Import {
        name,
        messages: messages.map(|new| (EntryId([3; 16]), new)).collect(),
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

/// One node has had time to forget, the other has not: if it forgot, a message would live at one and be dead at the other, which would stall the account
/// when it is changed.
#[test]
fn nodes_agree_on_what_was_imported_again() {
    let mut pair = Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    });
    assert_eq!(added(pair.call(0, import())), 1);
    pair.settle();
    pair.remove(0, "INBOX");
    pair.input(0, Input::QueueRecovered);
    // The other one knows nothing of the queue yet, and collects nothing delivered. Vectors are told now and then.
    for _ in 0..40 {
        pair.settle();
        pair.pass(0, 1);
        pair.input(1, Input::Time);
    }
    assert_eq!(added(pair.call(0, import())), 0);
    pair.settle();
    pair.input(1, Input::QueueRecovered);
    for _ in 0..40 {
        pair.pass(1, 1);
        pair.input(0, Input::Time);
        pair.settle();
    }
    for node in 0..2 {
        assert_eq!(pair.nodes[node].rows_of(is_message).len(), 1);
    }
    let uids = pair.uids(0, "INBOX");
    pair.call(
        0,
        MailboxCall::Store {
            session: SessionId(1),
            name: name("INBOX"),
            uids,
            change: FlagChange::Add,
            flags: Flags::from_iter([whimbrel_mailbox::Flag::Seen]),
            unchanged_since: None,
        },
    );
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
        uid_validity: 7,
        uids,
    };
    assert!(matches!(world.call(remove), Reply::Done));
    assert_eq!(added(world.call(import())), 0);
    world.collect();
    assert_eq!(world.rows_of(is_message), 0);
    assert_eq!(added(world.call(import())), 1);
}
