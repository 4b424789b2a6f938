//! Tells which messages are gone: EXPUNGE, or VANISHED to who has enabled QRESYNC (RFC 7162, 3.2.10).
//!
//! [`Gone`] is about messages that the client sees: its sequence numbers change. [`Earlier`] is about what a client remembers from another
//! connection: VANISHED (EARLIER), which changes no number.

use whimbrel_imap::encode;
use whimbrel_service::api::Uids;

use super::{context::Context, finish::SetText, view::View};

/// A VANISHED line is ended when it is this long, and another one begun: RFC 7162, section 4, has clients limit their own lines to about as
/// much, and some send back the sets that they were sent.
const LINE_BYTES: usize = 8 * 1024;

/// Messages that have left the view and are still to be told.
pub(super) enum Gone {
    /// Sequence numbers, the last message first, so that no number depends on one told before.
    Numbers(std::vec::IntoIter<u32>),
    /// UIDs.
    Uids(std::vec::IntoIter<u32>, Line),
}

impl Gone {
    /// Takes these UIDs (ascending; unknown ones do not matter) out of the view. "A VANISHED response without the EARLIER tag MUST refer only
    /// to messages that are visible to the client in the current session" (RFC 7162, 3.2.10.2).
    pub(super) fn new(view: &mut View, uids: &[u32], qresync: bool) -> Gone {
        let mut told = Vec::new();
        if uids.is_empty() {
            // The usual case: nothing is looked through.
        } else if qresync {
            view.remove(uids, |_, uid| told.push(uid));
        } else {
            view.remove(uids, |number, _| told.push(number));
            told.reverse();
        }
        if qresync {
            Gone::Uids(told.into_iter(), Line::new(false))
        } else {
            Gone::Numbers(told.into_iter())
        }
    }

    /// Writes what there is room for; says whether that was all.
    pub(super) fn write(&mut self, cx: &mut Context) -> bool {
        match self {
            Gone::Numbers(numbers) => {
                for number in numbers.by_ref() {
                    encode::expunge(&mut cx.out, number);
                    if cx.is_full() {
                        return false;
                    }
                }
            }
            Gone::Uids(uids, line) => {
                for uid in uids.by_ref() {
                    line.add(&mut cx.out, (uid, uid));
                    if cx.is_full() {
                        return false;
                    }
                }
                line.end(&mut cx.out);
            }
        }
        true
    }
}

/// A VANISHED line that is being written.
pub(super) struct Line {
    earlier: bool,
    /// Bytes of it so far; none: it is not begun.
    bytes: usize,
    text: SetText,
}

impl Line {
    fn new(earlier: bool) -> Line {
        Line {
            earlier,
            bytes: 0,
            text: SetText::default(),
        }
    }

