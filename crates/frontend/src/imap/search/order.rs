//! A stable sort in slices: other sessions go on while a large mailbox is put in order.

use std::cmp::Ordering;

/// Elements that are sorted or merged before somebody else may go on: less than a millisecond, as a comparison costs some ten nanoseconds.
pub(super) const SLICE: usize = 8 * 1024;
/// Elements that are sorted at once; runs of them are merged.
const RUN: usize = 1024;

/// A merge sort of the numbers below `n`. Equal ones stay in their order.
pub(super) struct MergeSort {
    from: Vec<u32>,
    into: Vec<u32>,
    /// How long the sorted runs of `from` are; nothing is sorted yet: 0.
    width: usize,
    /// What was taken of the two runs that are being merged.
    taken: (usize, usize),
}

impl MergeSort {
    pub(super) fn new(n: u32) -> MergeSort {
        MergeSort {
            from: (0..n).collect(),
            into: Vec::new(),
            width: 0,
            taken: (0, 0),
        }
    }

    /// Goes on; gives the order when it is done.
    pub(super) fn step(&mut self, compare: impl Fn(u32, u32) -> Ordering) -> Option<Vec<u32>> {
        if self.width == 0 {
            self.runs(compare);
            return None;
        }
        if self.width >= self.from.len() {
            self.into = Vec::new();
            return Some(std::mem::take(&mut self.from));
        }
        let end = (self.into.len() + SLICE).min(self.from.len());
        while self.into.len() < end {
            self.merge(end, &compare);
        }
        if end == self.from.len() {
            std::mem::swap(&mut self.from, &mut self.into);
            self.into.clear();
            self.width *= 2;
        }
        None
    }

    /// Sorts the next short runs.
    fn runs(&mut self, compare: impl Fn(u32, u32) -> Ordering) {
        let start = self.taken.0;
        let end = (start + SLICE).min(self.from.len());
        for run in self.from[start..end].chunks_mut(RUN) {
            run.sort_by(|&a, &b| compare(a, b));
        }
        self.taken.0 = end;
        if end == self.from.len() {
            self.taken = (0, 0);
            self.width = RUN;
            self.into.reserve_exact(self.from.len());
        }
    }

    /// Goes on with the present two runs until `into` has `end` elements or they are merged.
    fn merge(&mut self, end: usize, compare: &impl Fn(u32, u32) -> Ordering) {
        // The runs begin where what was merged before them ends.
        let base = self.into.len() - self.taken.0 - self.taken.1;
        let middle = (base + self.width).min(self.from.len());
        let stop = (base + 2 * self.width).min(self.from.len());
        let (mut left, mut right) = (base + self.taken.0, middle + self.taken.1);
        while self.into.len() < end && (left < middle || right < stop) {
            let takes_left = right == stop
                || (left < middle && compare(self.from[left], self.from[right]).is_le());
            let at = if takes_left { &mut left } else { &mut right };
            self.into.push(self.from[*at]);
            *at += 1;
        }
        self.taken = if left == middle && right == stop {
            (0, 0)
        } else {
            (left - base, right - middle)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(keys: &[u32]) -> (Vec<u32>, usize) {
        let mut sort = MergeSort::new(keys.len() as u32);
        let mut steps = 1;
        loop {
            let compare = |a: u32, b: u32| keys[a as usize].cmp(&keys[b as usize]);
            match sort.step(compare) {
                Some(order) => return (order, steps),
                None => steps += 1,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn like_the_standard_one(len in 0usize..5 * SLICE, spread in 1u32..100_000, seed: u32) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) % spread
            };
            let keys: Vec<u32> = (0..len).map(|_| next()).collect();
            let mut expected: Vec<u32> = (0..len as u32).collect();
            expected.sort_by_key(|&at| keys[at as usize]);
            prop_assert_eq!(sorted(&keys).0, expected);
        }
    }

    #[test]
    fn work_is_cut_into_slices() {
        let len = 20 * SLICE;
        let keys: Vec<u32> = (0..len as u32).rev().collect();
        let (order, steps) = sorted(&keys);
        assert!(order.iter().rev().copied().eq(0..len as u32));
        // Twenty slices for the runs, and for each of the eight merges.
        assert!((160..=200).contains(&steps), "{steps}");
    }
}
