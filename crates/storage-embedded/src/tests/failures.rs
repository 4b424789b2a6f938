//! Failures while running: a failed sync, a full disk, two processes, another version, a cut that a crash interrupts.

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fjall::AbstractTree as _;
use whimbrel_storage::{
    BlobName, BlobStore, BlobWriter, Commit, Cut, Hash, LogStore, Mutation, Origin, PartitionId,
    Refusal, Room, StoreError, UploadId,
};

use super::{Log, config, runtime, tempdir, tree};
use crate::{Config, Embedded, OpenError};

const P: PartitionId = PartitionId(3);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

#[test]
fn a_failed_sync_stops_the_store_for_everyone() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    block_on(async {
        let engine = Embedded::open(config.clone()).unwrap();
        let mut log = Log::new(3);
        engine.commit(log.commit(10)).await.unwrap();
        let failed = engine.failed();
        disk.sync_fails.store(true, Ordering::SeqCst);
        let under_way: Vec<_> = (0..10).map(|_| engine.commit(log.commit(10))).collect();
        for commit in under_way {
            let error = commit.await.unwrap_err();
            assert!(
                error.stops_node() && error.to_string().contains("the disk is broken"),
                "{error}"
            );
        }
        assert!(failed.await.stops_node(), "the server is told");
        // Even if the disk says it is well again: what it dropped, nobody knows.
        disk.sync_fails.store(false, Ordering::SeqCst);
        let syncs = disk.syncs.load(Ordering::SeqCst);
        assert!(
            engine
                .commit(log.commit(10))
                .await
                .unwrap_err()
                .stops_node()
        );
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        assert!(
            upload
                .write(vec![0; 100_000].into())
                .await
                .unwrap_err()
                .stops_node()
        );
        assert_eq!(
            disk.syncs.load(Ordering::SeqCst),
            syncs,
            "nothing was synced any more"
        );
        // Reading goes on, so that sessions can end in order.
        assert_eq!(engine.log_positions(P).await.unwrap().len(), 1);
        drop(upload);
        engine.close().await;
        let engine = Embedded::open(config).unwrap();
        let position = engine.log_positions(P).await.unwrap()[0].1;
        assert!(position.next >= 2, "what was acknowledged is there");
        engine.close().await;
    });
}

#[test]
fn a_full_disk_refuses_to_add_until_there_is_room() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    block_on(async {
        let engine = Embedded::open(config).unwrap();
        let mut log = Log::new(3);
        engine.commit(log.commit(10)).await.unwrap();
        disk.full.store(true, Ordering::SeqCst);
        let refused = log.commit(10);
        let error = engine.commit(refused.clone()).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Full(_)) && error.is_temporary(),
            "{error}"
        );
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        assert!(matches!(
            upload.write(vec![0; 100_000].into()).await,
            Err(StoreError::Full(_))
        ));
        upload.abort().await.unwrap();
        let delete = Commit {
            mutations: vec![Mutation::Delete { key: "last".into() }],
            cuts: vec![Cut {
                origin: Origin(1),
                below: 2,
            }],
            ..Commit::new(P)
        };
        engine.commit(delete).await.unwrap();
        assert_eq!(engine.get(P, vec!["last".into()]).await.unwrap(), [None]);
        let vital = Commit {
            mutations: vec![Mutation::Put {
                key: "vital".into(),
                value: "1".into(),
            }],
            room: Room::Vital,
            ..Commit::new(P)
        };
        engine.commit(vital).await.unwrap();
        let frees = Commit {
            mutations: vec![Mutation::Put {
                key: "marked".into(),
                value: "1".into(),
            }],
            room: Room::Frees,
            ..Commit::new(P)
        };
        let error = engine.commit(frees.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        // With as much room as the tree needs, but less than is kept free, what leads to more is taken, and nothing else.
        disk.full.store(false, Ordering::SeqCst);
        disk.below_reserve.store(true, Ordering::SeqCst);
        let error = engine.commit(refused.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        engine.commit(frees).await.unwrap();
        disk.below_reserve.store(false, Ordering::SeqCst);
        engine.commit(refused).await.unwrap();
        engine.close().await;
    });
}

