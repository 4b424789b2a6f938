//! Who asks for an account or a partition that is not in memory: it is asked of the store, and what asks waits or is refused. And how both go from memory
//! again: after a failed commit, when they cannot be read, and when they are no more.

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, Replica};

use super::{Load, Mail, Partition, Phase, keys, opening::Opening, released::Released};
use crate::{
    api::{Failure, Reply},
    log,
    machine::{Input, Note, Now, Output},
    peers::{PeerOutput, READ_AGAIN_MICROS},
};

impl Mail {
    /// It will not be in memory: it stalls, or there is no such account any more.
    pub(super) fn is_not_looked_at(&mut self, account: AccountId) {
        if let Some(own) = self.partitions.running(keys::partition_of(account)) {
            own.late.remove(&account);
        }
        for blob in self.bodies.take_arrived(account).into_keys() {
            // It is said again that it is here, and others may name it.
            self.out.push(Output::Peer(PeerOutput::Request(blob)));
        }
    }

    /// Whether the account can be used now; else `input` waits for it, or is refused.
    pub(super) fn ready(&mut self, account: AccountId, input: Input) -> Result<Input, ()> {
        let partition = keys::partition_of(account);
        if matches!(self.partitions.get(&partition), Some(Partition::Running(own)) if own.failed) {
            self.refuse(input, Failure::Storage);
            return Err(());
        }
        let holds = self.config.holds(self.config.origin, partition);
        if !holds || self.partitions.is_syncing(partition) {
            self.turn_away(account, input);
            return Err(());
        }
        if self.partitions.is_stalled(account) {
            self.refuse(input, Failure::Temporary);
            return Err(());
        }
        let waiting_calls_max = self.config.waiting_calls_max;
        let entry = self.accounts.used(account);
        match entry.phase {
            Phase::Running(_) => return Ok(input),
            Phase::Absent
            | Phase::Loading { .. }
            | Phase::Asking
            | Phase::Unopened
            | Phase::Removed
            | Phase::Joining(_)
            | Phase::Resuming(_)
            | Phase::Purging => {
                if entry.waiting.len() >= waiting_calls_max {
                    self.refuse(input, Failure::Temporary);
                } else {
                    entry.waiting.push_back(input);
                }
            }
        }
        self.load(account);
        Err(())
    }

    pub(super) fn load(&mut self, account: AccountId) {
        let Some(entry) = self.accounts.get(&account) else {
            return;
        };
        if !matches!(entry.phase, Phase::Absent) || entry.under_way(&self.out).is_some() {
            return;
        }
        let partition = entry.partition;
        match self.partitions.get(&partition) {
            // Until it is durable that a state was taken over.
            Some(Partition::Running(own)) if !own.states.may_load() || own.waits_with(account) => {}
            Some(Partition::Running(_)) => {
                self.accounts.used(account).phase = Phase::Loading {
                    rows: Vec::new(),
                    building: None,
                };
                let (load, range) = (Load::Rows(account), keys::loaded_range(account));
                self.reads.rows(&mut self.out, load, partition, range);
            }
            Some(Partition::Loading(_) | Partition::Released(_)) => {}
            None => self.open(partition),
        }
    }

    /// Reads where the partition stands. With peers the store is asked for the logs, too; alone the position record says enough.
    pub(super) fn open(&mut self, partition: PartitionId) {
        if self.partitions.get(&partition).is_some() {
            return;
        }
        if !self.config.has(self.config.origin, partition) {
            return self.open_left(partition);
        }
        let mut opening = Opening::default();
        let range = (log::OWN_ROWS.0.to_vec(), log::OWN_ROWS.1.to_vec());
        let load = Load::Position(partition);
        self.reads.rows(&mut self.out, load, partition, range);
        if self.config.is_alone() {
            opening.logs = Some(None);
        } else {
            self.reads.log_ends(&mut self.out, partition);
        }
        self.partitions
            .insert(partition, Partition::Loading(Box::new(opening)));
    }

    /// The account's rows cannot be read: it is not served, and the log says why. Nothing is overwritten.
    pub(super) fn broken(&mut self, account: AccountId, cause: &str) {
        self.stall(account, &format!("it cannot be loaded: {cause}"));
    }

