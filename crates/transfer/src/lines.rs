//! Line ends: files of Unix have LF, messages in IMAP CRLF (RFC 5322, 2.3).
//!
//! The first line end of a message says which it has. A message with CRLF there is taken as it is, to the byte; in any other each LF without
//! a CR before it becomes CRLF.

/// Makes the lines of one message end in CRLF, unless they do.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToCrlf {
    after_cr: bool,
    /// Decided at the first line end.
    converts: Option<bool>,
}

impl ToCrlf {
    /// Before a message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the message as it is, whatever its line ends.
    #[must_use]
    pub fn as_it_is() -> Self {
        ToCrlf {
            after_cr: false,
            converts: Some(false),
        }
    }

    /// Takes the next bytes; what they become is appended to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.converts == Some(false) {
            out.extend_from_slice(bytes);
            return;
        }
        let mut done = 0;
        for lf in memchr::memchr_iter(b'\n', bytes) {
            let after_cr = match lf {
                0 => self.after_cr,
                _ => bytes[lf - 1] == b'\r',
            };
            if !*self.converts.get_or_insert(!after_cr) {
                break;
            }
            if !after_cr {
                out.extend_from_slice(&bytes[done..lf]);
                out.extend_from_slice(b"\r\n");
                done = lf + 1;
            }
        }
        out.extend_from_slice(&bytes[done..]);
        if let Some(last) = bytes.last() {
            self.after_cr = *last == b'\r';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends() {
        let check = |input: &str, expected: &str| {
            for cut in 0..=input.len() {
                let (mut lines, mut out) = (ToCrlf::new(), Vec::new());
                lines.push(&input.as_bytes()[..cut], &mut out);
                lines.push(&input.as_bytes()[cut..], &mut out);
                assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
            }
        };
        check("", "");
        check("a", "a");
        check("a\nb\n\nc", "a\r\nb\r\n\r\nc");
        check("\na\n", "\r\na\r\n");
        check("a\nb\r\nc\n", "a\r\nb\r\nc\r\n");
        check("a\rb\nc\n", "a\rb\r\nc\r\n");
        // As it came: what it holds besides is its own.
        check("a\r\nb\nc\r\r\n", "a\r\nb\nc\r\r\n");
        check("\r\n\n", "\r\n\n");
        let (mut lines, mut out) = (ToCrlf::as_it_is(), Vec::new());
        lines.push(b"a\nb\n", &mut out);
        assert_eq!(out, b"a\nb\n");
    }
}
