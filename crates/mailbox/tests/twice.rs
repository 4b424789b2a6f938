//! UIDs that are given twice: two nodes have one slot, against the rules.

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;

use crate::message::{BLOB, message};

const NOW: u64 = 1_700_000_100_000_000;

struct Node {
    replica: Replica,
    origin: Incarnation,
    applied: VersionVector,
}

impl Node {
    /// All have slot 1.
    fn new(origin: u64) -> Node {
        Node {
            replica: Replica::new(AccountId([9; 16]), 1),
            origin: Incarnation::new(origin).expect("not zero"),
            applied: VersionVector::new(),
        }
    }

    fn at(&self) -> At {
        At {
            now_micros: NOW,
            next: Dot::new(self.origin, self.applied.get(self.origin) + 1),
        }
    }

    fn apply(&mut self, origin: Incarnation, ops: Vec<Op>) -> Result<Effects, ApplyError> {
        let deps = self.applied.clone();
        let first = self.applied.get(origin) + 1;
        self.applied.advance(origin, first - 1 + ops.len() as u64);
        let step = Step {
            origin,
            first,
            hlc: NOW + first,
            deps: &deps,
            applied: &self.applied,
            now_micros: NOW + first,
            peers: &Peers::none(),
        };
        self.replica.apply(&step, ops)
    }

    fn append(&mut self) -> Vec<Op> {
        let inbox = MailboxName::inbox();
        let plan = self
            .replica
            .plan_append(&self.at(), &inbox, vec![message(BLOB)]);
        let ops = plan.expect("INBOX is there").ops;
        self.apply(self.origin, ops.clone()).expect("its own");
        ops
    }

    fn shown(&self) -> usize {
        self.replica.uids(&MailboxName::inbox()).len()
    }
}

/// Two nodes that both have slot 1, and know of no other message than their own; what the second one did.
fn two() -> (Node, Node, Vec<Op>) {
    let (mut one, mut two) = (Node::new(1), Node::new(2));
    let open = one.replica.plan_open(1_700_000_000, 3, &[]).ops;
    one.apply(one.origin, open.clone()).expect("the first");
    two.apply(one.origin, open).expect("the first");
    one.append();
    let ops = two.append();
    (one, two, ops)
}

#[test]
fn an_operation_that_gives_a_uid_again_is_refused() {
    let (mut one, two, ops) = two();
    let refused = one.apply(two.origin, ops);
    assert!(
        matches!(refused, Err(ApplyError::ClaimedTwice(_))),
        "{refused:?}"
    );
}

/// The one that comes is claimed again.
#[test]
fn joined_states_that_give_a_uid_twice_show_both() {
    let (mut one, two, _) = two();
    let mine = one.applied.clone();
    let effects = one
        .replica
        .join(&mine, &two.replica, &two.applied, NOW, &Peers::none());
    one.applied.merge(&two.applied);
    assert!(effects.late);
    assert_eq!(one.shown(), 1);
    let ops = one.replica.plan_late(&one.at(), &Peers::none()).ops;
    one.apply(one.origin, ops).expect("its own");
    assert_eq!((one.shown(), one.replica.is_clean()), (2, true));
}
