//! The collation i;unicode-casemap (RFC 5051): what SORT and THREAD compare strings by (RFC 5256, 7), and how SEARCH finds a string in another.
//!
//! A string becomes a key, and keys are compared as octets. Character by character: "If the codepoint has a titlecase property in
//! UnicodeData.txt", that; then its decomposition (canonical and compatible), whose characters are again put into titlecase, since `ﬁ` is
//! to be what `fi` is. Then combining marks are put into the canonical order (Unicode 3.11), which RFC 5051 does not ask for: without that some
//! texts in normalization form C would have another key than in form D.

use unicode_normalization::char::{canonical_combining_class, decompose_compatible};

/// Marks behind one character that are put in order. Text that has more is no text: "30 is significantly beyond what is required for any
/// linguistic or technical usage" (UAX 15, 13).
const MARKS_MAX: usize = 32;

/// Appends the key of `text`.
pub fn casemap(text: &str, key: &mut Vec<u8>) {
    let mut casemap = Casemap::default();
    casemap.push(text, key);
    casemap.finish(key);
}

/// Makes the key of a text that comes in pieces.
#[derive(Default)]
pub(crate) struct Casemap {
    /// ASCII letters are put into lower case, which tells no less apart: searches are quicker where rare octets are those that are rare in mail.
    lower: bool,
    /// Combining marks behind the last character, each with its class.
    marks: Vec<(u8, char)>,
}

impl Casemap {
    /// For keys that are searched and not compared by their order.
    pub(crate) fn for_search() -> Casemap {
        Casemap {
            lower: true,
            ..Casemap::default()
        }
    }

    /// The next piece of the text: its key is appended, but for marks at the end.
    pub(crate) fn push(&mut self, text: &str, key: &mut Vec<u8>) {
        let mut rest = text;
        while !rest.is_empty() {
            let is_other = |byte: &u8| !byte.is_ascii();
            let ascii = rest.as_bytes().iter().position(is_other);
            let ascii = ascii.unwrap_or(rest.len());
            if ascii > 0 {
                self.finish(key);
                let from = key.len();
                key.extend_from_slice(&rest.as_bytes()[..ascii]);
                match self.lower {
                    true => key[from..].make_ascii_lowercase(),
                    false => key[from..].make_ascii_uppercase(),
                }
                rest = &rest[ascii..];
            }
            let mut characters = rest.chars();
            while let Some(character) = characters.as_str().chars().next().filter(|c| !c.is_ascii())
            {
                characters.next();
                decompose_compatible(titlecase(character), |part| {
                    self.character(titlecase(part), key);
                });
            }
            rest = characters.as_str();
        }
    }

    /// The text is at its end; another may follow.
    pub(crate) fn finish(&mut self, key: &mut Vec<u8>) {
        if self.marks.is_empty() {
            return;
        }
        // Marks of one class keep their order.
        self.marks.sort_by_key(|(class, _)| *class);
        for (_, mark) in self.marks.drain(..) {
            key.extend_from_slice(mark.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn character(&mut self, character: char, key: &mut Vec<u8>) {
        let class = canonical_combining_class(character);
        if class == 0 || self.marks.len() == MARKS_MAX {
            self.finish(key);
        }
        if class > 0 {
            self.marks.push((class, character));
            return;
        }
        let character = match self.lower {
            true => character.to_ascii_lowercase(),
            false => character,
        };
        key.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// The titlecase mapping of UnicodeData.txt, which is to one character. The standard library knows the full uppercase mapping; the two
/// differ where the full one has several characters, in the digraphs that have a case of their own for titles, and in Georgian, which has
/// capitals but no title case.
fn titlecase(character: char) -> char {
    match character {
        '\u{01C4}'..='\u{01C6}' => '\u{01C5}',
        '\u{01C7}'..='\u{01C9}' => '\u{01C8}',
        '\u{01CA}'..='\u{01CC}' => '\u{01CB}',
        '\u{01F1}'..='\u{01F3}' => '\u{01F2}',
        '\u{10D0}'..='\u{10FF}' => character,
        // Greek with iota below: the small letters stand eight or nine places before the large ones.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => {
            char::from_u32(u32::from(character) + 8).unwrap_or(character)
        }
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => {
            char::from_u32(u32::from(character) + 9).unwrap_or(character)
        }
        _ => {
            let mut upper = character.to_uppercase();
            match (upper.next(), upper.next()) {
                (Some(upper), None) => upper,
                _ => character,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        casemap(text, &mut key);
        key
    }

    #[track_caller]
    fn same(a: &str, b: &str) {
        assert_eq!(key(a), key(b), "{a} {b}");
    }

    #[test]
    fn equal() {
        same("Hello, World", "hELLO, wORLD");
        same("Zürich", "ZU\u{308}RICH");
        same("ﬁ", "FI");
        same("ǆ", "Ǆ");
        same("ǆ", "ǅ");
        same("Å", "\u{212B}");
        same("ᾳ", "ᾼ");
        same("ᾀ", "ᾈ");
        same("µ", "Μ");
        same("ſ", "S");
        same("①", "1");
        same("ПРИВЕТ", "привет");
        same("ς", "σ");
        assert_ne!(key("ß"), key("ss"));
        assert_ne!(key("a"), key("ä"));
    }

    /// One text in two normalization forms has one key, in pieces of any size.
    #[test]
    fn normalization_forms() {
        use unicode_normalization::UnicodeNormalization as _;
        for text in [
            "Grüße",
            "Übersicht",
            "e\u{316}\u{301}",
            "\u{1ed9}\u{328}",
            "d\u{307}\u{323}",
            "각하",
            "ᾴ",
            "が",
            "\u{f73}\u{f71}",
        ] {
            let forms: [String; 3] = [text.into(), text.nfc().collect(), text.nfd().collect()];
            for form in &forms {
                same(text, form);
                let mut pieces = Vec::new();
                let mut casemap = Casemap::default();
                for character in form.chars() {
                    casemap.push(&character.to_string(), &mut pieces);
                }
                casemap.finish(&mut pieces);
                assert_eq!(pieces, key(text), "{form}");
            }
        }
        let many = format!("a{}b", "\u{301}\u{316}".repeat(1000));
        assert_eq!(key(&many).len(), many.len());
    }

    #[test]
    fn keys() {
        assert_eq!(key("a é"), "A E\u{301}".as_bytes());
        assert_eq!(key("ß"), "ß".as_bytes());
        assert_eq!(key("ა"), "ა".as_bytes());
        assert_eq!(key(""), b"");
        assert!(key("") < key("a"));
        assert!(key("apple") < key("Banana") && key("Banana") < key("éclair"));
    }

    /// A key is its own key, whatever the character: nothing is left that a second pass would change.
    #[test]
    fn keys_are_final() {
        for character in (0..=0x10_FFFF).filter_map(char::from_u32) {
            let once = key(&character.to_string());
            let text = std::str::from_utf8(&once).unwrap();
            assert_eq!(key(text), once, "U+{:04X}", u32::from(character));
        }
    }
}
