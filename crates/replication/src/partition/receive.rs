//! Frames from peers.

use bytes::Bytes;
use whimbrel_crdt::{Batch, Hash, Incarnation, VersionVector};

use super::{
    Alarm, Foreign, Output, Partition, Pending,
    origin::{Origin, Waiting},
    peer::Lag,
};
use crate::{
    Now, broken,
    wire::{Ack, Batches, Frame, Hello},
};

/// What became of a batch.
enum Fate {
    /// The batch is being stored, or was here already.
    Fine,
    /// A batch before it is missing, or there is no room: the peer has to send it again.
    Again,
    /// The link is stopped.
    Stopped,
}

impl Partition {
    pub(super) fn linked(&mut self, now: Now, id: Incarnation) {
        if id == self.me {
            return;
        }
        let left = self.has_left(id);
        let peer = self.peers.entry(id).or_default();
        peer.there = true;
        if left {
            return;
        }
        peer.link(now.mono_micros);
        if let Some(give) = self.gives.get_mut(&id) {
            give.stop();
        }
        self.wake(id);
    }

    pub(super) fn received(&mut self, now: Now, id: Incarnation, frame: Frame) {
        if !self.peers.get(&id).is_some_and(|peer| peer.linked) {
            return;
        }
        match frame {
            Frame::Hello(frame) if frame.partition == self.id => self.hello(now, id, frame),
            Frame::Batches(frame) if frame.partition == self.id => self.batches(now, id, frame),
            Frame::Ack(frame) if frame.partition == self.id => self.ack(now, id, frame),
            Frame::StateBegin(frame) if frame.partition == self.id => {
                self.state_begin(now, id, frame);
            }
            Frame::StateChunk(frame) if frame.partition == self.id => {
                self.state_chunk(now, id, frame);
            }
            Frame::StateEnd(frame) if frame.partition == self.id => self.state_end(now, id, frame),
            Frame::StateTake(frame) if frame.partition == self.id => {
                self.asked_for_state(now, id, frame);
            }
            _ => {}
        }
    }

