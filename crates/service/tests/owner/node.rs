//! One of two owners, with its store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, PartitionId};
use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{AccountId, Reply},
    machine::{RequestId, Ticket},
    owner::{Config, PartitionOwner},
    peers::{
        Entry, Frame, LogEnd, Snapshot,
        snapshot::{Fixing, LOOKED_AT},
    },
};
use whimbrel_storage::{COMMIT_BYTES_MAX, Commit, Mutation, Room, StoreError};

use super::world::ANNE;

pub(crate) struct Node {
    pub(crate) owner: PartitionOwner,
    pub(crate) config: Config,
    pub(crate) rows: BTreeMap<Vec<u8>, Bytes>,
    pub(crate) logs: BTreeMap<(PartitionId, Incarnation), Vec<Entry>>,
    /// Where logs begin.
    pub(crate) low: BTreeMap<(PartitionId, Incarnation), u64>,
    /// Where logs begin that jumped.
    jumped: BTreeMap<(PartitionId, Incarnation), LogEnd>,
    /// Rows that were fixed.
    pub(crate) fixed: BTreeMap<u64, BTreeMap<Vec<u8>, Bytes>>,
    /// Accounts that the directory has removed.
    pub(crate) removed: BTreeSet<AccountId>,
    /// Accounts of which its directory has not heard.
    pub(crate) unknown: BTreeSet<AccountId>,
    /// What its directory knows UIDVALIDITY to have risen to.
    pub(crate) risen: u32,
    /// The longest chunk of rows that came, in bytes.
    pub(crate) largest_chunk: usize,
    pub(crate) held: BTreeSet<(whimbrel_storage::BlobName, Bytes)>,
    /// The largest commit that held a batch of the other node, since the last look.
    pub(crate) largest_foreign: usize,
    pub(crate) warnings: Vec<String>,
    /// Its disk takes what leads to more room, and what the node could not work without.
    pub(crate) full: bool,
    /// Its disk takes only what the node could not work without.
    pub(crate) scant: bool,
    /// Its disk takes nothing.
    pub(crate) away: bool,
    /// It takes so many commits more, and then nothing.
    pub(crate) commits_left: Option<usize>,
    /// It takes no batch that the node has made.
    pub(crate) refuses_own: bool,
    /// Commits that it has not taken.
    pub(crate) refused: usize,
    /// Its disk is slow: commits that are not durable yet.
    pub(crate) slow: Option<VecDeque<Ticket>>,
    /// What became of deliveries.
    pub(crate) delivered: Vec<(Ticket, bool)>,
    pub(crate) replies: BTreeMap<RequestId, Reply>,
    /// Pages that were read.
    pub(crate) loads: usize,
    /// What is read from such a key on cannot be read,
    pub(crate) fails: Option<Vec<u8>>,
    /// for it is damaged; else for the moment.
    pub(crate) damaged: bool,
    /// Frames that came and were not taken.
    pub(crate) inbox: VecDeque<(Incarnation, Frame)>,
    pub(crate) partition: PartitionId,
}

pub(crate) fn incarnation(node: usize) -> Incarnation {
    Incarnation::new(101 + node as u64).unwrap()
}

impl Node {
    pub(crate) fn new(node: usize, config: Config) -> Node {
        let config = Config {
            origin: incarnation(node),
            slot: node as u8,
            peers: [(incarnation(1 - node), (1 - node) as u8)].into(),
            ..config
        };
        Node {
            owner: PartitionOwner::new(config.clone()),
            config,
            rows: BTreeMap::new(),
            logs: BTreeMap::new(),
            low: BTreeMap::new(),
            jumped: BTreeMap::new(),
            fixed: BTreeMap::new(),
            removed: BTreeSet::new(),
            unknown: BTreeSet::new(),
            risen: 7,
            largest_chunk: 0,
            held: BTreeSet::new(),
            largest_foreign: 0,
            warnings: Vec::new(),
            full: false,
            scant: false,
            away: false,
            commits_left: None,
            refuses_own: false,
            refused: 0,
            slow: None,
            delivered: Vec::new(),
            replies: BTreeMap::new(),
            loads: 0,
            fails: None,
            damaged: false,
            inbox: VecDeque::new(),
            partition: PartitionId::accounts(blake3::hash(&ANNE.0).as_bytes()[0]),
        }
    }

