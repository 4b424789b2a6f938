//! FETCH responses (RFC 9051, section 7.5.2).

use super::strings::{flag_list, number, object_id, string};
#[cfg(doc)]
use super::structure;
use crate::command::{Section, SectionText};
use crate::core::{DateTime, Flag, ModSeq, ObjectId};

/// Writes one `* n FETCH (...)`. It holds no buffer, so that a body can be streamed between its header and the next item:
///
/// ```
/// # use whimbrel_imap::encode::{FetchWriter, BodyAnswer};
/// # use whimbrel_imap::command::Section;
/// let mut out = Vec::new();
/// let mut fetch = FetchWriter::begin(&mut out, 12);
/// fetch.uid(&mut out, 64);
/// fetch.body(&mut out, &Section::default(), None, BodyAnswer::Literal(5));
/// out.extend_from_slice(b"hello");
/// fetch.end(&mut out);
/// assert_eq!(out, b"* 12 FETCH (UID 64 BODY[] {5}\r\nhello)\r\n");
/// ```
#[derive(Debug)]
#[must_use = "a FETCH response must be ended"]
pub struct FetchWriter {
    first: bool,
}

/// What a body section is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyAnswer<'a> {
    /// There is no such section.
    Nil,
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes, which the caller appends next. They must hold no NUL.
    Literal(u64),
    /// So many bytes, which the caller appends next, and which hold NUL: only in answer to BINARY (RFC 9051, section 4.3.1:
    /// "unencoded binary strings are not permitted, unless returned in a <literal8> in response to" it).
    Literal8(u64),
}

impl FetchWriter {
    /// Begins the response for the message with this sequence number.
    pub fn begin(out: &mut Vec<u8>, sequence: u32) -> Self {
        out.extend_from_slice(b"* ");
        number(out, u64::from(sequence));
        out.extend_from_slice(b" FETCH (");
        Self { first: true }
    }

