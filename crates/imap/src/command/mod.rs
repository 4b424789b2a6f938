//! The commands: one file each (or one for a few that are alike), type, parser and tests together.

pub mod access;
pub mod append;
pub mod fetch;
pub mod list;
pub mod mailbox;
pub mod messages;
pub mod quota;
pub mod search;
pub mod select;
pub mod sort;
pub mod status;
pub mod url;

pub use access::IdFields;
pub use fetch::{Fetch, FetchItem, HeaderFields, Partial, Section, SectionText};
pub use list::{List, ListPattern, ListReturn, ListSelect, Matcher, Share};
pub use mailbox::SpecialUse;
pub use messages::Store;
pub use search::{Search, SearchKey, SearchReturn};
pub use select::{Qresync, Select};
pub use sort::{Sort, SortCriterion, SortKey, Thread, ThreadAlgorithm};
pub use status::StatusItem;
pub use url::{InvalidUrl, MessageUrl, UrlMailbox};

use crate::core::{MailboxName, MessageSet, Secret, Tag};
use crate::decode::collect::Collected;
use crate::decode::cursor::{Cursor, Refusal};
use crate::limits::Limits;

/// A whole command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The client's tag.
    pub tag: Tag,
    /// What it asks.
    pub body: CommandBody,
}

/// What a command asks. APPEND and REPLACE are not here: see [`AppendBegin`](crate::AppendBegin).
///
/// `uid` says that the command was given with UID in front: numbers are UIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// RFC 4978: the name of the mechanism, in upper case.
    Compress(String),
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
        /// `USE` named one that is not known: "the server MUST respond to the CREATE command with a tagged NO" (RFC 6154,
        /// section 3), with USEATTR.
        unknown_use: bool,
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
    /// RFC 9208: the quota root, as sent.
    GetQuota(Vec<u8>),
    /// RFC 9208.
    GetQuotaRoot(MailboxName),
    /// RFC 2177. The session then calls [`Decoder::expect_done`](crate::Decoder::expect_done).
    Idle,
    /// RFC 3501, section 6.4.1.
    Check,
    /// Section 6.4.1.
    Close,
    /// RFC 8437.
    Unauthenticate,
    /// Section 6.4.2.
    Unselect,
    /// Section 6.4.3, and UID EXPUNGE (6.4.9) with a set.
    Expunge {
        /// `Some` for UID EXPUNGE.
        uids: Option<MessageSet>,
    },
    /// Section 6.4.4.
    Search(Search),
    /// RFC 5256.
    Sort(Sort),
    /// RFC 5256.
    Thread(Thread),
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

/// The commands by name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Append,
    Authenticate,
    Capability,
    Check,
    Close,
    Compress,
    Copy,
    Create,
    Delete,
    Enable,
    Examine,
    Expunge,
    Fetch,
    GetQuota,
    GetQuotaRoot,
    Id,
    Idle,
    List,
    Login,
    Logout,
    Lsub,
    Move,
    Namespace,
    Noop,
    Rename,
    Replace,
    Search,
    Select,
    Sort,
    StartTls,
    Status,
    Store,
    Subscribe,
    Thread,
    Uid,
    Unauthenticate,
    Unselect,
    Unsubscribe,
}

impl Verb {
    fn new(word: &[u8]) -> Result<Self, Refusal> {
        let mut upper = [0; 16];
        let upper = upper.get_mut(..word.len()).ok_or("unknown command")?;
        upper.copy_from_slice(word);
        upper.make_ascii_uppercase();
        Ok(match &*upper {
            b"APPEND" => Self::Append,
            b"AUTHENTICATE" => Self::Authenticate,
            b"CAPABILITY" => Self::Capability,
            b"CHECK" => Self::Check,
            b"CLOSE" => Self::Close,
            b"COMPRESS" => Self::Compress,
            b"COPY" => Self::Copy,
            b"CREATE" => Self::Create,
            b"DELETE" => Self::Delete,
            b"ENABLE" => Self::Enable,
            b"EXAMINE" => Self::Examine,
            b"EXPUNGE" => Self::Expunge,
            b"FETCH" => Self::Fetch,
            b"GETQUOTA" => Self::GetQuota,
            b"GETQUOTAROOT" => Self::GetQuotaRoot,
            b"ID" => Self::Id,
            b"IDLE" => Self::Idle,
            b"LIST" => Self::List,
            b"LOGIN" => Self::Login,
            b"LOGOUT" => Self::Logout,
            b"LSUB" => Self::Lsub,
            b"MOVE" => Self::Move,
            b"NAMESPACE" => Self::Namespace,
            b"NOOP" => Self::Noop,
            b"RENAME" => Self::Rename,
            b"REPLACE" => Self::Replace,
            b"SEARCH" => Self::Search,
            b"SELECT" => Self::Select,
            b"SORT" => Self::Sort,
            b"STARTTLS" => Self::StartTls,
            b"STATUS" => Self::Status,
            b"STORE" => Self::Store,
            b"SUBSCRIBE" => Self::Subscribe,
            b"THREAD" => Self::Thread,
            b"UID" => Self::Uid,
            b"UNAUTHENTICATE" => Self::Unauthenticate,
            b"UNSELECT" => Self::Unselect,
            b"UNSUBSCRIBE" => Self::Unsubscribe,
            b"" => return Err("expected a command"),
            _ => return Err("unknown command"),
        })
    }
}

