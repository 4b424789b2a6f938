//! Blobs that were pushed before they were wanted. A batch and the blobs that it names come on one stream, but the batch is applied later: when its
//! dependencies are, and its accounts are in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::Config;
use crate::{Now, wire::BlobName};

/// Memory for a name, about.
const NAME_BYTES: u64 = 128;

struct Kept {
    peer: Incarnation,
    /// `None`: the blob is too large, and has to be asked for.
    data: Option<Bytes>,
}

impl Kept {
    fn cost(&self) -> u64 {
        NAME_BYTES + self.data.as_ref().map_or(0, |data| data.len() as u64)
    }
}

/// Blobs pushed and not wanted yet.
#[derive(Default)]
pub(super) struct Ahead {
    kept: BTreeMap<BlobName, Kept>,
    /// Names in the order in which they came; some may have been taken since.
    order: VecDeque<(u64, BlobName)>,
    bytes: u64,
    bytes_of: BTreeMap<Incarnation, u64>,
    /// The last blobs that came: nobody waits for them to come once more.
    came: BTreeSet<BlobName>,
    came_order: VecDeque<BlobName>,
}

impl Ahead {
    /// Keeps a blob, if there is room. Earlier blobs are wanted first, so they are kept. Each of `peers` peers has the same share, so that one cannot
    /// take all.
    pub(super) fn keep(
        &mut self,
        config: &Config,
        now: Now,
        name: BlobName,
        kept: (Incarnation, Option<Bytes>),
        peers: usize,
    ) {
        let kept = Kept {
            peer: kept.0,
            data: kept.1,
        };
        let cost = kept.cost();
        let of_peer = self.bytes_of.get(&kept.peer).copied().unwrap_or(0);
        let share = config.ahead_bytes_max / peers.max(1) as u64;
        let room = self.bytes + cost <= config.ahead_bytes_max && of_peer + cost <= share;
        while let Some((_, first)) = self.order.front()
            && !self.kept.contains_key(first)
        {
            self.order.pop_front();
        }
        // Names that were taken from the middle are still in `order`, so it is bounded, too.
        let listed = self.order.len() as u64 * NAME_BYTES < config.ahead_bytes_max;
        if !room || !listed || self.came.contains(&name) || self.kept.contains_key(&name) {
            return;
        }
        self.bytes += cost;
        *self.bytes_of.entry(kept.peer).or_default() += cost;
        self.kept.insert(name, kept);
        let until = now.mono_micros.saturating_add(config.ahead_micros_max);
        self.order.push_back((until, name));
    }

    pub(super) fn has(&self, name: &BlobName) -> bool {
        self.kept.contains_key(name)
    }

    pub(super) fn take(&mut self, name: &BlobName) -> Option<Option<Bytes>> {
        let kept = self.kept.remove(name)?;
        let cost = kept.cost();
        self.bytes -= cost;
        if let Some(bytes) = self.bytes_of.get_mut(&kept.peer) {
            *bytes -= cost;
            if *bytes == 0 {
                self.bytes_of.remove(&kept.peer);
            }
        }
        Some(kept.data)
    }

    /// The blob has come: further copies are dropped.
    pub(super) fn came(&mut self, config: &Config, name: BlobName) {
        self.take(&name);
        if !self.came.insert(name) {
            return;
        }
        self.came_order.push_back(name);
        if self.came_order.len() > config.pushes_max
            && let Some(oldest) = self.came_order.pop_front()
        {
            self.came.remove(&oldest);
        }
    }

    /// Whether the blob has come, even if it was lost since: it is not pushed a second time.
    pub(super) fn has_come(&self, name: &BlobName) -> bool {
        self.came.contains(name)
    }

    /// Drops blobs that nobody has wanted in time.
    pub(super) fn time(&mut self, now: Now) {
        while let Some((until, name)) = self.order.front().copied()
            && until <= now.mono_micros
        {
            self.order.pop_front();
            self.take(&name);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.order.front().map(|(until, _)| *until)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
