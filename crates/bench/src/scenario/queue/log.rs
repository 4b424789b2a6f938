//! A node's disk: one file to which records are appended. Whatever comes while a sync is under way is written and synced together afterwards.
//!
//! A record is its length, a checksum of what follows, the kind of change, the tuple's id, the queue's record behind its length, and the payload. The
//! last record of an id counts. The file is not cleaned up: a run lasts some seconds.

use std::{
    collections::HashMap,
    fs::File,
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use bytes::Bytes;
use whimbrel_queue::{Change, Id};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, io_at, wrong};

/// Length and checksum.
const HEAD_BYTES: usize = 4 + 8;

/// What waits for the disk.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    ids: Vec<Id>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a payload lies.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    bytes: usize,
}

/// The end of the log that the node holds.
pub(super) struct Log {
    shared: Arc<Shared>,
    file: File,
    /// Bytes written and to be written.
    end: u64,
    /// Never iterated.
    places: HashMap<Id, Place>,
    bytes: Vec<u8>,
    ids: Vec<Id>,
}

/// What the thread that writes has done: how long each sync took, in microseconds.
pub(super) type Syncs = Vec<u32>;

impl Log {
    /// A new log, and the thread that writes it. It calls `written` for each group that is durable.
    pub(super) fn new(
        path: &Path,
        name: String,
        written: impl Fn(Vec<Id>) + Send + 'static,
    ) -> Result<(Log, thread::JoinHandle<Result<Syncs>>)> {
        let file = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(io_at(path.display()))?;
        let shared = Arc::new(Shared::default());
        let log = Log {
            shared: shared.clone(),
            file: file.try_clone().map_err(io_at("a log"))?,
            end: 0,
            places: HashMap::new(),
            bytes: Vec::new(),
            ids: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || write_all(file, &shared, &written))
            .map_err(io_at("a thread"))?;
        Ok((log, thread))
    }

    /// Appends a change. It is written after [`Log::flush`].
    pub(super) fn append(&mut self, id: Id, change: &Change) {
        let begin = self.bytes.len();
        let payload_bytes = encode(&mut self.bytes, id, change);
        self.end += (self.bytes.len() - begin) as u64;
        match change {
            Change::Tuple(_, Some(_)) => {
                let place = Place {
                    at: self.end - payload_bytes as u64,
                    bytes: payload_bytes,
                };
                self.places.insert(id, place);
            }
            Change::Tuple(_, None) => {}
            Change::Tombstone(_) | Change::Remove => {
                self.places.remove(&id);
            }
        }
        self.ids.push(id);
    }

    /// Gives what was appended to the thread that writes.
    pub(super) fn flush(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let mut waiting = self.shared.waiting();
        waiting.bytes.extend_from_slice(&self.bytes);
        waiting.ids.append(&mut self.ids);
        drop(waiting);
        self.bytes.clear();
        self.shared.changed.notify_one();
    }

    /// A payload that was written.
    pub(super) fn read(&self, id: Id) -> Result<Option<Bytes>> {
        let Some(place) = self.places.get(&id) else {
            return Ok(None);
        };
        let mut payload = vec![0; place.bytes];
        self.file
            .read_exact_at(&mut payload, place.at)
            .map_err(io_at("read a payload"))?;
        Ok(Some(payload.into()))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.waiting().ended = true;
        self.shared.changed.notify_one();
    }
}

