//! NOOP, CHECK and IDLE (RFC 9051, 6.1.2 and 6.3.13; RFC 2177).

use whimbrel_imap::encode;
use whimbrel_service::api::{Failure, MailboxCall, Reply};

use super::{
    context::Context,
    outcome::Outcome,
    sync::Sync,
    task::{Expect, Step, Task, Wake},
};

/// IDLE: changes are told as they come, until DONE.
pub(super) struct Idle {
    state: State,
}

enum State {
    Begin,
    /// It waits.
    Waiting,
    /// The owner is asked what the client knows; then goes on with this.
    Recalling(Then),
    /// Changes are asked for and told; `true`: the `+` has been sent.
    Telling(Sync),
}

/// Why an idle session wakes.
enum Then {
    Changed,
    Done,
    Broken(&'static str),
}

impl Idle {
    pub(super) fn new() -> Idle {
        Idle {
            state: State::Begin,
        }
    }

    fn respond(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let State::Telling(sync) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        match sync.within(cx, reply) {
            Ok(step) => step,
            Err(false) => {
                self.state = State::Waiting;
                // Many sessions wait, for long, and need no index for that.
                if let Some(view) = &mut cx.view {
                    view.rest();
                }
                Step::Input(Expect::StillDone)
            }
            Err(true) => Step::Done(Outcome::ok("The selected mailbox is gone")),
        }
    }

    fn begin_telling(&mut self, cx: &mut Context) -> Step {
        self.state = State::Telling(Sync::new(true, false));
        self.respond(cx, None)
    }

    /// Goes on with an index.
    fn wake(&mut self, cx: &mut Context, then: Then) -> Step {
        if let Some(view) = &mut cx.view
            && !view.wake()
        {
            self.state = State::Recalling(then);
            let session = cx.peer.session;
            return Step::Call(cx.call(MailboxCall::Known { session }));
        }
        match then {
            Then::Changed => self.begin_telling(cx),
            Then::Done => Step::Done(Outcome::ok("Done idling")),
            Then::Broken(text) => Step::Done(Outcome::bad(text)),
        }
    }

    fn recalled(&mut self, cx: &mut Context, then: Then, reply: Reply) -> Step {
        let uids = match reply {
            Reply::Known(Some(uids)) => uids,
            // What comes next finds that, too.
            Reply::Failed(Failure::Gone | Failure::NoSuchMailbox) => Vec::new(),
            // Sequence numbers cannot be told any more.
            _ => {
                return Step::Bye(
                    "The server no longer knows the state of this session, select the mailbox again",
                    "what an idle client knows cannot be found out",
                );
            }
        };
        cx.view_mut().recall(uids);
        self.wake(cx, then)
    }
}

impl Task for Idle {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (std::mem::replace(&mut self.state, State::Waiting), wake) {
            (State::Begin, Wake::Go) => {
                encode::continuation(&mut cx.out, "Idling");
                // What came before is told at once.
                if let Some(view) = &mut cx.view {
                    view.dirty = true;
                }
                Step::Input(Expect::Done)
            }
            (State::Waiting, Wake::Changed) => self.wake(cx, Then::Changed),
            (State::Waiting, Wake::Done) => self.wake(cx, Then::Done),
            (State::Waiting, Wake::Broken(text)) => self.wake(cx, Then::Broken(text)),
            (State::Recalling(then), Wake::Reply(reply)) => self.recalled(cx, then, reply),
            (State::Telling(sync), Wake::Reply(reply)) => {
                self.state = State::Telling(sync);
                self.respond(cx, Some(reply))
            }
            (State::Telling(sync), Wake::Go) => {
                self.state = State::Telling(sync);
                self.respond(cx, None)
            }
            _ => Step::Done(Outcome::bug()),
        }
    }
}
