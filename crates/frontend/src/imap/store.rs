//! STORE and UID STORE (RFC 9051, 6.4.6; RFC 7162, 3.1.3).
//!
//! Messages go to the service in chunks; after each the changes are asked for, so that what has to be kept of the answers is one chunk.
//!
//! With `.SILENT` the client works out the new flags itself, from the flags it knows. It must be told all the same when another session has
//! changed a message meanwhile. So a silent STORE lets the service leave alone what is newer than what this session was told
//! (`unchanged_since`, which the service compares with the MODSEQ of the whole message), and does these messages again, aloud.

use whimbrel_imap::{command::Store as Arguments, core::StoreOperation, encode::Code};
use whimbrel_service::api::{FlagChange, Flags, MailboxCall, ROWS_PER_CALL_MAX, Reply, Row};

use super::{
    context::Context,
    expunge,
    outcome::{EndCode, Outcome},
    ranges::{Cursor, Ranges},
    sync::{self, Sync},
    task::{Step, Task, Wake},
    view::service_flags,
};

/// STORE.
pub(super) struct Store {
    arguments: Arguments,
    flags: Flags,
    places: Ranges,
    cursor: Cursor,
    /// UIDs of the present call.
    chunk: Vec<u32>,
    /// UIDs to be done again, aloud.
    again: Vec<u32>,
    /// The present call is one of those.
    aloud: bool,
    rows: std::vec::IntoIter<Row>,
    /// Places left alone because of UNCHANGEDSINCE: numbers of the answer.
    modified: Vec<u32>,
    /// Messages that were not there any more.
    missing: bool,
    state: State,
}

enum State {
    Chunk,
    Asked,
    Tell,
    Sync(Sync),
}

impl Store {
    pub(super) fn new(cx: &mut Context, arguments: Arguments) -> Result<Store, Outcome> {
        expunge::writable(cx)?;
        let places = cx
            .view()
            .places(&arguments.set, arguments.uid)
            .map_err(|_| Outcome::bad("No such message"))?;
        if arguments.unchanged_since.is_some() {
            cx.enable_condstore();
        }
        Ok(Store {
            flags: service_flags(&arguments.flags),
            arguments,
            places,
            cursor: Cursor::default(),
            chunk: Vec::new(),
            again: Vec::new(),
            aloud: false,
            rows: Vec::new().into_iter(),
            modified: Vec::new(),
            missing: false,
            state: State::Chunk,
        })
    }

    fn next_chunk(&mut self, cx: &mut Context) -> Step {
        self.aloud = !self.again.is_empty();
        if self.aloud {
            self.chunk = std::mem::take(&mut self.again);
        } else {
            self.cursor
                .fill(&self.places, ROWS_PER_CALL_MAX, &mut self.chunk);
            for place in &mut self.chunk {
                *place = cx.view().uid(*place);
            }
        }
        if self.chunk.is_empty() {
            return Step::Done(self.outcome());
        }
        let silent = self.arguments.silent && !self.aloud;
        let view = cx.view();
        let call = MailboxCall::Store {
            session: cx.peer.session,
            name: view.name.clone(),
            uids: self.chunk.clone(),
            change: match self.arguments.operation {
                StoreOperation::Replace => FlagChange::Replace,
                StoreOperation::Add => FlagChange::Add,
                StoreOperation::Remove => FlagChange::Remove,
            },
            flags: self.flags.clone(),
            unchanged_since: self
                .arguments
                .unchanged_since
                .or(silent.then_some(view.as_of)),
        };
        self.state = State::Asked;
        Step::Call(cx.call(call))
    }

    fn stored(&mut self, cx: &mut Context, rows: Vec<Row>, modified: Vec<u32>) -> Step {
        if rows.len() + modified.len() < self.chunk.len() {
            self.missing = true;
        }
        if self.arguments.unchanged_since.is_some() {
            let view = cx.view();
            let uid = self.arguments.uid;
            let numbers = modified.iter().filter_map(|&m| {
                if uid {
                    Some(m)
                } else {
                    view.place(m).map(|p| p + 1)
                }
            });
            self.modified.extend(numbers);
        } else {
            self.again = modified;
        }
        let keywords_max = cx.limits.keywords_max;
        let view = cx.view_mut();
        view.told
            .extend(rows.iter().map(|row| (row.uid, row.modseq)));
        if view.learn_keywords(&rows, keywords_max) {
            sync::write_flags(cx);
        }
        self.rows = rows.into_iter();
        self.state = State::Tell;
        self.respond(cx)
    }

    fn respond(&mut self, cx: &mut Context) -> Step {
        // "An untagged FETCH response MUST be sent, even if the .SILENT suffix is specified, and the response MUST include the MODSEQ
        // message data item" (RFC 7162, 3.1.3).
        let with_flags = !self.arguments.silent || self.aloud;
        if with_flags || cx.condstore {
            for row in self.rows.by_ref() {
                if let Some(place) = cx.view().place(row.uid) {
                    sync::write_row(cx, place, &row, self.arguments.uid, with_flags, false);
                }
                if cx.is_full() {
                    return Step::Again;
                }
            }
        }
        self.rows = Vec::new().into_iter();
        if !self.again.is_empty() {
            return self.next_chunk(cx);
        }
        if self.cursor.is_done(&self.places) {
            // The end of the command tells the changes.
            return Step::Done(self.outcome());
        }
        self.state = State::Sync(Sync::new(false, self.arguments.uid));
        Step::Again
    }

    fn outcome(&mut self) -> Outcome {
        let modified = std::mem::take(&mut self.modified);
        // "If the ".SILENT" suffix is used, and the STORE completed successfully for all the non-expunged messages, the server SHOULD return
        // a tagged OK" (RFC 2180, 4.2.1).
        let missing = self.missing && !self.arguments.uid && !self.arguments.silent;
        match (missing, modified.is_empty()) {
            (_, false) => Outcome::ok_code(
                EndCode::Modified(modified),
                "Some messages were left as they are",
            ),
            // RFC 2180, 4.2.2 and 4.2.3: the others have been stored.
            (true, true) => Outcome::no(
                Code::ExpungeIssued,
                "Some of the messages have been expunged",
            ),
            (false, true) => Outcome::ok("Stored"),
        }
    }

    fn sync(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let State::Sync(sync) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        match sync.within(cx, reply) {
            Ok(step) => step,
            Err(false) => {
                self.state = State::Chunk;
                Step::Again
            }
            Err(true) => Step::Done(self.outcome()),
        }
    }
}

impl Task for Store {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&self.state, wake) {
            (State::Chunk, Wake::Go) => self.next_chunk(cx),
            (State::Asked, Wake::Reply(Reply::Stored { rows, modified })) => {
                self.stored(cx, rows, modified)
            }
            (State::Asked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Tell, Wake::Go) => self.respond(cx),
            (State::Sync(_), Wake::Go) => self.sync(cx, None),
            (State::Sync(_), Wake::Reply(reply)) => self.sync(cx, Some(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}
