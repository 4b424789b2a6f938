//! What other nodes say, and the driver of them.

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_queue::{self as machine, Node};

use super::{Phase, QueueOwner};
use crate::{
    machine::{Now, Output},
    peers::{Frame, PeerInput, PeerOutput},
};

impl QueueOwner {
    /// Gives the members their numbers.
    pub(super) fn name_nodes(&mut self) {
        let peers = self.config.peers.iter();
        let nodes = peers.filter_map(|(peer, slot)| Some((Node::new(*slot)?, *peer)));
        self.nodes = nodes.collect();
    }

    /// The number of a member.
    pub(super) fn node_of(&self, peer: Incarnation) -> Option<Node> {
        Node::new(*self.config.peers.get(&peer)?)
    }

    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(mut members) => {
                if let Some(slot) = members.remove(&self.config.origin) {
                    self.config.slot = slot;
                }
                self.config.peers = members;
                self.name_nodes();
                let members = self.members();
                self.tell(now, machine::Input::Members(members));
            }
            PeerInput::Holders(holders) => self.config.holders = holders,
            PeerInput::Linked(peer, _) if self.config.peers.contains_key(&peer) => {
                self.unlinked(now, peer);
                self.links.insert(peer);
                self.forwarding.linked(peer);
                if let Some(node) = self.node_of(peer) {
                    self.tell(now, machine::Input::Linked(node));
                }
                self.fill(now);
            }
            PeerInput::Unlinked(peer) => {
                if let Some(node) = self.node_of(peer) {
                    self.tell(now, machine::Input::Unlinked(node));
                }
                self.unlinked(now, peer);
            }
            PeerInput::RoundTrip(peer, micros) => {
                if let Some(node) = self.node_of(peer) {
                    self.tell(now, machine::Input::RoundTrip(node, micros));
                }
            }
            PeerInput::Frame(peer, frame) if self.links.contains(&peer) => {
                self.frame(now, peer, frame);
            }
            PeerInput::Ready(PartitionId::QUEUE, to) => self.transmit(to.peer),
            PeerInput::Body(blob, _) => self.body_came(blob),
            PeerInput::WantAgain(blob) => {
                if self.arriving.wants(&blob) || self.forwarding.wants(&blob) {
                    self.out.push_back(Output::Peer(PeerOutput::Request(blob)));
                }
            }
            PeerInput::Clock(clock) => self.stamps.set_clock(clock),
            PeerInput::Former(_)
            | PeerInput::Closed(_)
            | PeerInput::GiveUp(_)
            | PeerInput::Linked(..)
            | PeerInput::Frame(..)
            | PeerInput::Ready(..)
            | PeerInput::Open(_)
            | PeerInput::Logs(..)
            | PeerInput::Log(..)
            | PeerInput::Snapshot(..)
            | PeerInput::Rows(..)
            | PeerInput::NoBody(_)
            | PeerInput::Missed(..) => {}
        }
    }

    /// The stream to a peer is gone, and with it what was on its way.
    fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.links.remove(&peer);
        if let Phase::Loading(loading) = &mut self.phase {
            loading.forget(peer);
        }
        self.arriving_unlinked(now, peer);
        self.forwarding_unlinked(now, peer);
    }

    fn frame(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        let bytes = match frame {
            Frame::Deliver(ask) => return self.asked(now, peer, ask),
            Frame::Delivered(answer) => return self.answered(now, peer, answer),
            Frame::Queue(bytes) => bytes,
            _ => return,
        };
        let frame = match machine::Frame::decode(bytes) {
            Ok(frame) => frame,
            Err(error) => {
                self.warn(format!(
                    "a frame of the queue of {peer:?} cannot be read: {error}"
                ));
                return self.out.push_back(Output::Peer(PeerOutput::Unlink(peer)));
            }
        };
        match (&mut self.phase, self.config.peers.get(&peer)) {
            (Phase::Loading(loading), _) => {
                if !loading.keep(peer, frame) {
                    self.out.push_back(Output::Peer(PeerOutput::Unlink(peer)));
                }
            }
            (Phase::Running(_), Some(slot)) => {
                if let Some(node) = Node::new(*slot) {
                    self.tell(now, machine::Input::Frame(node, frame));
                }
            }
            (Phase::Running(_), None) => {}
        }
    }

    /// The stream to a peer takes a frame.
    fn transmit(&mut self, peer: Incarnation) {
        if let Some(frame) = self.forwarding.next_frame(peer) {
            return self
                .out
                .push_back(Output::Peer(PeerOutput::Send(peer, frame)));
        }
        let node = self.node_of(peer);
        let frame = node.and_then(|node| self.running()?.transmit(node));
        let Some(frame) = frame else {
            return;
        };
        // Bodies of entries that are new there go behind them.
        let bodies: Vec<_> = match &frame {
            machine::Frame::Store(stores) => {
                let new = stores.iter().filter(|store| store.payload.is_some());
                let new = new.map(|store| super::entry_id_of(store.id));
                new.filter_map(|id| self.bodies.get(&id).copied()).collect()
            }
            _ => Vec::new(),
        };
        let send = PeerOutput::Send(peer, Frame::Queue(frame.encode()));
        self.out.push_back(Output::Peer(send));
        if !bodies.is_empty() {
            self.out
                .push_back(Output::Peer(PeerOutput::Push(peer, bodies)));
        }
    }
}
