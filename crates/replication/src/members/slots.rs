//! Slots: who owns the free ones, who gives them away, and who inherits them.
//!
//! A newcomer gets a slot and a share from its sponsor. Later, members even their shares out: a member with more free slots than its part gives some
//! to members with fewer ([`Members::share_out`]). So the loss of one member keeps only its part of the free slots from the others until its logs are
//! closed.
//!
//! The owner of a slot is the member that got it last. A slot that was never given on belongs to a member by the tree of sponsors. When the owner's
//! logs are closed, its heir owns the slot.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation};

use super::{Member, Members, Slots};
use crate::broken;

/// A newcomer gets one part in so many of the rest of its sponsor's share. That is enough to let some nodes in itself, and the sponsor alone can let
/// in more than a cluster of 16 needs.
const SHARE_PARTS: usize = 8;

/// The grants of one member: slots that it has given to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Grants {
    /// The number of the last grant, counted together with the nodes that the member has let in.
    #[n(0)]
    last: u64,
    /// Grants by slot, without slots that a later owner has given on.
    #[n(1)]
    of: BTreeMap<u8, Grant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
struct Grant {
    /// How often the slot has been given on.
    #[n(0)]
    turn: u64,
    #[n(1)]
    to: Incarnation,
}

impl Grants {
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn join(&mut self, theirs: &Self) {
        self.last = self.last.max(theirs.last);
        for (slot, grant) in &theirs.of {
            let ours = self.of.entry(*slot).or_insert(*grant);
            *ours = (*ours).max(*grant);
        }
    }
}

/// Each of these slots.
fn each(slots: Slots) -> impl Iterator<Item = u8> {
    (0..64u8).filter(move |slot| slots >> slot & 1 == 1)
}

fn all_of(slots: impl Iterator<Item = u8>) -> Slots {
    slots.fold(0, |all, slot| all | 1 << slot)
}

impl Members {
    /// The last grant of each slot that was ever given on, and the giver.
    fn granted(&self) -> BTreeMap<u8, (Grant, Incarnation)> {
        let mut granted = BTreeMap::new();
        for (by, member) in &self.0 {
            let of = member.grants.iter().flat_map(|grants| &grants.of);
            for (slot, grant) in of.filter(|(slot, _)| **slot < 64) {
                let last = granted.entry(*slot).or_insert((*grant, *by));
                *last = (*last).max((*grant, *by));
            }
        }
        granted
    }

    /// Drops grants of slots that a later owner has given on: so there are no more grants than slots, and two replicas with the same knowledge are
    /// equal.
    pub(super) fn forget_grants(&mut self) {
        let granted = self.granted();
        for (id, member) in &mut self.0 {
            if let Some(grants) = &mut member.grants {
                let is_last =
                    |slot: &u8, grant: &mut Grant| granted.get(slot) == Some(&(*grant, *id));
                grants.of.retain(is_last);
            }
        }
    }

    /// `by` gives these slots to `to`; `number`: of this grant.
    fn grant(&mut self, by: Incarnation, slots: Slots, to: Incarnation, number: u64) {
        let granted = self.granted();
        let Some(member) = self.0.get_mut(&by).filter(|_| slots != 0) else {
            return;
        };
        let grants = member.grants.get_or_insert_default();
        grants.last = grants.last.max(number);
        for slot in each(slots) {
            let before = granted.get(&slot).map_or(0, |(grant, _)| grant.turn);
            let turn = before.saturating_add(u64::from(!broken("gifts-are-not-counted")));
            grants.of.insert(slot, Grant { turn, to });
        }
        self.forget_grants();
    }

    /// Slots of present and former members.
    fn used(&self) -> Slots {
        all_of(self.0.values().map(|member| member.slot))
    }

    /// The slots that a member may give away: its share, what it was given since and what it inherits of closed logs, without what it has given away.
    pub fn free(&self, id: Incarnation) -> Slots {
        self.free_of_all().get(&id).copied().unwrap_or(0)
    }

