//! How storage fails.

use std::sync::Arc;

use crate::{BlobName, Hash, Origin, PartitionId, SnapshotId, UploadId};

/// Why an operation failed. Cheap to clone, since all callers that a failure concerns get it.
///
/// [`StoreError::is_temporary`] and [`StoreError::stops_node`] say what to do; the text is for the log, never for a client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk accepts no such write at present: it has less room than the reserve (then deleting and cutting still work), or none at all, or is
    /// read-only. Nothing was written; reading works. Temporary: clients are told to try again later.
    #[error("the disk takes no writes: {0}")]
    Full(Arc<str>),
    /// The caller broke the rules of a log or a limit. Nothing was written. Permanent; a defect of the caller or a fork.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// A blob or a part of it does not exist (any more).
    #[error("no such blob: {0}")]
    NoBlob(BlobName),
    /// The snapshot was released, or the engine has dropped it. Another may be taken.
    #[error("no such snapshot: {0:?}")]
    NoSnapshot(SnapshotId),
    /// There are [`SNAPSHOTS_MAX`](crate::SNAPSHOTS_MAX) snapshots. Temporary.
    #[error("too many snapshots at once")]
    Snapshots,
    /// The bytes on disk are not those that were written. Permanent for the records or blobs concerned: the node must not serve them as if they were
    /// complete.
    #[error("damaged data: {0}")]
    Damaged(Arc<str>),
    /// A write or a sync failed, so what is on disk is unknown (after a failed fsync the kernel may have dropped the pages).
    /// Nothing is accepted from then on: the node must stop, and start again from what the disk really holds.
    #[error("storage failed and is stopped: {0}")]
    Poisoned(Arc<str>),
    /// The engine is closing or closed.
    #[error("storage is closed")]
    Closed,
    /// Reading failed (I/O, a remote engine out of reach). Temporary.
    #[error("reading failed: {0}")]
    Read(Arc<str>),
}

impl StoreError {
    /// Whether the same request may succeed later without anyone changing anything but room or reachability.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            StoreError::Full(_)
                | StoreError::Read(_)
                | StoreError::Closed
                | StoreError::Snapshots
                | StoreError::NoSnapshot(_)
        )
    }

    /// Whether the process has to end.
    #[must_use]
    pub fn stops_node(&self) -> bool {
        matches!(self, StoreError::Poisoned(_))
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        StoreError::Refused(refusal)
    }
}

/// Which rule a caller broke.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The entry's first number is not the next one: a gap, or a repetition.
    #[error(
        "entry {first} of {origin:?} in {partition:?} does not follow: the next number is {next}"
    )]
    NotNext {
        /// The log's partition.
        partition: PartitionId,
        /// The log's origin.
        origin: Origin,
        /// The number the log goes on with.
        next: u64,
        /// The number the entry has.
        first: u64,
    },
    /// The entry names another entry before it than the one that is there: a fork.
    #[error(
        "entry {first} of {origin:?} in {partition:?} follows {named}, but the log ends with {there}"
    )]
    Fork {
        /// The log's partition.
        partition: PartitionId,
        /// The log's origin.
        origin: Origin,
        /// The number the entry has.
        first: u64,
        /// The hash it names.
        named: Hash,
        /// The hash of the entry that is there.
        there: Hash,
    },
    /// An entry takes no number, or numbers beyond 2^64.
    #[error("entry {first} takes {count} numbers")]
    Count {
        /// The number the entry has.
        first: u64,
        /// How many it claims.
        count: u32,
    },
    /// The commit depends on one that was refused ([`Commit::follows`](crate::Commit::follows)).
    #[error("a commit to {partition:?} rests on one that was refused")]
    Broken {
        /// The partition.
        partition: PartitionId,
    },
    /// A cut beyond the end of the log.
    #[error("cut of {origin:?} in {partition:?} at {below}, but the log ends at {next}")]
    CutBeyondEnd {
        /// The log's partition.
        partition: PartitionId,
        /// The log's origin.
        origin: Origin,
        /// The number the log goes on with.
        next: u64,
        /// The number asked for.
        below: u64,
    },
    /// A log that is to be forgotten still has entries.
    #[error(
        "{origin:?} in {partition:?} is to be forgotten, but it has entries from {low} to below {next}"
    )]
    NotCut {
        /// The log's partition.
        partition: PartitionId,
        /// The log's origin.
        origin: Origin,
        /// The first number in the log.
        low: u64,
        /// The number the log goes on with.
        next: u64,
    },
    /// A jump that does not lead ahead, or two of one log, or one of the log that the commit appends to.
    #[error("jump of {origin:?} in {partition:?} to {to}, but the log goes on with {next}")]
    JumpBack {
        /// The log's partition.
        partition: PartitionId,
        /// The log's origin.
        origin: Origin,
        /// The number the log goes on with.
        next: u64,
        /// The number asked for.
        to: u64,
    },
    /// A key, holder or commit above its limit, or an empty key.
    #[error("{what} of {bytes} bytes (limit {bytes_max}, at least 1)")]
    Size {
        /// What is too large or empty.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// An upload id that is in use already.
    #[error("{0} exists already")]
    UploadExists(UploadId),
    /// An operation on an upload that is finished, aborted or was never begun.
    #[error("{0} is not being written")]
    UploadUnknown(UploadId),
}
