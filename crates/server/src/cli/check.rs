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
    transfer::counted,
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
            "checked {} bytes, {} log entries, {}, {} with mail ({} compared with the whole log), {}, {} queue entries\n",
            of.bytes,
            of.entries,
            counted(of.rows, "row"),
            counted(of.accounts, "account"),
            of.replayed,
            counted(of.blobs, "blob"),
            of.queued
        ))?;
    }
    let damaged = report.found.iter().filter(|found| found.damage).count();
    match damaged {
        0 => Ok(()),
        _ if !report.summary.complete => Err(format!(
            "{damaged} damaged; rows and blobs were not checked, because files of the store are damaged"
        )
        .into()),
        _ => Err(format!("{damaged} damaged").into()),
    }
}
