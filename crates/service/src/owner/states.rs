//! What a partition gives to other nodes in place of logs, and takes from them (docs/replication.md, "State in place of a log").
//!
//! What comes is kept beside the partition's own rows, under the name of the state, and holds the bodies that it names. When all is here it is taken
//! over, and accounts are [joined](super::joining) with it one by one; what is of no use goes page by page.
//!
//! Invariants:
//! - One state comes at a time, and none while another is joined.
//! - Of a state that is of no use the next page goes when the one before is durable; a row says so until the last is gone.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::PartitionId;
use whimbrel_storage::{Commit, Mutation};

use super::{
    joining::Joining,
    keys,
    rows::{drop_coming, held_by_coming},
};
use crate::{
    log,
    machine::Ticket,
    peers::{
        Page, SnapshotProgress,
        snapshot::{Joined, decode_held, decode_rows, encode_held},
        taking::joining_row,
    },
};

#[derive(Default)]
pub(super) struct States {
    /// The one that is coming.
    taking: Option<SnapshotProgress>,
    /// Those of which what is held has to go, with the commit that says so while it is not durable.
    sweeps: BTreeMap<u64, Option<Ticket>>,
    /// Rows of one of these are being read.
    is_sweeping: bool,
    /// The one that was taken over.
    joining: Option<Joining>,
    /// Names of those that are given.
    given: BTreeSet<u64>,
    /// It was told that nothing is taken over because of a stalled account.
    is_told: bool,
}

impl States {
    /// As the rows of the partition say.
    ///
    /// # Errors
    /// When they are damaged.
    pub(super) fn of_rows(rows: &[(Vec<u8>, Bytes)]) -> Result<States, String> {
        let row = |of: &[u8]| {
            let mut rows = rows.iter();
            rows.find(|(key, _)| key == of).map(|(_, value)| value)
        };
        let last = row(log::TAKEN_KEY).map_or(Vec::new(), |last| last.to_vec());
        let taking = row(log::TAKING_KEY).map(|row| decode_held(row, last));
        let joining = row(log::JOINING_KEY)
            .map(|row| minicbor::decode::<Joined>(row).map_err(|error| error.to_string()));
        let swept = rows.iter().filter_map(|(key, _)| log::swept_of_key(key));
        Ok(States {
            taking: taking.transpose()?,
            sweeps: swept.map(|state| (state, None)).collect(),
            joining: joining.transpose()?.map(Joining::of),
            ..States::default()
        })
    }

    // --- Giving --------------------------------------------------------------------------------------------------------

    /// Rows are fixed under this name.
    pub(super) fn give(&mut self, state: u64) {
        self.given.insert(state);
    }

    /// Nobody reads them any more.
    pub(super) fn give_no_more(&mut self, state: u64) {
        self.given.remove(&state);
    }

    /// The partition is forgotten. Gives the names of what is fixed.
    pub(super) fn end(self) -> BTreeSet<u64> {
        self.given
    }

    // --- Taking --------------------------------------------------------------------------------------------------------

    /// The one that is coming.
    pub(super) fn taking(&self) -> Option<&SnapshotProgress> {
        self.taking.as_ref()
    }

    /// A state begins to come, in this commit; what is held of the one before is of no use.
    pub(super) fn begin(&mut self, held: SnapshotProgress, ticket: Ticket, commit: &mut Commit) {
        self.sweep_taking(ticket, commit);
        let mutations = &mut commit.mutations;
        mutations.push(put(log::TAKING_KEY, encode_held(&held)));
        mutations.push(delete(log::TAKEN_KEY));
        self.taking = Some(held);
    }

