//! What a node does beside sockets and disk: the queue's machine, producers that put one message after the other, a consumer that is done at once, and
//! what is counted. It runs on a real node and on virtual time.

use std::time::Duration;

use bytes::Bytes;
use whimbrel_queue::{
    Change, Choice, Config, Frame, Id, Input, Node, Nodes, Now, Output, PeerState, Queue, Record,
    Refusal, Start, Tuple,
};

use super::link::Message;
use crate::error::{Result, wrong};

/// A producer that was refused tries again after so many microseconds.
const RETRY_MICROS: u64 = 10_000;

/// How a node is set up.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) me: usize,
    pub(super) nodes: usize,
    pub(super) copies: usize,
    pub(super) choice: Choice,
    pub(super) producers: usize,
    pub(super) payload_bytes: usize,
    pub(super) seed: u64,
    /// To each node, as the ways between them were set up.
    pub(super) round_trips: Vec<Duration>,
}

/// What was counted at a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Writes of new tuples with their payloads: what an answer waits for.
    pub(super) new_writes: u64,
    /// Writes of lists of owners that have changed.
    pub(super) list_writes: u64,
    pub(super) tombstone_writes: u64,
    pub(super) removals: u64,
    pub(super) frames: u64,
    pub(super) wire_bytes: u64,
    /// Payloads sent to another node.
    pub(super) bodies: u64,
    pub(super) refused: u64,
    /// From a put to its acceptance, in microseconds, while it was measured.
    pub(super) accept_micros: Vec<u32>,
    /// What that took beyond the round trip to the farthest owner.
    pub(super) over_micros: Vec<u32>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.new_writes += other.new_writes;
        self.list_writes += other.list_writes;
        self.tombstone_writes += other.tombstone_writes;
        self.removals += other.removals;
        self.frames += other.frames;
        self.wire_bytes += other.wire_bytes;
        self.bodies += other.bodies;
        self.refused += other.refused;
        self.accept_micros.extend(other.accept_micros);
        self.over_micros.extend(other.over_micros);
    }

    pub(super) fn writes(&self) -> u64 {
        self.new_writes + self.list_writes + self.tombstone_writes + self.removals
    }
}

/// One producer's message under way.
#[derive(Clone, Copy, Default)]
struct Producer {
    /// How many it has put: the upper part of the ticket.
    round: u64,
    id: Id,
    put_at: u64,
}

/// A node without its sockets and its disk.
pub(super) struct Site {
    queue: Queue,
    setting: Setting,
    payload: Bytes,
    producers: Vec<Producer>,
    producing: bool,
    measuring: bool,
    /// Producers that were refused, by when they try again.
    refused: Vec<(u64, usize)>,
    /// What the disk is to hold.
    pub(super) writes: Vec<(Id, Change)>,
    /// Payloads that the machine wants.
    pub(super) reads: Vec<Id>,
    /// Peers for whom there is something.
    pub(super) awake: Nodes,
    pub(super) accepted: u64,
    pub(super) done: u64,
    pub(super) tally: Tally,
    closed: Option<Node>,
    refusal: Option<Refusal>,
}

fn peer(number: usize) -> Node {
    u8::try_from(number)
        .ok()
        .and_then(Node::new)
        .unwrap_or_default()
}

impl Site {
    pub(super) fn new(setting: Setting, now: Now) -> Site {
        let start = Start {
            me: peer(setting.me),
            members: (0..setting.nodes).map(peer).collect(),
            life: 1,
            former: Nodes::NONE,
            seed: setting.seed,
        };
        let config = Config {
            copies: setting.copies,
            choice: setting.choice,
            ..Config::default()
        };
        let mut queue = Queue::new(config, start, now);
        queue.begin();
        Site {
            queue,
            payload: vec![b'x'; setting.payload_bytes].into(),
            producers: vec![Producer::default(); setting.producers],
            setting,
            producing: false,
            measuring: false,
            refused: Vec::new(),
            writes: Vec::new(),
            reads: Vec::new(),
            awake: Nodes::NONE,
            accepted: 0,
            done: 0,
            tally: Tally::default(),
            closed: None,
            refusal: None,
        }
    }

    /// Each producer puts its first message.
    pub(super) fn begin(&mut self, now: Now) {
        self.producing = true;
        for producer in 0..self.producers.len() {
            self.put(now, producer);
        }
    }

    /// What is under way goes on; nothing new comes.
    pub(super) fn stop(&mut self) {
        self.producing = false;
        self.refused.clear();
    }

    /// From now on times of answers are kept, or not any more.
    pub(super) fn measure(&mut self, measuring: bool) {
        self.measuring = measuring;
    }

    fn put(&mut self, now: Now, producer: usize) {
        let one = &mut self.producers[producer];
        one.round += 1;
        one.put_at = now.monotonic;
        let ticket = one.round << 16 | producer as u64;
        one.id = Id::new(now.unix, ticket << 8 | self.setting.me as u64);
        let tuples = vec![Tuple::new(one.id, self.payload.clone())];
        self.input(now, Input::Put { ticket, tuples });
    }

