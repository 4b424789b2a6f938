//! The machine: one node's part of the queue. It is deterministic, and knows neither sockets nor disks nor clocks.
//!
//! Invariants, by which the modules speak of themselves:
//! - A. *Everything that is said is durable* (`say`): a node says that it holds or has dropped a tuple when its disk says so.
//! - B. *Holders*: a node that is to get a tuple is in the sender's durable set of holders before it goes; but for the first sending of a put. Sets are
//!   joined wherever two nodes meet (`meet`).
//! - C. *A rewritten list of owners is durable before it is sent* (`say`, `put::rewrite`).
//! - D. *A copy goes only by the word of the acting owner, or when the tuple is done* (`finish`).
//! - E. *What is done is a tombstone* until all that may hold a copy have said that theirs is gone (`finish`).
//! - F. *Progress is joined*, never replaced (`meet`).
//!
//! Reading order: `put`, `say`, `meet`, `finish`; `peers`; `adopt`, `start`; `compare`; `waves`; `agenda`.

mod adopt;
mod agenda;
mod compare;
mod finish;
mod meet;
mod peers;
mod put;
mod say;
mod start;
mod waves;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
};

use bytes::Bytes;
pub use peers::PeerState;

use crate::{
    api::{Config, Counters, Input, Output, Refusal, Start, Ticket},
    frame::Frame,
    table::{Flag, Row, Table},
    types::{Id, Node, Nodes, Now, Ownership},
};

/// A node's part of the queue.
#[derive(Clone, Debug)]
pub struct Queue {
    config: Config,
    me: Node,
    life: u32,
    members: Nodes,
    /// Its own numbers in earlier lives.
    former: Nodes,
    excluded: Nodes,
    now: Now,
    random: u64,
    /// Rows that waves count.
    tracked: Table,
    /// The others.
    untracked: Table,
    progress: BTreeMap<Id, Bytes>,
    tombs: BTreeMap<Id, finish::Tombstone>,
    /// When tombstones are to be written.
    tomb_times: VecDeque<(u64, Id)>,
    busy: BTreeMap<Id, say::Busy>,
    /// What is to be written when the input is over.
    touched: Vec<Id>,
    /// Writes that the disk has refused, by when it is asked again.
    retries: BTreeSet<(u64, Id)>,
    puts: BTreeMap<Ticket, put::Put>,
    waiting: BTreeMap<Id, put::Waiting>,
    waiting_bytes: usize,
    /// When owners that have not answered are replaced.
    late: BTreeSet<(u64, Id)>,
    /// What peers have refused, by when they get it again.
    resend: BTreeSet<(u64, Id, Node)>,
    peers: BTreeMap<Node, peers::Peer>,
    /// When time alone changes what this node thinks of a peer. Until then, and unless one is heard anew, nobody looks at them.
    peers_due: u64,
    /// Peers with which it compares.
    comparing: Nodes,
    /// Stores that are not answered.
    stores: BTreeMap<Id, Nodes>,
    /// Payloads to be read, and for whom.
    loads: BTreeSet<(Id, Node)>,
    reading: BTreeMap<Id, Nodes>,
    /// Bytes that may be sent again at once, and since when.
    rate_left: i64,
    rate_at: u64,
    rounds: adopt::Rounds,
    walk: adopt::Walk,
    /// Until when it was last looked which peers are missing for long.
    repair_seen: u64,
    /// Who has no copy of what is in doubt.
    doubts: BTreeMap<Id, Nodes>,
    gate: start::Gate,
    waves: waves::Waves,
    agenda: agenda::Agenda,
    /// Tuples that the application has.
    handed: usize,
    /// Peers that were asked to do something with a tuple of this node.
    asked: BTreeMap<Id, Nodes>,
    /// Tuples of others that the application works on, and how often.
    holding: BTreeMap<Id, u32>,
    /// It says goodbye, for so long.
    leaving: Option<u64>,
    counters: Counters,
    out: VecDeque<Output>,
}

impl Hash for Queue {
    /// All but the configuration, the counters, and what follows from the rest.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.me, self.life, self.members, self.excluded, self.now).hash(state);
        (self.random, &self.tracked, &self.untracked, &self.progress).hash(state);
        (
            &self.tombs,
            &self.tomb_times,
            &self.busy,
            &self.touched,
            &self.retries,
        )
            .hash(state);
        (
            &self.puts,
            &self.waiting,
            &self.late,
            &self.peers,
            &self.stores,
        )
            .hash(state);
        (&self.peers, &self.stores).hash(state);
        (&self.loads, &self.reading, self.rate_left, self.rate_at).hash(state);
        (
            &self.rounds,
            &self.walk,
            self.repair_seen,
            &self.doubts,
            self.gate,
        )
            .hash(state);
        (
            &self.waves,
            &self.agenda,
            self.handed,
            &self.asked,
            &self.holding,
        )
            .hash(state);
        (self.leaving, &self.out).hash(state);
    }
}

