//! How partitions and accounts come into memory, and go when they cannot be read or are no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Dot, Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, At, MailboxName, Op, Peers, Replica, SpecialUse};
use whimbrel_storage::{Room, StoreError};

use super::{
    Account, Load, Own, Partition, PartitionOwner, Phase,
    collect::StableBefore,
    confirming::Confirming,
    failover::Reporting,
    keys,
    missing_blobs::{Lackings, MissingBlob},
    rows::push_row,
    snapshot::States,
    stalled_accounts::stalled_of_row,
    syncing::SyncState,
};
use crate::{
    api::{Event, Failure, Reply},
    gate::Gate,
    log::{self, Log},
    machine::{AccountStatus, Input, Machine, Note, Now, Output, Ticket},
    peers::{self, Frame, LogEnd, PeerOutput, Shipping},
};
use whimbrel_replication::{announced::Announced, partition::Resume, readers::Readers};

/// What every account is born with (RFC 6154), besides INBOX.
const DEFAULT_FOLDERS: [(&str, SpecialUse); 5] = [
    ("Drafts", SpecialUse::Drafts),
    ("Sent", SpecialUse::Sent),
    ("Archive", SpecialUse::Archive),
    ("Junk", SpecialUse::Junk),
    ("Trash", SpecialUse::Trash),
];

/// What is read when a partition is opened.
#[derive(Default)]
pub(super) struct Opening {
    /// The rows of the partition itself.
    rows: Vec<(Vec<u8>, Bytes)>,
    /// Whether these are all.
    read: bool,
    /// Where the logs stand; nothing is asked where there are no peers.
    pub(super) logs: Option<Option<BTreeMap<Incarnation, LogEnd>>>,
    /// What peers sent meanwhile.
    pub(super) frames: Vec<(Incarnation, Frame)>,
    /// It was open before, until something failed: on the streams that are there all is said again.
    pub(super) anew: bool,
    /// A commit was refused: it does nothing of itself before this time.
    pub(super) wait_until: Option<u64>,
    /// Accounts in which messages may be late.
    pub(super) late: BTreeSet<AccountId>,
}

impl PartitionOwner {
    /// Whether the account can be used now; else `input` waits for it, or is refused.
    pub(super) fn ready(&mut self, account: AccountId, input: Input) -> Result<Input, ()> {
        let partition = keys::partition_of(account);
        if matches!(self.partitions.get(&partition), Some(Partition::Running(own)) if own.failed) {
            self.refuse(input, Failure::Storage);
            return Err(());
        }
        let holds = self.config.holds(self.config.origin, partition);
        if !holds || self.is_syncing(partition) {
            self.turn_away(account, input);
            return Err(());
        }
        if self.is_stalled(account) {
            self.refuse(input, Failure::Temporary);
            return Err(());
        }
        let waiting_calls_max = self.config.waiting_calls_max;
        let entry = self.entry(account);
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

    /// What is known of the account, which is used now.
    pub(super) fn entry(&mut self, account: AccountId) -> &mut Account {
        self.next_use += 1;
        let last_use = self.next_use;
        let entry = self
            .accounts
            .entry(account)
            .or_insert_with(|| Account::new(keys::partition_of(account)));
        entry.last_use = last_use;
        entry
    }

    pub(super) fn load(&mut self, account: AccountId) {
        let Some(entry) = self.accounts.get(&account) else {
            return;
        };
        if !matches!(entry.phase, Phase::Absent) || self.under_way(entry).is_some() {
            return;
        }
        let partition = entry.partition;
        match self.partitions.get(&partition) {
            // Until it is durable that a state was taken over.
            Some(Partition::Running(own)) if !own.states.may_load() || own.waits_with(account) => {}
            Some(Partition::Running(_)) => {
                self.entry(account).phase = Phase::Loading {
                    rows: Vec::new(),
                    building: None,
                };
                let (from, to) = keys::loaded_range(account);
                self.request(Load::Rows(account), partition, from, to);
            }
            Some(Partition::Loading(_) | Partition::Released(_)) => {}
            None => self.open(partition),
        }
    }

    /// Reads where the partition stands. With peers the store is asked for the logs, too; alone the position record says enough.
    pub(super) fn open(&mut self, partition: PartitionId) {
        if self.partitions.contains_key(&partition) {
            return;
        }
        if !self.config.has(self.config.origin, partition) {
            return self.open_left(partition);
        }
        let mut opening = Opening::default();
        let (from, to) = (log::OWN_ROWS.0.to_vec(), log::OWN_ROWS.1.to_vec());
        self.request(Load::Position(partition), partition, from, to);
        if self.config.is_alone() {
            opening.logs = Some(None);
        } else {
            let ticket = self.ticket();
            self.loads.insert(ticket, Load::Logs(partition));
            let load = PeerOutput::LoadLogs { ticket, partition };
            self.out.push_back(Output::Peer(load));
        }
        self.partitions
            .insert(partition, Partition::Loading(Box::new(opening)));
    }

    pub(super) fn request(
        &mut self,
        load: Load,
        partition: PartitionId,
        from: Vec<u8>,
        to: Vec<u8>,
    ) {
        let ticket = self.ticket();
        self.loads.insert(ticket, load);
        self.out.push_back(Output::Load {
            ticket,
            partition,
            from,
            to,
        });
    }

    pub(super) fn loaded_page(
        &mut self,
        now: Now,
        ticket: Ticket,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        match self.loads.get(&ticket) {
            None => {}
            Some(Load::Position(partition)) => {
                let partition = *partition;
                if done {
                    self.loads.remove(&ticket);
                }
                if let Some(Partition::Released(_)) = self.partitions.get(&partition) {
                    return self.left_rows(partition, page, done);
                }
                if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
                    opening.rows.extend(page);
                    opening.read = done;
                }
                self.opened(now, partition);
            }
            // Answered otherwise.
            Some(Load::Logs(_)) => {}
            Some(Load::Rows(account)) => {
                let account = *account;
                if done {
                    self.loads.remove(&ticket);
                }
                self.rows_loaded(now, account, page, done);
            }
            Some(Load::Held(account)) => {
                let account = *account;
                if done {
                    self.loads.remove(&ticket);
                }
                self.held_page(now, account, page, done);
            }
            Some(Load::Purge(account)) => {
                let account = *account;
                if done {
                    self.loads.remove(&ticket);
                }
                self.purge_page(account, page, done);
            }
            Some(Load::Twin(_)) => {
                if let Some(Load::Twin(twin)) = self.loads.remove(&ticket) {
                    self.twin_loaded(now, *twin, &page);
                }
            }
        }
    }

