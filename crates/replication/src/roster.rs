//! Who belongs to a cluster, and where each is reached: one membership for all partitions of a node, handed on as a state.
//!
//! Every node keeps the whole of it and shows it to each peer before anything else on a link, and again when it has changed; two that differ are
//! joined. It is a few kilobytes. `docs/decisions/0018` says why it is no operation of a partition.
//!
//! Invariants:
//! - A slot is given by one sponsor, from its own share, once ([`Members`]): the number of the sponsoring is found in the state itself, so a
//!   sponsor must have the state durable before it answers the newcomer.
//! - Nothing is ever taken out, so that a join only adds.
//! - It fits into a frame ([`ROSTER_BYTES_MAX`]).

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};

use crate::members::{Members, Slots};

/// Encoded. 64 slots, so some dozens of members, each with a name and an address; half of what a frame may have.
pub const ROSTER_BYTES_MAX: usize = 128 << 10;

/// Where a node is reached. The last one that the node itself told counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Place {
    /// Counts what the node told of itself.
    #[n(0)]
    pub version: u64,
    /// Its present life.
    #[n(1)]
    pub incarnation: Incarnation,
    /// Host and port.
    #[n(2)]
    pub address: String,
    /// Where it stands.
    #[n(3)]
    pub region: String,
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Roster {
    #[n(0)]
    members: Members,
    /// By name.
    #[n(1)]
    places: BTreeMap<String, Place>,
}

/// Why the membership is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// The sponsor has none to give.
    #[error("this node has no slot left to give")]
    NoSlot,
    /// The sponsor is none.
    #[error("this node is no member")]
    NoMember,
    /// [`ROSTER_BYTES_MAX`]
    #[error("the membership would be too long")]
    TooLong,
}

impl Roster {
    /// The first node, which has this slot and may give those of the share.
    pub fn found(founder: Incarnation, name: &str, slot: u8, share: Slots) -> Self {
        Roster {
            members: Members::found_with(founder, name, slot, share),
            places: BTreeMap::new(),
        }
    }

    /// Who belongs to it.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Where the nodes are, by name.
    pub fn places(&self) -> &BTreeMap<String, Place> {
        &self.places
    }

    /// The members whose logs are open, with their slots.
    pub fn slots(&self) -> BTreeMap<Incarnation, u8> {
        let open = self.members.open();
        let slots = self.members.iter().filter(|(id, _)| open.contains(id));
        slots.map(|(id, member)| (id, member.slot)).collect()
    }

