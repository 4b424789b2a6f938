//! Needles in a text that comes in pieces.

use std::sync::Arc;

use memchr::memmem::Finder;

use super::{Needle, Slice};
use crate::collation::Casemap;

/// Folded bytes that are gathered before they are searched.
pub(super) const WINDOW_BYTES: usize = 16 * 1024;
/// What it costs to look for a needle in nothing, in bytes that are looked through.
const FIND_WORK: usize = 64;

/// Behind each unit in a window: no text holds such a byte, so that no needle does, and no match spans two units.
const END: u8 = 0xff;

/// Finds needles in units of text: a match never spans two units. Needles may be of several groups, which are looked for in texts of
/// their own.
///
/// Text is gathered, and looked through when there is enough of it for all groups together: so what is held does not grow with the
/// number of needles or groups.
pub(super) struct Matcher {
    finders: Vec<Arc<Finder<'static>>>,
    matched: Vec<bool>,
    /// How many were not found.
    missing: usize,
    groups: Vec<Group>,
    /// Folded bytes in all windows that were not looked through.
    gathered: usize,
    /// So many are looked through at once.
    enough: usize,
    /// Where a search goes on: its group and its finder.
    at: (usize, usize),
}

/// Needles that are looked for in the same text.
struct Group {
    /// Its finders end here, and begin where those of the group before end.
    end: usize,
    /// Its longest needle is one byte longer.
    overlap: usize,
    /// Folds the text of the present unit.
    casemap: Casemap,
    /// Folded text that is not looked through yet, and before it what a match may begin in.
    window: Vec<u8>,
}

impl Matcher {
    /// For needles of one group.
    pub(super) fn new(needles: &[Needle]) -> Matcher {
        Matcher::grouped(needles, [needles.len()])
    }

    /// For needles of several groups; `ends` says where each ends.
    pub(super) fn grouped(needles: &[Needle], ends: impl IntoIterator<Item = usize>) -> Matcher {
        let mut start = 0;
        let group = |end| {
            let lengths = needles[start..end].iter().map(|n| n.folded().len());
            start = end;
            Group {
                end,
                overlap: lengths.max().unwrap_or(0).saturating_sub(1),
                casemap: Casemap::for_search(),
                window: Vec::new(),
            }
        };
        let groups: Vec<Group> = ends.into_iter().map(group).collect();
        let overlap = groups.iter().map(|group| group.overlap).max();
        let matched: Vec<bool> = needles.iter().map(Needle::is_empty).collect();
        Matcher {
            finders: needles.iter().map(|n| Arc::clone(&n.finder)).collect(),
            missing: matched.iter().filter(|&&matched| !matched).count(),
            matched,
            groups,
            gathered: 0,
            // What may hold the begin of a match is looked through again: that is to be no more than what is new.
            enough: WINDOW_BYTES.max(overlap.unwrap_or(0)),
            at: (0, 0),
        }
    }

    /// As it was before the first text.
    pub(super) fn clear(&mut self) {
        let finders = self.finders.iter();
        for (matched, finder) in self.matched.iter_mut().zip(finders) {
            *matched = finder.needle().is_empty();
        }
        self.missing = self.matched.iter().filter(|&&matched| !matched).count();
        for group in &mut self.groups {
            group.casemap = Casemap::for_search();
            group.window.clear();
        }
        (self.gathered, self.at) = (0, (0, 0));
    }

    /// Whether every needle was found.
    pub(super) fn is_done(&self) -> bool {
        self.missing == 0
    }

    /// How many were found.
    pub(super) fn found(&self) -> usize {
        self.matched.len() - self.missing
    }

    pub(super) fn matched(&self) -> &[bool] {
        &self.matched
    }

    /// The next text of the unit, for a group.
    pub(super) fn push(&mut self, group: usize, text: &str) {
        if self.is_done() {
            return;
        }
        debug_assert_eq!(self.at, (0, 0), "a search is under way");
        let Group {
            casemap, window, ..
        } = &mut self.groups[group];
        let before = window.len();
        casemap.push(text, window);
        self.gathered += window.len() - before;
    }

    /// A group's unit is at its end.
    pub(super) fn end_unit(&mut self, group: usize) {
        let Group {
            casemap, window, ..
        } = &mut self.groups[group];
        let before = window.len();
        casemap.finish(window);
        self.gathered += window.len() - before;
        if window.last().is_some_and(|&last| last != END) {
            window.push(END);
            self.gathered += 1;
        }
    }

    /// Whether what was gathered is to be looked through before there is more.
    pub(super) fn is_full(&self) -> bool {
        self.gathered >= self.enough || self.at != (0, 0)
    }

