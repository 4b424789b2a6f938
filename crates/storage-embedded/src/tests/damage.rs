//! Damage of files at rest: either all acknowledged data is there, or opening or reading says clearly that it is not.
//!
//! One loss cannot be told from a torn write, by anyone: the very last synced write, when power was lost before anything
//! was written behind it and the note of it (`SYNCED`) had not reached the disk either. The tests allow just that.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use whimbrel_storage::{
    BlobName, BlobReader, BlobStore, BlobWriter, Commit, Hash, KeyRange, LogStore, Mutation,
    Origin, PartitionId, ScanLimit, UploadId,
};

use super::{Log, config, runtime, tempdir, tree};
use crate::check::{Finding, Watch, files, refused};
use crate::directory::{Directory, SyncedFile};
use crate::{Config, Embedded, OpenError, journal, verify};

const COMMITS: u64 = 40;

/// What a store was told to keep.
#[derive(Clone)]
struct Kept {
    commits: u64,
    blobs: Vec<(BlobName, Hash)>,
}

/// Writes a store in `path`: each commit alone in its group, so each is acknowledged before the next is written.
async fn fill(config: Config, blob_bytes: usize) -> Kept {
    let engine = Embedded::open(config).unwrap();
    let mut log = Log::new(7);
    let mut blobs = Vec::new();
    for number in 1..=COMMITS {
        let mut commit = log.commit(300);
        if number % 8 == 3 {
            let mut bytes = vec![0; blob_bytes];
            blake3::Hasher::new()
                .update(&number.to_le_bytes())
                .finalize_xof()
                .fill(&mut bytes);
            let mut writer = engine.create(UploadId([number as u8; 16])).await.unwrap();
            for piece in bytes.chunks(10_000) {
                writer.write(piece.to_vec().into()).await.unwrap();
            }
            let info = writer.finish().await.unwrap();
            commit.mutations.push(Mutation::Reference {
                blob: info.name,
                holder: "h".into(),
            });
            blobs.push((info.name, Hash::of(&bytes)));
        }
        engine.commit(commit).await.unwrap();
        engine.commit(record(number)).await.unwrap();
    }
    engine.close().await;
    Kept {
        commits: COMMITS,
        blobs,
    }
}

fn record(number: u64) -> Commit {
    let put = Mutation::Put {
        key: number.to_be_bytes().to_vec().into(),
        value: vec![number as u8; 200].into(),
    };
    Commit {
        mutations: vec![put],
        ..Commit::new(PartitionId(8))
    }
}

/// Opens the store and reads everything. `Ok`: what is there, as (log entries, records of the second partition); everything
/// that is there has been compared. `Err`: a clear refusal. Panics when something is silently wrong.
async fn read_all(config: Config, kept: &Kept) -> Result<(u64, u64), String> {
    let engine = Embedded::open(config).map_err(|error| error.to_string())?;
    let result = async {
        let mut log = Log::new(7);
        let page = engine
            .read_log(PartitionId(7), Origin(1), 1, usize::MAX)
            .await
            .map_err(|error| error.to_string())?;
        for entry in &page.entries {
            assert_eq!(
                Some(entry),
                log.commit(300).entry.as_ref(),
                "a log entry is not the one that was written"
            );
        }
        let last = engine
            .get(PartitionId(7), vec!["last".into()])
            .await
            .map_err(|error| error.to_string())?;
        let entries = page.entries.len() as u64;
        assert_eq!(
            last,
            [Some(entries.to_string().into())],
            "record and log disagree"
        );
        let rows = engine
            .scan(PartitionId(8), KeyRange::all(), ScanLimit::default())
            .await
            .map_err(|error| error.to_string())?;
        for (index, (key, value)) in rows.rows.iter().enumerate() {
            let number = index as u64 + 1;
            assert!(
                *key == number.to_be_bytes()[..] && *value == vec![number as u8; 200],
                "record {number} is wrong"
            );
        }
        for (name, hash) in &kept.blobs {
            let mut reader = engine.read(*name, 0, u64::MAX);
            let mut bytes = Vec::new();
            while let Some(chunk) = reader.next().await.map_err(|error| error.to_string())? {
                bytes.extend_from_slice(&chunk);
            }
            assert_eq!(
                Hash::of(&bytes),
                *hash,
                "a blob is not the one that was written"
            );
        }
        Ok((entries, rows.rows.len() as u64))
    }
    .await;
    engine.close().await;
    result
}

