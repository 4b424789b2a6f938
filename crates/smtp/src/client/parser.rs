//! The reply parser of the client: strict, in any split (RFC 5321 4.2.1).
//!
//! A server is not trusted either: lines, the number of lines of a reply, and its octets are bounded.

use memchr::memchr;

use crate::reply::{Enhanced, Reply};

/// RFC 5321 4.5.3.1.5 has 512 with CRLF; servers with long lists of mechanisms go beyond.
const LINE_BYTES_MAX: usize = 2_048;
/// No server has so many extensions.
const LINES_MAX: usize = 128;
/// Octets of a reply: far more than any has, and what one connection can make the client hold.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReplyParser {
    line: Vec<u8>,
    /// Of the reply being read.
    code: u16,
    lines: Vec<String>,
    /// Its octets so far.
    bytes: usize,
}

impl ReplyParser {
    /// Reads from `input`; `Ok(None)` when all was read without a reply being complete.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, &'static str> {
        while !input.is_empty() {
            let end = memchr(b'\n', input).map_or(input.len(), |at| at + 1);
            let (piece, rest) = input.split_at(end);
            if self.line.len() + piece.len() > LINE_BYTES_MAX {
                return Err("line too long");
            }
            self.bytes += piece.len();
            if self.bytes > REPLY_BYTES_MAX {
                return Err("reply too long");
            }
            self.line.extend_from_slice(piece);
            *input = rest;
            if self.line.ends_with(b"\n") {
                let line = core::mem::take(&mut self.line);
                if let Some(reply) = self.line(&line)? {
                    return Ok(Some(reply));
                }
            }
        }
        Ok(None)
    }

    /// `Reply-line = *( Reply-code "-" [ textstring ] CRLF ) Reply-code [ SP textstring ] CRLF`
    fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, &'static str> {
        let line = line.strip_suffix(b"\r\n").ok_or("line without CRLF")?;
        let Some((&[a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'], rest)) =
            line.split_first_chunk()
        else {
            return Err("no reply code");
        };
        let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
        let (last, text) = match rest.split_first() {
            None => (true, rest),
            Some((b' ', text)) => (true, text),
            Some((b'-', text)) => (false, text),
            Some(_) => return Err("no space or hyphen after the reply code"),
        };
        if text.iter().any(|&b| b == b'\r' || b == 0) {
            return Err("bare CR or NUL in a reply");
        }
        if !self.lines.is_empty() && code != self.code {
            return Err("reply code changes within a reply");
        }
        if self.lines.len() == LINES_MAX {
            return Err("too many lines in a reply");
        }
        self.code = code;
        self.lines.push(String::from_utf8_lossy(text).into_owned());
        Ok(last.then(|| self.reply()))
    }

    fn reply(&mut self) -> Reply {
        let lines = core::mem::take(&mut self.lines);
        self.bytes = 0;
        let enhanced = lines
            .first()
            .and_then(|line| enhanced(self.code, line))
            .map(|(enhanced, _)| enhanced);
        // The enhanced code is taken out of the lines that repeat it.
        let text = lines
            .iter()
            .map(|line| match enhanced.zip(self::enhanced(self.code, line)) {
                Some((first, (again, text))) if first == again => text,
                _ => line,
            });
        Reply::multi(self.code, enhanced, text)
    }
}

/// `status-code SP text` at the head of a line (RFC 2034 3); its class must be that of the reply.
fn enhanced(code: u16, line: &str) -> Option<(Enhanced, &str)> {
    let (status, text) = line.split_once(' ').unwrap_or((line, ""));
    let mut parts = status.split('.');
    let (class, subject, detail) = (parts.next()?, parts.next()?, parts.next()?);
    let number = |text: &str| {
        let digits = matches!(text.len(), 1..=3) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten()
    };
    (parts.next().is_none() && number(class)? == code / 100 && class.len() == 1)
        .then_some((Enhanced(number(subject)?, number(detail)?), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses all replies; `Display` forms, then the error if there is one.
    fn parse(input: &[u8], size: usize) -> Vec<String> {
        let mut parser = ReplyParser::default();
        let mut out = Vec::new();
        for mut piece in input.chunks(size) {
            loop {
                match parser.next(&mut piece) {
                    Ok(Some(reply)) => out.push(reply.to_string()),
                    Ok(None) => break,
                    Err(error) => {
                        out.push(format!("error: {error}"));
                        return out;
                    }
                }
            }
        }
        out
    }

    fn check(input: &str, expected: &[&str]) {
        for size in 1..=input.len() {
            assert_eq!(
                parse(input.as_bytes(), size),
                expected,
                "{input:?} by {size}"
            );
        }
    }

    #[test]
    fn replies() {
        check("220 mx ESMTP\r\n250 ok\r\n", &["220 mx ESMTP", "250 ok"]);
        check("250\r\n", &["250 "]);
        check(
            "250-mx\r\n250-SIZE 1\r\n250 HELP\r\n",
            &["250 mx SIZE 1 HELP"],
        );
        check("550-5.1.1 no\r\n550 5.1.1 such\r\n", &["550 5.1.1 no such"]);
        check("250 2.0.0\r\n", &["250 2.0.0 "]);
        check("250 5.0.0 x\r\n", &["250 5.0.0 x"]);
        check(
            "250 2.0 x\r\n250 2.0.0.0 x\r\n250 2.1000.0 x\r\n",
            &["250 2.0 x", "250 2.0.0.0 x", "250 2.1000.0 x"],
        );
        assert_eq!(Reply::new(250, None, "5.0.0 x").to_string(), "250 5.0.0 x");
        check("250 ok\n", &["error: line without CRLF"]);
        check("25 ok\r\n", &["error: no reply code"]);
        check("150 ok\r\n", &["error: no reply code"]);
        check("650 ok\r\n", &["error: no reply code"]);
        check(
            "250_ok\r\n",
            &["error: no space or hyphen after the reply code"],
        );
        check(
            "250-a\r\n251 b\r\n",
            &["error: reply code changes within a reply"],
        );
        check("250 a\rb\r\n", &["error: bare CR or NUL in a reply"]);
        check(
            &"250-a\r\n".repeat(LINES_MAX + 1),
            &["error: too many lines in a reply"],
        );
        assert_eq!(
            parse(&[b'2'; LINE_BYTES_MAX + 1], 100),
            ["error: line too long"]
        );
        let line = format!("250-{}\r\n", "x".repeat(1_018));
        let many = line.repeat(REPLY_BYTES_MAX / line.len());
        assert_eq!(parse(many.as_bytes(), 1_000), [""; 0]);
        assert_eq!(
            parse(format!("{many}250 \r\n").as_bytes(), 1_000),
            ["error: reply too long"]
        );
        // Each reply has its own.
        let one = format!("{line}250 \r\n");
        assert_eq!(parse(one.repeat(100).as_bytes(), 1_000).len(), 100);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed(
            code in 200u16..600,
            enhanced in proptest::option::of((0u16..1000, 0u16..1000)),
            lines in proptest::collection::vec("[a-zé .-]{0,20}", 1..4),
            size in 1usize..9,
        ) {
            let reply = Reply::multi(code, enhanced.map(|(a, b)| Enhanced(a, b)), lines.iter().map(String::as_str));
            let mut wire = Vec::new();
            reply.encode(&mut wire);
            let mut parser = ReplyParser::default();
            let mut parsed = None;
            for mut piece in wire.chunks(size) {
                parsed = parser.next(&mut piece).unwrap();
            }
            prop_assert_eq!(parsed, Some(reply));
        }
    }
}
