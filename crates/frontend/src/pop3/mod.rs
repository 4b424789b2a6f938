//! The POP3 server session of one connection (RFC 1939, 2449, 2595, 3206, 5034, 6856).
//!
//! Bytes become commands in [`whimbrel_pop3::Decoder`]; most are answered at once, the others become a [`task::Task`], which asks the
//! service and writes its answer into [`context::Context::out`]. Commands are carried out one after another in the order received; while
//! one runs, no input is read.
//!
//! Invariants:
//! - What a session holds is one UID a message of the maildrop, a bit for each once one is marked, one chunk of what it is answering, and
//!   while a client does not wait for answers what was read of the next messages: [`BLOB_READS_BYTES_MAX`] at the most. An idle session holds no buffer.
//!
//! [`BLOB_READS_BYTES_MAX`]: whimbrel_service::api::BLOB_READS_BYTES_MAX
//! - Message numbers never change. There is no lock: several sessions may have one maildrop open, each sees what there was when it came.
//! - Only QUIT removes, and only what was shown to this session and marked by it. A connection that ends otherwise removes nothing.
//! - Nothing that was sent in the clear is acted upon after STLS, and no password is taken in the clear.
//!
//! Reading order: this file, [`maildrop`], [`dispatch`], [`step`], [`task`], then [`auth`], [`list`], [`retrieve`], [`ahead`].

mod ahead;
mod auth;
mod context;
mod dispatch;
pub mod limits;
mod list;
mod maildrop;
mod retrieve;
mod step;
mod task;

use std::{collections::VecDeque, sync::Arc};

use whimbrel_pop3::{
    Decoder, Event as Decoded,
    encode::{self, Code},
};
use whimbrel_service::{
    api::{AccountId, Call, Ended, Event, Reply},
    machine::Now,
};

pub use limits::Limits;

use self::{
    auth::{Open, mailbox_named},
    context::Context,
    step::Step,
    task::Task,
};
use crate::session::{Action, ENDED_MICROS, Handover, Note, Peer, Resume, Session, Tls};

/// The machine of one POP3 connection.
pub struct Pop3Session {
    decoder: Decoder,
    cx: Context,
    stage: Stage,
    running: Option<Running>,
    /// A call to be given out when earlier output has gone.
    next_call: Option<Call>,
    /// A call is under way.
    calling: bool,
    /// The decoder has nothing more: input is wanted.
    drained: bool,
    /// Output was given out and not yet asked for more.
    sending: bool,
    eof: bool,
    shutdown: bool,
    /// Whoever has logged in may not be here any more: why, and when the session ends whatever is under way.
    ended: Option<(Ended, u64)>,
    bad_commands: u32,
    now: Now,
    began: u64,
    /// When the client last sent a command or took something.
    active: u64,
}

/// Where the connection is.
enum Stage {
    Greeting,
    Open,
    /// The answer to STLS goes out, then the handshake begins.
    StartTls,
    Handshake,
    /// What was said goes out, then another session goes on.
    HandOver(Option<Box<Handover>>),
    /// The last words go out.
    Closing(&'static str),
    /// Nothing more is said.
    Abandon,
    Closed,
}

/// A command that is being carried out.
struct Running {
    name: &'static str,
    /// By the monotonic clock.
    began: u64,
    task: Task,
    waits: Waits,
}

/// What it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    Reply,
    Sasl,
}

impl Pop3Session {
    /// A session for a connection that was just made.
    pub fn new(peer: Peer, limits: Arc<Limits>, now: Now) -> Pop3Session {
        Pop3Session {
            decoder: Decoder::new(limits.syntax.clone()),
            cx: Context {
                limits,
                peer,
                user: None,
                utf8: false,
                relays: false,
                login_failures: 0,
                maildrop: None,
                pipelined: false,
                ahead: None,
                out: Vec::new(),
                notes: VecDeque::new(),
            },
            stage: Stage::Greeting,
            running: None,
            next_call: None,
            calling: false,
            drained: false,
            sending: false,
            eof: false,
            shutdown: false,
            ended: None,
            bad_commands: 0,
            now,
            began: now.mono_micros,
            active: now.mono_micros,
        }
    }

    /// The session that goes on where another has logged somebody in: it opens the maildrop, and answers. `None`: that is no mailbox.
    pub fn resumed(
        peer: Peer,
        limits: Arc<Limits>,
        account: AccountId,
        (mailbox, utf8): (&str, bool),
        now: Now,
    ) -> Option<Pop3Session> {
        let open = Open::new(account, mailbox_named(mailbox)?);
        let mut session = Pop3Session::new(peer, limits, now);
        session.cx.utf8 = utf8;
        session.stage = Stage::Open;
        session.running = Some(Running {
            name: "PASS",
            began: now.mono_micros,
            task: Task::Open(Box::new(open)),
            waits: Waits::Nothing,
        });
        Some(session)
    }

