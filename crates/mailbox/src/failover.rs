//! What other nodes have made visible, and what a client that comes from one of them names (docs/design.md#rule-6; docs/decisions/0020).
//!
//! Members say how much of all logs they have made visible, by number. Claims have counters, not numbers, and no record keeps where a claim was made
//! (docs/decisions/0001). So for each slot a few *points* say: claims up to this counter were made up to that number. Between two points nothing is known, and
//! what is not known counts as never visible there: that costs a claim, never a message.
//!
//! A node that is alone has none.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, VersionVector};

use super::{At, MailboxName, Replica, RowKey};

/// Points kept of each slot besides those on which what a member has made visible rests: so many claims may come between two reports without a message being
/// claimed again for it.
const RECENT_POINTS: usize = 4;

/// Points of one slot, so that an account's row stays small in a cluster with many members: then the newest of those that are not recent go.
const POINTS_PER_SLOT_MAX: usize = 16;

/// Who has this operation knows all claims of a slot up to this counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) origin: Incarnation,
    pub(crate) number: u64,
    pub(crate) counter: u32,
}

impl Point {
    fn is_covered_by(&self, vector: &VersionVector) -> bool {
        vector.get(self.origin) >= self.number
    }
}

/// Whether all claims up to this UID of its slot are among these, the greatest counter of each. Claims of a slot are made known in their order.
pub(crate) fn is_claimed(claimed: &BTreeMap<u8, u32>, uid: u32) -> bool {
    let greatest = claimed.get(&((uid % 64) as u8));
    greatest.is_some_and(|counter| *counter >= uid / 64)
}

impl Replica {
    /// Who has the operation of this origin and number knows all claims of the slot that are here, or of every slot: those before an operation of our own,
    /// or of its maker's slot before another's. To be said after operations are applied, and before rows are taken. `shown`: what each other member
    /// has made visible.
    pub fn note_claims(
        &mut self,
        slot: Option<u8>,
        origin: Incarnation,
        number: u64,
        shown: &[&VersionVector],
    ) {
        for (of, counter) in &self.claimed {
            if slot.is_some_and(|slot| slot != *of) {
                continue;
            }
            let points = self.points.entry(*of).or_default();
            if points.last().is_some_and(|last| last.counter >= *counter) {
                continue;
            }
            points.push(Point {
                origin,
                number,
                counter: *counter,
            });
            thin(points, shown);
            self.dirty_keys.insert(RowKey::Account);
        }
    }

    /// What the other one knows of that is so here, too: it says of operations which claims their makers knew.
    pub(crate) fn join_points(&mut self, other: &Replica) {
        for (slot, theirs) in &other.points {
            let points = self.points.entry(*slot).or_default();
            points.extend(theirs);
            points.sort_by_key(|point| point.counter);
            points.dedup();
        }
    }

    /// For each slot the greatest counter up to which this vector surely covers all claims.
    pub fn shown_by(&self, vector: &VersionVector) -> Vec<(u8, u32)> {
        let greatest = self.points.iter().filter_map(|(slot, points)| {
            let mut covered = points.iter().rev();
            let point = covered.find(|point| point.is_covered_by(vector))?;
            Some((*slot, point.counter))
        });
        greatest.collect()
    }

    /// The UIDNEXT that this replica has announced under the name.
    pub fn announced_uidnext(&self, name: &MailboxName) -> u32 {
        let of_name = self.names.get(name).map(|state| state.mark);
        of_name
            .or(self.gone_marks.get(name).copied())
            .unwrap_or(self.floor)
    }

