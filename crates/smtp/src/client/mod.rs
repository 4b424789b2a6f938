//! The client machine: of the relay, of tests, of the simulator and the benchmark.
//!
//! It greets, takes STARTTLS if it may, logs in if it is to, and sends messages one after the other; with PIPELINING the envelope goes out in
//! one piece. The body streams: after [`ClientOutput::WantBody`], [`Client::body`] any number of times, then [`Client::body_end`].
//!
//! A driver polls until `None` before it reads. It bounds its reads, writes and handshakes by [`Client::deadline`], and calls
//! [`Client::on_time`] when that has passed.
//!
//! Invariants:
//! - Each command sent has one entry in the queue of replies awaited (LMTP's end of data has one a recipient), and replies are taken in that
//!   order alone. A reply without such a command ends the session.
//! - For each message given, all recipients are told of once: by [`ClientOutput::Done`], or by the [`Failure`] at the close.
//! - No server makes it hold more than the parser's limits and a few lines for each recipient.
//!
//! Reading order: `types`, this file, `opening` (up to `Ready`), `transaction`, `offers`, `timeouts`, `parser`.

mod offers;
mod opening;
mod parser;
mod timeouts;
mod transaction;
mod types;

pub use offers::{OfferedLimits, Offers};
pub use timeouts::Timeouts;
pub use types::*;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::Time;
use crate::reply::{Refusal, Reply};
use opening::LoginStep;
use parser::ReplyParser;
use transaction::Transfer;

/// Which command the next reply belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Greeting,
    /// EHLO or LHLO.
    Hello,
    /// HELO.
    BasicHello,
    StartTls,
    Auth(LoginStep),
    Mail,
    /// For the recipient of this index.
    Rcpt(usize),
    Data,
    /// A BDAT that is not the last.
    Chunk,
    /// The end of the message: for this recipient (LMTP), or for all.
    End(Option<usize>),
    /// The end of a message that has no recipients.
    EmptyEnd,
    Reset,
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    /// Up to `Ready`.
    Opening,
    /// The handshake is under way: what comes is not SMTP.
    Handshake,
    Ready,
    /// MAIL and RCPT are out.
    Envelope,
    /// The body may be given.
    Body,
    /// All is sent; replies are awaited.
    Ending,
    Closed,
}

/// One connection's client.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: ClientState,
    parser: ReplyParser,
    awaited: VecDeque<Awaited>,
    /// How many of them, the last ones, belong to commands that were not yet given out.
    unsent: usize,
    offers: Arc<Offers>,
    tls: bool,
    /// MAIL commands.
    transactions: u32,
    transfer: Option<Transfer>,
    out: Vec<u8>,
    outputs: VecDeque<ClientOutput>,
    /// Since when what is awaited is awaited.
    since: Time,
}

impl Client {
    /// A client on a fresh connection; it waits for the greeting.
    #[must_use]
    pub fn new(config: ClientConfig, now: Time) -> Self {
        Client {
            state: ClientState::Opening,
            parser: ReplyParser::default(),
            awaited: VecDeque::from([Awaited::Greeting]),
            unsent: 0,
            offers: Arc::default(),
            tls: config.tls,
            transactions: 0,
            transfer: None,
            out: Vec::new(),
            outputs: VecDeque::new(),
            since: now,
            config,
        }
    }

    /// Next output; `None`: nothing before the next call.
    pub fn poll(&mut self) -> Option<ClientOutput> {
        if !self.out.is_empty() {
            self.unsent = 0;
            if let Some(transfer) = &mut self.transfer {
                transfer.given_out();
            }
            return Some(ClientOutput::Send(core::mem::take(&mut self.out)));
        }
        self.outputs.pop_front()
    }

    /// Bytes from the server, in any split.
    pub fn input(&mut self, now: Time, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != ClientState::Closed {
            // RFC 3207 4.2: nothing said in the clear counts after the handshake.
            if self.state == ClientState::Handshake {
                let error = ClientError::InvalidReply("bytes behind the reply to STARTTLS");
                return self.fail(self.stage(), error);
            }
            match self.parser.next(&mut rest) {
                Ok(Some(reply)) => {
                    self.since = self.since.max(now);
                    self.reply(reply);
                }
                Ok(None) => return,
                Err(error) => return self.fail(self.stage(), ClientError::InvalidReply(error)),
            }
        }
    }

