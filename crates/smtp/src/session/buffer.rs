//! Bytes that have come in and were not yet read, and the strict cutting of command lines out of them.
//!
//! Invariant: what the cutter says does not depend on how the bytes were split; no byte is looked at twice for a line end.

use memchr::{memchr, memchr2};
use zeroize::Zeroize;

/// An empty buffer keeps no more than this: a session at rest is small.
const IDLE_BYTES_MAX: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    at: usize,
    /// Of the unread bytes, how many are known to hold no line end.
    scanned: usize,
    /// In a line that is being thrown away: the last byte thrown away was a CR.
    discard_cr: bool,
}

/// What the cutter found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStep {
    /// A line of so many bytes without its CRLF is at the head.
    Line(usize),
    /// No complete line yet.
    Incomplete,
    /// A bare CR, a bare LF or an overlong line: throw away up to the next CRLF.
    BareLineEnd,
    TooLong,
}

impl InputBuffer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        // What has been read makes room when it is at least as much as what has not: linear in all.
        if self.at > 0 && self.at >= self.len() {
            self.bytes.copy_within(self.at.., 0);
            self.bytes.truncate(self.len());
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consumed more than there is");
        self.at += count;
        self.scanned = 0;
        if self.is_empty() {
            self.clear();
        }
    }

    /// Throws everything away; gives how much it was.
    pub(super) fn clear(&mut self) -> usize {
        let thrown_away = self.len();
        self.bytes.clear();
        self.at = 0;
        self.scanned = 0;
        if self.bytes.capacity() > IDLE_BYTES_MAX {
            self.bytes = Vec::new();
        }
        thrown_away
    }

    /// Wipes the first `count` unread bytes and consumes them: a line with a password.
    pub(super) fn wipe(&mut self, count: usize) {
        self.bytes[self.at..self.at + count].zeroize();
        self.consume(count);
    }

    /// Looks for a line of at most `bytes_max` with its CRLF.
    pub(super) fn next_line(&mut self, bytes_max: usize) -> LineStep {
        let unread = &self.bytes[self.at..];
        let found = memchr2(b'\r', b'\n', &unread[self.scanned..]).map(|at| self.scanned + at);
        let Some(end) = found else {
            self.scanned = unread.len();
            return if unread.len() >= bytes_max {
                LineStep::TooLong
            } else {
                LineStep::Incomplete
            };
        };
        self.scanned = end;
        // Each test is of the position alone, as if the bytes came one by one.
        match (unread[end], unread.get(end + 1)) {
            (b'\r', _) if end + 1 >= bytes_max => LineStep::TooLong,
            (b'\r', None) => LineStep::Incomplete,
            (b'\r', Some(b'\n')) => LineStep::Line(end),
            (b'\n', _) if end + 1 > bytes_max => LineStep::TooLong,
            _ => LineStep::BareLineEnd,
        }
    }

    /// Begins to throw away the line whose fault `next_line` has just told.
    pub(super) fn begin_discard(&mut self, fault: LineStep) {
        self.discard_cr = false;
        // The bare CR or LF itself; behind an overlong line's beginning there may be a true end.
        if fault == LineStep::BareLineEnd {
            self.consume(self.scanned + 1);
        }
    }

    /// Goes on; true when the CRLF has been found.
    pub(super) fn discard(&mut self) -> bool {
        loop {
            let unread = &self.bytes[self.at..];
            let Some(&last) = unread.last() else {
                return false;
            };
            let Some(lf) = memchr(b'\n', unread) else {
                self.discard_cr = last == b'\r';
                self.clear();
                return false;
            };
            let crlf = if lf == 0 {
                self.discard_cr
            } else {
                unread[lf - 1] == b'\r'
            };
            self.discard_cr = false;
            self.consume(lf + 1);
            if crlf {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cuts `input`, fed in pieces of `size`, into lines; faults are shown as `!`, overlong ones as `>`.
    fn cut(input: &[u8], size: usize) -> Vec<String> {
        let mut buffer = InputBuffer::default();
        let mut lines = Vec::new();
        let mut discarding = false;
        for piece in input.chunks(size) {
            buffer.push(piece);
            loop {
                if discarding {
                    if !buffer.discard() {
                        break;
                    }
                    discarding = false;
                }
                match buffer.next_line(8) {
                    LineStep::Incomplete => break,
                    LineStep::Line(length) => {
                        lines.push(String::from_utf8(buffer.unread()[..length].to_vec()).unwrap());
                        buffer.consume(length + 2);
                    }
                    fault => {
                        lines.push(if fault == LineStep::TooLong { ">" } else { "!" }.into());
                        buffer.begin_discard(fault);
                        discarding = true;
                    }
                }
            }
            assert!(buffer.len() < 8, "an unfinished line above the limit");
        }
        lines
    }

    fn check(input: &str, expected: &[&str]) {
        for size in 1..=input.len() {
            assert_eq!(cut(input.as_bytes(), size), expected, "{input:?} by {size}");
        }
    }

    #[test]
    fn lines() {
        check("a\r\nbb\r\n\r\nc", &["a", "bb", ""]);
        check("123456\r\n", &["123456"]);
        check("1234567\r\nb\r\n", &[">", "b"]);
        check("123456789012345\r\nb\r\n", &[">", "b"]);
        check("a\nb\r\nc\r\n", &["!", "c"]);
        check("a\rb\r\nc\r\n", &["!", "c"]);
        check("a\r\r\nc\r\n", &["!", "c"]);
        check("\n\r\nc\r\n", &["!", "c"]);
        check("a\nb\nc\nd\ne\nf\ng\nh\r\ni\r\n", &["!", "i"]);
        check("123456789\n\r\n\r\r\nb\r\n", &[">", "!", "b"]);
    }

    proptest! {
        #[test]
        fn any_split_is_the_same(input in "[a\r\n]{0,60}", size in 1usize..12) {
            prop_assert_eq!(cut(input.as_bytes(), size), cut(input.as_bytes(), 1));
        }
    }
}
