//! What is known of one peer.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, VersionVector};

use super::syncing::First;
use crate::wire::Room;

/// A batch that waits to be sent.
#[derive(Clone, Hash)]
pub(super) struct Queued {
    pub(super) origin: Incarnation,
    pub(super) last: u64,
    pub(super) bytes: Bytes,
}

/// A batch that was sent, not acknowledged yet.
#[derive(Clone, Hash)]
pub(super) struct Sent {
    pub(super) origin: Incarnation,
    pub(super) last: u64,
    pub(super) bytes: u64,
}

/// A peer lacks batches of a third node.
#[derive(Clone, Copy, Hash)]
pub(super) enum Lag {
    /// Since then the peer's end of this log has not moved.
    Since(u64),
    /// It has not moved for long: this node forwards the log.
    Forwarding,
}

/// How much of a peer's window was used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// The most bytes that were, at one moment, queued or on the way to the peer, or received from it and not durable.
    pub most: u64,
    /// Bytes received from the peer. Over a long way few of them are here at one moment, however many are on the way.
    pub came: u64,
}

impl Used {
    pub(super) fn at_once(&mut self, bytes: u64) {
        self.most = self.most.max(bytes);
    }
}

impl Hash for Used {
    // The machine does not depend on this.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Default, Hash)]
pub(super) struct Peer {
    /// Its window, if smaller than the window of the configuration.
    pub(super) window: Option<Room>,
    pub(super) used: Used,
    /// A link exists.
    pub(super) there: bool,
    /// A link exists, the peer holds the partition, and has broken no rule on this link.
    pub(super) linked: bool,
    /// Its hello has come on this link.
    pub(super) greeted: bool,
    /// [`super::Output::Wake`] is out.
    pub(super) awake: bool,

    // What the peer has.
    pub(super) durable: VersionVector,
    pub(super) applied: VersionVector,
    /// The peer has said that it is syncing.
    pub(super) syncing: bool,
    /// The peer has come back and lacks what it wrote in an earlier generation.
    pub(super) lacks_own: bool,
    /// What the peer had applied at its first hello, if this node is syncing.
    pub(super) first: Option<First>,
    pub(super) room: Option<Room>,

    // What we send.
    sent: BTreeMap<Incarnation, u64>,
    pub(super) queue: VecDeque<Queued>,
    pub(super) queue_bytes: u64,
    pub(super) flight: VecDeque<Sent>,
    pub(super) flight_bytes: u64,
    /// A log is being read for it: one read at a time, however often sending begins again.
    pub(super) reading: bool,
    /// What was read did not fit the window: wait for an acknowledgement.
    pub(super) stalled: bool,
    /// Counts how often sending began again: results of reads for an older round are of no use.
    pub(super) round: u32,
    /// When the peer last acknowledged something, or when the first frame was sent while nothing was on the way.
    pub(super) progress_at: u64,
    pub(super) lag: BTreeMap<Incarnation, Lag>,
    /// The peer is to be told that it needs a snapshot; when it was told last.
    pub(super) hint_due: bool,
    pub(super) hinted_at: u64,
    /// The peer may drop the snapshot with this name.
    pub(super) release: Option<u64>,
    /// Rows of a snapshot are sent before the next batches: the two take turns.
    pub(super) rows_next: bool,
    pub(super) last_origin: Option<Incarnation>,
    /// Logs of which the peer lacks a part that is cut here.
    pub(super) behind: BTreeSet<Incarnation>,

    // What this node reports to the peer.
    pub(super) hello_due: bool,
    /// The hello says that this machine begins anew on this link.
    pub(super) anew: bool,
    pub(super) ack_due: bool,
    pub(super) again: Option<u32>,
    /// Something has changed that need not be reported at once.
    pub(super) dirty: bool,
    pub(super) told_at: u64,

    // What the peer has sent and is being stored.
    pub(super) storing_bytes: u64,
    pub(super) storing_batches: u32,

    // Stability: see `stable`.
    pub(super) confirmed: VersionVector,
    pub(super) candidate: Option<VersionVector>,
    pub(super) latest: Option<VersionVector>,
}

impl Peer {
    pub(super) fn link(&mut self, now_micros: u64) {
        self.unlink();
        self.linked = true;
        self.hello_due = true;
        self.told_at = now_micros;
    }

    pub(super) fn unlink(&mut self) {
        self.linked = false;
        self.greeted = false;
        self.awake = false;
        self.again = None;
        self.ack_due = false;
        self.hello_due = false;
        self.anew = false;
        self.lag.clear();
        self.behind.clear();
        self.hint_due = false;
        self.release = None;
        self.begin_again();
    }

