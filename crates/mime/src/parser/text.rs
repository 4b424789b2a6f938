//! Raw field values made fit for an IMAP string.

/// U+FFFD, which stands where a NUL was: an IMAP string cannot hold NUL, and to leave it out would join what it parted.
const NUL_REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Unfolds (RFC 5322 2.2.3: "simply removing any CRLF that is immediately followed by WSP"), trims white space at both ends
/// and replaces NUL. A CR alone, which no mail may have, parts words as white space does; a stray LF is dropped.
pub(crate) fn unfold(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    for (at, &byte) in raw.iter().enumerate() {
        match byte {
            b'\r' if raw.get(at + 1).is_some_and(|&next| next != b'\n') => out.push(b' '),
            b'\r' | b'\n' => {}
            0 => out.extend_from_slice(NUL_REPLACEMENT),
            _ => out.push(byte),
        }
    }
    let end = out
        .iter()
        .rposition(|&b| !is_wsp(b))
        .map_or(0, |last| last + 1);
    out.truncate(end);
    let start = out.iter().position(|&b| !is_wsp(b)).unwrap_or(0);
    if start > 0 {
        out.drain(..start);
    }
    out
}

/// Holds back the line end that came last: before a delimiter it is no part of the body (RFC 2046, 5.1.1).
#[derive(Default)]
pub(crate) struct HeldEnd(&'static [u8]);

impl HeldEnd {
    /// More of the body: gives what certainly is a part of it.
    pub(crate) fn push(&mut self, bytes: &[u8], mut give: impl FnMut(&[u8])) {
        if bytes == b"\n" && self.0 == b"\r" {
            self.0 = b"\r\n";
        } else if !bytes.is_empty() {
            let end = line_end(bytes);
            give(std::mem::replace(&mut self.0, end));
            give(&bytes[..bytes.len() - end.len()]);
        }
    }

    /// The line end, which is held no longer.
    pub(crate) fn take(&mut self) -> &'static [u8] {
        std::mem::take(&mut self.0)
    }
}

/// The line end that these bytes end in, or what may become one.
fn line_end(bytes: &[u8]) -> &'static [u8] {
    match bytes {
        [.., b'\r', b'\n'] => b"\r\n",
        [.., b'\n'] => b"\n",
        [.., b'\r'] => b"\r",
        _ => b"",
    }
}

/// SP or HTAB.
pub(crate) fn is_wsp(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Position behind the comment that begins at `at` (which is a parenthesis): nested ones and quoted pairs are heeded, an
/// unclosed one reaches to the end.
pub(crate) fn skip_comment(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    let mut at = at;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Position behind white space and comments.
pub(crate) fn skip_cfws(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        if is_wsp(bytes[at]) {
            at += 1;
        } else if bytes[at] == b'(' {
            at = skip_comment(bytes, at);
        } else {
            break;
        }
    }
    at
}

/// Reads the quoted string that begins at `at` (which is a quote): its content with quoted pairs undone, and the position
/// behind it. An unclosed one reaches to the end.
pub(crate) fn quoted(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' if at + 1 < bytes.len() => {
                at += 1;
                out.push(bytes[at]);
            }
            byte => out.push(byte),
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfolding() {
        fn check(raw: &[u8], expected: &[u8]) {
            assert_eq!(
                unfold(raw).escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
        check(b" a\r\n b\r\n", b"a b");
        check(b"\r\n  a\n\tb \t\r\n", b"a\tb");
        check(b" \r\n", b"");
        check(b"a\0b", "a\u{FFFD}b".as_bytes());
        check(b"a\rb\r", b"a b");
    }

    #[test]
    fn comments_nest() {
        assert_eq!(skip_comment(b"(a(b)\\)c)d", 0), 9);
        assert_eq!(skip_comment(b"(a(b)", 0), 5);
        assert_eq!(skip_comment(b"(a\\", 0), 3);
    }
}
