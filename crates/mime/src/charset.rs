//! Charsets by name, as a stream to UTF-8.
//!
//! What a label means:
//! - a label of the WHATWG Encoding Standard, which encoding_rs knows, means what it says there; so do some aliases that
//!   mail has;
//! - UTF-7 is RFC 2152;
//! - US-ASCII, no label, an unknown one, and those that the standard maps to "replacement" mean *mixed*: UTF-8 as far as the
//!   bytes are UTF-8, and every other byte read as windows-1252. So the usual lies of mail are read as they were meant.

use encoding_rs::{CoderResult, Decoder, Encoding, REPLACEMENT};

/// A charset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// One of encoding_rs. Never its "replacement".
    Standard(&'static Encoding),
    /// RFC 2152.
    Utf7,
    /// UTF-8 where it is, windows-1252 elsewhere.
    Mixed,
}

/// Names that occur in mail and are no labels of the standard, with labels that are.
const ALIASES: &[(&str, &str)] = &[
    ("cp1250", "windows-1250"),
    ("cp1251", "windows-1251"),
    ("cp1252", "windows-1252"),
    ("cp1253", "windows-1253"),
    ("cp1254", "windows-1254"),
    ("cp1255", "windows-1255"),
    ("cp1256", "windows-1256"),
    ("cp1257", "windows-1257"),
    ("cp1258", "windows-1258"),
    ("cp874", "windows-874"),
    ("cp932", "shift_jis"),
    ("cp936", "gbk"),
    ("cp949", "euc-kr"),
    ("cp950", "big5"),
    ("cp51932", "euc-jp"),
    ("eucjp-ms", "euc-jp"),
    ("euc-cn", "gbk"),
    ("iso-8859-8-e", "iso-8859-8"),
    ("iso-8859-1-windows-3.1-latin-1", "windows-1252"),
    ("koi8", "koi8-r"),
    ("latin-1", "windows-1252"),
    ("latin-9", "iso-8859-15"),
    ("latin9", "iso-8859-15"),
    ("ms936", "gbk"),
    ("sjis-win", "shift_jis"),
    ("uhc", "euc-kr"),
    ("utf", "utf-8"),
    ("utf-8-mac", "utf-8"),
    ("utf8mb4", "utf-8"),
];

impl Charset {
    /// The charset of a label, whatever its case; quotes and white space around it and a language (RFC 2231 5) behind it are
    /// left out.
    pub fn by_label(label: &[u8]) -> Charset {
        let label = label.split(|&b| b == b'*').next().unwrap_or_default();
        let is_padding = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'');
        let start = label
            .iter()
            .position(|b| !is_padding(b))
            .unwrap_or(label.len());
        let end = label
            .iter()
            .rposition(|b| !is_padding(b))
            .map_or(start, |last| last + 1);
        let label = &label[start..end];
        // The longest label known has 45 bytes.
        if label.len() > 64 {
            return Charset::Mixed;
        }
        let lower = label.to_ascii_lowercase();
        match lower.as_slice() {
            b"us-ascii" | b"ascii" | b"ansi_x3.4-1968" => return Charset::Mixed,
            b"utf-7" | b"utf7" | b"unicode-1-1-utf-7" | b"csunicode11utf7" | b"csutf7"
            | b"x-utf-7" => {
                return Charset::Utf7;
            }
            _ => {}
        }
        let alias = ALIASES
            .iter()
            .find(|(alias, _)| alias.as_bytes() == lower)
            .map(|(_, label)| label.as_bytes());
        match Encoding::for_label(alias.unwrap_or(&lower)) {
            Some(encoding) if encoding != REPLACEMENT => Charset::Standard(encoding),
            _ => Charset::Mixed,
        }
    }
}

/// Decodes bytes that come in pieces. Never fails: what is no text becomes U+FFFD, or windows-1252 if the charset is mixed.
pub struct CharsetDecoder {
    kind: Kind,
}

enum Kind {
    Standard(Box<Decoder>),
    Utf7(Utf7),
    /// The beginning of a UTF-8 sequence that may go on.
    Mixed(Vec<u8>),
}

impl CharsetDecoder {
    /// A decoder at the start of a text.
    pub fn new(charset: Charset) -> CharsetDecoder {
        let kind = match charset {
            // A byte order mark is heeded: "utf-16" says nothing about the order.
            Charset::Standard(encoding) => Kind::Standard(Box::new(encoding.new_decoder())),
            Charset::Utf7 => Kind::Utf7(Utf7::default()),
            Charset::Mixed => Kind::Mixed(Vec::new()),
        };
        CharsetDecoder { kind }
    }

