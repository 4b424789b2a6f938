//! Questions: attempts at one server after the other, by UDP, and by TCP where UDP does not do.
//!
//! A question goes round over the servers, from the one that has answered last, and waits longer each time. A server that has answered without an answer
//! is left out from then on: it would say the same.

use core::time::Duration;
use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use bytes::Bytes;

use super::{QuestionId, Resolver};
use crate::{
    api::{DATAGRAM_BYTES_MAX, Failure, GUESSES_MAX, Output, Socket, Stream, Ticket},
    cache::Key,
    message::{self, Asked, End, Head, Manner, Match, Reading},
    mutants::broken,
};

/// Octets before a message on a connection: its length (RFC 1035 4.2.2).
const LENGTH_BYTES: usize = 2;

/// One name, one kind of records.
#[derive(Clone, Debug)]
pub(super) struct Question {
    key: Key,
    /// Who waits for it.
    tickets: BTreeSet<Ticket>,
    attempt: Attempt,
    /// The server of the first attempt.
    first: usize,
    /// Attempts at other servers since then, those that were left out among them.
    step: usize,
    /// Servers that have answered without an answer.
    spent: BTreeSet<usize>,
    edns: bool,
    /// What the last of them has said.
    failure: Option<Failure>,
}

/// What a question waits for.
#[derive(Clone, Debug)]
enum Attempt {
    /// A place.
    Queued,
    Datagram {
        socket: Socket,
        id: u16,
        asked: Asked,
        until: Duration,
        /// Datagrams that somebody has made up.
        guesses: u32,
    },
    /// A connection's place.
    QueuedForStream { tests_case: bool },
    Stream {
        stream: Stream,
        id: u16,
        asked: Asked,
        until: Duration,
        /// What has arrived, at most one message.
        arrived: Vec<u8>,
        /// This server's datagram had another case of letters.
        tests_case: bool,
    },
}

impl Resolver {
    /// Joins the question, which may be new.
    pub(super) fn wait_for(&mut self, key: Key, ticket: Ticket) -> QuestionId {
        if let Some(id) = self
            .by_key
            .get(&key)
            .copied()
            .filter(|_| !broken("questions-not-joined"))
            && let Some(question) = self.questions.get_mut(&id)
        {
            self.counters.joined += 1;
            question.tickets.insert(ticket);
            return id;
        }
        let id = self.number();
        self.by_key.insert(key.clone(), id);
        let question = Question {
            key,
            tickets: BTreeSet::from([ticket]),
            attempt: Attempt::Queued,
            first: 0,
            step: 0,
            spent: BTreeSet::new(),
            edns: true,
            failure: None,
        };
        self.questions.insert(id, question);
        self.queued.insert(id);
        id
    }

    /// A lookup waits for it no longer. Without any, it goes.
    pub(super) fn leave(&mut self, id: QuestionId, ticket: Ticket) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.tickets.remove(&ticket);
            if question.tickets.is_empty() {
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: QuestionId) -> Option<Question> {
        self.end_attempt(id);
        let question = self.questions.remove(&id)?;
        self.queued.remove(&id);
        if self.by_key.get(&question.key) == Some(&id) {
            self.by_key.remove(&question.key);
        }
        Some(question)
    }

    /// Gives places to those who wait, first come, first served.
    pub(super) fn begin_queued(&mut self) {
        while self.questions.len() - self.queued.len() < self.config.questions_max
            || broken("questions-unbounded")
        {
            let Some(id) = self.queued.pop_first() else {
                break;
            };
            if let Some(question) = self.questions.get_mut(&id) {
                question.first = self.preferred;
                self.ask_by_datagram(id);
            }
        }
        while self.streams.len() < self.config.streams_max {
            let Some(id) = self.queued_for_stream.pop_first() else {
                break;
            };
            let attempt = self.questions.get(&id).map(|question| &question.attempt);
            let tests_case = matches!(attempt, Some(Attempt::QueuedForStream { tests_case: true }));
            self.connect(id, tests_case);
        }
    }

    /// The server that the question is at.
    fn server_of(&self, question: &Question) -> (usize, SocketAddr) {
        let at = (question.first + question.step) % self.config.servers.len();
        (at, self.config.servers[at])
    }

