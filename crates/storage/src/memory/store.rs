//! The model behind the asynchronous traits.
//!
//! No clock and no thread: the caller that polls a commit's future drives the store, and a sync takes [`MemoryStore::set_sync_polls`] polls. So
//! interleavings depend on the executor alone, and a test on one thread is deterministic.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::{Memory, SyncMark};
use crate::blob::{CHUNK_BYTES_MAX, read_ahead};
use crate::group::{GROUP_BYTES_MAX_DEFAULT, GroupCommit};
use crate::{
    BlobInfo, BlobName, BlobRange, BlobReader, BlobStore, BlobWriter, Commit, KeyRange, LogLength,
    LogPage, LogPosition, LogStore, Origin, PartitionId, ScanLimit, ScanPage, SnapshotId,
    StoreError, UploadId,
};

/// A [`Memory`] that several tasks share. Clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    memory: Memory,
    queue: GroupCommit<(u64, Commit)>,
    under_way: Option<UnderWay>,
    sync_polls: u32,
    tickets: u64,
    /// Waiting commits by ticket; `Some` when decided.
    outcomes: BTreeMap<u64, Option<Result<(), StoreError>>>,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
struct UnderWay {
    mark: SyncMark,
    polls_left: u32,
    tickets: Vec<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            memory: Memory::new(),
            queue: GroupCommit::new(GROUP_BYTES_MAX_DEFAULT),
            under_way: None,
            sync_polls: 1,
            tickets: 0,
            outcomes: BTreeMap::new(),
            wakers: Vec::new(),
        }
    }
}

impl MemoryStore {
    /// An empty store on a good, quick disk.
    #[must_use]
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// A store over what `memory` holds.
    #[must_use]
    pub fn over(memory: Memory) -> Self {
        let store = MemoryStore::default();
        store.lock().memory = memory;
        store
    }

    /// How slow the disk is: polls that one sync takes, at least 1.
    pub fn set_sync_polls(&self, polls: u32) {
        self.lock().sync_polls = polls.max(1);
    }

    /// Does something with the model: set faults, look inside, crash it.
    pub fn with<R>(&self, f: impl FnOnce(&mut Memory) -> R) -> R {
        f(&mut self.lock().memory)
    }

    /// Takes the model out, as after the death of the process: operations under way are dropped.
    #[must_use]
    pub fn take(&self) -> Memory {
        std::mem::take(&mut *self.lock()).memory
    }

    /// Groups synced and commits in them.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        self.lock().queue.totals()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn submit(&mut self, commit: Commit) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        let bytes = commit.bytes();
        let refused = self
            .queue
            .submit((ticket, commit), bytes)
            .err()
            .map(|(_, error)| Err(error));
        self.outcomes.insert(ticket, refused);
        self.start();
        ticket
    }

    fn start(&mut self) {
        let Some(group) = self.queue.start() else {
            return;
        };
        let mut tickets = Vec::with_capacity(group.len());
        for (ticket, commit) in group {
            match self.memory.write(commit) {
                Ok(()) => tickets.push(ticket),
                Err(error) => self.decide(ticket, Err(error)),
            }
        }
        let mark = self.memory.begin_sync();
        self.under_way = Some(UnderWay {
            mark,
            polls_left: self.sync_polls,
            tickets,
        });
    }

    /// Time goes on by one poll.
    fn drive(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.polls_left = under_way.polls_left.saturating_sub(1);
            if under_way.polls_left == 0 {
                let UnderWay { mark, tickets, .. } =
                    self.under_way.take().expect("it was just looked at");
                let result = self.memory.complete_sync(mark);
                for ticket in tickets {
                    self.decide(ticket, result.clone());
                }
                for (ticket, _) in self.queue.done(result.clone()) {
                    self.decide(ticket, result.clone());
                }
                self.wakers.drain(..).for_each(Waker::wake);
            }
        }
        self.start();
    }

    fn decide(&mut self, ticket: u64, result: Result<(), StoreError>) {
        // A future that was dropped has taken its ticket with it.
        if let Some(outcome) = self.outcomes.get_mut(&ticket) {
            *outcome = Some(result);
        }
    }
}

/// Forgets a ticket when the future that waits for it is dropped.
struct Ticket(MemoryStore, u64);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.lock().outcomes.remove(&self.1);
    }
}