/// A body of another node is named before it comes. If there is no room for its end it comes again; and what is given up does not take away what came
/// meanwhile.
#[test]
fn a_named_body_that_was_not_finished_comes_again() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    block_on(async {
        let engine = Embedded::open(config).unwrap();
        let text = Bytes::from(vec![6; 100_000]);
        let blob = BlobName {
            upload: UploadId([6; 16]),
            hash: Hash::of(&text),
        };
        let naming = Commit {
            mutations: vec![Mutation::Reference {
                blob,
                holder: "message".into(),
            }],
            bodies_come: true,
            ..Commit::new(P)
        };
        engine.commit(naming.clone()).await.unwrap();
        let begin = || async {
            let mut upload = engine.create(blob.upload).await?;
            upload.write(text.clone()).await?;
            Ok::<_, StoreError>(upload)
        };
        for full in [&disk.below_reserve, &disk.full] {
            let upload = begin().await.unwrap();
            full.store(true, Ordering::SeqCst);
            let refused = upload.finish().await;
            assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
            full.store(false, Ordering::SeqCst);
        }
        // Named while it is being written: nobody else may write it until it is given up.
        let upload = begin().await.unwrap();
        engine.commit(naming).await.unwrap();
        let other = begin().await.map(|_| ());
        assert!(
            matches!(other, Err(StoreError::Refused(Refusal::UploadExists(_)))),
            "{other:?}"
        );
        upload.abort().await.unwrap();
        let info = begin().await.unwrap().finish().await.unwrap();
        assert_eq!(info.name, blob);
        assert_eq!(engine.stat(blob).await.unwrap(), Some(info));
        // One that came before its name, which is let go of in the same commit: it may come again.
        let short = BlobName {
            upload: UploadId([7; 16]),
            hash: Hash::of(b"short"),
        };
        for _ in 0..2 {
            let mut upload = engine.create(short.upload).await.unwrap();
            upload.write(Bytes::from_static(b"short")).await.unwrap();
            upload.finish().await.unwrap();
            let holder = Bytes::from_static(b"entry");
            let named = Mutation::Reference {
                blob: short,
                holder: holder.clone(),
            };
            let left = Mutation::Release {
                blob: short,
                holder,
            };
            let commit = Commit {
                mutations: vec![named, left],
                ..Commit::new(P)
            };
            engine.commit(commit).await.unwrap();
            // Behind its removal.
            engine.commit(Commit::new(P)).await.unwrap();
            assert_eq!(engine.stat(short).await.unwrap(), None);
        }
        engine.close().await;
    });
}

/// A body of another node whose last record goes while it comes.
#[test]
fn a_body_that_was_let_go_of_while_it_came_does_not_stay() {
    let directory = tempdir();
    block_on(async {
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        let text = Bytes::from(vec![6; 300_000]);
        let blob = BlobName {
            upload: UploadId([6; 16]),
            hash: Hash::of(&text),
        };
        let holders = [Bytes::from_static(b"record"), Bytes::from_static(b"entry")];
        let change = |names: bool, holder: &Bytes| {
            let holder = holder.clone();
            let mutation = match names {
                true => Mutation::Reference { blob, holder },
                false => Mutation::Release { blob, holder },
            };
            Commit {
                mutations: vec![mutation],
                bodies_come: true,
                ..Commit::new(P)
            }
        };
        let begin = || async {
            let mut upload = engine.create(blob.upload).await?;
            upload.write(text.clone()).await?;
            Ok::<_, StoreError>(upload)
        };
        let rows = || {
            tree(&engine, |sealer| {
                let meta = &sealer.trees.meta;
                let mark = meta.contains_key(crate::keys::doubtful(blob.upload));
                let chunks = sealer.trees.blobs.prefix(blob.upload.0);
                chunks.count() + usize::from(mark.unwrap())
            })
        };
        let [record, entry] = &holders;
        // What is said of it before it is whole, and who holds it then.
        for (names, held) in [
            (&[(true, record), (false, record)][..], None),
            (
                &[(true, record), (true, entry), (false, record)],
                Some(entry),
            ),
            (
                &[(true, entry), (false, entry), (true, record)],
                Some(record),
            ),
        ] {
            let (first, rest) = names.split_first().unwrap();
            engine.commit(change(first.0, first.1)).await.unwrap();
            let upload = begin().await.unwrap();
            for (names, holder) in rest {
                engine.commit(change(*names, holder)).await.unwrap();
            }
            let finished = upload.finish().await;
            if let Some(holder) = held {
                let info = finished.unwrap();
                assert_eq!(engine.stat(blob).await.unwrap(), Some(info));
                engine.commit(change(false, holder)).await.unwrap();
                // Behind its removal.
                engine.commit(Commit::new(P)).await.unwrap();
            } else {
                assert!(matches!(finished, Err(StoreError::Full(_))), "{finished:?}");
            }
            assert_eq!(engine.stat(blob).await.unwrap(), None);
            assert_eq!(rows(), 0, "something of it is left");
        }
        // One that nothing ever named is not let go of.
        let upload = begin().await.unwrap();
        let info = upload.finish().await.unwrap();
        assert_eq!(engine.stat(blob).await.unwrap(), Some(info));
        engine.close().await;
    });
}

