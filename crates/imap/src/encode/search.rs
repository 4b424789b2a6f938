//! SEARCH (rev1) and ESEARCH (RFC 4731, RFC 9051, section 7.3.4).

use super::strings::{number, quoted};
use crate::core::{ModSeq, SequenceSet, Tag};

/// `* SEARCH n n n`, with `(MODSEQ n)` when a MODSEQ key was used and something was found (RFC 7162, section 3.1.5).
pub fn search(out: &mut Vec<u8>, numbers: &[u32], mod_seq: Option<ModSeq>) {
    out.extend_from_slice(b"* SEARCH");
    for &n in numbers {
        out.push(b' ');
        number(out, u64::from(n));
    }
    if let Some(n) = mod_seq.filter(|_| !numbers.is_empty()) {
        out.extend_from_slice(b" (MODSEQ ");
        number(out, n);
        out.push(b')');
    }
    out.extend_from_slice(b"\r\n");
}

/// An ESEARCH response. `None` is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ESearch<'a> {
    /// Of the command.
    pub tag: &'a Tag,
    /// Numbers are UIDs.
    pub uid: bool,
    /// Least number.
    pub min: Option<u32>,
    /// Greatest number.
    pub max: Option<u32>,
    /// All numbers; left out when empty (RFC 4731, section 3.1).
    pub all: Option<&'a SequenceSet>,
    /// How many.
    pub count: Option<u32>,
    /// Highest modification sequence of what was found (RFC 7162, section 3.1.10).
    pub mod_seq: Option<ModSeq>,
}

impl<'a> ESearch<'a> {
    /// A response that tells nothing yet.
    pub fn new(tag: &'a Tag, uid: bool) -> Self {
        Self {
            tag,
            uid,
            min: None,
            max: None,
            all: None,
            count: None,
            mod_seq: None,
        }
    }

    /// Appends the response.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"* ESEARCH (TAG ");
        quoted(out, self.tag.as_str().as_bytes());
        out.push(b')');
        if self.uid {
            out.extend_from_slice(b" UID");
        }
        let mut pair = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                out.push(b' ');
                out.extend_from_slice(name.as_bytes());
                out.push(b' ');
                number(out, value);
            }
        };
        pair("MIN", self.min.map(u64::from));
        pair("MAX", self.max.map(u64::from));
        pair("COUNT", self.count.map(u64::from));
        pair("MODSEQ", self.mod_seq);
        if let Some(all) = self.all.filter(|all| !all.is_empty()) {
            out.extend_from_slice(b" ALL ");
            all.encode(out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\r\n"));
    }

    #[test]
    fn responses() {
        check(|o| search(o, &[2, 84, 882], None), "* SEARCH 2 84 882");
        check(|o| search(o, &[], Some(5)), "* SEARCH");
        // RFC 7162, section 3.1.5.
        check(
            |o| search(o, &[2, 5], Some(917_162_500)),
            "* SEARCH 2 5 (MODSEQ 917162500)",
        );
        let tag = Tag::new(b"A282").unwrap();
        let all = SequenceSet::from_numbers([2, 10, 11]);
        let empty = ESearch::new(&tag, false);
        check(|o| empty.encode(o), r#"* ESEARCH (TAG "A282")"#);
        check(
            |o| {
                ESearch {
                    min: Some(2),
                    count: Some(3),
                    ..empty
                }
                .encode(o)
            },
            r#"* ESEARCH (TAG "A282") MIN 2 COUNT 3"#,
        );
        check(
            |o| {
                ESearch {
                    uid: true,
                    all: Some(&all),
                    mod_seq: Some(9),
                    ..empty
                }
                .encode(o)
            },
            r#"* ESEARCH (TAG "A282") UID MODSEQ 9 ALL 2,10:11"#,
        );
        check(
            |o| {
                ESearch {
                    all: Some(&SequenceSet::default()),
                    ..empty
                }
                .encode(o)
            },
            r#"* ESEARCH (TAG "A282")"#,
        );
    }
}
