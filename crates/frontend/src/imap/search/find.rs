//! Finds the messages that a search program wants: what SEARCH, SORT and THREAD begin with.
//!
//! Messages are looked at in windows of rows; of those whose rows do not decide, content rows are fetched a few at a time; of those whose
//! summaries do not decide, bodies are read one chunk after another and no further than needed. What is held is one window, one chunk, and
//! the result as ranges.
//!
//! Where flags decide, the account's owner is asked which messages of a range of UIDs have them, instead of looking at all rows.

use bytes::Bytes;
use whimbrel_imap::command::SearchKey;
use whimbrel_mime::search::{FieldSearcher, Slice};
use whimbrel_service::api::{
    CONTENTS_PER_CALL_MAX, Call, MailboxCall, ROWS_PER_CALL_MAX, Reply, Row,
};

use super::{
    super::{
        blob::{self, AHEAD_BYTES, Opened, ReadAhead},
        context::Context,
        outcome::Outcome,
        ranges::{Back, Cursor, Ranges},
        task::{Step, Wake},
    },
    message::{Message, Next},
    program::{Facts, Program, Summary, SummaryKeys},
};

/// Work after which others have their chance: about a millisecond at most.
const SLICE_WORK: usize = 1024 * 1024;

/// A search that is going on.
pub(super) struct Find {
    program: Program,
    wanted: Wanted,
    bounds: Ranges,
    cursor: Cursor,
    /// With [`Wanted::Last`]: where the search has come to, and what it has found, the last one first.
    back: Back,
    behind: Vec<(u32, u64)>,
    /// How many were found.
    count: u32,
    /// Places of the present window, and the next of them that is tried.
    window: Vec<u32>,
    window_at: usize,
    /// Places of the present window whose rows are wanted.
    asked: Vec<u32>,
    /// The next of `asked` that may have a row in `rows`.
    asked_at: usize,
    /// Rows that were not tried yet.
    rows: std::vec::IntoIter<Row>,
    /// UIDs of the present window of which the owner has yet to say which messages have the flags that decide.
    unasked: Option<(u32, u32)>,
    /// Messages of the window that rows do not decide.
    open: Vec<(u32, Row)>,
    /// The next of `open`.
    at: usize,
    contents: std::vec::IntoIter<Option<Bytes>>,
    /// The content row of the message before `at`, while its summary is looked through.
    content: Option<(Bytes, Summary)>,
    /// What looks through the next one.
    searcher: Option<Box<FieldSearcher>>,
    message: Option<Box<Message>>,
    /// Begins of bodies of the next messages.
    ahead: ReadAhead,
    /// What was found in the window: place and MODSEQ.
    hits: Vec<(u32, u64)>,
    found: Matches,
    state: State,
}

/// How much has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// So many from the begin, or more.
    First(u32),
    /// So many from the end, or more.
    Last(u32),
}

/// What was found.
#[derive(Default)]
pub(super) struct Matches {
    pub(super) places: Ranges,
    /// Greatest MODSEQ of all, of the first and of the last; meaningful if `with_modseq`.
    pub(super) modseq: u64,
    pub(super) first_modseq: u64,
    pub(super) last_modseq: u64,
    /// A MODSEQ key was used.
    pub(super) with_modseq: bool,
    /// Messages that could not be read.
    pub(super) unread: bool,
}

/// How the search goes on.
pub(super) enum Finding {
    Step(Step),
    Done(Matches),
    /// The service failed.
    Failed(Outcome),
}

/// What a content row has told.
enum Looked {
    Result(bool),
    /// The rest of the message has to be read.
    Further(Box<Message>),
}

enum State {
    /// Asks which of the MODSEQs that the client names it may have been told here.
    Believed,
    Window,
    Rows,
    /// Rows are tried.
    Tried,
    Contents,
    Body,
    /// What was read of a message is looked through.
    Read,
}