    /// As [`Members::free`], for all members whose logs are open.
    pub fn free_of_all(&self) -> BTreeMap<Incarnation, Slots> {
        let heirs = self.heirs();
        let heir = |of: &Incarnation| heirs.get(of).copied().flatten();
        let mut free: BTreeMap<Incarnation, Slots> = BTreeMap::new();
        for (other, member) in &self.0 {
            let Some(heir) = heir(other) else {
                continue;
            };
            let slots = free.entry(heir).or_default();
            *slots |= member.share;
            if heir != *other {
                *slots |= 1 << member.slot;
            }
        }
        for (other, member) in &self.0 {
            // A member's slots came from its sponsors.
            let above: BTreeSet<Incarnation> =
                self.sponsors(*other).filter_map(|of| heir(&of)).collect();
            for of in above.into_iter().filter(|of| heir(other) != Some(*of)) {
                if let Some(slots) = free.get_mut(&of) {
                    *slots &= !(member.share | 1 << member.slot);
                }
            }
        }
        for (slot, (grant, _)) in self.granted() {
            let owner = heir(&grant.to);
            for (id, slots) in &mut free {
                *slots &= !(1 << slot);
                *slots |= Slots::from(owner == Some(*id)) << slot;
            }
        }
        let open = self.0.iter().filter(|(other, _)| !self.is_over(**other));
        let had = all_of(open.map(|(_, member)| member.slot));
        for slots in free.values_mut() {
            *slots &= !had;
        }
        free
    }

    /// Its sponsor, the sponsor's sponsor, and so on.
    pub(super) fn sponsors(&self, id: Incarnation) -> impl Iterator<Item = Incarnation> {
        let above = |id: &Incarnation| Some(self.0.get(id)?.sponsor?.origin);
        // A tree: the path is no longer than the number of members.
        std::iter::successors(above(&id), move |id| above(id)).take(self.0.len())
    }

    fn is_over(&self, id: Incarnation) -> bool {
        let over = |m: &Member| {
            m.closed().is_some() || (broken("slot-given-twice") && !m.removals.is_empty())
        };
        self.0.get(&id).is_some_and(over)
    }

    /// The owner of what each member had: the member itself; when its logs are closed, its nearest sponsor with open logs; when there is none, the
    /// first open member in the order of joining. The search goes below closed members only, and their list of sponsored nodes does not change any
    /// more. So all nodes that know of the closing find the same heir.
    fn heirs(&self) -> BTreeMap<Incarnation, Option<Incarnation>> {
        let mut sponsored: BTreeMap<Incarnation, Vec<(u64, Incarnation)>> = BTreeMap::new();
        for (id, member) in &self.0 {
            if let Some(dot) = member.sponsor {
                let of = sponsored.entry(dot.origin).or_default();
                of.push((dot.seq, *id));
            }
        }
        for of in sponsored.values_mut() {
            of.sort_unstable_by(|a, b| b.cmp(a));
        }
        let heir = |id: Incarnation| {
            let mut line = std::iter::once(id).chain(self.sponsors(id));
            if let Some(open) = line.find(|id| !self.is_over(*id)) {
                return Some(open);
            }
            let mut left: Vec<Incarnation> =
                self.sponsors(id).last().or(Some(id)).into_iter().collect();
            while let Some(at) = left.pop() {
                if !self.is_over(at) {
                    return Some(at);
                }
                let of = sponsored.get(&at).into_iter().flatten();
                left.extend(of.map(|(_, id)| *id));
            }
            None
        };
        self.0.keys().map(|id| (*id, heir(*id))).collect()
    }

