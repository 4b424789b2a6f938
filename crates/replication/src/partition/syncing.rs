//! A node that is new, or replaces one whose disk was lost, is *syncing* in a partition: a client that comes from another node may know what it has
//! never heard of. It stops syncing when it has applied all that one peer, which was not syncing, had applied at its first hello. From then on it
//! lacks nothing that this peer had.
//!
//! A hello says whether its sender is syncing, so that two syncing nodes do not rely on each other. Where all other members are syncing, nobody knows
//! more than they do together: then it is enough to have what each of them has. That happens when the last other member is removed, because it is
//! lost for good, before the new node has everything. The node then serves what is left, with a warning. A node that came back goes on without its
//! own earlier ops in that case: it joins an empty snapshot that covers them, as if they had had no effect.

use whimbrel_crdt::{Incarnation, VersionVector};

use super::{Alarm, Output, Partition, Snapshot};
use crate::broken;

/// What a peer had applied at its first hello.
#[derive(Clone, Hash)]
pub(super) struct First {
    pub(super) syncing: bool,
    pub(super) applied: VersionVector,
}

impl Partition {
    /// Whether this node lacks what clients may know.
    pub fn is_syncing(&self) -> bool {
        self.syncing
    }

    /// A peer's hello has come.
    pub(super) fn first_heard(&mut self, id: Incarnation, syncing: bool, applied: &VersionVector) {
        let syncing = syncing && !broken("syncing-trust-each-other");
        if !self.syncing {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        // When the peer stops syncing it sends another hello: that is the first one that counts.
        if peer
            .first
            .as_ref()
            .is_none_or(|first| first.syncing && !syncing)
        {
            let applied = applied.clone();
            peer.first = Some(First { syncing, applied });
        }
    }

    /// Ends syncing, if this node has what it needs.
    pub(super) fn grow(&mut self) {
        if !self.syncing || self.joins_state() {
            return;
        }
        let applied = self.applied();
        let has_all = |first: &First| applied.covers_all(&first.applied);
        let others = self.members.keys();
        let mut others = others.filter(|id| **id != self.me && self.holds(**id));
        if self.lacks_own() {
            let handed = self.origins.get(&self.me).map_or(0, |own| own.handed);
            // Its present report counts as well: it may have received them since its first hello.
            let lacks_it_too = |member: &Incarnation| {
                let peer = self.peers.get(member);
                peer.is_some_and(|peer| {
                    let lacks = peer.durable.get(self.me) <= handed;
                    (peer.greeted && lacks) && peer.first.as_ref().is_some_and(has_all)
                })
            };
            if others.all(lacks_it_too) {
                self.do_without_own();
            }
            return;
        }
        let mut firsts = self.peers.values().filter_map(|peer| peer.first.as_ref());
        let one_is_old = firsts.any(|first| !first.syncing && has_all(first));
        let is_no_better = |member: &Incarnation| {
            let peer = self.peers.get(member).filter(|peer| peer.greeted);
            peer.is_some_and(|peer| peer.syncing && applied.covers_all(&peer.applied))
        };
        if !one_is_old {
            if !others.all(is_no_better) {
                return;
            }
            self.out.push_back(Output::Alarm(Alarm::Alone));
        }
        self.syncing = false;
        self.out.push_back(Output::Grown);
        let ids: Vec<Incarnation> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.first = None;
                peer.hello_due = peer.linked;
            }
            self.wake(id);
        }
    }

    /// No holder has what this node wrote before it left: goes on without it.
    fn do_without_own(&mut self) {
        let Some(own) = self.origins.get(&self.me) else {
            return;
        };
        let (lost, hash) = (own.stored - own.handed, own.stored_hash);
        let snapshot = Snapshot {
            // No peer's snapshot has this name.
            state: 0,
            applied: [(self.me, own.stored)].into_iter().collect(),
            heads: [(self.me, hash)].into(),
            hlc: 0,
        };
        // The alarm comes before the join, whose commit stores it.
        self.out.push_back(Output::Alarm(Alarm::OwnLost(lost)));
        self.join_without_donor(snapshot);
    }
}
