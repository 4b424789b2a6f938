//! Content-Transfer-Encoding, undone as a stream: for search, and for BINARY (RFC 3516, RFC 9051 6.4.5).

/// A transfer encoding that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// 7bit, 8bit, binary: nothing to undo.
    Identity,
    /// base64.
    Base64,
    /// quoted-printable.
    QuotedPrintable,
    /// uuencode, x-uuencode, x-uue.
    Uuencode,
}

impl Encoding {
    /// By the name that Content-Transfer-Encoding gives. `None`: unknown, BINARY answers UNKNOWN-CTE.
    pub fn by_name(name: &[u8]) -> Option<Encoding> {
        let is = |names: &[&str]| {
            names
                .iter()
                .any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
        };
        if is(&["7bit", "8bit", "binary", ""]) {
            Some(Encoding::Identity)
        } else if is(&["base64"]) {
            Some(Encoding::Base64)
        } else if is(&["quoted-printable"]) {
            Some(Encoding::QuotedPrintable)
        } else if is(&["uuencode", "x-uuencode", "x-uue"]) {
            Some(Encoding::Uuencode)
        } else {
            None
        }
    }
}

/// Undoes a transfer encoding, in constant memory. What is broken is skipped or left as it is, as RFC 2045 6.7 and 6.8
/// advise.
pub struct TransferDecoder {
    state: DecoderState,
}

enum DecoderState {
    Identity,
    Base64 { bits: u32, digits: u8 },
    QuotedPrintable(QuotedPrintable),
    Uuencode { line: Vec<u8>, inside: bool },
}

impl TransferDecoder {
    /// A decoder at the start of a body.
    pub fn new(encoding: Encoding) -> TransferDecoder {
        let state = match encoding {
            Encoding::Identity => DecoderState::Identity,
            Encoding::Base64 => DecoderState::Base64 { bits: 0, digits: 0 },
            Encoding::QuotedPrintable => DecoderState::QuotedPrintable(QuotedPrintable::default()),
            Encoding::Uuencode => DecoderState::Uuencode {
                line: Vec::new(),
                inside: false,
            },
        };
        TransferDecoder { state }
    }

    /// The next bytes of the body; what they decode to is appended to `out`, which grows by at most the length of `bytes`
    /// and some constant.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.state {
            DecoderState::Identity => out.extend_from_slice(bytes),
            DecoderState::Base64 { bits, digits } => base64(bytes, bits, digits, out),
            DecoderState::QuotedPrintable(decoder) => {
                bytes.iter().for_each(|&byte| decoder.byte(byte, out))
            }
            DecoderState::Uuencode { line, inside } => {
                for &byte in bytes {
                    if byte == b'\n' {
                        uuencoded_line(line, inside, out);
                        line.clear();
                    } else if line.len() < UU_LINE_BYTES_MAX {
                        line.push(byte);
                    }
                }
            }
        }
    }

    /// The body is at its end; another may follow.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match &mut self.state {
            DecoderState::Identity => {}
            DecoderState::Base64 { bits, digits } => base64_end(bits, digits, out),
            DecoderState::QuotedPrintable(decoder) => decoder.finish(out),
            DecoderState::Uuencode { line, inside } => {
                uuencoded_line(line, inside, out);
                line.clear();
                *inside = false;
            }
        }
    }
}

const NO_DIGIT: u8 = 0xFF;