    /// `sponsor` lets a node in, which gets a free slot, if possible an unused one, and a part of the rest. Whether there was a free slot and the
    /// sponsor is a member.
    pub fn sponsor(&mut self, sponsor: Incarnation, member: Incarnation, name: &str) -> bool {
        if self.is_out(sponsor) || self.0.contains_key(&member) {
            return false;
        }
        let mut slots = self.in_order(sponsor).into_iter();
        let Some(slot) = slots.next() else {
            return false;
        };
        let part = slots.len() / SHARE_PARTS;
        let share = all_of(slots.take(part));
        for id in self.closing() {
            if let Some(removed) = self.0.get_mut(&id) {
                removed.excused.insert(member);
            }
        }
        let dot = Dot::new(sponsor, self.sponsored(sponsor) + 1);
        self.0
            .insert(member, Member::new(name, slot, Some(dot), share));
        // For a slot that was once given on, the tree of sponsors does not count any more.
        let again = self.granted().into_keys();
        let again = all_of(again) & (share | 1 << slot);
        self.grant(sponsor, again, member, dot.seq);
        true
    }

    /// The free slots of a member in the order in which it gives them, unused ones first. A member that gets a used slot must wait for logs.
    fn in_order(&self, id: Incarnation) -> Vec<u8> {
        let free = self.free(id);
        let unused = free & !self.used();
        each(unused).chain(each(free & !unused)).collect()
    }

    /// `me` gives free slots to those of `others` that have fewer than their part of the slots of all, as far as it has more than its own part.
    /// Whether it gave any.
    pub fn share_out(&mut self, me: Incarnation, others: &BTreeSet<Incarnation>) -> bool {
        let is_in = |id: Incarnation| self.0.contains_key(&id) && !self.is_out(id);
        if !is_in(me) {
            return false;
        }
        let others = others.iter().filter(|id| **id != me && is_in(**id));
        let free = self.free_of_all();
        let count = |id: &Incarnation| free.get(id).map_or(0, |slots| slots.count_ones() as usize);
        let mut have: Vec<(usize, Incarnation)> = others.map(|id| (count(id), *id)).collect();
        have.sort_unstable();
        let mut mine = self.in_order(me);
        let all = mine.len() + have.iter().map(|(count, _)| count).sum::<usize>();
        let part = all / (have.len() + 1);
        let mut given = false;
        for (count, to) in have {
            let gives = part
                .saturating_sub(count)
                .min(mine.len().saturating_sub(part));
            if gives == 0 {
                break;
            }
            // Unused slots and the others are divided alike.
            let every = mine.len() / gives;
            let slots = all_of(mine.iter().copied().step_by(every).take(gives));
            mine.retain(|slot| slots >> slot & 1 == 0);
            self.grant(me, slots, to, self.sponsored(me).saturating_add(1));
            given = true;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::PartitionId;
    use whimbrel_testkit::Rng;

    use super::*;
    use crate::roster::{Holding, Holdings, Place, Roster};

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).expect("not zero")
    }

    /// A cluster whose nodes exchange their rosters.
    struct Cluster {
        /// By node: its present incarnation, and its roster.
        nodes: Vec<(Incarnation, Roster)>,
        lives: u64,
    }

    impl Cluster {
        /// All nodes are let in by the first, and have announced their places.
        fn of(names: u64) -> Self {
            let mut roster = Roster::found(node(1), "0", 0, !1);
            for name in 1..names {
                roster
                    .sponsor(node(1), node(name + 1), &name.to_string())
                    .unwrap();
            }
            let nodes = (1..=names).map(|id| (node(id), roster.clone())).collect();
            let mut cluster = Cluster {
                nodes,
                lives: names,
            };
            for at in 0..cluster.nodes.len() {
                cluster.tell(at);
            }
            cluster.even();
            cluster
        }

        fn tell(&mut self, at: usize) {
            let (id, roster) = &mut self.nodes[at];
            let place = Place {
                version: self.lives,
                incarnation: *id,
                address: format!("{at}.example.org:10700"),
                region: String::new(),
                role: None,
                shares: Some(true),
            };
            roster.announce(&at.to_string(), place).unwrap();
        }

