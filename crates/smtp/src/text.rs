//! The text of messages in a stream: line ends, dots, line lengths.
//!
//! Only `<CRLF>` ends a line and only `<CRLF>.<CRLF>` ends DATA; RFC 5321 2.3.8: "Conforming implementations MUST NOT recognize or
//! generate any other character or character sequence as a line terminator", and 4.1.1.4 says the same of the end of data. Other servers took `<LF>.<LF>` or
//! `<CR>.<CR>` for it, which let a sender smuggle a second message past the one that had checked the first (CVE-2023-51764 and others).
//! Here a bare CR or LF is a fault of the whole message: it is neither passed through nor converted, and the true end is still awaited.
//!
//! NUL is a fault, too: 8BITMIME does not allow it (RFC 6152 3, by RFC 2045 2.8) and IMAP cannot give it back in a literal.

use memchr::memchr3;

/// What is wrong with a message's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TextFault {
    /// CR without LF, or LF without CR.
    BareLineEnd,
    /// NUL.
    Nul,
    /// A line above the limit.
    LineTooLong,
}

/// What one call of [`TextScanner::feed`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes of the input that were read; less than all only at the end of data.
    pub consumed: usize,
    /// `<CRLF>.<CRLF>` was read.
    pub end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextState {
    /// After CRLF, and at the beginning.
    LineStart,
    Text,
    /// A CR that is not given out before its LF is seen.
    Cr,
    /// A dot at the start of a line, taken out.
    Dot,
    /// That dot and a CR.
    DotCr,
}

/// Reads text in any split, gives it out with dots unstuffed, and finds faults. After the first fault nothing more is given out.
#[derive(Debug, Clone)]
pub struct TextScanner {
    state: TextState,
    dots: bool,
    line_bytes: usize,
    line_bytes_max: usize,
    fault: Option<TextFault>,
}

impl TextScanner {
    /// For DATA: dots are unstuffed and a dot alone is the end. `line_bytes_max` is without CRLF and without a stuffed dot.
    #[must_use]
    pub fn data(line_bytes_max: usize) -> Self {
        TextScanner {
            state: TextState::LineStart,
            dots: true,
            line_bytes: 0,
            line_bytes_max,
            fault: None,
        }
    }

    /// For BDAT: dots mean nothing; the end is told by counts.
    #[must_use]
    pub fn chunks(line_bytes_max: usize) -> Self {
        TextScanner {
            dots: false,
            ..TextScanner::data(line_bytes_max)
        }
    }

    /// The first fault so far.
    #[must_use]
    pub fn fault(&self) -> Option<TextFault> {
        self.fault
    }

    /// The text ends here (BDAT LAST): a CR that still waits for its LF is bare.
    pub fn finish(&mut self) {
        if matches!(self.state, TextState::Cr | TextState::DotCr) {
            self.fail(TextFault::BareLineEnd);
        }
    }

    fn fail(&mut self, fault: TextFault) {
        self.fault.get_or_insert(fault);
    }