const BASE64: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [NO_DIGIT; 256];
    let mut at = 0;
    while at < alphabet.len() {
        table[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    table
};

/// The value of a digit of the base64 alphabet.
pub(crate) fn base64_value(byte: u8) -> Option<u8> {
    let value = BASE64[usize::from(byte)];
    (value != NO_DIGIT).then_some(value)
}

/// "All line breaks or other characters not found in Table 1 must be ignored by decoding software" (RFC 2045 6.8). Padding
/// ends a group; whatever follows it begins a new one, since encoded texts are sometimes simply joined.
fn base64(bytes: &[u8], bits: &mut u32, digits: &mut u8, out: &mut Vec<u8>) {
    out.reserve(bytes.len() / 4 * 3 + 3);
    for &byte in bytes {
        let value = BASE64[usize::from(byte)];
        if value != NO_DIGIT {
            *bits = *bits << 6 | u32::from(value);
            *digits += 1;
            if *digits == 4 {
                out.extend_from_slice(&[(*bits >> 16) as u8, (*bits >> 8) as u8, *bits as u8]);
                (*bits, *digits) = (0, 0);
            }
        } else if byte == b'=' {
            base64_end(bits, digits, out);
        }
    }
}

fn base64_end(bits: &mut u32, digits: &mut u8, out: &mut Vec<u8>) {
    match *digits {
        2 => out.push((*bits >> 4) as u8),
        3 => out.extend_from_slice(&[(*bits >> 10) as u8, (*bits >> 2) as u8]),
        _ => {}
    }
    (*bits, *digits) = (0, 0);
}

/// White space that may turn out to stand at the end of a line is held back up to so many bytes; a line of quoted-printable
/// has 76 at most (RFC 2045 6.7).
const SPACE_BYTES_MAX: usize = 1024;

/// RFC 2045 6.7.
#[derive(Default)]
struct QuotedPrintable {
    place: Quoted,
    /// White space that goes if the line ends behind it.
    space: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum Quoted {
    #[default]
    Text,
    /// Behind an equals sign.
    Equals,
    /// Behind an equals sign and a hexadecimal digit.
    Digit(u8),
    /// Behind an equals sign and white space: a soft line break, if the line ends here.
    EqualsSpace,
    /// Behind an equals sign, perhaps white space, and CR.
    EqualsCr,
}

impl QuotedPrintable {
    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.place {
            Quoted::Text => match byte {
                b'=' => {
                    out.append(&mut self.space);
                    self.place = Quoted::Equals;
                }
                b' ' | b'\t' => self.hold(byte, out),
                // "any trailing white space on a line ... must be deleted" (rule 3).
                b'\r' | b'\n' => {
                    self.space.clear();
                    out.push(byte);
                }
                _ => {
                    out.append(&mut self.space);
                    out.push(byte);
                }
            },
            Quoted::Equals => match byte {
                b'\n' => self.place = Quoted::Text,
                b'\r' => self.place = Quoted::EqualsCr,
                b' ' | b'\t' => {
                    self.place = Quoted::EqualsSpace;
                    self.hold(byte, out);
                }
                _ if byte.is_ascii_hexdigit() => self.place = Quoted::Digit(byte),
                _ => self.broken(b"=", byte, out),
            },
            Quoted::Digit(first) => match (hex(first), hex(byte)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    self.place = Quoted::Text;
                }
                _ => self.broken(&[b'=', first], byte, out),
            },
            Quoted::EqualsSpace => match byte {
                b' ' | b'\t' if self.space.len() < SPACE_BYTES_MAX => self.space.push(byte),
                b'\n' | b'\r' => {
                    self.space.clear();
                    self.place = if byte == b'\n' {
                        Quoted::Text
                    } else {
                        Quoted::EqualsCr
                    };
                }
                _ => {
                    out.push(b'=');
                    out.append(&mut self.space);
                    self.place = Quoted::Text;
                    self.byte(byte, out);
                }
            },
            Quoted::EqualsCr => match byte {
                b'\n' => self.place = Quoted::Text,
                _ => self.broken(b"=\r", byte, out),
            },
        }
    }

    /// "A reasonable approach by a robust implementation might be to include the "=" character and the following character in
    /// the decoded data without any transformation" (6.7).
    fn broken(&mut self, seen: &[u8], byte: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(seen);
        self.place = Quoted::Text;
        self.byte(byte, out);
    }

    fn hold(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.space.len() == SPACE_BYTES_MAX {
            out.append(&mut self.space);
        }
        self.space.push(byte);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Quoted::Digit(first) = self.place {
            out.extend_from_slice(&[b'=', first]);
        }
        *self = QuotedPrintable::default();
    }
}

