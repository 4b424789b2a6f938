//! One partition at one node: receives batches, sends and forwards them, has them applied in causal order, and finds out what is stable.
//!
//! Purpose: reliable causal broadcast by version vectors (Birman, Schiper, Stephenson 1991), over logs that are on disk. A peer is named by its
//! incarnation.
//!
//! Invariants:
//! - For each origin: `applied <= stored <= taken`, `applied <= handed <= taken`. Taken: accepted from a peer. Stored: durable. Handed: given to the
//!   owner, after all that the batch depends on. Applied: durable as applied.
//! - Only the batch that follows `taken` by number and hash is accepted.
//! - Reports to peers name what is stored and applied, never what is still being written.
//! - Bytes in memory are bounded by the windows of the peers and the budget of applying, whatever peers send.
//!
//! Reading order: `api` (inputs, outputs), this file, `receive`, `apply`, `ship`, `stability`; `origin` and `peer` hold the state. Then `snapshot`
//! (rows in place of a log), `snapshot_send`, `snapshot_receive`; `syncing` (a new node), `release` (nodes that leave and come back).

mod api;
mod apply;
mod lag;
mod origin;
mod peer;
mod receive;
mod release;
mod ship;
mod snapshot;
mod snapshot_receive;
mod snapshot_send;
mod stability;
mod syncing;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash as _, Hasher},
};

pub use api::{
    Alarm, Config, Entry, Foreign, Input, LogEnd, Membership, Output, PeerReport, Report, Resume,
    ResumeError, Taking, Ticket,
};
pub use peer::Used;
pub use snapshot::{Rows, Snapshot, SnapshotProgress, StateConfig, StateInput, StateOutput};
use whimbrel_crdt::{Hash, Incarnation, PartitionId, VersionVector};

use crate::{Now, roster::Holding, wire::Room};
use origin::Origin;
use peer::Peer;
use snapshot_receive::Take;
use snapshot_send::Give;

/// Requests to the driver that are not answered yet.
#[derive(Clone, Hash)]
enum Pending {
    Store {
        peer: Incarnation,
        origin: Incarnation,
        last: u64,
        hash: Hash,
        bytes: usize,
        apply: bool,
    },
    Apply {
        origin: Incarnation,
        last: u64,
        bytes: usize,
    },
    /// Whose log, and from which number.
    ReadToApply(Incarnation, u64),
    ReadToShip {
        peer: Incarnation,
        round: u32,
        origin: Incarnation,
    },
    Snapshot(Incarnation),
    ReadState(Incarnation),
    Rows {
        last: Vec<u8>,
        bytes: u64,
    },
    Join,
}

/// One partition at one node. It is deterministic.
#[derive(Clone)]
pub struct Partition {
    config: Config,
    id: PartitionId,
    me: Incarnation,
    origins: BTreeMap<Incarnation, Origin>,
    peers: BTreeMap<Incarnation, Peer>,
    members: BTreeMap<Incarnation, Membership>,
    /// Where closed logs end.
    closed: BTreeMap<Incarnation, u64>,
    pending: BTreeMap<Ticket, Pending>,
    next_ticket: u64,
    /// It has had its first input.
    begun: bool,
    /// Bytes read from the log and given to the owner, not applied yet.
    applying_bytes: usize,
    taking: Taking,
    /// The greatest stamp that the driver has reported ([`Partition::observe`]), or that came since with a batch or a snapshot.
    hlc: u64,
    stable: VersionVector,
    /// Whether this node is syncing.
    syncing: bool,
    /// Snapshots that are being sent, by receiver.
    gives: BTreeMap<Incarnation, Give>,
    /// The snapshot that is being received.
    take: Option<Take>,
    /// The number of the last question for a snapshot.
    question: u64,
    /// Bytes of snapshots received.
    state_bytes: u64,
    /// Peers whose logs no longer have what this node lacks, and what they have applied.
    hints: BTreeMap<Incarnation, VersionVector>,
    /// Pairs (of, to) between which this node forwards at once, since they have no link.
    passes: BTreeSet<(Incarnation, Incarnation)>,
    out: VecDeque<Output>,
}

