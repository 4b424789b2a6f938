//! Histories: what a few replicas of the crate do, generated from a seed, and what each shows after each step.
//!
//! A history is a list of [`Action`]s, each a wish and three numbers that choose what it is about. [`run`] lets real replicas fulfil them, by the
//! crate's own plans, and writes down every [`Event`] for the model to repeat.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Dot, Hlc, Incarnation, VersionVector};
use whimbrel_mailbox::*;
use whimbrel_testkit::Rng;

use crate::modseq::Watch;
use crate::seen::Seen;

/// Operations of a history: fewer say too little.
pub(crate) const OPS_MIN: u64 = 30;

/// Rounds in which everything is delivered and late messages are claimed again: more mean that claims do not end.
const ROUNDS_MAX: usize = 60;

/// The nodes' one account.
const ACCOUNT: AccountId = AccountId([9; 16]);

/// When it is opened, in seconds since the epoch.
const OPENED: u32 = 1_700_000_000;

const NAMES: [&str; 6] = ["INBOX", "a", "b", "a/c", "b/c/d", "e"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Append,
    Deliver,
    /// The queue entry is finished: nobody delivers it any more.
    Finish,
    /// A message comes from elsewhere, perhaps again.
    Import,
    Copy,
    Move,
    Store,
    Expunge,
    Create,
    Delete,
    Rename,
    Subscribe,
    Unsubscribe,
    /// UIDNEXT of every name is announced.
    Look,
    /// A foreign batch arrives, or some.
    Take,
    Collect,
    Join,
    /// A client comes from elsewhere and names a UID.
    Takeover,
    Epoch,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    pub(crate) kind: Kind,
    pub(crate) node: u8,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) nodes: usize,
    /// How far each node's clock is ahead.
    pub(crate) ahead: Vec<u64>,
    /// Wall-clock time between actions: UID counters follow it.
    pub(crate) step_micros: u64,
    /// Which nodes claim late messages again.
    pub(crate) readers: u8,
    /// The model forgets what the code forgets; else it never does, and must show the same.
    pub(crate) drops: bool,
    /// Which nodes open the account by themselves, beside the first.
    pub(crate) open: u8,
    /// Chooses the order of deliveries at the end.
    pub(crate) order: u64,
}

/// Operations that were sealed together.
pub(crate) struct Made {
    pub(crate) node: usize,
    pub(crate) first: u64,
    pub(crate) hlc: u64,
    pub(crate) deps: VersionVector,
    pub(crate) ops: Vec<Op>,
}

impl Made {
    fn last(&self) -> u64 {
        self.first + self.ops.len() as u64 - 1
    }

    fn before(&self, other: &Self) -> bool {
        if self.node == other.node {
            self.first <= other.first
        } else {
            other.deps.get(incarnation(self.node)) >= self.last()
        }
    }
}

/// What the model repeats, or must show.
pub(crate) enum Event {
    Make(usize, usize),
    Take(usize, usize),
    Join(usize, usize),
    Drop(usize, MessageId),
    DropBox(usize, MailboxId),
    Show(usize, MessageId, MailboxName, u32, u32),
    Hide(usize, MessageId),
    Tell(usize, MailboxName, u32, u32),
    Believe(usize, MailboxName, u32),
    List(usize, MailboxName),
    Unlist(usize, MailboxName),
    Era(usize, u32),
    See(usize, Box<Seen>),
}

/// What happened in a history.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) slots: Vec<u8>,
    pub(crate) made: Vec<Made>,
    pub(crate) events: Vec<Event>,
    pub(crate) ops: u64,
    pub(crate) concurrent: u64,
}

