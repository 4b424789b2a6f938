//! THREAD and UID THREAD (RFC 5256): ORDEREDSUBJECT and REFERENCES.
//!
//! As with SORT ([`super::sort`]) messages are found first, then what threading goes by is gathered and threads are made when it is this
//! session's turn, slice by slice, and the turn is over before anything is answered. Nothing recurs, nothing costs more than n log n, and
//! of the texts only hashes are kept.
//!
//! Reading order: [`links`] (step 1) on [`forest`], [`tree`] (steps 2 to 6), this file.

mod forest;
mod links;
mod tree;

#[cfg(test)]
mod tests;

use whimbrel_imap::{
    command::{Thread as Arguments, ThreadAlgorithm},
    encode::ThreadWriter,
};
use whimbrel_mime::{SortKeys, collation, subject};
use whimbrel_service::api::{Call, Reply, Row};

use self::{
    forest::NONE,
    links::Links,
    tree::{Builder, Messages, Tree},
};
use super::{
    super::{
        context::Context,
        outcome::Outcome,
        task::{Step, Task, Wake},
    },
    done,
    find::{Find, Finding, Matches},
    gather::{Gather, Gathering, Wants},
    keys::sent,
    sort::too_many,
};

/// THREAD.
pub(in super::super) struct Thread {
    uid: bool,
    algorithm: ThreadAlgorithm,
    found: Matches,
    /// Where the messages stand that were gathered.
    places: Vec<u32>,
    state: State,
}

enum State {
    Find(Box<Find>),
    /// Others have their turn.
    Wait,
    Gather(Box<Gather>, Box<Gathered>),
    Build(Box<Builder>),
    /// The turn is given back, then the answer is begun, or this is told.
    Leave(Tree, Option<Outcome>),
    Answer(Box<Answer>),
}

/// What threading goes by.
struct Gathered {
    messages: Messages,
    /// Only for REFERENCES.
    links: Option<Links>,
    subject: String,
    key: Vec<u8>,
}

impl Gathered {
    fn push(&mut self, row: &Row, sort_keys: &SortKeys<'_>) {
        let base = subject::base(sort_keys.subject.unwrap_or_default(), &mut self.subject);
        self.key.clear();
        collation::casemap(base.text, &mut self.key);
        self.messages.replies.push(base.is_reply);
        self.messages.subjects.push(if self.key.is_empty() {
            0
        } else {
            links::key(&self.key)
        });
        // One long subject is no reason to hold long buffers.
        self.key.shrink_to(1024);
        self.messages.sent.push(sent(row, sort_keys));
        if let Some(links) = &mut self.links {
            links.push(
                sort_keys.message_id.unwrap_or_default(),
                sort_keys.references.unwrap_or_default(),
                sort_keys.in_reply_to.unwrap_or_default(),
            );
        }
    }

    fn build(self) -> Builder {
        match self.links {
            None => Builder::ordered_subject(self.messages),
            Some(links) => {
                let (above, message) = links.into_nodes();
                Builder::references(self.messages, above, message)
            }
        }
    }
}

impl Thread {
    pub(in super::super) fn new(cx: &mut Context, arguments: Arguments) -> Result<Thread, Outcome> {
        let find = Find::new(cx, arguments.key, Some(&arguments.charset))?;
        Ok(Thread {
            uid: arguments.uid,
            algorithm: arguments.algorithm,
            found: Matches::default(),
            places: Vec::new(),
            state: State::Find(Box::new(find)),
        })
    }

    fn take_found(&mut self, cx: &mut Context, found: Matches) -> Step {
        self.found = found;
        if self.found.places.is_empty() {
            return self.answer(cx, Tree::default());
        }
        if self.found.places.count() as usize > cx.limits.sort_messages_max {
            return Step::Done(too_many());
        }
        self.state = State::Wait;
        Step::Call(Call::TurnBegin)
    }

    fn gather(&mut self, cx: &mut Context) -> Step {
        let count = self.found.places.count() as usize;
        let (wants, links) = match self.algorithm {
            ThreadAlgorithm::OrderedSubject => (Wants::Envelope, None),
            ThreadAlgorithm::References => (
                Wants::References,
                Some(Links::new(count, cx.limits.thread_references_max)),
            ),
        };
        let gathered = Gathered {
            messages: Messages::default(),
            links,
            subject: String::new(),
            key: Vec::new(),
        };
        let gather = Gather::new(wants, self.found.places.clone());
        self.state = State::Gather(Box::new(gather), Box::new(gathered));
        self.go_on(cx, Wake::Go)
    }

