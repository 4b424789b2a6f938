//! One seed's cluster: nodes that hold the same partitions, a network between them, clients at any node, faults, and the checkers that watch.
//!
//! Each node is the [`Node`] of the other world; here they are linked. There is one virtual time: whatever is next anywhere happens next. Accounts are
//! made at one node each, and known at the others when the news has come.
//!
//! Checked at each answer: U1 (over all nodes) and U2 (by node). In the end, when all is healed and nothing has happened for a while: U3 (all nodes
//! show the same mailboxes, messages, flags, UIDs; and have the same directory), and in accounts in which nothing is ever removed D1 and D2: what was
//! acknowledged is there, once, with the flags that were set; in the others what was expunged is gone, and what nobody removed is there; mailboxes
//! and subscriptions of one client are what it was told. What a seed does is drawn from the seed alone, so a failing seed fails again.
//!
//! Reading order: this file (the world), [`faults`], [`pauses`], [`network`], [`regions`], [`clients`], [`answers`], [`blobs`], [`movers`],
//! [`protocol_clients`] (clients by bytes), [`queries`], [`names`], [`directory`], [`membership`], [`placing`], [`checks`], [`removals`],
//! [`flagging`], [`response_uids`], [`renewed`], [`bounds`], [`quiescence`]; [`seeds`] (what each seed promises); [`acceptable_loss`] (what goes with
//! nodes that are removed); [`losses`] (other disks than a node died with); [`lost`] (a disk that is gone); [`claims`] (a benchmark).

mod acceptable_loss;
mod answers;
mod blobs;
mod bounds;
mod checks;
pub mod claims;
mod clients;
mod clocks;
mod coverage;
mod directory;
mod faults;
mod flagging;
mod losses;
pub mod lost;
mod membership;
mod movers;
mod names;
mod network;
mod pauses;
mod placing;
mod protocol_clients;
mod queries;
mod quiescence;
mod regions;
mod removals;
mod renewed;
mod response_uids;
mod seeds;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::roster::Roster;
use whimbrel_service::{
    api::{AccountId, MESSAGES_PER_CALL_MAX, Reply},
    cluster::{closing::Closing, placing::Placing},
    machine::{Note, RequestId},
    owner, peers, queue,
};

use self::{
    checks::{Kept, Looks},
    clients::Client,
    directory::Guests,
    flagging::Flagging,
    losses::Losses,
    names::Names,
    network::Network,
    pauses::Stalls,
    protocol_clients::ProtocolClients,
    queries::Queries,
    removals::Removals,
};
pub use self::{
    coverage::{COVERAGE, COVERED_AFTER_SEEDS, MOVES_PER_OVERLOOKED, overlooks},
    losses::Disks,
    seeds::run_seed,
};
use whimbrel_testkit::Rng;

