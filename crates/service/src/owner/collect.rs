//! What goes: collection of removed messages, and accounts that were removed.

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, RowKey};
use whimbrel_storage::{Commit, Mutation};

use super::{Load, Partition, PartitionOwner, Phase, blob_name, holder, keys, rows::push_row};
use crate::{
    api::Failure,
    log,
    machine::{Now, Output},
};

impl PartitionOwner {
    /// Something was removed: it is collected after a while.
    pub(super) fn collect_soon(&mut self, now: Now, account: AccountId) {
        if let Some(entry) = self.accounts.get_mut(&account)
            && entry.collect_at.is_none()
        {
            let at = now.mono_micros + self.config.collect_after_seconds.max(1) * 1_000_000;
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
            if self.collect(account) {
                self.collect_soon(now, account);
            }
        }
    }

    /// Collects one account; says whether something remains for later.
    fn collect(&mut self, account: AccountId) -> bool {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return false;
        };
        let Phase::Running(replica) = &mut entry.phase else {
            return false;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
            return false;
        };
        if own.failed || !own.gate.is_idle() {
            // Only what is durable is stable; come back when nothing is under way.
            return true;
        }
        // With this node alone, all that is durable here is stable.
        let (unfinished, recovered) = (&self.unfinished, self.queue_recovered);
        let collected = replica.collect(own.log.applied(), &|entry| {
            recovered && !unfinished.contains(&entry)
        });
        // What stays hidden waits for a queue entry to be finished.
        let remains = replica.hidden() > 0;
        if collected.messages == 0 && collected.mailboxes == 0 {
            return remains;
        }
        let mut rows = replica.take_dirty();
        // A message must not outlive its mailbox in the store, wherever a crash comes between two of the commits.
        rows.sort_by_key(|(row, value)| matches!(row, RowKey::Mailbox(_)) && value.is_none());
        let mut mutations = Vec::with_capacity(rows.len());
        for (row, value) in rows {
            push_row(&mut mutations, account, &row, value);
        }
        // A blob goes after the rows that name it.
        let released = collected.released.iter();
        mutations.extend(released.map(|(origin, blob)| Mutation::Release {
            blob: blob_name(blob),
            holder: holder(account, *origin),
        }));
        let bytes = replica.memory_bytes();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        self.write_rows(account, mutations);
        remains
    }

    /// Removes all rows of an account that the directory no longer has, page by page.
    pub(super) fn purge(&mut self, account: AccountId) {
        self.drop_account(account, Failure::NoSuchAccount);
        let partition = keys::partition_of(account);
        let entry = super::Account {
            partition,
            phase: Phase::Purging,
            waiting: std::collections::VecDeque::new(),
            watchers: std::collections::BTreeSet::new(),
            newest: None,
            collect_at: None,
            last_use: self.next_use,
            bytes: 0,
        };
        self.accounts.insert(account, entry);
        let (from, to) = keys::whole_range(account);
        self.request(Load::Purge(account), partition, from, to);
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