    /// Rows of it are kept, and that all up to `last` are here. Gives what is to be written.
    ///
    /// # Errors
    /// They are damaged, or not of accounts of the partition, or nothing is coming.
    pub(super) fn keep(
        &mut self,
        partition: PartitionId,
        last: Vec<u8>,
        rows: &Bytes,
    ) -> Result<Vec<Mutation>, String> {
        let rows = decode_rows(rows)?;
        let at_home = |(key, _): &(Bytes, Bytes)| {
            let account = keys::account_of_key(key);
            let is_at_home = account.is_some_and(|of| keys::partition_of(of) == partition);
            keys::is_of_state(key) && is_at_home
        };
        if !rows.iter().all(at_home) {
            return Err("a row that is no account's of it".into());
        }
        let held = self.taking.as_mut().ok_or_else(String::new)?;
        let mut kept = Vec::with_capacity(rows.len() + 1);
        for (key, value) in rows {
            let key = Bytes::from(keys::coming_key(held.snapshot.state, &key));
            let body = held_by_coming(&key, &value);
            kept.extend(body.map(|(blob, holder)| Mutation::Reference { blob, holder }));
            kept.push(Mutation::Put { key, value });
        }
        kept.push(put(log::TAKEN_KEY, last.clone().into()));
        held.last = last;
        Ok(kept)
    }

    /// Nothing of what is coming is wanted any more.
    pub(super) fn forget(&mut self, ticket: Ticket, commit: &mut Commit) {
        self.sweep_taking(ticket, commit);
        commit.mutations.push(delete(log::TAKING_KEY));
        commit.mutations.push(delete(log::TAKEN_KEY));
    }

    /// All of it is here, and is taken over with this commit.
    pub(super) fn take_over(&mut self, joined: Joined, ticket: Ticket, commit: &mut Commit) {
        commit.mutations.push(delete(log::TAKING_KEY));
        commit.mutations.push(delete(log::TAKEN_KEY));
        commit.mutations.push(joining_row(&joined));
        self.taking = None;
        self.joining = Some(Joining::begun(joined, ticket));
    }

