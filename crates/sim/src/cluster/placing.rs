//! Nodes leave the partitions of accounts and come back while all else goes on (`docs/decisions/0040`), as `server::cluster::placing` has them do it,
//! but for whom it takes: here anybody may go whenever enough others have all.
//!
//! Clients go to nodes that hold their account. Of what a node has told in an earlier life it knows nothing any more: U2 is of a node and a life. In
//! the end all come back.
//!
//! Where members change, or disks are lost, too, one that is left holds each partition as a whole: nobody removes the last one, nor can anything be
//! done for what was on its disk.

use std::collections::BTreeSet;

use whimbrel_crdt::PartitionId;
use whimbrel_replication::roster::{Roster, RosterError};
use whimbrel_service::{
    api::AccountId,
    owner::keys::partition_of,
    peers::{PartitionReport, Phase},
};

use super::{MS, Plan, World, network::Event};
use crate::node::all_partitions;
use whimbrel_testkit::Rng;

/// Between two looks of a node at what it holds.
const LOOK_MICROS: u64 = 500 * MS;

/// Who leaves, and is not answered, stays after so many looks, about.
const PATIENCE_LOOKS: u64 = 20;

/// Who is away comes back after so many looks, about.
const AWAY_LOOKS: u64 = 8;

/// Whether all is here that clients may know.
fn is_complete(report: &PartitionReport) -> bool {
    report.open.is_some() && !report.syncing
}

impl Plan {
    /// In a quarter of the seeds nodes leave partitions.
    pub(super) fn with_leaving(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x01ea_5e5e_ed00);
        if rng.one_in(4) {
            self.leaves = rng.between(5, 40);
        }
        self
    }

    /// In one seed of eight accounts are anywhere, as many partitions as there are; else in few, so that they share some.
    pub(super) fn drawn_partitions(seed: u64) -> Option<u64> {
        let mut rng = Rng::new(seed ^ 0x09a2_7171_0200);
        let few = [2, 3, 4, 6, 8];
        (!rng.one_in(8)).then(|| *rng.pick(&few))
    }

    /// Partitions in which accounts are.
    pub(super) fn partitions(&self) -> BTreeSet<PartitionId> {
        let Some(count) = self.partitions else {
            return all_partitions();
        };
        let mut rng = Rng::new(self.seed ^ 0x00b0_c4e7_5000);
        let mut drawn = BTreeSet::new();
        while (drawn.len() as u64) < count.min(256) {
            drawn.insert(PartitionId::accounts(rng.number() as u8));
        }
        drawn
    }

    /// So many others hold each partition, at least, as in `server::cluster::placing::least`.
    fn holders_min(&self) -> usize {
        1 + self.other_nodes
    }
}

impl World {
    /// An account with an id that begins so, in a partition that there is.
    pub(super) fn account(&self, mut id: [u8; 16]) -> AccountId {
        while !self.partitions.contains(&partition_of(AccountId(id))) {
            id[15] = id[15].wrapping_add(1);
            id[14] = id[14].wrapping_add(u8::from(id[15] == 0));
        }
        AccountId(id)
    }

    /// Those of the accounts that clients go to.
    fn placed_partitions(&self) -> BTreeSet<PartitionId> {
        let accounts = self.accounts.iter();
        accounts.map(|account| partition_of(*account)).collect()
    }

    pub(super) fn begin_placing(&mut self) {
        (0..self.members.len()).for_each(|index| self.begin_placing_at(index));
    }

    pub(super) fn begin_placing_at(&mut self, index: usize) {
        if self.plan.leaves == 0 {
            return;
        }
        let least = self.plan.holders_min();
        self.members[index].node.hold_at_least(least);
        let first = self.rng.between(1, LOOK_MICROS);
        self.network.at(self.now + first, Event::Place(index));
    }

    fn phase(&self, at: usize, partition: PartitionId) -> Phase {
        let member = &self.members[at];
        member.roster.holder_state(member.id, partition).phase
    }

    /// Whether there is somebody else with all of each partition, who does not leave it.
    pub(super) fn is_complete_without(&self, gone: &BTreeSet<usize>) -> bool {
        let mut partitions = self.placed_partitions().into_iter();
        self.plan.leaves == 0 || partitions.all(|partition| self.is_held_without(gone, partition))
    }

    fn is_held_without(&self, gone: &BTreeSet<usize>, partition: PartitionId) -> bool {
        let mut left = self.there();
        left.retain(|index| !gone.contains(index) && !self.members[*index].doubtful);
        let has_all = |index: usize| {
            let report = self.report_of(index, partition);
            report.is_some_and(|of| is_complete(&of))
                && self.phase(index, partition) == Phase::Holds
        };
        left.into_iter().any(has_all)
    }

