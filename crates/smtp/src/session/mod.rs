//! The server's session machine for SMTP, LMTP and submission.
//!
//! `input(now, bytes)` in any split, `poll()` until `None`, answers by `answer_*`. While a question is open no further command
//! is read: pipelined bytes wait in a bounded buffer and [`Session::wants_input`] is false.
//!
//! Invariants:
//! - At most one question is open. An answer to a question that is not open is a fault of the owner and panics, except after the
//!   connection was lost, when it is ignored.
//! - The replies sent and the questions asked do not depend on how the input was split.
//! - Nothing that came in clear text is read after STARTTLS.
//!
//! ```
//! use std::sync::Arc;
//! use whimbrel_smtp::session::{Accepted, Config, DataAnswer, Output, Peer, Role, Session};
//! use whimbrel_smtp::{Domain, Time};
//!
//! let config = Arc::new(Config::new(Domain::new("mx.example.org").unwrap()));
//! let peer = Peer { ip: "192.0.2.7".parse().unwrap(), tls: None };
//! let now = Time::ZERO; // a real driver reads a clock before each call
//! let mut session = Session::new(Role::Smtp, config, peer, now);
//! let (mut sent, mut message) = (Vec::new(), Vec::new());
//! let client = b"EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nHello\r\n.\r\nQUIT\r\n";
//! let mut unread = &client[..];
//! loop {
//!     match session.poll() {
//!         Some(Output::Send(bytes)) => sent.extend(bytes),
//!         Some(Output::Mail(_)) => session.answer_mail(now, Ok(())),
//!         Some(Output::Rcpt(_)) => session.answer_rcpt(now, Ok(())),
//!         Some(Output::DataBegin(_)) => session.answer_data_begin(now, Ok(())),
//!         Some(Output::DataChunk(bytes)) => {
//!             session.acknowledge(now, bytes.len());
//!             message.extend(bytes);
//!         }
//!         Some(Output::DataEnd(_)) => session.answer_data_end(now, DataAnswer::All(Ok(Accepted::default()))),
//!         Some(Output::Close(_)) => break,
//!         Some(other) => unreachable!("{other:?} was not provoked"),
//!         None => {
//!             let taken = session.input(now, unread);
//!             unread = &unread[taken..];
//!         }
//!     }
//! }
//! assert_eq!(message, b"Hello\r\n");
//! assert!(sent.ends_with(b"221 2.0.0 Bye\r\n"));
//! ```
//!
//! Reading order: `types`, this file, `commands`, `message` (DATA and BDAT), `auth`, `handover`, `clock`, `buffer`.

mod auth;
mod buffer;
mod clock;
mod commands;
mod handover;
mod message;
mod types;

pub use handover::Handed;
pub use types::*;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Time;
use crate::address::HostName;
use crate::reply::{Enhanced, Refusal, Reply};

use buffer::{InputBuffer, LineStep};
use clock::{Clock, Waiting};
use message::{Chunk, Message};

/// What the next bytes are.
#[derive(Debug)]
enum Mode {
    /// None yet: the greeting is held back until then.
    Greeting(Time),
    Command,
    /// The rest of a line that has been answered.
    DiscardLine,
    /// An answer in an AUTH exchange.
    Auth,
    Data,
    Chunk(Chunk),
    /// What may still come is not read.
    Closed,
}

/// The question that is open.
#[derive(Debug)]
enum Question {
    StartTls,
    Auth,
    Mail(MailFrom),
    Rcpt(RcptTo),
    DataBegin,
    DataEnd,
}

#[derive(Debug)]
struct Transaction {
    mail: MailFrom,
    recipients: Vec<RcptTo>,
    refused: usize,
    /// A BDAT was refused: the rest of the message is, too (RFC 3030 2).
    failed: bool,
}

/// Refusals that were not taken yet: those of one input, which its owner takes before the next.
const REFUSED_MAX: usize = 10_000;

