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
use whimbrel_mailbox::{BlobName, Replica, RestoreRecovery};
use whimbrel_storage::Room;

use super::{Account, Mail, Own, Phase, blob_arrivals, deferred_loads};
use crate::machine::{Now, Ticket};

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

pub(super) fn partitions_syncing(mail: &Mail) -> u64 {
    let all = mail.partitions.ids().into_iter();
    all.filter(|partition| mail.partitions.is_syncing(*partition))
        .count() as u64
}

/// All operations that were missing are here, and durable.
pub(super) fn grown(mail: &mut Mail, partition: PartitionId) {
    if let Some(own) = mail.partitions.running(partition) {
        own.age = SyncState::Joining;
        // Those that cannot be joined are waited for by nobody.
        if own.states.has_joined() {
            all_joined(mail, partition);
        }
    }
}

/// Of what came as a state nothing is to be joined any more: it is known which bodies are missing.
pub(super) fn all_joined(mail: &mut Mail, partition: PartitionId) {
    if let Some(own) = mail.partitions.running(partition)
        && own.age == SyncState::Joining
    {
        own.age = SyncState::Fetching(own.missing_blobs.keys().copied().collect());
        blob_arrivals::all_fetched(mail, partition);
    }
}

/// A commit is durable; whether the partition has grown by it.
pub(super) fn grown_durable(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    ticket: Ticket,
) -> bool {
    let own = mail.partitions.running(partition);
    let Some(own) = own else {
        return false;
    };
    if !matches!(own.age, SyncState::Growing(after) if after <= ticket) {
        return false;
    }
    own.age = SyncState::Grown;
    claim_what_is_known(mail, now, partition);
    true
}

/// The first operations that this node makes. Accounts that are in memory begin in a new epoch where its own of before are lost, and what is late
/// in them is claimed again. Others do when they are loaded, or opened.
fn claim_what_is_known(mail: &mut Mail, now: Now, partition: PartitionId) {
    let lost = mail
        .partitions
        .running(partition)
        .is_some_and(|own| own.log.own_lost());
    let known = |entry: &Account| matches!(entry.phase, Phase::Running(_));
    for account in mail.accounts.find(partition, known) {
        if lost {
            mail.epoch_if_due(now, account, 0);
        }
        // Others have shown it long ago: who comes now misses nothing, and is told no UIDNEXT above it.
        mail.nobody_waits(account, true);
        mail.show_anew(now, account, Room::Vital, Replica::release);
        mail.nobody_waits(account, false);
        mail.claim_late(now, account);
        deferred_loads::is_looked_at(mail, now, account);
    }
    deferred_loads::load_deferred_loads(mail, partition);
}
