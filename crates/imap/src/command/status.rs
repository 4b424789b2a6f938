//! STATUS (RFC 9051, section 6.3.11; RFC 7162, 8438).

/// What STATUS asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusItem {
    /// `MESSAGES`
    Messages,
    /// `RECENT` (rev1)
    Recent,
    /// `UIDNEXT`
    UidNext,
    /// `UIDVALIDITY`
    UidValidity,
    /// `UNSEEN`
    Unseen,
    /// `DELETED`
    Deleted,
    /// `SIZE` (RFC 8438)
    Size,
    /// `HIGHESTMODSEQ` (RFC 7162)
    HighestModSeq,
}

impl StatusItem {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::Messages,
        Self::Recent,
        Self::UidNext,
        Self::UidValidity,
        Self::Unseen,
        Self::Deleted,
        Self::Size,
        Self::HighestModSeq,
    ];

    /// As the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "MESSAGES",
            Self::Recent => "RECENT",
            Self::UidNext => "UIDNEXT",
            Self::UidValidity => "UIDVALIDITY",
            Self::Unseen => "UNSEEN",
            Self::Deleted => "DELETED",
            Self::Size => "SIZE",
            Self::HighestModSeq => "HIGHESTMODSEQ",
        }
    }
}