impl Trace {
    /// Counts what happened, by what of [`ALL`] it is.
    pub(crate) fn tally(&self, counts: &mut [u64; ALL.len()]) {
        let ops = self
            .made
            .iter()
            .flat_map(|made| &made.ops)
            .map(|op| match op {
                Op::Open { .. } => 0,
                Op::CreateMailbox(_) => 1,
                Op::DeleteMailbox { .. } => 2,
                Op::RenameMailbox { .. } => 3,
                Op::Subscribe { .. } => 4,
                Op::Unsubscribe { .. } => 5,
                Op::Append(_) => 6,
                Op::Deliver(deliver) if deliver.entry == EntryTag::IMPORT => 24,
                Op::Deliver(_) => 7,
                Op::Copy { .. } => 8,
                Op::Move { .. } => 9,
                Op::Store { .. } => 10,
                Op::Expunge { .. } => 11,
                Op::Claim { .. } => 12,
                Op::Bump { .. } => 13,
                Op::Epoch { .. } => 14,
            });
        let events = self.events.iter().filter_map(|event| match event {
            Event::Take(..) => Some(15),
            Event::Join(..) => Some(16),
            Event::Drop(..) => Some(17),
            Event::Tell(..) => Some(18),
            Event::Believe(..) => Some(19),
            Event::Unlist(..) => Some(20),
            Event::Era(..) => Some(21),
            Event::See(..) => Some(22),
            Event::DropBox(..) => Some(23),
            Event::Make(..) | Event::Show(..) | Event::Hide(..) | Event::List(..) => None,
        });
        ops.chain(events).for_each(|at: usize| counts[at] += 1);
    }

    /// Long enough, and at least a third of it concurrent.
    pub(crate) fn counts(&self) -> bool {
        self.ops >= OPS_MIN && self.concurrent * 3 >= self.ops
    }
}

/// What must happen in many histories: all kinds of operations; then what else the model repeats.
pub(crate) const ALL: [&str; 25] = [
    "open",
    "create",
    "delete",
    "rename",
    "subscribe",
    "unsubscribe",
    "append",
    "deliver",
    "copy",
    "move",
    "store",
    "expunge",
    "claim",
    "bump",
    "epoch",
    "taken",
    "joined",
    "dropped",
    "told",
    "believed",
    "unlisted",
    "eras",
    "views",
    "mailboxes_dropped",
    "import",
];

pub(crate) fn incarnation(node: usize) -> Incarnation {
    Incarnation::new(100 + node as u64).expect("not zero")
}

struct Node {
    replica: Replica,
    applied: VersionVector,
    hlc: Hlc,
    /// What each other node has said that it has applied, counted only when its own operations up to there are applied here.
    reported: BTreeMap<usize, VersionVector>,
    listed: BTreeSet<MailboxName>,
    visible: BTreeMap<MessageId, (MailboxName, u32)>,
    epoch: u32,
    watch: Watch,
}

struct World<'a> {
    setting: &'a Setting,
    nodes: Vec<Node>,
    trace: Trace,
    done: BTreeSet<Order>,
    time: u64,
}

/// What keeps a history from going on: something that must never be.
type Outcome = Result<(), String>;

fn name(n: u16) -> MailboxName {
    MailboxName::new(NAMES[usize::from(n) % NAMES.len()]).expect("valid")
}

fn flags(bits: u16) -> Flags {
    let keyword = Flag::Keyword(Keyword::new("$Label").expect("valid"));
    let all = [Flag::Seen, Flag::Flagged, Flag::Deleted, keyword];
    let chosen = all.into_iter().enumerate();
    chosen
        .filter(|(at, _)| bits >> at & 1 == 1)
        .map(|(_, flag)| flag)
        .collect()
}

/// The message number `n`; all that never changes about it follows from the number.
pub(crate) fn new_message(n: u64, flags: Flags) -> NewMessage {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&n.to_le_bytes());
    NewMessage {
        flags,
        blob: BlobName {
            hash,
            upload: [1; 16],
        },
        size: 100 + (n % 50) as u32,
        open_end: n.is_multiple_of(3),
        date: Date {
            seconds: n as i64,
            zone_minutes: 60,
        },
        content: vec![n as u8; 3],
    }
}

