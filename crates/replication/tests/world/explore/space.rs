//! A state of the whole world, and what can be next.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_replication::Now;
use whimbrel_replication::holders::Holders;
use whimbrel_replication::members::Ends;
use whimbrel_replication::partition::{Config, Input, Membership, Snapshot, StateConfig, Ticket};
use whimbrel_replication::roster::Roster;
use whimbrel_replication::wire::Frame;

use super::{Bounds, removing};
use crate::world::{
    EPOCH, SECOND,
    checks::Made,
    disk::Io,
    node::{Node, PARTITION},
};

/// Longer than all times of the machine.
const TICK_MICROS: u64 = 70 * SECOND;
/// After so many of them without any fault all have to be alike.
const HEALING_TICKS_MAX: usize = 12;
/// No healing is that long: something turns in a circle.
const HEALING_ROUNDS_MAX: usize = 500;
const BATCH_BYTES: usize = 8;

/// What can be next. Nodes are named by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client writes.
    Write(usize),
    /// The first of what waits for the disk is durable.
    Sync(usize),
    /// The first of what was asked for was read.
    Answer(usize),
    /// A frame is made for a stream that has room.
    Transmit(usize, usize),
    Deliver(usize, usize),
    Lose(usize, usize),
    Double(usize, usize),
    Cut(usize, usize),
    Link(usize, usize),
    /// So much of what waited is durable all the same.
    Crash(usize, usize),
    Start(usize),
    Tick,
    GiveUp(usize),
    Sponsor,
    Leave(usize),
    /// A node that leaves asks another one whether it has all.
    Ask(usize, usize),
    Away(usize),
    Return(usize),
    /// A node hears from another one who holds the partition, and who belongs.
    Tell(usize, usize),
    /// The first node removes the last.
    Remove,
    /// A node looks at what it holds of the removed one's log.
    Settle(usize),
}

/// What may still happen.
#[derive(Clone, Copy, Hash)]
pub(super) struct Left {
    pub(super) writes: [u8; 4],
    losses: u8,
    doubles: u8,
    cuts: u8,
    crashes: u8,
    ticks: u8,
    give_ups: u8,
    sponsors: u8,
    pub(super) leaves: [u8; 4],
    pub(super) removals: u8,
}

/// What the machine has asked for.
#[derive(Clone, Hash)]
pub(super) enum Asked {
    Log(Incarnation, u64, usize),
    /// It was fixed when it was asked for.
    Snapshot(Snapshot),
    Rows(u64, Vec<u8>, usize),
}

/// A node, and what is around it.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) node: Node,
    pub(super) asked: BTreeMap<Ticket, Asked>,
    /// For whom it has something.
    pub(super) awake: BTreeSet<usize>,
    pub(super) given_up: VersionVector,
    /// How many snapshots were made, in all its lives.
    pub(super) snapshots: u64,
    /// Who holds the partition, as far as it knows.
    pub(super) holders: Holders,
    /// While it leaves: of what of its own others have said that they have it.
    pub(super) confirmed: BTreeMap<usize, VersionVector>,
    /// Who belongs, if anybody is removed at all.
    pub(super) roster: Option<Rc<Roster>>,
    /// Which logs the machine was told to be closed.
    pub(super) closed: Ends,
    digest: Cell<Option<u64>>,
}

/// A frame on its way.
#[derive(Clone)]
pub(super) struct Sent {
    frame: Frame,
    /// In which knowledge it was made.
    holders: Holders,
    roster: Option<Rc<Roster>>,
    digest: u64,
}

