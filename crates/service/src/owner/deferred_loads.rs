//! Accounts that have to be looked at and are not in memory: a body has come that their records name, messages were late in them while the partition
//! was syncing, claims of theirs were refused, or they were stalled before the start. They are loaded for it.
//!
//! Until then what is hidden in them counts as not shown: else a client that goes from here to another node would be taken there for one that has
//! seen it (docs/design.md#rule-6), and a node that leaves the partition would leave it to nobody.

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;

use super::{Account, Mail, Own, Partition, Phase, blob_arrivals, keys};
use crate::machine::Now;

impl Own {
    /// Those for whose sake no body has come. What is late in a syncing partition is claimed when it is syncing no more; bodies are shown before: it
    /// waits for them.
    fn deferred_loads(&self) -> impl Iterator<Item = AccountId> {
        let late = self.late.iter().filter(|_| !self.is_syncing());
        // Perhaps this program can do what the last one could not.
        let stalled = self.stalled.iter().filter(|(_, of)| !of.tried);
        late.chain(stalled.map(|(account, _)| account)).copied()
    }
}

/// Whether the account is to be loaded, whoever waits for it.
pub(super) fn is_deferred_loads(mail: &Mail, account: AccountId) -> bool {
    let of_partition = match mail.partitions.get(&keys::partition_of(account)) {
        Some(Partition::Running(own)) => own.deferred_loads().any(|of| of == account),
        _ => false,
    };
    of_partition || mail.bodies.has_arrived_for(account)
}

/// The account is in memory, and what was late in it is claimed again, but in a syncing partition.
pub(super) fn is_looked_at(mail: &mut Mail, now: Now, account: AccountId) {
    if let Some(own) = mail.partitions.running(keys::partition_of(account))
        && !own.is_syncing()
    {
        own.late.remove(&account);
    }
    for (blob, looked) in mail.bodies.take_arrived(account) {
        blob_arrivals::body_came(mail, now, blob, looked);
    }
}

/// Loads those of a partition that are not being loaded: reading may have failed.
pub(super) fn load_deferred_loads(mail: &mut Mail, partition: PartitionId) {
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return;
    };
    let arrived = mail.bodies.awaited_accounts(partition);
    let all: Vec<AccountId> = own.deferred_loads().chain(arrived).collect();
    for account in all {
        mail.accounts.used(account);
        mail.load(account);
    }
}

/// A commit is durable: accounts whose part of it is held until then are read again, and take it.
pub(super) fn resume_on(mail: &mut Mail, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    if own.stalled.values().any(|of| !of.tried) {
        load_deferred_loads(mail, partition);
    }
}

/// Accounts that are not in memory are read if anybody wants them, but while the partition is left alone only those for which a client waits;
/// others are forgotten.
pub(super) fn load_wanted(mail: &mut Mail, partition: PartitionId) {
    let absent = |entry: &Account| matches!(entry.phase, Phase::Absent);
    for account in mail.accounts.find(partition, absent) {
        let (Some(entry), Some(Partition::Running(own))) =
            (mail.accounts.get(&account), mail.partitions.get(&partition))
        else {
            return;
        };
        let waiting = !entry.waiting.is_empty();
        let known = waiting || !entry.watchers.is_empty() || !entry.held.is_empty();
        // In a syncing partition it waits for more than its rows; one that is stalled may be what that waits for.
        let for_more = waiting && own.is_syncing() && !own.stalled.contains_key(&account);
        let left_alone = own.retry_at.is_some() && !waiting;
        if known && (for_more || left_alone) {
            continue;
        }
        if known || is_deferred_loads(mail, account) {
            mail.load(account);
        } else {
            mail.accounts.remove(&account);
        }
    }
    mail.agenda.work(partition);
}
