//! Deliveries that other nodes make: of accounts whose partition this node does not have, or not as a whole
//! ([`Input::NotHere`](crate::machine::Input::NotHere)).
//!
//! The node that acts on an entry asks a peer that holds the account's partition, and the next one when that says no. It sends the delivery along: who
//! is asked need have nothing of the entry. That node gets the body, holds it, makes the delivery, and answers when it is durable there and at as many
//! others as had to have the entry: then it counts here as if it had been made here. Ids of messages are derived, so whoever else makes it makes the
//! same.
//!
//! Invariants:
//! - A delivery counts when who was asked says that it is done, never because it was asked.
//! - Nobody asks on: who is asked makes it, or says no.
//! - From the question to the answer the machines of both nodes know of it, so that no node forgets what the delivery would bring back.
//! - What is asked holds as long as the stream. What is not answered is handed out again in the queue's own time, to whoever can make it then.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::{BlobName, EntryId};
use whimbrel_queue as machine;
use whimbrel_replication::wire::{Deliver, Delivered};
use whimbrel_storage::{Commit, Room};

use super::{QueueOwner, Waiting, entry_of_payload, payload_of_entry, rows};
use crate::{
    api::Entry,
    log,
    machine::{Now, Output, RequiredCopies, Ticket},
    owner::keys::partition_of,
    peers::{Frame, PeerOutput},
};

/// Deliveries that one peer is asked for at once. A way there and back with two syncs takes 100 ms where it is long: some six hundred a second.
const ASKED_MAX: usize = 64;

/// Deliveries that are made at once for others: the entry of each is in memory.
const MADE_MAX: usize = 256;

/// An entry, and which of its deliveries.
pub(super) type Delivery = (EntryId, usize);

/// What is asked of others, and what they ask.
#[derive(Default)]
pub(super) struct Forwarding {
    /// Linked peers, and what each is asked.
    asked: BTreeMap<Incarnation, BTreeSet<Delivery>>,
    /// Deliveries that are not made here, and who has said no.
    refused: BTreeMap<Delivery, BTreeSet<Incarnation>>,
    /// Those for which nobody had room, in the order in which they came to wait,
    waiting: BTreeMap<u64, Delivery>,
    /// and the place of each.
    places: BTreeMap<Delivery, u64>,
    next_place: u64,
    /// Peers are asked by turns.
    turn: usize,
    /// What peers ask of this node.
    made: BTreeMap<Delivery, Made>,
    by_body: BTreeMap<BlobName, BTreeSet<Delivery>>,
    under_way: BTreeMap<Ticket, Delivery>,
    /// What peers are told.
    frames: BTreeMap<Incarnation, VecDeque<Frame>>,
    /// Deliveries that others made since the start.
    pub(super) counted: u64,
}

/// A delivery that is made for others.
struct Made {
    /// For whom.
    peers: BTreeSet<Incarnation>,
    others: RequiredCopies,
    /// With this delivery alone.
    entry: Arc<Entry>,
    since: u64,
    state: State,
}

enum State {
    /// What holds the body is being written, or the body is not here.
    Waits,
    Holds,
    Making(Ticket),
}

impl Forwarding {
    /// There is a stream to a peer.
    pub(super) fn linked(&mut self, peer: Incarnation) {
        self.asked.insert(peer, BTreeSet::new());
    }

    pub(super) fn wants(&self, blob: &BlobName) -> bool {
        self.by_body.contains_key(blob)
    }

    /// Of this entry nothing is asked any more.
    pub(super) fn take_back(&mut self, id: EntryId) {
        let of = (id, 0)..=(id, usize::MAX);
        if self.refused.extract_if(of, |_, _| true).count() > 0 {
            let of = || (id, 0)..=(id, usize::MAX);
            for (_, place) in self.places.extract_if(of(), |_, _| true) {
                self.waiting.remove(&place);
            }
        }
    }

    /// There will be room for it.
    fn wait(&mut self, delivery: Delivery) {
        self.next_place += 1;
        self.waiting.insert(self.next_place, delivery);
        if let Some(before) = self.places.insert(delivery, self.next_place) {
            self.waiting.remove(&before);
        }
    }

    /// What a peer is told next of deliveries.
    pub(super) fn next_frame(&mut self, peer: Incarnation) -> Option<Frame> {
        self.frames.get_mut(&peer)?.pop_front()
    }
}

