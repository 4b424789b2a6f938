//! What an account says of its memory: what bounds it rests on that.

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;

use crate::message::{BLOB, message};

const NOW: u64 = 1_700_000_100_000_000;
const SOME: usize = 1_000;

struct Node {
    replica: Replica,
    origin: Incarnation,
    applied: VersionVector,
}

impl Node {
    fn new() -> Node {
        let mut node = Node {
            replica: Replica::new(AccountId([9; 16]), 1),
            origin: Incarnation::new(1).expect("not zero"),
            applied: VersionVector::new(),
        };
        node.make(node.replica.plan_open(1, 0, &[]).ops);
        node
    }

    fn at(&self) -> At {
        At {
            now_micros: NOW,
            next: Dot::new(self.origin, self.applied.get(self.origin) + 1),
        }
    }

    fn make(&mut self, ops: Vec<Op>) {
        let deps = self.applied.clone();
        let first = self.applied.get(self.origin) + 1;
        self.applied
            .advance(self.origin, first - 1 + ops.len() as u64);
        let step = Step {
            origin: self.origin,
            first,
            hlc: NOW + first,
            deps: &deps,
            applied: &self.applied,
            now_micros: NOW + first,
            peers: &Peers::none(),
        };
        self.replica.apply(&step, ops).expect("its own");
        self.replica.take_dirty();
    }

    fn append_some(&mut self) {
        let messages = (0..SOME).map(|_| message(BLOB)).collect();
        let plan = self
            .replica
            .plan_append(&self.at(), &MailboxName::inbox(), messages);
        self.make(plan.expect("INBOX is there").ops);
    }

    fn copy_some(&mut self) {
        let inbox = MailboxName::inbox();
        let uids = &self.replica.uids(&inbox)[..SOME];
        let plan = self.replica.plan_copy(&self.at(), &inbox, uids, &inbox);
        self.make(plan.expect("INBOX is there").ops);
    }
}

/// A copy remembers what it is a copy of.
#[test]
fn copies_take_more_than_other_messages() {
    let (mut appended, mut copied) = (Node::new(), Node::new());
    appended.append_some();
    copied.append_some();
    for _ in 0..3 {
        appended.append_some();
        copied.copy_some();
    }
    let (appended, copied) = (
        appended.replica.memory_bytes(),
        copied.replica.memory_bytes(),
    );
    let more = 3 * SOME * size_of::<MessageId>();
    assert!(copied >= appended + more, "{copied} and {appended}");
}

/// An account that was loaded is asked once.
#[test]
fn what_mailboxes_list_is_counted_at_once() {
    let mut node = Node::new();
    for _ in 0..4 {
        node.append_some();
    }
    let rows = node.replica.all_rows();
    let loaded = Replica::load(AccountId([9; 16]), 1, rows, &node.applied);
    let mut loaded = loaded.expect("its own rows");
    let first = loaded.memory_bytes();
    let later: Vec<usize> = (0..10).map(|_| loaded.memory_bytes()).collect();
    assert_eq!(later, [first; 10]);
}
