//! FETCH (RFC 9051, section 6.4.5; RFC 7162 for its modifiers).

use crate::core::{MessageSet, ModSeq};

/// FETCH and UID FETCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Numbers are UIDs. The UID item is then among the items, asked for or not (section 6.4.9).
    pub uid: bool,
    /// Which messages.
    pub set: MessageSet,
    /// What is asked, macros expanded, without repetitions; at least one.
    pub items: Vec<FetchItem>,
    /// `(CHANGEDSINCE n)`. The MODSEQ item is then among the items (RFC 7162, section 3.1.4.1).
    pub changed_since: Option<ModSeq>,
    /// `VANISHED` (RFC 7162, section 3.2.6); only with `uid` and `changed_since`.
    pub vanished: bool,
}

/// One data item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchItem {
    /// `BODY`: BODYSTRUCTURE without extension data.
    Body,
    /// `BODYSTRUCTURE`
    BodyStructure,
    /// `ENVELOPE`
    Envelope,
    /// `FLAGS`
    Flags,
    /// `INTERNALDATE`
    InternalDate,
    /// `MODSEQ` (RFC 7162)
    ModSeq,
    /// `RFC822` (rev1): BODY[] under another name; sets `\Seen`.
    Rfc822,
    /// `RFC822.HEADER` (rev1): does not set `\Seen`.
    Rfc822Header,
    /// `RFC822.SIZE`
    Rfc822Size,
    /// `RFC822.TEXT` (rev1); sets `\Seen`.
    Rfc822Text,
    /// `BODY[...]` and `BODY.PEEK[...]`
    Section {
        /// Which bytes.
        section: Section,
        /// `<offset.length>`
        partial: Option<Partial>,
        /// `.PEEK`: `\Seen` is not set.
        peek: bool,
    },
    /// `UID`
    Uid,
}

impl FetchItem {
    /// Whether answering it sets `\Seen`.
    pub fn sets_seen(&self) -> bool {
        match self {
            Self::Section { peek, .. } => !peek,
            Self::Rfc822 | Self::Rfc822Text => true,
            _ => false,
        }
    }
}

/// What stands in the brackets of `BODY[...]`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Section {
    /// Part numbers, each at least 1; empty for the message itself.
    pub part: Vec<u32>,
    /// What of the part; `None` for all of it.
    pub text: Option<SectionText>,
}

/// What of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SectionText {
    /// `HEADER`
    Header,
    /// `HEADER.FIELDS` and `HEADER.FIELDS.NOT`
    HeaderFields(HeaderFields),
    /// `TEXT`
    Text,
    /// `MIME`; only with a part.
    Mime,
}

/// A list of field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// `.NOT`: all fields but these.
    pub not: bool,
    /// As sent (the answer repeats them); printable ASCII without colon and space, at least one.
    pub names: Vec<String>,
}

/// `<offset.length>`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// First byte, from 0.
    pub offset: u64,
    /// Bytes at most, at least 1.
    pub length: u64,
}
