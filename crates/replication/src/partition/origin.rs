//! What is known of one origin's log.

use std::collections::VecDeque;

use whimbrel_crdt::{Batch, Hash, VersionVector};

use super::{LogEnd, lag::Marks};

/// Hashes kept to compare what comes twice: enough for what is on the way.
const RECENT_MAX: usize = 64;

/// Bytes read at first when a log is read to be applied. Doubled while all of it could be applied.
pub(super) const PAGE_BYTES_MIN: usize = 16 << 10;

#[derive(Clone, Hash)]
pub(super) struct Origin {
    /// Numbers below have been cut.
    pub(super) low: u64,
    /// Numbers up to here are kept for nobody who is not linked.
    pub(super) given_up: u64,
    pub(super) taken: u64,
    pub(super) taken_hash: Hash,
    pub(super) stored: u64,
    pub(super) stored_hash: Hash,
    pub(super) handed: u64,
    pub(super) applied: u64,
    /// The first batch that is not handed, if it was seen.
    pub(super) head: Option<Waiting>,
    /// It is being read, to be applied.
    pub(super) reading: bool,
    /// How much is read at once.
    pub(super) page_bytes: usize,
    pub(super) marks: Marks,
    /// Last numbers and hashes of the batches taken last.
    recent: VecDeque<(u64, Hash)>,
}

/// A batch that cannot be applied yet. Itself it is on disk.
#[derive(Clone, Hash)]
pub(super) struct Waiting {
    pub(super) first: u64,
    pub(super) deps: VersionVector,
    pub(super) hlc: u64,
    /// That it comes from the future has been told.
    pub(super) told: bool,
}

impl Waiting {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            first: batch.first,
            deps: batch.deps.clone(),
            hlc: batch.stamp.hlc,
            told: false,
        }
    }
}

impl Origin {
    pub(super) fn empty() -> Self {
        let end = LogEnd {
            last: 0,
            hash: Hash::default(),
            low: 1,
        };
        Self::resume(end, 0)
    }

    pub(super) fn resume(end: LogEnd, applied: u64) -> Self {
        assert!(applied <= end.last, "what is applied is in the log");
        let handed = if crate::broken("resume-skips-unapplied") {
            end.last
        } else {
            applied
        };
        let mut origin = Self {
            low: end.low,
            given_up: 0,
            taken: 0,
            taken_hash: Hash::default(),
            stored: end.last,
            stored_hash: end.hash,
            handed,
            applied,
            head: None,
            reading: false,
            page_bytes: PAGE_BYTES_MIN,
            marks: Marks::default(),
            recent: VecDeque::new(),
        };
        if end.last > 0 {
            origin.took(end.last, end.hash);
        }
        origin
    }

    pub(super) fn took(&mut self, last: u64, hash: Hash) {
        self.taken = last;
        self.taken_hash = hash;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((last, hash));
    }

    pub(super) fn stored(&mut self, last: u64, hash: Hash) {
        // Less when a state was joined meanwhile; more than there is when the log was closed before it.
        if last > self.stored && last <= self.taken {
            self.stored = last;
            self.stored_hash = hash;
        }
    }

    /// Beyond this number there is nothing of it, whatever is on disk.
    pub(super) fn end_at(&mut self, end: u64) {
        // What is applied is below the end, and so is what was handed over: no batch beyond could be.
        if self.taken > end && self.handed <= end && !crate::broken("stranded-told") {
            let hash = self.recent.iter().find(|(number, _)| *number == end);
            let hash = hash.map(|(_, hash)| *hash).unwrap_or_default();
            (self.taken, self.taken_hash) = (end, hash);
            (self.stored, self.stored_hash) = (end, hash);
            self.head = None;
            self.recent.retain(|(number, _)| *number <= end);
        }
    }

    /// Whether there is another batch than this one under its last number, as far as it is remembered.
    pub(super) fn differs(&self, last: u64, hash: Hash) -> bool {
        let known = self.recent.iter().find(|(number, _)| *number == last);
        known.is_some_and(|(_, known)| *known != hash)
    }
}