    fn report_of(&self, at: usize, partition: PartitionId) -> Option<PartitionReport> {
        self.members[at].node.report(partition)
    }

    /// Whether a node holds an account, and has all that clients may know of it.
    pub(super) fn serves(&self, at: usize, account: AccountId) -> bool {
        let partition = partition_of(account);
        if self.plan.leaves == 0 {
            return true;
        }
        let member = &self.members[at];
        let came_back = member.roster.holder_state(member.id, partition).generation > 0;
        let report = self.report_of(at, partition);
        let has_all = report.is_some_and(|of| is_complete(&of));
        self.phase(at, partition) == Phase::Holds && (has_all || !came_back)
    }

    /// One that clients of the account are served by.
    pub(super) fn any_serving_of(&mut self, account: AccountId) -> usize {
        let mut there = self.there();
        there.retain(|index| self.serves(*index, account));
        if there.is_empty() {
            return self.any_member();
        }
        *self.rng.pick(&there)
    }

    /// Machines are told who holds what.
    pub(super) fn tell_holders(&mut self, at: usize) {
        if self.plan.leaves == 0 {
            return;
        }
        let holders = self.members[at].roster.holders();
        for partition in self.placed_partitions() {
            self.members[at].node.placed(&holders, partition);
        }
    }

    /// A node looks at what it holds.
    pub(super) fn place(&mut self, at: usize) -> Result<(), String> {
        self.network.at(self.now + LOOK_MICROS, Event::Place(at));
        for partition in self.placed_partitions() {
            if self.members[at].down.is_none() && !self.members[at].out {
                self.bring(at);
                self.place_one(at, partition)?;
            }
        }
        Ok(())
    }

    fn place_one(&mut self, at: usize, partition: PartitionId) -> Result<(), String> {
        let (id, phase) = (self.members[at].id, self.phase(at, partition));
        let Some(report) = self.report_of(at, partition) else {
            if phase != Phase::Holds {
                self.tell_holders(at);
                return self.outcomes(at);
            }
            return Ok(());
        };
        let calm = self.calm;
        match (phase, report.left) {
            (Phase::Leaves, Some(left)) => {
                self.note("cluster: a node has left a partition");
                self.say_placed(at, "has left", |roster| {
                    roster.left(id, partition, left.end)
                })?;
                let accounts = self.accounts.clone().into_iter();
                let gone = accounts.filter(|account| partition_of(*account) == partition);
                gone.for_each(|account| {
                    self.looks.forget_account(at, account);
                    self.modseqs.forget((id, account));
                });
                Ok(())
            }
            (Phase::Leaves, None) if calm || self.rng.one_in(PATIENCE_LOOKS) => {
                self.note("cluster: a node stays after all");
                self.say_placed(at, "stays at", |roster| roster.stay(id, partition))
            }
            (Phase::Away, Some(left)) if left.is_gone && (calm || self.rng.one_in(AWAY_LOOKS)) => {
                self.note("cluster: a node comes back to a partition");
                self.say_placed(at, "comes back to", |roster| roster.come(id, partition))
            }
            (Phase::Holds, None) if !calm => {
                let whole = is_complete(&report);
                let enough = report.complete_at.len() >= self.plan.holders_min();
                let keeps = self.report_of(at, PartitionId::QUEUE);
                let alone = keeps.is_none_or(|queue| queue.keeps.contains(&partition));
                // Those to whom it would be left may have been removed by somebody of whom it has not heard.
                let held =
                    self.plan.membership == 0 || self.is_held_without(&[at].into(), partition);
                let may_leave = whole && enough && !alone && held;
                if may_leave && self.rng.one_in(self.plan.leaves) {
                    self.say_placed(at, "leaves", |roster| roster.leave(id, partition))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn say_placed(
        &mut self,
        at: usize,
        what: &str,
        change: impl FnOnce(&mut Roster) -> Result<(), RosterError>,
    ) -> Result<(), String> {
        self.say(|| format!("node {at} {what} a partition"));
        change(&mut self.members[at].roster).map_err(|error| error.to_string())?;
        self.changed(at)
    }

    /// Somebody who is not back yet.
    pub(super) fn not_back(&self) -> Option<String> {
        let partitions = self.placed_partitions();
        self.there().into_iter().find_map(|node| {
            let mut partitions = partitions.iter();
            let of = partitions.find(|of| self.phase(node, **of) != Phase::Holds)?;
            let report = self.report_of(node, *of);
            Some(format!(
                "node {node} is not back at {of:?}: {:?}",
                report.and_then(|of| of.left)
            ))
        })
    }
}
