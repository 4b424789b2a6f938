//! Blobs that came before they were wanted: a batch and the bodies that it names come on one stream, but it is applied when what it depends on is, and its
//! accounts are in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::Config;
use crate::{Now, wire::BlobName};

/// What memory a name takes, about.
const NAME_BYTES: u64 = 128;

struct Kept {
    peer: Incarnation,
    /// `None`: it is to be asked for.
    data: Option<Bytes>,
}

impl Kept {
    fn cost(&self) -> u64 {
        NAME_BYTES + self.data.as_ref().map_or(0, |data| data.len() as u64)
    }
}

/// Given, and not wanted yet.
#[derive(Default)]
pub(super) struct Ahead {
    kept: BTreeMap<BlobName, Kept>,
    /// In the order in which they came; some may be taken since.
    order: VecDeque<(u64, BlobName)>,
    bytes: u64,
    bytes_of: BTreeMap<Incarnation, u64>,
    /// The last ones that were taken: nobody waits for them to come once more.
    came: BTreeSet<BlobName>,
    came_order: VecDeque<BlobName>,
}

impl Ahead {
    /// Keeps one, if there is room. The first ones are those that are wanted first. Each of so many peers has the same share, so that one cannot take all.
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
        // What was taken from the middle is still in the order: it is bounded, too.
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

    /// It has come: what else is given of it is thrown away.
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

    /// Whether it has come, and was let go of or lost since: it is not given a second time.
    pub(super) fn has_come(&self, name: &BlobName) -> bool {
        self.came.contains(name)
    }

    /// Forgets what nobody has wanted.
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
