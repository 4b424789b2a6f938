//! Who belongs to a cluster, as a CRDT: joining, removal, closing of logs, slots. [`crate::roster`] keeps it and hands it on.
//!
//! Invariants:
//! - Members own disjoint shares of the slots and give slots from their own only: no two members whose logs are not closed have one slot.
//! - Only the owner of a free slot gives it on to another member, and numbers that with those that it lets in. So what others say of a removed member
//!   covers these gifts, too: one of which nobody has heard when its logs are closed is void ([`slots`]).
//! - A log is closed when all other members say the same of it, each after it knew of the removal and took nothing more from the removed one
//!   itself. From then on what any of them gets of it, it gets from another who has said the same, so nobody ever gets more. What they say covers the
//!   nodes that
//!   the removed one let in, too: whom nobody has heard of by then is no member, and its slot is the heir's.
//! - Of what a member has said the last word counts. It says all of them anew when it hears of another removal, so whoever knows its word about one
//!   knows what it
//!   said of the others at that time, or later.
//! - It ends before the first batch that rests on what nobody has, since another removed one took that with it: such a batch can be applied nowhere.
//! - A closed log is the same everywhere, and stays closed.
//!
//! A node asks a second sponsor only under a new incarnation, so each is joined once.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation, PartitionId};

use crate::broken;

mod slots;

use slots::Grants;

/// Slots, one bit each.
pub type Slots = u64;

/// How much of a removed member's logs a node holds, and how many it knows to have been let in by it. Two who say the same hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Said {
    /// Which of the words of this node about that member it is; 0: the first, and where it does not matter.
    #[n(3)]
    #[cbor(default)]
    turn: u64,
    /// All of it, counted, for people.
    #[n(0)]
    sum: u64,
    /// Of the last numbers in all partitions, and of the gaps.
    #[n(1)]
    digest: u64,
    /// How many it has let in.
    #[n(2)]
    sponsored: u64,
}

/// In which partitions something of a removed member's log rests on what is not here; of which log, and up to where that one is here; and whether
/// this node is syncing in the partition. If it is not it says that of closed logs only.
pub type Gaps = BTreeSet<(PartitionId, Dot, bool)>;

/// Where the closed logs of some end, by partition; where none is said there is nothing of them.
pub type Ends = BTreeMap<Incarnation, BTreeMap<PartitionId, u64>>;

/// Where they end in one partition.
pub fn ends_in(ends: &Ends, partition: PartitionId) -> BTreeMap<Incarnation, u64> {
    let of = |logs: &BTreeMap<PartitionId, u64>| logs.get(&partition).copied().unwrap_or(0);
    ends.iter().map(|(id, logs)| (*id, of(logs))).collect()
}

impl Said {
    /// `logs`: the last number by partition.
    pub fn of(sponsored: u64, logs: &BTreeMap<PartitionId, u64>, gaps: &Gaps) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut sum = sponsored;
        for (partition, last) in logs.iter().filter(|(_, last)| **last > 0) {
            hasher.update(&partition.0.to_be_bytes());
            hasher.update(&last.to_be_bytes());
            sum = sum.saturating_add(*last);
        }
        for (partition, last, syncing) in gaps {
            hasher.update(if *syncing { b"new" } else { b"gap" });
            hasher.update(&partition.0.to_be_bytes());
            hasher.update(&last.origin.get().to_be_bytes());
            hasher.update(&last.seq.to_be_bytes());
        }
        let hash = hasher.finalize();
        let digest = hash.as_bytes().first_chunk().copied();
        Said {
            turn: 0,
            sum,
            digest: digest.map_or(0, u64::from_be_bytes),
            sponsored,
        }
    }

    /// Operations, and nodes that were let in.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// What is said, whenever it was.
    fn vote(self) -> Self {
        Said { turn: 0, ..self }
    }
}

/// What is known of the logs of one that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Ending {
    /// By each other member, while it is not closed.
    #[n(0)]
    said: BTreeMap<Incarnation, Said>,
    /// What of that could be applied: all, but for what rests on what nobody has.
    #[n(1)]
    closed: Option<Said>,
}

/// One member, or one that was. The number 7 was used for closing a single partition.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Member {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its slot.
    #[cbor(n(1), decode_with = "a_slot")]
    pub slot: u8,
    #[n(2)]
    sponsor: Option<Dot>,
    #[n(3)]
    share: Slots,
    /// Who has removed it, and when: the number is the wall clock's, for people.
    #[n(4)]
    removals: BTreeSet<Dot>,
    /// Of closing a single partition: empty, and there for whoever knows nothing else.
    #[n(5)]
    by_partition: BTreeMap<Incarnation, u64>,
    /// Nodes whose sponsor knew of the removal: they have nothing to say to it.
    #[n(6)]
    excused: BTreeSet<Incarnation>,
    #[n(8)]
    ending: Option<Ending>,
    /// Free slots that it has given on. Absent as long as it has given none, and where older nodes wrote it.
    #[n(9)]
    grants: Option<Grants>,
}