    /// Ends the response.
    pub fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b")\r\n");
    }

    fn name(&mut self, out: &mut Vec<u8>, name: &str) {
        if !std::mem::replace(&mut self.first, false) {
            out.push(b' ');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
    }

    /// `UID n`
    pub fn uid(&mut self, out: &mut Vec<u8>, uid: u32) {
        self.name(out, "UID");
        number(out, u64::from(uid));
    }

    /// `FLAGS (...)`; `recent` adds `\Recent` (rev1).
    pub fn flags(&mut self, out: &mut Vec<u8>, flags: &[Flag], recent: bool) {
        self.name(out, "FLAGS");
        flag_list(out, flags, recent.then_some("\\Recent"));
    }

    /// `MODSEQ (n)` (RFC 7162)
    pub fn mod_seq(&mut self, out: &mut Vec<u8>, mod_seq: ModSeq) {
        self.name(out, "MODSEQ");
        out.push(b'(');
        number(out, mod_seq);
        out.push(b')');
    }

    /// `INTERNALDATE "..."`
    pub fn internal_date(&mut self, out: &mut Vec<u8>, date: DateTime) {
        self.name(out, "INTERNALDATE");
        out.push(b'"');
        date.encode(out);
        out.push(b'"');
    }

    /// `SAVEDATE "..."`
    pub fn save_date(&mut self, out: &mut Vec<u8>, date: DateTime) {
        self.name(out, "SAVEDATE");
        out.push(b'"');
        date.encode(out);
        out.push(b'"');
    }

    /// `EMAILID (id)` (RFC 8474)
    pub fn email_id(&mut self, out: &mut Vec<u8>, id: &ObjectId) {
        self.name(out, "EMAILID");
        object_id(out, Some(id));
    }

    /// `THREADID (id)`, or `THREADID NIL` (RFC 8474)
    pub fn thread_id(&mut self, out: &mut Vec<u8>, id: Option<&ObjectId>) {
        self.name(out, "THREADID");
        object_id(out, id);
    }

    /// `RFC822.SIZE n`
    pub fn size(&mut self, out: &mut Vec<u8>, size: u64) {
        self.name(out, "RFC822.SIZE");
        number(out, size);
    }

    /// `PREVIEW ...` (RFC 8970): a text, maybe none; `None`: it is not at hand.
    pub fn preview(&mut self, out: &mut Vec<u8>, preview: Option<&str>) {
        self.name(out, "PREVIEW");
        match preview {
            Some(text) => string(out, text.as_bytes(), false),
            None => out.extend_from_slice(b"NIL"),
        }
    }

    /// `ENVELOPE (...)`; `made` is what [`structure::envelope`] appends.
    pub fn envelope(&mut self, out: &mut Vec<u8>, made: &[u8]) {
        self.name(out, "ENVELOPE");
        out.extend_from_slice(made);
    }

    /// `BODYSTRUCTURE (...)`; `made` is what [`structure::body`] appends of the outermost part, extended.
    pub fn body_structure(&mut self, out: &mut Vec<u8>, made: &[u8]) {
        self.name(out, "BODYSTRUCTURE");
        out.extend_from_slice(made);
    }

    /// `BODY (...)`: BODYSTRUCTURE without extension data.
    pub fn body_basic(&mut self, out: &mut Vec<u8>, made: &[u8]) {
        self.name(out, "BODY");
        out.extend_from_slice(made);
    }

    /// `BODY[section]<origin> ...`; `origin` is the offset of the partial that was asked, without its length.
    pub fn body(
        &mut self,
        out: &mut Vec<u8>,
        section: &Section,
        origin: Option<u64>,
        answer: BodyAnswer<'_>,
    ) {
        if !std::mem::replace(&mut self.first, false) {
            out.push(b' ');
        }
        out.extend_from_slice(b"BODY[");
        section.encode(out);
        out.push(b']');
        assert!(
            !matches!(answer, BodyAnswer::Literal8(_)),
            "a literal8 outside of BINARY"
        );
        end_of_body(out, origin, answer);
    }

    /// `BINARY[part]<origin> ...`; `origin` is the offset of the partial that was asked, without its length.
    pub fn binary(
        &mut self,
        out: &mut Vec<u8>,
        part: &[u32],
        origin: Option<u64>,
        answer: BodyAnswer<'_>,
    ) {
        if !std::mem::replace(&mut self.first, false) {
            out.push(b' ');
        }
        out.extend_from_slice(b"BINARY[");
        section_part(out, part);
        out.push(b']');
        end_of_body(out, origin, answer);
    }

    /// `BINARY.SIZE[part] n`
    pub fn binary_size(&mut self, out: &mut Vec<u8>, part: &[u32], size: u64) {
        if !std::mem::replace(&mut self.first, false) {
            out.push(b' ');
        }
        out.extend_from_slice(b"BINARY.SIZE[");
        section_part(out, part);
        out.extend_from_slice(b"] ");
        number(out, size);
    }

    /// `RFC822 ...`, `RFC822.HEADER ...`, `RFC822.TEXT ...` (rev1): `name` is that word.
    pub fn rfc822(&mut self, out: &mut Vec<u8>, name: &str, answer: BodyAnswer<'_>) {
        self.name(out, name);
        answer.encode(out);
    }
}

/// `["<" number64 ">"] SP nstring`
fn end_of_body(out: &mut Vec<u8>, origin: Option<u64>, answer: BodyAnswer<'_>) {
    if let Some(origin) = origin {
        out.push(b'<');
        number(out, origin);
        out.push(b'>');
    }
    out.push(b' ');
    answer.encode(out);
}

/// `section-part = nz-number *("." nz-number)`, or nothing.
fn section_part(out: &mut Vec<u8>, part: &[u32]) {
    for (n, &part) in part.iter().enumerate() {
        if n > 0 {
            out.push(b'.');
        }
        number(out, u64::from(part));
    }
}

impl BodyAnswer<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(b"NIL"),
            // 8-bit text in quotes is for names, not for content: never `utf8`.
            Self::Bytes(bytes) => string(out, bytes, false),
            Self::Literal(size) | Self::Literal8(size) => {
                if matches!(self, Self::Literal8(_)) {
                    out.push(b'~');
                }
                out.push(b'{');
                number(out, size);
                out.extend_from_slice(b"}\r\n");
            }
        }
    }
}

