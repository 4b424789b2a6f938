//! Processes that are killed while they work on a store: in the middle of a write, of a flush, of a merge, of a start.
//!
//! The test starts itself as the process that is to be killed. What that one does hangs on the seed and on what was found after each death so
//! far, which is handed to it; it says when a step begins and when it was acknowledged. Then the power is lost as well, sometimes: what lies
//! behind all that was synced is torn.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use super::*;
use crate::directory::{Directory, SyncedFile};

const LIVES: u64 = 6;
/// Set for the process that is to be killed: the directory, the seed, and how each life so far ended, as `steps:commits`.
const ORDERS: &str = "WHIMBREL_STORE_KILLED";

const TEST: &str = "tests::random::killed::a_killed_process_leaves_what_was_acknowledged";

/// How a life ended: steps that were done, and commits of the next one that were there.
type Death = (u64, usize);

/// The plan as the deaths so far leave it.
fn plan(seed: u64, deaths: &[Death]) -> Plan {
    let mut plan = Plan::new(seed);
    for (life, (steps, commits)) in deaths.iter().enumerate() {
        let bulk = is_bulk(seed, life as u64);
        begin(&mut plan, seed, life);
        for _ in 0..*steps {
            let step = plan.step(bulk);
            plan.done(&step, step.commits.len());
        }
        let step = plan.step(bulk);
        plan.done(&step, *commits);
    }
    begin(&mut plan, seed, deaths.len());
    plan
}

/// Each life has random numbers of its own, so that it does not hang on how many the life before it took.
fn begin(plan: &mut Plan, seed: u64, life: usize) {
    plan.random = Rng::new(seed ^ (life as u64 + 1) << 40);
    plan.model.swept();
}

/// The process that is to be killed.
fn work(orders: &str) {
    let mut orders = orders.split(' ');
    let directory = orders.next().unwrap();
    let seed = orders.next().unwrap().parse().unwrap();
    let death = |of: &str| {
        let (steps, commits) = of.split_once(':').unwrap();
        (steps.parse().unwrap(), commits.parse().unwrap())
    };
    let deaths: Vec<Death> = orders.map(death).collect();
    let life = deaths.len() as u64;
    let mut plan = plan(seed, &deaths);
    let bulk = is_bulk(seed, life);
    println!("opens");
    runtime().block_on(async {
        let (config, _) = configured(Path::new(directory), seed, life, bulk);
        let engine = Embedded::open(config).unwrap();
        for number in 0.. {
            println!("done {number}");
            let step = plan.step(bulk);
            execute(&engine, &step).await;
            plan.done(&step, step.commits.len());
        }
    });
}

/// Starts a life, kills it, gives how many steps were acknowledged; `None`: it did not come to work.
fn life(directory: &Path, seed: u64, deaths: &[Death], random: &mut Rng) -> Option<u64> {
    let mut orders = format!("{} {seed}", directory.display());
    for (steps, commits) in deaths {
        orders += &format!(" {steps}:{commits}");
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(ORDERS, orders)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Some die while they start.
    let last = match random.one_in(5) {
        true => "opens".to_owned(),
        false => format!("done {}", random.below(STEPS_MAX)),
    };
    let mut done = None;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut hear = |line: Option<std::io::Result<String>>| {
        let line = line?.unwrap();
        if let Some((_, number)) = line.split_once("done ") {
            done = Some(number.parse().unwrap());
        }
        Some(line)
    };
    loop {
        let line = hear(lines.next());
        let line = line.unwrap_or_else(|| panic!("seed {seed}, {deaths:?}: it died by itself"));
        if line.ends_with(&last) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while hear(lines.next()).is_some() {}
    done
}

/// Tears the newest journal somewhere behind what was synced: by the engine, or by the tree before it moved something into a table.
fn lose_power(path: &Path, random: &mut Rng) {
    let directory = Directory::open(path).unwrap();
    if !directory.is_made().unwrap() {
        return;
    }
    let (_, synced) = SyncedFile::open(&directory).unwrap();
    let (_, newest) = journal::newest(&directory.tree()).unwrap().unwrap();
    let writes = journal::writes(&newest, &directory.id);
    let in_tables = crate::verify::persisted(&directory.tree()).unwrap();
    let in_tables = in_tables.into_iter().max().unwrap_or(0);
    let in_seals = writes.iter().map(|write| write.seal.synced).max();
    let synced = synced.max(in_seals).unwrap_or(0);
    let safe = writes
        .iter()
        .filter(|write| write.seal.number <= synced || write.sequence <= in_tables)
        .map(|write| write.end)
        .max()
        .unwrap_or(0);
    let end = newest.metadata().unwrap().len();
    let end = end.min(writes.last().map_or(0, |write| write.end) + 5_000);
    if end <= safe {
        return;
    }
    let at = safe + random.below(end - safe);
    let file = OpenOptions::new().write(true).open(&newest).unwrap();
    let bytes = vec![random.number() as u8; (end - at).min(5_000) as usize];
    match random.below(3) {
        0 => file.set_len(at).unwrap(),
        1 => file.write_all_at(&vec![0; bytes.len()], at).unwrap(),
        _ => file.write_all_at(&bytes, at).unwrap(),
    }
}

async fn die_again_and_again(seed: u64, seen: &mut Seen) {
    let directory = tempdir();
    let path = directory.path();
    let mut random = Rng::new(!seed);
    let mut deaths: Vec<Death> = Vec::new();
    for _ in 0..LIVES {
        let steps = life(path, seed, &deaths, &mut random);
        let what = format!("seed {seed}, {steps:?} steps after {deaths:?}");
        if !path.join("FORMAT").exists() {
            continue;
        }
        let number = deaths.len() as u64;
        if random.one_in(2) {
            lose_power(path, &mut random);
        }
        if path.join("SYNCED").exists() {
            assert_no_damage(path, seed);
        }
        let bulk = is_bulk(seed, number);
        let (config, _) = configured(path, seed, number, bulk);
        let engine = Embedded::open(config).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = found(&engine).await;
        // All that was acknowledged, and of the step under way a beginning.
        let mut plan = plan(seed, &deaths);
        for _ in 0..steps.unwrap_or(0) {
            let step = plan.step(bulk);
            plan.done(&step, step.commits.len());
        }
        let before = plan.model.clone();
        let step = plan.step(bulk);
        let fits = (0..=steps.map_or(0, |_| step.commits.len())).find(|commits| {
            plan.model = before.clone();
            plan.done(&step, *commits);
            plan.model.swept();
            plan.model == found
        });
        let Some(commits) = fits else {
            let mut before = before;
            before.swept();
            panic!("{what}: {}, or more", difference(&found, &before));
        };
        compare_blobs(&engine, &found).await;
        seen.look(&engine);
        engine.close().await;
        assert_no_damage(path, seed);
        deaths.push((steps.unwrap_or(0), commits));
    }
}

#[test]
fn a_killed_process_leaves_what_was_acknowledged() {
    if let Ok(orders) = std::env::var(ORDERS) {
        return work(&orders);
    }
    let runtime = runtime();
    let mut seen = Seen::default();
    for seed in seeds(3) {
        runtime.block_on(die_again_and_again(seed, &mut seen));
    }
    println!("{:?}", seen.0);
    for what in ["tables of the last level", "files of values"] {
        assert!(seen.0[what] > 0, "no {what}");
    }
}