/// A copy of a store, to be damaged.
fn copy(from: &Path) -> TempDir {
    fn copy_into(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy_into(&entry.path(), &target);
            } else {
                // Journals are sparse; copying keeps only what is there.
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    let to = tempdir();
    copy_into(from, to.path());
    to
}

fn flip(path: &Path, at: u64, with: u8) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ with], at).unwrap();
}

/// As after a power loss: the note of what was synced is an old one.
fn forget_synced(path: &Path) {
    let directory = Directory::open(path).unwrap();
    SyncedFile::open(&directory).unwrap().0.note(0).unwrap();
}

fn newest_journal(path: &Path) -> PathBuf {
    journal::newest(&path.join("lsm")).unwrap().unwrap().1
}

/// A store in one journal, that journal without its laid-out end, and where its writes end.
fn one_journal() -> (TempDir, Kept, Vec<(u64, u64)>) {
    let base = tempdir();
    let kept = runtime().block_on(fill(config(base.path()).0, 25_000));
    let ends = {
        let directory = Directory::open(base.path()).unwrap();
        journal::ends(&newest_journal(base.path()), &directory.id)
    };
    let end = ends.last().unwrap().1;
    // A little of what was laid out remains, so that it is part of the tests.
    OpenOptions::new()
        .write(true)
        .open(newest_journal(base.path()))
        .unwrap()
        .set_len(end + 2_000)
        .unwrap();
    (base, kept, ends)
}

#[test]
fn a_changed_byte_in_the_journal_is_never_a_silent_loss() {
    let (base, kept, ends) = one_journal();
    let end = ends.last().unwrap().1;
    let before_last = ends[ends.len() - 2].1;
    let runtime = runtime();
    let mut refused = 0;
    for (round, at) in (0..end + 2_000)
        .step_by(607)
        .chain(before_last - 30..before_last + 40)
        .enumerate()
    {
        for power_lost in [false, true] {
            let damaged = copy(base.path());
            flip(&newest_journal(damaged.path()), at, 1 << (round % 8));
            if power_lost {
                forget_synced(damaged.path());
            }
            match runtime.block_on(read_all(config(damaged.path()).0, &kept)) {
                Err(why) => {
                    refused += 1;
                    assert!(
                        why.contains("jnl") && why.contains("Acknowledged data"),
                        "byte {at}: {why}"
                    );
                }
                Ok(there) => {
                    let last_write = power_lost
                        && at >= before_last
                        && there == (kept.commits, kept.commits - 1);
                    assert!(
                        there == (kept.commits, kept.commits) || last_write,
                        "byte {at}, power lost {power_lost}: {there:?}"
                    );
                }
            }
        }
    }
    assert!(refused > 100, "only {refused} refusals");
}

/// The tree orders versions by a number that its own checksum leaves out.
#[test]
fn a_changed_sequence_number_is_noticed() {
    let (base, kept, ends) = one_journal();
    let runtime = runtime();
    // Not of the last write: there a number that is a little too high changes no order.
    for (_, start) in ends.iter().rev().skip(2).step_by(5) {
        // Tag and number of items come before it; the lowest bit makes it that of a neighbour.
        for (byte, bit) in [(0, 1), (0, 4), (1, 1), (7, 0x80)] {
            let damaged = copy(base.path());
            flip(&newest_journal(damaged.path()), start + 5 + byte, bit);
            let result = runtime.block_on(read_all(config(damaged.path()).0, &kept));
            let why = result.expect_err("noticed");
            assert!(why.contains("sequence number"), "{why}");
        }
    }
}

#[test]
fn a_journal_cut_short_is_noticed() {
    let (base, kept, ends) = one_journal();
    let end = ends.last().unwrap().1;
    let runtime = runtime();
    for at in (0..end)
        .step_by(1_511)
        .chain([end - 1])
        .chain(ends.iter().map(|(_, end)| *end).rev().skip(1).step_by(9))
    {
        let damaged = copy(base.path());
        OpenOptions::new()
            .write(true)
            .open(newest_journal(damaged.path()))
            .unwrap()
            .set_len(at)
            .unwrap();
        let result = runtime.block_on(read_all(config(damaged.path()).0, &kept));
        assert!(result.is_err(), "cut at {at} of {end}: {result:?}");
    }
}

