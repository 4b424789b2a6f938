//! SELECT and EXAMINE (RFC 9051, 6.3.2 and 6.3.3; RFC 3501; RFC 7162, 3.1.8 and 3.2.5).

use whimbrel_imap::{
    command::Select as Arguments,
    core::ObjectId,
    encode::{self, Code, ListData, ListResponse},
};
use whimbrel_service::api::{Call, MailboxCall, MailboxName, Reply};

use super::{
    context::{self, Context},
    fetch::Fetch,
    named, objectid,
    outcome::{EndCode, Outcome},
    sync,
    task::{Step, Task, Wake},
    view::View,
};

/// SELECT or EXAMINE.
pub(super) struct Select {
    arguments: Arguments,
    read_only: bool,
    /// Some of what the client names was told elsewhere.
    elsewhere: bool,
    state: State,
}

enum State {
    Begin,
    /// A mailbox that was selected is given up, because the new one cannot be had: then this is the answer.
    Leave(Option<Outcome>),
    /// What the client names that it may have been told in a time that was lost is believed first.
    Named(MailboxName, bool),
    Asked(MailboxName, bool),
    /// The client is told what has changed since it was here.
    Resync(Box<Fetch>),
}

impl Select {
    pub(super) fn new(
        cx: &Context,
        arguments: Arguments,
        read_only: bool,
    ) -> Result<Select, Outcome> {
        if arguments.qresync.is_some() && !cx.qresync {
            return Err(Outcome::bad("QRESYNC is not enabled"));
        }
        Ok(Select {
            arguments,
            read_only,
            elsewhere: false,
            state: State::Begin,
        })
    }

    fn begin(&mut self, cx: &mut Context) -> Step {
        // "The SELECT command automatically deselects any currently selected mailbox before attempting the new selection.
        // Consequently, if a mailbox is selected and a SELECT command that fails is attempted, no mailbox is selected."
        let was_selected = cx.view.take().is_some();
        if was_selected {
            cx.ok(
                Some(Code::Closed),
                "The mailbox that was selected is closed",
            );
        }
        if self.arguments.condstore {
            cx.enable_condstore();
        }
        match context::existing_name(&self.arguments.mailbox) {
            Ok(name) => {
                let known = self.arguments.qresync.as_ref();
                let numbers = known.map(named::known).unwrap_or_default();
                match known.filter(|_| !numbers.is_empty()) {
                    Some(known) => {
                        let call = MailboxCall::Named {
                            name: name.clone(),
                            uid_validity: known.uid_validity,
                            numbers,
                            told: None,
                            modseq: Some(known.mod_seq),
                        };
                        self.state = State::Named(name, was_selected);
                        Step::Call(cx.call(call))
                    }
                    None => self.ask(cx, name, was_selected),
                }
            }
            Err(outcome) => self.fail(cx, was_selected, outcome),
        }
    }

    fn ask(&mut self, cx: &mut Context, name: MailboxName, was_selected: bool) -> Step {
        cx.has_changed = false;
        self.state = State::Asked(name.clone(), was_selected);
        let call = MailboxCall::Select {
            session: cx.peer.session,
            name,
            read_only: self.read_only,
        };
        Step::Call(cx.call(call))
    }

    fn selected(&mut self, cx: &mut Context) -> Step {
        // "If the provided UIDVALIDITY doesn't match the UIDVALIDITY for the mailbox being opened, then the server MUST ignore the remaining
        // parameters" (RFC 7162, 3.2.5); and where no message ever was, none is known, if none is named.
        let view = cx.view();
        let (uid_validity, uid_next) = (view.uid_validity, view.uid_next);
        let known = self
            .arguments
            .qresync
            .take()
            .filter(|known| known.uid_validity == uid_validity)
            .filter(|known| known.known_uids.is_some() || uid_next > 1);
        let Some(known) = known else {
            return self.end();
        };
        match Fetch::resync(cx, known, self.elsewhere) {
            Ok(fetch) => {
                self.state = State::Resync(Box::new(fetch));
                Step::Again
            }
            Err(outcome) => self.unselected(cx, outcome),
        }
    }

