//! The decoder: bytes in, in any split, [`Event`]s out.
//!
//! ```text
//!            push(bytes)                next()
//!  socket ───────────────▶ Decoder ───────────────▶ session
//!                             ▲  accept_literal / refuse_literal / expect_sasl / expect_done
//!                             └──────────────────────────────────────────────────────┘
//! ```

//!
//! A command's lines and literals are collected (`collect`), then read once by a cursor (`cursor`, and the files in
//! [`command`](crate::command)). Only the messages of APPEND and REPLACE are passed on while they come.

pub(crate) mod collect;
pub(crate) mod cursor;
mod machine;

pub use machine::Decoder;

use crate::command::Command;
use crate::core::{DateTime, Flag, MailboxName, MessageSet, Secret, Tag};

/// What the decoder found. Answers that an event asks for are due before the next call of [`Decoder::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole command.
    Command(Command),
    /// The client waits for `+` before it sends a literal that is no message. The session writes a continuation, or calls
    /// [`Decoder::refuse_literal`] and answers the tag with NO or BAD.
    Continue {
        /// Of the command.
        tag: Tag,
        /// Of the literal, as declared; within the limits.
        size: u64,
    },
    /// APPEND or REPLACE, up to the name of the mailbox. Then, for each message: [`Event::AppendMessage`], its parts
    /// ([`Event::AppendLiteral`] with chunks, or [`Event::AppendUrl`]; one literal if it is no CATENATE), [`Event::AppendMessageEnd`];
    /// at last [`Event::AppendEnd`]. Anywhere [`Event::Bad`] or [`Event::Fatal`] may come instead: nothing is to be stored then.
    /// [`Decoder::refuse_literal`] ends it at any time.
    AppendBegin(AppendBegin),
    /// A message begins.
    AppendMessage(AppendMessage),
    /// Octets of the message are announced. The session calls [`Decoder::accept_literal`] (and writes a continuation when
    /// `synchronising`) or [`Decoder::refuse_literal`] and answers the tag with NO; until then there are no further events.
    AppendLiteral(AppendLiteral),
    /// Bytes of the literal, as sent.
    AppendChunk(&'a [u8]),
    /// Octets of the message are those that this URL names (RFC 4469). Not yet looked into.
    AppendUrl(String),
    /// The message is whole.
    AppendMessageEnd,
    /// The command is whole.
    AppendEnd,
    /// The client's answer to a continuation of AUTHENTICATE.
    Sasl(SaslReply),
    /// The end of IDLE.
    Done,
    /// A line that is no command. It was skipped with its literals; the session answers BAD (untagged without a tag).
    /// An AUTHENTICATE, IDLE or APPEND in progress ends with it.
    Bad {
        /// Of the command, when it could be read.
        tag: Option<Tag>,
        /// What is wrong: printable ASCII, fit for the answer.
        text: &'static str,
    },
    /// The client cannot be understood any more, or wants too much: the session says BYE and closes. Nothing comes after it.
    Fatal {
        /// What is wrong: printable ASCII, fit for the answer.
        text: &'static str,
    },
}

/// APPEND (RFC 9051, section 6.3.12) or REPLACE (RFC 8508) up to the name of the mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendBegin {
    /// Of the command.
    pub tag: Tag,
    /// Of REPLACE: which message goes.
    pub replaces: Option<Replaced>,
    /// Into which mailbox.
    pub mailbox: MailboxName,
}

/// The message that goes by a REPLACE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The number is a UID.
    pub uid: bool,
    /// One number, or `*`.
    pub set: MessageSet,
}

/// One message of an APPEND, without its octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendMessage {
    /// Without repetitions and without `\Recent`.
    pub flags: Vec<Flag>,
    /// The internal date to keep.
    pub date: Option<DateTime>,
    /// It is made of parts (RFC 4469).
    pub catenate: bool,
    /// `X-WHIMBREL-IMPORT`: what the message is elsewhere. Not for clients: the session takes it from the administrator only.
    pub import: Option<Import>,
}

/// What a message is that comes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// What it is at its source.
    pub id: [u8; 16],
    /// BLAKE3 of its octets.
    pub hash: [u8; 32],
}

/// A literal of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendLiteral {
    /// As declared. It may be over `Limits::append_bytes_max` (see `too_big`).
    pub size: u64,
    /// `size` is over `Limits::append_bytes_max`: the session must refuse, with TOOBIG.
    pub too_big: bool,
    /// The client waits for `+`.
    pub synchronising: bool,
    /// `UTF8 (~{...})` (RFC 6855, section 4): header fields may be UTF-8.
    pub utf8: bool,
    /// `~{...}` (RFC 3516): the octets may hold NUL. In any other it is an error of syntax.
    pub binary: bool,
}

/// A line of the client within AUTHENTICATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslReply {
    /// Decoded.
    Data(Secret),
    /// `*`
    Cancel,
}
