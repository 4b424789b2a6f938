//! The owner of some partitions: the mail of the accounts in them.
//!
//! One owner takes one input at a time and holds the loaded accounts of its partitions. A call finds its account in memory or has it
//! loaded; a write is planned by `mailbox`, sealed into a batch, applied by the same `apply` that foreign batches take, and forwarded out as one
//! commit with the rows it changed; the answer waits in the partition's gate.
//!
//! Invariants:
//! - Commits of a partition are forwarded out in the order of their numbers, those with batches of other nodes among them as they come.
//! - An answer leaves when the newest commit of its account that it saw is durable; UIDs and UIDNEXTs are announced in that commit.
//! - When a commit fails (full disk) all accounts of the partition are dropped and read again: memory is never ahead of the store.
//! - Accounts that no session watches are evicted, the longest unused first, when the budget is passed.
//!
//! Reading order: this file (phases, time), [`loading`] and [`building`], [`calls`] and [`looking`] (what a call does), [`writing`],
//! [`remote_batches`] (what other nodes did), [`split_commits`], [`reading`] (who else looks, and what waits for them), [`failover`] (clients that
//! come from another node), [`stalled_accounts`] (what cannot be done), [`snapshot`] and [`joining`] (rows in place of a log), [`syncing`] (a node
//! that is new), [`deliveries`] (deliveries that others must have), [`confirming`] (answers that wait for others), [`waiting`] (after a refused
//! commit), [`placement`] (who holds what), [`leaving`] and [`released`] (partitions that this node drops), [`collect`], [`sent_copies`], [`keys`],
//! [`rows`].

mod accounts;
mod agenda;
mod bodies;
mod building;
mod calls;
mod collect;
mod config;
mod confirming;
mod deferred_loads;
mod deliveries;
mod failover;
mod imports;
mod joining;
pub mod keys;
mod leaving;
mod links;
mod loading;
mod looking;
mod memory;
mod missing_blobs;
mod opening;
mod outbox;
mod partition;
mod peer_inputs;
mod pending_merge;
mod placement;
mod quota;
mod reading;
mod released;
mod remote_batches;
mod replication_budget;
mod rows;
mod sent_copies;
mod sessions;
mod snapshot;
mod split_commits;
mod stalled_accounts;
mod store_answers;
mod store_reads;
mod syncing;
mod waiting;
mod writing;

pub use memory::LoadedAccounts;

use std::collections::{BTreeMap, BTreeSet};

pub use whimbrel_crdt::Incarnation;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, Replica};

pub(crate) use self::missing_blobs::blob_of_batch;
pub(crate) use self::rows::holder;
pub(crate) use self::stalled_accounts::held_blobs;
use self::{
    accounts::{Account, Accounts, Phase},
    agenda::Agenda,
    bodies::Bodies,
    deliveries::Deliveries,
    links::Links,
    outbox::Outbox,
    partition::{Own, Partition, Partitions},
    sessions::Sessions,
    store_reads::{Load, StoreReads},
};
pub use self::{config::Config, imports::import_upload, rows::blob_name};
use crate::{
    api::{Call, Failure, Reply, SessionId},
    figures::Figures,
    machine::{Input, Machine, MinUidValidity, Now, Output, RequestId, Ticket},
    peers::{LeftReport, PartitionReport},
    stamps::Stamps,
};

/// The owner of some partitions.
pub struct PartitionOwner {
    config: Config,
    /// The clock by which it writes.
    stamps: Stamps,
    partitions: Partitions,
    accounts: Accounts,
    sessions: Sessions,
    /// What the store was asked.
    reads: StoreReads,
    /// Second copies of sent mail that are looked for.
    searches: sent_copies::Searches,
    bodies: Bodies,
    windows: replication_budget::Windows,
    links: Links,
    deliveries: Deliveries,
    agenda: Agenda,
    /// Removals of accounts that wait for a commit: of what was written last, or of the last of the removal itself.
    purges: BTreeMap<(Ticket, AccountId), collect::Purge>,
    /// What accounts may hold, and the memory that they take.
    limits: quota::Limits,
    /// What was counted since the start.
    counted: Figures,
    /// Of that, claims made again, by partition.
    claims: BTreeMap<PartitionId, u64>,
    out: Outbox,
}

