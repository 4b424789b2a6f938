//! `whimbrel-bench queue`: the crate `whimbrel-queue` on real sockets and disks, as its paper's authors measured theirs (section V), beside other systems
//! that keep messages on several nodes.
//!
//! An experiment is: some nodes, each with its disk and its producers, ways between them with the delays of cities or none. A producer puts a message,
//! waits for its acceptance, and puts the next; a consumer is done with it at once. All nodes share this machine.
//!
//! Reading order: this file (what is measured), [`cities`], `site` (the machine with producers and a consumer), `log`, `link`, `node` (what is around
//! it), `own` (a run), `window` (its time); `simulated` (virtual time); the others (`processes`, `etcd`, `grpc`, `nats`); `paper` and [`show`] (what
//! comes out).

pub mod cities;
mod etcd;
mod grpc;
mod link;
mod log;
mod nats;
mod node;
mod own;
mod paper;
mod processes;
pub mod show;
mod simulated;
mod site;
mod window;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    disk,
    error::{Result, Trouble, io_at},
    process,
    progress::Progress,
};

/// The paper's nodes.
const PAPER_NODES: [usize; 6] = [2, 3, 4, 5, 6, 7];
/// Its least round trips in milliseconds, with seven nodes (Fig. 13).
const PAPER_ROUND_TRIPS_MS: [u64; 3] = [1, 20, 100];
/// On virtual time a node is measured for so long.
const VIRTUAL_TIME: Duration = Duration::from_secs(1);
/// And its producers there.
const PAPER_ROUND_TRIP_PRODUCERS: [usize; 3] = [100, 300, 1000];

/// What lies between nodes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Loopback, and nothing else.
    #[default]
    Local,
    /// Delays as between the paper's cities.
    Cities,
}

impl Network {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Network::Local => "local",
            Network::Cities => "cities",
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Contestant {
    /// The crate whimbrel-queue
    Queue,
    /// etcd: one put and one delete for a message
    Etcd,
    /// NATS JetStream, work queues with three replicas that sync each write
    Nats,
    /// The same with syncs as its default is, every two minutes
    NatsUnsynced,
    /// The crate on virtual time, each node with a core of its own, with the CPU that was measured
    Virtual,
}

impl Contestant {
    /// What reports call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contestant::Queue => "Whimbrel's queue",
            Contestant::Etcd => "etcd",
            Contestant::Nats => "NATS",
            Contestant::NatsUnsynced => "NATS, unsynced",
            Contestant::Virtual => "Whimbrel's queue, virtual time",
        }
    }
}

/// What is to be measured.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Nodes
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=20))]
    pub nodes: Vec<u8>,
    /// Producers at each node
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "1,100", value_parser = clap::value_parser!(u16).range(1..))]
    pub producers: Vec<u16>,
    /// f: nodes beside its own to which a message is entrusted
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=6))]
    pub copies: Vec<u8>,
    /// What lies between the nodes
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "local,cities"
    )]
    pub networks: Vec<Network>,
    /// Messages go to the nearest nodes beyond such a round trip, in milliseconds; if not given, to any
    #[arg(long, value_delimiter = ',', value_name = "MS")]
    pub round_trips: Vec<u64>,
    /// Nodes on virtual time
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "2,5,10,20", value_parser = clap::value_parser!(u8).range(2..=60))]
    pub virtual_nodes: Vec<u8>,
    /// Producers at each node on virtual time
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub virtual_producers: u16,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    pub payload: usize,
    /// How long each experiment is measured, in seconds, after a sixth of that to warm up
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub seconds: u64,
    /// Times that everything is run, each time with another seed; medians and spread are over these
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub runs: usize,
    /// Who is measured
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "queue,etcd,nats,virtual"
    )]
    pub contestants: Vec<Contestant>,
    /// etcd's server; else `etcd` from the paths
    #[arg(long, value_name = "FILE")]
    pub etcd: Option<PathBuf>,
    /// The NATS server; else `nats-server` from the paths
    #[arg(long, value_name = "FILE")]
    pub nats: Option<PathBuf>,
    /// The paper's grid, half a day: two to seven nodes, 1 to 1,000 producers, f of 0, 1 and 2, round trips of 1, 20 and 100 ms, 30 seconds each
    #[arg(long)]
    pub full: bool,
    /// Under a minute, only to see that it works
    #[arg(long)]
    pub quick: bool,
    /// All random choices follow from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// One experiment that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) contestant: Contestant,
    pub(crate) nodes: usize,
    pub(crate) copies: usize,
    pub(crate) network: Network,
    pub(crate) round_trip_min_ms: Option<u64>,
    /// At each node.
    pub(crate) producers: usize,
    /// At the first node alone.
    pub(crate) one_node: bool,
    pub(crate) payload_bytes: usize,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

