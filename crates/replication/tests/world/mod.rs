//! A deterministic world: nodes, a network that loses, doubles and reorders, disks that forget what was not synced.
//!
//! `run(seed)` draws a setting, runs it, heals everything, and reports what went wrong. `checks` has the checks of every step.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod budget;
mod checks;
pub mod clocks;
mod disk;
pub mod explore;
mod leaving;
pub mod membership;
mod node;
pub mod readers;
mod release;
pub mod scenarios;
pub mod snapshots;
mod syncing;
pub mod transfer;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_replication::Now;
use whimbrel_replication::holders::Holders;
use whimbrel_replication::partition::{
    Config, Input, Membership, Output, Rows, StateConfig, StateInput, StateOutput, Ticket,
};
use whimbrel_replication::wire::{Frame, Room};

use checks::Made;
use disk::{Io, StateIo};
use node::Node;
pub use node::PARTITION;
use whimbrel_testkit::Rng;

const MS: u64 = 1000;
/// No history is that long: a longer one goes round in a circle.
const STEPS_MAX: u64 = 100_000;
const SECOND: u64 = 1_000_000;
/// When the world begins, by the wall clock.
pub const EPOCH: u64 = 1_700_000_000 * SECOND;

enum Event {
    Deliver {
        from: usize,
        to: usize,
        link: u64,
        frame: Frame,
        /// The members that its sender knew: they are sent first on each link.
        holders: Holders,
    },
    Transmit {
        from: usize,
        to: usize,
        link: u64,
    },
    Synced {
        node: usize,
        generation: u64,
    },
    /// The answer to a read.
    Answer {
        node: usize,
        generation: u64,
        input: Input,
    },
    Sponsor(usize),
    Timer {
        node: usize,
        at: u64,
    },
    Write(usize),
    Crash(usize),
    Start(usize),
    Flap(usize, usize),
    Window(usize, usize, Room),
    Cut(usize, usize),
    Mend(usize, usize),
    Skew(usize, u64),
    /// Steps of leaving: a node leaves the partition, if others hold it; goes on with that; comes back; tells another node who holds it.
    Leave(usize),
    GoOnLeaving(usize),
    Return(usize),
    Tell(usize),
    Quiet,
}

/// What a seed draws.
#[derive(Debug)]
struct Setting {
    nodes: usize,
    /// The last nodes, which are sponsored later and begin with nothing.
    newcomers: usize,
    /// One frame in so many is lost; 0: streams as they are, in order.
    lossy: u64,
    latency: u64,
    sync: u64,
    writes: u64,
    large: bool,
    crashes: u64,
    cuts: u64,
    flaps: u64,
    skewed: bool,
    /// How often a node leaves the partition.
    leaves: u64,
    /// A node that dies in the end and never comes back.
    dead: Option<usize>,
}

pub struct World {
    rng: Rng,
    setting: Setting,
    config: Config,
    /// Numbers that a log keeps for members that are away.
    kept_for_absent: u64,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    steps: u64,
    nodes: Vec<Node>,
    members: Vec<Incarnation>,
    /// Numbers the links between two nodes.
    links: BTreeMap<(usize, usize), u64>,
    cuts: BTreeMap<(usize, usize), u64>,
    /// Streams that keep their order: when the last frame arrives.
    arrives: BTreeMap<(usize, usize), u64>,
    quiet: bool,
    made: Made,
    /// The holders of the partition, as each node knows them.
    holders: Vec<Holders>,
    /// The nodes that have confirmed to a leaving node that they have this.
    confirmed: BTreeMap<usize, BTreeMap<usize, VersionVector>>,
    /// By which batch a newcomer joined.
    joins: BTreeMap<Incarnation, Dot>,
    /// What happened, for tests that want it to have happened.
    pub joined: u64,
    pub joined_by_members: u64,
    pub resumed: u64,
    pub written_meanwhile: u64,
    pub left: u64,
    pub returned: u64,
    /// While a state is taken: after so many events something happens to it.
    trouble: Option<(u64, Trouble)>,
    taking_steps: u64,
}

