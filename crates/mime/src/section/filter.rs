//! HEADER.FIELDS and HEADER.FIELDS.NOT on a header that streams by.

use std::collections::BTreeSet;

use crate::parser::block::{NAME_BYTES_MAX, split};
use crate::parser::text::is_wsp;

/// Passes the fields of a header block that are (or are not) of given names, and the empty line that ends it: "the
/// blank line is included in all header fetches" (RFC 9051 6.4.5).
///
/// A line without a colon is a field without a name: HEADER.FIELDS never has it, HEADER.FIELDS.NOT always.
pub struct HeaderFilter {
    names: BTreeSet<Box<[u8]>>,
    not: bool,
    /// The beginning of a line, as long as it is open what it is. At most [`NAME_BYTES_MAX`].
    pending: Vec<u8>,
    /// Whether a line begins here, or one is pending.
    at_start: bool,
    /// Whether the present field passes.
    pass: bool,
    /// The empty line was seen.
    over: bool,
}

impl HeaderFilter {
    /// A filter for HEADER.FIELDS, or with `not` for HEADER.FIELDS.NOT.
    pub fn new<N: AsRef<[u8]>>(names: &[N], not: bool) -> HeaderFilter {
        HeaderFilter {
            names: names
                .iter()
                .map(|name| name.as_ref().to_ascii_lowercase().into())
                .collect(),
            not,
            pending: Vec::new(),
            at_start: true,
            pass: not,
            over: false,
        }
    }

    /// The next bytes of the header; what passes is given to `out`, in pieces.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            if self.over {
                return out(bytes);
            }
            if self.at_start && self.pending.is_empty() && is_wsp(bytes[0]) {
                // A continuation goes the way of its field.
                self.at_start = false;
            }
            let taken = if self.at_start {
                self.decide(bytes, out)
            } else {
                self.rest(bytes, out)
            };
            bytes = &bytes[taken..];
        }
    }

    /// The header is at its end.
    pub fn finish(mut self, out: &mut impl FnMut(&[u8])) {
        if !self.pending.is_empty() {
            self.settle(out);
        }
    }

    /// Bytes of a line of which it is open what it is, up to where that shows.
    fn decide(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let room = NAME_BYTES_MAX - self.pending.len();
        let window = &bytes[..bytes.len().min(room)];
        let stop = memchr::memchr2(b':', b'\n', window);
        let taken = stop.map_or(window.len(), |stop| stop + 1);
        self.pending.extend_from_slice(&window[..taken]);
        if stop.is_some() || self.pending.len() == NAME_BYTES_MAX {
            self.settle(out);
        }
        taken
    }

    /// It shows what the pending line is.
    fn settle(&mut self, out: &mut impl FnMut(&[u8])) {
        let pending = std::mem::take(&mut self.pending);
        if pending == b"\n" || pending == b"\r\n" {
            self.over = true;
            return out(&pending);
        }
        let named = split(&pending)
            .is_some_and(|(name, _)| self.names.contains(name.to_ascii_lowercase().as_slice()));
        self.pass = named != self.not;
        if self.pass {
            out(&pending);
        }
        self.at_start = pending.ends_with(b"\n");
        self.pending = pending;
        self.pending.clear();
    }

    /// Bytes of a line that passes or not.
    fn rest(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let lf = memchr::memchr(b'\n', bytes);
        let taken = lf.map_or(bytes.len(), |lf| lf + 1);
        self.at_start = lf.is_some();
        if self.pass {
            out(&bytes[..taken]);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "From: a\r\nTo: b\r\n c\r\nfrom : d\nbad line\n more\nSubject: e\r\n\tfrom: f\r\n\r\n";

    fn check(header: &str, names: &[&str], not: bool, expected: &str) {
        for step in 1..=header.len() {
            let mut filter = HeaderFilter::new(names, not);
            let mut found = Vec::new();
            for piece in header.as_bytes().chunks(step) {
                filter.push(piece, &mut |bytes: &[u8]| found.extend_from_slice(bytes));
            }
            filter.finish(&mut |bytes: &[u8]| found.extend_from_slice(bytes));
            assert_eq!(
                String::from_utf8(found).unwrap(),
                expected,
                "{names:?} in pieces of {step}"
            );
        }
    }

    #[test]
    fn fields() {
        check(HEADER, &["FROM"], false, "From: a\r\nfrom : d\n\r\n");
        check(
            HEADER,
            &["to", "subject", "x"],
            false,
            "To: b\r\n c\r\nSubject: e\r\n\tfrom: f\r\n\r\n",
        );
        check(
            HEADER,
            &["to", "subject"],
            true,
            "From: a\r\nfrom : d\nbad line\n more\n\r\n",
        );
        check(HEADER, &["bad line", ""], false, "\r\n");
        check(HEADER, &[], true, HEADER);
        check("", &["a"], true, "");
        check("A: b", &["a"], false, "A: b");
        check("A", &["a"], true, "A");
        check(" x\nA: b\n\n", &["a"], false, "A: b\n\n");
    }

    #[test]
    fn a_name_has_a_limit() {
        let line = format!("{}: x\nA: b\n\n", "n".repeat(NAME_BYTES_MAX));
        check(&line, &[&"n".repeat(NAME_BYTES_MAX)], false, "\n");
        check(&line, &["a"], true, line.replace("A: b\n", "").as_str());
    }
}