#[derive(Clone)]
pub(super) struct Space<'a> {
    pub(super) bounds: &'a Bounds,
    pub(super) config: Config,
    /// Shared with other states until they differ.
    pub(super) sites: Vec<Rc<Site>>,
    pub(super) made: Rc<Made>,
    pub(super) channels: BTreeMap<(usize, usize), VecDeque<Sent>>,
    /// The lower one first.
    linked: BTreeSet<(usize, usize)>,
    /// By which batch the newcomer joined.
    join: Option<Dot>,
    now: u64,
    pub(super) left: Left,
    /// The last number of the removed one's log, once that is closed.
    pub(super) end: Option<u64>,
    /// How often this happened on the way here.
    pub(super) joins: u64,
    pub(super) log_cuts: u64,
}

pub(super) fn digest_of(hash: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash(&mut hasher);
    hasher.finish()
}

impl<'a> Space<'a> {
    pub(super) fn new(bounds: &'a Bounds) -> Result<Self, String> {
        let config = Config {
            kept: 0,
            cut_step: 1,
            state: StateConfig {
                // One row in a chunk.
                chunk_bytes: 1,
                ..StateConfig::default()
            },
            ..Config::default()
        };
        let mut writes = [0; 4];
        writes[..bounds.writes.len()].copy_from_slice(bounds.writes);
        let mut leaves = [0; 4];
        leaves[..bounds.leaves.len()].copy_from_slice(bounds.leaves);
        let nodes = bounds.founders + usize::from(bounds.newcomer);
        let ids = (1..=nodes as u64).map(|number| Incarnation::new(number).expect("not zero"));
        let ids: Vec<Incarnation> = ids.collect();
        let roster = removing::founded(bounds, &ids);
        let site = |id: Incarnation| {
            Rc::new(Site {
                node: Node::new(id, false),
                asked: BTreeMap::new(),
                awake: BTreeSet::new(),
                given_up: VersionVector::new(),
                snapshots: 0,
                holders: Holders::default(),
                confirmed: BTreeMap::new(),
                roster: roster.clone(),
                closed: Ends::new(),
                digest: Cell::new(None),
            })
        };
        let mut space = Self {
            bounds,
            config,
            sites: ids.iter().copied().map(site).collect(),
            made: Rc::new(Made::default()),
            channels: BTreeMap::new(),
            linked: BTreeSet::new(),
            join: None,
            now: 0,
            left: Left {
                writes,
                losses: bounds.losses,
                doubles: bounds.doubles,
                cuts: bounds.cuts,
                crashes: bounds.crashes,
                ticks: bounds.ticks,
                give_ups: bounds.give_ups,
                sponsors: u8::from(bounds.newcomer),
                leaves,
                removals: u8::from(bounds.removes),
            },
            end: None,
            joins: 0,
            log_cuts: 0,
        };
        for node in 0..bounds.founders {
            space.start(node)?;
        }
        for (a, b) in space.pairs() {
            if space.is_up(a) && space.is_up(b) {
                space.link(a, b)?;
            }
        }
        if bounds.greeted {
            space.work_off()?;
        }
        Ok(space)
    }

    /// Names the state.
    pub(super) fn digest(&self) -> u64 {
        digest_of(|hasher| {
            for site in &self.sites {
                site.digest().hash(hasher);
            }
            self.made.hash(hasher);
            for (pair, frames) in self.channels.iter().filter(|(_, all)| !all.is_empty()) {
                pair.hash(hasher);
                frames.len().hash(hasher);
                frames.iter().for_each(|sent| sent.digest.hash(hasher));
            }
            (&self.linked, &self.join, self.now, self.left, self.end).hash(hasher);
        })
    }

    pub(super) fn site(&mut self, node: usize) -> &mut Site {
        let site = Rc::make_mut(&mut self.sites[node]);
        site.digest.set(None);
        site
    }

    pub(super) fn id(&self, node: usize) -> Incarnation {
        self.sites[node].node.id
    }

    pub(super) fn clock(&self) -> Now {
        Now {
            wall_micros: EPOCH + self.now,
            mono_micros: self.now,
        }
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.sites[node].node.machine.is_some()
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let nodes = self.sites.len();
        let lower = 0..nodes;
        lower
            .flat_map(|a| (a + 1..nodes).map(move |b| (a, b)))
            .collect()
    }