    /// Gives the machine something, and does what it asks for.
    pub(super) fn input(&mut self, now: Now, input: Input) {
        self.queue.handle(now, input);
        while let Some(output) = self.queue.poll() {
            self.output(now, output);
        }
    }

    /// Time has passed.
    pub(super) fn time(&mut self, now: Now) {
        let due = |(at, _): &(u64, usize)| *at <= now.monotonic;
        let retries: Vec<usize> = self
            .refused
            .extract_if(.., |one| due(one))
            .map(|(_, producer)| producer)
            .collect();
        for producer in retries {
            self.put(now, producer);
        }
        self.input(now, Input::Time);
    }

    fn output(&mut self, now: Now, output: Output) {
        match output {
            Output::Write { id, change, .. } => {
                let count = match &change {
                    Change::Tuple(Record::Tuple { ownership, .. }, Some(_))
                        if ownership.term == 1 =>
                    {
                        &mut self.tally.new_writes
                    }
                    Change::Tuple(..) => &mut self.tally.list_writes,
                    Change::Tombstone(_) => &mut self.tally.tombstone_writes,
                    Change::Remove => &mut self.tally.removals,
                };
                *count += 1;
                self.writes.push((id, change));
            }
            Output::Accepted(ticket) => {
                self.accepted += 1;
                let producer = (ticket & 0xffff) as usize;
                if self.measuring {
                    self.note_acceptance(now, producer);
                }
                if self.producing {
                    self.put(now, producer);
                }
            }
            Output::Refused(ticket, why) => {
                self.tally.refused += 1;
                self.refusal = Some(why);
                if self.producing {
                    let producer = (ticket & 0xffff) as usize;
                    self.refused.push((now.monotonic + RETRY_MICROS, producer));
                }
            }
            Output::Mine(id, _) => {
                self.done += 1;
                self.input(now, Input::Done(id));
            }
            Output::Read(id) => self.reads.push(id),
            Output::Wake(node) => {
                self.awake.insert(node);
            }
            Output::Close(node, _) => self.closed = Some(node),
            // No node is lost, and nothing is tracked.
            Output::NotMine(_)
            | Output::Cancel(_)
            | Output::Stale(_)
            | Output::Away(..)
            | Output::Swept { .. } => {}
        }
    }

    fn note_acceptance(&mut self, now: Now, producer: usize) {
        let one = self.producers[producer];
        let micros = now.monotonic.saturating_sub(one.put_at);
        let short = |micros: u64| u32::try_from(micros).unwrap_or(u32::MAX);
        self.tally.accept_micros.push(short(micros));
        if let Some(ownership) = self.queue.get(one.id) {
            let ways = ownership.owners.as_slice().iter();
            let ways =
                ways.filter_map(|owner| self.setting.round_trips.get(usize::from(owner.number())));
            let farthest = ways.max().map_or(0, Duration::as_micros);
            let farthest = u64::try_from(farthest).unwrap_or(u64::MAX);
            let over = micros.saturating_sub(farthest);
            self.tally.over_micros.push(short(over));
        }
    }

    /// Appends all frames for a peer.
    pub(super) fn transmit(&mut self, to: Node, out: &mut Vec<u8>) {
        let before = out.len();
        while let Some(frame) = self.queue.transmit(to) {
            self.tally.frames += 1;
            if let Frame::Store(stores) = &frame {
                let bodies = stores.iter().filter(|store| store.payload.is_some());
                self.tally.bodies += bodies.count() as u64;
            }
            Message::Frame(frame).encode(out);
        }
        self.tally.wire_bytes += (out.len() - before) as u64;
    }

    /// When [`Site::time`] is due, by the monotonic clock.
    pub(super) fn deadline(&self) -> Option<u64> {
        let retry = self.refused.iter().map(|(at, _)| *at).min();
        [self.queue.deadline(), retry].into_iter().flatten().min()
    }

    /// Whether all others are heard, so that messages can be entrusted to any of them.
    pub(super) fn is_ready(&self) -> bool {
        let mut others = (0..self.setting.nodes).filter(|node| *node != self.setting.me);
        others.all(|node| self.queue.state_of(peer(node)) == PeerState::Active)
    }

    /// Whether nothing is left of any message.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.queue.tombstones() == 0 && self.queue.is_quiet()
    }

    /// How often a message was entrusted to another node since one was late.
    pub(super) fn replaced(&self) -> u64 {
        self.queue.counters().replaced
    }

    /// No node is lost in a benchmark: a link that is to be closed, or a list that is to be mended, makes the figures those of something else.
    pub(super) fn verify(&self) -> Result<()> {
        let counters = self.queue.counters();
        if let Some(node) = self.closed {
            return wrong(format!(
                "node {} hears node {node} no more",
                self.setting.me
            ));
        }
        if counters.adopted + counters.repaired + counters.both_acted > 0 {
            return wrong(format!("node {}: {counters:?}", self.setting.me));
        }
        match self.refusal {
            Some(why @ (Refusal::Disk | Refusal::Ids | Refusal::Adopted)) => wrong(format!(
                "node {}: a message was refused: {why}",
                self.setting.me
            )),
            _ => Ok(()),
        }
    }
}
