//! The roster: who belongs to a cluster, and where each node is reached. One membership for all partitions of a node, replicated as a state.
//!
//! Every node keeps the complete roster. It sends the roster to each peer before anything else on a link, and again when it has changed; two rosters
//! that differ are merged. It takes a few kilobytes. `docs/decisions/0018` says why changes of it are no ops of a partition.
//!
//! Invariants:
//! - A slot is given once, by one sponsor, from its own share ([`Members`]). The number of the sponsoring is found in the roster itself, so a sponsor
//!   must have the roster durable before it answers the newcomer.
//! - Nothing is merged from a node that is no member: neither from a removed member, nor from a node that a removed member let in and of which no
//!   member has told.
//! - A node reports what it holds of a removed member's logs when the removal is durable here and nothing comes from that member any more.
//! - Only reports about closed logs are ever deleted, so a merge only adds.
//! - The roster fits into a frame ([`ROSTER_BYTES_MAX`], [`HOLDERS_BYTES_MAX`]), and the entries of members about partitions ([`Holders`]) never keep
//!   a node from being let in.

mod closing;

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Incarnation, PartitionId};

pub use closing::{Holding, Holdings};

use crate::{
    broken,
    holders::{HolderState, Holders, OutOfTurn, Phase},
    members::{Member, Members, Slots},
    placement::Role,
};

/// The longest encoded roster: 64 slots, so some dozens of members, each with a name and an address. Half of what a frame may have.
pub const ROSTER_BYTES_MAX: usize = 128 << 10;

/// The longest encoded [`Holders`], beside the rest. A node that is away from all partitions takes 3 KiB: enough for 38 of them.
pub const HOLDERS_BYTES_MAX: usize = 120 << 10;

/// With this length no node leaves another partition. The rest is room for entries that others write at the same time, and for entries that become
/// longer.
pub const LEAVING_BYTES_MAX: usize = 90 << 10;

/// Where a node is reached. The last place that the node itself announced counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Place {
    /// The version of the place.
    #[n(0)]
    pub version: u64,
    /// Its present life.
    #[n(1)]
    pub incarnation: Incarnation,
    /// Host and port.
    #[n(2)]
    pub address: String,
    /// Its region.
    #[n(3)]
    pub region: String,
    /// Its role, as [`Role::number`]; an unknown number counts as none.
    #[n(4)]
    pub role: Option<u16>,
    /// Whether the node knows that slots are given on ([`Roster::share_out`]). Absent: an earlier version, which does not.
    #[n(5)]
    pub shares: Option<bool>,
}

impl Place {
    /// Its role.
    pub fn role(&self) -> Role {
        Role::of_number(self.role)
    }
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Roster {
    #[n(0)]
    members: Members,
    /// By name.
    #[n(1)]
    places: BTreeMap<String, Place>,
    /// Which partitions members hold; a member without an entry holds all. Absent as long as there is no entry, and in rosters of older nodes.
    #[n(2)]
    holders: Option<Holders>,
}

/// Why the membership is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// The sponsor has no free slot.
    #[error("this node has no slot left to give")]
    NoSlot,
    /// The sponsor is no member.
    #[error("this node is no member")]
    NoMember,
    /// The node was removed.
    #[error("this node was removed from the cluster")]
    Removed,
    /// [`ROSTER_BYTES_MAX`], [`HOLDERS_BYTES_MAX`]
    #[error("the membership would be too long")]
    TooLong,
    /// Its phase in the partition does not allow the change.
    #[error(transparent)]
    OutOfTurn(#[from] OutOfTurn),
}

/// The result of merging another node's roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// It was merged.
    Taken {
        /// Whether anything was new.
        new: bool,
    },
    /// That node was removed: nothing was merged.
    Removed,
    /// No member has let that node in: nothing was merged.
    Stranger,
}

impl Roster {
    /// A cluster of one node, with this slot and this share of free slots.
    pub fn found(founder: Incarnation, name: &str, slot: u8, share: Slots) -> Self {
        Roster {
            members: Members::found(founder, name, slot, share),
            places: BTreeMap::new(),
            holders: None,
        }
    }

    /// The members.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The places of the nodes, by name.
    pub fn places(&self) -> &BTreeMap<String, Place> {
        &self.places
    }

