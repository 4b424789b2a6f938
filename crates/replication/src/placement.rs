//! Which nodes hold and serve a partition, and in which order they are asked: rendezvous hashing within a region.
//!
//! Each node and partition have a score, a hash of both; the highest score is first. Nobody has to agree on anything but who the members are, and when one
//! comes or goes, nothing changes its place but what that one serves or served. Names, not incarnations, are hashed: a node that comes back with a new
//! disk has its place again. `docs/decisions/0031`.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::PartitionId;

/// What a node is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It serves clients of the accounts that fall to it.
    #[default]
    Worker,
    /// It holds everything, and serves only when no worker of its region can.
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

    /// As a node tells it: a worker says nothing, as nodes did before there were roles.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        match self {
            Role::Worker => None,
            Role::Storage => Some(1),
        }
    }

    /// What a node has told. A number that is not known here, of a newer version, is a worker's: it is asked, and may say no.
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
    /// Where it stands.
    pub region: String,
    /// What it is there for.
    pub role: Role,
    /// How far it is: nodes of other regions are asked in this order.
    pub distance: u64,
    /// Whether it holds the partition that is looked at: else it is not asked.
    pub holds: bool,
}

/// The nodes that may serve a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<'n> {
    /// In the order in which they are asked: those of this region, the workers first, then those of other regions, the near ones first.
    pub order: Vec<&'n Node>,
    /// So many of them serve it, each as well as the others.
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

/// Who serves a partition in `region`. `workers`: how many of a region's workers do; 0: all of them. `nodes` need no order.
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
    // Those of the first kind there is: workers of this region, if it has any.
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

/// Who is to hold a partition, by name: each node of role `storage`, and of each region the first `workers` of its workers (0: all of them). If these
/// are fewer than `least`, those workers besides that come first among all that are left. `nodes` need no order; whether they hold it now does not
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

/// Part of the format in so far as nodes that compute it otherwise relay to each other in vain.
fn score(partition: PartitionId, name: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("whimbrel placement 1");
    hasher.update(&partition.0.to_be_bytes());
    hasher.update(name.as_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_be_bytes(first)
}
