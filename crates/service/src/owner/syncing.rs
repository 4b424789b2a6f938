//! Partitions of a node that is new, or came for one whose disk was lost: until this node has all that another one had when it was first heard
//! (`replication::partition`), clients are told to come later, deliveries are for other nodes to make, and nothing is opened: no operation is made,
//! and no UID told that what is still to come would have to give way to.
//!
//! Bodies are waited for, too: a message without its body is not shown, and would be late when it comes. What a peer shows it has the body of, so
//! what all linked ones lack is not waited for.
//!
//! It is so in each partition by itself, from the first start on. That it has ended is a row, so that an older node which can reach nobody at a later
//! start serves.

use std::collections::BTreeSet;

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Replica, RestoreRecovery};
use whimbrel_storage::Room;

use super::{Account, Own, PartitionOwner, Phase, joining::Joining, keys};
use crate::{
    api::Failure,
    log,
    machine::{Input, Now, Output, Ticket},
};

/// MODSEQs run ahead of the clock of a partition when something is shown by which that does not advance: within one life by less than this, an hour of it.
const MODSEQS_PER_GENERATION: u64 = 3_600_000_000;

/// Whether clients may know more of a partition than this node.
#[derive(PartialEq, Eq)]
pub(super) enum SyncState {
    Syncing,
    /// All operations are here, perhaps in a state of which accounts are to be joined.
    Joining,
    /// And these bodies are not.
    Fetching(BTreeSet<BlobName>),
    /// It has all; the commit that says so is under way.
    Growing(Ticket),
    Grown,
}

impl Own {
    /// A replica of which nothing is here begins. In another life this node may have told clients of it, and knows of that no more.
    pub(super) fn begin(&self, replica: &mut Replica, renewal: &RestoreRecovery) {
        match self.generation {
            0 => replica.begin(renewal),
            generation => {
                let above = self.log.hlc().last() + u64::from(generation) * MODSEQS_PER_GENERATION;
                replica.begin_again(renewal, above);
            }
        }
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.age != SyncState::Grown && !broken("syncing-answers")
    }
}

impl PartitionOwner {
    pub(super) fn partitions_syncing(&self) -> u64 {
        let all = self.partitions.ids().into_iter();
        all.filter(|partition| self.partitions.is_syncing(*partition))
            .count() as u64
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

    /// All operations that were missing_blobs are here, and durable.
    pub(super) fn grown(&mut self, partition: PartitionId) {
        if let Some(own) = self.partitions.running(partition) {
            own.age = SyncState::Joining;
            // Those that cannot be joined are waited for by nobody.
            let joining = own.states.joining.as_ref();
            if joining.is_none_or(Joining::has_ended) {
                self.all_joined(partition);
            }
        }
    }

    /// Of what came as a state nothing is to be joined any more: it is known which bodies are missing_blobs.
    pub(super) fn all_joined(&mut self, partition: PartitionId) {
        if let Some(own) = self.partitions.running(partition)
            && own.age == SyncState::Joining
        {
            own.age = SyncState::Fetching(own.missing_blobs.keys().copied().collect());
            self.all_fetched(partition);
        }
    }

    /// A body is here, or no linked node has it, or nothing names it.
    pub(super) fn not_awaited(&mut self, partition: PartitionId, blob: &BlobName) {
        if let Some(own) = self.partitions.running(partition)
            && let SyncState::Fetching(bodies) = &mut own.age
            && bodies.remove(blob)
        {
            self.all_fetched(partition);
        }
    }

    /// Of these bodies some may be missing_blobs no more, since no message names them.
    pub(super) fn missed_no_more(
        &mut self,
        partition: PartitionId,
        blobs: impl IntoIterator<Item = BlobName>,
    ) {
        for blob in blobs {
            let own = self.partitions.running(partition);
            if let Some(own) = own.filter(|own| !own.missing_blobs.contains_key(&blob)) {
                // As for who asks from now on: what named it is gone, here as there, when this is durable.
                own.confirming.here(&blob, own.newest());
                self.bodies.miss_no_more(blob, partition);
                self.not_awaited(partition, &blob);
            }
        }
    }

    /// No linked node has this body: nothing waits for it, and who is new need not have it.
    pub(super) fn nobody_has(&mut self, now: Now, blob: &BlobName) {
        for partition in self.bodies.missing_in(blob) {
            let own = self.partitions.running(partition);
            let accounts = own.and_then(|own| own.missing_blobs.get(blob)?.accounts.clone());
            for account in accounts.into_iter().flatten() {
                let entry = self.accounts.get(&account);
                let waits = entry.is_some_and(
                    |entry| matches!(&entry.phase, Phase::Running(replica) if replica.awaits(blob)),
                );
                if waits {
                    self.show_with(now, account, None, |replica, at, peers| {
                        replica.nobody_has(blob, at, peers)
                    });
                }
            }
            self.not_awaited(partition, blob);
        }
    }

    /// When nothing is missing_blobs that is kept.
    fn all_fetched(&mut self, partition: PartitionId) {
        let ticket = self.out.ticket();
        let Some(own) = self.partitions.running(partition) else {
            return;
        };
        if !matches!(&own.age, SyncState::Fetching(bodies) if bodies.is_empty() || broken("syncing-without-bodies"))
        {
            return;
        }
        own.age = SyncState::Growing(ticket);
        let mut commit = own.log.commit();
        commit.mutations.push(log::grown(own.log.origin()));
        // And whether anybody was left who had all of it.
        commit.mutations.push(own.log.record());
        // Told once, to who is new.
        commit.mutations.extend(own.announced_row());
        self.hand_out_for(partition, ticket, commit);
    }

    /// A commit is durable; whether the partition has grown by it.
    pub(super) fn grown_durable(
        &mut self,
        now: Now,
        partition: PartitionId,
        ticket: Ticket,
    ) -> bool {
        let own = self.partitions.running(partition);
        let Some(own) = own else {
            return false;
        };
        if !matches!(own.age, SyncState::Growing(after) if after <= ticket) {
            return false;
        }
        own.age = SyncState::Grown;
        self.claim_what_is_known(now, partition);
        true
    }

    /// The first operations that this node makes. Accounts that are in memory begin in a new epoch where its own of before are lost, and what is late
    /// in them is claimed again. Others do when they are loaded, or opened.
    fn claim_what_is_known(&mut self, now: Now, partition: PartitionId) {
        let lost = self
            .partitions
            .running(partition)
            .is_some_and(|own| own.log.own_lost());
        let known = |entry: &Account| matches!(entry.phase, Phase::Running(_));
        for account in self.accounts.find(partition, known) {
            if lost {
                self.epoch_if_due(now, account, 0);
            }
            // Others have shown it long ago: who comes now misses nothing, and is told no UIDNEXT above it.
            self.nobody_waits(account, true);
            self.show_anew(now, account, Room::Vital, Replica::release);
            self.nobody_waits(account, false);
            self.claim_late(now, account);
            self.is_looked_at(now, account);
        }
        self.load_deferred_loads(partition);
    }
}