impl Find {
    pub(super) fn new(
        cx: &mut Context,
        key: SearchKey,
        charset: Option<&str>,
    ) -> Result<Find, Outcome> {
        let now = cx.now.wall_seconds() as i64;
        let program = Program::new(cx.view(), key, charset, now)?;
        let state = match program.with_modseq() {
            true => State::Believed,
            false => State::Window,
        };
        if program.with_modseq() {
            cx.enable_condstore();
        }
        let bounds = program.bounds(cx.view().count());
        Ok(Find {
            found: Matches {
                with_modseq: program.with_modseq(),
                ..Matches::default()
            },
            program,
            wanted: Wanted::All,
            bounds,
            cursor: Cursor::default(),
            back: Back::default(),
            behind: Vec::new(),
            count: 0,
            window: Vec::new(),
            window_at: 0,
            asked: Vec::new(),
            asked_at: 0,
            rows: Vec::new().into_iter(),
            unasked: None,
            open: Vec::new(),
            at: 0,
            contents: Vec::new().into_iter(),
            content: None,
            searcher: None,
            message: None,
            ahead: ReadAhead::default(),
            hits: Vec::new(),
            state,
        })
    }

    /// Whether a MODSEQ key was used.
    pub(super) fn with_modseq(&self) -> bool {
        self.program.with_modseq()
    }

    /// Stops when this is found. Before the first step.
    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    pub(super) fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Finding {
        match (&self.state, wake) {
            (State::Window, Wake::Go) => self.next_window(cx),
            (State::Tried, Wake::Go) => self.try_rows(cx),
            (State::Read, Wake::Go) => self.next_message(cx, None),
            (State::Believed, Wake::Go) => {
                let modseqs = self.program.modseqs.clone();
                Finding::Step(Step::Call(cx.call(MailboxCall::Believed { modseqs })))
            }
            (State::Believed, Wake::Reply(Reply::Believed(modseqs))) => {
                self.program.believe(&modseqs);
                self.next_window(cx)
            }
            (State::Rows, Wake::Reply(Reply::Rows(rows))) => self.take_rows(cx, rows),
            (State::Rows, Wake::Reply(Reply::Flagged { mut rows, up_to })) => {
                let rest = |(_, to)| (up_to < to).then_some((up_to + 1, to));
                self.unasked = self.unasked.and_then(rest);
                self.asked.clear();
                // What has come since this session was told is left out.
                rows.retain(|row| {
                    let place = cx.view().place(row.uid);
                    self.asked.extend(place);
                    place.is_some()
                });
                self.take_rows(cx, rows)
            }
            (State::Contents, Wake::Reply(Reply::Contents(contents))) if !contents.is_empty() => {
                self.contents = contents.into_iter();
                self.next_message(cx, None)
            }
            (State::Body, Wake::Reply(reply)) => match self.ahead.answer(reply) {
                Reply::Bytes(bytes) => self.next_message(cx, Some(bytes)),
                Reply::Failed(_) => {
                    self.message = None;
                    self.found.unread = true;
                    self.next_message(cx, None)
                }
                reply => Finding::Failed(Outcome::of_reply(reply)),
            },
            (State::Believed | State::Rows | State::Contents, Wake::Reply(reply)) => {
                Finding::Failed(Outcome::of_reply(reply))
            }
            _ => Finding::Failed(Outcome::bug()),
        }
    }

    /// Drops what was read and not yet looked at.
    pub(super) fn shed(&mut self) {
        if matches!(self.state, State::Body | State::Read) {
            self.contents = Vec::new().into_iter();
            self.ahead.shed();
        }
    }

