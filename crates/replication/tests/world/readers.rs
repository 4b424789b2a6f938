//! Random histories of readers: claims, counters reported and heard, links and nodes that break, and reports of what is visible.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, VersionVector};
use whimbrel_replication::Now;
use whimbrel_replication::announced::{self, Announced, EXCEPTED_MAX};
use whimbrel_replication::readers::{self, Config, Readers};
use whimbrel_replication::wire::{Account, Announced as Told, Frame};

use super::scenarios::{Scenario, ensure, node};
use super::{MS, PARTITION, SECOND};
use whimbrel_testkit::Rng;

const ACCOUNTS: usize = 2;

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
}

impl State {
    /// What is applied at this node, its own log among it.
    fn vector(&self, node: usize) -> VersionVector {
        let others = self.applied.iter().enumerate();
        let others = others.map(|(other, number)| (id(other), *number));
        let own = (id(node), self.own.len() as u64);
        others
            .chain([own])
            .filter(|(_, number)| *number > 0)
            .collect()
    }
}

/// By whom, of which account, up to where.
type Said = (usize, usize, Vec<(Incarnation, u64)>);

struct Node {
    up: bool,
    memory: State,
    disk: State,
    reads: [bool; ACCOUNTS],
    readers: Readers,
    announced: Announced,
    /// What is kept of what others announced.
    row: Option<Vec<u8>>,
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
    /// The two have no link from now on, or may have one again.
    Part(usize, usize),
    Meet(usize, usize),
}

struct Histories {
    rng: Rng,
    now: u64,
    count: u64,
    events: BTreeMap<(u64, u64), Event>,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize), u64>,
    /// Two that have no link.
    apart: Option<(usize, usize)>,
    arrives: BTreeMap<(usize, usize), u64>,
    /// What each node said of each account.
    said: BTreeSet<Said>,
}

fn account(number: usize) -> Account {
    [number as u8 + 1; 16]
}

fn id(number: usize) -> Incarnation {
    node(number as u64 * 10 + 10)
}

/// Of node `me`, whose log is durable up to `own`.
fn machines(me: usize, own: usize) -> (Readers, Announced) {
    let readers = Readers::new(Config::default(), PARTITION, id(me), own as u64);
    (readers, kept(None, &VersionVector::new()))
}

fn kept(row: Option<&[u8]>, applied: &VersionVector) -> Announced {
    Announced::resume(PARTITION, row, applied).expect("a sound row")
}

