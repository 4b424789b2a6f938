//! One node with one account, which plans and applies by itself.

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;

pub(crate) const NOW: u64 = 1_700_000_100_000_000;

pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) origin: Incarnation,
    pub(crate) applied: VersionVector,
}

impl Node {
    /// All have slot 1.
    pub(crate) fn new(origin: u64) -> Node {
        Node {
            replica: Replica::new(AccountId([9; 16]), 1),
            origin: Incarnation::new(origin).expect("not zero"),
            applied: VersionVector::new(),
        }
    }

    pub(crate) fn at(&self) -> At {
        At {
            now_micros: NOW,
            next: Dot::new(self.origin, self.applied.get(self.origin) + 1),
        }
    }

    pub(crate) fn apply(
        &mut self,
        origin: Incarnation,
        ops: Vec<Op>,
    ) -> Result<Effects, ApplyError> {
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

    /// Its own operations.
    pub(crate) fn make(&mut self, ops: Vec<Op>) {
        self.apply(self.origin, ops).expect("its own");
    }

    /// Messages into INBOX; what it did.
    pub(crate) fn append(&mut self, messages: Vec<NewMessage>) -> Vec<Op> {
        let inbox = MailboxName::inbox();
        let plan = self.replica.plan_append(&self.at(), &inbox, messages);
        let ops = plan.expect("INBOX is there").ops;
        self.make(ops.clone());
        ops
    }
}
