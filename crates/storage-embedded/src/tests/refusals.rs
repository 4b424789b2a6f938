//! A tree that takes no writes for a while: everybody is told to try again, what is there can be read, and it is opened again by itself.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use whimbrel_storage::{
    BlobName, BlobReader, BlobStore, BlobWriter, Commit, Hash, LogStore, Mutation, Origin,
    PartitionId, Refusal, StoreError, UploadId,
};

use super::{Log, config, runtime, tempdir};
use crate::directory::{Directory, SyncedFile};
use crate::sealer::Failure;
use crate::{Embedded, journal};

const P: PartitionId = PartitionId(3);

/// As if a write of the tree had been refused.
fn refuse(engine: &Embedded, known: bool) {
    let core = engine.core();
    let noted = core.with(|sealer| {
        let reason = "no room".into();
        Err::<(), _>(sealer.note(Failure::Away { reason, known }))
    });
    assert!(matches!(noted, Err(StoreError::Full(_))), "{noted:?}");
    core.queue.wake();
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Full(_))), "{result:?}");
}

/// Commits until it is taken.
async fn until_taken(engine: &Embedded, commit: Commit) {
    while let Err(error) = engine.commit(commit.clone()).await {
        assert_refused::<()>(Err(error));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn naming(blob: BlobName) -> Commit {
    let holder = "message".into();
    Commit {
        mutations: vec![Mutation::Reference { blob, holder }],
        ..Commit::new(PartitionId(7))
    }
}

fn of_others(blob: BlobName) -> Commit {
    Commit {
        bodies_come: true,
        ..naming(blob)
    }
}

#[test]
fn what_is_there_is_read_until_the_disk_takes_writes_again() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    let probe = directory.path().join(crate::config::PROBE);
    // A crash while it was tried.
    fs::write(&probe, b"").unwrap();
    runtime().block_on(async {
        let engine = Embedded::open(config.clone()).unwrap();
        assert!(!probe.exists());
        let mut log = Log::new(3);
        engine.commit(log.commit(10)).await.unwrap();
        let upload = |n: u8, bytes: usize| {
            let engine = engine.clone();
            async move {
                let mut upload = engine.create(UploadId([n; 16])).await?;
                upload.write(vec![n; bytes].into()).await?;
                Ok::<_, StoreError>(upload)
            }
        };
        let named = upload(1, 200_000).await.unwrap().finish().await.unwrap();
        engine.commit(naming(named.name)).await.unwrap();
        let finished = upload(2, 200_000).await.unwrap().finish().await.unwrap();
        let mut begun = upload(3, 200_000).await.unwrap();
        // As a body of another node: named first, and got then.
        let hash = Hash::of(&vec![6; 100_000]);
        let got = BlobName {
            upload: UploadId([6; 16]),
            hash,
        };
        engine.commit(of_others(got)).await.unwrap();
        let came = upload(6, 100_000).await.unwrap().finish().await.unwrap();
        assert_eq!(came.name, got);

        disk.refuses.store(true, Ordering::SeqCst);
        refuse(&engine, true);
        let refused = log.commit(10);
        assert_refused(engine.commit(refused.clone()).await);
        assert_refused(begun.write(vec![3; 100_000].into()).await);
        assert_refused(upload(4, 100_000).await.map(|_| ()));
        assert_refused(engine.delete(named.name).await);
        let last = engine.get(P, vec!["last".into()]).await.unwrap();
        assert_eq!(last, [Some("1".into())]);
        let read = engine.read(named.name, 0, 10).next().await.unwrap();
        assert_eq!(read.unwrap(), [1; 10][..]);

        // One that rests on the refused one stays refused when the tree takes writes again; one that begins anew is taken.
        let mut resting = log.commit(10);
        resting.follows = true;
        disk.refuses.store(false, Ordering::SeqCst);
        until_taken(&engine, Commit::new(PartitionId(9))).await;
        let rests = engine.commit(resting).await.unwrap_err();
        assert!(rests.to_string().contains("rests on"), "{rests}");
        engine.commit(refused).await.unwrap();
        assert!(!probe.exists());

        // What was named stays, and is named again.
        engine.commit(of_others(got)).await.unwrap();
        // What nothing named went, and is never named: it would be a message without its text. Whoever comes with its name gets another.
        let taken = engine.create(finished.name.upload).await.map(|_| ());
        let exists = Refusal::UploadExists(finished.name.upload);
        assert_eq!(taken, Err(exists.into()));
        assert_refused(engine.commit(naming(finished.name)).await);
        assert_refused(begun.write(vec![3; 100_000].into()).await);
        assert_refused(begun.finish().await);
        assert_eq!(engine.stat(finished.name).await.unwrap(), None);
        let read = engine.read(named.name, 199_990, 10).next().await.unwrap();
        assert_eq!(read.unwrap(), [1; 10][..]);
        let again = upload(5, 200_000).await.unwrap().finish().await.unwrap();
        engine.commit(naming(again.name)).await.unwrap();
        engine.close().await;

        let engine = Embedded::open(config).unwrap();
        assert_eq!(engine.log_positions(P).await.unwrap()[0].1.next, 3);
        let blobs = engine.list(None, 10).await.unwrap();
        assert_eq!(blobs, [named, again, came]);
        assert_eq!(
            engine
                .read_log(P, Origin(1), 1, usize::MAX)
                .await
                .unwrap()
                .entries
                .len(),
            2
        );
        engine.close().await;
    });
}

/// A body of another node that is whole before the batch that names it is taken: the batch comes again, and so does the body.
#[test]
fn what_others_have_is_named_when_it_went_and_comes_again() {
    let directory = tempdir();
    let (config, _disk) = config(directory.path());
    runtime().block_on(async {
        let engine = Embedded::open(config.clone()).unwrap();
        let text = |n: u8| vec![n; 200_000];
        let begin = |n: u8| {
            let engine = engine.clone();
            async move {
                let mut upload = engine.create(UploadId([n; 16])).await?;
                upload.write(vec![n; 150_000].into()).await?;
                Ok::<_, StoreError>(upload)
            }
        };
        let end = async |mut upload: crate::EmbeddedWriter, n: u8| {
            upload.write(vec![n; 50_000].into()).await?;
            upload.finish().await
        };
        let came = end(begin(1).await.unwrap(), 1).await.unwrap();
        let mut coming = begin(2).await.unwrap();
        refuse(&engine, true);
        until_taken(&engine, Commit::new(P)).await;

        assert_refused(engine.commit(naming(came.name)).await);
        engine.commit(of_others(came.name)).await.unwrap();
        // Behind what is done after that.
        engine.commit(Commit::new(P)).await.unwrap();
        assert_eq!(engine.stat(came.name).await.unwrap(), None);
        let again = end(begin(1).await.unwrap(), 1).await;
        assert_eq!(again, Ok(came));
        // Who wrote it before is still about to when it is begun again.
        let blob = BlobName {
            upload: UploadId([2; 16]),
            hash: Hash::of(&text(2)),
        };
        engine.commit(of_others(blob)).await.unwrap();
        engine.commit(Commit::new(P)).await.unwrap();
        let again = begin(2).await.unwrap();
        assert_refused(coming.write(text(2).into()).await);
        drop(coming);
        for _ in 0..2 {
            engine.commit(Commit::new(P)).await.unwrap();
        }
        let again = end(again, 2).await.unwrap();
        assert_eq!(again.name, blob);
        engine.close().await;

        let engine = Embedded::open(config).unwrap();
        for (n, of) in [(1, came), (2, again)] {
            let mut read = engine.read(of.name, 0, of.size);
            let mut found = Vec::new();
            while let Some(piece) = read.next().await.unwrap() {
                found.extend_from_slice(&piece);
            }
            assert!(found == text(n), "{of:?}");
        }
        engine.close().await;
    });
}

/// The tree's own threads cannot write a table: it gives up behind everybody's back, and shows that at the next write only.
#[test]
fn a_tree_that_gives_up_by_itself_is_opened_again() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    let config = crate::Config {
        write_buffer_bytes: 128 << 10,
        ..config
    };
    let tables = directory.path().join("lsm/keyspaces");
    let elsewhere = directory.path().join("elsewhere");
    runtime().block_on(async {
        let engine = Embedded::open(config.clone()).unwrap();
        let mut log = Log::new(3);
        engine.commit(log.commit(10)).await.unwrap();
        disk.refuses.store(true, Ordering::SeqCst);
        fs::rename(&tables, &elsewhere).unwrap();
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        let mut pieces = 0;
        while let Ok(()) = upload.write(vec![1; 64 << 10].into()).await {
            pieces += 1;
            assert!(pieces < 10_000, "the tree wrote its tables");
        }
        let refused = log.commit(10);
        assert_refused(engine.commit(refused.clone()).await);
        assert_refused(upload.finish().await);
        assert_eq!(engine.log_positions(P).await.unwrap()[0].1.next, 2);

        fs::rename(&elsewhere, &tables).unwrap();
        disk.refuses.store(false, Ordering::SeqCst);
        until_taken(&engine, refused).await;
        let mut upload = engine.create(UploadId([2; 16])).await.unwrap();
        upload.write(vec![2; 1 << 20].into()).await.unwrap();
        let blob = upload.finish().await.unwrap();
        engine.commit(naming(blob.name)).await.unwrap();
        engine.close().await;
        let engine = Embedded::open(config).unwrap();
        assert_eq!(engine.list(None, 10).await.unwrap(), [blob]);
        assert_eq!(engine.log_positions(P).await.unwrap()[0].1.next, 3);
        engine.close().await;
    });
}

