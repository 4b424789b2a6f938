//! EXPUNGE, UID EXPUNGE and CLOSE (RFC 9051, 6.4.1 and 6.4.3; RFC 4315).

use whimbrel_imap::{core::MessageSet, encode::Code};
use whimbrel_service::api::{MailboxCall, Reply};

use super::{
    context::Context,
    gone::Gone,
    task::{EndCode, Outcome, Step, Task, Wake},
};

/// EXPUNGE and UID EXPUNGE.
pub(super) struct Expunge {
    uids: Option<MessageSet>,
    /// What is still to be told.
    gone: Option<Gone>,
}

impl Expunge {
    pub(super) fn new(cx: &Context, uids: Option<MessageSet>) -> Result<Expunge, Outcome> {
        writable(cx)?;
        Ok(Expunge { uids, gone: None })
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
    let up_to = view.uids.last().copied().unwrap_or(0);
    let call = MailboxCall::Expunge {
        session: cx.session,
        name: view.name.clone(),
        uids,
        up_to,
    };
    Step::Call(cx.call(call))
}

impl Task for Expunge {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go if self.gone.is_none() => {
                if cx.view().uids.is_empty() {
                    return Step::Done(Outcome::ok("Nothing to expunge"));
                }
                let uids = match self.uids.take() {
                    None => None,
                    Some(set) => {
                        let view = cx.view();
                        let places = view.places(&set, true).unwrap_or_default();
                        if places.is_empty() {
                            return Step::Done(Outcome::ok("Nothing to expunge"));
                        }
                        Some(places.iter().map(|place| view.uid(place)).collect())
                    }
                };
                call(cx, uids)
            }
            Wake::Reply(Reply::Expunged { uids, .. }) => {
                let qresync = cx.qresync;
                self.gone = Some(Gone::new(cx.view_mut(), &uids, qresync));
                self.tell(cx)
            }
            Wake::Go => self.tell(cx),
            Wake::Reply(reply) => Step::Done(Outcome::of_reply(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

impl Expunge {
    fn tell(&mut self, cx: &mut Context) -> Step {
        if self.gone.as_mut().is_some_and(|gone| !gone.write(cx)) {
            return Step::Again;
        }
        Step::Done(Outcome::ok_code(removed_code(cx), "Expunged"))
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
            // It stays selected, so that the client can try again.
            Wake::Reply(reply @ Reply::Failed(_)) => Step::Done(Outcome::of_reply(reply)),
            Wake::Go | Wake::Reply(_) if cx.view.is_some() => {
                cx.view = None;
                Step::Call(cx.call(MailboxCall::Unselect {
                    session: cx.session,
                }))
            }
            Wake::Reply(_) => Step::Done(Outcome::ok("Mailbox is closed")),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
