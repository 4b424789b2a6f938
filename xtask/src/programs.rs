//! Test programs: built by two runs of cargo, then run by us, two at a time.
//!
//! Every crate is compiled once for each of the two profiles of `Cargo.toml` that tests use, under one choice of features: `dev` for what waits for
//! sockets and disks, `sim` for what computes for minutes. So the integration tests of a crate are called `it` or `simulated`. [`Set`] has the rest.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    cargo_toml::{cargo, elements, root},
    step::Count,
};

/// Crates whose integration tests compute for minutes. They share features, so that simulator, mutants, oracle and explorer are one build.
pub(crate) const SIMULATED: &[&str] = &[
    "whimbrel-crdt",
    "whimbrel-directory",
    "whimbrel-dns",
    "whimbrel-frontend",
    "whimbrel-mailbox",
    "whimbrel-queue",
    "whimbrel-relay",
    "whimbrel-replication",
    "whimbrel-service",
    "whimbrel-sim",
];

/// What one run of cargo builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// All unit tests, integration tests of all crates but those in [`SIMULATED`], end-to-end tests, the server.
    Served,
    /// The same without end-to-end tests.
    Units,
    /// Tests of the benchmark.
    Bench,
    /// Integration tests of the crates in [`SIMULATED`], and the simulator.
    Simulated,
    /// The simulator without tests.
    Simulator,
    /// Oracle and explorer.
    Examples,
}

impl Set {
    fn arguments(self) -> Vec<&'static str> {
        let tests = ["test", "--no-run", "--lib", "--bins", "--test", "it"];
        let workspace = ["--workspace", "--exclude", "whimbrel-bench"];
        let simulated = ["--test", "simulated", "--bins"];
        let mut arguments = match self {
            Set::Served => [&tests[..], &workspace].concat(),
            Set::Units => [&tests[..], &workspace, &["--exclude", "whimbrel-e2e"]].concat(),
            Set::Bench => [&tests[..], &["--package", "whimbrel-bench"]].concat(),
            Set::Simulated => [&["test", "--no-run"], &simulated[..]].concat(),
            Set::Simulator => vec!["build", "--bins"],
            // By `cargo test` they would be tests, and there is none in them.
            Set::Examples => vec!["build", "--examples"],
        };
        if matches!(self, Set::Simulated | Set::Simulator | Set::Examples) {
            // With all features each time, or the libraries would be built anew.
            arguments.extend(["--profile", "sim", "--all-features"]);
            arguments.extend(SIMULATED.iter().flat_map(|name| ["--package", name]));
        }
        arguments
    }
}

/// What a program was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The unit tests of a library or a program.
    Units,
    /// The tests in `tests/`.
    Integration,
    /// A program or an example.
    Program,
}

/// A program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The directory of its crate, in which cargo would run it.
    pub(crate) directory: PathBuf,
    /// What cargo calls it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
}

impl Program {
    /// The directory's own name: `sim` for `crates/sim`.
    pub(crate) fn of(&self) -> &str {
        let name = self.directory.file_name();
        name.and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// A command that runs it as `cargo test` would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory);
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// Builds a set, and tells what came of it.
pub(crate) fn build(set: Set) -> (Count, Vec<Program>) {
    let mut command = cargo();
    command
        .args(set.arguments())
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    println!("$ cargo {}", set.arguments().join(" "));
    match listed(&mut command) {
        Ok(programs) if !programs.is_empty() => (Count::PASSED, programs),
        Ok(_) => {
            println!("build: nothing was built");
            (Count::FAILED, Vec::new())
        }
        Err(error) => {
            println!("build: {error}");
            (Count::FAILED, Vec::new())
        }
    }
}

fn listed(command: &mut Command) -> Result<Vec<Program>, String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut programs = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| error.to_string())?;
            programs.extend(program(&line));
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        Ok(programs)
    } else {
        Err(format!("cargo ends with {status}"))
    }
}

/// The program that a message of cargo tells of. Other messages tell of libraries, or of how the build goes.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let target = &message["target"];
    let is_test = message["profile"]["test"] == true;
    let is_integration = elements(&target["kind"]).iter().any(|kind| kind == "test");
    Some(Program {
        directory: Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_path_buf(),
        name: target["name"].as_str()?.to_owned(),
        kind: match (is_integration, is_test) {
            (true, _) => Kind::Integration,
            (false, true) => Kind::Units,
            (false, false) => Kind::Program,
        },
        path: PathBuf::from(message["executable"].as_str()?),
    })
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    target_of(&root())
}

/// The same of a workspace.
pub(crate) fn target_of(workspace: &Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace.join(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_are_read() {
        let artifact = |kind: &str, test: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/crates/sim/Cargo.toml","target":{{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let check = |message: &str, expected: Option<(Kind, &str)>| {
            let found = program(message);
            let found = found.map(|found| (found.kind, found.of().to_owned(), found.path));
            let expected = expected.map(|(kind, path)| (kind, "sim".to_owned(), path.into()));
            assert_eq!(found, expected, "{message}");
        };
        check(
            &artifact("test", "true", "\"/t/it-1\""),
            Some((Kind::Integration, "/t/it-1")),
        );
        check(
            &artifact("lib", "true", "\"/t/x-1\""),
            Some((Kind::Units, "/t/x-1")),
        );
        check(
            &artifact("bin", "false", "\"/t/x\""),
            Some((Kind::Program, "/t/x")),
        );
        check(&artifact("lib", "false", "null"), None);
        check(r#"{"reason":"build-finished","success":true}"#, None);
        check("warning: x", None);
    }
}
