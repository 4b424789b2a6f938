//! The IMAP4rev2 and IMAP4rev1 server session of one connection (RFC 9051, RFC 3501).
//!
//! Bytes become commands in [`whimbrel_imap::Decoder`]; a command becomes a [`task::Task`], which asks the service and writes its answer
//! into [`context::Context::out`]; when it is done, changes of the selected mailbox are told ([`sync`]) and the tagged line is written
//! ([`finish`]). Commands are carried out one after another in the order received; while one runs, no input is read.
//!
//! Invariants:
//! - What a session holds is one UID a message of the selected mailbox, and one chunk of what it is answering. Output is made only as
//!   the client takes it, [`limits::OUTPUT_BYTES`] at a time, however much was asked for.
//! - An idle session holds no buffer.
//! - Sequence numbers change only where EXPUNGE and EXISTS are written, and never during a command that was given by them.
//! - Nothing that was sent in the clear is acted upon after STARTTLS, and no password is taken in the clear.
//!
//! Reading order: this file, [`outcome`], [`context`], [`task`], [`dispatch`], [`view`], [`sync`], then one file a group of commands.
//!
//! size: the states of one connection, which each event may change, are read together.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod append;
mod auth;
mod blob;
mod capability;
mod context;
mod copy;
mod deflate;
mod dispatch;
mod expunge;
mod fetch;
mod finish;
mod gone;
mod handover;
mod idle;
mod inflate;
pub mod limits;
mod list;
mod mailboxes;
mod named;
mod objectid;
mod outcome;
mod packed;
mod quota;
mod ranges;
mod search;
mod select;
mod store;
mod sync;
mod task;
mod unauthenticate;
mod unwrap;
mod view;

use std::sync::Arc;

use whimbrel_imap::{
    Decoder, Event as Decoded,
    encode::{self, Kind},
};
use whimbrel_service::{
    api::{AccountId, Call, Ended, Event, Reply},
    machine::Now,
};

pub use limits::Limits;

use self::{
    context::Context,
    finish::Finish,
    inflate::Inflater,
    outcome::Outcome,
    sync::{Sync, SyncStep},
    task::{Expect, Header, Step, Task, Telling, Wake},
};
use crate::session::{Action, ENDED_MICROS, Handover, Note, Peer, Session, Tls};

/// Of a client in IDLE: the least time after which translators of addresses forget a connection is five minutes.
const STILL_HERE_MICROS: u64 = 4 * 60 * 1_000_000;

/// The machine of one IMAP connection.
pub struct ImapSession {
    decoder: Decoder,
    /// What the client sends is inflated first, and what it is sent is compressed. From the end of the answer to COMPRESS on.
    inflater: Option<Box<Inflater>>,
    /// The client has ended its compression, and the end of its stream is still to be read.
    ending: Option<Box<Inflater>>,
    /// An answer has been written after which compression begins or ends, as [`Context::compressed`] says.
    switches: bool,
    cx: Context,
    stage: Stage,
    running: Option<Box<Running>>,
    /// A call to be given out when earlier output has gone.
    next_call: Option<Call>,
    /// A call is under way.
    calling: bool,
    /// The decoder has nothing more: input is wanted.
    drained: bool,
    /// The running task lets others go on first.
    yields: bool,
    /// UNAUTHENTICATE was carried out, and the driver was not told yet.
    logged_out: bool,
    /// Tagged answers wait in the output: they go out before a call is waited for.
    answered: bool,
    /// Output was given out and not yet asked for more.
    sending: bool,
    /// When output was last given out, by the monotonic clock.
    sent: u64,
    /// It was given out unasked, to keep the way open: that the client takes it does not say that somebody is there.
    keeps_open: bool,
    eof: bool,
    shutdown: bool,
    /// Whoever has logged in may not be here any more: why, and when the session ends whatever is under way.
    ended: Option<(Ended, u64)>,
    bad_commands: u32,
    began: u64,
    /// When the client last sent or took something.
    active: u64,
}

