//! The files of the tree: how many stay open, and what may be merged away.

use whimbrel_storage::{
    BlobReader, BlobStore, BlobWriter, Commit, LogStore, Mutation, PartitionId, UploadId,
};

use super::damage::findings;
use super::{config, runtime, tempdir, tree};
use crate::directory::Directory;
use crate::failure::read_error;
use crate::trees::{TREE_NAMES, Tree};
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
            let tree = engine.core().tree.read().unwrap();
            let trees = &tree.as_ref().unwrap().trees;
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

#[test]
fn a_store_opens_again_whose_last_rows_were_removed_and_merged_away() {
    let directory = tempdir();
    let path = directory.path();
    runtime().block_on(async {
        let engine = Embedded::open(config(path).0).unwrap();
        let row = |mutation| Commit {
            mutations: vec![mutation],
            ..Commit::new(PartitionId(1))
        };
        let key = bytes::Bytes::from_static(b"entry of a queue");
        engine
            .commit(row(Mutation::Put {
                key: key.clone(),
                value: "mail".into(),
            }))
            .await
            .unwrap();
        engine
            .commit(row(Mutation::Delete { key: key.clone() }))
            .await
            .unwrap();
        // Blobs until the tree begins a new journal, everything into tables until it lets the older one go.
        let mut writer = engine.create(UploadId([1; 16])).await.unwrap();
        let piece = bytes::Bytes::from(vec![0x5a; 1 << 20]);
        let mut pieces = 0;
        while path.join("lsm/0.jnl").exists() {
            writer.write(piece.clone()).await.unwrap();
            pieces += 1;
            assert!(pieces < 500, "the tree kept its first journal");
            if path.join("lsm/1.jnl").exists() {
                let tree = engine.core().tree.read().unwrap();
                for tree in tree.as_ref().unwrap().trees.all() {
                    tree.rotate_memtable_and_wait().unwrap();
                }
            }
        }
        drop(writer);
        let rows = engine.core().with(|sealer| {
            sealer.trees.records.major_compact().unwrap();
            Ok(sealer.trees.records.approximate_len())
        });
        assert!(rows.unwrap() <= 1, "the removed row is still in a table");
        engine.close().await;
        let engine = Embedded::open(config(path).0).unwrap();
        let there = engine.get(PartitionId(1), vec![key]).await.unwrap();
        assert_eq!(there, vec![None]);
        engine.close().await;
    });
}

/// The folder that a tree was to have is left out when its making was interrupted.
#[test]
fn a_store_whose_making_was_interrupted_is_made_and_opens_again() {
    for trees in 0..2 {
        let directory = tempdir();
        let path = directory.path();
        drop(Directory::open(path).unwrap());
        let db = fjall::Database::builder(path.join("lsm")).open().unwrap();
        for name in &TREE_NAMES[..trees] {
            db.keyspace(name, Default::default).unwrap();
        }
        drop(db);
        let begun = path.join(format!("lsm/keyspaces/{}", trees + 1));
        std::fs::create_dir(begun).unwrap();
        runtime().block_on(async {
            for _ in 0..2 {
                let engine = Embedded::open(config(path).0).unwrap();
                engine.commit(Commit::new(PartitionId(1))).await.unwrap();
                engine.close().await;
                assert_eq!(findings(path), []);
            }
        });
    }
}

/// A first start may be killed at any moment.
#[test]
fn a_start_that_was_killed_before_the_tree_was_made_is_no_damage() {
    let check = |version: Option<&[u8]>, journal: Option<&[u8]>| {
        let directory = tempdir();
        let path = directory.path();
        drop(Directory::open(path).unwrap());
        std::fs::create_dir(path.join("lsm/keyspaces")).unwrap();
        for (name, bytes) in [
            ("lock", Some(&b""[..])),
            ("version", version),
            ("0.jnl", journal),
        ] {
            if let Some(bytes) = bytes {
                std::fs::write(path.join("lsm").join(name), bytes).unwrap();
            }
        }
        runtime().block_on(async {
            let engine = Embedded::open(config(path).0);
            let kept = std::fs::read(path.join("lsm/0.jnl")).unwrap();
            let is_kept = journal.is_some_and(|journal| kept.starts_with(journal));
            let engine = engine.map_err(|_| is_kept)?;
            engine.commit(Commit::new(PartitionId(1))).await.unwrap();
            engine.close().await;
            Ok::<(), bool>(())
        })
    };
    assert_eq!(check(None, None), Ok(()));
    assert_eq!(check(None, Some(b"")), Ok(()));
    assert_eq!(check(None, Some(&[0; 70_000])), Ok(()));
    assert_eq!(check(Some(b""), Some(&[0; 70_000])), Ok(()));
    assert_eq!(check(Some(b"FJ"), Some(&[0; 70_000])), Ok(()));
    // Something was written, so it is not the remains of a first start.
    assert_eq!(check(None, Some(b"a write")), Err(true));
}

#[test]
fn what_one_write_says_of_a_key_last_counts_and_is_written_once() {
    let directory = tempdir();
    runtime().block_on(async {
        let (config, _) = config(directory.path());
        let engine = Embedded::open(config).unwrap();
        let long = [7; 64 << 10];
        let value_of = |key: &'static [u8]| {
            tree(&engine, |sealer| {
                sealer.trees.records.get(key).map_err(read_error).unwrap()
            })
        };
        tree(&engine, |sealer| {
            let mut write = sealer.begin();
            write.put(Tree::Records, b"put".into(), &long[..]);
            write.put(Tree::Records, b"put".into(), &b"last"[..]);
            write.put(Tree::Records, b"removed".into(), &long[..]);
            write.remove(Tree::Records, &b"removed"[..]);
            write.remove(Tree::Records, &b"came back"[..]);
            write.put(Tree::Records, b"came back".into(), &b"here"[..]);
            sealer.write(write, true).unwrap();
        });
        assert_eq!(value_of(b"put").as_deref(), Some(&b"last"[..]));
        assert_eq!(value_of(b"removed"), None);
        assert_eq!(value_of(b"came back").as_deref(), Some(&b"here"[..]));
        // It is laid out beforehand, with zeros.
        let journal = std::fs::read(directory.path().join("lsm/0.jnl")).unwrap();
        let written = journal.iter().filter(|byte| **byte != 0).count();
        assert!(0 < written && written < long.len(), "{written} bytes");
        engine.close().await;
    });
}
