//! Runs seeds: `whimbrel-sim --seeds N [--first S]`, or one with its history: `--seed S`.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use whimbrel_sim::world::{self, Breach, COVERAGE, Plan, Report};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    if let Some(seed) = number("--seed") {
        return one(seed);
    }
    match number("--seeds") {
        Some(seeds) => many(number("--first").unwrap_or(1), seeds),
        None => {
            eprintln!("usage: whimbrel-sim --seeds N [--first S] | --seed S");
            ExitCode::from(2)
        }
    }
}

fn one(seed: u64) -> ExitCode {
    let plan = Plan::new(seed);
    println!("{plan:?}");
    match world::run(&plan, true) {
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

fn many(first: u64, seeds: u64) -> ExitCode {
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let parts: Vec<(u64, Report)> = std::thread::scope(|scope| {
        let run = |part: u64| {
            move || {
                some((first + part..first + seeds).step_by(usize::try_from(threads).unwrap_or(1)))
            }
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
    let missing: Vec<&&str> = COVERAGE
        .iter()
        .filter(|what| !coverage.contains_key(**what))
        .collect();
    let uncovered = seeds >= 100 && !missing.is_empty();
    if uncovered {
        println!("never drawn: {missing:?}");
    }
    let hours = micros as f64 / 3.6e9;
    let per_second = hours / begun.elapsed().as_secs_f64().max(1e-9);
    println!("sim: seeds={seeds} failed={failed} steps={steps} sim_hours_per_s={per_second:.3}");
    if failed > 0 || uncovered {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn some(seeds: impl Iterator<Item = u64>) -> (u64, Report) {
    let (mut failed, mut total) = (0, Report::default());
    for seed in seeds {
        let result = std::panic::catch_unwind(|| world::run(&Plan::new(seed), false));
        match result {
            Ok(Ok(report)) => {
                total.steps += report.steps;
                total.virtual_micros += report.virtual_micros;
                for (what, count) in report.coverage {
                    *total.coverage.entry(what).or_default() += count;
                }
            }
            Ok(Err(Breach(cause))) => {
                failed += 1;
                println!("seed {seed}: {cause}\n  replay with: cargo xtask sim --seed {seed}");
            }
            Err(_) => {
                failed += 1;
                println!("seed {seed}: panicked\n  replay with: cargo xtask sim --seed {seed}");
            }
        }
    }
    (failed, total)
}
