//! Partitions that are open, or are being opened, or are left.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::{announced::Announced, partition::Membership, readers::Readers};

use super::{
    collect, confirming, failover, joining, keys::partition_of, missing_blobs, opening, parting,
    released, stalled_accounts, states, syncing,
};
use crate::{
    gate::Gate,
    log::Log,
    machine::Ticket,
    peers::{Shipping, Work},
};

pub(super) enum Partition {
    /// Its position is being read, and where its logs stand.
    Loading(Box<opening::Opening>),
    Running(Box<Own>),
    /// This node has left it, or is about to: nothing is served.
    Released(Box<released::Released>),
}

/// A partition in which we write.
pub(super) struct Own {
    pub(super) log: Log,
    pub(super) shipping: Shipping,
    /// Who belongs to it, this node included, as the machine was told.
    pub(super) members: BTreeMap<Incarnation, Membership>,
    /// Who else looks at accounts.
    pub(super) readers: Readers,
    /// What each member has shown to its clients.
    pub(super) announced: Announced,
    /// What is shown here.
    pub(super) reporting: failover::Reporting,
    /// A takeover is being done.
    pub(super) nobody_waits: bool,
    /// Counters of accounts that are looked at here, by the commit with which each is durable.
    pub(super) counters: VecDeque<(Ticket, AccountId, u32)>,
    /// When it wants to be called.
    pub(super) deadline: Option<u64>,
    /// Bodies that batches of other nodes name and that are not here: what names them is not shown.
    pub(super) missing_blobs: missing_blobs::MissingBlobs,
    /// Who leaves it, and who has what they have.
    pub(super) parting: parting::Parting,
    /// How often this node has come back to the partition.
    pub(super) generation: u32,
    /// What was written here and waits for other nodes, and what they want to know of theirs.
    pub(super) confirming: confirming::Confirming,
    pub(super) gate: Gate,
    /// It does nothing of itself before this time: a commit was refused, or reading from the store failed.
    pub(super) retry_at: Option<u64>,
    /// Then it looks for the bodies that are missing.
    pub(super) looks_late: bool,
    /// Accounts in which messages were late while the partition was syncing, or may be since their claims were refused.
    pub(super) late: BTreeSet<AccountId>,
    /// Accounts in which something was claimed again by commits that are under way, or were a moment ago.
    pub(super) claiming: BTreeSet<AccountId>,
    /// Accounts that cannot go on.
    pub(super) stalled: BTreeMap<AccountId, stalled_accounts::Stalled>,
    /// What is given to and taken from other nodes in place of logs.
    pub(super) states: states::States,
    /// Whether this node has what clients may know.
    pub(super) age: syncing::SyncState,
    /// What was stable before the last sweep of the queues of all nodes began.
    pub(super) settled: collect::StableBefore,
    /// A commit failed: nothing more is accepted until those behind it have failed, too.
    pub(super) failed: bool,
    /// Which was the first.
    pub(super) first_failed: Option<Ticket>,
}

#[derive(Default)]
pub(super) struct Partitions {
    all: BTreeMap<PartitionId, Partition>,
}

impl Partitions {
    pub(super) fn get(&self, partition: &PartitionId) -> Option<&Partition> {
        self.all.get(partition)
    }

    pub(super) fn get_mut(&mut self, partition: &PartitionId) -> Option<&mut Partition> {
        self.all.get_mut(partition)
    }

    pub(super) fn insert(&mut self, partition: PartitionId, state: Partition) {
        self.all.insert(partition, state);
    }

    pub(super) fn remove(&mut self, partition: &PartitionId) -> Option<Partition> {
        self.all.remove(partition)
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, PartitionId, Partition> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> btree_map::IterMut<'_, PartitionId, Partition> {
        self.all.iter_mut()
    }

    pub(super) fn ids(&self) -> Vec<PartitionId> {
        self.all.keys().copied().collect()
    }

    /// What came on a stream that is gone, or is new, for partitions that are being opened.
    pub(super) fn drop_early(&mut self, peer: Incarnation) {
        for partition in self.all.values_mut() {
            if let Partition::Loading(opening) = partition {
                opening.frames.retain(|(from, _)| *from != peer);
            }
        }
    }

    /// The partition, if it is open, and none of its commits has failed.
    pub(super) fn running(&mut self, partition: PartitionId) -> Option<&mut Own> {
        match self.all.get_mut(&partition) {
            Some(Partition::Running(own)) if !own.failed => Some(own),
            _ => None,
        }
    }

    /// What this node has left of the partition.
    pub(super) fn released(&mut self, partition: PartitionId) -> Option<&mut released::Released> {
        match self.all.get_mut(&partition) {
            Some(Partition::Released(left)) => Some(left),
            _ => None,
        }
    }

    /// The state that accounts of the partition are joined with.
    pub(super) fn joining(&mut self, partition: PartitionId) -> Option<&mut joining::Joining> {
        self.running(partition)?.states.joining_mut()
    }

    /// The partition, if it is open.
    fn open(&self, partition: PartitionId) -> Option<&Own> {
        match self.all.get(&partition) {
            Some(Partition::Running(own)) => Some(own),
            _ => None,
        }
    }

    pub(super) fn is_syncing(&self, partition: PartitionId) -> bool {
        self.open(partition).is_some_and(Own::is_syncing)
    }

    /// Whether the account was found to be stalled since the start.
    pub(super) fn is_stalled(&self, account: AccountId) -> bool {
        let own = self.open(partition_of(account));
        let stalled = own.and_then(|own| own.stalled.get(&account));
        stalled.is_some_and(|of| of.tried)
    }

    /// Whether the next batch of another node names the account.
    pub(super) fn is_next(&self, account: AccountId) -> bool {
        let own = self.open(partition_of(account));
        let next = own.and_then(|own| own.shipping.next_work());
        let next = next.and_then(Work::applies);
        next.is_some_and(|batch| batch.sections.iter().any(|of| of.subject == account.0))
    }

    /// How often this node came back to a partition.
    pub(super) fn generation(&self, partition: PartitionId) -> u32 {
        self.open(partition).map_or(0, |own| own.generation)
    }
}
