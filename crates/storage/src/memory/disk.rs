//! The model itself: two states, the durable one and the one that reads see, and what lies between.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::state::{Log, Op, State, hash_chunks};
use crate::rules::Broken;
use crate::{
    BlobInfo, BlobName, Commit, KeyRange, LogLength, LogPage, LogPosition, Mutation, Origin,
    PartitionId, Refusal, Room, SNAPSHOTS_MAX, ScanLimit, ScanPage, SnapshotId, StoreError,
    UploadId,
};

/// What can go wrong with the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// No room: writes that add something are refused with [`StoreError::Full`]; removing still works.
    pub full: bool,
    /// Less room than the reserve, and more than the engine needs: [`Room::Frees`](crate::Room::Frees) is accepted,
    /// [`Room::Ordinary`](crate::Room::Ordinary) is not.
    pub below_reserve: bool,
    /// Syncs fail. The first that does poisons the store until the next [`Memory::crash`] or [`Memory::reopen`].
    pub sync_fails: bool,
}

/// Stands for a sync under way: it covers all that was written before it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncMark(u64);

/// A backup: what was durable on a disk at some time.
#[derive(Clone, Debug, Default)]
pub struct DiskCopy(State);

/// The model engine. See the [module](super).
#[derive(Debug, Default)]
pub struct Memory {
    durable: State,
    current: State,
    /// Written and not covered by a completed sync; the first has the number `synced`.
    unsynced: VecDeque<Op>,
    /// How many operations were ever made durable.
    synced: u64,
    poison: Option<Arc<str>>,
    broken: Broken,
    snapshots: BTreeMap<SnapshotId, BTreeMap<Bytes, Bytes>>,
    next_snapshot: u64,
    /// The faults of the disk at present.
    pub faults: Faults,
}

impl Memory {
    /// An empty store on a good disk.
    #[must_use]
    pub fn new() -> Self {
        Memory::default()
    }

    /// Writes a commit: visible at once, durable when a sync that begins later completes.
    ///
    /// # Errors
    /// `Refused`, `Full`, `Poisoned`; nothing was written then.
    pub fn write(&mut self, commit: Commit) -> Result<(), StoreError> {
        let (partition, result) = (commit.partition, self.try_write(commit));
        self.broken.note(partition, result.is_ok());
        result
    }

    fn try_write(&mut self, commit: Commit) -> Result<(), StoreError> {
        self.writable()?;
        self.broken.check(&commit)?;
        self.current.check(&commit)?;
        let adds = commit.entry.is_some()
            || commit
                .mutations
                .iter()
                .any(|m| matches!(m, Mutation::Put { .. } | Mutation::Reference { .. }));
        if adds {
            self.room(commit.room)?;
        }
        self.push(Op::Commit(commit));
        Ok(())
    }

    /// Begins a sync.
    #[must_use]
    pub fn begin_sync(&mut self) -> SyncMark {
        SyncMark(self.synced + self.unsynced.len() as u64)
    }

