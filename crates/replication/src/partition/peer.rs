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

/// A batch that was sent and not acknowledged.
#[derive(Clone, Hash)]
pub(super) struct Sent {
    pub(super) origin: Incarnation,
    pub(super) last: u64,
    pub(super) bytes: u64,
}

/// A peer lacks batches of a third node.
#[derive(Clone, Copy, Hash)]
pub(super) enum Lag {
    /// Since then it came no further.
    Since(u64),
    /// It did not come further for long: we send them.
    Forwarding,
}

/// What was used of a peer's window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// The most bytes that were queued or on the way to it, or came of it and were not durable, at one moment.
    pub most: u64,
    /// Bytes that came of it. Over a long way few of them are here at one moment, however many are on the way.
    pub came: u64,
}

impl Used {
    pub(super) fn at_once(&mut self, bytes: u64) {
        self.most = self.most.max(bytes);
    }
}

impl Hash for Used {
    // Nothing that the machine does follows from it.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Default, Hash)]
pub(super) struct Peer {
    /// What it may send, and what is queued to it, if less than the configuration says.
    pub(super) window: Option<Room>,
    pub(super) used: Used,
    /// There is a link.
    pub(super) there: bool,
    /// The same, it holds the partition, and nothing wrong was said on the link.
    pub(super) linked: bool,
    /// It has said where it stands.
    pub(super) greeted: bool,
    /// [`super::Output::Wake`] is out.
    pub(super) awake: bool,

    // What it has.
    pub(super) durable: VersionVector,
    pub(super) applied: VersionVector,
    /// It has said that it is syncing.
    pub(super) syncing: bool,
    /// It has come back without what it wrote in an earlier life.
    pub(super) lacks_own: bool,
    /// What it had when it was first heard, if this node is syncing.
    pub(super) first: Option<First>,
    pub(super) room: Option<Room>,

    // What we send.
    sent: BTreeMap<Incarnation, u64>,
    pub(super) queue: VecDeque<Queued>,
    pub(super) queue_bytes: u64,
    pub(super) flight: VecDeque<Sent>,
    pub(super) flight_bytes: u64,
    /// Its log is being read. One read at a time, however often it begins again.
    pub(super) reading: bool,
    /// What was read did not fit: wait for an acknowledgement.
    pub(super) stalled: bool,
    /// Counts how often we began again: what was read for an older round is of no use.
    pub(super) round: u32,
    /// When it last acknowledged something, or something was sent when nothing was on the way.
    pub(super) progress_at: u64,
    pub(super) lag: BTreeMap<Incarnation, Lag>,
    /// It is to be told that it needs a state; when it was told last.
    pub(super) hint_due: bool,
    pub(super) hinted_at: u64,
    /// It may drop the snapshot of this state.
    pub(super) release: Option<u64>,
    /// Rows are sent before the next batches: they take turns.
    pub(super) rows_next: bool,
    pub(super) last_origin: Option<Incarnation>,
    /// Logs of which it lacks what is cut.
    pub(super) behind: BTreeSet<Incarnation>,

    // What we tell it.
    pub(super) hello_due: bool,
    /// The hello says that we have begun anew on this link.
    pub(super) anew: bool,
    pub(super) ack_due: bool,
    pub(super) again: Option<u32>,
    /// Something changed that need not be told at once.
    pub(super) dirty: bool,
    pub(super) told_at: u64,

    // What it sends, under way to the disk.
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

    /// It has dropped what it had, and what it said of it counts for nothing.
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

    /// Whether it needs what our logs do not give it.
    pub(super) fn lacks_state(&self) -> bool {
        !self.behind.is_empty() || self.lacks_own
    }

    /// The last number of an origin that it has or that is on the way to it.
    pub(super) fn sent(&self, origin: Incarnation) -> u64 {
        let sent = self.sent.get(&origin).copied().unwrap_or(0);
        sent.max(self.durable.get(origin))
    }

    /// Forgets what is on the way: all that is not durable there will be sent again.
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

    /// How many bytes may be, by this room of the peer's and by what is ours.
    fn window_bytes(&self, room: Room) -> u64 {
        let ours = self.window.map_or(u64::MAX, |window| window.bytes);
        room.bytes.min(ours)
    }

    /// Whether a batch of so many bytes may be queued. One always may, unless the peer takes none at all.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let (count, under_way) = self.under_way();
        let Some(room) = self.room.filter(|room| room.batches > 0) else {
            return false;
        };
        count == 0
            || (under_way + bytes <= self.window_bytes(room) && count < u64::from(room.batches))
    }

    /// So many bytes of a log, at most, are worth being read for it now: what finds no room has been read in vain, and so has little for each acknowledgement.
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
        // About as many bytes as make so many batches.
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

    /// Logs have ended: what is on the way of them beyond their ends is never acknowledged, nor what was sent behind it before that is.
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

    /// Its durable vector rose: what it covers is no longer on the way.
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
