//! One budget for what waits to be sent to other nodes, and what of theirs waits for the disk, in all partitions of an owner (`replication::budget`).
//!
//! A window of the size that one busy partition needs, for each peer and partition, is more memory than a node has for it. So all begin small; once a
//! second, as long as anything moves, those that are in use get more, and those that are not give it back.

use whimbrel_crdt::{Incarnation, PartitionId};

use super::{Mail, Partition, replication};
use crate::{
    machine::Now,
    peers::{
        Frame,
        budget::{Budget, Config},
    },
};

/// Between two divisions.
const DIVIDE_MICROS: u64 = 1_000_000;

type Key = (PartitionId, Incarnation);

/// The windows of an owner.
pub(super) struct Windows {
    budget: Budget<Key>,
    /// `None`: nothing has moved for a while, and all are as small as can be.
    divide_at: Option<u64>,
}

impl Windows {
    pub(super) fn new(config: Config) -> Self {
        Windows {
            budget: Budget::new(config),
            divide_at: None,
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.divide_at
    }

    /// A frame was sent, or came.
    pub(super) fn moved(&mut self, now: Now, frame: &Frame) {
        if self.divide_at.is_none() && matches!(frame, Frame::Batches(_)) {
            self.divide_at = Some(now.mono_micros + DIVIDE_MICROS);
        }
    }
}

impl Windows {
    /// There are streams for these.
    pub(super) fn open_windows(
        &mut self,
        mail: &mut Mail,
        now: Now,
        keys: impl IntoIterator<Item = Key>,
    ) {
        let changed = self.budget.open(keys);
        self.set_windows(mail, now, changed);
    }

    pub(super) fn divide_windows(&mut self, mail: &mut Mail, now: Now) {
        let Windows { budget, divide_at } = self;
        let Some(at) = divide_at.filter(|at| *at <= now.mono_micros) else {
            return;
        };
        // Since the last division, or since something moved.
        let elapsed = now.mono_micros - at + DIVIDE_MICROS;
        let (partitions, links) = (&mut mail.partitions, &mail.links);
        let is_open = |(partition, peer): &Key| {
            let of = partitions.get(partition);
            matches!(of, Some(Partition::Running(_))) && links.has(*peer)
        };
        budget.retain(is_open);
        for (partition, of) in partitions.iter_mut() {
            let Partition::Running(own) = of else {
                continue;
            };
            for (peer, link) in links.iter() {
                let used = own.shipping.take_used(peer);
                // What is on its way here is as much as comes while an acknowledgement and what it allows are on theirs.
                let way = link.round_trip.unwrap_or(0);
                let coming = used.came.saturating_mul(way) / elapsed;
                budget.used((*partition, peer), used.most.max(coming));
            }
        }
        *divide_at = (!budget.is_idle()).then_some(now.mono_micros + DIVIDE_MICROS);
        let changed = budget.divide();
        self.set_windows(mail, now, changed);
    }

    fn set_windows(&mut self, mail: &mut Mail, now: Now, changed: Vec<(Key, u64)>) {
        for ((partition, peer), bytes) in changed {
            if let Some(own) = mail.partitions.running(partition) {
                own.shipping.set_window(peer, bytes);
            }
            replication::ship(mail, now, partition);
        }
    }
}