    fn hello(&mut self, now: Now, id: Incarnation, hello: Hello) {
        if !self.is_of_now(id, hello.lives) {
            return;
        }
        for head in &hello.heads {
            let number = hello.durable.get(head.origin);
            let Some(origin) = self.origins.get(&head.origin) else {
                continue;
            };
            if origin.differs(number, head.hash()) && !broken("fork-unnoticed") {
                let alarm = Alarm::TwoHashes {
                    peer: id,
                    origin: head.origin,
                    number,
                };
                return self.stop(id, alarm);
            }
        }
        if self.tells_of_too_many(id, [&hello.durable, &hello.applied]) {
            return self.stop(id, Alarm::Origins(id));
        }
        self.remembers(id, hello.durable.get(self.me));
        if hello.begins_anew() {
            self.linked(now, id);
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        // Set, not merged: what counts is what the peer's disk has now.
        peer.durable = hello.durable;
        peer.syncing = hello.syncing == Some(true);
        // The peer has not applied its own log, although it has it on disk: it needs a snapshot, whatever logs it has.
        peer.lacks_own = hello.applied.get(id) < peer.durable.get(id);
        peer.hint_due |= peer.lacks_own;
        peer.room = Some(self.config.room_of(Some(hello.room)));
        peer.greeted = true;
        peer.begin_again();
        peer.lag.clear();
        peer.behind.clear();
        if let Some(take) = self.take.as_mut().filter(|take| take.donor == id) {
            take.greeted(now);
        }
        self.wake(id);
        self.first_heard(id, hello.syncing == Some(true), &hello.applied);
        self.report(id, hello.applied);
        self.ship(now, id);
    }

    /// Whether a peer names more logs than are allowed. This node keeps the numbers and reports them back to the peer.
    fn tells_of_too_many(&self, id: Incarnation, told: [&VersionVector; 2]) -> bool {
        let Some(peer) = self.peers.get(&id) else {
            return false;
        };
        let most = self.config.origins_max;
        let mut known = [&peer.durable, &peer.applied].into_iter().zip(told);
        known.any(|(known, told)| {
            let new = || told.iter().filter(|(origin, _)| known.get(*origin) == 0);
            // Usually both are few, and the entries need not be compared.
            known.len() + told.len() > most && known.len() + new().count() > most
        })
    }

    fn ack(&mut self, now: Now, id: Incarnation, ack: Ack) {
        if !self.is_of_now(id, ack.lives) {
            return;
        }
        if self.tells_of_too_many(id, [&ack.durable, &ack.applied]) {
            return self.stop(id, Alarm::Origins(id));
        }
        self.remembers(id, ack.durable.get(self.me));
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        // The peer got further through others or with a snapshot: perhaps our log has what follows.
        let durable = &peer.durable;
        peer.behind
            .retain(|origin| ack.durable.get(*origin) <= durable.get(*origin));
        let before: Vec<(Incarnation, u64, u64)> = peer
            .lag
            .keys()
            .map(|origin| (*origin, peer.durable.get(*origin), peer.sent(*origin)))
            .collect();
        for (origin, durable, sent) in before {
            let now_durable = ack.durable.get(origin);
            let others_give = match peer.lag.get(&origin) {
                Some(Lag::Forwarding) => now_durable > sent,
                _ => now_durable > durable,
            };
            if others_give {
                peer.lag.insert(origin, Lag::Since(now.mono_micros));
            }
        }
        peer.acknowledged(&ack.durable, now.mono_micros);
        peer.lacks_own = ack.applied.get(id) < ack.durable.get(id);
        peer.room = Some(self.config.room_of(Some(ack.room)));
        peer.greeted = true;
        if ack.again == Some(peer.round) && !broken("nothing-sent-again") {
            peer.begin_again();
        }
        self.report(id, ack.applied);
        self.ship(now, id);
    }

    /// The peer has this much of our own log. Whether that is more than this node has.
    pub(super) fn remembers(&mut self, peer: Incarnation, number: u64) -> bool {
        let more = number > self.own_taken();
        if more {
            self.out
                .push_back(Output::Alarm(Alarm::Forgotten { peer, number }));
        }
        more
    }

    /// The last number of our own log.
    pub(super) fn own_taken(&self) -> u64 {
        self.origins.get(&self.me).map_or(0, |own| own.taken)
    }

    fn batches(&mut self, now: Now, id: Incarnation, frame: Batches) {
        let mut again = false;
        for bytes in frame.batches {
            match self.batch(now, id, bytes) {
                Fate::Fine => {}
                Fate::Again => again = true,
                Fate::Stopped => return,
            }
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            // Batches may come twice because an acknowledgement was lost.
            peer.ack_due = true;
            if again {
                peer.again = Some(frame.round);
            }
        }
        self.wake(id);
    }

    fn batch(&mut self, now: Now, id: Incarnation, bytes: Bytes) -> Fate {
        let batch = match Batch::decode(&bytes) {
            Ok(batch) if batch.partition == self.id => batch,
            Ok(_) => return self.malformed(id, "a batch of another partition".into()),
            Err(error) => return self.malformed(id, error.to_string()),
        };
        let hash = Hash(*blake3::hash(&bytes).as_bytes());
        let last = batch.last();
        if batch.origin == self.me {
            self.remembers(id, last);
        }
        let end = self
            .origins
            .get(&batch.origin)
            .map_or(0, |origin| origin.taken);
        let closed = self.closed.get(&batch.origin);
        let is_beyond = closed.is_some_and(|end| last > *end);
        if is_beyond && last > end && !broken("closed-log-goes-on") {
            return Fate::Fine;
        }
        if !self.origins.contains_key(&batch.origin) {
            if self.origins.len() >= self.config.origins_max {
                self.stop(id, Alarm::Origins(id));
                return Fate::Stopped;
            }
            self.origins.insert(batch.origin, Origin::empty());
        }
        let Some(origin) = self.origins.get_mut(&batch.origin) else {
            unreachable!("it was made just now");
        };
        let known = batch.first <= origin.taken;
        let follows = batch.first == origin.taken + 1;
        if known && !broken("duplicate-taken") {
            if (last > origin.taken || origin.differs(last, hash)) && !broken("fork-unnoticed") {
                return self.two_hashes(id, batch.origin, last);
            }
            return Fate::Fine;
        }
        let broken_rule = if known {
            broken("duplicate-taken")
        } else {
            broken("gap-taken")
        };
        if !follows && !broken_rule {
            return Fate::Again;
        }
        if batch.origin == self.me {
            // A batch of our own that this node does not have: the alarm was raised above.
            return Fate::Fine;
        }
        if batch.previous != origin.taken_hash && follows && !broken("chain-unchecked") {
            return self.two_hashes(id, batch.origin, batch.first);
        }
        self.take(now, id, batch, bytes, hash)
    }

    fn take(&mut self, now: Now, id: Incarnation, batch: Batch, bytes: Bytes, hash: Hash) -> Fate {
        let length = bytes.len();
        let window = self.room(self.peers.get(&id).and_then(|peer| peer.window));
        let Some(peer) = self.peers.get_mut(&id) else {
            return Fate::Stopped;
        };
        let full = peer.storing_bytes + length as u64 > window.bytes
            || peer.storing_batches >= window.batches;
        peer.used.came += length as u64;
        if full && peer.storing_batches > 0 && !broken("window-ignored") {
            peer.used.at_once(window.bytes);
            return Fate::Again;
        }
        peer.storing_bytes += length as u64;
        peer.used.at_once(peer.storing_bytes);
        peer.storing_batches += 1;
        let (from, last) = (batch.origin, batch.last());
        self.remembers(id, batch.deps.get(self.me));
        let waiting = Waiting::of(&batch);
        let ready = self.is_ready(now, from, &waiting);
        let Some(origin) = self.origins.get_mut(&from) else {
            unreachable!("the caller found it");
        };
        let next = origin.handed + 1 == batch.first;
        origin.took(last, hash);
        let apply = next && ready;
        if apply {
            origin.handed = last;
            self.hlc = self.hlc.max(waiting.hlc);
        } else if next {
            origin.head = Some(waiting);
        }
        self.mark(now, from, last, length);
        let ticket = self.ask(Pending::Store {
            peer: id,
            origin: from,
            last,
            hash,
            bytes: length,
            apply,
        });
        let foreign = Foreign {
            batch: Box::new(batch),
            bytes,
            hash,
        };
        self.out.push_back(Output::Store {
            ticket,
            foreign,
            apply,
        });
        if apply {
            self.read_on(Some(now));
        } else {
            self.tell_ahead(now, from);
        }
        Fate::Fine
    }

    fn two_hashes(&mut self, peer: Incarnation, origin: Incarnation, number: u64) -> Fate {
        let alarm = Alarm::TwoHashes {
            peer,
            origin,
            number,
        };
        self.stop(peer, alarm);
        Fate::Stopped
    }

    fn malformed(&mut self, peer: Incarnation, what: String) -> Fate {
        self.stop(peer, Alarm::Malformed { peer, what });
        Fate::Stopped
    }

    pub(super) fn stop(&mut self, id: Incarnation, alarm: Alarm) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.unlink();
        }
        if let Some(give) = self.gives.get_mut(&id) {
            give.stop();
        }
        self.out.push_back(Output::Alarm(alarm));
        self.out.push_back(Output::Stop(id));
    }
}
