//! `whimbrel-bench lag`: how far nodes are behind each other, as pluto's authors measured it, and in milliseconds.
//!
//! An experiment is: some nodes, ways between them with a delay, pluto's sessions injected at a set rate in one region or two. Sizes of some accounts are
//! looked at on all nodes meanwhile and held against what clients were told ([`load::Ledger`]); messages of a user of his own are watched on
//! their way. After each, all accounts must come to hold the same on all nodes.
//!
//! Reading order: this file (what is done), [`way`], [`nodes`], [`load`], [`watch`], [`show`].

pub mod load;
pub mod nodes;
pub mod show;
pub mod watch;
pub mod way;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clap::Args;
use serde::{Deserialize, Serialize};

use self::{
    load::{Injected, Ledger, Plan, inject},
    nodes::Nodes,
};
use crate::{
    disk,
    error::{Result, Trouble, io_at, wrong},
    process,
    progress::Progress,
    scenario::session::KINDS,
    target::{WRITERS, threads},
};

/// Of what a server can do: the rate of the experiments.
const PART_OF_PEAK: f64 = 0.5;
/// Threads that log in before the load.
const LOGINS: usize = 8;

/// What is to be measured.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Whimbrel, with so many nodes; 1: alone, which is what a command's CPU is held against
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "1,2,3", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: Vec<u16>,
    /// Delays between nodes in one direction, in milliseconds
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MS",
        default_value = "0,20,50,100,150"
    )]
    pub delays: Vec<u64>,
    /// How long each experiment injects, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub seconds: u64,
    /// Commands a second; if not given, half of what the server was seen to do
    #[arg(long, value_name = "RATE")]
    pub rate: Option<f64>,
    /// How long Whimbrel's last node is cut off while both sides inject, in seconds; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub partition: u64,
    /// Without Dovecot, which needs root
    #[arg(long)]
    pub alone: bool,
    /// Under two minutes, only to see that it works: one and two nodes, one delay, seconds
    #[arg(long)]
    pub quick: bool,
    /// All random choices follow from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Options {
    fn quick(mut self) -> Options {
        if self.quick {
            self.nodes = vec![1, 2];
            self.delays = vec![5];
            self.seconds = self.seconds.min(3);
            self.partition = self.partition.min(3);
        }
        self
    }
}

/// What one experiment brought.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Experiment {
    /// The servers.
    pub server: String,
    /// How many.
    pub nodes: usize,
    /// What it was: `peak`, `injected`, `partition`.
    pub what: String,
    /// Delay between nodes, in one direction.
    pub delay_ms: u64,
    /// How many regions injected.
    pub regions: usize,
    /// Commands a second that were to be injected; `None`: as many as go.
    pub rate_set: Option<f64>,
    /// Commands.
    pub commands: usize,
    /// Commands a second.
    pub rate: f64,
    /// Median and 99th of 100 of each kind of command, in milliseconds.
    pub times_ms: BTreeMap<String, (f64, f64)>,
    /// Of the first node, in which the first region injects, for a command of all.
    pub cpu_ms: f64,
    /// Of all other nodes together.
    pub others_cpu_ms: f64,
    /// Bytes that nodes lacked of the sampled accounts, or had too many: mean over time, of the node that was worst.
    pub lag_kb_mean: Option<f64>,
    /// The median.
    pub lag_kb_median: Option<f64>,
    /// The mean times the time.
    pub area_mb_s: Option<f64>,
    /// From an OK to other nodes' clients in IDLE: median.
    pub lag_ms_p50: Option<f64>,
    /// And 99th of 100.
    pub lag_ms_p99: Option<f64>,
    /// After the end of the load, or of the cut, until all nodes held the same.
    pub agreed_seconds: Option<f64>,
    /// Accounts that were not the same when they had been waited for.
    pub unlike: usize,
    /// Of each node: seconds, MB shown, MB of lag.
    pub curves: Vec<Vec<(f64, f64, f64)>>,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LagReport {
    /// Cores, model, memory, kernel.
    pub machine: String,
    /// The command line.
    pub command: String,
    /// How the servers were set up.
    pub configurations: BTreeMap<String, String>,
    /// Appends of 4 KiB with fdatasync a second, before and after.
    pub disk: (f64, f64),
    /// Load average before.
    pub machine_load: f64,
    /// In their order.
    pub experiments: Vec<Experiment>,
}

