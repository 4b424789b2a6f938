//! Nodes that leave the partition, drop what they had of it, and come back.
//!
//! Who has left is spoken to no more, and its word is not waited for once all of its log is applied here: it had nothing else that others lack, or it
//! would not have left (`docs/decisions/0040`). When it comes back it has another life. It has nothing then but the number of its last operation, so
//! it takes a state, in which its own are, and all that it said before is forgotten. What was said in one life may still be on the way in the next:
//! so it names the lives of both sides, and counts only if they are those of now.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;

use super::{Membership, Partition, peer::Peer};
use crate::{Now, broken, wire::Generations};

impl Partition {
    /// How often a node came back.
    pub(super) fn generation(&self, id: Incarnation) -> u32 {
        self.members.get(&id).map_or(0, |member| member.generation)
    }

    /// It holds nothing here any more.
    pub(super) fn has_left(&self, id: Incarnation) -> bool {
        let member = self.members.get(&id);
        member.is_some_and(|member| member.left.is_some())
    }

    /// All that were ever linked but those.
    pub(super) fn peers_that_stay(&self) -> impl Iterator<Item = (&Incarnation, &Peer)> {
        let peers = self.peers.iter();
        peers.filter(|(id, _)| !self.has_left(**id))
    }

    /// Whether it belongs to the partition and holds it.
    pub(super) fn holds(&self, id: Incarnation) -> bool {
        self.members.contains_key(&id) && !self.has_left(id)
    }

    /// Whether all is here that it wrote before it left.
    pub(super) fn is_complete(&self, id: Incarnation, left: u64) -> bool {
        let applied = self.origins.get(&id).map_or(0, |origin| origin.applied);
        applied >= left || broken("left-before-all-is-here")
    }

    /// This node has come back, and has not yet the state that its own operations are in.
    pub(super) fn lacks_own(&self) -> bool {
        let own = self.origins.get(&self.me);
        own.is_some_and(|own| own.handed < own.stored)
    }

    /// Others belong to it from now on.
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

    /// Of which lives what is told to this peer is said.
    pub(super) fn generations(&self, peer: Incarnation) -> Option<Generations> {
        let lives = Generations {
            mine: self.generation(self.me),
            yours: self.generation(peer),
        };
        Some(lives).filter(|lives| *lives != Generations::default())
    }

    /// Whether it was said by the peer's present life, and to ours. What was not is said again when both know.
    pub(super) fn is_of_now(&self, from: Incarnation, lives: Option<Generations>) -> bool {
        let theirs = lives.unwrap_or_default();
        let ours = self.generations(from).unwrap_or_default();
        (theirs.mine, theirs.yours) == (ours.yours, ours.mine) || broken("any-life")
    }
}
