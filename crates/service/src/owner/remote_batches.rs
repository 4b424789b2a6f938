//! What other nodes did: their batches become part of what is here, and ours go to them.
//!
//! A partition's machine (`crate::peers`) says in which order batches are stored and applied; here each becomes one commit: the
//! batch, the rows it changed and the position, which says that it is applied. A batch waits until the accounts that it names are loaded, and what comes
//! behind it in the partition waits with it. Sessions are told as of local changes: MODSEQs are given when something is shown, and what is late
//! is claimed again at once (docs/design.md#rule-4).
//!
//! Who reads elsewhere: `reading`.

use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Op, Replica, SpecialUse, Step};
use whimbrel_replication::partition::{Entry, Ticket as Asked};
use whimbrel_storage::{Mutation, Room};

use super::{
    Link, Partition, PartitionOwner, Phase,
    missing_blobs::{Naming, blob_of_batch, brought, unnamed_by},
    notify::Notifier,
    rows::{free_room, released_body, take_state},
    sent_copies::USUAL_NAME,
    split_commits::BATCH_BYTES_MAX,
    writing::take_visible,
};
use crate::{
    machine::{Note, Now, Output, Ticket},
    peers::{Frame, OnDurable, PeerInput, PeerOutput, Request, Work, blobs, keep_early},
};

/// A log that is being read.
pub(super) struct Read {
    partition: PartitionId,
    asked: Asked,
    origin: Incarnation,
    from: u64,
    bytes_max: usize,
    failed: bool,
}