#[test]
fn one_process_at_a_time() {
    let directory = tempdir();
    block_on(async {
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        assert!(matches!(
            Embedded::open(config(directory.path()).0),
            Err(OpenError::InUse(_))
        ));
        engine.close().await;
        Embedded::open(config(directory.path()).0)
            .unwrap()
            .close()
            .await;
    });
}

#[test]
fn another_version_or_something_else_is_refused() {
    let directory = tempdir();
    block_on(async {
        Embedded::open(config(directory.path()).0)
            .unwrap()
            .close()
            .await
    });
    let format = directory.path().join("FORMAT");
    let good = fs::read_to_string(&format).unwrap();
    let open = || {
        Embedded::open(config(directory.path()).0)
            .err()
            .map(|error| error.to_string())
    };
    fs::write(
        &format,
        good.replace("whimbrel-store 1 ", "whimbrel-store 2 "),
    )
    .unwrap();
    assert!(open().unwrap().contains("newer version"), "{:?}", open());
    for bad in [
        "",
        "whimbrel-store",
        "whimbrel-store one",
        "something else",
        "whimbrel-store 1 abc",
    ] {
        fs::write(&format, bad).unwrap();
        assert!(
            open().unwrap().contains("not the format file"),
            "{:?}",
            open()
        );
    }
    fs::write(
        &format,
        good.replace(char::is_numeric, "0")
            .replace("store 0", "store 1"),
    )
    .unwrap();
    // The commits of another store would not be recognised either; here there are only the sweeps of the start.
    fs::remove_file(&format).unwrap();
    assert!(open().unwrap().contains("missing"), "{:?}", open());
    fs::write(&format, good).unwrap();
    assert_eq!(open(), None);
}

#[test]
fn nobody_else_may_read_it() {
    let parent = tempdir();
    let path = parent.path().join("data");
    block_on(async { Embedded::open(config(&path).0).unwrap().close().await });
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(""), mode("lsm")], [0o700; 2]);
    assert_eq!([mode("FORMAT"), mode("LOCK"), mode("SYNCED")], [0o600; 3]);
    // A directory that was made by hand is closed.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    block_on(async { Embedded::open(config(&path).0).unwrap().close().await });
    assert_eq!(mode(""), 0o700);
}

/// The rows below a cut go little by little; a stop in between leaves rows that the next start takes up.
#[test]
fn a_large_cut_is_carried_out_later() {
    let directory = tempdir();
    let rows = |engine: &Embedded| {
        let tree = engine.core().tree.read().unwrap();
        let sealer = tree.as_ref().unwrap();
        let range = crate::keys::prefix_range(crate::keys::ALL_ENTRIES);
        fjall::Readable::range(&sealer.db().snapshot(), &sealer.trees.log, range).count()
    };
    block_on(async {
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        let mut log = Log::new(3);
        let under_way: Vec<_> = (0..5000).map(|_| engine.commit(log.commit(1))).collect();
        for commit in under_way {
            commit.await.unwrap();
        }
        let cut = Commit {
            cuts: vec![Cut {
                origin: Origin(1),
                below: 4_990,
            }],
            ..Commit::new(P)
        };
        engine.commit(cut).await.unwrap();
        assert!(
            engine.read_log(P, Origin(1), 1, 0).await.unwrap().entries[0].first == 4_990,
            "cut at once"
        );
        assert!(rows(&engine) > 1_000, "but not gone at once");
        engine.close().await;
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        assert!(rows(&engine) > 1_000);
        for _ in 0..8 {
            engine.commit(Commit::new(PartitionId(9))).await.unwrap();
        }
        engine.commit(Commit::new(PartitionId(9))).await.unwrap();
        assert_eq!(rows(&engine), 11);
        engine.commit(log.commit(1)).await.unwrap();
        engine.close().await;
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        assert_eq!(
            engine
                .read_log(P, Origin(1), 1, usize::MAX)
                .await
                .unwrap()
                .entries
                .len(),
            12
        );
        engine.close().await;
    });
}

