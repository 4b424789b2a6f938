//! `cargo xtask test`: everything that must hold before a push, one line of result at the end. `--fast` is for while one works, `--long` for before an
//! issue is closed; CONTRIBUTING.md says what each leaves out.
//!
//! A failing step does not keep the later ones from running: one run shows all that is wrong. Nothing is compiled twice: [`programs`] builds, then the
//! programs are run from here, as many at a time as there are cores.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    cargo_toml::{self, cargo},
    fuzz, imports,
    jobs::{self, Done, Job},
    licenses, older, packages,
    programs::{self, Kind, Program, Set},
    proofs, purity, references,
    step::{self, Count, Counting},
    tidy,
};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// What needs no packages, and is quick.
    Fast,
    /// What CI runs.
    Default,
    /// Everything.
    Long,
}

/// Clusters: a minute on two cores. So many are too few to ask that all was drawn that can be drawn.
const CLUSTERS: &str = "200";
const CLUSTERS_LONG: &str = "5000";

/// Worlds of one node: seconds.
const NODES: &str = "100";
const NODES_LONG: &str = "1000";

/// The default tier breaks one share of the rules, which the commit decides: some ten commits later all were broken.
const MUTANT_SHARES: u64 = 8;

/// Seconds for each fuzzer in the long tier.
const FUZZ_SECONDS: &str = "60";

/// Commands of random clients in the long tier.
const COMMANDS_LONG: &str = "20000";

/// End-to-end tests at a time: four of them, which wait for sockets and disks, keep two cores busy.
const END_TO_END_AT_ONCE: &str = "4";

/// The crates with rules that can be broken at run time.
const BREAKABLE: &[&str] = &[
    "directory",
    "dns",
    "mailbox",
    "queue",
    "relay",
    "replication",
    "service",
    "sim",
];

/// The test in which a crate's rules are broken.
const MUTANTS: &str = "mutants::broken_rules_are_noticed";

/// Jobs that take longest. They begin first, so that all cores have work until the end.
const FIRST: &[&str] = &["clippy", "storage-embedded units", "clusters", "sim tests"];

/// A job or step below this is not worth a line of the table.
const SHOWN_SECONDS_MIN: f64 = 3.0;

/// What a run has done so far.
#[derive(Default)]
struct Table {
    sum: Count,
    lines: Vec<String>,
}

impl Table {
    fn add(&mut self, name: &str, step: impl FnOnce() -> (Count, Vec<Done>)) {
        println!("== {name}");
        let begun = Instant::now();
        let (count, mut parts) = step();
        self.line("", name, count, begun.elapsed().as_secs_f64());
        parts.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        for part in &parts {
            if part.seconds >= SHOWN_SECONDS_MIN {
                self.line("  ", &part.name, part.count, part.seconds);
            }
        }
        self.sum = self.sum.plus(count);
    }

    fn line(&mut self, indent: &str, name: &str, count: Count, seconds: f64) {
        let name = format!("{indent}{name}");
        self.lines.push(format!(
            "{name:<28} {:>6} passed {:>4} failed {seconds:>8.1} s",
            count.passed, count.failed
        ));
    }

    fn step(&mut self, name: &str, step: impl FnOnce() -> Count) {
        self.add(name, || (step(), Vec::new()));
    }

    fn jobs(&mut self, name: &str, jobs: impl FnOnce() -> Vec<Done>) {
        self.add(name, || {
            let done = jobs();
            // Nothing to run is no success: its build has failed.
            let none = if done.is_empty() {
                Count::FAILED
            } else {
                Count::default()
            };
            let sum = done.iter().fold(none, |sum, done| sum.plus(done.count));
            (sum, done)
        });
    }
}

/// Runs a tier.
pub(crate) fn run(tier: Tier) -> Count {
    let begun = Instant::now();
    let mut table = Table::default();
    if tier != Tier::Fast {
        table.step("packages", || packages::install(tier == Tier::Long));
    }
    table.step("format", || {
        step::run(cargo().args(["fmt", "--all", "--check"]), Counting::Status)
    });
    table.step("tidy", || step::report("tidy", tidy::check()));
    table.step("references", || {
        step::report("references", references::check())
    });
    table.step("imports", || step::report("imports", imports::check()));
    table.step("purity", || step::report("purity", purity::check()));
    table.step("licenses", || step::report("licenses", licenses::check()));
    match tier {
        Tier::Fast => fast(&mut table),
        Tier::Default => default(&mut table),
        Tier::Long => long(&mut table),
    }
    println!("==");
    for line in &table.lines {
        println!("{line}");
    }
    println!("{:.1} minutes", begun.elapsed().as_secs_f64() / 60.0);
    table.sum
}

