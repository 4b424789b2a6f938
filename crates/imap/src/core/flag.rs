//! Flags and keywords (RFC 9051, section 2.3.2).

use super::is_atom_char;
use std::fmt;

/// A flag a client may set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// `\Answered`
    Answered,
    /// `\Deleted`
    Deleted,
    /// `\Draft`
    Draft,
    /// `\Flagged`
    Flagged,
    /// `\Seen`
    Seen,
    /// Any other: `$Forwarded`, `NonJunk`, ...
    Keyword(Keyword),
}

impl Flag {
    /// The flag that `text` spells: a system flag in any case, or a keyword.
    pub fn new(text: &[u8]) -> Option<Self> {
        match text.strip_prefix(b"\\") {
            None => Keyword::new(text).map(Self::Keyword),
            Some(name) => [
                Self::Answered,
                Self::Deleted,
                Self::Draft,
                Self::Flagged,
                Self::Seen,
            ]
            .into_iter()
            .find(|flag| flag.as_str().as_bytes()[1..].eq_ignore_ascii_case(name)),
        }
    }

    /// As the protocol spells it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Answered => "\\Answered",
            Self::Deleted => "\\Deleted",
            Self::Draft => "\\Draft",
            Self::Flagged => "\\Flagged",
            Self::Seen => "\\Seen",
            Self::Keyword(keyword) => keyword.as_str(),
        }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A keyword: an atom. The spelling is kept; whether two spellings are one keyword is decided where keywords are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyword(Box<str>);

impl Keyword {
    /// Longest keyword accepted, in bytes: each is repeated in FLAGS and with every message that bears it.
    pub const BYTES_MAX: usize = 128;

    /// The keyword that `text` spells.
    pub fn new(text: &[u8]) -> Option<Self> {
        let good = !text.is_empty()
            && text.len() <= Self::BYTES_MAX
            && text.iter().all(|&b| is_atom_char(b));
        good.then(|| Self(String::from_utf8_lossy(text).into_owned().into_boxed_str()))
    }

    /// As it was sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What STORE does with the flags it names (RFC 9051, section 6.4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// `FLAGS`: these and no other.
    Replace,
    /// `+FLAGS`
    Add,
    /// `-FLAGS`
    Remove,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: Option<&str>) {
        assert_eq!(
            Flag::new(input.as_bytes()).as_ref().map(Flag::as_str),
            expected
        );
    }

    #[test]
    fn flags() {
        check("\\Seen", Some("\\Seen"));
        check("\\dElEtEd", Some("\\Deleted"));
        check("$Forwarded", Some("$Forwarded"));
        check("NonJunk", Some("NonJunk"));
        check("\\Recent", None);
        check("\\*", None);
        check("\\", None);
        check("", None);
        check("a(b", None);
        check("a]b", None);
        check("é", None);
        check(&"k".repeat(Keyword::BYTES_MAX + 1), None);
    }
}