impl LogStore for MemoryStore {
    fn commit(
        &self,
        commit: Commit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let number = self.lock().submit(commit);
        let ticket = Ticket(self.clone(), number);
        poll_fn(move |context| {
            let mut shared = ticket.0.lock();
            if !matches!(shared.outcomes.get(&ticket.1), Some(Some(_))) {
                shared.drive();
            }
            match shared.outcomes.get_mut(&ticket.1).and_then(Option::take) {
                Some(result) => Poll::Ready(result),
                None => {
                    // Polls are this store's time, so it asks for the next one at once.
                    shared.wakers.push(context.waker().clone());
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
    }

    async fn get_first(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        bytes_max: usize,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut values = self.with(|memory| memory.get(partition, &keys));
        let mut bytes = 0usize;
        let enough = values.iter().position(|value| {
            bytes = bytes.saturating_add(value.as_ref().map_or(0, Bytes::len));
            bytes >= bytes_max
        });
        values.truncate(enough.map_or(keys.len(), |last| last + 1));
        Ok(values)
    }

    async fn scan(
        &self,
        partition: PartitionId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        Ok(self.with(|memory| memory.scan(partition, &range, limit)))
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<SnapshotId, StoreError> {
        self.with(|memory| memory.snapshot(partition))
    }

    async fn scan_at(
        &self,
        snapshot: SnapshotId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        self.with(|memory| memory.scan_at(snapshot, &range, limit))
    }

    fn release(&self, snapshot: SnapshotId) {
        self.with(|memory| memory.release(snapshot));
    }

    async fn read_log(
        &self,
        partition: PartitionId,
        origin: Origin,
        from: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        Ok(self.with(|memory| memory.read_log(partition, origin, from, bytes_max)))
    }

    async fn log_lengths(&self) -> Result<Vec<LogLength>, StoreError> {
        Ok(self.with(|memory| memory.log_lengths()))
    }

    async fn log_positions(
        &self,
        partition: PartitionId,
    ) -> Result<Vec<(Origin, LogPosition)>, StoreError> {
        Ok(self.with(|memory| memory.log_positions(partition)))
    }

    async fn partitions(&self) -> Result<Vec<PartitionId>, StoreError> {
        Ok(self.with(|memory| memory.partitions()))
    }
}

/// An upload into a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryWriter {
    store: MemoryStore,
    upload: UploadId,
    ended: bool,
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if !self.ended {
            // Fails only when the store has failed; then the next start sweeps it.
            let _ = self.store.with(|memory| memory.blob_abort(self.upload));
        }
    }
}

impl BlobWriter for MemoryWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        self.store
            .with(|memory| memory.blob_write(self.upload, bytes))
    }

    async fn finish(mut self) -> Result<BlobInfo, StoreError> {
        let info = self.store.with(|memory| memory.blob_finish(self.upload))?;
        self.ended = true;
        Ok(info)
    }

    async fn abort(mut self) -> Result<(), StoreError> {
        self.ended = true;
        self.store.with(|memory| memory.blob_abort(self.upload))
    }
}

/// A range of a blob in a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryReader {
    store: MemoryStore,
    name: BlobName,
    offset: u64,
    left: u64,
}

impl BlobReader for MemoryReader {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let bytes_max = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(CHUNK_BYTES_MAX);
        let bytes = self
            .store
            .with(|memory| memory.blob_read(self.name, self.offset, bytes_max))?;
        self.offset += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        Ok(if bytes.is_empty() { None } else { Some(bytes) })
    }
}

impl BlobStore for MemoryStore {
    type Writer = MemoryWriter;
    type Reader = MemoryReader;

    async fn create(&self, upload: UploadId) -> Result<MemoryWriter, StoreError> {
        self.with(|memory| memory.blob_create(upload))?;
        Ok(MemoryWriter {
            store: self.clone(),
            upload,
            ended: false,
        })
    }

    async fn stat(&self, name: BlobName) -> Result<Option<BlobInfo>, StoreError> {
        Ok(self.with(|memory| memory.blob_stat(name)))
    }

    fn read(&self, name: BlobName, offset: u64, len: u64) -> MemoryReader {
        MemoryReader {
            store: self.clone(),
            name,
            offset,
            left: len,
        }
    }

    async fn read_many(&self, ranges: Vec<BlobRange>) -> Result<Vec<Bytes>, StoreError> {
        let read = |(at, range): (usize, BlobRange)| {
            let len = usize::try_from(range.len).unwrap_or(usize::MAX);
            let read = |memory: &mut Memory| {
                memory.blob_read(range.name, range.offset, len.min(CHUNK_BYTES_MAX))
            };
            read_ahead(at, self.with(read))
        };
        ranges.into_iter().enumerate().map(read).collect()
    }

    async fn delete(&self, name: BlobName) -> Result<(), StoreError> {
        self.with(|memory| memory.blob_delete(name))
    }

    async fn list(
        &self,
        after: Option<BlobName>,
        limit: usize,
    ) -> Result<Vec<BlobInfo>, StoreError> {
        Ok(self.with(|memory| memory.blob_list(after, limit)))
    }
}
