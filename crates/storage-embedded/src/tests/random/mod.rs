//! Random work on a store whose buffers are tiny, so that tables are written and merged, values written anew and journals begun and let go of all
//! the time; ended in every way, opened again, and compared with a [`model`] each time.
//!
//! A seed is a store: its configuration, and what is done to it in some lives, one after the other. `WHIMBREL_SEED` is the first seed,
//! `WHIMBREL_SEEDS` how many. Reading order: [`model`], [`plan`], this file, [`killed`].

mod killed;
mod model;
mod plan;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fjall::AbstractTree;
use whimbrel_storage::{BlobStore, BlobWriter, Commit, LogStore, PartitionId, StoreError};
use whimbrel_testkit::Rng;

use self::model::{Model, compare_blobs, content, found};
use self::plan::{End, Plan, Step, Upload, Work};
use super::damage::findings;
use super::{TestDisk, config, runtime, tempdir};
use crate::{Config, Embedded, journal};

const LIVES: u64 = 5;
const STEPS_MAX: u64 = 40;

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |given| given.parse().unwrap())
}

fn seeds(otherwise: u64) -> std::ops::Range<u64> {
    let first = number("WHIMBREL_SEED", 1);
    first..first + number("WHIMBREL_SEEDS", otherwise)
}

/// How a store is opened: what is fixed when it is made hangs on the seed alone.
fn configured(path: &Path, seed: u64, life: u64, bulk: bool) -> (Config, Arc<TestDisk>) {
    let (config, disk) = config(path);
    let mut random = Rng::new(seed);
    let write_buffer_bytes = *random.pick(&[1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10]);
    let blobs_compressed = random.one_in(2);
    let mut random = Rng::new(seed ^ life << 32);
    let config = Config {
        write_buffer_bytes,
        blobs_compressed,
        background_threads: *random.pick(&[1, 2, 3]),
        chunk_bytes: match bulk {
            true => 4 << 20,
            false => *random.pick(&[4 << 10, 16 << 10, 64 << 10]),
        },
        group_bytes_max: *random.pick(&[1, 2_000, 1 << 20]),
        journal_bytes_max: 64 << 20,
        files_open_max: *random.pick(&[10, 128]),
        ..config
    };
    (config, disk)
}

/// Whether a life fills whole journals: one in three does, since it takes its time.
fn is_bulk(seed: u64, life: u64) -> bool {
    (seed + life).is_multiple_of(3)
}

async fn upload(engine: &Embedded, upload: &Upload) -> Result<(), StoreError> {
    let mut writer = engine.create(upload.id).await?;
    let mut bytes = content(upload.id, upload.bytes);
    while !bytes.is_empty() {
        let piece = bytes.split_to(upload.piece.min(bytes.len()));
        writer.write(piece).await?;
    }
    match upload.end {
        End::Finish => assert_eq!(writer.finish().await?, upload.info()),
        End::Abort => writer.abort().await?,
        End::Drop => drop(writer),
    }
    Ok(())
}

/// Does a step; all of it is acknowledged.
async fn execute(engine: &Embedded, step: &Step) {
    let uploads: Vec<_> = step
        .uploads
        .iter()
        .map(|of| {
            let (engine, of) = (engine.clone(), of.clone());
            tokio::spawn(async move { upload(&engine, &of).await })
        })
        .collect();
    let commits: Vec<_> = step
        .commits
        .iter()
        .map(|commit| engine.commit(commit.clone()))
        .collect();
    for name in &step.deletions {
        engine.delete(*name).await.unwrap();
    }
    for commit in commits {
        commit.await.unwrap();
    }
    for upload in uploads {
        upload.await.unwrap().unwrap();
    }
    if let Some((tree, work)) = step.tree {
        let engine = engine.clone();
        let work = move || {
            super::tree(&engine, |sealer| match work {
                Work::Flush => sealer.trees.all()[tree].rotate_memtable_and_wait().unwrap(),
                Work::Merge => sealer.trees.all()[tree].major_compact().unwrap(),
            });
        };
        tokio::task::spawn_blocking(work).await.unwrap();
    }
}