    /// The news of an account may be on its way, and mail for it before them: that is not to be thrown away.
    pub(super) fn keep_back_mail(&mut self, account: AccountId) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let waiting = std::mem::take(&mut entry.waiting).into_iter();
        let (mail, rest): (Vec<Input>, _) =
            waiting.partition(|input| matches!(input, Input::Deliver { .. }));
        entry.waiting = rest.into();
        for input in mail {
            self.refuse(input, Failure::Temporary);
        }
    }

    /// There is no such account (any more).
    pub(super) fn gone(&mut self, account: AccountId) {
        self.drop_account(account, Failure::NoSuchAccount);
    }

    /// It could not be read, and is read again when what was written to it is on disk: that may have removed some of what was to be read.
    pub(super) fn unload(&mut self, account: AccountId) {
        let entry = self.accounts.get(&account);
        let newest = entry.and_then(|entry| entry.under_way(&self.out));
        self.drop_account(account, Failure::Temporary);
        if newest.is_some() {
            self.accounts.used(account).newest = newest;
        }
    }

    pub(super) fn drop_account(&mut self, account: AccountId, failure: Failure) {
        if failure == Failure::NoSuchAccount {
            self.is_not_looked_at(account);
        }
        let Some(mut entry) = self.accounts.remove(&account) else {
            return;
        };
        self.limits.forget(&mut entry.measured);
        if !entry.watchers.is_empty() {
            self.agenda.watched(account);
        }
        for session in entry.watchers {
            self.sessions.shut_down(&mut self.out, session);
        }
        for held in entry.held {
            self.out.push(held.refused(failure));
        }
        for input in entry.waiting {
            self.refuse(input, failure);
        }
    }

    pub(super) fn refuse(&mut self, input: Input, failure: Failure) {
        match input {
            Input::Call(request, _) => self
                .out
                .push(Output::Reply(request, Reply::Failed(failure))),
            // The account does not exist: nobody will ever take this delivery.
            Input::Deliver { ticket, .. } if failure == Failure::NoSuchAccount => {
                self.out.push(Output::Delivered(ticket))
            }
            Input::Deliver { ticket, .. } => self.out.push(Output::NotDelivered(ticket)),
            _ => {}
        }
    }

    /// A partition that this node is away from is looked at: perhaps not all is gone.
    pub(super) fn open_left(&mut self, partition: PartitionId) {
        let holder_state = self
            .config
            .holders
            .holder_state(self.config.origin, partition);
        let left = Released::new(partition, self.config.origin, holder_state.end);
        let left = Partition::Released(Box::new(left));
        self.partitions.insert(partition, left);
        self.look_at_released(partition);
    }

    pub(super) fn look_at_released(&mut self, partition: PartitionId) {
        if let Some(left) = self.partitions.released(partition) {
            left.look();
            let range = (log::OWN_ROWS.0.to_vec(), log::OWN_ROWS.1.to_vec());
            let load = Load::Position(partition);
            self.reads.rows(&mut self.out, load, partition, range);
            self.reads.log_ends(&mut self.out, partition);
        }
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

    /// The account cannot go on: it is not served, and a person has to know. Its deliveries stay in the queue.
    pub(super) fn stall(&mut self, account: AccountId, cause: &str) {
        if let Some(Partition::Running(own)) = self.partitions.get_mut(&keys::partition_of(account))
        {
            own.stalled.entry(account).or_default().tried = true;
        }
        self.is_not_looked_at(account);
        self.out.push(Output::Log(Note::Warning(format!(
            "account {account} is stalled until the next start: {cause}"
        ))));
        self.drop_account(account, Failure::Temporary);
    }

    /// The rows of a stalled account were read: what is held is applied, in its order.
    pub(super) fn resume(&mut self, account: AccountId, replica: Replica) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        entry.phase = Phase::Resuming(Box::new(replica));
        let partition = entry.partition;
        let (load, range) = (Load::Held(account), keys::held_range(account));
        self.reads.rows(&mut self.out, load, partition, range);
    }

    /// Refuses what would make an operation or tell a client something. What is not asked again waits.
    pub(super) fn turn_away(&mut self, account: AccountId, input: Input) {
        match input {
            // Those who hold the partition are told, too.
            Input::LeastUidValidity(..)
                if !self
                    .config
                    .holds(self.config.origin, keys::partition_of(account)) => {}
            Input::LeastUidValidity(..) => {
                let waiting_max = self.config.waiting_calls_max;
                let waiting = &mut self.accounts.used(account).waiting;
                if waiting.len() < waiting_max {
                    waiting.push_back(input);
                }
            }
            Input::Deliver { ticket, .. } => self.out.push(Output::NotHere(ticket)),
            input => self.refuse(input, Failure::Temporary),
        }
    }

    /// Forgets a partition: what was asked for it is of no use.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        if let Some(Partition::Running(own)) = self.partitions.remove(&partition) {
            let given = own.states.end().into_iter().map(PeerOutput::Release);
            self.out.extend(given.map(Output::Peer));
        }
        self.bodies.forget(partition);
        self.agenda.forget(partition);
        self.deliveries.forget(partition);
        self.reads.forget(partition);
    }

    /// After a failed commit: forgets the partition and its accounts; whoever comes next has them read again. Sessions keep watching.
    pub(super) fn reset(&mut self, now: Now, partition: PartitionId) {
        let (late, failed) = match self.partitions.get_mut(&partition) {
            Some(Partition::Running(own)) => (std::mem::take(&mut own.late), own.first_failed),
            _ => Default::default(),
        };
        if self.config.peers.is_empty() {
            self.forget(partition);
        } else {
            self.open_anew(partition);
        }
        for account in self.accounts.find(partition, |_| true) {
            let Some(entry) = self.accounts.get_mut(&account) else {
                continue;
            };
            self.limits.forget(&mut entry.measured);
            entry.newest = None;
            entry.wait_until = None;
            let failed = failed.unwrap_or_default();
            for held in entry.held.extract_if(.., |held| !held.outlives(failed)) {
                self.out.push(held.refused(Failure::Storage));
            }
            if !entry.held.is_empty() {
                self.agenda.answer(account);
            }
            let purging = matches!(entry.phase, Phase::Purging);
            entry.phase = Phase::Absent;
            if purging {
                self.purge_later(now, account);
            } else if !entry.waiting.is_empty() || !entry.held.is_empty() {
                self.load(account);
            } else if entry.watchers.is_empty() {
                self.accounts.remove(&account);
            }
        }
        if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
            opening.wait_until = Some(now.mono_micros + READ_AGAIN_MICROS);
            opening.late = late;
        }
    }
}