    /// Bytes of memory that depend on what the client did: for tests and metrics.
    pub fn buffered_bytes(&self) -> usize {
        let cx = &self.cx;
        self.decoder.buffered_bytes()
            + cx.out.capacity()
            + cx.maildrop.as_ref().map_or(0, |maildrop| maildrop.bytes())
            + cx.ahead.as_ref().map_or(0, |ahead| ahead.bytes())
    }

    fn send(&mut self) -> Option<Action> {
        self.sending = true;
        Some(Action::Send(std::mem::take(&mut self.cx.out)))
    }

    fn close(&mut self, reason: &'static str) {
        self.running = None;
        self.stage = Stage::Closing(reason);
    }

    /// Gives up without last words.
    fn abandon(&mut self, reason: &'static str) {
        self.running = None;
        self.next_call = None;
        self.cx.out = Vec::new();
        self.cx.notes.push_back(Note::Closed(reason));
        self.stage = Stage::Abandon;
    }

    /// Does the next thing there is to do in [`Stage::Open`]; says whether there may be more.
    fn advance(&mut self) -> bool {
        match self.running.as_ref().map(|running| running.waits) {
            None if let Some((why, _)) = self.ended => {
                encode::err(&mut self.cx.out, Some(Code::Auth), why.text());
                self.close(why.label());
                true
            }
            None | Some(Waits::Sasl) if self.shutdown => {
                let text = "Server is shutting down";
                encode::err(&mut self.cx.out, Some(Code::SysTemp), text);
                self.close("shutdown");
                true
            }
            None | Some(Waits::Sasl) => self.read(),
            Some(Waits::Reply) => false,
            Some(Waits::Nothing) => {
                self.step(None);
                true
            }
        }
    }

    /// Takes the next event of the decoder; says whether there was one.
    fn read(&mut self) -> bool {
        let Some(event) = self.decoder.next() else {
            self.drained = true;
            // It waits: what was looked up for it is not needed now.
            self.cx.ahead = None;
            if self.eof {
                // What was answered may still be read: only the client's side is closed.
                self.close("client closed the connection");
                return true;
            }
            return false;
        };
        self.active = self.now.mono_micros;
        self.cx.pipelined = self.decoder.has_more();
        match event {
            Decoded::Command(command) => {
                self.bad_commands = 0;
                self.begin(command);
            }
            Decoded::Sasl(reply) => {
                if let Some(Running {
                    task: Task::Login(login),
                    ..
                }) = &mut self.running
                {
                    let step = login.sasl(&mut self.cx, reply);
                    self.stepped(step);
                }
            }
            Decoded::Bad(error) => {
                self.cx.notes.push_back(Note::ProtocolError(error.text()));
                encode::err(&mut self.cx.out, None, error.text());
                self.bad_commands += 1;
                if self.bad_commands >= self.cx.limits.bad_commands_max {
                    self.close("too many bad commands");
                }
            }
            Decoded::Fatal { text } => {
                self.cx.notes.push_back(Note::ProtocolError(text));
                encode::err(&mut self.cx.out, None, text);
                self.close("protocol error");
            }
        }
        true
    }

    /// Lets the running command go on.
    fn step(&mut self, reply: Option<Reply>) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.waits = Waits::Nothing;
        let step = running.task.step(&mut self.cx, reply);
        self.stepped(step);
    }

    fn stepped(&mut self, step: Step) {
        let Some(running) = &mut self.running else {
            return;
        };
        match step {
            Step::Again => running.waits = Waits::Nothing,
            Step::Call(call) => {
                running.waits = Waits::Reply;
                self.next_call = Some(call);
            }
            Step::Sasl => {
                running.waits = Waits::Sasl;
                self.decoder.expect_sasl();
            }
            Step::Open(account, mailbox) => {
                running.task = Task::Open(Box::new(Open::new(account, mailbox)));
                running.waits = Waits::Nothing;
            }
            Step::HandOver(account, mailbox) => {
                self.running = None;
                let utf8 = self.cx.utf8;
                self.stage = Stage::HandOver(Some(Box::new(Handover {
                    account: Some(account),
                    peer: self.cx.peer.clone(),
                    at: Resume::Pop3 { mailbox, utf8 },
                    rest: self.decoder.take_rest(),
                })));
            }
            Step::Done => self.end(),
            Step::Close(reason) => {
                self.end();
                self.close(reason);
            }
            // What was answered before goes out; the connection ends where the client expects more, so it takes no piece for the whole.
            Step::Abort(reason) => self.close(reason),
        }
    }

    fn end(&mut self) {
        if let Some(running) = self.running.take() {
            let took = self.now.mono_micros.saturating_sub(running.began);
            self.cx.notes.push_back(Note::Command(running.name, took));
        }
    }

    fn give_call(&mut self) -> Option<Action> {
        // An owner may have to wait for the disk: what was answered before does not wait for that. What only the store is asked comes at
        // once, and more of the same answer with it.
        let waits = !matches!(
            self.next_call,
            Some(Call::BlobRead { .. } | Call::BlobReadMany(_) | Call::Contents { .. })
        );
        if waits && !self.cx.out.is_empty() {
            return self.send();
        }
        let call = self.next_call.take()?;
        self.calling = true;
        Some(Action::Call(call))
    }
}