    pub(super) fn are_linked(&self, a: usize, b: usize) -> bool {
        self.linked.contains(&(a.min(b), a.max(b)))
    }

    fn frames(&self, from: usize, to: usize) -> usize {
        self.channels.get(&(from, to)).map_or(0, VecDeque::len)
    }

    fn may_transmit(&self, from: usize, to: usize) -> bool {
        self.sites[from].awake.contains(&to) && self.frames(from, to) < self.bounds.frames
    }

    /// Whether it is a member and has applied that.
    pub(super) fn takes_part(&self, node: usize) -> bool {
        let join = self.join.as_ref();
        let it = &self.sites[node].node;
        let joined =
            node < self.bounds.founders || join.is_some_and(|dot| it.disk.applied.covers(*dot));
        joined && !self.is_away(node) && !it.syncing && !self.is_gone(node)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Node> {
        let all = 0..self.sites.len();
        all.filter(|node| self.takes_part(*node))
            .map(|node| &self.sites[node].node)
    }

    /// Who belongs, by what is applied at a node.
    pub(super) fn members_at(&self, node: usize) -> BTreeMap<Incarnation, Membership> {
        let applied = &self.sites[node].node.disk.applied;
        let known = self.join.is_some_and(|dot| applied.covers(dot));
        let all = 0..self.sites.len();
        let members = all.filter(|other| *other < self.bounds.founders || *other == node || known);
        let members = members.map(|other| self.id(other));
        let open = self.sites[node].roster.as_ref().map(|of| of.slots());
        let members = members.filter(|id| open.as_ref().is_none_or(|open| open.contains_key(id)));
        let standings = self.sites[node].holders.of(PARTITION, members);
        let standings = standings.into_iter();
        standings
            .map(|(id, holder_state)| (id, holder_state.membership()))
            .collect()
    }

    /// All that can be next.
    pub(super) fn enabled(&self) -> Vec<Step> {
        let mut steps = self.work();
        steps.extend(self.leaving());
        let left = &self.left;
        for node in 0..self.sites.len() {
            let site = &self.sites[node];
            if !self.is_up(node) {
                if self.may_start(node) {
                    steps.push(Step::Start(node));
                }
                continue;
            }
            if left.writes[node] > 0 && self.writes(node) {
                steps.push(Step::Write(node));
            }
            if left.crashes > 0 {
                let waits = site.node.disk.waiting.len();
                steps.extend((0..=waits).map(|survive| Step::Crash(node, survive)));
            }
            if left.give_ups > 0 {
                steps.push(Step::GiveUp(node));
            }
        }
        for (a, b) in self.pairs() {
            if self.are_linked(a, b) {
                if left.cuts > 0 {
                    steps.push(Step::Cut(a, b));
                }
            } else if self.may_link(a, b) {
                steps.push(Step::Link(a, b));
            }
        }
        for ((from, to), frames) in &self.channels {
            if frames.is_empty() {
                continue;
            }
            if left.losses > 0 {
                steps.push(Step::Lose(*from, *to));
            }
            if left.doubles > 0 {
                steps.push(Step::Double(*from, *to));
            }
        }
        if left.sponsors > 0 && self.is_up(0) {
            steps.push(Step::Sponsor);
        }
        if left.ticks > 0 {
            steps.push(Step::Tick);
        }
        if self.may_remove() {
            steps.push(Step::Remove);
        }
        steps
    }

    /// What is under way.
    fn work(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (node, site) in self.sites.iter().enumerate() {
            if !site.node.disk.waiting.is_empty() {
                steps.push(Step::Sync(node));
            }
            if !site.asked.is_empty() {
                steps.push(Step::Answer(node));
            }
            if self.bounds.lazy {
                let to = site.awake.iter().filter(|to| self.may_transmit(node, **to));
                steps.extend(to.map(|to| Step::Transmit(node, *to)));
            }
        }
        let channels = self.channels.iter().filter(|(_, all)| !all.is_empty());
        steps.extend(channels.map(|((from, to), _)| Step::Deliver(*from, *to)));
        steps.extend(self.tellings());
        steps.extend(self.settlings());
        steps
    }

    /// Nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.work().is_empty()
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Write(node) => {
                self.left.writes[node] -= 1;
                self.write(node);
                Ok(())
            }
            Step::Sync(node) => self.sync(node),
            Step::Answer(node) => self.answer(node),
            Step::Transmit(from, to) => self.transmit(from, to),
            Step::Deliver(from, to) => self.deliver(from, to, true),
            Step::Double(from, to) => {
                self.left.doubles -= 1;
                self.deliver(from, to, false)
            }
            Step::Lose(from, to) => {
                self.left.losses -= 1;
                self.channels
                    .get_mut(&(from, to))
                    .and_then(VecDeque::pop_front);
                self.pump(from)
            }
            Step::Cut(a, b) => {
                self.left.cuts -= 1;
                self.unlink(a, b)
            }
            Step::Link(a, b) => self.link(a, b),
            Step::Crash(node, survive) => {
                self.left.crashes -= 1;
                self.crash(node, survive)
            }
            Step::Start(node) => self.start(node),
            Step::Tick => {
                self.left.ticks -= 1;
                self.tick()
            }
            Step::GiveUp(node) => {
                self.left.give_ups -= 1;
                self.give_up(node)
            }
            Step::Sponsor => {
                self.left.sponsors -= 1;
                self.sponsor();
                Ok(())
            }
            Step::Leave(node) => {
                self.left.leaves[node] -= 1;
                self.leave(node)
            }
            Step::Ask(node, other) => self.ask(node, other),
            Step::Away(node) => self.go_away(node),
            Step::Return(node) => self.come_back(node),
            Step::Tell(from, to) => self.tell(from, to),
            Step::Remove => {
                self.left.removals -= 1;
                self.remove()
            }
            Step::Settle(node) => self.settle(node),
        }
    }

    fn may_start(&self, node: usize) -> bool {
        let known = node < self.bounds.founders || self.join.is_some();
        known && !self.is_up(node) && !self.is_away(node) && !self.is_gone(node)
    }

    /// There are streams between nodes that run, whatever they hold.
    fn may_link(&self, a: usize, b: usize) -> bool {
        let runs = |node| self.is_up(node) || self.is_away(node);
        let apart = self.is_out_at(a, b) || self.is_out_at(b, a);
        runs(a) && runs(b) && !apart && !self.are_linked(a, b)
    }

    fn write(&mut self, node: usize) {
        let wall = self.clock().wall_micros;
        let node = &mut self.site(node).node;
        node.write(wall, 1, BATCH_BYTES);
        let waiting = node.disk.waiting.clone();
        Rc::make_mut(&mut self.made).wrote(&waiting);
    }

    /// The first node lets the newcomer in.
    fn sponsor(&mut self) {
        self.write(0);
        let id = self.id(0);
        self.join = Some(Dot::new(id, self.sites[0].node.memory.get(id)));
    }

    pub(super) fn start(&mut self, node: usize) -> Result<(), String> {
        let (config, now) = (self.config, self.clock());
        let members = self.members_at(node);
        self.site(node).node.start(config, now, members)?;
        self.take_as_it_stands(node)
    }

    fn link(&mut self, a: usize, b: usize) -> Result<(), String> {
        self.linked.insert((a, b));
        // Before anything else.
        self.tell(a, b)?;
        self.tell(b, a)?;
        let (id_a, id_b) = (self.id(a), self.id(b));
        self.input(a, Input::Linked(id_b))?;
        self.input(b, Input::Linked(id_a))
    }

    pub(super) fn unlink(&mut self, a: usize, b: usize) -> Result<(), String> {
        self.linked.remove(&(a.min(b), a.max(b)));
        for (from, to) in [(a, b), (b, a)] {
            self.channels.remove(&(from, to));
            self.site(from).awake.remove(&to);
            let to = self.id(to);
            self.input(from, Input::Unlinked(to))?;
        }
        Ok(())
    }

    fn crash(&mut self, node: usize, survive: usize) -> Result<(), String> {
        let site = self.site(node);
        site.node.machine = None;
        site.node.disk.sync(survive);
        site.node.disk.waiting.clear();
        site.node.snapshots.clear();
        site.forget_what_is_under_way();
        let id = site.node.id;
        let survived = site.node.disk.durable.get(id);
        Rc::make_mut(&mut self.made).survived(id, survived);
        let lost = |dot: &Dot| dot.origin == id && dot.seq > survived;
        if self.join.as_ref().is_some_and(lost) {
            self.join = None;
            self.left.sponsors += 1;
        }
        for other in 0..self.sites.len() {
            if other != node && self.are_linked(node, other) {
                self.unlink(node, other)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), String> {
        self.now += TICK_MICROS;
        (0..self.sites.len()).try_for_each(|node| self.input(node, Input::Time))
    }

    fn give_up(&mut self, node: usize) -> Result<(), String> {
        let applied = self.sites[node].node.machine.as_ref().map(|m| m.applied());
        let applied = applied.unwrap_or_default();
        self.site(node).given_up.merge(&applied);
        let mut logs = applied.iter();
        logs.try_for_each(|(origin, upto)| self.input(node, Input::GiveUp(origin, upto)))
    }

    fn sync(&mut self, node: usize) -> Result<(), String> {
        let done = self.site(node).node.disk.sync(1);
        // Before the batch that says so counts as applied: nothing is stable without the new member.
        let members = self.members_at(node);
        if members != self.sites[node].node.members {
            self.site(node).node.members.clone_from(&members);
            self.input(node, Input::Members(members))?;
        }
        for input in done.into_iter().filter_map(Io::input) {
            self.input(node, input)?;
        }
        self.check_end_of_log()
    }

    fn deliver(&mut self, from: usize, to: usize, once: bool) -> Result<(), String> {
        let Some(frames) = self.channels.get_mut(&(from, to)) else {
            return Ok(());
        };
        let first = if once {
            frames.pop_front()
        } else {
            frames.front().cloned()
        };
        let Some(sent) = first else {
            return Ok(());
        };
        self.hear(to, &sent.holders)?;
        self.hear_roster(from, to, sent.roster.as_ref())?;
        let frame = sent.frame;
        let peer = self.id(from);
        self.input(to, Input::Received(peer, frame))?;
        self.pump(from)
    }

    /// Frames go as soon as there is room.
    pub(super) fn pump(&mut self, from: usize) -> Result<(), String> {
        if self.bounds.lazy {
            return Ok(());
        }
        for to in 0..self.sites.len() {
            while self.may_transmit(from, to) {
                self.transmit(from, to)?;
            }
        }
        Ok(())
    }

    pub(super) fn transmit(&mut self, from: usize, to: usize) -> Result<(), String> {
        let (now, peer) = (self.clock(), self.id(to));
        let site = self.site(from);
        let machine = site.node.machine.as_mut();
        let Some(frame) = machine.and_then(|machine| machine.transmit(now, peer)) else {
            site.awake.remove(&to);
            return Ok(());
        };
        site.node.check_sent(peer, &frame)?;
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let holders = self.sites[from].holders.clone();
        let ids = self.sites.iter().map(|site| site.node.id);
        let standings = holders.of(PARTITION, ids);
        let roster = self.sites[from].roster.clone();
        let known = removing::bytes_of(roster.as_ref());
        let digest = digest_of(|hasher| (bytes, standings, known).hash(hasher));
        let frames = self.channels.entry((from, to)).or_default();
        frames.push_back(Sent {
            frame,
            holders,
            roster,
            digest,
        });
        self.outputs(from)
    }

    /// Nothing is broken any more: all come to be alike, and have all that was made and not lost with its maker.
    pub(super) fn heal(mut self) -> Result<(), String> {
        self.stay_all()?;
        self.end()?;
        match self.return_all()? {
            true => self.end(),
            false => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        for _ in 0..HEALING_TICKS_MAX {
            if self.bounds.newcomer && self.join.is_none() && self.is_up(self.bounds.founders) {
                if !self.is_up(0) {
                    self.start(0)?;
                }
                self.sponsor();
            }
            for node in 0..self.sites.len() {
                if self.may_start(node) {
                    self.start(node)?;
                }
            }
            for (a, b) in self.pairs() {
                if self.may_link(a, b) {
                    self.link(a, b)?;
                }
            }
            self.work_off()?;
            if self.is_settled() {
                return self.check_end();
            }
            self.tick()?;
        }
        Err(format!("not alike: {}", self.differences()))
    }

    /// All that is under way comes to its end.
    fn work_off(&mut self) -> Result<(), String> {
        for _ in 0..HEALING_ROUNDS_MAX {
            let work = self.work();
            if work.is_empty() {
                return Ok(());
            }
            work.into_iter().try_for_each(|step| self.step(step))?;
        }
        Err("there is no end of what is under way".into())
    }

    fn living(&self) -> impl Iterator<Item = &Node> {
        let all = self.sites.iter().map(|site| &site.node);
        all.filter(|node| node.machine.is_some())
    }

    fn known(&self) -> VersionVector {
        let mut known = VersionVector::new();
        self.living()
            .for_each(|node| known.merge(&node.disk.durable));
        known
    }

    fn is_settled(&self) -> bool {
        let known = self.known();
        self.living().all(|node| {
            let stable = node.machine.as_ref().is_some_and(|m| *m.stable() == known);
            node.disk.durable == known && node.disk.applied == known && stable
        }) && self.are_closed()
    }

    fn differences(&self) -> String {
        let of = |node: &Node| {
            let stable = node.machine.as_ref().map(|machine| machine.stable());
            let disk = &node.disk;
            format!(
                "{:?} durable {:?} applied {:?} stable {stable:?}",
                node.id, disk.durable, disk.applied
            )
        };
        self.living().map(of).collect::<Vec<_>>().join("; ")
    }

    fn check_end(&self) -> Result<(), String> {
        let known = self.known();
        if let Some((origin, last)) = self.made.beyond(&known) {
            return Err(format!("{last} of {origin:?} was lost"));
        }
        for node in self.living() {
            if node.memory != known {
                return Err(format!("memory of {:?} differs", node.id));
            }
            self.made.check_rows(&node.disk.rows, &known)?;
            if node.disk.logs.values().any(|log| !log.is_empty()) {
                return Err(format!("logs of {:?} are not cut", node.id));
            }
        }
        Ok(())
    }
}

impl Site {
    /// It dies, or leaves.
    pub(super) fn forget_what_is_under_way(&mut self) {
        self.asked.clear();
        self.awake.clear();
        self.closed.clear();
        self.given_up = VersionVector::new();
    }

    fn digest(&self) -> u64 {
        let known = self.digest.get();
        let digest = known.unwrap_or_else(|| {
            digest_of(|hasher| {
                self.node.fingerprint(hasher);
                self.asked.len().hash(hasher);
                self.asked.values().for_each(|asked| asked.hash(hasher));
                (&self.awake, &self.given_up, self.snapshots).hash(hasher);
                // Of those that are there: nobody knows of others.
                let of = self.node.members.keys().copied();
                self.holders.of(PARTITION, of).hash(hasher);
                (&self.confirmed, self.node.syncing).hash(hasher);
                (removing::bytes_of(self.roster.as_ref()), &self.closed).hash(hasher);
            })
        });
        self.digest.set(Some(digest));
        digest
    }
}
