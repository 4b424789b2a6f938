//! NOOP, CHECK and IDLE (RFC 9051, 6.1.2 and 6.3.13; RFC 2177).

use whimbrel_imap::encode;

use super::{
    context::Context,
    sync::Sync,
    task::{Expect, Outcome, Step, Task, Wake},
};

/// IDLE: changes are told as they come, until DONE.
pub(super) struct Idle {
    state: State,
}

enum State {
    Begin,
    /// It waits.
    Waiting,
    /// Changes are asked for and told; `true`: the `+` has been sent.
    Telling(Sync),
}

impl Idle {
    pub(super) fn new() -> Idle {
        Idle {
            state: State::Begin,
        }
    }

    fn tell(&mut self, cx: &mut Context, reply: Option<whimbrel_service::api::Reply>) -> Step {
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
        self.tell(cx, None)
    }
}

impl Task for Idle {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        if let Some(view) = &mut cx.view {
            view.wake();
        }
        match (&self.state, wake) {
            (State::Begin, Wake::Go) => {
                encode::continuation(&mut cx.out, "Idling");
                // What came before is told at once.
                if let Some(view) = &mut cx.view {
                    view.dirty = true;
                }
                self.state = State::Waiting;
                Step::Input(Expect::Done)
            }
            (State::Waiting, Wake::Changed) => self.begin_telling(cx),
            (State::Telling(_), Wake::Reply(reply)) => self.tell(cx, Some(reply)),
            (State::Telling(_), Wake::Go) => self.tell(cx, None),
            (State::Waiting, Wake::Done) => Step::Done(Outcome::ok("Done idling")),
            (State::Waiting, Wake::Broken(text)) => Step::Done(Outcome::bad(text)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
