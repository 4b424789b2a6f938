//! Receiving a snapshot from a peer.
//!
//! The progress of a transfer is on disk: after a crash it goes on with the same donor. With another donor, or when the donor has dropped its
//! snapshot, it begins anew. A snapshot that is older than what was collected here is not joined: see `stability`. Own writes go on meanwhile: they
//! are in our log, which is sent as always, and in our rows, to which the snapshot is joined.

use std::collections::BTreeMap;

use whimbrel_crdt::{Hash, Incarnation, VersionVector};

use super::{
    Alarm, Output, Partition, Pending, Taking,
    origin::Origin,
    snapshot::{Snapshot, SnapshotProgress, StateOutput},
};
use crate::{
    Now, broken,
    wire::{Frame, StateBegin, StateChunk, StateEnd, StateTake},
};

/// No log ever has so many ops: such a number would leave no room for the next.
const NUMBER_MAX: u64 = 1 << 62;
/// Stamps are microseconds since 1970: this is in the year 2255, and the clocks of a partition never go back.
const HLC_MAX: u64 = 9_000_000_000_000_000;

/// A snapshot that was asked for, or is being received.
#[derive(Clone, Hash)]
pub(super) struct Take {
    pub(super) donor: Incarnation,
    /// The number of the question: see [`StateTake::question`].
    question: u64,
    /// `None` until the donor has named its snapshot. `last` is the last row received, durable or not.
    held: Option<SnapshotProgress>,
    /// Rows up to this key are durable.
    durable: Vec<u8>,
    pub(super) storing_bytes: u64,
    /// Bytes that became durable since the donor was asked last.
    fresh_bytes: u64,
    ask_due: bool,
    asked_at: u64,
    /// When the donor last sent something.
    heard_at: u64,
    joining: bool,
}

impl Take {
    fn of(
        donor: Incarnation,
        question: u64,
        held: Option<SnapshotProgress>,
        now_micros: u64,
    ) -> Self {
        Self {
            donor,
            question,
            durable: held.as_ref().map_or(Vec::new(), |held| held.last.clone()),
            held,
            storing_bytes: 0,
            fresh_bytes: 0,
            ask_due: true,
            asked_at: now_micros,
            heard_at: now_micros,
            joining: false,
        }
    }

    fn state(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.snapshot.state)
    }

    /// The donor has answered on a new link.
    pub(super) fn greeted(&mut self, now: Now) {
        self.ask_due = !self.joining;
        self.asked_at = now.mono_micros;
    }
}

impl Partition {
    /// Goes on with a transfer from before the start: call this right after [`Partition::resume`].
    pub fn hold(&mut self, now: Now, held: SnapshotProgress) {
        self.ask_anew(now, held.donor, Some(held));
    }

    /// Asks with a new number. No number is used twice, also after a failed commit, when the links are still the same.
    fn ask_anew(&mut self, now: Now, donor: Incarnation, held: Option<SnapshotProgress>) {
        self.question = now.mono_micros.max(self.question + 1);
        self.take = Some(Take::of(donor, self.question, held, now.mono_micros));
    }

    /// Whether a snapshot is being received.
    pub fn takes_state(&self) -> bool {
        self.take.is_some()
    }

    /// What is applied in the snapshot that is being received.
    pub(super) fn take_applied(&self) -> Option<&VersionVector> {
        let held = self.take.as_ref()?.held.as_ref();
        held.map(|held| &held.snapshot.applied)
            .filter(|_| !broken("stable-beyond-a-state"))
    }

    fn taken(&self) -> VersionVector {
        let taken = self.origins.iter().map(|(id, origin)| {
            let of_before = *id == self.me && self.lacks_own();
            let taken = if of_before {
                origin.handed
            } else {
                origin.taken
            };
            (*id, taken)
        });
        taken.collect()
    }