    /// The members that were not removed.
    pub fn present(&self) -> impl Iterator<Item = (&str, &Place)> {
        let places = self.places.iter();
        let present = places.filter(|(_, place)| !self.members.is_out(place.incarnation));
        present.map(|(name, place)| (name.as_str(), place))
    }

    /// A node's entry for a partition.
    pub fn holder_state(&self, node: Incarnation, partition: PartitionId) -> HolderState {
        let said = self.holders.as_ref();
        said.map_or_else(HolderState::default, |of| of.holder_state(node, partition))
    }

    /// Whether a member holds a partition and does not leave it: then it may serve accounts of it.
    pub fn holds(&self, node: Incarnation, partition: PartitionId) -> bool {
        self.holder_state(node, partition).phase == Phase::Holds
    }

    /// `me` begins to leave a partition. The caller has to store that before anybody hears it.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then.
    pub fn leave(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), RosterError> {
        if bytes_of(&self.holders) >= LEAVING_BYTES_MAX {
            return Err(RosterError::TooLong);
        }
        self.say(me, |holders| holders.leave(me, partition))
    }

    /// `me` does not leave a partition after all.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then.
    pub fn stay(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), RosterError> {
        self.say(me, |holders| holders.stay(me, partition))
    }

    /// `me` has left a partition; `end`: the last number of its log.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then.
    pub fn left(
        &mut self,
        me: Incarnation,
        partition: PartitionId,
        end: u64,
    ) -> Result<(), RosterError> {
        self.say(me, |holders| holders.left(me, partition, end))
    }

    /// `me` comes back to a partition.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then.
    pub fn come(&mut self, me: Incarnation, partition: PartitionId) -> Result<(), RosterError> {
        self.say(me, |holders| holders.come(me, partition))
    }

    fn say(
        &mut self,
        me: Incarnation,
        change: impl FnOnce(&mut Holders) -> Result<(), OutOfTurn>,
    ) -> Result<(), RosterError> {
        if self.members.get(me).is_none() {
            return Err(RosterError::NoMember);
        }
        if self.members.is_out(me) {
            return Err(RosterError::Removed);
        }
        let mut changed = self.clone();
        change(changed.holders.get_or_insert_default())?;
        changed.fits()?;
        *self = changed;
        Ok(())
    }

    /// The entries of members for partitions.
    pub fn holders(&self) -> Holders {
        self.holders.clone().unwrap_or_default()
    }

    /// The members whose logs are open, with their slots.
    pub fn slots(&self) -> BTreeMap<Incarnation, u8> {
        let open = self.members.open();
        let slots = self.members.iter().filter(|(id, _)| open.contains(id));
        slots.map(|(id, member)| (id, member.slot)).collect()
    }

    /// The members whose logs are closed, with the slots that they had.
    pub fn former(&self) -> BTreeMap<Incarnation, u8> {
        let closed = |member: &Member| member.closed().is_some();
        let former = self.members.iter().filter(|(_, member)| closed(member));
        former.map(|(id, member)| (id, member.slot)).collect()
    }

    /// `sponsor` lets a node in. Whether the node is new.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then.
    pub fn sponsor(
        &mut self,
        sponsor: Incarnation,
        member: Incarnation,
        name: &str,
    ) -> Result<bool, RosterError> {
        if self.members.get(sponsor).is_none() {
            return Err(RosterError::NoMember);
        }
        if self.members.get(member).is_some() {
            return Ok(false);
        }
        if self.members.is_out(sponsor) {
            return Err(RosterError::Removed);
        }
        let mut changed = self.clone();
        if !changed.members.sponsor(sponsor, member, name) {
            return Err(RosterError::NoSlot);
        }
        changed.fits()?;
        *self = changed;
        Ok(true)
    }

    /// `me` gives free slots to those of `linked` that have fewer than their part, so that no member takes most of them along when it is lost.
    /// Whether it gave any. The caller has to store that before anybody hears it.
    ///
    /// Nothing is given while a member has a version that would count these slots as their former owners'.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]: nothing has changed then.
    pub fn share_out(
        &mut self,
        me: Incarnation,
        linked: &BTreeSet<Incarnation>,
    ) -> Result<bool, RosterError> {
        if self.present().any(|(_, place)| place.shares != Some(true)) {
            return Ok(false);
        }
        let mut changed = self.clone();
        let given = changed.members.share_out(me, linked);
        changed.fits()?;
        *self = changed;
        Ok(given)
    }

