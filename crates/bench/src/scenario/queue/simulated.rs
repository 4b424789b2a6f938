//! The same nodes on virtual time, each with a core of its own: what a cluster would do that this machine has no cores for.
//!
//! The machine is the real one. Whatever a node does is timed by the CPU it takes here, and its core is busy for as long; each use of a socket, each sync
//! and each byte takes what was measured on real nodes. Frames arrive after the delay of their way, a sync ends after the time that was measured.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    time::Duration,
};

use bytes::BytesMut;
use whimbrel_queue::{Choice, Id, Input, Node, Now};

use super::{
    Experiment, Load, link,
    link::Message,
    log,
    node::thread_cpu_nanos,
    own,
    site::{Setting, Site},
};
use crate::{
    error::{Result, wrong},
    random::Random,
    report::number::short,
};

/// What comes together while a node works is taken at once, up to this.
const EVENTS_AT_ONCE: usize = 256;
/// One way between nodes without a delay: half of the paper's shortest round trip between its servers of one place.
const LOCAL_ONE_WAY: Duration = Duration::from_micros(72);
/// Before it is measured: so long, and so many times the longest round trip.
const WARM_UP: Duration = Duration::from_millis(250);
const WARM_UP_ROUND_TRIPS: u32 = 4;
/// For all that was put to be gone.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// The beginning of time, as microseconds since 1970: ids begin with it.
const UNIX_MICROS: u64 = 1_700_000_000_000_000;

/// What was measured on real nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// CPU for each use of a socket and each sync, beside the machine.
    pub(super) operation: Duration,
    /// And for each byte of frames sent.
    pub(super) byte_nanos: f64,
    /// A write to the disk with its sync.
    pub(super) sync: Duration,
}

impl std::fmt::Display for Costs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        write!(
            f,
            "the same machine, producers and records, a core for each node; beside the machine's CPU each use of a socket and each sync costs {} us, each \
             byte sent {} ns; a sync takes {} us",
            short(micros(self.operation)),
            short(self.byte_nanos),
            short(micros(self.sync))
        )
    }
}

enum Event {
    /// The node takes what has come.
    Run,
    /// Its timer.
    Timer,
    /// Bytes from a peer.
    Arrived(usize, Vec<u8>),
    /// These are durable.
    Written(Vec<Id>),
}

struct Machine {
    site: Site,
    inbox: VecDeque<Event>,
    /// It works until then.
    busy_until: u64,
    running: bool,
    timer_at: Option<u64>,
    /// Written while a sync was under way.
    waiting: Vec<Id>,
    syncing: bool,
    records: Vec<u8>,
    busy_nanos: u64,
    /// Of them, those of the machine, frames and records.
    machine_nanos: u64,
    operations: u64,
}

/// All nodes. Times are nanoseconds.
struct World {
    now: u64,
    number: u64,
    due: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: BTreeMap<u64, Event>,
    nodes: Vec<Machine>,
    one_ways: Vec<Vec<u64>>,
    costs: Costs,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn clock(nanos: u64) -> Now {
    Now {
        monotonic: nanos / 1000,
        unix: UNIX_MICROS + nanos / 1000,
    }
}

fn peer(number: usize) -> Node {
    u8::try_from(number)
        .ok()
        .and_then(Node::new)
        .unwrap_or_default()
}

impl World {
    fn new(load: &Load, costs: Costs) -> World {
        let round_trips: Vec<Vec<Duration>> = (0..load.nodes)
            .map(|from| {
                let of = load.round_trips(from).into_iter();
                of.map(|way| way.max(2 * LOCAL_ONE_WAY)).collect()
            })
            .collect();
        let nodes = (0..load.nodes)
            .map(|me| {
                let setting = Setting {
                    me,
                    nodes: load.nodes,
                    copies: load.copies,
                    choice: Choice::Random,
                    producers: load.producers,
                    payload_bytes: load.payload_bytes,
                    seed: Random::part(load.seed, me as u64).bits(),
                    round_trips: round_trips[me].clone(),
                };
                let mut site = Site::new(setting, clock(0));
                for other in (0..load.nodes).filter(|other| *other != me) {
                    site.input(clock(0), Input::Linked(peer(other)));
                }
                Machine {
                    site,
                    inbox: VecDeque::new(),
                    busy_until: 0,
                    running: false,
                    timer_at: None,
                    waiting: Vec::new(),
                    syncing: false,
                    records: Vec::new(),
                    busy_nanos: 0,
                    machine_nanos: 0,
                    operations: 0,
                }
            })
            .collect();
        let mut world = World {
            now: 0,
            number: 0,
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            nodes,
            one_ways: round_trips
                .iter()
                .map(|of| of.iter().map(|way| nanos(*way / 2)).collect())
                .collect(),
            costs,
        };
        (0..load.nodes).for_each(|node| world.add(0, node, Event::Run));
        world
    }