impl PartitionOwner {
    /// An owner that has loaded nothing yet. It owns whatever is routed to it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::beside(config, LoadedAccounts::default())
    }

    /// One of several owners of a node, which share the memory for accounts.
    #[must_use]
    pub fn beside(config: Config, loaded: LoadedAccounts) -> Self {
        PartitionOwner {
            windows: replication_budget::Windows::new(config.windows),
            limits: quota::Limits::new(&config, loaded),
            config,
            stamps: Stamps::default(),
            partitions: Partitions::default(),
            accounts: Accounts::default(),
            sessions: Sessions::default(),
            searches: sent_copies::Searches::default(),
            bodies: Bodies::default(),
            links: Links::default(),
            deliveries: Deliveries::default(),
            reads: StoreReads::default(),
            agenda: Agenda::default(),
            purges: BTreeMap::new(),
            counted: Figures::default(),
            claims: BTreeMap::new(),
            out: Outbox::default(),
        }
    }

    // --- What has waited -----------------------------------------------------------------------------------------------

    /// Handles what need not wait any more.
    pub(super) fn again(&mut self, now: Now) {
        for input in self.agenda.take_again() {
            self.handle_again(now, input);
        }
    }

    /// What has waited. A delivery may have waited for so long that another node has made it, and its entry let go of the body: it is not made
    /// without. If it is to be made all the same the queue asks again.
    pub(super) fn handle_again(&mut self, now: Now, input: Input) {
        match input {
            Input::Deliver { ticket, entry, .. } if !self.deliveries.is_open(entry.id.tag()) => {
                self.out.push(Output::NotDelivered(ticket));
            }
            input => self.handle(now, input),
        }
    }

    /// Does with what waits for accounts of a partition what can be done with it now.
    pub(super) fn take_up(&mut self, now: Now, partition: PartitionId) {
        let waits = |entry: &Account| !entry.waiting.is_empty();
        for account in self.accounts.find(partition, waits) {
            let waiting = self
                .accounts
                .get_mut(&account)
                .map(|of| std::mem::take(&mut of.waiting));
            for input in waiting.into_iter().flatten() {
                self.handle_again(now, input);
            }
        }
    }

    // --- Time and memory -----------------------------------------------------------------------------------------------

    /// Drops accounts that nobody watches, the longest unused first, until the budget is kept.
    fn evict(&mut self) {
        while self.limits.memory.is_over() {
            let hard = self.limits.memory.is_far_over();
            let idle = self.accounts.iter().filter(|(_, entry)| {
                matches!(entry.phase, Phase::Running(_))
                    && entry.watchers.is_empty()
                    && entry.waiting.is_empty()
                    // Of each session one answer at most, and not for long.
                    && entry.held.is_empty()
                    && (hard || entry.wait_until.is_none())
                    && (hard || entry.collect_at.is_none())
                    && entry.under_way(&self.out).is_none()
            });
            // What the next batch of another node needs was loaded for it.
            let idle = idle.filter(|(account, _)| !self.partitions.is_next(**account));
            let Some(account) = idle
                .min_by_key(|(_, entry)| entry.last_use())
                .map(|(id, _)| *id)
            else {
                return;
            };
            if let Some(mut entry) = self.accounts.remove(&account) {
                self.limits.forget(&mut entry.measured);
                self.counted.accounts_evicted += 1;
                if let Phase::Running(replica) = entry.phase {
                    self.out.push(Output::Discard(replica));
                }
            }
        }
    }

    fn hangup(&mut self, session: SessionId) {
        let Some(watch) = self.sessions.end(session) else {
            return;
        };
        if let Some(entry) = self.accounts.get_mut(&watch.account) {
            entry.watchers.remove(&session);
        }
        self.agenda.watched(watch.account);
    }

    /// The directory has found a UIDVALIDITY too low. Where another node has raised it, it learns that of each that is asked.
    fn raise(&mut self, now: Now, account: AccountId, least: MinUidValidity) {
        let input = Input::LeastUidValidity(account, least);
        if self.ready(account, input).is_err() {
            return;
        }
        match self.accounts.replica(account).map(Replica::uidvalidity) {
            Ok(known) if known >= least.least => {
                self.out.push(Output::UidValidity(account, known));
            }
            _ => self.epoch_if_due(now, account, least.next),
        }
    }

    /// Whether the clock is right, and was when this node wrote in that partition last.
    fn takes_writes(&mut self, now: Now, account: AccountId) -> bool {
        let held_back = match self.partitions.get_mut(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.shipping.is_held_back(now, &own.log),
            _ => false,
        };
        self.stamps.is_right(now) && !held_back
    }

    fn mailbox_call(&mut self, now: Now, request: RequestId, account: AccountId, call: Call) {
        let input = Input::Call(request, call);
        let Ok(Input::Call(
            request,
            Call::Mailbox {
                call,
                uid_validity,
                other_nodes,
                ..
            },
        )) = self.ready(account, input)
        else {
            return;
        };
        self.epoch_if_due(now, account, 0);
        let target = reading::tells_uids_of(&call);
        let refused = call.writes() && !self.takes_writes(now, account);
        let confirm = self.to_be_confirmed(account, &call, other_nodes);
        if matches!(confirm, Err(Failure::TooFewNodes)) {
            self.counted.answers_too_few += 1;
        }
        let done = match (refused, confirm) {
            (true, _) => Err(Failure::Clock),
            (false, Err(failure)) => Err(failure),
            (false, Ok(confirm)) => self
                .is_of(account, uid_validity)
                .and_then(|()| self.carry_out(now, account, call))
                .map(|reply| (reply, confirm)),
        };
        let reply = match done {
            Ok((reply, confirm)) => {
                let confirm = confirm.and_then(|of| self.confirm(now, account, of));
                self.hold(account, request, target, reply, confirm)
            }
            Err(failure) => {
                self.warn_of_memory(account, &failure);
                Some(Reply::Failed(failure))
            }
        };
        if let Some(reply) = reply {
            self.answer(account, Output::Reply(request, reply));
        }
    }

    /// How a partition stands, if it is open, or being opened.
    #[must_use]
    pub fn report_on(&self, partition: PartitionId) -> Option<PartitionReport> {
        let of = self.partitions.get(&partition)?;
        Some(self.report_of(partition, of))
    }

    fn report_of(&self, partition: PartitionId, state: &Partition) -> PartitionReport {
        let own = match state {
            Partition::Running(own) => Some(own),
            _ => None,
        };
        let count = |of: fn(&Own) -> usize| own.map_or(0, |own| of(own) as u64);
        PartitionReport {
            partition,
            open: own
                .filter(|own| !own.failed)
                .map(|own| own.shipping.report()),
            blobs_missing: count(|own| own.missing_blobs.len()),
            accounts_stalled: count(|own| own.stalled.len()),
            uids_reassigned: self.claims.get(&partition).copied().unwrap_or(0),
            syncing: own.map_or(self.config.syncing, |own| own.is_syncing()),
            complete_at: own.map_or_else(BTreeSet::new, |own| self.complete_at(own)),
            left: match state {
                Partition::Released(left) => Some(LeftReport {
                    end: left.end,
                    is_gone: left.is_gone(),
                }),
                _ => None,
            },
            keeps: BTreeSet::new(),
        }
    }
}

