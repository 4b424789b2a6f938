//! Sending a snapshot to a peer that lacks what our logs no longer have.

use std::collections::VecDeque;

use whimbrel_crdt::{Incarnation, VersionVector};

use super::{
    Output, Partition, Pending, Ticket,
    snapshot::{Rows, Snapshot, StateOutput},
};
use crate::{
    Now, broken,
    wire::{Frame, Head, StateBegin, StateChunk, StateEnd, StateTake},
};

/// A snapshot that a peer has asked for.
#[derive(Clone, Default, Hash)]
pub(super) struct Give {
    /// The question for which it was made, on this link; an earlier version does not say.
    question: Option<u64>,
    /// The driver is making it.
    making: Option<Ticket>,
    /// `None` until the driver has made it.
    snapshot: Option<Snapshot>,
    begin_due: bool,
    /// The frame that names it was sent: rows may follow.
    begun: bool,
    /// The peer has the rows up to this key on disk.
    base: Vec<u8>,
    /// The rows were read up to this key.
    next: Vec<u8>,
    /// Bytes that may be on the way after `base`.
    room: u64,
    /// Last keys and bytes of the chunks on the way.
    flight: VecDeque<(Vec<u8>, u64)>,
    flight_bytes: u64,
    reading: Option<Ticket>,
    ready: Option<StateChunk>,
    /// The key of the last row of all, once it was read.
    end: Option<Vec<u8>>,
    end_due: bool,
    /// When the peer asked last.
    heard_at: u64,
    /// When the peer last stored more, or when the first chunk was sent while nothing was on the way.
    progress_at: u64,
}

impl Give {
    fn state(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.state)
    }

    /// Whether so many bytes may be sent. One chunk always may, if the peer asks for anything.
    fn fits(&self, bytes: u64) -> bool {
        self.room > 0 && (self.flight.is_empty() || self.flight_bytes + bytes <= self.room)
    }

    /// Begins again after what the peer has on disk.
    fn rewind(&mut self) {
        self.next = self.base.clone();
        self.flight.clear();
        self.flight_bytes = 0;
        self.reading = None;
        self.ready = None;
        self.end = None;
        self.end_due = false;
    }

    /// The link is new or gone: nothing is sent before the peer asks.
    pub(super) fn stop(&mut self) {
        self.rewind();
        self.room = 0;
        self.question = None;
    }

    /// The peer has the rows up to this key.
    fn has(&mut self, key: Vec<u8>, now_micros: u64) {
        if key < self.base {
            // A later acknowledgement came first: what is on disk stays there.
            return;
        }
        if key > self.base {
            self.progress_at = now_micros;
        }
        while self.flight.front().is_some_and(|(last, _)| *last <= key) {
            if let Some((_, bytes)) = self.flight.pop_front() {
                self.flight_bytes -= bytes;
            }
        }
        self.base = key;
        if self.next < self.base {
            self.rewind();
        }
        if self.end.as_ref() == Some(&self.base) {
            self.end_due = true;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.ready.as_ref().map_or(0, |chunk| chunk.rows.len())
    }

    pub(super) fn deadline(&self, resend_micros: u64, timeout_micros: u64) -> u64 {
        let end = self.heard_at.saturating_add(timeout_micros);
        if self.flight.is_empty() {
            end
        } else {
            end.min(self.progress_at.saturating_add(resend_micros))
        }
    }
}

impl Partition {
    /// Tells the peer up to where it lacks what our logs do not have. `None`: it lacks nothing, or is no holder.
    pub(super) fn hint(&self, id: Incarnation) -> Option<Frame> {
        let peer = self.peers.get(&id)?;
        let applied: VersionVector = peer
            .behind
            .iter()
            .filter_map(|origin| Some((*origin, self.origins.get(origin)?.applied)))
            .collect();
        let applied = match peer.lacks_own {
            true => self.applied(),
            false => applied,
        };
        let known = self.holds(id) && !self.gives.contains_key(&id);
        (known && !applied.is_empty()).then_some(Frame::StateBegin(StateBegin {
            partition: self.id,
            state: 0,
            applied,
            heads: Vec::new(),
            hlc: None,
            question: None,
        }))
    }