/// Appends a record; how long its payload is, which stands at its end.
pub(super) fn encode(out: &mut Vec<u8>, id: Id, change: &Change) -> usize {
    let begin = out.len();
    out.resize(begin + HEAD_BYTES, 0);
    let (kind, record, payload) = match change {
        Change::Tuple(record, Some(payload)) => (0, Some(record), &payload[..]),
        Change::Tuple(record, None) => (1, Some(record), &[][..]),
        Change::Tombstone(record) => (2, Some(record), &[][..]),
        Change::Remove => (3, None, &[][..]),
    };
    out.push(kind);
    out.extend_from_slice(&id.0);
    let record = record.map(whimbrel_queue::Record::encode);
    let record = record.unwrap_or_default();
    out.extend_from_slice(&word(record.len()));
    out.extend_from_slice(&record);
    out.extend_from_slice(payload);
    let length = word(out.len() - begin - HEAD_BYTES);
    let sum = xxh3_64(&out[begin + HEAD_BYTES..]).to_be_bytes();
    out[begin..begin + 4].copy_from_slice(&length);
    out[begin + 4..begin + HEAD_BYTES].copy_from_slice(&sum);
    payload.len()
}

fn word(length: usize) -> [u8; 4] {
    // A record is far below 4 GiB.
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn write_all(mut file: File, shared: &Shared, written: &dyn Fn(Vec<Id>)) -> Result<Syncs> {
    let mut syncs = Syncs::new();
    let mut bytes = Vec::new();
    loop {
        let idle = |waiting: &mut Waiting| waiting.ids.is_empty() && !waiting.ended;
        let waited = shared.changed.wait_while(shared.waiting(), idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.ids.is_empty() {
            return Ok(syncs);
        }
        bytes.clear();
        std::mem::swap(&mut bytes, &mut waiting.bytes);
        let ids = std::mem::take(&mut waiting.ids);
        drop(waiting);
        let began = Instant::now();
        file.write_all(&bytes)
            .and_then(|()| file.sync_data())
            .map_err(io_at("write the log"))?;
        syncs.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        written(ids);
    }
}

/// How many tuples and tombstones a log holds that is read from its beginning.
pub(super) fn left(path: &Path) -> Result<usize> {
    let bytes = std::fs::read(path).map_err(io_at(path.display()))?;
    let mut rest = &bytes[..];
    let mut held = std::collections::HashSet::new();
    while let Some((head, behind)) = rest.split_at_checked(HEAD_BYTES) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some((body, behind)) = behind.split_at_checked(length) else {
            return wrong(format!("{}: a record is cut short", path.display()));
        };
        if xxh3_64(body).to_be_bytes() != head[4..] || length < 21 {
            return wrong(format!("{}: a record is damaged", path.display()));
        }
        let id: [u8; 16] = body[1..17].try_into().unwrap_or_default();
        match body[0] {
            3 => held.remove(&id),
            _ => held.insert(id),
        };
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(held.len()),
        false => wrong(format!("{}: a record is cut short", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use whimbrel_queue::{Nodes, Record, Version};

    use super::*;

    #[test]
    fn what_is_appended_is_on_the_disk_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (sender, written) = channel();
        let (mut log, thread) = Log::new(&path, "log".to_owned(), move |ids| {
            sender.send(ids).unwrap();
        })
        .unwrap();
        let record = Record::Tombstone {
            version: Version::default(),
            holders: Nodes::NONE,
            unconfirmed: Nodes::NONE,
            tracked: false,
        };
        let ids: Vec<Id> = (0..3).map(|number| Id::new(1, number)).collect();
        for id in &ids {
            let payload = Bytes::copy_from_slice(&id.0);
            log.append(*id, &Change::Tuple(record.clone(), Some(payload)));
        }
        log.flush();
        assert_eq!(written.recv().unwrap(), ids);
        for id in &ids {
            assert_eq!(log.read(*id).unwrap().as_deref(), Some(&id.0[..]));
        }
        log.append(ids[0], &Change::Remove);
        log.append(ids[1], &Change::Tombstone(record));
        log.flush();
        assert_eq!(written.recv().unwrap(), ids[..2]);
        assert_eq!(log.read(ids[0]).unwrap(), None);
        drop(log);
        assert_eq!(thread.join().unwrap().unwrap().len(), 2);
        assert_eq!(left(&path).unwrap(), 2);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        std::fs::write(&path, &bytes[..last]).unwrap();
        assert!(left(&path).is_err());
        bytes[HEAD_BYTES] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(left(&path).is_err());
    }
}