    /// Reads `input`, appends the text to `out`.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Scanned {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                TextState::LineStart => {
                    let dot = self.dots && byte == b'.';
                    at += usize::from(dot);
                    self.state = if dot { TextState::Dot } else { TextState::Text };
                }
                TextState::Text => at = self.feed_lines(input, at, out),
                TextState::Cr if byte == b'\n' => {
                    at += 1;
                    self.line_bytes = 0;
                    self.state = TextState::LineStart;
                    if self.fault.is_none() {
                        out.extend_from_slice(b"\r\n");
                    }
                }
                TextState::Dot if byte == b'\r' => {
                    at += 1;
                    self.state = TextState::DotCr;
                }
                TextState::Dot => self.state = TextState::Text,
                TextState::DotCr if byte == b'\n' => {
                    self.state = TextState::LineStart;
                    return Scanned {
                        consumed: at + 1,
                        end: true,
                    };
                }
                TextState::Cr | TextState::DotCr => {
                    self.fail(TextFault::BareLineEnd);
                    self.state = TextState::Text;
                }
            }
        }
        Scanned {
            consumed: at,
            end: false,
        }
    }

    /// From within a line: reads lines as long as they need no change, gives them out in one piece; returns where it stopped.
    fn feed_lines(&mut self, input: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
        let silent = self.fault.is_some();
        let mut fault_at = None;
        let mut at = start;
        let (stop, end) = loop {
            let found = memchr3(b'\r', b'\n', 0, &input[at..]);
            let length = found.unwrap_or(input.len() - at);
            self.line_bytes = self.line_bytes.saturating_add(length);
            at += length;
            if self.line_bytes > self.line_bytes_max && self.fault.is_none() {
                fault_at = Some(at - (self.line_bytes - self.line_bytes_max));
                self.fail(TextFault::LineTooLong);
            }
            if found.is_none() {
                break (at, at);
            }
            let fault = match (input[at], input.get(at + 1)) {
                (b'\r', None) => {
                    self.state = TextState::Cr;
                    break (at + 1, at);
                }
                (b'\r', Some(b'\n')) => {
                    at += 2;
                    self.line_bytes = 0;
                    if input.get(at).is_none_or(|&next| self.dots && next == b'.') {
                        self.state = TextState::LineStart;
                        break (at, at);
                    }
                    continue;
                }
                (0, _) => TextFault::Nul,
                _ => TextFault::BareLineEnd,
            };
            if self.fault.is_none() {
                fault_at = Some(at);
                self.fail(fault);
            }
            at += 1;
        };
        if !silent {
            out.extend_from_slice(&input[start..fault_at.unwrap_or(end)]);
        }
        stop
    }
}

