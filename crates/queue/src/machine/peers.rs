//! What a node thinks of its peers: whom it hears, to whom it entrusts tuples, what waits to be sent.
//!
//! The states are those of the paper's Fig. 4: *Prospect*, *Active*, *Schrödinger* (here: silent), *Terminated*, and *Arnold* (here: away, announced).
//! Each node has its own opinion, and no two need to agree.

use std::collections::VecDeque;

use super::{Queue, compare::Comparing};
use crate::{
    api::{Choice, Close, Output},
    frame::{Delete, Deleted, FRAME_BYTES, Frame, Know, Knowledge, Store},
    mutants::broken,
    types::{Id, Node, Nodes, Version},
};

/// Bytes that wait for one peer. A peer that lets more come together is cut off; what it missed is found when it is linked again.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// So many times what a peer usually takes makes it late.
const LATE_TIMES: u64 = 3;

/// For how long nothing new is entrusted to a peer whose disk has refused something.
const REFUSED_MICROS: u64 = 60_000_000;

/// What a node thinks of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerState {
    /// Not linked since this node started.
    Prospect,
    /// Heard: it can be entrusted with tuples.
    Active,
    /// Silent for some time.
    Silent,
    /// It said that it would be away, and the time is not over.
    Away,
    /// Silent for so long that its tuples are adopted; or no member.
    Terminated,
}

/// Something for a peer.
#[derive(Clone, Debug, Hash)]
pub(super) enum Statement {
    Store(Box<Store>),
    Stored(Id, Version),
    NotStored(Id),
    Progress(Id, bytes::Bytes),
    Delete(Delete),
    Deleted(Deleted),
    Know(Box<Know>),
    Frame(Frame),
}

impl Statement {
    /// About how long it is on the wire.
    fn bytes(&self) -> usize {
        match self {
            Statement::Store(store) => {
                let payload = store.payload.as_ref().map_or(0, bytes::Bytes::len);
                80 + store.ownership.progress.len() + payload
            }
            Statement::Stored(..) | Statement::Delete(_) | Statement::Deleted(_) => 32,
            Statement::NotStored(_) => 16,
            Statement::Progress(_, progress) => 20 + progress.len(),
            Statement::Know(know) => match &know.knowledge {
                Knowledge::Holds(ownership) => 80 + ownership.progress.len(),
                Knowledge::Doubt | Knowledge::Unknown => 21,
            },
            Statement::Frame(Frame::Ask { ids, .. }) => 16 * ids.len(),
            Statement::Frame(Frame::Ids { shown, .. }) => 33 + 30 * shown.len(),
            Statement::Frame(Frame::Compare(splits) | Frame::Compared(splits)) => {
                splits.iter().map(|split| 20 + 28 * split.parts.len()).sum()
            }
            Statement::Frame(_) => 32,
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Peer {
    pub(super) linked: bool,
    /// This node has asked for the end of the link.
    closing: bool,
    /// It was linked since this node started.
    pub(super) met: bool,
    /// Something came over the present link.
    pub(super) active: bool,
    /// When it was last heard; the start of this node, before that.
    pub(super) heard: u64,
    /// It is away until then.
    pub(super) away_until: Option<u64>,
    /// Since when it is neither active nor away.
    pub(super) missing_since: Option<u64>,
    /// Nothing new goes to it before then.
    pub(super) refusing_until: u64,
    pub(super) round_trip: Option<u64>,
    /// What 99 of 100 answers to a Store take, about.
    pub(super) late: u64,
    /// It let a question pass, and nothing came from it since.
    pub(super) deaf: bool,
    /// As it was last looked at.
    pub(super) state: PeerState,
    pub(super) comparing: Comparing,
    out: VecDeque<Statement>,
    out_bytes: usize,
}

impl Peer {
    pub(super) fn new(now: u64) -> Peer {
        Peer {
            linked: false,
            closing: false,
            met: false,
            active: false,
            heard: if broken("unheard-is-dead") { 0 } else { now },
            away_until: None,
            missing_since: Some(now),
            refusing_until: 0,
            round_trip: None,
            late: 0,
            deaf: false,
            state: PeerState::Prospect,
            comparing: Comparing::default(),
            out: VecDeque::new(),
            out_bytes: 0,
        }
    }
}

impl Queue {
    /// What this node thinks of another one.
    #[must_use]
    pub fn state_of(&self, node: Node) -> PeerState {
        let Some(peer) = self.peers.get(&node) else {
            return PeerState::Terminated;
        };
        let now = self.now.monotonic;
        let silent = now.saturating_sub(peer.heard);
        let away = peer.away_until.is_some_and(|until| now < until);
        if away && !broken("away-is-dead") {
            PeerState::Away
        } else if peer.linked && peer.active && silent <= self.config.silent_after {
            PeerState::Active
        } else if silent > self.config.takeover_after {
            PeerState::Terminated
        } else if peer.met {
            PeerState::Silent
        } else {
            PeerState::Prospect
        }
    }

    pub(super) fn is_linked(&self, node: Node) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.linked)
    }

    pub(super) fn linked(&self) -> Nodes {
        let peers = self.peers.iter().filter(|(_, peer)| peer.linked);
        peers.map(|(node, _)| *node).collect()
    }

    /// How many other nodes are to hold a tuple: f, or as many as there are.
    pub(super) fn others_needed(&self) -> usize {
        let others = self.members.without(self.me).len();
        self.config.copies.min(others).min(crate::OWNERS_MAX - 1)
    }

    /// A number from the stream of this machine: `SplitMix64`.
    pub(super) fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        #[allow(clippy::cast_possible_truncation)] // A small number, whatever bits are taken.
        let number = (mixed >> 33) as usize;
        number.checked_rem(below).unwrap_or(0)
    }

