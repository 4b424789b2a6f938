//! Frames to peers: vectors, own batches at once, and other nodes' batches when nobody else sends them.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, VersionVector};

use super::{
    Entry, Output, Partition, Pending,
    apply::AHEAD_RETRY_MICROS,
    origin::Origin,
    peer::{Lag, Peer, Sent, Used},
    within,
};
use crate::{
    Now, broken,
    wire::{Ack, Batches, Frame, Head, Hello, Room},
};

impl Partition {
    /// Asks the driver to send to this peer.
    pub(super) fn wake(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.linked
            && !peer.awake
        {
            peer.awake = true;
            self.out.push_back(Output::Wake(id));
        }
    }

    /// Sends our vectors to all peers.
    pub(super) fn tell_all(&mut self) {
        let ids: Vec<Incarnation> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.ack_due = true;
            }
            self.wake(id);
        }
    }

    /// Queues our own next batch for all peers, without reading it from the log.
    pub(super) fn offer(&mut self, now: Now, entry: &Entry) {
        let me = self.me;
        for peer in self.peers.values_mut() {
            let bytes = entry.bytes.len() as u64;
            if peer.linked
                && peer.greeted
                && peer.sent(me) + 1 == entry.first
                && peer.has_room(bytes)
            {
                peer.push(me, entry.last, entry.bytes.clone());
            }
        }
        self.ship_all(now);
    }

    pub(super) fn ship_all(&mut self, now: Now) {
        let ids: Vec<Incarnation> = self.peers.keys().copied().collect();
        for id in ids {
            self.ship(now, id);
        }
    }

    /// Reads what the peer lacks, if this node has to send it and there is room.
    pub(super) fn ship(&mut self, now: Now, id: Incarnation) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if !peer.linked || !peer.greeted {
            return;
        }
        let mut due = Vec::new();
        for (origin, log) in &self.origins {
            if *origin == id || peer.behind.contains(origin) {
                continue;
            }
            if peer.durable.get(*origin) >= log.stored {
                peer.lag.remove(origin);
                continue;
            }
            let ours = *origin == self.me;
            if !ours {
                let lag = peer
                    .lag
                    .entry(*origin)
                    .or_insert(Lag::Since(now.mono_micros));
                if let Lag::Since(since) = lag {
                    let waited = now.mono_micros.saturating_sub(*since);
                    let at_once = self.passes.contains(&(*origin, id));
                    if !at_once && waited < self.config.forward_after_micros
                        || broken("nothing-forwarded")
                    {
                        continue;
                    }
                    *lag = Lag::Forwarding;
                }
            }
            if peer.sent(*origin) < log.stored {
                due.push(*origin);
            }
        }
        let wake = !peer.queue.is_empty();
        if let Some(bytes_max) = peer.worth_reading(self.config.read_bytes_max) {
            // Logs take turns, so that none waits for the end of another.
            let next = due
                .iter()
                .find(|origin| peer.last_origin.is_none_or(|last| **origin > last))
                .or(due.first());
            if let Some(origin) = next.copied() {
                peer.last_origin = Some(origin);
                peer.reading = true;
                let from = peer.sent(origin) + 1;
                let round = peer.round;
                let ticket = self.ask(Pending::ReadToShip {
                    peer: id,
                    round,
                    origin,
                });
                self.out.push_back(Output::Read {
                    ticket,
                    origin,
                    from,
                    bytes_max,
                });
            }
        }
        if wake {
            self.wake(id);
        }
    }

    pub(super) fn read_to_ship(
        &mut self,
        now: Now,
        id: Incarnation,
        round: u32,
        origin: Incarnation,
        entries: Vec<Entry>,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.reading = false;
        if peer.round != round {
            return self.ship(now, id);
        }
        let before = peer.sent(origin);
        let end = self.closed.get(&origin).copied();
        // A log that begins behind a snapshot cannot give what the snapshot contains.
        let has_ended = end.is_some_and(|end| before >= end);
        let mut is_gone = entries.is_empty() && !has_ended && !broken("behind-unnoticed");
        for entry in entries {
            let sent = peer.sent(origin);
            if entry.last <= sent {
                continue;
            }
            if entry.first > sent + 1 {
                is_gone = true;
                break;
            }
            let is_beyond = end.is_some_and(|end| entry.last > end);
            let has_room = peer.has_room(entry.bytes.len() as u64);
            if is_beyond || !has_room && !broken("sends-beyond-the-window") {
                break;
            }
            peer.push(origin, entry.last, entry.bytes);
        }
        if is_gone {
            peer.behind.insert(origin);
            peer.hint_due = true;
            self.out.push_back(Output::Behind { peer: id, origin });
        }
        peer.stalled = peer.sent(origin) == before && !is_gone;
        if peer.hint_due {
            self.wake(id);
        }
        self.ship(now, id);
    }

    /// Sets a peer's window, in both directions; the window of the configuration is the upper bound. See [`crate::budget`].
    pub fn set_window(&mut self, id: Incarnation, window: Room) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.window = Some(window);
            peer.ack_due = true;
            self.wake(id);
        }
    }

    /// How much of a peer's window was used since the last call.
    pub fn take_used(&mut self, id: Incarnation) -> Used {
        let peer = self.peers.get_mut(&id);
        peer.map_or(Used::default(), |peer| std::mem::take(&mut peer.used))
    }

    /// The next frame for a peer whose stream takes bytes; `None`: nothing until [`Output::Wake`].
    pub fn transmit(&mut self, now: Now, id: Incarnation) -> Option<Frame> {
        self.next_frame(now, id, true)
    }

    /// As [`Partition::transmit`], for a stream that takes no rows of a snapshot at present. The caller calls `transmit` when it does again.
    pub fn transmit_small(&mut self, now: Now, id: Incarnation) -> Option<Frame> {
        self.next_frame(now, id, false)
    }

    fn next_frame(&mut self, now: Now, id: Incarnation, rows: bool) -> Option<Frame> {
        let peer = self.peers.get(&id).filter(|peer| peer.linked)?;
        if peer.hello_due || peer.ack_due {
            return self.hello_or_ack(now, id);
        }
        let peer = self.peers.get_mut(&id)?;
        if std::mem::take(&mut peer.hint_due) {
            peer.hinted_at = now.mono_micros;
            if let Some(hint) = self.hint(id) {
                return Some(hint);
            }
        }
        let control = self.take_frame(now, id);
        if let Some(frame) = control.or_else(|| self.give_control(id, rows)) {
            return Some(frame);
        }
        let peer = self.peers.get_mut(&id)?;
        if rows
            && std::mem::take(&mut peer.rows_next)
            && let Some(chunk) = self.give_chunk(now, id)
        {
            return Some(chunk);
        }
        let peer = self.peers.get_mut(&id)?;
        let batches = next_batches(peer, now, self.config.frame_bytes_max);
        if batches.is_empty() {
            if rows && let Some(chunk) = self.give_chunk(now, id) {
                return Some(chunk);
            }
            self.peers.get_mut(&id)?.awake = false;
            return None;
        }
        peer.rows_next = !broken("rows-wait-for-batches");
        Some(Frame::Batches(Batches {
            partition: self.id,
            round: peer.round,
            batches,
        }))
    }

    /// The hello or the acknowledgement that is due.
    fn hello_or_ack(&mut self, now: Now, id: Incarnation) -> Option<Frame> {
        let (durable, applied) = (self.durable(), self.applied());
        let room = self.room(self.peers.get(&id)?.window);
        let generations = self.generations(id);
        let peer = self.peers.get_mut(&id)?;
        peer.dirty = false;
        peer.told_at = now.mono_micros;
        if std::mem::take(&mut peer.hello_due) {
            // If a closed log ends before what is on disk, its last hash is not known.
            let known = |log: &Origin| log.stored > 0 && log.stored_hash != Hash::default();
            let heads = self.origins.iter().filter(|(_, log)| known(log));
            let heads = heads
                .map(|(origin, log)| Head {
                    origin: *origin,
                    hash: log.stored_hash.0,
                })
                .collect();
            return Some(Frame::Hello(Hello {
                partition: self.id,
                durable,
                applied,
                heads,
                room,
                yours: Some(peer.durable.clone()),
                anew: Some(std::mem::take(&mut peer.anew)),
                syncing: self.syncing.then_some(true),
                lives: generations,
            }));
        }
        peer.ack_due = false;
        Some(Frame::Ack(Ack {
            partition: self.id,
            durable,
            applied,
            room,
            again: peer.again.take(),
            lives: generations,
        }))
    }

    pub(super) fn time(&mut self, now: Now) {
        let mut wake = Vec::new();
        for (id, peer) in &mut self.peers {
            if !peer.linked {
                continue;
            }
            let since = |then: u64| now.mono_micros.saturating_sub(then);
            let late = since(peer.progress_at) >= self.config.resend_after_micros;
            if !peer.flight.is_empty() && late && !broken("nothing-sent-again") {
                peer.begin_again();
            }
            if peer.lacks_state() && since(peer.hinted_at) >= self.config.resend_after_micros {
                peer.hinted_at = now.mono_micros;
                peer.hint_due = true;
                wake.push(*id);
            }
            if since(peer.told_at) >= refresh(&self.config, &self.closed, peer, &self.origins) {
                peer.ack_due = true;
                // Set now, though the frame may wait for the stream: the deadline must move.
                peer.told_at = now.mono_micros;
                wake.push(*id);
            }
        }
        for id in wake {
            self.wake(id);
        }
        self.give_time(now);
        self.take_time(now);
        self.read_on(Some(now));
        self.ship_all(now);
    }

    /// When [`super::Input::Time`] is wanted, on the monotonic clock.
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let mut first: Option<u64> = None;
        let mut at = |time: u64| first = Some(first.map_or(time, |first| first.min(time)));
        for peer in self.peers.values().filter(|peer| peer.linked) {
            at(peer.told_at + refresh(&self.config, &self.closed, peer, &self.origins));
            if !peer.flight.is_empty() {
                at(peer.progress_at + self.config.resend_after_micros);
            }
            if peer.lacks_state() {
                at(peer.hinted_at + self.config.resend_after_micros);
            }
            for (origin, lag) in &peer.lag {
                if let Lag::Since(since) = lag
                    && !peer.behind.contains(origin)
                {
                    at(since + self.config.forward_after_micros);
                }
            }
        }
        for give in self.gives.values() {
            let patience = self.config.state.send_timeout_micros;
            at(give.deadline(self.config.resend_after_micros, patience));
        }
        if let Some(time) = self.take_deadline() {
            at(time);
        }
        if self.waits_for_clock() {
            at(now.mono_micros + AHEAD_RETRY_MICROS);
        }
        first
    }
}

