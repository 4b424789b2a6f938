//! When a log grew here, and by how many bytes: so that it can be said how much, and how old, what a peer lacks is.
//!
//! A bounded number of marks a log: when they are too many two that follow each other become one, which makes what is said coarser, never less. What
//! was in the log before this machine was made has no size, and is as old as the machine.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

/// Marks of one log. Of a hundred nodes in 258 partitions they are 26 MB at most.
const MARKS_MAX: usize = 32;

/// So many numbers came with so many bytes.
#[derive(Clone, Copy)]
struct Mark {
    last: u64,
    bytes: u64,
    /// When the first of them came, by the monotonic clock.
    at: u64,
}

/// Of one log.
#[derive(Clone, Default)]
pub(super) struct Marks {
    marks: VecDeque<Mark>,
    /// The log's end when it was read, and when that was.
    before: Option<(u64, u64)>,
}

/// They are told to whoever watches, and decide nothing: machines that differ by them are alike.
impl Hash for Marks {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Marks {
    /// The log was found so.
    pub(super) fn found(&mut self, mono_micros: u64, last: u64) {
        self.before.get_or_insert((last, mono_micros));
    }

    /// A batch that ends with this number is in the log, or about to be.
    pub(super) fn add(&mut self, mono_micros: u64, last: u64, bytes: u64) {
        if self.marks.len() == MARKS_MAX {
            self.thin();
        }
        self.marks.push_back(Mark {
            last,
            bytes,
            at: mono_micros,
        });
    }

    /// All peers have up to this number.
    pub(super) fn forget(&mut self, all_have: u64) {
        while self.marks.front().is_some_and(|mark| mark.last <= all_have) {
            self.marks.pop_front();
        }
    }

    fn thin(&mut self) {
        let marks = std::mem::take(&mut self.marks);
        let mut marks = marks.into_iter();
        while let Some(first) = marks.next() {
            self.marks.push_back(match marks.next() {
                None => first,
                Some(second) => Mark {
                    last: second.last,
                    bytes: first.bytes + second.bytes,
                    at: first.at,
                },
            });
        }
    }

    /// How many bytes are behind this number, and when the first of them came.
    pub(super) fn behind(&self, number: u64) -> (u64, Option<u64>) {
        let lacked = self.marks.iter().filter(|mark| mark.last > number);
        let bytes = lacked.clone().map(|mark| mark.bytes).sum();
        let found = self.before.filter(|(last, _)| number < *last);
        let since = lacked.map(|mark| mark.at).next();
        (bytes, found.map(|(_, at)| at).or(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_is_never_said_to_be_less() {
        let mut marks = Marks::default();
        marks.found(5, 10);
        assert_eq!(marks.behind(10), (0, None));
        assert_eq!(marks.behind(3), (0, Some(5)));
        for number in 1..=1000 {
            marks.add(100 + number, 10 + number, 7);
            assert!(marks.marks.len() <= MARKS_MAX);
            for has in [10, 11, 10 + number / 2, 10 + number - 1] {
                let lacks = 10 + number - has;
                let (bytes, since) = marks.behind(has);
                if lacks == 0 {
                    assert_eq!((bytes, since), (0, None));
                    continue;
                }
                let first = 100 + (has - 10) + 1;
                assert!(bytes >= 7 * lacks, "{number} {has} {bytes}");
                assert!(since.is_some_and(|since| since <= first));
            }
            assert_eq!(marks.behind(10 + number), (0, None));
        }
        let (bytes, since) = marks.behind(10);
        assert_eq!((bytes, since), (7000, Some(101)));
        marks.forget(1000);
        assert!(marks.behind(10).0 < 7 * 100);
    }
}
