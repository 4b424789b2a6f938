//! Streams between nodes: in order, with latency, and gone whenever the network likes.
//!
//! A stream between two nodes has a number; what was on the way when it ended never arrives. A cut is noticed by each end after a silence of its own.
//! Streams keep their order, different streams do not. What crosses is bytes: each frame is written and read by the production codec.
//!
//! Nothing comes twice, nor in another order, within a stream: TCP gives each byte once and in its place, TLS ends a stream in which that is not so,
//! and of a stream that has ended `cluster` reads nothing more, for its socket is closed. So frames of an old stream never come behind those of a new
//! one. What there is of both is between streams: a batch that two peers give, and one that is given again because its acknowledgement was on a
//! stream that ended.
//!
//! Where one direction alone is lost its frames come late, as TCP sends them again, until the end that hears nothing gives the stream up.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::PartitionId;
use whimbrel_replication::wire::{Decoder, Frame};

use super::{MS, SECOND, World, protocol_clients::Happening, regions::one_way_micros};

/// What happens on the network.
pub(super) enum Event {
    /// A frame arrives, if its stream is still there.
    Arrive {
        from: usize,
        to: usize,
        stream: u64,
        bytes: Vec<u8>,
    },
    /// The stream takes a frame.
    Ready { from: usize, to: usize, stream: u64 },
    /// Nothing was heard from this node for so long that its peer ends the stream, if it is still the same.
    Silent { from: usize, to: usize, stream: u64 },
    /// One end notices that the stream is gone.
    Gone { at: usize, peer: usize, stream: u64 },
    /// A node looks what it holds of removed members' logs.
    Look(usize),
    /// A node looks at what it holds.
    Place(usize),
    /// A node looks at its clock, and what it knows of others'.
    Clock(usize),
    /// Something of a client that comes by bytes.
    ProtocolClient(Happening),
    /// A new stream is tried.
    Connect(usize, usize),
    /// A cut ends.
    Mend(usize, usize),
}

#[derive(Default)]
struct Pair {
    /// Counts streams; the last one is up or not.
    stream: u64,
    up: bool,
    /// One way, at least and at most.
    least_micros: u64,
    latency_micros: u64,
    cut_until: u64,
}

impl Pair {
    fn between((a, b): (usize, usize), latency_micros: Option<u64>, seed: u64) -> Self {
        let (least_micros, latency_micros) = match latency_micros {
            Some(most) => (most / 4, most),
            None => one_way_micros(seed, a, b),
        };
        Pair {
            least_micros,
            latency_micros,
            ..Pair::default()
        }
    }
}

/// Who was refused tries again after that.
const AGAIN_MICROS: u64 = SECOND;

/// What is on its way from one node to another.
#[derive(Default)]
struct Way {
    /// When the last frame arrives.
    last: u64,
    /// What arrived is read by this.
    decoder: Decoder,
}

/// All streams.
pub(super) struct Network {
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Partitions that have something to send, by direction; `None`: bodies, which come last.
    awake: BTreeMap<(usize, usize), BTreeSet<Option<PartitionId>>>,
    ways: BTreeMap<(usize, usize), Way>,
    /// Until when a direction is lost.
    lost_until: BTreeMap<(usize, usize), u64>,
    down: BTreeSet<usize>,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
}