    fn next_window(&mut self, cx: &mut Context) -> Finding {
        self.state = State::Window;
        let mut slice = Slice::new(SLICE_WORK);
        loop {
            while let Some(&place) = self.window.get(self.window_at) {
                if slice.is_used_up() {
                    return Finding::Step(Step::Yield);
                }
                slice.take(self.program.work());
                self.window_at += 1;
                match self.program.holds(&Facts {
                    place,
                    ..Facts::default()
                }) {
                    Some(false) => {}
                    // Its MODSEQ is part of the answer.
                    Some(true) if !self.program.with_modseq() => self.hits.push((place, 0)),
                    _ => self.asked.push(place),
                }
            }
            if !self.asked.is_empty() {
                let view = cx.view();
                let uids = self.asked.iter().map(|&place| view.uid(place)).collect();
                let name = view.name.clone();
                self.state = State::Rows;
                let call = MailboxCall::Rows { name, uids };
                return Finding::Step(Step::Call(cx.call(call)));
            }
            if self.unasked.is_none() || !matches!(self.wanted, Wanted::Last(_)) {
                self.end_window();
            }
            let enough = match self.wanted {
                Wanted::All => false,
                Wanted::First(count) | Wanted::Last(count) => self.count >= count,
            };
            if enough {
                self.unasked = None;
            } else if let Some((from, to)) = self.unasked {
                let call = MailboxCall::Flagged {
                    name: cx.view().name.clone(),
                    from,
                    to,
                    set: self.program.set.clone(),
                    unset: self.program.unset.clone(),
                };
                self.state = State::Rows;
                return Finding::Step(Step::Call(cx.call(call)));
            }
            let window = &mut self.window;
            self.window_at = 0;
            match self.wanted {
                _ if enough => window.clear(),
                Wanted::Last(_) => self.back.fill(&self.bounds, ROWS_PER_CALL_MAX, window),
                _ => self.cursor.fill(&self.bounds, ROWS_PER_CALL_MAX, window),
            }
            let (Some(&first), Some(&last)) = (window.first(), window.last()) else {
                self.keep_behind();
                return Finding::Done(std::mem::take(&mut self.found));
            };
            // What lies far apart is better looked at one by one.
            let is_dense = (last - first) as usize <= 2 * window.len();
            if is_dense && !(self.program.set.is_empty() && self.program.unset.is_empty()) {
                // The owner says how much is told at once.
                let rest = match self.wanted {
                    Wanted::Last(_) => None,
                    _ => self.cursor.run_from(&self.bounds, last + 1),
                };
                let last = rest.map_or(last, |(_, end)| end - 1);
                let view = cx.view();
                self.unasked = Some((view.uid(first), view.uid(last)));
                self.window.clear();
            }
        }
    }

    fn end_window(&mut self) {
        self.hits.sort_unstable();
        self.count += self.hits.len() as u32;
        if matches!(self.wanted, Wanted::Last(_)) {
            self.behind.extend(self.hits.drain(..).rev());
        } else {
            self.keep_hits();
        }
    }

    /// What was found from the end, in the order of the mailbox.
    fn keep_behind(&mut self) {
        self.hits = std::mem::take(&mut self.behind);
        self.hits.reverse();
        self.keep_hits();
    }