use crate::{
    checkers::{axioms::Axioms, modseqs::Modseqs},
    node::{Node, Outcome, Speed},
    world::{Breach, Report},
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;
/// After the faults have ended nodes must be alike within this virtual time.
const HEALING_MICROS_MAX: u64 = 600 * SECOND;

/// Calls of clients in a seed that are answered, at least.
const CALLS_MIN: u64 = 300;
/// Kinds of faults in a seed that happen, at least.
const FAULTS_MIN: u64 = 3;

/// What a seed draws for itself.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u64,
    /// How many accounts. Every second one is one in which nothing is removed.
    pub accounts: u64,
    /// In how many partitions accounts are, at most; if there is no such number, in any of all.
    pub partitions: Option<u64>,
    /// Clients, spread over accounts and nodes.
    pub clients: u64,
    /// Turns of all clients together; more, if so few are answered that the seed would not be what it has to be.
    pub calls: u64,
    /// The longest time between two calls of one client.
    pub pause_micros: u64,
    /// One way between two nodes, at most; if there is none, as between regions of the world, drawn for each two nodes.
    pub latency_micros: Option<u64>,
    /// Once in how many calls each fault happens; 0: never in this seed. Of these [`FAULTS_MIN`] at least happen.
    pub cut: u64,
    /// What one node sends another is lost, and the other way goes on.
    pub lose: u64,
    /// A stream breaks and is made anew.
    pub flap: u64,
    /// A node dies and comes back.
    pub crash: u64,
    /// A node's disk is full for a while.
    pub full: u64,
    /// A node's wall clock jumps.
    pub clock: u64,
    /// A node is let in, or removed.
    pub membership: u64,
    /// A client goes to another node.
    pub wander: u64,
    /// A message comes for an account, at some node.
    pub delivery: u64,
    /// An administrator changes the directory, at some node.
    pub administer: u64,
    /// Mailboxes are deleted where messages are removed.
    pub deletes: bool,
    /// Wall clocks differ by up to a minute.
    pub skewed: bool,
    /// Accounts are evicted all the time.
    pub tiny_memory: bool,
    /// Windows and pages are small, so that they fill.
    pub small_windows: bool,
    /// Logs keep room for so few operations for members that are away, so that states are given; 0: all.
    pub kept: u64,
    /// In the middle one node's disk is lost, when all nodes have all: another one comes for it, with an empty disk.
    pub loses: bool,
    /// How many other nodes must have what a client writes.
    pub other_nodes: usize,
    /// Once in how many looks a node leaves a partition; 0: never.
    pub leaves: u64,
    /// Clients that come by bytes, to production sessions.
    pub protocol_clients: u64,
    /// Whether a node comes back with another disk while all else goes on.
    pub disks: Disks,
    /// Messages that one call moves or removes ([`owner::Config::messages_per_call_max`]).
    pub messages_per_call_max: usize,
    /// Bytes of rows that a batch of another node changes in one commit ([`owner::Config::foreign_bytes_max`]).
    pub foreign_bytes_max: usize,
}

impl Plan {
    /// What this seed draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x00c1_0573_u64);
        // How often each happens: cut, lose, flap, crash, full, clock.
        let often = [15, 15, 20, 25, 60, 40];
        let mut faults = often.map(|often| rng.between(often, often * 4));
        let mut left_out: Vec<usize> = (0..faults.len()).collect();
        for _ in 0..rng.between(FAULTS_MIN, faults.len() as u64) {
            let kept = rng.below(left_out.len() as u64);
            left_out.swap_remove(usize::try_from(kept).unwrap_or(0));
        }
        for index in left_out {
            faults[index] = 0;
        }
        let [cut, lose, flap, crash, full, clock] = faults;
        let mut other = |often: u64| {
            if rng.one_in(3) {
                0
            } else {
                rng.between(often, often * 4)
            }
        };
        let (wander, delivery, mut administer) = (other(10), other(4), other(5));
        let mut members = Rng::new(seed ^ 0x0003_e3be_25c0);
        let membership = if members.one_in(3) {
            // What an administrator was told by a node that is removed may be gone with it, which only mailboxes are checked for.
            administer = 0;
            members.between(20, 60)
        } else {
            0
        };
        Plan {
            seed,
            nodes: rng.between(3, 5),
            accounts: rng.between(1, 3),
            partitions: Plan::drawn_partitions(seed),
            clients: rng.between(2, 6),
            calls: rng.between(CALLS_MIN, CALLS_MIN + 200),
            pause_micros: *rng.pick(&[5 * MS, 100 * MS, 2 * SECOND]),
            latency_micros: *rng.pick(&[Some(MS), Some(120 * MS), None, None]),
            cut,
            lose,
            flap,
            crash,
            full,
            clock,
            membership,
            wander,
            delivery,
            administer,
            deletes: rng.one_in(2),
            skewed: rng.one_in(2),
            tiny_memory: rng.one_in(3),
            small_windows: rng.one_in(2),
            kept: if rng.one_in(2) { 0 } else { rng.between(1, 12) },
            loses: rng.one_in(2),
            other_nodes: *Rng::new(seed ^ 0x0c0f_1293_ed00).pick(&[0, 0, 1, 1, 1, 2]),
            leaves: 0,
            protocol_clients: 0,
            disks: Disks::Own,
            messages_per_call_max: MESSAGES_PER_CALL_MAX,
            foreign_bytes_max: owner::Config::default().foreign_bytes_max,
        }
        .with_leaving()
        .with_protocol_clients()
        .with_disks()
        .with_parts()
    }
}

