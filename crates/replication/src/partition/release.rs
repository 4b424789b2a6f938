//! Nodes that leave the partition, drop what they had of it, and come back.
//!
//! A node that has left gets no frames. Once all of its log is applied here, its reports are not waited for: it had nothing else that others lack, or
//! it would not have left (`docs/decisions/0040`). When it comes back it begins a new generation. It has nothing then but the number of its last op,
//! so it takes a snapshot, which contains its own ops, and all its earlier reports are forgotten. Frames of one generation may still be on the way in
//! the next. So frames name the generations of both nodes, and count only if these are the present ones.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;

use super::{Membership, Partition, peer::Peer};
use crate::{Now, broken, wire::Generations};

impl Partition {
    /// How often a node came back.
    pub(super) fn generation(&self, id: Incarnation) -> u32 {
        self.members.get(&id).map_or(0, |member| member.generation)
    }

    /// Whether the node has left.
    pub(super) fn has_left(&self, id: Incarnation) -> bool {
        let member = self.members.get(&id);
        member.is_some_and(|member| member.left.is_some())
    }

    /// All peers that were ever linked, except those that have left.
    pub(super) fn peers_that_stay(&self) -> impl Iterator<Item = (&Incarnation, &Peer)> {
        let peers = self.peers.iter();
        peers.filter(|(id, _)| !self.has_left(**id))
    }

    /// Whether the node is a member and holds the partition.
    pub(super) fn holds(&self, id: Incarnation) -> bool {
        self.members.contains_key(&id) && !self.has_left(id)
    }

    /// Whether all that the node wrote before it left is applied here.
    pub(super) fn is_complete(&self, id: Incarnation, left: u64) -> bool {
        let applied = self.origins.get(&id).map_or(0, |origin| origin.applied);
        applied >= left || broken("left-before-all-is-here")
    }

    /// This node has come back and lacks the snapshot that contains its own ops.
    pub(super) fn lacks_own(&self) -> bool {
        let own = self.origins.get(&self.me);
        own.is_some_and(|own| own.handed < own.stored)
    }

    /// The members of the partition from now on.
    pub(super) fn belong(&mut self, now: Now, members: BTreeMap<Incarnation, Membership>) {
        let before = std::mem::replace(&mut self.members, members);
        let changed = self.members.iter().filter(|(id, member)| {
            **id != self.me && before.get(id).copied().unwrap_or_default() != **member
        });
        let changed: Vec<Incarnation> = changed.map(|(id, _)| *id).collect();
        for id in changed {
            self.drop_give(id);
            let holds = self.holds(id);
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            if !broken("former-life-counts") {
                peer.forget();
            }
            if peer.there && holds {
                peer.link(now.mono_micros);
                self.wake(id);
            }
        }
        self.settle();
    }

    /// The generations of this node and the peer, for frames to that peer.
    pub(super) fn generations(&self, peer: Incarnation) -> Option<Generations> {
        let lives = Generations {
            mine: self.generation(self.me),
            yours: self.generation(peer),
        };
        Some(lives).filter(|lives| *lives != Generations::default())
    }

    /// Whether a frame is of the present generations of both nodes. Other frames are dropped; their content is sent again when both nodes know.
    pub(super) fn is_of_now(&self, from: Incarnation, lives: Option<Generations>) -> bool {
        let theirs = lives.unwrap_or_default();
        let ours = self.generations(from).unwrap_or_default();
        (theirs.mine, theirs.yours) == (ours.yours, ours.mine) || broken("any-life")
    }
}
