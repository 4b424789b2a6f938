//! Ascending UIDs, in little memory, and shared by all who hold them until one of them changes its own.
//!
//! SELECT hands a session the UIDs of a mailbox, and fifty clients at a mailbox of 200,000 messages would hold as many lists of 800 KB. So the list
//! that an account keeps is what they get: nothing is copied. Who changes it copies the heads of its blocks, and the block that it changes.
//!
//! Most UIDs lie at equal distances, those that one node gives out and nobody removed; so they are kept in blocks of up to 256, of which such a one is
//! two numbers. Where there are gaps a block has two bytes a message, and four where they are wide.
//!
//! Invariant: bases ascend, and a UID is in the last block whose base is not greater.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Most messages of a block: its head is a tenth of what the worst of them takes, and what is written anew when one is removed is little.
const BLOCK: usize = 256;

/// Ascending UIDs.
#[derive(Clone, Default)]
pub struct Uids {
    blocks: Arc<Vec<Block>>,
    len: usize,
    /// From this block on, each begins so many places later than it says (wrapping): who removes one message after the other does not
    /// write to all heads each time.
    moved_from: usize,
    moved_by: u32,
}

#[derive(Clone)]
struct Block {
    /// The place of its first UID, but for [`Uids::moved_by`].
    start: u32,
    /// No UID in it is less.
    base: u32,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// The first is the base; the distance of each from the one before, and how many there are.
    Even(u32, u32),
    /// The distance of each from the base.
    Near(Arc<Vec<u16>>),
    Far(Arc<Vec<u32>>),
}

impl Block {
    /// Of at least one UID.
    fn new(uids: &[u32]) -> Block {
        let base = uids[0];
        let step = uids.get(1).map_or(1, |second| second - base);
        let near = || uids.iter().map(|uid| u16::try_from(uid - base).ok());
        let kind = if uids.windows(2).all(|pair| pair[1] - pair[0] == step) {
            Kind::Even(step, uids.len() as u32)
        } else if let Some(near) = near().collect() {
            Kind::Near(Arc::new(near))
        } else {
            Kind::Far(Arc::new(uids.to_vec()))
        };
        Block {
            start: 0,
            base,
            kind,
        }
    }

    fn len(&self) -> usize {
        match &self.kind {
            Kind::Even(_, len) => *len as usize,
            Kind::Near(near) => near.len(),
            Kind::Far(uids) => uids.len(),
        }
    }

