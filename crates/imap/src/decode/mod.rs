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
//! [`command`](crate::command)). Only the message of APPEND is passed on while it comes.

pub(crate) mod collect;
pub(crate) mod cursor;
mod machine;

pub use machine::Decoder;

use crate::command::Command;
use crate::core::{DateTime, Flag, MailboxName, Secret, Tag};

/// What the decoder found. Answers that an event asks for are due before the next call of [`Decoder::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole command.
    Command(Command),
    /// The client waits for `+` before it sends a literal of a command other than APPEND. The session writes a continuation, or
    /// calls [`Decoder::refuse_literal`] and answers the tag with NO or BAD.
    Continue {
        /// Of the command.
        tag: Tag,
        /// Of the literal, as declared; within the limits.
        size: u64,
    },
    /// APPEND, up to the message. The session calls [`Decoder::accept_literal`] (and writes a continuation when
    /// `synchronising`) or [`Decoder::refuse_literal`] and answers the tag with NO; until then there are no further events.
    AppendBegin(AppendBegin),
    /// Bytes of the message, as sent.
    AppendChunk(&'a [u8]),
    /// The message and its command are whole. Instead of this, [`Event::Bad`] or [`Event::Fatal`] may come: the message is then
    /// to be dropped.
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

/// APPEND up to its message (RFC 9051, section 6.3.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendBegin {
    /// Of the command.
    pub tag: Tag,
    /// Into which mailbox.
    pub mailbox: MailboxName,
    /// Without repetitions and without `\Recent`.
    pub flags: Vec<Flag>,
    /// The internal date to keep.
    pub date: Option<DateTime>,
    /// Size of the message, as declared. It may be over `Limits::append_bytes_max` (see `too_big`).
    pub size: u64,
    /// `size` is over `Limits::append_bytes_max`: the session must refuse, with TOOBIG.
    pub too_big: bool,
    /// The client waits for `+`.
    pub synchronising: bool,
    /// `UTF8 (~{...})` (RFC 6855, section 4): the headers may be UTF-8.
    pub utf8: bool,
    /// `~{...}` (RFC 3516): the message may hold NUL. In any other it is an error of syntax.
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
