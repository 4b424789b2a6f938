//! What a task wants next, and the answers that end one early.

use whimbrel_pop3::encode::{self, Code};
use whimbrel_service::api::{AccountId, Call, Failure, MailboxName, Reply};

use super::context::Context;

/// What a task wants next.
pub(super) enum Step {
    /// An answer.
    Call(Call),
    /// To go on when there is room for output.
    Again,
    /// A line of AUTH.
    Sasl,
    /// To open this mailbox of who has just logged in.
    Open(AccountId, MailboxName),
    /// That another session opens it.
    HandOver(AccountId, String),
    /// Nothing more; the answer is written.
    Done,
    /// Nothing more; then close, for this reason.
    Close(&'static str),
    /// To break off in the middle of an answer: the reason for the log.
    Abort(&'static str),
}

/// What another session has removed. It was there a moment ago and is missing from the next session's list, so there is nothing that the user
/// should be told: a temporary error, which clients pass over.
pub(super) fn gone(cx: &mut Context) -> Step {
    encode::err(
        &mut cx.out,
        Some(Code::SysTemp),
        "Message was removed by another session",
    );
    Step::Done
}

/// Tells the client of a failure, before anything else was told.
pub(super) fn failed(cx: &mut Context, reply: &Reply) -> Step {
    let text = match reply {
        Reply::Failed(Failure::Credentials) => "Authentication failed",
        Reply::Failed(Failure::Throttled) => "Too many attempts, try again later",
        Reply::Failed(Failure::InUse) => "Too many sessions of this account, try again later",
        Reply::Failed(Failure::NoSuchMailbox | Failure::BadName) => "No such mailbox",
        Reply::Failed(Failure::NoSuchAccount) => "Account is unavailable",
        Reply::Failed(Failure::Gone) => "The mailbox is gone",
        Reply::Failed(Failure::Storage) => "Insufficient storage, try again later",
        Reply::Failed(Failure::TooFewNodes) => "Too few other nodes are reachable, try again later",
        Reply::Failed(Failure::DoneHere) => {
            "Done on this node, but too few other nodes have confirmed it in time"
        }
        Reply::Failed(Failure::Clock) => "The clock of this server is wrong, try again later",
        Reply::Failed(_) => "Temporary failure, try again later",
        _ => {
            debug_assert!(false, "a reply that does not answer the call");
            "Internal error"
        }
    };
    encode::err(&mut cx.out, code_of(reply), text);
    Step::Done
}

/// RFC 3206.
pub(super) fn code_of(reply: &Reply) -> Option<Code> {
    Some(match reply {
        Reply::Failed(Failure::Credentials) => Code::Auth,
        Reply::Failed(Failure::InUse) => Code::InUse,
        Reply::Failed(Failure::NoSuchMailbox | Failure::BadName | Failure::NoSuchAccount) => {
            Code::SysPerm
        }
        _ => Code::SysTemp,
    })
}
