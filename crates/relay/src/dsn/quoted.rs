//! Quoted-printable as a stream (RFC 2045 6.7): for what must be ASCII on its way.

/// "Encoded lines must be no longer than 76 characters", with the `=` at their end.
const LINE_CHARS_MAX: usize = 76;

/// Encodes a text with lines that end in CRLF, in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct QuotedPrintable {
    column: usize,
    /// A space or tab that is encoded if the line ends behind it.
    blank: Option<u8>,
    /// A CR that begins a line end if LF follows.
    carriage_return: bool,
}

impl QuotedPrintable {
    /// At the beginning of a text.
    #[must_use]
    pub fn new() -> QuotedPrintable {
        QuotedPrintable::default()
    }

    /// The next bytes: appends what they become to `out`, at most three and a third times as many, and four.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if core::mem::take(&mut self.carriage_return) {
                if byte == b'\n' {
                    if let Some(blank) = self.blank.take() {
                        self.escaped(blank, out);
                    }
                    out.extend_from_slice(b"\r\n");
                    self.column = 0;
                    continue;
                }
                self.flush(out);
                self.escaped(b'\r', out);
            }
            match byte {
                b'\r' => self.carriage_return = true,
                b' ' | b'\t' => {
                    self.flush(out);
                    self.blank = Some(byte);
                }
                b'!'..=b'~' if byte != b'=' => {
                    self.flush(out);
                    self.emit(&[byte], out);
                }
                _ => {
                    self.flush(out);
                    self.escaped(byte, out);
                }
            }
        }
    }

    /// What is held back at the end of the text.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(blank) = self.blank.take() {
            self.escaped(blank, out);
        }
        if core::mem::take(&mut self.carriage_return) {
            self.escaped(b'\r', out);
        }
    }

    /// All of a text.
    pub(super) fn whole(text: &[u8]) -> Vec<u8> {
        let (mut encoder, mut out) = (QuotedPrintable::new(), Vec::new());
        encoder.push(text, &mut out);
        encoder.finish(&mut out);
        out
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(blank) = self.blank.take() {
            self.emit(&[blank], out);
        }
    }

    fn escaped(&mut self, byte: u8, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        self.emit(&[b'=', DIGITS[high], DIGITS[low]], out);
    }

    fn emit(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.column + piece.len() >= LINE_CHARS_MAX {
            out.extend_from_slice(b"=\r\n");
            self.column = 0;
        }
        out.extend_from_slice(piece);
        self.column += piece.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_testkit::Rng;

    /// What RFC 2045 says, the other way round.
    fn decoded(text: &[u8]) -> Vec<u8> {
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(
            text.split("\r\n")
                .all(|line| line.len() <= LINE_CHARS_MAX && !line.ends_with([' ', '\t'])),
            "{text:?}"
        );
        let mut out = Vec::new();
        let joined = text.replace("=\r\n", "");
        let mut bytes = joined.bytes();
        while let Some(byte) = bytes.next() {
            if byte == b'=' {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(core::str::from_utf8(&digits).unwrap(), 16).unwrap());
            } else {
                out.push(byte);
            }
        }
        out
    }

    #[test]
    fn texts_are_encoded() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                String::from_utf8(QuotedPrintable::whole(text.as_bytes())).unwrap(),
                expected,
                "{text:?}"
            );
        };
        check("Subject: a=b\r\n", "Subject: a=3Db\r\n");
        check("é \r\n\t\r\n", "=C3=A9=20\r\n=09\r\n");
        check("a\rb\nc ", "a=0Db=0Ac=20");
        check("a \r", "a=20=0D");
        check(&"x".repeat(80), &format!("{}=\r\nxxxxx", "x".repeat(75)));
    }

    #[test]
    fn any_text_in_any_pieces_comes_back() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..rng.below(400))
                .map(|_| *rng.pick(b" \t\r\n=aaaaaaa\xff\xc3\0"))
                .collect();
            let whole = QuotedPrintable::whole(&bytes);
            assert_eq!(decoded(&whole), bytes);
            let (mut encoder, mut out) = (QuotedPrintable::new(), Vec::new());
            for piece in bytes.chunks(usize::try_from(rng.between(1, 9)).unwrap()) {
                encoder.push(piece, &mut out);
            }
            encoder.finish(&mut out);
            assert_eq!(out, whole);
        }
    }
}
