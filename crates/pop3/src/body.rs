//! A message on its way to the client: dots are stuffed, the lines of TOP counted, the end written.
//!
//! A line that begins with a dot gets a second one (RFC 1939, 3). Messages are sent as they are stored. One that was put in by IMAP may hold a bare LF:
//! many clients take it for a line end, so a dot behind it is stuffed, too, or such a client would read what follows `<LF>.<CRLF>` as the
//! server's next answer.

use memchr::{memchr, memmem};

/// A message that is being sent, in pieces of any size.
#[derive(Clone, Debug)]
pub struct Body {
    /// What was sent last, as far as it decides about the next octet.
    last: Last,
    /// Lines that are still wanted; `None`: all.
    top: Option<Top>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// CRLF, or nothing yet: the status line's end.
    CrLf,
    /// LF alone.
    Lf,
    Cr,
    Other,
}

/// TOP: "the headers of the message, the blank line separating the headers from the body, and then the number of lines of the indicated
/// message's body" (RFC 1939, 7).
#[derive(Clone, Copy, Debug)]
struct Top {
    in_header: bool,
    /// The line that is being sent has nothing but, perhaps, a CR.
    blank: bool,
    lines: u32,
}

impl Body {
    /// All of it.
    #[must_use]
    pub fn whole() -> Body {
        Body {
            last: Last::CrLf,
            top: None,
        }
    }

    /// Header and so many lines.
    #[must_use]
    pub fn top(lines: u32) -> Body {
        Body {
            last: Last::CrLf,
            top: Some(Top {
                in_header: true,
                blank: true,
                lines,
            }),
        }
    }

    /// Writes the next octets; says whether more are wanted.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let wanted = match &mut self.top {
            None => bytes.len(),
            Some(top) => top.take(bytes),
        };
        self.stuff(&bytes[..wanted], out);
        !self.is_enough()
    }

    /// Writes the end, after the last octets. A message that does not end with a line end gets one: the dot must begin a line.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.last != Last::CrLf {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b".\r\n");
    }

    /// Whether all lines that TOP wants were seen.
    fn is_enough(&self) -> bool {
        self.top.is_some_and(|top| !top.in_header && top.lines == 0)
    }

    fn stuff(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(&end) = bytes.last() else {
            return;
        };
        out.reserve(bytes.len());
        if bytes[0] == b'.' && matches!(self.last, Last::CrLf | Last::Lf) {
            out.push(b'.');
        }
        let mut from = 0;
        for line_end in memmem::find_iter(bytes, b"\n.") {
            out.extend_from_slice(&bytes[from..=line_end]);
            out.push(b'.');
            from = line_end + 1;
        }
        out.extend_from_slice(&bytes[from..]);
        let before = match bytes {
            [.., before, _] => Some(*before),
            _ => None,
        };
        self.last = match end {
            b'\r' => Last::Cr,
            b'\n' if before == Some(b'\r') || (before.is_none() && self.last == Last::Cr) => {
                Last::CrLf
            }
            b'\n' => Last::Lf,
            _ => Last::Other,
        };
    }
}

impl Top {
    /// How many of these octets are wanted.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.in_header || self.lines > 0 {
            let rest = &bytes[at..];
            let line = memchr(b'\n', rest).map_or(rest, |end| &rest[..end]);
            self.blank = self.blank && line.iter().all(|byte| *byte == b'\r');
            if line.len() == rest.len() {
                return bytes.len();
            }
            at += line.len() + 1;
            if !self.in_header {
                self.lines -= 1;
            } else if self.blank {
                self.in_header = false;
            }
            self.blank = true;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is sent of a message that comes in pieces of `size`.
    fn send(mut body: Body, message: &[u8], size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in message.chunks(size) {
            if !body.push(piece, &mut out) {
                break;
            }
        }
        body.finish(&mut out);
        out
    }

    #[track_caller]
    fn check(body: &Body, message: &str, expected: &str) {
        for size in 1..=message.len().max(1) {
            let sent = send(body.clone(), message.as_bytes(), size);
            assert_eq!(
                String::from_utf8(sent).unwrap(),
                expected,
                "{message:?} by {size}"
            );
        }
    }

