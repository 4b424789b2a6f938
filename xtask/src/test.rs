//! `cargo xtask test`: everything that must hold before a push, cheapest first, one line of result at the end.
//!
//! A failing step does not keep the later ones from running: one run shows all that is wrong.

use std::{process::Command, time::Instant};

use crate::{
    cargo_toml::cargo,
    fuzz, imports, licenses, older, packages, proofs, purity,
    step::{self, Count, Counting},
    tidy,
};

/// Clusters in CI: some three minutes on two cores; long runs are started by hand.
const SIM_SEEDS: &str = "500";

/// Worlds of one node beside them: seconds.
const NODE_SEEDS: &str = "300";

/// A named step.
type Step = (&'static str, fn() -> Count);

/// What needs neither packages nor long.
const ALWAYS: &[Step] = &[
    ("format", || {
        step::run(cargo().args(["fmt", "--all", "--check"]), Counting::Status)
    }),
    ("tidy", || step::report("tidy", tidy::check())),
    ("imports", || step::report("imports", imports::check())),
    ("purity", || step::report("purity", purity::check())),
    ("clippy", || {
        step::run(
            cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-D",
                "warnings",
            ]),
            Counting::Status,
        )
    }),
    ("licenses", || step::report("licenses", licenses::check())),
];

/// Runs everything, or what is quick.
pub(crate) fn run(fast: bool) -> Count {
    let mut steps: Vec<Step> = Vec::new();
    if !fast {
        steps.push(("packages", packages::install));
    }
    steps.extend_from_slice(ALWAYS);
    if fast {
        steps.push(("tests", || tests(&["--workspace"])));
    } else {
        steps.push(("tests", || {
            tests(&["--workspace", "--exclude", "whimbrel-e2e"])
        }));
        steps.push(("fuzz seeds", || fuzz::run(&["--seconds", "0"])));
        steps.push(("proofs", proofs::run));
        steps.push(("mutants", || mutants(&[])));
        steps.push(("simulator", || sim(&["--seeds", SIM_SEEDS])));
        steps.push(("one node", || sim(&["--node-seeds", NODE_SEEDS])));
        steps.push(("end to end", end_to_end));
    }
    let mut sum = Count::default();
    let mut lines = Vec::new();
    for (at, (name, step)) in steps.iter().enumerate() {
        println!("== [{}/{}] {name}", at + 1, steps.len());
        let started = Instant::now();
        let count = step();
        lines.push(format!(
            "{name:<12} {:>6} passed {:>4} failed {:>8.1} s",
            count.passed,
            count.failed,
            started.elapsed().as_secs_f64()
        ));
        sum = sum.plus(count);
    }
    println!("==");
    for line in lines {
        println!("{line}");
    }
    sum
}

fn tests(arguments: &[&str]) -> Count {
    step::run(
        cargo().args(["test", "--no-fail-fast"]).args(arguments),
        Counting::CargoTest,
    )
}

/// Real processes, of two versions.
fn end_to_end() -> Count {
    let (built, program) = older::build();
    let mut command = cargo();
    command
        .args(["test", "--no-fail-fast", "--package", "whimbrel-e2e"])
        .args(["--features", "clients"]);
    older::tell(&mut command, &program);
    built.plus(step::run(&mut command, Counting::CargoTest))
}

/// The crates with rules that can be broken at run time.
const BREAKABLE: &[&str] = &[
    "whimbrel-mailbox",
    "whimbrel-directory",
    "whimbrel-replication",
    "whimbrel-sim",
];

/// Breaks each rule on purpose and sees it caught. A crate's name may come first; then names of rules.
pub(crate) fn mutants(arguments: &[&str]) -> Count {
    let (crates, rules) = match arguments.split_first() {
        Some((first, rules)) if BREAKABLE.contains(first) => (&arguments[..1], rules),
        // Rules without a crate are those of the mailbox.
        Some(_) => (&BREAKABLE[..1], arguments),
        None => (BREAKABLE, arguments),
    };
    let mut sum = Count::default();
    for package in crates {
        let mut command: Command = cargo();
        command
            .args(["run", "--release", "--package", package])
            .args(["--features", "mutants", "--example", "mutants", "--"])
            .args(rules);
        sum = sum.plus(step::run(&mut command, Counting::Mutants));
    }
    sum
}

/// Runs the simulator.
pub(crate) fn sim(arguments: &[&str]) -> Count {
    let mut command: Command = cargo();
    command
        // The build of the mutants, none of which is chosen here: another one takes minutes.
        .args(["run", "--release", "--package", "whimbrel-sim"])
        .args(["--features", "mutants", "--"])
        .args(arguments);
    // A single seed is replayed and told; only many are counted.
    let counts = ["--seeds", "--node-seeds"];
    let counting = if arguments.iter().any(|argument| counts.contains(argument)) {
        Counting::Sim
    } else {
        Counting::Status
    };
    step::run(&mut command, counting)
}
