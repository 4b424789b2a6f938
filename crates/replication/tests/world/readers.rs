//! Random histories of readers: claims, counters told and heard, links and nodes that break; and what is announced meanwhile.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::Now;
use whimbrel_replication::announced::{self, Announced};
use whimbrel_replication::readers::{self, Config, Readers};
use whimbrel_replication::wire::{Account, Announced as Said, Claimed, Frame};

use super::rng::Rng;
use super::scenarios::{Scenario, ensure, node};
use super::{MS, PARTITION, SECOND};

const ACCOUNTS: usize = 2;

/// For each slot the greatest counter.
type Claims = Vec<(u8, u32)>;

/// One claim: of which account, which counter, and the account's counter before it.
#[derive(Clone, Copy)]
struct Claim {
    account: usize,
    counter: u32,
    before: u32,
}

/// What a crash takes back to what was synced.
#[derive(Clone, Default)]
struct State {
    own: Vec<Claim>,
    applied: Vec<u64>,
    counters: [u32; ACCOUNTS],
    /// For each node the greatest counter it claimed.
    claimed: [BTreeMap<u8, u32>; ACCOUNTS],
}

struct Node {
    up: bool,
    memory: State,
    disk: State,
    reads: [bool; ACCOUNTS],
    readers: Readers,
    announced: Announced,
}

enum Event {
    Claim(usize, usize),
    Read(usize, usize, bool),
    Sync(usize),
    /// A log, up to a number.
    Log(usize, usize, u64),
    Frame(usize, usize, u64, Frame),
    Crash(usize),
    Start(usize),
    Flap(usize, usize),
}

struct Histories {
    rng: Rng,
    now: u64,
    count: u64,
    events: BTreeMap<(u64, u64), Event>,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize), u64>,
    arrives: BTreeMap<(usize, usize), u64>,
    /// At which number a node first said this.
    said: BTreeMap<(usize, usize, Claims), u64>,
}

fn account(number: usize) -> Account {
    [number as u8 + 1; 16]
}

fn id(number: usize) -> Incarnation {
    node(number as u64 * 10 + 10)
}

fn machines(own: usize) -> (Readers, Announced) {
    let readers = Readers::new(Config::default(), PARTITION, own as u64);
    (readers, Announced::new(PARTITION))
}

pub fn run(seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let nodes = rng.between(2, 4) as usize;
    let mut histories = Histories {
        rng,
        now: 0,
        count: 0,
        events: BTreeMap::new(),
        nodes: Vec::new(),
        links: BTreeMap::new(),
        arrives: BTreeMap::new(),
        said: BTreeMap::new(),
    };
    for _ in 0..nodes {
        let (readers, announced) = machines(0);
        let state = State {
            applied: vec![0; nodes],
            ..State::default()
        };
        histories.nodes.push(Node {
            up: false,
            memory: state.clone(),
            disk: state,
            reads: [false; ACCOUNTS],
            readers,
            announced,
        });
    }
    let dead = histories.plan();
    histories.play()?;
    histories
        .check_end(dead)
        .map_err(|error| format!("seed {seed}: {error}"))
}

impl Histories {
    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    fn clock(&self) -> Now {
        Now {
            wall_micros: 0,
            mono_micros: self.now,
        }
    }

    fn plan(&mut self) -> Option<usize> {
        let nodes = self.nodes.len() as u64;
        let length = 10 * SECOND;
        for node in 0..self.nodes.len() {
            self.at(0, Event::Start(node));
        }
        for _ in 0..self.rng.between(20, 80) {
            let (node, account) = (self.rng.below(nodes), self.rng.below(ACCOUNTS as u64));
            let (node, account) = (node as usize, account as usize);
            let time = self.rng.below(length);
            let event = if self.rng.one_in(3) {
                let reads = !self.rng.one_in(3);
                Event::Read(node, account, reads)
            } else {
                Event::Claim(node, account)
            };
            self.at(time, event);
        }
        for _ in 0..self.rng.below(6) {
            let (a, b) = (self.rng.below(nodes), self.rng.below(nodes - 1));
            let time = self.rng.below(length);
            let b = (a + 1 + b) % nodes;
            self.at(time, Event::Flap(a as usize, b as usize));
        }
        for _ in 0..self.rng.below(4) {
            let node = self.rng.below(nodes) as usize;
            let time = self.rng.below(length);
            self.at(time, Event::Crash(node));
            let back = time + self.rng.below(5 * SECOND);
            self.at(back, Event::Start(node));
        }
        let dead = self.rng.one_in(3).then(|| self.rng.below(nodes) as usize);
        for node in 0..self.nodes.len() {
            self.at(16 * SECOND, Event::Start(node));
        }
        if let Some(dead) = dead {
            self.at(17 * SECOND, Event::Crash(dead));
        }
        dead
    }

