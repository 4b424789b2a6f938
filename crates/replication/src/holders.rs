//! Which partitions a member holds: replicated with the roster; each node writes only about itself.
//!
//! A member that has no entry holds everything, as all members did before there was placement. A node leaves a partition in two steps. First it
//! *leaves*: it writes no more there and accepts nothing. When the other holders have all that it has, it is *away*: it drops its rows, and its entry
//! says where its log ends. When it comes back it begins a new *generation*: its reports of the one before do not count (`docs/decisions/0040`).
//!
//! Invariants:
//! - Only a node itself changes its entry, each time with a greater version, and has it on disk before it sends it.
//! - A generation ends only when the node is away. The number at which its log ends never falls.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Incarnation, PartitionId};

use crate::partition::Membership;

/// The phase of a node in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Phase {
    /// The node holds the partition: it accepts batches, and serves when it lacks nothing for that.
    #[default]
    #[n(0)]
    Holds,
    /// The node still has its rows and logs, and neither writes nor accepts anything.
    #[n(1)]
    Leaves,
    /// The node has nothing of the partition.
    #[n(2)]
    Away,
}

/// A node's entry for one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct HolderState {
    /// The version of the entry: the greatest one counts.
    #[n(0)]
    pub version: u32,
    /// Counts how often it came back.
    #[n(1)]
    pub generation: u32,
    /// The present phase.
    #[n(2)]
    pub phase: Phase,
    /// The last number of its log, when it is away; also that of the generations before.
    #[n(3)]
    pub end: u64,
}

impl HolderState {
    /// The entry as the partition machine needs it.
    pub fn membership(self) -> Membership {
        Membership {
            generation: self.generation,
            left: (self.phase == Phase::Away).then_some(self.end),
        }
    }

    /// The next version, with another phase.
    fn then(self, phase: Phase) -> Self {
        HolderState {
            version: self.version + 1,
            phase,
            ..self
        }
    }
}

/// Why a node's entry is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node that {from:?} cannot be one that {to:?}")]
pub struct OutOfTurn {
    /// The present phase.
    pub from: Phase,
    /// The phase that was asked for.
    pub to: Phase,
}

/// The entries of all members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Holders(#[n(0)] BTreeMap<Incarnation, BTreeMap<PartitionId, HolderState>>);

impl Holders {
    /// A node's entry for a partition.
    pub fn holder_state(&self, node: Incarnation, partition: PartitionId) -> HolderState {
        let said = self.0.get(&node).and_then(|of| of.get(&partition));
        said.copied().unwrap_or_default()
    }

    /// Whether a node goes on holding a partition.
    pub fn holds(&self, node: Incarnation, partition: PartitionId) -> bool {
        self.holder_state(node, partition).phase == Phase::Holds
    }

    /// The entries of these nodes for a partition.
    pub fn of(
        &self,
        partition: PartitionId,
        nodes: impl IntoIterator<Item = Incarnation>,
    ) -> BTreeMap<Incarnation, HolderState> {
        let nodes = nodes.into_iter();
        nodes
            .map(|node| (node, self.holder_state(node, partition)))
            .collect()
    }

    /// The node begins to leave: it writes no more there and accepts nothing.
    ///
    /// [`OutOfTurn`]: it does not hold the partition.
    pub fn leave(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), OutOfTurn> {
        let now = self.holder_state(me, partition);
        let held = now.phase == Phase::Holds;
        self.say(
            me,
            partition,
            held.then(|| now.then(Phase::Leaves)),
            now,
            Phase::Leaves,
        )
    }

    /// The node does not leave after all, and holds the partition as before.
    ///
    /// # Errors
    /// [`OutOfTurn`]: it was not leaving.
    pub fn stay(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), OutOfTurn> {
        let now = self.holder_state(me, partition);
        let leaves = now.phase == Phase::Leaves;
        self.say(
            me,
            partition,
            leaves.then(|| now.then(Phase::Holds)),
            now,
            Phase::Holds,
        )
    }

    /// The node is away: others have all that it had. `end`: the last number of its log.
    ///
    /// # Errors
    /// [`OutOfTurn`]: it was not leaving.
    pub fn left(
        &mut self,
        me: Incarnation,
        partition: PartitionId,
        end: u64,
    ) -> Result<(), OutOfTurn> {
        let now = self.holder_state(me, partition);
        let leaves = now.phase == Phase::Leaves;
        let away = HolderState {
            end: end.max(now.end),
            ..now.then(Phase::Away)
        };
        self.say(me, partition, leaves.then_some(away), now, Phase::Away)
    }

