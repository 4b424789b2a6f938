//! What the members that hold a partition ask and tell each other when one of them leaves it (see [`super::leaving`]).

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_mailbox::BlobName;
use whimbrel_replication::wire::{COVERED_LACKS_MAX, Covered, Leaving as Ask};

use super::missing_blobs::MissingBlobs;
use crate::{
    machine::Now,
    peers::{Frame, on_wire},
};

/// How often those are asked again that have not answered.
const ASK_EVERY_MICROS: u64 = 1_000_000;

/// How often a member has come back to a partition: an answer counts for the life in which it was given.
pub(super) type Generation = u32;

#[derive(Default)]
pub(super) struct Parting {
    /// This node leaves.
    leaving: Option<Leaving>,
    /// What peers that leave have, and which bodies that it names are not here.
    covering: BTreeMap<Incarnation, Covering>,
    /// What peers are asked and told: the last of it.
    frames: BTreeMap<Incarnation, Frame>,
}

/// Who has said that it has all that is here.
#[derive(Default)]
struct Leaving {
    /// All that clients may have been told of; `None`: some of them are still to be answered.
    told: Option<VersionVector>,
    /// That is stable, and nothing new is taken.
    closing: bool,
    /// What each was asked, and in which of its lives.
    covered: BTreeMap<Incarnation, (Generation, VersionVector)>,
    /// Nobody is asked before.
    ask_at: u64,
}

/// What a peer that leaves has, and the bodies that were not here when all of that was seen to be applied. What is found to be missing later was brought by
/// operations that the peer does not have: else a partition that always waits for some body could not be left.
struct Covering {
    has: VersionVector,
    lacks: BTreeSet<BlobName>,
}

/// Whether this node takes anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// What its clients may have been told of is not stable.
    All,
    /// From now on it does not.
    NothingNow,
    /// It has not for a while.
    Nothing,
}

impl Parting {
    // --- This node leaves ----------------------------------------------------------------------------------------------

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    pub(super) fn leave(&mut self) {
        self.leaving = Some(Leaving::default());
    }

    /// It goes on holding the partition; `false`: it did not leave.
    pub(super) fn stay(&mut self) -> bool {
        self.leaving.take().is_some()
    }

