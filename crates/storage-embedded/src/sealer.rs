//! The sealer makes every write of the engine: it numbers it, seals it, and hands it to the tree in the order of the numbers.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fjall::{
    AbstractTree as _, Database, Keyspace, OwnedWriteBatch, PersistMode, Snapshot, UserKey,
    UserValue,
};
use whimbrel_storage::{PartitionId, SnapshotId, StoreError};

use crate::buffers::Buffers;
use crate::commit_record::{Seal, StoreId};
use crate::config::Config;
use crate::failure::tree_passes;
use crate::keys::{MARK_KEY, SEAL_KEY};
use crate::room;
use crate::snapshots::{Snapshots, Written};
use crate::trees::{TREES, Tree, Trees};
use crate::verify::Lengths;

/// Why nothing is written any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// A write was refused, and the tree takes no other until it is opened anew: nothing of that write was applied, and all that was
    /// written before is there. `known`: for a lack that can pass; else the tree does not say why.
    Away { reason: Arc<str>, known: bool },
    /// What is on the disk is not known.
    Stopped(Arc<str>),
}

impl Failure {
    /// What whoever wants to write is told.
    pub(crate) fn error(&self) -> StoreError {
        match self {
            Failure::Away { reason, .. } => StoreError::Full(reason.clone()),
            Failure::Stopped(reason) => StoreError::Poisoned(reason.clone()),
        }
    }
}

/// While a tree has so many buffers that are not yet in files, nothing more is written to any. The tree itself waits at one more, behind a write, and
/// without end if its threads have given up.
const BUFFERS_BEHIND_MAX: usize = 3;
/// The same of runs that are not yet merged: the tree waits without end at 30.
const RUNS_BEHIND_MAX: usize = 25;
/// How often it is looked whether the tree has caught up.
const BEHIND_PAUSE: Duration = Duration::from_millis(1);

/// A write being put together; remembers what it does to which tree.
pub(crate) struct Write {
    batch: OwnedWriteBatch,
    /// The last that was said of each key. A group of commits names a quarter of its rows more than once: positions, heads of logs, what several commits
    /// changed of one message.
    rows: [HashMap<UserKey, Option<UserValue>>; TREES],
}

/// Makes every write of the engine: numbers it, seals it, and hands it to the tree in the order of the numbers.
pub(crate) struct Sealer {
    // First, so that its thread has ended before the tree is shut.
    pub(crate) buffers: Buffers,
    /// They are of this tree, and go with it.
    snapshots: Mutex<Snapshots>,
    /// Bytes of what is in each log.
    lengths: Mutex<Lengths>,
    db: Database,
    pub(crate) trees: Trees,
    id: StoreId,
    last: Mutex<Seal>,
    synced: AtomicU64,
    /// Bytes written since the tree was opened.
    written: AtomicU64,
    failure: Mutex<Option<Failure>>,
    config: Config,
}

