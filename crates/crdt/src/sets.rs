//! Replicated sets, flags and registers.
//!
//! Each is a pure state. An operation changes it with the [`Context`] of that operation; `join` needs the version
//! vectors of both sides, because a dot that one side lacks although its vector covers it was removed there.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

use smallvec::SmallVec;

use crate::mutants::broken;
use crate::{Context, Dot, Stamp, VersionVector};

/// A set of dots, sorted, without allocation for the usual single dot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DotSet(SmallVec<[Dot; 1]>);

impl DotSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of dots.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The dots in ascending order.
    pub fn as_slice(&self) -> &[Dot] {
        &self.0
    }

    /// Whether `dot` is in the set.
    pub fn contains(&self, dot: Dot) -> bool {
        self.0.binary_search(&dot).is_ok()
    }

    /// Adds a dot.
    pub fn insert(&mut self, dot: Dot) {
        if let Err(at) = self.0.binary_search(&dot) {
            self.0.insert(at, dot);
        }
    }

    /// Removes a dot; says whether it was in the set.
    pub fn remove(&mut self, dot: Dot) -> bool {
        match self.0.binary_search(&dot) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes the dots that the maker of the operation had seen.
    pub fn remove_seen(&mut self, context: &Context<'_>) {
        self.0.retain(|dot| !context.saw(*dot));
    }

    /// Puts the dot of the operation in the place of all that its maker had seen.
    ///
    /// An operation that removes the new dot has seen the old ones, so they need not be kept.
    pub fn supersede(&mut self, context: &Context<'_>) {
        self.remove_seen(context);
        self.insert(context.dot);
    }

    /// Keeps the dots that both have, and those that the other side cannot have seen.
    pub fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        if !broken("join-keeps-removed") {
            self.0
                .retain(|dot| other.contains(*dot) || !theirs.covers(*dot));
        }
        for dot in &other.0 {
            if !mine.covers(*dot) || broken("join-brings-back") {
                self.insert(*dot);
            }
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() {
            self.0.capacity() * size_of::<Dot>()
        } else {
            0
        }
    }
}

impl FromIterator<Dot> for DotSet {
    fn from_iter<I: IntoIterator<Item = Dot>>(dots: I) -> Self {
        let mut set = Self::new();
        for dot in dots {
            set.insert(dot);
        }
        set
    }
}

impl<C> minicbor::Encode<C> for DotSet {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(self.0.len() as u64)?;
        for dot in &self.0 {
            e.encode_with(dot, ctx)?;
        }
        Ok(())
    }
}

impl<'b, C> minicbor::Decode<'b, C> for DotSet {
    fn decode(d: &mut minicbor::Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let mut dots: SmallVec<[Dot; 1]> = SmallVec::new();
        for dot in d.array_iter_with(ctx)? {
            dots.push(dot?);
        }
        // Sorted at once, so that a long hostile list costs no quadratic insertion.
        dots.sort_unstable();
        dots.dedup();
        Ok(Self(dots))
    }
}

/// A flag on which a concurrent set wins over an unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableWins(DotSet);

impl EnableWins {
    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// An operation sets it.
    pub fn set(&mut self, context: &Context<'_>) {
        self.0.supersede(context);
    }

    /// An operation unsets it: the sets that its maker had seen go.
    pub fn unset(&mut self, context: &Context<'_>) {
        self.0.remove_seen(context);
    }

    /// Joins two states.
    pub fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        self.0.join(mine, &other.0, theirs);
    }

    /// The sets that were not unset.
    pub fn dots(&self) -> &DotSet {
        &self.0
    }
}

impl From<DotSet> for EnableWins {
    fn from(dots: DotSet) -> Self {
        Self(dots)
    }
}

/// A flag on which a concurrent unset wins over a set: whether it was ever set, and the unsets that no set has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisableWins {
    ever: bool,
    unset: DotSet,
}

impl DisableWins {
    /// From its parts.
    pub fn from_parts(ever: bool, unset: DotSet) -> Self {
        Self { ever, unset }
    }

    /// Whether it was ever set.
    pub fn ever(&self) -> bool {
        self.ever
    }

    /// The unsets that no set has seen.
    pub fn dots(&self) -> &DotSet {
        &self.unset
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.ever && self.unset.is_empty()
    }

    /// An operation sets it: the unsets that its maker had seen go.
    pub fn set(&mut self, context: &Context<'_>) {
        self.ever = true;
        self.unset.remove_seen(context);
    }

    /// An operation unsets it, or asserts that it is not set.
    pub fn unset(&mut self, context: &Context<'_>) {
        self.unset.supersede(context);
    }

    /// Joins two states.
    pub fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        self.ever |= other.ever;
        self.unset.join(mine, &other.unset, theirs);
    }
}

/// A register whose latest stamp wins.
#[derive(Clone, Debug, PartialEq, Eq, minicbor::Encode, minicbor::Decode)]
pub struct Lww<T> {
    /// When it was written.
    #[n(0)]
    pub stamp: Stamp,
    /// What was written.
    #[n(1)]
    pub value: T,
}

impl<T: Clone + Ord> Lww<T> {
    /// A first value.
    pub fn new(stamp: Stamp, value: T) -> Self {
        Self { stamp, value }
    }

    /// Writes; says whether the value is now this one. Equal stamps fall to the greater value.
    pub fn write(&mut self, stamp: Stamp, value: T) -> bool {
        let wins = (stamp, &value) > (self.stamp, &self.value);
        if wins {
            *self = Self { stamp, value };
        }
        wins
    }

    /// Joins two states.
    pub fn join(&mut self, other: &Self) {
        self.write(other.stamp, other.value.clone());
    }
}

/// An observed-remove set of keys: adding wins over a concurrent removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrMap<K: Ord>(BTreeMap<K, DotSet>);

impl<K: Ord> Default for OrMap<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> OrMap<K> {
    /// Whether the key is there.
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The dots by which the key is there.
    pub fn dots(&self, key: &K) -> Option<&DotSet> {
        self.0.get(key)
    }

    /// The keys in order, with their dots.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &DotSet)> {
        self.0.iter()
    }

    /// The keys of a range, in order.
    pub fn range<'a, Q>(&'a self, range: impl RangeBounds<Q>) -> impl Iterator<Item = &'a K>
    where
        K: Borrow<Q> + 'a,
        Q: Ord + ?Sized,
    {
        self.0.range(range).map(|(key, _)| key)
    }

    /// An operation adds the key.
    pub fn add(&mut self, key: K, context: &Context<'_>) {
        self.0.entry(key).or_default().supersede(context);
    }

    /// An operation removes exactly these dots of the key.
    pub fn remove(&mut self, key: &K, dots: &[Dot]) {
        if let Some(set) = self.0.get_mut(key) {
            for dot in dots {
                set.remove(*dot);
            }
            if set.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// Puts a key back as it was stored.
    pub fn restore(&mut self, key: K, dots: DotSet) {
        if !dots.is_empty() {
            self.0.insert(key, dots);
        }
    }

    /// Joins two states.
    pub fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        let nothing = DotSet::new();
        self.0.retain(|key, set| {
            set.join(mine, other.0.get(key).unwrap_or(&nothing), theirs);
            !set.is_empty()
        });
        for (key, set) in &other.0 {
            if !self.0.contains_key(key) {
                let mut joined = DotSet::new();
                joined.join(mine, set, theirs);
                self.restore(key.clone(), joined);
            }
        }
    }
}