/// Where the connection is.
enum Stage {
    Greeting,
    Open,
    /// The answer to STARTTLS goes out, then the handshake begins.
    StartTls,
    Handshake,
    /// What was said goes out, then another session goes on.
    HandOver(Option<Box<Handover>>),
    /// Undo what was begun, then close.
    Abandon(Option<Call>),
    /// The last words go out.
    Closing(&'static str),
    Closed,
}

/// A command that is being carried out.
struct Running {
    header: Header,
    /// By the monotonic clock.
    began: u64,
    phase: Phase,
}

enum Phase {
    Task(Box<dyn Task>, Waits),
    Sync(Sync, Outcome),
    Finish(Finish),
}

/// What a task waits for.
enum Waits {
    Nothing,
    Reply,
    Input(Expect),
}

impl ImapSession {
    /// A session for a connection that was just made.
    pub fn new(peer: Peer, limits: Arc<Limits>, now: Now) -> ImapSession {
        ImapSession {
            decoder: Decoder::new(limits.syntax.clone()),
            inflater: None,
            ending: None,
            switches: false,
            cx: Context {
                limits,
                peer,
                now,
                account: None,
                relays: false,
                sends: 0,
                login_failures: 0,
                imports: false,
                rev2: false,
                utf8_accept: false,
                utf8: false,
                condstore: false,
                qresync: false,
                compressed: false,
                view: None,
                has_changed: false,
                asks_from: 0,
                out: Vec::new(),
                notes: std::collections::VecDeque::new(),
            },
            stage: Stage::Greeting,
            running: None,
            next_call: None,
            calling: false,
            drained: false,
            yields: false,
            logged_out: false,
            answered: false,
            sending: false,
            sent: now.mono_micros,
            keeps_open: false,
            eof: false,
            shutdown: false,
            ended: None,
            bad_commands: 0,
            began: now.mono_micros,
            active: now.mono_micros,
        }
    }

    /// A session of the administrator's for an account, who needs no password for it (PREAUTH, RFC 9051, 7.1.4) and may import messages.
    pub fn of_administrator(
        peer: Peer,
        limits: Arc<Limits>,
        account: AccountId,
        now: Now,
    ) -> ImapSession {
        let mut session = ImapSession::new(peer, limits, now);
        session.cx.account = Some(account);
        session.cx.imports = true;
        session.decoder.set_authenticated(true);
        session
    }

    /// Bytes of memory that depend on what the client did: for tests and metrics.
    pub fn buffered_bytes(&self) -> usize {
        let inflater = self.inflater.as_ref().or(self.ending.as_ref());
        self.decoder.buffered_bytes()
            + self.cx.out.capacity()
            + inflater.map_or(0, |inflater| inflater.buffered_bytes())
    }

    fn send(&mut self) -> Option<Action> {
        self.sending = true;
        self.sent = self.cx.now.mono_micros;
        self.answered = false;
        self.cx.sends += 1;
        let out = std::mem::take(&mut self.cx.out);
        Some(Action::Send(match self.inflater {
            Some(_) => deflate::piece(&out),
            None => out,
        }))
    }

    /// Compression begins or ends here (RFC 4978, 3; RFC 8437, 4.1).
    fn switch(&mut self) -> Option<Action> {
        if self.cx.compressed {
            // "The server MUST compress starting immediately after the CRLF which ends the tagged OK response."
            if !self.cx.out.is_empty() {
                return self.send();
            }
            self.switches = false;
            self.inflater = Some(Box::new(Inflater::new(&self.cx.limits)));
            return None;
        }
        self.switches = false;
        // "The client terminates its outgoing compression layer after the CRLF following the UNAUTHENTICATE command."
        self.ending = Some(self.inflater.take()?);
        self.end_inflating();
        self.sending = true;
        self.answered = false;
        self.cx.sends += 1;
        // The end of the stream and the CRLF of the answer are one byte, so that no client can miss either.
        let out = std::mem::take(&mut self.cx.out);
        Some(Action::Send(deflate::stored(&out, true)))
    }

    /// Reads the end of the client's compressed stream; what is behind it is for the decoder.
    fn end_inflating(&mut self) {
        match self.ending.as_mut().map(|ending| ending.end()) {
            None | Some(Ok(None)) => {}
            Some(Ok(Some(rest))) => {
                self.ending = None;
                self.decoder.push(&rest);
            }
            Some(Err(refused)) => {
                self.ending = None;
                self.not_inflated(refused);
            }
        }
    }