impl Partition {
    /// Begins with what the store knows.
    ///
    /// # Errors
    /// The store contradicts itself: permanent.
    pub fn resume(
        config: Config,
        id: PartitionId,
        me: Incarnation,
        resume: Resume,
    ) -> Result<Self, ResumeError> {
        for (origin, applied) in resume.applied.iter() {
            let last = resume.logs.get(&origin).map_or(0, |end| end.last);
            if applied > last {
                return Err(ResumeError {
                    origin,
                    applied,
                    last,
                });
            }
        }
        let mut origins: BTreeMap<Incarnation, Origin> = resume
            .logs
            .into_iter()
            .map(|(origin, end)| (origin, Origin::resume(end, resume.applied.get(origin))))
            .collect();
        origins.entry(me).or_insert_with(Origin::empty);
        let mut partition = Self {
            config,
            id,
            me,
            origins,
            peers: BTreeMap::new(),
            members: resume.members,
            closed: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_ticket: 0,
            begun: false,
            applying_bytes: 0,
            taking: Taking::All,
            stable: resume.stable,
            hlc: 0,
            syncing: resume.syncing,
            gives: BTreeMap::new(),
            take: None,
            question: 0,
            state_bytes: 0,
            hints: BTreeMap::new(),
            passes: BTreeSet::new(),
            out: VecDeque::new(),
        };
        partition.read_on(None);
        Ok(partition)
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input) {
        if !std::mem::replace(&mut self.begun, true) {
            for origin in self.origins.values_mut() {
                origin.marks.found(now.mono_micros, origin.stored);
            }
        }
        match input {
            Input::Linked(peer) => self.linked(now, peer),
            Input::LinkedAnew(id) => {
                self.linked(now, id);
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.anew = true;
                }
            }
            Input::Unlinked(id) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.there = false;
                    peer.unlink();
                }
                if let Some(give) = self.gives.get_mut(&id) {
                    give.stop();
                }
            }
            Input::Received(peer, frame) => self.received(now, peer, frame),
            Input::Own(entry, hash) => self.own(now, entry, hash),
            Input::Done(ticket) => self.done(now, ticket),
            Input::Log(ticket, entries) => self.log(now, ticket, entries),
            Input::State(input) => self.state(now, input),
            Input::Members(members) => self.belong(now, members),
            Input::Closed(closed) => self.close_logs(now, closed),
            Input::GiveUp(origin, number) => self.give_up(origin, number),
            Input::Forgotten(origin, number) => self.forgotten(origin, number),
            Input::Passes(passes) => {
                self.passes = passes;
                self.ship_all(now);
            }
            Input::Time => self.time(now),
        }
        self.grow();
    }

    /// Hashes all that decides how the machine goes on, to explore all reachable states. Tickets count by their order.
    #[doc(hidden)]
    pub fn fingerprint(&self, into: &mut impl Hasher) {
        let Self {
            config: _,
            id: _,
            me: _,
            origins,
            peers,
            members,
            closed,
            pending,
            next_ticket: _,
            begun,
            applying_bytes,
            taking,
            hlc,
            stable,
            syncing,
            gives,
            take,
            question: _,
            state_bytes: _,
            hints,
            passes,
            out,
        } = self;
        debug_assert!(out.is_empty(), "the driver has taken what it wanted");
        (origins, peers, members, closed).hash(into);
        pending.len().hash(into);
        pending.values().for_each(|pending| pending.hash(into));
        (begun, applying_bytes, taking, hlc).hash(into);
        (stable, syncing, gives, take, hints, passes).hash(into);
    }

    /// The next output, until there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The partition's id.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Drops what lies beyond the ends of closed logs: no member can apply it.
    fn close_logs(&mut self, now: Now, closed: BTreeMap<Incarnation, u64>) {
        self.closed = closed;
        for peer in self.peers.values_mut() {
            peer.close(&self.closed);
        }
        for (id, end) in &self.closed {
            if let Some(origin) = self.origins.get_mut(id) {
                origin.end_at(*end);
            }
        }
        // Ops that waited for these logs may be stable now; in a quiet partition no other input would show it.
        self.settle();
        self.ship_all(now);
    }

    /// What is stored.
    pub fn durable(&self) -> VersionVector {
        let unsynced = crate::broken("acks-before-sync");
        self.origins
            .iter()
            .map(|(id, origin)| {
                let last = if unsynced {
                    origin.taken
                } else {
                    origin.stored
                };
                (*id, last)
            })
            .collect()
    }

    /// What is applied, durably.
    pub fn applied(&self) -> VersionVector {
        let unsynced = crate::broken("applied-before-sync");
        self.origins
            .iter()
            .map(|(id, origin)| {
                let last = if unsynced {
                    origin.handed
                } else {
                    origin.applied
                };
                (*id, last)
            })
            .collect()
    }

    /// The report for metrics and status.
    pub fn holder_state(&self) -> Report {
        let of = |id: Incarnation, origin: &Origin| Holding {
            taken: origin.taken,
            stored: origin.stored,
            applied: origin.applied,
            lacks: origin.head.as_ref().and_then(|head| self.lacks(id, head)),
            syncing: self.syncing,
        };
        let logs = self.origins.iter();
        let peers = self.peers_that_stay().map(|(id, peer)| {
            let mut report = PeerReport::default();
            for (of, own) in &self.origins {
                let has = peer.durable.get(*of);
                if own.stored > has {
                    let (lag_bytes, lag_since_micros) = own.marks.behind(has);
                    report = report.plus(PeerReport {
                        lacks: own.stored - has,
                        lag_bytes,
                        lag_since_micros,
                        ..PeerReport::default()
                    });
                }
            }
            let stored = |of| self.origins.get(&of).map_or(0, |own| own.stored);
            let theirs = within(&self.closed, &peer.durable);
            let more = theirs
                .iter()
                .map(|(of, number)| number.saturating_sub(stored(of)));
            report.has_more = more.sum();
            report.queued_bytes = peer.queue_bytes + peer.flight_bytes;
            report.syncing = u64::from(peer.syncing);
            (*id, report)
        });
        Report {
            logs: logs.map(|(id, origin)| (*id, of(*id, origin))).collect(),
            stable: self.stable.iter().map(|(_, number)| number).sum(),
            state_bytes: self.state_bytes,
            memory_bytes: self.memory_bytes(),
            peers: peers.collect(),
        }
    }

    /// What is stable.
    pub fn stable(&self) -> &VersionVector {
        &self.stable
    }

    /// Whether the peer has sent its hello on the present link.
    pub fn is_greeted(&self, peer: Incarnation) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.greeted)
    }

    /// The greatest stamp of what is applied here and of what this node has written: the node stamps all later ops above it.
    pub fn observe(&mut self, hlc: u64) {
        self.hlc = self.hlc.max(hlc);
    }

    /// Whether a peer that is not syncing has stored batches of this node without applying them.
    pub fn is_held_back(&self) -> bool {
        let has = |of: &VersionVector| of.get(self.me);
        let mut greeted = self
            .peers
            .values()
            .filter(|peer| peer.greeted && !peer.syncing);
        greeted.any(|peer| has(&peer.durable) > has(&peer.applied))
    }

    /// Whether the peer has said that it is syncing.
    pub fn is_syncing_at(&self, peer: Incarnation) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.syncing)
    }

    /// What the peer has reported as applied.
    pub fn applied_at(&self, peer: Incarnation) -> Option<&VersionVector> {
        self.peers.get(&peer).map(|peer| &peer.applied)
    }

    /// Whether the peer has more of our own log than we have. Then it takes new batches under these numbers for those it has, so its reports of what
    /// it has applied mean nothing.
    pub fn remembers_more(&self, peer: Incarnation) -> bool {
        let said = self.peers.get(&peer).map(|of| &of.applied);
        said.is_some_and(|applied| applied.get(self.me) > self.own_taken())
    }

    /// Bytes of batches and snapshots in memory.
    pub fn memory_bytes(&self) -> usize {
        let stores = self.pending.values().map(|pending| match pending {
            Pending::Store { bytes, .. } => *bytes,
            _ => 0,
        });
        let queues = self.peers.values().map(|peer| peer.queue_bytes as usize);
        let gives: usize = self.gives.values().map(Give::memory_bytes).sum();
        let take = self.take.as_ref().map_or(0, |take| take.storing_bytes);
        self.applying_bytes + stores.sum::<usize>() + queues.sum::<usize>() + gives + take as usize
    }

    /// Sets what is accepted from peers, and tells them.
    pub fn take_of_peers(&mut self, taking: Taking) {
        if self.taking != taking {
            self.taking = taking;
            self.tell_all();
        }
    }

    /// What a peer may send, if its window is `window`.
    fn room(&self, window: Option<Room>) -> Room {
        let room = self.config.room_of(window);
        match self.taking {
            Taking::All => room,
            Taking::One => Room {
                bytes: 0,
                batches: 1,
            },
            Taking::Nothing => Room {
                bytes: 0,
                batches: 0,
            },
        }
    }

    fn ask(&mut self, pending: Pending) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        ticket
    }

    fn own(&mut self, now: Now, entry: Entry, hash: Hash) {
        let Some(origin) = self.origins.get_mut(&self.me) else {
            unreachable!("our own log is always known");
        };
        assert_eq!(
            entry.first,
            origin.taken + 1,
            "own batches come in the order of their numbers"
        );
        origin.took(entry.last, hash);
        origin.handed = entry.last;
        origin.stored(entry.last, hash);
        origin.applied = entry.last;
        self.mark(now, self.me, entry.last, entry.bytes.len());
        for peer in self.peers.values_mut() {
            peer.dirty = true;
        }
        self.offer(now, &entry);
        self.read_on(Some(now));
        self.settle();
    }

    /// A log has grown.
    fn mark(&mut self, now: Now, id: Incarnation, last: u64, bytes: usize) {
        let durable = self.peers_that_stay().map(|(_, peer)| &peer.durable);
        let all_have = durable.map(|durable| durable.get(id)).min();
        if let Some(origin) = self.origins.get_mut(&id) {
            origin.marks.forget(all_have.unwrap_or(u64::MAX));
            origin.marks.add(now.mono_micros, last, bytes as u64);
        }
    }

    fn done(&mut self, now: Now, ticket: Ticket) {
        match self.pending.remove(&ticket) {
            Some(Pending::Store {
                peer,
                origin,
                last,
                hash,
                bytes,
                apply,
            }) => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.storing_bytes -= bytes as u64;
                    peer.storing_batches -= 1;
                }
                if let Some(origin) = self.origins.get_mut(&origin) {
                    origin.stored(last, hash);
                    if apply {
                        origin.applied = origin.applied.max(last);
                    }
                }
            }
            Some(Pending::Apply {
                origin,
                last,
                bytes,
            }) => {
                self.applying_bytes -= bytes;
                if let Some(origin) = self.origins.get_mut(&origin) {
                    origin.applied = origin.applied.max(last);
                }
            }
            Some(Pending::Rows { last, bytes }) => return self.rows_done(now, last, bytes),
            Some(Pending::Join) => self.joined(),
            Some(pending) => {
                // A read is answered by [`Input::Log`] or [`StateInput`].
                self.pending.insert(ticket, pending);
                return;
            }
            None => return,
        }
        self.tell_all();
        self.read_on(Some(now));
        self.ship_all(now);
        self.settle();
    }

    fn log(&mut self, now: Now, ticket: Ticket, entries: Vec<Entry>) {
        match self.pending.remove(&ticket) {
            Some(Pending::ReadToApply(origin, from)) => {
                self.read_to_apply(now, origin, from, entries);
            }
            Some(Pending::ReadToShip {
                peer,
                round,
                origin,
            }) => self.read_to_ship(now, peer, round, origin, entries),
            Some(pending) => {
                self.pending.insert(ticket, pending);
            }
            None => {}
        }
    }
    fn state(&mut self, now: Now, input: StateInput) {
        match input {
            StateInput::Snapshot(ticket, snapshot) => match self.pending.remove(&ticket) {
                Some(Pending::Snapshot(peer)) => self.snapshot(now, ticket, peer, snapshot),
                Some(pending) => drop(self.pending.insert(ticket, pending)),
                None => {}
            },
            StateInput::Rows(ticket, rows) => match self.pending.remove(&ticket) {
                Some(Pending::ReadState(peer)) => self.rows(ticket, peer, rows),
                Some(pending) => drop(self.pending.insert(ticket, pending)),
                None => {}
            },
            StateInput::Lost(ticket) => match self.pending.remove(&ticket) {
                Some(Pending::ReadState(peer)) => self.rows_lost(ticket, peer),
                Some(pending) => drop(self.pending.insert(ticket, pending)),
                None => {}
            },
        }
    }
}

/// What a peer has, without what lies beyond the ends of closed logs: on its present link the peer goes on to report that, and nobody lacks it.
fn within<'a>(
    closed: &BTreeMap<Incarnation, u64>,
    has: &'a VersionVector,
) -> Cow<'a, VersionVector> {
    if closed.iter().all(|(id, end)| has.get(*id) <= *end) {
        return Cow::Borrowed(has);
    }
    let end = |id| closed.get(&id).copied().unwrap_or(u64::MAX);
    Cow::Owned(
        has.iter()
            .map(|(id, number)| (id, number.min(end(id))))
            .collect(),
    )
}