/// The number of a message, from its blob.
pub(crate) fn number_of(blob: &BlobName) -> u64 {
    blob.hash
        .first_chunk::<8>()
        .map_or(0, |n| u64::from_le_bytes(*n))
}

impl World<'_> {
    fn at(&self, i: usize) -> At {
        At {
            now_micros: u64::from(OPENED) * 1_000_000 + self.time * self.setting.step_micros,
            next: Dot::new(
                incarnation(i),
                self.nodes[i].applied.get(incarnation(i)) + 1,
            ),
        }
    }

    fn clock(&self, i: usize) -> u64 {
        self.time + self.setting.ahead[i]
    }

    fn reads(&self, i: usize) -> bool {
        self.setting.readers >> i & 1 == 1
    }

    /// A node makes a batch and applies it.
    fn make(&mut self, i: usize, ops: Vec<Op>) -> Outcome {
        if ops.is_empty() {
            return Ok(());
        }
        let now = self.clock(i);
        let count = ops.len() as u32;
        // As they will be read from the log.
        let ops = Op::decode_all(&Op::encode_all(&ops)).map_err(|e| e.to_string())?;
        let node = &mut self.nodes[i];
        self.trace.made.push(Made {
            node: i,
            first: node.applied.get(incarnation(i)) + 1,
            hlc: node.hlc.tick_many(now, count),
            deps: node.applied.clone(),
            ops,
        });
        let batch = self.trace.made.len() - 1;
        self.trace.ops += u64::from(count);
        self.trace.events.push(Event::Make(i, batch));
        self.apply(i, batch)
    }

    fn take(&mut self, i: usize, batch: usize) -> Outcome {
        self.trace.events.push(Event::Take(i, batch));
        self.apply(i, batch)?;
        let made = &self.trace.made[batch];
        let report = self.nodes[i].reported.entry(made.node).or_default();
        report.merge(&made.deps);
        report.advance(incarnation(made.node), made.last());
        if self.reads(i) {
            self.claim_late(i)?;
        }
        Ok(())
    }

    fn apply(&mut self, i: usize, batch: usize) -> Outcome {
        let now = self.at(i).now_micros;
        let made = &self.trace.made[batch];
        let node = &mut self.nodes[i];
        node.hlc.observe(made.hlc + made.ops.len() as u64);
        node.applied.advance(incarnation(made.node), made.last());
        let step = Step {
            origin: incarnation(made.node),
            first: made.first,
            hlc: made.hlc,
            deps: &made.deps,
            applied: &node.applied,
            now_micros: now,
            peers: &Peers::none(),
        };
        node.replica
            .apply(&step, made.ops.clone())
            .map_err(|e| format!("node {i}: {e}"))?;
        self.settle(i)
    }

    /// Tells the model what the replica's desk did, and what it shows now.
    fn settle(&mut self, i: usize) -> Outcome {
        self.nodes[i].replica.take_dirty();
        let seen = Seen::of(&self.nodes[i].replica)?;
        let node = &mut self.nodes[i];
        let looked = node.watch.look(&node.replica, &seen);
        looked.map_err(|why| format!("node {i}: {why}"))?;
        let events = &mut self.trace.events;
        if seen.epoch > node.epoch {
            node.epoch = seen.epoch;
            node.visible.clear();
            events.push(Event::Era(i, seen.epoch));
        }
        for id in node.visible.keys().filter(|id| !seen.rows.contains_key(id)) {
            events.push(Event::Hide(i, *id));
        }
        let gone = node.listed.iter().filter(|n| !seen.names.contains_key(*n));
        events.extend(gone.map(|name| Event::Unlist(i, name.clone())));
        let new = seen.names.keys().filter(|n| !node.listed.contains(*n));
        events.extend(new.map(|name| Event::List(i, name.clone())));
        for (id, (name, row)) in &seen.rows {
            let known = node.visible.get(id);
            if known.is_none_or(|(known, uid)| known != name || *uid != row.uid) {
                let show = Event::Show(i, *id, name.clone(), node.epoch, row.uid);
                events.push(show);
            }
        }
        let visible = seen.rows.iter();
        let visible = visible.map(|(id, (name, row))| (*id, (name.clone(), row.uid)));
        node.visible = visible.collect();
        node.listed = seen.names.keys().cloned().collect();
        events.push(Event::See(i, Box::new(seen)));
        Ok(())
    }

    /// Rule 4: late messages are claimed again. Nodes that do the same differ by their rank; nobody is waited for.
    fn claim_late(&mut self, i: usize) -> Outcome {
        for _ in 0..ROUNDS_MAX {
            let others = (0..self.nodes.len()).filter(|j| *j != i && self.reads(*j));
            let peers = others.map(|j| Peer {
                slot: self.trace.slots[j],
                heard: u32::MAX,
                timeout_micros: 0,
            });
            let plan = self.nodes[i]
                .replica
                .plan_late(&self.at(i), &Peers::new(0, peers.collect()));
            if plan.ops.is_empty() {
                return Ok(());
            }
            self.make(i, plan.ops)?;
        }
        Err("claims made again are late again".to_owned())
    }

    /// The batches that may be delivered to a node now.
    fn ready(&self, i: usize) -> Vec<usize> {
        let applied = &self.nodes[i].applied;
        let made = self.trace.made.iter().enumerate();
        made.filter(|(_, made)| {
            applied.get(incarnation(made.node)) + 1 == made.first && applied.covers_all(&made.deps)
        })
        .map(|(at, _)| at)
        .collect()
    }

    fn listed(&self, i: usize) -> Vec<MailboxName> {
        let names = self.nodes[i].replica.names().into_iter();
        names.filter(|n| n.id.is_some()).map(|n| n.name).collect()
    }

    fn target(&self, i: usize, n: u16) -> MailboxName {
        let names = self.listed(i);
        names[usize::from(n) % names.len()].clone()
    }

    /// Some of the messages of a name that has any.
    fn pick(&self, i: usize, a: u16, many: u16) -> Option<(MailboxName, Vec<u32>)> {
        let names = self.listed(i).into_iter();
        let full: Vec<(MailboxName, Vec<u32>)> = names
            .map(|name| (name.clone(), self.nodes[i].replica.uids(&name)))
            .filter(|(_, uids)| !uids.is_empty())
            .collect();
        let (name, uids) = full.get(usize::from(a) % full.len().max(1))?;
        let from = usize::from(a) / 7 % uids.len();
        let uids = uids.iter().copied().skip(from);
        Some((name.clone(), uids.take(1 + usize::from(many) % 3).collect()))
    }

    fn act(&mut self, action: Action) -> Outcome {
        let Action { a, b, c, .. } = action;
        let i = usize::from(action.node) % self.nodes.len();
        self.time += 1 + u64::from(c % 3);
        match action.kind {
            Kind::Finish => {
                self.done.insert(Order::of(&[1 + (a % 6) as u8; 16]));
                Ok(())
            }
            Kind::Look => self.look(i),
            Kind::Take => {
                for round in 0..1 + usize::from(b % 4) {
                    let ready = self.ready(i);
                    if ready.is_empty() {
                        return Ok(());
                    }
                    self.take(i, ready[(usize::from(a) + round) % ready.len()])?;
                }
                Ok(())
            }
            Kind::Collect => self.collect(i, a),
            Kind::Join => self.join(i, usize::from(a) % self.nodes.len()),
            Kind::Takeover => self.takeover(i, a, b),
            _ => {
                let Some(ops) = self.planned(i, action) else {
                    return Ok(());
                };
                self.make(i, ops)?;
                if self.reads(i) {
                    self.claim_late(i)?;
                }
                Ok(())
            }
        }
    }

    /// The operations of an action that makes some; none if they cannot be planned: the client gets the reason. `None`: there is nothing to act on.
    fn planned(&mut self, i: usize, action: Action) -> Option<Vec<Op>> {
        let Action { a, b, c, .. } = action;
        let at = self.at(i);
        let replica = &self.nodes[i].replica;
        Some(match action.kind {
            Kind::Append => {
                let messages = (0..1 + u64::from(b % 2)).map(|k| {
                    let n = self.trace.ops * 2 + k + 1;
                    new_message(n, flags(c))
                });
                let plan = replica.plan_append(&at, &self.target(i, a), messages.collect());
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Deliver => {
                let entry = EntryId([1 + (a % 6) as u8; 16]);
                if self.done.contains(&Order::of(&entry.0)) {
                    return None;
                }
                let message = new_message(1_000 + u64::from(a % 6), Flags::none());
                let plan = replica.plan_deliver(&at, entry, &name(1), &self.target(i, b), message);
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Import => {
                let entry = imported(a);
                // No queue entry is under way for it, nor ever was.
                self.done.insert(Order::of(&entry.0));
                let message = new_message(2_000 + u64::from(a % 6), flags(c));
                let plan = replica.plan_import(&at, &self.target(i, b), vec![(entry, message)]);
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Copy | Kind::Move => {
                let (from, uids) = self.pick(i, a, b)?;
                let to = self.target(i, c);
                let plan = match action.kind {
                    Kind::Copy => replica.plan_copy(&at, &from, &uids, &to),
                    _ => replica.plan_move(&at, &from, &uids, &to),
                };
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Store => {
                let (name, uids) = self.pick(i, a, b)?;
                let mode = [StoreMode::Add, StoreMode::Remove, StoreMode::Replace];
                let mode = mode[usize::from(c / 16) % 3];
                let plan = replica.plan_store(&name, &uids, mode, &flags(c), &|_| None);
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Expunge => {
                let (name, uids) = self.pick(i, a, b)?;
                let plan = replica.plan_expunge(&name, &uids);
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Create => {
                let special = (b % 4 == 0).then_some(SpecialUse::Sent);
                let plan = replica.plan_create(&at, &name(a), special);
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Delete => {
                let plan = replica.plan_delete(&name(a));
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Rename => {
                let plan = replica.plan_rename(&at, &name(a), &name(b));
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Subscribe => {
                let plan = replica.plan_subscribe(&name(a));
                plan.map(|plan| plan.ops).unwrap_or_default()
            }
            Kind::Unsubscribe => replica.plan_unsubscribe(&name(a)).ops,
            Kind::Epoch => {
                if replica.counter() == 0 {
                    return None;
                }
                replica.plan_epoch(&at, 0).ops
            }
            Kind::Finish
            | Kind::Look
            | Kind::Take
            | Kind::Collect
            | Kind::Join
            | Kind::Takeover => return None,
        })
    }

    /// All names are announced: docs/design.md#rule-3.
    fn look(&mut self, i: usize) -> Outcome {
        for name in self.listed(i) {
            let node = &mut self.nodes[i];
            let next = node.replica.status(&name).ok_or("no status")?.uidnext;
            node.replica.announce(&name);
            let announced = Event::Tell(i, name, node.epoch, next);
            self.trace.events.push(announced);
        }
        self.settle(i)
    }

    fn collect(&mut self, i: usize, a: u16) -> Outcome {
        // Others say what they have applied; that counts where all they did is applied, too.
        for j in 0..self.nodes.len() {
            let theirs = &self.nodes[j].applied;
            let own = incarnation(j);
            if j != i && a >> j & 1 == 1 && self.nodes[i].applied.get(own) >= theirs.get(own) {
                let theirs = theirs.clone();
                self.nodes[i].reported.entry(j).or_default().merge(&theirs);
            }
        }
        let node = &self.nodes[i];
        let mut stable = node.applied.clone();
        for j in (0..self.nodes.len()).filter(|j| *j != i) {
            match node.reported.get(&j) {
                Some(report) => stable.meet(report),
                None => return Ok(()),
            }
        }
        let done = &self.done;
        let node = &mut self.nodes[i];
        let collected = node.replica.collect(
            &stable,
            &|order, _| done.contains(&order),
            Tombstones::Left,
            usize::MAX,
        );
        if self.setting.drops {
            // Of an import something is left by which it stays removed, which to the model is its record.
            let account = node.replica.account();
            let imports = (0..6).map(|of| MessageId::imported(imported(of), account));
            let imports: BTreeSet<MessageId> = imports.collect();
            let dropped = collected.messages.iter();
            let dropped = dropped.filter(|dropped| !imports.contains(&dropped.message));
            let dropped = dropped.map(|dropped| Event::Drop(i, dropped.message));
            self.trace.events.extend(dropped);
            let dropped = collected.mailboxes.iter();
            let dropped = dropped.map(|id| Event::DropBox(i, *id));
            self.trace.events.extend(dropped);
        }
        self.settle(i)
    }

    fn join(&mut self, i: usize, j: usize) -> Outcome {
        if i == j {
            return Ok(());
        }
        let now = self.at(i).now_micros;
        let other = self.nodes[j].replica.clone();
        let (theirs, hlc) = (self.nodes[j].applied.clone(), self.nodes[j].hlc);
        let node = &mut self.nodes[i];
        let mine = node.applied.clone();
        node.replica
            .join(&mine, &other, &theirs, now, &Peers::none());
        node.applied.merge(&theirs);
        node.hlc.observe(hlc.last());
        node.reported.entry(j).or_default().merge(&theirs);
        self.trace.events.push(Event::Join(i, j));
        self.settle(i)?;
        if self.reads(i) {
            self.claim_late(i)?;
        }
        Ok(())
    }

    /// Rule 6, as far as one client and one name go: nothing is known of what the others have announced.
    fn takeover(&mut self, i: usize, a: u16, b: u16) -> Outcome {
        self.claim_late(i)?;
        let counter = self.nodes[i].replica.counter() + u32::from(b % 4);
        let takeover = Takeover {
            named: vec![(name(a), counter * 64 + u32::from(b % 64))],
            announced: Vec::new(),
        };
        for _ in 0..ROUNDS_MAX {
            let at = self.at(i);
            let plan = self.nodes[i].replica.plan_takeover(&at, &takeover);
            if plan.ops.is_empty() {
                break;
            }
            self.make(i, plan.ops)?;
        }
        let at = self.at(i);
        self.nodes[i].replica.raise_marks(&at, &takeover);
        for (name, uid) in takeover.named {
            let believed = Event::Believe(i, name, uid + 1);
            self.trace.events.push(believed);
        }
        self.settle(i)
    }

    /// Everything is delivered, in any order; late messages are claimed until there are none; then all are announced and all is collected.
    fn heal(&mut self) -> Outcome {
        let mut rng = Rng::new(self.setting.order);
        for round in 0.. {
            if round == ROUNDS_MAX {
                return Err("claims do not end".to_owned());
            }
            let waiting = |world: &Self| -> Vec<(usize, usize)> {
                let nodes = 0..world.nodes.len();
                nodes
                    .flat_map(|i| world.ready(i).into_iter().map(move |batch| (i, batch)))
                    .collect()
            };
            loop {
                let ready = waiting(self);
                if ready.is_empty() {
                    break;
                }
                let (i, batch) = ready[rng.below(ready.len() as u64) as usize];
                self.take(i, batch)?;
            }
            let late = (0..self.nodes.len()).find(|i| !self.nodes[*i].replica.is_clean());
            match late {
                Some(i) => self.claim_late(i)?,
                None => break,
            }
        }
        for entry in 1..=6 {
            self.done.insert(Order::of(&[entry; 16]));
        }
        for i in 0..self.nodes.len() {
            self.look(i)?;
            self.collect(i, u16::MAX)?;
            if self.nodes[i].replica.hidden() > 0 {
                return Err(format!(
                    "node {i}: hidden records remain when all is stable"
                ));
            }
        }
        Ok(())
    }
}

/// One of six messages that come from elsewhere.
fn imported(of: u16) -> EntryId {
    EntryId([20 + (of % 6) as u8; 16])
}

/// The setting and the actions of a seed.
pub(crate) fn generate(seed: u64) -> (Setting, Vec<Action>) {
    let mut rng = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x0AC1E);
    let nodes = 2 + rng.below(4) as usize;
    let setting = Setting {
        nodes,
        ahead: (0..nodes).map(|_| rng.below(20)).collect(),
        step_micros: [10_000, 3_000_000, 40_000_000][rng.below(3) as usize],
        readers: rng.below(1 << nodes) as u8,
        drops: rng.below(2) == 0,
        open: if rng.below(4) == 0 {
            rng.below(1 << nodes) as u8
        } else {
            0
        },
        order: rng.number(),
    };
    let take = [12, 30, 60][rng.below(3) as usize];
    let mut weights = vec![
        (Kind::Append, 14),
        (Kind::Deliver, 9),
        (Kind::Finish, 1),
        (Kind::Import, 5),
        (Kind::Copy, 4),
        (Kind::Move, 9),
        (Kind::Store, 11),
        (Kind::Expunge, 8),
        (Kind::Create, 6),
        (Kind::Delete, 4),
        (Kind::Rename, 6),
        (Kind::Subscribe, 3),
        (Kind::Unsubscribe, 2),
        (Kind::Look, 6),
        (Kind::Take, take),
        (Kind::Collect, 5),
        (Kind::Join, 3),
    ];
    if rng.below(4) == 0 {
        weights.push((Kind::Takeover, 3));
    }
    if rng.below(10) == 0 {
        weights.push((Kind::Epoch, 1));
    }
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let op_weight: u64 = total - take - 15;
    // Some forty operations, for not every wish can be granted.
    let steps = 50 * total / op_weight;
    let mut actions = Vec::with_capacity(steps as usize);
    for _ in 0..steps {
        let mut at = rng.below(total);
        let mut kind = Kind::Append;
        for (candidate, weight) in &weights {
            if at < *weight {
                kind = *candidate;
                break;
            }
            at -= weight;
        }
        let mut word = || rng.below(1000) as u16;
        let (a, b, c) = (word(), word(), word());
        let node = rng.below(nodes as u64) as u8;
        actions.push(Action {
            kind,
            node,
            a,
            b,
            c,
        });
    }
    (setting, actions)
}

/// Lets replicas of the crate live a history. An error is something that must never be, whatever the model says.
pub(crate) fn run(setting: &Setting, actions: &[Action]) -> Result<Trace, String> {
    let slots: Vec<u8> = (0..setting.nodes).map(|i| 3 + 7 * i as u8).collect();
    let node = |slot: &u8| Node {
        replica: Replica::new(ACCOUNT, *slot),
        applied: VersionVector::new(),
        hlc: Hlc::default(),
        reported: BTreeMap::new(),
        listed: BTreeSet::new(),
        visible: BTreeMap::new(),
        epoch: 0,
        watch: Watch::default(),
    };
    let mut world = World {
        setting,
        nodes: slots.iter().map(node).collect(),
        trace: Trace {
            slots,
            ..Trace::default()
        },
        done: BTreeSet::new(),
        time: 1,
    };
    for i in 0..setting.nodes {
        world.settle(i)?;
        if i == 0 || setting.open >> i & 1 == 1 {
            let folders = [(name(1), Some(SpecialUse::Archive))];
            let opened = OPENED - 5_000 + i as u32;
            let plan = world.nodes[i].replica.plan_open(opened, 7, &folders);
            world.make(i, plan.ops)?;
        }
    }
    for action in actions {
        world.act(*action)?;
    }
    world.heal()?;
    let mut trace = world.trace;
    for (at, made) in trace.made.iter().enumerate() {
        let mut others = trace.made.iter().enumerate();
        let beside = others
            .any(|(other_at, other)| at != other_at && !made.before(other) && !other.before(made));
        trace.concurrent += if beside { made.ops.len() as u64 } else { 0 };
    }
    Ok(trace)
}