/// One connection's session.
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: Arc<Config>,
    peer: Peer,
    clock: Clock,
    mode: Mode,
    question: Option<Question>,
    buffer: InputBuffer,
    /// Replies not yet given out.
    out: Vec<u8>,
    outputs: VecDeque<Output>,
    refused: VecDeque<Refused>,
    /// HELO (true: basic), EHLO or LHLO.
    hello: Option<(HostName, bool)>,
    authenticated: bool,
    opened: Time,
    /// Offered for AUTH.
    mechanisms: String,
    /// The wall clock in seconds since 1970, at the monotonic time's origin.
    wall: Option<i64>,
    transaction: Option<Transaction>,
    message: Option<Message>,
    /// The last MAIL was refused: what a client had pipelined behind it is out of sequence through no fault of its own.
    excused: bool,
    /// Octets of refused chunks so far.
    discarded: u64,
    /// What the client is told as soon as it can be, and why.
    ending: Option<(Refusal, CloseReason)>,
    /// The connection is lost; only the verdict on a complete message is still awaited.
    lost: bool,
    early_talker: bool,
    counters: Counters,
}

impl Session {
    /// A session on a fresh connection. With `peer.tls` set (implicit TLS) STARTTLS is not offered.
    #[must_use]
    pub fn new(role: Role, config: Arc<Config>, peer: Peer, now: Time) -> Self {
        let mode = Mode::Greeting(now + config.greeting_delay);
        let mut session = Session {
            role,
            config,
            peer,
            clock: Clock::new(now),
            mode,
            question: None,
            buffer: InputBuffer::default(),
            out: Vec::new(),
            outputs: VecDeque::new(),
            refused: VecDeque::new(),
            hello: None,
            authenticated: false,
            opened: now,
            mechanisms: String::new(),
            wall: None,
            transaction: None,
            message: None,
            excused: false,
            discarded: 0,
            ending: None,
            lost: false,
            early_talker: false,
            counters: Counters::default(),
        };
        session.greet();
        session
    }

