//! A small world of replicas: random histories with partitions, crashes, collection, a client on each node and one that
//!
//! size: one world of replicas, clients and faults; its parts share the state that each step changes.
//! wanders. All checks are made against the oracle and the clients' models.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod client;
pub mod oracle;
pub mod scenarios;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};

use client::{Client, Look};
use oracle::{Act, Bytes, Fact, Id};
use whimbrel_crdt::{
    Batch, Context, Dot, Hash, Hlc, Incarnation, PartitionId, Section, Stamp, VersionVector,
};
use whimbrel_mailbox::*;
use whimbrel_testkit::Rng;

pub type Outcome = Result<(), String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Append,
    Deliver,
    Import,
    Finish,
    Copy,
    Move,
    Store,
    Expunge,
    Create,
    Delete,
    Rename,
    Subscribe,
    Unsubscribe,
    Look,
    Sync,
    Cut,
    Collect,
    Crash,
    Join,
    Wander,
    Epoch,
    Wait,
}

#[derive(Clone, Copy, Debug)]
pub struct Action {
    pub kind: Kind,
    pub node: u8,
    pub a: u16,
    pub b: u16,
    pub c: u16,
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub nodes: usize,
    pub readers: u8,
    pub skew: Vec<i64>,
    pub step_micros: u64,
    /// Rule 5 is in force: replicas know of each other's readers.
    pub waiting: bool,
    /// Everything is synced after every action: no concurrency.
    pub serial: bool,
    /// Epochs happen.
    pub epochs: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub ops: u64,
    pub concurrent: u64,
    pub messages: u64,
    pub uids_reassigned: u64,
    pub wander_new: u64,
    pub overlooked: u64,
    pub collected: u64,
    pub oracle_checks: u64,
    pub pending: u64,
    pub takeover_uids: u64,
    pub cut: u64,
}

#[derive(Clone)]
struct Disk {
    rows: BTreeMap<RowKey, Vec<u8>>,
    applied: VersionVector,
    own: usize,
}

struct Node {
    replica: Replica,
    origin: Incarnation,
    slot: u8,
    applied: VersionVector,
    hlc: Hlc,
    rows: BTreeMap<RowKey, Vec<u8>>,
    disk: Disk,
    client: Client,
    /// What each node has said it has applied, counted only when its own log up to there is applied here.
    reported: BTreeMap<Incarnation, VersionVector>,
    /// The greatest counter heard from each node.
    heard: BTreeMap<Incarnation, u32>,
    /// What each node has announced, with the number of its own log at that time.
    announced: BTreeMap<Incarnation, (u64, Vec<(u8, u32)>)>,
}

pub struct World {
    pub setting: Setting,
    nodes: Vec<Node>,
    logs: BTreeMap<Incarnation, Vec<Vec<u8>>>,
    facts: Vec<Fact>,
    now: u64,
    cut: u8,
    owners: BTreeMap<(String, u32, u32), Id>,
    done: BTreeSet<Order>,
    wanderer: Client,
    home: usize,
    /// A takeover waits for nobody.
    takes_over: bool,
    /// Where the wandering client came from.
    previous: usize,
    collected: bool,
    epochs: bool,
    announced_names: BTreeSet<String>,
    /// What each node has announced of the bytes under a UID: "a single immutable message" (RFC 9051, 2.3.1.1).
    announced_bytes: BTreeMap<(usize, String, u32, u32), i64>,
    /// The present action is a RENAME onto a name that was announced.
    u4_excused: bool,
    snapshots: Vec<(Replica, VersionVector)>,
    pub stats: Stats,
}

static NOBODY: Peers = Peers::none();

pub const START: u64 = 1_700_000_000;
const NAMES: [&str; 6] = ["INBOX", "a", "b", "a/c", "b/c/d", "e"];

fn name(n: u16) -> MailboxName {
    MailboxName::new(NAMES[n as usize % NAMES.len()]).expect("valid")
}

fn bits(flags: &Flags) -> u8 {
    let bit = |flag: Flag| match flag {
        Flag::Seen => 1,
        Flag::Flagged => 2,
        Flag::Deleted => oracle::DELETED,
        Flag::Keyword(keyword) => {
            let spelled = SPELLED.iter().find(|(_, text)| *text == keyword.as_str());
            spelled.map_or(0, |(bits, _)| *bits)
        }
        _ => 0,
    };
    flags.iter().map(bit).sum()
}

/// Two keywords, one of which begins like the other, each in two spellings.
const SPELLED: [(u8, &str); 4] = [
    (8, "$Label"),
    (8 | oracle::spelling(8), "$LABEL"),
    (32, "$Label1"),
    (32 | oracle::spelling(32), "$label1"),
];

fn flags(bits: u16) -> Flags {
    let all = [(1, Flag::Seen), (2, Flag::Flagged), (4, Flag::Deleted)];
    let system = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    let keywords = SPELLED.iter().filter(|(of, _)| {
        let both = oracle::KEYWORDS.into_iter().find(|bit| of & bit != 0);
        let mask = both.map_or(0, |bit| bit | oracle::spelling(bit));
        bits & u16::from(mask) == u16::from(*of)
    });
    let keywords = keywords.filter_map(|(_, text)| Keyword::new(text).map(Flag::Keyword));
    system.map(|(_, flag)| flag).chain(keywords).collect()
}

fn new_message(n: u64, flags: Flags) -> NewMessage {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&n.to_le_bytes());
    let date = Date {
        seconds: n as i64,
        zone_minutes: 60,
    };
    NewMessage {
        flags,
        blob: BlobName {
            hash,
            upload: [1; 16],
        },
        size: 100 + (n % 50) as u32,
        open_end: n.is_multiple_of(3),
        date,
        content: vec![n as u8; 3],
    }
}

impl World {
    pub fn new(setting: Setting) -> Self {
        let account = AccountId([9; 16]);
        let node = |i: usize| {
            let origin = Incarnation::new(100 + i as u64).expect("not zero");
            let mut replica = Replica::new(account, i as u8 + 3);
            let rows: BTreeMap<RowKey, Vec<u8>> = replica
                .take_dirty()
                .into_iter()
                .filter_map(|(k, v)| Some((k, v?)))
                .collect();
            let disk = Disk {
                rows: rows.clone(),
                applied: VersionVector::new(),
                own: 0,
            };
            Node {
                replica,
                origin,
                slot: i as u8 + 3,
                applied: VersionVector::new(),
                hlc: Hlc::default(),
                rows,
                disk,
                client: Client::default(),
                reported: BTreeMap::new(),
                heard: BTreeMap::new(),
                announced: BTreeMap::new(),
            }
        };
        let mut world = Self {
            nodes: (0..setting.nodes).map(node).collect(),
            setting,
            logs: BTreeMap::new(),
            facts: Vec::new(),
            now: START * 1_000_000,
            cut: 0,
            owners: BTreeMap::new(),
            done: BTreeSet::new(),
            wanderer: Client::default(),
            home: 0,
            previous: 0,
            takes_over: false,
            collected: false,
            epochs: false,
            announced_names: BTreeSet::new(),
            announced_bytes: BTreeMap::new(),
            u4_excused: false,
            snapshots: Vec::new(),
            stats: Stats::default(),
        };
        let plan = world.nodes[0].replica.plan_open(
            START as u32 - 5_000,
            7,
            &[(name(1), Some(SpecialUse::Archive))],
        );
        world
            .local(0, plan.ops)
            .expect("opening an account cannot fail");
        world.sync(0, None).expect("the first sync cannot fail");
        (0..world.nodes.len()).for_each(|i| world.fsync(i));
        world
    }

