//! Calls of the blob driver to the store: calls for different blobs run side by side, calls for one blob in their order.
//!
//! A call takes a few microseconds; to pass it to a thread that may wait for the disk costs more. So all calls for one blob are made on one such
//! thread, and when many wait, for up to [`JOB_CALLS_MAX`] of them.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use tokio::{runtime::Handle, task::JoinSet};
use whimbrel_mailbox::BlobName;
use whimbrel_service::{owner::blob_name, peers::blobs::ReadId};
use whimbrel_storage::{BlobInfo, BlobReader as _, BlobWriter as _, Refusal, StoreError, UploadId};
use whimbrel_storage_embedded::blocking_here;

use crate::{clock::Clock, store_calls::Store};

/// Threads that work for blobs at once: a slow disk does several things side by side, and clients' calls need threads, too.
const JOBS_MAX: usize = 4;
/// Blobs and reads that one thread takes at a time: each waits for all of these.
const JOB_CALLS_MAX: usize = 16;

/// The result of a call.
#[derive(Debug)]
pub(super) enum Came {
    /// The blob was here at this time of the monotonic clock, or later.
    Here(BlobName, u64),
    /// The blob is not here; whether it was looked for since a batch that names it came a moment ago.
    MissingBlob(BlobName, bool),
    /// The store could not tell.
    NotLooked(BlobName),
    /// So many bytes were written, or are of no use any more.
    Written(BlobName, u64),
    /// The upload is finished, with this name. It is a blob since this time, or later.
    Finished(BlobName, BlobInfo, u64),
    /// The upload has failed, and has to begin anew.
    Unfinished(BlobName),
    /// The bytes read, and whether these are the last ones; no bytes: the blob is not here.
    Read(ReadId, Option<Bytes>, bool),
    /// An error of the store.
    Failed(StoreError),
}

enum Piece {
    /// Whether the blob is here.
    Look {
        coming: bool,
    },
    Write(Bytes),
    Finish,
    Discard,
}

fn is_look(piece: &Piece) -> bool {
    matches!(piece, Piece::Look { .. })
}

/// The calls of one blob.
struct Body<W> {
    pieces: VecDeque<Piece>,
    writer: Option<W>,
    /// The upload cannot be begun or continued. Either its last reference was released before the blob was here, and the store accepts nothing under
    /// its name until another one is made; or the disk became full in between. What comes of it is dropped, and the blob is fetched again.
    spoilt: bool,
    /// Its calls are under way or queued, or the disk has no room.
    busy: bool,
    /// The upload of the calls under way was discarded in the meantime.
    mute: bool,
}

struct Read {
    id: ReadId,
    blob: BlobName,
    offset: u64,
    bytes: usize,
}

enum Task<S: Store> {
    Body(Run<S>, VecDeque<Piece>),
    Read(S, Read),
}

impl<S: Store> Task<S> {
    async fn run(self) -> Done<S::Writer> {
        match self {
            Task::Body(run, pieces) => run.all(pieces).await,
            Task::Read(store, read) => Done::Read(read.answer(&store).await),
        }
    }
}

enum Done<W> {
    Body {
        blob: BlobName,
        /// The rest of its calls.
        pieces: VecDeque<Piece>,
        writer: Option<W>,
        spoilt: bool,
        came: Vec<Came>,
    },
    Read(Vec<Came>),
}

pub(super) struct Calls<S: Store> {
    store: S,
    clock: Clock,
    bodies: BTreeMap<BlobName, Body<S::Writer>>,
    /// Blobs that wait for a thread,
    turns: VecDeque<BlobName>,
    /// and reads that wait. The two take turns, so that a node that sends much receives as well.
    reads: VecDeque<Read>,
    reads_next: bool,
    under_way: JoinSet<Vec<Done<S::Writer>>>,
    /// Blobs that found no room on the disk.
    stuck: Vec<BlobName>,
}

impl<S: Store> Calls<S> {
    pub(super) fn new(store: S, clock: Clock) -> Self {
        Calls {
            store,
            clock,
            bodies: BTreeMap::new(),
            turns: VecDeque::new(),
            reads: VecDeque::new(),
            reads_next: false,
            under_way: JoinSet::new(),
            stuck: Vec::new(),
        }
    }