impl Sealer {
    /// Goes on after `last`, which is all on disk.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn new(
        db: Database,
        trees: Trees,
        id: StoreId,
        last: Seal,
        config: Config,
    ) -> io::Result<Self> {
        let synced = AtomicU64::new(last.number);
        Ok(Sealer {
            buffers: Buffers::new(&config, &trees)?,
            snapshots: Mutex::default(),
            lengths: Mutex::default(),
            db,
            trees,
            id,
            last: Mutex::new(last),
            synced,
            written: AtomicU64::new(0),
            failure: Mutex::new(None),
            config,
        })
    }

    /// Bytes of what is in each log.
    pub(crate) fn lengths(&self) -> MutexGuard<'_, Lengths> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) -> Write {
        Write {
            batch: self.db.batch(),
            rows: Default::default(),
        }
    }

    /// Writes, without a sync, when there is room in the write buffers. With `flush` all writes so far are handed to the system, so that a sync
    /// of the journal covers them. Gives the write's number.
    ///
    /// # Errors
    /// `Full`: nothing was written, and nothing can be until the store is opened anew. `Poisoned`: the journal is in an unknown state, nothing may
    /// be written any more.
    pub(crate) fn write(&self, write: Write, flush: bool) -> Result<u64, StoreError> {
        let Write { mut batch, rows } = write;
        let mut touches = rows.each_ref().map(|rows| !rows.is_empty());
        touches[Tree::Meta as usize] = true;
        let mut removes = [false; TREES];
        let mut bytes = 0;
        for ((tree, rows), removes) in self.trees.all().into_iter().zip(rows).zip(&mut removes) {
            for (key, value) in rows {
                bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
                match value {
                    Some(value) => batch.insert(tree, key, value),
                    None => {
                        *removes = true;
                        batch.remove(tree, key);
                    }
                }
            }
        }
        self.buffers.wait(&self.trees, touches, || self.alive())?;
        // Held over the tree's own write: numbers must have the order of the journal.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.failure() {
            return Err(failure.error());
        }
        self.catch_up()?;
        // No other write can come between, but the tree takes sequence numbers of its own: this one is a lower bound.
        let sequence = self.db.seqno();
        let synced = self.synced.load(Ordering::Acquire);
        let mut seal = Seal {
            number: last.number + 1,
            synced,
            sequence,
            ..*last
        };
        let mut batch = batch.durability(flush.then_some(PersistMode::Buffer));
        for (tree, removes) in self.trees.all().into_iter().zip(removes) {
            if removes {
                batch.insert(tree, MARK_KEY, &seal.number.to_be_bytes()[..]);
            }
        }
        batch.insert(&self.trees.meta, SEAL_KEY, &seal.encode(&self.id)[..]);
        if let Err(error) = batch.commit() {
            return Err(self.gave_up(&error));
        }
        for (touched, touches) in seal.touched.iter_mut().zip(touches) {
            if touches {
                *touched = sequence;
            }
        }
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        let number = seal.number;
        *last = seal;
        self.buffers.written(&self.trees, touches);
        Ok(number)
    }

    /// Whether the tree still works, as far as it knows.
    fn alive(&self) -> Result<(), StoreError> {
        if let Some(failure) = self.failure() {
            return Err(failure.error());
        }
        let handed_over = self.db.persist(PersistMode::Buffer);
        handed_over.map_err(|error| self.gave_up(&error))
    }

    /// Writes that had to wait for room in the write buffers since the tree was opened.
    pub(crate) fn waits(&self) -> u64 {
        self.buffers.waits()
    }

    /// Hands all writes so far to the system. Gives the last one's number if not all of them were synced.
    ///
    /// # Errors
    /// As [`Sealer::write`].
    pub(crate) fn flush(&self) -> Result<Option<u64>, StoreError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.failure() {
            return Err(failure.error());
        }
        if last.number <= self.synced.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.db.persist(PersistMode::Buffer) {
            Ok(()) => Ok(Some(last.number)),
            Err(error) => Err(self.gave_up(&error)),
        }
    }

    /// Makes what was written durable by the tree's own handle of the journal.
    ///
    /// # Errors
    /// What the tree says.
    pub(crate) fn persist(&self) -> fjall::Result<()> {
        self.db.persist(PersistMode::SyncData)
    }

    /// Number of the last write that was made.
    pub(crate) fn last(&self) -> u64 {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .number
    }

    /// What is there between two writes. The tree's own snapshots may show half of one: its threads, when they move a buffer into a file, take
    /// numbers as writes do and have all below them seen, be they applied or not.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let _between = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.db.snapshot()
    }

    pub(crate) fn take_snapshot(&self, partition: PartitionId) -> Result<SnapshotId, StoreError> {
        let written = Written {
            bytes: self.written.load(Ordering::Relaxed),
            since_max: self.config.snapshot_bytes_max,
        };
        let view = self.snapshot();
        self.snapshots()
            .take(Instant::now(), written, partition, view)
    }

    pub(crate) fn find_snapshot(
        &self,
        id: SnapshotId,
    ) -> Result<(PartitionId, Snapshot), StoreError> {
        self.snapshots().find(Instant::now(), id)
    }

    pub(crate) fn release_snapshot(&self, id: SnapshotId) {
        self.snapshots().release(id);
    }

    fn snapshots(&self) -> MutexGuard<'_, Snapshots> {
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the tree if it is behind, as long as it works.
    fn catch_up(&self) -> Result<(), StoreError> {
        let is_behind = |tree: &Keyspace| {
            tree.tree.sealed_memtable_count() >= BUFFERS_BEHIND_MAX
                || tree.tree.l0_run_count() >= RUNS_BEHIND_MAX
        };
        while self.trees.all().into_iter().any(is_behind) {
            // Also says whether it still works.
            self.db
                .persist(PersistMode::Buffer)
                .map_err(|error| self.gave_up(&error))?;
            std::thread::sleep(BEHIND_PAUSE);
        }
        Ok(())
    }

    /// The tree has refused a write, of which nothing was applied.
    fn gave_up(&self, error: &fjall::Error) -> StoreError {
        let known = tree_passes(error);
        if !known && !matches!(error, fjall::Error::Poisoned) {
            return self.fail(&format!("writing to the journal: {error:?}"));
        }
        // Looked at before anybody is told: who hears of it may mend it.
        let known = known || room::lack_of_anything(&self.config).is_some();
        let reason = match error {
            fjall::Error::Poisoned => "the tree has given up putting itself in order".into(),
            other => format!("writing to the journal: {other:?}").into(),
        };
        self.note(Failure::Away { reason, known })
    }

    /// All writes up to `number` are on disk.
    pub(crate) fn set_synced(&self, number: u64) {
        self.synced.fetch_max(number, Ordering::AcqRel);
    }

    /// Refuses all further writes. Gives the first failure, as everyone is told it.
    pub(crate) fn fail(&self, reason: &str) -> StoreError {
        self.note(Failure::Stopped(reason.into()))
    }

    pub(crate) fn note(&self, failure: Failure) -> StoreError {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure).error()
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn db(&self) -> &Database {
        &self.db
    }
}

impl Write {
    pub(crate) fn put(&mut self, tree: Tree, key: Vec<u8>, value: impl Into<UserValue>) {
        self.rows[tree as usize].insert(key.into(), Some(value.into()));
    }

    pub(crate) fn remove(&mut self, tree: Tree, key: impl Into<UserKey>) {
        self.rows[tree as usize].insert(key.into(), None);
    }
}
