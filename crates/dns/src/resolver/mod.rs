//! The machine. It is deterministic, and knows neither sockets nor clocks.
//!
//! A *lookup* belongs to a ticket. It goes from alias to alias, and at each name takes what the cache has or waits for a *question*. A question asks one
//! name for one kind of records, on behalf of any number of lookups. It makes *attempts*, one after the other.
//!
//! Invariants:
//! - A question has one attempt at a time, and an attempt has one socket or one connection: no two servers are ever asked the same at once. Servers that
//!   are asked side by side can each be in the midst of an answer by TCP when the other's arrives.
//! - Each attempt has an id and a socket of its own. An answer counts when socket, server, id and question are those of the attempt.
//! - A question is here while a lookup waits for it, and a lookup waits for one question at most.
//! - What is no answer is never kept as one. A failure is held for a while, and says of the name neither that it is nor that it is not.
//!
//! Reading order: this file, `lookups`, `questions`.

mod lookups;
mod questions;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    api::{Config, Counters, Input, Output, SERVERS_MAX, Socket, Stream, Ticket},
    cache::{Cache, Key, Limits},
    random::Random,
};

/// Names a question. They are counted up.
type QuestionId = u64;

/// A stub resolver.
#[derive(Clone, Debug)]
pub struct Resolver {
    config: Config,
    random: Random,
    now: Duration,
    lookups: BTreeMap<Ticket, lookups::Lookup>,
    /// When lookups have taken too long.
    patience: BTreeSet<(Duration, Ticket)>,
    questions: BTreeMap<QuestionId, questions::Question>,
    by_key: BTreeMap<Key, QuestionId>,
    /// When attempts have.
    timers: BTreeSet<(Duration, QuestionId)>,
    sockets: BTreeMap<Socket, QuestionId>,
    streams: BTreeMap<Stream, QuestionId>,
    /// Questions that wait for a place, and those of them that have one and wait for a connection.
    queued: BTreeSet<QuestionId>,
    queued_for_stream: BTreeSet<QuestionId>,
    /// The server that has answered last.
    preferred: usize,
    /// Servers that do not keep the case of a question.
    loses_case: BTreeSet<usize>,
    cache: Cache,
    /// The last number that a question, a socket or a connection got.
    numbers: u64,
    counters: Counters,
    out: VecDeque<Output>,
}

impl Resolver {
    /// A resolver that knows nothing yet. The seed must be one that nobody can guess: ids and the case of letters follow from it.
    #[must_use]
    pub fn new(mut config: Config, seed: [u8; 32]) -> Self {
        config.servers.truncate(SERVERS_MAX);
        config.attempts = config.attempts.max(1);
        config.questions_max = config.questions_max.max(1);
        config.streams_max = config.streams_max.max(1);
        let limits = Limits {
            entries_max: config.cache_entries_max,
            bytes_max: config.cache_bytes_max,
            hold: config.failure_hold,
            hold_max: config.failure_hold_max,
        };
        Resolver {
            config,
            random: Random::new(seed),
            now: Duration::ZERO,
            lookups: BTreeMap::new(),
            patience: BTreeSet::new(),
            questions: BTreeMap::new(),
            by_key: BTreeMap::new(),
            timers: BTreeSet::new(),
            sockets: BTreeMap::new(),
            streams: BTreeMap::new(),
            queued: BTreeSet::new(),
            queued_for_stream: BTreeSet::new(),
            preferred: 0,
            loses_case: BTreeSet::new(),
            cache: Cache::new(limits),
            numbers: 0,
            counters: Counters::default(),
            out: VecDeque::new(),
        }
    }

    /// Something has happened.
    pub fn handle(&mut self, now: Duration, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Time => {}
            Input::Ask { ticket, name, kind } => self.on_ask(ticket, name, kind),
            Input::Cancel(ticket) => self.on_cancel(ticket),
            Input::Datagram {
                socket,
                from,
                bytes,
            } => self.on_datagram(socket, from, &bytes),
            Input::Unreachable(socket) => self.on_unreachable(socket),
            Input::Connected(stream) => self.on_connected(stream),
            Input::Bytes(stream, bytes) => self.on_bytes(stream, &bytes),
            Input::Closed(stream) => self.on_closed(stream),
        }
        self.end_attempts_in_time();
        self.end_lookups_in_time();
        self.begin_queued();
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Input::Time`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let attempt = self.timers.first().map(|(at, _)| *at);
        let lookup = self.patience.first().map(|(at, _)| *at);
        attempt.into_iter().chain(lookup).min()
    }

    /// Lookups that have no answer yet.
    #[must_use]
    pub fn lookups(&self) -> usize {
        self.lookups.len()
    }

    /// Answers and failures that are kept.
    #[must_use]
    pub fn cache_entries(&self) -> usize {
        self.cache.len()
    }

    /// Bytes of memory that they take, about.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}