#[test]
fn an_upload_that_is_dropped_leaves_nothing() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    block_on(async {
        let engine = Embedded::open(config).unwrap();
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        upload.write(vec![0; 300_000].into()).await.unwrap();
        let rows = || {
            let tree = engine.core().tree.read().unwrap();
            let trees = &tree.as_ref().unwrap().trees;
            let doubtful = trees
                .meta
                .contains_key(crate::keys::doubtful(UploadId([1; 16])))
                .unwrap();
            let chunks = trees.blobs.prefix([1; 16]);
            (chunks.count(), doubtful)
        };
        assert_eq!(rows(), (4, true));
        drop(upload);
        // The removal was queued before this commit, and follows its group; the second commit is behind it.
        for _ in 0..2 {
            engine.commit(Commit::new(P)).await.unwrap();
        }
        assert_eq!(rows(), (0, false));
        // One that cannot be removed now goes later, and until then no other is taken for it.
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        upload.write(vec![0; 300_000].into()).await.unwrap();
        disk.read_only.store(true, Ordering::SeqCst);
        drop(upload);
        for _ in 0..2 {
            engine.commit(Commit::new(P)).await.unwrap_err();
        }
        assert_eq!(rows(), (4, true));
        disk.read_only.store(false, Ordering::SeqCst);
        let other = engine.create(UploadId([1; 16])).await.map(|_| ());
        let exists = Refusal::UploadExists(UploadId([1; 16]));
        assert_eq!(other, Err(exists.into()));
        for _ in 0..2 {
            engine.commit(Commit::new(P)).await.unwrap();
        }
        assert_eq!(rows(), (0, false));
        assert!(engine.create(UploadId([1; 16])).await.is_ok());
        engine.close().await;
    });
}

/// The write itself removes what came of it; until then no other of its name begins, with which it would be mixed.
#[test]
fn an_upload_that_is_dropped_in_the_middle_of_a_write_goes_with_it() {
    /// A disk that does not say how much room it has while it is held.
    #[derive(Default)]
    struct Held(Mutex<()>, AtomicUsize);
    impl crate::Disk for Held {
        fn sync(&self, _: &fs::File) -> std::io::Result<()> {
            Ok(())
        }
        fn free_bytes(&self, _: &std::path::Path) -> std::io::Result<u64> {
            self.1.fetch_add(1, Ordering::SeqCst);
            let _free = self.0.lock().unwrap();
            Ok(u64::MAX)
        }
        fn probe(&self, _: &std::path::Path) -> std::io::Result<()> {
            Ok(())
        }
    }
    const UPLOAD: UploadId = UploadId([1; 16]);
    const CHUNK: usize = 64 << 10;
    let directory = tempdir();
    let disk = Arc::new(Held::default());
    let config = Config {
        disk: disk.clone(),
        chunk_bytes: CHUNK,
        ..config(directory.path()).0
    };
    let runtime = runtime();
    let engine = Embedded::open(config).unwrap();
    let begin = || runtime.block_on(engine.create(UPLOAD));
    let drop_in_a_write = |written: usize, ends: bool| {
        let mut upload = begin().unwrap();
        runtime
            .block_on(upload.write(vec![0; written].into()))
            .unwrap();
        let held = disk.0.lock().unwrap();
        let before = disk.1.load(Ordering::SeqCst);
        let task = runtime.spawn(async move {
            match ends {
                true => upload.finish().await.map(|_| ()),
                false => upload.write(vec![0; CHUNK].into()).await,
            }
        });
        while disk.1.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        let exists = StoreError::from(Refusal::UploadExists(UPLOAD));
        assert_eq!(begin().map(|_| ()), Err(exists.clone()));
        drop(held);
        let until = Instant::now() + Duration::from_secs(10);
        while begin().map(|_| ()) == Err(exists.clone()) {
            assert!(Instant::now() < until, "{written} bytes, {ends}: it stays");
            runtime.block_on(engine.commit(Commit::new(P))).unwrap();
        }
        let left = tree(&engine, |sealer| {
            let marks = sealer.trees.meta.prefix(crate::keys::ALL_DOUBTFUL);
            marks.count() + sealer.trees.blobs.prefix(UPLOAD.0).count()
        });
        assert_eq!(left, 0);
    };
    drop_in_a_write(0, false);
    drop_in_a_write(CHUNK, false);
    drop_in_a_write(10, true);
    drop_in_a_write(CHUNK + 10, true);
    runtime.block_on(engine.close());
}

