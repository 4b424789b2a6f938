//! A report of lag: a line for the terminal, tables, drawings.

use std::{collections::BTreeMap, path::Path};

use super::{Experiment, LagReport};
use crate::{
    error::Result,
    report::{
        number::short,
        svg::{Anchor, Svg},
        write_files,
    },
    scenario::session::KINDS,
};

/// Of nodes, in their order.
const COLOURS: [&str; 9] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c6d31", "#e377c2", "#7f7f7f", "#bcbd22",
    "#17becf",
];
const GREY: &str = "#bbbbbb";

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), short)
}

/// One line for a terminal.
#[must_use]
pub fn line(of: &Experiment) -> String {
    let mut line = format!(
        "{:<18} {} nodes  {:<9} {:>3} ms  {} region(s)  {:>7}/s  CPU {:>6} ms, others {:>6} ms",
        of.server,
        of.nodes,
        of.what,
        of.delay_ms,
        of.regions,
        short(of.rate),
        short(of.cpu_ms),
        short(of.others_cpu_ms),
    );
    if of.lag_ms_p50.is_some() {
        line += &format!(
            "  lag {} ms, p99 {} ms; {} kB, area {} MB s",
            cell(of.lag_ms_p50),
            cell(of.lag_ms_p99),
            cell(of.lag_kb_mean),
            cell(of.area_mb_s)
        );
    }
    line += &format!("  alike after {} s", cell(of.agreed_seconds));
    if of.unlike > 0 {
        line += &format!(", but for {} accounts", of.unlike);
    }
    line
}

/// Of the median lag beyond the delay and two syncs.
const LAG_SPARE_MS: f64 = 5.0;
/// How many times the median's bound the 99th of 100 may take.
const P99_TIMES: f64 = 3.0;
/// What a command may cost, as many times as it costs a node alone at the same rate.
const CPU_TIMES: f64 = 1.18;
/// Of a rate: what differs by no more is the same, as where a run of its own measured a node alone.
const SAME_RATE: f64 = 0.005;
/// Of the other server's area.
const AREA_TIMES: f64 = 0.01;
/// For a cut of [`CUT_SECONDS`] to be healed.
const HEALED_SECONDS: f64 = 60.0;
const CUT_SECONDS: f64 = 600.0;
/// Clusters that have an aim of lag; more nodes are measured for the curve.
const AIM_NODES: usize = 3;

/// What is aimed at, what came out, and whether it was reached.
fn aims(report: &LagReport) -> String {
    let ours = |of: &&Experiment| of.server == "Whimbrel";
    let injected = || report.experiments.iter().filter(|of| of.what == "injected");
    let mut lines = String::new();
    let mut add = |what: String, aim: f64, seen: f64| {
        let reached = if seen <= aim { "reached" } else { "missed" };
        lines += &format!(
            "| {what} | {} | {} | {reached} |\n",
            short(aim),
            short(seen)
        );
    };
    let syncs_ms = 2e3 / report.disk.0.max(1.0);
    for of in injected().filter(ours) {
        let what = format!(
            "{} nodes, {} ms, {} region(s), {}/s",
            of.nodes,
            of.delay_ms,
            of.regions,
            short(of.rate)
        );
        if let Some((p50, p99)) = of.lag_ms_p50.zip(of.lag_ms_p99)
            && of.nodes <= AIM_NODES
        {
            let aim = of.delay_ms as f64 + syncs_ms + LAG_SPARE_MS;
            add(format!("{what}: lag, median, ms"), aim, p50);
            add(format!("{what}: lag, p99, ms"), aim * P99_TIMES, p99);
        }
        let same = |other: &&Experiment| {
            let as_much = match (other.rate_set, of.rate_set) {
                (Some(other), Some(of)) => (other - of).abs() <= of * SAME_RATE,
                (other, of) => other == of,
            };
            (other.delay_ms, other.regions) == (of.delay_ms, of.regions) && as_much
        };
        let alone = injected().filter(ours).filter(same);
        if let Some(alone) = alone.clone().find(|other| other.nodes == 1)
            && of.nodes > 1
            && alone.cpu_ms > 0.0
        {
            add(
                format!("{what}: CPU a command at the serving node, times that of a node alone"),
                CPU_TIMES,
                of.cpu_ms / alone.cpu_ms,
            );
        }
        let mut others = injected().filter(|of| !ours(of)).filter(same);
        if let Some((theirs, area)) = others.find_map(|of| of.area_mb_s).zip(of.area_mb_s)
            && of.nodes == 2
        {
            add(
                format!(
                    "{what}: area of lag, MB s, beside {} of dsync",
                    short(theirs)
                ),
                theirs * AREA_TIMES,
                area,
            );
        }
    }
    for of in report
        .experiments
        .iter()
        .filter(|of| of.what == "partition")
    {
        let cut = of.commands as f64 / of.rate.max(1e-9);
        if let Some(healed) = of.agreed_seconds
            && of.nodes <= AIM_NODES
        {
            add(
                format!(
                    "{} nodes, {} s cut off at {}/s: the same everywhere after, s",
                    of.nodes,
                    short(cut),
                    short(of.rate)
                ),
                HEALED_SECONDS * (cut / CUT_SECONDS).min(1.0),
                healed,
            );
        }
    }
    format!("| aim | at most | seen | |\n|---|---|---|---|\n{lines}\n")
}