impl PartitionOwner {
    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(slots) => {
                let was_alone = self.config.peers.is_empty();
                self.config.peers = slots;
                self.config.peers.remove(&self.config.origin);
                if was_alone {
                    let watched = self.accounts.iter();
                    let watched = watched.filter(|(_, entry)| !entry.watchers.is_empty());
                    self.looked.extend(watched.map(|(account, _)| *account));
                    let spells = self.accounts.iter().filter(|(_, entry)| {
                        matches!(&entry.phase, Phase::Running(replica) if replica.spells_as_heard())
                    });
                    let spells: Vec<AccountId> = spells.map(|(account, _)| *account).collect();
                    for account in spells {
                        self.spell_soon(now, account);
                    }
                }
                self.belong(now);
            }
            PeerInput::Holders(holders) => self.placed(now, holders),
            PeerInput::Former(slots) => self.former(slots),
            PeerInput::Closed(closed) => {
                self.of_all(now, |own, now| {
                    own.shipping.closed(now, &closed);
                });
                self.closed = closed;
            }
            PeerInput::GiveUp(of) => self.shorten(now, &of),
            PeerInput::Linked(peer, features) if self.config.peers.contains_key(&peer) => {
                let round_trip = None;
                self.links.insert(
                    peer,
                    Link {
                        round_trip,
                        features,
                    },
                );
                self.drop_early(peer);
                self.of_all(now, |own, now| own.linked(now, peer, None));
                let all: Vec<_> = self.partitions.keys().map(|of| (*of, peer)).collect();
                self.open_windows(now, all);
            }
            PeerInput::Unlinked(peer) => {
                self.links.remove(&peer);
                self.drop_early(peer);
                self.of_all(now, |own, now| own.unlinked(now, peer));
            }
            PeerInput::Clock(clock) => self.stamps.set_clock(clock),
            PeerInput::RoundTrip(peer, micros) => {
                if let Some(link) = self.links.get_mut(&peer) {
                    link.round_trip = Some(micros);
                    self.of_all(now, |own, _| own.readers.round_trip(peer, micros));
                }
            }
            PeerInput::Frame(peer, frame) if self.links.contains_key(&peer) => {
                self.frame(now, peer, frame);
            }
            PeerInput::Linked(..) | PeerInput::Frame(..) => {}
            PeerInput::Ready(partition, to) => {
                if let Some(own) = self.running(partition)
                    && let Some(frame) = own.transmit(now, to)
                {
                    self.windows.moved(now, &frame);
                    self.out.extend(blobs::send(to.peer, frame));
                }
                self.ship(now, partition);
            }
            PeerInput::Open(partition) => self.open(partition),
            PeerInput::Logs(ticket, logs) => {
                if let Some(super::Load::Logs(partition)) = self.loads.remove(&ticket) {
                    if let Some(Partition::Released(_)) = self.partitions.get(&partition) {
                        return self.left_logs(partition, logs);
                    }
                    if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
                        opening.logs = Some(Some(logs.into_iter().collect()));
                    }
                    self.opened(now, partition);
                }
            }
            PeerInput::Log(ticket, entries) => self.log_read(now, ticket, entries),
            PeerInput::Snapshot(ticket, snapshot) => self.fixed(now, ticket, snapshot),
            PeerInput::Rows(ticket, page) => self.paged(now, ticket, page),
            PeerInput::Body(blob, looked) => self.body_came(now, blob, looked),
            PeerInput::NoBody(blob) => self.nobody_has(now, &blob),
            PeerInput::WantAgain(blob) => self.want_again(blob),
            PeerInput::Missed(account, blob) => self.missed(account, blob),
        }
    }

    pub(super) fn running(&mut self, partition: PartitionId) -> Option<&mut super::Own> {
        match self.partitions.get_mut(&partition) {
            Some(Partition::Running(own)) if !own.failed => Some(own),
            _ => None,
        }
    }

    fn of_all(&mut self, now: Now, tell: impl Fn(&mut super::Own, Now)) {
        let open: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for partition in open {
            if let Some(own) = self.running(partition) {
                tell(own, now);
            }
            self.ship(now, partition);
        }
    }

    /// What came on a stream that is gone.
    fn drop_early(&mut self, peer: Incarnation) {
        for partition in self.partitions.values_mut() {
            if let Partition::Loading(opening) = partition {
                opening.frames.retain(|(from, _)| *from != peer);
            }
        }
    }

    fn frame(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        let Some(partition) = frame.partition().filter(|id| id.bucket().is_some()) else {
            return;
        };
        let tells_of_all = |node| {
            self.is_of_members(node) || node == self.config.origin && self.generation(partition) > 0
        };
        let is_of_nobody = match &frame {
            Frame::VisibleVector(told) => !tells_of_all(told.member),
            Frame::ReadersOf(told) => {
                !self.is_of_members(told.member) || told.member == self.config.origin
            }
            _ => false,
        };
        if is_of_nobody {
            return;
        }
        self.open(partition);
        self.windows.moved(now, &frame);
        match self.partitions.get_mut(&partition) {
            Some(Partition::Loading(opening)) => keep_early(&mut opening.frames, peer, frame),
            Some(Partition::Running(own)) if !own.failed => {
                match frame {
                    Frame::Leaving(ask) => self.asked_to_cover(peer, ask),
                    Frame::Covered(answer) => self.covered(now, peer, answer),
                    frame => own.received(now, peer, frame),
                }
                self.add_delivery_ack(partition);
                self.confirm_on(partition);
                self.ship(now, partition);
            }
            _ => {}
        }
    }

    /// A partition was opened: streams that are there, and what came on them meanwhile.
    pub(super) fn link_opened(
        &mut self,
        now: Now,
        partition: PartitionId,
        frames: Vec<(Incarnation, Frame)>,
        anew: bool,
    ) {
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(peer, link)| (*peer, link.round_trip))
            .collect();
        let closed = self.closed.clone();
        let Some(own) = self.running(partition) else {
            return;
        };
        own.shipping.closed(now, &closed);
        for (peer, round_trip) in &links {
            own.linked(now, *peer, *round_trip);
        }
        if anew {
            let peers = links.iter().map(|(peer, _)| *peer);
            own.shipping.begin_anew(now, peers);
        }
        let windows = links.iter().map(|(peer, _)| (partition, *peer));
        self.open_windows(now, windows);
        let Some(own) = self.running(partition) else {
            return;
        };
        for (peer, frame) in frames {
            own.received(now, peer, frame);
        }
        if !own.looks_late {
            self.want_all(partition);
        }
        self.ship(now, partition);
    }

    /// A commit failed, and all behind it: the partition is read again, and begins anew on the streams that are there.
    pub(super) fn open_anew(&mut self, partition: PartitionId) {
        if let Some(Partition::Running(own)) = self.partitions.get(&partition) {
            let unlink = |peer| Output::Peer(PeerOutput::Unlink(peer));
            self.out.extend(own.shipping.older_peers().map(unlink));
        }
        self.forget(partition);
        self.open(partition);
        if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
            opening.anew = true;
        }
    }

    // --- The machine ---------------------------------------------------------------------------------------------------

    /// Carries out what the partition's machine wants at once.
    pub(super) fn ship(&mut self, now: Now, partition: PartitionId) {
        loop {
            let ticket = self.ticket();
            let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
                return;
            };
            let Some(want) = own.shipping.poll() else {
                break;
            };
            self.out.push_back(match want {
                Request::Read {
                    asked,
                    origin,
                    from,
                    bytes_max,
                } => {
                    let read = Read {
                        partition,
                        asked,
                        origin,
                        from,
                        bytes_max,
                        failed: false,
                    };
                    let output = read.output(ticket);
                    self.reads.insert(ticket, read);
                    output
                }
                Request::Cut(origin, below) => {
                    own.log.cut(origin, below);
                    continue;
                }
                Request::Grown => {
                    self.grown(partition);
                    continue;
                }
                Request::Alone { own_lost, warning } => {
                    own.log.go_on_alone(self.stamps.stamp(now), own_lost);
                    Output::Log(Note::Warning(warning))
                }
                Request::Snapshot { asked } => {
                    self.fix(now, partition, asked);
                    continue;
                }
                Request::ReadState {
                    asked,
                    state,
                    after,
                    bytes_max,
                } => {
                    self.read_state(partition, asked, state, after, bytes_max);
                    continue;
                }
                Request::DropState(state) => {
                    own.states.given.remove(&state);
                    Output::Peer(PeerOutput::Release(state))
                }
                Request::Wake(peer) => Output::Peer(PeerOutput::Wake(partition, peer)),
                Request::Unlink(peer) => Output::Peer(PeerOutput::Unlink(peer)),
                Request::Warn(text) => Output::Log(Note::Warning(text)),
                Request::Older(because) => Output::Log(Note::Older(because)),
                Request::Fatal(cause) => Output::Fatal(cause),
            });
        }
        self.report(now, partition);
        self.wake_for_reports(partition);
        let Some(own) = self.running(partition) else {
            return;
        };
        let waits = own.shipping.next_work().is_some();
        let before = own.deadline();
        let after = own.reckon(now);
        if before != after {
            if let Some(before) = before {
                self.timers.remove(&(before, partition));
            }
            self.timers.extend(after.map(|at| (at, partition)));
        }
        if waits {
            self.stirred.insert(partition);
        }
        self.hear(now, partition);
    }

    fn log_read(&mut self, now: Now, ticket: Ticket, entries: Vec<Entry>) {
        let Some(read) = self.reads.remove(&ticket) else {
            return;
        };
        if let Some(own) = self.running(read.partition) {
            own.shipping.read(now, read.asked, read.origin, entries);
        }
        self.ship(now, read.partition);
    }

    pub(super) fn read_failed(&mut self, now: Now, ticket: Ticket, cause: &str) {
        let Some(read) = self.reads.get_mut(&ticket) else {
            return;
        };
        read.failed = true;
        let partition = read.partition;
        self.out.push_back(Output::Log(Note::Warning(format!(
            "reading a log from the store failed: {cause}"
        ))));
        self.wait_with_work(now, partition);
    }

    /// Time has passed.
    pub(super) fn peers_due(&mut self, now: Now) {
        let later = self
            .timers
            .split_off(&(now.mono_micros + 1, PartitionId(0)));
        for (_, partition) in std::mem::replace(&mut self.timers, later) {
            self.left_on(now, partition);
            self.opened(now, partition);
            self.try_again(now, partition);
            let Some(own) = self.running(partition) else {
                continue;
            };
            if own.deadline().is_some_and(|at| at <= now.mono_micros) {
                own.time(now);
            }
            self.confirm_on(partition);
            self.leave_on(now, partition);
            self.ship(now, partition);
        }
    }

    // --- Batches of other nodes ----------------------------------------------------------------------------------------

    /// Whether the next batch of another node names the account.
    pub(super) fn is_next(&self, partition: PartitionId, account: AccountId) -> bool {
        let Some(Partition::Running(own)) = self.partitions.get(&partition) else {
            return false;
        };
        let next = own.shipping.next_work().and_then(Work::applies);
        next.is_some_and(|batch| batch.sections.iter().any(|of| of.subject == account.0))
    }

    /// Hands to the store what waits for it, in every partition as far as it can be.
    pub(super) fn work_on(&mut self, now: Now) {
        for partition in std::mem::take(&mut self.stirred) {
            while self.carry_on(now, partition) {}
            if let Some(own) = self.running(partition)
                && own.shipping.next_work().is_some()
            {
                self.stirred.insert(partition);
            }
        }
    }

    /// Does the next piece of work, if it can be done now.
    fn carry_on(&mut self, now: Now, partition: PartitionId) -> bool {
        let Some(own) = self.running(partition) else {
            return false;
        };
        if own.retry_at.is_some() {
            return false;
        }
        let Some(work) = own.shipping.next_work() else {
            return false;
        };
        if matches!(work, Work::State(_)) {
            return self.carry_on_state(partition);
        }
        let mut sections = Vec::new();
        if let Some(batch) = work.applies() {
            let named: Vec<AccountId> = batch
                .sections
                .iter()
                .map(|section| AccountId(section.subject))
                .collect();
            sections = batch.indexed_sections().map(Section::decode).collect();
            if !self.all_here(&named) {
                return false;
            }
        }
        let Some(work) = self
            .running(partition)
            .and_then(|own| own.shipping.take_work())
        else {
            return false;
        };
        self.hand_over(now, partition, work, sections);
        true
    }

    /// Whether all of these accounts are in memory, or stalled; else they are being loaded.
    fn all_here(&mut self, accounts: &[AccountId]) -> bool {
        let mut all = true;
        for account in accounts {
            if self.is_stalled(*account) {
                continue;
            }
            let here = matches!(
                self.entry(*account).phase,
                Phase::Running(_) | Phase::Unopened | Phase::Removed
            );
            if !here {
                all = false;
                self.load(*account);
            }
        }
        all
    }

    /// Nothing of the account is stored, and the next batch names it. It is opened by that, unless it was removed.
    pub(super) fn unopened(&mut self, account: AccountId, opens: bool) {
        if let Some(entry) = self.accounts.get_mut(&account) {
            entry.phase = if opens {
                Phase::Unopened
            } else {
                Phase::Removed
            };
        }
    }

    /// One commit of a batch, and what follows from it.
    fn hand_over(
        &mut self,
        now: Now,
        partition: PartitionId,
        work: Work,
        mut sections: Vec<Section>,
    ) {
        let (earlier, ticket) = (self.ticket(), self.ticket());
        let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
            return;
        };
        let applies = work.applies().is_some();
        let (asked, batch, foreign) = match &work {
            Work::Store { asked, foreign, .. } => (*asked, &foreign.batch, Some(foreign)),
            Work::Apply { asked, batch } => (*asked, batch, None),
            Work::State(_) => return,
        };
        let (mut mutations, mut late, mut woken) = (Vec::new(), Vec::new(), Vec::new());
        let mut sent = Vec::new();
        let (mut shown, mut stalled, mut missed) = (Vec::new(), Vec::new(), Vec::new());
        // Mail that was removed elsewhere makes room here.
        let frees = |section: &Section| section.ops.as_ref().is_ok_and(|ops| free_room(ops));
        let room = match applies && sections.iter().all(frees) {
            true => Room::Frees,
            false => Room::Ordinary,
        };
        if applies {
            own.log.take(batch);
        }
        // What a part that is held names is not known.
        let all = || batch.blobs.iter().filter_map(|name| blob_of_batch(name));
        let mut naming = Naming::default();
        if applies {
            own.applied(batch);
        }
        if broken("foreign-not-applied") {
            sections.clear();
        }
        for Section {
            account,
            index,
            ops,
        } in sections
        {
            if own.stalled.contains_key(&account) {
                mutations.extend(own.hold(account, batch, index));
                naming.all(account, all());
                continue;
            }
            let Some(entry) = self.accounts.get_mut(&account) else {
                continue;
            };
            if matches!(entry.phase, Phase::Removed) && !broken("removed-comes-back") {
                woken.push(account);
                continue;
            }
            let slot = self.config.slot_of(batch.origin);
            let ops = match ops.and_then(|ops| of_slot(ops, slot)) {
                Ok(ops) => ops,
                // A later version made it: half of it must not be applied, and what comes after it rests on it.
                Err(cause) => {
                    mutations.extend(own.hold(account, batch, index));
                    naming.all(account, all());
                    stalled.push((account, cause));
                    continue;
                }
            };
            if matches!(entry.phase, Phase::Unopened | Phase::Removed) {
                woken.push(account);
                // Whoever writes to an account has seen it opened. If it is not open here, it was, and has been purged.
                if !ops.iter().any(|op| matches!(op, Op::Open { .. })) {
                    continue;
                }
                let mut replica = Replica::new(account, self.config.slot);
                own.begin(&mut replica, &self.config.renewal());
                entry.phase = Phase::Running(Box::new(replica));
            }
            let Phase::Running(replica) = &mut entry.phase else {
                continue;
            };
            let brought = brought(&ops);
            brought.iter().for_each(|blob| replica.lack(*blob));
            let epoch = replica.epoch();
            replica.follow_epoch(Op::epoch_of_all(&ops));
            let peers = own.peers(now, account, &self.config.peers);
            let step = Step::of(
                batch,
                index,
                own.log.applied(),
                own.log.hlc().last(),
                &peers,
            );
            let put = replica.put_into(&step, &ops, SpecialUse::Sent, USUAL_NAME);
            let applied = replica.apply(&step, ops);
            if slot.is_some() {
                let known = own.announced.all_visible(account.0);
                replica.note_claims(slot, batch.origin, batch.last(), &known);
            }
            let risen = (replica.epoch() > epoch).then(|| replica.uidvalidity());
            let mut rows = take_state(replica, account);
            let released = rows.iter().filter_map(released_body);
            let released: Vec<BlobName> = released
                .filter(|blob| own.missing_blobs.contains_key(blob))
                .collect();
            let bytes = mutations.iter().chain(&rows).map(Mutation::bytes);
            let fits = bytes.sum::<usize>() <= self.config.foreign_bytes_max;
            let effects = match applied {
                Ok(effects) if fits => effects,
                Ok(_) => {
                    // It is read again, without this, and takes it in as many commits as it needs. Who looks at it is told then.
                    entry.phase = Phase::Absent;
                    entry.measured.forget(&mut self.memory);
                    entry.newest = Some(ticket);
                    entry.wait_until = None;
                    mutations.extend(own.hold_for_now(account, batch, index));
                    woken.retain(|of| *of != account);
                    naming.all(account, all());
                    continue;
                }
                Err(error) => {
                    // Causal order was kept, so that something was lost, here or there. The state is half changed: it is read again at the next start.
                    entry.phase = Phase::Absent;
                    mutations.extend(own.hold(account, batch, index));
                    naming.all(account, all());
                    let (number, origin) = (batch.first, batch.origin.get());
                    stalled.push((account, format!("batch {number} of {origin:016x}: {error}")));
                    continue;
                }
            };
            naming.applied(account, brought, replica, &rows);
            let unnamed = unnamed_by(replica, released);
            rows.extend(own.names_no_more(account, unnamed.iter().copied()));
            missed.extend(unnamed);
            mutations.extend(rows);
            sent.extend(put.into_iter().map(|(id, content)| (account, id, content)));
            shown.push((account, take_visible(replica, account)));
            let measured = entry
                .measured
                .again(replica, &mut self.memory, self.quotas.of(account));
            self.out.extend(measured);
            entry.newest = Some(ticket);
            entry.wait_until = effects.wait_until;
            self.waits
                .extend(effects.wait_until.map(|at| (at, account)));
            if !entry.watchers.is_empty() {
                own.counters.push_back((ticket, account, replica.counter()));
            }
            late.push((account, effects.late, replica.hidden() > 0));
            let notifier = Notifier {
                sessions: &mut self.sessions,
                out: &mut self.out,
            };
            notifier.changed(account, &mut entry.watchers, &effects, risen);
            self.looked.extend(risen.map(|_| account));
        }
        for (blob, accounts) in naming.0 {
            self.lacked.insert((blob, partition));
            mutations.extend(own.lack(blob, &accounts, ticket));
            self.out.push_back(Output::Peer(PeerOutput::Coming(blob)));
        }
        // A great batch and the rows that it changed may be two commits: after a crash in between it is in the log, and not applied.
        let bytes: usize = mutations.iter().map(Mutation::bytes).sum();
        let mut foreign = foreign;
        if applies && foreign.is_some_and(|of| of.bytes.len() + bytes > BATCH_BYTES_MAX) {
            let commit = own.log.foreign(foreign.take(), false);
            own.gate.submitted(earlier);
            self.commits.insert(earlier, partition);
            self.out.push_back(Output::Commit(earlier, commit));
        }
        let mut commit = own.log.foreign(foreign, applies);
        commit.room = room;
        commit.mutations.extend(mutations);
        let rows = shown.iter().flat_map(|(_, rows)| rows);
        let bytes: usize = rows.map(Mutation::bytes).sum();
        if commit.bytes() + bytes <= BATCH_BYTES_MAX {
            let rows = shown.iter_mut().flat_map(|(_, rows)| rows.drain(..));
            commit.mutations.extend(rows);
        }
        own.gate.submitted(ticket);
        own.shipping.committing(ticket, OnDurable::Done(asked));
        self.commits.insert(ticket, partition);
        self.out.push_back(Output::Commit(ticket, commit));
        for (account, rows) in shown {
            self.write_rows(account, Room::Ordinary, rows.into_iter().map(Some));
        }
        for (account, cause) in stalled {
            self.stall(account, &cause);
        }
        self.missed_no_more(partition, missed);
        // Before anything is told that was not there a moment ago: what others were heard of now is below it.
        self.hear(now, partition);
        for (account, late, hidden) in late {
            if late {
                self.claim_late(now, account);
            }
            if hidden {
                self.collect_soon(now, account);
            }
        }
        for account in woken {
            self.woken(now, account);
        }
        for (account, message, content) in sent {
            self.sent_elsewhere(now, account, message, content);
        }
    }
}

