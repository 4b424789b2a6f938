//! A partition that is left alone for a second, since the store has refused a commit of it or could not read: a disk that was full a moment ago
//! mostly still is, and each try costs the reading of the partition.
//!
//! Clients are served meanwhile from what can be read without a write. What the partition does of itself waits: batches of other nodes, accounts that
//! are to be joined or go on after they were stalled, claims of what is late, bodies that are missing, rows that are of no use.

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;

use super::{Account, Mail, Own, Phase, blob_arrivals, deferred_loads, snapshot};
use crate::machine::Now;

impl Own {
    /// Whether the account is not loaded now: what it would write before anything else waits.
    pub(super) fn waits_with(&self, account: AccountId) -> bool {
        self.retry_at.is_some()
            && (!self.states.has_joined() || self.stalled.contains_key(&account))
    }
}

/// Goes on with what has waited, if it is time.
pub(super) fn try_again(mail: &mut Mail, now: Now, partition: PartitionId) {
    let is_due = |own: &mut Own| own.retry_at.is_some_and(|at| at <= now.mono_micros);
    if !mail.partitions.running(partition).is_some_and(is_due) {
        return;
    }
    let writes = |entry: &Account| {
        matches!(entry.phase, Phase::Absent) && entry.under_way(&mail.out).is_some()
    };
    if !mail.accounts.find(partition, writes).is_empty() {
        // What was written to it would not be read yet.
        return mail.wait_with_work(now, partition);
    }
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    own.retry_at = None;
    if std::mem::take(&mut own.looks_late) {
        blob_arrivals::want_all(mail, partition);
    }
    mail.agenda.work(partition);
    mail.agenda.join(partition);
    snapshot::sweep_on(mail, partition);
    deferred_loads::load_wanted(mail, partition);
    deferred_loads::load_deferred_loads(mail, partition);
    let again = mail.reads.logs().again(partition);
    mail.out.extend(again);
}
