//! Decoding of header fields for search, sort and preview: unfolding, RFC 2047 encoded words.
//!
//! Read generously, as mail needs: an encoded word may be long, may stand inside a quoted string or against other text, and
//! may hold spaces. White space between two encoded words is dropped (RFC 2047 6.2); two with one charset are decoded as one
//! text, so that a character split between them comes out whole. What is no encoded word stays as it is. Bytes outside
//! encoded words are read as UTF-8, or windows-1252 where they are none.

use encoding_rs::ISO_2022_JP;

use crate::charset::{Charset, CharsetDecoder};
use crate::transfer::{Encoding, TransferDecoder, hex};

/// Bytes of an encoded word at most. RFC 2047 2 allows 75, but whole subjects in one word occur.
const WORD_BYTES_MAX: usize = 4096;
/// White space behind an encoded word that is held back until it shows whether another follows.
const GAP_BYTES_MAX: usize = 256;

/// Begins a change of the character set in ISO-2022-JP.
const ESCAPE: u8 = 0x1B;

/// The text of a header field's raw value: unfolded, white space at both ends removed, encoded words decoded; broken ones
/// stay as they are. At most three bytes for each of `raw`.
pub fn decode(raw: &[u8]) -> String {
    let mut decoder = HeaderDecoder::new();
    let mut out = String::new();
    decoder.push(raw, &mut out);
    decoder.finish(&mut out);
    let trimmed = out.trim_matches([' ', '\t']);
    if trimmed.len() == out.len() {
        out
    } else {
        trimmed.to_owned()
    }
}

/// Decodes a header field's raw value that comes in pieces, in constant memory.
pub struct HeaderDecoder {
    /// A word that may be an encoded one, from its equals sign; empty outside of one.
    word: Vec<u8>,
    stage: Stage,
    /// Where in `word` the charset ends and the text begins.
    charset_end: usize,
    /// White space since the last encoded word; meaningful while `after_word`.
    gap: Vec<u8>,
    /// Whether nothing but white space came since the last encoded word.
    after_word: bool,
    /// The charset of the last encoded word, while the next one may go on in it.
    open: Option<(Charset, CharsetDecoder)>,
    plain: CharsetDecoder,
    scratch: Vec<u8>,
}

/// How much of `=?charset?encoding?text?=` is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing, or the equals sign.
    Start,
    Charset,
    Encoding,
    /// The question mark behind the encoding is next.
    Mark,
    Text,
    /// A question mark in the text, which must be followed by an equals sign.
    End,
}

impl Default for HeaderDecoder {
    fn default() -> HeaderDecoder {
        HeaderDecoder::new()
    }
}

impl HeaderDecoder {
    /// A decoder at the start of a value.
    pub fn new() -> HeaderDecoder {
        HeaderDecoder {
            word: Vec::new(),
            stage: Stage::Start,
            charset_end: 0,
            gap: Vec::new(),
            after_word: false,
            open: None,
            plain: CharsetDecoder::new(Charset::Mixed),
            scratch: Vec::new(),
        }
    }