/// The value of a hexadecimal digit; lower case is not allowed (RFC 2045 6.7 rule 1) but occurs.
pub(crate) fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The longest line: a length and 84 digits for 63 bytes.
const UU_LINE_BYTES_MAX: usize = 128;

/// A line of uuencode (POSIX `uuencode`): a length, and four digits for three bytes, between `begin` and `end`.
fn uuencoded_line(line: &[u8], inside: &mut bool, out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if !*inside {
        *inside = line.starts_with(b"begin ");
        return;
    }
    let Some((&first, digits)) = line.split_first() else {
        return;
    };
    if line == b"end" {
        *inside = false;
        return;
    }
    let mut left = usize::from(first.wrapping_sub(b' ') & 63);
    for group in digits.chunks(4) {
        let value = |at: usize| u32::from(group.get(at).map_or(0, |b| b.wrapping_sub(b' ') & 63));
        let bits = value(0) << 18 | value(1) << 12 | value(2) << 6 | value(3);
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        let take = left.min(3);
        out.extend_from_slice(&bytes[..take]);
        left -= take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(encoding: Encoding, bytes: &[u8], step: usize) -> Vec<u8> {
        let mut decoder = TransferDecoder::new(encoding);
        let mut out = Vec::new();
        bytes
            .chunks(step)
            .for_each(|piece| decoder.push(piece, &mut out));
        decoder.finish(&mut out);
        out
    }

    fn check(name: &str, text: &str, expected: &[u8]) {
        let encoding = Encoding::by_name(name.as_bytes()).unwrap();
        for step in 1..=text.len() {
            let found = decode(encoding, text.as_bytes(), step);
            assert_eq!(
                found.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{text:?} by {step}"
            );
        }
    }

    #[test]
    fn names() {
        assert_eq!(Encoding::by_name(b"BINARY"), Some(Encoding::Identity));
        assert_eq!(Encoding::by_name(b"x-foo"), None);
    }

    #[test]
    fn base64_text() {
        check("base64", "aGVsbG8=", b"hello");
        check("base64", "aGVs\r\nbG8\n", b"hello");
        check("base64", "aGk=aGk=", b"hihi");
        check("base64", "a*G-k=", b"hi");
        check("base64", "aGkh=\r\n", b"hi!");
        check("base64", "a", b"");
        check("8bit", "=41", b"=41");
    }

    #[test]
    fn quoted_printable_text() {
        check("quoted-printable", "a=3Db=c3=A9", b"a=b\xc3\xa9");
        check(
            "quoted-printable",
            "soft=\r\nbreak= \t\r\nand=\nLF",
            b"softbreakandLF",
        );
        check("quoted-printable", "end \t\r\nof line ", b"end\r\nof line");
        check("quoted-printable", "a=zz=4=\rx=", b"a=zz=4=\rx");
        check("quoted-printable", "a= b=  =41", b"a= b=  A");
        check("quoted-printable", "x=4", b"x=4");
    }

    #[test]
    fn uuencoded_text() {
        check(
            "x-uuencode",
            "junk\r\nbegin 644 f\r\n#0V%T\r\n`\r\nend\r\nmore\r\n",
            b"Cat",
        );
        check("uuencode", "begin 644 f\n&0V%T0V%T\n#0V%T", b"CatCatCat");
        check("uuencode", "begin 644 f\nM\nend\n", b"");
    }

    proptest! {
        #[test]
        fn base64_inverse(bytes: Vec<u8>, step in 1usize..9) {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
            prop_assert_eq!(decode(Encoding::Base64, text.as_bytes(), step), bytes);
        }

        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(prop_oneof![
            Just(b'='), Just(b' '), Just(b'\r'), Just(b'\n'), Just(b'A'), Just(b'4'), any::<u8>()
        ], 0..200), step in 1usize..9) {
            for encoding in [Encoding::Identity, Encoding::Base64, Encoding::QuotedPrintable, Encoding::Uuencode] {
                let whole = decode(encoding, &bytes, usize::MAX);
                prop_assert!(whole.len() <= bytes.len());
                prop_assert_eq!(decode(encoding, &bytes, step), whole);
            }
        }
    }
}