/// One node, which may be down.
struct Member {
    id: Incarnation,
    node: Node,
    roster: Roster,
    placing: Placing,
    /// Nodes that it was told to be linked with, and who they were then.
    linked: BTreeMap<usize, Incarnation>,
    closing: Closing,
    /// Until when it is down.
    down: Option<u64>,
    full_until: Option<u64>,
    /// Until when it is stopped.
    stopped_until: Option<u64>,
    /// Another incarnation has come for one whose disk was lost.
    renewed: bool,
    /// Somebody has removed it, or whoever let it in: what it acknowledges may be lost.
    doubtful: bool,
    /// It knows that, or its machine is lost: it never comes back.
    out: bool,
}

impl Member {
    fn new(id: Incarnation, node: Node, roster: Roster, placing: Placing) -> Self {
        Member {
            id,
            node,
            roster,
            placing,
            linked: BTreeMap::new(),
            closing: Closing::default(),
            down: None,
            full_until: None,
            stopped_until: None,
            renewed: false,
            doubtful: false,
            out: false,
        }
    }

    /// Whether it answers: it is neither down nor stopped.
    fn is_up(&self) -> bool {
        self.down.is_none() && self.stopped_until.is_none() && !self.out
    }
}

struct World {
    plan: Plan,
    rng: Rng,
    now: u64,
    members: Vec<Member>,
    /// Of all incarnations that ever were members.
    slots: BTreeMap<Incarnation, u8>,
    /// Of a node that joins.
    config: owner::Config,
    network: Network,
    stalls: Stalls,
    queries: Queries,
    names: Names,
    guards: clocks::Guards,
    clients: Vec<Client>,
    protocol_clients: ProtocolClients,
    accounts: Vec<AccountId>,
    guests: Guests,
    /// Partitions in which accounts are.
    partitions: BTreeSet<PartitionId>,
    /// What was asked, and by which client.
    asked: BTreeMap<RequestId, clients::Asked>,
    /// Answers to the world itself.
    answers: BTreeMap<RequestId, Reply>,
    axioms: Axioms,
    looks: Looks,
    modseqs: Modseqs,
    kept: Kept,
    removals: Removals,
    flagging: Flagging,
    losses: Losses,
    next_request: u64,
    next_session: u64,
    next_body: u32,
    report: Report,
    trace: bool,
    /// All is healed.
    calm: bool,
}

/// What a node does in one world, at most; a hundredth of it is usual. Beyond it nodes answer each other for ever, and logs grow without end.
const STEPS_MAX: u64 = 1_000_000;

/// Runs one seed.
///
/// # Errors
/// The first breach.
pub fn run(plan: &Plan, trace: bool) -> Result<Report, Breach> {
    let mut world = World::new(plan.clone(), trace);
    match world.play() {
        Ok(()) => {
            world.sum_up();
            seeds::is_kept(&world.report).map_err(Breach)?;
            Ok(world.report)
        }
        Err(cause) => Err(Breach(format!("at {} us: {cause}", world.now))),
    }
}