    /// The next bytes: their text is appended to `out`, at most some bytes for each of them.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.take(bytes, out, false);
    }

    /// The text is at its end. Nothing may be pushed afterwards.
    pub fn finish(mut self, out: &mut String) {
        self.take(&[], out, true);
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut String, last: bool) {
        match &mut self.kind {
            Kind::Standard(decoder) => loop {
                out.reserve(bytes.len().min(4096) + 64);
                let (result, read, _) = decoder.decode_to_string(bytes, out, last);
                bytes = &bytes[read..];
                if result == CoderResult::InputEmpty {
                    break;
                }
            },
            Kind::Utf7(utf7) => {
                bytes.iter().for_each(|&byte| utf7.byte(byte, out));
                if last {
                    utf7.end_shift(out);
                }
            }
            Kind::Mixed(pending) => {
                if pending.is_empty() {
                    *pending = mixed(bytes, out, last);
                } else {
                    pending.extend_from_slice(bytes);
                    *pending = mixed(pending, out, last);
                }
            }
        }
    }
}

/// Decodes mixed text; gives the beginning of a sequence at its end that may go on, unless this is the `last` of it.
fn mixed(mut bytes: &[u8], out: &mut String, last: bool) -> Vec<u8> {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return Vec::new();
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(valid).expect("checked by the line above"));
                let Some(broken) = error.error_len().or(last.then_some(rest.len())) else {
                    return rest.to_vec();
                };
                out.extend(rest[..broken].iter().map(|&byte| windows_1252(byte)));
                bytes = &rest[broken..];
            }
        }
    }
}

/// The index of windows-1252 in the Encoding Standard, from 0x80 to 0x9F; the other bytes are those of Latin-1.
const WINDOWS_1252: [char; 32] = [
    '\u{20AC}', '\u{81}', '\u{201A}', '\u{192}', '\u{201E}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2C6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8D}', '\u{17D}', '\u{8F}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201C}', '\u{201D}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2DC}', '\u{2122}', '\u{161}', '\u{203A}', '\u{153}', '\u{9D}', '\u{17E}', '\u{178}',
];

