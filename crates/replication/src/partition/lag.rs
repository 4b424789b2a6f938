//! Notes when a log grew and by how many bytes, to report how much a peer lacks and for how long.
//!
//! Each log has a bounded number of marks. Beyond that, each two neighbours become one: reports become coarser, but never too low. The part of the
//! log that was there before this machine was made counts no bytes, and its age counts from that moment.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

/// Marks of one log. For a hundred nodes in 258 partitions they take 26 MB at most.
const MARKS_MAX: usize = 32;

/// The log grew up to the number `last`, by so many bytes.
#[derive(Clone, Copy)]
struct Mark {
    last: u64,
    bytes: u64,
    /// When the first of these bytes came, by the monotonic clock.
    at: u64,
}

/// The marks of one log.
#[derive(Clone, Default)]
pub(super) struct Marks {
    marks: VecDeque<Mark>,
    /// The end of the log when this machine was made, and that moment.
    before: Option<(u64, u64)>,
}

/// Marks are for reports only and decide nothing, so they do not count in the fingerprint.
impl Hash for Marks {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Marks {
    /// The log's end at the start.
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

    /// All peers have the log up to this number.
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

    /// How many bytes follow this number, and when the first of them came.
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
