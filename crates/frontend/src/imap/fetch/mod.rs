//! FETCH and UID FETCH (RFC 9051, 6.4.5; RFC 7162, 3.1.4 and 3.2.6).
//!
//! With CHANGEDSINCE the service names what has changed, so that the rest is not looked at. It believes only a MODSEQ that this replica gave
//! out; with any other all messages are answered, and all that the client names and does not see has vanished.
//!
//! Rows come in chunks, content rows (only when an item needs them) in smaller ones, bodies piece by piece as the client takes them. So the
//! answer to `1:* BODY[]` is made while it is read, and needs one chunk of memory.
//!
//! Reading order: this file (chunks of messages), [`message`] (the items of one message), [`body`] (its octets), [`binary`] (what BINARY makes of
//! them), [`preview`].

mod binary;
mod body;
mod message;
mod next;
mod preview;

use bytes::Bytes;
use whimbrel_imap::{
    command::{Fetch as Arguments, FetchItem, Qresync},
    core::{MessageSet, SequenceSet},
    encode::Code,
};
use whimbrel_mime::Wanted;
use whimbrel_service::api::{
    CONTENTS_PER_CALL_MAX, Call, Flag, FlagChange, Flags, MailboxCall, ROWS_PER_CALL_MAX, Reply,
    Row, Since,
};

pub(super) use self::message::{Located, locate};
use self::message::{Made, Message, Written};
use super::{
    blob::{self, AHEAD_BYTES, Opened, ReadAhead},
    context::Context,
    gone::Earlier,
    outcome::Outcome,
    ranges::{Cursor, Ranges},
    sync::{self, Sync},
    task::{Step, Task, Wake},
};

/// FETCH.
pub(super) struct Fetch {
    uid: bool,
    items: Vec<FetchItem>,
    /// VANISHED of QRESYNC: which UIDs the client knows.
    vanished: Option<MessageSet>,
    /// The greatest UID up to which the client knows what was expunged, as its sequence numbers show.
    matched: u32,
    /// All is told, not what is named alone, if the client's MODSEQ does not say what it has seen: what it does not name may be
    /// known to it under a UID of which nothing is known here (docs/decisions/0020).
    resyncs: bool,
    /// The MODSEQ does not, whoever gave it.
    elsewhere: bool,
    /// An item needs the content row.
    needs_content: bool,
    /// Some items are made of the summary as it lies there.
    makes: bool,
    /// Others need the summary decoded,
    opens: bool,
    /// and this of it.
    wanted: Wanted,
    /// An item sets `\Seen`, and the mailbox can be changed.
    sets_seen: bool,
    places: Ranges,
    cursor: Cursor,
    /// Places, then UIDs, of the present chunk.
    chunk: Vec<u32>,
    rows: Vec<FetchRow>,
    /// The next of `rows`.
    at: usize,
    /// The rows of `chunk` were dropped before they were answered, and are to be read again.
    again: bool,
    /// Content rows of `rows[at..]`, as far as they were asked for.
    contents: std::vec::IntoIter<Option<Bytes>>,
    message: Option<Box<Message>>,
    /// Of its summary.
    made: Made,
    /// Bodies of the next messages.
    ahead: ReadAhead,
    /// Messages that were not there any more.
    missing: bool,
    /// Content rows that cannot be read.
    damaged: bool,
    /// Some bodies could not be read: they may be another time.
    unread: bool,
    /// Parts that BINARY cannot decode.
    unknown_encoding: bool,
    state: State,
}

/// Messages that become seen at once, before they are sent.
const SEEN_PER_CHUNK: usize = 64;

/// A message to be answered.
struct FetchRow {
    place: u32,
    row: Row,
    /// This command has changed its flags: they are told.
    changed: bool,
}

/// A content row that is damaged, or of a later version.
struct Unreadable;

enum State {
    /// What has changed since this MODSEQ?
    Since(u64),
    SinceAsked,
    Vanished(Earlier),
    Chunk,
    Rows,
    Seen,
    Contents,
    Messages,
    Sync(Sync),
}

