//! Accounts that have to be looked at and are not in memory: a body has come that their records name, messages were late in them while the partition
//! was syncing, claims of theirs were refused, or they were stalled before the start. They are loaded for it.
//!
//! Until then what is hidden in them counts as not shown: else a client that goes from here to another node would be taken there for one that has
//! seen it (docs/design.md#rule-6), and a node that leaves the partition would
//! leave it to nobody.

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, BlobName};

use super::{Own, Partition, PartitionOwner, Phase, keys};
use crate::{
    machine::{Now, Output},
    peers::PeerOutput,
};

impl Own {
    /// Those for whose sake no body has come. What is late in a syncing partition is claimed when it is syncing no more; bodies are shown before: it
    /// waits for them.
    fn deferred_loads(&self) -> impl Iterator<Item = AccountId> {
        let late = self.late.iter().filter(|_| !self.is_syncing());
        // Perhaps this program can do what the last one could not.
        let stalled = self.stalled.iter().filter(|(_, of)| !of.tried);
        late.chain(stalled.map(|(account, _)| account)).copied()
    }
}

impl PartitionOwner {
    /// A body has come, or was here at this time of the monotonic clock. Whether an account that names it has to be loaded first; it will be.
    pub(super) fn is_to_be_loaded(
        &mut self,
        account: AccountId,
        blob: BlobName,
        looked: u64,
    ) -> bool {
        let phase = self.accounts.get(&account).map(|entry| &entry.phase);
        let is_here = match phase {
            None
            | Some(Phase::Absent | Phase::Loading { .. } | Phase::Asking | Phase::Joining(_)) => {
                // A stalled one is loaded by the next start.
                self.partitions.is_stalled(account)
            }
            Some(Phase::Resuming(_)) => false,
            Some(Phase::Running(_) | Phase::Unopened | Phase::Removed | Phase::Purging) => true,
        };
        if is_here {
            return false;
        }
        self.bodies.arrive(account, blob, looked);
        self.accounts.used(account);
        self.load(account);
        true
    }

    /// Whether the account is to be loaded, whoever waits for it.
    pub(super) fn is_deferred_loads(&self, account: AccountId) -> bool {
        let of_partition = match self.partitions.get(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.deferred_loads().any(|of| of == account),
            _ => false,
        };
        of_partition || self.bodies.has_arrived_for(account)
    }

    /// The account is in memory, and what was late in it is claimed again, but in a syncing partition.
    pub(super) fn is_looked_at(&mut self, now: Now, account: AccountId) {
        if let Some(own) = self.partitions.running(keys::partition_of(account))
            && !own.is_syncing()
        {
            own.late.remove(&account);
        }
        for (blob, looked) in self.bodies.take_arrived(account) {
            self.body_came(now, blob, looked);
        }
    }

    /// It will not be in memory: it stalls, or there is no such account any more.
    pub(super) fn is_not_looked_at(&mut self, account: AccountId) {
        if let Some(own) = self.partitions.running(keys::partition_of(account)) {
            own.late.remove(&account);
        }
        for blob in self.bodies.take_arrived(account).into_keys() {
            // It is said again that it is here, and others may name it.
            self.out.push(Output::Peer(PeerOutput::Request(blob)));
        }
    }

    /// Loads those of a partition that are not being loaded: reading may have failed.
    pub(super) fn load_deferred_loads(&mut self, partition: PartitionId) {
        let Some(Partition::Running(own)) = self.partitions.get(&partition) else {
            return;
        };
        let arrived = self.bodies.awaited_accounts(partition);
        let all: Vec<AccountId> = own.deferred_loads().chain(arrived).collect();
        for account in all {
            self.accounts.used(account);
            self.load(account);
        }
    }
}
