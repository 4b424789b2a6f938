//! CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE.

/// Special uses (RFC 6154, section 2; `\Important`, RFC 8457).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialUse {
    /// `\All`
    All,
    /// `\Archive`
    Archive,
    /// `\Drafts`
    Drafts,
    /// `\Flagged`
    Flagged,
    /// `\Important`
    Important,
    /// `\Junk`
    Junk,
    /// `\Sent`
    Sent,
    /// `\Trash`
    Trash,
}

impl SpecialUse {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::All,
        Self::Archive,
        Self::Drafts,
        Self::Flagged,
        Self::Important,
        Self::Junk,
        Self::Sent,
        Self::Trash,
    ];

    /// The attribute as the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "\\All",
            Self::Archive => "\\Archive",
            Self::Drafts => "\\Drafts",
            Self::Flagged => "\\Flagged",
            Self::Important => "\\Important",
            Self::Junk => "\\Junk",
            Self::Sent => "\\Sent",
            Self::Trash => "\\Trash",
        }
    }

    /// The use that `text` spells, in any case.
    pub fn new(text: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|u| u.as_str().as_bytes().eq_ignore_ascii_case(text))
    }
}
