//! Logs and records.
//!
//! An engine guarantees: one commit to one partition is atomic and durable; scans are ordered. Commits of one partition take effect in the order in
//! which [`LogStore::commit`] was *called*. Reads may see a commit before it is durable; a caller that answers a client waits for the commit itself.

use std::future::Future;

use bytes::Bytes;

use crate::{
    Commit, KeyRange, LogLength, LogPage, LogPosition, Origin, PartitionId, ScanLimit, ScanPage,
    SnapshotId, StoreError,
};

/// The log-and-record store. All methods may be called from several tasks at once.
pub trait LogStore: Send + Sync + 'static {
    /// Makes `commit` durable. The commit is queued when this is called, not when the future is first polled, and dropping the future does not take
    /// it back. So calls from one owner, one after the other, keep their order, and many may be under way. Engines make many commits durable with one
    /// sync.
    ///
    /// `Full` and `Refused` leave nothing behind. A later commit to the same log then is refused as well, since its entry
    /// no longer follows.
    fn commit(
        &self,
        commit: Commit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static;

    /// The values of records, in the order of `keys`.
    fn get(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + Send {
        self.get_first(partition, keys, usize::MAX)
    }

    /// As [`LogStore::get`], of the first keys only: at least one, no further one when the values have `bytes_max`.
    fn get_first(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + Send;

    /// Records in a range of keys, in ascending order.
    fn scan(
        &self,
        partition: PartitionId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Fixes the records of a partition as reads see them now, all of one moment, until [`LogStore::release`]. An engine that is opened again forgets
    /// its snapshots, and may forget one that was not read for long. There are at most [`SNAPSHOTS_MAX`](crate::SNAPSHOTS_MAX).
    fn snapshot(
        &self,
        partition: PartitionId,
    ) -> impl Future<Output = Result<SnapshotId, StoreError>> + Send;

    /// As [`LogStore::scan`], of the records as the snapshot fixed them.
    fn scan_at(
        &self,
        snapshot: SnapshotId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Drops a snapshot that is not needed any more; no error if it does not exist.
    fn release(&self, snapshot: SnapshotId);

    /// Entries of a log, beginning with the one that contains the number `from`, or else the oldest one above. At least one entry is given if there
    /// is one; no further one is added when `bytes_max` is reached.
    fn read_log(
        &self,
        partition: PartitionId,
        origin: Origin,
        from: u64,
        bytes_max: usize,
    ) -> impl Future<Output = Result<LogPage, StoreError>> + Send;

    /// The position of each log of a partition, in order of origin.
    fn log_positions(
        &self,
        partition: PartitionId,
    ) -> impl Future<Output = Result<Vec<(Origin, LogPosition)>, StoreError>> + Send;

    /// The lengths of all logs: bytes of the entries from `low` on. After a cut the length may be estimated from the number of entries.
    fn log_lengths(&self) -> impl Future<Output = Result<Vec<LogLength>, StoreError>> + Send;

    /// Partitions that have a log, in ascending order.
    fn partitions(&self) -> impl Future<Output = Result<Vec<PartitionId>, StoreError>> + Send;
}