    /// Whether no blob waits for a thread. Wanted blobs wait outside, so that bytes that have come for others are written meanwhile.
    pub(super) fn has_room(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn look(&mut self, blob: BlobName, coming: bool) {
        self.add(blob, Piece::Look { coming });
    }

    pub(super) fn write(&mut self, blob: BlobName, bytes: Bytes) {
        self.add(blob, Piece::Write(bytes));
    }

    pub(super) fn finish(&mut self, blob: BlobName) {
        self.add(blob, Piece::Finish);
    }

    /// Writes under way for the blob are not reported.
    pub(super) fn discard(&mut self, blob: BlobName) {
        if let Some(body) = self.bodies.get_mut(&blob) {
            body.pieces.retain(is_look);
            body.mute = true;
        }
        self.add(blob, Piece::Discard);
    }

    pub(super) fn read(&mut self, id: ReadId, blob: BlobName, offset: u64, bytes: usize) {
        self.reads.push_back(Read {
            id,
            blob,
            offset,
            bytes,
        });
        self.begin();
    }

    fn add(&mut self, blob: BlobName, piece: Piece) {
        let body = self.bodies.entry(blob).or_insert_with(|| Body {
            pieces: VecDeque::new(),
            writer: None,
            spoilt: false,
            busy: false,
            mute: false,
        });
        body.pieces.push_back(piece);
        if !std::mem::replace(&mut body.busy, true) {
            self.turns.push_back(blob);
        }
        self.begin();
    }

    /// Tries again the calls that found no room on the disk.
    pub(super) fn try_again(&mut self) {
        self.turns.extend(self.stuck.drain(..));
        self.begin();
    }

    /// Whether a blob waits for room on the disk.
    pub(super) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    fn begin(&mut self) {
        while self.under_way.len() < JOBS_MAX {
            let tasks: Vec<Task<S>> = std::iter::from_fn(|| self.next_task())
                .take(JOB_CALLS_MAX)
                .collect();
            if tasks.is_empty() {
                return;
            }
            let runtime = Handle::current();
            self.under_way.spawn_blocking(move || {
                let all = async {
                    let mut done = Vec::with_capacity(tasks.len());
                    for task in tasks {
                        done.push(task.run().await);
                    }
                    done
                };
                blocking_here(|| runtime.block_on(all))
            });
        }
    }

    fn next_task(&mut self) -> Option<Task<S>> {
        self.reads_next = !self.reads_next && !self.reads.is_empty() || self.turns.is_empty();
        let store = self.store.clone();
        if self.reads_next {
            return Some(Task::Read(store, self.reads.pop_front()?));
        }
        let blob = self.turns.pop_front()?;
        let body = self.bodies.get_mut(&blob)?;
        body.mute = false;
        let run = Run {
            store,
            since: self.clock.now().mono_micros,
            blob,
            writer: body.writer.take(),
            spoilt: body.spoilt,
            came: Vec::new(),
        };
        Some(Task::Body(run, std::mem::take(&mut body.pieces)))
    }

    /// Waits for the next of the calls under way; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<Vec<Came>> {
        let done = match self.under_way.join_next().await? {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => return Some(Vec::new()),
            },
        };
        let mut all = Vec::new();
        for done in done {
            all.extend(match done {
                Done::Read(came) => came,
                Done::Body {
                    blob,
                    pieces,
                    writer,
                    spoilt,
                    came,
                } => self.ended(blob, pieces, (writer, spoilt), came),
            });
        }
        self.begin();
        Some(all)
    }

    fn ended(
        &mut self,
        blob: BlobName,
        left: VecDeque<Piece>,
        (writer, spoilt): (Option<S::Writer>, bool),
        mut came: Vec<Came>,
    ) -> Vec<Came> {
        let Some(body) = self.bodies.get_mut(&blob) else {
            return came;
        };
        (body.writer, body.spoilt) = (writer, spoilt);
        let full = !left.is_empty() && !body.mute;
        if body.mute {
            came.retain(|came| !matches!(came, Came::Written(..)));
        }
        for piece in left.into_iter().rev() {
            if !body.mute || is_look(&piece) {
                body.pieces.push_front(piece);
            }
        }
        if full {
            self.stuck.push(blob);
        } else if !body.pieces.is_empty() {
            self.turns.push_back(blob);
        } else if body.writer.is_some() || body.spoilt {
            body.busy = false;
        } else {
            self.bodies.remove(&blob);
        }
        came
    }
}

/// The calls of one blob, one after another.
struct Run<S: Store> {
    store: S,
    /// When the calls begin.
    since: u64,
    blob: BlobName,
    writer: Option<S::Writer>,
    spoilt: bool,
    came: Vec<Came>,
}

