//! Accounts that are in memory, or are coming into it or going from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, Replica, RowKey};

use super::{
    failover::TakeoverRoom, held_answers::WaitingAnswer, joining::Coming, keys::partition_of,
    outbox::Outbox, quota::Measured,
};
use crate::{
    api::{Failure, SessionId},
    machine::{Input, Ticket},
};

pub(super) struct Account {
    pub(super) partition: PartitionId,
    pub(super) phase: Phase,
    /// What waits for it to be loaded.
    pub(super) waiting: VecDeque<Input>,
    pub(super) watchers: BTreeSet<SessionId>,
    /// Answers for which it is not enough that what they tell is on disk here.
    pub(super) held: Vec<WaitingAnswer>,
    /// When something of it is shown although not all have heard of it, on the monotonic clock.
    pub(super) wait_until: Option<u64>,
    /// The newest commit of the account.
    pub(super) newest: Option<Ticket>,
    /// When removed messages are due to be dropped, on the monotonic clock.
    pub(super) collect_at: Option<u64>,
    pub(super) takeover_room: TakeoverRoom,
    pub(super) measured: Measured,
    last_use: u64,
}

impl Account {
    fn new(partition: PartitionId) -> Self {
        Account {
            partition,
            phase: Phase::Absent,
            waiting: VecDeque::new(),
            watchers: BTreeSet::new(),
            held: Vec::new(),
            wait_until: None,
            newest: None,
            collect_at: None,
            takeover_room: TakeoverRoom::default(),
            measured: Measured::default(),
            last_use: 0,
        }
    }

    /// When it was used last, by a count of uses.
    pub(super) fn last_use(&self) -> u64 {
        self.last_use
    }

    /// The newest commit of the account, if it is under way: what is read from the store would be older than it, and answers wait for it.
    pub(super) fn under_way(&self, out: &Outbox) -> Option<Ticket> {
        self.newest.filter(|newest| out.is_under_way(*newest))
    }
}

pub(super) enum Phase {
    /// Waits for its partition.
    Absent,
    Loading {
        rows: Vec<(RowKey, Vec<u8>)>,
        /// All were read, and it is being made of them.
        building: Option<Ticket>,
    },
    /// Nothing is stored: the directory is asked.
    Asking,
    /// Nothing is stored, and a batch of another node that is about to be applied names it.
    Unopened,
    /// The same, and the account was removed: what the batch does to it is dropped.
    Removed,
    /// It was read, and becomes the join of that and what came with a state.
    Joining(Box<Coming>),
    /// It was stalled: what is held for it is being applied.
    Resuming(Box<Replica>),
    Running(Box<Replica>),
    /// Its rows are being removed.
    Purging,
}

#[derive(Default)]
pub(super) struct Accounts {
    all: BTreeMap<AccountId, Account>,
    uses: u64,
}

impl Accounts {
    pub(super) fn get(&self, account: &AccountId) -> Option<&Account> {
        self.all.get(account)
    }

    pub(super) fn get_mut(&mut self, account: &AccountId) -> Option<&mut Account> {
        self.all.get_mut(account)
    }

    /// What is known of the account, which is used now.
    pub(super) fn used(&mut self, account: AccountId) -> &mut Account {
        self.uses += 1;
        let new = || Account::new(partition_of(account));
        let entry = self.all.entry(account).or_insert_with(new);
        entry.last_use = self.uses;
        entry
    }

    /// Nothing is known of the account but that its rows go. `newest`: what was written to it last, if that is under way.
    pub(super) fn purge(&mut self, account: AccountId, newest: Option<Ticket>) {
        let entry = Account {
            phase: Phase::Purging,
            newest,
            last_use: self.uses,
            ..Account::new(partition_of(account))
        };
        self.all.insert(account, entry);
    }

    pub(super) fn remove(&mut self, account: &AccountId) -> Option<Account> {
        self.all.remove(account)
    }

    /// The account, if it is in memory.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn replica(&self, account: AccountId) -> Result<&Replica, Failure> {
        match self.all.get(&account).map(|entry| &entry.phase) {
            Some(Phase::Running(replica)) => Ok(replica),
            _ => Err(Failure::Temporary),
        }
    }

    /// The same, to be changed.
    pub(super) fn replica_mut(&mut self, account: AccountId) -> Option<&mut Replica> {
        match &mut self.all.get_mut(&account)?.phase {
            Phase::Running(replica) => Some(replica),
            _ => None,
        }
    }

    /// What came of the account, if it is being joined with that.
    pub(super) fn coming(&mut self, account: AccountId) -> Option<&mut Coming> {
        match &mut self.all.get_mut(&account)?.phase {
            Phase::Joining(coming) => Some(coming),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, AccountId, Account> {
        self.all.iter()
    }

    /// The accounts of a partition.
    pub(super) fn of_mut(
        &mut self,
        partition: PartitionId,
    ) -> impl Iterator<Item = (AccountId, &mut Account)> {
        let all = self.all.iter_mut();
        let of_it = all.filter(move |(_, entry)| entry.partition == partition);
        of_it.map(|(account, entry)| (*account, entry))
    }

    /// Those of a partition of which this is so.
    pub(super) fn find(
        &self,
        partition: PartitionId,
        is_so: impl Fn(&Account) -> bool,
    ) -> Vec<AccountId> {
        let all = self.all.iter();
        let of_it = all.filter(|(_, entry)| entry.partition == partition && is_so(entry));
        of_it.map(|(account, _)| *account).collect()
    }
}
