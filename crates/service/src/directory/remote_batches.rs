//! What other nodes changed in the directory, and what they are sent of it.
//!
//! One partition, whole in memory, so a batch waits for nothing: what the machine wants stored or applied is forwarded to the store at once, each
//! batch as one commit with the rows that it changed and the position. From that moment on logins and lookups see it: a password that was changed
//! elsewhere, or an account that was removed, ends with the batch that says so, remembered logins included, since each is held against the directory
//! as it is. Its sessions end, and the mail of a removed account goes, when that is durable.

use std::{collections::BTreeSet, ops::ControlFlow};

use whimbrel_crdt::{Batch, Incarnation, Stamp};
use whimbrel_directory::{Address, Op, OwnQuota, Resolution, state::Row};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::partition::{Entry, Membership};
use whimbrel_storage::{Mutation, StoreError};

use super::{DirectoryOwner, PartitionId, Phase, Running, SUBJECT};
use crate::{
    admin::AdminReply,
    api::{Ended, Failure, Reply},
    log,
    machine::{Input, Note, Now, Output, Ticket},
    peers::{
        BatchWork, Frame, OnDurable, PeerInput, PeerOutput, READ_AGAIN_MICROS, Shipping, Wanted,
        Work, keep_early,
    },
};

impl DirectoryOwner {
    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(members) => {
                let members: BTreeSet<Incarnation> = members.into_keys().collect();
                self.config.peers.clone_from(&members);
                self.config.peers.remove(&self.config.origin);
                if let Phase::Running(running) = &mut self.state {
                    running.shipping.members(now, Membership::of(members));
                }
                self.share_out_again();
            }
            PeerInput::Closed(closed) => {
                if let Phase::Running(running) = &mut self.state {
                    running.shipping.closed(now, &closed);
                }
                self.closed = closed;
            }
            PeerInput::Holders(holders) => {
                self.config.holders = holders;
                self.share_out_again();
            }
            PeerInput::GiveUp(logs) => self.give_up_logs(now, &logs),
            PeerInput::Linked(peer, _) if self.config.peers.contains(&peer) => {
                self.links.insert(peer);
                match &mut self.state {
                    Phase::Loading(loading) => loading.frames.retain(|(from, _)| *from != peer),
                    Phase::Running(running) => running.shipping.linked(now, peer),
                }
            }
            PeerInput::Unlinked(peer) => {
                self.links.remove(&peer);
                match &mut self.state {
                    Phase::Loading(loading) => loading.frames.retain(|(from, _)| *from != peer),
                    Phase::Running(running) => running.shipping.unlinked(now, peer),
                }
            }
            PeerInput::Frame(peer, frame) if self.links.contains(&peer) => match &mut self.state {
                Phase::Loading(loading) => keep_early(&mut loading.frames, peer, frame),
                Phase::Running(running) => {
                    running.shipping.received(now, &running.log, peer, frame);
                }
            },
            PeerInput::Ready(PartitionId::DIRECTORY, to) => {
                if let Phase::Running(running) = &mut self.state
                    && let Some(frame) = running.shipping.transmit(now, to)
                {
                    let send = PeerOutput::Send(to.peer, frame);
                    self.out.push_back(Output::Peer(send));
                }
            }
            PeerInput::Logs(ticket, logs) => {
                if let Phase::Loading(loading) = &mut self.state
                    && loading.ticket == ticket
                {
                    loading.logs = Some(Some(logs.into_iter().collect()));
                }
                self.loaded(now);
            }
            PeerInput::Log(ticket, entries) => self.log_read(now, ticket, entries),
            PeerInput::Clock(clock) => self.stamps.set_clock(clock),
            PeerInput::Former(_)
            | PeerInput::Linked(..)
            | PeerInput::RoundTrip(..)
            | PeerInput::Frame(..)
            | PeerInput::Ready(..)
            | PeerInput::Open(_)
            | PeerInput::Body(..)
            | PeerInput::NoBody(_)
            | PeerInput::WantAgain(_)
            | PeerInput::Missed(..) => {}
            PeerInput::Snapshot(ticket, snapshot) => {
                let shipping = shipping_of(&mut self.state);
                let released = self.giving.fixed(now, shipping, ticket, snapshot);
                self.out.extend(released);
            }
            PeerInput::Rows(ticket, page) => {
                let shipping = shipping_of(&mut self.state);
                self.giving.rows(now, shipping, ticket, page, |_, _| true);
            }
        }
        self.ship(now);
    }

    /// The directory was read: streams that are there, and what came on them meanwhile.
    pub(super) fn link_loaded(&mut self, now: Now, frames: Vec<(Incarnation, Frame)>, anew: bool) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        running.shipping.closed(now, &self.closed);
        for peer in &self.links {
            running.shipping.linked(now, *peer);
        }
        if anew {
            running.shipping.begin_anew(now, self.links.iter().copied());
        }
        for (peer, frame) in frames {
            running.shipping.received(now, &running.log, peer, frame);
        }
        self.ship(now);
    }

    /// Something failed, and with it all may be lost that came since: it is read again, and begins anew on the streams that are there.
    pub(super) fn load_anew(&mut self) {
        if let Phase::Running(running) = &self.state {
            let unlink = |peer| Output::Peer(PeerOutput::Unlink(peer));
            self.out.extend(running.shipping.older_peers().map(unlink));
        }
        self.load();
        if let Phase::Loading(loading) = &mut self.state {
            loading.anew = true;
        }
    }

    /// What follows from the rows that were read. Where a commit was refused it waits: what is refused again would lead to reading all again, without end.
    pub(super) fn begin(&mut self) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        if running.failed || running.shipping.is_paused() || !std::mem::take(&mut running.begins) {
            return;
        }
        let gone = std::mem::take(&mut running.gone);
        self.tell_quotas();
        self.raise_all();
        self.hand_out_pages(gone);
    }

    /// Tells owners which accounts have quotas of their own.
    fn tell_quotas(&mut self) {
        let Phase::Running(running) = &self.state else {
            return;
        };
        self.out.extend(running.quotas());
    }

    /// Carries out what the partition's machine wants.
    pub(super) fn ship(&mut self, now: Now) {
        loop {
            let ticket = self.ticket();
            let Phase::Running(running) = &mut self.state else {
                return;
            };
            if running.failed {
                return;
            }
            let Some(want) = running.shipping.poll() else {
                break;
            };
            let log = &mut running.log;
            match want.carry_out(PartitionId::DIRECTORY, ticket, log, &mut self.reads) {
                ControlFlow::Break(told) => self.out.extend(told),
                ControlFlow::Continue(wanted) => self.carry_out(ticket, wanted),
            }
        }
        while self.carry_on() {}
        self.share_out_late(now);
        if let Phase::Running(running) = &mut self.state {
            running.shipping.reckon(now);
        }
    }

    fn carry_out(&mut self, ticket: Ticket, wanted: Wanted) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        self.out.push_back(match wanted {
            Wanted::Grown => {
                running.growing = Some(ticket);
                let mut commit = running.log.commit();
                commit.mutations.push(log::grown(running.log.origin()));
                running.gate.submitted(ticket);
                Output::Commit(ticket, commit)
            }
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

    fn log_read(&mut self, now: Now, ticket: Ticket, entries: Vec<Entry>) {
        if let (Some(read), Phase::Running(running)) = (self.reads.came(ticket), &mut self.state) {
            running.shipping.read(now, read.asked, read.origin, entries);
        }
    }

    /// Whether it was a read that is tried again.
    pub(super) fn read_failed(&mut self, now: Now, ticket: Ticket, cause: &StoreError) -> bool {
        if self.giving.lost(now, shipping_of(&mut self.state), ticket) {
            self.ship(now);
            return true;
        }
        match (self.reads.failed(ticket), &mut self.state) {
            (Some(_), _) => {}
            (None, Phase::Loading(loading)) if loading.ticket == ticket => {
                // At a start somebody is there to be told.
                if !loading.anew || !cause.is_temporary() {
                    return false;
                }
                loading.failed = true;
                // Whoever waits for it would wait for long.
                for input in std::mem::take(&mut loading.waiting) {
                    self.put_off(input);
                }
            }
            // Of before everything was read again.
            (None, _) => return true,
        }
        self.retry_at = Some(now.mono_micros + READ_AGAIN_MICROS);
        self.out.push_back(Output::Log(Note::Warning(format!(
            "reading the directory failed: {cause}"
        ))));
        true
    }

    /// It waits until all is read. If the store cannot read now, whoever would wait for an answer is to ask again; a password that is being verified waits.
    pub(super) fn put_off(&mut self, input: Input) {
        let Phase::Loading(loading) = &mut self.state else {
            unreachable!("only then");
        };
        match input {
            Input::Call(request, _) if loading.failed => {
                let reply = Reply::Failed(Failure::Temporary);
                self.out.push_back(Output::Reply(request, reply));
            }
            Input::Admin(request, _) if loading.failed => {
                let why = "the directory cannot be read: try again later".to_owned();
                let reply = AdminReply::Refused(why);
                self.out.push_back(Output::AdminReply(request, reply));
            }
            input => loading.waiting.push(input),
        }
    }

    /// Time has passed.
    pub(super) fn time(&mut self, now: Now) {
        if self.retry_at.is_some_and(|at| at <= now.mono_micros) {
            self.retry_at = None;
            self.out.extend(self.reads.again(PartitionId::DIRECTORY));
            if matches!(&self.state, Phase::Loading(loading) if loading.failed) {
                self.load();
            }
            self.loaded(now);
        }
        if let Phase::Running(running) = &mut self.state
            && !running.failed
            && running
                .shipping
                .deadline()
                .is_some_and(|at| at <= now.mono_micros)
        {
            running.shipping.time(now);
        }
        self.begin();
        self.ship(now);
    }

    /// Hands the next piece of work to the store, if there is one.
    fn carry_on(&mut self) -> bool {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.state else {
            return false;
        };
        if running.stalled {
            return false;
        }
        let Some(work) = running.shipping.next_work() else {
            return false;
        };
        let ops = match work.applies().map(decode).transpose() {
            Ok(ops) => ops,
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
        let work = match work {
            Work::State(work) => {
                self.work_on_state(ticket, work);
                return true;
            }
            work => work,
        };
        let Some(BatchWork {
            asked,
            batch,
            foreign,
        }) = work.of_batch()
        else {
            return false;
        };
        let mut mutations = Vec::new();
        if let Some(ops) = &ops {
            running.log.take(batch);
            let follows = running.apply(batch, ops, &mut mutations);
            running.share_out_after(&self.config, batch.origin, ops, &mut self.out);
            if !follows.is_empty() {
                running.follows.insert(ticket, follows);
            }
            self.out.extend(running.report(ops));
        }
        let mut commit = running.log.foreign(foreign, ops.is_some());
        commit.mutations.extend(mutations);
        running.gate.submitted(ticket);
        running.shipping.committing(ticket, OnDurable::Done(asked));
        self.out.push_back(Output::Commit(ticket, commit));
        true
    }
}

impl Running {
    /// Applies the operations of a batch, our own or another node's. Says what follows when they are durable.
    pub(super) fn apply(
        &mut self,
        batch: &Batch,
        ops: &[Op],
        mutations: &mut Vec<Mutation>,
    ) -> Vec<Output> {
        let mut follows = Vec::new();
        for (index, op) in (0..).zip(ops) {
            let before = self.password_of(op);
            for row in self.directory.apply(&batch.context(index), op) {
                let key = row.key().into();
                mutations.push(match self.directory.row(&row) {
                    Some(value) => Mutation::Put {
                        key,
                        value: value.into(),
                    },
                    None => Mutation::Delete { key },
                });
                if let (Row::Account(account), Op::RemoveAccount { .. }) = (row, op)
                    && self.directory.account(&account).is_none()
                {
                    follows.extend(removed(AccountId(account)));
                }
            }
            if let Op::SetQuota { account, .. } = op
                && let Some(entry) = self.directory.account(account)
            {
                follows.push(Output::Quota(AccountId(*account), entry.quota()));
            }
            // A change that came after a later one changes nothing.
            if let Op::SetCredential {
                account,
                keeps_sessions,
                ..
            } = op
                && *keeps_sessions != Some(true)
                && self.password_of(op) != before
            {
                let changed = Ended::PasswordChanged;
                follows.push(Output::EndSessions(AccountId(*account), changed));
            }
        }
        follows
    }

    /// What owners are told of accounts with quotas of their own.
    pub(super) fn quotas(&self) -> impl Iterator<Item = Output> {
        let all = self.directory.accounts();
        let own = all.filter(|(_, entry, _)| entry.quota.is_some());
        own.map(|(account, entry, _)| Output::Quota(AccountId(account), entry.quota()))
    }

    /// When the password was set that the operation may change.
    fn password_of(&self, op: &Op) -> Option<Stamp> {
        let Op::SetCredential { account, .. } = op else {
            return None;
        };
        let account = self.directory.account(account)?;
        Some(account.credential.stamp)
    }

    /// What is reported: what nobody would have been allowed who had seen both sides.
    fn report(&self, ops: &[Op]) -> Vec<Output> {
        let told = ops.iter().filter_map(|op| match op {
            Op::AddAccount { address, .. } => (self.directory.accounts_of(address).count() > 1).then(|| {
                format!("two nodes made an account {address} at once: the earlier one keeps the address, the other is set aside (`whimbrel account list`)")
            }),
            Op::AddAlias { from, to } => {
                let address = Address::parse_alias(from).ok()?;
                let found = self.directory.resolve(address.local(), address.domain().as_str());
                let nowhere = !matches!(found, Resolution::Local(_)) && !address.local().is_empty();
                nowhere.then(|| {
                    format!("the alias {from} -> {to} was added elsewhere and leads to nobody here: what it leads to was changed meanwhile, or leads back to it")
                })
            }
            _ => None,
        });
        told.map(|text| Output::Log(Note::Warning(text))).collect()
    }
}

/// What follows when an account is gone: its sessions are told why before its mail goes.
pub(super) fn removed(account: AccountId) -> [Output; 3] {
    let sessions = Output::EndSessions(account, Ended::AccountRemoved);
    let no_quota = Output::Quota(account, OwnQuota::default());
    [sessions, Output::Purge(account), no_quota]
}

fn shipping_of(state: &mut Phase) -> Option<&mut Shipping> {
    match state {
        Phase::Running(running) => Some(&mut running.shipping),
        Phase::Loading(_) => None,
    }
}

/// The operations of a batch; else what the log is told.
fn decode(batch: &Batch) -> Result<Vec<Op>, String> {
    let failed = |cause: &str| {
        format!(
            "directory: batch {} of {:016x} is kept and cannot be applied, nor what comes after it: {cause}",
            batch.first,
            batch.origin.get()
        )
    };
    let mut ops = Vec::new();
    for section in &batch.sections {
        if section.subject != SUBJECT {
            return Err(failed("it has a section that is not the directory's"));
        }
        let decoded = whimbrel_directory::op::decode(&section.ops)
            .map_err(|error| failed(&error.to_string()))?;
        if decoded.len() != section.count as usize {
            return Err(failed("a section has not as many operations as it says"));
        }
        ops.extend(decoded);
    }
    Ok(ops)
}