    fn sync(&mut self, from: usize, only: Option<usize>) -> Outcome {
        for to in 0..self.nodes.len() {
            if to != from && only.is_none_or(|o| o == to) {
                self.pull(to, from, usize::MAX)?;
            }
        }
        Ok(())
    }

    fn clock(&self, i: usize) -> u64 {
        self.now.saturating_add_signed(self.setting.skew[i])
    }

    fn at(&mut self, i: usize) -> At {
        let node = &self.nodes[i];
        At {
            now_micros: self.clock(i),
            next: Dot::new(node.origin, node.applied.get(node.origin) + 1),
        }
    }

    fn connected(&self, i: usize, j: usize) -> bool {
        (self.cut >> i & 1) == (self.cut >> j & 1)
    }

    fn reads(&self, i: usize) -> bool {
        self.setting.readers >> i & 1 == 1
    }

    /// The other live replicas with readers, as node `i` knows them.
    fn peers(&self, i: usize) -> Peers {
        let mut peers = Vec::new();
        for (j, node) in self.nodes.iter().enumerate() {
            if j != i
                && !self.takes_over
                && self.setting.waiting
                && self.reads(j)
                && self.connected(i, j)
            {
                let heard = self.nodes[i].heard.get(&node.origin).copied().unwrap_or(0);
                peers.push(Peer {
                    slot: node.slot,
                    heard,
                    timeout_micros: 2_000_000,
                });
            }
        }
        Peers::new(self.now, peers)
    }

    fn local(&mut self, i: usize, ops: Vec<Op>) -> Result<Effects, String> {
        if ops.is_empty() {
            return Ok(Effects::default());
        }
        let now = self.clock(i);
        let node = &mut self.nodes[i];
        let count = ops.len() as u32;
        let first = node.applied.get(node.origin) + 1;
        let log = self.logs.entry(node.origin).or_default();
        let batch = Batch {
            partition: PartitionId::accounts(0),
            origin: node.origin,
            first,
            count,
            previous: log.last().map_or(Hash::default(), |bytes| {
                Hash(*blake3::hash(bytes).as_bytes())
            }),
            deps: node.applied.clone(),
            stamp: Stamp {
                hlc: node.hlc.tick_many(now, count),
                origin: node.origin,
            },
            sections: vec![Section {
                subject: [9; 16],
                counter: node.replica.counter(),
                count,
                ops: Op::encode_all(&ops),
            }],
            blobs: vec![],
        };
        let sealed = batch.seal();
        log.push(sealed.bytes.clone());
        for (index, op) in (0..).zip(&ops) {
            self.record(&batch, index, op);
        }
        self.stats.ops += u64::from(count);
        self.take(i, &sealed.bytes)
    }

    /// Applies one batch, own or foreign.
    fn take(&mut self, i: usize, bytes: &[u8]) -> Result<Effects, String> {
        let now = self.clock(i);
        let peers = self.peers(i);
        let node = &mut self.nodes[i];
        let batch = Batch::decode(bytes).map_err(|e| e.to_string())?;
        node.hlc.observe(batch.stamp.hlc + u64::from(batch.count));
        node.applied.advance(batch.origin, batch.last());
        let hlc = node.hlc.last().max(now);
        let mut all = Effects::default();
        for (index, section) in batch.indexed_sections() {
            let mut ops = Op::decode_all(&section.ops).map_err(|e| e.to_string())?;
            let mut step = Step::of(&batch, index, &node.applied, hlc, &peers);
            // Some of what others did is applied in parts, as where it changes more than a commit has room for.
            let is_cut = batch.origin != node.origin && batch.first.is_multiple_of(3);
            while !ops.is_empty() {
                let mut rest = Vec::new();
                let mut done = ops.len();
                if is_cut {
                    let cut = node.replica.cut(ops, 3_000);
                    (ops, done, rest) = (cut.ops, cut.done, cut.rest);
                }
                all = node
                    .replica
                    .apply(&step, ops)
                    .map_err(|e| format!("apply: {e}"))?;
                step.first += done as u64;
                step.hlc += done as u64;
                self.stats.cut += u64::from(!rest.is_empty());
                ops = rest;
            }
        }
        self.stats.pending += u64::from(all.wait_until.is_some());
        self.write(i);
        Ok(all)
    }

    fn write(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        // Who holds the blobs is the owner's.
        node.replica.take_replaced();
        for (key, bytes) in node.replica.take_dirty() {
            match bytes {
                Some(bytes) => drop(node.rows.insert(key, bytes)),
                None => drop(node.rows.remove(&key)),
            }
        }
    }

    fn fsync(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let own = self.logs.get(&node.origin).map_or(0, Vec::len);
        node.disk = Disk {
            rows: node.rows.clone(),
            applied: node.applied.clone(),
            own,
        };
    }

    /// Rule 4, as the owner does it after every step.
    fn claim_late(&mut self, i: usize) -> Outcome {
        let at = self.at(i);
        let peers = self.peers(i);
        let plan = self.nodes[i].replica.plan_late(&at, &peers);
        for op in &plan.ops {
            if let Op::Claim { claims, .. } = op {
                self.stats.uids_reassigned += claims.len() as u64;
                if self.setting.serial && !self.epochs && !self.u4_excused {
                    return Err("U4: a UID changes without concurrency".into());
                }
            }
        }
        self.local(i, plan.ops).map(|_| ())
    }

    /// Node `to` applies up to `most` of the batches that `from` has.
    fn pull(&mut self, to: usize, from: usize, most: usize) -> Outcome {
        self.fsync(from);
        let has = self.nodes[from].applied.clone();
        let mut taken = 0;
        loop {
            let mut progress = false;
            for (origin, seq) in has.iter() {
                while taken < most && self.nodes[to].applied.get(origin) < seq {
                    let known = self.nodes[to].applied.get(origin);
                    let next = self.logs[&origin].iter().find(|bytes| {
                        Batch::decode(bytes).is_ok_and(|batch| batch.first == known + 1)
                    });
                    let bytes = next.ok_or("the log has a gap")?.clone();
                    let batch = Batch::decode(&bytes).map_err(|e| e.to_string())?;
                    if !self.nodes[to].applied.covers_all(&batch.deps) {
                        break;
                    }
                    self.take(to, &bytes)?;
                    let counter = batch.sections[0].counter;
                    let heard = self.nodes[to].heard.entry(origin).or_insert(0);
                    *heard = (*heard).max(counter);
                    let report = self.nodes[to].reported.entry(origin).or_default();
                    report.merge(&batch.deps);
                    report.advance(origin, batch.last());
                    if self.reads(to) {
                        self.claim_late(to)?;
                    }
                    progress = true;
                    taken += 1;
                }
            }
            if !progress || taken >= most {
                break;
            }
        }
        let (origin, counter) = (self.nodes[from].origin, self.nodes[from].replica.counter());
        // Links are FIFO: what it says of itself counts once its own log is applied.
        if self.nodes[to].applied.get(origin) >= has.get(origin) {
            let heard = self.nodes[to].heard.entry(origin).or_insert(0);
            *heard = (*heard).max(counter);
            self.nodes[to]
                .reported
                .entry(origin)
                .or_default()
                .merge(&has);
        }
        let gossip: Vec<_> = self.nodes[from]
            .announced
            .iter()
            .map(|(o, a)| (*o, a.clone()))
            .collect();
        for (origin, (seq, claimed)) in gossip {
            if self.nodes[to].applied.get(origin) >= seq {
                let known = self.nodes[to]
                    .announced
                    .entry(origin)
                    .or_insert((0, Vec::new()));
                if known.0 <= seq {
                    *known = (seq, claimed);
                }
            }
        }
        self.release(to)
    }