impl QueueOwner {
    /// A delivery is not made here.
    pub(super) fn not_here(&mut self, now: Now, ticket: Ticket) {
        let Some((id, index)) = self.take_delivery(ticket) else {
            return self.made(ticket, false);
        };
        let is_open = self
            .acting
            .entries
            .get(&id)
            .is_some_and(|of| of.open.contains(&index));
        if !is_open {
            return;
        }
        self.forwarding.refused.entry((id, index)).or_default();
        if broken("forwarded-is-done") {
            return self.forwarded(now, (id, index), true);
        }
        self.ask_next(now, (id, index));
    }

    /// Asks the next peer for a delivery.
    fn ask_next(&mut self, now: Now, delivery: Delivery) {
        let Some(refused) = self.forwarding.refused.get(&delivery) else {
            return;
        };
        let pending = self.acting.entries.get(&delivery.0);
        let Some(account) = pending.and_then(|of| of.entry.deliveries.get(delivery.1)) else {
            return;
        };
        let partition = partition_of(account.account);
        let holds = |peer: Incarnation| self.config.holders.holds(peer, partition);
        let linked = self.forwarding.asked.iter();
        let left: Vec<_> = linked
            .filter(|(peer, _)| holds(**peer) && !refused.contains(*peer))
            .collect();
        let with_room = left.iter().filter(|(_, asked)| asked.len() < ASKED_MAX);
        let candidates: Vec<Incarnation> = with_room.map(|(peer, _)| **peer).collect();
        let Some(peer) = candidates
            .get(self.forwarding.turn % candidates.len().max(1))
            .copied()
        else {
            match left.is_empty() {
                false => self.forwarding.wait(delivery),
                // In the queue's own time.
                true => {
                    self.forwarding.refused.remove(&delivery);
                    self.nobody_delivers(now, delivery.0, delivery.1);
                }
            }
            return;
        };
        self.forwarding.turn = self.forwarding.turn.wrapping_add(1);
        if let Some(asked) = self.forwarding.asked.get_mut(&peer) {
            asked.insert(delivery);
        }
        if let Some(node) = self.node_of(peer) {
            self.tell(now, machine::Input::Asked(machine::Id(delivery.0.0), node));
        }
        self.ask(peer, delivery, partition);
    }

    fn ask(&mut self, peer: Incarnation, delivery: Delivery, partition: PartitionId) {
        let others = self.others_of(delivery.0, partition, Some(peer));
        let Some(pending) = self.acting.entries.get(&delivery.0) else {
            return;
        };
        let whole = &pending.entry;
        let deliveries = whole.deliveries.get(delivery.1).cloned();
        let alone = Entry {
            id: whole.id,
            sender: whole.sender.clone(),
            deliveries: deliveries.into_iter().collect(),
            blob: whole.blob,
            date: whole.date,
        };
        let ask = Deliver {
            entry: delivery.0.0,
            index: u32::try_from(delivery.1).unwrap_or(u32::MAX),
            needed: u32::try_from(others.needed).unwrap_or(u32::MAX),
            nodes: others.nodes,
            asks: others.asks,
            delivery: payload_of_entry(&alone),
        };
        self.send(peer, Frame::Deliver(ask));
    }

    /// A peer has answered.
    pub(super) fn answered(&mut self, now: Now, peer: Incarnation, answer: Delivered) {
        let delivery = (EntryId(answer.entry), answer.index as usize);
        let Some(asked) = self.forwarding.asked.get_mut(&peer) else {
            return;
        };
        if !asked.remove(&delivery) {
            return;
        }
        self.asks_no_more(now, peer, delivery.0);
        if let Some(refused) = self.forwarding.refused.get_mut(&delivery) {
            if !answer.done {
                refused.insert(peer);
            }
            self.forwarded(now, delivery, answer.done);
        }
        self.fill(now);
    }

    /// Nothing of this entry is under way at the peer, but what it is asked otherwise.
    fn asks_no_more(&mut self, now: Now, peer: Incarnation, id: EntryId) {
        let asked = self.forwarding.asked.get(&peer);
        let others =
            asked.is_some_and(|asked| asked.range((id, 0)..=(id, usize::MAX)).next().is_some());
        if !others && let Some(node) = self.node_of(peer) {
            self.tell(now, machine::Input::Answered(machine::Id(id.0), node));
        }
    }