    /// The connection ended, or broke, or the handshake failed.
    pub fn on_eof(&mut self) {
        self.end(ClientError::ConnectionLost);
    }

    /// Until when the server has to answer, to take what was given to send, or to do the handshake. `None`: nothing is asked of it. While
    /// a body is wanted this is about the bytes given to send alone: how long the caller takes for the next is its own affair.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timeout().map(|timeout| self.since + timeout)
    }

    /// The wait that [`Client::deadline`] ends, whole: a pure function of what is awaited.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let timeouts = &self.config.timeouts;
        Some(match (self.state, self.awaited.front()) {
            (ClientState::Closed | ClientState::Ready, _) => return None,
            (ClientState::Handshake, _) => timeouts.handshake,
            (ClientState::Body, _) => timeouts.block,
            (_, Some(Awaited::Greeting)) => timeouts.greeting,
            (_, Some(Awaited::Hello | Awaited::BasicHello)) => timeouts.hello,
            (_, Some(Awaited::StartTls)) => timeouts.starttls,
            (_, Some(Awaited::Auth(_))) => timeouts.auth,
            (_, Some(Awaited::Mail)) => timeouts.mail,
            (_, Some(Awaited::Rcpt(_))) => timeouts.rcpt,
            (_, Some(Awaited::Data)) => timeouts.data,
            (_, Some(Awaited::Chunk | Awaited::End(_) | Awaited::EmptyEnd)) => timeouts.end,
            (_, Some(Awaited::Reset)) => timeouts.reset,
            (_, Some(Awaited::Quit)) => timeouts.quit,
            (_, None) => return None,
        })
    }

    /// Time has passed: after the deadline the session fails.
    pub fn on_time(&mut self, now: Time) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.end(ClientError::Timeout);
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Whether TLS is active.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// MAIL commands so far.
    #[must_use]
    pub fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Ends the session. Only after [`ClientOutput::Ready`].
    ///
    /// # Panics
    /// If a message is on its way.
    pub fn quit(&mut self, now: Time) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Ready, "a message is on its way");
        self.since = self.since.max(now);
        self.say_quit();
    }

    fn say_quit(&mut self) {
        self.state = ClientState::Ending;
        self.command("QUIT", Awaited::Quit);
    }

    fn command(&mut self, line: &str, awaited: Awaited) {
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self.await_reply(awaited);
    }

    /// A reply to what was just put into `out`.
    fn await_reply(&mut self, awaited: Awaited) {
        self.awaited.push_back(awaited);
        self.unsent += 1;
    }

    /// A message may be sent, or the server takes no more of them.
    fn ready(&mut self) {
        let limit = self.offers.limits.mail_max;
        if limit.is_some_and(|max| self.transactions >= max) {
            return self.say_quit();
        }
        self.state = ClientState::Ready;
        self.outputs
            .push_back(ClientOutput::Ready(Arc::clone(&self.offers)));
    }

    /// What the session is about now.
    fn stage(&self) -> Stage {
        let sent = self.awaited.len() > self.unsent;
        match self.awaited.front() {
            Some(Awaited::Greeting) => Stage::Greeting,
            Some(Awaited::Hello | Awaited::BasicHello) => Stage::Hello,
            Some(Awaited::StartTls) => Stage::StartTls,
            Some(Awaited::Auth(_)) => Stage::Auth,
            Some(Awaited::Mail) if !sent => Stage::Idle,
            Some(Awaited::Mail) => Stage::Mail,
            Some(Awaited::Rcpt(_)) => Stage::Rcpt,
            Some(Awaited::Data) => Stage::Data,
            Some(Awaited::Chunk | Awaited::End(_)) => match &self.transfer {
                Some(transfer) if transfer.end_was_sent() => Stage::End,
                _ => Stage::Body,
            },
            Some(Awaited::EmptyEnd | Awaited::Reset) => Stage::Reset,
            Some(Awaited::Quit) => Stage::Quit,
            None => match self.state {
                ClientState::Handshake => Stage::Handshake,
                ClientState::Body => Stage::Body,
                _ => Stage::Idle,
            },
        }
    }

    /// No reply will come.
    fn end(&mut self, error: ClientError) {
        if self.awaited.front() == Some(&Awaited::Quit) {
            self.close(Ok(()));
        } else {
            self.fail(self.stage(), error);
        }
    }

    fn fail(&mut self, stage: Stage, error: ClientError) {
        if self.state == ClientState::Closed {
            return;
        }
        let answered = self.transfer.as_ref().is_some_and(Transfer::is_answered);
        let ended = match &error {
            ClientError::ConnectionLost | ClientError::Timeout => true,
            ClientError::Refused(refusal) => refusal.reply().code() == 421,
            _ => false,
        };
        let used = self.transfer.is_some() && self.transactions > 1 && !answered;
        let unfinished = self.transfer.take().and_then(|transfer| {
            let fates = transfer.fates();
            let decided = |fate: &Fate| match fate {
                Fate::Decided(decision) => Some(decision.clone()),
                _ => None,
            };
            match fates.iter().map(decided).collect::<Option<Vec<_>>>() {
                Some(recipients) => {
                    self.outputs
                        .push_back(ClientOutput::Done(Outcome { recipients }));
                    None
                }
                None => Some(fates),
            }
        });
        // RFC 5321 4.1.1.10: "The sender MUST NOT intentionally close the transmission channel until it sends a QUIT command".
        let polite = match &error {
            ClientError::Refused(_) => !ended,
            ClientError::NoAuth | ClientError::NoStartTls => true,
            _ => false,
        };
        self.close(Err(Box::new(Failure {
            error,
            stage,
            stale: ended && (stage == Stage::Idle || used),
            unfinished,
        })));
        if polite {
            self.out.extend_from_slice(b"QUIT\r\n");
        }
    }

    fn close(&mut self, result: Result<(), Box<Failure>>) {
        if self.state != ClientState::Closed {
            self.state = ClientState::Closed;
            self.awaited.clear();
            self.unsent = 0;
            self.out.clear();
            // What was to be done is not any more.
            self.outputs.retain(|output| {
                !matches!(
                    output,
                    ClientOutput::Ready(_) | ClientOutput::WantBody | ClientOutput::StartTls
                )
            });
            self.outputs.push_back(ClientOutput::Close(result));
        }
    }

    fn reply(&mut self, reply: Reply) {
        let stage = self.stage();
        let code = reply.code();
        // A command that was not given out has no reply yet, either.
        if self.awaited.len() <= self.unsent {
            let error = match Refusal::from_reply(reply) {
                Ok(refusal) if code == 421 => ClientError::Refused(refusal),
                _ => ClientError::InvalidReply("a reply to nothing"),
            };
            return self.fail(stage, error);
        }
        let Some(awaited) = self.awaited.pop_front() else {
            unreachable!("there are more than the unsent ones");
        };
        let fitting = match (code / 100, awaited) {
            // An acceptance of DATA, and of nothing else.
            (3, Awaited::Data) => code == 354,
            (3, Awaited::Auth(_)) => code == 334,
            (3, _) => false,
            _ => true,
        };
        if !fitting {
            let error = "an intermediate reply where none is due";
            return self.fail(stage, ClientError::InvalidReply(error));
        }
        if awaited == Awaited::Data && reply.is_positive() {
            return self.fail(stage, ClientError::InvalidReply("DATA is answered by 354"));
        }
        let result = Refusal::from_reply(reply).map_or_else(Ok, Err);
        // RFC 5321 3.8: 421 may come in answer to anything, and the connection is closed.
        if let Err(refusal) = &result
            && code == 421
            && awaited != Awaited::Quit
        {
            if let (Awaited::End(recipient), Some(transfer)) = (awaited, &mut self.transfer) {
                transfer.end_reply(recipient, &result);
            }
            return self.fail(stage, ClientError::Refused(refusal.clone()));
        }
        match (awaited, result) {
            (Awaited::Quit, _) => self.close(Ok(())),
            (Awaited::Reset, Err(refusal)) => self.fail(stage, ClientError::Refused(refusal)),
            (Awaited::Reset | Awaited::EmptyEnd, _) => self.ready(),
            (
                Awaited::Greeting
                | Awaited::Hello
                | Awaited::BasicHello
                | Awaited::StartTls
                | Awaited::Auth(_),
                result,
            ) => self.opening_reply(stage, awaited, result),
            (awaited, result) => self.message_reply(awaited, result),
        }
    }
}

#[cfg(test)]
mod tests;