/// A slot as it came: beyond 63 there is none.
fn a_slot<C>(d: &mut minicbor::Decoder<'_>, _: &mut C) -> Result<u8, minicbor::decode::Error> {
    let slot = d.u8()?;
    if slot < 64 {
        Ok(slot)
    } else {
        Err(minicbor::decode::Error::message("no slot"))
    }
}

impl Member {
    fn new(name: &str, slot: u8, sponsor: Option<Dot>, share: Slots) -> Self {
        Member {
            name: name.to_owned(),
            slot,
            sponsor,
            share,
            removals: BTreeSet::new(),
            by_partition: BTreeMap::new(),
            excused: BTreeSet::new(),
            ending: None,
            grants: None,
        }
    }

    /// Who let it in, and as its how manieth; `None`: it founded the cluster.
    pub fn sponsor(&self) -> Option<Dot> {
        self.sponsor
    }

    /// Who has removed it, and at which microsecond since 1970.
    pub fn removals(&self) -> impl Iterator<Item = Dot> {
        self.removals.iter().copied()
    }

    /// Where its logs end, if they are closed.
    pub fn closed(&self) -> Option<Said> {
        self.ending.as_ref().and_then(|ending| ending.closed)
    }

    /// What others have said of its logs so far.
    pub fn said(&self) -> impl Iterator<Item = (Incarnation, Said)> {
        let said = self.ending.iter().flat_map(|ending| &ending.said);
        said.map(|(who, said)| (*who, *said))
    }

    fn join(&mut self, theirs: &Self) {
        self.removals.extend(&theirs.removals);
        self.excused.extend(&theirs.excused);
        if let Some(theirs) = &theirs.ending {
            let ours = self.ending.get_or_insert_default();
            for (who, said) in &theirs.said {
                let last = ours.said.entry(*who).or_insert(*said);
                *last = (*last).max(*said);
            }
            ours.closed = ours.closed.max(theirs.closed);
        }
        if let Some(theirs) = &theirs.grants {
            self.grants.get_or_insert_default().join(theirs);
        }
        self.settle();
    }

    /// What was said before it was closed is over.
    fn settle(&mut self) {
        if let Some(ending) = self.ending.as_mut().filter(|e| e.closed.is_some()) {
            ending.said.clear();
            self.excused.clear();
        }
    }
}

/// The membership of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Members(#[n(0)] BTreeMap<Incarnation, Member>);

impl Members {
    /// The first node, which was alone before, under this slot, and owns these others: those that no incarnation of it has had.
    pub fn found(founder: Incarnation, name: &str, slot: u8, share: Slots) -> Self {
        let slot = slot & 63;
        let member = Member::new(name, slot, None, share & !(1 << slot));
        Self([(founder, member)].into())
    }

    /// Joins another replica's state.
    pub fn join(&mut self, other: &Self) {
        for (id, theirs) in &other.0 {
            match self.0.get_mut(id) {
                Some(ours) => ours.join(theirs),
                None => drop(self.0.insert(*id, theirs.clone())),
            }
        }
        self.forget_grants();
    }

    /// A member is gone, or no longer wanted; `micros`: the wall clock, for people. Whether it was there, and not removed.
    pub fn remove(&mut self, by: Incarnation, member: Incarnation, micros: u64) -> bool {
        let Some(member) = self.0.get_mut(&member) else {
            return false;
        };
        let new = member.removals.is_empty();
        if new {
            member.removals.insert(Dot::new(by, micros));
        }
        new
    }

    /// `me` holds so much of a removed member's logs, durable. Whether that says anything new.
    pub fn say(&mut self, me: Incarnation, of: Incarnation, said: Said) -> bool {
        let Some(member) = self.0.get_mut(&of).filter(|m| m.closed().is_none()) else {
            return false;
        };
        let ending = member.ending.get_or_insert_default();
        let before = ending.said.get(&me).copied();
        if before.is_some_and(|before| before.vote() == said.vote()) {
            return false;
        }
        // It may be less than before: what others hold may be lost with them.
        let turn = before.map_or(0, |before| before.turn.saturating_add(1));
        ending.said.insert(me, Said { turn, ..said });
        true
    }

    /// Closes what can be closed; whether anything was. `ended`: what this node holds of each of which it will never apply more, and what it has
    /// applied of that.
    ///
    /// Two that are removed at once do not wait for each other; but either may have let in someone the rest does not know of, and what one wrote may
    /// rest on what the other did, so all must be agreed on. Who holds the same of all of them has applied the same in the end, so the ends are the
    /// same wherever they are found.
    pub fn close(&mut self, ended: &BTreeMap<Incarnation, (Said, Said)>) -> bool {
        let ready: Vec<(Incarnation, Option<Said>)> = self
            .closing()
            .into_iter()
            .map(|id| {
                let agreed = self.agreed(id);
                let end = ended.get(&id).filter(|(held, _)| agreed == Some(*held));
                (id, end.map(|(_, end)| *end))
            })
            .collect();
        if ready.iter().any(|(_, said)| said.is_none()) && !broken("closed-too-early") {
            return false;
        }
        let mut closed = false;
        for (id, said) in ready {
            if let (Some(member), Some(said)) = (self.0.get_mut(&id), said) {
                member.ending.get_or_insert_default().closed = Some(said);
                member.settle();
                closed = true;
            }
        }
        closed
    }