    /// The peer has dropped what it had, so nothing that it reported counts.
    pub(super) fn forget(&mut self) {
        self.unlink();
        *self = Peer {
            window: self.window,
            used: self.used,
            there: self.there,
            reading: self.reading,
            round: self.round,
            storing_bytes: self.storing_bytes,
            storing_batches: self.storing_batches,
            ..Peer::default()
        };
    }

    /// Whether the peer needs a snapshot.
    pub(super) fn lacks_state(&self) -> bool {
        !self.behind.is_empty() || self.lacks_own
    }

    /// The last number of an origin that the peer has, or that is on the way to it.
    pub(super) fn sent(&self, origin: Incarnation) -> u64 {
        let sent = self.sent.get(&origin).copied().unwrap_or(0);
        sent.max(self.durable.get(origin))
    }

    /// Forgets what is on the way: all that the peer has not stored is sent again.
    pub(super) fn begin_again(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.sent.clear();
        self.queue.clear();
        self.queue_bytes = 0;
        self.flight.clear();
        self.flight_bytes = 0;
        self.stalled = false;
        if crate::broken("reads-side-by-side") {
            self.reading = false;
        }
    }

    /// Batches that are queued or on the way, and their bytes.
    fn under_way(&self) -> (u64, u64) {
        let count = self.queue.len() + self.flight.len();
        (count as u64, self.queue_bytes + self.flight_bytes)
    }

    /// The window in bytes: the smaller of the peer's and ours.
    fn window_bytes(&self, room: Room) -> u64 {
        let ours = self.window.map_or(u64::MAX, |window| window.bytes);
        room.bytes.min(ours)
    }

    /// Whether a batch of so many bytes may be queued. One batch always may, unless the peer accepts none at all.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let (count, under_way) = self.under_way();
        let Some(room) = self.room.filter(|room| room.batches > 0) else {
            return false;
        };
        count == 0
            || (under_way + bytes <= self.window_bytes(room) && count < u64::from(room.batches))
    }

    /// How many bytes of a log to read for the peer now, `most` at most. `None`: the window has too little room. What finds no room is read in vain,
    /// and a small read for each acknowledgement costs too much.
    pub(super) fn worth_reading(&self, most: usize) -> Option<usize> {
        if self.reading || self.stalled {
            return None;
        }
        if crate::broken("sends-beyond-the-window") {
            return Some(most);
        }
        let room = self.room.filter(|_| self.has_room(1))?;
        let (count, under_way) = self.under_way();
        let (window, batches) = (self.window_bytes(room), u64::from(room.batches));
        let left = window.saturating_sub(under_way);
        let batches_left = batches.saturating_sub(count);
        if count > 0 && (left < window / 4 || batches_left < batches / 4) {
            return None;
        }
        // About the bytes of so many batches.
        let fit = match under_way.checked_div(count) {
            Some(mean) => left.min(batches_left.saturating_mul(mean)),
            None => left,
        };
        let fit = usize::try_from(fit).unwrap_or(usize::MAX);
        Some(most.min(fit.max(1)))
    }

    pub(super) fn push(&mut self, origin: Incarnation, last: u64, bytes: Bytes) {
        self.sent.insert(origin, last);
        self.queue_bytes += bytes.len() as u64;
        self.used.at_once(self.under_way().1);
        self.queue.push_back(Queued {
            origin,
            last,
            bytes,
        });
    }

    /// Logs were closed: what is on the way beyond their ends is never acknowledged, and would hold up what was sent after it.
    pub(super) fn close(&mut self, ends: &BTreeMap<Incarnation, u64>) {
        let is_below = |origin, last| ends.get(&origin).is_none_or(|end| last <= *end);
        self.flight.retain(|sent| is_below(sent.origin, sent.last));
        self.queue
            .retain(|queued| is_below(queued.origin, queued.last));
        self.flight_bytes = self.flight.iter().map(|sent| sent.bytes).sum();
        self.queue_bytes = self
            .queue
            .iter()
            .map(|queued| queued.bytes.len() as u64)
            .sum();
    }

    /// The peer's durable vector has grown: what it covers is no longer on the way.
    pub(super) fn acknowledged(&mut self, durable: &VersionVector, now_micros: u64) {
        if !self.durable.covers_all(durable) {
            self.progress_at = now_micros;
            self.durable.merge(durable);
        }
        while let Some(sent) = self
            .flight
            .front()
            .filter(|sent| self.durable.get(sent.origin) >= sent.last)
        {
            self.flight_bytes -= sent.bytes;
            self.flight.pop_front();
        }
        while let Some(queued) = self
            .queue
            .front()
            .filter(|queued| self.durable.get(queued.origin) >= queued.last)
        {
            self.queue_bytes -= queued.bytes.len() as u64;
            self.queue.pop_front();
        }
        self.stalled = false;
    }
}