fn fast(table: &mut Table) {
    let programs = build(table, "build", Set::Units);
    let jobs = test_jobs(&programs, Tier::Fast);
    table.jobs("tests", || jobs::run(jobs, jobs::cores()));
}

fn default(table: &mut Table) {
    let (served, simulated) = (
        build(table, "build", Set::Served),
        build(table, "build, optimized", Set::Simulated),
    );
    let mut jobs = vec![Job::new("clippy", clippy(), Counting::Status)];
    jobs.extend(sim_job(&simulated, "clusters", &["--seeds", CLUSTERS]));
    jobs.extend(sim_job(&simulated, "one node", &["--node-seeds", NODES]));
    jobs.extend(test_jobs(&simulated, Tier::Default));
    let share = format!("{}/{MUTANT_SHARES}", share());
    println!("mutants: share {share}");
    for program in with_mutants(&simulated, None) {
        let mut job = mutants_job(program);
        job.command.env("WHIMBREL_MUTANTS_SHARE", &share);
        jobs.push(job);
    }
    jobs.extend(test_jobs(&served, Tier::Default));
    jobs.sort_by_key(|job| {
        let long = FIRST.iter().position(|first| *first == job.name);
        long.unwrap_or(FIRST.len())
    });
    table.jobs("tests, clippy", || jobs::run(jobs, jobs::cores()));
    let jobs = end_to_end_jobs(&served, Tier::Default);
    table.jobs("end to end", || jobs::run(jobs, 1));
}

fn long(table: &mut Table) {
    let (served, simulated, bench) = (
        build(table, "build", Set::Served),
        build(table, "build, optimized", Set::Simulated),
        build(table, "build, benchmark", Set::Bench),
    );
    table.step("clippy", || step::run(&mut clippy(), Counting::Status));
    let mut jobs = test_jobs(&simulated, Tier::Long);
    jobs.extend(test_jobs(&served, Tier::Long));
    jobs.extend(test_jobs(&bench, Tier::Long).into_iter().map(|mut job| {
        set_server(&mut job.command, &served);
        job
    }));
    table.jobs("tests", || jobs::run(jobs, jobs::cores()));
    table.step("examples in documents", || {
        let mut command = cargo();
        command.args(["test", "--doc", "--workspace", "--all-features"]);
        step::run(&mut command, Counting::CargoTest)
    });
    let mut older = None;
    table.step("older version", || {
        let (built, program) = older::build();
        older = Some(program);
        built
    });
    let mut jobs = end_to_end_jobs(&served, Tier::Long);
    for (job, older) in jobs.iter_mut().zip(&older) {
        job.command.env(older::VARIABLE, older);
    }
    table.jobs("end to end", || jobs::run(jobs, 1));
    let sim = |arguments: &[&str]| {
        sim_job(&simulated, "sim", arguments).map_or(Count::FAILED, |mut job| {
            step::run(&mut job.command, job.counting)
        })
    };
    table.step("clusters", || sim(&["--seeds", CLUSTERS_LONG]));
    table.step("one node", || sim(&["--node-seeds", NODES_LONG]));
    table.step("mutants", || mutants(&[]));
    table.step("proofs", proofs::run);
    table.step("fuzzers", || fuzz::run(&["--seconds", FUZZ_SECONDS]));
}

fn build(table: &mut Table, name: &str, set: Set) -> Vec<Program> {
    let mut programs = Vec::new();
    table.step(name, || {
        let (count, built) = programs::build(set);
        programs = built;
        count
    });
    programs
}

fn clippy() -> Command {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--all-features"]);
    command.args(["--", "-D", "warnings"]);
    command
}

/// Unit and integration tests, but those end to end.
fn test_jobs(programs: &[Program], tier: Tier) -> Vec<Job> {
    let mut programs: Vec<&Program> = programs
        .iter()
        .filter(|program| program.kind != Kind::Program && !is_end_to_end(program))
        .collect();
    // Integration tests are the longer ones.
    programs.sort_by_key(|program| program.kind == Kind::Units);
    let job = |program: &&Program| {
        let mut command = program.command();
        if tier == Tier::Long {
            command.args(["--include-ignored", "--skip", MUTANTS]);
        }
        let kind = match program.kind {
            Kind::Units => "units",
            Kind::Integration | Kind::Program => "tests",
        };
        let counting = match program.kind {
            Kind::Units => Counting::Units,
            Kind::Integration | Kind::Program => Counting::CargoTest,
        };
        Job::new(format!("{} {kind}", program.of()), command, counting)
    };
    programs.iter().map(job).collect()
}

