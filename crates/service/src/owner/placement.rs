//! Who holds the partitions: members drop some and come back to them (`docs/decisions/0040`).
//!
//! Who is *away* has nothing of a partition: it is not waited for, has no readers, and confirms nothing. What it had shown counts as that of a member that was
//! removed, but its slot stays its own. Who *leaves* has what it had and takes nothing new.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};

use super::{Mail, Own, Partition, Phase, confirming, leaving, releasing, replication};
use crate::{
    machine::Now,
    peers::{self, Holders, clocks},
};

impl Own {
    /// There is a stream to a member which has something of the partition.
    pub(super) fn hears(&mut self, now: Now, peer: Incarnation) {
        self.parting.stream_of(peer);
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

/// The members of the cluster are these, and their slots.
pub(super) fn members(mail: &mut Mail, now: Now, slots: BTreeMap<Incarnation, u8>) {
    let was_alone = mail.config.peers.is_empty();
    mail.config.peers = slots;
    mail.config.peers.remove(&mail.config.origin);
    if was_alone {
        let mut spells = Vec::new();
        for (account, entry) in mail.accounts.iter() {
            if !entry.watchers.is_empty() {
                mail.agenda.watched(*account);
            }
            if let Phase::Running(replica) = &entry.phase
                && replica.spells_as_heard()
            {
                spells.push(*account);
            }
        }
        for account in spells {
            mail.spell_soon(now, account);
        }
    }
    belong(mail, now);
}

/// Members say who holds what.
pub(super) fn placed(mail: &mut Mail, now: Now, holders: Holders) {
    mail.config.holders = holders;
    belong(mail, now);
}

/// This node leaves a partition, or stays, or has left it, or comes back.
pub(super) fn stand(mail: &mut Mail, now: Now, partition: PartitionId) {
    let me = mail.config.origin;
    match mail.config.holders.holder_state(me, partition).phase {
        peers::Phase::Leaves => leaving::begin_to_leave(mail, now, partition),
        peers::Phase::Holds => leaving::stay(mail, now, partition),
        peers::Phase::Away => {}
    }
    releasing::look_at_holder(mail, now, partition);
}

/// The members that hold a partition and have what clients may know.
pub(super) fn complete_at(mail: &Mail, own: &Own) -> BTreeSet<Incarnation> {
    let members = mail.config.peers.keys().copied();
    let holds = members.filter(|id| mail.config.holds(*id, own.log.partition()));
    holds
        .filter(|id| own.shipping.is_complete_at(*id))
        .collect()
}

/// Machines are told who belongs to their partitions, and holds them.
pub(super) fn belong(mail: &mut Mail, now: Now) {
    let open: Vec<PartitionId> = mail.partitions.ids();
    for partition in open {
        stand(mail, now, partition);
        let members = mail.config.members_of(partition);
        let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
            continue;
        };
        if own.failed || own.members == members {
            continue;
        }
        let before = std::mem::replace(&mut own.members, members.clone());
        own.shipping.members(now, members);
        let changed = own.members.iter().filter(|(id, is)| {
            let was = before.get(*id).copied().unwrap_or_default();
            **id != mail.config.origin && was != **is
        });
        let changed: Vec<_> = changed.map(|(id, is)| (*id, is.left.is_none())).collect();
        for (id, has) in changed {
            let generation = mail.config.holders.holder_state(id, partition).generation;
            own.drops(now, id, generation);
            if has && mail.links.has(id) {
                own.hears(now, id);
            }
        }
        mail.acknowledge(partition);
        confirming::confirm_on(mail, partition);
        leaving::leave_on(mail, now, partition);
        replication::ship(mail, now, partition);
    }
}
