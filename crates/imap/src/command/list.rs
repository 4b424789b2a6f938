//! LIST and LSUB (RFC 9051, section 6.3.9; RFC 5258, 5819, 6154), and the matcher of their patterns.

use super::StatusItem;

/// LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Selection options.
    pub select: ListSelect,
    /// Reference, decoded, may be empty.
    pub reference: String,
    /// Patterns as sent, without the reference; at least one. One empty pattern of a basic LIST asks for the delimiter.
    pub patterns: Vec<ListPattern>,
    /// Return options; implied ones (SUBSCRIBED by the selection of it) included.
    pub returns: ListReturn,
    /// Whether anything of the extended syntax was used (RFC 5258, section 3).
    pub extended: bool,
}

/// Selection options (RFC 5258, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListSelect {
    /// `SUBSCRIBED`
    pub subscribed: bool,
    /// `REMOTE`
    pub remote: bool,
    /// `RECURSIVEMATCH`; only with `subscribed` or `special_use`.
    pub recursive_match: bool,
    /// `SPECIAL-USE` (RFC 6154)
    pub special_use: bool,
}

/// Return options (RFC 5258, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListReturn {
    /// `SUBSCRIBED`
    pub subscribed: bool,
    /// `CHILDREN`
    pub children: bool,
    /// `SPECIAL-USE` (RFC 6154)
    pub special_use: bool,
    /// `STATUS (...)` (RFC 5819); empty without it.
    pub status: Vec<StatusItem>,
}

/// A decoded pattern: text, `*`, `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPattern(String);

impl ListPattern {
    /// The pattern as decoded text, wildcards included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pattern below a reference: the two simply joined.
    pub fn under(&self, reference: &str) -> Self {
        Self(format!("{reference}{}", self.0))
    }
}