    pub(super) fn load_failed(&mut self, now: Now, ticket: Ticket, cause: &StoreError) {
        let Some(load) = self.loads.remove(&ticket) else {
            if self.snapshots.contains_key(&ticket) {
                return self.fixed(now, ticket, None);
            }
            if self.page_failed(now, ticket, cause) {
                let text = format!("reading from the store failed: {cause}");
                return self.out.push_back(Output::Log(Note::Warning(text)));
            }
            return self.read_failed(now, ticket, &cause.to_string());
        };
        let accounts: Vec<AccountId> = match load {
            // Nothing else of its partition waits for that.
            Load::Rows(account) | Load::Held(account) if !cause.is_temporary() => {
                return self.broken(account, &cause.to_string());
            }
            Load::Rows(account) | Load::Held(account) | Load::Purge(account) => {
                self.wait_with_work(now, keys::partition_of(account));
                vec![account]
            }
            // Both copies stay.
            Load::Twin(_) => Vec::new(),
            Load::Position(partition) | Load::Logs(partition)
                if matches!(
                    self.partitions.get(&partition),
                    Some(Partition::Released(_))
                ) =>
            {
                self.left_failed(now, partition);
                Vec::new()
            }
            Load::Position(partition) | Load::Logs(partition) => {
                self.forget(partition);
                // Not at once again: new streams take their time, and open it.
                let unlink = |peer: &Incarnation| Output::Peer(PeerOutput::Unlink(*peer));
                self.out.extend(self.links.keys().map(unlink));
                self.accounts
                    .iter()
                    .filter(|(_, entry)| entry.partition == partition)
                    .map(|(id, _)| *id)
                    .collect()
            }
        };
        self.out.push_back(Output::Log(Note::Warning(format!(
            "reading from the store failed: {cause}"
        ))));
        for account in accounts {
            match self.accounts.get(&account).map(|entry| &entry.phase) {
                Some(Phase::Purging) => self.purge_later(now, account),
                _ => self.unload(account),
            }
        }
    }