impl Load {
    /// Before it is measured.
    pub(crate) fn warm_up(&self) -> Duration {
        self.time / 6
    }

    /// From a node to each.
    pub(crate) fn round_trips(&self, from: usize) -> Vec<Duration> {
        let way = |to| match self.network {
            Network::Cities if from != to => cities::round_trip(from, to),
            _ => Duration::ZERO,
        };
        (0..self.nodes).map(way).collect()
    }
}

/// What one experiment brought. Times are milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Experiment {
    /// Who.
    pub contestant: String,
    /// How many nodes.
    pub nodes: usize,
    /// How many of them may be lost, beside the first: f; of a majority, what it allows.
    pub copies: usize,
    /// What lies between them.
    pub network: Network,
    /// The least round trip to those that a message is entrusted to; none: any.
    pub round_trip_min_ms: Option<u64>,
    /// Producers at each node.
    pub producers: usize,
    /// They are at the first node alone.
    pub one_node: bool,
    /// Which run.
    pub seed: u64,
    /// Messages a second that were accepted, done and on their way out: the median of all seconds.
    pub rate: f64,
    /// So many were measured.
    pub messages: u64,
    /// From a put to its acceptance: median and 99 of 100.
    pub accept_ms: Option<(f64, f64)>,
    /// What that took beyond the round trip to the farthest node that must have the message.
    pub over_ms: Option<(f64, f64)>,
    /// A write to the disk with its sync: median.
    pub sync_ms: Option<f64>,
    /// CPU of all nodes for a message.
    pub cpu_ms: f64,
    /// Cores that all nodes kept busy.
    pub busy: f64,
    /// Bytes between nodes for a message, where they were counted.
    pub wire_bytes: Option<f64>,
    /// Other figures for one message, by name.
    pub each: BTreeMap<String, f64>,
}

impl Experiment {
    pub(crate) fn of(load: &Load) -> Experiment {
        Experiment {
            contestant: load.contestant.name().to_owned(),
            nodes: load.nodes,
            copies: load.copies,
            network: load.network,
            round_trip_min_ms: load.round_trip_min_ms,
            producers: load.producers,
            one_node: load.one_node,
            seed: load.seed,
            ..Experiment::default()
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueReport {
    /// Cores, model, memory, kernel.
    pub machine: String,
    /// The command line.
    pub command: String,
    /// Bytes of a message.
    pub payload_bytes: usize,
    /// How each contestant is set up, or why it is not measured.
    pub contestants: BTreeMap<String, String>,
    /// Appends of 4 KiB with fdatasync a second, before and after.
    pub disk: (f64, f64),
    /// Load average before.
    pub machine_load: f64,
    /// In their order.
    pub experiments: Vec<Experiment>,
}

impl QueueReport {
    /// What was written by [`show::write`], of several files as one: their experiments under the head of the first.
    ///
    /// # Errors
    /// When one of them cannot be read, or is none.
    pub fn read(paths: &[PathBuf]) -> Result<QueueReport> {
        let mut all: Option<QueueReport> = None;
        for path in paths {
            let json = fs::read_to_string(path).map_err(io_at(path.display()))?;
            let report: QueueReport = serde_json::from_str(&json)
                .map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())))?;
            match &mut all {
                Some(all) => {
                    all.contestants.extend(report.contestants);
                    all.experiments.extend(report.experiments);
                }
                None => all = Some(report),
            }
        }
        Ok(all.unwrap_or_default())
    }
}

impl Options {
    fn preset(mut self) -> Options {
        if self.quick {
            self.nodes = vec![2];
            self.producers = vec![2];
            self.copies = vec![1];
            self.networks = vec![Network::Local];
            self.virtual_nodes = vec![2, 3];
            self.round_trips = Vec::new();
            self.seconds = 1;
            self.runs = 1;
        }
        if self.full {
            self.nodes = PAPER_NODES.map(|nodes| nodes as u8).to_vec();
            self.producers = vec![1, 10, 100, 1000];
            self.copies = vec![0, 1, 2];
            self.networks = vec![Network::Local, Network::Cities];
            self.round_trips = Vec::new();
            self.virtual_nodes = vec![2, 3, 5, 7, 10, 15, 20];
            self.seconds = 30;
        }
        self
    }