fn windows_1252(byte: u8) -> char {
    match byte {
        0x80..=0x9F => WINDOWS_1252[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// RFC 2152. Invalid bytes and lone surrogates become U+FFFD.
#[derive(Default)]
struct Utf7 {
    shifted: bool,
    /// Whether anything came since the plus sign: `+-` is a plus sign.
    any: bool,
    bits: u32,
    bit_count: u32,
    /// A high surrogate that waits for its low one.
    high: Option<u16>,
}

impl Utf7 {
    fn byte(&mut self, byte: u8, out: &mut String) {
        if !self.shifted {
            match byte {
                b'+' => {
                    *self = Utf7 {
                        shifted: true,
                        ..Utf7::default()
                    }
                }
                0x80.. => out.push(char::REPLACEMENT_CHARACTER),
                _ => out.push(char::from(byte)),
            }
            return;
        }
        if let Some(value) = crate::transfer::base64_value(byte) {
            self.any = true;
            self.bits = self.bits << 6 | u32::from(value);
            self.bit_count += 6;
            if self.bit_count >= 16 {
                self.bit_count -= 16;
                let unit = (self.bits >> self.bit_count) as u16;
                self.bits &= (1 << self.bit_count) - 1;
                self.unit(unit, out);
            }
            return;
        }
        let plus = !self.any && byte == b'-';
        self.end_shift(out);
        if plus {
            out.push('+');
        } else if byte != b'-' {
            self.byte(byte, out);
        }
    }

    fn unit(&mut self, unit: u16, out: &mut String) {
        match (self.high.take(), unit) {
            (Some(high), 0xDC00..=0xDFFF) => {
                let point =
                    0x10000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(unit) - 0xDC00);
                out.push(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (high, _) => {
                if high.is_some() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                if (0xD800..0xDC00).contains(&unit) {
                    self.high = Some(unit);
                } else {
                    out.push(
                        char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER),
                    );
                }
            }
        }
    }

    fn end_shift(&mut self, out: &mut String) {
        if self.high.is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        *self = Utf7::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(charset: Charset, bytes: &[u8], step: usize) -> String {
        let mut decoder = CharsetDecoder::new(charset);
        let mut out = String::new();
        bytes
            .chunks(step)
            .for_each(|piece| decoder.push(piece, &mut out));
        decoder.finish(&mut out);
        out
    }

    fn check(label: &str, bytes: &[u8], expected: &str) {
        for step in 1..=bytes.len() {
            assert_eq!(
                decode(Charset::by_label(label.as_bytes()), bytes, step),
                expected,
                "{label} by {step}"
            );
        }
    }

    /// Every label of the Encoding Standard that encoding_rs has an encoding for, and every encoding.
    const LABELS: &[&str] = &[
        "utf-8",
        "ibm866",
        "iso-8859-2",
        "iso-8859-3",
        "iso-8859-4",
        "iso-8859-5",
        "iso-8859-6",
        "iso-8859-7",
        "iso-8859-8",
        "iso-8859-8-i",
        "iso-8859-10",
        "iso-8859-13",
        "iso-8859-14",
        "iso-8859-15",
        "iso-8859-16",
        "koi8-r",
        "koi8-u",
        "macintosh",
        "windows-874",
        "windows-1250",
        "windows-1251",
        "windows-1252",
        "windows-1253",
        "windows-1254",
        "windows-1255",
        "windows-1256",
        "windows-1257",
        "windows-1258",
        "x-mac-cyrillic",
        "gbk",
        "gb18030",
        "big5",
        "euc-jp",
        "iso-2022-jp",
        "shift_jis",
        "euc-kr",
        "utf-16be",
        "utf-16le",
        "utf-16",
        "x-user-defined",
        "latin1",
        "iso-8859-1",
        "csisolatin2",
        "cyrillic",
        "arabic",
        "greek",
        "hebrew",
        "logical",
        "l6",
        "ks_c_5601-1987",
        "gb2312",
        "big5-hkscs",
        "x-sjis",
        "windows-31j",
        "ms_kanji",
        "unicode-1-1-utf-8",
    ];

    #[test]
    fn streams_decode_like_the_whole() {
        // Bytes that hold lead and trail bytes of every multibyte charset, escapes, and ends in the middle of a sequence.
        let mut bytes: Vec<u8> = (0..=255).collect();
        bytes.extend((0..2000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 0x80));
        bytes.extend(b"\x1b$B$3$s$K$A\x1b(B plain \xe3\x81\x82\xe3\x81\x84 \xf0\x9f\x98\x80 \xa4\xa2\x82\xa0 \x81");
        for label in LABELS {
            let charset = Charset::by_label(label.as_bytes());
            let Charset::Standard(encoding) = charset else {
                panic!("{label} is not known")
            };
            for bytes in [
                &bytes[..],
                &bytes[..777],
                b"\xff\xfea\0b\0",
                b"\xfe\xff\0a\0b",
                b"\xef\xbb\xbfa",
            ] {
                let expected = encoding.decode(bytes).0;
                for step in [1, 2, 3, 7, 4096] {
                    assert_eq!(decode(charset, bytes, step), expected, "{label} by {step}");
                }
            }
        }
    }

    #[test]
    fn labels() {
        let check = |label: &str, expected: Charset| {
            assert_eq!(Charset::by_label(label.as_bytes()), expected, "{label}")
        };
        check(" \"UTF-8\" ", Charset::Standard(encoding_rs::UTF_8));
        check(
            "iso-8859-1*en",
            Charset::Standard(encoding_rs::WINDOWS_1252),
        );
        check("CP932", Charset::Standard(encoding_rs::SHIFT_JIS));
        check("Unicode-1-1-UTF-7", Charset::Utf7);
        for mixed in [
            "",
            "us-ascii",
            "x-unknown",
            "iso-2022-kr",
            "hz-gb-2312",
            "\"\"",
            "*",
            &"x".repeat(1000),
        ] {
            check(mixed, Charset::Mixed);
        }
        for (alias, label) in ALIASES {
            let direct = Encoding::for_label(label.as_bytes()).unwrap();
            check(alias, Charset::Standard(direct));
        }
    }

    #[test]
    fn mixed_text() {
        check("", "aé€😀".as_bytes(), "aé€😀");
        check("", b"a\xe9b \x80 \xc3", "aéb € Ã");
        check("x-unknown", b"\xe2\x82\xe9 \xf0\x9f\x98", "â‚é ðŸ˜");
        check("", b"\xed\xa0\x80\xff", "í\u{A0}€ÿ");
    }

    #[test]
    fn windows_1252_is_the_one_of_the_standard() {
        for byte in 0..=255 {
            let expected = encoding_rs::WINDOWS_1252
                .decode_without_bom_handling(&[byte])
                .0
                .into_owned();
            assert_eq!(windows_1252(byte).to_string(), expected);
        }
    }

    #[test]
    fn utf_7() {
        // The examples of RFC 2152.
        check("utf-7", b"A+ImIDkQ.", "A\u{2262}\u{391}.");
        check("utf-7", b"Hi Mom -+Jjo--!", "Hi Mom -\u{263A}-!");
        check("utf-7", b"+ZeVnLIqe-", "日本語");
        check("utf-7", b"Item 3 is +AKM-1.", "Item 3 is £1.");
        check("utf-7", b"2+-2", "2+2");
        check("utf-7", b"+2D3eAA-", "\u{1F600}");
        check("utf-7", b"+2D0-x+3gA-", "\u{FFFD}x\u{FFFD}");
        check("utf-7", b"a\xe9+AKM", "a\u{FFFD}£");
    }
}
