//! A report of the queue: a line for the terminal, tables, drawings.

use std::{fs, path::Path};

use super::{Experiment, QueueReport};
use crate::{
    error::{Result, Trouble, io_at},
    report::number::short,
};

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), short)
}

/// What an experiment was.
fn what(of: &Experiment) -> String {
    let mut what = format!("{}, {} nodes, f {}", of.network.name(), of.nodes, of.copies);
    if let Some(millis) = of.round_trip_min_ms {
        what += &format!(", beyond {millis} ms");
    }
    match of.one_node {
        true => what + ", one producer in all",
        false => what + &format!(", {} producers each", of.producers),
    }
}

/// One line for a terminal.
#[must_use]
pub fn line(of: &Experiment) -> String {
    let mut line = format!(
        "{:<18} {:<48} {:>7}/s  CPU {:>6} ms, {} cores",
        of.contestant,
        what(of),
        short(of.rate),
        short(of.cpu_ms),
        short(of.busy)
    );
    if let Some((median, p99)) = of.accept_ms {
        line += &format!("  accepted after {} ms, p99 {}", short(median), short(p99));
    }
    if let Some((median, p99)) = of.over_ms {
        line += &format!("; beyond the way {}, {}", short(median), short(p99));
    }
    line += &format!(
        "  sync {} ms  wire {} B",
        cell(of.sync_ms),
        cell(of.wire_bytes)
    );
    for (name, value) in of.each.iter().filter(|(_, value)| **value > 0.0) {
        line += &format!("  {name} {}", short(*value));
    }
    line
}

/// All experiments as tables.
#[must_use]
pub fn markdown(report: &QueueReport) -> String {
    let mut out = format!("Machine: {}\n\n", report.machine);
    for of in &report.experiments {
        out += &line(of);
        out.push('\n');
    }
    out
}

/// Writes `NAME.json`, `NAME.md` and the drawings.
pub fn write(report: &QueueReport, directory: &Path, name: &str) -> Result<()> {
    fs::create_dir_all(directory).map_err(io_at(directory.display()))?;
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Trouble::Wrong(format!("JSON: {error}")))?;
    let write = |file: &str, text: &str| {
        let path = directory.join(file);
        fs::write(&path, text).map_err(io_at(path.display()))
    };
    write(&format!("{name}.json"), &(json + "\n"))?;
    write(&format!("{name}.md"), &markdown(report))
}
