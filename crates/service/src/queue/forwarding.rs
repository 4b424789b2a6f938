//! Deliveries that other nodes make: of accounts whose partition this node does not have, or not as a whole
//! ([`Input::NotHere`](crate::machine::Input::NotHere)).
//!
//! The node that delivers an entry asks a peer that holds the account's partition, and the next one when that says no. Who is asked makes the
//! delivery from its own copy of the entry, and answers when it is durable there and at as many others as had to have the entry: then it counts here
//! as if it had been made here. Ids of messages are derived, so whoever else makes it makes the same.
//!
//! Invariants:
//! - A delivery counts when who was asked says that it is done, never because it was asked.
//! - Nobody asks on: who is asked makes it, or says no.
//! - Of an entry that is not known here by its log, or lacks its body, nothing is delivered: it waits for them.
//! - What is asked holds as long as the stream. What is not answered is handed out again in the queue's own time, to whoever can make it then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::EntryId;
use whimbrel_replication::wire::{Deliver, Delivered, FEATURE_DELIVER};

use super::{
    Phase, QueueOwner,
    rows::{entry_key, entry_of_row},
};
use crate::{
    machine::{Now, Output, RequiredCopies, Ticket},
    owner::keys::partition_of,
    peers::{Frame, PeerOutput, Phase::Holds},
};

/// Deliveries that one peer is asked for at once, and that are kept of what it asks. A way there and back with two syncs takes 100 ms where it is long:
/// some six hundred a second.
const HANDED_MAX: usize = 64;

/// Deliveries that are made at once for others: the entry of each is in memory.
const MADE_MAX: usize = 64;

/// An entry, and which of its deliveries.
type Delivery = (EntryId, usize);

/// What is asked of others, and what they ask.
#[derive(Default)]
pub(super) struct Forwarding {
    /// Linked peers that can be asked, and what each is.
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
    /// Of these, what is under way: rows that are read, deliveries that are handed out.
    under_way: BTreeMap<Ticket, Delivery>,
    /// What peers are told.
    frames: BTreeMap<Incarnation, VecDeque<Frame>>,
}

/// A delivery that is made for others.
struct Made {
    /// For whom.
    peers: BTreeSet<Incarnation>,
    others: RequiredCopies,
    /// When it was asked for last.
    since: u64,
    /// What is under way of it; `None`: something is missing for it.
    ticket: Option<Ticket>,
}

impl Forwarding {
    /// There is a stream to a peer.
    pub(super) fn linked(&mut self, peer: Incarnation, features: u64) {
        if features & FEATURE_DELIVER != 0 {
            self.asked.insert(peer, BTreeSet::new());
        }
    }

    /// Whether it is something that is done for others.
    pub(super) fn is_reading(&self, ticket: Ticket) -> bool {
        self.under_way.contains_key(&ticket)
    }

    /// All of the queue is read again.
    pub(super) fn begin_anew(&mut self) {
        self.asked.values_mut().for_each(BTreeSet::clear);
        self.refused.clear();
        self.waiting.clear();
        self.places.clear();
        self.made.clear();
        self.under_way.clear();
    }

    /// Whether something of this entry is asked of others.
    pub(super) fn is_asked(&self, id: EntryId) -> bool {
        let of = || (id, 0)..=(id, usize::MAX);
        let mut asked = self.asked.values();
        asked.any(|asked| asked.range(of()).next().is_some())
    }

    /// What was asked of this node last before this time is not answered any more.
    fn drop_old(&mut self, before: u64) {
        for (_, made) in self.made.extract_if(.., |_, made| made.since <= before) {
            if let Some(ticket) = made.ticket {
                self.under_way.remove(&ticket);
            }
        }
    }

