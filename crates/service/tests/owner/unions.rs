//! Two nodes make a mailbox of one name while they do not hear each other: who has selected either goes on when the two become one.

use whimbrel_service::api::{Changes, MailboxCall, MailboxId, Reply, Selected, SessionId};

use super::{pair::Pair, world::name};

const WATCHER: SessionId = SessionId(3);

fn select(pair: &mut Pair, node: usize) -> Selected {
    let select = MailboxCall::Select {
        session: WATCHER,
        name: name("Work"),
        read_only: false,
    };
    match pair.call(node, select) {
        Reply::Selected(selected) => selected,
        other => panic!("{other:?}"),
    }
}

fn changes(pair: &mut Pair, node: usize, since: u64) -> Changes {
    let call = MailboxCall::Changes {
        session: WATCHER,
        since,
        expunges: true,
    };
    match pair.call(node, call) {
        Reply::Changes(changes) => changes,
        other => panic!("{other:?}"),
    }
}

/// Two nodes that have met, and what sessions were told that have selected the mailbox of their node before.
fn met() -> (Pair, [Selected; 2]) {
    let mut pair = Pair::new();
    pair.settle();
    pair.unlink();
    let told = [0, 1].map(|node| {
        pair.create(node, "Work");
        pair.append(node, "Work", 2 + node);
        select(&mut pair, node)
    });
    assert_ne!(told[0].status.id, told[1].status.id);
    pair.link();
    pair.settle();
    (pair, told)
}

fn deleted(pair: &mut Pair) {
    let reply = pair.call(0, MailboxCall::Delete { name: name("Work") });
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    pair.settle();
}

#[test]
fn a_session_goes_on_in_a_union() {
    let (mut pair, told) = met();
    for (node, told) in told.iter().enumerate() {
        let changes = changes(&mut pair, node, told.as_of);
        assert_eq!(changes.id, Some(told.status.id), "node {node}");
        assert_eq!(changes.present, None);
        // What the other node has put there is new; a message may have got a greater UID, as when both put messages into one mailbox.
        let mut known = told.uids.to_vec();
        known.retain(|uid| !changes.vanished.contains(uid));
        known.extend(changes.arrived);
        assert_eq!(known.len(), 5, "node {node}");
        assert_eq!(known, pair.uids(node, "Work"), "node {node}");
        assert_eq!(
            told.status.uid_validity,
            select(&mut pair, node).status.uid_validity
        );
    }
    // Who selects it now is told the same on both nodes.
    let ids = [0, 1].map(|node| select(&mut pair, node).status.id);
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn and_does_not_when_all_of_it_is_gone() {
    let (mut pair, told) = met();
    deleted(&mut pair);
    for (node, told) in told.iter().enumerate() {
        assert_eq!(changes(&mut pair, node, told.as_of).id, None);
    }
    pair.create(0, "Work");
    pair.settle();
    let is_new =
        |id: Option<MailboxId>| id.is_some_and(|id| told.iter().all(|told| told.status.id != id));
    for (node, before) in told.iter().enumerate() {
        assert!(
            is_new(changes(&mut pair, node, before.as_of).id),
            "node {node}"
        );
    }
}
