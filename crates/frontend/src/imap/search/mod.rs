//! SEARCH and UID SEARCH (RFC 9051, 6.4.4; RFC 4731; RFC 5032; RFC 5182; RFC 7162, 3.1.5).
//!
//! Messages are looked at in windows of rows; of those whose rows do not decide, content rows are fetched a few at a time; of those whose
//! summaries do not decide, bodies are read one chunk after another and no further than needed. What is held is one window, one chunk, and
//! the result as ranges.
//!
//! Reading order: [`program`], this file, [`message`], [`answer`].

mod answer;
mod message;
mod program;

use bytes::Bytes;
use whimbrel_imap::{
    command::{Search as Arguments, SearchReturn},
    core::Tag,
};
use whimbrel_service::api::{
    CONTENTS_PER_CALL_MAX, Call, MailboxCall, ROWS_PER_CALL_MAX, Reply, Row,
};

use self::{
    answer::Answer,
    message::{Message, Next},
    program::{Facts, Program},
};
use super::{
    blob::Opened,
    context::Context,
    ranges::{Cursor, Ranges},
    task::{Outcome, Step, Task, Wake},
};

/// SEARCH.
pub(super) struct Search {
    tag: Tag,
    uid: bool,
    returns: Option<SearchReturn>,
    program: Program,
    bounds: Ranges,
    cursor: Cursor,
    /// Places of the present window whose rows were asked for.
    asked: Vec<u32>,
    /// Messages of the window that rows do not decide.
    open: Vec<(u32, Row)>,
    /// The next of `open`.
    at: usize,
    contents: std::vec::IntoIter<Option<Bytes>>,
    message: Option<Box<Message>>,
    /// What was found in the window: place and MODSEQ.
    hits: Vec<(u32, u64)>,
    found: Found,
    /// Messages that could not be read.
    unread: bool,
    state: State,
}

/// What was found.
#[derive(Default)]
struct Found {
    places: Ranges,
    /// Greatest MODSEQ of all, of the first and of the last.
    modseq: u64,
    first_modseq: u64,
    last_modseq: u64,
}

enum State {
    Window,
    Rows,
    Contents,
    Body,
    Answer(Answer),
}

impl Search {
    pub(super) fn new(cx: &mut Context, tag: Tag, arguments: Arguments) -> Result<Search, Outcome> {
        let now = cx.now.wall_seconds() as i64;
        let program =
            match Program::new(cx.view(), arguments.key, arguments.charset.as_deref(), now) {
                Ok(program) => program,
                Err(outcome) => {
                    if outcome.kind == whimbrel_imap::encode::Kind::No {
                        forget(cx, arguments.returns);
                    }
                    return Err(outcome);
                }
            };
        if program.modseq {
            cx.enable_condstore();
        }
        let bounds = program.bounds(cx.view().count());
        Ok(Search {
            tag,
            uid: arguments.uid,
            returns: arguments.returns,
            program,
            bounds,
            cursor: Cursor::default(),
            asked: Vec::new(),
            open: Vec::new(),
            at: 0,
            contents: Vec::new().into_iter(),
            message: None,
            hits: Vec::new(),
            found: Found::default(),
            unread: false,
            state: State::Window,
        })
    }

    /// Whether the first message found is all that is asked for.
    fn only_first(&self) -> bool {
        self.returns
            .is_some_and(|r| r.min && !r.max && !r.all && !r.count)
    }

    fn next_window(&mut self, cx: &mut Context) -> Step {
        let mut window = Vec::new();
        loop {
            self.end_window();
            self.cursor
                .fill(&self.bounds, ROWS_PER_CALL_MAX, &mut window);
            if window.is_empty() || (self.only_first() && !self.found.places.is_empty()) {
                return self.answer(cx);
            }
            self.asked.clear();
            for &place in &window {
                match self.program.holds(&Facts {
                    place,
                    ..Facts::default()
                }) {
                    Some(false) => {}
                    // Its MODSEQ is part of the answer.
                    Some(true) if !self.program.modseq => self.hits.push((place, 0)),
                    _ => self.asked.push(place),
                }
            }
            if !self.asked.is_empty() {
                let view = cx.view();
                let uids = self.asked.iter().map(|&place| view.uid(place)).collect();
                self.state = State::Rows;
                return Step::Call(cx.call(MailboxCall::Rows {
                    name: view.name.clone(),
                    uids,
                }));
            }
        }
    }

