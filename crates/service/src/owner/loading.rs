//! How partitions and accounts come into memory, and go when they cannot be read or are no more.

use whimbrel_crdt::{Dot, PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, At, MailboxName, Op, Peers, Replica, SpecialUse};
use whimbrel_storage::Room;

use super::{
    Partition, PartitionOwner, Phase, keys, opening::Opening, rows::push_row, store_reads::Load,
};
use crate::{
    api::{Event, Failure, Reply},
    log::{self},
    machine::{AccountStatus, Input, Now, Output},
};

/// What every account is born with (RFC 6154), besides INBOX.
const DEFAULT_FOLDERS: [(&str, SpecialUse); 5] = [
    ("Drafts", SpecialUse::Drafts),
    ("Sent", SpecialUse::Sent),
    ("Archive", SpecialUse::Archive),
    ("Junk", SpecialUse::Junk),
    ("Trash", SpecialUse::Trash),
];

impl PartitionOwner {
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

    /// The account was read, and nothing is to be joined to it (any more). `None`: nothing is stored.
    pub(super) fn loaded(
        &mut self,
        now: Now,
        account: AccountId,
        mut replica: Option<Box<Replica>>,
    ) {
        let at = self.at(now, account);
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
            return;
        };
        let stalled = own.stalled.contains_key(&account);
        if let Some(replica) = &mut replica {
            replica.lack_all(&own.missing_blobs);
            own.missing_blobs
                .hold_back(account, replica.missing_blobs());
            if !self.config.peers.is_empty() {
                // What was claimed before it had peers: whoever has our next operation knows it.
                let shown = own.announced.all_visible(account.0);
                replica.note_claims(None, own.log.origin(), own.log.next(), &shown);
            }
        }
        match replica {
            Some(mut replica) if stalled => {
                replica.lead(&at, &self.config.renewal(), None);
                self.resume(account, *replica);
            }
            Some(replica) => self.run(now, account, *replica, Vec::new()),
            None if stalled => {
                let mut replica = Replica::new(account, self.config.slot);
                own.begin(&mut replica, &self.config.renewal());
                self.resume(account, replica);
            }
            None => {
                entry.phase = Phase::Asking;
                self.out.push(Output::AskBirth(account));
            }
        }
    }

    pub(super) fn born(&mut self, now: Now, account: AccountId, account_status: AccountStatus) {
        if self.born_joining(now, account, account_status) {
            return;
        }
        match self.accounts.get(&account) {
            Some(entry) if matches!(entry.phase, Phase::Asking) => {}
            _ => return,
        }
        if self.partitions.is_next(account) {
            // The batch opens it, here as where it was made; whether it is served the directory says at each login. One that was removed must not come back.
            return self.unopened(account, account_status != AccountStatus::Removed);
        }
        let birth = match account_status {
            AccountStatus::Living(birth) => birth,
            AccountStatus::Removed => return self.gone(account),
            AccountStatus::Unknown => {
                self.keep_back_mail(account);
                return self.gone(account);
            }
        };
        if self.partitions.is_syncing(keys::partition_of(account)) {
            // Nobody but a batch opens it, and that one was done away with meanwhile.
            return self.drop_account(account, Failure::Temporary);
        }
        let mut replica = Replica::new(account, self.config.slot);
        let Some(Partition::Running(own)) = self.partitions.get(&keys::partition_of(account))
        else {
            return;
        };
        own.begin(&mut replica, &self.config.renewal());
        // These are valid names: a test opens an account.
        let folders: Vec<_> = DEFAULT_FOLDERS
            .iter()
            .filter_map(|(name, special_use)| {
                Some((MailboxName::new(name).ok()?, Some(*special_use)))
            })
            .collect();
        let mut ops = replica
            .plan_open(birth.created, birth.uid_validity, &folders)
            .ops;
        // Many clients show nothing but what is subscribed, and would not find the copies in Sent. A node that opens the account before it has heard of
        // the others subscribes again what a user of theirs has unsubscribed meanwhile.
        let inbox = (MailboxName::inbox(), None);
        for (name, _) in std::iter::once(&inbox).chain(&folders) {
            let plan = replica.plan_subscribe(name);
            ops.extend(plan.map(|plan| plan.ops).unwrap_or_default());
        }
        let told = birth.risen.max(birth.uid_validity).max(birth.created);
        if let Some(least) = own.log.least_opened(told) {
            // What was told of it is lost: no UID can be vouched for (docs/design.md#rule-7).
            let at = self.at(now, account);
            ops.extend(replica.plan_epoch(&at, least).ops);
        } else if birth.risen > birth.uid_validity.max(birth.created) {
            // Whoever has raised it is in an epoch of which the operation has not come. Under one UIDVALIDITY there is one epoch (`proofs/spec/Epochs.v`).
            ops.push(Op::Epoch {
                uidvalidity: birth.risen,
            });
        }
        self.run(now, account, replica, ops);
    }

    /// The account is in memory: makes the operations due, then takes up what waits.
    pub(super) fn run(
        &mut self,
        now: Now,
        account: AccountId,
        mut replica: Replica,
        mut ops: Vec<Op>,
    ) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        // What waited for other replicas when it was stored has waited long enough: accounts that wait are not evicted.
        replica.release(own.log.hlc().last(), &Peers::none());
        let at = At {
            now_micros: self.stamps.stamp(now).wall_micros,
            next: Dot::new(own.log.origin(), own.log.next()),
        };
        let renewal = self.config.renewal();
        let mut first = Vec::new();
        if replica.needs_renewal(&renewal) {
            // An older copy of the disk was put back. What is late is claimed again after this, in the same call.
            let plan = replica.plan_renewal(&at, &renewal);
            replica.renew(
                &renewal,
                plan.outcome,
                own.log.hlc().last().max(at.now_micros),
            );
            ops = plan.ops;
            for (row, value) in replica.take_first_rows(plan.outcome) {
                push_row(&mut first, account, &row, value);
            }
        } else if ops.is_empty() && (!own.is_syncing() || broken("syncing-claims")) {
            // A syncing one makes operations when it has grown (`claim_what_is_known`).
            ops = match own.log.least_found(replica.uidvalidity()) {
                Some(least) => replica.plan_epoch(&at, least).ops,
                // A crash may have come between a RENAME and the claims that follow from it.
                None => {
                    let peers = own.peers(now, account, &self.config.peers);
                    replica.plan_late(&at, &peers).ops
                }
            };
            // Alone, this node's spelling is the only one.
            if ops.is_empty() && !self.config.peers.is_empty() {
                ops = replica.plan_spellings().ops;
            }
        }
        if replica.epoch() > 0 {
            // The directory may have missed it.
            self.out
                .push(Output::UidValidity(account, replica.uidvalidity()));
        }
        let is_syncing = own.is_syncing();
        self.counted.accounts_loads += 1;
        let spells = replica.spells_as_heard();
        let hidden = replica.hidden() > 0;
        let counter = replica.counter();
        entry.phase = Phase::Running(Box::new(replica));
        let waiting = std::mem::take(&mut entry.waiting);
        if !entry.watchers.is_empty() {
            // They have stayed through a failed commit, and what waited then is shown now.
            self.agenda.watched(account);
            let told = entry.watchers.iter();
            let told = told.map(|session| Output::Notify(*session, Event::Changed));
            self.out.extend(told);
            // What was read may be newer than what was told of it.
            let partition = entry.partition;
            if let Some(own) = self.partitions.running(partition)
                && !broken("read-again-counter-not-told")
            {
                own.rose(account, counter);
            }
        }
        if hidden {
            // Removed before the last stop, and not yet collected.
            self.collect_soon(now, account);
        }
        if spells {
            self.spell_soon(now, account);
        }
        self.write_rows(account, Room::Ordinary, first.into_iter().map(Some));
        self.write(now, account, ops, &[]);
        if is_syncing {
            self.claim_late(now, account);
        }
        self.is_looked_at(now, account);
        self.agenda.handle_again(waiting);
    }

    /// The account's rows cannot be read: it is not served, and the log says why. Nothing is overwritten.
    pub(super) fn broken(&mut self, account: AccountId, cause: &str) {
        self.stall(account, &format!("it cannot be loaded: {cause}"));
    }

    /// There is no such account (any more).
    /// The news of an account may be on its way, and mail for it before them: that is not to be thrown away.
    fn keep_back_mail(&mut self, account: AccountId) {
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

    fn gone(&mut self, account: AccountId) {
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
}