impl Fetch {
    pub(super) fn new(cx: &mut Context, arguments: Arguments) -> Result<Fetch, Outcome> {
        if arguments.vanished && !cx.qresync {
            return Err(Outcome::bad("QRESYNC is not enabled"));
        }
        let mut places = cx
            .view()
            .places(&arguments.set, arguments.uid)
            .map_err(|_| Outcome::bad("No such message"))?;
        if let Some(partial) = arguments.partial {
            // Before CHANGEDSINCE: "the server [...] first select[s] the last 30 messages and then only return[s] flag changes" (RFC 9394, 3.4).
            let (from, to) = partial.places(places.count());
            places = places.slice(from, to);
        }
        if arguments.changed_since.is_some() || arguments.items.contains(&FetchItem::ModSeq) {
            cx.enable_condstore();
        }
        Ok(Fetch {
            uid: arguments.uid,
            needs_content: arguments.items.iter().any(message::needs_content),
            makes: arguments.items.iter().any(message::is_made),
            opens: arguments
                .items
                .iter()
                .any(|item| message::needs_content(item) && !message::is_made(item)),
            wanted: message::wanted(&arguments.items),
            sets_seen: !cx.view().read_only && arguments.items.iter().any(FetchItem::sets_seen),
            items: arguments.items,
            vanished: arguments.vanished.then_some(arguments.set),
            matched: 0,
            resyncs: false,
            elsewhere: false,
            places,
            cursor: Cursor::default(),
            chunk: Vec::new(),
            rows: Vec::new(),
            at: 0,
            again: false,
            contents: Vec::new().into_iter(),
            message: None,
            made: Made::default(),
            ahead: ReadAhead::default(),
            missing: false,
            damaged: false,
            unread: false,
            unknown_encoding: false,
            state: arguments.changed_since.map_or(State::Chunk, State::Since),
        })
    }

    /// What SELECT with QRESYNC tells: "semantically equivalent to the client issuing: tag1 UID FETCH "known-uids" (FLAGS) (CHANGEDSINCE
    /// "mod-sequence-value" VANISHED)" (RFC 7162, 3.2.5.1).
    pub(super) fn resync(
        cx: &mut Context,
        known: Qresync,
        elsewhere: bool,
    ) -> Result<Fetch, Outcome> {
        let view = cx.view();
        let all = || SequenceSet::from_ranges([(1, view.uid_next.saturating_sub(1).max(1))]);
        let matched = known
            .sequence_match
            .as_ref()
            .map_or(0, |(numbers, uids)| view.matched(numbers, uids));
        let arguments = Arguments {
            uid: true,
            set: MessageSet::Numbers(known.known_uids.unwrap_or_else(all)),
            items: vec![FetchItem::Uid, FetchItem::Flags, FetchItem::ModSeq],
            changed_since: Some(known.mod_seq),
            vanished: true,
            partial: None,
        };
        let fetch = Fetch::new(cx, arguments)?;
        Ok(Fetch {
            matched,
            resyncs: true,
            elsewhere,
            ..fetch
        })
    }

    fn take_since(&mut self, cx: &mut Context, since: Since) -> Step {
        let since = match self.elsewhere {
            true => Since::default(),
            false => since,
        };
        let view = cx.view();
        if since.believed {
            self.places = self.places.and(&view.places_of_list(&since.changed));
        } else if self.resyncs {
            self.places = Ranges::default();
            self.places.push(0, view.count());
        }
        let Some(set) = self.vanished.take() else {
            self.state = State::Chunk;
            return self.next_chunk(cx);
        };
        let known = view.known(&set);
        self.state = State::Vanished(match since.vanished {
            Some(vanished) => Earlier::of_history(view, &known, vanished),
            // Numbers of messages that another replica may have told prove nothing.
            None if !since.believed => Earlier::of_known(known, 0),
            None => Earlier::of_known(known, self.matched),
        });
        self.tell_vanished(cx)
    }

    /// "Any VANISHED (EARLIER) responses MUST be returned before any FETCH responses" (RFC 7162, 3.2.6).
    fn tell_vanished(&mut self, cx: &mut Context) -> Step {
        let State::Vanished(earlier) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        if !earlier.write(cx) {
            return Step::Again;
        }
        self.state = State::Chunk;
        self.next_chunk(cx)
    }

    /// Asks for the next rows.
    fn next_chunk(&mut self, cx: &mut Context) -> Step {
        // Each chunk whose messages become seen is a write, and they should not be seen long before they are sent.
        let most = if self.sets_seen {
            SEEN_PER_CHUNK
        } else {
            ROWS_PER_CALL_MAX
        };
        self.cursor.fill(&self.places, most, &mut self.chunk);
        if self.chunk.is_empty() {
            return Step::Done(self.outcome());
        }
        self.ask_rows(cx)
    }

    fn ask_rows(&mut self, cx: &mut Context) -> Step {
        let view = cx.view();
        let uids = self.chunk.iter().map(|&place| view.uid(place)).collect();
        self.state = State::Rows;
        Step::Call(cx.call(MailboxCall::Rows {
            name: view.name.clone(),
            uids,
        }))
    }

