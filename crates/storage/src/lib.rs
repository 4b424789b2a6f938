//! What a storage engine must guarantee to the rest of the server, and the means to check it.
//!
//! Two small traits: [`LogStore`], logs and records of partitions, and [`BlobStore`], blobs as streams. An engine knows nothing of what it stores:
//! batches, keys and values are opaque bytes. Beside a batch it gets only partition, origin, first number, count and the hash of the entry before, so
//! that every engine refuses gaps, forks and repetitions.
//!
//! Invariants of every engine, checked by [`conformance`]:
//!
//! - one [`Commit`] is atomic: after any crash all of it is there, or nothing of it;
//! - when the future of a commit gives `Ok`, the commit and everything it refers to in the blob store is durable;
//! - a log has no gap and no fork: each entry names the hash of the one before;
//! - scans are ordered by key, and a partition never sees another's keys;
//! - damage is an error, never silently a shorter log.
//!
//! Reading order: [`types`], [`store`], [`blob`], [`error`], [`rules`], then [`group`] (group commit as a state machine), [`memory`] (a
//! model with crash semantics, for simulation and tests) and [`conformance`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod blob;
pub mod conformance;
pub mod error;
pub mod group;
pub mod memory;
pub mod rules;
pub mod store;
pub mod types;

pub use blob::{BlobInfo, BlobName, BlobRange, BlobReader, BlobStore, BlobWriter, UploadId};
pub use error::{Refusal, StoreError};
pub use group::GroupCommit;
pub use store::LogStore;
pub use types::{
    COMMIT_BYTES_MAX, Commit, Cut, Hash, Jump, KeyRange, LogEntry, LogLength, LogPage, LogPosition,
    Mutation, Origin, PartitionId, Room, SNAPSHOTS_MAX, ScanLimit, ScanPage, SnapshotId,
};