    /// Inflates the next piece for the decoder; says whether there is something new.
    fn inflate(&mut self) -> bool {
        let Some(inflater) = &mut self.inflater else {
            return false;
        };
        match inflater.next() {
            Ok(None) => return false,
            Ok(Some(piece)) => self.decoder.push(piece),
            Err(refused) => self.not_inflated(refused),
        }
        true
    }

    fn not_inflated(&mut self, refused: inflate::Refused) {
        let text = match refused {
            inflate::Refused::Malformed => "Input is not compressed as it should be",
            inflate::Refused::Bomb => "Input is compressed too well",
        };
        self.cx.notes.push_back(Note::ProtocolError(text));
        let undo = self.take_undo();
        self.bye(text, "protocol error");
        self.next_call = undo;
    }

    /// Why the session ends by the server's will, if it does: for the client, and for the log.
    fn last_words(&self) -> Option<(&'static str, &'static str)> {
        let shutdown = self
            .shutdown
            .then_some(("Server is shutting down", "shutdown"));
        let ended = self.ended.map(|(why, _)| (why.text(), why.label()));
        ended.or(shutdown)
    }

    /// Last words.
    fn bye(&mut self, text: &str, reason: &'static str) {
        encode::untagged(&mut self.cx.out, Kind::Bye, None, text, self.cx.utf8);
        self.close(reason);
    }

    fn close(&mut self, reason: &'static str) {
        self.stage = Stage::Closing(reason);
    }

    /// Gives up without last words, because nobody listens or the client waits in the middle of an answer.
    fn abandon(&mut self, reason: &'static str) {
        let undo = self
            .running
            .take()
            .and_then(|mut running| match &mut running.phase {
                Phase::Task(task, _) => task.abandon(),
                _ => None,
            });
        self.cx.out = Vec::new();
        self.next_call = None;
        self.cx.notes.push_back(Note::Closed(reason));
        self.stage = Stage::Abandon(undo);
    }

    /// When the session ends for lack of progress, or because whoever has logged in may not be here any more.
    fn limit(&self) -> Option<u64> {
        let is_over = matches!(self.stage, Stage::Abandon(_) | Stage::Closed);
        let ends = self.ended.map(|(_, until)| until).filter(|_| !is_over);
        self.waits_until().into_iter().chain(ends).min()
    }

    fn waits_until(&self) -> Option<u64> {
        let limits = &self.cx.limits;
        let idle = |seconds: u64| self.active.saturating_add(seconds * 1_000_000);
        let login = || {
            self.began
                .saturating_add(limits.login_seconds_max * 1_000_000)
        };
        match self.stage {
            Stage::HandOver(_) | Stage::Abandon(_) | Stage::Closed => None,
            Stage::Closing(_) => Some(idle(limits.stall_seconds_max)),
            Stage::StartTls | Stage::Handshake => Some(login()),
            Stage::Greeting | Stage::Open if self.sending => {
                let stall = self.sent.max(self.active) + limits.stall_seconds_max * 1_000_000;
                Some(if self.cx.account.is_none() {
                    stall.min(login())
                } else {
                    stall
                })
            }
            // The service answers in its own time.
            Stage::Greeting | Stage::Open if self.calling || self.next_call.is_some() => None,
            Stage::Greeting | Stage::Open if self.cx.account.is_none() => Some(login()),
            Stage::Greeting | Stage::Open => Some(idle(limits.idle_seconds_max)),
        }
    }

    /// From when on a session in IDLE may ask what has changed, if something has.
    fn asks_from(&self) -> Option<u64> {
        let phase = &self.running.as_ref()?.phase;
        let Phase::Task(_, Waits::Input(Expect::Done | Expect::StillDone)) = phase else {
            return None;
        };
        let view = self.cx.view.as_ref()?;
        view.dirty.then_some(self.cx.asks_from)
    }

    /// When a client in IDLE is told that the server is there: translators of addresses forget a connection on which nothing goes (RFC 2177 leaves
    /// that to clients, and many do nothing for half an hour).
    fn still_here_at(&self) -> Option<u64> {
        let phase = &self.running.as_ref()?.phase;
        let Phase::Task(_, Waits::Input(Expect::Done | Expect::StillDone)) = phase else {
            return None;
        };
        let since = self.sent.max(self.active);
        (!self.sending).then_some(since.saturating_add(STILL_HERE_MICROS))
    }