    /// All experiments of one run, in their order.
    fn loads(&self, contestants: &[Contestant], run: usize) -> Vec<Load> {
        let mut loads: Vec<Load> = Vec::new();
        let round_trips: Vec<Option<u64>> = match self.round_trips.is_empty() {
            true => vec![None],
            false => self.round_trips.iter().copied().map(Some).collect(),
        };
        let first = |load: &Load| {
            // What others call f follows from their number of nodes; and they choose no peers.
            load.contestant == Contestant::Queue
                || load.copies == usize::from(self.copies[0])
                    && load.round_trip_min_ms == round_trips[0]
        };
        let known: Vec<Contestant> = contestants.to_vec();
        let contestants: Vec<Contestant> = known
            .iter()
            .copied()
            .filter(|one| *one != Contestant::Virtual)
            .collect();
        let mut add = |load: Load| {
            if first(&load) && load.copies < load.nodes {
                loads.push(load);
            }
        };
        for &network in &self.networks {
            for &nodes in &self.nodes {
                for &copies in &self.copies {
                    for &round_trip_min_ms in &round_trips {
                        let one = Load {
                            contestant: Contestant::Queue,
                            nodes: nodes.into(),
                            copies: copies.into(),
                            network,
                            round_trip_min_ms,
                            producers: 1,
                            one_node: true,
                            payload_bytes: self.payload,
                            time: Duration::from_secs(self.seconds),
                            seed: self.seed + run as u64,
                        };
                        for &contestant in &contestants {
                            let one = Load {
                                contestant,
                                ..one.clone()
                            };
                            add(one.clone());
                            for &producers in &self.producers {
                                let producers = producers.into();
                                let one_node = false;
                                add(Load {
                                    producers,
                                    one_node,
                                    ..one.clone()
                                });
                            }
                        }
                    }
                }
            }
        }
        if self.full && contestants.contains(&Contestant::Queue) {
            let seven = loads
                .iter()
                .find(|load| load.nodes == 7 && load.copies == 1 && load.network == Network::Cities)
                .cloned();
            for millis in PAPER_ROUND_TRIPS_MS {
                for producers in PAPER_ROUND_TRIP_PRODUCERS {
                    loads.extend(seven.iter().map(|seven| Load {
                        contestant: Contestant::Queue,
                        round_trip_min_ms: Some(millis),
                        producers,
                        one_node: false,
                        ..seven.clone()
                    }));
                }
            }
        }
        let virtuals = self.networks.iter().copied();
        for network in virtuals.filter(|_| known.contains(&Contestant::Virtual)) {
            loads.extend(self.virtual_nodes.iter().map(|nodes| Load {
                contestant: Contestant::Virtual,
                nodes: usize::from(*nodes),
                copies: 1,
                network,
                round_trip_min_ms: None,
                producers: self.virtual_producers.into(),
                one_node: false,
                payload_bytes: self.payload,
                time: VIRTUAL_TIME,
                seed: self.seed + run as u64,
            }));
        }
        loads
    }
}

/// What virtual time needs to know, measured on real nodes: with little to do, and with much at a time.
fn costs(options: &Options, directory: &Path) -> Result<simulated::Costs> {
    let run = |producers: usize, one_node: bool| {
        let load = Load {
            contestant: Contestant::Queue,
            nodes: 3,
            copies: 1,
            network: Network::Local,
            round_trip_min_ms: None,
            producers,
            one_node,
            payload_bytes: options.payload,
            time: Duration::from_secs(2),
            seed: options.seed,
        };
        let place = tempfile::tempdir_in(directory).map_err(io_at("a directory"))?;
        own::run(&load, place.path())
    };
    let (little, much) = (run(1, true)?, run(1000, false)?);
    let of = |made: &Experiment| {
        let figure = |name| made.each.get(name).copied().unwrap_or(0.0);
        [own::OPERATIONS, own::FRAME_BYTES, own::BESIDE_MICROS].map(figure)
    };
    let (operation, byte) = shares(of(&little), of(&much));
    Ok(simulated::Costs {
        operation: Duration::from_secs_f64(operation / 1e6),
        byte_nanos: byte * 1e3,
        sync: Duration::from_secs_f64(much.sync_ms.unwrap_or(0.0) / 1e3),
    })
}

/// What an operation and what a byte costs, of two measurements: operations, bytes, and what both cost together.
fn shares(little: [f64; 3], much: [f64; 3]) -> (f64, f64) {
    let ([operations, bytes, cost], [others, other_bytes, other_cost]) = (little, much);
    let determinant = operations * other_bytes - others * bytes;
    let operation = (cost * other_bytes - other_cost * bytes) / determinant;
    // Noise may make one of them less than nothing.
    let operation = operation.clamp(0.0, cost / operations);
    let byte = (other_cost - operation * others) / other_bytes;
    (operation, byte.max(0.0))
}

