//! etcd under the same load: a message is one put when it is accepted and one delete when it is done.
//!
//! Each node has one connection to the member beside it, over which all its producers' calls go at once, as etcd's own client does it. Members speak to
//! each other over the ways. The member that stands nearest to all others leads.

use std::{
    path::Path,
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Experiment, Load,
    grpc::{Grpc, number, put_bytes},
    processes::{Mesh, Processes, http, until},
    window::{self, Flags},
};
use crate::{
    error::{Result, Trouble, wrong},
    servers::free_port,
};

/// For a leader to be there, with elections that take seconds.
const START_MAX: Duration = Duration::from_secs(60);
/// For what is under way to be answered.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(60);
/// etcd's default. It advises about the longest round trip where that is more, and elections of ten times that.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
/// A call that was refused is tried again after so long: etcd refuses when it has too much to do, and tries are work, too.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Between two looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(10);

const PUT: usize = 0;
const DELETE: usize = 1;
const PATHS: [&str; 2] = ["/etcdserverpb.KV/Put", "/etcdserverpb.KV/DeleteRange"];

struct Members {
    processes: Processes,
    mesh: Mesh,
    /// For clients.
    ports: Vec<u16>,
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Members {
    fn start(program: &Path, load: &Load, directory: &Path) -> Result<Members> {
        let mesh = Mesh::new(load)?;
        let ports: Vec<u16> = (0..load.nodes)
            .map(|_| free_port())
            .collect::<Result<_>>()?;
        let cluster: Vec<String> = mesh
            .reached
            .iter()
            .enumerate()
            .map(|(node, port)| format!("n{node}={}", url(*port)))
            .collect();
        let longest = (0..load.nodes)
            .flat_map(|node| load.round_trips(node))
            .max();
        let heartbeat = longest.unwrap_or_default().max(HEARTBEAT_MIN).as_millis();
        let mut processes = Processes::default();
        for (node, port) in ports.iter().enumerate() {
            let mut command = Command::new(program);
            command
                .args(["--name", &format!("n{node}")])
                .arg("--data-dir")
                .arg(directory.join(format!("etcd-{node}")))
                .args(["--listen-peer-urls", &url(mesh.ports[node])])
                .args(["--initial-advertise-peer-urls", &url(mesh.reached[node])])
                .args(["--listen-client-urls", &url(*port)])
                .args(["--advertise-client-urls", &url(*port)])
                .args(["--initial-cluster", &cluster.join(",")])
                .args(["--heartbeat-interval", &heartbeat.to_string()])
                .args(["--election-timeout", &(10 * heartbeat).to_string()])
                .args(["--log-level", "error"]);
            let pid = processes.start(command, &directory.join(format!("etcd-{node}.log")))?;
            mesh.started(pid);
        }
        Ok(Members {
            processes,
            mesh,
            ports,
        })
    }

    /// Who a member is, and whom it takes for the leader.
    fn status(&self, node: usize) -> Result<Option<(String, String)>> {
        let said = http(self.ports[node], "POST", "/v3/maintenance/status", "{}")?;
        let status: Value = serde_json::from_str(&said)
            .map_err(|error| Trouble::Wrong(format!("etcd's status: {error}")))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let me = text(&status["header"]["member_id"]);
        let leader = text(&status["leader"]).filter(|leader| leader != "0");
        Ok(me.zip(leader))
    }

    /// All follow this one.
    fn lead(&self, wanted: usize) -> Result<()> {
        let all = || -> Result<Option<Vec<(String, String)>>> {
            (0..self.ports.len())
                .map(|node| self.status(node))
                .collect()
        };
        until(START_MAX, "etcd has a leader", || {
            let Some(all) = all()? else {
                return Ok(None);
            };
            let target = &all[wanted].0;
            let leader = all.iter().position(|(me, leader)| me == leader);
            match leader {
                Some(leader) if leader == wanted => {
                    Ok(all.iter().all(|(_, leader)| leader == target).then_some(()))
                }
                Some(leader) => {
                    let body = json!({ "targetID": target }).to_string();
                    let path = "/v3/maintenance/transfer-leadership";
                    http(self.ports[leader], "POST", path, &body).map(|_| None)
                }
                None => Ok(None),
            }
        })
    }

    /// The sum of a figure of all members.
    fn sum(&self, name: &str) -> Result<f64> {
        let mut sum = 0.0;
        for port in &self.ports {
            let page = http(*port, "GET", "/metrics", "")?;
            let line = page.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|value| value.trim().parse::<f64>().ok());
            match value {
                Some(value) => sum += value,
                None => return wrong(format!("etcd says no {name}")),
            }
        }
        Ok(sum)
    }
}

/// The producers of a node and its consumer.
struct Client<'a> {
    grpc: Grpc,
    flags: &'a Flags,
    node: usize,
    payload: Vec<u8>,
    put_at: Vec<Instant>,
    /// Of each producer, how many it has put.
    rounds: Vec<u64>,
    /// Calls that were refused, to be made again.
    refused: Vec<(Instant, u64)>,
    refused_count: u64,
    accept_micros: Vec<u32>,
}

