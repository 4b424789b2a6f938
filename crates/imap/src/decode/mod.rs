//! The decoder: bytes in, in any split, [`Event`]s out.
//!
//! ```text
//!            push(bytes)                next()
//!  socket ───────────────▶ Decoder ───────────────▶ session
//!                             ▲  accept_literal / refuse_literal / expect_sasl / expect_done
//!                             └──────────────────────────────────────────────────────┘
//! ```

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
}

/// A line of the client within AUTHENTICATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslReply {
    /// Decoded.
    Data(Secret),
    /// `*`
    Cancel,
}

use crate::limits::Limits;

/// The resumable decoder of one connection.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
}

impl Decoder {
    /// A decoder at the begin of a connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// The limits it works under.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// From now on the limits after login hold.
    pub fn set_authenticated(&mut self, _authenticated: bool) {}

    /// From now on names are UTF-8 and quoted strings may hold it (ENABLE IMAP4rev2 or UTF8=ACCEPT).
    pub fn set_utf8(&mut self, _utf8: bool) {}

    /// Takes what was read. To be called when [`Decoder::next`] has returned `None`; what is pushed is copied.
    pub fn push(&mut self, _bytes: &[u8]) {}

    /// The next event, or `None` when more bytes (or an answer to the last event) are needed.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event<'_>> {
        None
    }

    /// Lets the message of APPEND come.
    pub fn accept_literal(&mut self) {}

    /// Drops the command whose literal was announced. A synchronising client will not send it; of another the bytes are skipped.
    pub fn refuse_literal(&mut self) {}

    /// The next line is an answer to a continuation of AUTHENTICATE.
    pub fn expect_sasl(&mut self) {}

    /// The next line is the DONE of IDLE.
    pub fn expect_done(&mut self) {}

    /// Whether no byte is held that was not given out as an event. After STARTTLS anything that is held was sent in the clear,
    /// by whomever: the session must close.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Bytes held, all buffers together.
    pub fn buffered_bytes(&self) -> usize {
        0
    }

    /// After [`Event::Fatal`].
    pub fn is_dead(&self) -> bool {
        false
    }
}