    fn end(&self) -> Step {
        let (code, text) = if self.read_only {
            (Code::ReadOnly, "Examined")
        } else {
            (Code::ReadWrite, "Selected")
        };
        Step::Done(Outcome::ok_code(EndCode::Plain(code), text))
    }

    fn unselected(&mut self, cx: &mut Context, outcome: Outcome) -> Step {
        cx.view = None;
        self.fail(cx, true, outcome)
    }

    fn fail(&mut self, cx: &Context, was_selected: bool, outcome: Outcome) -> Step {
        if !was_selected {
            return Step::Done(outcome);
        }
        self.state = State::Leave(Some(outcome));
        Step::Call(unselect(cx))
    }
}

fn unselect(cx: &Context) -> Call {
    cx.call(MailboxCall::Unselect {
        session: cx.peer.session,
    })
}

impl Task for Select {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            // Without it the client might overlook mail.
            (State::Named(_, was_selected), Wake::Reply(reply @ Reply::Failed(_))) => {
                let was_selected = *was_selected;
                self.fail(cx, was_selected, Outcome::of_reply(reply))
            }
            (State::Named(name, was_selected), Wake::Reply(reply)) => {
                let (name, was_selected) = (name.clone(), *was_selected);
                self.elsewhere = matches!(reply, Reply::Named { elsewhere: true });
                self.ask(cx, name, was_selected)
            }
            (State::Begin, Wake::Go) => self.begin(cx),
            (State::Leave(outcome), Wake::Reply(_)) => {
                Step::Done(outcome.take().unwrap_or_else(Outcome::bug))
            }
            (State::Asked(name, _), Wake::Reply(Reply::Selected(selected))) => {
                let first_unseen = selected.first_unseen;
                let id = objectid::mailbox_id(selected.status.id);
                let name = name.clone();
                let mut view = View::new(
                    name.clone(),
                    self.read_only,
                    selected,
                    cx.limits.keywords_max,
                );
                view.dirty = cx.has_changed;
                cx.view = Some(Box::new(view));
                respond(cx, &name, &id, first_unseen);
                self.selected(cx)
            }
            (State::Resync(fetch), wake) => match fetch.step(cx, wake) {
                Step::Done(outcome) if outcome.is_ok() => self.end(),
                Step::Done(outcome) => self.unselected(cx, outcome),
                step => step,
            },
            (State::Asked(_, was_selected), Wake::Reply(reply)) => {
                let was_selected = *was_selected;
                self.fail(cx, was_selected, Outcome::of_reply(reply))
            }
            _ => Step::Done(Outcome::bug()),
        }
    }
}

/// The untagged answers.
fn respond(cx: &mut Context, name: &MailboxName, id: &ObjectId, first_unseen: Option<u32>) {
    let view = cx.view();
    let (count, uid_validity, uid_next) = (view.count(), view.uid_validity, view.uid_next);
    let highest = view.highest_modseq;
    sync::write_flags(cx);
    encode::exists(&mut cx.out, count);
    if !cx.rev2 {
        // IMAP4rev1 requires RECENT; no message is: \Recent is never set here.
        encode::recent(&mut cx.out, 0);
        if let Some(place) = first_unseen {
            cx.ok(Some(Code::Unseen(place + 1)), "First unseen message");
        }
    }
    cx.ok(Some(Code::UidValidity(uid_validity)), "UIDs are valid");
    cx.ok(Some(Code::UidNext(uid_next)), "Next UID");
    cx.ok(
        Some(Code::HighestModSeq(highest)),
        "Highest modification sequence",
    );
    // "On all successful SELECT and EXAMINE commands" (RFC 8474, 4.2).
    cx.ok(Some(Code::MailboxId(id)), "Mailbox");
    if cx.rev2 {
        // "The server MUST return a LIST response with the mailbox name" (RFC 9051, 6.3.2).
        let response = ListResponse {
            name: name.as_str(),
            delimiter: Some(MailboxName::SEPARATOR),
            data: ListData::default(),
            child_info_subscribed: false,
            old_name: None,
        };
        encode::list(&mut cx.out, &response, true);
    }
}
