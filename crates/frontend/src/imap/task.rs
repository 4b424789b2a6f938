//! A command that is being carried out, as a state machine.

use whimbrel_imap::{AppendLiteral, AppendMessage, SaslReply, core::Tag};
use whimbrel_service::api::{AccountId, Call, Reply};

use super::{context::Context, outcome::Outcome};

/// Why a task goes on.
pub(super) enum Wake<'a> {
    /// It begins, or the client has taken its output.
    Go,
    /// Its call was answered.
    Reply(Reply),
    /// A message of APPEND begins.
    Message(AppendMessage),
    /// Octets of it are announced.
    Literal(AppendLiteral),
    /// Some of them.
    Chunk(&'a [u8]),
    /// Octets of it are those of this URL.
    Url(String),
    /// The message is whole.
    MessageEnd,
    /// The command is whole.
    AppendEnd,
    /// A line of AUTHENTICATE.
    Sasl(SaslReply),
    /// DONE of IDLE.
    Done,
    /// The selected mailbox has changed; only told to a task that waits for the client.
    Changed,
    /// The client sent something else than what was waited for.
    Broken(&'static str),
}

/// What a task wants next.
pub(super) enum Step {
    /// An answer.
    Call(Call),
    /// To go on when there is room for output.
    Again,
    /// To go on when others had their chance: a slice of long work is done.
    Yield,
    /// Something of the client.
    Input(Expect),
    /// That this command be carried out in its place.
    Begin(Box<whimbrel_imap::Command>),
    /// That another session goes on with who has logged in.
    HandOver(AccountId),
    /// Nothing more.
    Done(Outcome),
    /// Nothing more, and what may still come of the command is not wanted.
    Refuse(Outcome),
    /// To end the session between two answers: what the client is told, and the reason for the log.
    Bye(&'static str, &'static str),
    /// To break off in the middle of an answer: the reason for the log.
    Abort(&'static str),
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// A line of AUTHENTICATE.
    Sasl,
    /// The literal of APPEND that was announced, which is accepted now.
    Literal,
    /// What comes next of APPEND.
    Append,
    /// DONE of IDLE, or a change of the mailbox.
    Done,
    /// The same, once more.
    StillDone,
}

/// A running command.
pub(super) trait Task: Send {
    /// Goes on until something is wanted. It stops with [`Step::Again`] when `cx` has gathered enough output.
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step;

    /// Drops what was read and not yet used, to read it again ([`crate::session::Session::shed`]).
    fn shed(&mut self) {}

    /// The connection is gone: what must be undone.
    fn abandon(&mut self) -> Option<Call> {
        None
    }
}

/// What may be told when a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing: the command leaves the selected mailbox, or has just entered it.
    Nothing,
    /// All but EXPUNGE: it "MUST NOT be sent when no command is in progress, nor while responding to a FETCH, STORE, or SEARCH
    /// command", while "UID FETCH, UID STORE, and UID SEARCH are different commands" (RFC 9051, 7.5.1).
    Flags,
    /// All, if there may be something.
    All,
    /// All, and ask in any case: the client wants to know.
    Ask,
}

/// Which command is being carried out.
pub(super) struct Header {
    pub(super) tag: Tag,
    /// For the metrics.
    pub(super) name: &'static str,
    pub(super) telling: Telling,
    /// It was given with UID: servers "MUST implicitly include the UID message data item as part of any FETCH response caused by a UID
    /// command" (RFC 9051, 6.4.9).
    pub(super) uid: bool,
}