impl Section {
    /// Appends the inside of the brackets.
    pub fn encode(&self, out: &mut Vec<u8>) {
        section_part(out, &self.part);
        let Some(text) = &self.text else { return };
        if !self.part.is_empty() {
            out.push(b'.');
        }
        match text {
            SectionText::Header => out.extend_from_slice(b"HEADER"),
            SectionText::Text => out.extend_from_slice(b"TEXT"),
            SectionText::Mime => out.extend_from_slice(b"MIME"),
            SectionText::HeaderFields(fields) => {
                out.extend_from_slice(if fields.not {
                    b"HEADER.FIELDS.NOT ("
                } else {
                    b"HEADER.FIELDS ("
                });
                for (n, name) in fields.names.iter().enumerate() {
                    if n > 0 {
                        out.push(b' ');
                    }
                    if name.bytes().all(crate::core::is_astring_char) {
                        out.extend_from_slice(name.as_bytes());
                    } else {
                        string(out, name.as_bytes(), false);
                    }
                }
                out.push(b')');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::HeaderFields;

    #[track_caller]
    fn check(write: impl FnOnce(&mut FetchWriter, &mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        let mut fetch = FetchWriter::begin(&mut out, 1);
        write(&mut fetch, &mut out);
        fetch.end(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("* 1 FETCH ({expected})\r\n")
        );
    }

    #[test]
    fn items() {
        check(
            |f, o| f.flags(o, &[Flag::Seen], true),
            r"FLAGS (\Seen \Recent)",
        );
        check(
            |f, o| {
                f.uid(o, 7);
                f.mod_seq(o, 65402);
                f.size(o, 44827);
            },
            "UID 7 MODSEQ (65402) RFC822.SIZE 44827",
        );
        let date = DateTime::parse(b"17-Jul-1996 02:44:25 -0700").unwrap();
        check(
            |f, o| f.internal_date(o, date),
            r#"INTERNALDATE "17-Jul-1996 02:44:25 -0700""#,
        );
        let id = ObjectId::new(b"M1-a_").unwrap();
        check(
            |f, o| {
                f.save_date(o, date);
                f.email_id(o, &id);
                f.thread_id(o, None);
                f.thread_id(o, Some(&id));
            },
            r#"SAVEDATE "17-Jul-1996 02:44:25 -0700" EMAILID (M1-a_) THREADID NIL THREADID (M1-a_)"#,
        );
        check(
            |f, o| f.rfc822(o, "RFC822.TEXT", BodyAnswer::Bytes(b"hi")),
            r#"RFC822.TEXT "hi""#,
        );
    }

    #[test]
    fn sections() {
        let fields = HeaderFields {
            not: false,
            names: vec!["DATE".into(), "X(y".into()],
        };
        let section = |part: &[u32], text| Section {
            part: part.to_vec(),
            text,
        };
        check(
            |f, o| f.body(o, &section(&[], None), None, BodyAnswer::Nil),
            "BODY[] NIL",
        );
        check(
            |f, o| f.body(o, &section(&[1, 2], None), Some(9), BodyAnswer::Bytes(b"")),
            r#"BODY[1.2]<9> """#,
        );
        check(
            |f, o| {
                f.body(
                    o,
                    &section(&[3], Some(SectionText::Mime)),
                    None,
                    BodyAnswer::Bytes(b"a\r\n"),
                )
            },
            "BODY[3.MIME] {3}\r\na\r\n",
        );
        check(
            |f, o| {
                f.body(
                    o,
                    &section(&[], Some(SectionText::HeaderFields(fields))),
                    None,
                    BodyAnswer::Nil,
                )
            },
            r#"BODY[HEADER.FIELDS (DATE "X(y")] NIL"#,
        );
    }

    #[test]
    fn binaries() {
        check(
            |f, o| {
                f.binary_size(o, &[1, 2], 4);
                f.binary(o, &[1, 2], None, BodyAnswer::Literal8(4));
                o.extend_from_slice(b"a\0b\n");
                f.binary(o, &[3], Some(7), BodyAnswer::Nil);
                f.binary(o, &[], None, BodyAnswer::Literal(2));
                o.extend_from_slice(b"ab");
            },
            "BINARY.SIZE[1.2] 4 BINARY[1.2] ~{4}\r\na\0b\n BINARY[3]<7> NIL BINARY[] {2}\r\nab",
        );
    }

    #[test]
    #[should_panic(expected = "outside of BINARY")]
    fn a_literal8_is_for_binary_only() {
        check(
            |f, o| f.body(o, &Section::default(), None, BodyAnswer::Literal8(0)),
            "",
        );
    }
}