    #[test]
    fn dots_and_ends() {
        let whole = Body::whole();
        check(&whole, "", ".\r\n");
        check(&whole, "a\r\n", "a\r\n.\r\n");
        check(&whole, "a", "a\r\n.\r\n");
        check(&whole, "a\r", "a\r\r\n.\r\n");
        check(&whole, "a\n", "a\n\r\n.\r\n");
        check(&whole, ".\r\n", "..\r\n.\r\n");
        check(&whole, ".", "..\r\n.\r\n");
        check(&whole, "a\r\n.\r\n..b\r\n", "a\r\n..\r\n...b\r\n.\r\n");
        check(&whole, "a\n.\r\nb\r\n", "a\n..\r\nb\r\n.\r\n");
        check(&whole, "a.\r\n\r.\r\n", "a.\r\n\r.\r\n.\r\n");
    }

    #[test]
    fn tops() {
        let message = "A: 1\r\nB: 2\r\n\r\nx\r\n.y\r\nz\r\n";
        check(&Body::top(0), message, "A: 1\r\nB: 2\r\n\r\n.\r\n");
        check(&Body::top(1), message, "A: 1\r\nB: 2\r\n\r\nx\r\n.\r\n");
        check(
            &Body::top(2),
            message,
            "A: 1\r\nB: 2\r\n\r\nx\r\n..y\r\n.\r\n",
        );
        let all = "A: 1\r\nB: 2\r\n\r\nx\r\n..y\r\nz\r\n.\r\n";
        check(&Body::top(3), message, all);
        check(&Body::top(u32::MAX), message, all);
        // Without a body, without a header, without line ends.
        check(&Body::top(5), "A: 1\r\n", "A: 1\r\n.\r\n");
        check(&Body::top(1), "\r\nx\r\ny\r\n", "\r\nx\r\n.\r\n");
        check(&Body::top(0), "\nx\n", "\n\r\n.\r\n");
        check(&Body::top(1), "A: 1\n\nx\ny\n", "A: 1\n\nx\n\r\n.\r\n");
        check(&Body::top(1), "abc", "abc\r\n.\r\n");
        check(&Body::top(1), "", ".\r\n");
    }

    /// A client as strict as RFC 1939, and one that takes LF for a line end: the message, and what follows it.
    fn read(sent: &[u8], bare_lf: bool) -> Option<(Vec<u8>, &[u8])> {
        let end: &[u8] = if bare_lf { b"\n" } else { b"\r\n" };
        let (mut message, mut rest) = (Vec::new(), sent);
        loop {
            let length = memmem::find(rest, end)? + end.len();
            let (line, after) = rest.split_at(length);
            rest = after;
            match line {
                b".\r\n" | b".\n" => return Some((message, rest)),
                [b'.', line @ ..] | line => message.extend_from_slice(line),
            }
        }
    }

    proptest! {
        #[test]
        fn clients_of_both_kinds_find_the_end(message in "[a.\r\n]{0,60}", size in 1usize..12) {
            let mut sent = send(Body::whole(), message.as_bytes(), size);
            prop_assert_eq!(&sent, &send(Body::whole(), message.as_bytes(), 1));
            sent.extend_from_slice(b"+OK next\r\n");
            let lenient = read(&sent, true).unwrap();
            prop_assert_eq!(lenient.1, b"+OK next\r\n");
            let mut expected = message.clone().into_bytes();
            if !(message.is_empty() || message.ends_with("\r\n")) {
                expected.extend_from_slice(b"\r\n");
            }
            prop_assert_eq!(&lenient.0, &expected);
            let strict = read(&sent, false).unwrap();
            prop_assert_eq!(strict.1, b"+OK next\r\n");
            // Where there is no bare LF, both read the message itself.
            if !message.replace("\r\n", "").contains('\n') {
                prop_assert_eq!(&strict.0, &expected);
            }
        }

        #[test]
        fn top_is_a_beginning(message in "[a.:\r\n]{0,60}", lines in 0u32..5, size in 1usize..12) {
            let sent = send(Body::top(lines), message.as_bytes(), size);
            prop_assert_eq!(&sent, &send(Body::top(lines), message.as_bytes(), 1));
            let (top, _) = read(&sent, true).unwrap();
            let whole = send(Body::whole(), message.as_bytes(), size);
            let (whole, _) = read(&whole, true).unwrap();
            // Apart from a line end that was added.
            prop_assert!(whole.starts_with(&top) || top.strip_suffix(b"\r\n").is_some_and(|top| whole.starts_with(top)));
        }
    }
}