impl Network {
    /// Between two nodes it takes `latency_micros` at most, or what it takes between two regions.
    pub(super) fn new(nodes: usize, latency_micros: Option<u64>, seed: u64) -> Self {
        let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (a, b)));
        let pairs = pairs.map(|ends| (ends, Pair::between(ends, latency_micros, seed)));
        Network {
            pairs: pairs.collect(),
            awake: BTreeMap::new(),
            ways: BTreeMap::new(),
            lost_until: BTreeMap::new(),
            down: BTreeSet::new(),
            events: BTreeMap::new(),
            count: 0,
        }
    }

    /// One more node.
    pub(super) fn add(&mut self, node: usize, latency_micros: Option<u64>, seed: u64) {
        for other in 0..node {
            let ends = (node, other);
            let pair = Pair::between(ends, latency_micros, seed);
            self.pairs.insert(ends, pair);
        }
    }

    pub(super) fn look_at(&mut self, time: u64, node: usize) {
        let looks = self.events.values();
        if !looks
            .into_iter()
            .any(|event| matches!(event, Event::Look(at) if *at == node))
        {
            self.at(time, Event::Look(node));
        }
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.events.first_key_value().map(|((time, _), _)| *time)
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    /// What was to happen at one time happens at another one, in its order.
    pub(super) fn bring_forward(&mut self, from: u64, to: u64) {
        let all = self
            .events
            .extract_if((from, 0)..=(from, u64::MAX), |_, _| true);
        let all: Vec<Event> = all.map(|(_, event)| event).collect();
        all.into_iter().for_each(|event| self.at(to, event));
    }

    fn pair(&mut self, a: usize, b: usize) -> &mut Pair {
        self.pairs.entry((a.max(b), a.min(b))).or_default()
    }

    fn is_up(&mut self, a: usize, b: usize, stream: u64) -> bool {
        let pair = self.pair(a, b);
        pair.up && pair.stream == stream
    }

    pub(super) fn has_stream(&self, a: usize, b: usize) -> bool {
        let pair = self.pairs.get(&(a.max(b), a.min(b)));
        pair.is_some_and(|pair| pair.up)
    }

    /// How long one way takes, at most.
    pub(super) fn latency(&self, a: usize, b: usize) -> u64 {
        let pair = self.pairs.get(&(a.max(b), a.min(b)));
        pair.map_or(0, |pair| pair.latency_micros)
    }

    /// Whether one could ask the other.
    pub(super) fn is_reachable(&self, now: u64, a: usize, b: usize) -> bool {
        let pair = self.pairs.get(&(a.max(b), a.min(b)));
        !self.is_lost(now, a, b) && pair.is_some_and(|pair| pair.cut_until <= now)
    }

    pub(super) fn connect_at(&mut self, time: u64, a: usize, b: usize) {
        self.at(time, Event::Connect(a, b));
    }

    /// Something is to be sent in this direction.
    pub(super) fn wake(
        &mut self,
        now: u64,
        from: usize,
        to: usize,
        partition: Option<PartitionId>,
    ) {
        let pair = self.pair(from, to);
        let (up, stream) = (pair.up, pair.stream);
        if up {
            let awake = self.awake.entry((from, to)).or_default();
            if awake.is_empty() {
                self.at(now, Event::Ready { from, to, stream });
            }
            self.awake.entry((from, to)).or_default().insert(partition);
        }
    }

    /// The stream ends: each side hears of it after its own time.
    fn end(&mut self, a: usize, b: usize, heard: [u64; 2]) {
        let pair = self.pair(a, b);
        if !std::mem::take(&mut pair.up) {
            return;
        }
        let stream = pair.stream;
        for (at, peer, time) in [(a, b, heard[0]), (b, a, heard[1])] {
            self.awake.remove(&(at, peer));
            self.ways.remove(&(at, peer));
            self.at(time, Event::Gone { at, peer, stream });
        }
    }

    pub(super) fn flap(&mut self, now: u64, a: usize, b: usize, pause: u64) {
        let later = now + self.pair(a, b).latency_micros;
        self.end(a, b, [now, later]);
        self.at(later + pause + 1, Event::Connect(a, b));
    }

    pub(super) fn cut(&mut self, now: u64, a: usize, b: usize, until: u64, silence: u64) {
        let pair = self.pair(a, b);
        pair.cut_until = pair.cut_until.max(until);
        self.end(a, b, [now + silence, now + 3 * SECOND - silence]);
        self.at(until, Event::Mend(a, b));
    }

    /// Nothing that `from` sends reaches `to`; the other direction works.
    pub(super) fn lose(&mut self, now: u64, from: usize, to: usize, until: u64, silence: u64) {
        let lost = self.lost_until.entry((from, to)).or_default();
        *lost = until.max(*lost);
        let pair = self.pair(from, to);
        let (up, stream) = (pair.up, pair.stream);
        if up {
            self.at(now + silence, Event::Silent { from, to, stream });
        }
        self.at(until, Event::Mend(from, to));
    }

    /// `to` hears nothing of `from` until then.
    pub(super) fn fall_silent(&mut self, time: u64, from: usize, to: usize) {
        let pair = self.pair(from, to);
        let (up, stream) = (pair.up, pair.stream);
        if up {
            self.at(time, Event::Silent { from, to, stream });
        }
    }

    fn is_lost(&self, now: u64, a: usize, b: usize) -> bool {
        [(a, b), (b, a)]
            .iter()
            .any(|way| self.lost_until.get(way).is_some_and(|until| *until > now))
    }

    pub(super) fn die(&mut self, now: u64, index: usize) {
        self.down.insert(index);
        for other in 0..self.nodes() {
            if other != index {
                // Itself it hears nothing any more.
                let later = now + self.pair(index, other).latency_micros;
                self.end(index, other, [now, later]);
            }
        }
    }

    pub(super) fn come_back(&mut self, now: u64, index: usize) {
        self.down.remove(&index);
        for other in 0..self.nodes() {
            if other != index {
                let later = now + self.pair(index, other).latency_micros;
                self.at(later + 1, Event::Connect(index, other));
            }
        }
    }

    fn nodes(&self) -> usize {
        self.pairs.keys().map(|(a, _)| a + 1).max().unwrap_or(0)
    }

    pub(super) fn heal(&mut self, now: u64) {
        // What was sent when it was lost comes no sooner on its stream: there is a new one.
        for ((from, to), until) in std::mem::take(&mut self.lost_until) {
            if until > now {
                self.end(from, to, [now; 2]);
            }
        }
        let pairs: Vec<(usize, usize)> = self.pairs.keys().copied().collect();
        for (a, b) in pairs {
            self.pair(a, b).cut_until = 0;
            self.at(now, Event::Mend(a, b));
        }
    }
}

