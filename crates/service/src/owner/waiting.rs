//! A partition that is left alone for a second, since the store has refused a commit of it or could not read: a disk that was full a moment ago
//! mostly still is, and each try costs the reading of the partition.
//!
//! Clients are served meanwhile from what can be read without a write. What the partition does of itself waits: batches of other nodes, accounts that
//! are to be joined or go on after they were stalled, claims of what is late, bodies that are missing_blobs, rows that are of no use.

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, BlobName};

use super::{Account, Own, Partition, PartitionOwner, Phase, joining::Joining};
use crate::{
    machine::{Now, Output},
    peers::{PeerOutput, READ_AGAIN_MICROS},
};

impl Own {
    /// Whether the account is not loaded now: what it would write before anything else waits.
    pub(super) fn waits_with(&self, account: AccountId) -> bool {
        let joining = self.states.joining.as_ref();
        let is_joined = joining.is_none_or(Joining::has_ended);
        self.retry_at.is_some() && (!is_joined || self.stalled.contains_key(&account))
    }
}

impl PartitionOwner {
    /// Reading from the store has failed: the partition waits before it asks again.
    pub(super) fn wait_with_work(&mut self, now: Now, partition: PartitionId) {
        let at = now.mono_micros + READ_AGAIN_MICROS;
        if let Some(own) = self.partitions.running(partition) {
            own.retry_at = Some(at);
            self.agenda.look_at(at, partition);
        }
    }

    /// Goes on with what has waited, if it is time.
    pub(super) fn try_again(&mut self, now: Now, partition: PartitionId) {
        let is_due = |own: &mut Own| own.retry_at.is_some_and(|at| at <= now.mono_micros);
        if !self.partitions.running(partition).is_some_and(is_due) {
            return;
        }
        let writes = |entry: &Account| {
            matches!(entry.phase, Phase::Absent) && entry.under_way(&self.out).is_some()
        };
        if !self.accounts.find(partition, writes).is_empty() {
            // What was written to it would not be read yet.
            return self.wait_with_work(now, partition);
        }
        let Some(own) = self.partitions.running(partition) else {
            return;
        };
        own.retry_at = None;
        if std::mem::take(&mut own.looks_late) {
            self.want_all(partition);
        }
        self.agenda.work(partition);
        self.agenda.join(partition);
        self.sweep_on(partition);
        self.load_wanted(partition);
        self.load_deferred_loads(partition);
        self.reads.log_again(&mut self.out, partition);
    }

    /// Bodies that are not here are looked for.
    pub(super) fn want_all(&mut self, partition: PartitionId) {
        let Some(own) = self.partitions.running(partition) else {
            return;
        };
        let missing_blobs: Vec<BlobName> = own.missing_blobs.keys().copied().collect();
        let want = |blob| Output::Peer(PeerOutput::Request(blob));
        self.out.extend(missing_blobs.into_iter().map(want));
    }

    /// Accounts that are not in memory are read if anybody wants them, but while the partition is left alone only those for which a client waits;
    /// others are forgotten.
    pub(super) fn load_wanted(&mut self, partition: PartitionId) {
        let absent = |entry: &Account| matches!(entry.phase, Phase::Absent);
        for account in self.accounts.find(partition, absent) {
            let (Some(entry), Some(Partition::Running(own))) =
                (self.accounts.get(&account), self.partitions.get(&partition))
            else {
                return;
            };
            let waiting = !entry.waiting.is_empty();
            let known = waiting || !entry.watchers.is_empty() || !entry.held.is_empty();
            // In a syncing partition it waits for more than its rows; one that is stalled may be what that waits for.
            let for_more = waiting && own.is_syncing() && !own.stalled.contains_key(&account);
            let left_alone = own.retry_at.is_some() && !waiting;
            if known && (for_more || left_alone) {
                continue;
            }
            if known || self.is_deferred_loads(account) {
                self.load(account);
            } else {
                self.accounts.remove(&account);
            }
        }
        self.agenda.work(partition);
    }
}