    fn outcome(&self) -> Outcome {
        if self.damaged {
            Outcome::no(Code::Corruption, "Some of the messages cannot be read")
        } else if self.unread {
            Outcome::no(
                Code::Unavailable,
                "Some of the messages cannot be read now, try again later",
            )
        } else if self.unknown_encoding {
            Outcome::no(
                Code::UnknownCte,
                "The transfer encoding of some of the parts is not known",
            )
        } else if self.missing && !self.uid {
            Outcome::no(
                Code::ExpungeIssued,
                "Some of the messages have been expunged",
            )
        } else {
            Outcome::ok("FETCH completed")
        }
    }

    fn take_rows(&mut self, cx: &mut Context, rows: Vec<Row>) -> Step {
        self.missing |= rows.len() < self.chunk.len();
        let keywords_max = cx.limits.keywords_max;
        let wants_flags = self.sets_seen || self.items.contains(&FetchItem::Flags);
        if wants_flags && cx.view_mut().learn_keywords(&rows, keywords_max) {
            sync::write_flags(cx);
        }
        let view = cx.view();
        let mut places = self.chunk.iter().copied();
        self.rows.clear();
        self.at = 0;
        for row in rows {
            let Some(place) = places.find(|&place| view.uid(place) == row.uid) else {
                return Step::Done(Outcome::bug());
            };
            self.rows.push(FetchRow {
                place,
                row,
                changed: false,
            });
        }
        self.state = State::Messages;
        let unseen = |row: &&FetchRow| !row.row.flags.contains(&Flag::Seen);
        let uids: Vec<u32> = if self.sets_seen {
            self.rows
                .iter()
                .filter(unseen)
                .map(|row| row.row.uid)
                .collect()
        } else {
            Vec::new()
        };
        if uids.is_empty() {
            return self.go_on(cx);
        }
        self.state = State::Seen;
        let call = MailboxCall::Store {
            session: cx.peer.session,
            name: view.name.clone(),
            uids,
            change: FlagChange::Add,
            flags: Flags::from_iter([Flag::Seen]),
            unchanged_since: None,
        };
        Step::Call(cx.call_beside(call))
    }

    /// `\Seen` was set; a failure of that is no reason to withhold the message.
    fn take_seen(&mut self, cx: &mut Context, reply: Reply) -> Step {
        if let Reply::Stored { rows, .. } = reply {
            let mut stored = rows.into_iter().peekable();
            for fetched in &mut self.rows {
                while stored.peek().is_some_and(|row| row.uid < fetched.row.uid) {
                    stored.next();
                }
                if let Some(row) = stored.next_if(|row| row.uid == fetched.row.uid) {
                    *fetched = FetchRow {
                        place: fetched.place,
                        row,
                        changed: true,
                    };
                }
            }
        }
        self.state = State::Messages;
        self.go_on(cx)
    }

    fn ask_contents(&mut self, cx: &Context) -> Step {
        let end = self.rows.len().min(self.at + CONTENTS_PER_CALL_MAX);
        let origins = self.rows[self.at..end]
            .iter()
            .map(|row| row.row.origin)
            .collect();
        let Some(account) = cx.account else {
            return Step::Done(Outcome::bug());
        };
        self.state = State::Contents;
        Step::Call(Call::Contents { account, origins })
    }

    /// Reads a content row, as far as the items need it.
    fn open(&mut self, row: &Bytes, utf8: bool) -> Result<Option<Opened>, Unreadable> {
        if self.makes {
            let view = blob::view(row).ok_or(Unreadable)?;
            let made = self.made.make(&self.items, &view, utf8);
            made.ok_or(Unreadable)?;
        }
        if !self.opens {
            return Ok(None);
        }
        Opened::new(row, self.wanted).map(Some).ok_or(Unreadable)
    }

    /// Writes messages until something is wanted.
    fn go_on(&mut self, cx: &mut Context) -> Step {
        loop {
            if self.message.is_some()
                && let Some(step) = self.write(cx, None)
            {
                return step;
            }
            if cx.is_full() {
                return Step::Again;
            }
            if std::mem::take(&mut self.again) {
                return self.ask_rows(cx);
            }
            if self.at >= self.rows.len() {
                return self.end_chunk(cx);
            }
            let opened = if self.needs_content {
                match self.contents.next() {
                    None => return self.ask_contents(cx),
                    // It was expunged after its row was read.
                    Some(None) => {
                        self.missing = true;
                        self.at += 1;
                        continue;
                    }
                    Some(Some(bytes)) => match self.open(&bytes, cx.utf8) {
                        Ok(opened) => opened,
                        Err(Unreadable) => {
                            self.damaged = true;
                            self.at += 1;
                            continue;
                        }
                    },
                }
            } else {
                None
            };
            let row = &self.rows[self.at];
            let is_unknown = |item: &FetchItem| binary::is_unknown(opened.as_ref(), item);
            let unknown = self.items.iter().filter(|item| is_unknown(item)).count();
            self.unknown_encoding |= unknown > 0;
            if unknown == self.items.len() && !row.changed {
                // There is no FETCH response without an item.
                self.at += 1;
                continue;
            }
            let uid_is_due = row.changed && cx.condstore && !self.items.contains(&FetchItem::Uid);
            if row.changed {
                // Those that cannot be given are told of by the next telling of changes.
                cx.view_mut().told.push((row.row.uid, row.row.modseq));
            }
            self.message = Some(Box::new(Message::begin(
                cx,
                row.place,
                row.row.clone(),
                row.changed,
                uid_is_due,
                opened,
            )));
            self.at += 1;
        }
    }