/// All experiments as tables.
#[must_use]
pub fn markdown(report: &LagReport) -> String {
    let mut out = format!(
        "Machine: {}. Load before: {}; syncs/s of the disk before and after: {}, {}.\n\n",
        report.machine,
        short(report.machine_load),
        short(report.disk.0),
        short(report.disk.1),
    );
    for (name, configuration) in &report.configurations {
        out += &format!("- {name}: {configuration}\n");
    }
    out += "\n";
    out += &aims(report);
    out += "| server | nodes | | one-way delay, ms | regions that inject | commands/s | of them set | lag p50, ms | p99, ms | \
            mean lag, kB | median, kB | area, MB s | the same everywhere after, s | accounts unlike | CPU a command, ms | of other nodes |\n";
    out += &format!("|{}\n", "---|".repeat(16));
    for of in &report.experiments {
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            of.server,
            of.nodes,
            of.what,
            of.delay_ms,
            of.regions,
            short(of.rate),
            cell(of.rate_set),
            cell(of.lag_ms_p50),
            cell(of.lag_ms_p99),
            cell(of.lag_kb_mean),
            cell(of.lag_kb_median),
            cell(of.area_mb_s),
            cell(of.agreed_seconds),
            of.unlike,
            short(of.cpu_ms),
            short(of.others_cpu_ms),
        );
    }
    out += "\nTimes of commands: median, p99, in ms.\n\n| server | nodes | | delay | regions |";
    for kind in KINDS {
        out += &format!(" {kind} |");
    }
    out += &format!("\n|{}\n", "---|".repeat(5 + KINDS.len()));
    for of in &report.experiments {
        out += &format!(
            "| {} | {} | {} | {} | {} |",
            of.server, of.nodes, of.what, of.delay_ms, of.regions
        );
        for kind in KINDS {
            let times = of.times_ms.get(kind);
            out += &times.map_or(" - |".to_owned(), |(median, p99)| {
                format!(" {}, {} |", short(*median), short(*p99))
            });
        }
        out.push('\n');
    }
    out
}

/// Writes `NAME.json`, `NAME.md` and a drawing of each experiment.
pub fn write(report: &LagReport, directory: &Path, name: &str) -> Result<()> {
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let drawn = report.experiments.iter().filter(|of| !of.curves.is_empty());
    let drawings = drawn.map(|of| {
        let server = of.server.to_lowercase().replace(' ', "-");
        let mut file = format!("{server}-{}-{}ms-{}", of.nodes, of.delay_ms, of.regions);
        // The same experiment at another rate.
        let times = names.entry(file.clone()).or_default();
        *times += 1;
        if *times > 1 {
            file += &format!("-{times}");
        }
        (file, drawing(of))
    });
    write_files(directory, name, report, &markdown(report), drawings)
}

