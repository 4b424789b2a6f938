//! Blobs that came before they were wanted: a batch and the bodies that it names come on one stream, but it is applied when what it depends on is, and its
//! accounts are in memory.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::Config;
use crate::{Now, wire::BlobName};

/// What memory a name takes, about.
const NAME_BYTES: u64 = 128;

/// Given, and not wanted yet.
#[derive(Default)]
pub(super) struct Ahead {
    /// `None`: it is to be asked for.
    kept: BTreeMap<BlobName, Option<Bytes>>,
    /// In the order in which they came; some may be taken since.
    order: VecDeque<(u64, BlobName)>,
    bytes: u64,
}

fn cost(data: Option<&Bytes>) -> u64 {
    NAME_BYTES + data.map_or(0, |data| data.len() as u64)
}

impl Ahead {
    /// Keeps one, if there is room. The first ones are those that are wanted first.
    pub(super) fn keep(&mut self, config: &Config, now: Now, name: BlobName, data: Option<Bytes>) {
        let room = self.bytes + cost(data.as_ref()) <= config.ahead_bytes_max;
        // What was taken is still in the order: it is bounded, too.
        let listed = self.order.len() as u64 * NAME_BYTES < config.ahead_bytes_max;
        if !room || !listed || self.kept.contains_key(&name) {
            return;
        }
        self.bytes += cost(data.as_ref());
        self.kept.insert(name, data);
        let until = now.mono_micros.saturating_add(config.ahead_micros_max);
        self.order.push_back((until, name));
    }

    pub(super) fn take(&mut self, name: &BlobName) -> Option<Option<Bytes>> {
        let data = self.kept.remove(name)?;
        self.bytes -= cost(data.as_ref());
        Some(data)
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