/// Without a known cause it may be a damage, which must not be hidden for long.
#[test]
fn a_tree_that_gives_up_again_and_again_for_no_reason_stops() {
    let directory = tempdir();
    let (config, _disk) = config(directory.path());
    runtime().block_on(async {
        let engine = Embedded::open(config).unwrap();
        let failed = engine.failed();
        for _ in 0..crate::writer::UNKNOWN_MAX {
            refuse(&engine, false);
            until_taken(&engine, Commit::new(P)).await;
        }
        refuse(&engine, false);
        loop {
            let taken = engine.commit(Commit::new(P)).await;
            if taken.expect_err("it was opened again").stops_node() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(failed.await.stops_node());
        engine.close().await;
    });
}

/// Else whoever comes to the store would wait for ever.
#[test]
fn a_tree_that_cannot_be_shut_stops_the_node() {
    let directory = tempdir();
    let (config, _disk) = config(directory.path());
    runtime().block_on(async {
        let engine = Embedded::open(config).unwrap();
        let mut log = Log::new(3);
        engine.commit(log.commit(10)).await.unwrap();
        let core = engine.core().clone();
        core.tree.write().unwrap().as_mut().unwrap().buffers.hang();
        refuse(&engine, true);
        let error = engine.failed().await;
        assert!(error.stops_node(), "{error}");
        assert!(error.to_string().contains("does not end"), "{error}");
        assert_eq!(engine.log_positions(P).await.unwrap().len(), 1);
        drop(core);
        engine.close().await;
    });
}

/// A sync of the tree's own that fails is told to nobody, and what follows looks as if a write had been refused.
#[test]
fn a_sync_that_failed_inside_the_tree_is_no_refusal() {
    for known in [true, false] {
        let directory = tempdir();
        let (config, disk) = config(directory.path());
        runtime().block_on(async {
            let engine = Embedded::open(config).unwrap();
            let mut log = Log::new(3);
            engine.commit(log.commit(10)).await.unwrap();
            let (_, newest) = journal::newest(&directory.path().join("lsm"))
                .unwrap()
                .unwrap();
            disk.lose(&fs::File::open(newest).unwrap());
            refuse(&engine, known);
            let core = engine.core();
            let error = loop {
                if let Some(error) = core.queue.failed().borrow().clone() {
                    break error;
                }
                // A descriptor that is opened now hears nothing of it.
                let failure = core.with(|sealer| Ok(sealer.failure()));
                assert_ne!(failure, Ok(None), "it was opened again");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert!(error.to_string().contains("the disk is broken"), "{error}");
            assert!(error.stops_node());
            let refused = engine.commit(log.commit(10)).await;
            assert!(refused.expect_err("it was taken").stops_node());
            // Reading goes on, so that sessions can end in order.
            assert_eq!(engine.log_positions(P).await.unwrap().len(), 1);
            engine.close().await;
        });
    }
}

#[test]
fn nothing_is_tried_on_a_file_system_that_is_read_only() {
    let directory = tempdir();
    let (config, disk) = config(directory.path());
    runtime().block_on(async {
        let engine = Embedded::open(config).unwrap();
        disk.read_only.store(true, Ordering::SeqCst);
        let removal = Commit {
            mutations: vec![Mutation::Delete { key: "a".into() }],
            room: whimbrel_storage::Room::Vital,
            ..Commit::new(P)
        };
        assert_refused(engine.commit(removal.clone()).await);
        let mut upload = engine.create(UploadId([1; 16])).await.unwrap();
        assert_refused(upload.write(vec![0; 100_000].into()).await);
        assert_eq!(engine.totals().groups, 1, "it was looked at");
        let wrote = engine.core().with(|sealer| Ok(sealer.last())).unwrap();
        assert_eq!(wrote, 0);
        disk.read_only.store(false, Ordering::SeqCst);
        engine.commit(removal).await.unwrap();
        engine.close().await;
    });
}

/// A store with these writes, closed: its directory's identity and its only journal.
fn with_writes(path: &Path, writes: u64) -> (Directory, Option<u64>) {
    runtime().block_on(async {
        let engine = Embedded::open(config(path).0).unwrap();
        let mut log = Log::new(3);
        for _ in 0..writes {
            engine.commit(log.commit(10)).await.unwrap();
        }
        engine.close().await;
    });
    let directory = Directory::open(path).unwrap();
    let synced = SyncedFile::open(&directory).unwrap().1;
    (directory, synced)
}

/// The tree may still bring to the journal what it said it could not.
#[test]
fn a_write_that_was_refused_is_cut_off() {
    let directory = tempdir();
    let (files, synced) = with_writes(directory.path(), 5);
    assert_eq!(synced, Some(5));
    let found = journal::check(&files.tree(), &files.id, Some(4), Some(4)).unwrap();
    assert!(found.torn_bytes > 0);
    assert_eq!(found.writes.unwrap().1.number, 4);
    // But never one that was synced.
    let refused = journal::judge(&files.tree(), &files.id, Some(4), Some(3));
    assert!(refused.is_err());
}

/// ... and may begin a journal behind a write that it could not bring there whole.
#[test]
fn a_torn_end_may_have_a_blank_journal_behind_it() {
    let directory = tempdir();
    let (files, synced) = with_writes(directory.path(), 5);
    let tree = files.tree();
    let (number, torn) = journal::newest(&tree).unwrap().unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(torn).unwrap();
    file.write_all(b"\x01\x07\0\0").unwrap();
    let next = journal::path_of(&tree, number + 1);
    fs::write(&next, vec![0; 100_000]).unwrap();
    let (found, torn) = journal::judge(&tree, &files.id, synced, None).unwrap();
    assert!(torn.is_some());
    assert_eq!(found.writes.unwrap().1.number, 5);
    // Anything in it: then the write before it had been synced.
    fs::write(&next, b"\x01").unwrap();
    assert!(journal::judge(&tree, &files.id, synced, None).is_err());
    fs::write(&next, b"").unwrap();
    drop(files);
    runtime().block_on(async {
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        assert_eq!(engine.log_positions(P).await.unwrap()[0].1.next, 6);
        engine.commit(Commit::new(P)).await.unwrap();
        engine.close().await;
    });
}
