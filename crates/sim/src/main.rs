//! Runs seeds: `whimbrel-sim --seeds N [--first S]`, or one with its history: `--seed S`, of a cluster: `--cluster-seed S`.
//! `--claims` prints how often UIDs are claimed again when regions write to one account (the table in `docs/replication.md`).
//!
//! Of every [`NODE_SEEDS`] seeds of one node there is one of a cluster.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use whimbrel_sim::{
    cluster,
    world::{self, Breach, COVERAGE, Report},
};

/// A cluster takes some ten times as long as a node.
const NODE_SEEDS: u64 = 5;

/// What a seed is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Node,
    Cluster,
}

impl Kind {
    fn run(self, seed: u64, trace: bool) -> Result<Report, Breach> {
        match self {
            Kind::Node => world::run(&world::Plan::new(seed), trace),
            Kind::Cluster => {
                cluster::lost::run(seed, trace)?;
                cluster::run(&cluster::Plan::new(seed), trace)
            }
        }
    }

    fn option(self) -> &'static str {
        match self {
            Kind::Node => "--seed",
            Kind::Cluster => "--cluster-seed",
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    if let Some(seed) = number("--seed") {
        println!("{:?}", world::Plan::new(seed));
        return one(Kind::Node, seed);
    }
    if let Some(seed) = number("--cluster-seed") {
        println!("{:?}", cluster::Plan::new(seed));
        return one(Kind::Cluster, seed);
    }
    if arguments.iter().any(|argument| argument == "--claims") {
        return claims();
    }
    let first = number("--first").unwrap_or(1);
    match (number("--seeds"), number("--cluster-seeds")) {
        (Some(seeds), clusters) => many(first, seeds, clusters.unwrap_or(seeds / NODE_SEEDS)),
        (None, Some(clusters)) => many(first, 0, clusters),
        (None, None) => {
            eprintln!(
                "usage: whimbrel-sim --seeds N [--cluster-seeds N] [--first S] | --seed S | --cluster-seed S | --claims"
            );
            ExitCode::from(2)
        }
    }
}

fn one(kind: Kind, seed: u64) -> ExitCode {
    match kind.run(seed, true) {
        Ok(report) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Err(Breach(cause)) => {
            println!("seed {seed}: {cause}");
            ExitCode::FAILURE
        }
    }
}

/// One row for each setting, in virtual time only: whoever runs it gets the same.
fn claims() -> ExitCode {
    println!(
        "| regions | messages/s in each | cut off | messages | claims made again | claims a message | APPEND answered after, median | at most |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for setting in cluster::claims::settings() {
        let outcome = match cluster::claims::run(&setting, 1) {
            Ok(outcome) => outcome,
            Err(Breach(cause)) => {
                println!("{cause}");
                return ExitCode::FAILURE;
            }
        };
        let claims = outcome.claims_percent();
        let (median, most) = outcome.answered_micros;
        println!(
            "| {} | {} | {} | {} | {} | {}.{:02} | {} ms | {} ms |",
            setting.regions,
            setting.per_second,
            if setting.cut { "10 s of 30" } else { "never" },
            outcome.messages,
            outcome.again,
            claims / 100,
            claims % 100,
            median / 1000,
            most / 1000,
        );
    }
    ExitCode::SUCCESS
}

fn many(first: u64, nodes: u64, clusters: u64) -> ExitCode {
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let all = (first..first + nodes).map(|seed| (Kind::Node, seed));
    let all: Vec<(Kind, u64)> = all
        .chain((first..first + clusters).map(|seed| (Kind::Cluster, seed)))
        .collect();
    let parts: Vec<(u64, Report)> = std::thread::scope(|scope| {
        let run = |part: usize| {
            let seeds = all.iter().skip(part).step_by(threads).copied();
            move || some(seeds)
        };
        let handles: Vec<_> = (0..threads).map(|part| scope.spawn(run(part))).collect();
        // A panic in a seed was printed with its seed; it counts as a failure.
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or((1, Report::default())))
            .collect()
    });
    let (mut failed, mut steps, mut micros) = (0, 0, 0);
    let mut coverage: BTreeMap<&str, u64> = BTreeMap::new();
    for (part_failed, report) in parts {
        failed += part_failed;
        steps += report.steps;
        micros += report.virtual_micros;
        for (what, count) in report.coverage {
            *coverage.entry(what).or_default() += count;
        }
    }
    let counts: Vec<String> = coverage
        .iter()
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    println!("drawn: {}", counts.join(", "));
    // Over a few seeds not everything is drawn.
    let drawn = |all: &[&'static str], seeds: u64| {
        let missing = all.iter().filter(|what| !coverage.contains_key(**what));
        missing
            .filter(|_| seeds >= 100)
            .copied()
            .collect::<Vec<_>>()
    };
    let missing = [drawn(&COVERAGE, nodes), drawn(&cluster::COVERAGE, clusters)].concat();
    if !missing.is_empty() {
        println!("never drawn: {missing:?}");
    }
    let hours = micros as f64 / 3.6e9;
    let per_second = hours / begun.elapsed().as_secs_f64().max(1e-9);
    let seeds = nodes + clusters;
    println!("sim: seeds={seeds} failed={failed} steps={steps} sim_hours_per_s={per_second:.3}");
    if failed > 0 || !missing.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn some(seeds: impl Iterator<Item = (Kind, u64)>) -> (u64, Report) {
    let (mut failed, mut total) = (0, Report::default());
    for (kind, seed) in seeds {
        let result = std::panic::catch_unwind(|| kind.run(seed, false));
        let cause = match result {
            Ok(Ok(report)) => {
                total.steps += report.steps;
                total.virtual_micros += report.virtual_micros;
                for (what, count) in report.coverage {
                    *total.coverage.entry(what).or_default() += count;
                }
                continue;
            }
            Ok(Err(Breach(cause))) => cause,
            Err(_) => "panicked".into(),
        };
        failed += 1;
        let option = kind.option();
        println!("seed {seed}: {cause}\n  replay with: cargo xtask sim {option} {seed}");
    }
    (failed, total)
}
