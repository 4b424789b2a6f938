//! The loads on a real Whimbrel, small: that they run, that every answer is checked, and that memory stays within its bound.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use whimbrel_bench::{
    lag,
    progress::Progress,
    scenario::{Bounds, Context, Scenario, Sizes, bounds},
    servers::{self, Running, certificate},
    target::Target,
};

/// The server of the profile and target directory that this test was built in, made now; or `WHIMBREL_BIN`.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WHIMBREL_BIN") {
        return path.into();
    }
    let own = std::env::current_exe().unwrap();
    let directory = own.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "whimbrel"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.env("CARGO_TARGET_DIR", directory.parent().unwrap());
    // What cargo says of this package: ring's build script reads it, and would be run again, with all that rests on it.
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    directory.join("whimbrel")
}

fn start(directory: &Path) -> Running {
    certificate(directory).unwrap();
    let more = [
        // 150 accounts are made, and logins are not what is tested.
        ("auth", "argon2_memory = \"1MiB\""),
        ("storage", "free_bytes_min = \"0B\""),
    ];
    servers::whimbrel::start(&binary(), directory, &more).unwrap()
}

#[test]
fn all_loads_run_and_their_answers_are_right() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(directory.path());
    let target = Target::new(running.address.clone());
    let mut context = Context::new(&target, &Progress::hidden(), &Sizes::tiny(), 1);
    for scenario in [
        Scenario::Logins,
        Scenario::Write,
        Scenario::Read,
        Scenario::Lmtp,
        Scenario::Smtp,
        Scenario::Large,
        Scenario::Aerogramme,
    ] {
        context.run(scenario).unwrap();
    }
    if running.address.pop3s.is_some() {
        context.run(Scenario::Pop3).unwrap();
    }
    assert!(context.rows.len() > 40, "{}", context.rows.len());
    assert_eq!(context.series.len(), 11);
    let write = context.rows.iter().find(|row| row.name == "write").unwrap();
    assert!(write.syncs.unwrap() > 0.0 && write.written_bytes.unwrap() > 0.0);
    running.stop().unwrap();
}

#[test]
fn memory_stays_within_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(directory.path());
    let target = Target::new(running.address.clone());
    let mut context = Context::new(&target, &Progress::hidden(), &Sizes::tiny(), 1);
    bounds::run(&mut context, &Bounds::tiny()).unwrap();
    running.stop().unwrap();
}

#[test]
fn lag_is_measured_and_all_nodes_come_to_hold_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let options = lag::Options {
        nodes: Vec::new(),
        delays: Vec::new(),
        seconds: 3,
        rate: None,
        partition: 3,
        alone: true,
        quick: true,
        seed: 1,
    };
    let kept = std::cell::Cell::new(0);
    let keep = |report: &lag::LagReport| {
        kept.set(report.experiments.len());
        Ok(())
    };
    let hidden = Progress::hidden();
    let report = lag::run(options, &binary(), directory.path(), &hidden, &keep).unwrap();
    let what: Vec<(usize, &str, usize)> = report
        .experiments
        .iter()
        .map(|of| (of.nodes, of.what.as_str(), of.regions))
        .collect();
    let expected = [
        (2, "peak", 1),
        (2, "injected", 1),
        (2, "injected", 2),
        (2, "partition", 2),
        (1, "peak", 1),
        (1, "injected", 1),
    ];
    assert_eq!(what, expected);
    assert_eq!(kept.get(), expected.len());
    for of in &report.experiments {
        assert!(of.commands > 0 && of.unlike == 0, "{of:?}");
        if of.what == "injected" {
            // Alone there is nobody who could be behind.
            assert_eq!(of.lag_ms_p50.is_some(), of.nodes > 1);
            assert!(of.lag_kb_mean.is_some() && of.curves.len() == of.nodes);
            assert!(of.curves.iter().all(|curve| !curve.is_empty()));
        }
    }
}
