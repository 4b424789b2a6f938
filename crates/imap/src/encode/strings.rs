//! Strings: quoted where that is possible, a literal otherwise (RFC 9051, section 4.3); and other values that several responses share.

use crate::core::set::push_decimal;
use crate::core::{Flag, ObjectId, utf7};

/// Longest string that is sent quoted, in bytes. Some clients read a quoted string into a line buffer.
pub const QUOTED_BYTES_MAX: usize = 1024;

/// Appends a decimal number.
pub fn number(out: &mut Vec<u8>, number: u64) {
    push_decimal(out, number);
}

/// Appends a string. With `utf8`, text that is UTF-8 may be quoted; 8-bit bytes are a literal otherwise.
///
/// NUL cannot be sent in a string at all ("CHAR8 = any OCTET except NUL"): it becomes `?`.
pub fn string(out: &mut Vec<u8>, bytes: &[u8], utf8: bool) {
    if fits_quoted(bytes, utf8) {
        quoted(out, bytes);
    } else {
        out.push(b'{');
        push_decimal(out, bytes.len() as u64);
        out.extend_from_slice(b"}\r\n");
        out.extend(bytes.iter().map(|&b| if b == 0 { b'?' } else { b }));
    }
}

/// Appends a string, or `NIL`.
pub fn nstring(out: &mut Vec<u8>, bytes: Option<&[u8]>, utf8: bool) {
    match bytes {
        None => out.extend_from_slice(b"NIL"),
        Some(bytes) => string(out, bytes, utf8),
    }
}

/// Appends a mailbox name: UTF-8 with `utf8`, modified UTF-7 without.
pub fn mailbox(out: &mut Vec<u8>, name: &str, utf8: bool) {
    if utf8 || (name.is_ascii() && !name.contains('&')) {
        string(out, name.as_bytes(), utf8);
    } else {
        let mut wire = Vec::with_capacity(name.len() * 2);
        utf7::encode(name, &mut wire);
        string(out, &wire, false);
    }
}

/// Appends text that a human reads, on one line: controls become `?`, and so does what is not ASCII unless `utf8`.
pub fn text(out: &mut Vec<u8>, text: &str, utf8: bool) {
    if text.is_empty() {
        // `text = 1*TEXT-CHAR`.
        out.push(b'-');
    }
    let mut buffer = [0; 4];
    for c in text.chars() {
        let bad = c.is_control() || (!utf8 && !c.is_ascii());
        out.extend_from_slice(if bad {
            b"?"
        } else {
            c.encode_utf8(&mut buffer).as_bytes()
        });
    }
}

/// `(id)`, or NIL.
pub(super) fn object_id(out: &mut Vec<u8>, id: Option<&ObjectId>) {
    match id {
        Some(id) => {
            out.push(b'(');
            out.extend_from_slice(id.as_str().as_bytes());
            out.push(b')');
        }
        None => out.extend_from_slice(b"NIL"),
    }
}

/// Appends `(flag flag extra)`.
pub(crate) fn flag_list(out: &mut Vec<u8>, flags: &[Flag], extra: Option<&str>) {
    out.push(b'(');
    let start = out.len();
    for flag in flags.iter().map(Flag::as_str).chain(extra) {
        if out.len() > start {
            out.push(b' ');
        }
        out.extend_from_slice(flag.as_bytes());
    }
    out.push(b')');
}

/// Appends bytes that are known to be fit for it in quotes.
pub(crate) fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut rest = bytes;
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'\\', rest[at]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn fits_quoted(bytes: &[u8], utf8: bool) -> bool {
    if bytes.len() > QUOTED_BYTES_MAX || bytes.iter().any(|&b| matches!(b, 0 | b'\r' | b'\n')) {
        return false;
    }
    bytes.is_ascii() || (utf8 && std::str::from_utf8(bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], utf8: bool, expected: &[u8]) {
        let mut out = Vec::new();
        string(&mut out, input, utf8);
        assert_eq!(
            out.escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }

    #[test]
    fn quoted_or_literal() {
        check(b"", false, b"\"\"");
        check(b"a\"b\\c", false, b"\"a\\\"b\\\\c\"");
        check(b"a\tb", false, b"\"a\tb\"");
        check(b"a\r\nb", false, b"{4}\r\na\r\nb");
        check(b"a\nb", true, b"{3}\r\na\nb");
        check(b"a\rb", true, b"{3}\r\na\rb");
        check("ä".as_bytes(), false, b"{2}\r\n\xc3\xa4");
        check("ä".as_bytes(), true, b"\"\xc3\xa4\"");
        check(b"\xff", true, b"{1}\r\n\xff");
        check(b"a\0b", true, b"{3}\r\na?b");
        check(
            &[b'a'; 1025],
            false,
            format!("{{1025}}\r\n{}", "a".repeat(1025)).as_bytes(),
        );
    }

    #[track_caller]
    fn check_mailbox(name: &str, utf8: bool, expected: &str) {
        let mut out = Vec::new();
        mailbox(&mut out, name, utf8);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn mailboxes() {
        check_mailbox("INBOX", false, "\"INBOX\"");
        check_mailbox("a&b", false, "\"a&-b\"");
        check_mailbox("a&b", true, "\"a&b\"");
        check_mailbox("Entwürfe", false, "\"Entw&APw-rfe\"");
        check_mailbox("Entwürfe", true, "\"Entwürfe\"");
    }

    #[track_caller]
    fn check_text(input: &str, utf8: bool, expected: &str) {
        let mut out = Vec::new();
        text(&mut out, input, utf8);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn texts_stay_on_their_line() {
        check_text("done", false, "done");
        check_text("a\r\n* BYE", true, "a??* BYE");
        check_text("ü", true, "ü");
        check_text("ü", false, "?");
        check_text("", false, "-");
    }
}
