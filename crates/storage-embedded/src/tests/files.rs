//! How many files stay open.

use whimbrel_storage::{BlobReader, BlobStore, BlobWriter, UploadId};

use super::{config, runtime, tempdir};
use crate::{Embedded, FILES_OPEN_MIN};

/// Blobs, each in a file of its own.
const BLOBS: u8 = 40;

/// Files of blobs that this process has open below `path`.
fn open_files(path: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|target| target.starts_with(path) && target.to_string_lossy().contains("/blobs/"))
        .count()
}

#[test]
fn no_more_files_stay_open_than_configured() {
    let directory = tempdir();
    let path = directory.path().canonicalize().unwrap();
    runtime().block_on(async {
        let (config, _) = config(&path);
        let engine = Embedded::open(crate::Config {
            files_open_max: 1,
            ..config
        })
        .unwrap();
        let mut names = Vec::new();
        for number in 0..BLOBS {
            let mut writer = engine.create(UploadId([number; 16])).await.unwrap();
            writer.write(vec![number; 8 << 10].into()).await.unwrap();
            names.push(writer.finish().await.unwrap().name);
            let trees = &engine.core().sealer.trees;
            trees.blobs.rotate_memtable_and_wait().unwrap();
        }
        for (number, name) in (0..BLOBS).zip(names) {
            let bytes = engine.read(name, 0, 8 << 10).next().await.unwrap();
            assert_eq!(bytes, Some(vec![number; 8 << 10].into()));
        }
        let open = open_files(&path);
        assert!(
            (1..=FILES_OPEN_MIN).contains(&open),
            "{open} of {BLOBS} files are open"
        );
        engine.close().await;
    });
}