    fn play(&mut self) -> Result<(), String> {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = time;
            self.happen(event)?;
            self.pass();
            self.check_announced()?;
        }
        // What is forgotten with time is forgotten.
        self.now += 3 * SECOND;
        self.pass();
        Ok(())
    }

    fn pass(&mut self) {
        let now = self.clock();
        for a in 0..self.nodes.len() {
            self.nodes[a].readers.time(now);
            self.outputs(a);
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Claim(node, account) if self.nodes[node].up => {
                let more = 1 + self.rng.below(3) as u32;
                let memory = &mut self.nodes[node].memory;
                let before = memory.counters[account];
                let counter = before + more;
                memory.counters[account] = counter;
                memory.claimed[account].insert(node as u8, counter);
                memory.own.push(Claim {
                    account,
                    counter,
                    before,
                });
                self.sync(node);
            }
            Event::Read(node, number, reads) if self.nodes[node].up => {
                let it = &mut self.nodes[node];
                it.reads[number] = reads;
                if reads {
                    it.readers.watch(account(number), it.disk.counters[number]);
                } else {
                    it.readers.unwatch(account(number));
                    it.announced.forget(account(number));
                }
            }
            Event::Sync(node) if self.nodes[node].up => self.synced(node),
            Event::Log(from, to, upto) if self.nodes[to].up => return self.apply(from, to, upto),
            Event::Frame(from, to, link, frame) => {
                let now = self.clock();
                if self.links.get(&(from.min(to), from.max(to))) == Some(&link) {
                    let it = &mut self.nodes[to];
                    match frame {
                        Frame::Readers(told) => it.readers.received(now, id(from), told),
                        Frame::Announced(told) => it.announced.received(id(from), told),
                        _ => {}
                    }
                }
            }
            Event::Crash(node) if self.nodes[node].up => {
                let it = &mut self.nodes[node];
                it.up = false;
                it.memory = it.disk.clone();
                it.reads = [false; ACCOUNTS];
                (it.readers, it.announced) = machines(it.disk.own.len());
                for other in 0..self.nodes.len() {
                    self.unlink(node, other);
                }
            }
            Event::Start(node) if !self.nodes[node].up => {
                let it = &mut self.nodes[node];
                it.up = true;
                for (other, number) in it.disk.applied.iter().enumerate() {
                    it.readers.applied(id(other), *number, &[]);
                    it.announced.applied(id(other), *number);
                }
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.link(node, other);
                }
            }
            Event::Flap(a, b) => self.link(a, b),
            _ => {}
        }
        Ok(())
    }

    fn unlink(&mut self, a: usize, b: usize) {
        *self.links.entry((a.min(b), a.max(b))).or_default() += 1;
        let now = self.clock();
        for (from, to) in [(a, b), (b, a)] {
            self.arrives.remove(&(from, to));
            self.nodes[from].readers.unlinked(now, id(to));
            self.nodes[from].announced.unlinked(id(to));
        }
    }

    /// A new link; logs are asked for from where they stand.
    fn link(&mut self, a: usize, b: usize) {
        self.unlink(a, b);
        if !self.nodes[a].up || !self.nodes[b].up {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from].readers.linked(id(to));
            self.nodes[from].announced.linked(id(to));
            let upto = self.nodes[from].disk.own.len() as u64;
            let time = self.now + self.rng.below(500 * MS);
            self.at(time, Event::Log(from, to, upto));
        }
    }

    fn sync(&mut self, node: usize) {
        let time = self.now + self.rng.below(40 * MS);
        self.at(time, Event::Sync(node));
    }

    fn synced(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        it.disk = it.memory.clone();
        let own = it.disk.own.len() as u64;
        let counters: Vec<(Account, u32)> = (0..ACCOUNTS)
            .map(|number| (account(number), it.disk.counters[number]))
            .collect();
        it.readers.durable(own, &counters);
        for number in 0..ACCOUNTS {
            self.say(node, number);
        }
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            // By whatever way, beside the frames.
            let time = self.now + self.rng.below(300 * MS);
            self.at(time, Event::Log(node, to, own));
        }
    }

    fn say(&mut self, node: usize, number: usize) {
        let it = &mut self.nodes[node];
        let own = it.disk.own.len() as u64;
        let claimed = it.disk.claimed[number].clone();
        let claimed: Claims = claimed.into_iter().collect();
        it.announced.say(own, account(number), 0, &claimed);
        self.said.entry((node, number, claimed)).or_insert(own);
    }

    fn apply(&mut self, from: usize, to: usize, upto: u64) -> Result<(), String> {
        let log = self.nodes[from].disk.own.clone();
        let now = self.clock();
        let it = &mut self.nodes[to];
        let mut sections = Vec::new();
        let first = it.memory.applied[from] as usize;
        for claim in log.iter().take(upto as usize).skip(first) {
            // What was heard says that no lower claim is to come.
            let heard = it.readers.peers(now, account(claim.account));
            let heard = heard.iter().find(|heard| heard.peer == id(from));
            if heard.is_some_and(|heard| heard.counter >= claim.counter) {
                return Err(format!(
                    "{} claimed {} after it was heard",
                    from, claim.counter
                ));
            }
            sections.push((account(claim.account), claim.before));
            let counter = &mut it.memory.counters[claim.account];
            *counter = (*counter).max(claim.counter);
            it.memory.claimed[claim.account].insert(from as u8, claim.counter);
            it.memory.applied[from] += 1;
        }
        if !sections.is_empty() {
            let number = it.memory.applied[from];
            it.readers.applied(id(from), number, &sections);
            it.announced.applied(id(from), number);
            self.sync(to);
        }
        Ok(())
    }

    fn outputs(&mut self, from: usize) {
        let mut frames = Vec::new();
        while let Some(output) = self.nodes[from].readers.poll() {
            match output {
                readers::Output::Wake(peer) => {
                    let it = &mut self.nodes[from].readers;
                    frames.extend(std::iter::from_fn(|| it.transmit(peer)).map(|f| (peer, f)));
                }
                readers::Output::Reads {
                    peer,
                    account,
                    reading,
                } => self.nodes[from].announced.watched(peer, account, reading),
                readers::Output::Heard(_) => {}
            }
        }
        while let Some(output) = self.nodes[from].announced.poll() {
            match output {
                announced::Output::Wake(peer) => {
                    let it = &mut self.nodes[from].announced;
                    frames.extend(std::iter::from_fn(|| it.transmit(peer)).map(|f| (peer, f)));
                }
                announced::Output::Wanted(wanted) => self.say(from, usize::from(wanted[0]) - 1),
            }
        }
        for (peer, frame) in frames {
            let to = (peer.get() / 10 - 1) as usize;
            let arrives = self.arrives.get(&(from, to)).copied().unwrap_or(0);
            let time = arrives.max(self.now + self.rng.below(100 * MS));
            self.arrives.insert((from, to), time);
            let link = self.links[&(from.min(to), from.max(to))];
            self.at(time, Event::Frame(from, to, link, frame));
        }
    }

    /// What counts as announced was said at a number up to which the log is here.
    fn check_announced(&self) -> Result<(), String> {
        for (a, it) in self.nodes.iter().enumerate() {
            for b in (0..self.nodes.len()).filter(|b| *b != a) {
                for number in 0..ACCOUNTS {
                    let known = it.announced.known(account(number), 0, &[id(b)].into());
                    let said = self.said.get(&(b, number, known.clone()));
                    let here = it.memory.applied[b];
                    if !known.is_empty() && said.is_none_or(|said| *said > here) {
                        return Err(format!("{known:?} counts, said at {said:?}, here {here}"));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_end(&self, dead: Option<usize>) -> Result<(), String> {
        let now = self.clock();
        for (a, it) in self
            .nodes
            .iter()
            .enumerate()
            .filter(|(a, _)| dead != Some(*a))
        {
            for number in 0..ACCOUNTS {
                let readers = it.readers.peers(now, account(number));
                for (b, other) in self.nodes.iter().enumerate().filter(|(b, _)| *b != a) {
                    let reads = readers.iter().any(|heard| heard.peer == id(b));
                    if reads != other.reads[number] {
                        return Err(format!("{a} takes {b} for reading: {reads}"));
                    }
                }
                let counter = it.memory.counters[number];
                let mut living = readers
                    .iter()
                    .filter(|h| dead.is_none_or(|d| h.peer != id(d)));
                if living.any(|heard| heard.counter < counter) {
                    return Err(format!("{a} has not heard {counter}: {readers:?}"));
                }
                let others = (0..self.nodes.len()).filter(|b| *b != a && dead != Some(*b));
                for b in others.filter(|_| it.reads[number]) {
                    let known = it.announced.known(account(number), 0, &[id(b)].into());
                    let claimed = &self.nodes[b].disk.claimed[number];
                    if known != claimed.clone().into_iter().collect::<Vec<_>>() {
                        return Err(format!("{a} knows {known:?} of {b}: {claimed:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("a silent node has no readers", silent),
    ("readers that went with a link", older_link),
    ("what all have announced", least),
];

fn at(seconds: u64) -> Now {
    Now {
        wall_micros: 0,
        mono_micros: seconds * SECOND,
    }
}

fn told(reading: &[Account], anew: bool) -> whimbrel_replication::wire::Readers {
    let reading = reading
        .iter()
        .map(|account| whimbrel_replication::wire::Reading {
            account: *account,
            reading: true,
            counter: 1,
        });
    whimbrel_replication::wire::Readers {
        partition: PARTITION,
        upto: 0,
        accounts: reading.collect(),
        anew: anew.then_some(true),
    }
}

fn silent() -> Result<(), String> {
    let (mut readers, _) = machines(0);
    readers.linked(node(2));
    readers.received(at(0), node(2), told(&[account(0)], true));
    readers.unlinked(at(0), node(2));
    ensure(!readers.is_heard(at(2), account(0), 9), "it is waited for")?;
    ensure(readers.is_heard(at(3), account(0), 9), "while it is live")
}

fn older_link() -> Result<(), String> {
    let (mut readers, _) = machines(0);
    readers.linked(node(2));
    readers.received(at(0), node(2), told(&[account(0), account(1)], true));
    readers.linked(node(2));
    readers.received(at(1), node(2), told(&[account(1)], true));
    readers.time(at(4));
    ensure(readers.is_heard(at(4), account(0), 9), "nobody reads it")?;
    ensure(!readers.is_heard(at(4), account(1), 9), "this is read")
}

fn least() -> Result<(), String> {
    let (_, mut announced) = machines(0);
    let mut said = |peer: u64, epoch: u32, claimed: &[(u8, u32)]| {
        announced.linked(node(peer));
        announced.received(
            node(peer),
            Said {
                partition: PARTITION,
                upto: 0,
                account: account(0),
                vector: Default::default(),
                epoch: Some(epoch),
                claimed: Some(
                    claimed
                        .iter()
                        .map(|(slot, counter)| Claimed {
                            slot: *slot,
                            counter: *counter,
                        })
                        .collect(),
                ),
            },
        );
    };
    said(2, 7, &[(1, 10), (2, 20)]);
    said(3, 7, &[(1, 15), (3, 5)]);
    said(4, 6, &[(1, 99)]);
    let known = |epoch, others: &[u64]| {
        let others = others.iter().map(|id| node(*id)).collect();
        announced.known(account(0), epoch, &others)
    };
    ensure(known(7, &[2]) == [(1, 10), (2, 20)], "of one")?;
    ensure(known(7, &[2, 3]) == [(1, 10)], "of both")?;
    ensure(known(7, &[2, 5]).is_empty(), "who is silent hides all")?;
    ensure(known(7, &[2, 4]).is_empty(), "as who is in another epoch")
}
