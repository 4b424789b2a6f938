//! `whimbrel check`: verifies a data directory without changing it.
//!
//! First every byte of every relevant file is compared with a checksum ([`files`], and [`whimbrel_storage_embedded::check`]). If the store's files
//! are intact, a copy of the store is opened, which shares the large files, and its rows and logs are compared with each other ([`rows`]). A running
//! server is not disturbed: the directory is locked during the check.

mod files;
mod rows;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use whimbrel_storage_embedded::check::{Finding, Watch};

use crate::{config::Config, node::DataDir, serve};

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file with the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The first wrong byte, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Or the partition of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u64>,
    /// The key, in hexadecimal: of a row; or `log`, origin and number; or `blob` and its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The text of the problem.
    pub what: String,
    /// Whether something that was acknowledged may be lost or changed.
    pub damage: bool,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.damage { "damage: " } else { "note: " })?;
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(offset) = self.offset {
            write!(f, "byte {offset}: ")?;
        }
        if let Some(partition) = self.partition {
            write!(f, "partition {partition}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "key {key}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Bytes of files.
    pub bytes: u64,
    /// Log entries.
    pub entries: u64,
    /// Rows.
    pub rows: u64,
    /// Accounts.
    pub accounts: u64,
    /// Of those, accounts whose rows were compared with what their whole log says.
    pub replayed: u64,
    /// Blobs, each read and hashed.
    pub blobs: u64,
    /// Entries of the queue.
    pub queued: u64,
    /// Whether the rows could be looked at: not if the files are damaged.
    pub complete: bool,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was found.
    pub found: Vec<Problem>,
    /// What was looked at.
    pub summary: Summary,
}

impl Report {
    /// Whether anything is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.found.iter().any(|found| found.damage)
    }
}

/// Shows how far it is, if someone looks on.
struct Progress(ProgressBar);

impl Progress {
    fn new(shown: bool) -> Self {
        let bar = if shown {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        // The template is fixed, and a test shows it.
        if let Ok(style) =
            ProgressStyle::with_template("{msg:8} {wide_bar} {bytes}/{total_bytes} {eta}")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    fn stage(&self, name: &'static str, total: u64) {
        self.0.set_message(name);
        self.0.set_length(total);
        self.0.set_position(0);
    }

    fn step(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

struct Watching<'a> {
    report: &'a mut Report,
    progress: &'a Progress,
}

impl Watch for Watching<'_> {
    fn total(&mut self, bytes: u64) {
        self.report.summary.bytes = bytes;
        self.progress.stage("files", bytes);
    }

    fn read(&mut self, bytes: u64) {
        self.progress.step(bytes);
    }

    fn found(&mut self, finding: Finding) {
        self.report.found.push(Problem {
            file: Some(finding.path),
            offset: finding.offset,
            partition: None,
            key: None,
            what: finding.what,
            damage: finding.is_damage,
        });
    }
}

/// Checks the data directory of a configuration. `scratch`: where the copy of the store's small files goes.
///
/// # Errors
/// When it cannot be done: there is no such directory, a server runs, no room.
pub async fn run(
    config: &Config,
    scratch: Option<&Path>,
    shown: bool,
) -> Result<Report, Box<dyn std::error::Error + Send + Sync>> {
    let data = &config.server.data_dir;
    let store = data.join("store");
    if !store.is_dir() {
        return Err(format!("{} contains no store", data.display()).into());
    }
    let _locks = [data.join("lock"), store.join("LOCK")]
        .iter()
        .map(|path| lock(path))
        .collect::<Result<Vec<_>, _>>()?;
    let mut report = Report::default();
    let progress = Progress::new(shown);
    files::check(data, &mut report)?;
    let small = report.found.len();
    let mut watching = Watching {
        report: &mut report,
        progress: &progress,
    };
    whimbrel_storage_embedded::check::files(&store, &mut watching)?;
    if report.found[small..].iter().all(|found| !found.damage) {
        let scratch = match scratch {
            Some(scratch) => tempfile::tempdir_in(scratch)?,
            None => tempfile::tempdir()?,
        };
        whimbrel_storage_embedded::check::copy(&store, scratch.path())?;
        match serve::try_open(config, scratch.path()).await? {
            Ok(copy) => {
                let copy = Arc::new(copy);
                rows::check(&copy, &mut report, &progress).await?;
                report.summary.complete = true;
                if let Some(copy) = Arc::into_inner(copy) {
                    copy.close().await;
                }
            }
            Err(error) => {
                let mut finding = whimbrel_storage_embedded::check::refused(scratch.path(), &error);
                // It was opened where the copy lies.
                if let Ok(below) = finding.path.strip_prefix(scratch.path()) {
                    finding.path = store.components().chain(below.components()).collect();
                }
                let copy = scratch.path().to_string_lossy();
                finding.what = finding.what.replace(&*copy, &store.to_string_lossy());
                let mut watching = Watching {
                    report: &mut report,
                    progress: &progress,
                };
                watching.found(finding);
            }
        }
    }
    progress.0.finish_and_clear();
    Ok(report)
}

/// Keeps a server out without writing.
fn lock(path: &Path) -> Result<Option<fs::File>, String> {
    match fs::File::open(path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Err(format!(
                "{} is locked: stop the server first, or check a copy",
                path.display()
            )),
            Err(fs::TryLockError::Error(error)) => Err(format!("{}: {error}", path.display())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Whether the directory holds an identity that can be read.
fn identity(data: &Path) -> Result<(), String> {
    DataDir::read(data)
        .map(drop)
        .map_err(|error| error.to_string())
}
