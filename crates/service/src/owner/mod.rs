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
mod answers;
mod bodies;
mod building;
mod calls;
mod collect;
mod config;
mod confirming;
mod deferred_loads;
mod deliveries;
mod delivering;
mod failover;
mod held_answers;
mod imports;
mod joining;
pub mod keys;
mod leaving;
mod links;
mod loading;
mod looking;
mod mail;
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
mod replication;
mod replication_budget;
mod requests;
mod rows;
mod sent_copies;
mod sessions;
mod showing;
mod snapshot;
mod split_commits;
mod stalled_accounts;
mod store_answers;
mod store_reads;
mod syncing;
mod waiting;
mod writing;

pub use memory::LoadedAccounts;

use std::collections::BTreeSet;

pub use whimbrel_crdt::Incarnation;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;

use self::{
    accounts::{Account, Phase},
    calls::Calls,
    collect::Collection,
    mail::Mail,
    partition::{Own, Partition},
    replication_budget::Windows,
    store_reads::Load,
};
pub use self::{config::Config, imports::import_upload, rows::blob_name};
pub(crate) use self::{
    rows::{blob_of_batch, holder},
    stalled_accounts::held_blobs,
};
use crate::{
    api::Call,
    figures::Figures,
    machine::{Input, Machine, Now, Output},
    peers::{LeftReport, PartitionReport},
};

/// The owner of some partitions.
pub struct PartitionOwner {
    mail: Mail,
    calls: Calls,
    collection: Collection,
    windows: Windows,
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
            windows: Windows::new(config.windows),
            mail: Mail::new(config, loaded),
            calls: Calls::default(),
            collection: Collection::default(),
        }
    }

    // --- What has waited -----------------------------------------------------------------------------------------------

    /// Handles what need not wait any more.
    pub(super) fn again(&mut self, now: Now) {
        for input in self.mail.agenda.take_again() {
            self.handle_again(now, input);
        }
    }

    /// What has waited. A delivery may have waited for so long that another node has made it, and its entry let go of the body: it is not made
    /// without. If it is to be made all the same the queue asks again.
    pub(super) fn handle_again(&mut self, now: Now, input: Input) {
        match input {
            Input::Deliver { ticket, entry, .. }
                if !self.mail.deliveries.is_open(entry.id.tag()) =>
            {
                self.mail.out.push(Output::NotDelivered(ticket));
            }
            input => self.handle(now, input),
        }
    }

    /// Does with what waits for accounts of a partition what can be done with it now.
    pub(super) fn take_up(&mut self, now: Now, partition: PartitionId) {
        let waits = |entry: &Account| !entry.waiting.is_empty();
        for account in self.mail.accounts.find(partition, waits) {
            let waiting = self
                .mail
                .accounts
                .get_mut(&account)
                .map(|of| std::mem::take(&mut of.waiting));
            for input in waiting.into_iter().flatten() {
                self.handle_again(now, input);
            }
        }
    }

    /// How a partition stands, if it is open, or being opened.
    #[must_use]
    pub fn report_on(&self, partition: PartitionId) -> Option<PartitionReport> {
        let of = self.mail.partitions.get(&partition)?;
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
            uids_reassigned: self.mail.claims.get(&partition).copied().unwrap_or(0),
            syncing: own.map_or(self.mail.config.syncing, |own| own.is_syncing()),
            complete_at: own
                .map_or_else(BTreeSet::new, |own| placement::complete_at(&self.mail, own)),
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
        self.mail.stamps.look(now);
        match input {
            Input::Call(request, call @ Call::Mailbox { account, .. }) => {
                self.calls
                    .mailbox_call(&mut self.mail, now, request, account, call)
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
                self.mail.out.push(Output::Fatal(
                    "an input that is not a partition owner's was routed to one".into(),
                ));
            }
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::Built(ticket, built) => {
                building::built(&mut self.mail, now, ticket, built);
                self.again(now);
            }
            Input::LoadFailed(ticket, cause) => self.load_failed(now, ticket, &cause),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::AccountOrigin(account, birth) => {
                if !joining::born_joining(&mut self.mail, now, account, birth) {
                    loading::born(&mut self.mail, now, account, birth);
                }
                self.again(now);
            }
            Input::LeastUidValidity(account, least) => {
                calls::raise(&mut self.mail, now, account, least)
            }
            Input::Quota(account, quota) => self.mail.set_quota(account, quota),
            Input::Deliver {
                ticket,
                entry,
                index,
                others,
            } => {
                self.mail.deliveries.came(entry.id.tag());
                self.calls
                    .deliver(&mut self.mail, now, ticket, entry, index, others);
            }
            Input::Closing(entry) => self.mail.deliveries.closing(entry.tag()),
            Input::Unfinished(entry) => self.mail.deliveries.unfinished(entry.tag()),
            Input::Finished(entry) => self.mail.deliveries.finished(entry),
            Input::QueueRecovered => self.mail.deliveries.recovered(),
            Input::CaughtUp(at) => self.mail.deliveries.caught_up(at),
            Input::Hangup(session) => self.mail.hangup(session),
            Input::Purge(account) => self.collection.purge(&mut self.mail, account),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => {
                collect::collect_due(&mut self.mail, now);
                self.peers_due(now);
                self.windows.divide_windows(&mut self.mail, now);
                reading::waits_due(&mut self.mail, now);
            }
        }
        self.work_on(now);
        joining::join_all(&mut self.mail);
        reading::tell_of_readers(&mut self.mail, now);
        held_answers::answer_all_held(&mut self.mail, now);
        self.mail.evict();
    }

    fn poll(&mut self) -> Option<Output> {
        self.mail.out.poll()
    }

    fn figures(&self, _now: Now) -> Figures {
        let running =
            |(_, entry): &(&AccountId, &Account)| matches!(entry.phase, Phase::Running(_));
        let open = self.mail.partitions.iter().filter_map(|(_, of)| match of {
            Partition::Running(own) => Some(own),
            Partition::Loading(_) | Partition::Released(_) => None,
        });
        let logs = open.clone().map(|own| own.log.next() - 1);
        let hidden_ops = |own: &Own| {
            let members = self.mail.config.peers.keys().copied();
            let members = members.filter(|id| self.mail.config.has(*id, own.log.partition()));
            own.announced.hidden_ops(own.log.applied(), members)
        };
        Figures {
            accounts_loaded: self.mail.accounts.iter().filter(running).count() as u64,
            accounts_bytes: self.mail.limits.memory.own() as u64,
            accounts_stalled: open.clone().map(|own| own.stalled.len() as u64).sum(),
            watchers: self.mail.sessions.len() as u64,
            log_partitions: logs.clone().count() as u64,
            log_operations: logs.sum(),
            hidden_ops: open.clone().map(|own| hidden_ops(own)).sum(),
            answers_confirming: open.clone().map(|own| own.confirming.waiting()).sum(),
            snapshots_waiting: open.filter(|own| own.has_waiting_state()).count() as u64,
            partitions_syncing: syncing::partitions_syncing(&self.mail),
            ..self.mail.counted.clone()
        }
    }

    fn reports(&self) -> Vec<PartitionReport> {
        let all = self.mail.partitions.iter();
        all.map(|(partition, of)| self.report_of(*partition, of))
            .collect()
    }

    fn deadline(&self) -> Option<u64> {
        let all = [self.mail.agenda.deadline(), self.windows.deadline()];
        all.into_iter().flatten().min()
    }
}
