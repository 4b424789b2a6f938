//! What goes: removed messages are collected when all members have applied their removal, and rows of removed accounts go page by page.
//!
//! Invariants:
//! - What no row leads to any more is never found again, so a message's rows and its hold of the body go in one commit.
//! - Rows of an account are looked for when what was written to it last is durable, and not again before the last of them is gone.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{PartitionId, VersionVector, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Order, RowKey, Tombstones};
use whimbrel_storage::{Mutation, Room};

use super::{
    Account, Load, Mail, Partition, Phase, blob_arrivals, blob_name, deliveries::Sweep, holder,
    joining, keys, mail::PAUSE_SECONDS, missing_blobs::unnamed_by, replication, rows::push_row,
    stalled_accounts::released,
};
use crate::{
    api::Failure,
    log,
    machine::{Now, Ticket},
};

/// Removed messages that are dropped at a time, in commits of [`ROWS_PER_COMMIT_MAX`](super::split_commits::ROWS_PER_COMMIT_MAX): of an account the
/// others wait for [`PAUSE_SECONDS`], so that whoever deletes 200,000 messages keeps the accounts that share the owner waiting for some
/// milliseconds.
const COLLECTED_PER_CALL_MAX: usize = 8192;

/// For what the removal of an account waits.
enum Purge {
    /// What was written to it last.
    Begins,
    /// The last of its rows.
    Ends,
}

/// What was stable when the queues of all nodes were swept, and the least entry that was anywhere then: what is removed by that, and was delivered
/// from an entry before it, is brought back by none (D2, `proofs/README.md`).
#[derive(Default)]
pub(super) struct StableBefore {
    stable: VersionVector,
    least: Option<Order>,
    /// What is to be settled next, and when it was stable.
    next: Option<(u64, VersionVector)>,
}

impl StableBefore {
    fn look(&mut self, now: Now, sweep: Option<Sweep>, stable: &VersionVector) {
        let is_later = |(at, _): &mut (u64, VersionVector)| sweep.is_some_and(|of| of.began >= *at);
        if let Some((_, next)) = self.next.take_if(is_later) {
            self.stable = next;
            self.least = sweep.and_then(|of| of.least);
        }
        if self.next.is_none() && !stable.is_empty() {
            self.next = Some((now.mono_micros, stable.clone()));
        }
    }

    /// Whether no entry of this order can bring back what was removed by `since`.
    fn is_past(&self, order: Order, since: &VersionVector) -> bool {
        self.least.is_none_or(|least| order < least) && self.stable.covers_all(since)
    }
}

/// What a collection leaves for later.
enum Remains {
    Nothing,
    /// What can be collected after a pause.
    Due,
    /// What waits for a queue entry to be finished, or for another node to have applied the removal.
    Unfinished,
}

/// Removals of accounts.
#[derive(Default)]
pub(super) struct Collection {
    /// Those that wait for a commit: of what was written last, or of the last of the removal itself.
    purges: BTreeMap<(Ticket, AccountId), Purge>,
}

impl Collection {
    /// Removes all rows of an account that the directory no longer has, page by page. What was written to it last has to be on disk before they
    /// are looked for, or it would not be found: a delivery may be held back for a moment by the store. Likewise nothing is looked for again before the last of
    /// the removal is on disk: a batch of another node that names the account would find it.
    pub(super) fn purge(&mut self, mail: &mut Mail, account: AccountId) {
        if !mail
            .config
            .has(mail.config.origin, keys::partition_of(account))
        {
            return;
        }
        let entry = mail.accounts.get(&account);
        let under_way = entry.and_then(|entry| entry.under_way(&mail.out));
        mail.drop_account(account, Failure::NoSuchAccount);
        mail.accounts.purge(account, under_way);
        match under_way {
            Some(ticket) => drop(self.purges.insert((ticket, account), Purge::Begins)),
            None => look_for_rows(mail, account),
        }
    }

    /// A commit for which the removal of accounts waits is durable, or has failed. Then all of the partition is begun anew, and this, too.
    pub(super) fn purge_after(&mut self, mail: &mut Mail, ticket: Ticket, done: bool) {
        let all = (ticket, AccountId([0; 16]))..=(ticket, AccountId([0xff; 16]));
        let waiting: Vec<_> = self.purges.extract_if(all, |_, _| true).collect();
        for ((_, account), step) in waiting {
            let entry = mail.accounts.get(&account);
            if !done || !entry.is_some_and(|entry| matches!(entry.phase, Phase::Purging)) {
                continue;
            }
            match step {
                Purge::Begins => look_for_rows(mail, account),
                Purge::Ends => mail.drop_account(account, Failure::NoSuchAccount),
            }
        }
    }