    /// The next bytes: their text is appended to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while let Some(&byte) = bytes.first() {
            if self.word.is_empty() && !self.after_word {
                // Plain text, up to what needs a look.
                let stop = bytes
                    .iter()
                    .position(|b| matches!(b, b'=' | b'\r' | b'\n' | 0))
                    .unwrap_or(bytes.len());
                self.plain.push(&bytes[..stop], out);
                bytes = &bytes[stop..];
                if bytes.is_empty() {
                    return;
                }
                match bytes[0] {
                    b'=' => self.word.push(b'='),
                    0 => self.plain.push("\u{FFFD}".as_bytes(), out),
                    // Unfolding: "removing any CRLF that is immediately followed by WSP" (RFC 5322 2.2.3).
                    _ => {}
                }
                bytes = &bytes[1..];
                continue;
            }
            bytes = &bytes[1..];
            if !matches!(byte, b'\r' | b'\n') {
                self.byte(byte, out);
            }
        }
    }

    /// The value is at its end; another may follow.
    pub fn finish(&mut self, out: &mut String) {
        self.give_up(out);
        self.close_word(out);
        std::mem::replace(&mut self.plain, CharsetDecoder::new(Charset::Mixed)).finish(out);
    }

    /// A byte of what may be an encoded word, or behind one.
    fn byte(&mut self, byte: u8, out: &mut String) {
        if self.word.is_empty() {
            match byte {
                b'=' => self.word.push(byte),
                b' ' | b'\t' if self.gap.len() < GAP_BYTES_MAX => self.gap.push(byte),
                _ => {
                    self.close_word(out);
                    self.plain_byte(byte, out);
                }
            }
            return;
        }
        let fits = match (self.stage, byte) {
            (Stage::Start, b'?') => {
                self.stage = Stage::Charset;
                true
            }
            (Stage::Charset, b'?') => {
                self.charset_end = self.word.len();
                self.stage = Stage::Encoding;
                self.charset_end > 2
            }
            (Stage::Charset, b'!'..=b'~') => byte != b'=',
            (Stage::Encoding, b'b' | b'B' | b'q' | b'Q') => {
                self.stage = Stage::Mark;
                true
            }
            (Stage::Mark, b'?') => {
                self.stage = Stage::Text;
                true
            }
            (Stage::Text, b'?') => {
                self.stage = Stage::End;
                true
            }
            (Stage::Text, _) => byte != 0,
            (Stage::End, b'=') => {
                self.word.push(byte);
                return self.encoded_word(out);
            }
            _ => false,
        };
        if fits && self.word.len() < WORD_BYTES_MAX {
            self.word.push(byte);
            return;
        }
        // No encoded word. But `...=?` at its end may begin one.
        let again = self.stage == Stage::End && self.word.ends_with(b"=?");
        if again {
            self.word.truncate(self.word.len() - 2);
        }
        self.give_up(out);
        if again {
            self.word.extend_from_slice(b"=?");
            self.stage = Stage::Charset;
        }
        if again || byte == b'=' {
            self.byte(byte, out);
        } else {
            self.plain_byte(byte, out);
        }
    }

    fn plain_byte(&mut self, byte: u8, out: &mut String) {
        let bytes: &[u8] = if byte == 0 {
            "\u{FFFD}".as_bytes()
        } else {
            &[byte]
        };
        self.plain.push(bytes, out);
    }

    /// What is in `word` is plain text.
    fn give_up(&mut self, out: &mut String) {
        self.stage = Stage::Start;
        if !self.word.is_empty() {
            self.close_word(out);
            self.plain.push(&self.word, out);
            self.word.clear();
        }
    }

    /// Plain text follows an encoded word.
    fn close_word(&mut self, out: &mut String) {
        if let Some((_, decoder)) = self.open.take() {
            finish_word(decoder, out);
        }
        self.after_word = false;
        self.plain.push(&self.gap, out);
        self.gap.clear();
    }

    /// `word` is an encoded word.
    fn encoded_word(&mut self, out: &mut String) {
        let charset = Charset::by_label(&self.word[2..self.charset_end]);
        let text = &self.word[self.charset_end + 3..self.word.len() - 2];
        self.scratch.clear();
        if matches!(self.word[self.charset_end + 1], b'b' | b'B') {
            let mut decoder = TransferDecoder::new(Encoding::Base64);
            decoder.push(text, &mut self.scratch);
            decoder.finish(&mut self.scratch);
        } else {
            q_encoded(text, &mut self.scratch);
        }
        if self.after_word {
            self.gap.clear();
        } else {
            std::mem::replace(&mut self.plain, CharsetDecoder::new(Charset::Mixed)).finish(out);
        }
        // A word of ISO-2022-JP that begins with an escape does not go on from the last one, which ended in ASCII (RFC 2047 3): read as one text,
        // the two escapes with nothing between them are an error to the decoder.
        let goes_on =
            charset != Charset::Standard(ISO_2022_JP) || self.scratch.first() != Some(&ESCAPE);
        let mut decoder = match self.open.take() {
            Some((open, decoder)) if open == charset && goes_on => decoder,
            other => {
                if let Some((_, decoder)) = other {
                    finish_word(decoder, out);
                }
                CharsetDecoder::new(charset)
            }
        };
        let before = out.len();
        decoder.push(&self.scratch, out);
        tame(out, before);
        self.open = Some((charset, decoder));
        self.after_word = true;
        self.word.clear();
        self.stage = Stage::Start;
    }
}

