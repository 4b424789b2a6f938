//! Pairs of nodes without a link between which this node forwards.
//!
//! Purpose: where one link of three is down, both its ends reach a third node. That node forwards each end's batches to the other at once
//! (`partition::ship`), and the list of its readers ([`crate::readers`]). Without that, each end would show its claims before it hears of the other,
//! and both would claim again for as long as the link is down.
//!
//! Invariants:
//! - Of all nodes that are linked with both ends, the one with the least incarnation forwards, as far as its neighbours' reports tell. For a moment
//!   it may be two nodes, or none.
//! - A node forwards between two of its own links only. Where a path needs two nodes in between, nobody waits for the node at its other end.
//! - Nothing is forwarded to a node that has not named its own links: an earlier version does not.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;

/// Links that one peer may name: as many as a cluster has nodes.
pub const LINKS_MAX: usize = 64;

/// The links of this node, and those of the nodes at their other ends.
pub struct Paths {
    me: Incarnation,
    /// Each linked peer, and the peers that it has named.
    links: BTreeMap<Incarnation, Option<BTreeSet<Incarnation>>>,
}

impl Paths {
    /// There is no link.
    pub fn new(me: Incarnation) -> Self {
        let links = BTreeMap::new();
        Self { me, links }
    }

    /// There is a link, or a new one. The peer names its own links on each.
    pub fn linked(&mut self, peer: Incarnation) {
        self.links.entry(peer).or_default();
    }

    /// The link is gone.
    pub fn unlinked(&mut self, peer: Incarnation) {
        self.links.remove(&peer);
    }

    /// A peer names the nodes with which it has links.
    pub fn links_of(&mut self, peer: Incarnation, links: Vec<Incarnation>) {
        if let Some(known) = self.links.get_mut(&peer) {
            *known = Some(links.into_iter().take(LINKS_MAX).collect());
        }
    }

    /// The nodes with which this node has links.
    pub fn ours(&self) -> Vec<Incarnation> {
        self.links.keys().copied().take(LINKS_MAX).collect()
    }

    fn has(&self, peer: Incarnation, other: Incarnation) -> bool {
        let links = self.links.get(&peer).and_then(Option::as_ref);
        links.is_some_and(|links| links.contains(&other))
    }

    /// Whether this node forwards what it has of `of` to `to`.
    fn passes(&self, of: Incarnation, to: Incarnation) -> bool {
        if self.links.get(&to).is_none_or(Option::is_none) || self.has(to, of) || self.has(of, to) {
            return false;
        }
        let mut between = self.links.keys().filter(|id| self.has(**id, of));
        !between.any(|id| *id < self.me && self.has(*id, to))
    }

    /// All pairs (of, to) between which this node forwards.
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

    /// Node `me` has links with these peers, which name their own.
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
    fn the_node_in_the_middle_forwards() {
        assert_eq!(pairs(&paths(2, &[(1, &[2]), (3, &[2])])), [(1, 3), (3, 1)]);
        // An end forwards nothing, and in a complete network nobody does.
        assert_eq!(pairs(&paths(1, &[(2, &[1, 3])])), []);
        assert_eq!(pairs(&paths(2, &[(1, &[2, 3]), (3, &[1, 2])])), []);
    }

    #[test]
    fn one_of_two_nodes_in_the_middle_forwards() {
        let (ends, between): (&[u64], &[u64]) = (&[2, 3], &[1, 4]);
        let links = |other: u64| [(1, ends), (4, ends), (other, between)];
        assert_eq!(pairs(&paths(2, &links(3))), [(1, 4), (4, 1)]);
        assert_eq!(pairs(&paths(3, &links(2))), []);
    }

    #[test]
    fn nothing_goes_to_a_peer_that_names_no_links() {
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