    /// When somebody is to be asked again.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.leaving.as_ref().map(|leaving| leaving.ask_at)
    }

    /// All clients were answered. `told`: what they may have been told of, if it is so for the first time.
    pub(super) fn takes(
        &mut self,
        told: impl FnOnce() -> VersionVector,
        stable: &VersionVector,
    ) -> Takes {
        let Some(leaving) = &mut self.leaving else {
            return Takes::All;
        };
        let told = leaving.told.get_or_insert_with(told);
        if leaving.closing {
            return Takes::Nothing;
        }
        leaving.closing = stable.covers_all(told) || broken("left-before-told-is-stable");
        match leaving.closing {
            true => Takes::NothingNow,
            false => Takes::All,
        }
    }

    /// Whether those are to be asked now that have not answered; then they are not before the next time.
    pub(super) fn is_due(&mut self, now: Now) -> bool {
        let Some(leaving) = &mut self.leaving else {
            return false;
        };
        let is_due = leaving.ask_at <= now.mono_micros;
        if is_due {
            leaving.ask_at = now.mono_micros + ASK_EVERY_MICROS;
        }
        is_due
    }

    /// Who of these has not said that it has all of this.
    pub(super) fn lack(
        &self,
        staying: &[(Incarnation, Generation)],
        has: &VersionVector,
    ) -> Vec<Incarnation> {
        let covered = self.leaving.as_ref().map(|leaving| &leaving.covered);
        let lacks = |(peer, generation): &&(Incarnation, Generation)| {
            let covered = covered.and_then(|covered| covered.get(peer));
            covered.is_none_or(|(of, had)| of != generation || had != has)
        };
        let lack = staying.iter().filter(lacks);
        lack.map(|(peer, _)| *peer).collect()
    }

    /// A peer is asked whether it has all of this.
    pub(super) fn ask(&mut self, peer: Incarnation, partition: PartitionId, has: VersionVector) {
        let ask = Ask { partition, has };
        self.frames.insert(peer, Frame::Leaving(ask));
    }

    /// A peer has all of this; `false`: nobody asked.
    pub(super) fn covered(
        &mut self,
        peer: Incarnation,
        generation: Generation,
        has: VersionVector,
    ) -> bool {
        let covered = self.leaving.as_mut().map(|leaving| &mut leaving.covered);
        covered
            .map(|covered| covered.insert(peer, (generation, has)))
            .is_some()
    }

    /// A body is here now: who has said that it is missing there, too, is asked again.
    pub(super) fn ask_anew(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.covered.clear();
        }
    }

    // --- A peer leaves -------------------------------------------------------------------------------------------------

    /// Peers leave no more of which this does not hold.
    pub(super) fn retain(&mut self, leaves: impl Fn(Incarnation) -> bool) {
        self.covering.retain(|peer, _| leaves(*peer));
    }

    /// A peer that leaves is told that all is applied here that it has. `false`: too many bodies of that are missing.
    pub(super) fn cover(
        &mut self,
        peer: Incarnation,
        ask: Ask,
        holders: BTreeSet<Incarnation>,
        missing: &MissingBlobs,
    ) -> bool {
        let lacks = self.lacks_of(peer, &ask.has, missing);
        if lacks.len() > COVERED_LACKS_MAX {
            return false;
        }
        let covered = Covered {
            partition: ask.partition,
            lacks: lacks.iter().map(on_wire).collect(),
            has: ask.has,
            holders,
        };
        self.frames.insert(peer, Frame::Covered(covered));
        true
    }

    /// The bodies that are not here of those that a peer may have, all of whose operations are applied.
    fn lacks_of(
        &mut self,
        peer: Incarnation,
        has: &VersionVector,
        missing: &MissingBlobs,
    ) -> &BTreeSet<BlobName> {
        let now = || Covering {
            has: has.clone(),
            lacks: missing.keys().copied().collect(),
        };
        let covering = self.covering.entry(peer).or_insert_with(now);
        if covering.has != *has {
            *covering = now();
        }
        covering.lacks.retain(|blob| missing.contains_key(blob));
        &covering.lacks
    }

    /// Bodies of what was applied long ago are missing, or will be.
    pub(super) fn lacks_anew(&mut self) {
        self.covering.clear();
    }

    // --- Streams -------------------------------------------------------------------------------------------------------

    /// The stream to a peer is new, or gone.
    pub(super) fn stream_of(&mut self, peer: Incarnation) {
        self.frames.remove(&peer);
    }

    pub(super) fn transmit(&mut self, peer: Incarnation) -> Option<Frame> {
        self.frames.remove(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> Incarnation {
        Incarnation::from_hash(id)
    }

    fn vector(number: u64) -> VersionVector {
        [(node(9), number)].into_iter().collect()
    }

    #[test]
    fn an_answer_counts_for_what_was_asked_and_for_one_life() {
        let mut parting = Parting::default();
        assert!(!parting.covered(node(1), 0, vector(5)), "it does not leave");
        parting.leave();
        let staying = [(node(1), 0), (node(2), 3)];
        assert_eq!(parting.lack(&staying, &vector(5)), [node(1), node(2)]);
        assert!(parting.covered(node(1), 0, vector(5)));
        assert!(parting.covered(node(2), 2, vector(5)));
        assert_eq!(parting.lack(&staying, &vector(5)), [node(2)]);
        assert!(parting.covered(node(2), 3, vector(5)));
        assert!(parting.lack(&staying, &vector(5)).is_empty());
        // More has come to this disk, or a body.
        assert_eq!(parting.lack(&staying, &vector(6)).len(), 2);
        parting.ask_anew();
        assert_eq!(parting.lack(&staying, &vector(5)).len(), 2);
        assert!(parting.stay() && !parting.stay());
    }

    #[test]
    fn nothing_new_is_taken_when_what_was_told_is_stable() {
        let mut parting = Parting::default();
        parting.leave();
        assert_eq!(parting.takes(|| vector(5), &vector(4)), Takes::All);
        // What is told later does not count.
        assert_eq!(parting.takes(|| vector(9), &vector(5)), Takes::NothingNow);
        assert_eq!(parting.takes(|| vector(9), &vector(5)), Takes::Nothing);
    }

    #[test]
    fn who_has_not_answered_is_asked_each_second() {
        let mut parting = Parting::default();
        parting.leave();
        let asked = [0, 1, ASK_EVERY_MICROS - 1, ASK_EVERY_MICROS]
            .map(|now| parting.is_due(Now::mono(now)));
        assert_eq!(asked, [true, false, false, true]);
        assert_eq!(parting.deadline(), Some(2 * ASK_EVERY_MICROS));
        parting.ask(node(1), PartitionId::accounts(1), vector(1));
        parting.stream_of(node(1));
        assert!(parting.transmit(node(1)).is_none());
    }
}
