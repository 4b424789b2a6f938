//! A report of lag: a line for the terminal, tables, drawings.

use std::{collections::BTreeMap, fs, path::Path};

use super::{Experiment, LagReport};
use crate::{
    error::{Result, Trouble, io_at},
    report::{
        svg::{Anchor, Svg},
        text::short,
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
    out += "\n| server | nodes | | one-way delay, ms | regions that inject | commands/s | of them set | lag p50, ms | p99, ms | \
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
    fs::create_dir_all(directory).map_err(io_at(directory.display()))?;
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Trouble::Wrong(format!("JSON: {error}")))?;
    let write = |file: &str, text: &str| {
        let path = directory.join(file);
        fs::write(&path, text).map_err(io_at(path.display()))
    };
    write(&format!("{name}.json"), &(json + "\n"))?;
    write(&format!("{name}.md"), &markdown(report))?;
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    for of in report.experiments.iter().filter(|of| !of.curves.is_empty()) {
        let server = of.server.to_lowercase().replace(' ', "-");
        let mut file = format!("{server}-{}-{}ms-{}", of.nodes, of.delay_ms, of.regions);
        // The same experiment at another rate.
        let times = names.entry(file.clone()).or_default();
        *times += 1;
        if *times > 1 {
            file += &format!("-{times}");
        }
        write(&format!("{name}-{file}.svg"), &drawing(of))?;
    }
    Ok(())
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
    use super::*;

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