    /// `by` removes a member; `micros`: the wall clock. Whether the member was one and not removed before.
    ///
    /// # Errors
    /// [`RosterError::Removed`]: `by` itself was; [`RosterError::TooLong`]. Nothing has changed then.
    pub fn remove(
        &mut self,
        by: Incarnation,
        member: Incarnation,
        micros: u64,
    ) -> Result<bool, RosterError> {
        if self.members.is_out(by) {
            return Err(RosterError::Removed);
        }
        let mut changed = self.clone();
        let removed = changed.members.remove(by, member, micros);
        changed.fits()?;
        *self = changed;
        Ok(removed)
    }

    /// A node announces its place.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]
    pub fn announce(&mut self, name: &str, place: Place) -> Result<(), RosterError> {
        let mut changed = self.clone();
        changed.place(name, &place);
        changed.fits()?;
        *self = changed;
        Ok(())
    }

    fn place(&mut self, name: &str, place: &Place) {
        let ours = self.places.entry(name.to_owned());
        let ours = ours.or_insert_with(|| place.clone());
        // Two copies of one disk may have announced the same version: then the other fields decide, in the same way everywhere.
        if *ours < *place {
            *ours = place.clone();
        }
    }

    /// Merges another node's roster, if that node is a member.
    ///
    /// A node that is unknown here counts as a member if a member that was not removed has let it in. What a removed member did after its removal is
    /// not merged: other nodes may have reported already how much they hold of its logs.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]; nothing has changed then.
    pub fn hear(&mut self, from: Incarnation, theirs: &Self) -> Result<MergeOutcome, RosterError> {
        if self.members.is_out(from) && !broken("removed-ones-heard") {
            return Ok(MergeOutcome::Removed);
        }
        if self.members.get(from).is_none() {
            let mut at = from;
            // The sponsors form a tree: the path is no longer than the number of members.
            for _ in theirs.members.iter() {
                let Some(dot) = theirs.members.get(at).and_then(|member| member.sponsor()) else {
                    return Ok(MergeOutcome::Stranger);
                };
                at = dot.origin;
                if self.members.get(at).is_some() {
                    break;
                }
            }
            let known = self.members.get(at).is_some();
            if !known || self.members.is_out(at) && !broken("removed-ones-heard") {
                return Ok(MergeOutcome::Stranger);
            }
        }
        let new = self.join(theirs)?;
        Ok(MergeOutcome::Taken { new })
    }

    /// Merges a member's roster; whether anything was new.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]; nothing has changed then.
    pub fn join(&mut self, other: &Self) -> Result<bool, RosterError> {
        let mut joined = self.clone();
        joined.members.join(&other.members);
        for (name, place) in &other.places {
            joined.place(name, place);
        }
        if let Some(theirs) = &other.holders {
            joined.holders.get_or_insert_default().join(theirs);
        }
        joined.forget_words();
        joined.fits()?;
        let changed = joined != *self;
        *self = joined;
        Ok(changed)
    }

    /// Deletes the entries of nodes that are no members or whose logs are closed.
    fn forget_words(&mut self) {
        let open = |id| self.members.get(id).is_some_and(|of| of.closed().is_none());
        if let Some(mut holders) = self.holders.take() {
            holders.retain(open);
            self.holders = Some(holders).filter(|of| !of.is_empty());
        }
    }

    fn fits(&self) -> Result<(), RosterError> {
        let rest = bytes_of(&self.members) + bytes_of(&self.places);
        let fits = rest < ROSTER_BYTES_MAX && bytes_of(&self.holders) <= HOLDERS_BYTES_MAX;
        fits.then_some(()).ok_or(RosterError::TooLong)
    }

    /// Whether another node knows a member that `me` has let in and that is unknown here: then this disk is older than what it has reported.
    pub fn has_forgotten(&self, me: Incarnation, theirs: &Self) -> bool {
        theirs.members.iter().any(|(id, member)| {
            let by_me = member.sponsor().is_some_and(|dot| dot.origin == me);
            by_me && self.members.get(id).is_none()
        })
    }