impl<S: Store> Run<S> {
    /// Makes all calls, until the disk has no room.
    async fn all(mut self, mut pieces: VecDeque<Piece>) -> Done<S::Writer> {
        let blob = self.blob;
        while let Some(piece) = pieces.pop_front() {
            let room = match &piece {
                Piece::Look { coming } => self.look(*coming).await,
                Piece::Write(bytes) => self.write(bytes.clone()).await,
                Piece::Finish => self.finish().await,
                Piece::Discard => {
                    self.spoilt = false;
                    self.drop_upload().await;
                    true
                }
            };
            if !room {
                pieces.push_front(piece);
                break;
            }
        }
        Done::Body {
            blob,
            pieces,
            writer: self.writer,
            spoilt: self.spoilt,
            came: self.came,
        }
    }

    async fn look(&mut self, coming: bool) -> bool {
        let blob = self.blob;
        match self.store.stat(blob_name(&blob)).await {
            Ok(Some(_)) => self.came.push(Came::Here(blob, self.since)),
            Ok(None) => self.came.push(Came::MissingBlob(blob, coming)),
            Err(error) => self
                .came
                .extend([Came::NotLooked(blob), Came::Failed(error)]),
        }
        true
    }

    /// `false`: there is no room to begin it.
    async fn write(&mut self, bytes: Bytes) -> bool {
        let written = Came::Written(self.blob, bytes.len() as u64);
        if !self.spoilt {
            let begun = self.writer.is_some();
            match self.append(bytes).await {
                Ok(()) => {}
                Err(StoreError::Full(_)) if !begun => {
                    self.writer = None;
                    return false;
                }
                // How much of a piece was written is not known, so it cannot be written again.
                Err(error) => {
                    self.spoilt = true;
                    self.drop_upload().await;
                    let refused = Refusal::UploadExists(UploadId(self.blob.upload));
                    if error != StoreError::from(refused) {
                        self.came.push(Came::Failed(error));
                    }
                }
            }
        }
        self.came.push(written);
        true
    }

    async fn append(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let upload = UploadId(self.blob.upload);
                self.writer.insert(self.store.create(upload).await?)
            }
        };
        writer.write(bytes).await
    }

    /// `false`: there is no room to begin an empty one.
    async fn finish(&mut self) -> bool {
        let blob = self.blob;
        if std::mem::take(&mut self.spoilt) {
            self.came.push(Came::Unfinished(blob));
            return true;
        }
        let writer = match self.writer.take() {
            Some(writer) => Ok(writer),
            // An empty blob: nothing was written.
            None => self.store.create(UploadId(blob.upload)).await,
        };
        let finished = match writer {
            Ok(writer) => writer.finish().await,
            Err(StoreError::Full(_)) => return false,
            Err(error) => Err(error),
        };
        match finished {
            Ok(info) => self.came.push(Came::Finished(blob, info, self.since)),
            Err(error) => self
                .came
                .extend([Came::Unfinished(blob), Came::Failed(error)]),
        }
        true
    }

    async fn drop_upload(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.abort().await
        {
            self.came.push(Came::Failed(error));
        }
    }
}

impl Read {
    async fn answer<S: Store>(self, store: &S) -> Vec<Came> {
        match self.read(store).await {
            Ok((data, end)) => vec![Came::Read(self.id, data, end)],
            Err(error) => vec![Came::Read(self.id, None, false), Came::Failed(error)],
        }
    }

    /// The bytes, and whether they are the last; `None` if the blob is not here.
    async fn read<S: Store>(&self, store: &S) -> Result<(Option<Bytes>, bool), StoreError> {
        let name = blob_name(&self.blob);
        let Some(info) = store.stat(name).await? else {
            return Ok((None, false));
        };
        let left = info.size.saturating_sub(self.offset);
        let wanted = usize::try_from(left).map_or(self.bytes, |left| left.min(self.bytes));
        let mut reader = store.read(name, self.offset, wanted as u64);
        let mut data = BytesMut::new();
        while data.len() < wanted {
            match reader.next().await {
                Ok(Some(more)) => data.extend_from_slice(&more),
                Ok(None) => break,
                // Removed in the meantime.
                Err(StoreError::NoBlob(_)) => return Ok((None, false)),
                Err(error) => return Err(error),
            }
        }
        let end = self.offset + data.len() as u64 >= info.size;
        Ok((Some(data.freeze()), end))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_storage::{BlobStore as _, memory::MemoryStore};

    use super::*;

    fn blob(number: u8, data: &[u8]) -> BlobName {
        BlobName {
            hash: *blake3::hash(data).as_bytes(),
            upload: [number; 16],
        }
    }

    /// All results of the calls so far, or until the disk has no room.
    async fn all(calls: &mut Calls<MemoryStore>) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(came) = calls.next().await {
            all.extend(came.into_iter().map(|came| match came {
                Came::Here(..) => "here".to_owned(),
                Came::MissingBlob(_, coming) => format!("missing {coming}"),
                Came::NotLooked(_) => "not looked".to_owned(),
                Came::Written(_, bytes) => format!("written {bytes}"),
                Came::Finished(_, info, _) => format!("finished {}", info.size),
                Came::Unfinished(_) => "unfinished".to_owned(),
                Came::Read(_, data, end) => format!("read {:?} {end}", data.map(|d| d.len())),
                Came::Failed(_) => "failed".to_owned(),
            }));
        }
        all
    }

