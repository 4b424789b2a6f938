//! What an account may hold (RFC 9208).
//!
//! Each node refuses what goes beyond by what it knows. Nodes that are apart may together let an account have more: then nothing is removed, and nothing
//! more is taken until it has less. Mail that was accepted is delivered whatever the quota is.

use std::collections::BTreeMap;

use whimbrel_directory::OwnQuota;
use whimbrel_mailbox::{AccountId, MAILBOXES_MAX, Replica};

use super::{
    Config, Mail, Phase,
    memory::{LoadedAccounts, Memory},
};
use crate::{
    api::{Failure, Quota, Usage},
    machine::{Note, Output},
};

const NO_MEMORY: &str = "The server has no memory for a larger account, try again later";

impl Mail {
    pub(super) fn usage(&self, account: AccountId) -> Result<Usage, Failure> {
        Ok(usage(
            self.accounts.replica(account)?,
            self.limits.quotas.of(account),
        ))
    }

    /// Whether an account may have so many more messages of so many bytes in all.
    pub(super) fn takes(
        &self,
        account: AccountId,
        messages: usize,
        bytes: u64,
    ) -> Result<(), Failure> {
        let usage = self.usage(account)?;
        let beyond = |used: u64, more: u64, max: Option<u64>| {
            more > 0 && max.is_some_and(|max| used.saturating_add(more) > max)
        };
        if beyond(usage.messages, messages as u64, usage.quota.messages_max) {
            return Err(Failure::OverQuota(
                "The account has as many messages as it may",
            ));
        }
        if beyond(usage.bytes, bytes, usage.quota.bytes_max) {
            return Err(Failure::OverQuota("The account has no room for it"));
        }
        self.may_grow(account)
    }

    /// Whether it may have mailboxes more.
    pub(super) fn takes_mailboxes(&self, account: AccountId, more: usize) -> Result<(), Failure> {
        if more == 0 {
            return Ok(());
        }
        let usage = self.usage(account)?;
        let max = usage.quota.mailboxes_max;
        if max.is_some_and(|max| usage.mailboxes + more as u64 > max) {
            return Err(Failure::OverQuota(
                "The account has as many mailboxes as it may",
            ));
        }
        self.may_grow(account)
    }

    /// Accounts that are watched are not evicted: the large ones among them do not grow when there is little memory left.
    pub(super) fn may_grow(&self, account: AccountId) -> Result<(), Failure> {
        let entry = self.accounts.get(&account);
        let bytes = entry.map_or(0, |entry| entry.measured.bytes);
        match self.limits.memory.may_grow(bytes) {
            true => Ok(()),
            false => Err(Failure::Limit(NO_MEMORY)),
        }
    }

    /// A call failed. The administrator can help with memory.
    pub(super) fn warn_of_memory(&mut self, account: AccountId, failure: &Failure) {
        if *failure == Failure::Limit(NO_MEMORY) {
            let text = format!(
                "no memory for a larger account, see storage.accounts_bytes_max; account={account}"
            );
            self.out.push(Output::Log(Note::Warning(text)));
        }
    }

    /// The directory says what an account may hold.
    pub(super) fn set_quota(&mut self, account: AccountId, own: OwnQuota) {
        self.limits.quotas.set(account, own);
        if let Some(entry) = self.accounts.get_mut(&account)
            && let Phase::Running(replica) = &mut entry.phase
        {
            let measured = self.limits.measure(&mut entry.measured, replica);
            self.out.extend(measured);
        }
    }
}

/// What accounts may hold, and the memory that they take.
pub(super) struct Limits {
    quotas: Quotas,
    pub(super) memory: Memory,
}

impl Limits {
    pub(super) fn new(config: &Config, loaded: LoadedAccounts) -> Self {
        Limits {
            quotas: Quotas::new(config.quota.clone()),
            memory: Memory::new(loaded, config.accounts_bytes_max, config.owners),
        }
    }

    /// An account has changed. The directory is told when it has reached its quota, or has room again: meanwhile no mail is accepted for it.
    pub(super) fn measure(
        &mut self,
        measured: &mut Measured,
        replica: &mut Replica,
    ) -> Option<Output> {
        let quota = self.quotas.of(replica.account());
        measured.again(replica, &mut self.memory, quota)
    }

    /// An account is not in memory any more.
    pub(super) fn forget(&mut self, measured: &mut Measured) {
        self.memory.change(std::mem::take(&mut measured.bytes), 0);
    }
}

/// What each account may hold.
struct Quotas {
    /// Those that have none of their own.
    all: Quota,
    own: BTreeMap<AccountId, Quota>,
}

impl Quotas {
    fn new(all: Quota) -> Self {
        let own = BTreeMap::new();
        Self { all, own }
    }

    fn of(&self, account: AccountId) -> &Quota {
        self.own.get(&account).unwrap_or(&self.all)
    }

    fn set(&mut self, account: AccountId, own: OwnQuota) {
        if own == OwnQuota::default() {
            self.own.remove(&account);
            return;
        }
        let all = &self.all;
        let limit = |own: Option<u64>, all: Option<u64>| match own {
            None => all,
            Some(u64::MAX) => None,
            own => own,
        };
        let most = MAILBOXES_MAX as u64;
        let mailboxes = limit(own.mailboxes, all.mailboxes_max).unwrap_or(most);
        let quota = Quota {
            bytes_max: limit(own.bytes, all.bytes_max),
            messages_max: limit(own.messages, all.messages_max),
            mailboxes_max: Some(mailboxes.min(most)),
        };
        self.own.insert(account, quota);
    }
}

/// What is known of the size of an account.
#[derive(Default)]
pub(super) struct Measured {
    /// Of its memory.
    pub(super) bytes: usize,
    /// Whether it has reached its quota, as the directory was told since it was loaded.
    full: Option<bool>,
}

impl Measured {
    fn again(
        &mut self,
        replica: &mut Replica,
        memory: &mut Memory,
        quota: &Quota,
    ) -> Option<Output> {
        let bytes = replica.memory_bytes();
        memory.change(std::mem::replace(&mut self.bytes, bytes), bytes);
        let used = replica.usage();
        let reached = |used: u64, max: Option<u64>| max.is_some_and(|max| used >= max);
        let full =
            reached(used.bytes, quota.bytes_max) || reached(used.messages, quota.messages_max);
        let is_news = self.full.replace(full) != Some(full);
        is_news.then(|| Output::Full(replica.account(), full))
    }
}

fn usage(replica: &Replica, quota: &Quota) -> Usage {
    let used = replica.usage();
    Usage {
        bytes: used.bytes,
        messages: used.messages,
        mailboxes: replica.names_count() as u64,
        quota: quota.clone(),
    }
}