    fn forwarded(&mut self, now: Now, delivery: Delivery, done: bool) {
        if done {
            self.forwarding.refused.remove(&delivery);
            self.forwarding.counted += 1;
            self.delivery_done(now, delivery.0, delivery.1);
        } else {
            self.ask_next(now, delivery);
        }
    }

    /// There may be room for what waits.
    pub(super) fn fill(&mut self, now: Now) {
        // Whom the first ones have asked already may be the only one with room: they wait on, behind the others, and so all have their turn.
        for _ in 0..ASKED_MAX {
            let asked = &self.forwarding.asked;
            if asked.values().all(|asked| asked.len() >= ASKED_MAX) {
                return;
            }
            let Some((_, delivery)) = self.forwarding.waiting.pop_first() else {
                return;
            };
            self.forwarding.places.remove(&delivery);
            self.ask_next(now, delivery);
        }
    }

    /// The stream to a peer is gone, and with it what was asked on it.
    pub(super) fn forwarding_unlinked(&mut self, now: Now, peer: Incarnation) {
        self.forwarding.frames.remove(&peer);
        let asked = self.forwarding.asked.remove(&peer);
        let made = self.forwarding.made.iter_mut();
        let orphaned = made.filter_map(|(delivery, made)| {
            let was = made.peers.remove(&peer);
            let begun = matches!(made.state, State::Making(_));
            (was && made.peers.is_empty() && !begun).then_some(*delivery)
        });
        for delivery in orphaned.collect::<Vec<_>>() {
            self.end_made(delivery, false);
        }
        // Whoever was asked may still make it: the machine counts it until that node confirms that the entry is done.
        for delivery in asked.into_iter().flatten() {
            self.ask_next(now, delivery);
        }
    }

    // --- For others ----------------------------------------------------------------------------------------------------

    /// A peer asks for a delivery.
    pub(super) fn asked(&mut self, now: Now, peer: Incarnation, ask: Deliver) {
        let delivery = (EntryId(ask.entry), ask.index as usize);
        let members = |node: &Incarnation| self.config.peers.contains_key(node);
        let others = RequiredCopies {
            needed: ask.needed as usize,
            nodes: ask.nodes.into_iter().filter(members).collect(),
            asks: ask.asks,
        };
        if let Some(made) = self.forwarding.made.get_mut(&delivery) {
            made.peers.insert(peer);
            made.others = others;
            // Who asks again has heard nothing: what is under way may be lost.
            if let State::Making(ticket) = made.state {
                self.forwarding.under_way.remove(&ticket);
                self.make(delivery);
            }
            return;
        }
        let id = delivery.0;
        let entry = entry_of_payload(id, &ask.delivery);
        let entry = entry.filter(|entry| entry.deliveries.len() == 1);
        let is_running = matches!(self.phase, super::Phase::Running(_));
        if self.forwarding.made.len() >= MADE_MAX {
            self.end_old(now);
        }
        let is_full = self.forwarding.made.len() >= MADE_MAX;
        let (Some(entry), true, false) = (entry, is_running, is_full) else {
            return self.answer_asked(peer, delivery, false);
        };
        let blob = entry.blob;
        let made = Made {
            peers: [peer].into(),
            others,
            entry: entry.into(),
            since: now.mono_micros,
            state: State::Waits,
        };
        self.forwarding.made.insert(delivery, made);
        self.forwarding
            .by_body
            .entry(blob)
            .or_default()
            .insert(delivery);
        self.hold(now, id);
        self.out.push_back(Output::Peer(PeerOutput::Request(blob)));
    }

    /// A body is here: deliveries that wait for it hold it.
    pub(super) fn body_to_make(&mut self, blob: BlobName) {
        for delivery in self.forwarding.by_body.remove(&blob).unwrap_or_default() {
            let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
            commit.mutations = rows::hold(numbered(delivery), &blob).into();
            self.commit(commit, Waiting::Hold(delivery, blob));
        }
    }