    /// A peer asks for a snapshot or for more of it, or says that it needs no more.
    pub(super) fn asked_for_state(&mut self, now: Now, id: Incarnation, take: StateTake) {
        if take.bytes == 0 {
            if self.gives.get(&id).is_some_and(|g| g.state() == take.state) {
                self.drop_give(id);
            }
            return;
        }
        // A node that does not know of a new member may cut what the member's sponsor had applied before it let the member in. A snapshot that is
        // made afterwards contains that.
        if !self.holds(id) && !broken("state-before-membership") {
            return;
        }
        let window = self.config.state.window_bytes;
        let of_earlier = |give: &Give| {
            let goes_on = give.snapshot.is_some() && give.state() == take.state;
            take.question.is_some() && give.question != take.question && !goes_on
        };
        if self.gives.get(&id).is_some_and(of_earlier) && !broken("fixed-for-an-earlier-question") {
            // Made for an earlier question: what the peer has joined since may depend on more.
            self.drop_give(id);
        }
        if !self.gives.contains_key(&id) {
            if self.gives.len() >= self.config.state.gives_max {
                // The peer asks again, or asks another node.
                return;
            }
            let ticket = self.ask(Pending::Snapshot(id));
            let give = self.gives.entry(id).or_default();
            give.making = Some(ticket);
            let output = StateOutput::Snapshot { ticket };
            self.out.push_back(Output::State(output));
        }
        let Some(give) = self.gives.get_mut(&id) else {
            unreachable!("it was made just now");
        };
        give.heard_at = now.mono_micros;
        give.question = take.question;
        give.room = take.bytes.min(window);
        if give.snapshot.is_some() {
            if take.state == give.state() {
                give.has(take.after, now.mono_micros);
            } else {
                // The peer asks for any snapshot, or for one from before our crash: it gets this one from the beginning.
                give.base.clear();
                give.rewind();
                give.begin_due = true;
            }
        }
        self.give_on(id);
    }

    /// A snapshot was made.
    pub(super) fn snapshot(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: Incarnation,
        snapshot: Option<Snapshot>,
    ) {
        let wanted = self.gives.get_mut(&id);
        match (wanted.filter(|give| give.making == Some(ticket)), snapshot) {
            (Some(give), Some(snapshot)) => {
                give.making = None;
                assert!(snapshot.state != 0, "a snapshot has a name");
                give.snapshot = Some(snapshot);
                give.begin_due = true;
                give.heard_at = now.mono_micros;
                self.give_on(id);
            }
            (Some(_), None) => drop(self.gives.remove(&id)),
            (None, Some(Snapshot { state, .. })) => {
                self.out
                    .push_back(Output::State(StateOutput::Drop { state }));
            }
            (None, None) => {}
        }
    }

    /// Rows were read.
    pub(super) fn rows(&mut self, ticket: Ticket, id: Incarnation, rows: Rows) {
        let Some(give) = self
            .gives
            .get_mut(&id)
            .filter(|give| give.reading == Some(ticket))
        else {
            return;
        };
        give.reading = None;
        let state = give.state();
        let after = std::mem::replace(&mut give.next, rows.last.clone());
        if rows.last > after {
            give.ready = Some(StateChunk {
                partition: self.id,
                state,
                after,
                last: rows.last.clone(),
                rows: rows.rows,
            });
        }
        if rows.end {
            give.end = Some(rows.last);
            give.end_due = true;
        }
        self.wake(id);
    }

    /// Rows could not be read: the peer asks again, and gets another snapshot from its first row.
    pub(super) fn rows_lost(&mut self, ticket: Ticket, id: Incarnation) {
        if self
            .gives
            .get(&id)
            .is_some_and(|give| give.reading == Some(ticket))
        {
            self.drop_give(id);
        }
    }