    #[tokio::test]
    async fn bodies_go_side_by_side_and_what_concerns_one_in_its_order() {
        let mut calls = Calls::new(MemoryStore::new(), Clock::start());
        let data = [b"one".as_slice(), b"two"].concat();
        let bodies = JOBS_MAX * JOB_CALLS_MAX + 4;
        for number in 0..bodies as u8 {
            let blob = blob(number, &data);
            calls.look(blob, true);
            calls.write(blob, Bytes::from_static(b"one"));
            calls.write(blob, Bytes::from_static(b"two"));
            calls.finish(blob);
            calls.look(blob, false);
        }
        assert_eq!(calls.under_way.len(), JOBS_MAX);
        assert!(!calls.has_room());
        let mut came = all(&mut calls).await;
        let mut expected = [
            "missing true",
            "written 3",
            "written 3",
            "finished 6",
            "here",
        ]
        .repeat(bodies);
        came.sort();
        expected.sort_unstable();
        assert_eq!(came, expected);
        assert!(calls.has_room() && calls.bodies.is_empty());
    }

    #[tokio::test]
    async fn an_empty_body_that_cannot_be_begun_is_not_on_its_way_any_more() {
        let store = MemoryStore::new();
        let mut calls = Calls::new(store.clone(), Clock::start());
        let (empty, other) = (blob(1, b""), blob(2, b""));
        let _begun = store.create(UploadId([1; 16])).await.unwrap();
        calls.finish(empty);
        assert_eq!(all(&mut calls).await, ["unfinished", "failed"]);
        calls.finish(other);
        assert_eq!(all(&mut calls).await, ["finished 0"]);
    }

    #[tokio::test]
    async fn an_upload_that_cannot_be_begun_is_fetched_again() {
        let store = MemoryStore::new();
        let mut calls = Calls::new(store.clone(), Clock::start());
        let held = blob(1, b"body");
        let begun = store.create(UploadId([1; 16])).await.unwrap();
        calls.write(held, Bytes::from_static(b"bo"));
        assert_eq!(all(&mut calls).await, ["written 2"]);
        drop(begun);
        calls.write(held, Bytes::from_static(b"dy"));
        calls.finish(held);
        assert_eq!(all(&mut calls).await, ["written 2", "unfinished"]);
        calls.write(held, Bytes::from_static(b"body"));
        calls.finish(held);
        assert_eq!(all(&mut calls).await, ["written 4", "finished 4"]);
    }

    #[tokio::test]
    async fn what_finds_no_room_waits_or_begins_anew() {
        let store = MemoryStore::new();
        let mut calls = Calls::new(store.clone(), Clock::start());
        let (waits, begun) = (blob(1, b"body"), blob(2, b"body"));
        calls.write(begun, Bytes::from_static(b"bo"));
        assert_eq!(all(&mut calls).await, ["written 2"]);
        store.with(|memory| memory.faults.full = true);
        // A writer does not say how much of a refused piece it has accepted.
        calls.write(begun, Bytes::from_static(b"dy"));
        calls.finish(begun);
        let came = all(&mut calls).await;
        assert_eq!(came, ["failed", "written 2", "unfinished"]);
        calls.write(waits, Bytes::from_static(b"body"));
        calls.look(waits, false);
        assert_eq!(all(&mut calls).await, [""; 0]);
        assert!(calls.is_stuck());
        store.with(|memory| memory.faults.full = false);
        calls.try_again();
        assert_eq!(all(&mut calls).await, ["written 4", "missing false"]);
        calls.finish(waits);
        assert_eq!(all(&mut calls).await, ["finished 4"]);
    }

    #[tokio::test]
    async fn what_is_thrown_away_is_not_reported() {
        let mut calls = Calls::new(MemoryStore::new(), Clock::start());
        let right = blob(1, b"right");
        calls.write(right, Bytes::from_static(b"wrong"));
        calls.write(right, Bytes::from_static(b"wrong"));
        calls.look(right, false);
        calls.discard(right);
        calls.write(right, Bytes::from_static(b"right"));
        calls.finish(right);
        let came = all(&mut calls).await;
        assert_eq!(came, ["missing false", "written 5", "finished 5"]);
    }
}
