//! Tables: a line for the terminal, and Markdown.

use super::{Figure, Report, aims, number::short};
use crate::{facts::AEROGRAMME, measure::Row};

impl Row {
    /// One line for a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!(
            "{:<44} {:>7} x  {:>9}/s  median {:>9} ms  p99 {:>9} ms",
            self.name,
            self.count,
            short(self.rate),
            short(self.median_ms),
            short(self.p99_ms),
        );
        if let Some(cpu) = self.server_cpu_ms {
            line += &format!("  CPU {:>8} ms", short(cpu));
        }
        line += &format!(" (client {})", short(self.client_cpu_ms));
        if self.mb_per_second > 0.0 {
            line += &format!("  {} MB/s", short(self.mb_per_second));
        }
        if let Some(bytes) = self.written_bytes.filter(|bytes| *bytes > 0.0) {
            line += &format!("  {} KB written", short(bytes / 1e3));
        }
        if let Some(syncs) = self.syncs.filter(|syncs| *syncs > 0.0) {
            line += &format!("  {} syncs", short(syncs));
        }
        for (name, value) in &self.more {
            line += &format!("  {name} {}", short(*value));
        }
        line
    }
}

fn with_spread(figure: Option<Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if short(figure.low) == short(figure.high) => short(figure.median),
        Some(figure) => format!(
            "{} ({}..{})",
            short(figure.median),
            short(figure.low),
            short(figure.high)
        ),
    }
}

/// What is shown of a row.
type Column = (&'static str, fn(&Row) -> Option<f64>);

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

const COLUMNS: &[Column] = &[
    ("per s", |row| positive(row.rate)),
    ("median ms", |row| positive(row.median_ms)),
    ("p99 ms", |row| positive(row.p99_ms)),
    ("server CPU ms", |row| row.server_cpu_ms),
    ("client CPU ms", |row| Some(row.client_cpu_ms)),
    ("MB/s", |row| positive(row.mb_per_second)),
    ("KB to disk", |row| {
        row.written_bytes
            .map(|bytes| bytes / 1e3)
            .and_then(positive)
    }),
    ("syncs", |row| row.syncs.and_then(positive)),
];

/// Everything as Markdown.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = format!(
        "Machine: {}. Figures are medians over the runs of a server, in brackets the least and the greatest; all are for one operation.\n\n",
        report.machine
    );
    out += &runs(report);
    let servers = report.servers();
    if let [first, second] = servers.as_slice() {
        out += &aims::table(report, first, second);
        out += &ratios(report, first, second);
    }
    out += &aims::amplification(report, &servers);
    for server in &servers {
        out += &one(report, server);
    }
    out += &study(report, &servers);
    out
}

fn runs(report: &Report) -> String {
    let mut out = String::from(
        "| run | server | configuration | syncs/s of the disk before, after | load of the machine | seed |\n|---|---|---|---|---|---|\n",
    );
    for (at, run) in report.runs.iter().enumerate() {
        out += &format!(
            "| {} | {} | {} | {}, {} | {} | {} |\n",
            at + 1,
            run.server,
            run.configuration,
            short(run.disk_before),
            short(run.disk_after),
            short(run.machine_load),
            run.seed,
        );
    }
    out + "\n"
}

/// The two servers beside each other. A ratio above 1: the second does better.
fn ratios(report: &Report, first: &str, second: &str) -> String {
    let mut out = format!(
        "## {second} beside {first}\n\nRatios: how many times as good {second} is.\n\n\
         | | unit | {first}: ms | {second}: ms | ratio | {first}: CPU ms | {second}: CPU ms | ratio | {first}: per s | {second}: per s | ratio |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), short);
    for name in report.names() {
        let get = |server: &str, of: &dyn Fn(&Row) -> Option<f64>| {
            report.figure(server, name, of).map(|figure| figure.median)
        };
        let over = |above: Option<f64>, below: Option<f64>| {
            let (above, below) = above.zip(below)?;
            (below > 0.0).then(|| above / below)
        };
        let unit = report
            .rows(first, name)
            .chain(report.rows(second, name))
            .next()
            .map_or("", |row| row.unit.as_str());
        let time = |row: &Row| positive(row.median_ms);
        let cpu = |row: &Row| row.server_cpu_ms;
        let rate = |row: &Row| positive(row.rate);
        let (times, cpus, rates) = (
            (get(first, &time), get(second, &time)),
            (get(first, &cpu), get(second, &cpu)),
            (get(first, &rate), get(second, &rate)),
        );
        out += &format!(
            "| {name} | {unit} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            cell(times.0),
            cell(times.1),
            cell(over(times.0, times.1)),
            cell(cpus.0),
            cell(cpus.1),
            cell(over(cpus.0, cpus.1)),
            cell(rates.0),
            cell(rates.1),
            cell(over(rates.1, rates.0)),
        );
    }
    out + "\n"
}

fn one(report: &Report, server: &str) -> String {
    let mut out = format!("## {server}\n\n| | unit | count |");
    for (title, _) in COLUMNS {
        out += &format!(" {title} |");
    }
    out += " more |\n|---|---|---|";
    out += &"---|".repeat(COLUMNS.len() + 1);
    out.push('\n');
    for name in report.names() {
        let Some(row) = report.rows(server, name).next() else {
            continue;
        };
        out += &format!("| {name} | {} | {} |", row.unit, row.count);
        for (_, of) in COLUMNS {
            out += &format!(" {} |", with_spread(report.figure(server, name, of)));
        }
        let more: Vec<String> = row
            .more
            .keys()
            .map(|key| {
                let figure = report.figure(server, name, &|row| row.more.get(key).copied());
                format!("{key} {}", with_spread(figure))
            })
            .collect();
        out += &format!(" {} |\n", more.join(", "));
    }
    out + "\n"
}

/// The study's own figures beside ours.
fn study(report: &Report, servers: &[&str]) -> String {
    if report.runs.iter().all(|run| run.series.is_empty()) {
        return String::new();
    }
    let mut out = String::from(
        "## Aerogramme's study\n\nMemory (PSS), MiB: before, at its peak. Aerogramme's figures are those its authors published for their machine.\n\n| scenario |",
    );
    for server in servers {
        out += &format!(" {server} |");
    }
    out += " Aerogramme |\n|---|";
    out += &"---|".repeat(servers.len() + 1);
    out.push('\n');
    for published in AEROGRAMME {
        out += &format!("| {} |", published.scenario);
        for server in servers {
            let name = format!("study: {}", published.scenario);
            let get = |key: &'static str| {
                report
                    .figure(server, &name, &move |row| row.more.get(key).copied())
                    .map_or("-".to_owned(), |figure| short(figure.median))
            };
            out += &format!(" {}, {} |", get("base_mib"), get("peak_mib"));
        }
        out += &format!(" {} |\n", published.words);
    }
    out + "\n"
}
