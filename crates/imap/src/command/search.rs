//! SEARCH (RFC 9051, section 6.4.4; RFC 4731, 5182, 7162).

use crate::core::{Date, Keyword, MessageSet, ModSeq};

/// SEARCH and UID SEARCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Answer with UIDs.
    pub uid: bool,
    /// `RETURN (...)`; `None` without it. `RETURN ()` is `ALL` (RFC 4731, section 3.1).
    pub returns: Option<SearchReturn>,
    /// `CHARSET`, in upper case. Strings are as sent, in this charset; without it in UTF-8.
    pub charset: Option<String>,
    /// What to find; an `And` when several keys were given.
    pub key: SearchKey,
}

/// What SEARCH answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SearchReturn {
    /// `MIN`
    pub min: bool,
    /// `MAX`
    pub max: bool,
    /// `ALL`
    pub all: bool,
    /// `COUNT`
    pub count: bool,
    /// `SAVE` (RFC 5182)
    pub save: bool,
}

/// One search key. The depth of the tree is at most `Limits::nesting_depth_max`: chains of OR and lists in lists are flattened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchKey {
    /// All of these; never empty.
    And(Vec<SearchKey>),
    /// Any of these; at least two.
    Or(Vec<SearchKey>),
    /// Not this.
    Not(Box<SearchKey>),
    /// Sequence numbers.
    Sequence(MessageSet),
    /// `UID`
    Uid(MessageSet),
    /// `ALL`
    All,
    /// `ANSWERED`
    Answered,
    /// `BCC`
    Bcc(Vec<u8>),
    /// `BEFORE`
    Before(Date),
    /// `BODY`
    Body(Vec<u8>),
    /// `CC`
    Cc(Vec<u8>),
    /// `DELETED`
    Deleted,
    /// `DRAFT`
    Draft,
    /// `FLAGGED`
    Flagged,
    /// `FROM`
    From(Vec<u8>),
    /// `HEADER`: field name and text (empty: the field is there).
    Header(String, Vec<u8>),
    /// `KEYWORD`
    Keyword(Keyword),
    /// `LARGER`
    Larger(u64),
    /// `MODSEQ` (RFC 7162, section 3.1.5); the entry it may name has no meaning here, as all metadata have one.
    ModSeq(ModSeq),
    /// `NEW` (rev1): recent and unseen.
    New,
    /// `OLD` (rev1): not recent.
    Old,
    /// `ON`
    On(Date),
    /// `RECENT` (rev1)
    Recent,
    /// `SEEN`
    Seen,
    /// `SENTBEFORE`
    SentBefore(Date),
    /// `SENTON`
    SentOn(Date),
    /// `SENTSINCE`
    SentSince(Date),
    /// `SINCE`
    Since(Date),
    /// `SMALLER`
    Smaller(u64),
    /// `SUBJECT`
    Subject(Vec<u8>),
    /// `TEXT`
    Text(Vec<u8>),
    /// `TO`
    To(Vec<u8>),
    /// `UNANSWERED`
    Unanswered,
    /// `UNDELETED`
    Undeleted,
    /// `UNDRAFT`
    Undraft,
    /// `UNFLAGGED`
    Unflagged,
    /// `UNKEYWORD`
    Unkeyword(Keyword),
    /// `UNSEEN`
    Unseen,
}