impl Machine for PartitionOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.stamps.look(now);
        match input {
            Input::Call(request, call @ Call::Mailbox { account, .. }) => {
                self.mailbox_call(now, request, account, call)
            }
            Input::Call(..)
            | Input::Admin(..)
            | Input::AskBirth(_)
            | Input::UidValidity(..)
            | Input::Full(..)
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::NotHere(_)
            | Input::Verified(..) => {
                self.out.push(Output::Fatal(
                    "an input that is not a partition owner's was routed to one".into(),
                ));
            }
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::Built(ticket, built) => {
                self.built(now, ticket, built);
                self.again(now);
            }
            Input::LoadFailed(ticket, cause) => self.load_failed(now, ticket, &cause),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::AccountOrigin(account, birth) => {
                self.born(now, account, birth);
                self.again(now);
            }
            Input::LeastUidValidity(account, least) => self.raise(now, account, least),
            Input::Quota(account, quota) => self.set_quota(account, quota),
            Input::Deliver {
                ticket,
                entry,
                index,
                others,
            } => {
                self.deliveries.came(entry.id.tag());
                self.deliver(now, ticket, entry, index, others);
            }
            Input::Closing(entry) => self.deliveries.closing(entry.tag()),
            Input::Unfinished(entry) => self.deliveries.unfinished(entry.tag()),
            Input::Finished(entry) => self.deliveries.finished(entry),
            Input::QueueRecovered => self.deliveries.recovered(),
            Input::CaughtUp(at) => self.deliveries.caught_up(at),
            Input::Hangup(session) => self.hangup(session),
            Input::Purge(account) => self.purge(account),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => {
                self.collect_due(now);
                self.peers_due(now);
                self.divide_windows(now);
                self.waits_due(now);
            }
        }
        self.work_on(now);
        self.join_all();
        self.tell_of_readers(now);
        self.answer_all_held(now);
        self.evict();
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.poll()
    }

    fn figures(&self, _now: Now) -> Figures {
        let running =
            |(_, entry): &(&AccountId, &Account)| matches!(entry.phase, Phase::Running(_));
        let open = self.partitions.iter().filter_map(|(_, of)| match of {
            Partition::Running(own) => Some(own),
            Partition::Loading(_) | Partition::Released(_) => None,
        });
        let logs = open.clone().map(|own| own.log.next() - 1);
        let hidden_ops = |own: &Own| {
            let members = self.config.peers.keys().copied();
            let members = members.filter(|id| self.config.has(*id, own.log.partition()));
            own.announced.hidden_ops(own.log.applied(), members)
        };
        Figures {
            accounts_loaded: self.accounts.iter().filter(running).count() as u64,
            accounts_bytes: self.limits.memory.own() as u64,
            accounts_stalled: open.clone().map(|own| own.stalled.len() as u64).sum(),
            watchers: self.sessions.len() as u64,
            log_partitions: logs.clone().count() as u64,
            log_operations: logs.sum(),
            hidden_ops: open.clone().map(|own| hidden_ops(own)).sum(),
            answers_confirming: open.clone().map(|own| own.confirming.waiting()).sum(),
            snapshots_waiting: open.filter(|own| own.has_waiting_state()).count() as u64,
            partitions_syncing: self.partitions_syncing(),
            ..self.counted.clone()
        }
    }

    fn reports(&self) -> Vec<PartitionReport> {
        let all = self.partitions.iter();
        all.map(|(partition, of)| self.report_of(*partition, of))
            .collect()
    }

    fn deadline(&self) -> Option<u64> {
        let all = [self.agenda.deadline(), self.windows.deadline()];
        all.into_iter().flatten().min()
    }
}