impl World {
    fn new(plan: Plan, trace: bool) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x0005_1057_e125);
        let partitions = plan.partitions();
        let ids: Vec<Incarnation> = (1..=plan.nodes)
            .map(|number| Incarnation::from_hash(plan.seed << 8 | number))
            .collect();
        let mut shipping = peers::Config::default();
        let mut windows = peers::budget::Config::default();
        if plan.small_windows {
            windows.total_bytes_max = 16 << 10;
            windows.window_bytes_min = 1 << 10;
            shipping.window_bytes = 4 << 10;
            shipping.window_batches = 8;
            shipping.applying_bytes_max = 4 << 10;
            shipping.read_bytes_max = 2 << 10;
            shipping.frame_bytes_max = 1 << 10;
        }
        match plan.kept {
            0 => shipping.kept = 1 << 20,
            _ => {
                shipping.kept = 0;
                shipping.cut_step = 1;
            }
        }
        if plan.small_windows || plan.kept > 0 {
            shipping.state.window_bytes = 4 << 10;
            shipping.state.chunk_bytes = 1 << 10;
        }
        let roster = membership::founded(&ids);
        let joins = owner::Config {
            in_cluster: true,
            shipping,
            windows,
            collect_after_seconds: 2,
            messages_per_call_max: plan.messages_per_call_max,
            foreign_bytes_max: plan.foreign_bytes_max,
            accounts_bytes_max: if plan.tiny_memory { 1 } else { 64 << 20 },
            ..owner::Config::default()
        };
        let members = (0u8..)
            .zip(&ids)
            .map(|(number, id)| {
                let mut peers = roster.slots();
                let config = owner::Config {
                    origin: *id,
                    slot: peers.remove(id).unwrap_or(0),
                    peers,
                    in_cluster: true,
                    shipping,
                    windows,
                    collect_after_seconds: rng.between(1, 3),
                    messages_per_call_max: plan.messages_per_call_max,
                    foreign_bytes_max: plan.foreign_bytes_max,
                    accounts_bytes_max: if plan.tiny_memory { 1 } else { 64 << 20 },
                    ..owner::Config::default()
                };
                let limits = queue::Limits {
                    retry_after_seconds: 2,
                    ..queue::Limits::default()
                };
                let mut node = Node::among(
                    plan.seed << 8 | u64::from(number),
                    config,
                    limits,
                    &partitions,
                );
                node.log_retention_bytes = plan.log_retention_bytes();
                node.set_bodies(plan.bodies());
                if rng.one_in(4) {
                    node.speed = Speed {
                        sync_micros: (20 * MS, 100 * MS),
                        ..Speed::default()
                    };
                }
                Member::new(*id, node, roster.clone(), plan.placing())
            })
            .collect();
        World {
            network: Network::new(ids.len(), plan.latency_micros, plan.seed),
            stalls: Stalls::new(&plan),
            queries: Queries::new(&plan),
            names: Names::new(&plan),
            guards: clocks::Guards::new(plan.seed),
            protocol_clients: ProtocolClients::new(plan.seed),
            guests: Guests::new(plan.seed),
            next_body: plan.first_body(),
            losses: Losses::new(&plan),
            partitions,
            plan,
            rng,
            now: 0,
            slots: roster.slots(),
            config: joins,
            members,
            clients: Vec::new(),
            accounts: Vec::new(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            axioms: Axioms::of(ids.iter().copied()),
            looks: Looks::default(),
            modseqs: Modseqs::default(),
            kept: Kept::default(),
            removals: Removals::default(),
            flagging: Flagging::default(),
            next_request: 0,
            next_session: 0,
            report: Report::default(),
            trace,
            calm: false,
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.report.coverage.entry(what).or_default() += 1;
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} us  {}", self.now, text());
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Accounts are there, and the nodes are linked.
    fn begin(&mut self) -> Result<(), String> {
        self.begin_placing();
        for index in 0..self.plan.accounts {
            let mut id = [0; 16];
            id[0] = u8::try_from(index + 1).unwrap_or(1);
            let account = self.account(id);
            self.accounts.push(account);
            let node = self.any_member();
            self.make_account(node, &format!("user{index}@example.org"), account);
        }
        self.run_until(200 * MS)?;
        if self.plan.skewed {
            for member in &mut self.members {
                member.node.wall_offset_micros += self.rng.below(60 * SECOND);
            }
        }
        for a in 0..self.members.len() {
            for b in 0..a {
                self.network.connect_at(self.now, a, b);
            }
        }
        self.note_what_holds();
        Ok(())
    }

    fn play(&mut self) -> Result<(), String> {
        self.begin()?;
        for index in 0..self.plan.clients {
            self.new_client(index);
        }
        self.begin_protocol_clients();
        for call in 0.. {
            if call >= self.plan.calls && self.has_kept(call)? {
                break;
            }
            if self.plan.loses && call == self.plan.calls / 2 {
                self.renew_a_node()?;
            }
            self.next_call()?;
            self.maybe_fault()?;
            self.maybe_lose_a_disk(call);
            self.maybe_stall();
        }
        self.heal()
    }

    /// Lets time pass until a client is due, and lets it do something.
    fn next_call(&mut self) -> Result<(), String> {
        loop {
            let due = self.clients.iter().enumerate();
            let due = due.filter_map(|(index, client)| Some((client.due?, index)));
            let due = due.min();
            match (due, self.next_time()) {
                (Some((at, index)), next) if next.is_none_or(|next| at <= next) => {
                    self.now = self.now.max(at);
                    return self.act(index);
                }
                (_, Some(_)) => self.step()?,
                (_, None) => return Err("nothing is under way, and all clients wait".into()),
            }
        }
    }

    /// When the next thing happens anywhere.
    fn next_time(&self) -> Option<u64> {
        let members = self.members.iter().filter(|member| !member.out);
        let nodes = members.filter_map(|member| match member.down {
            Some(until) => Some(until),
            None => {
                let next = member.stopped_until.or_else(|| member.node.next_time());
                member.full_until.into_iter().chain(next).min()
            }
        });
        nodes.chain(self.network.next_time()).min()
    }

    /// Lets the next thing happen.
    fn step(&mut self) -> Result<(), String> {
        let Some(next) = self.next_time() else {
            return Ok(());
        };
        self.now = self.now.max(next);
        if self.network.next_time() == Some(next) {
            return self.network_step();
        }
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.out {
                continue;
            }
            if member.down == Some(next) {
                return self.come_back(index);
            }
            if member.down.is_some() {
                continue;
            }
            if member.full_until == Some(next) {
                member.full_until = None;
                member.node.disk.faults.full = false;
                return Ok(());
            }
            if member.stopped_until.is_some() {
                if member.stopped_until == Some(next) {
                    self.go_on(index);
                    return Ok(());
                }
                continue;
            }
            if member.node.next_time() == Some(next) {
                member.node.step();
                if member.node.steps > STEPS_MAX {
                    return Err(format!("node {index} never comes to rest"));
                }
                self.is_bounded(index)?;
                return self.outcomes(index);
            }
        }
        Ok(())
    }

    fn run_until(&mut self, time: u64) -> Result<(), String> {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step()?;
        }
        self.now = self.now.max(time);
        Ok(())
    }

    /// Carries out what has left a node.
    fn outcomes(&mut self, index: usize) -> Result<(), String> {
        self.wrote(index)?;
        let mut stopped = false;
        while let Some(outcome) = self.members[index].node.outcome() {
            match outcome {
                Outcome::Reply(request, reply) => self.replied(index, request, reply)?,
                Outcome::Wake(partition, peer) => {
                    if let Some(to) = self.index_of(peer) {
                        self.network.wake(self.now, index, to, partition);
                    }
                }
                // Whatever a disk refuses: nobody here breaks a rule.
                Outcome::Unlink(peer) => {
                    return Err(format!("node {index} ends its stream to {peer:?}"));
                }
                Outcome::Notify(session, event) => {
                    let now = self.now;
                    let client = self.clients.iter_mut().find(|c| c.session == session);
                    if let Some(due) = client.and_then(|client| client.due.as_mut()) {
                        *due = now.max(1).min(*due);
                    }
                    self.protocol_client_notified(session, event)?;
                }
                Outcome::Note(note) => {
                    if let Note::NewUidValidity(account) = note
                        && !self.accounts.contains(&account)
                    {
                        self.looks.given.risen.insert(account);
                        self.note("cluster: a guest's UIDVALIDITY rises");
                    }
                    // Whoever has an older disk is another incarnation here.
                    if let Note::Older(because) = &note {
                        return Err(format!("node {index} takes its disk for older: {because}"));
                    }
                    if let Note::Warning(text) = &note
                        && text.ends_with("late at once")
                    {
                        return Err(format!("node {index}: {text}"));
                    }
                    self.say(|| format!("node {index}: {note:?}"));
                    if let Note::Delivered { entry, account } = note {
                        self.delivered(index, entry, account);
                    }
                }
                // Several of its parts may say so.
                Outcome::Stopped(_) if stopped => {}
                // Perhaps it was mended meanwhile, which the node does not know.
                Outcome::Stopped(_) if self.members[index].node.disk.has_failed() => {
                    stopped = true;
                    self.sync_failed(index);
                }
                Outcome::Stopped(cause) => return Err(format!("node {index} stopped: {cause}")),
                Outcome::CommitFailed => self.note("cluster: refused commit"),
                Outcome::Admin(request, reply) => self.administered(request, reply)?,
                Outcome::Reached(_)
                | Outcome::DeliveryReached(..)
                | Outcome::DeliveryDone(..)
                | Outcome::DeliveryFailed(..) => {}
            }
        }
        Ok(())
    }

    /// Those that are not gone for good.
    fn there(&self) -> Vec<usize> {
        let there = 0..self.members.len();
        there.filter(|index| !self.members[*index].out).collect()
    }

    fn is_there(&self, id: Incarnation) -> bool {
        self.members.iter().any(|of| of.id == id && !of.out)
    }

    fn index_of(&self, id: Incarnation) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// All is mended and at rest; then a disk is lost. What only its node had would be lost with it, and nobody could say what.
    fn renew_a_node(&mut self) -> Result<(), String> {
        self.protocol_clients_rest(true);
        self.calm = true;
        let renewed = self.renew_at_rest();
        self.calm = false;
        self.protocol_clients_rest(false);
        renewed
    }

    fn renew_at_rest(&mut self) -> Result<(), String> {
        self.mend_nodes()?;
        self.network.heal(self.now);
        self.run_until(self.now + 60 * SECOND)?;
        let mut there = self.members.iter().filter(|member| !member.out);
        // Of who was removed all must be told, so that all that counts is at all.
        let unrest = there.any(|member| member.doubtful || member.node.queue_len() > 0);
        let unrest = unrest
            || self.protocol_clients_wait()
            || !self.asked.is_empty()
            || self.unclosed().is_some();
        if unrest || self.differences()?.is_some() {
            return Ok(());
        }
        let index = self.any_member();
        let id = Incarnation::from_hash(self.plan.seed << 8 | 0x80);
        let Some(sponsor) = self.any_sponsor(index, id) else {
            return Ok(());
        };
        self.note("cluster: disk lost");
        let before = self.before_the_loss(index)?;
        self.say(|| format!("the disk of node {index} is lost"));
        // Its links end before another is there in its place.
        self.crash(index, self.now + 10 * SECOND);
        self.run_until(self.now + 9 * SECOND)?;
        self.looks.forget(index);
        self.join_again(index, id, sponsor)?;
        self.as_before_the_loss(index, before)
    }

    /// Mends everything, and waits until all nodes are alike.
    fn heal(&mut self) -> Result<(), String> {
        self.say(|| "all is healed".into());
        self.calm = true;
        self.protocol_clients_rest(true);
        self.guests_go();
        for index in 0..self.clients.len() {
            self.clients[index].due = None;
        }
        self.mend_nodes()?;
        self.network.heal(self.now);
        let end = self.now + HEALING_MICROS_MAX;
        let mut wait = 2 * SECOND;
        loop {
            self.run_until(self.now + wait)?;
            self.remove_again()?;
            let mut there = self.members.iter().filter(|member| !member.out);
            let waits = there.any(|member| member.node.queue_len() > 0);
            if self.asked.is_empty()
                && !self.protocol_clients_wait()
                && (!waits || self.waits_for_the_gone())
            {
                let apart = self.unclosed().or_else(|| self.ends_differ());
                let apart = apart.or_else(|| self.unapplied());
                let apart = match apart.or_else(|| self.directories_differ()) {
                    None => self.differences()?,
                    apart => apart,
                };
                match apart {
                    None => break,
                    Some(difference) if self.now > end => {
                        return Err(format!("U3: nodes do not become alike: {difference}"));
                    }
                    Some(_) => {}
                }
            } else if self.now > end {
                let queues = self.there().into_iter();
                let queues: Vec<_> = queues
                    .map(|index| (index, self.members[index].node.queue_len()))
                    .collect();
                let asked = self.asked.values().map(|asked| asked.node);
                return Err(format!(
                    "what was asked of {:?} is never answered, or mail waits for ever: {queues:?}",
                    asked.collect::<Vec<_>>()
                ));
            }
            wait *= 2;
        }
        self.nothing_lost()?;
        self.stored_holds()?;
        self.removals_hold()?;
        self.names_hold()?;
        self.statuses_hold()?;
        self.nothing_overlooked()?;
        self.protocol_clients_agree()?;
        self.directory_holds()?;
        self.goes_on_quietly()?;
        self.guests_hold()
    }
}

/// Names by position: which of the accounts are those where nothing is removed.
fn is_keeping(account: AccountId) -> bool {
    account.0[0] % 2 == 1
}

/// UIDs shown under a name.
type Uids = BTreeSet<u32>;