    /// How long an answer is waited for in this round.
    fn timeout_of(&self, question: &Question) -> Duration {
        let round = u32::try_from(question.step / self.config.servers.len()).unwrap_or(u32::MAX);
        let timeout = self
            .config
            .timeout
            .saturating_mul(2_u32.saturating_pow(round));
        timeout.min(self.config.timeout_max)
    }

    fn manner_of(&self, question: &Question) -> Manner {
        Manner {
            edns: question.edns,
            authentic: self.config.authentic,
        }
    }

    fn ask_by_datagram(&mut self, id: QuestionId) {
        let socket = Socket(self.number());
        let message_id = self.random.number();
        let Some(question) = self.questions.get(&id) else {
            return;
        };
        let (at, server) = self.server_of(question);
        let until = self.now.saturating_add(self.timeout_of(question));
        // Later rounds do without: they are for servers with which something is wrong.
        let is_first_round = question.step < self.config.servers.len();
        let mixed = self.config.mixed_case && is_first_round && !self.loses_case.contains(&at);
        let asked = message::asked(&question.key.0, mixed.then_some(&mut self.random));
        let bytes = Bytes::from(message::question(
            message_id,
            &asked,
            question.key.1,
            self.manner_of(question),
        ));
        if broken("two-servers-at-once") {
            let other = self.config.servers[(at + 1) % self.config.servers.len()];
            self.numbers += 1;
            let socket = Socket(self.numbers);
            self.sockets.insert(socket, id);
            self.out.push_back(Output::Send {
                socket,
                server: other,
                bytes: bytes.clone(),
            });
        }
        self.counters.sent += 1;
        self.sockets.insert(socket, id);
        self.timers.insert((until, id));
        self.out.push_back(Output::Send {
            socket,
            server,
            bytes,
        });
        if let Some(question) = self.questions.get_mut(&id) {
            question.attempt = Attempt::Datagram {
                socket,
                id: message_id,
                asked,
                until,
                guesses: 0,
            };
        }
    }

    /// Asks the same server by TCP, at once or when there is room.
    fn ask_by_stream(&mut self, id: QuestionId, tests_case: bool) {
        self.end_attempt(id);
        if self.streams.len() < self.config.streams_max || broken("streams-unbounded") {
            self.connect(id, tests_case);
        } else if let Some(question) = self.questions.get_mut(&id) {
            question.attempt = Attempt::QueuedForStream { tests_case };
            self.queued_for_stream.insert(id);
        }
    }

    fn connect(&mut self, id: QuestionId, tests_case: bool) {
        let stream = Stream(self.number());
        let message_id = self.random.number();
        let Some(question) = self.questions.get(&id) else {
            return;
        };
        let (_, server) = self.server_of(question);
        let until = self.now.saturating_add(self.timeout_of(question));
        // With it, the answer tells whether the server keeps the case.
        let asked = message::asked(&question.key.0, tests_case.then_some(&mut self.random));
        self.counters.connections += 1;
        self.streams.insert(stream, id);
        self.timers.insert((until, id));
        self.out.push_back(Output::Connect { stream, server });
        if let Some(question) = self.questions.get_mut(&id) {
            let arrived = Vec::new();
            question.attempt = Attempt::Stream {
                stream,
                id: message_id,
                asked,
                until,
                arrived,
                tests_case,
            };
        }
    }

    /// Gives back what the attempt has.
    fn end_attempt(&mut self, id: QuestionId) {
        let Some(question) = self.questions.get_mut(&id) else {
            return;
        };
        match core::mem::replace(&mut question.attempt, Attempt::Queued) {
            Attempt::Queued => {}
            Attempt::Datagram { socket, until, .. } => {
                self.timers.remove(&(until, id));
                if self.sockets.remove(&socket).is_some() {
                    self.out.push_back(Output::Shut(socket));
                }
            }
            Attempt::QueuedForStream { .. } => {
                self.queued_for_stream.remove(&id);
            }
            Attempt::Stream { stream, until, .. } => {
                self.timers.remove(&(until, id));
                if self.streams.remove(&stream).is_some() {
                    self.out.push_back(Output::Close(stream));
                }
            }
        }
    }

    pub(super) fn end_attempts_in_time(&mut self) {
        while let Some((until, id)) = self.timers.first().copied() {
            if until > self.now {
                return;
            }
            self.on_silence(id);
        }
    }

