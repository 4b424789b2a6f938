//! Counts Received fields and finds Delivered-To values in the header of a message that streams by.
//!
//! For loop detection only (RFC 5321 6.3), so it is forgiving: it looks at names of fields, unfolds values, and does not judge the
//! header. Bounded: it stops at the end of the header or after a number of bytes, and keeps at most [`VALUES_MAX`] values of at
//! most [`VALUE_BYTES_MAX`] bytes.

use memchr::memchr;

/// Delivered-To values kept. A message that was delivered through more hands has as many Received fields.
pub const VALUES_MAX: usize = 100;
/// An address has at most 254 octets; the rest is room for white space.
pub const VALUE_BYTES_MAX: usize = 320;

/// Longest field name that matters, and white space behind it.
const NAME_BYTES_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderState {
    LineStart,
    Name,
    /// In the value of Delivered-To.
    Value,
    /// In what does not matter.
    Skip,
    Done,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct HeaderWatch {
    state: HeaderState,
    bytes_left: usize,
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
    /// Of the Delivered-To field being read.
    value: Option<Vec<u8>>,
    received: usize,
    delivered_to: Vec<String>,
}

impl HeaderWatch {
    /// Looks at no more than the first `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        HeaderWatch {
            state: HeaderState::LineStart,
            bytes_left: bytes_max,
            name: [0; NAME_BYTES_MAX],
            name_bytes: 0,
            value: None,
            received: 0,
            delivered_to: Vec::new(),
        }
    }

    /// The next bytes of the message.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.state == HeaderState::Done {
            return;
        }
        let looked_at = bytes.len().min(self.bytes_left);
        self.bytes_left -= looked_at;
        let mut rest = &bytes[..looked_at];
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match self.state {
                HeaderState::LineStart => self.line_start(byte),
                HeaderState::Name => self.name_byte(byte),
                HeaderState::Value => self.value_byte(byte),
                HeaderState::Skip => match memchr(b'\n', rest) {
                    _ if byte == b'\n' => self.state = HeaderState::LineStart,
                    Some(at) => {
                        rest = &rest[at + 1..];
                        self.state = HeaderState::LineStart;
                    }
                    None => return,
                },
                HeaderState::Done => return,
            }
        }
        if self.bytes_left == 0 {
            self.finish();
        }
    }

    /// The message, or what is looked at, has ended.
    pub fn finish(&mut self) {
        self.end_value();
        self.state = HeaderState::Done;
    }

    /// Received fields so far.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received
    }

    /// Values of Delivered-To fields so far, unfolded and trimmed.
    #[must_use]
    pub fn delivered_to(&self) -> &[String] {
        &self.delivered_to
    }

    fn line_start(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' => {
                self.state = if self.value.is_some() {
                    HeaderState::Value
                } else {
                    HeaderState::Skip
                }
            }
            // An empty line; text is known to have no bare CR.
            b'\r' | b'\n' => self.finish(),
            // Only names that may be one of the two are read: most lines cost one look.
            b'r' | b'R' | b'd' | b'D' => {
                self.end_value();
                self.name_bytes = 0;
                self.state = HeaderState::Name;
                self.name_byte(byte);
            }
            _ => {
                self.end_value();
                self.state = HeaderState::Skip;
            }
        }
    }

    fn name_byte(&mut self, byte: u8) {
        match byte {
            b':' => {
                self.state = HeaderState::Skip;
                let name = self.name[..self.name_bytes].trim_ascii_end();
                if name.eq_ignore_ascii_case(b"received") {
                    self.received += 1;
                } else if name.eq_ignore_ascii_case(b"delivered-to") {
                    self.value = Some(Vec::new());
                    self.state = HeaderState::Value;
                }
            }
            b'\n' => self.state = HeaderState::LineStart,
            _ if self.name_bytes == NAME_BYTES_MAX => self.state = HeaderState::Skip,
            _ => {
                self.name[self.name_bytes] = byte;
                self.name_bytes += 1;
            }
        }
    }

    fn value_byte(&mut self, byte: u8) {
        if byte == b'\n' {
            self.state = HeaderState::LineStart;
        } else if let Some(value) = &mut self.value
            // One more than is allowed, so that a longer value is seen to be one.
            && byte != b'\r'
            && value.len() <= VALUE_BYTES_MAX
        {
            value.push(byte);
        }
    }

    fn end_value(&mut self) {
        let Some(value) = self.value.take() else {
            return;
        };
        if value.len() > VALUE_BYTES_MAX || self.delivered_to.len() == VALUES_MAX {
            return;
        }
        if let Ok(text) = core::str::from_utf8(&value) {
            let text = text.trim();
            if !text.is_empty() && !text.contains(char::is_control) {
                self.delivered_to.push(text.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, received: usize, delivered_to: &[&str]) {
        for size in 1..=message.len().max(1) {
            let mut watch = HeaderWatch::new(1_000);
            for piece in message.as_bytes().chunks(size) {
                watch.feed(piece);
            }
            watch.finish();
            assert_eq!(
                (watch.received(), watch.delivered_to()),
                (
                    received,
                    &delivered_to
                        .iter()
                        .map(|&s| s.to_owned())
                        .collect::<Vec<_>>()[..]
                ),
                "{message:?} by {size}"
            );
        }
    }

    #[test]
    fn headers() {
        check("", 0, &[]);
        check(
            "Received: a\r\n b\r\nRECEIVED:c\r\nreceived : d\r\nX-Received: e\r\nSubject: Received: f\r\n\r\nReceived: g\r\n",
            3,
            &[],
        );
        check(
            "Delivered-To: a@b\r\ndelivered-to:\r\n  c@d \r\nTo: x\r\n y\r\nDelivered-To: e@f\r\n\r\nDelivered-To: g@h\r\n",
            0,
            &["a@b", "c@d", "e@f"],
        );
        check("Delivered-To: a@b", 0, &["a@b"]);
        check("no field\r\nReceived: a\r\n", 1, &[]);
        check("\r\nReceived: a\r\n", 0, &[]);
        check("Received-SPF: x\r\nReceive: y\r\n", 0, &[]);
        check("Delivered-To: a\u{1}b\r\nDelivered-To:\r\n\r\n", 0, &[]);
    }

    #[test]
    fn bounds() {
        let mut watch = HeaderWatch::new(1_000_000);
        for _ in 0..2 * VALUES_MAX {
            watch.feed(b"Delivered-To: a@b\r\nReceived: x\r\n");
        }
        assert_eq!(
            (watch.delivered_to().len(), watch.received()),
            (VALUES_MAX, 2 * VALUES_MAX)
        );

        check(
            &format!(
                "Delivered-To: {}\r\nDelivered-To: {}\r\n",
                "a".repeat(VALUE_BYTES_MAX),
                "b".repeat(VALUE_BYTES_MAX - 1)
            ),
            0,
            &["b".repeat(VALUE_BYTES_MAX - 1).as_str()],
        );

        let mut watch = HeaderWatch::new(20);
        watch.feed(b"Received: a\r\nReceived: b\r\nReceived: c\r\n");
        assert_eq!(watch.received(), 1);
    }
}
