//! A disk with commits in order: what was not synced is lost in a crash, but for a first part of it.
//!
//! The state is a row for each batch that is applied.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::{Hash, Incarnation, VersionVector};
use whimbrel_replication::partition::{Entry, Input, LogEnd, SnapshotProgress, Ticket};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a commit does to a state that is being taken.
#[derive(Clone, Debug, Hash)]
pub enum StateIo {
    Begin(SnapshotProgress),
    Store(Vec<u8>, Rows),
    Join(SnapshotProgress, BTreeMap<Incarnation, (u64, Hash)>),
    Forget,
}

/// One commit.
#[derive(Clone, Debug, Default, Hash)]
pub struct Io {
    /// A batch appended to a log.
    pub entry: Option<(Incarnation, Entry, Hash)>,
    /// What is applied with it.
    pub applied: Option<(Incarnation, u64)>,
    pub state: Option<StateIo>,
    /// Whom to tell; none for the node's own batches.
    pub ticket: Option<Ticket>,
}

impl Io {
    /// What the machine is told when it is durable.
    pub fn input(self) -> Option<Input> {
        match (self.ticket, self.entry) {
            (Some(ticket), _) => Some(Input::Done(ticket)),
            (None, Some((_, entry, hash))) => Some(Input::Own(entry, hash)),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Default, Hash)]
pub struct Disk {
    pub logs: BTreeMap<Incarnation, Vec<(Entry, Hash)>>,
    pub low: BTreeMap<Incarnation, u64>,
    pub applied: VersionVector,
    pub durable: VersionVector,
    pub rows: Rows,
    pub held: Option<SnapshotProgress>,
    pub staged: Rows,
    pub waiting: VecDeque<Io>,
    /// How many of those are being synced.
    pub syncing: usize,
    heads: BTreeMap<Incarnation, Hash>,
}

impl Disk {
    /// The first `count` commits are durable.
    pub fn sync(&mut self, count: usize) -> Vec<Io> {
        let done: Vec<Io> = self.waiting.drain(..count).collect();
        for io in &done {
            if let Some((origin, entry, hash)) = &io.entry {
                self.durable.advance(*origin, entry.last);
                self.heads.insert(*origin, *hash);
                let log = self.logs.entry(*origin).or_default();
                log.push((entry.clone(), *hash));
            }
            if let Some((origin, last)) = io.applied {
                self.applied.advance(origin, last);
                self.rows.insert(key(origin, last), value(last));
            }
            if let Some(state) = &io.state {
                self.change(state);
            }
        }
        done
    }

    /// What the next entry of a log must begin with, counting what waits.
    pub fn next(&self, origin: Incarnation) -> u64 {
        let waiting = self.waiting.iter().rev();
        let mut last = waiting.filter_map(|io| match (&io.entry, &io.state) {
            (Some((o, entry, _)), _) if *o == origin => Some(entry.last),
            (_, Some(StateIo::Join(_, jumps))) => jumps.get(&origin).map(|(last, _)| *last),
            _ => None,
        });
        last.next().unwrap_or(self.durable.get(origin)) + 1
    }

    fn change(&mut self, state: &StateIo) {
        match state {
            StateIo::Begin(held) => {
                self.staged.clear();
                self.held = Some(held.clone());
            }
            StateIo::Store(last, rows) => {
                self.staged.extend(rows.clone());
                if let Some(held) = &mut self.held {
                    held.last.clone_from(last);
                }
            }
            StateIo::Join(held, jumps) => {
                self.rows.append(&mut self.staged);
                self.held = None;
                self.applied.merge(&held.snapshot.applied);
                for (origin, (last, hash)) in jumps {
                    self.logs.remove(origin);
                    self.low.insert(*origin, last + 1);
                    self.durable.advance(*origin, *last);
                    self.heads.insert(*origin, *hash);
                }
            }
            StateIo::Forget => {
                self.staged.clear();
                self.held = None;
            }
        }
    }

    /// Drops all but the end of this node's own log.
    pub fn leave(&mut self, me: Incarnation) {
        let last = self.durable.get(me);
        let head = self.heads.get(&me).copied();
        *self = Disk::default();
        if last > 0 {
            self.durable.advance(me, last);
            self.heads.extend(head.map(|head| (me, head)));
            self.low.insert(me, last + 1);
        }
    }

    /// The rows, and what they stand for, counting what waits.
    pub fn view(&self) -> (Rows, VersionVector) {
        let (mut rows, mut applied) = (self.rows.clone(), self.applied.clone());
        let mut staged = self.staged.clone();
        for io in &self.waiting {
            if let Some((origin, last)) = io.applied {
                applied.advance(origin, last);
                rows.insert(key(origin, last), value(last));
            }
            match &io.state {
                Some(StateIo::Begin(_) | StateIo::Forget) => staged.clear(),
                Some(StateIo::Store(_, some)) => staged.extend(some.clone()),
                Some(StateIo::Join(held, _)) => {
                    rows.append(&mut staged);
                    applied.merge(&held.snapshot.applied);
                }
                None => {}
            }
        }
        (rows, applied)
    }

    /// The rows that are held of another state, counting what waits.
    pub fn staged(&self) -> Rows {
        let mut staged = self.staged.clone();
        for io in &self.waiting {
            match &io.state {
                Some(StateIo::Store(_, some)) => staged.extend(some.clone()),
                Some(_) => staged.clear(),
                None => {}
            }
        }
        staged
    }

    pub fn read(&self, origin: Incarnation, from: u64, bytes_max: usize) -> Vec<Entry> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for (entry, _) in self.logs.get(&origin).into_iter().flatten() {
            if entry.last < from {
                continue;
            }
            if !found.is_empty() && bytes >= bytes_max {
                break;
            }
            bytes += entry.bytes.len();
            found.push(entry.clone());
        }
        found
    }

    pub fn cut(&mut self, origin: Incarnation, below: u64) {
        self.low.insert(origin, below);
        if let Some(log) = self.logs.get_mut(&origin) {
            log.retain(|(entry, _)| entry.last >= below);
        }
    }

    pub fn ends(&self) -> BTreeMap<Incarnation, LogEnd> {
        let ends = self.durable.iter().map(|(origin, last)| {
            let end = LogEnd {
                last,
                hash: self.heads.get(&origin).copied().unwrap_or_default(),
                low: self.low.get(&origin).copied().unwrap_or(1),
            };
            (origin, end)
        });
        ends.collect()
    }
}

pub fn key(origin: Incarnation, last: u64) -> Vec<u8> {
    [origin.get().to_be_bytes(), last.to_be_bytes()].concat()
}

fn value(last: u64) -> Vec<u8> {
    vec![last as u8; 20 + last as usize % 40]
}

/// Rows above a key, and whether there are more.
pub fn page(rows: &Rows, after: &[u8], bytes_max: usize) -> (Vec<u8>, Vec<u8>, bool) {
    let (mut bytes, mut last) = (Vec::new(), after.to_vec());
    for (key, value) in
        rows.range::<[u8], _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
    {
        if bytes.len() >= bytes_max {
            return (bytes, last, false);
        }
        bytes.push(key.len() as u8);
        bytes.push(value.len() as u8);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        last.clone_from(key);
    }
    (bytes, last, true)
}

pub fn unpage(mut bytes: &[u8]) -> Rows {
    let mut rows = Rows::new();
    while let [key, value, rest @ ..] = bytes {
        let (row, rest) = rest.split_at(usize::from(*key) + usize::from(*value));
        let (key, value) = row.split_at(usize::from(*key));
        rows.insert(key.to_vec(), value.to_vec());
        bytes = rest;
    }
    rows
}