    fn release(&mut self, i: usize) -> Outcome {
        let peers = self.peers(i);
        let now = self.nodes[i].hlc.last().max(self.clock(i));
        let effects = self.nodes[i].replica.release(now, &peers);
        self.write(i);
        if effects.late {
            self.claim_late(i)
        } else {
            Ok(())
        }
    }

    fn record(&mut self, batch: &Batch, index: u32, op: &Op) {
        let Context { dot, stamp, .. } = batch.context(index);
        let make =
            |message: MessageId, mailbox: &MailboxId, uid: u32, flags: &Flags, bytes| Act::Make {
                message: message.0,
                mailbox: mailbox.0,
                uid,
                flags: bits(flags),
                bytes,
            };
        let ids = |removals: &[Removal]| removals.iter().map(|r| r.message.0).collect::<Vec<_>>();
        let acts = match op {
            Op::CreateMailbox(create) => {
                let id = match create.id {
                    NewId::Fresh => MailboxId::from_dot(dot),
                    NewId::Derived(id) => id,
                };
                vec![Act::Create {
                    mailbox: id.0,
                    name: create.name.to_string(),
                }]
            }
            Op::DeleteMailbox {
                mailboxes,
                messages,
            } => vec![Act::Delete {
                mailboxes: mailboxes.iter().map(|b| b.mailbox.0).collect(),
                messages: ids(messages),
            }],
            Op::RenameMailbox { mailboxes, to } => {
                vec![Act::Rename {
                    mailboxes: mailboxes.iter().map(|b| b.0).collect(),
                    name: to.to_string(),
                }]
            }
            Op::Subscribe { name } => vec![Act::Subscribe {
                name: name.to_string(),
            }],
            Op::Unsubscribe { name, .. } => vec![Act::Unsubscribe {
                name: name.to_string(),
            }],
            Op::Append(a) => vec![make(
                MessageId::from_dot(dot, 0, Order::of(&a.message.blob.upload)),
                &a.mailbox,
                a.uid,
                &a.flags,
                Bytes::Are(a.message.date.seconds),
            )],
            Op::Deliver(d) => vec![Act::Deliver {
                message: d.id.0,
                mailbox: d.mailbox.0,
                uid: d.uid,
                placed: (d.placement.hlc, d.placement.origin.get()),
                bytes: d.message.date.seconds,
            }],
            Op::Copy {
                mailbox, entries, ..
            } => (0..)
                .zip(entries)
                .map(|(index, e)| {
                    let id = MessageId::from_dot(dot, index, Order::of(&e.source.0));
                    make(id, mailbox, e.uid, &e.flags, Bytes::Of(e.source.0))
                })
                .collect(),
            Op::Move {
                mailbox, entries, ..
            } => entries
                .iter()
                .map(|e| Act::Move {
                    message: e.message.0,
                    mailbox: mailbox.0,
                    uid: e.uid,
                    undelete: e.undelete,
                })
                .collect(),
            Op::Store {
                messages,
                set,
                clear,
                ..
            } => vec![Act::Store {
                messages: messages.iter().map(|m| m.0).collect(),
                set: bits(set),
                clear: bits(clear),
            }],
            Op::Expunge { messages } => vec![Act::Expunge {
                messages: ids(messages),
            }],
            Op::Claim { claims, .. } => claims
                .iter()
                .map(|c| Act::Claim {
                    message: c.message.0,
                    placed: (c.placement.hlc, c.placement.origin.get()),
                    uid: c.uid,
                })
                .collect(),
            Op::Open { .. } | Op::Bump { .. } | Op::Epoch { .. } => vec![Act::Other],
        };
        let seen: BTreeMap<u64, u64> = batch.deps.iter().map(|(o, s)| (o.get(), s)).collect();
        for act in acts {
            self.facts.push(Fact {
                origin: batch.origin.get(),
                number: dot.seq,
                seen: seen.clone(),
                time: (stamp.hlc, stamp.origin.get()),
                act,
            });
        }
    }

    /// What a node shows must be what its part of the history says.
    fn check_oracle(&mut self, i: usize) -> Outcome {
        let node = &self.nodes[i];
        // While something waits or is late, it is visible under its former UID or not yet.
        if !node.replica.is_clean() || self.epochs {
            return Ok(());
        }
        self.stats.oracle_checks += 1;
        let known =
            |f: &&Fact| Incarnation::new(f.origin).is_some_and(|o| node.applied.get(o) >= f.number);
        let facts: Vec<&Fact> = self.facts.iter().filter(known).collect();
        let expected = oracle::view(&facts, MailboxId::inbox().0);
        let mut view = oracle::View::default();
        for info in node.replica.names() {
            if info.subscribed {
                view.subscribed.insert(info.name.to_string());
            }
            if info.id.is_some() {
                let rows = node.replica.rows(&info.name, 1..=u32::MAX);
                let rows = rows
                    .iter()
                    .map(|row| {
                        let of = (row.message.0, bits(&row.flags), row.date.seconds);
                        (row.uid, of)
                    })
                    .collect();
                view.names.insert(info.name.to_string(), rows);
            }
        }
        if view != expected {
            return Err(format!(
                "node {i} shows\n  {view:?}\nbut the history says\n  {expected:?}"
            ));
        }
        Ok(())
    }

