//! What cargo knows of the workspace: its crates, what they import, and everything that is linked.
//!
//! The crate `cargo_metadata` would give types for this; its procedural macros would double the time to compile xtask.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// One crate of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// Name and kind of what it imports.
    pub(crate) imports: Vec<(String, Kind)>,
}

/// For what an import is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Product,
    Tests,
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo says of this package to the one that it runs: a build script that reads one of these (ring's does) would be run again, and all that
    // rests on it built again.
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// `cargo metadata`, with or without everything that comes from outside.
pub(crate) fn metadata(outside: bool) -> Result<Value, String> {
    let mut command = cargo();
    command
        .args(["metadata", "--format-version=1"])
        .stderr(Stdio::inherit());
    if outside {
        // What is built elsewhere only is not linked here, and need not be downloaded.
        command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    } else {
        command.arg("--no-deps");
    }
    let output = command
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err("cargo metadata failed".to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The crates of the workspace.
pub(crate) fn members() -> Result<Vec<Member>, String> {
    let metadata = metadata(false)?;
    Ok(elements(&metadata["packages"])
        .iter()
        .filter_map(member)
        .collect())
}

/// The elements of a list; none when this is no list.
pub(crate) fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn member(package: &Value) -> Option<Member> {
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    let import = |dependency: &Value| {
        let kind = if dependency["kind"] == "dev" {
            Kind::Tests
        } else {
            Kind::Product
        };
        Some((dependency["name"].as_str()?.to_owned(), kind))
    };
    Some(Member {
        name: package["name"].as_str()?.to_owned(),
        directory: manifest.parent()?.to_path_buf(),
        imports: elements(&package["dependencies"])
            .iter()
            .filter_map(import)
            .collect(),
    })
}