    fn go_on(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        let State::Gather(gather, gathered) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let places = &mut self.places;
        let gathering = gather.step(cx, wake, |place, row, sort_keys| {
            places.push(place);
            gathered.push(row, sort_keys);
        });
        match gathering {
            Gathering::Step(step) => return step,
            Gathering::Failed(outcome) => return self.leave(Tree::default(), Some(outcome)),
            Gathering::Done => {}
        }
        self.found.unread |= gather.unread;
        if let State::Gather(_, gathered) = std::mem::replace(&mut self.state, State::Wait) {
            self.state = State::Build(Box::new(gathered.build()));
        }
        Step::Yield
    }

    fn leave(&mut self, tree: Tree, outcome: Option<Outcome>) -> Step {
        self.state = State::Leave(tree, outcome);
        Step::Call(Call::TurnEnd)
    }

    fn left(&mut self, cx: &mut Context) -> Step {
        let State::Leave(tree, outcome) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        match outcome.take() {
            Some(outcome) => Step::Done(outcome),
            None => {
                let tree = std::mem::take(tree);
                self.answer(cx, tree)
            }
        }
    }

    fn answer(&mut self, cx: &mut Context, tree: Tree) -> Step {
        let next = if self.places.is_empty() {
            Next::End
        } else {
            Next::Open(tree.first)
        };
        self.state = State::Answer(Box::new(Answer {
            writer: ThreadWriter::begin(&mut cx.out),
            tree,
            open: Vec::new(),
            next,
        }));
        self.respond(cx)
    }

    fn respond(&mut self, cx: &mut Context) -> Step {
        let State::Answer(answer) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let (uid, places) = (self.uid, &self.places);
        let all = answer.write(cx, |cx, message| {
            let place = places[message as usize];
            if uid { cx.view().uid(place) } else { place + 1 }
        });
        if all {
            Step::Done(done(&self.found))
        } else {
            Step::Again
        }
    }
}

/// An answer that is being written.
struct Answer {
    writer: ThreadWriter,
    tree: Tree,
    /// The entries that the lists which are open begin with.
    open: Vec<u32>,
    next: Next,
}

enum Next {
    /// A list that begins with this entry.
    Open(u32),
    /// This member of the list.
    Member(u32),
    Close,
    End,
}

impl Answer {
    /// Writes what there is room for; says whether that was all. "Thread members consist of zero or more message numbers, delimited by
    /// spaces, indicating successive parent and child. This continues until the thread splits into multiple sub-threads" (RFC 5256, 4).
    fn write(&mut self, cx: &mut Context, number: impl Fn(&Context, u32) -> u32) -> bool {
        loop {
            if cx.is_full() {
                return false;
            }
            self.next = match self.next {
                Next::Open(entry) => {
                    self.writer.open(&mut cx.out);
                    self.open.push(entry);
                    Next::Member(entry)
                }
                Next::Member(entry) => {
                    if entry < self.tree.messages {
                        let number = number(cx, entry);
                        self.writer.number(&mut cx.out, number);
                    }
                    match self.tree.first_child[entry as usize] {
                        NONE => Next::Close,
                        child if self.tree.next[child as usize] == NONE => Next::Member(child),
                        child => Next::Open(child),
                    }
                }
                Next::Close => {
                    self.writer.close(&mut cx.out);
                    let entry = self.open.pop().unwrap_or(NONE);
                    match self.tree.next[entry as usize] {
                        NONE if self.open.is_empty() => Next::End,
                        NONE => Next::Close,
                        sibling => Next::Open(sibling),
                    }
                }
                Next::End => {
                    self.writer.end(&mut cx.out);
                    return true;
                }
            };
        }
    }
}

impl Task for Thread {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (State::Find(find), wake) => match find.step(cx, wake) {
                Finding::Step(step) => step,
                Finding::Done(found) => self.take_found(cx, found),
                Finding::Failed(outcome) => Step::Done(outcome),
            },
            (State::Wait, Wake::Reply(Reply::Done)) => self.gather(cx),
            (State::Wait, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Gather(..), wake) => self.go_on(cx, wake),
            (State::Build(builder), Wake::Go) => match builder.step() {
                None => Step::Yield,
                Some(tree) => self.leave(tree, None),
            },
            (State::Leave(..), Wake::Reply(_)) => self.left(cx),
            (State::Answer(_), Wake::Go) => self.respond(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn shed(&mut self) {
        if let State::Find(find) = &mut self.state {
            find.shed();
        }
    }

    fn abandon(&mut self) -> Option<Call> {
        let in_turn = matches!(
            self.state,
            State::Wait | State::Gather(..) | State::Build(_)
        );
        in_turn.then_some(Call::TurnEnd)
    }
}
