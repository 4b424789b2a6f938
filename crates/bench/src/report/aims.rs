//! What we aim at beside the other server, and what a byte or a message costs the disk.

use super::{Report, number::short};
use crate::measure::Row;

/// What is compared of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Operations a second.
    Rate,
    /// The median's time.
    Time,
    /// The server's CPU for an operation.
    Cpu,
}

/// Rows whose operations write: only those named in [`aims`] have an aim.
const WRITE_WORDS: [&str; 5] = ["APPEND", "STORE", "EXPUNGE", "COPY", "MOVE"];

/// What the second server is to reach: of which figure, how many times as good as the first.
fn aims(name: &str) -> &'static [(Of, f64)] {
    let one_of = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if name == "write" {
        &[(Of::Rate, 3.0), (Of::Time, 2.0), (Of::Cpu, 3.0)]
    } else if name == "LMTP 10 KB" {
        &[(Of::Rate, 2.0)]
    } else if one_of(&["write", "LMTP", "SMTP", "logins", "lmtp", "study"])
        || name.ends_with("idle sessions")
        || WRITE_WORDS.iter().any(|word| name.contains(word))
    {
        &[]
    } else {
        &[(Of::Time, 1.0)]
    }
}

/// How many times as good `second` is; `None` where there is nothing to compare.
fn ratio(report: &Report, first: &str, second: &str, name: &str, of: Of) -> Option<f64> {
    let figure = |server: &str| {
        let get = |row: &Row| match of {
            Of::Rate => Some(row.rate),
            Of::Time => Some(row.median_ms),
            Of::Cpu => row.server_cpu_ms,
        };
        let figure = report.figure(server, name, &get)?.median;
        (figure > 0.0).then_some(figure)
    };
    let (first, second) = (figure(first)?, figure(second)?);
    Some(match of {
        Of::Rate => second / first,
        Of::Time | Of::Cpu => first / second,
    })
}

/// A table of what was aimed at and what was reached. Empty when nothing of it was measured.
pub(super) fn table(report: &Report, first: &str, second: &str) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, aim: String, reached: String, ok: bool| {
        let verdict = if ok { "reached" } else { "**missed**" };
        lines += &format!("| {name} | {aim} | {reached} | {verdict} |\n");
    };
    for name in report.names() {
        for &(of, aim) in aims(name) {
            let Some(ratio) = ratio(report, first, second, name, of) else {
                continue;
            };
            let what = match of {
                Of::Rate => "rate",
                Of::Time => "median",
                Of::Cpu => "server's CPU",
            };
            let aim_text = format!("{what}, {} times as good", short(aim));
            line(name, aim_text, short(ratio), ratio >= aim);
        }
        let each = report.figure(second, name, &|row| row.more.get("kib_each").copied());
        if let Some(each) = each {
            let ok = each.median <= KIB_OF_AN_IDLE_SESSION_MAX;
            let aim = format!("at most {} KiB", short(KIB_OF_AN_IDLE_SESSION_MAX));
            line(name, aim, format!("{} KiB", short(each.median)), ok);
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "## Aims\n\n| row | {second}'s aim beside {first} | reached | |\n|---|---|---|---|\n{lines}\n"
    )
}

/// Of process memory above the base.
const KIB_OF_AN_IDLE_SESSION_MAX: f64 = 16.0;