/// Twenty clients that each wait for their commit share syncs, on a disk that takes its time.
#[test]
fn clients_share_syncs() {
    struct Slow;
    impl crate::Disk for Slow {
        fn sync(&self, _: &fs::File) -> std::io::Result<()> {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Ok(())
        }
        fn free_bytes(&self, _: &std::path::Path) -> std::io::Result<u64> {
            Ok(u64::MAX)
        }
        fn probe(&self, _: &std::path::Path) -> std::io::Result<()> {
            Ok(())
        }
    }
    let directory = tempdir();
    block_on(async {
        let config = Config {
            disk: std::sync::Arc::new(Slow),
            ..config(directory.path()).0
        };
        let engine = Embedded::open(config).unwrap();
        let clients: Vec<_> = (0..20)
            .map(|partition| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut log = Log::new(partition);
                    for _ in 0..20 {
                        engine.commit(log.commit(500)).await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let totals = engine.totals();
        // How many come back in time is the scheduler's doing; that they share is not.
        assert!(
            totals.commits == 400 && totals.groups * 5 <= totals.commits,
            "{totals:?}"
        );
        engine.close().await;
    });
}

#[test]
#[expect(
    clippy::await_holding_lock,
    reason = "threads of the tree want it, and no task"
)]
fn uploads_wait_while_the_disk_is_behind() {
    const BUFFER: u64 = 1 << 20;
    const CHUNK: u64 = 64 << 10;
    const UPLOADS: u64 = 4;
    #[track_caller]
    fn check(full_buffers_max: usize) {
        let directory = tempdir();
        let config = Config {
            write_buffer_bytes: BUFFER,
            full_buffers_max,
            // One, which the first full buffer takes: the tree itself begins at most one other, before it takes that.
            background_threads: 1,
            ..config(directory.path()).0
        };
        block_on(async {
            let engine = Embedded::open(config).unwrap();
            let (blobs, db) = tree(&engine, |sealer| {
                (sealer.trees.blobs.clone(), sealer.db().clone())
            });
            // While it is held, nothing goes into files, however long that takes.
            let behind = blobs.tree.get_flush_lock();
            let uploads: Vec<_> = (0..UPLOADS)
                .map(|number| {
                    let engine = engine.clone();
                    tokio::spawn(async move {
                        let id = UploadId([number as u8 + 1; 16]);
                        let mut upload = engine.create(id).await.unwrap();
                        for _ in 0..16 * BUFFER / CHUNK {
                            let chunk = vec![0x5a; CHUNK as usize];
                            upload.write(chunk.into()).await.unwrap();
                        }
                        upload.finish().await.unwrap()
                    })
                })
                .collect();
            while (engine.totals().waits < UPLOADS
                || blobs.sealed_memtable_count() < full_buffers_max)
                && blobs.sealed_memtable_count() <= full_buffers_max + 1
                && !uploads.iter().any(|one| one.is_finished())
            {
                tokio::task::yield_now().await;
            }
            let full = blobs.sealed_memtable_count();
            assert!(
                (full_buffers_max..=full_buffers_max + 1).contains(&full),
                "{full}"
            );
            // What comes meanwhile and goes elsewhere does not wait.
            engine.commit(Log::new(3).commit(10)).await.unwrap();
            // A full one may be twice as large as one should be.
            let bytes_max = (2 * full_buffers_max as u64 + 1) * (BUFFER + UPLOADS * CHUNK);
            let bytes = db.write_buffer_size();
            assert!(bytes < bytes_max, "{bytes}");
            drop(behind);
            for upload in uploads {
                assert_eq!(upload.await.unwrap().size, 16 * BUFFER);
            }
            engine.close().await;
        });
    }
    check(1);
    check(2);
}