    pub(super) fn purge_page(
        &mut self,
        mail: &mut Mail,
        account: AccountId,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        let entry = mail.accounts.get(&account);
        let partition = keys::partition_of(account);
        let (Some(Phase::Purging), Some(Partition::Running(own))) = (
            entry.map(|entry| &entry.phase),
            mail.partitions.get_mut(&partition),
        ) else {
            return;
        };
        if own.failed {
            return;
        }
        let mut mutations = Vec::with_capacity(page.len());
        for (key, value) in page {
            if let Ok(RowKey::Content(origin)) = keys::row_of_key(&key)
                && let Ok(content) = whimbrel_mailbox::Content::decode(&value)
            {
                mutations.push(Mutation::Release {
                    blob: blob_name(&content.blob),
                    holder: holder(account, origin),
                });
            }
            let key = Bytes::from(key);
            if keys::is_held(&key) {
                mutations.extend(released(&key, &value));
            }
            mutations.push(Mutation::Delete { key });
        }
        if done && own.stalled.remove(&account).is_some() {
            let key = log::stalled_key(account);
            mutations.push(Mutation::Delete { key });
        }
        let mut unnamed = Vec::new();
        if done {
            unnamed = own.missing_blobs.named_by(account);
            mutations.extend(
                own.missing_blobs
                    .names_no_more(account, unnamed.iter().copied()),
            );
        }
        if !mutations.is_empty() {
            let mut commit = own.log.commit();
            commit.mutations.extend(mutations);
            commit.room = Room::Frees;
            mail.hand_out(account, commit);
        }
        if !done {
            return;
        }
        blob_arrivals::missed_no_more(mail, partition, unnamed);
        joining::join_anew(mail, partition);
        let last = mail.accounts.get(&account).and_then(|entry| entry.newest);
        match last.filter(|last| mail.out.is_under_way(*last)) {
            Some(last) => drop(self.purges.insert((last, account), Purge::Ends)),
            None => mail.drop_account(account, Failure::NoSuchAccount),
        }
    }
}

/// Drops what has been hidden long enough, in the accounts whose time has come.
pub(super) fn collect_due(mail: &mut Mail, now: Now) {
    while let Some((at, account)) = mail.agenda.next_to_collect(now) {
        match mail.accounts.get_mut(&account) {
            Some(entry) if entry.collect_at == Some(at) => entry.collect_at = None,
            _ => continue,
        }
        match collect(mail, now, account) {
            Remains::Nothing => {}
            Remains::Due => mail.collect_after(now, account, PAUSE_SECONDS),
            Remains::Unfinished => mail.collect_soon(now, account),
        }
    }
}

/// Collects some of one account.
fn collect(mail: &mut Mail, now: Now, account: AccountId) -> Remains {
    let remains = collect_some(mail, now, account);
    match spell(mail, now, account) {
        true => Remains::Due,
        false => remains,
    }
}

/// Says keywords anew of which each node may show another spelling, a part at a time; whether there was something to say.
fn spell(mail: &mut Mail, now: Now, account: AccountId) -> bool {
    let Ok(replica) = mail.accounts.replica(account) else {
        return false;
    };
    if mail.config.peers.is_empty() || !replica.spells_as_heard() {
        return false;
    }
    let ops = replica.plan_spellings().ops;
    // A syncing partition makes no operations yet, nor does one that is about to be read again.
    let partition = keys::partition_of(account);
    if mail
        .partitions
        .running(partition)
        .is_some_and(|own| !own.is_syncing())
    {
        mail.write(now, account, ops, &[]);
    }
    true
}