    /// Does the next thing there is to do in [`Stage::Open`]; says whether there may be more.
    fn advance(&mut self) -> bool {
        let now = self.cx.now.mono_micros;
        match &self.running {
            None if let Some((text, reason)) = self.last_words() => {
                self.bye(text, reason);
                true
            }
            None => self.read(),
            Some(running) => match &running.phase {
                Phase::Task(_, Waits::Nothing) => {
                    self.step(Wake::Go);
                    true
                }
                Phase::Task(_, Waits::Reply) => false,
                Phase::Task(_, Waits::Input(_)) if let Some((text, reason)) = self.last_words() => {
                    self.bye(text, reason);
                    true
                }
                Phase::Task(_, Waits::Input(Expect::Done | Expect::StillDone))
                    if self.asks_from().is_some_and(|from| from <= now) =>
                {
                    self.step(Wake::Changed);
                    true
                }
                Phase::Task(_, Waits::Input(Expect::Done | Expect::StillDone))
                    if self.still_here_at().is_some_and(|at| at <= now) =>
                {
                    encode::untagged(&mut self.cx.out, Kind::Ok, None, "Still here", self.cx.utf8);
                    (self.sent, self.keeps_open) = (now, true);
                    true
                }
                Phase::Task(_, Waits::Input(_)) => self.read(),
                Phase::Sync(..) if self.calling => false,
                Phase::Sync(..) => {
                    self.sync(None);
                    true
                }
                Phase::Finish(_) => {
                    self.finish();
                    true
                }
            },
        }
    }

    /// Takes the next event of the decoder; says whether there was one.
    fn read(&mut self) -> bool {
        let Some(event) = self.decoder.next() else {
            if self.inflate() {
                return true;
            }
            self.drained = true;
            if self.eof {
                // What was answered may still be read: only the client's side is closed.
                self.next_call = self.take_undo();
                self.close("client closed the connection");
                return true;
            }
            return false;
        };
        if let Decoded::AppendChunk(bytes) = event {
            if let Some(inflater) = &mut self.inflater {
                inflater.refund(bytes.len());
            }
            // The only event that borrows from the decoder.
            if let Some(running) = &mut self.running
                && let Phase::Task(task, waits) = &mut running.phase
            {
                *waits = Waits::Nothing;
                let step = task.step(&mut self.cx, Wake::Chunk(bytes));
                self.stepped(step);
            }
            return true;
        }
        let wake = match event {
            Decoded::Command(command) => {
                self.bad_commands = 0;
                self.begin(command);
                return true;
            }
            Decoded::AppendBegin(append) => {
                self.begin_append(append);
                return true;
            }
            Decoded::Continue { .. } => {
                encode::continuation(&mut self.cx.out, "OK");
                return true;
            }
            Decoded::Fatal { text } => {
                self.cx.notes.push_back(Note::ProtocolError(text));
                let undo = self.take_undo();
                self.bye(text, "protocol error");
                self.next_call = undo;
                return true;
            }
            Decoded::Bad { tag, text } => {
                self.cx.notes.push_back(Note::ProtocolError(text));
                if self.running.is_none() {
                    self.bad_line(tag, text);
                    return true;
                }
                Wake::Broken(text)
            }
            Decoded::AppendMessage(message) => Wake::Message(message),
            Decoded::AppendLiteral(literal) => Wake::Literal(literal),
            Decoded::AppendUrl(url) => Wake::Url(url),
            Decoded::AppendMessageEnd => Wake::MessageEnd,
            Decoded::AppendEnd => Wake::AppendEnd,
            Decoded::Sasl(reply) => Wake::Sasl(reply),
            Decoded::Done => Wake::Done,
            Decoded::AppendChunk(_) => return true,
        };
        self.step(wake);
        true
    }

    fn take_undo(&mut self) -> Option<Call> {
        self.running
            .take()
            .and_then(|mut running| match &mut running.phase {
                Phase::Task(task, _) => task.abandon(),
                _ => None,
            })
    }

