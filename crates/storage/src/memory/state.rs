//! What the model holds, and how one operation changes it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::rules::{check_bodies, check_cut, check_follows, check_forget, check_jump, check_sizes};
use crate::{
    BlobInfo, Commit, Hash, LogEntry, LogPosition, Mutation, Origin, PartitionId, StoreError,
    UploadId,
};

/// One change, as it is kept until a sync covers it.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Commit(Commit),
    BlobCreate(UploadId),
    BlobChunk(UploadId, Bytes),
    BlobFinish(BlobInfo),
    BlobRemove(UploadId),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Blob {
    pub(super) chunks: Vec<Bytes>,
    pub(super) finished: Option<BlobInfo>,
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) entries: BTreeMap<u64, LogEntry>,
    pub(super) position: LogPosition,
}

/// Everything an engine holds. Cloning is cheap for the payload: it is shared.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) logs: BTreeMap<(PartitionId, Origin), Log>,
    pub(super) records: BTreeMap<PartitionId, BTreeMap<Bytes, Bytes>>,
    pub(super) references: BTreeSet<(UploadId, PartitionId, Bytes)>,
    pub(super) blobs: BTreeMap<UploadId, Blob>,
}

impl State {
    /// Applies a change that has been checked.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Commit(commit) => self.apply_commit(commit),
            Op::BlobCreate(upload) => {
                self.blobs.insert(*upload, Blob::default());
            }
            Op::BlobChunk(upload, bytes) => {
                if let Some(blob) = self.blobs.get_mut(upload) {
                    blob.chunks.push(bytes.clone());
                }
            }
            Op::BlobFinish(info) => {
                if let Some(blob) = self.blobs.get_mut(&info.name.upload) {
                    blob.finished = Some(*info);
                }
            }
            Op::BlobRemove(upload) => {
                self.blobs.remove(upload);
            }
        }
    }

    fn apply_commit(&mut self, commit: &Commit) {
        let partition = commit.partition;
        if let Some(entry) = &commit.entry {
            let log = self
                .logs
                .entry((partition, entry.origin))
                .or_insert_with(|| Log {
                    entries: BTreeMap::new(),
                    position: LogPosition::EMPTY,
                });
            log.position.next = entry.end();
            log.position.hash = entry.hash();
            log.entries.insert(entry.first, entry.clone());
        }
        for jump in &commit.jumps {
            let position = LogPosition {
                low: jump.next,
                next: jump.next,
                hash: jump.hash,
            };
            let entries = BTreeMap::new();
            let log = Log { entries, position };
            self.logs.insert((partition, jump.origin), log);
        }
        for cut in &commit.cuts {
            if let Some(log) = self.logs.get_mut(&(partition, cut.origin)) {
                log.position.low = log.position.low.max(log.boundary(cut.below));
                log.entries = log.entries.split_off(&log.position.low);
            }
        }
        for origin in &commit.forgets {
            self.logs.remove(&(partition, *origin));
        }
        let records = self.records.entry(partition).or_default();
        for mutation in &commit.mutations {
            match mutation {
                Mutation::Put { key, value } => {
                    records.insert(key.clone(), value.clone());
                }
                Mutation::Delete { key } => {
                    records.remove(key);
                }
                Mutation::Reference { blob, holder } => {
                    self.references
                        .insert((blob.upload, partition, holder.clone()));
                }
                Mutation::Release { blob, holder } => {
                    self.references
                        .remove(&(blob.upload, partition, holder.clone()));
                }
            }
        }
    }

    /// Whether a reference names the blob of `upload`.
    pub(super) fn is_referenced(&self, upload: UploadId) -> bool {
        let least = (upload, PartitionId(0), Bytes::new());
        self.references
            .range(least..)
            .next()
            .is_some_and(|(named, _, _)| *named == upload)
    }

    /// Whether `commit` may be done; the same rules in every engine.
    pub(super) fn check(&self, commit: &Commit) -> Result<(), StoreError> {
        check_sizes(commit)?;
        check_bodies(commit, |blob| {
            let body = self.blobs.get(&blob.upload);
            let is_whole = body.is_some_and(|body| body.finished.is_some());
            Ok(is_whole || self.is_referenced(blob.upload))
        })?;
        let position = |origin| {
            self.logs
                .get(&(commit.partition, origin))
                .map_or(LogPosition::EMPTY, |log| log.position)
        };
        let mut moved = BTreeMap::new();
        if let Some(entry) = &commit.entry {
            check_follows(commit.partition, entry, position(entry.origin))?;
            moved.insert(entry.origin, entry.end());
        }
        for jump in &commit.jumps {
            let next = moved.get(&jump.origin).copied();
            let next = next.unwrap_or_else(|| position(jump.origin).next);
            check_jump(commit.partition, jump, next)?;
            moved.insert(jump.origin, jump.next);
        }
        for cut in &commit.cuts {
            let next = moved.get(&cut.origin).copied();
            let next = next.unwrap_or_else(|| position(cut.origin).next);
            check_cut(commit.partition, cut, next)?;
        }
        for origin in &commit.forgets {
            check_forget(commit, *origin, position(*origin))?;
        }
        Ok(())
    }
}

impl Log {
    /// The first number that a cut at `below` leaves: of the entry that holds `below`, which stays whole.
    fn boundary(&self, below: u64) -> u64 {
        match self.entries.range(..=below).next_back() {
            Some((first, entry)) if entry.end() > below => *first,
            _ => below,
        }
    }
}

/// The hash of chunks, one after the other.
pub(super) fn hash_chunks(chunks: &[Bytes]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for chunk in chunks {
        hasher.update(chunk);
    }
    Hash(*hasher.finalize().as_bytes())
}