    /// A client looks at everything on a node: it is announced, so on disk first.
    fn look(&mut self, i: usize, wanders: bool) -> Outcome {
        let names: Vec<MailboxName> = self.nodes[i]
            .replica
            .names()
            .into_iter()
            .filter(|n| n.id.is_some())
            .map(|n| n.name)
            .collect();
        for name in &names {
            let node = &mut self.nodes[i];
            let before = node
                .replica
                .status(name)
                .ok_or("a listed name has no status")?
                .uidnext;
            let written = node.replica.announce(name);
            let status = node
                .replica
                .status(name)
                .ok_or("a listed name has no status")?;
            if status.uidnext != before || (written && node.replica.announce(name)) {
                return Err("announcing changes UIDNEXT".into());
            }
            let client = if wanders {
                &mut self.wanderer
            } else {
                &mut node.client
            };
            let since = client
                .names
                .get(name.as_str())
                .map_or(0, |known| known.modseq);
            let changed = node.replica.changed_since(name, since);
            let vanished = node.replica.vanished_since(name, since);
            in_parts(&node.replica, name, since, &changed)?;
            lists(&node.replica, name)?;
            let rows = node.replica.rows(name, 1..=u32::MAX);
            let count = |bit: u8| {
                rows.iter()
                    .filter(|row| bits(&row.flags) & bit != 0)
                    .count() as u32
            };
            let size: u64 = rows.iter().map(|row| u64::from(row.size)).sum();
            let counted = (
                rows.len() as u32,
                rows.len() as u32 - count(1),
                count(oracle::DELETED),
                size,
                rows.iter().filter(|row| row.open_end).count() as u32,
            );
            let counts = (
                status.messages,
                status.unseen,
                status.deleted,
                status.size,
                status.open_ends,
            );
            if counted != counts {
                return Err(format!(
                    "counts of {name} are wrong: {status:?}, counted {counted:?}"
                ));
            }
            let mut messages = BTreeMap::new();
            for row in &rows {
                if row.modseq > status.highestmodseq || row.modseq == 0 {
                    return Err(format!(
                        "MODSEQ {} of {name} above HIGHESTMODSEQ",
                        row.modseq
                    ));
                }
                messages.insert(row.uid, (row.message.0, bits(&row.flags)));
                let key = (name.to_string(), status.uidvalidity, row.uid);
                let owner = self.owners.entry(key).or_insert(row.message.0);
                if *owner != row.message.0 {
                    return Err(format!("U1: {name} {} denotes two messages", row.uid));
                }
                let key = (i, name.to_string(), status.uidvalidity, row.uid);
                let known = self.announced_bytes.entry(key).or_insert(row.date.seconds);
                if *known != row.date.seconds {
                    return Err(format!("U1: {name} {} has other bytes by now", row.uid));
                }
            }
            // Whatever was ever announced under a UID is found by it, or is gone.
            let announced = self.owners.range(
                (name.to_string(), status.uidvalidity, 0)
                    ..=(name.to_string(), status.uidvalidity, u32::MAX),
            );
            for ((_, _, uid), message) in announced {
                if let Some(present) = node.replica.resolve(name, *uid)
                    && node.replica.row(name, present).map(|row| row.message.0) != Some(*message)
                {
                    return Err(format!("U1: {name} {uid} is resolved to another message"));
                }
            }
            let look = Look {
                uidvalidity: status.uidvalidity,
                uidnext: status.uidnext,
                modseq: status.highestmodseq,
                messages,
                changed,
                complete: vanished.is_some(),
                vanished: vanished.unwrap_or_default(),
            };
            client.look(name.as_str(), look, wanders)?;
            self.announced_names.insert(name.to_string());
        }
        let client = if wanders {
            &mut self.wanderer
        } else {
            &mut self.nodes[i].client
        };
        for (name, known) in &mut client.names {
            if !names.iter().any(|visible| visible.as_str() == name) {
                known.messages.clear();
            }
        }
        self.write(i);
        self.fsync(i);
        let node = &mut self.nodes[i];
        if node.replica.is_clean() {
            let announced = (node.applied.get(node.origin), node.replica.claimed());
            node.announced.insert(node.origin, announced);
        }
        Ok(())
    }

    fn pick(&self, i: usize, a: u16, many: u16) -> Option<(MailboxName, Vec<u32>)> {
        let names = self.nodes[i].replica.names();
        let names: Vec<_> = names
            .into_iter()
            .filter(|n| n.id.is_some())
            .map(|n| n.name)
            .collect();
        let full: Vec<_> = names
            .into_iter()
            .filter(|n| !self.nodes[i].replica.uids(n).is_empty())
            .collect();
        let name = full.get(a as usize % full.len().max(1))?.clone();
        let uids = self.nodes[i].replica.uids(&name);
        let from = (a as usize / 7) % uids.len();
        let uids = uids
            .into_iter()
            .skip(from)
            .take(1 + many as usize % 3)
            .collect();
        Some((name, uids))
    }

    fn target(&self, i: usize, b: u16) -> MailboxName {
        let names = self.nodes[i].replica.names();
        let names: Vec<_> = names
            .into_iter()
            .filter(|n| n.id.is_some())
            .map(|n| n.name)
            .collect();
        names[b as usize % names.len()].clone()
    }

    pub fn act(&mut self, action: Action) -> Outcome {
        let Action {
            kind,
            node,
            a,
            b,
            c,
        } = action;
        let i = node as usize % self.nodes.len();
        self.now += self.setting.step_micros;
        self.u4_excused = false;
        let at = self.at(i);
        let replica = &self.nodes[i].replica;
        let ops: Vec<Op> = match kind {
            Kind::Append => {
                let n = 1 + u64::from(b % 3);
                self.stats.messages += n;
                let messages = (0..n)
                    .map(|k| new_message(self.now + k, flags(c & 0x7b)))
                    .collect();
                let plan = replica.plan_append(&at, &self.target(i, a), messages);
                plan.map_err(|e| e.to_string())?.ops
            }
            Kind::Deliver => {
                let entry = EntryId([1 + (a % 6) as u8; 16]);
                if self.done.contains(&Order::of(&entry.0)) {
                    return Ok(());
                }
                // Where a delivery ends up may differ from node to node.
                let plan = replica.plan_deliver(
                    &at,
                    entry,
                    &name(1),
                    &self.target(i, b),
                    new_message(5, Flags::none()),
                );
                plan.map_err(|e| e.to_string())?.ops
            }
            Kind::Import => {
                // A source that gives other bytes each time.
                let entry = EntryId([101 + (a % 4) as u8; 16]);
                let message = new_message(1 + u64::from(c % 7), flags(b & 0x7b));
                let plan = replica.plan_import(&at, &self.target(i, c / 7), vec![(entry, message)]);
                plan.map_err(|e| e.to_string())?.ops
            }
            Kind::Finish => {
                self.done.insert(Order::of(&[1 + (a % 6) as u8; 16]));
                return Ok(());
            }
            Kind::Copy | Kind::Move => {
                let Some((from, uids)) = self.pick(i, a, b) else {
                    return Ok(());
                };
                let to = self.target(i, c);
                let plan = match kind {
                    Kind::Copy => replica.plan_copy(&at, &from, &uids, &to),
                    _ => replica.plan_move(&at, &from, &uids, &to),
                };
                let plan = plan.map_err(|e| e.to_string())?;
                if !plan.outcome.missing.is_empty() || plan.outcome.uids.len() != uids.len() {
                    return Err("COPY or MOVE misses what is visible".into());
                }
                plan.ops
            }
            Kind::Store => {
                let Some((name, uids)) = self.pick(i, a, b) else {
                    return Ok(());
                };
                let mode =
                    [StoreMode::Add, StoreMode::Remove, StoreMode::Replace][b as usize / 3 % 3];
                let known = self.nodes[i].client.names.get(name.as_str());
                let seen = |uid: u32| {
                    known
                        .and_then(|k| k.messages.get(&uid))
                        .map(|(_, bits)| flags(u16::from(*bits)))
                };
                let plan = replica.plan_store(&name, &uids, mode, &flags(c & 0x7f), &seen);
                plan.map_err(|e| e.to_string())?.ops
            }
            Kind::Expunge => {
                let Some((name, uids)) = self.pick(i, a, b) else {
                    return Ok(());
                };
                replica
                    .plan_expunge(&name, &uids)
                    .map_err(|e| e.to_string())?
                    .ops
            }
            Kind::Create => replica
                .plan_create(&at, &name(a), None)
                .map(|plan| plan.ops)
                .unwrap_or_default(),
            Kind::Delete => replica
                .plan_delete(&name(a))
                .map(|plan| plan.ops)
                .unwrap_or_default(),
            Kind::Rename => {
                let Ok(plan) = replica.plan_rename(&at, &name(a), &name(b)) else {
                    return Ok(());
                };
                let was_announced = |(_, new): &(MailboxName, MailboxName)| {
                    self.announced_names.contains(new.as_str())
                };
                self.u4_excused = plan.outcome.names.iter().any(was_announced);
                let again = plan.ops.iter().any(|op| matches!(op, Op::Claim { .. }));
                if again && self.setting.serial && !self.u4_excused {
                    return Err(
                        "U4: RENAME onto a name that was never announced changes UIDs".into(),
                    );
                }
                plan.ops
            }
            Kind::Subscribe => {
                replica
                    .plan_subscribe(&name(a))
                    .map_err(|e| e.to_string())?
                    .ops
            }
            Kind::Unsubscribe => replica.plan_unsubscribe(&name(a)).ops,
            Kind::Look => {
                if self.reads(i) {
                    self.look(i, false)?;
                }
                return self.check_oracle(i);
            }
            Kind::Sync => {
                let j = a as usize % self.nodes.len();
                if i != j && self.connected(i, j) {
                    self.pull(i, j, 1 + (b % 8) as usize)?;
                }
                return self.check_oracle(i);
            }
            Kind::Cut => {
                self.cut ^= 1 << (a as usize % self.nodes.len());
                return Ok(());
            }
            Kind::Collect => {
                self.collect(i);
                return self.check_oracle(i);
            }
            Kind::Crash => return self.crash(i, a),
            Kind::Join => return self.join(i, a as usize % self.nodes.len(), b % 3 == 0),
            Kind::Wander => {
                let to = a as usize % self.nodes.len();
                if a % 4 == 0 && to != self.home {
                    self.takeover(to)?;
                    self.previous = self.home;
                    self.home = to;
                }
                return self.look_wandering();
            }
            Kind::Epoch => {
                self.epochs = true;
                replica.plan_epoch(&at, 0).ops
            }
            Kind::Wait => {
                self.now += u64::from(a % 100) * 1_000_000;
                return self.release(i);
            }
        };
        if kind == Kind::Epoch {
            self.local(i, ops)?;
            return self.claim_late(i);
        }
        let effects = self.local(i, ops)?;
        if effects.late {
            self.claim_late(i)?;
        }
        self.check_oracle(i)
    }

