//! The collation i;unicode-casemap (RFC 5051): what SORT and THREAD compare strings by (RFC 5256, 7).
//!
//! A string becomes a key, and keys are compared as octets. Character by character: "If the codepoint has a titlecase property in
//! UnicodeData.txt", that; then its decomposition (canonical and compatible), whose characters are again put into titlecase, since `ﬁ` is
//! to be what `fi` is. Nothing is reordered.

use unicode_normalization::char::decompose_compatible;

/// Appends the key of `text`.
pub fn casemap(text: &str, key: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        let ascii = rest
            .as_bytes()
            .iter()
            .position(|byte| !byte.is_ascii())
            .unwrap_or(rest.len());
        let from = key.len();
        key.extend_from_slice(&rest.as_bytes()[..ascii]);
        key[from..].make_ascii_uppercase();
        let mut characters = rest[ascii..].chars();
        let Some(character) = characters.next() else {
            return;
        };
        rest = characters.as_str();
        decompose_compatible(titlecase(character), |part| {
            let mut utf8 = [0; 4];
            key.extend_from_slice(titlecase(part).encode_utf8(&mut utf8).as_bytes());
        });
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
