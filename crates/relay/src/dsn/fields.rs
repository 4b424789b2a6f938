//! Header fields: folded, and free of what would end them.

use core::fmt;

use crate::mutants::broken;

/// RFC 5322 2.1.1: lines "SHOULD be no more than 78 characters".
const LINE_CHARS: usize = 78;
/// RFC 5322 2.1.1: "MUST be no more than 998 characters". Of octets, so that it holds in every encoding.
pub(super) const LINE_BYTES_MAX: usize = 998;

/// Text from elsewhere in one line of at most so many bytes: what is no printable character becomes `?`, or a space; where it is cut it ends in `...`.
/// Without `utf8` so does what is not ASCII.
pub(super) fn sanitized(text: &str, utf8: bool, bytes_max: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(bytes_max));
    let room = bytes_max.saturating_sub(3);
    let mut cut = None;
    for c in text.chars() {
        let c = match c {
            '\t' => ' ',
            c if broken("controls-quoted") => c,
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => '?',
            c if !utf8 && !c.is_ascii() => '?',
            c => c,
        };
        if clean.len() + c.len_utf8() > room && cut.is_none() {
            cut = Some(clean.len());
        }
        if clean.len() + c.len_utf8() > bytes_max {
            clean.truncate(cut.unwrap_or(0));
            clean.push_str(&"..."[..bytes_max.min(3)]);
            break;
        }
        clean.push(c);
    }
    clean
}

/// Header fields, one after the other.
pub(super) struct Field {
    out: String,
    utf8: bool,
}

impl Field {
    /// With or without letters beyond ASCII.
    pub(super) fn new(utf8: bool) -> Field {
        Field {
            out: String::new(),
            utf8,
        }
    }

    /// A field with this value.
    pub(super) fn line(&mut self, name: &str, value: &dyn fmt::Display) {
        self.lines(name, "", &[value.to_string()]);
    }

    /// A field of several lines, each of which is folded further where it is too long.
    pub(super) fn lines(&mut self, name: &str, before: &str, values: &[String]) {
        self.out.push_str(name);
        self.out.push(':');
        let mut column = name.len() + 1;
        for (at, value) in values.iter().enumerate() {
            let value = match at {
                0 => format!("{before}{value}"),
                _ => value.clone(),
            };
            let value = sanitized(&value, self.utf8, usize::MAX);
            for (word, text) in value.split_ascii_whitespace().enumerate() {
                let is_first = at == 0 && word == 0;
                let new_line = at > 0 && word == 0;
                if new_line || (!is_first && column + 1 + text.chars().count() > LINE_CHARS) {
                    self.out.push_str("\r\n");
                    column = 0;
                }
                self.out.push(' ');
                column += 1 + text.chars().count();
                column = self.word(text, column);
            }
        }
        self.out.push_str("\r\n");
    }

    /// A word; one that is longer than a line may be is cut, since nothing in it can be folded. Gives the column behind it.
    fn word(&mut self, text: &str, column: usize) -> usize {
        // The longest name of a field, and some room.
        let most = LINE_BYTES_MAX - 50;
        if text.len() <= most {
            self.out.push_str(text);
            return column;
        }
        let mut bytes = 0;
        for c in text.chars() {
            if bytes + c.len_utf8() > most {
                self.out.push_str("\r\n ");
                bytes = 0;
            }
            bytes += c.len_utf8();
            self.out.push(c);
        }
        bytes
    }

    /// The empty line between groups of fields.
    pub(super) fn empty(&mut self) {
        self.out.push_str("\r\n");
    }

    /// All of it.
    pub(super) fn finish(self) -> Vec<u8> {
        self.out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_sanitized() {
        let check = |text: &str, utf8, max, expected: &str| {
            assert_eq!(sanitized(text, utf8, max), expected, "{text:?}")
        };
        check(
            "a\r\nBcc: b\0\u{85}\u{2028}\tc",
            true,
            100,
            "a??Bcc: b??? c",
        );
        check("Grüße", true, 100, "Grüße");
        check("Grüße", false, 100, "Gr??e");
        check("123456", true, 6, "123456");
        check("1234567", true, 6, "123...");
        check("12é4567", true, 6, "12...");
        check("1234567", true, 2, "..");
    }

    #[test]
    fn fields_are_folded() {
        let check = |values: &[&str], expected: &str| {
            let mut field = Field::new(true);
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            field.lines("Name", "", &values);
            assert_eq!(String::from_utf8(field.finish()).unwrap(), expected);
        };
        check(&["a  b"], "Name: a b\r\n");
        check(&[""], "Name:\r\n");
        check(&["a", "b c"], "Name: a\r\n b c\r\n");
        check(&["a\r\nX: b"], "Name: a??X: b\r\n");
        let (long, word) = ("1234567 ".repeat(10), "x".repeat(100));
        check(
            &[&long],
            "Name: 1234567 1234567 1234567 1234567 1234567 1234567 1234567 1234567 1234567\r\n 1234567\r\n",
        );
        check(
            &[&format!("a {word} b")],
            &format!("Name: a\r\n {word}\r\n b\r\n"),
        );
        let mut field = Field::new(true);
        field.lines("Name", "", &["é".repeat(3_000)]);
        let out = String::from_utf8(field.finish()).unwrap();
        assert!(out.split("\r\n").all(|line| line.len() <= LINE_BYTES_MAX));
        assert_eq!(out.replace("\r\n ", "").matches('é').count(), 3_000);
    }
}
