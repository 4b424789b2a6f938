//! The suite of `whimbrel-storage`, with crashes that tear the journal wherever it was not synced.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use whimbrel_storage::conformance::{self, Factory};
use whimbrel_storage::{Commit, LogStore, PartitionId, StoreError};

use super::{TestDisk, config, runtime, tempdir};
use crate::directory::{Directory, SyncedFile};
use crate::{Embedded, journal};

struct Files {
    directory: TempDir,
    disk: Arc<TestDisk>,
    write_buffer_bytes: u64,
    /// Whether a crash damages what was not synced, as a power loss may. Not with tiny buffers: there the tree may move to
    /// its tables what this disk only pretends not to have synced.
    tears: bool,
}

impl Factory for Files {
    type Engine = Embedded;

    async fn open(&mut self) -> Result<Embedded, StoreError> {
        let (config, disk) = config(self.directory.path());
        self.disk = disk;
        let config = crate::Config {
            write_buffer_bytes: self.write_buffer_bytes,
            ..config
        };
        Embedded::open(config).map_err(|error| StoreError::Damaged(error.to_string().into()))
    }

    async fn close(&mut self, engine: Embedded) {
        engine.close().await;
    }

    async fn crash(&mut self, engine: Embedded, seed: u64) {
        self.disk.sync_fails.store(true, Ordering::SeqCst);
        // Comes behind all that was submitted: when it has failed, everything has.
        let failed = engine.commit(Commit::new(PartitionId(0))).await;
        assert!(matches!(failed, Err(StoreError::Poisoned(_))), "{failed:?}");
        drop(engine);
        if self.tears {
            tear(self.directory.path(), seed);
        }
    }
}

/// Cuts the newest journal somewhere behind what was synced, or leaves pages of it unwritten.
fn tear(path: &std::path::Path, seed: u64) {
    let directory = Directory::open(path).unwrap();
    let (_, synced) = SyncedFile::open(&directory).unwrap();
    let (_, journal) = journal::newest(&directory.tree()).unwrap().unwrap();
    let ends = journal::ends(&journal, &directory.id);
    let safe = ends
        .iter()
        .filter(|(number, _)| *number <= synced.unwrap())
        .map(|(_, end)| *end)
        .max()
        .unwrap_or(0);
    let end = ends.last().map_or(0, |(_, end)| *end);
    assert!(
        end > safe,
        "the group that failed lies behind what was synced"
    );
    let random = blake3::hash(&seed.to_le_bytes());
    let random = |at: usize| u64::from_le_bytes(random.as_bytes()[at..at + 8].try_into().unwrap());
    let at = safe + random(0) % (end - safe);
    let file = OpenOptions::new().write(true).open(&journal).unwrap();
    match seed % 3 {
        0 => file.set_len(at).unwrap(),
        1 => file
            .write_all_at(&vec![0; usize::try_from((end - at).min(4096)).unwrap()], at)
            .unwrap(),
        _ => file
            .write_all_at(
                &random(8).to_le_bytes()[..usize::try_from((end - at).min(8)).unwrap()],
                at,
            )
            .unwrap(),
    }
}

#[test]
fn conforms_with_torn_journals() {
    runtime().block_on(conformance::run(|| Files {
        directory: tempdir(),
        disk: Arc::default(),
        write_buffer_bytes: 8 << 20,
        tears: true,
    }));
}

/// Buffers so small that tables are written, merged and dropped all the time.
#[test]
fn conforms_with_tiny_buffers() {
    runtime().block_on(conformance::run(|| Files {
        directory: tempdir(),
        disk: Arc::default(),
        write_buffer_bytes: 128 << 10,
        tears: false,
    }));
}
