//! A report of the queue: a line for the terminal, tables, drawings.

use std::path::Path;

use super::{Contestant, Experiment, Network, QueueReport, paper};
use crate::{
    error::Result,
    report::{
        Figure,
        number::short,
        svg::{Anchor, Svg},
        write_files,
    },
};

/// Beyond the round trip and one sync, in milliseconds, for a message to be accepted when there is little to do.
const ACCEPT_SPARE_MS: f64 = 2.0;
/// CPU for a message with more nodes, as many times as with the fewest.
const CPU_TIMES: f64 = 1.1;
/// Of etcd's rate, with this many nodes and the delays of cities.
const ETCD_TIMES: f64 = 3.0;
const ETCD_NODES: usize = 7;
/// Messages a second at each node.
const RATE_EACH: f64 = 1000.0;
/// Of what it would be if each node did what one does in the smallest cluster, on virtual time.
const LINEAR: f64 = 0.9;
/// Counts are means over messages: some were under way when counting began.
const COUNT_SPARE: f64 = 1.001;

/// For lines of a chart.
const COLOURS: [&str; 7] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c6d31", "#e377c2", "#7f7f7f",
];
const GREY: &str = "#bbbbbb";

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
    line
}

/// The same experiment in all its runs.
struct Group<'a>(Vec<&'a Experiment>);

impl Group<'_> {
    fn is(&self, of: &Experiment) -> bool {
        let key = |of: &Experiment| {
            let whom = (of.contestant.clone(), of.network, of.nodes, of.copies);
            (whom, of.round_trip_min_ms, of.producers, of.one_node)
        };
        key(self.0[0]) == key(of)
    }

    fn figure(&self, of: impl Fn(&Experiment) -> Option<f64>) -> Option<Figure> {
        Figure::of(self.0.iter().filter_map(|one| of(one)).collect())
    }

    fn median(&self, of: impl Fn(&Experiment) -> Option<f64>) -> Option<f64> {
        self.figure(of).map(|figure| figure.median)
    }

    fn rate(&self) -> f64 {
        self.median(|of| Some(of.rate)).unwrap_or(0.0)
    }

    fn is_of(&self, contestant: Contestant, network: Network) -> bool {
        let one = self.0[0];
        one.contestant == contestant.name() && one.network == network
    }
}

fn groups(report: &QueueReport) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for of in &report.experiments {
        match groups.iter_mut().find(|group| group.is(of)) {
            Some(group) => group.0.push(of),
            None => groups.push(Group(vec![of])),
        }
    }
    groups
}