    fn bad_line(&mut self, tag: Option<whimbrel_imap::core::Tag>, text: &'static str) {
        match tag {
            Some(tag) => {
                encode::tagged(&mut self.cx.out, &tag, Kind::Bad, None, text, self.cx.utf8)
            }
            None => encode::untagged(&mut self.cx.out, Kind::Bad, None, text, self.cx.utf8),
        }
        self.answered = true;
        self.bad_commands += 1;
        if self.bad_commands >= self.cx.limits.bad_commands_max {
            self.bye(
                "Too many lines that are no commands",
                "too many bad commands",
            );
        }
    }

    /// Lets the running task go on.
    fn step(&mut self, wake: Wake<'_>) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Phase::Task(task, waits) = &mut running.phase else {
            return;
        };
        *waits = Waits::Nothing;
        let step = task.step(&mut self.cx, wake);
        self.stepped(step);
    }

    fn stepped(&mut self, step: Step) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Phase::Task(_, waits) = &mut running.phase else {
            return;
        };
        match step {
            Step::Again => *waits = Waits::Nothing,
            Step::Yield => {
                *waits = Waits::Nothing;
                self.yields = true;
            }
            Step::Call(call) => {
                *waits = Waits::Reply;
                self.next_call = Some(call);
            }
            Step::Input(expect) => {
                *waits = Waits::Input(expect);
                match expect {
                    Expect::Sasl => self.decoder.expect_sasl(),
                    Expect::Done => self.decoder.expect_done(),
                    Expect::Literal => self.decoder.accept_literal(),
                    Expect::Append | Expect::StillDone => {}
                }
            }
            Step::Begin(command) => self.begin_known(*command),
            Step::HandOver(account) => self.hand_over(account),
            Step::Done(outcome) => self.done(outcome),
            Step::Refuse(outcome) => {
                self.decoder.refuse_literal();
                self.done(outcome);
            }
            Step::Bye(text, reason) => {
                self.running = None;
                self.bye(text, reason);
            }
            Step::Abort(reason) => self.abandon(reason),
        }
    }

    /// The task is done: what has changed is told, then the tagged line.
    fn done(&mut self, outcome: Outcome) {
        let Some(running) = &mut self.running else {
            return;
        };
        let telling = running.header.telling;
        let tell = match (&self.cx.view, telling) {
            (None, _) | (_, Telling::Nothing) => false,
            (Some(_), Telling::Ask) => true,
            // What this session did itself is told in any case, so that `as_of` moves on.
            (Some(view), _) => view.dirty || !view.told.is_empty() || view.left,
        };
        running.phase = if tell {
            let uid = running.header.uid;
            Phase::Sync(Sync::new(telling != Telling::Flags, uid), outcome)
        } else {
            Phase::Finish(Finish::new(outcome))
        };
    }

    fn sync(&mut self, reply: Option<Reply>) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Phase::Sync(sync, outcome) = &mut running.phase else {
            return;
        };
        match sync.step(&mut self.cx, reply) {
            SyncStep::Again => {}
            SyncStep::Call(call) => {
                self.next_call = Some(call);
            }
            SyncStep::Done => {
                let outcome = std::mem::replace(outcome, Outcome::ok(""));
                running.phase = Phase::Finish(Finish::new(outcome));
            }
            SyncStep::Gone => {
                let outcome = std::mem::replace(outcome, Outcome::ok(""));
                self.gone(outcome);
            }
        }
    }

    /// The selected mailbox is gone. To who deleted it that is no news; all others are disconnected (RFC 2180, 3.3), as there is no
    /// state of the protocol for them.
    fn gone(&mut self, outcome: Outcome) {
        let left = self.cx.view.take().is_some_and(|view| view.left);
        if !left {
            self.running = None;
            self.bye(
                "The selected mailbox was deleted or renamed",
                "mailbox gone",
            );
            return;
        }
        self.cx
            .ok(Some(encode::Code::Closed), "The selected mailbox is gone");
        let unselect = whimbrel_service::api::MailboxCall::Unselect {
            session: self.cx.peer.session,
        };
        let call = self.cx.call(unselect);
        if let Some(running) = &mut self.running {
            running.phase = Phase::Task(Box::new(mailboxes::After(Some(outcome))), Waits::Reply);
            self.next_call = Some(call);
        }
    }

    fn finish(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Phase::Finish(finish) = &mut running.phase else {
            return;
        };
        if !finish.write(&mut self.cx, &running.header.tag) {
            return;
        }
        self.answered = true;
        let took = self.cx.now.mono_micros.saturating_sub(running.began);
        self.cx
            .notes
            .push_back(Note::Command(running.header.name, took));
        let close = finish.close();
        let starts_tls = running.header.name == "STARTTLS" && finish.is_ok();
        self.switches = self.cx.compressed != self.inflater.is_some();
        if running.header.name == "UNAUTHENTICATE" && finish.is_ok() {
            self.logged_out = true;
            // As much time as a new connection has.
            self.began = self.cx.now.mono_micros;
        }
        self.running = None;
        // What ENABLE, a login or a logout means for the syntax.
        self.decoder.set_utf8(self.cx.utf8);
        self.decoder.set_authenticated(self.cx.account.is_some());
        if let Some(reason) = close {
            if reason == "logout" {
                self.close(reason);
            } else {
                self.bye("Closing the connection", reason);
            }
        } else if starts_tls {
            self.stage = Stage::StartTls;
        }
    }

    fn give_call(&mut self) -> Option<Action> {
        // Answers to earlier commands do not wait for this one's.
        if self.answered && !self.cx.out.is_empty() {
            return self.send();
        }
        let call = self.next_call.take()?;
        self.calling = true;
        Some(Action::Call(call))
    }
}