    fn add(&mut self, out: &mut Vec<u8>, range: (u32, u32)) {
        let before = out.len();
        if self.bytes == 0 {
            encode::vanished_begin(out, self.earlier);
        }
        self.text.add_range(out, range);
        self.bytes += out.len() - before;
        if self.bytes >= LINE_BYTES {
            self.end(out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.bytes) > 0 {
            self.text.end(out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// What a client remembers and is not there any more, to be told by VANISHED (EARLIER).
pub(super) struct Earlier {
    source: Source,
    line: Line,
}

enum Source {
    /// What the history tells.
    History(std::vec::IntoIter<u32>),
    /// Whatever is known and not there.
    Missing(Missing),
}

impl Earlier {
    /// Of the UIDs that the client knows (ranges, ascending) those of the history. What it still sees it is told otherwise.
    pub(super) fn of_history(view: &View, known: &[(u32, u32)], mut vanished: Vec<u32>) -> Earlier {
        vanished.retain(|&uid| {
            let at = known.partition_point(|range| range.1 < uid);
            known.get(at).is_some_and(|range| range.0 <= uid) && view.place(uid).is_none()
        });
        Earlier {
            source: Source::History(vanished.into_iter()),
            line: Line::new(true),
        }
    }

    /// All UIDs above `matched` that the client knows (ranges, ascending) and does not see: "for every known UID not shown".
    pub(super) fn of_known(known: Vec<(u32, u32)>, matched: u32) -> Earlier {
        Earlier {
            source: Source::Missing(Missing {
                known,
                at: 0,
                from: matched.saturating_add(1),
                place: 0,
            }),
            line: Line::new(true),
        }
    }

    /// Writes what there is room for; says whether that was all.
    pub(super) fn write(&mut self, cx: &mut Context) -> bool {
        loop {
            let next = match &mut self.source {
                Source::History(uids) => uids.next().map(|uid| (uid, uid)),
                Source::Missing(missing) => missing.next(&cx.view().uids),
            };
            let Some(range) = next else {
                self.line.end(&mut cx.out);
                return true;
            };
            self.line.add(&mut cx.out, range);
            if cx.is_full() {
                return false;
            }
        }
    }
}

/// A walk through the gaps of a view, within what a client knows.
struct Missing {
    known: Vec<(u32, u32)>,
    /// The present range of `known`, and the first UID in it that was not looked at.
    at: usize,
    from: u32,
    /// The first place of the view that was not passed.
    place: usize,
}

impl Missing {
    fn next(&mut self, uids: &Uids) -> Option<(u32, u32)> {
        loop {
            let &(start, end) = self.known.get(self.at)?;
            let from = start.max(self.from);
            if from > end {
                self.at += 1;
                continue;
            }
            while uids.get(self.place).is_some_and(|uid| uid < from) {
                self.place += 1;
            }
            match uids.get(self.place) {
                Some(uid) if uid <= end => {
                    self.place += 1;
                    match uid.checked_add(1) {
                        Some(next) => self.from = next,
                        None => self.at += 1,
                    }
                    if from < uid {
                        return Some((from, uid - 1));
                    }
                }
                _ => {
                    self.at += 1;
                    return Some((from, end));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(known: &[(u32, u32)], uids: &[u32], expected: &[(u32, u32)]) {
        let there: Uids = uids.iter().copied().collect();
        let mut missing = Missing {
            known: known.to_vec(),
            at: 0,
            from: 1,
            place: 0,
        };
        let found: Vec<_> = std::iter::from_fn(|| missing.next(&there)).collect();
        assert_eq!(found, expected, "{known:?} {uids:?}");
    }

    #[test]
    fn gaps() {
        check(&[], &[64], &[]);
        check(&[(1, 100)], &[], &[(1, 100)]);
        check(&[(64, 64), (128, 128)], &[64, 128], &[]);
        check(&[(1, 130)], &[64, 128], &[(1, 63), (65, 127), (129, 130)]);
        check(
            &[(u32::MAX - 1, u32::MAX)],
            &[u32::MAX],
            &[(u32::MAX - 1, u32::MAX - 1)],
        );
        check(&[(1, u32::MAX)], &[u32::MAX], &[(1, u32::MAX - 1)]);
    }

    proptest! {
        #[test]
        fn gaps_like_a_filter(
            uids in proptest::collection::btree_set(1u32..80, 0..20),
            ranges in proptest::collection::vec((1u32..90, 0u32..9), 0..8),
        ) {
            let uids: Vec<u32> = uids.into_iter().collect();
            let set = whimbrel_imap::core::SequenceSet::from_ranges(ranges.iter().map(|r| (r.0, r.0 + r.1)));
            let mut missing = Missing { known: set.ranges().to_vec(), at: 0, from: 1, place: 0 };
            let there: Uids = uids.iter().copied().collect();
            let found: Vec<u32> = std::iter::from_fn(|| missing.next(&there)).flat_map(|(a, b)| a..=b).collect();
            let expected: Vec<u32> = (1..110).filter(|n| set.contains(*n, 0) && !uids.contains(n)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