    /// So many active peers at most, to be entrusted with something, and none of these.
    pub(super) fn choose(&mut self, count: usize, but: Nodes) -> Vec<Node> {
        let now = self.now.monotonic;
        let mut fit: Vec<(u64, Node)> = Vec::new();
        for (node, peer) in &self.peers {
            let is_fit = self.state_of(*node) == PeerState::Active
                && (!self.excluded.contains(*node) || broken("excluded-chosen"))
                && !but.contains(*node)
                && peer.refusing_until <= now;
            if is_fit {
                fit.push((peer.round_trip.unwrap_or(0), *node));
            }
        }
        match self.config.choice {
            Choice::Random => {
                for place in 0..count.min(fit.len()) {
                    let other = place + self.draw(fit.len() - place);
                    fit.swap(place, other);
                }
            }
            // The nearest of the far ones, then the farthest of the near ones.
            Choice::Nearest(least) => fit.sort_by_key(|(micros, node)| {
                let near = *micros < least;
                (near, if near { u64::MAX - micros } else { *micros }, *node)
            }),
        }
        fit.truncate(count);
        fit.into_iter().map(|(_, node)| node).collect()
    }

    /// After how long an owner that has not answered is replaced.
    pub(super) fn late_after(&self, owners: Nodes) -> u64 {
        let peers = owners.iter().filter_map(|node| self.peers.get(&node));
        // No answer can be there before the way there and back is over.
        let usual = peers.map(|peer| peer.late.max(peer.round_trip.unwrap_or(0)));
        (usual.max().unwrap_or(0) * LATE_TIMES).max(self.config.late_min)
    }

    /// An owner has answered a Store after so long.
    pub(super) fn note_answer(&mut self, node: Node, micros: u64) {
        if let Some(peer) = self.peers.get_mut(&node) {
            // The estimate rises by 99 parts for each answer above it, and falls by one for each below.
            let step = (peer.late / 1000).max(10);
            peer.late = if micros > peer.late {
                (peer.late + 99 * step).min(micros)
            } else {
                peer.late - step.min(peer.late - micros)
            };
        }
    }

