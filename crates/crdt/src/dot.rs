//! Names of ops and of sets of ops: incarnations, dots and version vectors.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use minicbor::{Decode, Encode};

/// The random identity of one life of a node.
///
/// A node that gets a new or a restored disk draws a new one, so that no two lives ever number the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Incarnation(#[n(0)] NonZeroU64);

impl Incarnation {
    /// The least.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The greatest.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// From a random number; zero is no identity.
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// From any number: zero is mapped to one. For ids derived from hashes.
    pub const fn from_hash(id: u64) -> Self {
        match Self::new(id) {
            Some(id) => id,
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The name of one operation: the `seq`-th of `origin`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Dot {
    /// Who made the operation.
    #[n(0)]
    pub origin: Incarnation,
    /// Its number in that origin's log, from 1.
    #[n(1)]
    pub seq: u64,
}

impl Dot {
    /// The dot `seq` of `origin`.
    pub const fn new(origin: Incarnation, seq: u64) -> Self {
        Self { origin, seq }
    }
}

/// For each origin the highest sequence number that is known without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionVector(BTreeMap<Incarnation, u64>);

impl VersionVector {
    /// Nothing known.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The highest number known of `origin`, 0 if none.
    pub fn get(&self, origin: Incarnation) -> u64 {
        self.0.get(&origin).copied().unwrap_or(0)
    }

    /// Whether the operation `dot` is known.
    pub fn covers(&self, dot: Dot) -> bool {
        self.get(dot.origin) >= dot.seq
    }

    /// Whether all that `other` knows is known.
    pub fn covers_all(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|(origin, seq)| self.get(*origin) >= *seq)
    }

    /// Raises `origin` to `seq`; a lower number changes nothing.
    pub fn advance(&mut self, origin: Incarnation, seq: u64) {
        if seq > 0 {
            let known = self.0.entry(origin).or_insert(0);
            *known = (*known).max(seq);
        }
    }

    /// The least upper bound.
    pub fn merge(&mut self, other: &Self) {
        for (origin, seq) in &other.0 {
            self.advance(*origin, *seq);
        }
    }

    /// The greatest lower bound: what both know. Used for stability.
    pub fn meet(&mut self, other: &Self) {
        self.0.retain(|origin, seq| {
            *seq = (*seq).min(other.get(*origin));
            *seq > 0
        });
    }

    /// Origins with their highest numbers, in the order of the origins.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, u64)> + '_ {
        self.0.iter().map(|(origin, seq)| (*origin, *seq))
    }

    /// How many origins are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Incarnation, u64)> for VersionVector {
    fn from_iter<I: IntoIterator<Item = (Incarnation, u64)>>(pairs: I) -> Self {
        let mut vector = Self::new();
        for (origin, seq) in pairs {
            vector.advance(origin, seq);
        }
        vector
    }
}

/// Vectors are equal, ordered, or concurrent (`None`).
impl PartialOrd for VersionVector {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering;
        match (self.covers_all(other), other.covers_all(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl<C> Encode<C> for VersionVector {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.map(self.0.len() as u64)?;
        for (origin, seq) in &self.0 {
            e.u64(origin.get())?.u64(*seq)?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for VersionVector {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let mut vector = Self::new();
        for pair in d.map_iter::<Incarnation, u64>()? {
            let (origin, seq) = pair?;
            if seq == 0 || vector.get(origin) != 0 {
                return Err(minicbor::decode::Error::message(
                    "version vector: zero or twice",
                ));
            }
            vector.advance(origin, seq);
        }
        Ok(vector)
    }
}

/// What the maker of one operation had seen: the dependencies of its batch and all that its origin did before it.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The operation itself.
    pub dot: Dot,
    /// Its own time stamp.
    pub stamp: crate::Stamp,
    /// What its batch depends on.
    pub deps: &'a VersionVector,
}

impl Context<'_> {
    /// Whether the maker of the operation had seen `dot`.
    pub fn saw(&self, dot: Dot) -> bool {
        if dot.origin == self.dot.origin {
            dot.seq < self.dot.seq
        } else {
            self.deps.covers(dot)
        }
    }
}
