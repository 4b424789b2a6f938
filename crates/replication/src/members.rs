//! The members of a cluster as a CRDT: joining, removal, closing of logs, slots. [`crate::roster`] stores and sends it.
//!
//! Invariants:
//! - Members own disjoint shares of the slots and give slots only from their own: no two members whose logs are open have one slot.
//! - Only the owner of a free slot gives it to another member. It numbers these grants together with the nodes that it lets in. So the reports of
//!   other members on its logs cover its grants, too: a grant of which nobody has heard when the logs are closed is void ([`slots`]).
//! - A removed member's logs are closed when all other members report the same of them, each after it knew of the removal and accepted nothing more
//!   from that member itself. From then on, what one of them gets of these logs it gets from another one that has reported the same, so nobody ever
//!   gets more. The reports also cover the nodes that the removed member let in. A node of which nobody has heard by then is no member, and its slot
//!   belongs to the heir.
//! - The last report of a member counts. It makes all of its reports anew when it hears of another removal. So a node that knows its report about one
//!   log knows its report about each other log of that time, or a later one.
//! - A closed log ends before the first batch that depends on a lost batch of another removed member: no node can ever apply such a batch.
//! - A closed log is the same everywhere, and stays closed.
//!
//! A node asks a second sponsor only under a new incarnation, so each incarnation is let in once.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation, PartitionId};

use crate::broken;

mod slots;

use slots::Grants;

/// Slots, one bit each.
pub type Slots = u64;

/// A report: how much of a removed member's logs a node holds, and how many nodes that member let in, as far as it knows. Two equal reports mean that
/// the two nodes hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Said {
    /// The number of this report among this node's reports about that member; 0: the first one, or where the number does not matter.
    #[n(3)]
    #[cbor(default)]
    turn: u64,
    /// The sum of all numbers, for the operator.
    #[n(0)]
    sum: u64,
    /// A hash of the last numbers in all partitions and of the gaps.
    #[n(1)]
    digest: u64,
    /// How many nodes the removed member has let in.
    #[n(2)]
    sponsored: u64,
}

/// Gaps: the partitions in which a batch of a removed member's log depends on one that is not here. Each has the log of that other batch with its
/// last number here, and whether this node is syncing in the partition. A node that is not syncing lists gaps of closed logs only.
pub type Gaps = BTreeSet<(PartitionId, Dot, bool)>;

/// The ends of some members' closed logs, by partition. A partition without an end has nothing of the log.
pub type Ends = BTreeMap<Incarnation, BTreeMap<PartitionId, u64>>;

/// The ends in one partition.
pub fn ends_in(ends: &Ends, partition: PartitionId) -> BTreeMap<Incarnation, u64> {
    let of = |logs: &BTreeMap<PartitionId, u64>| logs.get(&partition).copied().unwrap_or(0);
    ends.iter().map(|(id, logs)| (*id, of(logs))).collect()
}

impl Said {
    /// A report of these numbers. `logs`: the last number by partition.
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

    /// The sum of ops and of nodes that were let in.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The report without its number.
    fn vote(self) -> Self {
        Said { turn: 0, ..self }
    }
}

/// What is known of a removed member's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Ending {
    /// The reports of the other members, while the logs are open.
    #[n(0)]
    said: BTreeMap<Incarnation, Said>,
    /// The ends of the closed logs: all that could be applied, without batches that depend on lost ones.
    #[n(1)]
    closed: Option<Said>,
}

/// A present or former member. The number 7 was used for closing a single partition.
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
    /// The members that removed it; the number is the wall clock's time of the removal, for the operator.
    #[n(4)]
    removals: BTreeSet<Dot>,
    /// From the closing of a single partition: empty, for versions that need the field.
    #[n(5)]
    by_partition: BTreeMap<Incarnation, u64>,
    /// Nodes whose sponsor knew of the removal: no report of them is needed.
    #[n(6)]
    excused: BTreeSet<Incarnation>,
    #[n(8)]
    ending: Option<Ending>,
    /// Free slots that it has given to others. Absent as long as it has given none, and in rosters of older nodes.
    #[n(9)]
    grants: Option<Grants>,
}