    pub(crate) fn commit(&mut self, commit: Commit) {
        let bytes = commit.bytes();
        assert!(bytes <= COMMIT_BYTES_MAX, "a commit of {bytes} bytes");
        self.commits_left = self.commits_left.map(|left| left.saturating_sub(1));
        let partition = self.partition;
        let entry = commit.entry.as_ref();
        let is_own = entry.is_some_and(|of| of.origin.0 == self.config.origin.get());
        for mutation in &commit.mutations {
            if let Mutation::Reference { blob, .. } = mutation
                && !self.held.iter().any(|(held, _)| held == blob)
            {
                assert_ne!(commit.bodies_come, is_own, "{mutation:?}");
            }
        }
        if let Some(entry) = commit.entry {
            let origin = Incarnation::new(entry.origin.0).unwrap();
            if origin != self.config.origin {
                self.largest_foreign = self.largest_foreign.max(bytes);
            }
            let log = self.logs.entry((partition, origin)).or_default();
            let jumped = self.jumped.get(&(partition, origin));
            let before = jumped.map_or(0, |end| end.last);
            assert_eq!(entry.first, log.last().map_or(before, |last| last.last) + 1);
            let last = entry.end() - 1;
            let (first, bytes) = (entry.first, entry.bytes);
            log.push(Entry { first, last, bytes });
        }
        for jump in commit.jumps {
            let log = (partition, Incarnation::new(jump.origin.0).unwrap());
            let end = LogEnd {
                last: jump.next - 1,
                hash: Hash(jump.hash.0),
                low: jump.next,
            };
            self.jumped.insert(log, end);
            self.logs.insert(log, Vec::new());
            self.low.insert(log, jump.next);
        }
        for cut in commit.cuts {
            let log = (partition, Incarnation::new(cut.origin.0).unwrap());
            self.low.insert(log, cut.below);
            if let Some(log) = self.logs.get_mut(&log) {
                // The last one tells where it ends.
                let ends = log.len().saturating_sub(1);
                let gone = log[..ends].iter().filter(|entry| entry.last < cut.below);
                log.drain(..gone.count());
            }
        }
        for origin in commit.forgets {
            let log = (partition, Incarnation::new(origin.0).unwrap());
            let end = self.logs.get(&log).and_then(|log| log.last());
            let end = end.map(|end| end.last + 1);
            assert!(end.is_none_or(|end| self.low.get(&log) == Some(&end)));
            self.logs.remove(&log);
            self.low.remove(&log);
            self.jumped.remove(&log);
        }
        for mutation in commit.mutations {
            match mutation {
                Mutation::Put { key, value } => _ = self.rows.insert(key.to_vec(), value),
                Mutation::Delete { key } => _ = self.rows.remove(&key[..]),
                Mutation::Reference { blob, holder } => _ = self.held.insert((blob, holder)),
                Mutation::Release { blob, holder } => _ = self.held.remove(&(blob, holder)),
            }
        }
    }

    pub(crate) fn ends(&self) -> Vec<(Incarnation, LogEnd)> {
        let end = |(key, log): (&(PartitionId, Incarnation), &Vec<Entry>)| {
            let Some(last) = log.last() else {
                return Some((key.1, *self.jumped.get(key)?));
            };
            let hash = Hash(*blake3::hash(&last.bytes).as_bytes());
            let low = self.low.get(key).copied().unwrap_or(1);
            Some((
                key.1,
                LogEnd {
                    last: last.last,
                    hash,
                    low,
                },
            ))
        };
        self.logs.iter().filter_map(end).collect()
    }

    /// Fixes the rows, as a driver does.
    pub(crate) fn fix(&mut self) -> Option<Snapshot> {
        let found = LOOKED_AT.iter().filter_map(|prefix| {
            let (key, value) = self.rows.range(prefix.to_vec()..).next()?;
            let row = (Bytes::from(key.clone()), value.clone());
            key.starts_with(prefix).then_some(row)
        });
        let found: Vec<_> = found.collect();
        let ends = self.ends().into_iter().collect();
        let state = 1000 * self.config.origin.get() + self.fixed.len() as u64 + 1;
        let mut fixing = Fixing::new(state, &found, &ends)?;
        while let Some((origin, from)) = fixing.lacks() {
            let log = self.logs.get(&(self.partition, origin));
            let mut entries = log.into_iter().flatten();
            if !fixing.entry(entries.find(|entry| entry.last >= from)) {
                return None;
            }
        }
        let snapshot = fixing.done()?;
        self.fixed.insert(state, self.rows.clone());
        Some(snapshot)
    }

    /// Rows that came with a state and are not joined.
    pub(crate) fn coming(&self) -> usize {
        let keys = self.rows.keys();
        keys.filter(|key| whimbrel_service::owner::keys::is_coming(key))
            .count()
    }

    /// Rows of this kind of an account.
    pub(crate) fn rows_of(&self, kind: impl Fn(&RowKey) -> bool) -> BTreeMap<Vec<u8>, Bytes> {
        let of = |key: &[u8]| RowKey::from_bytes(key.get(17..)?).ok();
        let mut rows = self.rows.clone();
        rows.retain(|key, _| of(key).is_some_and(|row| kind(&row)));
        rows
    }

    /// Whether its disk takes a commit.
    pub(crate) fn takes(&self, commit: &Commit) -> bool {
        let entry = commit.entry.as_ref();
        let is_own = entry.is_some_and(|of| of.origin.0 == self.config.origin.get());
        let is_full =
            self.full && commit.room == Room::Ordinary || self.scant && commit.room != Room::Vital;
        let is_away = self.away || self.commits_left == Some(0);
        !(is_away || is_full || is_own && self.refuses_own)
    }

    pub(crate) fn read_error(&self) -> StoreError {
        match self.damaged {
            true => StoreError::Damaged("no".into()),
            false => StoreError::Read("no".into()),
        }
    }

    /// Whether what is read from this key on cannot be read.
    pub(crate) fn cannot_read(&self, from: &[u8]) -> bool {
        let key = self.fails.as_ref();
        key.is_some_and(|key| from.starts_with(key))
    }
}
