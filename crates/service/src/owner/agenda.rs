//! What an owner has to look at again: partitions and accounts with something to do when the present input is handled, and those that wait for a time.
//!
//! Entries are hints. What is noted twice is looked at once; a time that is not an account's or a partition's own any more is passed over by whoever
//! looks at it.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;

use super::keys::partition_of;
use crate::machine::{Input, Now};

#[derive(Default)]
pub(super) struct Agenda {
    /// Inputs that waited for an account, which is in memory now, or never will be.
    again: VecDeque<Input>,
    /// Partitions that have work for the store.
    work: BTreeSet<PartitionId>,
    /// Partitions of which accounts are being joined.
    joins: BTreeSet<PartitionId>,
    /// Accounts that have got watchers, or have lost some.
    watched: BTreeSet<AccountId>,
    /// Accounts with answers that are held.
    answers: BTreeSet<AccountId>,
    /// When a partition is to be looked at.
    partitions: BTreeSet<(u64, PartitionId)>,
    /// When an account no longer waits for other nodes.
    shows: BTreeSet<(u64, AccountId)>,
    /// When an account is due for collection.
    collections: BTreeSet<(u64, AccountId)>,
}

impl Agenda {
    // --- After the present input ---------------------------------------------------------------------------------------

    /// Inputs have waited for an account, and need not any more.
    pub(super) fn handle_again(&mut self, inputs: impl IntoIterator<Item = Input>) {
        self.again.extend(inputs);
    }

    pub(super) fn take_again(&mut self) -> VecDeque<Input> {
        std::mem::take(&mut self.again)
    }

    pub(super) fn work(&mut self, partition: PartitionId) {
        self.work.insert(partition);
    }

    pub(super) fn take_work(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.work)
    }

    pub(super) fn join(&mut self, partition: PartitionId) {
        self.joins.insert(partition);
    }

    pub(super) fn take_joins(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.joins)
    }

    /// The account has got watchers, or has lost some.
    pub(super) fn watched(&mut self, account: AccountId) {
        self.watched.insert(account);
    }

    pub(super) fn take_watched(&mut self) -> BTreeSet<AccountId> {
        std::mem::take(&mut self.watched)
    }

    /// Answers of the account may be ready, or are looked at each time.
    pub(super) fn answer(&mut self, account: AccountId) {
        self.answers.insert(account);
    }

    pub(super) fn take_answers(&mut self) -> BTreeSet<AccountId> {
        std::mem::take(&mut self.answers)
    }

    /// Whether clients of the partition are still to be answered.
    pub(super) fn owes_answers(&self, partition: PartitionId) -> bool {
        let mut accounts = self.answers.iter();
        accounts.any(|account| partition_of(*account) == partition)
    }

    // --- At a time -----------------------------------------------------------------------------------------------------

    pub(super) fn look_at(&mut self, at: u64, partition: PartitionId) {
        self.partitions.insert((at, partition));
    }

    /// The partition wants to be called at another time than before.
    pub(super) fn move_look(&mut self, from: Option<u64>, to: Option<u64>, partition: PartitionId) {
        if let Some(from) = from {
            self.partitions.remove(&(from, partition));
        }
        self.partitions.extend(to.map(|at| (at, partition)));
    }

    /// Partitions whose time has come.
    pub(super) fn take_due(&mut self, now: Now) -> BTreeSet<(u64, PartitionId)> {
        let first_later = (now.mono_micros + 1, PartitionId(0));
        let later = self.partitions.split_off(&first_later);
        std::mem::replace(&mut self.partitions, later)
    }

    /// What the account hides is shown at this time.
    pub(super) fn show_at(&mut self, at: Option<u64>, account: AccountId) {
        self.shows.extend(at.map(|at| (at, account)));
    }

    /// The next account whose time to be shown has come, and that time.
    pub(super) fn next_to_show(&mut self, now: Now) -> Option<(u64, AccountId)> {
        pop_due(&mut self.shows, now)
    }

    /// Accounts that hide something, or did a moment ago; those of an earlier time first.
    pub(super) fn hiding(&self) -> impl Iterator<Item = AccountId> {
        self.shows.iter().map(|(_, account)| *account)
    }

    pub(super) fn collect_at(&mut self, at: u64, account: AccountId) {
        self.collections.insert((at, account));
    }

    /// The next account that is due for collection, and since when.
    pub(super) fn next_to_collect(&mut self, now: Now) -> Option<(u64, AccountId)> {
        pop_due(&mut self.collections, now)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let accounts = [&self.shows, &self.collections];
        let accounts = accounts.into_iter().filter_map(|of| Some(of.first()?.0));
        let partitions = self.partitions.first().map(|(at, _)| *at);
        accounts.chain(partitions).min()
    }

    // --- Forgetting ----------------------------------------------------------------------------------------------------

    /// The partition is read anew, or gone: of its times those that are of no use are passed over.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.work.remove(&partition);
        self.joins.remove(&partition);
    }
}

fn pop_due(times: &mut BTreeSet<(u64, AccountId)>, now: Now) -> Option<(u64, AccountId)> {
    let (at, _) = times.first()?;
    if *at > now.mono_micros {
        return None;
    }
    times.pop_first()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNE: AccountId = AccountId([1; 16]);
    const BOB: AccountId = AccountId([2; 16]);

    #[test]
    fn accounts_are_due_in_the_order_of_their_times() {
        let mut agenda = Agenda::default();
        agenda.collect_at(20, ANNE);
        agenda.collect_at(10, BOB);
        agenda.show_at(Some(15), ANNE);
        agenda.show_at(None, BOB);
        assert_eq!(agenda.deadline(), Some(10));
        assert_eq!(agenda.next_to_collect(Now::mono(9)), None);
        assert_eq!(agenda.next_to_collect(Now::mono(20)), Some((10, BOB)));
        assert_eq!(agenda.next_to_collect(Now::mono(20)), Some((20, ANNE)));
        assert_eq!(agenda.next_to_collect(Now::mono(99)), None);
        assert_eq!(agenda.deadline(), Some(15));
        assert_eq!(agenda.hiding().collect::<Vec<_>>(), [ANNE]);
    }

    #[test]
    fn a_partition_is_looked_at_once_when_its_time_has_come() {
        let (mut agenda, partition) = (Agenda::default(), PartitionId::accounts(3));
        agenda.look_at(10, partition);
        agenda.move_look(Some(10), Some(12), partition);
        assert!(agenda.take_due(Now::mono(11)).is_empty());
        assert_eq!(agenda.take_due(Now::mono(12)).len(), 1);
        assert_eq!(agenda.deadline(), None);
    }
}