    fn collect(&mut self, i: usize) {
        let node = &self.nodes[i];
        let mut stable = node.applied.clone();
        for other in &self.nodes {
            if other.origin != node.origin {
                stable.meet(
                    node.reported
                        .get(&other.origin)
                        .unwrap_or(&VersionVector::new()),
                );
            }
        }
        let done = self.done.clone();
        let collected = self.nodes[i].replica.collect(
            &stable,
            &|order, _| done.contains(&order),
            Tombstones::Left,
            usize::MAX,
        );
        self.stats.collected += collected.messages.len() as u64;
        self.collected |= collected.messages.len() + collected.mailboxes.len() > 0;
        self.write(i);
    }

    /// What was not on disk is lost; a restart from rows gives the same replica.
    fn crash(&mut self, i: usize, a: u16) -> Outcome {
        if a.is_multiple_of(2) {
            self.fsync(i);
        }
        let node = &mut self.nodes[i];
        let rows: BTreeMap<RowKey, Vec<u8>> = node.replica.all_rows().into_iter().collect();
        let mut stored = node.rows.clone();
        stored.retain(|key, _| !matches!(key, RowKey::Content(_)));
        // What a mailbox's row says of all its messages is not in theirs.
        let of_rows = Replica::load(AccountId([9; 16]), node.slot, stored.clone(), &node.applied);
        let of_rows = of_rows.map_err(|e| e.to_string())?.all_rows();
        stored.extend(
            of_rows
                .into_iter()
                .filter(|(key, _)| matches!(key, RowKey::Message(_))),
        );
        // Some fields are written only with something else.
        let same = |a: &BTreeMap<RowKey, Vec<u8>>, b: &BTreeMap<RowKey, Vec<u8>>| {
            a.keys().eq(b.keys())
                && a.iter()
                    .all(|(key, bytes)| *key == RowKey::Account || b[key] == *bytes)
        };
        if !same(&rows, &stored) {
            let of = |x: &BTreeMap<RowKey, Vec<u8>>, y: &BTreeMap<RowKey, Vec<u8>>| {
                x.iter()
                    .filter(|(k, v)| y.get(k) != Some(v))
                    .map(|(k, _)| format!("{k:?}"))
                    .collect::<Vec<_>>()
            };
            return Err(format!(
                "rows written differ from the state: {:?} {:?}",
                of(&rows, &stored),
                of(&stored, &rows)
            ));
        }
        // The content rows are those of the messages that are there.
        let contents = node.rows.iter().filter_map(|(key, row)| match key {
            RowKey::Content(id) => Some((*id, Content::decode(row).ok()?.blob)),
            _ => None,
        });
        let contents: BTreeMap<MessageId, BlobName> = contents.collect();
        for name in node.replica.names() {
            for row in node.replica.rows(&name.name, 1..=u32::MAX) {
                if contents.get(&row.origin) != Some(&row.blob) {
                    return Err(format!("the content of {} is not its own", row.message));
                }
            }
        }
        let (origin, disk) = (node.origin, node.disk.clone());
        if let Some(log) = self.logs.get_mut(&origin) {
            log.truncate(disk.own);
        }
        let last = disk.applied.get(origin);
        self.facts
            .retain(|fact| fact.origin != origin.get() || fact.number <= last);
        self.snapshots
            .retain(|(_, vector)| vector.get(origin) <= last);
        // The clock goes on from the greatest stamp of the logs.
        let mut hlc = Hlc::default();
        for bytes in self.logs.values().flatten() {
            let batch = Batch::decode(bytes).map_err(|e| e.to_string())?;
            if disk.applied.get(batch.origin) >= batch.first {
                hlc.observe(batch.stamp.hlc + u64::from(batch.count));
            }
        }
        let node = &mut self.nodes[i];
        let rows = disk
            .rows
            .iter()
            .filter(|(key, _)| !matches!(key, RowKey::Content(_)));
        let rows = rows.map(|(k, v)| {
            (
                RowKey::from_bytes(&k.to_bytes()).expect("own key"),
                v.clone(),
            )
        });
        // Any order will do.
        let rows: Vec<_> = if a.is_multiple_of(3) {
            rows.rev().collect()
        } else {
            rows.collect()
        };
        let loaded = Replica::load(AccountId([9; 16]), node.slot, rows, &disk.applied)
            .map_err(|e| e.to_string())?;
        if a.is_multiple_of(2) {
            let visible = |r: &Replica| {
                r.names()
                    .into_iter()
                    .map(|n| {
                        (
                            r.status(&n.name).map(|s| Status {
                                highestmodseq: 0,
                                ..s
                            }),
                            r.rows(&n.name, 1..=u32::MAX),
                            n,
                        )
                    })
                    .collect::<Vec<_>>()
            };
            if loaded.all_rows()[1..] != node.replica.all_rows()[1..]
                || visible(&loaded) != visible(&node.replica)
            {
                return Err("loading the rows gives another replica".into());
            }
        }
        node.replica = loaded;
        node.rows = disk.rows.clone();
        node.applied = disk.applied.clone();
        node.hlc = hlc;
        let applied = node.applied.clone();
        node.announced
            .retain(|origin, (seq, _)| applied.get(*origin) >= *seq);
        node.reported
            .retain(|origin, report| applied.get(*origin) >= report.get(*origin));
        node.heard.clear();
        self.release(i)?;
        if self.nodes[i].replica.is_clean() {
            Ok(())
        } else {
            self.claim_late(i)
        }
    }