impl LagReport {
    /// What was written by [`show::write`], of several files as one: their experiments under the head of the first.
    ///
    /// # Errors
    /// When one of them cannot be read, or is none.
    pub fn read(paths: &[PathBuf]) -> Result<LagReport> {
        let mut all: Option<LagReport> = None;
        for path in paths {
            let json = fs::read_to_string(path).map_err(io_at(path.display()))?;
            let report: LagReport = serde_json::from_str(&json)
                .map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())))?;
            match &mut all {
                Some(all) => {
                    all.configurations.extend(report.configurations);
                    all.experiments.extend(report.experiments);
                }
                None => all = Some(report),
            }
        }
        Ok(all.unwrap_or_default())
    }
}

/// Measures.
///
/// # Errors
/// When a server answers wrongly, or Whimbrel's nodes do not come to hold the same.
pub fn run(
    options: Options,
    binary: &Path,
    directory: &Path,
    progress: &Progress,
    keep: &dyn Fn(&LagReport) -> Result<()>,
) -> Result<LagReport> {
    let options = options.quick();
    let mut report = LagReport {
        machine: process::machine(),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        disk: (disk::syncs_per_second(directory)?, 0.0),
        machine_load: process::load(),
        ..LagReport::default()
    };
    // The rate at which Dovecot is measured; Whimbrel is, too, so that areas can be compared.
    let mut same_load = None;
    if !options.alone {
        let nodes = Nodes::dovecot(&made(directory, "dovecot")?)?;
        let mut bench = Bench::new(&options, &nodes, progress, &mut report, keep);
        let rate = bench.peak()?;
        bench.experiments(rate)?;
        same_load = Some(rate);
        nodes.stop()?;
    }
    let more: &[(&str, &str)] = if options.quick {
        // Accounts are made and logged in to, which is not what is looked at.
        &[
            ("auth", "argon2_memory = \"1MiB\""),
            ("storage", "free_bytes_min = \"0B\""),
        ]
    } else {
        &[]
    };
    // A node alone comes last: it is measured at the rate of each cluster, too, since what a command costs hangs on how many share a sync.
    let (alone, clusters): (Vec<u16>, Vec<u16>) = options.nodes.iter().partition(|of| **of == 1);
    let mut rates: Vec<f64> = Vec::new();
    for count in clusters.into_iter().chain(alone) {
        let at = made(directory, &format!("whimbrel-{count}"))?;
        let nodes = Nodes::whimbrel(binary, &at, usize::from(count), more)?;
        let mut bench = Bench::new(&options, &nodes, progress, &mut report, keep);
        let rate = bench.peak()?;
        if count == 1 {
            for rate in &rates {
                bench.experiment(0, vec![0], *rate)?;
            }
        } else {
            if !rates.contains(&rate) {
                rates.push(rate);
            }
            if let (2, Some(same)) = (count, same_load.filter(|_| options.rate.is_none())) {
                bench.experiments(same)?;
            }
            bench.experiments(rate)?;
            if options.partition > 0 {
                bench.partition(rate)?;
            }
        }
        nodes.stop()?;
        // A run of many nodes leaves gigabytes.
        fs::remove_dir_all(&at).map_err(io_at(at.display()))?;
    }
    report.disk.1 = disk::syncs_per_second(directory)?;
    keep(&report)?;
    Ok(report)
}

fn made(directory: &Path, name: &str) -> Result<PathBuf> {
    let at = directory.join(name);
    if at.exists() {
        return wrong(format!("{} is there already", at.display()));
    }
    fs::create_dir_all(&at).map_err(io_at(at.display()))?;
    Ok(at)
}