pub fn run(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let nodes = rng.between(2, 4) as usize;
    let mut histories = Histories {
        rng,
        now: 0,
        count: 0,
        events: BTreeMap::new(),
        nodes: Vec::new(),
        links: BTreeMap::new(),
        apart: None,
        arrives: BTreeMap::new(),
        said: BTreeSet::new(),
    };
    for node in 0..nodes {
        let (readers, announced) = machines(node, 0);
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
            row: None,
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
        if nodes > 2 && self.rng.one_in(2) {
            let (a, b) = (self.rng.below(nodes), self.rng.below(nodes - 1));
            let (a, b) = (a as usize, ((a + 1 + b) % nodes) as usize);
            let time = self.rng.below(length);
            self.at(time, Event::Part(a, b));
            if self.rng.one_in(2) {
                let time = time + self.rng.below(5 * SECOND);
                self.at(time, Event::Meet(a, b));
            }
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
            self.at(16 * SECOND, Event::Sync(node));
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
        // Readers that time out are forgotten.
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
                        Frame::Links(told) => it.readers.received_links(id(from), told),
                        Frame::ReadersOf(told) => it.readers.received_of(now, id(from), told),
                        Frame::Announced(told) => {
                            let here = it.memory.vector(to);
                            it.announced.received(id(from), told, &here);
                        }
                        _ => {}
                    }
                }
            }
            Event::Crash(node) if self.nodes[node].up => {
                let it = &mut self.nodes[node];
                it.up = false;
                it.memory = it.disk.clone();
                it.reads = [false; ACCOUNTS];
                it.readers = machines(node, it.disk.own.len()).0;
                it.announced = kept(it.row.as_deref(), &it.disk.vector(node));
                for other in 0..self.nodes.len() {
                    self.unlink(node, other);
                }
            }
            Event::Start(node) if !self.nodes[node].up => {
                let it = &mut self.nodes[node];
                it.up = true;
                for (other, number) in it.disk.applied.iter().enumerate() {
                    it.readers.applied(id(other), *number, &[]);
                }
                self.say(node, None);
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.link(node, other);
                }
            }
            Event::Flap(a, b) => self.link(a, b),
            Event::Part(a, b) => {
                self.apart = Some((a.min(b), a.max(b)));
                self.unlink(a, b);
            }
            Event::Meet(a, b) => {
                self.apart = None;
                self.link(a, b);
            }
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
        let apart = self.apart == Some((a.min(b), a.max(b)));
        if apart || !self.nodes[a].up || !self.nodes[b].up {
            return;
        }
        let now = self.clock();
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from].readers.linked(now, id(to));
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
        it.row = it.announced.row().or(it.row.take());
        let hidden = self.rng.one_in(4) && self.now < 12 * SECOND;
        let hidden = hidden.then(|| self.rng.below(ACCOUNTS as u64) as usize);
        self.say(node, hidden);
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            // By whatever way, beside the frames.
            let time = self.now + self.rng.below(300 * MS);
            self.at(time, Event::Log(node, to, own));
        }
    }

    fn say(&mut self, node: usize, hidden: Option<usize>) {
        let it = &mut self.nodes[node];
        let vector = it.disk.vector(node);
        for number in (0..ACCOUNTS).filter(|number| Some(*number) != hidden) {
            self.said.insert((node, number, vector.iter().collect()));
        }
        let except = hidden.map(account).into_iter().collect();
        it.announced.say(vector, except);
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
            it.memory.applied[from] += 1;
        }
        if !sections.is_empty() {
            let number = it.memory.applied[from];
            it.readers.applied(id(from), number, &sections);
            it.announced.applied(&it.memory.vector(to));
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
                readers::Output::Reads { .. }
                | readers::Output::RemoteReaders(_)
                | readers::Output::Passes => {}
            }
        }
        while let Some(output) = self.nodes[from].announced.poll() {
            match output {
                announced::Output::Wake(peer) => {
                    let it = &mut self.nodes[from].announced;
                    frames.extend(std::iter::from_fn(|| it.transmit(peer)).map(|f| (peer, f)));
                }
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

    /// A counter that counts for an account was reported for it, at a number up to which the log is here.
    fn check_announced(&self) -> Result<(), String> {
        for (a, it) in self.nodes.iter().enumerate() {
            for b in (0..self.nodes.len()).filter(|b| *b != a) {
                for number in 0..ACCOUNTS {
                    let shown = it.announced.visible_vector(id(b), account(number));
                    let Some(shown) = shown.filter(|shown| shown.iter().next().is_some()) else {
                        continue;
                    };
                    let here = it.memory.applied[b];
                    if shown.get(id(b)) > here {
                        return Err(format!("{shown:?} of {b} counts, here is {here}"));
                    }
                    if !self.said.contains(&(b, number, shown.iter().collect())) {
                        return Err(format!("{b} never said {shown:?} of {number}"));
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
                    // By a third node, if there is one.
                    let apart = self.apart == Some((a.min(b), a.max(b)));
                    let between = (0..self.nodes.len())
                        .any(|of| of != a && of != b && dead != Some(of) && dead != Some(b));
                    let expected = other.reads[number] && (!apart || between);
                    if reads != expected {
                        return Err(format!(
                            "{a} takes {b} for reading: {reads} (no link: {:?}, dead: {dead:?})",
                            self.apart
                        ));
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
                let others = others.filter(|b| self.apart != Some((a.min(*b), a.max(*b))));
                for b in others {
                    let shown = it.announced.visible_vector(id(b), account(number));
                    let vector = self.nodes[b].disk.vector(b);
                    if shown != Some(&vector) {
                        return Err(format!("{a} knows {shown:?} of {b}: {vector:?}"));
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
    ("an account that a report excepts", excepted),
    ("who is new is told of who is gone", told_by_others),
    ("a report of which nothing is here yet", early),
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
    let (mut readers, _) = machines(0, 0);
    readers.linked(at(0), node(2));
    readers.received(at(0), node(2), told(&[account(0)], true));
    readers.unlinked(at(0), node(2));
    ensure(!readers.is_heard(at(2), account(0), 9), "it is waited for")?;
    ensure(readers.is_heard(at(3), account(0), 9), "while it is live")
}

fn older_link() -> Result<(), String> {
    let (mut readers, _) = machines(0, 0);
    readers.linked(at(0), node(2));
    readers.received(at(0), node(2), told(&[account(0), account(1)], true));
    readers.linked(at(0), node(2));
    readers.received(at(1), node(2), told(&[account(1)], true));
    readers.time(at(4));
    ensure(readers.is_heard(at(4), account(0), 9), "nobody reads it")?;
    ensure(!readers.is_heard(at(4), account(1), 9), "this is read")
}

fn report(own: u64, of_us: u64, except: &[Account]) -> Told {
    Told {
        partition: PARTITION,
        vector: [(node(2), own), (node(1), of_us)].into_iter().collect(),
        except: except.to_vec(),
    }
}

/// All of our own log, and so much of the other's.
fn here(own: u64) -> VersionVector {
    [(node(2), own), (node(1), 100)].into_iter().collect()
}

fn excepted() -> Result<(), String> {
    let (_, mut announced) = machines(0, 0);
    announced.linked(node(2));
    announced.received(node(2), report(5, 10, &[]), &here(5));
    announced.received(node(2), report(6, 20, &[account(0)]), &here(6));
    announced.received(node(2), report(7, 30, &[account(0)]), &here(7));
    let shown = |announced: &Announced, number: usize| {
        let shown = announced.visible_vector(node(2), account(number));
        shown.map(|shown| shown.get(node(1)))
    };
    ensure(
        shown(&announced, 0) == Some(10),
        "what counted before it was excepted",
    )?;
    ensure(shown(&announced, 1) == Some(30), "of all others the newest")?;
    let hidden_ops = |announced: &Announced| {
        let applied = [(node(2), 5), (node(1), 30)].into_iter().collect();
        announced.hidden_ops(&applied, [node(2)].into_iter())
    };
    ensure(
        hidden_ops(&announced) == 20,
        "of one account 20 are not shown",
    )?;
    // More exceptions than allowed: it is not known in which other accounts something is hidden.
    let many: Vec<Account> = (0..=EXCEPTED_MAX).map(account).collect();
    announced.received(node(2), report(8, 40, &many), &here(8));
    ensure(shown(&announced, 1) == Some(30), "it is not taken")?;
    // It is kept as it counts; and what a crash took back of the log takes it back.
    let row = announced.row().ok_or("there is something to keep")?;
    ensure(announced.row().is_none(), "it is kept once")?;
    let again = kept(Some(&row), &here(7));
    ensure(
        shown(&again, 0) == Some(10) && shown(&again, 1) == Some(30),
        "kept",
    )?;
    ensure(
        shown(&kept(Some(&row), &here(6)), 1).is_none(),
        "taken back",
    )?;
    announced.received(node(2), report(9, 50, &[]), &here(9));
    ensure(
        shown(&announced, 0) == Some(50),
        "nothing is hidden any more",
    )?;
    ensure(hidden_ops(&announced) == 0, "of no account")?;
    ensure(
        announced.visible_vector(node(3), account(0)).is_none(),
        "who is silent",
    )
}

/// A new node never hears a member that is gone: another node passes on what that one had made visible.
fn told_by_others() -> Result<(), String> {
    let (_, mut old) = machines(0, 0);
    old.linked(node(2));
    old.received(node(2), report(5, 10, &[]), &here(5));
    old.received(node(2), report(6, 20, &[account(0)]), &here(6));
    old.unlinked(node(2));
    let (_, mut new) = machines(2, 2);
    old.linked(node(3));
    new.linked(node(1));
    ensure(
        old.transmit(node(3)).is_none(),
        "who is not new has heard it",
    )?;
    old.is_new(node(3));
    let mut told = Vec::new();
    while let Some(frame) = old.transmit(node(3)) {
        let Frame::VisibleVector(of) = frame else {
            return Err(format!("{frame:?}"));
        };
        told.push(of);
    }
    ensure(
        told.len() == 1 && told[0].member == node(2),
        "of one member",
    )?;
    let shown = |announced: &Announced, number: usize| {
        let shown = announced.visible_vector(node(2), account(number));
        shown.map(|shown| shown.get(node(1)))
    };
    new.received_of(told[0].clone(), &here(5));
    ensure(shown(&new, 1).is_none(), "its log is not here so far")?;
    ensure(
        new.all_visible(account(1)).len() == 1,
        "what it rests on is kept from now on",
    )?;
    new.applied(&here(6));
    ensure(
        shown(&new, 0) == Some(10) && shown(&new, 1) == Some(20),
        "all counts",
    )?;
    // A lesser report changes nothing; nor does a report about a node that reports itself.
    let mut less = told[0].clone();
    less.vector = report(5, 10, &[]).vector;
    new.received_of(less, &here(6));
    ensure(shown(&new, 1) == Some(20), "less is not taken")?;
    new.linked(node(2));
    let mut more = told[0].clone();
    more.vector = report(6, 30, &[]).vector;
    new.received_of(more.clone(), &here(6));
    ensure(shown(&new, 1) == Some(20), "it is linked")?;
    new.unlinked(node(2));
    new.received_of(more, &here(6));
    ensure(shown(&new, 1) == Some(30), "it is not")?;
    let row = new.row().ok_or("there is something to keep")?;
    ensure(shown(&kept(Some(&row), &here(6)), 1) == Some(30), "kept")
}

/// Each report is ahead of what is here, and the next one comes before that is: the first of them counts when it can.
fn early() -> Result<(), String> {
    let (_, mut announced) = machines(0, 0);
    announced.linked(node(2));
    announced.received(node(2), report(5, 10, &[]), &here(4));
    announced.received(node(2), report(6, 20, &[]), &here(4));
    announced.received(node(2), report(7, 30, &[]), &here(4));
    ensure(
        announced.visible_vector(node(2), account(0)).is_none(),
        "nothing counts",
    )?;
    announced.applied(&here(5));
    let shown = announced.visible_vector(node(2), account(0));
    ensure(
        shown.map(|shown| shown.get(node(1))) == Some(10),
        "the first",
    )?;
    announced.applied(&here(9));
    let shown = announced.visible_vector(node(2), account(0));
    ensure(
        shown.map(|shown| shown.get(node(1))) == Some(30),
        "the newest",
    )
}