    fn end_chunk(&mut self, cx: &mut Context) -> Step {
        // What was told of own changes is forgotten as soon as it has come back, so that it does not grow.
        if cx.view().told.len() >= ROWS_PER_CALL_MAX && !self.cursor.is_done(&self.places) {
            self.state = State::Sync(Sync::new(false, self.uid));
            return Step::Again;
        }
        self.ahead.clear();
        self.state = State::Chunk;
        self.next_chunk(cx)
    }

    /// Goes on with the present message; `None` when it is written.
    fn write(&mut self, cx: &mut Context, mut reply: Option<Reply>) -> Option<Step> {
        let Some(message) = &mut self.message else {
            return Some(Step::Done(Outcome::bug()));
        };
        loop {
            match message.write(cx, &self.items, &mut self.made, reply.take()) {
                Written::All => {
                    self.message = None;
                    return None;
                }
                Written::Wants(call) => {
                    reply = self.ahead.take(&call).map(Reply::Bytes);
                    if reply.is_some() {
                        continue;
                    }
                    // Who needed a body of one message is likely to need that of the next. Long ones are read as they are sent.
                    let next = self.rows[self.at..].iter().map(|row| &row.row);
                    let short = next.filter(|row| u64::from(row.size) <= AHEAD_BYTES);
                    let call = self.ahead.ask(call, short.map(|row| (row.blob, row.size)));
                    return Some(Step::Call(call));
                }
                Written::Full => return Some(Step::Again),
                // One that cannot be read is no reason to withhold the others. It is not told to be empty: clients would keep it so.
                Written::Failed => {
                    let message = self.message.take();
                    if message.is_some_and(|message| message.take_back(cx)) {
                        self.unread = true;
                        return None;
                    }
                    return Some(Step::Abort("a body could not be read"));
                }
            }
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

impl Task for Fetch {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&self.state, wake) {
            (State::Since(modseq), Wake::Go) => {
                let call = MailboxCall::Since {
                    name: cx.view().name.clone(),
                    modseq: *modseq,
                    vanished: self.vanished.is_some(),
                };
                self.state = State::SinceAsked;
                Step::Call(cx.call(call))
            }
            (State::SinceAsked, Wake::Reply(Reply::Since(since))) => self.take_since(cx, since),
            (State::SinceAsked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Vanished(_), Wake::Go) => self.tell_vanished(cx),
            (State::Chunk, Wake::Go) => self.next_chunk(cx),
            (State::Rows, Wake::Reply(Reply::Rows(rows))) => self.take_rows(cx, rows),
            (State::Rows | State::Contents, Wake::Reply(reply @ Reply::Failed(_))) => {
                Step::Done(Outcome::of_reply(reply))
            }
            (State::Seen, Wake::Reply(reply)) => self.take_seen(cx, reply),
            (State::Contents, Wake::Reply(Reply::Contents(contents))) if !contents.is_empty() => {
                self.contents = contents.into_iter();
                self.state = State::Messages;
                self.go_on(cx)
            }
            (State::Messages, Wake::Go) => self.go_on(cx),
            (State::Messages, Wake::Reply(reply)) => {
                let reply = self.ahead.answer(reply);
                match self.write(cx, Some(reply)) {
                    Some(step) => step,
                    None => self.go_on(cx),
                }
            }
            (State::Sync(_), Wake::Go) => self.sync(cx, None),
            (State::Sync(_), Wake::Reply(reply)) => self.sync(cx, Some(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn shed(&mut self) {
        if !matches!(self.state, State::Messages) {
            return;
        }
        self.contents = Vec::new().into_iter();
        self.ahead.shed();
        let rest = &self.rows[self.at..];
        // Whether a message has become seen is known only here; with that there are few.
        if rest.is_empty() || self.sets_seen {
            return;
        }
        self.chunk = rest.iter().map(|row| row.place).collect();
        self.rows = Vec::new();
        self.at = 0;
        self.again = true;
    }
}