/// Nodes under measurement.
struct Bench<'a> {
    options: &'a Options,
    nodes: &'a Nodes,
    progress: &'a Progress,
    report: &'a mut LagReport,
    keep: &'a dyn Fn(&LagReport) -> Result<()>,
    ledger: Ledger,
    /// Experiments of these nodes so far: each has a seed of its own.
    done: u64,
}

impl<'a> Bench<'a> {
    fn new(
        options: &'a Options,
        nodes: &'a Nodes,
        progress: &'a Progress,
        report: &'a mut LagReport,
        keep: &'a dyn Fn(&LagReport) -> Result<()>,
    ) -> Self {
        let name = format!("{}, {} nodes", nodes.name, nodes.targets.len());
        report
            .configurations
            .insert(name, nodes.configuration.clone());
        Bench {
            options,
            nodes,
            progress,
            report,
            keep,
            ledger: Ledger::default(),
            done: 0,
        }
    }

    fn plan(&mut self, regions: Vec<usize>, rate: Option<f64>, seconds: u64) -> Plan {
        self.done += 1;
        Plan {
            regions,
            rate,
            time: Duration::from_secs(seconds),
            seed: self.options.seed + (self.done << 40),
        }
    }

    /// As much as goes, in one region; the rate of what follows.
    fn peak(&mut self) -> Result<f64> {
        // Each account's first login at each node costs what no other does.
        threads(LOGINS, |thread, threads| {
            for user in (thread + 1..=WRITERS).step_by(threads) {
                for target in &self.nodes.targets {
                    target.login(user)?.logout()?;
                }
            }
            Ok(())
        })?;
        let plan = self.plan(vec![0], None, self.options.seconds);
        let (mut experiment, _) = self.measured("peak", 0, &plan, |bench| {
            inject(bench.nodes, &bench.ledger, &plan)
        })?;
        self.agree(&mut experiment)?;
        let peak = experiment.rate;
        self.add(experiment)?;
        Ok(self.options.rate.unwrap_or(peak * PART_OF_PEAK))
    }

    fn experiments(&mut self, rate: f64) -> Result<()> {
        for delay in self.options.delays.clone() {
            for regions in [vec![0], vec![0, 1]] {
                self.experiment(delay, regions, rate)?;
            }
        }
        self.nodes.ways.set_delay(Duration::ZERO);
        Ok(())
    }