/// After how long the vectors are sent again.
fn refresh(
    config: &super::Config,
    closed: &BTreeMap<Incarnation, u64>,
    peer: &Peer,
    origins: &BTreeMap<Incarnation, Origin>,
) -> u64 {
    // This runs for each frame that comes or goes, so it builds no vectors.
    let is_here = |of: fn(&Origin) -> u64, has: &VersionVector| {
        let here = origins.iter().map(|(id, origin)| (*id, of(origin)));
        has.iter().eq(here.filter(|(_, number)| *number > 0))
    };
    let same = || {
        is_here(|origin| origin.applied, &peer.applied)
            && is_here(|origin| origin.stored, &within(closed, &peer.durable))
    };
    if !peer.dirty && peer.greeted && same() {
        config.quiet_refresh_micros
    } else {
        config.refresh_micros
    }
}

fn next_batches(peer: &mut Peer, now: Now, bytes_max: usize) -> Vec<Bytes> {
    let mut batches: Vec<Bytes> = Vec::new();
    let mut total = 0;
    while let Some(queued) = peer.queue.front() {
        if !batches.is_empty() && total + queued.bytes.len() > bytes_max {
            break;
        }
        let Some(queued) = peer.queue.pop_front() else {
            break;
        };
        let bytes = queued.bytes.len() as u64;
        total += queued.bytes.len();
        peer.queue_bytes -= bytes;
        if peer.flight.is_empty() {
            peer.progress_at = now.mono_micros;
        }
        peer.flight_bytes += bytes;
        peer.flight.push_back(Sent {
            origin: queued.origin,
            last: queued.last,
            bytes,
        });
        batches.push(queued.bytes);
    }
    batches
}
