//! A node that is new, or came for one whose disk was lost, is *syncing* in a partition: whoever comes to it from another node may know what it has
//! never heard of. It is so until it has applied all that a peer which is not syncing had applied when it first said where it stands: from then on it
//! is no worse a place than that peer was.
//!
//! Two that are syncing must not take each other's word, so a hello says it. But where every other member is syncing, nobody knows more than they do
//! together: then what each of them had is enough. So it is when the last of the others was removed, being gone for good, before the newcomer had
//! all: what is left is served, with a warning. One that came back does without its own operations of before in such a case: it takes over a state
//! that has nothing but these, as if they had had no effect.

use whimbrel_crdt::{Incarnation, VersionVector};

use super::{Alarm, Output, Partition, Snapshot};
use crate::broken;

/// What a peer had applied when it was first heard.
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

    /// A peer says where it stands.
    pub(super) fn first_heard(&mut self, id: Incarnation, syncing: bool, applied: &VersionVector) {
        let syncing = syncing && !broken("syncing-trust-each-other");
        if !self.syncing {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        // When it has grown up it says so by another hello: that is the first that counts.
        if peer
            .first
            .as_ref()
            .is_none_or(|first| first.syncing && !syncing)
        {
            let applied = applied.clone();
            peer.first = Some(First { syncing, applied });
        }
    }

    /// Looks whether it is syncing any longer.
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
            // By its word of now, too: it may have got them since it was first heard.
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

    /// What this node wrote before it left nobody has who holds the partition.
    fn do_without_own(&mut self) {
        let Some(own) = self.origins.get(&self.me) else {
            return;
        };
        let (lost, hash) = (own.stored - own.handed, own.stored_hash);
        let snapshot = Snapshot {
            // No peer's state has this name.
            state: 0,
            applied: [(self.me, own.stored)].into_iter().collect(),
            heads: [(self.me, hash)].into(),
            hlc: 0,
        };
        // Before what follows from it: it is kept in the same commit.
        self.out.push_back(Output::Alarm(Alarm::OwnLost(lost)));
        self.join_without_donor(snapshot);
    }
}