    /// Of this entry nothing is asked any more.
    pub(super) fn take_back(&mut self, id: EntryId) {
        let of = (id, 0)..=(id, usize::MAX);
        if self.refused.extract_if(of, |_, _| true).count() > 0 {
            let of = || (id, 0)..=(id, usize::MAX);
            for asked in self.asked.values_mut() {
                asked.extract_if(of(), |_| true).for_each(drop);
            }
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

    /// It is finished, or given up.
    pub(super) fn close(&mut self, id: EntryId) {
        self.take_back(id);
        let of = (id, 0)..=(id, usize::MAX);
        for (_, made) in self.made.extract_if(of, |_, _| true) {
            if let Some(ticket) = made.ticket {
                self.under_way.remove(&ticket);
            }
        }
    }
}

impl QueueOwner {
    /// Partitions of deliveries of which nobody else has the entry, since it was accepted alone.
    pub(super) fn keeps(&self) -> BTreeSet<PartitionId> {
        let alone = self.entries.values().filter(|of| of.taken.is_none());
        let open = alone.flat_map(|of| {
            let deliveries = of.open.iter();
            deliveries.filter_map(|index| of.entry.deliveries.get(*index))
        });
        open.map(|delivery| partition_of(delivery.account))
            .collect()
    }

    /// A delivery is not made here.
    pub(super) fn not_here(&mut self, now: Now, ticket: Ticket) {
        let Some((id, index)) = self.deliveries.remove(&ticket) else {
            return self.made(ticket, false);
        };
        // One that was accepted alone nobody else has.
        let is_open = |of: &super::Pending| of.taken.is_some() && of.open.contains(&index);
        if !self.entries.get(&id).is_some_and(is_open) {
            return;
        }
        self.forwarding.refused.entry((id, index)).or_default();
        if broken("forwarded-is-done") {
            return self.forwarded(now, (id, index), true);
        }
        self.ask_next((id, index));
    }

    /// Asks the next peer for a delivery, those first that have told of the body.
    fn ask_next(&mut self, delivery: Delivery) {
        let Some(refused) = self.forwarding.refused.get(&delivery) else {
            return;
        };
        let deliveries = self.entries.get(&delivery.0);
        let deliveries = deliveries.and_then(|of| of.entry.deliveries.get(delivery.1));
        let Some(partition) = deliveries.map(|of| partition_of(of.account)) else {
            return;
        };
        let holds = |peer: Incarnation| {
            let holder_state = self.config.holders.holder_state(peer, partition);
            holder_state.phase == Holds
        };
        let left = || {
            let linked = self.forwarding.asked.iter();
            linked.filter(|(peer, _)| holds(**peer) && !refused.contains(*peer))
        };
        let holders = self.holders.get(&delivery.0);
        let has_body = |peer: &Incarnation| holders.is_some_and(|of| of.contains(peer));
        let has_room = |asked: &BTreeSet<Delivery>| asked.len() < HANDED_MAX;
        let (first, others): (Vec<_>, Vec<_>) = left()
            .filter(|(_, asked)| has_room(asked))
            .map(|(peer, _)| *peer)
            .partition(has_body);
        let candidates = if first.is_empty() { others } else { first };
        let Some(peer) = candidates.get(self.forwarding.turn % candidates.len().max(1)) else {
            match left().next() {
                Some(_) => self.forwarding.wait(delivery),
                // In the queue's own time.
                None => _ = self.forwarding.refused.remove(&delivery),
            }
            return;
        };
        let peer = *peer;
        self.forwarding.turn = self.forwarding.turn.wrapping_add(1);
        if let Some(asked) = self.forwarding.asked.get_mut(&peer) {
            asked.insert(delivery);
        }
        self.ask(peer, delivery);
    }

    fn ask(&mut self, peer: Incarnation, delivery: Delivery) {
        let mut others = self.others_of(delivery.0);
        // This node has the body, too, and may take part in the account's partition without having all of it.
        others.nodes.insert(self.config.origin);
        let ask = Deliver {
            entry: delivery.0.0,
            index: u32::try_from(delivery.1).unwrap_or(u32::MAX),
            needed: u32::try_from(others.needed).unwrap_or(u32::MAX),
            nodes: others.nodes,
        };
        self.send(peer, Frame::Deliver(ask));
    }

    /// One more node has told of an entry's body: who is asked for a delivery may have known of too few beside itself.
    pub(super) fn holders_grew(&mut self, id: EntryId) {
        let Some(holders) = self.holders.get(&id) else {
            return;
        };
        let needed = self.needed();
        let too_few = |peer: Incarnation| {
            let others = holders.iter().filter(|node| **node != peer);
            others.count() <= needed
        };
        let of = |asked: &BTreeSet<Delivery>| -> Vec<Delivery> {
            asked.range((id, 0)..=(id, usize::MAX)).copied().collect()
        };
        let asked = self.forwarding.asked.iter();
        let asked = asked.filter(|(peer, _)| too_few(**peer));
        let asked: Vec<_> = asked.map(|(peer, asked)| (*peer, of(asked))).collect();
        for (peer, deliveries) in asked {
            for delivery in deliveries {
                self.ask(peer, delivery);
            }
        }
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
        if let Some(refused) = self.forwarding.refused.get_mut(&delivery) {
            if !answer.done {
                refused.insert(peer);
            }
            self.forwarded(now, delivery, answer.done);
        }
        self.fill();
    }

    fn forwarded(&mut self, now: Now, delivery: Delivery, done: bool) {
        if done {
            self.forwarding.refused.remove(&delivery);
            self.counted_handed += 1;
            self.delivery_done(now, delivery.0, delivery.1);
        } else {
            self.ask_next(delivery);
        }
    }

    /// There may be room for what waits.
    pub(super) fn fill(&mut self) {
        // Whom the first ones have asked already may be the only one with room: they wait on, behind the others, and so all have their turn.
        for _ in 0..HANDED_MAX {
            let asked = &self.forwarding.asked;
            if asked.values().all(|asked| asked.len() >= HANDED_MAX) {
                return;
            }
            let Some((_, delivery)) = self.forwarding.waiting.pop_first() else {
                return;
            };
            self.forwarding.places.remove(&delivery);
            self.ask_next(delivery);
        }
    }

    /// The stream to a peer is gone, and with it what was asked on it.
    pub(super) fn hands_unlinked(&mut self, peer: Incarnation) {
        let forwarding = &mut self.forwarding;
        forwarding.frames.remove(&peer);
        let asked = forwarding.asked.remove(&peer);
        let made = forwarding.made.extract_if(.., |_, made| {
            made.peers.remove(&peer);
            made.peers.is_empty()
        });
        for ticket in made.filter_map(|(_, made)| made.ticket) {
            forwarding.under_way.remove(&ticket);
        }
        for delivery in asked.into_iter().flatten() {
            self.ask_next(delivery);
        }
    }

    // --- For others ----------------------------------------------------------------------------------------------------

    /// A peer asks for a delivery.
    pub(super) fn asked(&mut self, now: Now, peer: Incarnation, ask: Deliver) {
        let delivery = (EntryId(ask.entry), ask.index as usize);
        let waited = self.config.limits.retry_after_seconds * 1_000_000;
        let of_peer = |made: &Made| made.peers.contains(&peer);
        let is_full = |forwarding: &Forwarding| {
            let of_it = forwarding.made.values().filter(|of| of_peer(of)).count();
            !forwarding.made.contains_key(&delivery) && of_it >= HANDED_MAX
        };
        // What it has asked again elsewhere meanwhile, and what waits for nodes that are away: others, which wait for nobody, have their turn. It is
        // made, and is asked for again.
        if is_full(&self.forwarding) || self.forwarding.under_way.len() >= MADE_MAX {
            self.forwarding
                .drop_old(now.mono_micros.saturating_sub(waited));
        }
        if is_full(&self.forwarding) {
            return self.answer_asked(peer, delivery, false);
        }
        let made = &mut self.forwarding.made;
        let made = made.entry(delivery).or_insert_with(|| Made {
            peers: BTreeSet::new(),
            others: RequiredCopies::default(),
            since: now.mono_micros,
            ticket: None,
        });
        made.peers.insert(peer);
        made.since = now.mono_micros;
        // All of them have the body as long as the entry is there, whoever asks.
        made.others.needed = made.others.needed.max(ask.needed as usize);
        let members = |node: &Incarnation| self.config.peers.contains(node);
        made.others
            .nodes
            .extend(ask.nodes.into_iter().filter(members));
        // Who asks again has heard nothing: what is under way may be lost.
        if let Some(ticket) = made.ticket.take() {
            self.forwarding.under_way.remove(&ticket);
        }
        self.make(delivery);
    }

    /// Makes a delivery for others, if it can be made now.
    fn make(&mut self, (id, index): Delivery) {
        if let Some(entry) = self.entries.get(&id) {
            // It is delivered here: what that comes to is known when it is asked again.
            let done = !entry.open.contains(&index);
            return self.answer_made((id, index), done);
        }
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let Some(other) = self.others.get(&id) else {
            return;
        };
        let is_complete = other.durable && !self.missing_blobs.contains_key(&other.blob);
        // A state may have brought it that is not joined: it may be finished.
        if !is_complete || other.taken.is_in(running.log.applied()) == Some(false) {
            return;
        }
        if self.forwarding.under_way.len() >= MADE_MAX {
            return;
        }
        let ticket = self.ticket();
        if let Some(made) = self.forwarding.made.get_mut(&(id, index)) {
            made.ticket = Some(ticket);
            self.forwarding.under_way.insert(ticket, (id, index));
            let key = entry_key(id);
            self.out.push_back(Output::Load {
                ticket,
                partition: PartitionId::QUEUE,
                to: [&key[..], &[0]].concat(),
                from: key.into(),
            });
        }
    }

    /// Something was missing for deliveries of this entry.
    pub(super) fn make_all_of(&mut self, id: EntryId) {
        let of = self.forwarding.made.range((id, 0)..=(id, usize::MAX));
        let idle = of.filter(|(_, made)| made.ticket.is_none());
        let idle: Vec<Delivery> = idle.map(|(delivery, _)| *delivery).collect();
        for delivery in idle {
            self.make(delivery);
        }
    }

    /// The row of an entry was read; whether it was for a delivery that is made for others.
    pub(super) fn read_to_make(&mut self, ticket: Ticket, rows: &[(Vec<u8>, Bytes)]) -> bool {
        let Some(delivery) = self.forwarding.under_way.get(&ticket).copied() else {
            return false;
        };
        let entry = rows.first().and_then(|(key, row)| entry_of_row(key, row));
        let entry = entry.filter(|(entry, _)| delivery.1 < entry.deliveries.len());
        match (entry, self.forwarding.made.get(&delivery)) {
            (Some((entry, _)), Some(made)) => self.out.push_back(Output::Deliver {
                ticket,
                entry: entry.into(),
                index: delivery.1,
                others: made.others.clone(),
            }),
            _ => self.made(ticket, false),
        }
        true
    }

    /// A delivery was made for others, or cannot be made now.
    pub(super) fn made(&mut self, ticket: Ticket, done: bool) {
        let was_full = self.forwarding.under_way.len() >= MADE_MAX;
        if let Some(delivery) = self.forwarding.under_way.remove(&ticket) {
            self.answer_made(delivery, done);
        }
        if was_full {
            self.make_idle();
        }
    }

    /// What was asked may be made now: the rows have been read, or there is room.
    pub(super) fn make_idle(&mut self) {
        let idle = self.forwarding.made.iter();
        let idle = idle.filter(|(_, made)| made.ticket.is_none());
        let idle: Vec<Delivery> = idle.map(|(delivery, _)| *delivery).collect();
        for delivery in idle {
            self.make(delivery);
        }
    }

    fn answer_made(&mut self, delivery: Delivery, done: bool) {
        if let Some(made) = self.forwarding.made.remove(&delivery) {
            for peer in made.peers {
                self.answer_asked(peer, delivery, done);
            }
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
        if self.links.contains(&peer) && frames.len() < 4 * HANDED_MAX {
            frames.push_back(frame);
            let wake = PeerOutput::Wake(PartitionId::QUEUE, peer);
            self.out.push_back(Output::Peer(wake));
        }
    }

    /// What a peer is told next of deliveries.
    pub(super) fn next_forwarded(&mut self, peer: Incarnation) -> Option<Frame> {
        self.forwarding.frames.get_mut(&peer)?.pop_front()
    }
}