    /// Where the partition stands is known, if all was read.
    pub(super) fn opened(&mut self, now: Now, partition: PartitionId) {
        let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) else {
            return;
        };
        let (true, Some(logs)) = (opening.read, &opening.logs) else {
            return;
        };
        let mut rows = opening.rows.iter();
        let position = rows.find(|(key, _)| key == log::POSITION_KEY);
        let mut rows = opening.rows.iter();
        let kept = rows.find(|(key, _)| key == log::ANNOUNCED_KEY);
        let rows = opening.rows.iter();
        let missing_blobs: Lackings = rows
            .filter_map(|(key, value)| {
                let missing_blobs = MissingBlob::read(log::accounts_of(value), now.mono_micros);
                Some((log::missing_blob_of_key(key)?, missing_blobs))
            })
            .collect();
        let rows = opening.rows.iter();
        let stalled = rows
            .filter_map(|(key, value)| stalled_of_row(key, value))
            .collect();
        let states = match States::of_rows(&opening.rows) {
            Ok(states) => states,
            Err(error) => {
                let text = format!("what partition {} takes: {error}", partition.0);
                return self.out.push_back(Output::Fatal(text));
            }
        };
        let origin = self.config.origin;
        // All that is left of an earlier life.
        let mut rows = opening.rows.iter();
        let away = rows.find(|(key, _)| key == log::AWAY_KEY);
        let mut known = logs.iter().flatten();
        let is_alone = opening.rows.len() == 1 && known.all(|(of, _)| *of == origin);
        let end = |of: Incarnation| logs.as_ref().and_then(|logs| logs.get(&of));
        let last = |of| end(of).map_or(0, |end| end.last);
        let lacks = log::lacks_own_of_before(origin, &opening.rows, last);
        // An older copy of the disk was put back, with a partition that it had left under another incarnation; or had come back to, and nothing had
        // come yet of what that one wrote before.
        if away.is_some() && !is_alone || lacks {
            let (rows, logs) = (std::mem::take(&mut opening.rows), opening.logs.take());
            return self.drop_of_another(partition, rows, logs.flatten().unwrap_or_default());
        }
        let comes_back = away.is_some();
        let wait = opening.wait_until.filter(|at| *at > now.mono_micros);
        if let Some(at) = wait.filter(|_| comes_back) {
            // It begins with a commit.
            self.timers.insert((at, partition));
            return;
        }
        let mut log = match position.or(away) {
            None => Log::new(partition, origin),
            Some((_, record)) => match Log::load(partition, origin, record) {
                Ok(log) => log,
                Err(error) => return self.out.push_back(Output::Fatal(error.to_string())),
            },
        };
        let generation = self
            .config
            .holders
            .holder_state(origin, partition)
            .generation;
        let dropped = opening.rows.iter().any(|(key, _)| key == log::DROPPED_KEY);
        let syncing = self.config.syncing || generation > 0 || comes_back || dropped;
        let mut rows = opening.rows.iter();
        let grown = rows.find(|(key, _)| key == log::GROWN_KEY);
        let syncing = syncing && !grown.is_some_and(|(_, value)| log::has_grown(origin, value));
        let ends = logs.clone().unwrap_or_else(|| log.ends());
        let members = self.config.members_of(partition);
        let config = self.config.shipping;
        let mut shipping = match Shipping::resume(
            config,
            partition,
            origin,
            members.clone(),
            Resume {
                logs: ends,
                applied: log.applied().clone(),
                stable: log.collected(),
                syncing,
                ..Resume::default()
            },
        ) {
            Ok(shipping) => shipping,
            Err(error) => return self.out.push_back(Output::Fatal(error.to_string())),
        };
        let kept = kept.map(|(_, row)| &row[..]);
        let announced = match Announced::resume(partition, kept, log.applied()) {
            Ok(mut announced) => {
                let others = members.keys().filter(|member| **member != origin);
                for member in others {
                    let state = self.config.holders.holder_state(*member, partition);
                    announced.set_generation(*member, state.generation);
                }
                announced.former(&self.config.former.keys().copied().collect());
                announced
            }
            Err(error) => {
                let cause = format!("what others announced in {partition:?}: {error}");
                return self.out.push_back(Output::Fatal(cause));
            }
        };
        if let Some(held) = states.taking() {
            shipping.hold(now, held.clone());
        }
        let (frames, anew) = (std::mem::take(&mut opening.frames), opening.anew);
        let late = std::mem::take(&mut opening.late);
        let durable = shipping.durable(origin);
        let mut readers = Readers::new(
            peers::readers::Config::default(),
            partition,
            origin,
            durable,
        );
        for (other, number) in log.applied().iter() {
            readers.applied(other, number, &[]);
        }
        let lacked = missing_blobs.keys().map(|blob| (*blob, partition));
        self.lacked.extend(lacked);
        let back = comes_back.then(|| log.come_back());
        let own = Own {
            log,
            shipping,
            members,
            readers,
            announced,
            reporting: Reporting::default(),
            nobody_waits: false,
            counters: VecDeque::new(),
            deadline: None,
            missing_blobs,
            naming: BTreeMap::new(),
            leaving: None,
            parting: BTreeMap::new(),
            covering: BTreeMap::new(),
            generation,
            confirming: Confirming::new(partition, self.config.waits),
            gate: Gate::default(),
            retry_at: wait,
            looks_late: wait.is_some(),
            late,
            claiming: BTreeSet::new(),
            stalled,
            states,
            age: if syncing {
                SyncState::Syncing
            } else {
                SyncState::Grown
            },
            settled: StableBefore::default(),
            failed: false,
            first_failed: None,
        };
        let is_syncing = own.is_syncing();
        self.partitions
            .insert(partition, Partition::Running(Box::new(own)));
        self.timers.extend(wait.map(|at| (at, partition)));
        if let Some(commit) = back {
            let ticket = self.ticket();
            self.hand_out_for(partition, ticket, commit);
        }
        self.stand(now, partition);
        self.link_opened(now, partition, frames, anew);
        self.sweep_on(partition);
        self.joins.insert(partition);
        if is_syncing {
            // What came while it was not known that it is.
            self.take_up(now, partition);
        }
        let purging = self.accounts.iter().filter(|(_, entry)| {
            // Unless it waits after a failed commit.
            let waits = entry.collect_at.is_some();
            entry.partition == partition && matches!(entry.phase, Phase::Purging) && !waits
        });
        let purging: Vec<AccountId> = purging.map(|(account, _)| *account).collect();
        for account in purging {
            self.look_for_rows(account);
        }
        self.load_wanted(partition);
        if wait.is_none() {
            self.load_deferred_loads(partition);
        }
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
                self.out.push_back(Output::AskBirth(account));
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
        if self.is_next(keys::partition_of(account), account) {
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
        if self.is_syncing(keys::partition_of(account)) {
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
                .push_back(Output::UidValidity(account, replica.uidvalidity()));
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
            self.looked.insert(account);
            let told = entry.watchers.iter();
            let told = told.map(|session| Output::Notify(*session, Event::Changed));
            self.out.extend(told);
            // What was read may be newer than what was told of it.
            let partition = entry.partition;
            if let Some(own) = self.running(partition)
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
        for input in waiting {
            self.handle_again(now, input);
        }
    }

    /// What has waited. A delivery may have waited for so long that another node has made it, and its entry let go of the body: it is not made
    /// without. If it is to be made all the same the queue asks again.
    pub(super) fn handle_again(&mut self, now: Now, input: Input) {
        match input {
            Input::Deliver { ticket, entry, .. } if !self.open.contains(&entry.id.tag()) => {
                self.out.push_back(Output::NotDelivered(ticket));
            }
            input => self.handle(now, input),
        }
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
    fn unload(&mut self, account: AccountId) {
        let entry = self.accounts.get(&account);
        let newest = entry.and_then(|entry| self.under_way(entry));
        self.drop_account(account, Failure::Temporary);
        if newest.is_some() {
            self.entry(account).newest = newest;
        }
    }

    pub(super) fn drop_account(&mut self, account: AccountId, failure: Failure) {
        if failure == Failure::NoSuchAccount {
            self.is_not_looked_at(account);
        }
        let Some(mut entry) = self.accounts.remove(&account) else {
            return;
        };
        entry.measured.forget(&mut self.memory);
        if !entry.watchers.is_empty() {
            self.looked.insert(account);
        }
        for session in entry.watchers {
            self.sessions.remove(&session);
            self.out.push_back(Output::Notify(session, Event::Shutdown));
        }
        for held in entry.held {
            self.out.push_back(held.refused(failure));
        }
        for input in entry.waiting {
            self.refuse(input, failure);
        }
    }

    pub(super) fn refuse(&mut self, input: Input, failure: Failure) {
        match input {
            Input::Call(request, _) => self
                .out
                .push_back(Output::Reply(request, Reply::Failed(failure))),
            // The account does not exist: nobody will ever take this delivery.
            Input::Deliver { ticket, .. } if failure == Failure::NoSuchAccount => {
                self.out.push_back(Output::Delivered(ticket))
            }
            Input::Deliver { ticket, .. } => self.out.push_back(Output::NotDelivered(ticket)),
            _ => {}
        }
    }
}