impl Read {
    pub(super) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// What is asked again, if it is of this partition and has failed.
    pub(super) fn again(&mut self, partition: PartitionId, ticket: Ticket) -> Option<Output> {
        let again = self.partition == partition && std::mem::take(&mut self.failed);
        again.then(|| self.output(ticket))
    }

    fn output(&self, ticket: Ticket) -> Output {
        Output::Peer(PeerOutput::ReadLog {
            ticket,
            partition: self.partition,
            origin: self.origin,
            from: self.from,
            bytes_max: self.bytes_max,
        })
    }
}

/// The operations, if they claim UIDs of their maker's slot alone. Whose slot another one has now, or nobody knows, may claim any.
pub(super) fn of_slot(ops: Vec<Op>, slot: Option<u8>) -> Result<Vec<Op>, String> {
    match slot {
        Some(slot) if !ops.iter().all(|op| op.claims_only(slot)) => Err(format!(
            "an operation claims UIDs of another slot than {slot}, its maker's"
        )),
        _ => Ok(ops),
    }
}

/// The operations of a batch on one account.
struct Section {
    account: AccountId,
    /// Of the first of them, in the batch.
    index: u32,
    /// Or why they cannot be read.
    ops: Result<Vec<Op>, String>,
}

impl Section {
    fn decode((index, section): (u32, &whimbrel_crdt::Section)) -> Self {
        let ops = Op::decode_all(&section.ops).map_err(|error| error.to_string());
        let all = |ops: Vec<Op>| match ops.len() == section.count as usize {
            true => Ok(ops),
            false => Err("a section has not as many operations as it says".into()),
        };
        Section {
            account: AccountId(section.subject),
            index,
            ops: ops.and_then(all),
        }
    }
}