impl World {
    /// Lets the next thing on the network happen.
    pub(super) fn network_step(&mut self) -> Result<(), String> {
        let Some((_, event)) = self.network.events.pop_first() else {
            return Ok(());
        };
        let Some(event) = self.is_put_off(event) else {
            return Ok(());
        };
        match event {
            Event::Arrive {
                from,
                to,
                stream,
                bytes,
            } => {
                if self.network.is_up(from, to, stream) {
                    let peer = self.members[from].id;
                    self.bring(to);
                    // It may come in pieces.
                    let (middle, mut rosters) = (bytes.len() / 2, Vec::new());
                    for piece in [&bytes[..middle], &bytes[middle..]] {
                        let decoder = &mut self.network.ways.entry((from, to)).or_default().decoder;
                        decoder.push(piece);
                        while let Some(frame) = decoder
                            .frame()
                            .map_err(|cause| format!("a frame from {from} to {to}: {cause}"))?
                        {
                            match frame {
                                Frame::Roster(theirs) => rosters.push(theirs),
                                frame => self.members[to].node.receive(peer, frame),
                            }
                        }
                    }
                    for theirs in rosters {
                        let _ = self.hear(to, from, &theirs)?;
                    }
                    return self.outcomes(to);
                }
                self.note("cluster: frame of a stream that has ended");
            }
            Event::Silent { from, to, stream } => {
                let is_stopped = self.members[from].stopped_until.is_some();
                let network = &mut self.network;
                if (is_stopped || network.is_lost(self.now, from, to))
                    && network.is_up(from, to, stream)
                {
                    let later = self.now + network.pair(from, to).latency_micros;
                    network.end(to, from, [self.now, later]);
                }
            }
            Event::Ready { from, to, stream } => {
                if self.network.is_up(from, to, stream) {
                    return self.ready(from, to, stream);
                }
            }
            Event::Gone { at, peer, stream } => {
                let pair = self.network.pair(at, peer);
                // When there is a new stream the end of the old one was noticed.
                if pair.stream == stream && !self.network.down.contains(&at) {
                    return self.tell_link(at, peer, false);
                }
            }
            Event::Look(at) => return self.look(at),
            Event::Place(at) => return self.place(at),
            Event::Clock(at) => return self.clock_looked(at),
            Event::ProtocolClient(happening) => return self.protocol_client_happens(happening),
            Event::Mend(a, b) | Event::Connect(a, b) => return self.connect(a, b),
        }
        Ok(())
    }