/// Above: what each node shows of the sampled accounts over time; below: how far that is from what was acknowledged.
#[must_use]
pub fn drawing(of: &Experiment) -> String {
    const LEFT: f64 = 70.0;
    const WIDTH: f64 = 760.0;
    const TOP: f64 = 60.0;
    const SIZES: f64 = 240.0;
    const GAP: f64 = 40.0;
    const LAG: f64 = 140.0;
    let greatest = |pick: fn(&(f64, f64, f64)) -> f64| {
        let points = of.curves.iter().flatten().map(pick);
        points.fold(0.0, f64::max)
    };
    let seconds = greatest(|point| point.0).max(0.1);
    let high = greatest(|point| point.1).max(0.001);
    let least = of.curves.iter().flatten().map(|point| point.1);
    let low = least.fold(high, f64::min);
    let span = (high - low).max(0.001);
    let lag = greatest(|point| point.2).max(0.001);
    let mut svg = Svg::new(LEFT + WIDTH + 30.0, TOP + SIZES + GAP + LAG + 40.0);
    svg.text(
        (LEFT, 18.0),
        Anchor::Start,
        14,
        &format!(
            "{}, {} nodes, {} ms one way, {} region(s) injecting {} commands/s",
            of.server,
            of.nodes,
            of.delay_ms,
            of.regions,
            short(of.rate)
        ),
    );
    let x = |at: f64| LEFT + at / seconds * WIDTH;
    let y = |mb: f64| TOP + SIZES - (mb - low) / span * SIZES;
    let bottom = TOP + SIZES + GAP + LAG;
    let y_lag = |mb: f64| bottom - mb / lag * LAG;
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let mb = low + share * span;
        svg.line((LEFT, y(mb)), (LEFT + WIDTH, y(mb)), GREY, true);
        svg.text((LEFT - 5.0, y(mb) + 4.0), Anchor::End, 10, &short(mb));
        let at = share * seconds;
        svg.text((x(at), bottom + 15.0), Anchor::Middle, 10, &short(at));
    }
    svg.text((LEFT - 5.0, TOP - 8.0), Anchor::End, 10, "MB");
    svg.line((LEFT, bottom), (LEFT + WIDTH, bottom), GREY, false);
    for mb in [0.0, lag] {
        svg.text((LEFT - 5.0, y_lag(mb) + 4.0), Anchor::End, 10, &short(mb));
    }
    svg.text(
        (LEFT - 5.0, bottom - LAG - 12.0),
        Anchor::End,
        10,
        "lag, MB",
    );
    svg.text((LEFT + WIDTH, bottom + 30.0), Anchor::End, 10, "seconds");
    for (node, curve) in of.curves.iter().enumerate() {
        let colour = COLOURS[node % COLOURS.len()];
        svg.curve(curve.iter().map(|point| (x(point.0), y(point.1))), colour);
        svg.curve(
            curve.iter().map(|point| (x(point.0), y_lag(point.2))),
            colour,
        );
        let left = LEFT + 90.0 * node as f64;
        svg.rect((left, 34.0), (9.0, 9.0), colour);
        svg.text(
            (left + 13.0, 42.0),
            Anchor::Start,
            11,
            &format!("node {}", node + 1),
        );
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn aims_are_held_against_what_was_seen() {
        let of = |server: &str, nodes: usize, cpu_ms: f64, area: f64| Experiment {
            server: server.into(),
            nodes,
            what: "injected".into(),
            delay_ms: 20,
            regions: 1,
            rate_set: Some(100.0),
            rate: 100.0,
            cpu_ms,
            lag_ms_p50: Some(26.0),
            lag_ms_p99: Some(80.0),
            area_mb_s: Some(area),
            ..Experiment::default()
        };
        let mut cut = of("Whimbrel", 3, 0.0, 0.0);
        (cut.what, cut.commands, cut.agreed_seconds) = ("partition".into(), 60_000, Some(59.0));
        let experiments = vec![
            of("Dovecot", 2, 1.0, 100.0),
            of("Whimbrel", 2, 0.2, 0.5),
            of("Whimbrel", 5, 0.25, 0.5),
            of("Whimbrel", 1, 0.2, 0.0),
            cut,
        ];
        let report = LagReport {
            disk: (1000.0, 1000.0),
            experiments,
            ..LagReport::default()
        };
        let table = aims(&report);
        for line in [
            "2 nodes, 20 ms, 1 region(s), 100/s: lag, median, ms | 27.0 | 26.0 | reached |",
            "2 nodes, 20 ms, 1 region(s), 100/s: lag, p99, ms | 81.0 | 80.0 | reached |",
            "times that of a node alone | 1.18 | 1.00 | reached |",
            "times that of a node alone | 1.18 | 1.25 | missed |",
            "area of lag, MB s, beside 100 of dsync | 1.00 | 0.500 | reached |",
            "3 nodes, 600 s cut off at 100/s: the same everywhere after, s | 60.0 | 59.0 | reached |",
        ] {
            assert!(table.contains(line), "{line}\n{table}");
        }
        // More nodes than three have no aim of lag.
        assert!(
            !table.contains("5 nodes, 20 ms, 1 region(s), 100/s: lag"),
            "{table}"
        );
    }

    #[test]
    fn a_report_is_written() {
        let experiment = Experiment {
            server: "Some server".into(),
            nodes: 2,
            what: "injected".into(),
            delay_ms: 20,
            regions: 1,
            lag_ms_p50: Some(21.5),
            times_ms: BTreeMap::from([("APPEND".into(), (1.0, 2.0))]),
            curves: vec![
                vec![(0.0, 1.0, 0.0), (1.0, 2.0, 0.0)],
                vec![(0.0, 1.0, 0.0), (1.0, 1.5, 0.5)],
            ],
            ..Experiment::default()
        };
        let report = LagReport {
            experiments: vec![experiment.clone(), experiment],
            ..LagReport::default()
        };
        let directory = tempfile::tempdir().unwrap();
        write(&report, directory.path(), "lag").unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let table = read("lag.md");
        assert!(
            table.contains("| Some server | 2 | injected | 20 | 1 |"),
            "{table}"
        );
        assert!(table.contains(" 1.00, 2.00 |"), "{table}");
        for name in [
            "lag-some-server-2-20ms-1.svg",
            "lag-some-server-2-20ms-1-2.svg",
        ] {
            assert_eq!(read(name).matches("<polyline").count(), 4);
        }
        let again: LagReport = serde_json::from_str(&read("lag.json")).unwrap();
        assert_eq!(again.experiments.len(), 2);
    }
}
