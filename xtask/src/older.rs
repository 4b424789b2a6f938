//! The server of an earlier commit, for the end-to-end tests in which nodes of two versions serve together (`crates/e2e/tests/cluster/rolling.rs`).
//!
//! Its source comes from the history of this clone, its packages from its own `Cargo.lock`, which are those of today: a fresh clone needs nothing
//! that it does not need anyway. Everything lies below the target directory. What cannot be done fails the run: a test that restarts one program
//! three times would pass without a word.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    cargo_toml::{cargo, root},
    programs,
    step::{self, Count, Counting},
};

/// Says to the tests where the program is.
pub(crate) const VARIABLE: &str = "WHIMBREL_OLDER";

/// The oldest commit that can be upgraded from, node by node: it is taken along until a release says from which version on that is promised.
///
/// It is the first one that speaks version 2 of the wire format.
const COMMIT: &str = "29bc26ee5825e6e7764b48dfe0f02111ae11e69f";

/// The older server, built if need be, and where it is. What is wrong is told and counted.
pub(crate) fn build() -> (Count, PathBuf) {
    let target = programs::target();
    let own = target.join("older");
    let source = own.join(COMMIT);
    let program = own.join("built/debug/whimbrel");
    if let Err(error) = check_out(COMMIT, &source) {
        println!("older: the source of {COMMIT} cannot be had: {error}");
        println!("older: a clone without its history (--depth) has no older version to test with");
        // The tests are told of a program that is not there, and fail as well.
        return (Count::FAILED, own.join("none"));
    }
    let mut command = cargo();
    command
        .current_dir(&source)
        .args(["build", "--locked", "--package", "whimbrel"])
        .args(["--config", "profile.dev.opt-level=0"])
        // The program is not to take the place of today's.
        .env("CARGO_TARGET_DIR", own.join("built"));
    let count = step::run(&mut command, Counting::Status);
    if count.failed > 0 {
        return (count, own.join("none"));
    }
    println!("older: {COMMIT} is {}", program.display());
    (count, program)
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// The tree of the commit, as a directory of its own. A worktree of git would be known to the clone, and be missed there when the target directory goes.
fn check_out(commit: &str, into: &Path) -> Result<(), String> {
    if into.exists() {
        return Ok(());
    }
    let unfinished = into.with_extension("new");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(failed("the rest of an earlier try"))?;
    }
    fs::create_dir_all(&unfinished).map_err(failed("its directory"))?;
    let mut archive = Command::new("git")
        .args(["archive", "--format=tar", commit])
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("git"))?;
    let tree = archive.stdout.take().ok_or("git says nothing")?;
    let unpacked = Command::new("tar")
        .args(["-x", "-f", "-"])
        .current_dir(&unfinished)
        .stdin(tree)
        .status()
        .map_err(failed("tar"))?;
    let archived = archive.wait().map_err(failed("git"))?;
    if !archived.success() || !unpacked.success() {
        return Err(format!("git archive: {archived}, tar: {unpacked}"));
    }
    fs::rename(&unfinished, into).map_err(failed("its place"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_the_clone_does_not_have_is_an_error_and_no_empty_tree() {
        let own = std::env::temp_dir().join(format!("whimbrel-older-{}", std::process::id()));
        let into = own.join("tree");
        for _ in 0..2 {
            let refused = check_out("0000000000000000000000000000000000000001", &into);
            assert!(refused.is_err_and(|why| why.starts_with("git archive: ")));
            assert!(!into.exists());
        }
        assert!(fs::remove_dir_all(&own).is_ok());
    }
}