        /// All nodes but `without` exchange their rosters.
        fn meet(&mut self, without: Option<usize>) {
            let mut all = self.nodes[usize::from(without == Some(0))].1.clone();
            let there = |at: &usize| Some(*at) != without;
            for at in (0..self.nodes.len()).filter(there) {
                all.join(&self.nodes[at].1).unwrap();
            }
            for at in (0..self.nodes.len()).filter(there) {
                self.nodes[at].1 = all.clone();
            }
        }

        /// All nodes meet until none gives slots away any more, which must come.
        fn even(&mut self) {
            let all: BTreeSet<Incarnation> = self.nodes.iter().map(|(id, _)| *id).collect();
            for _ in 0..8 {
                self.meet(None);
                let mut given = false;
                for (id, roster) in &mut self.nodes {
                    given |= roster.share_out(*id, &all).unwrap();
                }
                if !given {
                    return;
                }
            }
            panic!("slots go round");
        }

        fn free(&self) -> Vec<u32> {
            let free =
                |(id, roster): &(Incarnation, Roster)| roster.members().free(*id).count_ones();
            self.nodes.iter().map(free).collect()
        }

        /// The node goes on under a new incarnation; the first of the others that can, in any order, lets it in.
        fn renew(&mut self, at: usize, rng: &mut Rng) -> Result<(), String> {
            self.lives += 1;
            let new = node(self.lives);
            let count = self.nodes.len();
            let first = rng.below(count as u64) as usize;
            let others = (0..count).map(|other| (first + other) % count);
            for other in others.filter(|other| *other != at) {
                let (id, roster) = &mut self.nodes[other];
                if roster.sponsor(*id, new, &at.to_string()) == Ok(true) {
                    self.nodes[at] = (new, self.nodes[other].1.clone());
                    self.tell(at);
                    return Ok(());
                }
            }
            Err(format!("{at} gets no slot: {:?} are free", self.free()))
        }

        /// Removes a node's earlier incarnations.
        fn remove_earlier(&mut self, of: usize, by: usize) {
            let (present, _) = self.nodes[of];
            let (id, roster) = &mut self.nodes[by];
            let members = roster.members().iter();
            let earlier = members.filter(|(life, m)| *life != present && m.name == of.to_string());
            let earlier: Vec<Incarnation> = earlier.map(|(life, _)| life).collect();
            for life in earlier {
                roster.remove(*id, life, 7).unwrap();
            }
        }

        fn close(&mut self) {
            for _ in 0..2 {
                self.meet(None);
                for (id, roster) in &mut self.nodes {
                    let of = roster.members().closing().into_iter();
                    let log = Holding {
                        taken: 3,
                        stored: 3,
                        applied: 3,
                        ..Holding::default()
                    };
                    let holdings: Holdings = of
                        .map(|of| (of, [(PartitionId::DIRECTORY, log)].into()))
                        .collect();
                    roster.settle(*id, &holdings).unwrap();
                }
            }
            self.meet(None);
        }

        /// No two members have one slot, or may give one slot, and none may give a slot that is in use.
        fn check(&self) {
            let mut taken: Slots = 0;
            for (id, roster) in &self.nodes {
                let own = roster
                    .members()
                    .get(*id)
                    .map_or(0, |member| 1 << member.slot);
                let all = own | roster.members().free(*id);
                assert_eq!(taken & all, 0);
                taken |= all;
            }
            let all = self.nodes[0].1.clone();
            assert_eq!(
                all.slots()
                    .into_keys()
                    .filter_map(|id| all.clash(id))
                    .count(),
                0
            );
        }
    }

    #[test]
    fn free_slots_are_shared_out() {
        assert_eq!(Cluster::of(3).free(), [21, 20, 20]);
        assert_eq!(Cluster::of(8).free(), [7; 8]);
    }

