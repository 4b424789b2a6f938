//! SEARCH and UID SEARCH (RFC 9051, 6.4.4; RFC 4731; RFC 5032; RFC 5182; RFC 7162, 3.1.5), and what begins as they do: [`sort`], [`thread`].
//!
//! Reading order: [`program`], [`find`], [`message`], this file, [`answer`]; then [`gather`], [`keys`], [`order`], [`sort`], [`thread`].

mod answer;
mod find;
mod gather;
mod keys;
mod message;
mod order;
mod program;
mod sort;
mod thread;

pub(super) use self::{sort::Sort, thread::Thread};

use whimbrel_imap::{
    command::{Search as Arguments, SearchReturn},
    core::Tag,
    encode::Kind,
};

use self::{
    answer::Answer,
    find::{Find, Finding, Matches, Wanted},
};
use super::{
    context::Context,
    outcome::Outcome,
    task::{Step, Task, Wake},
};

/// SEARCH.
pub(super) struct Search {
    tag: Tag,
    uid: bool,
    returns: Option<SearchReturn>,
    state: State,
}

enum State {
    Find(Box<Find>),
    Answer(Matches, Answer),
}

impl Search {
    pub(super) fn new(cx: &mut Context, tag: Tag, arguments: Arguments) -> Result<Search, Outcome> {
        // "Once an IMAP client has enabled UTF-8 support with the "ENABLE UTF8=ACCEPT" command, it MUST NOT issue a "SEARCH" command that
        // contains a charset specification. If an IMAP server receives such a "SEARCH" command in that situation, it SHOULD reject the
        // command with a "BAD" response" (RFC 6855, 3).
        if cx.utf8_accept && arguments.charset.is_some() {
            return Err(Outcome::bad("After ENABLE UTF8=ACCEPT strings are UTF-8"));
        }
        let returns = arguments.returns;
        let charset = arguments.charset.as_deref();
        let mut find = Find::new(cx, arguments.key, charset).inspect_err(|outcome| {
            if outcome.kind == Kind::No {
                forget(cx, returns);
            }
        })?;
        if let Some(returns) = returns {
            find.want(wanted(returns, find.with_modseq()));
        }
        Ok(Search {
            tag,
            uid: arguments.uid,
            returns,
            state: State::Find(Box::new(find)),
        })
    }

    fn answer(&mut self, cx: &mut Context, found: Matches) -> Step {
        if let Some(returns) = self.returns.filter(|returns| returns.save)
            && let Err(outcome) = answer::save(cx, &found, returns)
        {
            return Step::Done(outcome);
        }
        self.state = State::Answer(found, Answer::new(cx, self.returns));
        self.respond(cx)
    }

    fn respond(&mut self, cx: &mut Context) -> Step {
        let State::Answer(found, answer) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        if !answer.write(cx, &self.tag, self.uid, found) {
            return Step::Again;
        }
        Step::Done(done(found))
    }
}

/// How much of what there is has to be found for the answer.
fn wanted(returns: SearchReturn, with_modseq: bool) -> Wanted {
    if returns.all || returns.count {
        return Wanted::All;
    }
    match (returns.min, returns.max, returns.partial) {
        (true, false, None) => Wanted::First(1),
        (false, true, None) => Wanted::Last(1),
        // The greatest MODSEQ is that of all.
        (_, _, Some(_)) if with_modseq => Wanted::All,
        (_, false, Some(range)) if !range.from_end => Wanted::First(range.results_max()),
        (false, _, Some(range)) if range.from_end => Wanted::Last(range.results_max()),
        _ => Wanted::All,
    }
}

/// The end of an answer.
fn done(found: &Matches) -> Outcome {
    Outcome::ok(if found.unread {
        "Completed, but some messages could not be read"
    } else {
        "Completed"
    })
}

/// "A SEARCH command with the SAVE result option that caused the server to return the NO tagged response sets the value of the search
/// result variable to the empty sequence" (RFC 9051, 6.4.4.1).
fn forget(cx: &mut Context, returns: Option<SearchReturn>) {
    if returns.is_some_and(|returns| returns.save) {
        cx.view_mut().saved = Vec::new();
    }
}

impl Task for Search {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (State::Find(find), wake) => match find.step(cx, wake) {
                Finding::Step(step) => step,
                Finding::Done(found) => self.answer(cx, found),
                Finding::Failed(outcome) => {
                    forget(cx, self.returns);
                    Step::Done(outcome)
                }
            },
            (State::Answer(..), Wake::Go) => self.respond(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn shed(&mut self) {
        if let State::Find(find) = &mut self.state {
            find.shed();
        }
    }
}