/// What a delivered or appended message costs the disk: bytes written for each byte of mail, and syncs. Empty when no row tells.
pub(super) fn amplification(report: &Report, servers: &[&str]) -> String {
    let mut lines = String::new();
    for name in report.names() {
        let payload = |row: &Row| {
            (row.rate > 0.0 && row.mb_per_second > 0.0).then(|| row.mb_per_second * 1e6 / row.rate)
        };
        let written = |row: &Row| row.written_bytes.filter(|bytes| *bytes > 0.0);
        let of_mail = name.starts_with("LMTP") || name.starts_with("SMTP");
        let syncs_only = report
            .runs
            .iter()
            .flat_map(|run| &run.rows)
            .any(|row| row.name == name && row.more.contains_key("syncs_each"));
        if !of_mail && !syncs_only && name != "write" {
            continue;
        }
        let size = servers
            .iter()
            .find_map(|server| report.figure(server, name, &payload));
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), short);
        lines += &format!("| {name} | {} |", cell(size.map(|size| size.median / 1e3)));
        for server in servers {
            let get = |of: &dyn Fn(&Row) -> Option<f64>| {
                report.figure(server, name, of).map(|figure| figure.median)
            };
            let bytes = get(&written);
            let times = bytes.zip(size).map(|(bytes, size)| bytes / size.median);
            let syncs = get(&|row| row.more.get("syncs_each").copied().or(row.syncs));
            lines += &format!(
                " {} | {} | {} |",
                cell(bytes.map(|bytes| bytes / 1e3)),
                cell(times),
                cell(syncs)
            );
        }
        lines.push('\n');
    }
    if lines.is_empty() {
        return lines;
    }
    let mut head = String::from("| row | KB of mail |");
    for server in servers {
        head += &format!(" {server}: KB to disk | times the mail | syncs |");
    }
    head += "\n|---|---|";
    head += &"---|---|---|".repeat(servers.len());
    format!(
        "## Write amplification\n\nFor one operation. Syncs are the server's own count, or strace's where the row says so.\n\n{head}\n{lines}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Run;

    fn report(rows: &[(&str, f64, f64, f64)], server: &str) -> Run {
        let row = |&(name, rate, median_ms, cpu): &(&str, f64, f64, f64)| Row {
            name: name.to_owned(),
            rate,
            median_ms,
            server_cpu_ms: Some(cpu),
            ..Row::default()
        };
        Run {
            server: server.to_owned(),
            rows: rows.iter().map(row).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn aims_are_reached_or_missed() {
        let mut both = Report::default();
        let rows = [("write", 100.0, 8.0, 3.0), ("LMTP 10 KB", 50.0, 1.0, 1.0)];
        let reads = [
            ("10: FETCH FLAGS", 1.0, 5.0, 1.0),
            ("10: STORE of one", 1.0, 1.0, 1.0),
        ];
        both.runs.push(report(&[rows, reads].concat(), "a"));
        let rows = [("write", 300.0, 4.1, 1.0), ("LMTP 10 KB", 99.0, 1.0, 1.0)];
        let reads = [
            ("10: FETCH FLAGS", 1.0, 5.0, 9.0),
            ("10: STORE of one", 1.0, 9.0, 9.0),
        ];
        both.runs.push(report(&[rows, reads].concat(), "b"));
        both.runs[1].rows.push(Row {
            name: "10 idle sessions".to_owned(),
            more: [("kib_each".to_owned(), 16.1)].into(),
            ..Row::default()
        });
        let table = table(&both, "a", "b");
        let verdicts: Vec<&str> = table
            .lines()
            .skip(4)
            .filter_map(|line| line.split(" | ").nth(3))
            .collect();
        assert_eq!(
            verdicts,
            [
                "reached |",
                "**missed** |",
                "reached |",
                "**missed** |",
                "reached |",
                "**missed** |"
            ],
            "{table}"
        );
    }

    #[test]
    fn the_cost_of_a_message_is_stated() {
        let mut report = Report::default();
        report.runs.push(Run {
            server: "a".to_owned(),
            rows: vec![Row {
                name: "LMTP 10 KB".to_owned(),
                rate: 100.0,
                mb_per_second: 1.0,
                written_bytes: Some(25_000.0),
                syncs: Some(0.5),
                ..Row::default()
            }],
            ..Run::default()
        });
        let table = amplification(&report, &["a"]);
        assert!(
            table.contains("| LMTP 10 KB | 10.0 | 25.0 | 2.50 | 0.500 |"),
            "{table}"
        );
    }
}
