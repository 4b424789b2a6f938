//! COPY and MOVE (RFC 9051, 6.4.7 and 6.4.8; RFC 4315; RFC 6851).
//!
//! COPY is one call. MOVE goes to the service in parts, each of which is written down for the client before the next is asked for.

use whimbrel_imap::{
    core::{MailboxName as WireName, MessageSet},
    encode::Code,
};
use whimbrel_service::api::{MESSAGES_PER_CALL_MAX, MailboxCall, MailboxName, Reply};

use super::{
    context::Context,
    expunge,
    finish::SetText,
    gone::Gone,
    outcome::{EndCode, Outcome},
    ranges::Ranges,
    task::{Step, Task, Wake},
};

/// COPY or MOVE.
pub(super) struct Copy {
    uid: bool,
    places: Ranges,
    to: MailboxName,
    remove: bool,
    /// UIDs that are still to be copied or moved, the last ones first: as places change by MOVE, they are looked up at the beginning.
    rest: Vec<u32>,
    /// How many have been.
    done: u64,
    state: State,
}

enum State {
    Begin,
    Asked,
    /// The service is asked for what is left.
    Next,
    /// MOVE tells COPYUID first, "in an untagged OK before sending EXPUNGE" (RFC 6851, 4.3).
    CopyUid {
        uids: Vec<(u32, u32)>,
        part: u8,
        next: usize,
        text: SetText,
    },
    Expunge(Gone),
}

impl Copy {
    pub(super) fn new(
        cx: &Context,
        uid: bool,
        set: &MessageSet,
        mailbox: &WireName,
        remove: bool,
    ) -> Result<Copy, Outcome> {
        if remove {
            expunge::writable(cx)?;
        }
        let places = cx
            .view()
            .places(set, uid)
            .map_err(|_| Outcome::bad("No such message"))?;
        let to = MailboxName::new(mailbox.as_str())
            .map_err(|error| Outcome::no(Code::Cannot, error.to_string()))?;
        Ok(Copy {
            uid,
            places,
            to,
            remove,
            rest: Vec::new(),
            done: 0,
            state: State::Begin,
        })
    }

    fn ask(&mut self, cx: &mut Context) -> Step {
        let most = if self.remove {
            MESSAGES_PER_CALL_MAX
        } else {
            usize::MAX
        };
        self.state = State::Asked;
        Step::Call(cx.call(MailboxCall::Copy {
            session: cx.peer.session,
            name: cx.view().name.clone(),
            uids: self.rest.iter().rev().take(most).copied().collect(),
            to: self.to.clone(),
            remove: self.remove,
        }))
    }

    fn copied(
        &mut self,
        cx: &mut Context,
        uid_validity: u32,
        uids: Vec<(u32, u32)>,
        done: usize,
    ) -> Step {
        self.rest
            .truncate(self.rest.len() - done.min(self.rest.len()));
        self.done += uids.len() as u64;
        if uids.is_empty() {
            return self.next(cx);
        }
        if !self.remove {
            let text = match self.done < u64::from(self.places.count()) {
                true => "Done, but some messages have been expunged",
                false => "Copied",
            };
            return Step::Done(Outcome::ok_code(
                EndCode::CopyUid { uid_validity, uids },
                text,
            ));
        }
        cx.out
            .extend_from_slice(format!("* OK [COPYUID {uid_validity} ").as_bytes());
        self.state = State::CopyUid {
            uids,
            part: 0,
            next: 0,
            text: SetText::default(),
        };
        self.respond(cx)
    }

    /// After a part: the next, or the end.
    fn next(&mut self, cx: &mut Context) -> Step {
        if !self.rest.is_empty() {
            self.state = State::Next;
            return Step::Again;
        }
        Step::Done(match (self.done > 0, self.uid) {
            (true, _) => Outcome::ok_code(expunge::removed_code(cx), "Moved"),
            // RFC 2180, 4.4.1. A UID that is gone is one that does not exist: no error.
            (false, true) => Outcome::ok("No such messages"),
            (false, false) => Outcome::no(Code::ExpungeIssued, "The messages have been expunged"),
        })
    }

    fn respond(&mut self, cx: &mut Context) -> Step {
        loop {
            match &mut self.state {
                State::CopyUid {
                    uids,
                    part,
                    next,
                    text,
                } => {
                    while let Some(pair) = uids.get(*next) {
                        text.add(&mut cx.out, if *part == 0 { pair.0 } else { pair.1 });
                        *next += 1;
                        if cx.is_full() {
                            return Step::Again;
                        }
                    }
                    text.end(&mut cx.out);
                    if *part == 0 {
                        cx.out.push(b' ');
                        (*part, *next) = (1, 0);
                        continue;
                    }
                    cx.out.extend_from_slice(b"] Moved\r\n");
                    let gone: Vec<u32> = uids.iter().map(|pair| pair.0).collect();
                    let qresync = cx.qresync;
                    self.state = State::Expunge(Gone::new(cx.view_mut(), &gone, qresync));
                }
                State::Expunge(gone) => {
                    if !gone.write(cx) {
                        return Step::Again;
                    }
                    return self.next(cx);
                }
                State::Begin | State::Asked | State::Next => return Step::Done(Outcome::bug()),
            }
        }
    }
}

impl Task for Copy {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&self.state, wake) {
            (State::Begin, Wake::Go) => {
                if self.places.is_empty() {
                    return Step::Done(Outcome::ok("No such messages"));
                }
                let view = cx.view();
                self.rest = self.places.iter().map(|place| view.uid(place)).collect();
                self.rest.reverse();
                self.ask(cx)
            }
            (State::Next, Wake::Go) => self.ask(cx),
            (
                State::Asked,
                Wake::Reply(Reply::Copied {
                    uid_validity,
                    uids,
                    done,
                }),
            ) => self.copied(cx, uid_validity, uids, done),
            (State::Asked, Wake::Reply(reply)) => Step::Done(Outcome::failed_target(reply)),
            (_, Wake::Go) => self.respond(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
