//! Makes one atomic write of the commits of a group.
//!
//! Everything is checked against the state as the commits before it in the group leave it, which is not yet in the tree: log
//! positions and references are looked up in what is staged first. A refused commit stages nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fjall::{Readable, Snapshot};
use whimbrel_storage::rules::{
    Broken, check_bodies, check_cut, check_follows, check_forget, check_jump, check_sizes,
};
use whimbrel_storage::{
    BlobName, Commit, LogEntry, LogPosition, Mutation, Origin, PartitionId, Room, StoreError,
    UploadId,
};

use crate::failure::read_error;
use crate::keys;
use crate::room::Lack;
use crate::sealer::{Sealer, Write};
use crate::trees::Tree;
use crate::uploads::{Serial, Uploads};
use crate::verify::{Lengths, Positions};

type Log = (PartitionId, Origin);

/// A group being put together.
pub(crate) struct Group<'a> {
    sealer: &'a Sealer,
    positions: &'a mut Positions,
    broken: &'a mut Broken,
    uploads: &'a Uploads,
    view: Snapshot,
    write: Write,
    lack: Lack,
    moved: Positions,
    appended: BTreeMap<Log, Vec<(u64, u64)>>,
    /// Bytes of what was appended.
    grown: Lengths,
    cut: BTreeSet<Log>,
    references: BTreeMap<UploadId, BTreeMap<(PartitionId, Bytes), bool>>,
    let_go: BTreeSet<UploadId>,
    /// What nobody goes on with.
    pub(crate) abandoned: Vec<(UploadId, Serial)>,
    partitions: BTreeSet<PartitionId>,
    /// Commits and deletions taken.
    pub(crate) taken: usize,
}

