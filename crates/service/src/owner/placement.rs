//! Who holds the partitions: members drop some and come back to them (`docs/decisions/0040`).
//!
//! Who is *away* has nothing of a partition: it is not waited for, has no readers, and confirms nothing. What it had shown counts as that of a member that was
//! removed, but its slot stays its own. Who *leaves* has what it had and takes nothing new.

use std::collections::BTreeSet;

use whimbrel_crdt::{Incarnation, PartitionId};

use super::{Own, Partition, PartitionOwner};
use crate::{
    machine::Now,
    peers::{Holders, Phase, clocks},
};

impl Own {
    /// There is a stream to a member which has something of the partition.
    pub(super) fn hears(&mut self, now: Now, peer: Incarnation) {
        self.parting.remove(&peer);
        self.readers.linked(clocks(now), peer);
        self.announced.linked(peer);
        self.confirming.stream_of(peer);
    }

    /// A member has dropped what it had of the partition, in this life or in one before.
    fn drops(&mut self, now: Now, peer: Incarnation, generation: u32) {
        self.readers.left(clocks(now), peer);
        self.announced.unlinked(peer);
        self.announced.set_generation(peer, generation);
        self.confirming.stream_of(peer);
        self.keep_announced_soon();
    }
}

impl PartitionOwner {
    /// Members say who holds what.
    pub(super) fn placed(&mut self, now: Now, holders: Holders) {
        self.config.holders = holders;
        self.belong(now);
    }

    /// This node leaves a partition, or stays, or has left it, or comes back.
    pub(super) fn stand(&mut self, now: Now, partition: PartitionId) {
        let me = self.config.origin;
        match self.config.holders.holder_state(me, partition).phase {
            Phase::Leaves => self.begin_to_leave(now, partition),
            Phase::Holds => self.stay(now, partition),
            Phase::Away => {}
        }
        self.left_on(now, partition);
    }

    /// The members that hold a partition and have what clients may know.
    pub(super) fn complete_at(&self, own: &Own) -> BTreeSet<Incarnation> {
        let members = self.config.peers.keys().copied();
        let holds = members.filter(|id| self.config.holds(*id, own.log.partition()));
        holds
            .filter(|id| own.shipping.is_complete_at(*id))
            .collect()
    }

    /// Machines are told who belongs to their partitions, and holds them.
    pub(super) fn belong(&mut self, now: Now) {
        let open: Vec<PartitionId> = self.partitions.ids();
        for partition in open {
            self.stand(now, partition);
            let members = self.config.members_of(partition);
            let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
                continue;
            };
            if own.failed || own.members == members {
                continue;
            }
            let before = std::mem::replace(&mut own.members, members.clone());
            own.shipping.members(now, members);
            let changed = own.members.iter().filter(|(id, is)| {
                let was = before.get(*id).copied().unwrap_or_default();
                **id != self.config.origin && was != **is
            });
            let changed: Vec<_> = changed.map(|(id, is)| (*id, is.left.is_none())).collect();
            for (id, has) in changed {
                let generation = self.config.holders.holder_state(id, partition).generation;
                own.drops(now, id, generation);
                if has && self.links.has(id) {
                    own.hears(now, id);
                }
            }
            self.acknowledge(partition);
            self.confirm_on(partition);
            self.leave_on(now, partition);
            self.ship(now, partition);
        }
    }
}