    /// Members that were removed, and whose logs are not closed.
    pub fn closing(&self) -> Vec<Incarnation> {
        let removed = self.0.iter().filter(|(_, m)| !m.removals.is_empty());
        let open = removed.filter(|(_, member)| member.closed().is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// Who has to say how much it holds of a removed member's logs, and has said what.
    pub fn holders(&self, of: Incarnation) -> BTreeMap<Incarnation, Option<Said>> {
        let Some(member) = self.0.get(&of) else {
            return BTreeMap::new();
        };
        let said = member.said().map(|(who, said)| (who, said.vote()));
        let said: BTreeMap<Incarnation, Said> = said.collect();
        let others = self.0.iter();
        let others = others.filter(|(other, state)| **other != of && state.removals.is_empty());
        let all: BTreeMap<Incarnation, Option<Said>> = others
            .map(|(other, _)| (*other, said.get(other).copied()))
            .collect();
        // Who had to say it and was removed, too, says nothing any more: those who got something from it say what they have, excused or not.
        let silent = self.0.iter().any(|(other, state)| {
            let removed = !state.removals.is_empty() && state.closed().is_none();
            removed && *other != of && !member.excused.contains(other)
        });
        if silent && !broken("excused-all-the-same") {
            return all;
        }
        let asked = all.iter().filter(|(id, _)| !member.excused.contains(id));
        let asked: BTreeMap<_, _> = asked.map(|(id, said)| (*id, *said)).collect();
        if asked.is_empty() { all } else { asked }
    }

    /// What all others say of a removed member's logs, if they say the same.
    fn agreed(&self, id: Incarnation) -> Option<Said> {
        let holders = self.holders(id);
        let mut said = holders.values();
        if broken("closed-too-early") {
            return said.find_map(|said| *said);
        }
        let first = (*said.next()?)?;
        said.all(|said| *said == Some(first)).then_some(first)
    }

    /// Members whose logs are open: stability counts them.
    pub fn open(&self) -> BTreeSet<Incarnation> {
        let open = self
            .0
            .iter()
            .filter(|(_, member)| member.closed().is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// Whether it belongs to the cluster no more: it was removed, or let in by one that had been, of which the others had not heard when they closed
    /// that one's logs.
    pub fn is_out(&self, id: Incarnation) -> bool {
        let removed = |member: &Member| !member.removals.is_empty();
        self.get(id).is_some_and(removed) || self.is_void(id)
    }

    fn is_void(&self, id: Incarnation) -> bool {
        let line = std::iter::once(id).chain(self.sponsors(id));
        line.filter_map(|id| self.0.get(&id)?.sponsor)
            .any(|sponsor| {
                let closed = self.0.get(&sponsor.origin).and_then(Member::closed);
                closed.is_some_and(|said| sponsor.seq > said.sponsored)
            })
    }

    /// How many nodes a member has let in, and how often it has given slots on.
    pub fn sponsored(&self, by: Incarnation) -> u64 {
        let numbers = self.0.values().filter_map(|member| {
            let dot = member.sponsor.filter(|dot| dot.origin == by)?;
            Some(dot.seq)
        });
        let grants = self.0.get(&by).and_then(|member| member.grants.as_ref());
        let last = grants.map_or(0, Grants::last);
        numbers.max().unwrap_or(0).max(last)
    }

    /// All members, and those that were.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, &Member)> {
        self.0.iter().map(|(id, member)| (*id, member))
    }

    /// One member.
    pub fn get(&self, id: Incarnation) -> Option<&Member> {
        self.0.get(&id)
    }

    /// Those whose slot a member has got when their logs were closed: it must know all that they wrote before it gives a UID.
    pub fn holders_before(&self, id: Incarnation) -> BTreeSet<Incarnation> {
        let Some(slot) = self.0.get(&id).map(|member| member.slot) else {
            return BTreeSet::new();
        };
        let others = self
            .0
            .iter()
            .filter(|(other, m)| **other != id && m.slot == slot);
        let closed = others.filter(|(_, member)| member.closed().is_some());
        closed.map(|(other, _)| *other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_beyond_the_last_is_refused() {
        let founder = Incarnation::new(1).unwrap();
        let founded = Members::found(founder, "a", 0, !1);
        let bytes = minicbor::to_vec(&founded).unwrap();
        assert_eq!(minicbor::decode::<Members>(&bytes).unwrap(), founded);
        let at = bytes
            .windows(2)
            .position(|pair| pair == [0x61, b'a'])
            .unwrap()
            + 2;
        assert_eq!(bytes[at], 0, "the slot lies behind the name");
        let mut wrong = bytes.clone();
        wrong.splice(at..=at, [0x18, 64]);
        assert!(minicbor::decode::<Members>(&wrong).is_err());
    }
}
