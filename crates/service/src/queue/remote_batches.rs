//! The queue as a partition: what other nodes took, finished and gave up, and what they are told of ours.
//!
//! Every node keeps the row of each entry, and fetches its body; when both are durable the node that took it is told: the log by the partition's machine,
//! the body by [`Frame::BlobHave`]. A commit that fails has everything read again, as in an owner of accounts.

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::{BlobName, EntryId};
use whimbrel_replication::partition::{Entry as LogEntry, Membership};
use whimbrel_storage::{Commit, Mutation, Room, StoreError};

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

use super::{
    Phase, QueueOwner, Waiting,
    rows::{Done, Taken, read, with, without},
    snapshot::travels,
};
use crate::{
    api::{Failure, Reply},
    log,
    machine::{Note, Now, Output, RequestId, Ticket},
    peers::{
        Frame, OnDurable, PeerInput, PeerOutput, READ_AGAIN_MICROS, Shipping, Wanted, Work, blobs,
        clocks, keep_early,
    },
};

/// An entry that another node delivers.
pub(super) struct Other {
    pub(super) taken: Taken,
    pub(super) blob: BlobName,
    /// Since when it is known here.
    pub(super) since: u64,
    /// Its row is on this disk, and holds the body.
    pub(super) durable: bool,
    /// Since when it does, on the monotonic clock.
    held_since: u64,
    /// The body was said to be here before that. It may be gone meanwhile.
    early: bool,
    /// Who else delivers it, and wants to know of the body.
    pub(super) asked: BTreeSet<Incarnation>,
}

impl Other {
    pub(super) fn new(now: Now, taken: Taken, blob: BlobName, durable: bool) -> Self {
        Other {
            taken,
            blob,
            since: now.mono_micros,
            durable,
            held_since: now.mono_micros,
            early: false,
            asked: BTreeSet::new(),
        }
    }
}