    /// Another member with the same slot whose logs are open, too. Such a member comes from a sponsor that went on with an older disk without being
    /// noticed: the two must not write to the same accounts.
    pub fn clash(&self, id: Incarnation) -> Option<Incarnation> {
        let slots = self.slots();
        let slot = slots.get(&id)?;
        let mut others = slots.iter().filter(|(other, _)| **other != id);
        Some(*others.find(|(_, other)| *other == slot)?.0)
    }
}

fn bytes_of<T: Encode<()>>(of: &T) -> usize {
    minicbor::to_vec(of).map_or(usize::MAX, |bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    pub(super) fn founded() -> Roster {
        Roster::found(node(1), "a", 0, !1)
    }

    fn place(version: u64, address: &str) -> Place {
        Place {
            role: None,
            shares: None,
            version,
            incarnation: node(1),
            address: address.into(),
            region: "here".into(),
        }
    }

    #[test]
    fn slots_are_given_once_by_all_sponsors() {
        // Every node lets others in, without knowing the others' newcomers.
        let mut rosters = BTreeMap::from([(node(1), founded())]);
        let mut next = 2;
        loop {
            let before = next;
            for sponsor in rosters.keys().copied().collect::<Vec<_>>() {
                let mut roster = rosters[&sponsor].clone();
                match roster.sponsor(sponsor, node(next), &format!("n{next}")) {
                    Ok(new) => assert!(new),
                    Err(error) => {
                        assert_eq!(error, RosterError::NoSlot);
                        continue;
                    }
                }
                rosters.insert(node(next), roster.clone());
                rosters.insert(sponsor, roster);
                next += 1;
            }
            if next == before {
                break;
            }
        }
        let mut all = founded();
        for roster in rosters.values() {
            all.join(roster).unwrap();
        }
        let slots: std::collections::BTreeSet<u8> = all.slots().into_values().collect();
        // All slots, each once.
        assert_eq!((slots.len() as u64, next - 1), (64, 64));
        let clashes = all.slots().into_keys().filter_map(|id| all.clash(id));
        assert_eq!(clashes.count(), 0);
    }

    pub(super) const HERE: PartitionId = PartitionId::DIRECTORY;

    pub(super) fn held(of: u64, taken: u64, stored: u64, applied: u64) -> Holdings {
        let holding = Holding {
            taken,
            stored,
            applied,
            ..Holding::default()
        };
        [(node(of), [(HERE, holding)].into())].into()
    }

    /// Three members, of which the first removes the third.
    pub(super) fn removed() -> Roster {
        let mut roster = founded();
        for (id, name) in [(2, "b"), (3, "c")] {
            roster.sponsor(node(1), node(id), name).unwrap();
        }
        assert_eq!(roster.remove(node(1), node(3), 7), Ok(true));
        assert_eq!(roster.remove(node(2), node(3), 8), Ok(false));
        roster
    }

    #[test]
    fn a_node_let_in_after_the_removal_need_not_report() {
        let mut roster = removed();
        roster.sponsor(node(1), node(4), "d").unwrap();
        roster.settle(node(1), &held(3, 0, 0, 0)).unwrap();
        roster.settle(node(2), &held(3, 0, 0, 0)).unwrap();
        assert!(!roster.slots().contains_key(&node(3)));
    }

    #[test]
    fn a_removed_member_lets_nobody_in() {
        let ours = removed();
        // It has not heard of its removal, and is cut off.
        let mut theirs = founded();
        for (id, name) in [(2, "b"), (3, "c")] {
            theirs.sponsor(node(1), node(id), name).unwrap();
        }
        theirs.sponsor(node(3), node(4), "d").unwrap();
        theirs.sponsor(node(3), node(5), "e").unwrap();
        let hear = |ours: &Roster, from, theirs: &Roster| {
            let mut heard = ours.clone();
            let result = heard.hear(node(from), theirs);
            (heard, result)
        };
        assert_eq!(
            hear(&ours, 3, &theirs),
            (ours.clone(), Ok(MergeOutcome::Removed))
        );
        for from in [4, 5, 9] {
            let expected = (ours.clone(), Ok(MergeOutcome::Stranger));
            assert_eq!(hear(&ours, from, &theirs), expected);
        }
        // A member that had heard of the newcomers before tells of them.
        let (told, result) = hear(&ours, 2, &theirs);
        assert_eq!(result, Ok(MergeOutcome::Taken { new: true }));
        assert!(!told.members().is_out(node(5)));
        // When its logs are closed without them, they are no members, and learn it.
        let mut closed = ours;
        for me in [1, 2] {
            closed.settle(node(me), &held(3, 0, 0, 0)).unwrap();
        }
        let (told, result) = hear(&theirs, 1, &closed);
        assert_eq!(result, Ok(MergeOutcome::Taken { new: true }));
        for out in [3, 4, 5] {
            assert!(told.members().is_out(node(out)));
        }
        assert_eq!(
            told.clone().sponsor(node(4), node(6), "f"),
            Err(RosterError::Removed)
        );
    }

    #[test]
    fn a_founder_lets_in_sixteen_and_slots_come_back() {
        let mut roster = founded();
        for id in 2..=17 {
            roster.sponsor(node(1), node(id), "n").unwrap();
        }
        // Nodes are replaced one after the other, many times, by any member that still can let one in.
        for (oldest, id) in (2..).zip(18..400) {
            roster.remove(node(1), node(oldest), 1).unwrap();
            let members = roster.members();
            let others: Vec<Incarnation> = roster.slots().into_keys().collect();
            let others: Vec<Incarnation> = others
                .into_iter()
                .filter(|other| !members.is_out(*other))
                .collect();
            for other in others {
                roster.settle(other, &held(oldest, 3, 3, 3)).unwrap();
            }
            assert_eq!(roster.slots().len(), 16, "closed");
            assert_eq!(roster.sponsor(node(1), node(id), "n"), Ok(true), "{id}");
            assert_eq!(roster.clash(node(id)), None);
            let before = roster.members().holders_before(node(id));
            assert!(id > 32 || before.is_empty(), "{id}: those never used first");
        }
    }

    #[test]
    fn a_node_that_was_alone_gives_no_slot_it_has_had() {
        let mut roster = Roster::found(node(1), "a", 7, !0b1111);
        roster.sponsor(node(1), node(2), "b").unwrap();
        assert_eq!(roster.slots(), [(node(1), 7), (node(2), 4)].into());
        assert!(roster.members().holders_before(node(2)).is_empty());
        let mut none = Roster::found(node(1), "a", 7, 1 << 7);
        assert_eq!(
            none.sponsor(node(1), node(2), "b"),
            Err(RosterError::NoSlot)
        );
        assert_eq!(
            none.sponsor(node(9), node(2), "b"),
            Err(RosterError::NoMember)
        );
    }

    #[test]
    fn a_node_that_asks_twice_gets_the_same() {
        let mut roster = founded();
        assert_eq!(roster.sponsor(node(1), node(2), "b"), Ok(true));
        let once = roster.clone();
        assert_eq!(roster.sponsor(node(1), node(2), "b"), Ok(false));
        assert_eq!(roster, once);
    }

    #[test]
    fn an_older_disk_is_noticed_by_the_nodes_it_let_in() {
        let old = founded();
        let mut new = old.clone();
        new.sponsor(node(1), node(2), "b").unwrap();
        assert!(old.has_forgotten(node(1), &new));
        assert!(!new.has_forgotten(node(1), &old));
        // A newcomer of another sponsor does not concern this disk.
        assert!(!old.has_forgotten(node(2), &new));
        // If that goes unnoticed, it gives the slot again, and each node that meets both members notices it.
        let mut twice = old.clone();
        twice.sponsor(node(1), node(3), "c").unwrap();
        twice.join(&new).unwrap();
        assert_eq!(twice.clash(node(2)), Some(node(3)));
        assert_eq!(twice.clash(node(1)), None);
    }

    #[test]
    fn a_roster_that_would_be_too_long_does_not_change() {
        let mut roster = founded();
        let long = "x".repeat(ROSTER_BYTES_MAX);
        assert_eq!(
            roster.announce("a", place(1, &long)),
            Err(RosterError::TooLong)
        );
        let mut other = founded();
        other.place("a", &place(1, &long));
        assert_eq!(roster.join(&other), Err(RosterError::TooLong));
        assert_eq!(roster, founded());
        let mut bytes = Vec::new();
        crate::wire::Frame::Roster(roster).encode(&mut bytes);
    }

    #[test]
    fn entries_for_partitions_travel_with_the_roster() {
        let partition = PartitionId::accounts(3);
        let mut ours = founded();
        assert_eq!(ours.leave(node(9), partition), Err(RosterError::NoMember));
        assert!(ours.left(node(1), partition, 4).is_err(), "it holds it");
        ours.sponsor(node(1), node(2), "b").unwrap();
        let before = ours.clone();
        ours.leave(node(1), partition).unwrap();
        assert!(!ours.holds(node(1), partition) && ours.holds(node(2), partition));
        assert!(ours.holds(node(1), PartitionId::accounts(4)));
        // A roster from before there were such entries deletes none.
        let mut theirs = before.clone();
        assert_eq!(ours.clone().join(&theirs), Ok(false));
        assert_eq!(theirs.join(&ours), Ok(true));
        assert_eq!(theirs, ours);
        ours.left(node(1), partition, 4).unwrap();
        theirs.leave(node(2), partition).unwrap();
        theirs.join(&ours).unwrap();
        ours.join(&theirs).unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(ours.holder_state(node(1), partition).end, 4);
        ours.come(node(1), partition).unwrap();
        ours.remove(node(2), node(1), 0).unwrap();
        assert_eq!(ours.stay(node(1), partition), Err(RosterError::Removed));
        let words = |roster: &Roster| roster.holder_state(node(1), partition).version;
        assert_eq!(words(&ours), 3, "its logs are open");
        ours.settle(node(2), &held(1, 2, 2, 2)).unwrap();
        assert!(ours.members().open().len() == 1 && words(&ours) == 0);
        assert_eq!(
            ours.clone().join(&theirs),
            Ok(false),
            "nor do they come back"
        );
    }

    #[test]
    fn entries_for_partitions_are_bounded_and_keep_nobody_out() {
        let mut roster = founded();
        let mut said = 0;
        for id in 2..40 {
            let by = |by: u64, roster: &mut Roster| roster.sponsor(node(by), node(id), "b").is_ok();
            (1..id).any(|of| by(of, &mut roster));
            let mut mine = Holders::default();
            for partition in 0..256 {
                let of = PartitionId::accounts(partition as u8);
                mine.leave(node(id), of).unwrap();
                mine.left(node(id), of, u64::MAX).unwrap();
            }
            roster.holders.get_or_insert_default().join(&mine);
            if roster.members.get(node(id)).is_none() || roster.fits().is_err() {
                break;
            }
            said = id;
            if bytes_of(&roster.holders) >= LEAVING_BYTES_MAX {
                break;
            }
        }
        assert!(said > 10, "{said}");
        let refused = Err(RosterError::TooLong);
        assert_eq!(roster.leave(node(1), PartitionId::accounts(0)), refused);
        let left = said - 1;
        assert_eq!(roster.come(node(left), PartitionId::accounts(0)), Ok(()));
        assert!(roster.announce("c", place(1, "c:1")).is_ok());
        let mut bytes = Vec::new();
        crate::wire::Frame::Roster(roster).encode(&mut bytes);
    }

    fn some() -> impl Strategy<Value = Roster> {
        let joins = proptest::collection::vec((1u64..5, 2u64..9), 0..6);
        let places = proptest::collection::vec((0usize..2, 0u64..3, 0u8..3), 0..4);
        (joins, places).prop_map(|(joins, places)| {
            let mut roster = founded();
            for (sponsor, member) in joins {
                // Each node has one sponsor, as nodes guarantee.
                let _ = roster.sponsor(node(sponsor), node(member * 10 + sponsor), "n");
            }
            for (name, version, address) in places {
                let told = place(version, &address.to_string());
                roster.announce(["a", "b"][name], told).unwrap();
            }
            roster
        })
    }

    proptest! {
        #[test]
        fn joining_is_a_join(a in some(), b in some(), c in some()) {
            let join = |x: &Roster, y: &Roster| {
                let mut x = x.clone();
                x.join(y).unwrap();
                x
            };
            prop_assert_eq!(join(&a, &a), a.clone());
            prop_assert_eq!(join(&a, &b).places, join(&b, &a).places);
            let (left, right) = (join(&a, &join(&b, &c)), join(&join(&a, &b), &c));
            prop_assert_eq!(left.places, right.places);
            let ids = |roster: &Roster| roster.members().iter().map(|(id, _)| id).collect::<Vec<_>>();
            prop_assert_eq!(ids(&join(&a, &b)), ids(&join(&b, &a)));
            let mut joined = join(&a, &b);
            prop_assert_eq!(joined.join(&b), Ok(false));
        }
    }
}
