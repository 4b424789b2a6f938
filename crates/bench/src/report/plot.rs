//! Drawings: how two servers compare, and memory and CPU over time.

use super::{
    Report,
    number::short,
    svg::{Anchor, Svg},
};
use crate::{
    facts::{AEROGRAMME, Published},
    measure::Row,
    series::Series,
};

/// Of the servers, in their order.
const COLOURS: [&str; 4] = ["#8c6d31", "#1f77b4", "#2ca02c", "#9467bd"];

/// What others published.
const PUBLISHED: &str = "#c03030";

/// A colour, and what of a row is drawn.
type Bar = (&'static str, fn(&Row) -> Option<f64>);

const GREY: &str = "#bbbbbb";

/// All drawings of a report, by the ends of their names.
#[must_use]
pub fn all(report: &Report) -> Vec<(String, String)> {
    let mut drawings = Vec::new();
    if let [first, second] = report.servers().as_slice() {
        drawings.push(("ratios".to_owned(), ratios(report, first, second)));
    }
    let mut names: Vec<&str> = Vec::new();
    for series in report.runs.iter().flat_map(|run| &run.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    for name in names {
        drawings.push((
            format!("study-{}", name.replace(' ', "-")),
            over_time(report, name),
        ));
    }
    drawings
}

/// For each row two bars: how many times less time, and CPU, the second server takes.
fn ratios(report: &Report, first: &str, second: &str) -> String {
    const ROW: f64 = 30.0;
    const LEFT: f64 = 330.0;
    const WIDTH: f64 = 520.0;
    const TOP: f64 = 56.0;
    /// From a tenth to a thousand times.
    const LOG: (f64, f64) = (-1.0, 3.0);
    let mut names = report.names();
    names.retain(|name| {
        let has = |server| report.rows(server, name).any(|row| row.median_ms > 0.0);
        has(first) && has(second)
    });
    let height = TOP + ROW * names.len() as f64 + 20.0;
    let mut svg = Svg::new(LEFT + WIDTH + 90.0, height);
    let x = |ratio: f64| {
        let log = ratio.log10().clamp(LOG.0, LOG.1);
        LEFT + (log - LOG.0) / (LOG.1 - LOG.0) * WIDTH
    };
    svg.text(
        (LEFT, 20.0),
        Anchor::Start,
        14,
        &format!("{second} beside {first}: how many times as good (right of 1: better)"),
    );
    for (ratio, label) in [
        (0.1, "0.1"),
        (1.0, "1"),
        (3.0, "3"),
        (10.0, "10"),
        (100.0, "100"),
        (1000.0, "1000"),
    ] {
        svg.line(
            (x(ratio), TOP - 6.0),
            (x(ratio), height - 10.0),
            GREY,
            ratio != 1.0,
        );
        svg.text((x(ratio), TOP - 10.0), Anchor::Middle, 11, label);
    }
    for (colour, label, at) in [
        (COLOURS[1], "median time", 0.0),
        (COLOURS[0], "server's CPU", 110.0),
    ] {
        svg.rect((10.0 + at, 12.0), (10.0, 10.0), colour);
        svg.text((25.0 + at, 21.0), Anchor::Start, 11, label);
    }
    for (at, name) in names.iter().enumerate() {
        let y = TOP + at as f64 * ROW;
        svg.text((LEFT - 8.0, y + 16.0), Anchor::End, 11, name);
        let kinds: [Bar; 2] = [
            (COLOURS[1], |row| Some(row.median_ms)),
            (COLOURS[0], |row| row.server_cpu_ms),
        ];
        for (bar, (colour, of)) in kinds.into_iter().enumerate() {
            let get = |server| report.figure(server, name, &of).map(|figure| figure.median);
            let Some((of_first, of_second)) = get(first).zip(get(second)) else {
                continue;
            };
            if of_first <= 0.0 || of_second <= 0.0 {
                continue;
            }
            let ratio = of_first / of_second;
            let (low, high) = (x(ratio.min(1.0)), x(ratio.max(1.0)));
            let y = y + 3.0 + bar as f64 * 12.0;
            svg.rect((low, y), ((high - low).max(1.0), 10.0), colour);
            svg.text((high + 4.0, y + 9.0), Anchor::Start, 10, &short(ratio));
        }
    }
    svg.finish()
}

/// Memory above, CPU below; the first run of each server.
fn over_time(report: &Report, name: &str) -> String {
    let servers = report.servers();
    let curves: Vec<(usize, &Series)> = servers
        .iter()
        .enumerate()
        .filter_map(|(at, server)| {
            let mut all = report.runs.iter().filter(|run| run.server == *server);
            let found = all.find_map(|run| run.series.iter().find(|series| series.name == name));
            found.map(|series| (at, series))
        })
        .collect();
    let published = AEROGRAMME
        .iter()
        .find(|published| published.scenario == name);
    let mut chart = TimeChart::new(&curves);
    chart.svg.text(
        (TimeChart::LEFT, 18.0),
        Anchor::Start,
        14,
        &format!("{name}: memory (PSS) and CPU over time"),
    );
    chart.axes();
    if let Some(published) = published {
        chart.published(published);
    }
    for (at, series) in &curves {
        chart.curves(*at, series);
    }
    chart.svg.finish()
}

/// A drawing of memory and CPU over time, and what its axes reach.
struct TimeChart {
    svg: Svg,
    seconds: f64,
    mib: f64,
    percent: f64,
}

impl TimeChart {
    const LEFT: f64 = 60.0;
    const RIGHT: f64 = Self::LEFT + 760.0;
    const TOP: f64 = 60.0;
    const MEMORY: f64 = 220.0;
    const GAP: f64 = 40.0;
    const CPU: f64 = 110.0;
    const LOW: f64 = Self::TOP + Self::MEMORY + Self::GAP + Self::CPU;

    fn new(curves: &[(usize, &Series)]) -> TimeChart {
        let longest = |of: &dyn Fn(&(f64, f64, f64)) -> f64| {
            curves
                .iter()
                .flat_map(|(_, series)| &series.points)
                .map(of)
                .fold(0.0, f64::max)
        };
        TimeChart {
            svg: Svg::new(Self::RIGHT + 30.0, Self::LOW + 40.0),
            seconds: longest(&|point| point.0).max(0.1),
            // An axis that shows the servers; a published peak far above is told in words.
            mib: (longest(&|point| point.1) * 1.15).max(1.0),
            percent: longest(&|point| point.2).max(100.0),
        }
    }

    fn x(&self, at: f64) -> f64 {
        Self::LEFT + at / self.seconds * (Self::RIGHT - Self::LEFT)
    }

    fn y(&self, mib: f64) -> f64 {
        Self::TOP + Self::MEMORY - mib.min(self.mib) / self.mib * Self::MEMORY
    }

    fn y_cpu(&self, percent: f64) -> f64 {
        Self::LOW - percent / self.percent * Self::CPU
    }

    fn axes(&mut self) {
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let (mib, seconds) = (share * self.mib, share * self.seconds);
            let (x, y) = (self.x(seconds), self.y(mib));
            self.svg.line((Self::LEFT, y), (Self::RIGHT, y), GREY, true);
            let left = Self::LEFT - 5.0;
            self.svg.text((left, y + 4.0), Anchor::End, 10, &short(mib));
            let below = (x, Self::LOW + 15.0);
            self.svg.text(below, Anchor::Middle, 10, &short(seconds));
        }
        let left = Self::LEFT - 5.0;
        self.svg
            .text((left, Self::TOP - 8.0), Anchor::End, 10, "MiB");
        self.svg.line(
            (Self::LEFT, Self::LOW),
            (Self::RIGHT, Self::LOW),
            GREY,
            false,
        );
        for value in [0.0, 100.0] {
            let y = self.y_cpu(value) + 4.0;
            self.svg.text((left, y), Anchor::End, 10, &short(value));
        }
        let above_cpu = Self::LOW - Self::CPU - 12.0;
        self.svg.text((left, above_cpu), Anchor::End, 10, "% CPU");
        self.svg
            .text((Self::RIGHT, Self::LOW + 30.0), Anchor::End, 10, "seconds");
    }

    fn published(&mut self, published: &Published) {
        let words = format!("Aerogramme, as published: {}", published.words);
        self.svg.text((Self::LEFT, 36.0), Anchor::Start, 11, &words);
        if published.peak_mb > 0.0 && published.peak_mb < self.mib {
            let y = self.y(published.peak_mb);
            self.svg
                .line((Self::LEFT, y), (Self::RIGHT, y), PUBLISHED, true);
        }
    }

    /// The curves of a server, of which `at` others came before.
    fn curves(&mut self, at: usize, series: &Series) {
        let colour = COLOURS[at % COLOURS.len()];
        let points = series.points.iter();
        let memory: Vec<_> = points
            .clone()
            .map(|point| (self.x(point.0), self.y(point.1)))
            .collect();
        let cpu: Vec<_> = points
            .map(|point| (self.x(point.0), self.y_cpu(point.2)))
            .collect();
        self.svg.curve(memory.into_iter(), colour);
        self.svg.curve(cpu.into_iter(), colour);
        let legend = format!("{}: peak {} MiB", series.label, short(series.peak_mib()));
        let left = Self::LEFT + 200.0 * at as f64;
        self.svg.rect((left, 44.0), (9.0, 9.0), colour);
        self.svg
            .text((left + 13.0, 52.0), Anchor::Start, 11, &legend);
        for (when, what) in &series.marks {
            let x = self.x(*when);
            self.svg
                .line((x, Self::LOW), (x, Self::LOW + 4.0), colour, false);
            let above = Self::LOW - Self::CPU - 4.0 - 11.0 * at as f64;
            self.svg.text((x, above), Anchor::Start, 8, what);
        }
    }
}