    /// Whether a sync has failed: nothing is written any more before a restart.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.poison.is_some()
    }

    /// Ends a sync: all that was written before it began is durable, and blobs that lost their last reference by it go.
    ///
    /// # Errors
    /// `Poisoned` if the disk fails to sync, and ever after.
    pub fn complete_sync(&mut self, mark: SyncMark) -> Result<(), StoreError> {
        self.writable()?;
        if self.faults.sync_fails {
            let reason: Arc<str> = "the disk failed to sync".into();
            self.poison = Some(reason.clone());
            return Err(StoreError::Poisoned(reason));
        }
        let mut released = Vec::new();
        while self.synced < mark.0 {
            let Some(op) = self.unsynced.pop_front() else {
                break;
            };
            self.synced += 1;
            if let Op::Commit(commit) = &op {
                released.extend(
                    commit
                        .mutations
                        .iter()
                        .filter_map(|mutation| match mutation {
                            Mutation::Release { blob, .. } => Some(blob.upload),
                            _ => None,
                        }),
                );
            }
            self.durable.apply(&op);
        }
        for upload in released {
            let finished = self
                .current
                .blobs
                .get(&upload)
                .is_some_and(|blob| blob.finished.is_some());
            // A blob that was named again in the meantime, durably or not, stays.
            if finished
                && !self.current.is_referenced(upload)
                && !self.durable.is_referenced(upload)
            {
                self.push(Op::BlobRemove(upload));
            }
        }
        Ok(())
    }

    /// The node dies and comes back. What was durable is there. Of the other operations, the first ones are there as well; `seed` decides how many.
    /// Uploads that no reference names are swept.
    pub fn crash(&mut self, seed: u64) {
        let kept = mix(seed) % (self.unsynced.len() as u64 + 1);
        for op in self
            .unsynced
            .drain(..)
            .take(usize::try_from(kept).unwrap_or(usize::MAX))
        {
            self.durable.apply(&op);
        }
        self.restart();
    }

    /// The node is stopped in good order and comes back. Keeps everything, unless the disk had failed: then it is a crash.
    pub fn reopen(&mut self) {
        if self.poison.is_some() || self.faults.sync_fails {
            return self.crash(0);
        }
        self.crash_keeping_all();
    }

    /// The disk is lost, and an empty one is there instead.
    pub fn lose(&mut self) {
        self.put_back(DiskCopy::default());
    }

    /// A copy of what is durable, as a backup of a node that was stopped.
    #[must_use]
    pub fn copy(&self) -> DiskCopy {
        DiskCopy(self.durable.clone())
    }

    /// The node is stopped, its disk is emptied, and the copy is put there.
    pub fn put_back(&mut self, copy: DiskCopy) {
        self.unsynced.clear();
        self.durable = copy.0;
        self.restart();
    }

    fn crash_keeping_all(&mut self) {
        for op in self.unsynced.drain(..) {
            self.durable.apply(&op);
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.synced = 0;
        self.poison = None;
        self.broken = Broken::default();
        self.snapshots.clear();
        let unnamed: Vec<UploadId> = self
            .durable
            .blobs
            .iter()
            .filter(|(upload, blob)| {
                blob.finished.is_none() || !self.durable.is_referenced(**upload)
            })
            .map(|(upload, _)| *upload)
            .collect();
        for upload in unnamed {
            self.durable.apply(&Op::BlobRemove(upload));
        }
        self.current = self.durable.clone();
    }

    /// Values of records, in the order of `keys`.
    #[must_use]
    pub fn get(&self, partition: PartitionId, keys: &[Bytes]) -> Vec<Option<Bytes>> {
        let records = self.current.records.get(&partition);
        keys.iter()
            .map(|key| records.and_then(|records| records.get(key)).cloned())
            .collect()
    }

    /// Records in a range, in ascending order.
    #[must_use]
    pub fn scan(&self, partition: PartitionId, range: &KeyRange, limit: ScanLimit) -> ScanPage {
        let records = self.current.records.get(&partition);
        records.map_or_else(ScanPage::default, |records| page(records, range, limit))
    }

    /// Fixes the records of a partition as reads see them now.
    ///
    /// # Errors
    /// `Snapshots`: there are too many.
    pub fn snapshot(&mut self, partition: PartitionId) -> Result<SnapshotId, StoreError> {
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            return Err(StoreError::Snapshots);
        }
        self.next_snapshot += 1;
        let id = SnapshotId(self.next_snapshot);
        let records = self.current.records.get(&partition);
        self.snapshots
            .insert(id, records.cloned().unwrap_or_default());
        Ok(id)
    }

    /// As [`Memory::scan`], of a snapshot.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub fn scan_at(
        &self,
        snapshot: SnapshotId,
        range: &KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        let records = self.snapshots.get(&snapshot);
        let records = records.ok_or(StoreError::NoSnapshot(snapshot))?;
        Ok(page(records, range, limit))
    }

    /// Drops a snapshot.
    pub fn release(&mut self, snapshot: SnapshotId) {
        self.snapshots.remove(&snapshot);
    }

    /// Snapshots that were not released.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Entries of a log from the one that holds `from`.
    #[must_use]
    pub fn read_log(
        &self,
        partition: PartitionId,
        origin: Origin,
        from: u64,
        bytes_max: usize,
    ) -> LogPage {
        let mut page = LogPage::default();
        let Some(log) = self.current.logs.get(&(partition, origin)) else {
            return page;
        };
        let start = match log.entries.range(..=from).next_back() {
            Some((first, entry)) if entry.end() > from => *first,
            _ => from,
        };
        let mut bytes = 0usize;
        for (first, entry) in log.entries.range(start..) {
            if !page.entries.is_empty() && bytes >= bytes_max {
                page.next = Some(*first);
                break;
            }
            bytes += entry.bytes.len();
            page.entries.push(entry.clone());
        }
        page
    }

    /// The lengths of all logs.
    #[must_use]
    pub fn log_lengths(&self) -> Vec<LogLength> {
        let logs = self.current.logs.iter();
        let length = |((partition, origin), log): (&(PartitionId, Origin), &Log)| LogLength {
            partition: *partition,
            origin: *origin,
            position: log.position,
            bytes: log.entries.values().map(|of| of.bytes.len() as u64).sum(),
        };
        logs.map(length).collect()
    }

    /// The position of each log of a partition.
    #[must_use]
    pub fn log_positions(&self, partition: PartitionId) -> Vec<(Origin, LogPosition)> {
        let range = (partition, Origin(0))..=(partition, Origin(u64::MAX));
        self.current
            .logs
            .range(range)
            .map(|((_, origin), log)| (*origin, log.position))
            .collect()
    }

    /// Partitions that have a log.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        let mut partitions: Vec<_> = self
            .current
            .logs
            .keys()
            .map(|(partition, _)| *partition)
            .collect();
        partitions.dedup();
        partitions
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// `Refused` if the id is in use, `Full`, `Poisoned`.
    pub fn blob_create(&mut self, upload: UploadId) -> Result<(), StoreError> {
        self.writable()?;
        self.room(Room::Ordinary)?;
        if self.current.blobs.contains_key(&upload) {
            return Err(Refusal::UploadExists(upload).into());
        }
        self.push(Op::BlobCreate(upload));
        Ok(())
    }

    /// Appends to an upload.
    ///
    /// # Errors
    /// `Refused` if it is not being written, `Full`, `Poisoned`.
    pub fn blob_write(&mut self, upload: UploadId, bytes: Bytes) -> Result<(), StoreError> {
        self.writable()?;
        self.room(Room::Ordinary)?;
        self.unfinished(upload)?;
        if !bytes.is_empty() {
            self.push(Op::BlobChunk(upload, bytes));
        }
        Ok(())
    }

    /// Ends an upload and gives its name.
    ///
    /// # Errors
    /// `Refused` if it is not being written, `Full`, `Poisoned`.
    pub fn blob_finish(&mut self, upload: UploadId) -> Result<BlobInfo, StoreError> {
        self.writable()?;
        self.room(Room::Ordinary)?;
        let chunks = self.unfinished(upload)?;
        let size = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let info = BlobInfo {
            name: BlobName {
                upload,
                hash: hash_chunks(chunks),
            },
            size,
        };
        self.push(Op::BlobFinish(info));
        Ok(info)
    }

    /// Drops an upload.
    ///
    /// # Errors
    /// `Refused` if it is not being written, `Poisoned`.
    pub fn blob_abort(&mut self, upload: UploadId) -> Result<(), StoreError> {
        self.writable()?;
        self.unfinished(upload)?;
        self.push(Op::BlobRemove(upload));
        Ok(())
    }

    /// Name and size of a finished blob.
    #[must_use]
    pub fn blob_stat(&self, name: BlobName) -> Option<BlobInfo> {
        self.current
            .blobs
            .get(&name.upload)?
            .finished
            .filter(|info| info.name == name)
    }

    /// At most `bytes_max` bytes from `offset`; fewer only at the end of the blob or of the chunk that was written.
    ///
    /// # Errors
    /// `NoBlob`.
    pub fn blob_read(
        &self,
        name: BlobName,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Bytes, StoreError> {
        self.blob_stat(name).ok_or(StoreError::NoBlob(name))?;
        let chunks = self
            .current
            .blobs
            .get(&name.upload)
            .map_or(&[][..], |blob| &blob.chunks);
        let mut at = 0u64;
        for chunk in chunks {
            let end = at + chunk.len() as u64;
            if offset < end {
                let from = usize::try_from(offset - at).unwrap_or(usize::MAX);
                let to = chunk.len().min(from.saturating_add(bytes_max));
                return Ok(chunk.slice(from..to));
            }
            at = end;
        }
        Ok(Bytes::new())
    }

    /// Removes a blob that no reference names.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn blob_delete(&mut self, name: BlobName) -> Result<(), StoreError> {
        self.writable()?;
        if self.blob_stat(name).is_some() && !self.current.is_referenced(name.upload) {
            self.push(Op::BlobRemove(name.upload));
        }
        Ok(())
    }

    /// Finished blobs above `after`, in ascending order.
    #[must_use]
    pub fn blob_list(&self, after: Option<BlobName>, limit: usize) -> Vec<BlobInfo> {
        let start = after.map_or(UploadId([0; 16]), |name| name.upload);
        let finished = self
            .current
            .blobs
            .range(start..)
            .filter_map(|(_, blob)| blob.finished);
        finished
            .filter(|info| after.is_none_or(|after| info.name > after))
            .take(limit)
            .collect()
    }

    /// Operations that a crash now could lose.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    fn push(&mut self, op: Op) {
        self.current.apply(&op);
        self.unsynced.push_back(op);
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.poison
            .as_ref()
            .map_or(Ok(()), |reason| Err(StoreError::Poisoned(reason.clone())))
    }

    fn room(&self, room: Room) -> Result<(), StoreError> {
        let full = match room {
            Room::Ordinary => self.faults.full || self.faults.below_reserve,
            Room::Frees => self.faults.full,
            Room::Vital => false,
        };
        if full {
            Err(StoreError::Full("no room on the disk".into()))
        } else {
            Ok(())
        }
    }

    fn unfinished(&self, upload: UploadId) -> Result<&[Bytes], StoreError> {
        match self.current.blobs.get(&upload) {
            Some(blob) if blob.finished.is_none() => Ok(&blob.chunks),
            _ => Err(Refusal::UploadUnknown(upload).into()),
        }
    }
}

fn page(records: &BTreeMap<Bytes, Bytes>, range: &KeyRange, limit: ScanLimit) -> ScanPage {
    let mut page = ScanPage::default();
    if range.end.as_ref().is_some_and(|end| *end <= range.start) {
        return page;
    }
    let mut bytes = 0usize;
    for (key, value) in records
        .range(range.start.clone()..)
        .take_while(|(key, _)| range.contains(key))
    {
        if !page.rows.is_empty() && (page.rows.len() >= limit.rows || bytes >= limit.bytes) {
            page.next = Some(key.clone());
            break;
        }
        bytes += key.len() + value.len();
        page.rows.push((key.clone(), value.clone()));
    }
    page
}

/// Spreads a seed over 64 bits, so that neighbouring seeds decide differently (the finalizer of SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
