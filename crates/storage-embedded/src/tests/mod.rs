//! Tests of the engine on real files: the conformance suite, damage, failures.

mod conformance;
mod damage;
mod failures;
mod files;
mod random;
mod refusals;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tempfile::TempDir;
use whimbrel_storage::{Commit, Hash, LogEntry, Mutation, Origin, PartitionId};

use crate::Embedded;
use crate::config::{Config, Disk, RealDisk};
use crate::sealer::Sealer;

/// A disk with switches. Counts syncs; does none by itself, since in these tests no power is lost: they say what was not
/// synced is lost by damaging it.
#[derive(Debug, Default)]
pub(crate) struct TestDisk {
    pub(crate) sync_fails: AtomicBool,
    /// The file of which something could not be written, until that was told: once, as by the system.
    lost: Mutex<Option<u64>>,
    pub(crate) full: AtomicBool,
    /// Less room than is kept free, but as much as the tree needs.
    pub(crate) below_reserve: AtomicBool,
    /// Takes no writes at all, and says so.
    pub(crate) read_only: AtomicBool,
    /// Takes no writes, which shows only when they are tried.
    pub(crate) refuses: AtomicBool,
    pub(crate) syncs: AtomicU64,
}

impl TestDisk {
    /// The system could not write this file, which a descriptor is told that was open then.
    pub(crate) fn lose(&self, file: &File) {
        *self.lost.lock().unwrap() = Some(file.metadata().unwrap().ino());
    }
}

impl Disk for TestDisk {
    fn sync(&self, file: &File) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        let lost = self.lost.lock().unwrap().take_if(|lost| *lost == inode);
        if self.sync_fails.load(Ordering::SeqCst) || lost.is_some() {
            return Err(io::Error::other("the disk is broken"));
        }
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        if self.read_only.load(Ordering::SeqCst) {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        } else if self.full.load(Ordering::SeqCst) {
            Ok(1000)
        } else if self.below_reserve.load(Ordering::SeqCst) {
            Ok(Config::new(path).removal_free_bytes_min)
        } else {
            RealDisk.free_bytes(path).map(|_| u64::MAX)
        }
    }

    fn probe(&self, directory: &Path) -> io::Result<()> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        RealDisk.probe(directory)
    }
}

/// In memory where the system has such a place: the tree syncs often, and what a disk keeps is not the subject here.
pub(crate) fn tempdir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    }
    .unwrap()
}

pub(crate) fn config(path: &Path) -> (Config, Arc<TestDisk>) {
    let disk = Arc::new(TestDisk::default());
    let config = Config {
        disk: disk.clone(),
        background_threads: 1,
        cache_bytes: 1 << 20,
        ..Config::new(path)
    };
    (config, disk)
}

/// A log and what belongs to it: commit number n puts n's decimal under `last` and appends it.
pub(crate) struct Log {
    partition: PartitionId,
    next: u64,
    hash: Hash,
}

impl Log {
    pub(crate) fn new(partition: u64) -> Self {
        Log {
            partition: PartitionId(partition),
            next: 1,
            hash: Hash::ZERO,
        }
    }

    pub(crate) fn commit(&mut self, bytes: usize) -> Commit {
        let number = self.next;
        let mut batch = number.to_be_bytes().to_vec();
        blake3::Hasher::new().update(&batch).finalize_xof().fill({
            batch.resize(8 + bytes, 0);
            &mut batch[8..]
        });
        let entry = LogEntry {
            origin: Origin(1),
            first: number,
            count: 1,
            previous: self.hash,
            bytes: Bytes::from(batch),
        };
        self.next += 1;
        self.hash = entry.hash();
        let put = Mutation::Put {
            key: "last".into(),
            value: number.to_string().into(),
        };
        Commit {
            entry: Some(entry),
            mutations: vec![put],
            ..Commit::new(self.partition)
        }
    }
}

/// Does something with the tree under a store.
pub(crate) fn tree<T>(engine: &Embedded, work: impl FnOnce(&Sealer) -> T) -> T {
    engine.core().with(|sealer| Ok(work(sealer))).unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap()
}