    /// Reads on, if there is room.
    fn give_on(&mut self, id: Incarnation) {
        let chunk_bytes = self.config.state.chunk_bytes;
        let linked = self.peers.get(&id).is_some_and(|peer| peer.linked);
        let Some(give) = self.gives.get_mut(&id).filter(|_| linked) else {
            return;
        };
        let idle = give.begun && give.reading.is_none() && give.ready.is_none();
        if idle && give.end.is_none() && give.fits(chunk_bytes as u64) {
            let (state, after) = (give.state(), give.next.clone());
            let ticket = self.ask(Pending::ReadState(id));
            if let Some(give) = self.gives.get_mut(&id) {
                give.reading = Some(ticket);
            }
            self.out.push_back(Output::State(StateOutput::Read {
                ticket,
                state,
                after,
                bytes_max: chunk_bytes,
            }));
        }
        self.wake(id);
    }

    /// The frame that names the snapshot, or the one that ends it. They keep their order among the rows, and wait for room as rows do.
    pub(super) fn give_control(&mut self, id: Incarnation, rows: bool) -> Option<Frame> {
        let applied = self.applied();
        let partition = self.id;
        let give = self.gives.get_mut(&id)?;
        let snapshot = give.snapshot.as_ref()?;
        let durable = applied.covers_all(&snapshot.applied) || broken("state-before-sync");
        if rows && give.begin_due && durable {
            give.begin_due = false;
            give.begun = true;
            let heads = snapshot.heads.iter().map(|(origin, hash)| Head {
                origin: *origin,
                hash: hash.0,
            });
            let frame = StateBegin {
                partition,
                state: snapshot.state,
                applied: snapshot.applied.clone(),
                heads: heads.collect(),
                hlc: Some(snapshot.hlc),
                question: give.question,
            };
            self.give_on(id);
            return Some(Frame::StateBegin(frame));
        }
        let state = give.state();
        if rows && give.end_due && give.ready.is_none() && give.begun {
            give.end_due = false;
            let last = give.end.clone()?;
            return Some(Frame::StateEnd(StateEnd {
                partition,
                state,
                last,
            }));
        }
        None
    }

    /// The next chunk.
    pub(super) fn give_chunk(&mut self, now: Now, id: Incarnation) -> Option<Frame> {
        let give = self.gives.get_mut(&id)?;
        let bytes = give.ready.as_ref()?.rows.len() as u64;
        if !give.fits(bytes) {
            return None;
        }
        let chunk = give.ready.take()?;
        if give.flight.is_empty() {
            give.progress_at = now.mono_micros;
        }
        give.flight.push_back((chunk.last.clone(), bytes));
        give.flight_bytes += bytes;
        self.give_on(id);
        Some(Frame::StateChunk(chunk))
    }

    pub(super) fn drop_give(&mut self, id: Incarnation) {
        let give = self.gives.remove(&id);
        if let Some(Snapshot { state, .. }) = give.and_then(|give| give.snapshot) {
            self.out
                .push_back(Output::State(StateOutput::Drop { state }));
        }
    }

    pub(super) fn give_time(&mut self, now: Now) {
        let since = |then: u64| now.mono_micros.saturating_sub(then);
        let patience = self.config.state.send_timeout_micros;
        let left = self
            .gives
            .iter()
            .filter(|(id, give)| since(give.heard_at) >= patience || !self.holds(**id));
        let left: Vec<Incarnation> = left.map(|(id, _)| *id).collect();
        for id in left.into_iter().filter(|_| !broken("snapshot-kept")) {
            self.drop_give(id);
        }
        let resend = self.config.resend_after_micros;
        let late = self.gives.iter_mut().filter(|(_, give)| {
            let late = !give.flight.is_empty() && since(give.progress_at) >= resend;
            late && !broken("rows-not-sent-again")
        });
        let late: Vec<Incarnation> = late
            .map(|(id, give)| {
                give.progress_at = now.mono_micros;
                give.rewind();
                *id
            })
            .collect();
        for id in late {
            self.give_on(id);
        }
    }
}