    fn keep_hits(&mut self) {
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

    fn take_rows(&mut self, cx: &mut Context, rows: Vec<Row>) -> Finding {
        self.rows = rows.into_iter();
        self.asked_at = 0;
        self.open.clear();
        self.at = 0;
        self.try_rows(cx)
    }

    fn try_rows(&mut self, cx: &mut Context) -> Finding {
        self.state = State::Tried;
        let mut slice = Slice::new(SLICE_WORK);
        let view = cx.view();
        while let Some(row) = self.rows.as_slice().first() {
            if slice.is_used_up() {
                return Finding::Step(Step::Yield);
            }
            slice.take(self.program.work());
            let mut places = self.asked[self.asked_at..].iter();
            let Some(passed) = places.position(|&place| view.uid(place) == row.uid) else {
                return Finding::Failed(Outcome::bug());
            };
            self.asked_at += passed + 1;
            let place = self.asked[self.asked_at - 1];
            let result = self.program.holds(&Facts {
                place,
                row: Some(row),
                ..Facts::default()
            });
            let modseq = row.modseq;
            let row = self.rows.next();
            match result {
                Some(true) => self.hits.push((place, modseq)),
                Some(false) => {}
                None => self.open.extend(row.map(|row| (place, row))),
            }
        }
        self.contents = Vec::new().into_iter();
        self.next_message(cx, None)
    }

    /// Goes on with the messages that need reading. `bytes` is what was read of the present one.
    fn next_message(&mut self, cx: &mut Context, mut bytes: Option<Bytes>) -> Finding {
        let mut slice = Slice::new(SLICE_WORK);
        self.state = State::Read;
        loop {
            if let Some((content, mut summary)) = self.content.take() {
                if !summary.settle(&mut slice) {
                    self.content = Some((content, summary));
                    return Finding::Step(Step::Yield);
                }
                let (known, searcher) = summary.finish();
                self.searcher = searcher;
                let (place, row) = &self.open[self.at - 1];
                match self.look(&content, known, *place, row) {
                    Some(Looked::Result(true)) => self.hits.push((*place, row.modseq)),
                    Some(Looked::Result(false)) => {}
                    Some(Looked::Further(message)) => self.message = Some(message),
                    None => self.found.unread = true,
                }
            }
            if let Some(message) = &mut self.message {
                match message.go_on(&self.program, bytes.take(), &mut slice) {
                    Next::Later => return Finding::Step(Step::Yield),
                    Next::Wants(call) => {
                        bytes = self.ahead.take(&call);
                        if bytes.is_some() {
                            continue;
                        }
                        // Who needed a body of one message is likely to need that of the next.
                        let next = self.open[self.at..].iter();
                        let next =
                            next.map(|(_, row)| (row.blob, row.size.min(AHEAD_BYTES as u32)));
                        let call = self.ahead.ask(call, next);
                        self.state = State::Body;
                        return Finding::Step(Step::Call(call));
                    }
                    Next::Result(found) => {
                        if found {
                            let (place, row) = &self.open[self.at - 1];
                            self.hits.push((*place, row.modseq));
                        }
                    }
                    Next::Failed => self.found.unread = true,
                }
                self.message = None;
            }
            if self.at == self.open.len() {
                self.ahead.clear();
                self.asked.clear();
                self.state = State::Window;
                return Finding::Step(Step::Again);
            }
            if slice.is_used_up() {
                return Finding::Step(Step::Yield);
            }
            match self.contents.next() {
                None => {
                    let end = self.open.len().min(self.at + CONTENTS_PER_CALL_MAX);
                    let origins = self.open[self.at..end]
                        .iter()
                        .map(|(_, row)| row.origin)
                        .collect();
                    let Some(account) = cx.account else {
                        return Finding::Failed(Outcome::bug());
                    };
                    self.state = State::Contents;
                    return Finding::Step(Step::Call(Call::Contents { account, origins }));
                }
                // It was expunged after its row was read.
                Some(None) => {}
                Some(Some(content)) => {
                    let searcher = self.searcher.take();
                    let summary = blob::view(&content)
                        .and_then(|view| self.program.summary(&view, searcher, &mut slice));
                    match summary {
                        Some(summary) => self.content = Some((content, summary)),
                        None => self.found.unread = true,
                    }
                }
            }
            self.at += 1;
        }
    }

    /// Tries the program on what a content row says, and its summary. `None`: it cannot be read.
    fn look(&self, content: &Bytes, known: SummaryKeys, place: u32, row: &Row) -> Option<Looked> {
        let result = self.program.holds(&Facts {
            place,
            row: Some(row),
            sent: known.sent,
            fields: &known.fields,
            ..Facts::default()
        });
        if let Some(result) = result {
            return Some(Looked::Result(result));
        }
        let opened = Opened::new(content, self.program.wanted())?;
        let message = Message::new(place, row.clone(), opened, known);
        Some(Looked::Further(Box::new(message)))
    }
}