    pub(super) fn state_begin(&mut self, now: Now, id: Incarnation, frame: StateBegin) {
        if frame.state == 0 {
            self.hints.insert(id, frame.applied);
            return self.choose(now);
        }
        let Some(take) = self.take.as_mut().filter(|t| t.donor == id && !t.joining) else {
            return;
        };
        let question = take.question;
        let earlier = frame.question.is_some_and(|of| of != question);
        if earlier && !broken("earlier-question-answered") {
            return;
        }
        take.heard_at = now.mono_micros;
        if take.state() == frame.state {
            take.ask_due = true;
            return self.wake(id);
        }
        let heads: BTreeMap<Incarnation, Hash> = frame
            .heads
            .iter()
            .map(|head| (head.origin, head.hash()))
            .collect();
        let sound =
            |(o, number): (Incarnation, u64)| heads.contains_key(&o) && number <= NUMBER_MAX;
        let whole = frame.applied.iter().all(sound);
        let Some(hlc) = frame.hlc.filter(|hlc| whole && *hlc <= HLC_MAX) else {
            let what = "a state without hashes or time, or with an impossible number".into();
            return self.stop(id, Alarm::Malformed { peer: id, what });
        };
        if self.remembers(id, frame.applied.get(self.me)) {
            return;
        }
        for (origin, number) in frame.applied.iter() {
            let known = self.origins.get(&origin);
            if known.is_some_and(|known| known.differs(number, heads[&origin])) {
                let peer = id;
                let alarm = Alarm::TwoHashes {
                    peer,
                    origin,
                    number,
                };
                return self.stop(id, alarm);
            }
        }
        let new = heads.keys().filter(|id| !self.origins.contains_key(id));
        if self.origins.len() + new.count() > self.config.origins_max {
            return self.stop(id, Alarm::Origins(id));
        }
        if !frame.applied.covers_all(&self.stable) && !broken("older-state-taken") {
            // The snapshot is older than what was collected here since. A new one contains that.
            self.forget();
            self.ask_anew(now, id, None);
            return self.release(id, frame.state);
        }
        let held = SnapshotProgress {
            donor: id,
            snapshot: Snapshot {
                state: frame.state,
                applied: frame.applied,
                heads,
                hlc,
            },
            last: Vec::new(),
        };
        // Stores of another snapshot's rows are not waited for.
        let stores = |pending: &Pending| matches!(pending, Pending::Rows { .. });
        self.pending.retain(|_, pending| !stores(pending));
        self.take = Some(Take::of(id, question, Some(held.clone()), now.mono_micros));
        let held = Box::new(held);
        self.out
            .push_back(Output::State(StateOutput::Begin { held }));
        self.wake(id);
    }

    pub(super) fn state_chunk(&mut self, now: Now, id: Incarnation, chunk: StateChunk) {
        let window = self.config.state.window_bytes;
        let take = self.take.as_mut().filter(|t| t.donor == id && !t.joining);
        let Some(take) = take.filter(|take| take.state() == chunk.state) else {
            return;
        };
        let Some(held) = take.held.as_mut() else {
            return;
        };
        take.heard_at = now.mono_micros;
        let bytes = chunk.rows.len() as u64;
        let follows = chunk.after <= held.last || broken("rows-with-a-gap");
        let full = take.storing_bytes > 0 && take.storing_bytes + bytes > window;
        if !follows || chunk.last <= held.last || (full && !broken("rows-without-room")) {
            return;
        }
        take.storing_bytes += bytes;
        self.state_bytes += bytes;
        held.last.clone_from(&chunk.last);
        let last = chunk.last.clone();
        let ticket = self.ask(Pending::Rows { last, bytes });
        self.out.push_back(Output::State(StateOutput::Store {
            ticket,
            last: chunk.last,
            rows: chunk.rows,
        }));
    }

    /// Rows are durable.
    pub(super) fn rows_done(&mut self, now: Now, last: Vec<u8>, bytes: u64) {
        let window = self.config.state.window_bytes;
        let Some(take) = self.take.as_mut() else {
            return;
        };
        take.storing_bytes -= bytes;
        take.durable = last;
        take.fresh_bytes += bytes;
        take.heard_at = now.mono_micros;
        // Asks again not for each chunk, but when half of the window is free, or nothing is being stored.
        if !take.joining && (take.fresh_bytes >= window / 2 || take.storing_bytes == 0) {
            take.ask_due = true;
            let donor = take.donor;
            self.wake(donor);
        }
    }

    /// Whether a snapshot is being joined.
    pub(super) fn joins_state(&self) -> bool {
        self.take.as_ref().is_some_and(|take| take.joining)
    }

    /// Joins a snapshot without a donor and without rows.
    pub(super) fn join_without_donor(&mut self, snapshot: Snapshot) {
        self.forget();
        let held = SnapshotProgress {
            donor: self.me,
            snapshot,
            last: Vec::new(),
        };
        let mut take = Take::of(self.me, self.question, Some(held.clone()), 0);
        take.joining = true;
        take.ask_due = false;
        self.take = Some(take);
        self.join(held);
    }

    pub(super) fn state_end(&mut self, now: Now, id: Incarnation, end: StateEnd) {
        let take = self.take.as_mut().filter(|t| t.donor == id && !t.joining);
        let Some(take) = take.filter(|take| take.state() == end.state) else {
            return;
        };
        take.heard_at = now.mono_micros;
        let Some(held) = take.held.clone() else {
            return;
        };
        if held.last != end.last && !broken("joined-too-early") {
            return;
        }
        take.joining = true;
        take.ask_due = false;
        // Commits are in order: the rows become durable before the join.
        self.join(held);
        self.read_on(Some(now));
    }