    /// `sponsor` lets a node in; whether it was not in before.
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
        let op = self.members.plan_join(sponsor, member, name);
        let op = op.ok_or(RosterError::NoSlot)?;
        let numbers = self.members.iter().filter_map(|(_, member)| {
            let dot = member.sponsor()?;
            (dot.origin == sponsor).then_some(dot.seq)
        });
        let number = numbers.max().unwrap_or(0) + 1;
        let context = Context {
            dot: Dot::new(sponsor, number),
            // Nobody is evicted by this membership, so nobody has to be excused from knowing of it.
            stamp: Stamp {
                hlc: 0,
                origin: sponsor,
            },
            deps: &VersionVector::default(),
        };
        let mut changed = self.clone();
        changed.members.apply(&context, &op);
        changed.fits()?;
        *self = changed;
        Ok(true)
    }

    /// A node tells where it is.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]
    pub fn tell(&mut self, name: &str, place: Place) -> Result<(), RosterError> {
        let mut changed = self.clone();
        changed.place(name, &place);
        changed.fits()?;
        *self = changed;
        Ok(())
    }

    fn place(&mut self, name: &str, place: &Place) {
        let ours = self.places.entry(name.to_owned());
        let ours = ours.or_insert_with(|| place.clone());
        // Two copies of one disk may have told the same number: the rest decides, everywhere alike.
        if *ours < *place {
            *ours = place.clone();
        }
    }

    /// Takes over what another node knows; whether anything was new.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]; nothing has changed then.
    pub fn join(&mut self, other: &Self) -> Result<bool, RosterError> {
        let mut joined = self.clone();
        joined.members.join(&other.members);
        for (name, place) in &other.places {
            joined.place(name, place);
        }
        joined.fits()?;
        let changed = joined != *self;
        *self = joined;
        Ok(changed)
    }

    fn fits(&self) -> Result<(), RosterError> {
        match minicbor::to_vec(self) {
            Ok(bytes) if bytes.len() <= ROSTER_BYTES_MAX => Ok(()),
            _ => Err(RosterError::TooLong),
        }
    }

    /// Whether another node knows of one that `me` has let in and does not know: then this disk is older than what was told from it.
    pub fn has_forgotten(&self, me: Incarnation, theirs: &Self) -> bool {
        theirs.members.iter().any(|(id, member)| {
            let by_me = member.sponsor().is_some_and(|dot| dot.origin == me);
            by_me && self.members.get(id).is_none()
        })
    }

    /// Another member with the slot of this one. It comes from a sponsor that went on from an older disk without being noticed: the two must
    /// not write to the same accounts.
    pub fn clash(&self, id: Incarnation) -> Option<Incarnation> {
        let slot = self.members.get(id)?.slot;
        let mut others = self.members.iter().filter(|(other, _)| *other != id);
        let other = others.find(|(_, member)| member.slot == slot)?;
        Some(other.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    fn founded() -> Roster {
        Roster::found(node(1), "a", 0, !1)
    }

    fn place(version: u64, address: &str) -> Place {
        Place {
            version,
            incarnation: node(1),
            address: address.into(),
            region: "here".into(),
        }
    }

    #[test]
    fn slots_are_given_once_by_all_sponsors() {
        // Everyone lets others in, none knowing of the others' newcomers.
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
        // All of them, each once.
        assert_eq!((slots.len() as u64, next - 1), (64, 64));
        let clashes = all.slots().into_keys().filter_map(|id| all.clash(id));
        assert_eq!(clashes.count(), 0);
    }

    #[test]
    fn a_node_that_was_alone_gives_no_slot_it_has_had() {
        let mut roster = Roster::found(node(1), "a", 7, !0b1111);
        roster.sponsor(node(1), node(2), "b").unwrap();
        assert_eq!(roster.slots(), [(node(1), 7), (node(2), 4)].into());
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
    fn who_asks_twice_is_given_the_same() {
        let mut roster = founded();
        assert_eq!(roster.sponsor(node(1), node(2), "b"), Ok(true));
        let once = roster.clone();
        assert_eq!(roster.sponsor(node(1), node(2), "b"), Ok(false));
        assert_eq!(roster, once);
    }

    #[test]
    fn an_older_disk_is_noticed_by_whom_it_let_in() {
        let old = founded();
        let mut new = old.clone();
        new.sponsor(node(1), node(2), "b").unwrap();
        assert!(old.has_forgotten(node(1), &new));
        assert!(!new.has_forgotten(node(1), &old));
        // What the other did is no concern of this disk.
        assert!(!old.has_forgotten(node(2), &new));
        // Unnoticed, it gives the slot again, and that is seen by whoever meets both.
        let mut twice = old.clone();
        twice.sponsor(node(1), node(3), "c").unwrap();
        twice.join(&new).unwrap();
        assert_eq!(twice.clash(node(2)), Some(node(3)));
        assert_eq!(twice.clash(node(1)), None);
    }

    #[test]
    fn what_is_too_long_changes_nothing() {
        let mut roster = founded();
        let long = "x".repeat(ROSTER_BYTES_MAX);
        assert_eq!(roster.tell("a", place(1, &long)), Err(RosterError::TooLong));
        let mut other = founded();
        other.place("a", &place(1, &long));
        assert_eq!(roster.join(&other), Err(RosterError::TooLong));
        assert_eq!(roster, founded());
        let mut bytes = Vec::new();
        crate::wire::Frame::Roster(roster).encode(&mut bytes);
    }

    #[test]
    fn a_slot_beyond_the_last_is_refused() {
        let bytes = minicbor::to_vec(founded()).unwrap();
        assert_eq!(minicbor::decode::<Roster>(&bytes).unwrap(), founded());
        let at = bytes
            .windows(2)
            .position(|pair| pair == [0x61, b'a'])
            .unwrap()
            + 2;
        assert_eq!(bytes[at], 0, "the slot lies behind the name");
        let mut wrong = bytes.clone();
        wrong.splice(at..=at, [0x18, 64]);
        assert!(minicbor::decode::<Roster>(&wrong).is_err());
    }

    fn some() -> impl Strategy<Value = Roster> {
        let joins = proptest::collection::vec((1u64..5, 2u64..9), 0..6);
        let places = proptest::collection::vec((0usize..2, 0u64..3, 0u8..3), 0..4);
        (joins, places).prop_map(|(joins, places)| {
            let mut roster = founded();
            for (sponsor, member) in joins {
                // One sponsor each, as nodes owe it.
                let _ = roster.sponsor(node(sponsor), node(member * 10 + sponsor), "n");
            }
            for (name, version, address) in places {
                let told = place(version, &address.to_string());
                roster.tell(["a", "b"][name], told).unwrap();
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