/// Stops a store as a failing disk does: everything that was written is there.
async fn stop(engine: Embedded, disk: &TestDisk) {
    disk.sync_fails.store(true, Ordering::SeqCst);
    let failed = engine.commit(Commit::new(PartitionId(0))).await;
    assert!(matches!(failed, Err(StoreError::Poisoned(_))), "{failed:?}");
    engine.close().await;
}

/// What happened to stores: the test would show nothing if it did not.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    fn look(&mut self, engine: &Embedded) {
        let mut saw = |what, many: u64| *self.0.entry(what).or_default() += many;
        super::tree(engine, |sealer| {
            for tree in sealer.trees.all() {
                saw("tables", tree.table_count() as u64);
                let last = tree.tree.level_table_count(6).unwrap_or(0);
                saw("tables of the last level", last as u64);
            }
            saw(
                "files of values",
                sealer.trees.blobs.blob_file_count() as u64,
            );
            saw("mergers", sealer.db().compactions_completed() as u64);
        });
        let directory = &engine.core().config.path.join("lsm");
        let newest = journal::newest(directory).unwrap().unwrap().0;
        saw("journals begun", newest);
        let left = (0..=newest).filter(|number| journal::path_of(directory, *number).exists());
        saw("journals let go of", newest + 1 - left.count() as u64);
    }
}

fn assert_no_damage(path: &Path, seed: u64) {
    let damage: Vec<_> = findings(path)
        .into_iter()
        .filter(|finding| finding.is_damage)
        .collect();
    assert!(damage.is_empty(), "seed {seed}: {damage:?}");
}

/// Some lives of one store in this process, each ended in order or by a disk that failed.
async fn live(seed: u64, seen: &mut Seen) {
    let directory = tempdir();
    let mut plan = Plan::new(seed);
    for life in 0..LIVES {
        let bulk = is_bulk(seed, life);
        let (config, disk) = configured(directory.path(), seed, life, bulk);
        let engine = Embedded::open(config)
            .unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
        plan.model.swept();
        compare(&engine, &plan.model, &format!("seed {seed}, life {life}")).await;
        for _ in 0..1 + plan.random.below(STEPS_MAX) {
            let step = plan.step(bulk);
            execute(&engine, &step).await;
            plan.done(&step, step.commits.len());
        }
        seen.look(&engine);
        if plan.random.one_in(3) {
            stop(engine, &disk).await;
        } else {
            engine.close().await;
        }
        assert_no_damage(directory.path(), seed);
    }
}

/// Compares a store that was just opened.
async fn compare(engine: &Embedded, model: &Model, what: &str) {
    let found = found(engine).await;
    assert!(
        found == *model,
        "{what}: found {}",
        difference(&found, model)
    );
    compare_blobs(engine, model).await;
}

/// The first thing in which two models differ.
fn difference(found: &Model, model: &Model) -> String {
    fn first<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
        found: &BTreeMap<K, V>,
        model: &BTreeMap<K, V>,
    ) -> Option<String> {
        let key = found
            .keys()
            .chain(model.keys())
            .find(|key| found.get(key) != model.get(key))?;
        let told = |value: Option<&V>| format!("{value:?}").chars().take(300).collect::<String>();
        let (found, model) = (told(found.get(key)), told(model.get(key)));
        Some(format!("{found} under {key:?}, expected {model}"))
    }
    let logs = first(&found.logs, &model.logs);
    let records = logs.or_else(|| first(&found.records, &model.records));
    let blobs = records.or_else(|| first(&found.blobs, &model.blobs));
    blobs.unwrap_or_else(|| "no difference".to_owned())
}

#[test]
fn stores_hold_what_they_were_given() {
    let runtime = runtime();
    let mut seen = Seen::default();
    for seed in seeds(6) {
        runtime.block_on(live(seed, &mut seen));
    }
    println!("{:?}", seen.0);
    for what in [
        "tables",
        "tables of the last level",
        "files of values",
        "mergers",
        "journals begun",
        "journals let go of",
    ] {
        assert!(seen.0[what] > 0, "no {what}");
    }
}
