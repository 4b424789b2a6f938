//! The accounts and partitions of an owner as they are in memory: the state on which all its machines work, and the lowest layer of what they do.
//!
//! What is here, in [`writing`](super::writing), [`showing`](super::showing), [`split_commits`](super::split_commits), [`quota`](super::quota) and
//! [`requests`](super::requests) calls nothing above it. Each field is a machine of its own with private fields; none of them knows another but the
//! outbox.

use std::collections::BTreeMap;

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;

use super::{
    Config, LoadedAccounts,
    accounts::{Accounts, Phase},
    agenda::Agenda,
    bodies::Bodies,
    deliveries::Deliveries,
    keys,
    links::Links,
    outbox::Outbox,
    partition::{Partition, Partitions},
    quota::Limits,
    sessions::Sessions,
    store_reads::StoreReads,
};
use crate::{
    api::SessionId,
    figures::Figures,
    machine::{Now, Output},
    peers::{PeerOutput, READ_AGAIN_MICROS, blobs::FEATURE_CONFIRM},
    stamps::Stamps,
};

/// Until more of the same account is collected, and until it is tried again when a commit had failed.
pub(super) const PAUSE_SECONDS: u64 = 1;

pub(super) struct Mail {
    pub(super) config: Config,
    /// The clock by which it writes.
    pub(super) stamps: Stamps,
    pub(super) partitions: Partitions,
    pub(super) accounts: Accounts,
    pub(super) sessions: Sessions,
    /// What accounts may hold, and the memory that they take.
    pub(super) limits: Limits,
    /// Bodies that are waited for.
    pub(super) bodies: Bodies,
    /// Streams to other nodes.
    pub(super) links: Links,
    /// Entries of the queue, and their deliveries.
    pub(super) deliveries: Deliveries,
    /// What has to be looked at again.
    pub(super) agenda: Agenda,
    /// What the store was asked.
    pub(super) reads: StoreReads,
    /// What was counted since the start.
    pub(super) counted: Figures,
    /// Of that, claims made again, by partition.
    pub(super) claims: BTreeMap<PartitionId, u64>,
    pub(super) out: Outbox,
}

impl Mail {
    pub(super) fn new(config: Config, loaded: LoadedAccounts) -> Self {
        Mail {
            limits: Limits::new(&config, loaded),
            config,
            stamps: Stamps::default(),
            partitions: Partitions::default(),
            accounts: Accounts::default(),
            sessions: Sessions::default(),
            bodies: Bodies::default(),
            links: Links::default(),
            deliveries: Deliveries::default(),
            agenda: Agenda::default(),
            reads: StoreReads::default(),
            counted: Figures::default(),
            claims: BTreeMap::new(),
            out: Outbox::default(),
        }
    }
}

impl Mail {
    /// A peer may have applied more, or more is durable here: the queue is answered.
    pub(super) fn acknowledge(&mut self, partition: PartitionId) {
        if let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) {
            let holders = self.links.iter();
            let holders = holders.filter(|(peer, link)| {
                link.has(FEATURE_CONFIRM) && self.config.holds(*peer, partition)
            });
            let holders: Vec<_> = holders.map(|(peer, _)| peer).collect();
            let done = self.deliveries.take_done(partition, own, &holders);
            let woken = own.confirming.take_woken().into_iter();
            let wake = |peer| Output::Peer(PeerOutput::Wake(partition, peer));
            self.out.extend(woken.map(wake));
            self.out.extend(done.into_iter().map(Output::Delivered));
        }
    }

    /// Something was removed: it is collected after a while.
    pub(super) fn collect_soon(&mut self, now: Now, account: AccountId) {
        self.collect_after(now, account, self.config.collect_after_seconds.max(1));
    }

    /// There is more to say of keywords: see [`Replica::plan_spellings`](whimbrel_mailbox::Replica::plan_spellings).
    pub(super) fn spell_soon(&mut self, now: Now, account: AccountId) {
        self.collect_after(now, account, PAUSE_SECONDS);
    }

    pub(super) fn collect_after(&mut self, now: Now, account: AccountId, seconds: u64) {
        if let Some(entry) = self.accounts.get_mut(&account)
            && entry.collect_at.is_none()
        {
            let at = now.mono_micros + seconds * 1_000_000;
            entry.collect_at = Some(at);
            self.agenda.collect_at(at, account);
        }
    }

    /// A commit failed, so that the partition is read again, or a read: the removal of the account goes on after a pause, for the disk may be full.
    pub(super) fn purge_later(&mut self, now: Now, account: AccountId) {
        if let Some(entry) = self.accounts.get_mut(&account) {
            entry.phase = Phase::Purging;
            entry.collect_at = None;
        }
        self.collect_after(now, account, PAUSE_SECONDS);
    }

    // --- Time and memory -----------------------------------------------------------------------------------------------

    /// Drops accounts that nobody watches, the longest unused first, until the budget is kept.
    pub(super) fn evict(&mut self) {
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

    pub(super) fn hangup(&mut self, session: SessionId) {
        let Some(watch) = self.sessions.end(session) else {
            return;
        };
        if let Some(entry) = self.accounts.get_mut(&watch.account) {
            entry.watchers.remove(&session);
        }
        self.agenda.watched(watch.account);
    }

    /// Whether the clock is right, and was when this node wrote in that partition last.
    pub(super) fn takes_writes(&mut self, now: Now, account: AccountId) -> bool {
        let held_back = match self.partitions.get_mut(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.shipping.is_held_back(now, &own.log),
            _ => false,
        };
        self.stamps.is_right(now) && !held_back
    }

    /// Reading from the store has failed: the partition waits before it asks again.
    pub(super) fn wait_with_work(&mut self, now: Now, partition: PartitionId) {
        let at = now.mono_micros + READ_AGAIN_MICROS;
        if let Some(own) = self.partitions.running(partition) {
            own.retry_at = Some(at);
            self.agenda.look_at(at, partition);
        }
    }
}