impl Session for ImapSession {
    fn on_bytes(&mut self, now: Now, bytes: &[u8]) {
        self.active = now.mono_micros;
        // Bytes that race the handshake are in the clear: they are not looked at, and the connection ends.
        match self.stage {
            Stage::StartTls | Stage::Handshake => self.abandon("bytes in the clear after STARTTLS"),
            Stage::Greeting | Stage::Open => {
                self.drained = false;
                match (&mut self.inflater, &mut self.ending) {
                    (Some(inflater), _) => inflater.push(bytes),
                    (None, Some(ending)) => {
                        ending.push(bytes);
                        self.end_inflating();
                    }
                    (None, None) => self.decoder.push(bytes),
                }
            }
            Stage::HandOver(_) | Stage::Abandon(_) | Stage::Closing(_) | Stage::Closed => {}
        }
    }

    fn on_eof(&mut self, _now: Now) {
        self.eof = true;
        if matches!(self.stage, Stage::StartTls | Stage::Handshake) {
            self.abandon("client closed the connection");
        }
    }

    fn on_reply(&mut self, now: Now, reply: Reply) {
        self.cx.now = now;
        self.calling = false;
        if !matches!(self.stage, Stage::Open) {
            return;
        }
        match self.running.as_ref().map(|running| &running.phase) {
            Some(Phase::Task(..)) => self.step(Wake::Reply(reply)),
            Some(Phase::Sync(..)) => self.sync(Some(reply)),
            _ => {}
        }
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match event {
            Event::Ended(why) => {
                let until = now.mono_micros.saturating_add(ENDED_MICROS);
                self.ended.get_or_insert((why, until));
            }
            Event::Changed => {
                self.cx.has_changed = true;
                if let Some(view) = &mut self.cx.view {
                    view.dirty = true;
                }
            }
            Event::Shutdown => self.shutdown = true,
        }
    }

    fn on_tls(&mut self, now: Now, tls: Tls) {
        self.active = now.mono_micros;
        if matches!(self.stage, Stage::Handshake) {
            // RFC 9051, 6.2.1: what was learnt in the clear is forgotten, and nothing of it is left in a buffer.
            self.decoder = Decoder::new(self.cx.limits.syntax.clone());
            self.drained = false;
            self.cx.peer.tls = Some(tls);
            self.stage = Stage::Open;
        }
    }

    fn on_time(&mut self, now: Now) {
        self.cx.now = now;
        if self.limit().is_none_or(|limit| now.mono_micros < limit) {
            return;
        }
        if let Some((why, until)) = self.ended
            && until <= now.mono_micros
        {
            return self.abandon(why.label());
        }
        if self.sending
            || matches!(
                self.stage,
                Stage::StartTls | Stage::Handshake | Stage::Closing(_)
            )
        {
            self.abandon("client does not take its output");
        } else if self.cx.account.is_none() {
            self.running = None;
            self.bye("You did not log in in time", "login timeout");
        } else {
            let undo = self.take_undo();
            self.bye("You were idle for too long", "idle timeout");
            self.next_call = undo;
        }
    }