fn is_end_to_end(program: &Program) -> bool {
    program.of() == "e2e" && program.kind == Kind::Integration
}

/// Real processes.
fn end_to_end_jobs(programs: &[Program], tier: Tier) -> Vec<Job> {
    let tests = programs.iter().filter(|program| is_end_to_end(program));
    let job = |program: &Program| {
        let mut command = program.command();
        command.args(["--test-threads", END_TO_END_AT_ONCE]);
        if tier == Tier::Long {
            command.arg("--include-ignored");
            command.env("WHIMBREL_E2E_COMMANDS", COMMANDS_LONG);
        }
        set_server(&mut command, programs);
        Job::new("end to end", command, Counting::CargoTest)
    };
    tests.map(job).collect()
}

/// Says to tests which server they are to start.
fn set_server(command: &mut Command, programs: &[Program]) {
    let is_server =
        |program: &&Program| program.kind == Kind::Program && program.name == "whimbrel";
    if let Some(server) = programs.iter().find(is_server) {
        command.env("WHIMBREL_BIN", &server.path);
    }
}

/// Breaks each rule on purpose and sees it caught. A crate's name may come first; then names of rules, which are those of the mailbox without a crate.
pub(crate) fn mutants(arguments: &[&str]) -> Count {
    let first = arguments
        .first()
        .and_then(|first| first.strip_prefix("whimbrel-"));
    let named = first.filter(|first| BREAKABLE.contains(first));
    let rules = &arguments[usize::from(named.is_some())..];
    let only = named.or((!rules.is_empty()).then_some("mailbox"));
    let (built, programs) = programs::build(Set::Simulated);
    with_mutants(&programs, only)
        .map(|program| {
            let mut job = mutants_job(program);
            job.command.env("WHIMBREL_MUTANTS", rules.join(" "));
            step::run(&mut job.command, job.counting)
        })
        .fold(built, Count::plus)
}

/// The programs in which rules can be broken, of all crates or of this one.
fn with_mutants<'p>(
    programs: &'p [Program],
    only: Option<&'p str>,
) -> impl Iterator<Item = &'p Program> {
    programs.iter().filter(move |program| {
        program.kind == Kind::Integration
            && BREAKABLE.contains(&program.of())
            && only.is_none_or(|only| only == program.of())
    })
}

fn mutants_job(program: &Program) -> Job {
    let mut command = program.command();
    command.args([MUTANTS, "--exact", "--ignored", "--nocapture"]);
    Job::new(
        format!("{} mutants", program.of()),
        command,
        Counting::Mutants,
    )
}

/// The share of the mutants that this commit breaks.
fn share() -> u64 {
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(cargo_toml::root())
        .stderr(Stdio::null())
        .output();
    let text = head.map(|head| String::from_utf8_lossy(&head.stdout).into_owned());
    // A tree without git breaks the first.
    let start = text.unwrap_or_default().chars().take(8).collect::<String>();
    u64::from_str_radix(&start, 16).unwrap_or(0) % MUTANT_SHARES
}

fn sim_job(programs: &[Program], name: &str, arguments: &[&str]) -> Option<Job> {
    let simulator = programs
        .iter()
        .find(|program| program.kind == Kind::Program && program.name == "whimbrel-sim")?;
    let mut command = simulator.command();
    command.args(arguments);
    // A single seed is replayed and told; only many are counted.
    let counts = ["--seeds", "--node-seeds"];
    let counting = if arguments.iter().any(|argument| counts.contains(argument)) {
        Counting::Sim
    } else {
        Counting::Status
    };
    Some(Job::new(name, command, counting))
}

/// Runs the simulator.
pub(crate) fn sim(arguments: &[&str]) -> Count {
    let (built, programs) = programs::build(Set::Simulator);
    match sim_job(&programs, "sim", arguments) {
        Some(mut job) => step::run(&mut job.command, job.counting),
        None => built.plus(Count::FAILED),
    }
}