    fn experiment(&mut self, delay: u64, regions: Vec<usize>, rate: f64) -> Result<()> {
        self.nodes.ways.set_delay(Duration::from_millis(delay));
        let plan = self.plan(regions, Some(rate), self.options.seconds);
        let started = Instant::now();
        let (mut experiment, seen) = self.measured("injected", delay, &plan, |bench| {
            let (nodes, ledger) = (bench.nodes, &bench.ledger);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let samples = scope.spawn(|| watch::sample(nodes, &stop));
                let probes =
                    scope.spawn(|| watch::probe(nodes, &plan.regions, plan.time, plan.seed));
                let injected = inject(nodes, ledger, &plan);
                stop.store(true, Ordering::Relaxed);
                let samples = joined(samples.join());
                let probes = joined(probes.join());
                Ok(injected.map(|injected| (injected, samples, probes)))
            })?
        })?;
        let (samples, probes) = (seen.1?, seen.2?);
        let curves = watch::curves(&samples, &self.ledger, self.nodes.targets.len(), started);
        let mut worst: Option<Vec<f64>> = None;
        let mean = |lags: &[f64]| lags.iter().sum::<f64>() / lags.len().max(1) as f64;
        for curve in &curves {
            let lags: Vec<f64> = curve.points.iter().map(|point| point.2 * 1e3).collect();
            if worst.as_ref().is_none_or(|worst| mean(worst) < mean(&lags)) {
                worst = Some(lags);
            }
        }
        let mut lags = worst.unwrap_or_default();
        experiment.lag_kb_mean = Some(mean(&lags));
        experiment.area_mb_s = Some(mean(&lags) / 1e3 * seen.0.seconds);
        lags.sort_by(f64::total_cmp);
        experiment.lag_kb_median = lags.get(lags.len() / 2).copied();
        experiment.lag_ms_p50 = quantile(&probes, 0.5);
        experiment.lag_ms_p99 = quantile(&probes, 0.99);
        experiment.curves = curves.into_iter().map(|curve| curve.points).collect();
        self.agree(&mut experiment)?;
        self.add(experiment)
    }

    /// The last node is cut off while the first and it inject; then it is seen how long they need.
    fn partition(&mut self, rate: f64) -> Result<()> {
        let last = self.nodes.targets.len() - 1;
        let plan = self.plan(vec![0, last], Some(rate), self.options.partition);
        self.nodes.ways.cut_off(last);
        let (mut experiment, _) = self.measured("partition", 0, &plan, |bench| {
            inject(bench.nodes, &bench.ledger, &plan)
        })?;
        self.nodes.ways.heal();
        self.agree(&mut experiment)?;
        self.add(experiment)
    }

    /// Runs something that injects, and takes figures around it.
    fn measured<T: AsRef<Injected>>(
        &mut self,
        what: &str,
        delay_ms: u64,
        plan: &Plan,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<(Experiment, T)> {
        let before = self.nodes.cpu_seconds();
        let done = work(self)?;
        let after = self.nodes.cpu_seconds();
        let injected = done.as_ref();
        let count = injected.count().max(1) as f64;
        let cpu: Vec<f64> = after
            .iter()
            .zip(&before)
            .map(|(after, before)| (after - before).max(0.0) * 1e3 / count)
            .collect();
        let times = KINDS
            .iter()
            .zip(&injected.kinds)
            .filter_map(|(kind, micros)| {
                let times = (quantile(micros, 0.5)?, quantile(micros, 0.99)?);
                Some(((*kind).to_owned(), times))
            });
        let experiment = Experiment {
            server: self.nodes.name.to_owned(),
            nodes: self.nodes.targets.len(),
            what: what.to_owned(),
            delay_ms,
            regions: plan.regions.len(),
            rate_set: plan.rate,
            commands: injected.count(),
            rate: injected.rate(),
            times_ms: times.collect(),
            cpu_ms: cpu.first().copied().unwrap_or(0.0),
            others_cpu_ms: cpu.iter().skip(1).sum(),
            ..Experiment::default()
        };
        Ok((experiment, done))
    }

    fn agree(&self, experiment: &mut Experiment) -> Result<()> {
        let (took, unlike) = watch::agree(self.nodes, &self.ledger)?;
        experiment.agreed_seconds = Some(took.as_secs_f64());
        experiment.unlike = unlike;
        // Of the other server it is a figure; of ours it is a fault.
        match unlike > 0 && self.nodes.name == "Whimbrel" {
            true => wrong(format!("{unlike} accounts are not alike: {experiment:?}")),
            false => Ok(()),
        }
    }

    fn add(&mut self, experiment: Experiment) -> Result<()> {
        self.progress.line(&show::line(&experiment));
        self.report.experiments.push(experiment);
        (self.keep)(self.report)
    }
}

impl AsRef<Injected> for Injected {
    fn as_ref(&self) -> &Injected {
        self
    }
}

impl AsRef<Injected> for (Injected, Result<Vec<watch::Sample>>, Result<Vec<u32>>) {
    fn as_ref(&self) -> &Injected {
        &self.0
    }
}

fn joined<T>(joined: std::thread::Result<Result<T>>) -> Result<T> {
    joined.unwrap_or_else(|_| Err(Trouble::Wrong("a thread panicked".into())))
}

/// In milliseconds, of sorted microseconds.
fn quantile(sorted: &[u32], at: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let index = (at * last as f64).round() as usize;
    sorted.get(index).map(|micros| f64::from(*micros) / 1e3)
}
