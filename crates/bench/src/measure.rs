//! Measuring: what a load took, of the clients' time and of the server's.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{
    error::Result,
    process::{self, Tree},
    target::Target,
};

/// The wall clock's share of a repeated operation.
const REPEAT_FOR: Duration = Duration::from_millis(400);

/// Repetitions at most.
const REPEAT_MAX: usize = 200;

/// A server that used no CPU for so long, twice in a row, has done what it put off.
const QUIET_FOR: Duration = Duration::from_millis(60);

/// It is not waited for longer than this: a server that is never quiet is measured as it is.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(5);

/// What clients saw.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// How long each operation took, in microseconds.
    pub micros: Vec<u32>,
    /// Payload that went through.
    pub bytes: u64,
}

impl Samples {
    /// Does something and notes how long it took.
    pub fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = work()?;
        self.add(started.elapsed());
        Ok(result)
    }

    /// Notes how long something took.
    pub fn add(&mut self, took: Duration) {
        self.micros
            .push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Of several threads, all.
    #[must_use]
    pub fn joined(all: Vec<Samples>) -> Samples {
        let mut joined = Samples::default();
        for mut samples in all {
            joined.micros.append(&mut samples.micros);
            joined.bytes += samples.bytes;
        }
        joined
    }
}

/// What a load took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Which load.
    pub name: String,
    /// What one operation is.
    pub unit: String,
    /// Operations.
    pub count: u64,
    /// From the beginning to the end.
    pub seconds: f64,
    /// Operations a second.
    pub rate: f64,
    /// Payload a second, in MB.
    pub mb_per_second: f64,
    /// Half of the operations took at most this.
    pub median_ms: f64,
    /// 99 of 100 took at most this.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// CPU of the server for one operation.
    pub server_cpu_ms: Option<f64>,
    /// CPU of the clients for one operation.
    pub client_cpu_ms: f64,
    /// Bytes that the server had written to the disk for one operation.
    pub written_bytes: Option<f64>,
    /// Syncs of the server's log for one operation, as it counts them itself.
    pub syncs: Option<f64>,
    /// Other figures, by name.
    pub more: std::collections::BTreeMap<String, f64>,
}

/// Takes the figures before and after.
#[derive(Clone)]
pub struct Meter {
    target: Target,
}

struct Reading {
    server_cpu: Option<f64>,
    client_cpu: f64,
    written: Option<u64>,
    syncs: Option<u64>,
}

impl Meter {
    /// For a server.
    #[must_use]
    pub fn new(target: &Target) -> Meter {
        Meter {
            target: target.clone(),
        }
    }

    fn read(&self) -> Reading {
        let tree = self.target.tree();
        Reading {
            server_cpu: tree.map(Tree::cpu_seconds),
            client_cpu: process::own_cpu_seconds(),
            written: tree.map(Tree::written_bytes),
            syncs: self.target.syncs(),
        }
    }

    /// Waits until the server is quiet: what it put off until after its answers is a cost of them, too.
    fn settle(&self) {
        let Some(tree) = self.target.tree() else {
            return;
        };
        let started = Instant::now();
        let (mut before, mut quiet) = (tree.cpu_seconds(), 0);
        while quiet < 2 && started.elapsed() < QUIET_WAIT_MAX {
            std::thread::sleep(QUIET_FOR);
            let now = tree.cpu_seconds();
            quiet = if now > before { 0 } else { quiet + 1 };
            before = now;
        }
    }

    /// Runs a load and says what it took.
    pub fn measure(
        &self,
        name: &str,
        unit: &str,
        load: impl FnOnce() -> Result<Samples>,
    ) -> Result<Row> {
        let before = self.read();
        let started = Instant::now();
        let mut samples = load()?;
        let seconds = started.elapsed().as_secs_f64();
        self.settle();
        let after = self.read();
        let micros = &mut samples.micros;
        micros.sort_unstable();
        let count = micros.len().max(1) as f64;
        let each = |before: Option<u64>, after: Option<u64>| {
            Some(after?.saturating_sub(before?) as f64 / count)
        };
        Ok(Row {
            name: name.to_owned(),
            unit: unit.to_owned(),
            count: micros.len() as u64,
            seconds,
            rate: micros.len() as f64 / seconds,
            mb_per_second: samples.bytes as f64 / 1e6 / seconds,
            median_ms: quantile(micros, 0.5),
            p99_ms: quantile(micros, 0.99),
            max_ms: quantile(micros, 1.0),
            server_cpu_ms: before
                .server_cpu
                .zip(after.server_cpu)
                .map(|(before, after)| (after - before).max(0.0) * 1e3 / count),
            client_cpu_ms: (after.client_cpu - before.client_cpu) * 1e3 / count,
            written_bytes: each(before.written, after.written),
            syncs: each(before.syncs, after.syncs),
            more: std::collections::BTreeMap::new(),
        })
    }

    /// Runs one operation once, notes how long this first time took, then repeats it until there is something to measure.
    pub fn repeat(
        &self,
        name: &str,
        unit: &str,
        mut operation: impl FnMut() -> Result<u64>,
    ) -> Result<Row> {
        let first = Instant::now();
        operation()?;
        let first = first.elapsed();
        let mut row = self.measure(name, unit, || {
            let mut samples = Samples::default();
            let started = Instant::now();
            while started.elapsed() < REPEAT_FOR && samples.micros.len() < REPEAT_MAX
                || samples.micros.len() < 3
            {
                let bytes = samples.time(&mut operation)?;
                samples.bytes += bytes;
            }
            Ok(samples)
        })?;
        row.more
            .insert("first_ms".to_owned(), first.as_secs_f64() * 1e3);
        Ok(row)
    }
}

/// In milliseconds, of sorted microseconds.
fn quantile(sorted: &[u32], at: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (at * last as f64).round() as usize;
    sorted
        .get(index)
        .map_or(0.0, |micros| f64::from(*micros) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let sorted: Vec<u32> = (1..=101).map(|n| n * 1000).collect();
        assert_eq!(quantile(&sorted, 0.5), 51.0);
        assert_eq!(quantile(&sorted, 0.99), 100.0);
        assert_eq!(quantile(&sorted, 1.0), 101.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
