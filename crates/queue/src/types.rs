//! Nodes, ids, versions, and what a node says of a tuple that it holds.

use std::fmt;

use bytes::Bytes;

/// Nodes that a queue may have: a set of them is one word.
pub const NODES_MAX: usize = 64;

/// Owners of one tuple: the acting one and f others.
pub const OWNERS_MAX: usize = 7;

/// Bytes of a tuple's progress.
pub const PROGRESS_BYTES_MAX: usize = 4096;

/// A node of the queue, by its number: 0 to 63.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u8);

impl Node {
    /// The node with this number; none if it is above 63.
    #[must_use]
    pub const fn new(number: u8) -> Option<Node> {
        if (number as usize) < NODES_MAX {
            Some(Node(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Nodes(u64);

impl Nodes {
    /// No node.
    pub const NONE: Nodes = Nodes(0);

    /// The set with one bit for each node, the lowest for node 0.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Nodes {
        Nodes(bits)
    }

    /// One bit for each node.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// One node.
    #[must_use]
    pub const fn only(node: Node) -> Nodes {
        Nodes(1 << node.0)
    }

    /// Whether the node is in it.
    #[must_use]
    pub const fn contains(self, node: Node) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Whether there is no node in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many nodes are in it.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// With this node.
    #[must_use]
    pub const fn with(self, node: Node) -> Nodes {
        Nodes(self.0 | 1 << node.0)
    }

    /// Without this node.
    #[must_use]
    pub const fn without(self, node: Node) -> Nodes {
        Nodes(self.0 & !(1 << node.0))
    }

    /// Those of either.
    #[must_use]
    pub const fn union(self, other: Nodes) -> Nodes {
        Nodes(self.0 | other.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn both(self, other: Nodes) -> Nodes {
        Nodes(self.0 & other.0)
    }

    /// Those that are not in the other.
    #[must_use]
    pub const fn minus(self, other: Nodes) -> Nodes {
        Nodes(self.0 & !other.0)
    }

    /// Adds a node; whether it is new.
    pub fn insert(&mut self, node: Node) -> bool {
        let before = self.0;
        self.0 |= 1 << node.0;
        before != self.0
    }

    /// Takes a node out; whether it was in it.
    pub fn remove(&mut self, node: Node) -> bool {
        let before = self.0;
        self.0 &= !(1 << node.0);
        before != self.0
    }

    /// The nodes, by number.
    pub fn iter(self) -> impl Iterator<Item = Node> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let number = u8::try_from(bits.trailing_zeros()).ok()?;
            let node = Node::new(number)?;
            bits &= bits - 1;
            Some(node)
        })
    }
}

impl FromIterator<Node> for Nodes {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Nodes {
        nodes.into_iter().fold(Nodes::NONE, Nodes::with)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Node::number))
            .finish()
    }
}

/// Names a tuple, everywhere and for ever.
///
/// Ids are compared by their bytes, and that order should be roughly the order of time: the first 8 bytes, most significant first, are best a time.
/// What two nodes compare when they meet differs mostly among the youngest tuples, and lies together then.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// Below every id of a tuple.
    pub const MIN: Id = Id([0; 16]);
    /// Above every id of a tuple.
    pub const MAX: Id = Id([0xff; 16]);

    /// An id from a time, or another number that grows, and a number that no other id of that time has.
    #[must_use]
    pub fn new(order: u64, unique: u64) -> Id {
        Id((u128::from(order) << 64 | u128::from(unique)).to_be_bytes())
    }

    /// The time.
    #[must_use]
    pub fn order(self) -> u64 {
        self.words().0
    }

    pub(crate) fn words(self) -> (u64, u64) {
        let word = u128::from_be_bytes(self.0);
        #[allow(clippy::cast_possible_truncation)] // Both halves, one after the other.
        ((word >> 64) as u64, word as u64)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (order, unique) = self.words();
        write!(f, "{order:x}-{unique:x}")
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The nodes that a tuple was entrusted to, in order. The first acts: it alone hands the tuple to the application.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Owners {
    nodes: [Node; OWNERS_MAX],
    count: u8,
}

impl Owners {
    /// The owner that acts, and no other.
    #[must_use]
    pub fn of(first: Node) -> Owners {
        let mut owners = Owners::default();
        owners.push(first);
        owners
    }

    /// Adds one behind the others, if it is not among them and there is room.
    pub fn push(&mut self, node: Node) {
        if !self.set().contains(node)
            && let Some(place) = self.nodes.get_mut(usize::from(self.count))
        {
            *place = node;
            self.count += 1;
        }
    }

    /// The one that acts.
    #[must_use]
    pub fn first(&self) -> Node {
        self.nodes[0]
    }

    /// All, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Node] {
        &self.nodes[..usize::from(self.count)]
    }

    /// All, as a set.
    #[must_use]
    pub fn set(&self) -> Nodes {
        self.as_slice().iter().copied().collect()
    }

    /// Its place in the list.
    #[must_use]
    pub fn place(&self, node: Node) -> Option<usize> {
        self.as_slice().iter().position(|owner| *owner == node)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// There is always one, but in a list that nobody has filled yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<Node> for Owners {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Owners {
        let mut owners = Owners::default();
        nodes.into_iter().for_each(|node| owners.push(node));
        owners
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.as_slice().iter().map(|node| node.number());
        f.debug_list().entries(numbers).finish()
    }
}

/// Names a list of owners of one tuple. The greater one is the newer one. No two nodes make the same, since a node makes only such that name it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// How often the list was rewritten.
    pub term: u32,
    /// Who acts.
    pub first: Node,
}

/// What a node says of a tuple that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// To whom it is entrusted.
    pub owners: Owners,
    /// How often the list of owners was rewritten.
    pub term: u32,
    /// All nodes that may hold a copy.
    pub holders: Nodes,
    /// Whether waves count it (see [`crate::Tuple::tracked`]).
    pub tracked: bool,
    /// The lower one goes first.
    pub priority: u8,
    /// When it is due: microseconds since 1970.
    pub not_before: u64,
    /// What was done of it, in the application's own form.
    pub progress: Bytes,
}

impl Ownership {
    /// The version of the list.
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            term: self.term,
            first: self.owners.first(),
        }
    }
}

/// The time. Both are needed: timeouts must not jump with the clock, and a tuple that is due at a time is so at every node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now {
    /// Microseconds of a clock that never goes back; its zero does not matter.
    pub monotonic: u64,
    /// Microseconds since 1970.
    pub unix: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes() {
        let nodes: Vec<Node> = [0, 5, 63].into_iter().filter_map(Node::new).collect();
        let set: Nodes = nodes.iter().copied().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), nodes);
        assert_eq!(set.len(), 3);
        assert_eq!(
            set.without(nodes[2]).minus(Nodes::only(nodes[0])),
            Nodes::only(nodes[1])
        );
        assert_eq!(Node::new(64), None);
    }

    #[test]
    fn owners_are_named_once_and_bounded() {
        let all = (0..20).filter_map(|number| Node::new(number / 2));
        let owners: Owners = all.collect();
        assert_eq!(owners.len(), OWNERS_MAX);
        assert_eq!(owners.set().len(), OWNERS_MAX);
        assert_eq!(owners.place(Node(2)), Some(2));
    }

    #[test]
    fn the_order_of_ids_is_that_of_time() {
        assert!(Id::new(1, u64::MAX) < Id::new(2, 0));
        assert_eq!(Id::new(7, 9).order(), 7);
        assert_eq!(
            Id::new(7, 9).to_string(),
            "00000000000000070000000000000009"
        );
    }
}