impl QueueOwner {
    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(members) => {
                let members: BTreeSet<Incarnation> = members.into_keys().collect();
                self.config.peers.clone_from(&members);
                self.config.peers.remove(&self.config.origin);
                self.look_around(now);
                if let Phase::Running(running) = &mut self.phase {
                    running.shipping.members(now, Membership::of(members));
                }
            }
            PeerInput::Holders(holders) => self.config.holders = holders,
            PeerInput::Closed(closed) => {
                if let Phase::Running(running) = &mut self.phase {
                    running.shipping.closed(now, &closed);
                }
                self.closed = closed;
            }
            PeerInput::GiveUp(logs) => self.give_up_logs(now, &logs),
            PeerInput::Linked(peer, features) if self.config.peers.contains(&peer) => {
                self.hands_unlinked(peer);
                self.links.insert(peer);
                self.forwarding.linked(peer, features);
                self.gone.remove(&peer);
                self.look_around(now);
                match &mut self.phase {
                    Phase::Loading(loading) => loading.frames.retain(|(from, _)| *from != peer),
                    Phase::Running(running) => running.shipping.linked(now, peer),
                }
                self.tell_again(peer);
                self.fill();
            }
            PeerInput::Unlinked(peer) => {
                self.links.remove(&peer);
                self.haves.remove(&peer);
                self.hands_unlinked(peer);
                self.gone.insert(peer, now.mono_micros);
                self.look_around(now);
                match &mut self.phase {
                    Phase::Loading(loading) => loading.frames.retain(|(from, _)| *from != peer),
                    Phase::Running(running) => running.shipping.unlinked(now, peer),
                }
            }
            PeerInput::Frame(peer, frame) if self.links.contains(&peer) => {
                self.frame(now, peer, frame);
            }
            PeerInput::Ready(PartitionId::QUEUE, to) => {
                let peer = to.peer;
                let told = self.next_have(peer).map(Frame::BlobHave);
                let told = told.or_else(|| self.next_forwarded(peer));
                let frame = match (told, &mut self.phase) {
                    (Some(told), _) => Some(told),
                    (None, Phase::Running(running)) => running.shipping.transmit(now, to),
                    (None, Phase::Loading(_)) => None,
                };
                let sent = frame.into_iter().flat_map(|frame| blobs::send(peer, frame));
                self.out.extend(sent);
            }
            PeerInput::Logs(ticket, logs) => {
                if let Phase::Loading(loading) = &mut self.phase
                    && loading.ticket == ticket
                {
                    loading.logs = Some(Some(logs.into_iter().collect()));
                }
                self.loaded(now);
            }
            PeerInput::Log(ticket, entries) => self.log_read(now, ticket, entries),
            PeerInput::Snapshot(ticket, snapshot) => {
                let shipping = shipping_of(&mut self.phase);
                let released = self.giving.fixed(now, shipping, ticket, snapshot);
                self.out.extend(released);
            }
            PeerInput::Rows(ticket, page) => {
                let shipping = shipping_of(&mut self.phase);
                self.giving.rows(now, shipping, ticket, page, travels);
            }
            PeerInput::Body(blob, looked) => self.body_came(blob, looked),
            PeerInput::WantAgain(blob) => {
                if self.missing_blobs.contains_key(&blob) {
                    self.out.push_back(Output::Peer(PeerOutput::Request(blob)));
                }
            }
            PeerInput::Clock(clock) => self.stamps.set_clock(clock),
            PeerInput::Former(_)
            | PeerInput::Linked(..)
            | PeerInput::RoundTrip(..)
            | PeerInput::Frame(..)
            | PeerInput::Ready(..)
            | PeerInput::Open(_)
            | PeerInput::NoBody(_)
            | PeerInput::Missed(..) => {}
        }
    }

    fn frame(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        let frame = match frame {
            Frame::BlobHave(have) => return self.blob_have(now, peer, have),
            Frame::Deliver(ask) => return self.asked(now, peer, ask),
            Frame::Delivered(answer) => return self.answered(now, peer, answer),
            frame => frame,
        };
        match &mut self.phase {
            Phase::Loading(loading) => keep_early(&mut loading.frames, peer, frame),
            Phase::Running(running) => {
                let anew = matches!(&frame, Frame::Hello(hello) if hello.begins_anew());
                running.shipping.received(now, &running.log, peer, frame);
                let origin = self.config.origin;
                // What it has stored and not applied may rest on what nobody else has.
                let applied = running.shipping.applied_at(peer, origin);
                let own = running.log.next() - 1;
                let outcomes = self.waits.applied(peer, applied, own);
                self.resolve(now, outcomes);
                if anew {
                    self.tell_again(peer);
                }
            }
        }
    }

    /// The rows were read: streams that are there, what came on them meanwhile, and bodies that are not here.
    pub(super) fn link_loaded(&mut self, now: Now, frames: Vec<(Incarnation, Frame)>, anew: bool) {
        if let Phase::Running(running) = &mut self.phase {
            running.shipping.closed(now, &self.closed);
            for peer in &self.links {
                running.shipping.linked(now, *peer);
            }
            if anew {
                running.shipping.begin_anew(now, self.links.iter().copied());
            }
        }
        for (peer, frame) in frames {
            self.frame(now, peer, frame);
        }
        self.say_again();
        // What peers have asked for meanwhile.
        self.make_idle();
        self.look_later(now);
    }

    /// What follows from the rows that were read. Where a commit was refused it waits: what is refused again would lead to reading all again, without end.
    pub(super) fn begin(&mut self, now: Now) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if running.failed || running.shipping.is_paused() || !std::mem::take(&mut running.begins) {
            return;
        }
        let gone = std::mem::take(&mut running.gone);
        self.hand_out_pages(gone);
        let new = self
            .entries
            .iter()
            .filter(|(_, of)| of.first_handed_out == 0);
        for id in new.map(|(id, _)| *id).collect::<Vec<EntryId>>() {
            self.hand_out(now, id);
        }
        if !self.config.peers.is_empty() {
            let want = |blob: &BlobName| Output::Peer(PeerOutput::Request(*blob));
            self.out.extend(self.missing_blobs.keys().map(want));
        }
    }

    // --- The machine ---------------------------------------------------------------------------------------------------

    /// Carries out what the partition's machine wants.
    pub(super) fn ship(&mut self, now: Now) {
        loop {
            let ticket = self.ticket();
            let Phase::Running(running) = &mut self.phase else {
                return;
            };
            if running.failed {
                return;
            }
            let Some(want) = running.shipping.poll() else {
                break;
            };
            let log = &mut running.log;
            let wanted = match want.carry_out(PartitionId::QUEUE, ticket, log, &mut self.reads) {
                ControlFlow::Break(told) => {
                    self.out.extend(told);
                    continue;
                }
                ControlFlow::Continue(wanted) => wanted,
            };
            self.out.push_back(match wanted {
                Wanted::Grown => continue,
                Wanted::Alone { warning, .. } => Output::Log(Note::Warning(warning)),
                Wanted::Snapshot { asked } => self.giving.fix(ticket, asked),
                Wanted::ReadState {
                    asked,
                    state,
                    after,
                    bytes_max,
                } => self.giving.read(ticket, asked, state, after, bytes_max),
                Wanted::DropState(state) => self.giving.release(state),
            });
        }
        while self.carry_on(now) {}
        if let Phase::Running(running) = &mut self.phase {
            running.shipping.reckon(now);
        }
    }

    fn log_read(&mut self, now: Now, ticket: Ticket, entries: Vec<LogEntry>) {
        if let (Some(read), Phase::Running(running)) = (self.reads.came(ticket), &mut self.phase) {
            running.shipping.read(now, read.asked, read.origin, entries);
        }
    }

    /// Whether it was a read that is tried again.
    pub(super) fn read_failed(&mut self, now: Now, ticket: Ticket, cause: &StoreError) -> bool {
        if self.adopting.remove(&ticket).is_some() {
            // It is looked at again.
            return true;
        }
        if self.forwarding.is_reading(ticket) {
            self.made(ticket, false);
            return true;
        }
        if self.giving.lost(now, shipping_of(&mut self.phase), ticket) {
            return true;
        }
        match (self.reads.failed(ticket), &mut self.phase) {
            (Some(_), _) => {}
            (None, Phase::Loading(loading)) if loading.ticket == ticket => {
                // At a start somebody is there to be told.
                if !loading.anew || !cause.is_temporary() {
                    return false;
                }
                loading.failed = true;
                // Whoever waits for it would wait for long.
                for (request, _) in std::mem::take(&mut self.calls) {
                    let reply = Reply::Failed(Failure::Temporary);
                    self.out.push_back(Output::Reply(request, reply));
                }
            }
            // Of before everything was read again.
            (None, _) => return true,
        }
        self.reads_at = Some(now.mono_micros + READ_AGAIN_MICROS);
        self.out.push_back(Output::Log(Note::Warning(format!(
            "reading the queue failed: {cause}"
        ))));
        true
    }

    /// Time has passed.
    pub(super) fn time(&mut self, now: Now) {
        if self.reads_at.is_some_and(|at| at <= now.mono_micros) {
            self.reads_at = None;
            self.out.extend(self.reads.again(PartitionId::QUEUE));
            if matches!(&self.phase, Phase::Loading(loading) if loading.failed) {
                self.load();
            }
        }
        if let Phase::Running(running) = &mut self.phase
            && !running.failed
            && running
                .shipping
                .deadline()
                .is_some_and(|at| at <= now.mono_micros)
        {
            running.shipping.time(now);
        }
        self.begin(now);
        let outcomes = self.waits.time(clocks(now));
        self.resolve(now, outcomes);
        if self.look_at.is_some_and(|at| at <= now.mono_micros) {
            self.look_at = None;
            self.look(now);
        }
    }

    /// Hands the next batch of another node to the store, if there is one.
    fn carry_on(&mut self, now: Now) -> bool {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            return false;
        };
        if running.stalled || running.failed {
            return false;
        }
        let Some(work) = running.shipping.next_work() else {
            return false;
        };
        let taken = match work.applies().map(done_by).transpose() {
            Ok(taken) => taken,
            Err(text) => {
                // A later version made it: half of it must not be applied, and what comes after it rests on it.
                running.stalled = true;
                self.out.push_back(Output::Log(Note::Warning(text)));
                return false;
            }
        };
        let Some(work) = running.shipping.take_work() else {
            return false;
        };
        let (asked, batch, foreign) = match &work {
            Work::Store { asked, foreign, .. } => (*asked, &foreign.batch, Some(foreign)),
            Work::Apply { asked, batch } => (*asked, batch, None),
            Work::State(_) => {
                if let Work::State(work) = work {
                    self.work_on_state(now, ticket, work);
                }
                return true;
            }
        };
        let applies = taken.is_some();
        if applies {
            running.log.take(batch);
        }
        let mut commit = running.log.foreign(foreign, applies);
        let frees = |done: &Vec<Done>| done.iter().all(|done| matches!(done, Done::Closed(_)));
        if taken.as_ref().is_some_and(frees) {
            commit.room = Room::Frees;
        }
        running.under_way.insert(ticket);
        running.shipping.committing(ticket, OnDurable::Done(asked));
        let (mut closed, mut taken_now) = (Vec::new(), Vec::new());
        for done in taken.into_iter().flatten() {
            match done {
                Done::Taken(id, taken, blob, row) => {
                    if self.hear_of(now, id, taken, blob, row, &mut commit) {
                        self.out.push_back(Output::Peer(PeerOutput::Coming(blob)));
                    }
                    taken_now.push(id);
                }
                Done::Closed(id) => {
                    if let Some(blob) = self.close(now, id) {
                        commit.mutations.extend(without(id, &blob));
                    }
                    closed.push(id);
                }
            }
        }
        self.commits
            .insert(ticket, Waiting::Foreign(closed, taken_now));
        self.out.push_back(Output::Commit(ticket, commit));
        self.look_later(now);
        true
    }

    /// Another node has taken an entry. If its row is here, since a state brought it, that changes nothing; else its body is wanted.
    pub(super) fn hear_of(
        &mut self,
        now: Now,
        id: EntryId,
        taken: Taken,
        blob: BlobName,
        row: Bytes,
        commit: &mut Commit,
    ) -> bool {
        if self.others.contains_key(&id) {
            return false;
        }
        commit.mutations.extend(with(id, &blob, row));
        commit.mutations.push(Mutation::Put {
            key: log::missing_blob_key(&blob),
            value: Bytes::from_static(&[1]),
        });
        let other = Other::new(now, taken, blob, false);
        self.others.insert(id, other);
        self.missing_blobs.insert(blob, id);
        self.out.push_back(Output::Unfinished(id));
        true
    }

    /// Another node has finished an entry, or given it up. Gives its body, if the entry is here.
    pub(super) fn close(&mut self, now: Now, id: EntryId) -> Option<BlobName> {
        let mut waits = self.provisional.iter();
        let waits = waits.find(|(_, of)| of.entry.id == id);
        if let Some(number) = waits.map(|(number, _)| *number) {
            // It was delivered elsewhere.
            self.count(now, number);
        }
        self.ended(id);
        self.forwarding.close(id);
        self.out.push_back(Output::Closing(id));
        if let Some(pending) = self.entries.remove(&id) {
            self.bytes -= pending.bytes;
            return Some(pending.entry.blob);
        }
        let other = self.others.remove(&id)?;
        self.missing_blobs.remove(&other.blob);
        Some(other.blob)
    }

    /// A commit of those that rest on each other is durable, or failed.
    pub(super) fn said(&mut self, now: Now, ticket: Ticket, waiting: Waiting, done: bool) {
        if let Phase::Running(running) = &mut self.phase {
            running.under_way.remove(&ticket);
            if done && !running.failed {
                running.shipping.committed(now, ticket);
            }
            running.failed |= !done;
        }
        match waiting {
            Waiting::Take(number) => self.taken(now, number, done),
            Waiting::Close(id, client) => {
                if done {
                    if let Some(pending) = self.entries.remove(&id) {
                        self.bytes -= pending.bytes;
                    }
                    self.ended(id);
                    self.out.push_back(Output::Finished(id));
                }
                let failed = |request: RequestId| {
                    Output::Reply(request, Reply::Failed(Failure::NotConfirmed))
                };
                self.out.extend(client.map(failed));
            }
            Waiting::Foreign(closed, taken) if done => {
                self.out.extend(closed.into_iter().map(Output::Finished));
                for id in taken {
                    if let Some(other) = self.others.get_mut(&id) {
                        other.durable = true;
                        other.held_since = now.mono_micros;
                        let early = other.early.then_some(other.blob);
                        let want = |blob| Output::Peer(PeerOutput::Request(blob));
                        self.out.extend(early.map(want));
                    }
                }
            }
            Waiting::Forget(id) if done => self.out.push_back(Output::Finished(id)),
            Waiting::Body(blob) if done => {
                let id = self.missing_blobs.remove(&blob);
                if let Some(other) = id.and_then(|id| self.others.get(&id)) {
                    let mut waiting = other.asked.clone();
                    waiting.insert(other.taken.by);
                    for peer in waiting {
                        self.tell_of(peer, blob, false);
                    }
                }
                if let Some(id) = id {
                    self.make_all_of(id);
                }
            }
            _ => {}
        }
        let reset =
            matches!(&self.phase, Phase::Running(of) if of.failed && of.under_way.is_empty());
        if reset {
            self.load_anew();
        }
    }

    /// A commit failed, and with it all may be lost that came since: it is read again, and begins anew on the streams that are there.
    fn load_anew(&mut self) {
        if let Phase::Running(running) = &self.phase {
            let unlink = |peer| Output::Peer(PeerOutput::Unlink(peer));
            self.out.extend(running.shipping.older_peers().map(unlink));
        }
        self.load();
        if let Phase::Loading(loading) = &mut self.phase {
            loading.anew = true;
        }
    }

    /// A provisional entry is on this disk, or it could not be written.
    fn taken(&mut self, now: Now, number: u64, done: bool) {
        let Some(of) = self.provisional.get_mut(&number) else {
            return;
        };
        of.durable = done;
        if !done {
            let request = of.request;
            self.accepting -= 1;
            self.bytes -= of.bytes;
            let id = of.entry.id;
            self.provisional.remove(&number);
            self.ended(id);
            let reply = Reply::Failed(Failure::Storage);
            self.out.push_back(Output::Reply(request, reply));
        } else if of.needed == 0 || broken("accepted-before-enough") {
            self.count(now, number);
        } else if broken("provisional-delivered") {
            let (entry, bytes) = (Arc::clone(&of.entry), of.bytes);
            let id = entry.id;
            let taken = self.taken_here(number);
            self.insert(entry, bytes, None, Some(taken));
            self.hand_out(now, id);
        }
    }

    /// A body is here, or was at this time of the monotonic clock: when that is durable the node that waits for it is told.
    fn body_came(&mut self, blob: BlobName, looked: u64) {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let Some(id) = self.missing_blobs.get(&blob).filter(|_| !running.failed) else {
            return;
        };
        if let Some(other) = self.others.get_mut(id).filter(|other| !other.durable) {
            other.early = true;
            return;
        }
        if self.others.get(id).is_some_and(|of| looked < of.held_since) {
            // It may be gone meanwhile, if all others that held it have let go.
            self.out.push_back(Output::Peer(PeerOutput::Request(blob)));
            return;
        }
        let mut commit = running.log.commit();
        // It is small, and was accepted before: who waits for this node is told.
        commit.room = Room::Vital;
        commit.mutations.push(Mutation::Delete {
            key: log::missing_blob_key(&blob),
        });
        running.under_way.insert(ticket);
        self.commits.insert(ticket, Waiting::Body(blob));
        self.out.push_back(Output::Commit(ticket, commit));
    }
}

fn shipping_of(phase: &mut Phase) -> Option<&mut Shipping> {
    match phase {
        Phase::Running(running) => Some(&mut running.shipping),
        Phase::Loading(_) => None,
    }
}

/// What a batch did; else what the log is told.
fn done_by(batch: &Batch) -> Result<Vec<Done>, String> {
    read(batch).map_err(|cause| {
        format!(
            "queue: batch {} of {:016x} is kept and cannot be applied, nor what comes after it: {cause}",
            batch.first,
            batch.origin.get()
        )
    })
}
