//! A command that is being carried out.

use whimbrel_pop3::encode::{self, Code};
use whimbrel_service::api::{AccountId, Call, Failure, Reply};

use super::{
    auth::{Login, Open},
    context::Context,
    list::{Listing, One, Stat},
    retrieve::Retrieve,
};

/// What a task wants next.
pub(super) enum Step {
    /// An answer.
    Call(Call),
    /// To go on when there is room for output.
    Again,
    /// A line of AUTH.
    Sasl,
    /// The maildrop of who has just logged in.
    Open(Box<Open>),
    /// That another session opens it.
    HandOver(AccountId, String),
    /// Nothing more; the answer is written.
    Done,
    /// Nothing more; then close, for this reason.
    Close(&'static str),
    /// To break off in the middle of an answer: the reason for the log.
    Abort(&'static str),
}

/// A command that waits for something.
pub(super) enum Task {
    Login(Box<Login>),
    Open(Box<Open>),
    Stat(Stat),
    Listing(Box<Listing>),
    One(One),
    Retrieve(Box<Retrieve>),
    /// QUIT: the UPDATE state. From this place on messages are still to be removed; and whether too few other nodes have confirmed what was.
    Update(u32, bool),
}

impl Task {
    /// Goes on. `reply` answers its call.
    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        match self {
            Task::Login(login) => login.step(cx, reply),
            Task::Open(open) => open.step(cx, reply),
            Task::Stat(stat) => stat.step(cx, reply),
            Task::Listing(listing) => listing.step(cx, reply),
            Task::One(one) => one.step(cx, reply),
            Task::Retrieve(retrieve) => retrieve.step(cx, reply),
            Task::Update(from, unconfirmed) => update(cx, from, unconfirmed, reply),
        }
    }
}

/// "If the client issues the QUIT command from the TRANSACTION state, the POP3 session enters the UPDATE state": "the POP3 server removes
/// all messages marked as deleted from the maildrop and replies as to the status of this operation" (RFC 1939, 6).
fn update(cx: &mut Context, from: &mut u32, unconfirmed: &mut bool, reply: Option<Reply>) -> Step {
    match reply {
        None | Some(Reply::Done | Reply::Failed(Failure::DoneHere)) => {
            *unconfirmed |= matches!(reply, Some(Reply::Failed(_)));
            if let Some((call, next)) = cx.maildrop().remove(*from) {
                *from = next;
                return Step::Call(cx.call(call));
            }
            if *unconfirmed {
                failed(cx, &Reply::Failed(Failure::DoneHere));
                return Step::Close("logout");
            }
            let text = match reply {
                None => "Bye",
                Some(_) => "Bye, the messages are removed",
            };
            encode::ok(&mut cx.out, text);
        }
        Some(reply) => {
            let code = code_of(&reply);
            encode::err(&mut cx.out, code, "Some of the messages were not removed");
        }
    }
    Step::Close("logout")
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
fn code_of(reply: &Reply) -> Option<Code> {
    Some(match reply {
        Reply::Failed(Failure::Credentials) => Code::Auth,
        Reply::Failed(Failure::InUse) => Code::InUse,
        Reply::Failed(Failure::NoSuchMailbox | Failure::BadName | Failure::NoSuchAccount) => {
            Code::SysPerm
        }
        _ => Code::SysTemp,
    })
}
