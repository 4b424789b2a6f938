//! UNAUTHENTICATE: back to the not authenticated state, on the same connection (RFC 8437).
//!
//! "A NO response is not permitted": the mailbox that is given up on the way cannot be held on to.

use whimbrel_service::api::MailboxCall;

use super::{
    context::Context,
    outcome::Outcome,
    task::{Step, Task, Wake},
};

/// UNAUTHENTICATE.
pub(super) struct Unauthenticate;

impl Task for Unauthenticate {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            // "If a mailbox was selected, the mailbox ceases to be selected, but no expunge event is generated" (3).
            Wake::Go if cx.view.take().is_some() => Step::Call(cx.call(MailboxCall::Unselect {
                session: cx.peer.session,
            })),
            _ => {
                cx.log_out();
                Step::Done(Outcome::ok("You are not logged in any more"))
            }
        }
    }
}
