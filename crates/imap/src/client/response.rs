//! What a server says, as types.

use crate::command::{Section, SpecialUse, StatusItem};
use crate::core::{DateTime, InvalidName, ModSeq, ObjectId, SequenceSet, Tag};
use crate::encode::Kind;
use whimbrel_mime::{Envelope, Part};

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Response {
    /// `+ text`
    Continuation {
        /// After the space.
        text: Vec<u8>,
    },
    /// The end of a command.
    Tagged {
        /// Of the command.
        tag: Tag,
        /// OK, NO or BAD.
        kind: Kind,
        /// In brackets.
        code: Option<ReplyCode>,
        /// For humans.
        text: String,
    },
    /// Untagged OK, NO, BAD, PREAUTH, BYE; the greeting is the first of these.
    Status {
        /// Which.
        kind: Kind,
        /// In brackets.
        code: Option<ReplyCode>,
        /// For humans.
        text: String,
    },
    /// `CAPABILITY`
    Capability(Vec<String>),
    /// `ENABLED`
    Enabled(Vec<String>),
    /// `ID`; empty for NIL.
    Id(Vec<(String, Option<String>)>),
    /// `NAMESPACE`: personal, others', shared, each prefix and delimiter.
    Namespace([Vec<(String, Option<char>)>; 3]),
    /// `FLAGS`
    Flags(Vec<String>),
    /// `LIST`
    List(ListItem),
    /// `LSUB`
    Lsub(ListItem),
    /// `LIST` or `LSUB` with a name that cannot be read: servers show what they find in their directories.
    Unlisted(BadName),
    /// `STATUS`
    MailboxStatus {
        /// Decoded.
        mailbox: String,
        /// In order.
        items: Vec<(StatusItem, u64)>,
        /// MAILBOXID, which is no number and not among the items.
        mailbox_id: Option<ObjectId>,
    },
    /// `SEARCH`
    Search {
        /// In order.
        numbers: Vec<u32>,
        /// `(MODSEQ n)`
        mod_seq: Option<ModSeq>,
    },
    /// `ESEARCH`
    ESearch {
        /// `(TAG ...)`
        tag: Option<String>,
        /// Numbers are UIDs.
        uid: bool,
        /// `MIN`
        min: Option<u32>,
        /// `MAX`
        max: Option<u32>,
        /// `COUNT`
        count: Option<u32>,
        /// `ALL`; of the order in which an extended SORT names them nothing is left.
        all: Option<SequenceSet>,
        /// `PARTIAL`, without its range; empty for NIL.
        partial: Option<SequenceSet>,
        /// `MODSEQ`
        mod_seq: Option<ModSeq>,
    },
    /// `SORT`
    Sort {
        /// In order.
        numbers: Vec<u32>,
        /// `(MODSEQ n)`
        mod_seq: Option<ModSeq>,
    },
    /// `THREAD`: every message after the one it hangs on.
    Thread(Vec<ThreadNode>),
    /// One that is not known, where those are taken ([`super::Limits::lenient`]).
    Unknown,
    /// `n EXISTS`
    Exists(u32),
    /// `n RECENT`
    Recent(u32),
    /// `n EXPUNGE`
    Expunge(u32),
    /// `VANISHED`
    Vanished {
        /// `(EARLIER)`
        earlier: bool,
        /// Which.
        uids: SequenceSet,
    },
    /// `n FETCH (...)`
    Fetch {
        /// Sequence number.
        sequence: u32,
        /// In order.
        items: Vec<FetchData>,
    },
}

/// One message of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNode {
    /// Its number; `None` for one that is not there.
    pub number: Option<u32>,
    /// The place of its parent among the nodes.
    pub parent: Option<usize>,
}

/// A response code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyCode {
    /// UIDVALIDITY and UIDs.
    AppendUid(u32, SequenceSet),
    /// BADURL (RFC 4469): the URL.
    BadUrl(String),
    /// Charsets.
    BadCharset(Vec<String>),
    /// Capabilities.
    Capability(Vec<String>),
    /// UIDVALIDITY and pairs of old and new UIDs.
    CopyUid(u32, Vec<(u32, u32)>),
    /// Greatest modification sequence.
    HighestModSeq(ModSeq),
    /// Name of the mailbox that outlives renaming.
    MailboxId(ObjectId),
    /// Messages not changed by a conditional STORE.
    Modified(SequenceSet),
    /// Flags, `\*` as it is.
    PermanentFlags(Vec<String>),
    /// Next UID.
    UidNext(u32),
    /// UIDVALIDITY.
    UidValidity(u32),
    /// First unseen message.
    Unseen(u32),
    /// One of those without arguments, in upper case; one that cannot be read, as it is, where those are taken.
    Plain(String),
}

/// A name that no mailbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName {
    /// Its begin as it was sent, ASCII by escapes.
    pub begin: String,
    /// What is wrong with it.
    pub why: InvalidName,
}

/// LIST and LSUB data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListItem {
    /// As sent, special uses included.
    pub attributes: Vec<String>,
    /// Hierarchy delimiter.
    pub delimiter: Option<char>,
    /// Decoded.
    pub name: String,
    /// `CHILDINFO`
    pub child_info: Vec<String>,
    /// `OLDNAME`, decoded.
    pub old_name: Option<String>,
}

impl ListItem {
    /// Whether it has `attribute`, in any case.
    pub fn has(&self, attribute: &str) -> bool {
        self.attributes
            .iter()
            .any(|a| a.eq_ignore_ascii_case(attribute))
    }

    /// Its special uses.
    pub fn special_uses(&self) -> impl Iterator<Item = SpecialUse> + '_ {
        self.attributes
            .iter()
            .filter_map(|a| SpecialUse::new(a.as_bytes()))
    }
}

/// One FETCH item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum FetchData {
    /// `BINARY[...]`
    Binary {
        /// Part numbers.
        part: Vec<u32>,
        /// `<n>`
        origin: Option<u64>,
        /// `None` for NIL.
        data: Option<Vec<u8>>,
        /// It came as a literal8.
        literal8: bool,
    },
    /// `BINARY.SIZE[...]`
    BinarySize {
        /// Part numbers.
        part: Vec<u32>,
        /// Octets.
        size: u64,
    },
    /// `BODY (...)`. Of the part are given what the response gives; spans start at 0.
    Body(Part),
    /// `BODYSTRUCTURE (...)`
    BodyStructure(Part),
    /// `EMAILID (id)`
    EmailId(ObjectId),
    /// `ENVELOPE (...)`, sender and reply-to as they came.
    Envelope(Envelope),
    /// `FLAGS (...)`
    Flags(Vec<String>),
    /// `INTERNALDATE "..."`
    InternalDate(DateTime),
    /// `MODSEQ (n)`
    ModSeq(ModSeq),
    /// `PREVIEW ...`; `None` for NIL.
    Preview(Option<String>),
    /// `RFC822`, `RFC822.HEADER`, `RFC822.TEXT`
    Rfc822(String, Option<Vec<u8>>),
    /// `SAVEDATE "..."`, or NIL
    SaveDate(Option<DateTime>),
    /// `RFC822.SIZE n`
    Size(u64),
    /// `BODY[...]`
    Section {
        /// Which.
        section: Section,
        /// `<n>`
        origin: Option<u64>,
        /// `None` for NIL.
        data: Option<Vec<u8>>,
    },
    /// `THREADID (id)`, or NIL
    ThreadId(Option<ObjectId>),
    /// `UID n`
    Uid(u32),
}