impl Queue {
    /// A node that starts. What its disk holds comes by [`Queue::load`], then [`Queue::begin`].
    #[must_use]
    pub fn new(config: Config, start: Start, now: Now) -> Queue {
        let mut queue = Queue {
            config,
            me: start.me,
            life: start.life.max(1),
            members: start.members.with(start.me),
            former: start.former.without(start.me),
            excluded: Nodes::NONE,
            now,
            random: start.seed,
            tracked: Table::default(),
            untracked: Table::default(),
            progress: BTreeMap::new(),
            tombs: BTreeMap::new(),
            tomb_times: VecDeque::new(),
            busy: BTreeMap::new(),
            touched: Vec::new(),
            retries: BTreeSet::new(),
            puts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            late: BTreeSet::new(),
            resend: BTreeSet::new(),
            peers: BTreeMap::new(),
            peers_due: 0,
            comparing: Nodes::NONE,
            stores: BTreeMap::new(),
            loads: BTreeSet::new(),
            reading: BTreeMap::new(),
            rate_left: i64::try_from(config.repair_rate).unwrap_or(i64::MAX),
            rate_at: now.monotonic,
            rounds: adopt::Rounds::default(),
            walk: adopt::Walk::default(),
            repair_seen: now.monotonic,
            doubts: BTreeMap::new(),
            gate: start::Gate::Loading,
            waves: waves::Waves::new(start.seed << 16, now.monotonic),
            agenda: agenda::Agenda::default(),
            handed: 0,
            asked: BTreeMap::new(),
            holding: BTreeMap::new(),
            leaving: None,
            counters: Counters::default(),
            out: VecDeque::new(),
        };
        queue.walk.next_at = now.monotonic + config.ask_every;
        queue.add_peers();
        queue
    }

    fn add_peers(&mut self) {
        let now = self.now.monotonic;
        for node in self.members.without(self.me).iter() {
            self.peers
                .entry(node)
                .or_insert_with(|| peers::Peer::new(now));
        }
        self.peers_due = 0;
    }