    /// The node comes back and holds the partition again, without any rows.
    ///
    /// [`OutOfTurn`]: the node is not away.
    pub fn come(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), OutOfTurn> {
        let now = self.holder_state(me, partition);
        let away = now.phase == Phase::Away;
        let again = HolderState {
            generation: now.generation + 1,
            ..now.then(Phase::Holds)
        };
        self.say(me, partition, away.then_some(again), now, Phase::Holds)
    }

    fn say(
        &mut self,
        me: Incarnation,
        partition: PartitionId,
        next: Option<HolderState>,
        now: HolderState,
        to: Phase,
    ) -> Result<(), OutOfTurn> {
        let from = now.phase;
        let next = next.ok_or(OutOfTurn { from, to })?;
        self.0.entry(me).or_default().insert(partition, next);
        Ok(())
    }

    /// Keeps the entries of these nodes only.
    pub(crate) fn retain(&mut self, of: impl Fn(Incarnation) -> bool) {
        self.0.retain(|node, _| of(*node));
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges another node's entries; whether anything was new.
    pub fn join(&mut self, theirs: &Self) -> bool {
        let mut new = false;
        for (node, of) in &theirs.0 {
            for (partition, holder_state) in of {
                let ours = self.0.entry(*node).or_default();
                let ours = ours.entry(*partition).or_default();
                // Two copies of one disk may have written the same version: then the other fields decide, in the same way everywhere.
                new |= *ours < *holder_state;
                *ours = (*ours).max(*holder_state);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionId = PartitionId::accounts(3);

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).expect("not zero")
    }

    #[test]
    fn a_generation_ends_by_being_away() {
        let mut holders = Holders::default();
        let me = node(1);
        assert_eq!(
            holders.holder_state(me, PARTITION).membership(),
            Membership::default()
        );
        assert!(holders.left(me, PARTITION, 4).is_err(), "it holds it");
        assert!(holders.come(me, PARTITION).is_err(), "it is there");
        assert_eq!(holders.leave(me, PARTITION), Ok(()));
        assert!(holders.leave(me, PARTITION).is_err(), "it leaves");
        let leaving = holders.holder_state(me, PARTITION).membership();
        assert_eq!(leaving, Membership::default(), "it has what it had");
        assert_eq!(holders.stay(me, PARTITION), Ok(()));
        assert_eq!(holders.leave(me, PARTITION), Ok(()));
        assert_eq!(holders.left(me, PARTITION, 4), Ok(()));
        let left = Some(4);
        assert_eq!(
            holders.holder_state(me, PARTITION).membership(),
            Membership {
                generation: 0,
                left
            }
        );
        assert!(
            holders.stay(me, PARTITION).is_err(),
            "it has nothing any more"
        );
        assert_eq!(holders.come(me, PARTITION), Ok(()));
        let again = holders.holder_state(me, PARTITION).membership();
        assert_eq!(
            again,
            Membership {
                generation: 1,
                left: None
            }
        );
        let other = holders.holder_state(me, PartitionId::accounts(4));
        assert_eq!(other, HolderState::default(), "of another nothing was said");
    }

    #[test]
    fn the_greatest_version_counts() {
        let (mut ours, me) = (Holders::default(), node(1));
        let mut known = vec![ours.clone()];
        for (index, end) in [(0, 3), (1, 9)] {
            assert_eq!(ours.leave(me, PARTITION), Ok(()), "{index}");
            known.push(ours.clone());
            assert_eq!(ours.left(me, PARTITION, end), Ok(()), "{index}");
            known.push(ours.clone());
            assert_eq!(ours.come(me, PARTITION), Ok(()), "{index}");
            known.push(ours.clone());
        }
        for (at, older) in known.iter().enumerate() {
            for (than, newer) in known.iter().enumerate() {
                let mut joined = older.clone();
                assert_eq!(joined.join(newer), than > at, "{at} {than}");
                assert_eq!(joined, known[at.max(than)]);
            }
        }
        let bytes = minicbor::to_vec(&ours).expect("it is encoded");
        assert_eq!(minicbor::decode::<Holders>(&bytes).ok(), Some(ours));
    }
}