    /// The greatest UID among the numbers that a client names (a UID, or one more: a UIDNEXT) which another node may have announced. Of a slot of
    /// `others` it may be any that is plausible; of another one it must be known here. `None`: it says that it comes from another node, which may
    /// know of slots of which nothing is known here, and any that is plausible is believed. `announced`: the UIDNEXT that was announced here before it came,
    /// below which all may be from here; `None`: it is known to come from elsewhere.
    pub fn elsewhere(
        &self,
        at: &At,
        announced: Option<u32>,
        numbers: &[u32],
        others: Option<&BTreeSet<u8>>,
    ) -> Option<u32> {
        let ahead_max = self.named_max(at);
        let from = announced.unwrap_or(1).max(1);
        let plausible = |uid: &u32| {
            let may_be = others.is_none_or(|others| others.contains(&((uid % 64) as u8)));
            let known = is_claimed(&self.claimed, *uid);
            *uid >= from && uid / 64 <= ahead_max && (known || may_be)
        };
        let named = numbers
            .iter()
            .flat_map(|number| [*number, number.saturating_sub(1)]);
        named.filter(plausible).max()
    }

    /// Slots of the numbers that are not known here: only a node that had such a slot can have announced them. A number may be a UIDNEXT: if the message
    /// before it is known, it is taken for one.
    pub fn unknown_slots(
        &self,
        name: &MailboxName,
        announced: Option<u32>,
        numbers: &[u32],
    ) -> BTreeSet<u8> {
        let from = announced.unwrap_or(1).max(1);
        let is_unknown = |uid: &u32| *uid >= from && !is_claimed(&self.claimed, *uid);
        let is_there = |uid: u32| {
            let mut records = self.members(name);
            records.any(|(_, record)| record.uids.contains_key(&uid))
        };
        let mut unknown = BTreeSet::new();
        for number in numbers {
            let before = number.saturating_sub(1);
            if is_unknown(&before) {
                unknown.insert((before % 64) as u8);
            }
            if is_unknown(number) && !is_there(before) {
                unknown.insert((number % 64) as u8);
            }
        }
        unknown
    }
}

/// Keeps those that may be the answer to [`Replica::shown_by`]: for each member the last that it has made visible, and the newest.
fn thin(points: &mut Vec<Point>, shown: &[&VersionVector]) {
    let recent = points.len().saturating_sub(RECENT_POINTS);
    let last =
        |vector: &&VersionVector| points.iter().rposition(|point| point.is_covered_by(vector));
    let used: BTreeSet<usize> = shown.iter().filter_map(last).collect();
    let mut at = 0;
    points.retain(|_| {
        at += 1;
        at > recent || used.contains(&(at - 1))
    });
    while points.len() > POINTS_PER_SLOT_MAX {
        points.remove(points.len() - RECENT_POINTS - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Incarnation {
        Incarnation::from_hash(7)
    }

    fn upto(number: u64) -> VersionVector {
        [(origin(), number)].into_iter().collect()
    }

    /// Points of ten numbers each, of which members have made visible so much: what is left.
    #[track_caller]
    fn check(count: u64, shown: &[u64], expected: &[u32]) {
        let vectors: Vec<VersionVector> = shown.iter().map(|number| upto(*number)).collect();
        let vectors: Vec<&VersionVector> = vectors.iter().collect();
        let mut points = Vec::new();
        for at in 1..=count {
            points.push(Point {
                origin: origin(),
                number: at * 10,
                counter: at as u32,
            });
            thin(&mut points, &vectors);
        }
        let counters: Vec<u32> = points.iter().map(|point| point.counter).collect();
        assert_eq!(counters, expected);
    }

    #[test]
    fn what_a_member_has_shown_rests_on_a_point_that_is_kept() {
        check(3, &[], &[1, 2, 3]);
        check(100, &[], &[97, 98, 99, 100]);
        check(100, &[400], &[40, 97, 98, 99, 100]);
        check(100, &[409, 55, 1000], &[5, 40, 97, 98, 99, 100]);
        check(100, &[9], &[97, 98, 99, 100]);
        let many: Vec<u64> = (1..=20).map(|member| member * 40).collect();
        let kept: Vec<u32> = (1..=12).map(|member| member * 4).chain(97..=100).collect();
        check(100, &many, &kept);
    }
}
