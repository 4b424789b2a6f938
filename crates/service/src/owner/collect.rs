//! What goes: collection of removed messages, and accounts that were removed.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, RowKey};
use whimbrel_storage::{Commit, Mutation, Room};

use super::{Load, Partition, PartitionOwner, Phase, blob_name, holder, keys, rows::push_row};
use crate::{
    api::Failure,
    log,
    machine::{Now, Output, Ticket},
};

/// Removed messages that are dropped at a time, in commits of [`ROWS_PER_COMMIT_MAX`](super::batches::ROWS_PER_COMMIT_MAX): of an account the
/// others wait for [`PAUSE_SECONDS`], so that whoever deletes 200,000 messages keeps the accounts that share the owner waiting for some
/// milliseconds.
const COLLECTED_PER_CALL_MAX: usize = 8192;

/// Until more of the same account is collected, and until it is tried again when a commit had failed.
const PAUSE_SECONDS: u64 = 1;

/// What a collection leaves for later.
enum Remains {
    Nothing,
    /// What can be collected after a pause.
    Due,
    /// What waits for a queue entry to be finished, or for another node to have applied the removal.
    Unfinished,
}

impl PartitionOwner {
    /// Something was removed: it is collected after a while.
    pub(super) fn collect_soon(&mut self, now: Now, account: AccountId) {
        self.collect_after(now, account, self.config.collect_after_seconds.max(1));
    }

    fn collect_after(&mut self, now: Now, account: AccountId, seconds: u64) {
        if let Some(entry) = self.accounts.get_mut(&account)
            && entry.collect_at.is_none()
        {
            let at = now.mono_micros + seconds * 1_000_000;
            entry.collect_at = Some(at);
            self.due.insert((at, account));
        }
    }

    /// Drops what has been hidden long enough, in the accounts whose time has come.
    pub(super) fn collect_due(&mut self, now: Now) {
        while let Some((at, account)) = self
            .due
            .first()
            .copied()
            .filter(|(at, _)| *at <= now.mono_micros)
        {
            self.due.pop_first();
            match self.accounts.get_mut(&account) {
                Some(entry) if entry.collect_at == Some(at) => entry.collect_at = None,
                _ => continue,
            }
            match self.collect(account) {
                Remains::Nothing => {}
                Remains::Due => self.collect_after(now, account, PAUSE_SECONDS),
                Remains::Unfinished => self.collect_soon(now, account),
            }
        }
    }

    /// Collects some of one account.
    fn collect(&mut self, account: AccountId) -> Remains {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return Remains::Nothing;
        };
        let Phase::Running(replica) = &mut entry.phase else {
            return Remains::Nothing;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
            return Remains::Nothing;
        };
        if own.failed {
            return Remains::Due;
        }
        let (unfinished, recovered) = (&self.unfinished, self.queue_recovered);
        let finished = |entry| recovered && !unfinished.contains(&entry);
        let collected = replica.collect(own.shipping.stable(), &finished, COLLECTED_PER_CALL_MAX);
        let remains = if collected.more {
            Remains::Due
        } else if replica.hidden() > 0 {
            Remains::Unfinished
        } else {
            Remains::Nothing
        };
        if collected.messages.is_empty() && collected.mailboxes == 0 {
            return remains;
        }
        let mut rows: BTreeMap<RowKey, Option<Vec<u8>>> =
            replica.take_dirty().into_iter().collect();
        let mut units: Vec<Vec<Mutation>> = Vec::with_capacity(collected.messages.len());
        let mut last = Vec::new();
        // What no row leads to any more is never found again: a message's rows and its hold of the blob go in one commit.
        for dropped in collected.messages {
            let mut unit = Vec::with_capacity(3);
            let message = RowKey::Message(dropped.message);
            let content = dropped.content.map(|(origin, _)| RowKey::Content(origin));
            for row in [message].into_iter().chain(content) {
                if let Some(value) = rows.remove(&row) {
                    push_row(&mut unit, account, &row, value);
                }
            }
            unit.extend(dropped.content.map(|(origin, blob)| Mutation::Release {
                blob: blob_name(&blob),
                holder: holder(account, origin),
            }));
            units.push(unit);
        }
        for (row, value) in rows {
            // A message must not outlive its mailbox in the store, wherever a crash comes between two of the commits.
            let is_last = matches!(row, RowKey::Mailbox(_)) && value.is_none();
            let mut unit = Vec::with_capacity(1);
            push_row(&mut unit, account, &row, value);
            if is_last { &mut last } else { &mut units }.push(unit);
        }
        let bytes = replica.memory_bytes();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        self.write_rows(account, Room::Frees, units.into_iter().chain(last));
        remains
    }

    /// Removes all rows of an account that the directory no longer has, page by page. What was written to it last has to be on disk before they
    /// are looked for, or it would not be found: a delivery may be held back for a moment by the store.
    pub(super) fn purge(&mut self, account: AccountId) {
        let entry = self.accounts.get(&account);
        let under_way = entry
            .and_then(|entry| entry.newest)
            .filter(|newest| self.commits.contains_key(newest));
        self.drop_account(account, Failure::NoSuchAccount);
        let partition = keys::partition_of(account);
        let entry = super::Account {
            partition,
            phase: Phase::Purging,
            waiting: std::collections::VecDeque::new(),
            watchers: std::collections::BTreeSet::new(),
            newest: under_way,
            collect_at: None,
            last_use: self.next_use,
            bytes: 0,
        };
        self.accounts.insert(account, entry);
        match under_way {
            Some(ticket) => drop(self.purges.insert(ticket, account)),
            None => self.look_for_rows(account),
        }
    }

    fn look_for_rows(&mut self, account: AccountId) {
        let (from, to) = keys::whole_range(account);
        self.request(Load::Purge(account), keys::partition_of(account), from, to);
    }

    /// A commit is durable for which the removal of an account waits. (If it failed, all of the partition is begun anew.)
    pub(super) fn purge_after(&mut self, ticket: Ticket, done: bool) {
        if let (Some(account), true) = (self.purges.remove(&ticket), done)
            && let Some(entry) = self.accounts.get_mut(&account)
            && matches!(entry.phase, Phase::Purging)
        {
            self.look_for_rows(account);
        }
    }

    pub(super) fn purge_page(
        &mut self,
        account: AccountId,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        if !matches!(self.accounts.get(&account), Some(entry) if matches!(entry.phase, Phase::Purging))
        {
            return;
        }
        let partition = keys::partition_of(account);
        let mut commit = Commit::new(log::store_partition(partition));
        // It must not seem to begin anew what others' refused commits have ended.
        commit.follows = true;
        for (key, value) in page {
            if let Ok(RowKey::Content(origin)) = keys::row_of_key(&key)
                && let Ok(content) = whimbrel_mailbox::Content::decode(&value)
            {
                commit.mutations.push(Mutation::Release {
                    blob: blob_name(&content.blob),
                    holder: holder(account, origin),
                });
            }
            commit.mutations.push(Mutation::Delete { key: key.into() });
        }
        if !commit.mutations.is_empty() {
            // No answer waits for it; a purge that a crash cuts short is begun again at the next start.
            let ticket = self.ticket();
            self.out.push_back(Output::Commit(ticket, commit));
        }
        if done {
            self.drop_account(account, Failure::NoSuchAccount);
        }
    }
}