    /// Joining snapshots equals applying what is missing.
    fn join(&mut self, i: usize, j: usize, adopt: bool) -> Outcome {
        if i == j {
            return Ok(());
        }
        let now = self.clock(i);
        let (mine, theirs) = (self.nodes[i].applied.clone(), self.nodes[j].applied.clone());
        let mut joined = self.nodes[i].replica.clone();
        joined.join(&mine, &self.nodes[j].replica, &theirs, now, &Peers::none());
        let mut applied = self.nodes[i].replica.clone();
        let mut vector = mine.clone();
        loop {
            let mut progress = false;
            for (origin, seq) in theirs.iter() {
                for bytes in &self.logs[&origin] {
                    let batch = Batch::decode(bytes).map_err(|e| e.to_string())?;
                    if batch.first == vector.get(origin) + 1
                        && batch.last() <= seq
                        && vector.covers_all(&batch.deps)
                    {
                        vector.advance(origin, batch.last());
                        let step = Step::of(&batch, 0, &vector, now, &NOBODY);
                        let ops =
                            Op::decode_all(&batch.sections[0].ops).map_err(|e| e.to_string())?;
                        applied
                            .apply(&step, ops)
                            .map_err(|e| format!("apply for join: {e}"))?;
                        progress = true;
                    }
                }
            }
            if !progress {
                break;
            }
        }
        let hidden = !self.collected;
        if joined.replicated_rows(hidden) != applied.replicated_rows(hidden) {
            return Err("law: join(snapshots) differs from apply(operations)".into());
        }
        if self.snapshots.len() < 6 {
            self.snapshots
                .push((self.nodes[i].replica.clone(), mine.clone()));
        }
        if adopt && self.connected(i, j) {
            self.fsync(j);
            let contents: Vec<_> = self.nodes[j]
                .rows
                .iter()
                .filter(|(k, _)| matches!(k, RowKey::Content(_)))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let peers = self.peers(i);
            let other = self.nodes[j].replica.clone();
            let hlc = self.nodes[j].hlc.last();
            let node = &mut self.nodes[i];
            node.replica.join(&mine, &other, &theirs, now, &peers);
            for (key, bytes) in contents {
                let blob = |bytes: &Vec<u8>| Content::decode(bytes).map(|of| of.blob).ok();
                let here = node.rows.get(&key).and_then(blob);
                if here < blob(&bytes) {
                    node.rows.insert(key, bytes);
                }
            }
            node.applied.merge(&theirs);
            node.hlc.observe(hlc);
            self.write(i);
            if self.reads(i) {
                self.claim_late(i)?;
            }
        }
        self.check_oracle(i)
    }

    /// The wandering client comes to node `to` (docs/design.md#rule-6).
    fn takeover(&mut self, to: usize) -> Outcome {
        let now = self.nodes[to].hlc.last().max(self.clock(to));
        self.takes_over = true;
        self.nodes[to].replica.release(now, &Peers::none());
        self.write(to);
        let at = self.at(to);
        let plan = self.nodes[to].replica.plan_late(&at, &Peers::none());
        self.local(to, plan.ops)?;
        let uidvalidity = self.nodes[to].replica.uidvalidity();
        let named = self
            .wanderer
            .names
            .iter()
            .filter(|(_, known)| known.uidvalidity == uidvalidity);
        let named = named
            .filter_map(|(name, known)| Some((MailboxName::new(name).ok()?, known.uidnext - 1)));
        // The least of what the others have announced; whoever has announced nothing takes all away.
        let mut announced: Option<Vec<(u8, u32)>> = None;
        for (j, node) in self.nodes.iter().enumerate() {
            if j == to {
                continue;
            }
            let theirs = self.nodes[to]
                .announced
                .get(&node.origin)
                .map(|(_, a)| a.clone())
                .unwrap_or_default();
            announced = Some(match announced {
                None => theirs,
                Some(least) => {
                    let both = least.into_iter().filter_map(|(slot, counter)| {
                        let (_, other) = theirs.iter().find(|(s, _)| *s == slot)?;
                        Some((slot, counter.min(*other)))
                    });
                    both.collect()
                }
            });
        }
        let takeover = Takeover {
            named: named.collect(),
            announced: announced.unwrap_or_default(),
        };
        let at = self.at(to);
        let plan = self.nodes[to].replica.plan_takeover(&at, &takeover);
        for op in &plan.ops {
            if let Op::Claim { claims, .. } = op {
                self.stats.takeover_uids += claims.len() as u64;
            }
        }
        self.local(to, plan.ops)?;
        self.takes_over = false;
        self.nodes[to].replica.raise_marks(&at, &takeover);
        self.write(to);
        Ok(())
    }

    fn look_wandering(&mut self) -> Outcome {
        let home = self.home;
        let before = self.wanderer.overlooked.clone();
        self.look(home, true)?;
        // What was gone already where the client came from, it need not see.
        let known = |f: &&Fact| {
            Incarnation::new(f.origin)
                .is_some_and(|o| self.nodes[self.previous].applied.get(o) >= f.number)
        };
        let facts: Vec<&Fact> = self.facts.iter().filter(known).collect();
        let there: Vec<Id> = oracle::view(&facts, MailboxId::inbox().0)
            .names
            .values()
            .flat_map(|m| m.values().map(|(id, ..)| *id))
            .collect();
        let made = |id: &Id| {
            facts.iter().any(|f| match &f.act {
                Act::Make { message, .. } | Act::Deliver { message, .. } => message == id,
                _ => false,
            })
        };
        let new: Vec<Id> = self
            .wanderer
            .overlooked
            .difference(&before)
            .copied()
            .collect();
        for id in new {
            if made(&id) && !there.contains(&id) {
                self.wanderer.overlooked.remove(&id);
                self.wanderer.seen.insert(id);
            } else {
                return Err(format!(
                    "U2: a client that moved from {} to {} overlooks {id:?}",
                    self.previous, self.home
                ));
            }
        }
        Ok(())
    }

