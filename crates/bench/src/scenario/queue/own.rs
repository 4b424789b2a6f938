//! The queue, as nodes in this process.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use whimbrel_queue::Choice;

use super::{
    Experiment, Load, Network, cities,
    link::{introduce, introduced},
    node::{self, Node},
    site::{Setting, Tally},
    window::{self, Looks},
};
use crate::{
    error::{Result, io_at, wrong},
    lag::way::Ways,
    process,
    random::Random,
};

/// For all nodes to hear each other.
const LINK_WAIT_MAX: Duration = Duration::from_secs(20);
/// For all that was put to be gone from all nodes.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Figures from which virtual time takes what it charges.
pub(super) const OPERATIONS: &str = "uses of sockets and syncs";
pub(super) const BESIDE_MICROS: &str = "CPU beside the machine's, us";
pub(super) const MACHINE_MICROS: &str = "machine's CPU, us";
pub(super) const FRAME_BYTES: &str = "bytes of frames";

/// The nodes of a run, and the ways between them.
struct Nodes {
    all: Vec<Node>,
    ways: Ways,
}

impl Nodes {
    fn start(load: &Load, directory: &Path) -> Result<Nodes> {
        let began = Instant::now();
        let ways = Ways::default();
        if load.network == Network::Cities {
            cities::delay(&ways, load.nodes);
        }
        let choice = match load.round_trip_min_ms {
            Some(millis) => Choice::Nearest(millis * 1000),
            None => Choice::Random,
        };
        let mut all = Vec::new();
        for me in 0..load.nodes {
            let setting = Setting {
                me,
                nodes: load.nodes,
                copies: load.copies,
                choice,
                producers: if load.one_node && me > 0 {
                    0
                } else {
                    load.producers
                },
                payload_bytes: load.payload_bytes,
                seed: Random::part(load.seed, me as u64).bits(),
                round_trips: load.round_trips(me),
            };
            let log = directory.join(format!("queue-{me}.log"));
            all.push(Node::start(setting, log, began)?);
        }
        let mut nodes = Nodes { all, ways };
        nodes.link(load)?;
        nodes.wait(LINK_WAIT_MAX, "do not hear each other", Node::is_ready)?;
        Ok(nodes)
    }

    /// Connects each node with those before it.
    fn link(&mut self, load: &Load) -> Result<()> {
        for one in 0..load.nodes {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io_at("a link"))?;
            let port = listener.local_addr().map_err(io_at("a link"))?.port();
            for other in 0..one {
                let port = match load.network {
                    Network::Local => port,
                    Network::Cities => self.ways.open(other, one, port)?,
                };
                let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                let mut near = connected.map_err(io_at("a link"))?;
                introduce(&mut near, u8::try_from(other).unwrap_or(u8::MAX))?;
                let (mut far, _) = listener.accept().map_err(io_at("a link"))?;
                let who = introduced(&mut far)?;
                let me = u8::try_from(one).unwrap_or(u8::MAX);
                self.all[one].link(who, far)?;
                self.all[other].link(me, near)?;
            }
        }
        Ok(())
    }

    fn wait(&self, at_most: Duration, what: &str, is: impl Fn(&Node) -> bool) -> Result<()> {
        let began = Instant::now();
        while !self.all.iter().all(&is) {
            if self.all.iter().any(Node::has_failed) {
                // What it was is told when all have ended.
                return Ok(());
            }
            if began.elapsed() > at_most {
                return wrong(format!("{what} after {at_most:?}"));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.all.iter().map(Node::done).sum()
    }
}

/// Runs the queue under a load.
pub(super) fn run(load: &Load, directory: &Path) -> Result<Experiment> {
    let nodes = Nodes::start(load, directory)?;
    nodes.all.iter().for_each(Node::begin);
    let mut made = window::measured(
        load,
        &nodes.ways,
        &Looks {
            done: &|| nodes.done(),
            cpu: &|| process::threads_cpu_seconds(node::THREADS),
            measure: &|on| nodes.all.iter().for_each(|node| node.measure(on)),
            failed: &|| nodes.all.iter().any(Node::has_failed),
        },
    )?;
    nodes.all.iter().for_each(Node::stop);
    nodes.wait(DRAIN_WAIT_MAX, "messages are left", Node::is_empty)?;
    let all_cpu = process::threads_cpu_seconds(node::THREADS);
    nodes.all.iter().for_each(Node::close);
    let mut tally = Tally::default();
    let mut syncs = Vec::new();
    let (mut accepted, mut finished, mut replaced, mut left) = (0, 0, 0, 0);
    let (mut machine_seconds, mut operations) = (0.0, 0);
    let mut ends = Vec::new();
    for node in nodes.all {
        ends.push(node.ended());
    }
    for ended in ends {
        let ended = ended?;
        tally.add(ended.tally);
        syncs.extend(ended.syncs);
        accepted += ended.accepted;
        finished += ended.done;
        replaced += ended.replaced;
        left += ended.left;
        machine_seconds += ended.machine_seconds;
        operations += ended.operations;
    }
    if accepted != finished || left > 0 {
        return wrong(format!(
            "{accepted} messages accepted, {finished} done, {left} left on disks"
        ));
    }
    let each = |count: u64| count as f64 / finished as f64;
    let sync_count = syncs.len() as u64;
    made.sync_ms = super::quantiles(&mut syncs).map(|(median, _)| median);
    made.accept_ms = super::quantiles(&mut tally.accept_micros);
    made.over_ms = super::quantiles(&mut tally.over_micros);
    made.each = [
        ("writes before the answer", each(tally.new_writes)),
        ("writes", each(tally.writes())),
        ("bodies sent", each(tally.bodies)),
        ("frames", each(tally.frames)),
        (FRAME_BYTES, each(tally.wire_bytes)),
        ("syncs", each(sync_count)),
        ("tombstones written", each(tally.tombstone_writes)),
        ("lists rewritten", each(tally.list_writes)),
        ("owners replaced", each(replaced)),
        ("refused", each(tally.refused)),
        (MACHINE_MICROS, machine_seconds * 1e6 / finished as f64),
        (
            BESIDE_MICROS,
            (all_cpu - machine_seconds).max(0.0) * 1e6 / finished as f64,
        ),
        (OPERATIONS, each(operations + sync_count)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Ok(made)
}
