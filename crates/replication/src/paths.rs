//! Between which nodes this node passes on, because they have no link with each other.
//!
//! Purpose: where one link of three is down, both its ends reach a third node. That node gives each the batches of the other at once (`partition::ship`) and
//! tells each of the other's readers ([`crate::readers`]). Without it a claim is shown before the other end was heard of, and both claim again for as long as
//! the link is down.
//!
//! Invariants:
//! - Of all nodes that are linked with both ends the one with the least incarnation passes on, as far as its neighbours' words go. For a moment it may be
//!   two, or nobody.
//! - A node passes on between two of its own links only: where it takes two nodes to reach another one, nobody is waited for there.
//! - Nothing is passed on to a node that has not said with whom it has links: an earlier version does not.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;

/// Names that one peer may give: as many nodes as a cluster has.
pub const LINKS_MAX: usize = 64;

/// The links of this node, and those of the nodes at their other ends.
pub struct Paths {
    me: Incarnation,
    /// Each linked peer, and with whom it has links.
    links: BTreeMap<Incarnation, Option<BTreeSet<Incarnation>>>,
}

impl Paths {
    /// There is no link.
    pub fn new(me: Incarnation) -> Self {
        let links = BTreeMap::new();
        Self { me, links }
    }

    /// There is a link, or a new one. The peer says its own on each.
    pub fn linked(&mut self, peer: Incarnation) {
        self.links.entry(peer).or_default();
    }

    /// The link is gone.
    pub fn unlinked(&mut self, peer: Incarnation) {
        self.links.remove(&peer);
    }

    /// A peer says with whom it has links.
    pub fn links_of(&mut self, peer: Incarnation, links: Vec<Incarnation>) {
        if let Some(known) = self.links.get_mut(&peer) {
            *known = Some(links.into_iter().take(LINKS_MAX).collect());
        }
    }

    /// With whom this node has links.
    pub fn ours(&self) -> Vec<Incarnation> {
        self.links.keys().copied().take(LINKS_MAX).collect()
    }

    fn has(&self, peer: Incarnation, other: Incarnation) -> bool {
        let links = self.links.get(&peer).and_then(Option::as_ref);
        links.is_some_and(|links| links.contains(&other))
    }

    /// Whether this node gives `to` what it has of `of`.
    fn passes(&self, of: Incarnation, to: Incarnation) -> bool {
        if self.links.get(&to).is_none_or(Option::is_none) || self.has(to, of) || self.has(of, to) {
            return false;
        }
        let mut between = self.links.keys().filter(|id| self.has(**id, of));
        !between.any(|id| *id < self.me && self.has(*id, to))
    }

    /// All pairs between which this node passes on: of whom, and to whom.
    pub fn pairs(&self) -> BTreeSet<(Incarnation, Incarnation)> {
        let ids = || self.links.keys().copied();
        let pairs = ids().flat_map(|of| ids().map(move |to| (of, to)));
        pairs
            .filter(|(of, to)| of != to && self.passes(*of, *to))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    /// Node `me` has links with these, which say with whom they have theirs.
    fn paths(me: u64, links: &[(u64, &[u64])]) -> Paths {
        let mut paths = Paths::new(node(me));
        for (peer, others) in links {
            paths.linked(node(*peer));
            paths.links_of(node(*peer), others.iter().map(|id| node(*id)).collect());
        }
        paths
    }

    fn pairs(paths: &Paths) -> Vec<(u64, u64)> {
        let pairs = paths.pairs().into_iter();
        pairs.map(|(of, to)| (of.get(), to.get())).collect()
    }

    #[test]
    fn the_node_in_the_middle_passes_on() {
        assert_eq!(pairs(&paths(2, &[(1, &[2]), (3, &[2])])), [(1, 3), (3, 1)]);
        // At an end, and in a whole network, there is nothing to pass on.
        assert_eq!(pairs(&paths(1, &[(2, &[1, 3])])), []);
        assert_eq!(pairs(&paths(2, &[(1, &[2, 3]), (3, &[1, 2])])), []);
    }

    #[test]
    fn of_two_in_the_middle_one_passes_on() {
        let (ends, between): (&[u64], &[u64]) = (&[2, 3], &[1, 4]);
        let links = |other: u64| [(1, ends), (4, ends), (other, between)];
        assert_eq!(pairs(&paths(2, &links(3))), [(1, 4), (4, 1)]);
        assert_eq!(pairs(&paths(3, &links(2))), []);
    }

    #[test]
    fn nothing_goes_to_who_has_said_nothing() {
        let mut paths = paths(2, &[(1, &[2])]);
        paths.linked(node(3));
        assert_eq!(pairs(&paths), [(3, 1)]);
        paths.links_of(node(3), vec![node(2)]);
        assert_eq!(pairs(&paths), [(1, 3), (3, 1)]);
        paths.unlinked(node(3));
        assert_eq!(pairs(&paths), []);
        paths.linked(node(3));
        assert_eq!(pairs(&paths), [(3, 1)]);
    }
}
