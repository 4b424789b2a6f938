//! `cargo xtask fuzz`: builds the targets in `fuzz/` with coverage instrumentation and runs them.
//!
//! The pinned toolchain is enough: the passes that libFuzzer needs are options of rustc that are not unstable. No AddressSanitizer: the
//! product has no `unsafe`, what it looks for is panics, hangs, memory without bound, and laws that do not hold.
//!
//! What a run finds goes to `fuzz/found/TARGET`, which is not kept; `fuzz/corpus/TARGET` holds the seeds. An input that breaks something is in
//! `fuzz/artifacts/TARGET`: make it a test of the crate, by its bytes, with a name.

use std::{fs, path::Path, process::Command};

use crate::{
    cargo_toml::{self, cargo},
    programs,
    step::{self, Count, Counting},
};

/// Every target, and its words.
const TARGETS: &[(&str, Option<&str>)] = &[
    ("imap_decoder", Some("imap")),
    ("imap_client", Some("imap")),
    ("imap_session", Some("imap")),
    ("smtp_session", Some("smtp")),
    ("pop3", None),
    ("sasl", None),
    ("mime", Some("mime")),
    ("encodings", None),
    ("transfer", Some("transfer")),
    ("control", Some("control")),
];

/// What libFuzzer wants of the compiler: counters for edges, a table of them, and the operands of comparisons.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// An input this long comes to every limit of the targets.
const INPUT_BYTES_MAX: &str = "4096";
/// One input may take so long. Only a hang meets it.
const INPUT_SECONDS_MAX: &str = "30";
/// The whole process: the targets hold a mailbox of three messages.
const MEMORY_MIB_MAX: &str = "1024";

/// Runs one target, or each in turn, for that many seconds. 0: the seeds are tried, and nothing else.
pub(crate) fn run(arguments: &[&str]) -> Count {
    let mut only = None;
    let mut seconds = 60;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match (*word, words.len()) {
            ("--seconds", 1..) => match words.next().and_then(|text| text.parse().ok()) {
                Some(number) => seconds = number,
                None => return refused("--seconds takes a number"),
            },
            (name, _) if TARGETS.iter().any(|(target, _)| *target == name) => only = Some(name),
            _ => {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                return refused(&format!("{word}: the targets are {}", names.join(", ")));
            }
        }
    }
    let targets: Vec<_> = TARGETS
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
        .collect();
    let Some(host) = host() else {
        return refused("rustc does not say which machine it is on");
    };
    let root = cargo_toml::root().join("fuzz");
    let mut build = cargo();
    build.current_dir(&root).env("RUSTFLAGS", RUSTFLAGS);
    // With a target of its own, what runs while building (build scripts, macros) is not instrumented.
    build.args(["build", "--release", "--target", &host]);
    for (name, _) in &targets {
        build.args(["--bin", name]);
    }
    let built = step::run(&mut build, Counting::Status);
    if built.failed > 0 {
        return built;
    }
    let programs = programs::target_of(&root).join(&host).join("release");
    let mut count = Count::default();
    for (name, words) in targets {
        count = count.plus(one(&root, &programs, name, *words, seconds));
    }
    count
}

fn one(root: &Path, programs: &Path, name: &str, words: Option<&str>, seconds: u32) -> Count {
    let (work, artifacts) = (
        root.join("found").join(name),
        root.join("artifacts").join(name),
    );
    for directory in [&work, &artifacts] {
        if let Err(error) = fs::create_dir_all(directory) {
            return refused(&format!("{}: {error}", directory.display()));
        }
    }
    let mut command = Command::new(programs.join(name));
    command.current_dir(root);
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    if let Some(words) = words {
        let file = root.join("dictionaries").join(format!("{words}.dict"));
        command.arg(format!("-dict={}", file.display()));
    }
    if seconds == 0 {
        command.arg("-runs=0");
    } else {
        command.args([
            &format!("-max_total_time={seconds}"),
            "-print_final_stats=1",
        ]);
        command.arg(&work);
    }
    command.arg(root.join("corpus").join(name));
    step::run(&mut command, Counting::Status)
}

/// The machine's triple, as rustc calls it.
fn host() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("-vV").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "))?;
    Some(line.to_owned())
}

fn refused(why: &str) -> Count {
    eprintln!("fuzz: {why}");
    Count::FAILED
}