    fn deadline(&self) -> Option<u64> {
        let asks_from = self.asks_from().filter(|from| *from > 0 && !self.sending);
        let still_here = self.still_here_at();
        let limit = self.limit();
        limit.into_iter().chain(asks_from).chain(still_here).min()
    }

    fn wants_input(&self) -> bool {
        let waits = match self.running.as_ref().map(|running| &running.phase) {
            None => true,
            Some(Phase::Task(_, Waits::Input(_))) => true,
            Some(_) => false,
        };
        matches!(self.stage, Stage::Open) && waits && self.drained && !self.eof
    }

    fn relay(&mut self) {
        self.cx.relays = true;
    }

    fn may_be_told(&self) -> bool {
        !self.cx.compressed && self.inflater.is_none()
    }

    fn shed(&mut self) {
        if let Some(running) = &mut self.running
            && let Phase::Task(task, _) = &mut running.phase
        {
            task.shed();
        }
    }

    fn poll(&mut self, now: Now) -> Option<Action> {
        self.cx.now = now;
        if std::mem::take(&mut self.sending) && !std::mem::take(&mut self.keeps_open) {
            self.active = now.mono_micros;
        }
        loop {
            if let Some(note) = self.cx.notes.pop_front() {
                return Some(Action::Note(note));
            }
            if self.cx.is_full() {
                return self.send();
            }
            match &mut self.stage {
                Stage::Greeting => {
                    let is_known = self.cx.account.is_some();
                    capability::with_list(&mut self.cx, |cx, names| {
                        let kind = if is_known { Kind::Preauth } else { Kind::Ok };
                        encode::greeting(&mut cx.out, kind, names, "Whimbrel is ready");
                    });
                    self.stage = Stage::Open;
                }
                Stage::Open => {
                    if std::mem::take(&mut self.logged_out) {
                        return Some(Action::LoggedOut);
                    }
                    if self.switches {
                        if let Some(action) = self.switch() {
                            return Some(action);
                        }
                        continue;
                    }
                    if std::mem::take(&mut self.yields) {
                        return Some(Action::Yield);
                    }
                    if self.next_call.is_some() {
                        return self.give_call();
                    }
                    if self.calling {
                        return None;
                    }
                    if !self.advance() && self.next_call.is_none() {
                        return if self.cx.out.is_empty() {
                            None
                        } else {
                            self.send()
                        };
                    }
                }
                Stage::StartTls => {
                    if !self.cx.out.is_empty() {
                        return self.send();
                    }
                    self.stage = Stage::Handshake;
                    return Some(Action::StartTls);
                }
                Stage::HandOver(_) if !self.cx.out.is_empty() => return self.send(),
                Stage::HandOver(handover) => return handover.take().map(Action::HandOver),
                Stage::Handshake | Stage::Closed => return None,
                Stage::Abandon(undo) => {
                    if self.calling {
                        return None;
                    }
                    if let Some(call) = undo.take() {
                        self.calling = true;
                        return Some(Action::Call(call));
                    }
                    self.stage = Stage::Closed;
                    return Some(Action::Close);
                }
                Stage::Closing(reason) => {
                    let reason = *reason;
                    if !self.cx.out.is_empty() {
                        return self.send();
                    }
                    self.cx.notes.push_back(Note::Closed(reason));
                    self.stage = Stage::Abandon(self.next_call.take());
                }
            }
        }
    }
}

#[cfg(test)]
mod size_tests {
    use super::*;

    /// What a session in IDLE is made of, buffers apart, which it does not have.
    #[test]
    fn an_idle_session_is_small() {
        #[track_caller]
        fn check<T>(bytes_max: usize) {
            let (name, size) = (std::any::type_name::<T>(), size_of::<T>());
            assert!(size <= bytes_max, "{name}: {size} bytes");
        }
        check::<ImapSession>(1024);
        check::<Running>(192);
        check::<view::View>(208);
        check::<idle::Idle>(32);
    }
}