    /// Looks through what was gathered. False: the slice is used up before that; nothing may be pushed until it is called again.
    pub(super) fn search(&mut self, slice: &mut Slice) -> bool {
        if self.gathered == 0 {
            return true;
        }
        let is_alone = self.groups.len() == 1;
        while let Some(group) = self.groups.get_mut(self.at.0) {
            // Of a window that was looked through only what a match may begin in is left.
            while !group.window.is_empty() && self.at.1 < group.end && self.missing > 0 {
                if slice.is_used_up() {
                    return false;
                }
                let matched = &mut self.matched[self.at.1];
                if !*matched {
                    slice.take(FIND_WORK + group.window.len());
                    *matched = self.finders[self.at.1].find(&group.window).is_some();
                    self.missing -= usize::from(*matched);
                }
                self.at.1 += 1;
            }
            group.keep_overlap(is_alone);
            self.at = (self.at.0 + 1, group.end);
        }
        self.at = (0, 0);
        self.gathered = 0;
        true
    }

    /// Bytes of all windows.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let windows = self.groups.iter().map(|group| group.window.capacity());
        windows.sum()
    }
}

impl Group {
    /// After a search. A unit that is over leaves nothing: the windows of many groups must not grow each for itself.
    fn keep_overlap(&mut self, is_alone: bool) {
        let unit = self.window.rsplit(|&byte| byte == END).next();
        let keep = unit.map_or(0, <[u8]>::len).min(self.overlap);
        if keep == 0 && !is_alone {
            self.window = Vec::new();
        } else {
            self.window.drain(..self.window.len() - keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As searchers do it.
    fn push(matcher: &mut Matcher, group: usize, text: &str) {
        matcher.push(group, text);
        if matcher.is_full() {
            assert!(matcher.search(&mut Slice::endless()));
        }
    }

    #[test]
    fn matches_at_every_place_of_a_window() {
        for before in WINDOW_BYTES - 12..WINDOW_BYTES + 2 {
            let mut matcher = Matcher::new(&[Needle::new("needle")]);
            push(&mut matcher, 0, &"x".repeat(before));
            "needle"
                .chars()
                .for_each(|c| push(&mut matcher, 0, &c.to_string()));
            push(&mut matcher, 0, &"x".repeat(2 * WINDOW_BYTES));
            matcher.end_unit(0);
            assert!(matcher.search(&mut Slice::endless()));
            assert!(matcher.is_done(), "{before}");
        }
    }

    #[test]
    fn matches_across_windows_and_not_across_units() {
        let long = Needle::new(&"ab".repeat(WINDOW_BYTES));
        let short = Needle::new("xY");
        let never = Needle::new("yz");
        let mut matcher = Matcher::new(&[long, short, never]);
        for _ in 0..WINDOW_BYTES {
            push(&mut matcher, 0, "a");
            push(&mut matcher, 0, "B");
        }
        push(&mut matcher, 0, "x");
        push(&mut matcher, 0, "Y");
        assert!(matcher.held_bytes() < 8 * WINDOW_BYTES);
        matcher.end_unit(0);
        push(&mut matcher, 0, "z");
        matcher.end_unit(0);
        assert!(matcher.search(&mut Slice::endless()));
        assert_eq!(matcher.matched(), [true, true, false]);
        matcher.clear();
        assert_eq!((matcher.found(), matcher.is_done()), (0, false));
    }

    #[test]
    fn groups_have_texts_of_their_own() {
        let needles = ["ab", "cd", "ab", "cd", ""].map(Needle::new);
        let mut matcher = Matcher::grouped(&needles, [2, 2, 4, 5]);
        push(&mut matcher, 0, "xa");
        push(&mut matcher, 2, "xc");
        push(&mut matcher, 0, "b");
        push(&mut matcher, 1, "cd");
        assert!(matcher.search(&mut Slice::endless()));
        push(&mut matcher, 2, "d");
        matcher.end_unit(2);
        assert!(matcher.search(&mut Slice::endless()));
        assert_eq!(matcher.matched(), [true, false, false, true, true]);
        assert_eq!((matcher.found(), matcher.is_done()), (3, false));
        (0..2).for_each(|group| matcher.end_unit(group));
        assert!(matcher.search(&mut Slice::endless()));
        assert_eq!(matcher.held_bytes(), 0);
    }

    #[test]
    fn a_search_goes_on_where_the_slice_ended() {
        let needles: Vec<Needle> = (0..1000).map(|n| Needle::new(&format!("<{n}>"))).collect();
        let mut matcher = Matcher::grouped(&needles, [500, 1000]);
        push(&mut matcher, 0, "<3><700><499>");
        push(&mut matcher, 1, "<3><700><999>");
        let mut steps = 1;
        while !matcher.search(&mut Slice::new(10 * FIND_WORK)) {
            steps += 1;
        }
        assert!((100..=200).contains(&steps), "{steps}");
        let found: Vec<usize> = (0..1000).filter(|n| matcher.matched()[*n]).collect();
        assert_eq!(found, [3, 499, 700, 999]);
    }
}
