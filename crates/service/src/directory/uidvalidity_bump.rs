//! Which node raises a UIDVALIDITY that is too low, since another account held the address before.
//!
//! All nodes find the same accounts too low, and clients are to see each rise once. So it is left to the node whose change brought it about, if that
//! one holds the account's partition, and else to the first of those that do, in the order of incarnations. The others remember to whom, and leave it
//! to the next one when that one is removed, leaves the partition, or has not done it for a while: it may be away, or have heard of all that in
//! another order, and leave it to somebody else. After a start each node that holds it raises it.
//!
//! Nodes may know different holders for a while, and two raise it: then it rises twice. An owner that has heard of the first time does nothing
//! ([`MinUidValidity`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_directory::{AccountKey, Op};
use whimbrel_mailbox::AccountId;

use super::{Config, DirectoryOwner, Phase, Running};
use crate::{
    machine::{MinUidValidity, Now, Output},
    owner::keys::partition_of,
    peers,
};

/// So long it is left to one node: it has to hear of it, and the others that it is done.
const LEFT_MICROS: u64 = 30_000_000;

/// Accounts whose UIDVALIDITY is too low.
pub(super) type LeftTo = BTreeMap<AccountKey, NodeRemainder>;

/// What is left to a node.
pub(super) struct NodeRemainder {
    /// It is to raise the UIDVALIDITY,
    to: Incarnation,
    /// at least to this,
    least: u32,
    /// before this time of the monotonic clock, once that was looked at.
    until: Option<u64>,
}

impl Config {
    /// Whether a node is a member, and goes on holding a partition.
    fn holds(&self, node: Incarnation, partition: PartitionId) -> bool {
        let is_member = node == self.origin || self.peers.contains(&node);
        is_member && self.holders.holder_state(node, partition).phase == peers::Phase::Holds
    }

    /// Who is to raise what this node's change has brought about.
    fn raiser(&self, partition: PartitionId, by: Option<Incarnation>) -> Option<Incarnation> {
        let mut all = by.into_iter().chain(self.members());
        all.find(|node| self.holds(*node, partition))
    }

    /// Who is to do what this one has not done.
    fn raiser_after(&self, partition: PartitionId, node: Incarnation) -> Option<Incarnation> {
        let members = self.members();
        let later = members.iter().filter(|id| **id > node);
        let mut all = later.chain(&members).copied();
        all.find(|node| self.holds(*node, partition))
    }

    fn members(&self) -> BTreeSet<Incarnation> {
        self.peers.iter().copied().chain([self.origin]).collect()
    }
}

impl DirectoryOwner {
    /// This node has changed the directory, or has read it: owners are told again until they have answered by
    /// [`Input::UidValidity`](crate::machine::Input::UidValidity).
    pub(super) fn raise_all(&mut self) {
        self.share_out_all(Some(self.config.origin));
    }

    /// It was changed; `by`: by this node, if that is known.
    pub(super) fn share_out_all(&mut self, by: Option<Incarnation>) {
        if let Phase::Running(running) = &mut self.state {
            let found = running.directory.below_least().collect();
            running.share_out(&self.config, by, found, &mut self.out);
        }
    }

    /// What was left to a node for long enough goes to the next one.
    pub(super) fn share_out_late(&mut self, now: Now) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        let is_late =
            |left: &NodeRemainder| left.until.is_some_and(|until| until <= now.mono_micros);
        let late = running.left_to.iter().filter(|(_, left)| is_late(left));
        let late: BTreeSet<AccountKey> = late.map(|(account, _)| *account).collect();
        if !late.is_empty() {
            running.leave(&self.config, None, BTreeMap::new(), &late, &mut self.out);
        }
        for left in running.left_to.values_mut() {
            left.until
                .get_or_insert(now.mono_micros.saturating_add(LEFT_MICROS));
        }
    }

    /// Accounts whose UIDVALIDITY is to rise, and has not yet.
    #[must_use]
    pub fn too_low(&self) -> Vec<AccountId> {
        let Phase::Running(running) = &self.state else {
            return Vec::new();
        };
        let below = running.directory.below_least();
        below.map(|(account, _)| AccountId(account)).collect()
    }

    /// Members have come or gone, or leave partitions.
    pub(super) fn share_out_again(&mut self) {
        if let Phase::Running(running) = &mut self.state {
            running.share_out(&self.config, None, BTreeMap::new(), &mut self.out);
        }
    }
}

impl Running {
    /// Operations of another node were applied.
    pub(super) fn share_out_after(
        &mut self,
        config: &Config,
        by: Incarnation,
        ops: &[Op],
        out: &mut VecDeque<Output>,
    ) {
        let directory = &self.directory;
        let found = ops.iter().filter_map(|op| match op {
            Op::AddAccount { account, .. }
            | Op::RemoveAccount { account, .. }
            | Op::RaiseUidValidity { account, .. } => directory.below_least_beside(account),
            _ => None,
        });
        let found = found.collect();
        self.share_out(config, Some(by), found, out);
    }

    fn share_out(
        &mut self,
        config: &Config,
        by: Option<Incarnation>,
        below: BTreeMap<AccountKey, u32>,
        out: &mut VecDeque<Output>,
    ) {
        self.leave(config, by, below, &BTreeSet::new(), out);
    }

    /// When [`DirectoryOwner::share_out_late`] is wanted.
    pub(super) fn late_at(&self) -> Option<u64> {
        self.left_to.values().filter_map(|left| left.until).min()
    }

    /// Tells owners here what is left to this node: of these accounts, and of those that were too low before and are. Of those that are `late` it is
    /// left to the next one.
    fn leave(
        &mut self,
        config: &Config,
        by: Option<Incarnation>,
        mut below: BTreeMap<AccountKey, u32>,
        late: &BTreeSet<AccountKey>,
        out: &mut VecDeque<Output>,
    ) {
        let before = std::mem::take(&mut self.left_to);
        let still = before.keys();
        below.extend(still.filter_map(|account| self.directory.below_least_beside(account)));
        for (account, least) in below {
            let partition = partition_of(AccountId(account));
            let raiser = match before.get(&account) {
                None => config.raiser(partition, by),
                Some(left) if config.holds(left.to, partition) && !late.contains(&account) => {
                    Some(left.to)
                }
                Some(left) => config.raiser_after(partition, left.to),
            };
            let Some(to) = raiser else {
                continue;
            };
            let same = before.get(&account).filter(|left| {
                let is_late = late.contains(&account);
                left.to == to && left.least == least && !is_late
            });
            let until = same.and_then(|left| left.until);
            self.left_to
                .insert(account, NodeRemainder { to, least, until });
            let again = by == Some(config.origin);
            if to == config.origin
                && (same.is_none() || again)
                && let Some(entry) = self.directory.account(&account)
            {
                let next = self
                    .directory
                    .next_uid_validity(&entry.address, config.slot, least);
                let least = MinUidValidity { least, next };
                out.push_back(Output::LeastUidValidity(AccountId(account), least));
            }
        }
    }
}
