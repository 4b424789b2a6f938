//! One suite that every engine must pass.
//!
//! An engine's own tests give a [`Factory`] and call [`run`]; a broken promise panics with what was expected. The suite uses
//! nothing but the traits, and no clock: it can run on any executor.

mod blobs;
mod crashes;
mod logs;
mod records;

use std::future::Future;

use bytes::Bytes;

use crate::{
    BlobInfo, BlobName, BlobReader, BlobStore, BlobWriter, Commit, Hash, LogEntry, LogStore,
    Mutation, Origin,
};
use crate::{PartitionId, StoreError, UploadId};

/// One store in one place, opened again and again.
pub trait Factory {
    /// The engine under test.
    type Engine: LogStore + BlobStore;

    /// Opens the store: empty the first time, with what it kept after [`Factory::close`] and [`Factory::crash`].
    fn open(&mut self) -> impl Future<Output = Result<Self::Engine, StoreError>>;

    /// Stops the engine in good order. All handles but this one have been dropped.
    fn close(&mut self, engine: Self::Engine) -> impl Future<Output = ()>;

    /// Stops the engine as badly as the environment can: what was not acknowledged may be lost, `seed` decides how much.
    fn crash(&mut self, engine: Self::Engine, seed: u64) -> impl Future<Output = ()>;
}

/// Runs the whole suite; `make` gives an empty store each time.
///
/// # Panics
/// When the engine breaks a promise.
pub async fn run<F: Factory>(mut make: impl FnMut() -> F) {
    logs::run(&mut make).await;
    records::run(&mut make).await;
    blobs::run(&mut make).await;
    crashes::run(&mut make).await;
}

/// Makes entries that follow each other.
struct Chain {
    origin: Origin,
    next: u64,
    hash: Hash,
}

impl Chain {
    fn new(origin: u64) -> Self {
        Chain {
            origin: Origin(origin),
            next: 1,
            hash: Hash::ZERO,
        }
    }

    fn entry(&mut self, count: u32, bytes: impl Into<Bytes>) -> LogEntry {
        let entry = LogEntry {
            origin: self.origin,
            first: self.next,
            count,
            previous: self.hash,
            bytes: bytes.into(),
        };
        self.next = entry.end();
        self.hash = entry.hash();
        entry
    }

    /// A commit to `partition` of one entry that takes one number.
    fn commit(&mut self, partition: PartitionId, bytes: impl Into<Bytes>) -> Commit {
        Commit {
            entry: Some(self.entry(1, bytes)),
            ..Commit::new(partition)
        }
    }
}

fn put(key: &str, value: &str) -> Mutation {
    Mutation::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn delete(key: &str) -> Mutation {
    Mutation::Delete {
        key: Bytes::copy_from_slice(key.as_bytes()),
    }
}

fn records(partition: PartitionId, mutations: Vec<Mutation>) -> Commit {
    Commit {
        mutations,
        ..Commit::new(partition)
    }
}

/// A value that an engine cannot guess or compress: `len` bytes from a seed.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes.into()
}

fn upload_id(number: u64) -> UploadId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    UploadId(id)
}

async fn upload<E: BlobStore>(
    engine: &E,
    id: UploadId,
    bytes: &Bytes,
    piece: usize,
) -> Result<BlobInfo, StoreError> {
    let mut writer = engine.create(id).await?;
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        writer.write(rest.split_to(piece.min(rest.len()))).await?;
    }
    writer.finish().await
}

async fn download<E: BlobStore>(
    engine: &E,
    name: BlobName,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, StoreError> {
    let mut reader = engine.read(name, offset, len);
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next().await? {
        assert!(
            !chunk.is_empty() && chunk.len() <= crate::blob::CHUNK_BYTES_MAX,
            "a chunk of {} bytes",
            chunk.len()
        );
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[track_caller]
fn refused(result: Result<(), StoreError>, what: &str) {
    assert!(
        matches!(result, Err(StoreError::Refused(_))),
        "{what} should be refused, but: {result:?}"
    );
}