    pub(super) fn note_refused(&mut self, node: Node) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.refusing_until = self.now.monotonic + REFUSED_MICROS;
        }
    }

    /// Has something sent to a peer, if it is linked.
    pub(super) fn send(&mut self, node: Node, statement: Statement) {
        let Some(peer) = self.peers.get_mut(&node).filter(|peer| peer.linked) else {
            return;
        };
        if peer.out.is_empty() {
            self.out.push_back(Output::Wake(node));
        }
        let before = peer.out_bytes;
        peer.out_bytes += statement.bytes();
        peer.out.push_back(statement);
        if peer.out_bytes > WAITING_BYTES_MAX && before <= WAITING_BYTES_MAX {
            self.out.push_back(Output::Close(node, Close::Behind));
        }
    }

    /// The next frame for a peer; none: nothing is to be said until [`Output::Wake`].
    pub fn transmit(&mut self, node: Node) -> Option<Frame> {
        let peer = self.peers.get_mut(&node)?;
        let mut bytes = 0;
        let mut frame: Option<Frame> = None;
        while let Some(next) = peer.out.front() {
            let more = next.bytes();
            if frame.is_some() && bytes + more > FRAME_BYTES {
                break;
            }
            let fits = matches!(
                (&frame, next),
                (None, _)
                    | (Some(Frame::Store(_)), Statement::Store(_))
                    | (Some(Frame::Stored(_)), Statement::Stored(..))
                    | (Some(Frame::NotStored(_)), Statement::NotStored(_))
                    | (Some(Frame::Progress(_)), Statement::Progress(..))
                    | (Some(Frame::Delete(_)), Statement::Delete(_))
                    | (Some(Frame::Deleted(_)), Statement::Deleted(_))
                    | (Some(Frame::Know(_)), Statement::Know(_))
            );
            if !fits {
                break;
            }
            bytes += more;
            peer.out_bytes = peer.out_bytes.saturating_sub(more);
            match (&mut frame, peer.out.pop_front()?) {
                (Some(Frame::Store(list)), Statement::Store(store)) => list.push(*store),
                (Some(Frame::Stored(list)), Statement::Stored(id, version)) => {
                    list.push((id, version));
                }
                (Some(Frame::NotStored(list)), Statement::NotStored(id)) => list.push(id),
                (Some(Frame::Progress(list)), Statement::Progress(id, progress)) => {
                    list.push((id, progress));
                }
                (Some(Frame::Delete(list)), Statement::Delete(delete)) => list.push(delete),
                (Some(Frame::Deleted(list)), Statement::Deleted(deleted)) => list.push(deleted),
                (Some(Frame::Know(list)), Statement::Know(know)) => list.push(*know),
                (_, Statement::Store(store)) => frame = Some(Frame::Store(vec![*store])),
                (_, Statement::Stored(id, version)) => {
                    frame = Some(Frame::Stored(vec![(id, version)]));
                }
                (_, Statement::NotStored(id)) => frame = Some(Frame::NotStored(vec![id])),
                (_, Statement::Progress(id, progress)) => {
                    frame = Some(Frame::Progress(vec![(id, progress)]));
                }
                (_, Statement::Delete(delete)) => frame = Some(Frame::Delete(vec![delete])),
                (_, Statement::Deleted(deleted)) => frame = Some(Frame::Deleted(vec![deleted])),
                (_, Statement::Know(know)) => frame = Some(Frame::Know(vec![*know])),
                (_, Statement::Frame(alone)) => {
                    frame = Some(alone);
                    break;
                }
            }
        }
        frame
    }

    pub(super) fn on_linked(&mut self, node: Node) {
        let now = self.now.monotonic;
        if self.is_linked(node) && !broken("old-link-goes-on") {
            self.on_unlinked(node);
        }
        let Some(peer) = self.peers.get_mut(&node) else {
            self.out.push_back(Output::Close(node, Close::NoMember));
            return;
        };
        peer.linked = true;
        peer.closing = false;
        peer.met = true;
        peer.heard = now;
        peer.deaf = false;
        self.peers_due = 0;
        self.waves.linked(node);
        self.send_wave(node);
        self.begin_comparing(node);
        if let Some(away) = self.leaving {
            self.send(node, Statement::Frame(Frame::Goodbye(away)));
        }
    }

    pub(super) fn on_unlinked(&mut self, node: Node) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        peer.linked = false;
        peer.active = false;
        self.peers_due = 0;
        self.comparing.remove(node);
        peer.out.clear();
        peer.out_bytes = 0;
        peer.comparing = Comparing::default();
        for busy in self.busy.values_mut() {
            busy.say.retain(|(to, _)| *to != node);
        }
        self.loads.retain(|(_, to)| *to != node);
        for nodes in self.reading.values_mut() {
            nodes.remove(node);
        }
        let of: Vec<Id> = self.stores.keys().copied().collect();
        of.into_iter().for_each(|id| self.store_over(node, id));
        self.round_without(node);
        self.replace_in_waiting(node);
    }

    /// Something came from a peer.
    pub(super) fn hear(&mut self, node: Node) {
        let now = self.now.monotonic;
        if let Some(peer) = self.peers.get_mut(&node) {
            let is_new = !peer.active || peer.state != PeerState::Active;
            peer.heard = now;
            peer.active = true;
            peer.deaf = false;
            if is_new || peer.away_until.is_some() {
                self.peers_due = 0;
            }
            if !broken("away-for-the-whole-time") && peer.away_until.take().is_some() {
                self.out.push_back(Output::Away(node, 0));
            }
        }
    }

    pub(super) fn on_goodbye(&mut self, node: Node, micros: u64) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.away_until = Some(self.now.monotonic.saturating_add(micros));
            self.peers_due = 0;
            self.out.push_back(Output::Away(node, micros));
        }
    }

    pub(super) fn on_leaving(&mut self, micros: u64) {
        self.leaving = Some(micros);
        for node in self.linked().iter() {
            self.send(node, Statement::Frame(Frame::Goodbye(micros)));
        }
    }

    /// Looks at what time has made of the peers, when it is time.
    pub(super) fn look_at_peers(&mut self) {
        let now = self.now.monotonic;
        if now < self.peers_due {
            return;
        }
        let nodes: Vec<Node> = self.peers.keys().copied().collect();
        for node in nodes {
            let state = self.state_of(node);
            let repair_after = self.config.repair_after;
            let Some(peer) = self.peers.get_mut(&node) else {
                continue;
            };
            let was = peer.state;
            peer.state = state;
            let away = state == PeerState::Away && !broken("away-is-missing");
            if state == PeerState::Active || away {
                peer.missing_since = None;
            } else {
                let since = *peer.missing_since.get_or_insert(now);
                // It is time to look for tuples that have too few owners, once.
                if now >= since + repair_after && self.repair_seen < since + repair_after {
                    self.repair_seen = now;
                    self.walk.again = true;
                }
            }
            if state == PeerState::Terminated && was != state {
                self.walk.again = true;
            }
            let silent = now.saturating_sub(peer.heard) > self.config.silent_after;
            // A link in one direction is none: the other end is to learn that nothing arrives.
            if peer.linked && silent && !peer.closing && !broken("one-way-link-kept") {
                peer.closing = true;
                self.out.push_back(Output::Close(node, Close::Silent));
            }
        }
        self.peers_due = self.peers_deadline().unwrap_or(u64::MAX);
    }

    /// When the state of a peer changes by time alone.
    fn peers_deadline(&self) -> Option<u64> {
        let now = self.now.monotonic;
        let times = self.peers.values().flat_map(|peer| {
            [
                peer.away_until,
                peer.linked
                    .then_some(peer.heard + self.config.silent_after + 1),
                Some(peer.heard + self.config.takeover_after + 1),
                peer.missing_since
                    .map(|since| since + self.config.repair_after),
            ]
        });
        times.flatten().filter(|at| *at > now).min()
    }
}