    fn get(&self, at: usize) -> u32 {
        match &self.kind {
            Kind::Even(step, _) => self.base + step * at as u32,
            Kind::Near(near) => self.base + u32::from(near[at]),
            Kind::Far(uids) => uids[at],
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Where a UID is, or would be.
    fn search(&self, uid: u32) -> Result<usize, usize> {
        let distance = uid.checked_sub(self.base).ok_or(0usize)?;
        match &self.kind {
            Kind::Even(step, len) => {
                let at = distance.div_ceil(*step).min(*len) as usize;
                let there = at < *len as usize && self.get(at) == uid;
                if there { Ok(at) } else { Err(at) }
            }
            Kind::Near(near) => match u16::try_from(distance) {
                Ok(distance) => near.binary_search(&distance),
                Err(_) => Err(near.len()),
            },
            Kind::Far(uids) => uids.binary_search(&uid),
        }
    }

    /// Puts a UID that is not less than the base before the one at a place.
    fn insert(&mut self, at: usize, uid: u32) {
        let distance = uid - self.base;
        match &mut self.kind {
            Kind::Even(step, len @ 1) if at == 1 => (*step, *len) = (distance, 2),
            Kind::Even(step, len)
                if at == *len as usize
                    && u64::from(distance) == u64::from(*step) * u64::from(*len) =>
            {
                *len += 1;
            }
            Kind::Near(near) if distance <= u32::from(u16::MAX) => {
                Arc::make_mut(near).insert(at, distance as u16);
            }
            Kind::Far(uids) => Arc::make_mut(uids).insert(at, uid),
            _ => {
                let mut uids: Vec<u32> = self.iter().collect();
                uids.insert(at, uid);
                self.set(&uids);
            }
        }
    }

    /// Removes the one at a place, which is not the only one.
    fn remove(&mut self, at: usize) {
        match &mut self.kind {
            Kind::Even(step, len) if at == 0 => {
                self.base += *step;
                *len -= 1;
            }
            Kind::Even(_, len) if at + 1 == *len as usize => *len -= 1,
            Kind::Near(near) => {
                let near = Arc::make_mut(near);
                near.remove(at);
                give_back(near);
            }
            Kind::Far(uids) => {
                let uids = Arc::make_mut(uids);
                uids.remove(at);
                give_back(uids);
            }
            Kind::Even(..) => {
                let mut uids: Vec<u32> = self.iter().collect();
                uids.remove(at);
                self.set(&uids);
            }
        }
    }

    fn set(&mut self, uids: &[u32]) {
        *self = Block {
            start: self.start,
            ..Block::new(uids)
        };
    }
}

/// What is left of a long list must not take its room.
fn give_back<T>(list: &mut Vec<T>) {
    if list.len() < list.capacity() / 2 {
        list.shrink_to_fit();
    }
}

impl Uids {
    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The least.
    pub fn first(&self) -> Option<u32> {
        Some(self.blocks.first()?.get(0))
    }

    /// The greatest.
    pub fn last(&self) -> Option<u32> {
        let last = self.blocks.last()?;
        Some(last.get(last.len() - 1))
    }

    /// The one at a place.
    pub fn get(&self, place: usize) -> Option<u32> {
        if place >= self.len {
            return None;
        }
        // No block before this one reaches as far, for none has more than BLOCK; most have as many.
        let (mut low, mut step) = (place / BLOCK, 1);
        let is_behind = |at| at < self.blocks.len() && self.start(at) <= place;
        while is_behind(low + step) {
            low += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if is_behind(low + step) {
                low += step;
            }
        }
        Some(self.blocks[low].get(place - self.start(low)))
    }

    /// All, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(Block::iter)
    }

    /// All, as a list.
    pub fn to_vec(&self) -> Vec<u32> {
        self.iter().collect()
    }

    /// Those that are not less than this one.
    pub fn iter_from(&self, uid: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.block_of(uid).unwrap_or(0);
        let blocks = self.blocks[from..].iter().flat_map(Block::iter);
        blocks.skip_while(move |other| *other < uid)
    }

    /// The place of a UID.
    pub fn place(&self, uid: u32) -> Option<usize> {
        self.search(uid).ok()
    }

    /// The place of the first that is not less than this one; as many as there are if all are.
    pub fn place_from(&self, uid: u32) -> usize {
        self.search(uid).unwrap_or_else(|place| place)
    }

    fn search(&self, uid: u32) -> Result<usize, usize> {
        let block = self.block_of(uid).ok_or(0usize)?;
        let start = self.start(block);
        match self.blocks[block].search(uid) {
            Ok(at) => Ok(start + at),
            Err(at) => Err(start + at),
        }
    }

    /// The block in which a UID is, if it is there.
    fn block_of(&self, uid: u32) -> Option<usize> {
        let behind = self.blocks.partition_point(|block| block.base <= uid);
        behind.checked_sub(1)
    }

    fn start(&self, block: usize) -> usize {
        let moved = if block < self.moved_from {
            0
        } else {
            self.moved_by
        };
        self.blocks[block].start.wrapping_add(moved) as usize
    }

    /// From this block on each begins so many places later (wrapping).
    fn shift(&mut self, from: usize, by: u32) {
        if self.moved_by != 0 {
            let blocks = Arc::make_mut(&mut self.blocks);
            let (low, high) = (self.moved_from.min(from), self.moved_from.max(from));
            let by = if from > self.moved_from {
                self.moved_by
            } else {
                self.moved_by.wrapping_neg()
            };
            for block in &mut blocks[low..high] {
                block.start = block.start.wrapping_add(by);
            }
        }
        self.moved_from = from;
        self.moved_by = self.moved_by.wrapping_add(by);
    }

    /// Puts these in the place of some blocks, and says of all behind them where they begin.
    fn replace(&mut self, range: Range<usize>, by: impl IntoIterator<Item = Block>) {
        let count = self.blocks.len();
        let mut start = if range.start < count {
            self.start(range.start)
        } else {
            self.len
        };
        self.shift(count, 0);
        self.moved_by = 0;
        let blocks = Arc::make_mut(&mut self.blocks);
        let from = range.start;
        blocks.splice(range, by);
        give_back(blocks);
        for block in &mut blocks[from..] {
            block.start = start as u32;
            start += block.len();
        }
    }

    /// Adds one; says whether it was not there.
    pub fn insert(&mut self, uid: u32) -> bool {
        let at = self.block_of(uid).unwrap_or(0);
        let Some(block) = self.blocks.get(at) else {
            self.replace(0..0, [Block::new(&[uid])]);
            self.len = 1;
            return true;
        };
        let Err(place) = block.search(uid) else {
            return false;
        };
        if block.len() == BLOCK && place == BLOCK {
            self.replace(at + 1..at + 1, [Block::new(&[uid])]);
        } else if block.len() == BLOCK || uid < block.base {
            let mut uids: Vec<u32> = block.iter().collect();
            uids.insert(place, uid);
            // Two halves, if there is no room for one more.
            let parts = uids.chunks(if uids.len() > BLOCK {
                BLOCK / 2 + 1
            } else {
                BLOCK
            });
            self.replace(at..at + 1, parts.map(Block::new));
        } else {
            Arc::make_mut(&mut self.blocks)[at].insert(place, uid);
            self.shift_behind(at, 1);
        }
        self.len += 1;
        true
    }

    /// Removes one; says which place it had.
    pub fn remove(&mut self, uid: u32) -> Option<usize> {
        let at = self.block_of(uid)?;
        let within = self.blocks[at].search(uid).ok()?;
        let place = self.start(at) + within;
        if self.blocks[at].len() == 1 {
            self.replace(at..at + 1, []);
        } else {
            Arc::make_mut(&mut self.blocks)[at].remove(within);
            self.shift_behind(at, 1u32.wrapping_neg());
            self.join(at);
        }
        self.len -= 1;
        Some(place)
    }

    /// Removes these (ascending; unknown ones do not matter); of each that was there, `removed` gets the place that it had before, and the UID.
    pub fn remove_all(&mut self, uids: &[u32], mut removed: impl FnMut(usize, u32)) {
        let mut count = 0;
        for &uid in uids {
            if let Some(place) = self.remove(uid) {
                removed(place + count, uid);
                count += 1;
            }
        }
    }

    fn shift_behind(&mut self, block: usize, by: u32) {
        if block + 1 < self.blocks.len() {
            self.shift(block + 1, by);
        }
    }

    /// Makes one of a block and one beside it if both are small: their heads must not be more than what is in them.
    fn join(&mut self, at: usize) {
        let is_small = |first: usize| {
            let pair = self.blocks.get(first..first + 2);
            pair.is_some_and(|pair| pair[0].len() + pair[1].len() <= BLOCK / 2)
        };
        let Some(first) = [at.wrapping_sub(1), at]
            .into_iter()
            .find(|&first| first != usize::MAX && is_small(first))
        else {
            return;
        };
        let pair = &self.blocks[first..first + 2];
        let uids: Vec<u32> = pair.iter().flat_map(Block::iter).collect();
        self.replace(first..first + 2, [Block::new(&uids)]);
    }

    /// Bytes that it takes, those included that it shares.
    pub fn bytes(&self) -> usize {
        /// The counts of an [`Arc`] and what a [`Vec`] is.
        const SHARED_BYTES: usize = 2 * size_of::<usize>() + size_of::<Vec<u32>>();
        let of = |block: &Block| match &block.kind {
            Kind::Even(..) => 0,
            Kind::Near(near) => SHARED_BYTES + near.capacity() * size_of::<u16>(),
            Kind::Far(uids) => SHARED_BYTES + uids.capacity() * size_of::<u32>(),
        };
        self.blocks.capacity() * size_of::<Block>() + self.blocks.iter().map(of).sum::<usize>()
    }
}

impl fmt::Debug for Uids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<&[u32]> for Uids {
    /// Of ascending UIDs.
    fn from(uids: &[u32]) -> Uids {
        let mut all = Uids::default();
        all.replace(0..0, uids.chunks(BLOCK).map(Block::new));
        all.len = uids.len();
        all
    }
}

impl FromIterator<u32> for Uids {
    fn from_iter<T: IntoIterator<Item = u32>>(uids: T) -> Uids {
        let mut all = Uids::default();
        for uid in uids {
            all.insert(uid);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mailbox_takes_little_and_hardly_more_than_a_list() {
        #[track_caller]
        fn check(uids: impl Iterator<Item = u32>, bytes_max: usize) {
            let uids: Vec<u32> = uids.collect();
            let uids = Uids::from(&*uids);
            assert!(uids.bytes() <= bytes_max, "{} bytes", uids.bytes());
        }
        const N: usize = 200_000;
        check(0..0, 0);
        check(1..=N as u32, N / 7);
        check((1..=N as u32).map(|number| number * 64), N / 7);
        let gaps = |apart: u32| {
            (1u32..)
                .filter(|n| n % 3 != 0)
                .take(N)
                .map(move |n| n * apart)
        };
        check(gaps(64), N * 5 / 2);
        check(gaps(8_000), N * 9 / 2);
    }

    #[test]
    fn what_is_left_of_many_takes_no_more_than_it_would_alone() {
        let mut uids: Uids = (1..200_000).map(|number| number * 64).collect();
        let gone: Vec<u32> = uids.iter().filter(|uid| uid % 1_000 != 0).collect();
        uids.remove_all(&gone, |_, _| {});
        assert_eq!(uids.len(), 1_599);
        assert!(uids.blocks.len() <= 2 * 1_599 / (BLOCK / 2) + 1);
        assert!(uids.bytes() <= 10 * 1_599, "{}", uids.bytes());
        uids.remove_all(&uids.to_vec(), |_, _| {});
        assert_eq!((uids.len(), uids.bytes()), (0, 0));
    }

    #[test]
    fn who_changes_a_shared_list_copies_what_it_changes() {
        let uids: Uids = (1..3_000).filter(|n| n % 3 != 0).collect();
        let mut other = uids.clone();
        assert!(Arc::ptr_eq(&uids.blocks, &other.blocks));
        other.remove(301);
        assert_eq!((uids.len(), other.len()), (2_000, 1_999));
        assert_eq!((uids.place(301), other.place(301)), (Some(200), None));
        let near = |uids: &Uids, at: usize| match &uids.blocks[at].kind {
            Kind::Near(near) => Arc::as_ptr(near),
            _ => panic!("there are gaps"),
        };
        assert_ne!(near(&uids, 0), near(&other, 0));
        assert_eq!(near(&uids, 1), near(&other, 1));
    }

    #[derive(Clone, Debug)]
    enum Change {
        Append(u32, u32, usize),
        Insert(Vec<u32>),
        Remove(Vec<usize>),
        /// So many, from a place on.
        RemoveRun(usize, usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let uids = || proptest::collection::vec(1u32..2_000_000, 1..40);
        prop_oneof![
            (1u32..3, 1u32..70_000, 0usize..700).prop_map(|(a, b, c)| Change::Append(a, b, c)),
            uids().prop_map(Change::Insert),
            // Side by side, so that blocks are split.
            (1u32..2_000_000, 1u32..400)
                .prop_map(|(from, len)| Change::Insert((from..from + len).rev().collect())),
            proptest::collection::vec(0usize..2_000, 1..40).prop_map(Change::Remove),
            (0usize..1_500, 1usize..700).prop_map(|(from, len)| Change::RemoveRun(from, len)),
        ]
    }

    fn is_like(uids: &Uids, set: &BTreeSet<u32>, probes: &[u32]) -> Result<(), TestCaseError> {
        let list: Vec<u32> = set.iter().copied().collect();
        prop_assert_eq!(uids.iter().collect::<Vec<_>>(), list.clone());
        prop_assert_eq!((uids.len(), uids.is_empty()), (list.len(), list.is_empty()));
        prop_assert_eq!(
            (uids.first(), uids.last()),
            (list.first().copied(), list.last().copied())
        );
        for place in 0..=list.len() {
            prop_assert_eq!(uids.get(place), list.get(place).copied());
        }
        for &uid in probes.iter().chain(list.iter().step_by(17)) {
            prop_assert_eq!(uids.place(uid), list.binary_search(&uid).ok());
            prop_assert_eq!(
                uids.place_from(uid),
                list.partition_point(|other| *other < uid)
            );
            let from: Vec<u32> = uids.iter_from(uid).take(3).collect();
            prop_assert_eq!(from, set.range(uid..).copied().take(3).collect::<Vec<_>>());
        }
        let filled = |block: &Block| (1..=BLOCK).contains(&block.len());
        prop_assert!(uids.blocks.iter().all(filled));
        Ok(())
    }

    proptest! {
        #[test]
        fn like_a_set_after_any_changes(
            changes in proptest::collection::vec(change(), 1..12),
            probes in proptest::collection::vec(0u32..2_100_000, 9),
        ) {
            let (mut uids, mut set) = (Uids::default(), BTreeSet::new());
            // What somebody was given before each change, and what was in it.
            let mut given = Vec::new();
            for change in changes {
                given.push((uids.clone(), set.clone()));
                match change {
                    Change::Append(uneven, step, len) => {
                        let mut last = set.last().copied().unwrap_or(0);
                        for at in 0..len as u32 {
                            last += step + at % uneven;
                            prop_assert!(uids.insert(last));
                            set.insert(last);
                        }
                    }
                    Change::Insert(new) => {
                        for uid in new {
                            prop_assert_eq!(uids.insert(uid), set.insert(uid));
                        }
                    }
                    Change::Remove(places) => {
                        for place in places {
                            let uid = set.iter().copied().nth(place);
                            let uid = uid.unwrap_or(place as u32);
                            let there = set.range(..uid).count();
                            let expected = set.remove(&uid).then_some(there);
                            prop_assert_eq!(uids.remove(uid), expected);
                        }
                    }
                    Change::RemoveRun(from, len) => {
                        let all = set.iter().copied().enumerate();
                        let gone: Vec<(usize, u32)> = all.skip(from).take(len).collect();
                        let mut named: Vec<u32> = gone.iter().map(|(_, uid)| *uid).collect();
                        named.extend(&probes);
                        named.sort_unstable();
                        named.dedup();
                        let is_named = |(_, uid): &(usize, u32)| named.contains(uid);
                        let expected: Vec<_> = set.iter().copied().enumerate().filter(is_named).collect();
                        let mut removed = Vec::new();
                        uids.remove_all(&named, |place, uid| removed.push((place, uid)));
                        prop_assert_eq!(removed, expected);
                        set.retain(|uid| !named.contains(uid));
                    }
                }
                is_like(&uids, &set, &probes)?;
            }
            for (uids, set) in given {
                is_like(&uids, &set, &probes)?;
            }
            let list: Vec<u32> = set.iter().copied().collect();
            is_like(&Uids::from(&*list), &set, &probes)?;
        }
    }
}