    /// Something has happened.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = Now {
            monotonic: now.monotonic.max(self.now.monotonic),
            unix: now.unix,
        };
        match input {
            Input::Time => {}
            Input::Put { ticket, tuples } => self.on_put(ticket, tuples),
            Input::GiveUp(ticket) => self.refuse(ticket, Refusal::GivenUp, None),
            Input::Written(id) => self.on_written(id),
            Input::NotWritten(id) => self.on_not_written(id),
            Input::Payload(id, payload) => self.on_payload(id, payload.as_ref()),
            Input::Linked(node) => self.on_linked(node),
            Input::Unlinked(node) => self.on_unlinked(node),
            Input::Frame(node, frame) => self.on_frame(node, frame),
            Input::RoundTrip(node, micros) => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.round_trip = Some(micros);
                }
            }
            Input::Members(members) => self.on_members(members),
            Input::Excluded(nodes) => self.excluded = nodes,
            Input::Leaving(micros) => self.on_leaving(micros),
            Input::Progress(id, progress) => self.on_own_progress(id, &progress),
            Input::Later(id, at) => self.on_later(id, at),
            Input::Done(id) => self.finish(id),
            Input::Asked(id, node) => self.on_asked(id, node),
            Input::Answered(id, node) => self.on_answered(id, node),
            Input::Holding(id) => self.on_holding(id),
            Input::Released(id) => self.on_released(id),
            Input::Stale(id, act) => self.on_stale(id, act),
        }
        self.end_of_input();
    }

    fn on_frame(&mut self, node: Node, frame: Frame) {
        if !self.is_linked(node) {
            return;
        }
        self.hear(node);
        match frame {
            Frame::Store(stores) => {
                for store in stores {
                    self.on_store(node, store);
                }
            }
            Frame::Stored(list) => {
                for (id, version) in list {
                    self.on_stored(node, id, version);
                }
            }
            Frame::NotStored(ids) => {
                for id in ids {
                    self.on_not_stored(node, id);
                }
            }
            Frame::Progress(list) => {
                for (id, progress) in list {
                    self.on_progress_of(node, id, &progress);
                }
            }
            Frame::Delete(list) => {
                for delete in list {
                    self.on_delete(node, &delete);
                }
            }
            Frame::Deleted(list) => {
                for deleted in list {
                    self.on_deleted(node, &deleted);
                }
            }
            Frame::Ask { round, ids } => self.on_ask(node, round, ids),
            Frame::Know(list) => {
                for know in list {
                    self.on_know(node, know.id, know.round, &know.knowledge);
                }
            }
            Frame::Goodbye(micros) => self.on_goodbye(node, micros),
            Frame::Wave(wave) => self.on_wave(node, wave),
            Frame::Low { wave, least } => self.on_low(node, wave, least),
            Frame::Compare(splits) => self.on_compare(node, splits),
            Frame::Compared(splits) => self.on_compared(node, &splits),
            Frame::Ids {
                from,
                to,
                shown,
                answer,
            } => self.on_ids(node, (from, to), shown, answer),
            Frame::Compares => self.on_compares(node),
        }
    }

    /// What follows from any input, and from time.
    fn end_of_input(&mut self) {
        self.look_at_peers();
        self.replace_late();
        self.send_again();
        self.retry_writes();
        self.keep_tombstones();
        self.compare_on();
        self.look_at_gate();
        self.end_rounds();
        self.walk_on();
        self.read_payloads();
        self.send_waves();
        self.hand_out();
        self.write_touched();
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Input::Time`] is due, by the monotonic clock.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let late = self.late.first().map(|(at, _)| *at);
        let resend = self.resend.first().map(|(at, _, _)| *at);
        let tomb = self.tomb_times.front().map(|(at, _)| *at);
        let gate = match self.gate {
            start::Gate::Closed(until) => Some(until).filter(|until| *until > self.now.monotonic),
            _ => None,
        };
        let times = [
            late,
            resend,
            tomb,
            gate,
            Some(self.waves.due),
            self.say_deadline(),
            (self.peers_due < u64::MAX).then_some(self.peers_due),
            self.walk_deadline(),
            self.agenda_deadline(),
        ];
        times.into_iter().flatten().min()
    }

    fn is_tracked(&self, id: Id) -> bool {
        self.tracked.get(id).is_some() || self.tombs.get(&id).is_some_and(|tomb| tomb.tracked)
    }

    fn row(&self, id: Id) -> Option<&Row> {
        self.tracked.get(id).or_else(|| self.untracked.get(id))
    }

    fn row_mut(&mut self, id: Id) -> Option<&mut Row> {
        match self.tracked.get_mut(id) {
            Some(row) => Some(row),
            None => self.untracked.get_mut(id),
        }
    }

    fn insert_row(&mut self, row: Row, tracked: bool) {
        if tracked {
            self.tracked.insert(row);
            self.waves.note(row.id);
        } else {
            self.untracked.insert(row);
        }
    }

    /// Takes a row out, with all that belongs to it; and whether it is tracked.
    fn take_row(&mut self, id: Id) -> Option<(Row, bool)> {
        let (row, tracked) = match self.tracked.remove(id) {
            Some(row) => (row, true),
            None => (self.untracked.remove(id)?, false),
        };
        if row.has(Flag::PROGRESS) {
            self.progress.remove(&id);
        }
        if row.has(Flag::HANDED) {
            self.handed = self.handed.saturating_sub(1);
        }
        self.doubts.remove(&id);
        Some((row, tracked))
    }

    /// The rows of both tables from an id on: of so many at most those that are wanted; and where to go on.
    fn rows_of_both(
        &self,
        from: Id,
        limit: usize,
        wanted: impl Fn(&Row) -> bool,
    ) -> (Vec<Id>, Option<Id>) {
        let (mut one, mut other) = (self.tracked.from(from), self.untracked.from(from));
        let (mut first, mut second) = (one.next(), other.next());
        let mut found = Vec::new();
        for _ in 0..limit {
            let row = match (first, second) {
                (Some(row), Some(than)) if row.id < than.id => row,
                (Some(row), None) => row,
                (_, Some(row)) => row,
                (None, None) => return (found, None),
            };
            if wanted(row) {
                found.push(row.id);
            }
            if first.is_some_and(|first| first.id == row.id) {
                first = one.next();
            } else {
                second = other.next();
            }
        }
        let next = [first, second]
            .into_iter()
            .flatten()
            .map(|row| row.id)
            .min();
        (found, next)
    }

    /// Tuples that this node holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tracked.len() + self.untracked.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tuples of an older disk that wait for another node's word.
    #[must_use]
    pub fn doubts(&self) -> usize {
        self.doubts.len()
    }

    /// Tuples that are done, while somebody has not confirmed it.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.tombs.len()
    }

    /// What this node says of a tuple that it holds.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<Ownership> {
        self.row(id).map(|row| self.ownership(row))
    }

    /// Whether this node alone is to act on a tuple, as far as it knows.
    #[must_use]
    pub fn acts_on(&self, id: Id) -> bool {
        let row = self.row(id);
        row.is_some_and(|row| {
            row.owners.first() == self.me && !row.has(Flag::WAITING) && !row.has(Flag::DOUBT)
        })
    }

    /// Other owners that have said of the present list that they hold the tuple.
    #[must_use]
    pub fn stored_at(&self, id: Id) -> Nodes {
        let Some(row) = self.row(id) else {
            return Nodes::NONE;
        };
        let owners = row.owners.as_slice().iter().copied();
        owners.filter(|node| row.is_confirmed(*node)).collect()
    }

    /// Tuples from an id on, at most so many of those that are looked at; and where to go on.
    #[must_use]
    pub fn list(&self, from: Id, limit: usize) -> (Vec<Id>, Option<Id>) {
        self.rows_of_both(from, limit, |_| true)
    }

    /// Members that have not said yet that their copy of a finished tuple is gone.
    #[must_use]
    pub fn waits_for(&self, id: Id) -> Nodes {
        self.tombs
            .get(&id)
            .map_or(Nodes::NONE, |tomb| tomb.unconfirmed)
    }

    /// What was done since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes of memory for tuples that are neither being written nor acted on.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.tracked.bytes() + self.untracked.bytes()
    }

    /// Nothing is under way here: no write, no question, no put.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.busy.is_empty() && self.rounds_are_over() && self.waiting.is_empty()
    }
}
