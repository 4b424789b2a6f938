//! A cluster of the production machine, with disks, links and an application, in one thread.
//!
//! A disk keeps what was written when a node crashes, and loses what was not. A link is in order; what has not arrived when it ends is lost at both ends.
//! A direction of a link may be cut without anybody hearing of it. The application delivers: a *tracked* tuple into a store that knows what it has, as an
//! account does, and an untracked one to a consumer who counts.

mod checks;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
};

use bytes::Bytes;
pub use checks::Tuple;
pub use node::{Disk, Site};
use whimbrel_queue::{
    Change, Config, Frame, Id, Input, Node, Nodes, Now, Output, PeerState, Queue, Record, Start,
};
use whimbrel_testkit::Rng;

pub const MILLI: u64 = 1000;
pub const SECOND: u64 = 1_000_000;

/// What is on a link.
#[derive(Clone, Debug, Hash)]
pub enum Message {
    Frame(Frame),
    /// The application asks for a delivery.
    Deliver(Id),
    /// It was delivered.
    Delivered(Id),
}

#[derive(Clone)]
pub struct World {
    pub config: Config,
    pub now: u64,
    pub sites: Vec<Site>,
    pub members: Nodes,
    /// Pairs whose link is up, the lower one first.
    pub links: BTreeSet<(usize, usize)>,
    pub channels: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// Directions in which everything is lost.
    pub cut: BTreeSet<(usize, usize)>,
    /// Directions in which something was lost since the link came up: nothing more arrives.
    pub broken: BTreeSet<(usize, usize)>,
    pub tuples: BTreeMap<Id, Tuple>,
    /// What is wrong.
    pub breach: Option<String>,
    /// Disks that were lost, put back or removed.
    pub losses: usize,
    pub log: Option<Vec<String>>,
    pub starts: u64,
    /// Writes that were durable.
    pub synced: u64,
    /// When links came up.
    pub linked_at: BTreeMap<(usize, usize), u64>,
}

pub fn node(index: usize) -> Node {
    Node::new(u8::try_from(index).expect("a small number")).expect("a node")
}

/// Times short enough for histories of a minute.
pub fn config(copies: usize) -> Config {
    Config {
        copies,
        silent_after: 2 * SECOND,
        takeover_after: 6 * SECOND,
        repair_after: 10 * SECOND,
        start_wait: 3 * SECOND,
        ask_wait: SECOND,
        ask_every: 5 * SECOND,
        late_min: SECOND / 4,
        tombstone_wait: SECOND / 2,
        wave_every: SECOND / 2,
        join,
        ..Config::default()
    }
}

/// Progress is a set of bits.
fn join(one: &[u8], other: &[u8]) -> Bytes {
    let len = one.len().max(other.len());
    let bit = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    (0..len).map(|at| bit(one, at) | bit(other, at)).collect()
}

