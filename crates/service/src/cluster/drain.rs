//! Whether a node can be stopped: which members hold everything that it has.
//!
//! Invariant: a member counts only if it has held everything once since this node's last write. It then still holds all that a stop could take away,
//! since later operations were written by other members, which have them. This is true only while all members are linked, and the same.

use std::collections::BTreeSet;

use whimbrel_crdt::Incarnation;

use crate::peers::PartitionReport;

/// One other member at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberHoldings {
    /// Who.
    pub member: Incarnation,
    /// Whether there is a link to it.
    pub linked: bool,
    /// Whether it holds everything that this node has, at this moment.
    pub holds_all: bool,
}

/// Which members have held everything since this node wrote its last operation.
#[derive(Debug, Default)]
pub struct Handover {
    written: u64,
    members: BTreeSet<Incarnation>,
    held_by: BTreeSet<Incarnation>,
}

impl Handover {
    /// Takes a look at the other members in, and returns those that have held everything since the last write. `written`: [`written_by`] this node,
    /// as it was before the members were looked at.
    pub fn note(&mut self, written: u64, looks: &[MemberHoldings]) -> &BTreeSet<Incarnation> {
        let members = looks.iter().map(|look| look.member).collect();
        let are_linked = looks.iter().all(|look| look.linked);
        if (self.written, &self.members) != (written, &members) || !are_linked {
            *self = Handover {
                written,
                members,
                held_by: BTreeSet::new(),
            };
        }
        let hold_all = looks.iter().filter(|look| look.holds_all);
        self.held_by.extend(hold_all.map(|look| look.member));
        &self.held_by
    }

    /// Whether this node has written nothing since the last look.
    #[must_use]
    pub fn is_of(&self, written: u64) -> bool {
        self.written == written
    }
}

/// The last numbers of a node's own logs, added up: this grows with each operation that it writes.
#[must_use]
pub fn written_by(me: Incarnation, reports: &[PartitionReport]) -> u64 {
    let open = reports.iter().filter_map(|report| report.open.as_ref());
    let own = open.filter_map(|open| open.logs.get(&me));
    own.map(|log| log.stored).sum()
}

/// How many other members hold all of a partition of this node, in the partition that has the fewest. A member that does not hold a partition has
/// said that it lacks nothing of the other partitions.
#[must_use]
pub fn least_holders(reports: &[PartitionReport], hold_all: &BTreeSet<Incarnation>) -> u64 {
    let here = reports.iter().filter(|report| report.left.is_none());
    let holders = here.map(|report| {
        // Of a partition that is being opened nothing is known.
        let peers = report.open.iter().flat_map(|open| &open.peers);
        peers
            .filter(|(id, peer)| peer.syncing == 0 && hold_all.contains(*id))
            .count() as u64
    });
    holders.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy cluster it never was safe: at each look something of another node was on its way.
    #[test]
    fn who_held_all_holds_all_until_this_node_writes() {
        let id = Incarnation::from_hash;
        let mut handover = Handover::default();
        let mut look = |written, b: u64, linked, holds_all, expected: bool| {
            let look = |member, linked, holds_all| MemberHoldings {
                member: id(member),
                linked,
                holds_all,
            };
            let looks = [look(b, true, holds_all), look(3, linked, false)];
            let held = handover.note(written, &looks);
            assert_eq!(held.contains(&id(b)), expected);
            assert!(!held.contains(&id(3)));
        };
        look(7, 2, true, false, false);
        look(7, 2, true, true, true);
        // Others wrote something.
        look(7, 2, true, false, true);
        // What was written by one that is gone may be here alone.
        look(7, 2, false, false, false);
        look(7, 2, true, false, false);
        look(7, 2, true, true, true);
        // Its disk was lost.
        look(7, 4, true, false, false);
        look(7, 2, true, true, true);
        // This node wrote something.
        look(8, 2, true, false, false);
        look(8, 2, true, true, true);
    }
}