/// What happens to a transfer.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    ReceiverCrashes,
    DonorsCrash,
    LinksBreak,
}

/// All named histories.
pub fn named() -> impl Iterator<Item = &'static (&'static str, scenarios::Scenario)> {
    let all = scenarios::SCENARIOS.iter().chain(snapshots::SCENARIOS);
    let all = all.chain(readers::SCENARIOS).chain(clocks::SCENARIOS);
    let all = all.chain(budget::SCENARIOS).chain(release::SCENARIOS);
    all.chain(transfer::SCENARIOS).chain(membership::SCENARIOS)
}

/// Runs a seed to its end.
pub fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    let end = world.play();
    end.map_err(|error| {
        format!(
            "seed {seed}, {} ms: {error}\n  {:?}",
            world.now / MS,
            world.setting
        )
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let founders = rng.between(2, 5) as usize;
        let newcomers = if rng.one_in(3) { 1 } else { 0 };
        let nodes = founders + newcomers;
        let lossy = if rng.one_in(2) { rng.between(5, 50) } else { 0 };
        let latency = rng.between(1, 120) * MS;
        let setting = Setting {
            nodes,
            newcomers,
            lossy,
            latency,
            sync: rng.between(1, 40) * MS,
            writes: rng.between(20, 150),
            large: rng.one_in(3),
            crashes: rng.below(5),
            cuts: rng.below(6),
            flaps: rng.below(4),
            skewed: rng.one_in(8),
            leaves: if rng.one_in(2) { rng.below(6) } else { 0 },
            dead: rng.one_in(4).then(|| rng.below(founders as u64) as usize),
        };
        let config = Config {
            window_bytes: 8 << 10,
            window_batches: 16,
            applying_bytes_max: 8 << 10,
            read_bytes_max: 4 << 10,
            frame_bytes_max: 2 << 10,
            kept: rng.below(20),
            cut_step: 1 + rng.below(10),
            state: StateConfig {
                window_bytes: 1 << 10,
                chunk_bytes: 200,
                gives_max: 1 + rng.below(2) as usize,
                ..StateConfig::default()
            },
            ..Config::default()
        };
        let kept_for_absent = match rng.one_in(3) {
            true => rng.between(1, 30),
            false => 1 << 20,
        };
        let members: Vec<Incarnation> = (1..=nodes as u64)
            .map(|id| Incarnation::new(id * 10).expect("not zero"))
            .collect();
        Self {
            rng,
            setting,
            config,
            kept_for_absent,
            now: 0,
            events: BTreeMap::new(),
            count: 0,
            steps: 0,
            nodes: (0..nodes)
                .map(|node| Node::new(members[node], node >= founders))
                .collect(),
            members,
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            arrives: BTreeMap::new(),
            quiet: false,
            made: Made::default(),
            holders: vec![Holders::default(); nodes],
            confirmed: BTreeMap::new(),
            joins: BTreeMap::new(),
            joined: 0,
            joined_by_members: 0,
            resumed: 0,
            written_meanwhile: 0,
            left: 0,
            returned: 0,
            trouble: None,
            taking_steps: 0,
        }
    }

    fn founders(&self) -> usize {
        self.setting.nodes - self.setting.newcomers
    }

    /// Whether a node is a member and has applied that.
    fn takes_part(&self, node: usize) -> bool {
        let join = self.joins.get(&self.members[node]);
        let joined = node < self.founders()
            || join.is_some_and(|dot| self.nodes[node].disk.applied.covers(*dot));
        joined && !self.is_away(node) && !self.nodes[node].syncing
    }

    /// Who belongs, by what is applied at a node.
    fn members_at(&self, node: usize) -> BTreeMap<Incarnation, Membership> {
        let applied = &self.nodes[node].disk.applied;
        let joined = self.joins.iter().filter(|(_, dot)| applied.covers(**dot));
        let founders = self.members[..self.founders()].iter().copied();
        let mut members: BTreeSet<Incarnation> =
            founders.chain(joined.map(|(id, _)| *id)).collect();
        members.insert(self.members[node]);
        let standings = self.holders[node].of(PARTITION, members).into_iter();
        standings
            .map(|(id, holder_state)| (id, holder_state.membership()))
            .collect()
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    fn clock(&self, node: usize) -> Now {
        Now {
            wall_micros: EPOCH + self.now + self.nodes[node].skew,
            mono_micros: self.now,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        let length = self.rng.between(2, 20) * SECOND;
        self.plan(length);
        self.go_on(length)
    }

    fn go_on(&mut self, length: u64) -> Result<(), String> {
        loop {
            let Some(((time, _), event)) = self.events.pop_first() else {
                return Err("nothing happens any more".into());
            };
            self.now = time;
            self.happen(event)?;
            self.make_trouble()?;
            self.steps += 1;
            let look = self.events.is_empty() || self.steps.is_multiple_of(16);
            if self.quiet && look && self.settled() {
                return self.check_end();
            }
            if time > length + 3600 * SECOND || self.steps > STEPS_MAX {
                return Err(format!("no end: {}", self.differences()));
            }
        }
    }

    fn plan(&mut self, length: u64) {
        let nodes = self.setting.nodes as u64;
        let founders = self.founders();
        for node in 0..founders {
            self.at(0, Event::Start(node));
        }
        for node in founders..self.setting.nodes {
            let time = self.rng.below(length);
            self.at(time, Event::Sponsor(node));
            let time = self.rng.below(length);
            self.at(time, Event::Start(node));
        }
        for _ in 0..self.setting.writes {
            let event = Event::Write(self.rng.below(nodes) as usize);
            let time = self.rng.below(length);
            self.at(time, event);
        }
        for _ in 0..self.setting.crashes {
            let node = self.rng.below(nodes) as usize;
            let time = self.rng.below(length);
            let back = time + self.rng.below(3 * SECOND);
            self.at(time, Event::Crash(node));
            self.at(back, Event::Start(node));
        }
        for _ in 0..self.setting.cuts {
            let (a, b) = self.pair();
            let both = self.rng.one_in(2);
            let time = self.rng.below(length);
            let back = time + self.rng.below(8 * SECOND);
            self.at(time, Event::Cut(a, b));
            self.at(back, Event::Mend(a, b));
            if both {
                self.at(time, Event::Cut(b, a));
                self.at(back, Event::Mend(b, a));
            }
        }
        for _ in 0..self.setting.flaps {
            let (a, b) = self.pair();
            let time = self.rng.below(length);
            self.at(time, Event::Flap(a, b));
        }
        for _ in 0..self.rng.below(6) {
            let (a, b) = self.pair();
            let time = self.rng.below(length);
            let window = Room {
                bytes: self.rng.between(100, 10 << 10),
                batches: self.rng.between(1, 20) as u32,
            };
            self.at(time, Event::Window(a, b, window));
        }
        if self.setting.skewed {
            let node = self.rng.below(nodes) as usize;
            let time = self.rng.below(length);
            let skew = self.rng.between(400, 900) * SECOND;
            self.at(time, Event::Skew(node, skew));
        }
        for _ in 0..self.setting.leaves {
            let node = self.rng.below(nodes) as usize;
            let time = self.rng.below(length);
            let back = time + self.rng.below(6 * SECOND);
            self.at(time, Event::Leave(node));
            self.at(back, Event::Return(node));
        }
        if self.setting.leaves > 0 {
            for node in 0..self.setting.nodes {
                self.at(0, Event::Tell(node));
            }
        }
        if let Some(node) = self.setting.dead {
            self.at(length, Event::Crash(node));
        }
        self.at(length + 1, Event::Quiet);
    }

    fn pair(&mut self) -> (usize, usize) {
        let nodes = self.setting.nodes as u64;
        let a = self.rng.below(nodes);
        let b = (a + 1 + self.rng.below(nodes - 1)) % nodes;
        (a as usize, b as usize)
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver {
                from,
                to,
                link,
                frame,
                holders,
            } => {
                if self.link(from, to) == link {
                    self.hear(to, &holders)?;
                    let peer = self.members[from];
                    self.input(to, Input::Received(peer, frame))?;
                }
                Ok(())
            }
            Event::Transmit { from, to, link } if self.link(from, to) == link => {
                self.transmit(from, to)
            }
            Event::Synced { node, generation } if self.nodes[node].generation == generation => {
                self.synced(node)
            }
            Event::Answer {
                node,
                generation,
                input,
            } if self.nodes[node].generation == generation => self.input(node, input),
            Event::Sponsor(node) => {
                self.sponsor(node);
                Ok(())
            }
            Event::Timer { node, at } if self.nodes[node].timer == Some(at) => {
                self.nodes[node].timer = None;
                self.input(node, Input::Time)
            }
            Event::Write(node) if self.nodes[node].machine.is_some() && self.writes(node) => {
                self.write(node);
                Ok(())
            }
            Event::Leave(node) => self.leave(node),
            Event::GoOnLeaving(node) => self.go_on_leaving(node),
            Event::Return(node) => self.come_back(node),
            Event::Tell(node) => self.tell(node),
            Event::Crash(node) if !self.is_away(node) => self.crash(node),
            Event::Start(node)
                if self.nodes[node].machine.is_none()
                    && !self.is_away(node)
                    && !(self.quiet && self.setting.dead == Some(node)) =>
            {
                self.start(node)
            }
            Event::Flap(a, b) => self.connect(a, b),
            Event::Window(node, peer, window) => {
                let peer = self.members[peer];
                if let Some(machine) = self.nodes[node].machine.as_mut() {
                    machine.set_window(peer, window);
                }
                self.outputs(node)
            }
            Event::Cut(a, b) => {
                *self.cuts.entry((a, b)).or_default() += 1;
                Ok(())
            }
            Event::Mend(a, b) => {
                if let Some(count) = self.cuts.get_mut(&(a, b)) {
                    *count = count.saturating_sub(1);
                }
                Ok(())
            }
            Event::Skew(node, skew) => {
                self.nodes[node].skew = skew;
                Ok(())
            }
            Event::Quiet => {
                self.quiet = true;
                self.cuts.clear();
                // A batch that no node knows was not made.
                for node in self.founders()..self.setting.nodes {
                    self.at(self.now, Event::Sponsor(node));
                }
                for node in 0..self.setting.nodes {
                    self.nodes[node].skew = 0;
                    let down = self.nodes[node].machine.is_none() && !self.is_away(node);
                    if down && self.setting.dead != Some(node) {
                        self.start(node)?;
                    }
                    self.end_leaving(node)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn link(&self, a: usize, b: usize) -> u64 {
        let key = (a.min(b), a.max(b));
        self.links.get(&key).copied().unwrap_or(0)
    }

    /// A new link between two nodes that are up; what was on the old one is lost.
    fn connect(&mut self, a: usize, b: usize) -> Result<(), String> {
        *self.links.entry((a.min(b), a.max(b))).or_default() += 1;
        self.arrives.remove(&(a, b));
        self.arrives.remove(&(b, a));
        let down = |node: usize| self.nodes[node].machine.is_none() && !self.is_away(node);
        if down(a) || down(b) {
            return Ok(());
        }
        self.input(a, Input::Linked(self.members[b]))?;
        self.input(b, Input::Linked(self.members[a]))
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        let config = self.config;
        let (now, members) = (self.clock(node), self.members_at(node));
        self.resumed += u64::from(self.nodes[node].disk.held.is_some());
        self.nodes[node].start(config, now, members)?;
        self.take_as_it_stands(node);
        // As a server does: if no other node holds the partition, everything here is stable.
        let members = self.nodes[node].members.clone();
        self.input(node, Input::Members(members))?;
        for other in 0..self.setting.nodes {
            if other != node {
                self.connect(node, other)?;
            }
        }
        Ok(())
    }

    /// What was not synced is lost, but for a first part.
    fn crash(&mut self, node: usize) -> Result<(), String> {
        let waiting = self.nodes[node].disk.waiting.len() as u64;
        let survives = self.rng.below(waiting + 1) as usize;
        let it = &mut self.nodes[node];
        it.machine = None;
        it.generation += 1;
        it.timer = None;
        it.disk.sync(survives);
        it.disk.waiting.clear();
        it.disk.syncing = 0;
        it.snapshots.clear();
        let id = it.id;
        let survived = self.nodes[node].disk.durable.get(id);
        self.made.survived(id, survived);
        let lost = |dot: &Dot| dot.origin == id && dot.seq > survived;
        for newcomer in self.founders()..self.setting.nodes {
            if self.joins.get(&self.members[newcomer]).is_some_and(lost) {
                self.joins.remove(&self.members[newcomer]);
                self.at(self.now + SECOND, Event::Sponsor(newcomer));
            }
        }
        for other in 0..self.setting.nodes {
            if other != node {
                *self
                    .links
                    .entry((node.min(other), node.max(other)))
                    .or_default() += 1;
                if self.nodes[other].machine.is_some() {
                    self.input(other, Input::Unlinked(id))?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, node: usize) {
        let bytes = if self.setting.large && self.rng.one_in(10) {
            self.rng.between(4 << 10, 20 << 10)
        } else {
            self.rng.below(600)
        };
        let count = self.rng.between(1, 3) as u32;
        let machine = self.nodes[node].machine.as_ref();
        self.written_meanwhile += u64::from(machine.is_some_and(|m| m.takes_state()));
        let wall = EPOCH + self.now;
        self.nodes[node].write(wall, count, bytes as usize);
        self.made.wrote(&self.nodes[node].disk.waiting);
        self.sync(node);
    }

    /// Begins a sync of all that waits, if none is under way.
    fn sync(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.disk.syncing > 0 || it.disk.waiting.is_empty() {
            return;
        }
        it.disk.syncing = it.disk.waiting.len();
        let generation = it.generation;
        let slow = if self.rng.one_in(20) { 10 } else { 1 };
        let time = self.now + 1 + self.rng.below(self.setting.sync * slow);
        self.at(time, Event::Synced { node, generation });
    }

    fn synced(&mut self, node: usize) -> Result<(), String> {
        let count = std::mem::take(&mut self.nodes[node].disk.syncing);
        let done = self.nodes[node].disk.sync(count);
        // Before the batch of the sponsoring counts as applied: nothing becomes stable without the new member.
        let members = self.members_at(node);
        if members != self.nodes[node].members {
            self.nodes[node].members.clone_from(&members);
            self.input(node, Input::Members(members))?;
        }
        for input in done.into_iter().filter_map(Io::input) {
            self.input(node, input)?;
        }
        self.sync(node);
        self.go_on_leaving(node)
    }

    fn transmit(&mut self, from: usize, to: usize) -> Result<(), String> {
        let now = self.clock(from);
        let peer = self.members[to];
        let link = self.link(from, to);
        let Some(machine) = self.nodes[from].machine.as_mut() else {
            return Ok(());
        };
        // A stream may have no room for rows for a while.
        let small = self
            .rng
            .one_in(8)
            .then(|| machine.transmit_small(now, peer));
        let frame = small.flatten().or_else(|| machine.transmit(now, peer));
        let Some(frame) = frame else {
            return Ok(());
        };
        self.nodes[from].check_sent(peer, &frame)?;
        let lossy = self.setting.lossy > 0 && !self.quiet;
        let cut = self.cuts.get(&(from, to)).is_some_and(|count| *count > 0);
        // No stream loses how it begins and keeps what follows; where nobody comes back that is tried all the same, since acknowledgements make good for it.
        let begins = match &frame {
            Frame::Hello(hello) => hello.lives.is_some() || self.nodes[to].syncing,
            _ => false,
        };
        let lost = (cut || (lossy && self.rng.one_in(self.setting.lossy))) && !begins;
        let copies = 1 + u64::from(lossy && self.rng.one_in(self.setting.lossy));
        for _ in 0..if lost { 0 } else { copies } {
            let mut time = self.now + self.setting.latency;
            if lossy {
                time += self.rng.below(self.setting.latency * 2);
            } else {
                time = time.max(self.arrives.get(&(from, to)).copied().unwrap_or(0));
                self.arrives.insert((from, to), time);
            }
            let (frame, holders) = (frame.clone(), self.holders[from].clone());
            let event = Event::Deliver {
                from,
                to,
                link,
                frame,
                holders,
            };
            self.at(time, event);
        }
        let time = self.now + self.rng.below(2 * MS);
        self.at(time, Event::Transmit { from, to, link });
        Ok(())
    }

    fn input(&mut self, node: usize, input: Input) -> Result<(), String> {
        let now = self.clock(node);
        let Some(machine) = self.nodes[node].machine.as_mut() else {
            return Ok(());
        };
        machine.handle(now, input);
        for (origin, holding) in machine.holder_state().logs {
            let upto = holding.applied.saturating_sub(self.kept_for_absent);
            machine.handle(now, Input::GiveUp(origin, upto));
        }
        self.outputs(node)
    }

    fn outputs(&mut self, node: usize) -> Result<(), String> {
        let wall = EPOCH + self.now;
        let ahead = self.config.ahead_micros_max;
        while let Some(output) = self.nodes[node].machine.as_mut().and_then(|m| m.poll()) {
            match output {
                Output::Store {
                    ticket,
                    foreign,
                    apply,
                } => {
                    self.nodes[node].commit_foreign(ticket, &foreign, apply, (wall, ahead))?;
                    self.sync(node);
                }
                Output::Apply { ticket, batch } => {
                    self.nodes[node].commit_applied(ticket, &batch, (wall, ahead))?;
                    self.sync(node);
                }
                Output::Read {
                    ticket,
                    origin,
                    from,
                    bytes_max,
                } => {
                    let entries = self.nodes[node].disk.read(origin, from, bytes_max);
                    self.answer(node, Input::Log(ticket, entries));
                }
                Output::State(output) => self.state_output(node, output)?,
                Output::Behind { .. } => {}
                Output::Grown => self.nodes[node].syncing = false,
                Output::Wake(peer) => {
                    let to = self.members.iter().position(|id| *id == peer).unwrap();
                    let link = self.link(node, to);
                    let event = Event::Transmit {
                        from: node,
                        to,
                        link,
                    };
                    self.at(self.now, event);
                }
                Output::Cut { origin, below } => {
                    self.check_cut(node, origin, below)?;
                    self.nodes[node].disk.cut(origin, below);
                }
                Output::Stable(vector) => self.check_stable(node, &vector)?,
                Output::Alarm(alarm) => self.check_alarm(&alarm)?,
                Output::Stop(_) | Output::Fatal(_) => {
                    return Err(format!("{output:?}"));
                }
            }
        }
        self.check_memory(node)?;
        let now = self.clock(node);
        let Some(machine) = self.nodes[node].machine.as_ref() else {
            return Ok(());
        };
        if let Some(deadline) = machine.deadline(now) {
            let at = deadline.max(self.now + 1);
            if self.nodes[node].timer.is_none_or(|timer| timer > at) {
                self.nodes[node].timer = Some(at);
                self.at(at, Event::Timer { node, at });
            }
        }
        Ok(())
    }
}