    /// A node is there when something reaches it: its clock stands at this moment.
    pub(super) fn bring(&mut self, index: usize) {
        let now = self.now;
        if self.members[index].stopped_until.is_none() {
            self.members[index].node.advance_to(now);
        }
    }

    fn tell_link(&mut self, at: usize, peer: usize, up: bool) -> Result<(), String> {
        let mut id = self.members[peer].id;
        self.bring(at);
        let linked = &mut self.members[at].linked;
        if up {
            // Another one may have come in the place of who was there.
            let before = linked.insert(peer, id).filter(|before| *before != id);
            if let Some(before) = before {
                self.members[at].node.link(before, false);
            }
        } else {
            id = linked.remove(&peer).unwrap_or(id);
            self.protocol_client_link_gone(at, peer);
        }
        // Some pairs do not give bodies unasked, as with an older version at one end.
        let pushes = !(self.plan.seed + (at + peer) as u64).is_multiple_of(4);
        self.members[at].node.link_to(id, up, pushes);
        if up {
            let micros = 2 * self.network.pair(at, peer).latency_micros;
            self.members[at].node.round_trip(id, micros);
        }
        self.clock_changed(at);
        self.outcomes(at)?;
        if up {
            self.share_out(at)?;
        }
        Ok(())
    }

    fn connect(&mut self, a: usize, b: usize) -> Result<(), String> {
        let now = self.now;
        let network = &mut self.network;
        let down = network.down.contains(&a) || network.down.contains(&b);
        let lost = network.is_lost(now, a, b);
        let pair = network.pair(a, b);
        if down || lost || pair.up || pair.cut_until > now {
            return Ok(());
        }
        if !self.greet(a, b)? {
            if !self.members[a].out && !self.members[b].out {
                self.network.connect_at(self.now + AGAIN_MICROS, a, b);
            }
            return Ok(());
        }
        let pair = self.network.pair(a, b);
        pair.stream += 1;
        pair.up = true;
        self.tell_link(a, b, true)?;
        self.tell_link(b, a, true)
    }

    /// Sends a frame, if there is a stream.
    pub(super) fn send(&mut self, from: usize, to: usize, frame: &Frame) {
        let pair = self.network.pair(from, to);
        let (up, stream) = (pair.up, pair.stream);
        let (least, most) = (pair.least_micros, pair.latency_micros);
        if !up {
            return;
        }
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let latency = self.rng.between(least, most);
        let lost = self.network.lost_until.get(&(from, to)).copied();
        let leaves = lost.map_or(self.now, |until| until.max(self.now));
        let way = self.network.ways.entry((from, to)).or_default();
        let arrives = (leaves + latency).max(way.last + 1);
        way.last = arrives;
        let arrive = Event::Arrive {
            from,
            to,
            stream,
            bytes,
        };
        self.network.at(arrives, arrive);
    }

    /// One frame, from the partitions that have some in turn.
    fn ready(&mut self, from: usize, to: usize, stream: u64) -> Result<(), String> {
        let peer = self.members[to].id;
        self.bring(from);
        while let Some(partition) = self
            .network
            .awake
            .get_mut(&(from, to))
            .and_then(BTreeSet::pop_last)
        {
            let frame = self.members[from].node.ready(partition, peer);
            let Some(frame) = frame else {
                continue;
            };
            self.send(from, to, &frame);
            // There may be more of it; the others come first.
            let next = self.now + self.rng.below(MS / 10);
            self.network.at(next, Event::Ready { from, to, stream });
            self.network
                .awake
                .entry((from, to))
                .or_default()
                .insert(partition);
            break;
        }
        self.outcomes(from)
    }
}