/// The tag at the begin of a line, if it has one and something after it.
pub(crate) fn tag_of(line: &[u8]) -> Option<Tag> {
    let end = memchr::memchr(b' ', line)?;
    Tag::new(&line[..end])
}

/// Whether this is the begin of an ID.
pub(crate) fn is_id(line: &[u8]) -> bool {
    let verb = line.split(|&b| b == b' ').nth(1);
    tag_of(line).is_some() && verb.is_some_and(|verb| verb.eq_ignore_ascii_case(b"ID"))
}

/// Looks at a command whose first literal has been announced: its tag, and whether it is APPEND or REPLACE. What cannot become a
/// command is refused before its literal is read.
pub(crate) fn first_look(line: &[u8]) -> Result<(Tag, bool), Refusal> {
    let tag = tag_of(line).ok_or("invalid tag")?;
    let rest = &line[tag.as_str().len() + 1..];
    let mut words = rest.split(|&b| b == b' ');
    let mut verb = Verb::new(words.next().unwrap_or_default())?;
    if verb == Verb::Uid {
        verb = Verb::new(words.next().unwrap_or_default())?;
        return Ok((tag, verb == Verb::Replace));
    }
    Ok((tag, matches!(verb, Verb::Append | Verb::Replace)))
}

/// A whole line.
pub(crate) enum Parsed {
    /// A command.
    Command(Command),
    /// The begin of APPEND or REPLACE, which are read otherwise.
    Append(Tag),
}

/// Parses a whole command.
pub(crate) fn parse(
    collected: &mut Collected,
    limits: &Limits,
    utf8: bool,
) -> Result<Parsed, (Option<Tag>, Refusal)> {
    let mut cursor = Cursor::new(collected, limits, utf8);
    let tag = Tag::new(cursor.run(|b| b != b' ')).ok_or((None, "invalid tag"))?;
    match body(&mut cursor) {
        Ok(Some(body)) => Ok(Parsed::Command(Command { tag, body })),
        Ok(None) => Ok(Parsed::Append(tag)),
        Err(refusal) => Err((Some(tag), refusal)),
    }
}

/// `None` for APPEND and REPLACE.
fn body(c: &mut Cursor<'_>) -> Result<Option<CommandBody>, Refusal> {
    c.space()?;
    let verb = Verb::new(c.run(|b| b != b' '))?;
    let body = match verb {
        Verb::Append | Verb::Replace => return Ok(None),
        Verb::Authenticate => access::authenticate(c)?,
        Verb::Capability => CommandBody::Capability,
        Verb::Check => CommandBody::Check,
        Verb::Close => CommandBody::Close,
        Verb::Compress => access::compress(c)?,
        Verb::Create => mailbox::create(c)?,
        Verb::Delete => mailbox::one(c).map(CommandBody::Delete)?,
        Verb::Enable => access::enable(c)?,
        Verb::Examine => select::parse(c).map(CommandBody::Examine)?,
        Verb::GetQuota => quota::get(c)?,
        Verb::GetQuotaRoot => quota::get_root(c)?,
        Verb::Id => access::id(c)?,
        Verb::Idle => CommandBody::Idle,
        Verb::List => list::list(c)?,
        Verb::Login => access::login(c)?,
        Verb::Logout => CommandBody::Logout,
        Verb::Lsub => list::lsub(c)?,
        Verb::Namespace => CommandBody::Namespace,
        Verb::Noop => CommandBody::Noop,
        Verb::Rename => mailbox::rename(c)?,
        Verb::Select => select::parse(c).map(CommandBody::Select)?,
        Verb::StartTls => CommandBody::StartTls,
        Verb::Status => status::parse(c)?,
        Verb::Subscribe => mailbox::one(c).map(CommandBody::Subscribe)?,
        Verb::Unauthenticate => CommandBody::Unauthenticate,
        Verb::Unselect => CommandBody::Unselect,
        Verb::Unsubscribe => mailbox::one(c).map(CommandBody::Unsubscribe)?,
        Verb::Expunge => CommandBody::Expunge { uids: None },
        Verb::Uid => {
            c.space()?;
            match Verb::new(c.run(|b| b != b' '))? {
                Verb::Expunge => messages::uid_expunge(c)?,
                Verb::Replace => return Ok(None),
                verb => on_messages(c, verb, true)?,
            }
        }
        // Each is named, so that the compiler asks for an arm for a new command.
        Verb::Copy
        | Verb::Move
        | Verb::Fetch
        | Verb::Search
        | Verb::Sort
        | Verb::Thread
        | Verb::Store => on_messages(c, verb, false)?,
    };
    c.end()?;
    Ok(Some(body))
}

/// The commands that UID may precede.
fn on_messages(c: &mut Cursor<'_>, verb: Verb, uid: bool) -> Result<CommandBody, Refusal> {
    match verb {
        Verb::Copy => messages::set_and_mailbox(c).map(|(set, mailbox)| CommandBody::Copy {
            uid,
            set,
            mailbox,
        }),
        Verb::Move => messages::set_and_mailbox(c).map(|(set, mailbox)| CommandBody::Move {
            uid,
            set,
            mailbox,
        }),
        Verb::Fetch => fetch::parse(c, uid).map(CommandBody::Fetch),
        Verb::Search => search::parse(c, uid).map(CommandBody::Search),
        Verb::Sort => sort::sort(c, uid).map(CommandBody::Sort),
        Verb::Thread => sort::thread(c, uid).map(CommandBody::Thread),
        Verb::Store => messages::store(c, uid).map(CommandBody::Store),
        _ => Err("unknown command after UID"),
    }
}