/// What a node's producers saw.
struct Seen {
    accept_micros: Vec<u32>,
    refused: u64,
}

/// A call's name: what it is, which producer's, which of its messages.
fn name(path: usize, producer: usize, round: u64) -> u64 {
    round << 17 | (producer as u64) << 1 | path as u64
}

impl Client<'_> {
    fn call(&mut self, name: u64) {
        let (path, producer, round) = (name & 1, name >> 1 & 0xffff, name >> 17);
        let key = format!("queue/{}/{producer}/{round}", self.node);
        let mut message = Vec::new();
        put_bytes(&mut message, 1, key.as_bytes());
        if path as usize == PUT {
            put_bytes(&mut message, 2, &self.payload);
        }
        self.grpc.call(name, path as usize, message);
    }

    fn put(&mut self, producer: usize) {
        self.rounds[producer] += 1;
        self.put_at[producer] = Instant::now();
        self.call(name(PUT, producer, self.rounds[producer]));
    }

    fn answer(&mut self, name: u64, message: Option<Vec<u8>>) -> Result<()> {
        let Some(message) = message else {
            self.refused_count += 1;
            self.refused.push((Instant::now() + RETRY_AFTER, name));
            return Ok(());
        };
        let producer = (name >> 1 & 0xffff) as usize;
        if (name & 1) as usize == DELETE {
            // A call that was refused may have been done all the same.
            if number(&message, 2) != Some(1) && self.refused_count == 0 {
                return wrong("etcd has lost a message");
            }
            self.flags.done.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if number(&message, 1).is_none() {
            return wrong("etcd's answer has no revision");
        }
        if Flags::are(&self.flags.measuring) {
            let micros = self.put_at[producer].elapsed().as_micros();
            self.accept_micros
                .push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
        self.call(name | DELETE as u64);
        if !Flags::are(&self.flags.stopped) {
            self.put(producer);
        }
        Ok(())
    }

    fn run(mut self, producers: usize) -> Result<Seen> {
        (0..producers).for_each(|producer| self.put(producer));
        let mut stopped_at = None;
        loop {
            let now = Instant::now();
            for (_, name) in self
                .refused
                .extract_if(.., |(at, _)| *at <= now)
                .collect::<Vec<_>>()
            {
                self.call(name);
            }
            self.grpc.flush()?;
            if Flags::are(&self.flags.stopped) {
                let since = stopped_at.get_or_insert(now).elapsed();
                if self.grpc.under_way() == 0 && self.refused.is_empty() {
                    return Ok(Seen {
                        accept_micros: self.accept_micros,
                        refused: self.refused_count,
                    });
                }
                if since > DRAIN_WAIT_MAX || Flags::are(&self.flags.failed) {
                    return wrong(format!(
                        "etcd has not answered {} calls",
                        self.grpc.under_way()
                    ));
                }
            }
            for (name, message) in self.grpc.answers(LOOK_EVERY)? {
                self.answer(name, message)?;
            }
        }
    }
}

/// Runs etcd under a load.
pub(super) fn run(program: &Path, load: &Load, directory: &Path) -> Result<Experiment> {
    let members = Members::start(program, load, directory)?;
    let far = |node: &usize| load.round_trips(*node).iter().sum::<Duration>();
    members.lead((0..load.nodes).min_by_key(far).unwrap_or(0))?;
    const SYNCS: &str = "etcd_disk_wal_fsync_duration_seconds_count ";
    let flags = Flags::default();
    let syncs_before = members.sum(SYNCS)?;
    let nodes = if load.one_node { 1 } else { load.nodes };
    let (mut made, seen) = thread::scope(|scope| {
        let clients: Vec<_> = (0..nodes)
            .map(|node| {
                let (flags, port) = (&flags, members.ports[node]);
                scope.spawn(move || {
                    let done = Grpc::connect(port, &PATHS).and_then(|grpc| {
                        let client = Client {
                            grpc,
                            flags,
                            node,
                            payload: vec![b'x'; load.payload_bytes],
                            put_at: vec![Instant::now(); load.producers],
                            rounds: vec![0; load.producers],
                            refused: Vec::new(),
                            refused_count: 0,
                            accept_micros: Vec::new(),
                        };
                        client.run(load.producers)
                    });
                    if done.is_err() {
                        flags.failed.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        let cpu = || members.processes.cpu_seconds();
        window::of_clients(load, &members.mesh.ways, &flags, &cpu, clients)
    })?;
    let finished = flags.done.load(Ordering::Relaxed).max(1) as f64;
    let refused: u64 = seen.iter().map(|seen| seen.refused).sum();
    let mut micros: Vec<u32> = seen
        .into_iter()
        .flat_map(|seen| seen.accept_micros)
        .collect();
    // A majority, the leader among it.
    made.copies = load.nodes.div_ceil(2) - 1;
    made.accept_ms = super::quantiles(&mut micros);
    made.each = [
        // One entry of the log for each of the two, at each member.
        ("writes", 2.0 * load.nodes as f64),
        ("syncs", (members.sum(SYNCS)? - syncs_before) / finished),
        ("refused", refused as f64 / finished),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Ok(made)
}
