//! EXPUNGE, UID EXPUNGE and CLOSE (RFC 9051, 6.4.1 and 6.4.3; RFC 4315).
//!
//! The service removes so many messages at a time; the session asks until no more are left. What somebody else marks meanwhile, and this
//! session was shown, goes with them.

use whimbrel_imap::{core::MessageSet, encode::Code};
use whimbrel_service::api::{MESSAGES_PER_CALL_MAX, MailboxCall, Reply};

use super::{
    context::Context,
    gone::Gone,
    outcome::{EndCode, Outcome},
    task::{Step, Task, Wake},
};

/// The answer when no message was removed.
const NOTHING: &str = "Nothing to expunge";

/// EXPUNGE and UID EXPUNGE.
pub(super) struct Expunge {
    set: Option<MessageSet>,
    /// UID EXPUNGE: those that are still to be looked at, the last ones first.
    rest: Option<Vec<u32>>,
    /// UIDs of the present call.
    asked: usize,
    /// Whether the service left some of what it was asked for.
    more: bool,
    /// Whether the service removed anything.
    removed: bool,
    state: ExpungeState,
}

enum ExpungeState {
    Begin,
    Asked,
    Tell(Gone),
}

impl Expunge {
    pub(super) fn new(cx: &Context, uids: Option<MessageSet>) -> Result<Expunge, Outcome> {
        writable(cx)?;
        Ok(Expunge {
            set: uids,
            rest: None,
            asked: 0,
            more: false,
            removed: false,
            state: ExpungeState::Begin,
        })
    }
}

/// Refuses what would change a mailbox that was opened by EXAMINE.
pub(super) fn writable(cx: &Context) -> Result<(), Outcome> {
    if cx.view().read_only {
        Err(Outcome::no(Code::ReadOnly, "Mailbox is opened read-only"))
    } else {
        Ok(())
    }
}

fn call(cx: &Context, uids: Option<Vec<u32>>) -> Step {
    let view = cx.view();
    let up_to = view.uids.last().unwrap_or(0);
    let call = MailboxCall::Expunge {
        session: cx.peer.session,
        name: view.name.clone(),
        uids,
        up_to,
    };
    Step::Call(cx.call(call))
}

impl Task for Expunge {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (ExpungeState::Begin, Wake::Go) => {
                let view = cx.view();
                if let Some(set) = self.set.take() {
                    let places = view.places(&set, true).unwrap_or_default();
                    let mut uids: Vec<u32> = places.iter().map(|place| view.uid(place)).collect();
                    uids.reverse();
                    self.rest = Some(uids);
                }
                if view.uids.is_empty() || self.rest.as_ref().is_some_and(Vec::is_empty) {
                    return Step::Done(Outcome::ok(NOTHING));
                }
                self.ask(cx)
            }
            (ExpungeState::Asked, Wake::Reply(Reply::Expunged { uids, more, .. })) => {
                self.more = more;
                self.removed |= !uids.is_empty();
                if let Some(rest) = &mut self.rest {
                    let end = match uids.last() {
                        // What is below the last one was looked at, too.
                        Some(last) if more => rest.partition_point(|uid| uid > last),
                        _ => rest.len() - self.asked,
                    };
                    rest.truncate(end);
                    self.more = !rest.is_empty();
                }
                let qresync = cx.qresync;
                self.state = ExpungeState::Tell(Gone::new(cx.view_mut(), &uids, qresync));
                self.respond(cx)
            }
            (ExpungeState::Asked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (ExpungeState::Tell(_), Wake::Go) => self.respond(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

impl Expunge {
    fn ask(&mut self, cx: &mut Context) -> Step {
        let first = self.rest.as_ref().map(|rest| {
            let first = rest.iter().rev().take(MESSAGES_PER_CALL_MAX);
            first.copied().collect::<Vec<u32>>()
        });
        self.asked = first.as_ref().map_or(0, Vec::len);
        self.state = ExpungeState::Asked;
        call(cx, first)
    }

    /// Tells a part before the next is asked for.
    fn respond(&mut self, cx: &mut Context) -> Step {
        let ExpungeState::Tell(gone) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        if !gone.write(cx) {
            return Step::Again;
        }
        if self.more {
            return self.ask(cx);
        }
        // A message that got another UID meanwhile is told as EXPUNGE, too, and is still there: the text tells the two apart.
        Step::Done(if self.removed {
            Outcome::ok_code(removed_code(cx), "Expunged")
        } else {
            Outcome::ok(NOTHING)
        })
    }
}

/// "If at least one message got expunged and QRESYNC was enabled, the server MUST send the updated per-mailbox modification sequence using the
/// HIGHESTMODSEQ response code" (RFC 7162, 3.2.7); whoever uses CONDSTORE may want to know, too.
pub(super) fn removed_code(cx: &Context) -> EndCode {
    if cx.condstore {
        EndCode::HighestModSeq
    } else {
        EndCode::None
    }
}

/// CLOSE: "permanently removes all messages that have the \Deleted flag set from the currently selected mailbox, and it returns to the
/// authenticated state from the selected state. No untagged EXPUNGE responses are sent" (RFC 9051, 6.4.1). And UNSELECT, which removes
/// nothing (RFC 3691). "The server MUST NOT send the updated per-mailbox modification sequence using the HIGHESTMODSEQ response code [...] in the
/// tagged OK response, as this might cause loss of synchronization on the client" (RFC 7162, 3.2.8).
pub(super) struct Close {
    expunge: bool,
}

impl Close {
    pub(super) fn new(cx: &Context, expunge: bool) -> Close {
        // "No messages are removed, and no error is given, if the mailbox is selected by an EXAMINE command".
        Close {
            expunge: expunge && !cx.view().read_only && !cx.view().uids.is_empty(),
        }
    }
}

impl Task for Close {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go if self.expunge => call(cx, None),
            Wake::Reply(Reply::Expunged { more: true, .. }) => call(cx, None),
            // It stays selected, so that the client can try again.
            Wake::Reply(reply @ Reply::Failed(_)) => Step::Done(Outcome::of_reply(reply)),
            Wake::Go | Wake::Reply(_) if cx.view.is_some() => {
                cx.view = None;
                Step::Call(cx.call(MailboxCall::Unselect {
                    session: cx.peer.session,
                }))
            }
            Wake::Reply(_) => Step::Done(Outcome::ok("Mailbox is closed")),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