    /// The body of a delivery is held, or the disk has refused that.
    pub(super) fn held(&mut self, delivery: Delivery, blob: BlobName, done: bool) {
        match self.forwarding.made.get_mut(&delivery) {
            Some(made) if !matches!(made.state, State::Waits) => {}
            Some(_) if !done => self.end_made(delivery, false),
            Some(made) if made.peers.is_empty() => {
                made.state = State::Holds;
                self.end_made(delivery, false);
            }
            Some(_) => self.make(delivery),
            None if done => self.let_go(delivery, &blob),
            None => {}
        }
    }

    fn make(&mut self, delivery: Delivery) {
        let ticket = self.ticket();
        let Some(made) = self.forwarding.made.get_mut(&delivery) else {
            return;
        };
        made.state = State::Making(ticket);
        let (entry, others) = (Arc::clone(&made.entry), made.others.clone());
        self.forwarding.under_way.insert(ticket, delivery);
        self.out.push_back(Output::Deliver {
            ticket,
            entry,
            index: 0,
            others,
        });
    }

    /// What has waited for long makes room: it is asked for again.
    fn end_old(&mut self, now: Now) {
        let patience = self.config.limits.retry_after_seconds * 1_000_000;
        let before = now.mono_micros.saturating_sub(patience);
        let old = self.forwarding.made.iter();
        let old = old.filter(|(_, made)| made.since <= before);
        for delivery in old.map(|(delivery, _)| *delivery).collect::<Vec<_>>() {
            self.end_made(delivery, false);
        }
    }

    fn let_go(&mut self, delivery: Delivery, blob: &BlobName) {
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        (commit.lazy, commit.room) = (true, Room::Frees);
        commit.mutations = rows::let_go(numbered(delivery), blob).into();
        self.commit(commit, Waiting::Nothing);
    }

    /// Whether deliveries of the entry are made for others.
    pub(super) fn makes(&self, id: EntryId) -> bool {
        let mut of = self.forwarding.made.range((id, 0)..=(id, usize::MAX));
        of.next().is_some()
    }

    /// A delivery was made for others, or cannot be made now.
    pub(super) fn made(&mut self, ticket: Ticket, done: bool) {
        if let Some(delivery) = self.forwarding.under_way.remove(&ticket) {
            self.end_made(delivery, done);
        }
    }

    /// The entry is done: what has not begun of it is not made.
    pub(super) fn cancelled(&mut self, id: machine::Id) {
        let id = super::entry_id_of(id);
        let of = self.forwarding.made.range((id, 0)..=(id, usize::MAX));
        for delivery in of.map(|(delivery, _)| *delivery).collect::<Vec<_>>() {
            self.end_made(delivery, false);
        }
        self.close(id);
    }

    fn end_made(&mut self, delivery: Delivery, done: bool) {
        let Some(made) = self.forwarding.made.remove(&delivery) else {
            return;
        };
        let blob = made.entry.blob;
        if let Some(waiting) = self.forwarding.by_body.get_mut(&blob) {
            waiting.remove(&delivery);
            if waiting.is_empty() {
                self.forwarding.by_body.remove(&blob);
            }
        }
        if let State::Making(ticket) = made.state {
            self.forwarding.under_way.remove(&ticket);
        }
        // Before that commit is made no owner begins with it any more.
        self.close(delivery.0);
        if !matches!(made.state, State::Waits) {
            self.let_go(delivery, &blob);
        }
        for peer in made.peers {
            self.answer_asked(peer, delivery, done);
        }
    }

    fn answer_asked(&mut self, peer: Incarnation, (id, index): Delivery, done: bool) {
        let answer = Delivered {
            entry: id.0,
            index: u32::try_from(index).unwrap_or(u32::MAX),
            done,
        };
        self.send(peer, Frame::Delivered(answer));
    }

    fn send(&mut self, peer: Incarnation, frame: Frame) {
        let frames = self.forwarding.frames.entry(peer).or_default();
        // A stream that takes nothing: what is not answered is asked again.
        if self.links.contains(&peer) && frames.len() < 4 * MADE_MAX {
            frames.push_back(frame);
            let wake = PeerOutput::Wake(PartitionId::QUEUE, peer);
            self.out.push_back(Output::Peer(wake));
        }
    }
}

fn numbered((id, index): Delivery) -> (EntryId, u32) {
    (id, u32::try_from(index).unwrap_or(u32::MAX))
}
