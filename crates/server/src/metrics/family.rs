//! Families of figures, as Prometheus knows them: counters, gauges, histograms, with a fixed set of labels.
//!
//! Invariants: the value of a label is a text of the program, never of a client (`&'static str`), so the number of series has a bound
//! that the source has, and nobody's data is in them; a histogram is a row of counters, so nothing gathers while nobody asks.
//!
//! The crate `prometheus-client` 0.26 does not replace this: it shows no family without series, orders series by hash, and cannot make a `static`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

/// What a family is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name: unit last, `_total` behind what only grows.
    pub name: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Its unit.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A family that can be shown.
pub trait Family: Sync {
    /// What it is.
    fn about(&self) -> &About;
    /// `counter`, `gauge` or `histogram`.
    fn kind(&self) -> &'static str;
    /// Writes its series in the text format of Prometheus.
    fn write(&self, out: &mut String);
}

/// The series of a family, by the values of its labels.
struct Series<const N: usize, T>(RwLock<BTreeMap<[&'static str; N], Arc<T>>>);

impl<const N: usize, T: Default> Series<N, T> {
    const fn new() -> Self {
        Series(RwLock::new(BTreeMap::new()))
    }

    fn get(&self, labels: [&'static str; N]) -> Arc<T> {
        let found = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&labels)
            .cloned();
        found.unwrap_or_else(|| {
            let mut series = self.0.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(series.entry(labels).or_default())
        })
    }

    fn each(&self, mut show: impl FnMut(&[&'static str; N], &T)) {
        if N == 0 {
            // A family without labels is there from the beginning.
            self.get([""; N]);
        }
        for (labels, value) in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            show(labels, value);
        }
    }
}

macro_rules! family {
    ($(#[doc = $doc:literal])+ $name:ident, $cell:ty) => {
        $(#[doc = $doc])+
        pub struct $name<const N: usize> {
            about: About,
            series: Series<N, $cell>,
        }

        impl<const N: usize> $name<N> {
            /// One without series.
            pub(super) const fn new(
                name: &'static str,
                labels: &'static [&'static str; N],
                unit: &'static str,
                meaning: &'static str,
            ) -> Self {
                let about = About { name, labels, unit, meaning };
                $name { about, series: Series::new() }
            }

            /// The series with these values of the labels, to be kept by who counts often.
            pub fn of(&self, labels: [&'static str; N]) -> Arc<$cell> {
                self.series.get(labels)
            }
        }
    };
}

family! {
    /// What only grows.
    Counter, AtomicU64
}

family! {
    /// What is so much now.
    Gauge, AtomicI64
}

family! {
    /// Durations, by how long they were.
    Histogram, Durations
}

impl<const N: usize> Counter<N> {
    /// Counts.
    pub fn add(&self, labels: [&'static str; N], count: u64) {
        self.of(labels).fetch_add(count, Ordering::Relaxed);
    }

    /// Sets what was counted elsewhere.
    pub fn set(&self, labels: [&'static str; N], count: u64) {
        self.of(labels).store(count, Ordering::Relaxed);
    }
}

impl<const N: usize> Gauge<N> {
    /// More or less by so much.
    pub fn add(&self, labels: [&'static str; N], change: i64) {
        self.of(labels).fetch_add(change, Ordering::Relaxed);
    }

    /// So much.
    pub fn set(&self, labels: [&'static str; N], value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.of(labels).store(value, Ordering::Relaxed);
    }
}

impl<const N: usize> Histogram<N> {
    /// One more.
    pub fn observe(&self, labels: [&'static str; N], took: Duration) {
        self.of(labels).observe(took);
    }
}

/// Upper ends of the buckets, in microseconds: from what memory answers to what a client waits for.
const BUCKETS_MICROS: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// The cell of a histogram.
#[derive(Default)]
pub struct Durations {
    /// How many fell into each bucket; the last is for all that were longer.
    counts: [AtomicU64; BUCKETS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Durations {
    /// One more.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.partition_point(|end| *end < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl<const N: usize> Family for Counter<N> {
    fn about(&self) -> &About {
        &self.about
    }

    fn kind(&self) -> &'static str {
        "counter"
    }

    fn write(&self, out: &mut String) {
        self.series.each(|values, cell| {
            let cell = cell.load(Ordering::Relaxed);
            sample(out, &self.about, "", values, None, &cell);
        });
    }
}

impl<const N: usize> Family for Gauge<N> {
    fn about(&self) -> &About {
        &self.about
    }

    fn kind(&self) -> &'static str {
        "gauge"
    }

    fn write(&self, out: &mut String) {
        self.series.each(|values, cell| {
            let cell = cell.load(Ordering::Relaxed);
            sample(out, &self.about, "", values, None, &cell);
        });
    }
}

impl<const N: usize> Family for Histogram<N> {
    fn about(&self) -> &About {
        &self.about
    }

    fn kind(&self) -> &'static str {
        "histogram"
    }

    fn write(&self, out: &mut String) {
        self.series.each(|values, cell| {
            let mut count = 0;
            let ends = BUCKETS_MICROS.iter().map(|end| seconds(*end));
            for (end, in_bucket) in ends.chain(["+Inf".to_owned()]).zip(&cell.counts) {
                count += in_bucket.load(Ordering::Relaxed);
                sample(out, &self.about, "_bucket", values, Some(&end), &count);
            }
            let sum = seconds(cell.micros.load(Ordering::Relaxed));
            sample(out, &self.about, "_sum", values, None, &sum);
            sample(out, &self.about, "_count", values, None, &count);
        });
    }
}

/// Microseconds as seconds, exactly.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn sample(
    out: &mut String,
    about: &About,
    suffix: &str,
    values: &[&'static str],
    end: Option<&str>,
    value: &dyn std::fmt::Display,
) {
    let labels = about.labels.iter().copied().zip(values.iter().copied());
    let labels: Vec<String> = labels
        .chain(end.map(|end| ("le", end)))
        .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
        .collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}{suffix}{labels} {value}", about.name);
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The page that a scraper reads.
pub fn page(families: &[&dyn Family]) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for family in families {
        let About { name, meaning, .. } = family.about();
        let _ = writeln!(
            out,
            "# HELP {name} {meaning}\n# TYPE {name} {}",
            family.kind()
        );
        family.write(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format() {
        static COUNTER: Counter<2> = Counter::new("x_total", &["a", "b"], "things", "Things.");
        static GAUGE: Gauge<0> = Gauge::new("y_bytes", &[], "bytes", "Bytes.");
        static HISTOGRAM: Histogram<1> = Histogram::new("z_seconds", &["a"], "seconds", "Time.");
        let families: &[&dyn Family] = &[&COUNTER, &GAUGE, &HISTOGRAM];
        assert_eq!(
            page(families),
            "# HELP x_total Things.\n# TYPE x_total counter\n# HELP y_bytes Bytes.\n# TYPE y_bytes gauge\ny_bytes 0\n\
             # HELP z_seconds Time.\n# TYPE z_seconds histogram\n"
        );
        COUNTER.add(["1", "x\"y"], 2);
        COUNTER.of(["1", "x\"y"]).fetch_add(1, Ordering::Relaxed);
        GAUGE.add([], -5);
        for micros in [1, 100, 101, 30_000_000, 30_000_001] {
            HISTOGRAM.observe(["q"], Duration::from_micros(micros));
        }
        let page = page(families);
        for line in [
            "x_total{a=\"1\",b=\"x\\\"y\"} 3\n",
            "y_bytes -5\n",
            "z_seconds_bucket{a=\"q\",le=\"0.0001\"} 2\n",
            "z_seconds_bucket{a=\"q\",le=\"0.00025\"} 3\n",
            "z_seconds_bucket{a=\"q\",le=\"30\"} 4\n",
            "z_seconds_bucket{a=\"q\",le=\"+Inf\"} 5\n",
            "z_seconds_sum{a=\"q\"} 60.000203\n",
            "z_seconds_count{a=\"q\"} 5\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