/// What remains to do when the group is on disk.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// Blobs that nothing names any more.
    pub(crate) unnamed: Vec<UploadId>,
    /// The same of what was not whole when the group was begun.
    pub(crate) unfinished: Vec<UploadId>,
    /// Logs that were cut.
    pub(crate) cut: BTreeSet<Log>,
    /// Uploads that something names now.
    pub(crate) named: Vec<UploadId>,
    /// What nobody goes on with.
    pub(crate) abandoned: Vec<(UploadId, Serial)>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(
        sealer: &'a Sealer,
        positions: &'a mut Positions,
        broken: &'a mut Broken,
        uploads: &'a Uploads,
        lack: Lack,
    ) -> Self {
        Group {
            sealer,
            positions,
            broken,
            uploads,
            view: sealer.db().snapshot(),
            write: sealer.begin(),
            lack,
            moved: BTreeMap::new(),
            appended: BTreeMap::new(),
            grown: BTreeMap::new(),
            cut: BTreeSet::new(),
            references: BTreeMap::new(),
            let_go: BTreeSet::new(),
            abandoned: Vec::new(),
            partitions: BTreeSet::new(),
            taken: 0,
        }
    }

    /// Stages a commit. `hash` is that of its entry.
    pub(crate) fn add(
        &mut self,
        commit: Commit,
        hash: whimbrel_storage::Hash,
    ) -> Result<(), StoreError> {
        let partition = commit.partition;
        let result = self.try_add(commit, hash).map_err(temporary);
        self.broken.note(partition, result.is_ok());
        if result.is_ok() {
            self.partitions.insert(partition);
        }
        result
    }

    fn try_add(&mut self, commit: Commit, hash: whimbrel_storage::Hash) -> Result<(), StoreError> {
        self.broken.check(&commit)?;
        check_sizes(&commit)?;
        if let Some(lack) = &self.lack.any {
            return Err(lack.clone());
        }
        check_bodies(&commit, |blob| self.is_here(blob))?;
        let partition = commit.partition;
        let mut moved: Vec<(Log, LogPosition)> = Vec::new();
        if let Some(entry) = &commit.entry {
            let log = (partition, entry.origin);
            let position = self.position(log);
            check_follows(partition, entry, position)?;
            moved.push((
                log,
                LogPosition {
                    next: entry.end(),
                    hash,
                    ..position
                },
            ));
        }
        let staged = |moved: &[(Log, LogPosition)], log| {
            let mut staged = moved.iter().rev();
            staged.find(|(of, _)| *of == log).map(|(_, at)| *at)
        };
        for jump in &commit.jumps {
            let log = (partition, jump.origin);
            let position = staged(&moved, log).unwrap_or_else(|| self.position(log));
            check_jump(partition, jump, position.next)?;
            let jumped = LogPosition {
                low: jump.next,
                next: jump.next,
                hash: jump.hash,
            };
            moved.push((log, jumped));
            // As with cuts below.
            self.cut.insert(log);
        }
        for cut in &commit.cuts {
            let log = (partition, cut.origin);
            let position = staged(&moved, log).unwrap_or_else(|| self.position(log));
            check_cut(partition, cut, position.next)?;
            let low = self.boundary(log, commit.entry.as_ref(), cut.below)?;
            if low > position.low {
                moved.push((log, LogPosition { low, ..position }));
                // Staged even if a later cut is refused: then nothing below `low` exists, and trimming finds nothing.
                self.cut.insert(log);
            }
        }
        let mut forgotten = Vec::new();
        for origin in &commit.forgets {
            let log = (partition, *origin);
            check_forget(&commit, *origin, self.position(log))?;
            if self.appended.contains_key(&log) {
                // Rows that this write puts it cannot remove.
                return Err(StoreError::Full(
                    "a log is forgotten with the write that adds to it".into(),
                ));
            }
            // Those below the cut that are still there: with another position they would not be known for it.
            let range = keys::prefix_range(&keys::entries(log.0, log.1));
            for row in self.view.range(&self.sealer.trees.log, range) {
                forgotten.push(row.key().map_err(read_error)?);
            }
            moved.push((log, LogPosition::EMPTY));
        }
        let adds = commit.entry.is_some()
            || commit
                .mutations
                .iter()
                .any(|m| matches!(m, Mutation::Put { .. } | Mutation::Reference { .. }));
        let full = match commit.room {
            Room::Ordinary => &self.lack.ordinary,
            Room::Frees => &self.lack.frees,
            Room::Vital => &None,
        };
        if let (Some(full), true) = (full, adds) {
            return Err(full.clone());
        }
        self.taken += 1;
        if let Some(entry) = &commit.entry {
            self.append(partition, entry);
        }
        for key in forgotten {
            self.write.remove(Tree::Log, key);
        }
        for (log, position) in moved {
            self.write.put(
                Tree::Log,
                keys::head(log.0, log.1),
                keys::position_value(&position),
            );
            self.moved.insert(log, position);
        }
        for mutation in commit.mutations {
            self.mutate(partition, mutation);
        }
        Ok(())
    }

    /// Stages the removal of a blob if nothing names it.
    pub(crate) fn delete(&mut self, name: BlobName) -> Result<(), StoreError> {
        if self.uploads.is_lost(name.upload) {
            self.uploads.forget(name.upload);
        }
        if let Some(lack) = &self.lack.any {
            return Err(lack.clone());
        }
        let info = self
            .view
            .get(&self.sealer.trees.meta, keys::info(name.upload))
            .map_err(read_error)?;
        let info = info.and_then(|value| keys::parse_info(name.upload, &value));
        self.taken += 1;
        if info.is_some_and(|(info, _)| info.name == name) {
            self.uploads.forget(name.upload);
            self.let_go.insert(name.upload);
        }
        Ok(())
    }

    /// Stages the removal of what was written of an upload that nobody can go on with.
    pub(crate) fn abandon(&mut self, upload: UploadId, serial: Serial) -> Result<(), StoreError> {
        if self.uploads.was_lost(serial) {
            // It went when the store was opened again; what is there of its name is another's.
            self.uploads.forget_this(upload, serial);
            return Ok(());
        }
        if let Some(lack) = &self.lack.any {
            return Err(lack.clone());
        }
        self.taken += 1;
        self.abandoned.push((upload, serial));
        Ok(())
    }

    fn append(&mut self, partition: PartitionId, entry: &LogEntry) {
        let key = keys::entry(partition, entry.origin, entry.first);
        self.write.put(Tree::Log, key, keys::entry_value(entry));
        *self.grown.entry((partition, entry.origin)).or_default() += entry.bytes.len() as u64;
        self.appended
            .entry((partition, entry.origin))
            .or_default()
            .push((entry.first, entry.end()));
    }

    fn mutate(&mut self, partition: PartitionId, mutation: Mutation) {
        match mutation {
            // Copied: the tree holds it for long, and must not hold a larger buffer of the caller's with it.
            Mutation::Put { key, value } => {
                self.write
                    .put(Tree::Records, keys::record(partition, &key), &value[..]);
            }
            Mutation::Delete { key } => self
                .write
                .remove(Tree::Records, keys::record(partition, &key)),
            Mutation::Reference { blob, holder } => {
                self.write.put(
                    Tree::Meta,
                    keys::reference(blob.upload, partition, &holder),
                    Bytes::new(),
                );
                self.references
                    .entry(blob.upload)
                    .or_default()
                    .insert((partition, holder), true);
            }
            Mutation::Release { blob, holder } => {
                self.write
                    .remove(Tree::Meta, keys::reference(blob.upload, partition, &holder));
                self.references
                    .entry(blob.upload)
                    .or_default()
                    .insert((partition, holder), false);
                self.let_go.insert(blob.upload);
            }
        }
    }

    /// How long logs are now. Of one that was cut as much is gone as of its numbers: to know it exactly all that goes would have to be read.
    fn measure(&self) {
        let mut lengths = self.sealer.lengths();
        for (log, now) in &self.moved {
            let before = self.positions.get(log).copied();
            let low = before.map_or(LogPosition::EMPTY.low, |before| before.low);
            let grown = self.grown.get(log).copied().unwrap_or(0);
            let bytes = lengths.entry(*log).or_default();
            let whole = u128::from(*bytes + grown);
            // One that is forgotten goes on with less than it had.
            let (kept, all) = (now.next - now.low, now.next.saturating_sub(low).max(1));
            let kept = whole * u128::from(kept) / u128::from(all);
            *bytes = u64::try_from(kept).unwrap_or(u64::MAX);
        }
    }

    fn position(&self, log: Log) -> LogPosition {
        self.moved
            .get(&log)
            .or_else(|| self.positions.get(&log))
            .copied()
            .unwrap_or(LogPosition::EMPTY)
    }

    /// The first number that a cut at `below` leaves: of the entry that holds `below`, which stays whole.
    fn boundary(&self, log: Log, own: Option<&LogEntry>, below: u64) -> Result<u64, StoreError> {
        let holds = |first: u64, end: u64| first <= below && below < end;
        if let Some(entry) =
            own.filter(|entry| entry.origin == log.1 && holds(entry.first, entry.end()))
        {
            return Ok(entry.first);
        }
        if let Some(appended) = self.appended.get(&log)
            && let Some((first, _)) = appended.iter().find(|(first, end)| holds(*first, *end))
        {
            return Ok(*first);
        }
        let range = keys::entry(log.0, log.1, 0)..=keys::entry(log.0, log.1, below);
        let Some(row) = self.view.range(&self.sealer.trees.log, range).next_back() else {
            return Ok(below);
        };
        let (key, value) = row.into_inner().map_err(read_error)?;
        let first = keys::parse_log_key(&key).and_then(|(_, _, first)| first);
        let entry = first.and_then(|first| keys::parse_entry(log.1, first, &value.into()));
        let entry =
            entry.ok_or_else(|| StoreError::Damaged("a log entry cannot be read".into()))?;
        Ok(if holds(entry.first, entry.end()) {
            entry.first
        } else {
            below
        })
    }

    /// Whether a body is whole, or named: then it comes, or is known to be missing.
    fn is_here(&self, blob: BlobName) -> Result<bool, StoreError> {
        Ok(self.is_whole(blob.upload)? || self.is_named(blob.upload)?)
    }

    /// Whether an upload was finished when this group was begun.
    fn is_whole(&self, upload: UploadId) -> Result<bool, StoreError> {
        let meta = &self.sealer.trees.meta;
        let whole = self.view.contains_key(meta, keys::info(upload));
        whole.map_err(read_error)
    }

    /// Whether anything names the upload when this group is done.
    fn is_named(&self, upload: UploadId) -> Result<bool, StoreError> {
        let staged = self.references.get(&upload);
        if staged.is_some_and(|staged| staged.values().any(|named| *named)) {
            return Ok(true);
        }
        // Nothing staged names it, so each staged row is a release: at most so many rows are passed over.
        let released: BTreeSet<Vec<u8>> = staged
            .into_iter()
            .flatten()
            .map(|((partition, holder), _)| keys::reference(upload, *partition, holder))
            .collect();
        for row in self.view.range(
            &self.sealer.trees.meta,
            keys::prefix_range(&keys::references(upload)),
        ) {
            let key = row.key().map_err(read_error)?;
            if !released.contains(&key[..]) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the group. Gives its number and what remains to do.
    ///
    /// # Errors
    /// `Full`: nothing of it was written. Others stop the store.
    pub(crate) fn write(&mut self) -> Result<(u64, After), StoreError> {
        let written = self.try_write().map_err(temporary);
        if written.is_err() {
            for partition in &self.partitions {
                self.broken.note(*partition, false);
            }
        }
        written
    }

    fn try_write(&mut self) -> Result<(u64, After), StoreError> {
        let mut unnamed = Vec::new();
        let mut unfinished = Vec::new();
        let touched: BTreeSet<UploadId> = self
            .references
            .keys()
            .chain(&self.let_go)
            .copied()
            .collect();
        for upload in touched {
            let doubtful = keys::doubtful(upload);
            if self.is_named(upload)? {
                self.write.remove(Tree::Meta, doubtful);
            } else if self.let_go.contains(&upload) {
                self.write.put(Tree::Meta, doubtful, Bytes::new());
                // An upload that is still being written is left alone: it may yet be named.
                match self.is_whole(upload)? {
                    true => unnamed.push(upload),
                    false => {
                        // Before the write: who makes it whole and finds that nothing names it finds this as well. If the write fails, what is said here
                        // only has the names of the upload looked at once more.
                        self.uploads.let_go(upload);
                        unfinished.push(upload);
                    }
                }
            }
        }
        for upload in self.uploads.take_marked() {
            // Else it is marked for being let go of.
            if self.is_named(upload)? {
                self.write.remove(Tree::Meta, keys::doubtful(upload));
            }
        }
        for (upload, _) in self.abandoned.iter().copied() {
            let meta = &self.sealer.trees.meta;
            let mark = self.view.contains_key(meta, keys::doubtful(upload));
            // What is named and was not finished comes again, as a body of another node: what is left of this one would prevent that. While its mark
            // is there no other can have begun.
            let is_left = !self.is_whole(upload)? && mark.map_err(read_error)?;
            if is_left || !self.is_named(upload)? {
                unnamed.push(upload);
            }
        }
        let named =
            |(_, holders): &(&UploadId, &BTreeMap<_, bool>)| holders.values().any(|named| *named);
        let named = self
            .references
            .iter()
            .filter(named)
            .map(|(upload, _)| *upload);
        let after = After {
            unnamed,
            unfinished,
            cut: std::mem::take(&mut self.cut),
            named: named.collect(),
            abandoned: self.abandoned.clone(),
        };
        let write = std::mem::replace(&mut self.write, self.sealer.begin());
        let number = self.sealer.write(write, true)?;
        self.measure();
        self.positions.append(&mut self.moved);
        Ok((number, after))
    }
}

/// What could not be looked up leaves nothing behind: it may be tried again, as if there were no room.
fn temporary(error: StoreError) -> StoreError {
    match error {
        StoreError::Read(reason) => StoreError::Full(reason),
        other => other,
    }
}