fn finish_word(decoder: CharsetDecoder, out: &mut String) {
    let before = out.len();
    decoder.finish(out);
    tame(out, before);
}

/// Line ends and NUL that come out of an encoded word are there to deceive; they become spaces.
fn tame(out: &mut String, from: usize) {
    if out.as_bytes()[from..]
        .iter()
        .any(|b| matches!(b, b'\r' | b'\n' | 0))
    {
        let tail = out[from..].replace(['\r', '\n', '\0'], " ");
        out.truncate(from);
        out.push_str(&tail);
    }
}

/// The "Q" encoding (RFC 2047 4.2).
fn q_encoded(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        let digits = (
            text.get(at + 1).copied().and_then(hex),
            text.get(at + 2).copied().and_then(hex),
        );
        match (text[at], digits) {
            (b'=', (Some(high), Some(low))) => {
                out.push(high << 4 | low);
                at += 2;
            }
            (b'_', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
}

/// The value of a parameter whose name ends in an asterisk: `charset'language'percent-encoded` (RFC 2231 4). Without the
/// apostrophes all of it is text.
pub fn decode_extended(value: &[u8]) -> String {
    let mut fields = value.splitn(3, |&b| b == b'\'');
    let (charset, text) = match (fields.next(), fields.next(), fields.next()) {
        (Some(charset), Some(_), Some(text)) => (Charset::by_label(charset), text),
        _ => (Charset::Mixed, value),
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = (
            text.get(at + 1).copied().and_then(hex),
            text.get(at + 2).copied().and_then(hex),
        );
        match (text[at], digits) {
            (b'%', (Some(high), Some(low))) => {
                bytes.push(high << 4 | low);
                at += 2;
            }
            (byte, _) => bytes.push(byte),
        }
        at += 1;
    }
    let mut out = String::new();
    let mut decoder = CharsetDecoder::new(charset);
    decoder.push(&bytes, &mut out);
    finish_word(decoder, &mut out);
    tame(&mut out, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(raw: &[u8], step: usize) -> String {
        let mut decoder = HeaderDecoder::new();
        let mut out = String::new();
        raw.chunks(step)
            .for_each(|piece| decoder.push(piece, &mut out));
        decoder.finish(&mut out);
        out.trim_matches([' ', '\t']).to_owned()
    }

    fn check_bytes(raw: &[u8], expected: &str) {
        assert_eq!(decode(raw), expected, "{}", raw.escape_ascii());
        for step in 1..raw.len() {
            assert_eq!(
                pieces(raw, step),
                expected,
                "{} by {step}",
                raw.escape_ascii()
            );
        }
    }

    fn check(raw: &str, expected: &str) {
        check_bytes(raw.as_bytes(), expected);
    }

    #[test]
    fn rfc_2047_examples() {
        check(
            "=?US-ASCII?Q?Keith_Moore?= <moore@cs.utk.edu>",
            "Keith Moore <moore@cs.utk.edu>",
        );
        check(
            "=?ISO-8859-1?Q?Keld_J=F8rn_Simonsen?= <keld@dkuug.dk>",
            "Keld Jørn Simonsen <keld@dkuug.dk>",
        );
        check("=?ISO-8859-1?Q?Andr=E9?= Pirard", "André Pirard");
        check(
            "=?ISO-8859-1?B?SWYgeW91IGNhbiByZWFkIHRoaXMgeW8=?=\r\n =?ISO-8859-2?B?dSB1bmRlcnN0YW5kIHRoZSBleGFtcGxlLg==?=",
            "If you can read this you understand the example.",
        );
        check("(=?ISO-8859-1?Q?a?=)", "(a)");
        check("(=?ISO-8859-1?Q?a?= b)", "(a b)");
        check("(=?ISO-8859-1?Q?a?= =?ISO-8859-1?Q?b?=)", "(ab)");
        check("(=?ISO-8859-1?Q?a?=  \r\n  =?ISO-8859-1?Q?b?=)", "(ab)");
        check("(=?ISO-8859-1?Q?a_b?=)", "(a b)");
        check("(=?ISO-8859-1?Q?a?= =?ISO-8859-2?Q?_b?=)", "(a b)");
    }

    #[test]
    fn generous() {
        check(" plain\r\n folded ", "plain folded");
        check("=?utf-8?q?a b?=", "a b");
        check("\"=?utf-8?Q?=C3=A9?=\"x", "\"é\"x");
        check("=?utf-8?q?a?==?utf-8?q?b?=", "ab");
        check("x=?utf-8?q?a?=y", "xay");
        check("=?utf-8*en?q?a?=", "a");
        check("=?x-unknown?q?caf=E9?=", "café");
        check("=?utf-7?q?+AKM-?=", "£");
        check_bytes(b"caf\xe9 \xc3\xa9", "café é");
        check_bytes(b"a\0b", "a\u{FFFD}b");
    }

    #[test]
    fn characters_split_between_words() {
        check("=?utf-8?q?=E2=82?= =?UTF-8?b?rA==?=", "€");
        check(
            "=?iso-2022-jp?b?GyRCJDM=?= =?iso-2022-jp?b?JEsbKEI=?=",
            "こに",
        );
        check(
            "=?iso-2022-jp?b?GyRCJA==?= =?iso-2022-jp?b?MxsoQg==?=",
            "こ",
        );
        check("=?utf-8?q?=E2=82?= x", "\u{FFFD} x");
        check("=?utf-8?q?=E2=82?= =?iso-8859-1?q?=E9?=", "\u{FFFD}é");
    }

    #[test]
    fn words_that_each_change_the_character_set_and_change_back() {
        check(
            "=?ISO-2022-JP?B?GyRCJDMbKEI=?=\r\n =?ISO-2022-JP?B?GyRCJEsbKEI=?=",
            "こに",
        );
        // The last one ended in the middle of a character: that is broken, and the next is whole.
        check(
            "=?iso-2022-jp?b?GyRCJA==?= =?iso-2022-jp?b?GyRCJEsbKEI=?=",
            "\u{FFFD}に",
        );
    }

    #[test]
    fn broken_words_stay() {
        for broken in [
            "=",
            "=?",
            "=?x",
            "=?x?q",
            "=?x?q?",
            "=?x?q?a",
            "=?x?q?a?",
            "=?x?z?a?=",
            "=??q?a?=",
            "=?x y?q?a?=",
            "==?x",
            "a=b",
            "=?x?qq?a?=",
            "=?=?=?=",
            "a?=b",
            "=?x?q?a?b?=",
        ] {
            check(broken, broken);
        }
        check("=?x?q?a =?utf-8?q?b?= c", "=?x?q?a b c");
        check("=?a=?utf-8?q?b?=", "=?ab");
        check("=?utf-8?q?a?= =?broken", "a =?broken");
        let long = format!("=?utf-8?q?{}?=", "a".repeat(WORD_BYTES_MAX));
        assert_eq!(decode(long.as_bytes()), long);
    }

    #[test]
    fn deceit() {
        check("=?utf-8?b?YQANCmI=?=", "a   b");
    }

    #[test]
    fn extended_parameters() {
        assert_eq!(decode_extended(b"utf-8'en'%e2%82%ac%20rates"), "€ rates");
        assert_eq!(decode_extended(b"iso-8859-1''%A3"), "£");
        assert_eq!(decode_extended(b"no apostrophes %41"), "no apostrophes A");
        assert_eq!(decode_extended(b"x'y"), "x'y");
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces(raw in proptest::collection::vec(prop_oneof![
            4 => proptest::sample::select(&b"=?uUtTfF8-bBqQ_ \r\n\tA9\xC3\xA9"[..]), 1 => any::<u8>()
        ], 0..120), step in 1usize..20) {
            let whole = decode(&raw);
            prop_assert!(whole.len() <= 3 * raw.len());
            prop_assert!(!whole.contains(['\r', '\n', '\0']));
            prop_assert_eq!(pieces(&raw, step), whole);
        }
    }
}
