//! Which nodes hold and serve a partition, and in which order they are asked: rendezvous hashing within a region.
//!
//! Each pair of node and partition has a score, a hash of both; nodes are asked from the highest score down. Nodes have to agree only on who the
//! members are. When a member comes or goes, only the partitions that it serves or served change their place. Names are hashed, not incarnations: a
//! node that comes back with a new disk has its place again. `docs/decisions/0031`.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::PartitionId;

/// The role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A worker serves the accounts that are placed on it.
    #[default]
    Worker,
    /// A storage node holds everything, and serves only when no worker of its region can.
    Storage,
}

impl Role {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Storage => "storage",
        }
    }

    /// The number in the roster. A worker has none, as nodes had before there were roles.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        match self {
            Role::Worker => None,
            Role::Storage => Some(1),
        }
    }

    /// The role of a number in the roster. An unknown number, of a newer version, counts as a worker's: that node is asked, and may refuse.
    #[must_use]
    pub fn of_number(number: Option<u16>) -> Role {
        match number {
            Some(1) => Role::Storage,
            _ => Role::Worker,
        }
    }
}

/// A member, as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Its role.
    pub role: Role,
    /// Its distance: nodes of other regions are asked in this order.
    pub distance: u64,
    /// Whether it holds the partition in question; else it is not asked.
    pub holds: bool,
}

/// The nodes that may serve a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<'n> {
    /// The nodes in the order in which they are asked: those of this region first, workers before storage nodes; then those of other regions, the
    /// nearest first.
    pub order: Vec<&'n Node>,
    /// So many nodes at the front serve the partition, each as well as the others.
    pub first: usize,
}

impl Served<'_> {
    /// Whether this node serves it.
    #[must_use]
    pub fn by(&self, name: &str) -> bool {
        let mut first = self.order.iter().take(self.first);
        first.any(|node| node.name == name)
    }
}

/// The nodes that serve a partition in `region`. `workers`: how many workers of a region serve it; 0: all of them. `nodes` need no order.
#[must_use]
pub fn serve<'n>(
    partition: PartitionId,
    nodes: &'n [Node],
    region: &str,
    workers: usize,
) -> Served<'n> {
    let mut order: Vec<&Node> = nodes.iter().filter(|node| node.holds).collect();
    order.sort_by_cached_key(|node| {
        let foreign = node.region != region;
        let distance = if foreign { node.distance } else { 0 };
        let last = std::cmp::Reverse(score(partition, &node.name));
        (foreign, node.role, distance, last, node.name.clone())
    });
    // The first kind of node that exists: workers of this region, if it has any.
    let of = |node: &Node| (node.region != region, node.role);
    let alike = order.first().map_or(0, |first| {
        let alike = order.iter().take_while(|node| of(node) == of(first));
        alike.count()
    });
    let first = match workers {
        0 => alike,
        workers => alike.min(workers),
    };
    Served { order, first }
}

/// The names of the nodes that are to hold a partition: each node of role `storage`, and the first `workers` workers of each region (0: all of them).
/// If these are fewer than `least`, the first of the remaining workers are added. `nodes` need no order; whether they hold the partition now does not
/// matter.
#[must_use]
pub fn holders(
    partition: PartitionId,
    nodes: &[Node],
    workers: usize,
    least: usize,
) -> BTreeSet<&str> {
    let mut order: Vec<&Node> = nodes.iter().collect();
    order.sort_by_cached_key(|node| {
        let last = std::cmp::Reverse(score(partition, &node.name));
        (last, node.name.clone())
    });
    let mut of_region: BTreeMap<&str, usize> = BTreeMap::new();
    let (first, rest): (Vec<&Node>, Vec<&Node>) = order.into_iter().partition(|node| {
        if node.role == Role::Storage || workers == 0 {
            return true;
        }
        let before = of_region.entry(&node.region).or_default();
        *before += 1;
        *before <= workers
    });
    let lacking = least.saturating_sub(first.len());
    let rest = rest.into_iter().take(lacking);
    first
        .into_iter()
        .chain(rest)
        .map(|node| &node.name[..])
        .collect()
}

/// Nodes that compute the score in another way would relay to each other in vain, so this is a part of the format.
fn score(partition: PartitionId, name: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("whimbrel placement 1");
    hasher.update(&partition.0.to_be_bytes());
    hasher.update(name.as_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_be_bytes(first)
}
