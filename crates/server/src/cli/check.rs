//! `whimbrel check`.

use std::{
    io::{self, IsTerminal as _},
    path::Path,
};

use super::{
    ConfigFile,
    run::{load, print, runtime},
};
use crate::{
    check,
    config::{LogFormat, LogLevel, LogSection},
    log,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn check(file: &ConfigFile, scratch: Option<&Path>, json: bool) -> Result<(), Failure> {
    let config = load(file)?;
    // What is wrong is in the report.
    log::start(&LogSection {
        level: LogLevel::Error,
        format: LogFormat::Text,
    });
    let shown = io::stderr().is_terminal();
    let report = runtime()?.block_on(check::run(&config, scratch, shown))?;
    if json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        for found in &report.found {
            print(&format!("{found}\n"))?;
        }
        let of = &report.summary;
        print(&format!(
            "checked {} bytes, {} log entries, {} rows, {} accounts ({} against their whole log), {} blobs, {} entries of the queue\n",
            of.bytes, of.entries, of.rows, of.accounts, of.replayed, of.blobs, of.queued
        ))?;
    }
    let damaged = report.found.iter().filter(|found| found.damage).count();
    match damaged {
        0 => Ok(()),
        _ if !report.summary.complete => Err(format!(
            "{damaged} damaged; rows and blobs were not looked at, for the store's files are not whole"
        )
        .into()),
        _ => Err(format!("{damaged} damaged").into()),
    }
}