    fn end_window(&mut self) {
        self.hits.sort_unstable();
        if self.found.places.is_empty()
            && let Some(first) = self.hits.first()
        {
            self.found.first_modseq = first.1;
        }
        for (place, modseq) in self.hits.drain(..) {
            self.found.places.push(place, place + 1);
            self.found.last_modseq = modseq;
            self.found.modseq = self.found.modseq.max(modseq);
        }
    }

    fn take_rows(&mut self, cx: &mut Context, rows: Vec<Row>) -> Step {
        let view = cx.view();
        let mut places = self.asked.iter().copied();
        self.open.clear();
        self.at = 0;
        for row in rows {
            let Some(place) = places.find(|&place| view.uid(place) == row.uid) else {
                return Step::Done(Outcome::bug());
            };
            match self.program.holds(&Facts {
                place,
                row: Some(&row),
                ..Facts::default()
            }) {
                Some(true) => self.hits.push((place, row.modseq)),
                Some(false) => {}
                None => self.open.push((place, row)),
            }
        }
        self.contents = Vec::new().into_iter();
        self.next_message(cx, None)
    }

    /// Goes on with the messages that need reading. `bytes` is what was read of the present one.
    fn next_message(&mut self, cx: &mut Context, mut bytes: Option<Bytes>) -> Step {
        loop {
            if let Some(message) = &mut self.message {
                match message.go_on(&self.program, bytes.take()) {
                    Next::Wants(call) => {
                        self.state = State::Body;
                        return Step::Call(call);
                    }
                    Next::Result(found) => {
                        if found {
                            let (place, row) = &self.open[self.at - 1];
                            self.hits.push((*place, row.modseq));
                        }
                    }
                    Next::Failed => self.unread = true,
                }
                self.message = None;
            }
            let Some((place, row)) = self.open.get(self.at) else {
                self.state = State::Window;
                return Step::Again;
            };
            match self.contents.next() {
                None => {
                    let end = self.open.len().min(self.at + CONTENTS_PER_CALL_MAX);
                    let origins = self.open[self.at..end]
                        .iter()
                        .map(|(_, row)| row.origin)
                        .collect();
                    let Some(account) = cx.account else {
                        return Step::Done(Outcome::bug());
                    };
                    self.state = State::Contents;
                    return Step::Call(Call::Contents { account, origins });
                }
                // It was expunged after its row was read.
                Some(None) => {}
                Some(Some(content)) => match Opened::new(&content) {
                    Some(opened) => {
                        self.message = Some(Box::new(Message::new(
                            &self.program,
                            *place,
                            row.clone(),
                            opened,
                        )));
                    }
                    None => self.unread = true,
                },
            }
            self.at += 1;
        }
    }

    fn answer(&mut self, cx: &mut Context) -> Step {
        if self.returns.is_some_and(|returns| returns.save) {
            answer::save(cx, &self.found, self.returns.unwrap_or_default());
        }
        let (asked, open) = (Vec::new(), Vec::new());
        (self.asked, self.open) = (asked, open);
        self.state = State::Answer(Answer::new(cx, self.returns));
        self.tell(cx)
    }

    fn tell(&mut self, cx: &mut Context) -> Step {
        let State::Answer(answer) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let modseq = self.program.modseq;
        if !answer.write(cx, &self.tag, self.uid, modseq, &self.found) {
            return Step::Again;
        }
        Step::Done(Outcome::ok(if self.unread {
            "Done, but some messages could not be read"
        } else {
            "That is all"
        }))
    }

    fn fail(&self, cx: &mut Context, reply: Reply) -> Step {
        forget(cx, self.returns);
        Step::Done(Outcome::of_reply(reply))
    }
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
        match (&self.state, wake) {
            (State::Window, Wake::Go) => self.next_window(cx),
            (State::Rows, Wake::Reply(Reply::Rows(rows))) => self.take_rows(cx, rows),
            (State::Contents, Wake::Reply(Reply::Contents(contents))) if !contents.is_empty() => {
                self.contents = contents.into_iter();
                self.next_message(cx, None)
            }
            (State::Body, Wake::Reply(Reply::Bytes(bytes))) => self.next_message(cx, Some(bytes)),
            (State::Body, Wake::Reply(Reply::Failed(_))) => {
                self.message = None;
                self.unread = true;
                self.next_message(cx, None)
            }
            (State::Rows | State::Contents | State::Body, Wake::Reply(reply)) => {
                self.fail(cx, reply)
            }
            (State::Answer(_), Wake::Go) => self.tell(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