    /// Whether it is to be said that what is here waits for a stalled account: once.
    pub(super) fn is_to_be_told(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    // --- Joining -------------------------------------------------------------------------------------------------------

    /// Whether accounts can be read: not while one is being taken over.
    pub(super) fn may_load(&self) -> bool {
        self.joining.as_ref().is_none_or(Joining::is_durable)
    }

    /// The one that accounts are joined with.
    pub(super) fn joining(&self) -> Option<&Joining> {
        self.joining.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn joining_mut(&mut self) -> Option<&mut Joining> {
        self.joining.as_mut()
    }

    /// Whether no account is to be joined, but those that cannot be.
    pub(super) fn has_joined(&self) -> bool {
        self.joining.as_ref().is_none_or(Joining::has_ended)
    }

    /// All accounts are joined, with this commit.
    pub(super) fn joined(&mut self, commit: &mut Commit) {
        self.joining = None;
        commit.mutations.push(delete(log::JOINING_KEY));
    }

    // --- What is of no use ---------------------------------------------------------------------------------------------

    /// A commit is durable.
    pub(super) fn durable(&mut self, ticket: Ticket) {
        for after in self.sweeps.values_mut() {
            if after.is_some_and(|after| after <= ticket) {
                *after = None;
            }
        }
    }

    /// The state of which the next page is to be read, to go; `None`: none, or a page is being read.
    pub(super) fn next_sweep(&mut self) -> Option<u64> {
        let mut ready = self.sweeps.iter().filter(|(_, after)| after.is_none());
        let next = ready.next().filter(|_| !self.is_sweeping);
        let state = next.map(|(state, _)| *state);
        self.is_sweeping |= state.is_some();
        state
    }

    /// The page was read, and goes with this commit.
    pub(super) fn sweep(&mut self, state: u64, page: Page, ticket: Ticket, commit: &mut Commit) {
        self.is_sweeping = false;
        for (key, value) in page.rows {
            drop_coming(&mut commit.mutations, key.into(), &value);
        }
        if page.end {
            let key = log::swept_key(state);
            commit.mutations.push(Mutation::Delete { key });
            self.sweeps.remove(&state);
        } else {
            // Goes on when this is durable: a page read before would have the same rows.
            self.sweeps.insert(state, Some(ticket));
        }
    }

    /// It could not be read: it is read again.
    pub(super) fn sweep_again(&mut self) {
        self.is_sweeping = false;
    }

    /// What is held of the coming one is of no use.
    fn sweep_taking(&mut self, ticket: Ticket, commit: &mut Commit) {
        let Some(held) = self.taking.take() else {
            return;
        };
        let state = held.snapshot.state;
        self.sweeps.insert(state, Some(ticket));
        commit.mutations.push(Mutation::Put {
            key: log::swept_key(state),
            value: Bytes::from_static(&[1]),
        });
    }
}

fn put(key: &'static [u8], value: Bytes) -> Mutation {
    let key = Bytes::from_static(key);
    Mutation::Put { key, value }
}

fn delete(key: &'static [u8]) -> Mutation {
    let key = Bytes::from_static(key);
    Mutation::Delete { key }
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::{Incarnation, VersionVector};
    use whimbrel_mailbox::{AccountId, RowKey};

    use super::*;
    use crate::peers::{Snapshot, snapshot::encode_rows};

    const ACCOUNT: AccountId = AccountId([5; 16]);

    fn progress(state: u64) -> SnapshotProgress {
        SnapshotProgress {
            donor: Incarnation::from_hash(1),
            snapshot: Snapshot {
                state,
                applied: VersionVector::new(),
                heads: BTreeMap::new(),
                hlc: 0,
            },
            last: Vec::new(),
        }
    }

    fn commit() -> Commit {
        Commit::new(log::store_partition(keys::partition_of(ACCOUNT)))
    }

    fn page(rows: usize, end: bool) -> Page {
        let row = |n: usize| (keys::coming_key(1, &n.to_be_bytes()), Bytes::new());
        let rows = (0..rows).map(row).collect();
        Page { rows, end }
    }

    /// The rows of the partition, as commits say them.
    fn stored(commits: &[Commit]) -> Vec<(Vec<u8>, Bytes)> {
        let mut rows = BTreeMap::new();
        for mutation in commits.iter().flat_map(|commit| &commit.mutations) {
            match mutation {
                Mutation::Put { key, value } => _ = rows.insert(key.to_vec(), value.clone()),
                Mutation::Delete { key } => _ = rows.remove(&key[..]),
                _ => {}
            }
        }
        rows.into_iter().collect()
    }

    #[test]
    fn what_is_held_of_a_state_before_goes_page_by_page() {
        let (mut states, mut begun) = (States::default(), commit());
        states.begin(progress(1), Ticket(1), &mut begun);
        assert_eq!(states.next_sweep(), None);
        states.begin(progress(2), Ticket(2), &mut begun);
        assert_eq!(states.taking().map(|held| held.snapshot.state), Some(2));
        states.durable(Ticket(1));
        assert_eq!(
            states.next_sweep(),
            None,
            "the commit that says so may fail"
        );
        states.durable(Ticket(2));
        assert_eq!((states.next_sweep(), states.next_sweep()), (Some(1), None));
        let mut swept = commit();
        states.sweep(1, page(3, false), Ticket(3), &mut swept);
        assert_eq!(swept.mutations.len(), 3);
        assert_eq!(states.next_sweep(), None);
        states.durable(Ticket(3));
        assert_eq!(states.next_sweep(), Some(1));
        // A crash leaves it to the next start.
        let mut again = States::of_rows(&stored(&[begun.clone()])).unwrap();
        assert_eq!(again.next_sweep(), Some(1));
        let mut last = commit();
        states.sweep(1, page(0, true), Ticket(4), &mut last);
        states.durable(Ticket(4));
        assert_eq!(states.next_sweep(), None);
        let mut again = States::of_rows(&stored(&[begun, last])).unwrap();
        assert_eq!(again.next_sweep(), None);
        assert_eq!(again.taking().map(|held| held.snapshot.state), Some(2));
    }

    #[test]
    fn rows_are_kept_of_accounts_of_the_partition_alone() {
        let here = keys::partition_of(ACCOUNT);
        let key = keys::row_key(ACCOUNT, &RowKey::Account);
        let rows = encode_rows([(&key[..], &b"row"[..])]);
        let mut states = States::default();
        assert!(
            states.keep(here, key.to_vec(), &rows).is_err(),
            "none comes"
        );
        states.begin(progress(1), Ticket(1), &mut commit());
        let kept = states.keep(here, key.to_vec(), &rows).unwrap();
        assert_eq!(kept.len(), 2);
        assert_eq!(states.taking().unwrap().last, key.to_vec());
        let elsewhere = PartitionId::accounts(here.bucket().unwrap().wrapping_add(1));
        assert!(states.keep(elsewhere, key.to_vec(), &rows).is_err());
        assert!(states.keep(here, key.to_vec(), &rows.slice(1..)).is_err());
    }
}
