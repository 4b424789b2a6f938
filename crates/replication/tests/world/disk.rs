//! A disk with commits in order: what was not synced is lost in a crash, but for a first part of it.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::{Hash, Incarnation, VersionVector};
use whimbrel_replication::partition::{Entry, LogEnd, Ticket};

/// One commit.
#[derive(Clone, Debug)]
pub struct Io {
    /// A batch appended to a log.
    pub entry: Option<(Incarnation, Entry, Hash)>,
    /// What is applied with it.
    pub applied: Option<(Incarnation, u64)>,
    /// Whom to tell; none for the node's own batches.
    pub ticket: Option<Ticket>,
}

#[derive(Default)]
pub struct Disk {
    pub logs: BTreeMap<Incarnation, Vec<(Entry, Hash)>>,
    pub low: BTreeMap<Incarnation, u64>,
    pub applied: VersionVector,
    pub durable: VersionVector,
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
            }
        }
        done
    }

    /// What the next entry of a log must begin with, counting what waits.
    pub fn next(&self, origin: Incarnation) -> u64 {
        let waiting = self.waiting.iter().rev();
        let mut last = waiting.filter_map(|io| io.entry.as_ref().filter(|(o, _, _)| *o == origin));
        let synced = self.durable.get(origin);
        last.next().map_or(synced, |(_, entry, _)| entry.last) + 1
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