/// Appends `body` as DATA wants it, dots stuffed, without the final dot. `line_start` says whether `body` begins a line; the result,
/// whether what follows does. A dot after a bare LF is stuffed as well: a server that takes LF for a line end must
/// not see an end of data that is none.
#[must_use]
pub fn stuff_dots(body: &[u8], line_start: bool, out: &mut Vec<u8>) -> bool {
    if line_start && body.first() == Some(&b'.') {
        out.push(b'.');
    }
    let mut from = 0;
    for at in memchr::memmem::find_iter(body, b"\n.") {
        out.extend_from_slice(&body[from..=at]);
        out.push(b'.');
        from = at + 1;
    }
    out.extend_from_slice(&body[from..]);
    body.last().map_or(line_start, |&last| last == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `input` in pieces of `size`; gives the text, whether the end came and where, and the fault.
    fn scan(
        mut scanner: TextScanner,
        input: &[u8],
        size: usize,
    ) -> (Vec<u8>, Option<usize>, Option<TextFault>) {
        let mut out = Vec::new();
        let mut at = 0;
        for piece in input.chunks(size) {
            let scanned = scanner.feed(piece, &mut out);
            at += scanned.consumed;
            if scanned.end {
                return (out, Some(at), scanner.fault());
            }
            assert_eq!(scanned.consumed, piece.len());
        }
        scanner.finish();
        (out, None, scanner.fault())
    }

    /// `expected` is the text, or the fault; `rest` what follows the end of data, `None` when it never comes.
    fn check(input: &str, expected: Result<&str, TextFault>, rest: Option<&str>) {
        let first = scan(TextScanner::data(8), input.as_bytes(), input.len().max(1));
        for size in 1..=input.len() {
            assert_eq!(
                scan(TextScanner::data(8), input.as_bytes(), size),
                first,
                "{input:?} by {size}"
            );
        }
        let (out, end, fault) = first;
        assert_eq!(end.map(|at| &input[at..]), rest, "{input:?}");
        match expected {
            Ok(text) => assert_eq!(
                (String::from_utf8(out).unwrap().as_str(), fault),
                (text, None),
                "{input:?}"
            ),
            Err(expected) => assert_eq!(fault, Some(expected), "{input:?}"),
        }
    }

    #[test]
    fn ends_and_dots() {
        check(".\r\n", Ok(""), Some(""));
        check("a\r\n.\r\nQUIT\r\n", Ok("a\r\n"), Some("QUIT\r\n"));
        check("\r\n.\r\n.\r\n", Ok("\r\n"), Some(".\r\n"));
        check("..\r\n...\r\n.a\r\n.\r\n", Ok(".\r\n..\r\na\r\n"), Some(""));
        check("a.\r\n.b.\r\n.\r\n", Ok("a.\r\nb.\r\n"), Some(""));
        check("a\r\n. \r\n", Ok("a\r\n \r\n"), None);
        check("a\r\n.", Ok("a\r\n"), None);
    }

    /// BAD_INPUTS row 1. None of these is an end of data; each is a fault; the true end is found.
    #[test]
    fn smuggling() {
        for bad in [
            "\n.\n",
            "\n.\r\n",
            "\r.\r",
            "\r.\r\n",
            "\r\n.\n",
            "\r\n.\r",
            "\r\r\n.\r\r\n",
            "\n\n.\r\n",
            "\r\n.\r.\r\n",
            "\n",
            "\r",
            "\n\r",
            "\r\n\r.\r\n",
            "\r\n.\n\r\n",
        ] {
            check(
                &format!("a{bad}EVIL\r\n.\r\nQ"),
                Err(TextFault::BareLineEnd),
                Some("Q"),
            );
        }
        check("\n.\r\n", Err(TextFault::BareLineEnd), None);
        check("\r.\r\n", Err(TextFault::BareLineEnd), None);
        check("a\r\n.\r", Err(TextFault::BareLineEnd), None);
        check("a\0b\r\n.\r\n", Err(TextFault::Nul), Some(""));
    }

    #[test]
    fn line_lengths() {
        check(
            "12345678\r\n.12345678\r\n.\r\n",
            Ok("12345678\r\n12345678\r\n"),
            Some(""),
        );
        check("123456789\r\n.\r\n", Err(TextFault::LineTooLong), Some(""));
        check(
            "1\r\n.123456789\r\n.\r\n",
            Err(TextFault::LineTooLong),
            Some(""),
        );
    }

    /// What was given out before a fault does not depend on the split either, and stops where the fault is.
    #[test]
    fn text_before_a_fault() {
        for (input, text) in [
            ("ab\r\ncd\nef\r\n", "ab\r\ncd"),
            ("ab\r\ncd\ref", "ab\r\ncd"),
            ("123456789", "12345678"),
            ("ab\r", "ab"),
        ] {
            for size in 1..=input.len() {
                let (out, _, fault) = scan(TextScanner::chunks(8), input.as_bytes(), size);
                assert!(fault.is_some());
                assert_eq!(String::from_utf8(out).unwrap(), text, "{input:?} by {size}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_split_is_the_same(input in "[a.\r\n\0]{0,40}", sizes in 1usize..8) {
            let whole = scan(TextScanner::data(5), input.as_bytes(), input.len().max(1));
            prop_assert_eq!(scan(TextScanner::data(5), input.as_bytes(), sizes), whole);
            let whole = scan(TextScanner::chunks(5), input.as_bytes(), input.len().max(1));
            prop_assert_eq!(scan(TextScanner::chunks(5), input.as_bytes(), sizes), whole);
        }

        /// Against the definition: the end is the first `<CRLF>.<CRLF>`, with the CRLF of the command before it.
        #[test]
        fn the_end_is_where_the_rfc_says(input in "[a.\r\n]{0,40}") {
            let with_command = format!("\r\n{input}");
            let expected = with_command.find("\r\n.\r\n").map(|at| at + 5 - 2);
            let (_, end, fault) = scan(TextScanner::data(1_000), input.as_bytes(), 3);
            prop_assert_eq!(end, expected);
            let read = &input[..end.unwrap_or(input.len())];
            let bare = read.replace("\r\n", "").contains(['\r', '\n']);
            prop_assert_eq!(fault.is_some(), bare);
        }

        #[test]
        fn stuffing_is_undone(lines in proptest::collection::vec("[a.]{0,4}", 0..12), size in 1usize..9) {
            let body: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let mut wire = Vec::new();
            let mut line_start = true;
            for piece in body.as_bytes().chunks(size) {
                line_start = stuff_dots(piece, line_start, &mut wire);
            }
            prop_assert!(line_start);
            wire.extend_from_slice(b".\r\n");
            let (out, end, fault) = scan(TextScanner::data(1_000), &wire, size);
            prop_assert_eq!((String::from_utf8(out).unwrap(), end, fault), (body, Some(wire.len()), None));
        }
    }
}