/// Measures.
///
/// # Errors
/// When a message is lost, or the system refuses.
pub fn run(
    options: Options,
    directory: &Path,
    progress: &Progress,
    keep: &dyn Fn(&QueueReport) -> Result<()>,
) -> Result<QueueReport> {
    let options = options.preset();
    let mut report = QueueReport {
        machine: process::machine(),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        payload_bytes: options.payload,
        disk: (disk::syncs_per_second(directory)?, 0.0),
        machine_load: process::load(),
        ..QueueReport::default()
    };
    let mut programs: BTreeMap<Contestant, PathBuf> = BTreeMap::new();
    let mut contestants = Vec::new();
    for &contestant in &options.contestants {
        let found = |given: &Option<PathBuf>, name: &str| {
            let given = given.clone();
            given.or_else(|| processes::find(name))
        };
        let (program, setup) = match contestant {
            Contestant::Queue => (Some(PathBuf::new()), "each node a log that syncs in groups"),
            Contestant::Virtual => (
                Some(PathBuf::new()),
                "the same machine, producers and records; a core for each node",
            ),
            Contestant::Etcd => (found(&options.etcd, "etcd"), "syncs each write"),
            Contestant::Nats => (
                found(&options.nats, "nats-server"),
                "a work queue with three replicas for each node, sync_interval: always",
            ),
            Contestant::NatsUnsynced => (
                found(&options.nats, "nats-server"),
                "a work queue with three replicas for each node, syncs every two minutes",
            ),
        };
        let name = contestant.name().to_owned();
        let Some(program) = program else {
            let missing = "not installed".to_owned();
            progress.line(&format!("{name}: {missing}"));
            report.contestants.insert(name, missing);
            continue;
        };
        let setup = match contestant {
            Contestant::Queue | Contestant::Virtual => setup.to_owned(),
            _ => format!("{}, {setup}", processes::version(&program)?),
        };
        report.contestants.insert(name, setup);
        programs.insert(contestant, program);
        contestants.push(contestant);
    }
    let loads: Vec<Load> = (0..options.runs)
        .flat_map(|run| options.loads(&contestants, run))
        .collect();
    let mut virtual_costs = None;
    progress.begin("experiments", loads.len());
    for load in &loads {
        // Each begins with nothing.
        let place = tempfile::tempdir_in(directory).map_err(io_at("a directory"))?;
        let made = match load.contestant {
            Contestant::Queue => own::run(load, place.path())?,
            Contestant::Etcd => etcd::run(&programs[&load.contestant], load, place.path())?,
            Contestant::Nats | Contestant::NatsUnsynced => {
                let syncs = match load.contestant {
                    Contestant::Nats => nats::Syncs::Always,
                    _ => nats::Syncs::Default,
                };
                nats::run(&programs[&load.contestant], syncs, load, place.path())?
            }
            Contestant::Virtual => {
                let measured = match virtual_costs {
                    Some(costs) => costs,
                    None => {
                        let costs = costs(&options, place.path())?;
                        let name = load.contestant.name().to_owned();
                        report.contestants.insert(name, costs.to_string());
                        *virtual_costs.insert(costs)
                    }
                };
                simulated::run(load, measured)?
            }
        };
        progress.line(&show::line(&made));
        progress.step(1);
        report.experiments.push(made);
        keep(&report)?;
    }
    report.disk.1 = disk::syncs_per_second(directory)?;
    keep(&report)?;
    Ok(report)
}

/// Median and 99 of 100 in milliseconds, of microseconds.
fn quantiles(micros: &mut [u32]) -> Option<(f64, f64)> {
    micros.sort_unstable();
    let last = micros.len().checked_sub(1)?;
    let at = |share: f64| f64::from(micros[(share * last as f64).round() as usize]) / 1e3;
    Some((at(0.5), at(0.99)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_shared_between_operations_and_bytes() {
        let check = |little: [f64; 2], much: [f64; 2], operation: f64, byte: f64| {
            let with = |of: [f64; 2]| [of[0], of[1], of[0] * operation + of[1] * byte];
            let (first, second) = shares(with(little), with(much));
            assert!((first - operation).abs() < 1e-9 && (second - byte).abs() < 1e-9);
        };
        check([8.0, 420.0], [0.2, 380.0], 25.0, 0.02);
        check([8.0, 420.0], [0.2, 380.0], 25.0, 0.0);
        assert_eq!(shares([10.0, 100.0, 50.0], [1.0, 100.0, 0.0]), (5.0, 0.0));
    }
}