    /// The server does not answer: the next one is asked, and this one perhaps again.
    fn on_silence(&mut self, id: QuestionId) {
        self.counters.timeouts += 1;
        self.go_to_next(id);
    }

    /// The server has answered without an answer.
    fn on_failure(&mut self, id: QuestionId, failure: Failure) {
        self.counters.bad_answers += 1;
        if let Some(question) = self.questions.get(&id) {
            let (at, _) = self.server_of(question);
            if let Some(question) = self.questions.get_mut(&id) {
                question.spent.insert(at);
                question.failure = Some(failure);
            }
        }
        self.go_to_next(id);
    }

    fn go_to_next(&mut self, id: QuestionId) {
        self.end_attempt(id);
        let Some(question) = self.questions.get_mut(&id) else {
            return;
        };
        let servers = self.config.servers.len();
        let attempts = usize::try_from(self.config.attempts).unwrap_or(usize::MAX);
        let steps = servers.saturating_mul(attempts);
        loop {
            question.step += 1;
            if question.step >= steps || question.spent.len() == servers {
                let failure = question.failure.unwrap_or(Failure::Timeout);
                return self.finish(id, Err(failure));
            }
            if !question
                .spent
                .contains(&((question.first + question.step) % servers))
            {
                return self.ask_by_datagram(id);
            }
        }
    }

    /// There is an answer, or no hope of one.
    fn finish(&mut self, id: QuestionId, result: Result<Reading, Failure>) {
        let Some(question) = self.remove(id) else {
            return;
        };
        let result = match result {
            Err(_) if broken("failure-is-no-name") => Ok(Reading {
                aliases: Vec::new(),
                end: End::NoName,
                ttl: 60,
                authentic: false,
            }),
            result => result,
        };
        let result = result.map(|reading| {
            let longest = match reading.end {
                _ if broken("ttl-unbounded") => Duration::MAX,
                End::Records(_) | End::Open => self.config.ttl_max,
                End::NoName | End::NoData => self.config.negative_ttl_max,
            };
            let ttl = Duration::from_secs(reading.ttl.into()).min(longest);
            (Arc::new(reading), ttl)
        });
        match &result {
            Ok((reading, ttl)) => self
                .cache
                .keep(question.key, reading.clone(), *ttl, self.now),
            Err(failure) => self.cache.hold(question.key, *failure, self.now),
        }
        for ticket in question.tickets {
            self.learn(ticket, &result);
        }
    }

    pub(super) fn on_unreachable(&mut self, socket: Socket) {
        if let Some(id) = self.sockets.get(&socket).copied() {
            self.on_silence(id);
        }
    }

    pub(super) fn on_datagram(&mut self, socket: Socket, from: SocketAddr, bytes: &[u8]) {
        if !self.try_datagram(socket, from, bytes) {
            self.counters.unmatched += 1;
        }
    }

    /// False: it answers nothing.
    fn try_datagram(&mut self, socket: Socket, from: SocketAddr, bytes: &[u8]) -> bool {
        let Some(id) = self.sockets.get(&socket).copied() else {
            return false;
        };
        let Some(question) = self.questions.get(&id) else {
            return false;
        };
        let (at, server) = self.server_of(question);
        if !is_same(server, from) && !broken("server-not-checked") {
            return false;
        }
        let Attempt::Datagram {
            id: message_id,
            asked,
            ..
        } = &question.attempt
        else {
            return false;
        };
        let head = (bytes.len() <= DATAGRAM_BYTES_MAX)
            .then(|| Head::read(bytes))
            .flatten();
        let head = head.filter(|head| head.id == *message_id || broken("id-not-checked"));
        let matches = head
            .as_ref()
            .map_or(Match::No, |head| head.matches(asked, question.key.1));
        let Some(head) = head.filter(|_| matches != Match::No) else {
            self.on_guess(id);
            return false;
        };
        if matches == Match::OtherCase {
            self.counters.other_case += 1;
            self.ask_by_stream(id, true);
        } else if head.is_format_error() && question.edns {
            self.ask_without_edns(id);
        } else if head.truncated && !broken("truncated-taken") {
            self.counters.truncated += 1;
            self.ask_by_stream(id, false);
        } else {
            let reading = message::read(bytes, &head, &question.key.0, question.key.1);
            self.on_reading(id, at, reading);
        }
        true
    }