    fn add(&mut self, at: u64, node: usize, event: Event) {
        self.number += 1;
        self.due.push(Reverse((at, self.number, node)));
        self.events.insert(self.number, event);
    }

    /// Lets time pass.
    fn pass(&mut self, until: u64) -> Result<()> {
        while let Some(&Reverse((at, number, node))) = self.due.peek()
            && at <= until
        {
            self.due.pop();
            self.now = at;
            let Some(event) = self.events.remove(&number) else {
                continue;
            };
            match event {
                Event::Run => self.run(node)?,
                Event::Timer if self.nodes[node].timer_at != Some(at) => {}
                event => {
                    self.nodes[node].inbox.push_back(event);
                    self.wake(node);
                }
            }
        }
        self.now = until;
        Ok(())
    }

    fn wake(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        if !one.running {
            one.running = true;
            let at = self.now.max(one.busy_until);
            self.add(at, node, Event::Run);
        }
    }

    /// A node does what has come together.
    fn run(&mut self, me: usize) -> Result<()> {
        let at = clock(self.now);
        let one = &mut self.nodes[me];
        let (mut operations, mut bytes_sent) = (0, 0);
        let before = thread_cpu_nanos();
        for _ in 0..EVENTS_AT_ONCE {
            match one.inbox.pop_front() {
                Some(Event::Arrived(from, bytes)) => {
                    operations += 1;
                    for message in link::split(&mut BytesMut::from(&bytes[..]))? {
                        if let Message::Frame(frame) = message {
                            one.site.input(at, Input::Frame(peer(from), frame));
                        }
                    }
                }
                Some(Event::Written(ids)) => {
                    for id in ids {
                        one.site.input(at, Input::Written(id));
                    }
                    one.syncing = false;
                }
                Some(Event::Timer | Event::Run) => one.site.time(at),
                None => break,
            }
        }
        if !one.site.reads.is_empty() {
            return wrong("a payload is read, though no node was lost");
        }
        for (id, change) in one.site.writes.drain(..) {
            log::encode(&mut one.records, id, &change);
            one.waiting.push(id);
        }
        one.records.clear();
        let mut sent = Vec::new();
        for to in std::mem::take(&mut one.site.awake).iter() {
            let mut bytes = Vec::new();
            one.site.transmit(to, &mut bytes);
            operations += 1;
            bytes_sent += bytes.len();
            sent.push((usize::from(to.number()), bytes));
        }
        let begins_sync = !one.syncing && !one.waiting.is_empty();
        operations += u64::from(begins_sync);
        let machine = thread_cpu_nanos() - before;
        let bytes = (bytes_sent as f64 * self.costs.byte_nanos) as u64;
        let took = machine + operations * nanos(self.costs.operation) + bytes;
        one.busy_nanos += took;
        one.machine_nanos += machine;
        one.operations += operations;
        let end = self.now + took;
        one.busy_until = end;
        one.running = false;
        let more = !one.inbox.is_empty();
        let timer = one.site.deadline().map(|due| (due * 1000).max(end));
        let new_timer = timer.filter(|_| one.timer_at != timer);
        one.timer_at = timer;
        let written = begins_sync.then(|| {
            one.syncing = true;
            std::mem::take(&mut one.waiting)
        });
        if let Some(ids) = written {
            self.add(end + nanos(self.costs.sync), me, Event::Written(ids));
        }
        for (to, bytes) in sent {
            let arrives = end + self.one_ways[me][to];
            self.add(arrives, to, Event::Arrived(me, bytes));
        }
        if let Some(timer) = new_timer {
            self.add(timer, me, Event::Timer);
        }
        if more {
            self.wake(me);
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.nodes.iter().map(|node| node.site.done).sum()
    }

    fn busy_nanos(&self) -> u64 {
        self.nodes.iter().map(|node| node.busy_nanos).sum()
    }

    /// Does something at all nodes, as an input of its own.
    fn at_all(&mut self, act: impl Fn(&mut Site, Now)) {
        let at = clock(self.now);
        for node in 0..self.nodes.len() {
            act(&mut self.nodes[node].site, at);
            self.wake(node);
        }
    }
}

/// Runs the queue under a load on virtual time.
pub(super) fn run(load: &Load, costs: Costs) -> Result<Experiment> {
    let mut world = World::new(load, costs);
    let longest = world.one_ways.iter().flatten().max().copied();
    let longest = 2 * longest.unwrap_or(0);
    let warm_up = nanos(WARM_UP) + u64::from(WARM_UP_ROUND_TRIPS) * longest;
    // For the first frames, by which nodes hear each other.
    world.pass(2 * longest + nanos(WARM_UP))?;
    if !world.nodes.iter().all(|node| node.site.is_ready()) {
        return wrong("nodes do not hear each other");
    }
    world.at_all(Site::begin);
    world.pass(world.now + warm_up)?;
    world.at_all(|site, _| site.measure(true));
    let (done, busy, began) = (world.done(), world.busy_nanos(), world.now);
    world.pass(began + nanos(load.time))?;
    let messages = world.done() - done;
    let busy = (world.busy_nanos() - busy) as f64 / 1e9;
    world.at_all(|site, _| {
        site.measure(false);
        site.stop();
    });
    let last = world.now + nanos(DRAIN_MAX);
    while !world.nodes.iter().all(|node| node.site.is_empty()) {
        if world.now >= last {
            return wrong("messages are left");
        }
        world.pass(world.now + nanos(Duration::from_millis(100)))?;
    }
    let mut made = Experiment {
        rate: messages as f64 / load.time.as_secs_f64(),
        messages,
        cpu_ms: busy * 1e3 / messages.max(1) as f64,
        busy: busy / load.time.as_secs_f64(),
        sync_ms: Some(costs.sync.as_secs_f64() * 1e3),
        ..Experiment::of(load)
    };
    let mut tally = super::site::Tally::default();
    let (mut accepted, mut finished, mut replaced) = (0, 0, 0);
    let (mut machine_nanos, mut operations) = (0, 0);
    for node in world.nodes {
        node.site.verify()?;
        accepted += node.site.accepted;
        finished += node.site.done;
        replaced += node.site.replaced();
        machine_nanos += node.machine_nanos;
        operations += node.operations;
        tally.add(node.site.tally);
    }
    if accepted != finished || finished == 0 {
        return wrong(format!("{accepted} messages accepted, {finished} done"));
    }
    let each = |count: u64| count as f64 / finished as f64;
    made.accept_ms = super::quantiles(&mut tally.accept_micros);
    made.over_ms = super::quantiles(&mut tally.over_micros);
    made.each = [
        ("writes before the answer", each(tally.new_writes)),
        ("writes", each(tally.writes())),
        ("bodies sent", each(tally.bodies)),
        ("tombstones written", each(tally.tombstone_writes)),
        (own::MACHINE_MICROS, each(machine_nanos) / 1e3),
        (own::OPERATIONS, each(operations)),
        ("lists rewritten", each(tally.list_writes)),
        ("owners replaced", each(replaced)),
        ("refused", each(tally.refused)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::{super::Contestant, super::Network, *};

    #[test]
    fn no_message_is_lost_on_virtual_time_and_none_costs_more_in_a_larger_cluster() {
        let costs = Costs {
            operation: Duration::from_micros(20),
            byte_nanos: 10.0,
            sync: Duration::from_millis(1),
        };
        for nodes in [3, 7] {
            for network in [Network::Local, Network::Cities] {
                let load = Load {
                    contestant: Contestant::Virtual,
                    nodes,
                    copies: 1,
                    network,
                    round_trip_min_ms: None,
                    producers: 3,
                    one_node: false,
                    payload_bytes: 256,
                    time: Duration::from_millis(300),
                    seed: 1,
                };
                let made = run(&load, costs).unwrap();
                assert!(made.messages > 0);
                assert_eq!(made.each["bodies sent"], 1.0);
                assert_eq!(made.each["writes before the answer"], 2.0);
                assert_eq!(made.each["writes"], 4.0);
                // A message takes a round trip and two syncs, at least.
                let (median, _) = made.accept_ms.unwrap();
                assert!(median >= 1.0 + 0.144, "{made:?}");
            }
        }
    }
}