    /// The network is whole and operations stop: U3.
    pub fn heal(&mut self) -> Outcome {
        self.cut = 0;
        for round in 0.. {
            if round > 100 {
                return Err("U3: claims do not end".into());
            }
            self.now += 5_000_000;
            let before: Vec<_> = self.nodes.iter().map(|node| node.applied.clone()).collect();
            for i in 0..self.nodes.len() {
                self.sync(i, None)?;
            }
            for i in 0..self.nodes.len() {
                self.release(i)?;
                if self.reads(i) {
                    self.look(i, false)?;
                } else if !self.nodes[i].replica.is_clean() {
                    self.claim_late(i)?;
                }
            }
            self.look_wandering()?;
            let clean = self.nodes.iter().all(|node| node.replica.is_clean());
            let after: Vec<_> = self.nodes.iter().map(|node| node.applied.clone()).collect();
            if clean && before == after {
                break;
            }
        }
        for _ in 0..3 {
            for i in 0..self.nodes.len() {
                self.sync(i, None)?;
            }
        }
        let visible = |node: &Node| {
            let replica = &node.replica;
            replica
                .names()
                .into_iter()
                .map(|info| {
                    let rows = replica
                        .rows(&info.name, 1..=u32::MAX)
                        .into_iter()
                        .map(|row| Row { modseq: 0, ..row });
                    (info, rows.collect::<Vec<_>>())
                })
                .collect::<Vec<_>>()
        };
        for i in 1..self.nodes.len() {
            if visible(&self.nodes[i]) != visible(&self.nodes[0]) {
                return Err(format!("U3: nodes 0 and {i} show other things"));
            }
            if self.nodes[i].replica.replicated_rows(false)
                != self.nodes[0].replica.replicated_rows(false)
            {
                return Err(format!("U3: the states of nodes 0 and {i} differ"));
            }
        }
        for i in 0..self.nodes.len() {
            self.check_oracle(i)?;
            self.crash(i, 0)?;
        }
        self.collect_all()?;
        self.stats.overlooked += self.wanderer.overlooked.len() as u64;
        self.stats.wander_new += self.wanderer.seen.len() as u64;
        self.replay()?;
        self.join_laws()
    }

    /// All is stable: nothing hidden remains but what the queue may bring again, and collecting changes nothing visible.
    fn collect_all(&mut self) -> Outcome {
        for i in 0..self.nodes.len() {
            let (before, was) = (
                self.nodes[i].replica.replicated_rows(false),
                self.nodes[i].applied.clone(),
            );
            self.nodes[i].reported = self
                .nodes
                .iter()
                .map(|node| (node.origin, was.clone()))
                .collect();
            for tag in 1..=6 {
                self.done.insert(Order::of(&[tag; 16]));
            }
            self.collect(i);
            if self.nodes[i].replica.replicated_rows(false) != before {
                return Err("collection changes what is visible".into());
            }
            if self.nodes[i].replica.hidden() > 0 {
                return Err("hidden records remain when all is stable".into());
            }
            self.check_oracle(i)?;
            self.crash(i, 0)?;
            let replica = &self.nodes[i].replica;
            let origins: BTreeSet<MessageId> = replica
                .names()
                .iter()
                .flat_map(|n| replica.rows(&n.name, 1..=u32::MAX))
                .map(|row| row.origin)
                .collect();
            let contents = self.nodes[i]
                .rows
                .keys()
                .filter(|key| matches!(key, RowKey::Content(_)))
                .count();
            if contents != origins.len() {
                return Err(format!(
                    "{contents} content rows for {} messages with their copies",
                    origins.len()
                ));
            }
        }
        Ok(())
    }

    /// Concurrent operations commute: any causal order gives the same state.
    fn replay(&mut self) -> Outcome {
        let batches: Vec<Batch> = self
            .logs
            .values()
            .flatten()
            .filter_map(|bytes| Batch::decode(bytes).ok())
            .collect();
        let mut states = Vec::new();
        for round in 0..2u64 {
            let mut rng = Rng::new(round * 77 + self.stats.ops);
            let mut replica = Replica::new(AccountId([9; 16]), 60);
            let mut vector = VersionVector::new();
            let mut left: Vec<&Batch> = batches.iter().collect();
            while !left.is_empty() {
                let ready: Vec<usize> = (0..left.len())
                    .filter(|k| {
                        vector.get(left[*k].origin) + 1 == left[*k].first
                            && vector.covers_all(&left[*k].deps)
                    })
                    .collect();
                if ready.is_empty() {
                    return Err("the history is not causal".into());
                }
                let batch = left.swap_remove(ready[rng.below(ready.len() as u64) as usize]);
                vector.advance(batch.origin, batch.last());
                let step = Step::of(batch, 0, &vector, batch.stamp.hlc, &NOBODY);
                let ops = Op::decode_all(&batch.sections[0].ops).map_err(|e| e.to_string())?;
                replica
                    .apply(&step, ops)
                    .map_err(|e| format!("replay: {e}"))?;
            }
            states.push(replica.replicated_rows(true));
        }
        if states[0] != states[1] {
            return Err("law: concurrent operations do not commute".into());
        }
        // Concurrency of the history, for the statistics.
        for (k, batch) in batches.iter().enumerate() {
            let before = |a: &Batch, b: &Batch| {
                a.origin == b.origin && a.first <= b.first
                    || b.deps.covers(Dot::new(a.origin, a.last()))
            };
            let concurrent = batches
                .iter()
                .enumerate()
                .any(|(l, other)| k != l && !before(batch, other) && !before(other, batch));
            self.stats.concurrent += if concurrent {
                u64::from(batch.count)
            } else {
                0
            };
        }
        Ok(())
    }

