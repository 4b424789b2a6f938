//! SASLprep (RFC 4013): one spelling for names and passwords that people take for the same.
//!
//! Done: mapping (2.1), NFKC (2.2), prohibited output (2.3), bidirectional strings (2.4). Not done: code points that Unicode 3.2 did not
//! have are let through (2.5), and normalisation follows the present Unicode, not 3.2. The tables of RFC 3454 are those of the crate `stringprep`.
//! Its own `saslprep` refuses those code points, allows the empty text, and leaves copies of a password in memory. What RFC 3454 calls LCat is
//! taken to be every other letter.

use stringprep::tables;
use unicode_normalization::UnicodeNormalization as _;
use zeroize::Zeroizing;

/// Why a text cannot be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepError {
    /// It holds a control character or another that is not allowed (RFC 4013, 2.3).
    #[error("a character that is not allowed")]
    Prohibited,
    /// It mixes writing directions as RFC 3454, 6 forbids.
    #[error(
        "letters of both writing directions, or a right-to-left text that does not begin and end with a letter"
    )]
    Direction,
    /// Nothing is left of it.
    #[error("nothing is left of it")]
    Empty,
}

/// Prepares a text.
///
/// # Errors
/// See [`PrepError`].
pub fn saslprep(text: &str) -> Result<Zeroizing<String>, PrepError> {
    let mapped = text.chars().filter_map(|c| match c {
        _ if tables::non_ascii_space_character(c) => Some(' '),
        _ if tables::commonly_mapped_to_nothing(c) => None,
        c => Some(c),
    });
    // Of its final size at once: what a growing string leaves behind would not be overwritten. NFKC makes of a character 18 at most.
    let mut prepared = Zeroizing::new(String::with_capacity(text.len() * 18));
    prepared.extend(mapped.nfkc());
    if prepared.chars().any(is_prohibited) {
        return Err(PrepError::Prohibited);
    }
    let (Some(first), Some(last)) = (prepared.chars().next(), prepared.chars().next_back()) else {
        return Err(PrepError::Empty);
    };
    if prepared.chars().any(is_right_to_left) {
        let other = |c: char| c.is_alphabetic() && !is_right_to_left(c);
        if prepared.chars().any(other) || !is_right_to_left(first) || !is_right_to_left(last) {
            return Err(PrepError::Direction);
        }
    }
    Ok(prepared)
}

/// RFC 4013, 2.3, without C.5: surrogates, which no `char` is.
fn is_prohibited(c: char) -> bool {
    tables::non_ascii_space_character(c)
        || tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
}

/// RFC 3454, D.1. The crate follows the present Unicode: a later letter must not make an existing login one of mixed direction.
fn is_right_to_left(c: char) -> bool {
    tables::bidi_r_or_al(c) && !tables::unassigned_code_point(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |text: &str, expected: Result<&str, PrepError>| {
            let found = saslprep(text);
            assert_eq!(
                found.as_ref().map(|text| text.as_str()),
                expected.as_ref().map(|text| *text),
                "{text:?}"
            );
        };
        // RFC 4013, 3.
        check("I\u{AD}X", Ok("IX"));
        check("user", Ok("user"));
        check("USER", Ok("USER"));
        check("\u{AA}", Ok("a"));
        check("\u{2168}", Ok("IX"));
        check("\u{7}", Err(PrepError::Prohibited));
        check("\u{627}1", Err(PrepError::Direction));
        // Composed and decomposed are one; so are the spaces.
        check("Z\u{fc}rich", Ok("Z\u{fc}rich"));
        check("Zu\u{308}rich", Ok("Z\u{fc}rich"));
        check("a\u{A0}b\u{3000}c", Ok("a b c"));
        check(" a ", Ok(" a "));
        check("a\u{200B}b", Ok("a b"));
        check("a\u{200D}b\u{FEFF}", Ok("ab"));
        check("", Err(PrepError::Empty));
        check("\u{AD}", Err(PrepError::Empty));
        for odd in [
            "\u{0}",
            "\u{1f}",
            "\u{7f}",
            "\u{85}",
            "\u{e000}",
            "\u{fdd0}",
            "\u{1fffe}",
            "\u{fffd}",
            "\u{2ff0}",
            "\u{200e}",
            "\u{e0041}",
            "\u{10fffd}",
            "\u{2028}",
        ] {
            check(&format!("a{odd}"), Err(PrepError::Prohibited));
        }
        check("\u{627}1\u{628}", Ok("\u{627}1\u{628}"));
        check("\u{627}a\u{628}", Err(PrepError::Direction));
        check("1\u{627}", Err(PrepError::Direction));
        check("\u{5d0}\u{5d1}", Ok("\u{5d0}\u{5d1}"));
        // Code points that Unicode 3.2 did not have, the second of them right to left today.
        check("a\u{1f600}", Ok("a\u{1f600}"));
        check("a\u{7ca}1", Ok("a\u{7ca}1"));
    }

    /// A later Unicode must not change what is right to left: logins that were good could fail.
    #[test]
    fn right_to_left_is_that_of_unicode_3_2() {
        let found = ('\0'..=char::MAX).filter(|c| is_right_to_left(*c));
        let (count, sum) = found.fold((0_u32, 0), |(count, sum), c| {
            (count + 1, sum + u32::from(c))
        });
        assert_eq!((count, sum), (1_044, 50_705_020));
    }
}