    /// Somebody answers in the server's name who has not seen the question. By TCP it takes more than luck.
    fn on_guess(&mut self, id: QuestionId) {
        let Some(Question {
            attempt: Attempt::Datagram { guesses, .. },
            ..
        }) = self.questions.get_mut(&id)
        else {
            return;
        };
        *guesses += 1;
        if *guesses >= GUESSES_MAX && !broken("guesses-unbounded") {
            self.ask_by_stream(id, false);
        }
    }

    /// RFC 6891 6.2.2: a server that does not know EDNS says FORMERR, and is asked once more without.
    fn ask_without_edns(&mut self, id: QuestionId) {
        self.counters.without_edns += 1;
        self.end_attempt(id);
        if let Some(question) = self.questions.get_mut(&id) {
            question.edns = false;
        }
        self.ask_by_datagram(id);
    }

    fn on_reading(&mut self, id: QuestionId, server: usize, reading: Result<Reading, Failure>) {
        match reading {
            Ok(reading) => {
                self.preferred = server;
                self.finish(id, Ok(reading));
            }
            Err(failure) => self.on_failure(id, failure),
        }
    }

    pub(super) fn on_connected(&mut self, stream: Stream) {
        let Some(question) = self
            .streams
            .get(&stream)
            .and_then(|id| self.questions.get(id))
        else {
            return;
        };
        if let Attempt::Stream { id, asked, .. } = &question.attempt {
            let message = message::question(*id, asked, question.key.1, self.manner_of(question));
            let length = u16::try_from(message.len()).expect("a question is short");
            let bytes = [&length.to_be_bytes()[..], &message].concat();
            self.out.push_back(Output::Write(stream, bytes.into()));
        }
    }

    pub(super) fn on_bytes(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(id) = self.streams.get(&stream).copied() else {
            return;
        };
        let Some(Question {
            attempt: Attempt::Stream { arrived, .. },
            ..
        }) = self.questions.get_mut(&id)
        else {
            return;
        };
        // The length may come in two parts. What is behind the message is not looked at: it was not asked for.
        let mut rest = bytes;
        while let Some(wanted) = wanted(arrived).filter(|wanted| *wanted > 0) {
            let (taken, behind) = rest.split_at(wanted.min(rest.len()));
            if taken.is_empty() {
                return;
            }
            arrived.extend_from_slice(taken);
            rest = behind;
        }
        let message = arrived.split_off(LENGTH_BYTES);
        self.on_message(id, &message);
    }

    /// A message has come by TCP.
    fn on_message(&mut self, id: QuestionId, bytes: &[u8]) {
        let Some(question) = self.questions.get(&id) else {
            return;
        };
        let Attempt::Stream {
            id: message_id,
            asked,
            tests_case,
            ..
        } = &question.attempt
        else {
            return;
        };
        let (at, _) = self.server_of(question);
        let head = Head::read(bytes).filter(|head| head.id == *message_id && !head.truncated);
        let matches = head
            .as_ref()
            .map_or(Match::No, |head| head.matches(asked, question.key.1));
        let Some(head) = head.filter(|_| matches != Match::No) else {
            return self.on_failure(id, Failure::Malformed);
        };
        if *tests_case && matches == Match::OtherCase {
            self.loses_case.insert(at);
        }
        if head.is_format_error() && question.edns {
            return self.ask_without_edns(id);
        }
        let reading = message::read(bytes, &head, &question.key.0, question.key.1);
        self.on_reading(id, at, reading);
    }

    pub(super) fn on_closed(&mut self, stream: Stream) {
        if let Some(id) = self.streams.remove(&stream) {
            self.on_silence(id);
        }
    }
}

/// Octets that are still missing at the end of the length, or of the message that it announces. None are: it is complete.
fn wanted(arrived: &[u8]) -> Option<usize> {
    match arrived {
        [upper, lower, message @ ..] => {
            let length = usize::from(u16::from_be_bytes([*upper, *lower]));
            length.checked_sub(message.len())
        }
        _ => Some(LENGTH_BYTES - arrived.len()),
    }
}

/// Sockets may tell of an address of IPv4 as one of IPv6, and of flows.
fn is_same(server: SocketAddr, from: SocketAddr) -> bool {
    server.ip().to_canonical() == from.ip().to_canonical() && server.port() == from.port()
}