    fn join(&mut self, held: SnapshotProgress) {
        self.hlc = self.hlc.max(held.snapshot.hlc);
        let mut jumps = BTreeMap::new();
        for (id, number) in held.snapshot.applied.iter() {
            let hash = held.snapshot.heads[&id];
            let origin = self.origins.entry(id).or_insert_with(Origin::empty);
            if number > origin.taken {
                origin.took(number, hash);
                origin.low = number + 1;
                jumps.insert(id, (number, hash));
            }
            if number > origin.handed && !broken("handed-again-after-join") {
                origin.handed = number;
                origin.head = None;
            }
        }
        let ticket = self.ask(Pending::Join);
        let held = Box::new(held);
        self.out.push_back(Output::State(StateOutput::Join {
            ticket,
            held,
            jumps,
        }));
    }

    /// The join is durable.
    pub(super) fn joined(&mut self) {
        let Some(Take { donor, held, .. }) = self.take.take() else {
            return;
        };
        let Some(held) = held else { return };
        for (id, number) in held.snapshot.applied.iter() {
            if let Some(origin) = self.origins.get_mut(&id) {
                if number > origin.stored {
                    origin.stored(number, held.snapshot.heads[&id]);
                }
                origin.applied = origin.applied.max(number);
            }
        }
        self.release(donor, held.snapshot.state);
    }

    /// The donor may drop its snapshot.
    fn release(&mut self, donor: Incarnation, state: u64) {
        if let Some(peer) = self.peers.get_mut(&donor).filter(|peer| peer.linked) {
            peer.release = Some(state);
            self.wake(donor);
        }
    }

    /// Chooses a donor, if a snapshot is needed.
    pub(super) fn choose(&mut self, now: Now) {
        let taken = self.taken();
        let peers = &self.peers;
        self.hints.retain(|id, lacks| {
            peers.get(id).is_some_and(|peer| peer.linked) && !taken.covers_all(lacks)
        });
        let patience = self.config.state.donor_timeout_micros;
        let mut last = None;
        if let Some(take) = &self.take {
            if take.joining {
                return;
            }
            let needed = match &take.held {
                Some(held) => !taken.covers_all(&held.snapshot.applied),
                None => self.hints.contains_key(&take.donor) || !self.hints.is_empty(),
            };
            // A donor that is no holder any more sends no more, and what it had may be nowhere else.
            if !needed || !self.holds(take.donor) {
                return self.forget();
            }
            let silent = now.mono_micros.saturating_sub(take.heard_at) >= patience;
            if !silent || broken("donor-never-left") {
                return;
            }
            last = Some(take.donor);
        }
        // Donors take turns, so that none is asked for ever.
        let mut donors = self.hints.keys();
        let next = donors
            .find(|id| last.is_none_or(|last| **id > last))
            .or(self.hints.keys().next())
            .copied();
        if let Some(donor) = next.filter(|donor| last != Some(*donor)) {
            self.forget();
            self.ask_anew(now, donor, None);
            self.wake(donor);
        }
    }

    /// Ends the transfer. This is done at once, since from now on more becomes stable.
    fn forget(&mut self) {
        let Some(take) = self.take.take() else { return };
        let stores = |pending: &Pending| matches!(pending, Pending::Rows { .. });
        self.pending.retain(|_, pending| !stores(pending));
        self.out.push_back(Output::State(StateOutput::Forget));
        if take.held.is_some() {
            self.release(take.donor, take.state());
        }
    }

    pub(super) fn take_time(&mut self, now: Now) {
        self.choose(now);
        let resend = self.config.resend_after_micros;
        if let Some(take) = self.take.as_mut().filter(|take| !take.joining)
            && now.mono_micros.saturating_sub(take.asked_at) >= resend
            && !broken("rows-not-asked-again")
        {
            take.asked_at = now.mono_micros;
            take.ask_due = true;
            let donor = take.donor;
            self.wake(donor);
        }
    }

    pub(super) fn take_deadline(&self) -> Option<u64> {
        let take = self.take.as_ref().filter(|take| !take.joining)?;
        let again = take.asked_at + self.config.resend_after_micros;
        let others = self.hints.keys().any(|id| *id != take.donor);
        let left = take.heard_at + self.config.state.donor_timeout_micros;
        Some(if others && left > take.asked_at {
            again.min(left)
        } else {
            again
        })
    }

    /// The question to the donor, if one is due.
    pub(super) fn take_frame(&mut self, now: Now, id: Incarnation) -> Option<Frame> {
        let partition = self.id;
        if let Some(peer) = self.peers.get_mut(&id)
            && let Some(state) = peer.release.take()
        {
            return Some(Frame::StateTake(StateTake {
                partition,
                state,
                after: Vec::new(),
                bytes: 0,
                question: None,
            }));
        }
        if self.taking == Taking::Nothing {
            return None;
        }
        let greeted = self.is_greeted(id);
        let take = self.take.as_mut().filter(|take| take.donor == id)?;
        if !greeted || !std::mem::take(&mut take.ask_due) {
            return None;
        }
        take.asked_at = now.mono_micros;
        take.fresh_bytes = 0;
        Some(Frame::StateTake(StateTake {
            partition,
            state: take.state(),
            after: take.durable.clone(),
            bytes: self.config.state.window_bytes,
            question: Some(take.question),
        }))
    }
}
