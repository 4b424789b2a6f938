//! SASLprep (RFC 4013): one spelling for names and passwords that people take for the same.
//!
//! Done: mapping (2.1), NFKC (2.2), prohibited output (2.3), bidirectional strings (2.4). Not done: code points that Unicode 3.2 did not
//! have are let through (2.5), and normalisation follows the present Unicode, not 3.2. The tables are those of RFC 3454; what it calls LCat is
//! taken to be every other letter.

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
        _ if is_space(c) => Some(' '),
        _ if is_nothing(c) => None,
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

fn within(c: char, table: &[(u32, u32)]) -> bool {
    let code = u32::from(c);
    table
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&code))
}

/// RFC 3454, C.1.2.
fn is_space(c: char) -> bool {
    within(
        c,
        &[
            (0x00A0, 0x00A0),
            (0x1680, 0x1680),
            (0x2000, 0x200B),
            (0x202F, 0x202F),
            (0x205F, 0x205F),
            (0x3000, 0x3000),
        ],
    )
}

/// RFC 3454, B.1.
fn is_nothing(c: char) -> bool {
    within(
        c,
        &[
            (0x00AD, 0x00AD),
            (0x034F, 0x034F),
            (0x1806, 0x1806),
            (0x180B, 0x180D),
            (0x200C, 0x200D),
            (0x2060, 0x2060),
            (0xFE00, 0xFE0F),
            (0xFEFF, 0xFEFF),
        ],
    )
}

/// RFC 3454, C.1.2, C.2, C.3, C.4, C.6, C.7, C.8, C.9. (C.5 are surrogates, which no `char` is.)
fn is_prohibited(c: char) -> bool {
    // C.4: the last two of every plane.
    u32::from(c) & 0xFFFE == 0xFFFE
        || is_space(c)
        || c.is_control()
        || within(
            c,
            &[
                (0x0340, 0x0341),
                (0x06DD, 0x06DD),
                (0x070F, 0x070F),
                (0x180E, 0x180E),
                (0x200C, 0x200F),
                (0x2028, 0x202E),
                (0x2060, 0x2063),
                (0x206A, 0x206F),
                (0x2FF0, 0x2FFB),
                (0xE000, 0xF8FF),
                (0xFDD0, 0xFDEF),
                (0xFEFF, 0xFEFF),
                (0xFFF9, 0xFFFD),
                (0x1D173, 0x1D17A),
                (0xE0001, 0xE0001),
                (0xE0020, 0xE007F),
                (0xF0000, 0xFFFFD),
                (0x10_0000, 0x10_FFFD),
            ],
        )
}

/// RFC 3454, D.1.
fn is_right_to_left(c: char) -> bool {
    within(
        c,
        &[
            (0x05BE, 0x05BE),
            (0x05C0, 0x05C0),
            (0x05C3, 0x05C3),
            (0x05D0, 0x05EA),
            (0x05F0, 0x05F4),
            (0x061B, 0x061B),
            (0x061F, 0x061F),
            (0x0621, 0x063A),
            (0x0640, 0x064A),
            (0x066D, 0x066F),
            (0x0671, 0x06D5),
            (0x06DD, 0x06DD),
            (0x06E5, 0x06E6),
            (0x06FA, 0x06FE),
            (0x0700, 0x070D),
            (0x0710, 0x0710),
            (0x0712, 0x072C),
            (0x0780, 0x07A5),
            (0x07B1, 0x07B1),
            (0x200F, 0x200F),
            (0xFB1D, 0xFB1D),
            (0xFB1F, 0xFB28),
            (0xFB2A, 0xFB36),
            (0xFB38, 0xFB3C),
            (0xFB3E, 0xFB3E),
            (0xFB40, 0xFB41),
            (0xFB43, 0xFB44),
            (0xFB46, 0xFBB1),
            (0xFBD3, 0xFD3D),
            (0xFD50, 0xFD8F),
            (0xFD92, 0xFDC7),
            (0xFDF0, 0xFDFC),
            (0xFE70, 0xFE74),
            (0xFE76, 0xFEFC),
        ],
    )
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
    }
}
