//! What was measured, for people and for programs.
//!
//! Reading order: this file (the data, and medians over runs), [`text`] (tables), `aims` (what was to be reached), [`plot`] (drawings),
//! [`svg`] and [`number`] (how they are written).

mod aims;
pub mod number;
pub mod plot;
pub mod svg;
pub mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, Trouble, io_at},
    measure::Row,
    process,
    series::Series,
};

/// Writes `NAME.json`, `NAME.md`, and `NAME-FILE.svg` for each drawing.
///
/// # Errors
/// The directory or a file cannot be written.
pub(crate) fn write_files(
    directory: &Path,
    name: &str,
    report: &impl Serialize,
    markdown: &str,
    drawings: impl IntoIterator<Item = (String, String)>,
) -> Result<()> {
    fs::create_dir_all(directory).map_err(io_at(directory.display()))?;
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Trouble::Wrong(format!("JSON: {error}")))?;
    let write = |file: &str, text: &str| {
        let path = directory.join(file);
        fs::write(&path, text).map_err(io_at(path.display()))
    };
    write(&format!("{name}.json"), &(json + "\n"))?;
    write(&format!("{name}.md"), markdown)?;
    for (file, drawing) in drawings {
        write(&format!("{name}-{file}.svg"), &drawing)?;
    }
    Ok(())
}

/// One run of some loads on one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The server.
    pub server: String,
    /// What of its configuration matters.
    pub configuration: String,
    /// The seed of the loads.
    pub seed: u64,
    /// Appends of 4 KiB with fdatasync a second, before the run.
    pub disk_before: f64,
    /// And after it.
    pub disk_after: f64,
    /// Load average of the machine before the run: whether others worked.
    pub machine_load: f64,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was drawn.
    pub series: Vec<Series>,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Cores, model, memory, kernel.
    pub machine: String,
    /// The command line.
    pub command: String,
    /// All runs, in their order.
    pub runs: Vec<Run>,
}

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Figure {
    /// Of these values; `None` of none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Figure> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Figure { median, low, high })
    }
}

impl Report {
    /// An empty one.
    #[must_use]
    pub fn new() -> Report {
        Report {
            machine: process::machine(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            runs: Vec::new(),
        }
    }

    /// The servers, in the order of their first runs.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        let mut servers: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !servers.contains(&run.server.as_str()) {
                servers.push(&run.server);
            }
        }
        servers
    }

    /// The names of all rows, in the order of their first appearance.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.runs.iter().flat_map(|run| &run.rows) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// A row of a server in all its runs.
    pub fn rows<'a>(&'a self, server: &'a str, name: &'a str) -> impl Iterator<Item = &'a Row> {
        self.runs
            .iter()
            .filter(move |run| run.server == server)
            .flat_map(|run| &run.rows)
            .filter(move |row| row.name == name)
    }

    /// A figure of a row over the runs of a server.
    #[must_use]
    pub fn figure(
        &self,
        server: &str,
        name: &str,
        of: &dyn Fn(&Row) -> Option<f64>,
    ) -> Option<Figure> {
        Figure::of(self.rows(server, name).filter_map(of).collect())
    }

    /// What was written by [`Report::write`], of several files as one.
    pub fn read(paths: &[PathBuf]) -> Result<Report> {
        let mut all: Option<Report> = None;
        for path in paths {
            let json = fs::read_to_string(path).map_err(io_at(path.display()))?;
            let report: Report = serde_json::from_str(&json)
                .map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())))?;
            match &mut all {
                Some(all) => all.runs.extend(report.runs),
                None => all = Some(report),
            }
        }
        Ok(all.unwrap_or_default())
    }

    /// Writes `NAME.json`, `NAME.md` and the drawings into a directory.
    pub fn write(&self, directory: &Path, name: &str) -> Result<()> {
        write_files(
            directory,
            name,
            self,
            &text::markdown(self),
            plot::all(self),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let check = |values: &[f64], median, low, high| {
            let expected = Some(Figure { median, low, high });
            assert_eq!(Figure::of(values.to_vec()), expected);
        };
        check(&[3.0, 1.0, 2.0], 2.0, 1.0, 3.0);
        check(&[4.0, 1.0], 2.5, 1.0, 4.0);
        assert_eq!(Figure::of(vec![]), None);
    }

    #[test]
    fn a_report_is_written_and_read_again() {
        let mut report = Report::new();
        for (server, cpu) in [("a", 2.0), ("b", 1.0), ("a", 4.0), ("b", 1.5)] {
            report.runs.push(Run {
                server: server.to_owned(),
                rows: vec![Row {
                    name: "write".to_owned(),
                    unit: "command".to_owned(),
                    count: 10,
                    rate: 100.0,
                    median_ms: 5.0,
                    server_cpu_ms: Some(cpu),
                    ..Row::default()
                }],
                series: vec![Series {
                    name: "idle".to_owned(),
                    label: server.to_owned(),
                    points: vec![(0.0, 10.0, 0.0), (1.0, 20.0, 50.0)],
                    marks: vec![(0.5, "a <b> & c".to_owned())],
                }],
                ..Run::default()
            });
        }
        let directory = tempfile::tempdir().unwrap();
        report.write(directory.path(), "r").unwrap();
        let path = directory.path().join("r.json");
        let again = Report::read(std::slice::from_ref(&path)).unwrap();
        assert_eq!(Report::read(&[path.clone(), path]).unwrap().runs.len(), 8);
        assert_eq!(again.servers(), ["a", "b"]);
        let figure = again
            .figure("a", "write", &|row| row.server_cpu_ms)
            .unwrap();
        assert_eq!(figure.median, 3.0);
        let markdown = fs::read_to_string(directory.path().join("r.md")).unwrap();
        assert!(markdown.contains("| write |"), "{markdown}");
        let drawing = fs::read_to_string(directory.path().join("r-study-idle.svg")).unwrap();
        assert!(drawing.contains("a &lt;b&gt; &amp; c"), "{drawing}");
    }
}