impl Session for Pop3Session {
    fn on_bytes(&mut self, _now: Now, bytes: &[u8]) {
        match self.stage {
            // Bytes that race the handshake are in the clear: they are not looked at, and the connection ends.
            Stage::StartTls | Stage::Handshake => self.abandon("bytes in the clear after STLS"),
            Stage::Greeting | Stage::Open => {
                self.drained = false;
                self.decoder.push(bytes);
            }
            Stage::HandOver(_) | Stage::Abandon | Stage::Closing(_) | Stage::Closed => {}
        }
    }

    fn on_eof(&mut self, _now: Now) {
        self.eof = true;
        if matches!(self.stage, Stage::StartTls | Stage::Handshake) {
            self.abandon("client closed the connection");
        }
    }

    fn on_reply(&mut self, now: Now, reply: Reply) {
        self.now = now;
        self.calling = false;
        if matches!(self.stage, Stage::Open) {
            self.step(Some(reply));
        }
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match event {
            // The maildrop stays as it was shown.
            Event::Changed => {}
            Event::Ended(why) => {
                let until = now.mono_micros.saturating_add(ENDED_MICROS);
                self.ended.get_or_insert((why, until));
            }
            Event::Shutdown => self.shutdown = true,
        }
    }

    fn on_tls(&mut self, now: Now, tls: Tls) {
        self.active = now.mono_micros;
        if matches!(self.stage, Stage::Handshake) {
            // What was learnt in the clear is forgotten, and nothing of it is left in a buffer.
            self.decoder = Decoder::new(self.cx.limits.syntax.clone());
            self.drained = false;
            self.cx.user = None;
            self.cx.peer.tls = Some(tls);
            self.stage = Stage::Open;
        }
    }

    fn on_time(&mut self, now: Now) {
        if self
            .deadline()
            .is_none_or(|deadline| now.mono_micros < deadline)
        {
            return;
        }
        if let Some((why, until)) = self.ended
            && until <= now.mono_micros
        {
            return self.abandon(why.label());
        }
        // "When the timer expires, the session does NOT enter the UPDATE state--the server should close the TCP connection without removing any
        // messages or sending any response to the client" (RFC 1939, 3).
        self.abandon(if self.sending || matches!(self.stage, Stage::Closing(_)) {
            "client does not take its output"
        } else if self.cx.maildrop.is_none() {
            "login timeout"
        } else {
            "idle timeout"
        });
    }

    fn deadline(&self) -> Option<u64> {
        let limits = &self.cx.limits;
        let after = |since: u64, seconds: u64| Some(since.saturating_add(seconds * 1_000_000));
        let stall = after(self.active, limits.stall_seconds_max);
        let login = after(self.began, limits.login_seconds_max);
        let stranger = self.cx.maildrop.is_none();
        let ends = self.ended.map(|(_, until)| until);
        let limit = match self.stage {
            Stage::HandOver(_) | Stage::Abandon | Stage::Closed => None,
            Stage::Closing(_) => stall,
            Stage::StartTls | Stage::Handshake => login,
            Stage::Greeting | Stage::Open if self.sending && stranger => stall.min(login),
            Stage::Greeting | Stage::Open if self.sending => stall,
            // The service answers in its own time.
            Stage::Greeting | Stage::Open if self.calling || self.next_call.is_some() => None,
            Stage::Greeting | Stage::Open if stranger => login,
            Stage::Greeting | Stage::Open => after(self.active, limits.idle_seconds_max),
        };
        let is_over = matches!(self.stage, Stage::Abandon | Stage::Closed);
        limit.into_iter().chain(ends.filter(|_| !is_over)).min()
    }

    fn wants_input(&self) -> bool {
        let waits = self
            .running
            .as_ref()
            .is_none_or(|running| running.waits == Waits::Sasl);
        matches!(self.stage, Stage::Open) && waits && self.drained && !self.eof
    }

    fn relay(&mut self) {
        self.cx.relays = true;
    }

    fn shed(&mut self) {
        self.cx.ahead = None;
    }

    fn poll(&mut self, now: Now) -> Option<Action> {
        self.now = now;
        if std::mem::take(&mut self.sending) {
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
                    encode::ok(&mut self.cx.out, "Whimbrel is ready");
                    self.stage = Stage::Open;
                }
                Stage::Open => {
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
                Stage::Closing(reason) => {
                    let reason = *reason;
                    if !self.cx.out.is_empty() {
                        return self.send();
                    }
                    self.cx.notes.push_back(Note::Closed(reason));
                    self.stage = Stage::Abandon;
                }
                Stage::Abandon => {
                    // What is under way is carried out: a connection has one call at a time.
                    if self.calling {
                        return None;
                    }
                    self.stage = Stage::Closed;
                    return Some(Action::Close);
                }
                Stage::HandOver(_) if !self.cx.out.is_empty() => return self.send(),
                Stage::HandOver(handover) => return handover.take().map(Action::HandOver),
                Stage::Handshake | Stage::Closed => return None,
            }
        }
    }
}
