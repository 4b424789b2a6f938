//! The commands: one file each (or one for a few that are alike), type, parser and tests together.

pub mod access;
pub mod append;
pub mod fetch;
pub mod list;
pub mod mailbox;
pub mod messages;
pub mod search;
pub mod select;
pub mod status;

pub use access::IdFields;
pub use fetch::{Fetch, FetchItem, HeaderFields, Partial, Section, SectionText};
pub use list::{List, ListPattern, ListReturn, ListSelect};
pub use mailbox::SpecialUse;
pub use messages::Store;
pub use search::{Search, SearchKey, SearchReturn};
pub use select::{Qresync, Select};
pub use status::StatusItem;

use crate::core::{MailboxName, MessageSet, Secret, Tag};

/// A whole command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The client's tag.
    pub tag: Tag,
    /// What it asks.
    pub body: CommandBody,
}

/// What a command asks. APPEND is not here: see [`AppendBegin`](crate::AppendBegin).
///
/// `uid` says that the command was given with UID in front: numbers are UIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandBody {
    /// RFC 9051, section 6.1.1.
    Capability,
    /// Section 6.1.2.
    Noop,
    /// Section 6.1.3.
    Logout,
    /// RFC 2971. `None` for `ID NIL`.
    Id(Option<IdFields>),
    /// Section 6.2.1.
    StartTls,
    /// Section 6.2.2. The session then calls [`Decoder::expect_sasl`](crate::Decoder::expect_sasl) before each line it asks for.
    Authenticate {
        /// In upper case.
        mechanism: String,
        /// Decoded; `Some` of nothing for `=` (RFC 4959).
        initial: Option<Secret>,
    },
    /// Section 6.2.3.
    Login {
        /// As sent; UTF-8.
        user: String,
        /// As sent.
        password: Secret,
    },
    /// RFC 5161; names in upper case, at least one.
    Enable(Vec<String>),
    /// Section 6.3.2.
    Select(Select),
    /// Section 6.3.3.
    Examine(Select),
    /// Section 6.3.4 with RFC 6154's USE.
    Create {
        /// New mailbox. A hierarchy delimiter at its end has been kept.
        mailbox: MailboxName,
        /// `USE (...)`, empty without it.
        special_use: Vec<SpecialUse>,
    },
    /// Section 6.3.5.
    Delete(MailboxName),
    /// Section 6.3.6.
    Rename {
        /// Old name.
        from: MailboxName,
        /// New name.
        to: MailboxName,
    },
    /// Section 6.3.7.
    Subscribe(MailboxName),
    /// Section 6.3.8.
    Unsubscribe(MailboxName),
    /// Section 6.3.9, with RFC 5258, 5819, 6154.
    List(List),
    /// RFC 3501, section 6.3.9.
    Lsub {
        /// Reference, decoded, may be empty.
        reference: String,
        /// Pattern.
        pattern: ListPattern,
    },
    /// RFC 2342.
    Namespace,
    /// Section 6.3.11; at least one item.
    Status {
        /// Which mailbox.
        mailbox: MailboxName,
        /// What is asked, in the order asked, without repetitions.
        items: Vec<StatusItem>,
    },
    /// RFC 2177. The session then calls [`Decoder::expect_done`](crate::Decoder::expect_done).
    Idle,
    /// RFC 3501, section 6.4.1.
    Check,
    /// Section 6.4.1.
    Close,
    /// Section 6.4.2.
    Unselect,
    /// Section 6.4.3, and UID EXPUNGE (6.4.9) with a set.
    Expunge {
        /// `Some` for UID EXPUNGE.
        uids: Option<MessageSet>,
    },
    /// Section 6.4.4.
    Search(Search),
    /// Section 6.4.5.
    Fetch(Fetch),
    /// Section 6.4.6.
    Store(Store),
    /// Section 6.4.7.
    Copy {
        /// Numbers are UIDs.
        uid: bool,
        /// Which messages.
        set: MessageSet,
        /// Into which mailbox.
        mailbox: MailboxName,
    },
    /// Section 6.4.8.
    Move {
        /// Numbers are UIDs.
        uid: bool,
        /// Which messages.
        set: MessageSet,
        /// Into which mailbox.
        mailbox: MailboxName,
    },
}