/// The greatest rate of a contestant with so many nodes, at the f that the paper's figures are of, where messages go to any nodes.
fn best(
    groups: &[Group<'_>],
    contestant: Contestant,
    network: Network,
    nodes: usize,
) -> Option<f64> {
    let own = matches!(contestant, Contestant::Queue | Contestant::Virtual);
    let rates = groups
        .iter()
        .filter(|group| group.is_of(contestant, network) && group.0[0].nodes == nodes)
        .filter(|group| !own || group.0[0].copies == paper::COPIES)
        .filter(|group| group.0[0].round_trip_min_ms.is_none())
        .map(Group::rate);
    rates.reduce(f64::max)
}

/// All numbers of nodes that were measured.
fn node_counts(groups: &[Group<'_>], network: Network) -> Vec<usize> {
    let mut counts: Vec<usize> = groups
        .iter()
        .filter(|group| !group.is_of(Contestant::Virtual, network))
        .filter(|group| group.0[0].network == network)
        .map(|group| group.0[0].nodes)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// What is aimed at, what came out, and whether it was reached.
fn aims(groups: &[Group<'_>]) -> String {
    let mut lines = String::new();
    let mut add = |what: String, at_most: bool, aim: f64, seen: f64| {
        let reached = if at_most { seen <= aim } else { seen >= aim };
        lines += &format!(
            "| {what} | {} {} | {} | {} |\n",
            if at_most { "at most" } else { "at least" },
            short(aim),
            short(seen),
            if reached { "reached" } else { "**missed**" }
        );
    };
    let own = |network| {
        let of = move |group: &&Group<'_>| group.is_of(Contestant::Queue, network);
        groups.iter().filter(of)
    };
    let both = [Network::Local, Network::Cities];
    let mut copies: Vec<usize> = both
        .into_iter()
        .flat_map(&own)
        .map(|group| group.0[0].copies)
        .collect();
    copies.sort_unstable();
    copies.dedup();
    for copies in copies {
        let f = copies as f64;
        let counts = [
            ("writes before the answer", 1.0 + f),
            ("writes", 2.0 + 2.0 * f),
            ("bodies sent", f),
        ];
        for (name, aim) in counts {
            let of = both.into_iter().flat_map(&own);
            let of = of.filter(|group| group.0[0].copies == copies);
            let seen = of.filter_map(|group| group.median(|of| of.each.get(name).copied()));
            if let Some(seen) = seen.reduce(f64::max) {
                let seen = if seen <= aim * COUNT_SPARE {
                    seen.min(aim)
                } else {
                    seen
                };
                add(
                    format!("f {copies}, any number of nodes: {name}"),
                    true,
                    aim,
                    seen,
                );
            }
        }
    }
    for network in both {
        for group in own(network).filter(|group| group.0[0].one_node) {
            let over = group.median(|of| of.over_ms.map(|(median, _)| median));
            if let Some((over, sync)) = over.zip(group.median(|of| of.sync_ms)) {
                let what = format!("{}: acceptance beyond the round trip, ms", what(group.0[0]));
                add(what, true, sync + ACCEPT_SPARE_MS, over);
            }
        }
        let mut producers: Vec<usize> = own(network)
            .filter(|group| !group.0[0].one_node)
            .map(|group| group.0[0].producers)
            .collect();
        producers.sort_unstable();
        producers.dedup();
        for producers in producers {
            let cpu = |group: &Group<'_>| {
                let of = group.0[0];
                let same = of.producers == producers && of.copies == paper::COPIES;
                // Two nodes choose nobody.
                let same = same && !of.one_node && of.nodes > 2 && of.round_trip_min_ms.is_none();
                same.then(|| group.median(|of| Some(of.cpu_ms)))?
            };
            let all: Vec<f64> = own(network).filter_map(cpu).collect();
            if let Some(figure) = Figure::of(all.clone()).filter(|_| all.len() > 1) {
                let what = format!(
                    "{}, f 1, {producers} producers each: CPU for a message, the most to the least of any number of nodes above two",
                    network.name()
                );
                add(what, true, CPU_TIMES, figure.high / figure.low.max(1e-9));
            }
        }
        for nodes in node_counts(groups, network) {
            let Some(rate) = best(groups, Contestant::Queue, network, nodes) else {
                continue;
            };
            let what = format!("{}, {nodes} nodes", network.name());
            add(
                format!("{what}: messages/s for each node"),
                false,
                RATE_EACH,
                rate / nodes as f64,
            );
            let theirs = best(groups, Contestant::Etcd, network, nodes);
            if let Some(theirs) =
                theirs.filter(|_| nodes == ETCD_NODES && network == Network::Cities)
            {
                add(
                    format!("{what}: rate, times etcd's"),
                    false,
                    ETCD_TIMES,
                    rate / theirs,
                );
            }
        }
        let of = |group: &&Group<'_>| group.is_of(Contestant::Virtual, network);
        let mut virtuals: Vec<(usize, f64)> = groups
            .iter()
            .filter(of)
            .map(|group| (group.0[0].nodes, group.rate()))
            .collect();
        virtuals.sort_by_key(|(nodes, _)| *nodes);
        if let [(few, least), .., (many, most)] = virtuals[..] {
            let seen = (most / many as f64) / (least / few as f64);
            let what = format!(
                "{}, virtual time: rate a node with {many} nodes, of that with {few}",
                network.name()
            );
            add(what, false, LINEAR, seen);
        }
    }
    match lines.is_empty() {
        true => lines,
        false => format!("## Aims\n\n| | aim | seen | |\n|---|---|---|---|\n{lines}\n"),
    }
}

/// The paper's figures beside ours.
fn beside_the_paper(groups: &[Group<'_>]) -> String {
    let mut out = format!(
        "## Beside the paper\n\nThe greatest rates of any number of producers, messages/s, f of 1. {}\n\n",
        paper::SOURCE
    );
    let columns = [Contestant::Queue, Contestant::Etcd, Contestant::Nats];
    out += "| | nodes | GeoRep, paper | Paxos, paper |";
    for contestant in columns {
        out += &format!(" {} |", contestant.name());
    }
    out += &format!("\n|{}\n", "---|".repeat(4 + columns.len()));
    for network in [Network::Local, Network::Cities] {
        let mut counts = node_counts(groups, network);
        counts.retain(|nodes| *nodes > 1);
        for nodes in counts {
            out += &format!(
                "| {} | {nodes} | {} | {} |",
                network.name(),
                cell(paper::georep(network, nodes)),
                cell(paper::paxos(network, nodes))
            );
            for contestant in columns {
                out += &format!(" {} |", cell(best(groups, contestant, network, nodes)));
            }
            out.push('\n');
        }
    }
    out + "\n"
}

/// All experiments as tables.
#[must_use]
pub fn markdown(report: &QueueReport) -> String {
    let mut out = format!(
        "Machine: {}, shared by all nodes, their producers and the ways between them. Load before: {}; syncs/s of the disk before and after: {}, {}. \
         Messages of {} bytes. Figures are medians over runs, in brackets the least and the greatest rate.\n\n",
        report.machine,
        short(report.machine_load),
        short(report.disk.0),
        short(report.disk.1),
        report.payload_bytes,
    );
    for (name, setup) in &report.contestants {
        out += &format!("- {name}: {setup}\n");
    }
    out.push('\n');
    let groups = groups(report);
    out += &aims(&groups);
    out += &beside_the_paper(&groups);
    out += "## Rates and times\n\nAccepted: from a put to its acceptance. Beyond the way: less the round trip to the farthest node that must have the \
            message. CPU is that of all nodes, for one message.\n\n";
    out += "| | | nodes | f | beyond, ms | producers each | runs | messages/s | accepted, ms | p99 | beyond the way, ms | p99 | sync, ms | CPU, ms | cores | \
            bytes on ways |\n";
    out += &format!("|{}\n", "---|".repeat(16));
    for group in &groups {
        let of = group.0[0];
        let rate = group.figure(|of| Some(of.rate));
        let rate = rate.map_or("-".to_owned(), |rate| {
            let (median, low, high) = (short(rate.median), short(rate.low), short(rate.high));
            match group.0.len() {
                1 => median,
                _ => format!("{median} ({low}..{high})"),
            }
        });
        let producers = match of.one_node {
            true => "one in all".to_owned(),
            false => of.producers.to_string(),
        };
        let beyond = of.round_trip_min_ms.map(|millis| millis as f64);
        out += &format!(
            "| {} | {} | {} | {} | {} | {producers} | {} | {rate} |",
            of.contestant,
            of.network.name(),
            of.nodes,
            of.copies,
            cell(beyond),
            group.0.len(),
        );
        for value in [
            group.median(|of| of.accept_ms.map(|both| both.0)),
            group.median(|of| of.accept_ms.map(|both| both.1)),
            group.median(|of| of.over_ms.map(|both| both.0)),
            group.median(|of| of.over_ms.map(|both| both.1)),
            group.median(|of| of.sync_ms),
            group.median(|of| Some(of.cpu_ms)),
            group.median(|of| Some(of.busy)),
            group.median(|of| of.wire_bytes),
        ] {
            out += &format!(" {} |", cell(value));
        }
        out.push('\n');
    }
    out += "\n## For one message\n\n";
    let mut names: Vec<&String> = Vec::new();
    for name in report.experiments.iter().flat_map(|of| of.each.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    out += "| | |";
    for name in &names {
        out += &format!(" {name} |");
    }
    out += &format!("\n|{}\n", "---|".repeat(2 + names.len()));
    for group in &groups {
        out += &format!("| {} | {} |", group.0[0].contestant, what(group.0[0]));
        for name in &names {
            out += &format!(
                " {} |",
                cell(group.median(|of| of.each.get(*name).copied()))
            );
        }
        out.push('\n');
    }
    out
}

/// Writes `NAME.json`, `NAME.md` and the drawings.
pub fn write(report: &QueueReport, directory: &Path, name: &str) -> Result<()> {
    let groups = groups(report);
    let all = [Network::Local, Network::Cities].into_iter();
    let all = all.flat_map(|network| {
        let of = drawings(&groups, network).into_iter();
        of.map(move |(file, drawing)| (format!("{}-{file}", network.name()), drawing))
    });
    write_files(directory, name, report, &markdown(report), all)
}

/// A line of a chart.
type Line = (String, Vec<(f64, f64)>);

fn drawings(groups: &[Group<'_>], network: Network) -> Vec<(&'static str, String)> {
    let real = [
        Contestant::Queue,
        Contestant::Etcd,
        Contestant::Nats,
        Contestant::NatsUnsynced,
    ];
    let counts = node_counts(groups, network);
    let of = |contestant: Contestant, value: &dyn Fn(usize) -> Option<f64>| -> Line {
        let points = counts
            .iter()
            .filter_map(|nodes| Some((*nodes as f64, value(*nodes)?)));
        (contestant.name().to_owned(), points.collect())
    };
    let mut rates: Vec<Line> = real
        .iter()
        .map(|contestant| {
            of(*contestant, &|nodes| {
                best(groups, *contestant, network, nodes)
            })
        })
        .collect();
    let paper = counts.iter().filter_map(|nodes| {
        let rate = paper::georep(network, *nodes)?;
        Some((*nodes as f64, rate))
    });
    rates.push(("GeoRep, the paper's machines".to_owned(), paper.collect()));
    let cpu: Vec<Line> = real
        .iter()
        .map(|contestant| {
            of(*contestant, &|nodes| {
                // Where it did most.
                let mut those: Vec<&Group<'_>> = groups
                    .iter()
                    .filter(|group| group.is_of(*contestant, network))
                    .filter(|group| group.0[0].nodes == nodes)
                    .filter(|group| {
                        *contestant != Contestant::Queue || group.0[0].copies == paper::COPIES
                    })
                    .collect();
                those.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
                those.last()?.median(|of| Some(of.cpu_ms))
            })
        })
        .collect();
    let mut virtuals: Vec<(f64, f64)> = groups
        .iter()
        .filter(|group| group.is_of(Contestant::Virtual, network))
        .map(|group| (group.0[0].nodes as f64, group.rate()))
        .collect();
    virtuals.sort_by(|one, other| one.0.total_cmp(&other.0));
    let proportional: Vec<(f64, f64)> = virtuals
        .iter()
        .map(|(nodes, _)| (*nodes, virtuals[0].1 / virtuals[0].0 * nodes))
        .collect();
    let linear: Vec<Line> = vec![
        (Contestant::Virtual.name().to_owned(), virtuals),
        ("in proportion".to_owned(), proportional),
    ];
    [
        (
            "rate",
            "messages/s, the most of any number of producers",
            rates,
        ),
        ("cpu", "CPU of all nodes for a message, ms", cpu),
        ("virtual", "messages/s, a core for each node", linear),
    ]
    .into_iter()
    .filter(|(_, _, lines)| lines.iter().any(|(_, points)| !points.is_empty()))
    .map(|(file, title, lines)| {
        let title = format!("{}: {title}", network.name());
        (file, chart(&title, &lines))
    })
    .collect()
}

/// Lines over numbers of nodes.
fn chart(title: &str, lines: &[Line]) -> String {
    const LEFT: f64 = 80.0;
    const WIDTH: f64 = 620.0;
    const TOP: f64 = 40.0;
    const HEIGHT: f64 = 320.0;
    const LEGEND: f64 = 18.0;
    let lines: Vec<&Line> = lines
        .iter()
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let high = all().map(|point| point.1).fold(1e-9, f64::max) * 1.05;
    let last = all().map(|point| point.0).fold(1.0, f64::max);
    let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
    let mut svg = Svg::new(right + 30.0, bottom + 40.0 + LEGEND * lines.len() as f64);
    svg.text((LEFT, 20.0), Anchor::Start, 14, title);
    let x = |nodes: f64| LEFT + nodes / last * WIDTH;
    let y = |value: f64| bottom - value / high * HEIGHT;
    for part in 0..=4 {
        let value = high * f64::from(part) / 4.0;
        svg.line((LEFT, y(value)), (right, y(value)), GREY, true);
        svg.text((LEFT - 5.0, y(value) + 4.0), Anchor::End, 10, &short(value));
    }
    let mut counts: Vec<f64> = all().map(|point| point.0).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    for nodes in counts {
        svg.text(
            (x(nodes), bottom + 15.0),
            Anchor::Middle,
            10,
            &format!("{nodes}"),
        );
    }
    svg.text((right, bottom + 28.0), Anchor::End, 10, "nodes");
    for (at, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        svg.curve(points.iter().map(|point| (x(point.0), y(point.1))), colour);
        for point in points {
            svg.rect((x(point.0) - 2.5, y(point.1) - 2.5), (5.0, 5.0), colour);
        }
        let below = bottom + 40.0 + LEGEND * at as f64;
        svg.rect((LEFT, below), (9.0, 9.0), colour);
        svg.text((LEFT + 14.0, below + 9.0), Anchor::Start, 11, name);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(contestant: Contestant, network: Network, nodes: usize, rate: f64) -> Experiment {
        let each = [
            ("writes before the answer", 2.0005),
            ("writes", 4.1),
            ("bodies sent", 1.0),
        ];
        Experiment {
            contestant: contestant.name().to_owned(),
            nodes,
            copies: 1,
            network,
            producers: 10,
            rate,
            cpu_ms: 0.01 * nodes as f64,
            sync_ms: Some(1.0),
            each: each.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Experiment::default()
        }
    }

    fn report() -> QueueReport {
        let mut low = of(Contestant::Queue, Network::Cities, 7, 1.0);
        (low.one_node, low.over_ms) = (true, Some((2.9, 9.0)));
        let experiments = vec![
            of(Contestant::Queue, Network::Cities, 5, 6000.0),
            of(Contestant::Queue, Network::Cities, 7, 6000.0),
            of(Contestant::Queue, Network::Cities, 7, 6400.0),
            of(Contestant::Queue, Network::Cities, 7, 6100.0),
            of(Contestant::Etcd, Network::Cities, 7, 2000.0),
            of(Contestant::Virtual, Network::Local, 2, 100.0),
            of(Contestant::Virtual, Network::Local, 20, 950.0),
            low,
        ];
        QueueReport {
            experiments,
            ..QueueReport::default()
        }
    }

    #[test]
    fn aims_are_held_against_what_was_seen() {
        let report = report();
        let tables = markdown(&report);
        for line in [
            "f 1, any number of nodes: writes before the answer | at most 2.00 | 2.00 | reached |",
            "f 1, any number of nodes: writes | at most 4.00 | 4.10 | **missed** |",
            "one producer in all: acceptance beyond the round trip, ms | at most 3.00 | 2.90 | reached |",
            "the most to the least of any number of nodes above two | at most 1.10 | 1.40 | **missed** |",
            "cities, 7 nodes: messages/s for each node | at least 1000 | 871 | **missed** |",
            "cities, 7 nodes: rate, times etcd's | at least 3.00 | 3.05 | reached |",
            "virtual time: rate a node with 20 nodes, of that with 2 | at least 0.900 | 0.950 | reached |",
            "| cities | 7 | 24085 | 243 | 6100 | 2000 | - |",
            "| 3 | 6100 (6000..6400) |",
        ] {
            assert!(tables.contains(line), "{line}\n{tables}");
        }
        assert!(!tables.contains("5 nodes: rate, times etcd's"), "{tables}");
    }

    #[test]
    fn a_report_is_written() {
        let directory = tempfile::tempdir().unwrap();
        write(&report(), directory.path(), "queue").unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(
            read("queue-cities-rate.svg").matches("<polyline").count(),
            3
        );
        assert_eq!(
            read("queue-local-virtual.svg").matches("<polyline").count(),
            2
        );
        assert!(!directory.path().join("queue-local-rate.svg").exists());
        let path = directory.path().join("queue.json");
        let again = QueueReport::read(&[path.clone(), path]).unwrap();
        assert_eq!(again.experiments.len(), 16);
    }
}
