//! Bodies of messages that the owner waits for: in which partitions they are missing, and those that have come before the accounts that name them
//! are in memory.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, BlobName};

use super::keys::partition_of;

#[derive(Default)]
pub(super) struct Bodies {
    /// Not here, in all partitions: by name what each partition knows by itself ([`super::missing_blobs`]).
    missing: BTreeSet<(BlobName, PartitionId)>,
    /// Here, for accounts that are loaded because of it; and when they were here, on the monotonic clock.
    arrived: BTreeMap<AccountId, BTreeMap<BlobName, u64>>,
}

impl Bodies {
    pub(super) fn miss(&mut self, blob: BlobName, partition: PartitionId) {
        self.missing.insert((blob, partition));
    }

    /// It is here, or no record of the partition names it any more.
    pub(super) fn miss_no_more(&mut self, blob: BlobName, partition: PartitionId) {
        self.missing.remove(&(blob, partition));
    }

    /// The partitions whose records name this body, and wait for it.
    pub(super) fn missing_in(&self, blob: &BlobName) -> Vec<PartitionId> {
        let all = (*blob, PartitionId(0))..=(*blob, PartitionId(u16::MAX));
        self.missing.range(all).map(|(_, of)| *of).collect()
    }

    /// The partition is read anew, or gone. What has arrived for its accounts stays: they are loaded for it again.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.missing.retain(|(_, of)| *of != partition);
    }

    /// A body has come that the account names, which is not in memory.
    pub(super) fn arrive(&mut self, account: AccountId, blob: BlobName, looked: u64) {
        let of = self.arrived.entry(account).or_default();
        of.insert(blob, looked);
    }

    /// Whether the account is to be loaded for bodies.
    pub(super) fn has_arrived_for(&self, account: AccountId) -> bool {
        self.arrived.contains_key(&account)
    }

    /// What has come for the account, which is in memory now, or never will be.
    pub(super) fn take_arrived(&mut self, account: AccountId) -> BTreeMap<BlobName, u64> {
        self.arrived.remove(&account).unwrap_or_default()
    }

    /// Accounts of a partition that are to be loaded for bodies.
    pub(super) fn awaited_accounts(
        &self,
        partition: PartitionId,
    ) -> impl Iterator<Item = AccountId> {
        let accounts = self.arrived.keys().copied();
        accounts.filter(move |account| partition_of(*account) == partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_forgotten_with_what_it_misses() {
        let blob = BlobName {
            hash: [1; 32],
            upload: [2; 16],
        };
        let [one, other] = [1, 2].map(PartitionId::accounts);
        let account = AccountId([3; 16]);
        let mut bodies = Bodies::default();
        bodies.miss(blob, one);
        bodies.miss(blob, other);
        bodies.arrive(account, blob, 5);
        assert_eq!(bodies.missing_in(&blob), [one, other]);
        bodies.forget(one);
        assert_eq!(bodies.missing_in(&blob), [other]);
        let of = partition_of(account);
        assert_eq!(bodies.awaited_accounts(of).collect::<Vec<_>>(), [account]);
        assert_eq!(bodies.take_arrived(account), [(blob, 5)].into());
        assert!(!bodies.has_arrived_for(account));
    }
}