    /// Older copies are put back and disks are replaced in any order, and each time a node has a slot for the newcomer.
    #[test]
    fn restored_and_replaced_disks_use_up_no_slots() {
        for seed in 0..8 {
            let mut rng = Rng::new(seed);
            let count = rng.between(2, 5) as usize;
            let mut cluster = Cluster::of(count as u64);
            let mut events: Vec<bool> = (0..40).map(|event| event % 2 == 0).collect();
            for at in (1..events.len()).rev() {
                events.swap(at, rng.below(at as u64 + 1) as usize);
            }
            for (event, restored) in events.into_iter().enumerate() {
                let at = rng.below(count as u64) as usize;
                if !restored {
                    let by = (at + 1) % count;
                    let (id, roster) = &mut cluster.nodes[by];
                    let members = roster.members().iter();
                    let lives = members.filter(|(_, member)| member.name == at.to_string());
                    let lives: Vec<Incarnation> = lives.map(|(life, _)| life).collect();
                    for life in lives {
                        roster.remove(*id, life, 7).unwrap();
                    }
                    cluster.meet(Some(at));
                }
                let renewed = cluster.renew(at, &mut rng);
                renewed.unwrap_or_else(|why| panic!("seed {seed}, event {event}: {why}"));
                cluster.even();
                // Sometimes something else happens before.
                if !rng.one_in(4) {
                    for of in 0..count {
                        cluster.remove_earlier(of, of);
                    }
                    cluster.close();
                    cluster.even();
                }
                cluster.check();
                let free = cluster.free();
                assert!(
                    free.iter().all(|free| *free > 0),
                    "seed {seed}, event {event}: {free:?}"
                );
            }
        }
    }

    #[test]
    fn a_member_of_an_earlier_version_gets_none() {
        let mut cluster = Cluster::of(2);
        let (id, roster) = &mut cluster.nodes[0];
        let members = roster.members().iter();
        let all: BTreeSet<Incarnation> = members.map(|(id, _)| id).chain([node(9)]).collect();
        roster.sponsor(*id, node(9), "9").unwrap();
        let place = Place {
            version: 1,
            incarnation: node(9),
            address: String::new(),
            region: String::new(),
            role: None,
            shares: None,
        };
        roster.announce("9", place.clone()).unwrap();
        assert_eq!(roster.share_out(*id, &all), Ok(false));
        let place = Place {
            shares: Some(true),
            ..place
        };
        roster.announce("9", place).unwrap();
        assert_eq!(roster.share_out(*id, &all), Ok(true));
    }

    /// The first member gives slots to the second, and is removed. Nodes that have heard of the grant and nodes that have not report differently, so
    /// the logs stay open meanwhile.
    #[test]
    fn logs_stay_open_until_all_know_of_a_grant() {
        let [one, two, three] = [1, 2, 3].map(node);
        let mut roster = Roster::found(one, "0", 0, !1);
        for (id, name) in [(two, "1"), (three, "2")] {
            roster.sponsor(one, id, name).unwrap();
        }
        let (mut heard, mut not) = (roster.clone(), roster.clone());
        assert_eq!(roster.share_out(one, &[two].into()), Ok(true));
        heard.join(&roster).unwrap();
        let given = heard.members().free(two);
        assert!(given.count_ones() > not.members().free(two).count_ones());
        heard.remove(two, one, 7).unwrap();
        not.remove(three, one, 7).unwrap();
        let none: Holdings = [(one, Default::default())].into();
        heard.settle(two, &none).unwrap();
        not.settle(three, &none).unwrap();
        let before = not.clone();
        heard.join(&not).unwrap();
        heard.settle(two, &none).unwrap();
        assert_eq!(heard.members().closing(), [one]);
        not.join(&heard).unwrap();
        not.settle(three, &none).unwrap();
        heard.join(&not).unwrap();
        heard.settle(two, &none).unwrap();
        assert_eq!(heard.members().closing(), []);
        assert_eq!(heard.members().free(two) & given, given);
        assert_eq!(heard.members().free(three) & given, 0);
        assert_ne!(before, heard);
    }
}