fn collect_some(mail: &mut Mail, now: Now, account: AccountId) -> Remains {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return Remains::Nothing;
    };
    let replica = match &mut entry.phase {
        Phase::Running(replica) => replica,
        Phase::Purging => {
            look_for_rows(mail, account);
            return Remains::Nothing;
        }
        _ => return Remains::Nothing,
    };
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&entry.partition) else {
        return Remains::Nothing;
    };
    if own.failed {
        return Remains::Due;
    }
    let deliveries = &mail.deliveries;
    let alone = mail.config.is_alone();
    // What was imported comes back by a further import where it is forgotten, and stays dead where it is not (docs/decisions/0042).
    let tombstones = match alone {
        true => Tombstones::None,
        false => Tombstones::Left,
    };
    own.settled
        .look(now, deliveries.sweep(), own.shipping.stable());
    let settled = &own.settled;
    let finished = |order, since: &VersionVector| {
        settled.is_past(order, since) || broken("forgets-before-a-sweep")
    };
    let stable = own.shipping.stable();
    let collected = replica.collect(stable, &finished, tombstones, COLLECTED_PER_CALL_MAX);
    let remains = if collected.more {
        Remains::Due
    } else if replica.hidden() > 0 {
        Remains::Unfinished
    } else {
        Remains::Nothing
    };
    if collected.messages.is_empty() && collected.mailboxes.is_empty() {
        return remains;
    }
    let forgets = collected.messages.iter().any(|of| of.forgotten);
    let mut rows: BTreeMap<RowKey, Option<Vec<u8>>> = replica.take_dirty().into_iter().collect();
    let mut units: Vec<Vec<Mutation>> = Vec::with_capacity(collected.messages.len());
    if !mail.config.peers.is_empty() {
        units.push(vec![own.log.collect(own.shipping.stable())]);
    }
    let mut last = Vec::new();
    // Bodies that are not here and that no record of the account names any more, by the last one that did.
    let dropped = collected.messages.iter().enumerate();
    let dropped = dropped.filter_map(|(index, of)| Some((of.content?.1, index)));
    let mut missed: BTreeMap<BlobName, usize> = dropped
        .filter(|(blob, _)| own.missing_blobs.contains_key(blob))
        .collect();
    let unnamed = unnamed_by(replica, missed.keys().copied().collect());
    missed.retain(|blob, _| unnamed.contains(blob));
    // What no row leads to any more is never found again: a message's rows and its hold of the blob go in one commit. So does what is left of an
    // import, or it could be forgotten.
    for (index, dropped) in collected.messages.into_iter().enumerate() {
        let mut unit = Vec::with_capacity(3);
        let message = RowKey::Message(dropped.message);
        let tombstone = RowKey::Tombstone(dropped.message);
        let content = dropped.content.map(|(origin, _)| RowKey::Content(origin));
        for row in [message, tombstone].into_iter().chain(content) {
            if let Some(value) = rows.remove(&row) {
                push_row(&mut unit, account, &row, value);
            }
        }
        unit.extend(dropped.content.map(|(origin, blob)| Mutation::Release {
            blob: blob_name(&blob),
            holder: holder(account, origin),
        }));
        let blob = dropped.content.map(|(_, blob)| blob);
        let blob = blob.filter(|blob| missed.get(blob) == Some(&index));
        unit.extend(own.missing_blobs.names_no_more(account, blob));
        units.push(unit);
    }
    for (row, value) in rows {
        // A message must not outlive its mailbox in the store, wherever a crash comes between two of the commits.
        let is_last = matches!(row, RowKey::Mailbox(_)) && value.is_none();
        let mut unit = Vec::with_capacity(1);
        push_row(&mut unit, account, &row, value);
        if is_last { &mut last } else { &mut units }.push(unit);
    }
    let measured = mail.limits.measure(&mut entry.measured, replica);
    mail.out.extend(measured);
    let partition = entry.partition;
    if forgets {
        replication::is_forgotten(mail, now, partition);
    }
    mail.write_rows(account, Room::Frees, units.into_iter().chain(last));
    blob_arrivals::missed_no_more(mail, partition, missed.into_keys());
    remains
}

/// The partition was opened: removals of its accounts go on, but of those that wait after a failed commit.
pub(super) fn purge_again(mail: &mut Mail, partition: PartitionId) {
    let goes =
        |entry: &Account| matches!(entry.phase, Phase::Purging) && entry.collect_at.is_none();
    for account in mail.accounts.find(partition, goes) {
        look_for_rows(mail, account);
    }
}

/// Begins, or begins again, to remove the rows of an account. While its partition is not open it waits for that.
pub(super) fn look_for_rows(mail: &mut Mail, account: AccountId) {
    let partition = keys::partition_of(account);
    match mail.partitions.get(&partition) {
        Some(Partition::Running(own)) if !own.failed => {
            let (load, range) = (Load::Purge(account), keys::whole_range(account));
            mail.reads.rows(&mut mail.out, load, partition, range);
        }
        Some(_) => {}
        None => mail.open(partition),
    }
}