impl World {
    pub fn new(count: usize, config: Config) -> World {
        let members: Nodes = (0..count).map(node).collect();
        let mut world = World {
            config,
            now: SECOND,
            sites: (0..count).map(|_| Site::default()).collect(),
            members,
            links: BTreeSet::new(),
            channels: BTreeMap::new(),
            cut: BTreeSet::new(),
            broken: BTreeSet::new(),
            tuples: BTreeMap::new(),
            breach: None,
            losses: 0,
            log: None,
            starts: 0,
            synced: 0,
            linked_at: BTreeMap::new(),
        };
        (0..count).for_each(|at| world.start(at));
        world
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.push(format!(
                "{:>7}.{:03} {}",
                now / SECOND,
                now % SECOND / MILLI,
                text()
            ));
        }
    }

    pub fn fail(&mut self, text: String) {
        self.say(|| format!("BREACH {text}"));
        self.breach.get_or_insert(text);
    }

    pub fn is_member(&self, at: usize) -> bool {
        self.members.contains(node(at))
    }

    pub fn clock(&self) -> Now {
        Now {
            monotonic: self.now,
            unix: self.now,
        }
    }

    pub fn is_linked(&self, one: usize, other: usize) -> bool {
        self.links.contains(&(one.min(other), one.max(other)))
    }

    /// Gives a node an input, and does what it asks for.
    pub fn input(&mut self, at: usize, input: Input) {
        let now = self.clock();
        if let Some(queue) = &mut self.sites[at].queue {
            queue.handle(now, input);
        }
        self.check_adoptions(at);
        self.check_progress(at);
        self.outputs(at);
        self.check_copies();
        self.check_tombstones(at);
    }

    fn outputs(&mut self, at: usize) {
        while let Some(output) = self.sites[at].queue.as_mut().and_then(Queue::poll) {
            self.output(at, output);
        }
        // A node sends what it has to whom it is linked with.
        for to in 0..self.sites.len() {
            while self.is_linked(at, to)
                && let Some(queue) = &mut self.sites[at].queue
                && let Some(frame) = queue.transmit(node(to))
            {
                // As it would arrive.
                let frame = Frame::decode(frame.encode()).expect("a frame");
                self.check_said(at, to, &frame);
                self.send(at, to, Message::Frame(frame));
            }
        }
    }

    pub fn send(&mut self, from: usize, to: usize, message: Message) {
        if !self.is_linked(from, to) {
            return;
        }
        if self.cut.contains(&(from, to)) || self.broken.contains(&(from, to)) {
            self.broken.insert((from, to));
            return;
        }
        if !matches!(message, Message::Frame(Frame::Wave(_) | Frame::Low { .. })) {
            self.say(|| format!("  {from} -> {to}: {message:?}"));
        }
        self.channels
            .entry((from, to))
            .or_default()
            .push_back(message);
    }

    fn output(&mut self, at: usize, output: Output) {
        match output {
            Output::Write { id, change, .. } => self.sites[at].writes.push_back((id, change)),
            Output::Wake(_) => {}
            Output::Close(peer, _) => {
                self.say(|| format!("{at} closes its link with {peer}"));
                let peer = usize::from(peer.number());
                self.unlink(at, peer);
            }
            Output::Away(peer, micros) => {
                self.sites[at].disk.away.insert(peer, micros);
            }
            Output::Read(id) => {
                let payload = self.sites[at].disk.payloads.get(&id).cloned();
                self.input(at, Input::Payload(id, payload));
            }
            other => self.application(at, other),
        }
    }

    /// The first write of a node is durable.
    pub fn sync(&mut self, at: usize) {
        let Some((id, change)) = self.sites[at].writes.pop_front() else {
            return;
        };
        self.say(|| format!("{at} wrote {id:?}: {change:?}"));
        self.synced += 1;
        self.sites[at].disk.apply(id, change);
        self.input(at, Input::Written(id));
    }

    /// The disk refuses the first write of a node.
    pub fn refuse(&mut self, at: usize) {
        if let Some((id, _)) = self.sites[at].writes.pop_front() {
            self.say(|| format!("{at} did not write {id:?}"));
            self.input(at, Input::NotWritten(id));
        }
    }

    /// The first message of a direction arrives.
    pub fn deliver(&mut self, from: usize, to: usize) {
        let channel = self.channels.entry((from, to)).or_default();
        match channel.pop_front() {
            Some(Message::Frame(frame)) => self.input(to, Input::Frame(node(from), frame)),
            Some(Message::Deliver(id)) => self.asked(from, to, id),
            Some(Message::Delivered(id)) => {
                self.input(to, Input::Answered(id, node(from)));
                self.done(to, id);
            }
            None => {}
        }
    }

    pub fn link(&mut self, one: usize, other: usize) {
        let (low, high) = (one.min(other), one.max(other));
        let up = |at: usize| self.sites[at].queue.is_some() && self.is_member(at);
        if !up(low) || !up(high) || !self.links.insert((low, high)) {
            return;
        }
        self.say(|| format!("link {low} {high}"));
        self.linked_at.insert((low, high), self.now);
        for pair in [(low, high), (high, low)] {
            self.channels.remove(&pair);
            self.broken.remove(&pair);
        }
        self.input(low, Input::Linked(node(high)));
        self.input(high, Input::Linked(node(low)));
    }

    pub fn unlink(&mut self, one: usize, other: usize) {
        if !self.links.remove(&(one.min(other), one.max(other))) {
            return;
        }
        self.say(|| format!("the link of {one} and {other} is over"));
        for pair in [(one, other), (other, one)] {
            self.channels.remove(&pair);
            self.broken.remove(&pair);
        }
        for (at, peer) in [(one, other), (other, one)] {
            self.drop_requests(at, Some(peer), None);
            self.input(at, Input::Unlinked(node(peer)));
        }
    }

    pub fn crash(&mut self, at: usize) {
        self.say(|| format!("{at} crashes"));
        let site = &mut self.sites[at];
        site.queue = None;
        site.writes.clear();
        site.mine.clear();
        site.requests.clear();
        site.seen.clear();
        site.adopted = 0;
        self.forget_answers(at);
        for other in 0..self.sites.len() {
            if other != at {
                self.unlink(at, other);
            }
        }
    }

    pub fn start(&mut self, at: usize) {
        if self.sites[at].queue.is_some() || !self.is_member(at) {
            return;
        }
        self.starts += 1;
        let start = Start {
            me: node(at),
            members: self.members,
            life: self.sites[at].disk.life.max(1),
            former: Nodes::NONE,
            seed: self.starts * 31 + at as u64,
        };
        let mut queue = Queue::new(self.config, start, self.clock());
        let disk = self.sites[at].disk.clone();
        for (id, record) in &disk.records {
            let record = Record::decode(record.encode()).expect("a record");
            queue.load(*id, record);
        }
        for (peer, micros) in disk.away.iter().filter(|(_, micros)| **micros > 0) {
            queue.load_away(*peer, *micros);
        }
        queue.begin();
        self.say(|| {
            format!(
                "{at} starts, life {}, with {:?}",
                start.life,
                disk.records.keys()
            )
        });
        let site = &mut self.sites[at];
        site.started = (self.starts, self.now);
        site.found = disk.records.keys().copied().collect();
        site.progress.clear();
        site.tombs.clear();
        self.sites[at].queue = Some(queue);
        self.outputs(at);
    }

    /// The disk of a node is lost: it starts with an empty one.
    pub fn lose_disk(&mut self, at: usize) {
        self.crash(at);
        self.say(|| format!("the disk of {at} is lost"));
        self.losses += 1;
        self.sites[at].disk = Disk::default();
    }

    /// An older copy of its disk is put back.
    pub fn put_back(&mut self, at: usize, older: Disk) {
        self.crash(at);
        self.losses += 1;
        let life = self.sites[at].disk.life.max(1) + 1;
        self.sites[at].disk = Disk { life, ..older };
        self.say(|| format!("an older disk at {at}"));
        self.start(at);
    }

    pub fn remove(&mut self, at: usize) {
        self.crash(at);
        self.say(|| format!("{at} is removed"));
        self.losses += 1;
        self.members.remove(node(at));
        self.sites[at].disk = Disk::default();
        let members = self.members;
        for other in 0..self.sites.len() {
            self.input(other, Input::Members(members));
        }
    }

    /// Time passes; who has something to do then does it.
    pub fn pass(&mut self, micros: u64) {
        self.now += micros;
        for at in 0..self.sites.len() {
            for _ in 0..10_000 {
                let queue = self.sites[at].queue.as_ref();
                let due = queue
                    .and_then(Queue::deadline)
                    .is_some_and(|due| due <= self.now);
                if !due {
                    break;
                }
                self.input(at, Input::Time);
            }
            let queue = self.sites[at].queue.as_ref();
            if queue
                .and_then(Queue::deadline)
                .is_some_and(|due| due <= self.now)
            {
                self.fail(format!(
                    "{at} turns in a circle: {:?}",
                    queue.and_then(Queue::deadline)
                ));
            }
        }
        self.check_links();
    }

    /// A link in one direction is closed.
    fn check_links(&mut self) {
        let (now, silent) = (self.now, self.config.silent_after + 2 * SECOND);
        let links = self
            .links
            .iter()
            .filter(|pair| self.linked_at[*pair] + silent < now);
        let deaf = links
            .flat_map(|(one, other)| [(*one, *other), (*other, *one)])
            .find(|(at, peer)| {
                let queue = self.sites[*at].queue.as_ref();
                queue.is_some_and(|queue| {
                    let state = queue.state_of(node(*peer));
                    state != PeerState::Active && state != PeerState::Away
                })
            });
        if let Some((at, peer)) = deaf {
            self.fail(format!("{at} does not hear {peer}, and keeps the link"));
        }
    }

    /// All that is under way arrives and is written, until nothing is.
    pub fn drain(&mut self) {
        let count = self.sites.len();
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for from in 0..count {
                for to in 0..count {
                    while self
                        .channels
                        .get(&(from, to))
                        .is_some_and(|channel| !channel.is_empty())
                    {
                        self.deliver(from, to);
                        goes_on = true;
                    }
                }
                while !self.sites[from].writes.is_empty() {
                    self.sync(from);
                    goes_on = true;
                }
            }
        }
    }

    /// All that is under way happens, and time passes, without any fault.
    pub fn settle(&mut self, rng: &mut Rng, micros: u64) {
        let end = self.now + micros;
        while self.now < end && self.breach.is_none() {
            self.run_once(rng, true);
            self.pass(50 * MILLI);
        }
    }

    /// What is under way goes on: all of it, or as it comes.
    pub fn run_once(&mut self, rng: &mut Rng, all: bool) {
        let count = self.sites.len();
        for from in 0..count {
            for to in 0..count {
                let more = self.channels.get(&(from, to)).map_or(0, VecDeque::len);
                let some = if all {
                    more
                } else {
                    more.min(rng.below(4) as usize)
                };
                for _ in 0..some {
                    self.deliver(from, to);
                }
            }
            let more = self.sites[from].writes.len();
            let some = if all {
                more
            } else {
                rng.below(more as u64 + 1) as usize
            };
            for _ in 0..some {
                self.sync(from);
            }
            self.work(rng, from);
        }
    }

    /// Links nodes that can hear each other.
    pub fn link_all(&mut self) {
        for one in 0..self.sites.len() {
            for other in one + 1..self.sites.len() {
                let apart = [(one, other), (other, one)];
                if !apart.iter().any(|pair| self.cut.contains(pair)) {
                    if apart.iter().any(|pair| self.broken.contains(pair)) {
                        self.unlink(one, other);
                    }
                    self.link(one, other);
                }
            }
        }
    }

    /// Whether nothing is held anywhere.
    pub fn leftover(&self) -> Option<String> {
        let mut members = (0..self.sites.len()).filter(|at| self.is_member(*at));
        let at = members.find(|at| {
            let site = &self.sites[*at];
            let queue = site.queue.as_ref();
            let held = queue.is_none_or(|queue| queue.len() + queue.tombstones() > 0);
            held || !site.disk.records.is_empty() || !site.disk.payloads.is_empty()
        })?;
        let queue = self.sites[at].queue.as_ref();
        let ids = queue.map(|queue| queue.list(Id::MIN, 10).0);
        Some(format!(
            "{at} holds {ids:?}, and {} tombstones; disk {:?}",
            queue.map_or(0, Queue::tombstones),
            self.sites[at].disk.records
        ))
    }

    pub fn payload(id: Id) -> Bytes {
        Bytes::from(format!("payload of {id}"))
    }
}

impl Hash for World {
    /// All but the log.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.now, &self.sites, self.members, &self.links).hash(state);
        for (pair, channel) in self
            .channels
            .iter()
            .filter(|(_, channel)| !channel.is_empty())
        {
            (pair, channel).hash(state);
        }
        (&self.cut, &self.broken, &self.tuples, &self.breach).hash(state);
        (self.losses, self.starts).hash(state);
    }
}

impl Disk {
    pub fn apply(&mut self, id: Id, change: Change) {
        match change {
            Change::Tuple(record, payload) => {
                self.records.insert(id, record);
                if let Some(payload) = payload {
                    self.payloads.insert(id, payload);
                }
                assert!(
                    self.payloads.contains_key(&id),
                    "a record without a payload"
                );
            }
            Change::Tombstone(record) => {
                self.records.insert(id, record);
                self.payloads.remove(&id);
            }
            Change::Remove => {
                self.records.remove(&id);
                self.payloads.remove(&id);
            }
        }
    }
}