/// A power loss tears what was not synced, in any way: the store opens with all that was acknowledged.
#[test]
fn a_torn_end_is_no_damage() {
    let (base, kept, ends) = one_journal();
    let end = ends.last().unwrap().1;
    let runtime = runtime();
    // The last eleven writes were never synced: no seal and no note says so.
    let safe = ends[ends.len() - 12];
    let still = (kept.commits - 5, kept.commits - 5);
    let rewritten = copy(base.path());
    {
        // Take away what proves that they were: their seals' words on what was synced.
        let directory = Directory::open(rewritten.path()).unwrap();
        let path = newest_journal(rewritten.path());
        let bytes = fs::read(&path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let magic = crate::commit_record::SEAL_MAGIC;
        for at in memchr::memmem::find_iter(&bytes, magic) {
            let length = crate::commit_record::SEAL_BYTES;
            let Some(mut seal) =
                crate::commit_record::Seal::decode(&directory.id, &bytes[at..at + length])
            else {
                continue;
            };
            seal.synced = seal.synced.min(safe.0);
            file.write_all_at(&seal.encode(&directory.id), at as u64)
                .unwrap();
        }
        SyncedFile::open(&directory)
            .unwrap()
            .0
            .note(safe.0)
            .unwrap();
    }
    for at in (ends[ends.len() - 11].1..end).step_by(97) {
        for way in 0..3 {
            let torn = copy(rewritten.path());
            let file = OpenOptions::new()
                .write(true)
                .open(newest_journal(torn.path()))
                .unwrap();
            match way {
                0 => file.set_len(at).unwrap(),
                1 => file
                    .write_all_at(&vec![0; (end - at).min(700) as usize], at)
                    .unwrap(),
                _ => file
                    .write_all_at(&vec![0xa5; (end - at).min(64) as usize], at)
                    .unwrap(),
            }
            // A changed seal has broken the checksum of its write; only that of the first of the eleven did not change.
            let there = runtime.block_on(read_all(
                config(torn.path()).0,
                &Kept {
                    commits: still.0,
                    blobs: Vec::new(),
                },
            ));
            assert_eq!(there, Ok(still), "torn at {at}, way {way}");
            // And nothing is left over that would be in the way of what is written next.
            let engine = Embedded::open(config(torn.path()).0).unwrap();
            runtime.block_on(async {
                engine.commit(record(kept.commits - 4)).await.unwrap();
                engine.close().await;
            });
            let there = runtime.block_on(read_all(
                config(torn.path()).0,
                &Kept {
                    commits: still.0,
                    blobs: Vec::new(),
                },
            ));
            assert_eq!(there, Ok((still.0, still.1 + 1)));
        }
    }
}

/// Every file of a store with tables: bytes changed here and there, cut in half, and gone.
#[test]
fn damaged_or_missing_tables_are_noticed() {
    let base = tempdir();
    let (small, _) = config(base.path());
    let small = Config {
        write_buffer_bytes: 4 << 10,
        ..small
    };
    let runtime = runtime();
    let kept = runtime.block_on(fill(small, 100_000));
    let everything = (kept.commits, kept.commits);
    assert_eq!(
        runtime.block_on(read_all(config(base.path()).0, &kept)),
        Ok(everything)
    );
    let mut files = Vec::new();
    let mut folders = vec![base.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    let tables = files
        .iter()
        .filter(|path| path.to_string_lossy().contains("/keyspaces/"))
        .count();
    assert!(tables > 8, "there are tables: {files:?}");
    let (mut refused, mut whole) = (0, 0);
    for file in &files {
        let name = file.strip_prefix(base.path()).unwrap();
        let length = fs::metadata(file).unwrap().len().min(200_000);
        let flips = 12.min(length);
        // 0..flips: change a byte; then: cut in half; then: gone.
        for damage in 0..flips + 2 {
            let damaged = copy(base.path());
            let path = damaged.path().join(name);
            if damage < flips {
                flip(&path, damage * length / flips, 0x20);
            } else if damage == flips {
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(length / 2)
                    .unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            let what = || format!("{} damaged in way {damage} of {flips}", name.display());
            let attempt = || runtime.block_on(read_all(config(damaged.path()).0, &kept));
            match catch_unwind(AssertUnwindSafe(attempt)) {
                Ok(Ok(there)) => {
                    assert_eq!(there, everything, "{}", what());
                    whole += 1;
                }
                Ok(Err(_)) => refused += 1,
                Err(_) => panic!("panicked: {}", what()),
            }
        }
    }
    println!("{} files: refused {refused}, whole {whole}", files.len());
    assert!(
        refused > 2 * tables,
        "{refused} refusals, {whole} times whole"
    );
}

/// Two journals: an older one damaged or gone, the newer one gone.
#[test]
fn journals_are_judged_together() {
    let base = tempdir();
    let runtime = runtime();
    let kept = runtime.block_on(async {
        // Beside a few commits, enough blobs for the tree to begin a new journal.
        let kept = fill(config(base.path()).0, 1_000).await;
        let engine = Embedded::open(config(base.path()).0).unwrap();
        let mut writer = engine.create(UploadId([0xee; 16])).await.unwrap();
        let piece = bytes::Bytes::from(vec![0x5a; 1 << 20]);
        let mut pieces = 0;
        while !base.path().join("lsm/1.jnl").exists() {
            writer.write(piece.clone()).await.unwrap();
            pieces += 1;
            assert!(pieces < 500, "the tree never began a new journal");
        }
        engine.commit(record(kept.commits + 1)).await.unwrap();
        engine.commit(record(kept.commits + 2)).await.unwrap();
        drop(writer);
        engine.close().await;
        kept
    });
    let older = Path::new("lsm/0.jnl");
    assert!(
        base.path().join(older).exists(),
        "the older journal still holds what is nowhere else"
    );
    let check = |what: &str, power_lost: bool, damage: &dyn Fn(&Path)| {
        let damaged = copy(base.path());
        if power_lost {
            forget_synced(damaged.path());
        }
        damage(damaged.path());
        let evidence = fs::read(damaged.path().join(older)).ok();
        let result = runtime.block_on(read_all(config(damaged.path()).0, &kept));
        assert!(
            result.is_err(),
            "{what}, power lost {power_lost}: {result:?}"
        );
        assert!(
            fs::read(damaged.path().join(older)).ok() == evidence,
            "{what}: the older journal was changed"
        );
    };
    // Only copies are opened: opening moves what the older one holds into tables, and then it may go.
    let good = copy(base.path());
    let there = runtime.block_on(read_all(config(good.path()).0, &kept));
    assert_eq!(there, Ok((kept.commits, kept.commits + 2)));
    for power_lost in [false, true] {
        check("a byte changed in the older one", power_lost, &|path| {
            flip(&path.join(older), 5_000, 1)
        });
        check("the older one cut short", power_lost, &|path| {
            OpenOptions::new()
                .write(true)
                .open(path.join(older))
                .unwrap()
                .set_len(30_000_000)
                .unwrap();
        });
        check("the older one's end zeroed", power_lost, &|path| {
            let file = OpenOptions::new()
                .write(true)
                .open(path.join(older))
                .unwrap();
            file.set_len(30_000_000)
                .and_then(|()| file.set_len(64 << 20))
                .unwrap();
        });
        check("the older one emptied", power_lost, &|path| {
            set_length(&path.join(older), 0);
            let error = Embedded::open(config(path).0).err().unwrap();
            let finding = refused(path, &error);
            assert_eq!((finding.path, finding.offset), (path.join(older), Some(0)));
        });
        check("the older one gone", power_lost, &|path| {
            fs::remove_file(path.join(older)).unwrap()
        });
        check("both gone", power_lost, &|path| {
            fs::remove_file(path.join(older)).unwrap();
            fs::remove_file(newest_journal(path)).unwrap();
        });
    }
    check("the newer one gone", false, &|path| {
        fs::remove_file(newest_journal(path)).unwrap()
    });
}

/// A start that refuses a store must not make the next one take it: with several journals the tree at once moves their rows into its files.
#[test]
fn a_missing_journal_is_missed_by_each_start() {
    let base = tempdir();
    let runtime = runtime();
    runtime.block_on(async {
        let config = Config {
            journal_bytes_max: 1 << 30,
            ..config(base.path()).0
        };
        let engine = Embedded::open(config).unwrap();
        let mut writer = engine.create(UploadId([0xee; 16])).await.unwrap();
        let piece = bytes::Bytes::from(vec![0x5a; 1 << 20]);
        for number in 1..=3 {
            engine.commit(record(number)).await.unwrap();
            let mut pieces = 0;
            while !base.path().join(format!("lsm/{number}.jnl")).exists() {
                writer.write(piece.clone()).await.unwrap();
                pieces += 1;
                assert!(pieces < 500, "the tree never began a new journal");
            }
        }
        drop(writer);
        engine.close().await;
    });
    fs::remove_file(base.path().join("lsm/0.jnl")).unwrap();
    let persisted = || verify::persisted(&base.path().join("lsm")).unwrap();
    let before = persisted();
    for start in 1..=5 {
        let result = Embedded::open(config(base.path()).0);
        let why = result.err().map(|error| error.to_string());
        let why = why.unwrap_or_else(|| panic!("taken by start {start}"));
        assert!(why.contains("an older journal"), "{why}");
        assert_eq!(persisted(), before, "changed by start {start}");
    }
}

/// When all older journals could go, the first write of the new one may be torn as any other; but not one that was synced.
#[test]
fn the_first_write_of_the_only_journal_may_be_torn() {
    let base = tempdir();
    let runtime = runtime();
    let in_files = runtime.block_on(async {
        let engine = Embedded::open(config(base.path()).0).unwrap();
        for number in 1..=3 {
            engine.commit(record(number)).await.unwrap();
        }
        let in_files = tree(&engine, |sealer| {
            for tree in sealer.trees.all() {
                tree.rotate_memtable_and_wait().unwrap();
            }
            sealer.flush().unwrap()
        });
        assert_eq!(in_files, None, "all writes are synced");
        engine.commit(record(4)).await.unwrap();
        engine.commit(record(5)).await.unwrap();
        engine.close().await;
        3
    });
    let journal = newest_journal(base.path());
    let directory = Directory::open(base.path()).unwrap();
    let ends = journal::ends(&journal, &directory.id);
    let begin = ends
        .iter()
        .find(|(number, _)| *number == in_files)
        .unwrap()
        .1;
    drop(directory);
    let later = fs::read(&journal).unwrap().split_off(begin as usize);
    let check = |synced: u64, bytes: &[u8]| {
        let changed = copy(base.path());
        fs::write(newest_journal(changed.path()), bytes).unwrap();
        let directory = Directory::open(changed.path()).unwrap();
        SyncedFile::open(&directory)
            .unwrap()
            .0
            .note(synced)
            .unwrap();
        drop(directory);
        let damage = findings(changed.path()).iter().any(|of| of.is_damage);
        runtime.block_on(async {
            let engine = Embedded::open(config(changed.path()).0);
            assert_eq!(engine.is_err(), damage);
            let engine = engine.ok()?;
            let rows = engine
                .scan(PartitionId(8), KeyRange::all(), ScanLimit::default())
                .await;
            engine.close().await;
            Some(rows.unwrap().rows.len())
        })
    };
    assert_eq!(check(5, &later), Some(5));
    assert_eq!(check(3, &[0; 500]), Some(3));
    assert_eq!(check(3, &[0xa5; 500]), Some(3), "torn");
    assert_eq!(check(4, &[0xa5; 500]), None, "the note says it was synced");
    assert_eq!(check(3, &later[1..]), None, "a seal says it was synced");
}

/// What is found in the files of a store, by where and what.
pub(super) fn findings(path: &Path) -> Vec<Finding> {
    struct Found(Vec<Finding>);
    impl Watch for Found {
        fn total(&mut self, _: u64) {}
        fn read(&mut self, _: u64) {}
        fn found(&mut self, finding: Finding) {
            self.0.push(finding);
        }
    }
    let mut found = Found(Vec::new());
    files(path, &mut found).unwrap();
    found.0
}

/// A clean end syncs what nobody waits for, too: then damage of the last byte is no torn end.
#[test]
fn after_a_clean_end_the_last_byte_counts() {
    let base = tempdir();
    let kept = runtime().block_on(async {
        let kept = fill(config(base.path()).0, 1_000).await;
        let engine = Embedded::open(config(base.path()).0).unwrap();
        let mut writer = engine.create(UploadId([0xee; 16])).await.unwrap();
        writer.write(vec![0x5a; 1_000].into()).await.unwrap();
        writer.finish().await.unwrap();
        engine.close().await;
        kept
    });
    let good = copy(base.path());
    assert_eq!(findings(good.path()), []);
    let there = runtime().block_on(read_all(config(good.path()).0, &kept));
    assert_eq!(there, Ok((kept.commits, kept.commits)));
    let ends = {
        let directory = Directory::open(base.path()).unwrap();
        journal::ends(&newest_journal(base.path()), &directory.id)
    };
    let (end, begin) = (ends[ends.len() - 1].1, ends[ends.len() - 2].1);
    let check = |at: u64, damage: &dyn Fn(&Path)| {
        let damaged = copy(base.path());
        let journal = newest_journal(damaged.path());
        damage(&journal);
        let found = findings(damaged.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_damage, "{found:?}");
        assert_eq!((&found[0].path, found[0].offset), (&journal, Some(at)));
        assert!(Embedded::open(config(damaged.path()).0).is_err());
    };
    check(begin, &|journal| flip(journal, end - 1, 0x10));
    for length in [end - 1, begin + 1] {
        check(begin, &|journal| set_length(journal, length));
    }
    // The write is not there at all: from the end on it is missing.
    check(begin, &|journal| set_length(journal, begin));
}

fn set_length(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

/// A journal that is there and empty is named, whoever notices: the other journals, or the tree when it is opened.
#[test]
fn an_empty_journal_is_named() {
    let (base, ..) = one_journal();
    let damaged = copy(base.path());
    let journal = newest_journal(damaged.path());
    set_length(&journal, 0);
    let error = Embedded::open(config(damaged.path()).0).err().unwrap();
    let finding = refused(damaged.path(), &error);
    assert_eq!((&finding.path, finding.offset), (&journal, Some(0)));
    assert!(
        finding.is_damage && finding.what.contains("no write"),
        "{finding:?}"
    );
}

#[test]
fn the_message_names_the_file_and_what_to_do() {
    let (base, _, ends) = one_journal();
    flip(&newest_journal(base.path()), ends[ends.len() / 2].1 + 40, 4);
    let error = Embedded::open(config(base.path()).0).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }));
    let text = error.to_string();
    for part in ["lsm/0.jnl", "damaged at byte", "had been synced", "backup"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let before = fs::read(newest_journal(base.path())).unwrap();
    assert!(Embedded::open(config(base.path()).0).is_err(), "still");
    assert!(
        fs::read(newest_journal(base.path())).unwrap() == before,
        "the evidence was not touched"
    );
}

/// Below the level of files: whatever the tree gives back, a log that is not whole is noticed by its own hashes.
#[test]
fn a_log_that_does_not_hold_together_is_noticed() {
    use crate::keys;
    use crate::sealer::Write;
    use crate::trees::Tree;

    const P: PartitionId = PartitionId(7);
    const O: Origin = Origin(1);
    let base = tempdir();
    let runtime = runtime();
    let kept = runtime.block_on(fill(config(base.path()).0, 1_000));
    let entry = |number: u64| {
        let mut log = Log::new(7);
        let mut entry = None;
        for _ in 0..number {
            entry = log.commit(300).entry;
        }
        entry.unwrap()
    };
    let check = |expected: &str, change: &dyn Fn(&mut Write)| {
        let changed = copy(base.path());
        runtime.block_on(async {
            let engine = Embedded::open(config(changed.path()).0).unwrap();
            let changed = engine.core().with(|sealer| {
                let mut write = sealer.begin();
                change(&mut write);
                sealer.write(write, true)
            });
            changed.unwrap();
            engine.close().await;
        });
        let result = runtime.block_on(read_all(config(changed.path()).0, &kept));
        let why = result.expect_err(expected);
        assert!(
            why.contains(expected) && why.contains("Origin(1)"),
            "{expected}: {why}"
        );
    };
    let put = |write: &mut Write, entry: &whimbrel_storage::LogEntry| {
        write.put(
            Tree::Log,
            keys::entry(P, O, entry.first),
            keys::entry_value(entry),
        );
    };
    check(
        "entry 21 of Origin(1) in PartitionId(7) does not name",
        &|write| {
            let mut other = entry(20);
            other.bytes = "something else".into();
            put(write, &other);
        },
    );
    check(
        "entry 21 of Origin(1) in PartitionId(7) follows, but 20",
        &|write| {
            write.remove(Tree::Log, keys::entry(P, O, 20));
        },
    );
    check("ends at 40, but its position says 41", &|write| {
        write.remove(Tree::Log, keys::entry(P, O, 40));
    });
    check("the last entry", &|write| {
        let mut other = entry(40);
        other.bytes = "something else".into();
        put(write, &other);
    });
    check("without a position", &|write| {
        write.remove(Tree::Log, keys::head(P, O))
    });
    check("follows, but 1 was to come", &|write| {
        write.remove(Tree::Log, keys::entry(P, O, 1));
    });
}
