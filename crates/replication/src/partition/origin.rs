//! What is known of one origin's log.

use std::collections::VecDeque;

use whimbrel_crdt::{Batch, Hash, VersionVector};

use super::{LogEnd, lag::Marks};

/// Hashes of the batches accepted last, to compare batches that come twice: enough for all that is on the way.
const RECENT_MAX: usize = 64;

/// Bytes of the first read when a log is read to be applied. The size doubles while all that was read could be applied.
pub(super) const PAGE_BYTES_MIN: usize = 16 << 10;

#[derive(Clone, Hash)]
pub(super) struct Origin {
    /// Numbers below have been cut.
    pub(super) low: u64,
    /// Up to this number the log is not kept for members that are away.
    pub(super) given_up: u64,
    pub(super) taken: u64,
    pub(super) taken_hash: Hash,
    pub(super) stored: u64,
    pub(super) stored_hash: Hash,
    pub(super) handed: u64,
    pub(super) applied: u64,
    /// The first batch that was not given to the owner, if it was seen.
    pub(super) head: Option<Waiting>,
    /// The log is being read, to be applied.
    pub(super) reading: bool,
    /// Bytes of one read.
    pub(super) page_bytes: usize,
    pub(super) marks: Marks,
    /// Last numbers and hashes of the batches accepted last.
    recent: VecDeque<(u64, Hash)>,
}

/// A batch that cannot be applied yet. The batch itself is on disk.
#[derive(Clone, Hash)]
pub(super) struct Waiting {
    pub(super) first: u64,
    pub(super) deps: VersionVector,
    pub(super) hlc: u64,
    /// The alarm for its stamp was raised.
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
        // `last` is less when a snapshot was joined in the meantime, and beyond `taken` when the log was closed before it.
        if last > self.stored && last <= self.taken {
            self.stored = last;
            self.stored_hash = hash;
        }
    }

    /// The log is closed at this number, whatever is on disk.
    pub(super) fn end_at(&mut self, end: u64) {
        // What is applied, or was given to the owner, lies below the end: no batch beyond it could be applied.
        if self.taken > end && self.handed <= end && !crate::broken("stranded-told") {
            let hash = self.recent.iter().find(|(number, _)| *number == end);
            let hash = hash.map(|(_, hash)| *hash).unwrap_or_default();
            (self.taken, self.taken_hash) = (end, hash);
            (self.stored, self.stored_hash) = (end, hash);
            self.head = None;
            self.recent.retain(|(number, _)| *number <= end);
        }
    }

    /// Whether another batch ends with the same number, as far as hashes are remembered.
    pub(super) fn differs(&self, last: u64, hash: Hash) -> bool {
        let known = self.recent.iter().find(|(number, _)| *number == last);
        known.is_some_and(|(_, known)| *known != hash)
    }
}
