//! A command that is being carried out.

use whimbrel_pop3::encode;
use whimbrel_service::api::{Failure, Reply};

use super::{
    auth::{Login, Open},
    context::Context,
    list::{Listing, One, Stat},
    retrieve::Retrieve,
    step::{Step, code_of, failed},
};

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