    fn join_laws(&mut self) -> Outcome {
        let hidden = !self.collected;
        let joined = |a: &(Replica, VersionVector), b: &(Replica, VersionVector)| {
            let (mut replica, mut vector) = a.clone();
            replica.join(&a.1, &b.0, &b.1, 1, &Peers::none());
            vector.merge(&b.1);
            (replica, vector)
        };
        let rows = |a: &(Replica, VersionVector)| a.0.replicated_rows(hidden);
        // Only snapshots whose operations have all survived the crashes.
        let last = &self.nodes[0].applied;
        let snapshots: Vec<_> = self
            .snapshots
            .iter()
            .filter(|(_, vector)| last.covers_all(vector))
            .take(3)
            .collect();
        for a in &snapshots {
            if rows(&joined(a, a)) != rows(a) {
                return Err("law: join is not idempotent".into());
            }
            for b in &snapshots {
                if rows(&joined(a, b)) != rows(&joined(b, a)) {
                    return Err("law: join is not commutative".into());
                }
                for c in &snapshots {
                    if rows(&joined(&joined(a, b), c)) != rows(&joined(a, &joined(b, c))) {
                        return Err("law: join is not associative".into());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The setting and the actions of a seed.
pub fn generate(seed: u64) -> (Setting, Vec<Action>) {
    let mut rng = Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x5EED);
    let nodes = 2 + rng.below(4) as usize;
    let step_micros = [10_000, 300_000, 3_000_000, 40_000_000][rng.below(4) as usize];
    let skew = (0..nodes)
        .map(|_| (rng.below(200) as i64 - 100) * 1_000_000)
        .collect();
    let setting = Setting {
        nodes,
        readers: 1 + rng.below((1 << nodes) - 1) as u8,
        skew,
        step_micros,
        waiting: rng.below(2) == 0,
        serial: rng.below(8) == 0,
        epochs: rng.below(10) == 0,
    };
    let mut weights = vec![
        (Kind::Append, 14),
        (Kind::Deliver, 8),
        (Kind::Import, 4),
        (Kind::Finish, 1),
        (Kind::Copy, 4),
        (Kind::Move, 9),
        (Kind::Store, 11),
        (Kind::Expunge, 8),
        (Kind::Create, 6),
        (Kind::Delete, 4),
        (Kind::Rename, 6),
        (Kind::Subscribe, 3),
        (Kind::Unsubscribe, 2),
        (Kind::Look, 14),
        (Kind::Sync, 26),
        (Kind::Cut, 3),
        (Kind::Collect, 6),
        (Kind::Crash, 4),
        (Kind::Join, 4),
        (Kind::Wait, 3),
    ];
    if !setting.serial {
        weights.push((Kind::Wander, 8));
    }
    if setting.epochs {
        weights.push((Kind::Epoch, 1));
    }
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let steps = if rng.below(3) == 0 { 300 } else { 180 };
    let mut actions = Vec::with_capacity(steps);
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
        actions.push(Action {
            kind,
            node: 0,
            a: word(),
            b: word(),
            c: word(),
        });
        let last = actions.len() - 1;
        actions[last].node = rng.below(nodes as u64) as u8;
    }
    (setting, actions)
}

pub fn run(setting: &Setting, actions: &[Action]) -> Result<Stats, String> {
    let mut world = World::new(setting.clone());
    for action in actions {
        world.act(*action)?;
        if setting.serial {
            world.cut = 0;
            for _ in 0..2 {
                for i in 0..world.nodes.len() {
                    world.sync(i, None)?;
                }
            }
        }
    }
    world.heal()?;
    Ok(world.stats)
}

/// Runs, and makes a panic an error.
pub fn try_run(setting: &Setting, actions: &[Action]) -> Result<Stats, String> {
    shrink::caught(|| run(setting, actions))
}

/// The shortest history found that still fails.
pub fn shrink(setting: &Setting, actions: &[Action]) -> (Vec<Action>, String) {
    shrink::shrink(actions, |actions| try_run(setting, actions).err())
}

/// What is kept in lists is what a look at every message finds.
fn lists(replica: &Replica, name: &MailboxName) -> Outcome {
    let rows = replica.rows(name, 1..=u32::MAX);
    let uids: Vec<u32> = rows.iter().map(|row| row.uid).collect();
    let list = replica.uid_list(name).to_vec();
    if list != uids || replica.uids(name) != uids {
        return Err(format!(
            "the list of {name} is {list:?}, visible are {uids:?}"
        ));
    }
    let unseen = rows.iter().find(|row| !row.flags.contains(&Flag::Seen));
    if replica.first_unseen(name) != unseen.map(|row| row.uid) {
        return Err(format!("the first unseen of {name} is wrong"));
    }
    let mut keywords = rows.iter().flat_map(|row| row.flags.keywords());
    let listed = replica.keywords(name);
    if !keywords.all(|keyword| listed.iter().any(|of| of.same(keyword))) {
        return Err(format!("{name} has keywords besides {listed:?}"));
    }
    let flags = |flags: &[Flag]| flags.iter().cloned().collect::<Flags>();
    let middle = uids.get(uids.len() / 2).copied().unwrap_or(1);
    for (set, unset) in [
        (flags(&[Flag::Flagged]), flags(&[])),
        (flags(&[Flag::Deleted]), flags(&[Flag::Flagged])),
        (flags(&[]), flags(&[Flag::Seen])),
        (flags(&[Flag::Flagged]), flags(&[Flag::Seen])),
        (flags(&[Flag::Seen]), flags(&[])),
    ] {
        for (from, to, count_max, looks_max) in [
            (1, u32::MAX, 1, 9),
            (middle, u32::MAX, 3, 1),
            (1, middle, 2, 3),
        ] {
            let (mut found, mut next) = (Vec::new(), Some(from));
            while let Some(from) = next {
                let part = replica.flagged(name, from..=to, &set, &unset, count_max, looks_max);
                let asked = from..=part.up_to;
                let within = part
                    .visible
                    .iter()
                    .all(|message| asked.contains(&message.uid()));
                if !within || part.visible.len() > count_max || part.up_to > to {
                    return Err(format!("a part of {name} from {from} on is too much"));
                }
                found.extend(part.visible.iter().map(|message| message.uid()));
                next = (part.up_to < to).then(|| part.up_to + 1);
            }
            // Others are known by a UID that they had before.
            found.retain(|uid| uids.contains(uid) || replica.resolve(name, *uid).is_none());
            let meets = |row: &&Row| {
                set.iter().all(|flag| row.flags.contains(&flag))
                    && !unset.iter().any(|flag| row.flags.contains(&flag))
            };
            let range = rows.iter().filter(|row| (from..=to).contains(&row.uid));
            if !range
                .filter(meets)
                .map(|row| row.uid)
                .eq(found.iter().copied())
            {
                return Err(format!(
                    "{found:?} of {name} were found to have {set:?}, not {unset:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Asked for part by part, the changes are those that are given at once, each once, and no part passes the next MODSEQ.
fn in_parts(replica: &Replica, name: &MailboxName, since: u64, all: &[u32]) -> Outcome {
    for count_max in 1..3 {
        let (mut given, mut from) = (Vec::new(), since);
        loop {
            let part = replica.changed_part(name, from, u32::MAX, count_max);
            let rows = part.uids.iter().filter_map(|uid| replica.row(name, *uid));
            let modseqs: Vec<u64> = rows.map(|row| row.modseq).collect();
            let end = part.up_to.unwrap_or(u64::MAX);
            let within = modseqs.iter().all(|at| from < *at && *at <= end);
            // More than were asked for only if they changed at once.
            let is_part =
                modseqs.len() <= count_max || modseqs.iter().min() == modseqs.iter().max();
            if !within || !is_part {
                return Err(format!("since {from} {name} gives {part:?} of {modseqs:?}"));
            }
            given.extend(part.uids);
            match part.up_to {
                Some(up_to) => from = up_to,
                None => break,
            }
        }
        given.sort_unstable();
        if given != all {
            return Err(format!("{name} gives {given:?} in parts, {all:?} at once"));
        }
    }
    let middle = all.get(all.len() / 2).copied().unwrap_or(0);
    let lower = replica.changed_part(name, since, middle, usize::MAX);
    let expected = all.iter().filter(|uid| **uid <= middle);
    if !lower.uids.iter().eq(expected) || lower.up_to.is_some() {
        return Err(format!("{name} gives {lower:?} up to {middle} of {all:?}"));
    }
    let above = replica.uids_above(name, middle);
    let visible = replica.uids(name).into_iter().filter(|uid| *uid > middle);
    if !above.into_iter().eq(visible) {
        return Err(format!("{name} gives wrong UIDs above {middle}"));
    }
    Ok(())
}
