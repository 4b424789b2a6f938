//! Sets of places in the view of a mailbox: sorted, disjoint ranges, eight bytes each.

/// Places (sequence numbers less one) as sorted, disjoint, non-adjacent half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// The places `start..end`.
    pub(super) fn one(start: u32, end: u32) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.push(start, end);
        ranges
    }

    /// Adds a range that begins no earlier than the last one.
    pub(super) fn push(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many places.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|r| r.1 - r.0).sum()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.0.first().map(|r| r.0)
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.0.last().map(|r| r.1 - 1)
    }

    pub(super) fn contains(&self, place: u32) -> bool {
        let at = self.0.partition_point(|r| r.1 <= place);
        self.0.get(at).is_some_and(|r| r.0 <= place)
    }

    pub(super) fn as_slice(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// All places, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(start, end)| start..end)
    }

    /// Of all places, in their order, those from the `from`-th on to before the `to`-th.
    pub(super) fn slice(&self, from: u32, to: u32) -> Ranges {
        let mut slice = Ranges::default();
        let mut before = 0;
        for &(start, end) in &self.0 {
            let len = end - start;
            let first = from.saturating_sub(before).min(len);
            let last = to.saturating_sub(before).min(len);
            slice.push(start + first, start + last);
            before += len;
        }
        slice
    }

    /// The places in one of them or in both.
    pub(super) fn or(&self, other: &Ranges) -> Ranges {
        let mut all = [&self.0[..], &other.0[..]].concat();
        // Two runs that are sorted: the sort merges them.
        all.sort();
        let mut either = Ranges::default();
        all.into_iter()
            .for_each(|(start, end)| either.push(start, end));
        either
    }

    /// The places in both.
    pub(super) fn and(&self, other: &Ranges) -> Ranges {
        let mut both = Ranges::default();
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            both.push(x.0.max(y.0), x.1.min(y.1));
            if x.1 <= y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        both
    }
}

/// Where a walk through [`Ranges`] has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    range: usize,
    /// Places already given of that range.
    given: u32,
}

impl Cursor {
    /// Whether nothing is left of `ranges`.
    pub(super) fn is_done(&self, ranges: &Ranges) -> bool {
        self.range >= ranges.0.len()
    }

    /// The next run of places, at most `most` long.
    pub(super) fn run(&mut self, ranges: &Ranges, most: u32) -> Option<(u32, u32)> {
        let &(start, end) = ranges.0.get(self.range)?;
        let from = start + self.given;
        let to = end.min(from.saturating_add(most));
        if to == end {
            self.range += 1;
            self.given = 0;
        } else {
            self.given = to - start;
        }
        Some((from, to))
    }

    /// The rest of the run that goes on at a place, if that is the next one.
    pub(super) fn run_from(&mut self, ranges: &Ranges, place: u32) -> Option<(u32, u32)> {
        let (start, _) = *ranges.0.get(self.range)?;
        (start + self.given == place).then(|| self.run(ranges, u32::MAX))?
    }

    /// Replaces `places` by the next ones, at most `most`.
    pub(super) fn fill(&mut self, ranges: &Ranges, most: usize, places: &mut Vec<u32>) {
        places.clear();
        while places.len() < most {
            let Some((from, to)) = self.run(ranges, (most - places.len()) as u32) else {
                return;
            };
            places.extend(from..to);
        }
    }
}

/// Where a walk through [`Ranges`] has come to that begins with the last place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back {
    /// Ranges passed.
    ranges: usize,
    /// Places already given of the next one.
    given: u32,
}

impl Back {
    /// Replaces `places` by the places before those given last, ascending, at most `most`.
    pub(super) fn fill(&mut self, ranges: &Ranges, most: usize, places: &mut Vec<u32>) {
        places.clear();
        while places.len() < most {
            let left = ranges.0.len() - self.ranges;
            let Some(&(start, end)) = left.checked_sub(1).and_then(|at| ranges.0.get(at)) else {
                break;
            };
            let to = end - self.given;
            let from = start.max(to.saturating_sub((most - places.len()) as u32));
            places.extend((from..to).rev());
            self.given += to - from;
            if from == start {
                self.ranges += 1;
                self.given = 0;
            }
        }
        places.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn build(parts: &[(u32, u32)]) -> (Ranges, BTreeSet<u32>) {
        let mut parts = parts.to_vec();
        parts.sort_unstable();
        let mut ranges = Ranges::default();
        let mut naive = BTreeSet::new();
        for (start, len) in parts {
            ranges.push(start, start + len);
            naive.extend(start..start + len);
        }
        (ranges, naive)
    }

    proptest! {
        #[test]
        fn like_a_naive_set(
            a in proptest::collection::vec((0u32..60, 0u32..9), 0..8),
            b in proptest::collection::vec((0u32..60, 0u32..9), 0..8),
            most in 1usize..7,
            cut in (0u32..40, 0u32..40),
        ) {
            let ((a, naive_a), (b, naive_b)) = (build(&a), build(&b));
            prop_assert!(a.as_slice().windows(2).all(|w| w[0].1 < w[1].0));
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), naive_a.clone());
            prop_assert_eq!(a.count() as usize, naive_a.len());
            prop_assert_eq!((a.first(), a.last()), (naive_a.first().copied(), naive_a.last().copied()));
            let both: BTreeSet<u32> = a.and(&b).iter().collect();
            prop_assert_eq!(both, naive_a.intersection(&naive_b).copied().collect());
            let all: Vec<u32> = naive_a.iter().copied().collect();
            let (from, to) = (cut.0.min(cut.1), cut.0.max(cut.1));
            let slice: Vec<u32> = a.slice(from, to).iter().collect();
            prop_assert_eq!(slice, &all[all.len().min(from as usize)..all.len().min(to as usize)]);
            for place in 0..75 {
                prop_assert_eq!(a.contains(place), naive_a.contains(&place));
            }
            let (mut cursor, mut places, mut all) = (Cursor::default(), Vec::new(), Vec::new());
            while !cursor.is_done(&a) {
                cursor.fill(&a, most, &mut places);
                prop_assert!(places.len() == most || cursor.is_done(&a));
                all.extend_from_slice(&places);
            }
            let (mut back, mut behind) = (Back::default(), Vec::<u32>::new());
            loop {
                back.fill(&a, most, &mut places);
                prop_assert!(places.is_sorted() && places.len() <= most);
                if places.is_empty() {
                    break;
                }
                behind.extend(places.iter().rev());
            }
            behind.reverse();
            prop_assert_eq!(&behind, &all);
            prop_assert_eq!(all, naive_a.into_iter().collect::<Vec<_>>());
        }
    }
}