    /// Next output; `None`: nothing to do before the next call. Questions come before held replies, so that an owner who answers at
    /// once gets one `Send` for many commands; an owner who cannot answer yet polls again, which gives the replies so far.
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            // The handshake and the close come after all that was said before them.
            let flush = match self.outputs.front() {
                Some(Output::StartTls | Output::Close(_)) => true,
                Some(_) => return self.outputs.pop_front(),
                None => self.out.len() > self.config.limits.output_buffer_bytes_max,
            };
            if flush && !self.out.is_empty() {
                return Some(Output::Send(core::mem::take(&mut self.out)));
            }
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if self.question.is_some() || !self.step() {
                return (!self.out.is_empty())
                    .then(|| Output::Send(core::mem::take(&mut self.out)));
            }
        }
    }

    /// What was refused since this was asked last, one at a time.
    pub fn take_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    /// Takes bytes from the connection; returns how many were taken: at most [`Session::input_room`].
    #[must_use = "bytes that were not taken must be offered again"]
    pub fn input(&mut self, now: Time, bytes: &[u8]) -> usize {
        self.advance(now);
        let taken = bytes.len().min(self.input_room());
        if taken > 0 {
            self.early_talker |= matches!(self.mode, Mode::Greeting(_));
            if matches!(self.mode, Mode::Data | Mode::Chunk(_)) {
                self.clock.message_bytes(taken);
            }
            self.buffer.push(&bytes[..taken]);
        }
        taken
    }

    /// How many bytes [`Session::input`] would take now. 0: do not read the connection.
    #[must_use]
    pub fn input_room(&self) -> usize {
        let unacknowledged = self
            .message
            .as_ref()
            .is_some_and(|m| m.unacknowledged >= self.config.limits.data_unacknowledged_bytes_max);
        if self.question.is_some() || unacknowledged || matches!(self.mode, Mode::Closed) {
            return 0;
        }
        self.config
            .limits
            .input_buffer_bytes_max
            .max(self.line_bytes_max())
            .saturating_sub(self.buffer.len())
    }

    /// Whether the driver should read the connection.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.input_room() > 0
    }

    /// Bytes held: input not yet read and replies not yet given out. Bounded by the limits whatever the client does.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len() + self.out.len()
    }

    /// The client closed its side, TLS was shut down (also if the connection below it lives on), or the connection broke. What was begun is
    /// aborted, bytes not yet read by the machine are thrown away, and nothing that comes later is read. Only a message that was complete, and whose
    /// verdict is awaited, stands.
    pub fn on_eof(&mut self, now: Time) {
        self.advance(now);
        self.buffer.clear();
        self.out.clear();
        if matches!(self.question, Some(Question::DataEnd)) {
            self.lost = true;
        } else if !matches!(self.mode, Mode::Closed) {
            self.abort(AbortReason::ConnectionLost);
            self.close(CloseReason::ConnectionLost);
        }
    }

    /// The server is going down: 421 at once, or after the message whose end has come.
    pub fn shut_down(&mut self, now: Time) {
        let refusal = Refusal::new(421, Enhanced(3, 2), "Service shutting down");
        self.end(now, refusal, CloseReason::ShuttingDown);
    }

    /// Whoever has logged in may not be here any more: 421 with the reason, at once or after the message whose end has come, which its owner is to refuse.
    pub fn log_out(&mut self, now: Time, why: &str) {
        let refusal = Refusal::new(421, Enhanced(7, 0), why);
        self.end(now, refusal, CloseReason::LoggedOut);
    }

    fn end(&mut self, now: Time, refusal: Refusal, reason: CloseReason) {
        self.advance(now);
        self.ending = Some((refusal, reason));
        self.go_on();
    }

    /// When [`Session::on_time`] wants to be called, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if let Mode::Greeting(at) = self.mode {
            return Some(at);
        }
        let waited = self
            .clock
            .left(self.waiting(), &self.config.limits)
            .map(|left| self.clock.now + left);
        [waited, self.login_deadline()].into_iter().flatten().min()
    }

    /// When whoever has not logged in is sent away.
    fn login_deadline(&self) -> Option<Time> {
        let waits = self.role == Role::Submission
            && !self.authenticated
            && self.question.is_none()
            && !matches!(self.mode, Mode::Closed);
        waits.then(|| self.opened + self.config.limits.login_wait_max)
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Time) {
        self.advance(now);
        if matches!(self.mode, Mode::Greeting(_)) {
            self.greet();
        } else if self
            .clock
            .left(self.waiting(), &self.config.limits)
            .is_some_and(|left| left.is_zero())
            || self.login_deadline().is_some_and(|at| at <= now)
        {
            self.close_with(
                &Refusal::new(421, Enhanced(4, 2), "Timeout, closing connection"),
                CloseReason::Timeout,
                AbortReason::Timeout,
            );
        }
    }

    /// Answer to [`Output::StartTls`]: the handshake is done. RFC 3207 4.2: "the SMTP protocol is reset to the initial state".
    pub fn tls_started(&mut self, now: Time, tls: TlsInfo) {
        self.advance(now);
        if self
            .take_question(|q| matches!(q, Question::StartTls))
            .is_none()
        {
            return;
        }
        assert!(self.buffer.is_empty(), "clear text survived STARTTLS");
        self.peer.tls = Some(tls);
        self.hello = None;
        self.authenticated = false;
        self.transaction = None;
        self.clock.command_done();
        self.go_on();
    }

    /// What this session was created as.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// What is known of the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn greet(&mut self) {
        let Mode::Greeting(at) = self.mode else {
            return;
        };
        if self.early_talker && self.config.refuse_early_talkers {
            self.counters.errors += 1;
            let refusal = Refusal::new(554, Enhanced(5, 1), "Client spoke before the greeting");
            self.close_with(&refusal, CloseReason::EarlyTalker, AbortReason::Protocol);
        } else if self.clock.now >= at {
            let protocol = if self.role == Role::Lmtp {
                "LMTP"
            } else {
                "ESMTP"
            };
            // No name of the software: it helps nobody but those who look for old versions.
            self.reply(&Reply::new(
                220,
                None,
                &format!("{} {protocol}", self.config.host),
            ));
            self.mode = Mode::Command;
        }
    }

    /// Reads a little of what is buffered; false: needs more.
    fn step(&mut self) -> bool {
        match self.mode {
            Mode::Greeting(_) => {
                if self.early_talker {
                    self.greet();
                }
                !matches!(self.mode, Mode::Greeting(_))
            }
            Mode::Command | Mode::Auth => self.step_line(),
            Mode::DiscardLine => {
                let found = self.buffer.discard();
                if found {
                    self.mode = Mode::Command;
                    self.clock.command_done();
                }
                found
            }
            Mode::Data => self.step_data(),
            Mode::Chunk(_) => self.step_chunk(),
            Mode::Closed => false,
        }
    }

    fn line_bytes_max(&self) -> usize {
        let limits = &self.config.limits;
        let auth = self.role == Role::Submission && !self.authenticated;
        limits
            .command_line_bytes_max
            .max(if auth { limits.auth_line_bytes_max } else { 0 })
    }

    fn step_line(&mut self) -> bool {
        match self.buffer.next_line(self.line_bytes_max()) {
            LineStep::Incomplete => return false,
            LineStep::Line(length) => {
                self.clock.command_done();
                match core::mem::replace(&mut self.mode, Mode::Command) {
                    Mode::Auth => self.auth_line(length),
                    _ => self.command_line(length),
                }
            }
            fault => {
                let bdat = is_bdat(self.buffer.unread());
                self.buffer.begin_discard(fault);
                // An AUTH exchange ends here, too.
                let exchange = matches!(
                    core::mem::replace(&mut self.mode, Mode::DiscardLine),
                    Mode::Auth
                );
                self.count_command();
                let refusal = match fault {
                    LineStep::TooLong if exchange => {
                        Refusal::new(500, Enhanced(5, 6), "Authentication exchange line too long")
                    }
                    LineStep::TooLong => Refusal::new(500, Enhanced(5, 2), "Line too long"),
                    _ => Refusal::new(500, Enhanced(5, 2), "Bare CR or LF; lines end with CRLF"),
                };
                if bdat {
                    self.close_with(&refusal, CloseReason::TooMuchData, AbortReason::Protocol);
                } else {
                    self.fail(&refusal);
                }
            }
        }
        true
    }

    fn waiting(&self) -> Waiting {
        match (&self.mode, &self.question) {
            (Mode::Closed | Mode::Greeting(_), _) => Waiting::Not,
            // A handshake that never ends is the client's fault.
            (_, Some(Question::StartTls)) => Waiting::Command,
            _ if !self.wants_input() => Waiting::Not,
            (Mode::Data | Mode::Chunk(_), _) => Waiting::Message,
            (Mode::DiscardLine, _) => Waiting::Line,
            (Mode::Command | Mode::Auth, _) if self.buffer.is_empty() => Waiting::Command,
            (Mode::Command | Mode::Auth, _) => Waiting::Line,
        }
    }

    fn advance(&mut self, now: Time) {
        let waiting = self.waiting();
        self.clock.advance(now, waiting);
    }

    fn ask(&mut self, question: Question, output: Output) {
        assert!(self.question.is_none(), "a question is open");
        self.question = Some(question);
        self.outputs.push_back(output);
    }

    /// The open question, closed. `None`: the session has ended, the answer is late.
    fn take_question(&mut self, expected: impl FnOnce(&Question) -> bool) -> Option<Question> {
        if matches!(self.mode, Mode::Closed) {
            return None;
        }
        let question = self.question.take();
        assert!(
            question.as_ref().is_some_and(expected),
            "answer to a question that is not open: {question:?}"
        );
        question
    }

    /// After an answer: what an end in the meantime has put off.
    fn go_on(&mut self) {
        if self.question.is_none()
            && !matches!(self.mode, Mode::Data | Mode::Chunk(_) | Mode::Closed)
            && let Some((refusal, reason)) = self.ending.take()
        {
            self.close_with(&refusal, reason, AbortReason::Protocol);
        }
    }

    fn reply(&mut self, reply: &Reply) {
        reply.encode(&mut self.out);
    }

    fn say(&mut self, code: u16, enhanced: Enhanced, text: &str) {
        self.reply(&Reply::new(code, Some(enhanced), text));
    }

    /// Notes what is refused: the owner logs it.
    fn note(&mut self, what: &'static str, from: String, to: String, refusal: &Refusal) {
        if self.refused.len() < REFUSED_MAX {
            let reply = refusal.reply().to_string();
            self.refused.push_back(Refused {
                what,
                from,
                to,
                reply,
            });
        }
    }

    fn note_refused_sender(&mut self, from: String, refusal: &Refusal) {
        self.note("sender", from, String::new(), refusal);
    }

    /// Something of the present transaction.
    fn note_refused(&mut self, what: &'static str, to: String, refusal: &Refusal) {
        let transaction = self.transaction.as_ref();
        let from = transaction.map_or_else(String::new, |of| of.mail.from.to_string());
        self.note(what, from, to, refusal);
    }

    /// The message of the present transaction, for all its recipients.
    fn note_refused_message(&mut self, refusal: &Refusal) {
        let to = match &self.transaction {
            Some(transaction) => match transaction.recipients.as_slice() {
                [one] => one.path.to_string(),
                many => format!("{} recipients", many.len()),
            },
            None => String::new(),
        };
        self.note_refused("message", to, refusal);
    }

    /// Replies to a protocol error and counts it.
    fn fail(&mut self, refusal: &Refusal) {
        self.reply(refusal.reply());
        self.counters.errors += 1;
        if self.counters.errors >= self.config.limits.errors_max {
            self.close_with(
                &Refusal::new(421, Enhanced(7, 0), "Too many errors"),
                CloseReason::TooManyErrors,
                AbortReason::Protocol,
            );
        }
    }

    /// A command that needs a transaction and has none.
    fn fail_in_sequence(&mut self, refusal: &Refusal) {
        if self.excused {
            self.reply(refusal.reply());
        } else {
            self.fail(refusal);
        }
    }

    fn count_command(&mut self) {
        self.counters.commands = self.counters.commands.saturating_add(1);
    }

    /// Tells the owner to forget a message that has begun, and drops the transaction.
    fn abort(&mut self, reason: AbortReason) {
        let asked = matches!(self.question, Some(Question::DataBegin));
        let begun = self.message.take().is_some_and(|message| message.begun);
        if begun || asked {
            self.outputs.push_back(Output::DataAbort(reason));
        }
        self.transaction = None;
    }

    fn close_with(&mut self, refusal: &Refusal, reason: CloseReason, abort: AbortReason) {
        if matches!(self.mode, Mode::Closed) {
            return;
        }
        self.reply(refusal.reply());
        self.abort(abort);
        self.close(reason);
    }

    fn close(&mut self, reason: CloseReason) {
        self.mode = Mode::Closed;
        self.question = None;
        self.transaction = None;
        self.buffer.clear();
        self.outputs.push_back(Output::Close(reason));
    }
}

/// Whether a line that cannot be understood announces a chunk: what follows it must not be read as commands.
fn is_bdat(line: &[u8]) -> bool {
    line.get(..4)
        .is_some_and(|verb| verb.eq_ignore_ascii_case(b"BDAT"))
}

#[cfg(test)]
pub(crate) mod tests;