/// Reads a slot, which is 63 at most.
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

    /// The sponsor, and the number among the nodes that the sponsor let in; `None`: this member founded the cluster.
    pub fn sponsor(&self) -> Option<Dot> {
        self.sponsor
    }

    /// The members that removed it, with the time in microseconds since 1970.
    pub fn removals(&self) -> impl Iterator<Item = Dot> {
        self.removals.iter().copied()
    }

    /// The ends of its logs, if they are closed.
    pub fn closed(&self) -> Option<Said> {
        self.ending.as_ref().and_then(|ending| ending.closed)
    }

    /// The reports of others on its logs.
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

    /// Deletes the reports once the logs are closed.
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
    /// A cluster of one node, under this slot. It owns the other slots that no incarnation of it has had.
    pub fn found(founder: Incarnation, name: &str, slot: u8, share: Slots) -> Self {
        let slot = slot & 63;
        let member = Member::new(name, slot, None, share & !(1 << slot));
        Self([(founder, member)].into())
    }

    /// Merges another replica.
    pub fn join(&mut self, other: &Self) {
        for (id, theirs) in &other.0 {
            match self.0.get_mut(id) {
                Some(ours) => ours.join(theirs),
                None => drop(self.0.insert(*id, theirs.clone())),
            }
        }
        self.forget_grants();
    }

    /// Removes a member; `micros`: the wall clock, for the operator. Whether it was a member and not removed before.
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

    /// `me` reports what it holds, durably, of a removed member's logs. Whether the report is new.
    pub fn say(&mut self, me: Incarnation, of: Incarnation, said: Said) -> bool {
        let Some(member) = self.0.get_mut(&of).filter(|m| m.closed().is_none()) else {
            return false;
        };
        let ending = member.ending.get_or_insert_default();
        let before = ending.said.get(&me).copied();
        if before.is_some_and(|before| before.vote() == said.vote()) {
            return false;
        }
        // A report may name less than the one before: what others hold may be lost with them.
        let turn = before.map_or(0, |before| before.turn.saturating_add(1));
        ending.said.insert(me, Said { turn, ..said });
        true
    }

    /// Closes the logs that can be closed; whether any was. `ended`: for each member of whose logs this node will never apply more, what it holds and
    /// what it has applied.
    ///
    /// Two members that are removed at once do not wait for each other. But either may have let in a node that the others do not know, and the
    /// batches of one may depend on those of the other, so all reports must agree. Nodes that hold the same of all logs have applied the same in the
    /// end, so every node finds the same ends.
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

    /// Removed members whose logs are open.
    pub fn closing(&self) -> Vec<Incarnation> {
        let removed = self.0.iter().filter(|(_, m)| !m.removals.is_empty());
        let open = removed.filter(|(_, member)| member.closed().is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// The members that have to report on a removed member's logs, with their reports.
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
        // A member that had to report and was removed as well reports nothing any more. Then all others report, since they may have got something
        // from it.
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

    /// The report of all other members on a removed member's logs, if they are equal.
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

    /// Whether it does not belong to the cluster any more: it was removed, or let in by a removed member without the others' knowledge when they
    /// closed that member's logs.
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

    /// How many nodes a member has let in, and how often it has given slots away.
    pub fn sponsored(&self, by: Incarnation) -> u64 {
        let numbers = self.0.values().filter_map(|member| {
            let dot = member.sponsor.filter(|dot| dot.origin == by)?;
            Some(dot.seq)
        });
        let grants = self.0.get(&by).and_then(|member| member.grants.as_ref());
        let last = grants.map_or(0, Grants::last);
        numbers.max().unwrap_or(0).max(last)
    }

    /// All present and former members.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, &Member)> {
        self.0.iter().map(|(id, member)| (*id, member))
    }

    /// One member.
    pub fn get(&self, id: Incarnation) -> Option<&Member> {
        self.0.get(&id)
    }

    /// The former members whose slot this member got when their logs were closed: it must know all that they wrote before it claims a UID.
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
