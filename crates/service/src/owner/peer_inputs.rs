//! What other nodes say, and the driver of them: members, streams and frames. Partitions are told, and what they want of the store is handed to it.

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::AccountId;

use super::{Partition, PartitionOwner, Phase, remote_batches::Done};
use crate::{
    machine::Now,
    peers::{Frame, PeerInput, blobs, keep_early},
};

impl PartitionOwner {
    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(slots) => {
                let was_alone = self.config.peers.is_empty();
                self.config.peers = slots;
                self.config.peers.remove(&self.config.origin);
                if was_alone {
                    for (account, entry) in self.accounts.iter() {
                        if !entry.watchers.is_empty() {
                            self.agenda.watched(*account);
                        }
                    }
                    let spells = self.accounts.iter().filter(|(_, entry)| {
                        matches!(&entry.phase, Phase::Running(replica) if replica.spells_as_heard())
                    });
                    let spells: Vec<AccountId> = spells.map(|(account, _)| *account).collect();
                    for account in spells {
                        self.spell_soon(now, account);
                    }
                }
                self.belong(now);
            }
            PeerInput::Holders(holders) => self.placed(now, holders),
            PeerInput::Former(slots) => self.former(slots),
            PeerInput::Closed(closed) => {
                self.of_all(now, |own, now| {
                    own.shipping.closed(now, &closed);
                });
                self.links.close(closed);
            }
            PeerInput::GiveUp(of) => self.shorten(now, &of),
            PeerInput::Linked(peer, features) if self.config.peers.contains_key(&peer) => {
                self.links.open(peer, features);
                self.drop_early(peer);
                self.of_all(now, |own, now| own.linked(now, peer, None));
                let all = self.partitions.ids().into_iter();
                let all: Vec<_> = all.map(|of| (of, peer)).collect();
                self.open_windows(now, all);
            }
            PeerInput::Unlinked(peer) => {
                self.links.end(peer);
                self.drop_early(peer);
                self.of_all(now, |own, now| own.unlinked(now, peer));
            }
            PeerInput::Clock(clock) => self.stamps.set_clock(clock),
            PeerInput::RoundTrip(peer, micros) => {
                if self.links.round_trip(peer, micros) {
                    self.of_all(now, |own, _| own.readers.round_trip(peer, micros));
                }
            }
            PeerInput::Frame(peer, frame) if self.links.has(peer) => {
                self.frame(now, peer, frame);
            }
            PeerInput::Linked(..) | PeerInput::Frame(..) => {}
            PeerInput::Ready(partition, to) => {
                if let Some(own) = self.partitions.running(partition)
                    && let Some(frame) = own.transmit(now, to)
                {
                    self.windows.moved(now, &frame);
                    self.out.extend(blobs::send(to.peer, frame));
                }
                self.ship(now, partition);
            }
            PeerInput::Open(partition) => self.open(partition),
            PeerInput::Logs(ticket, logs) => {
                if let Some(partition) = self.reads.log_ends_found(ticket) {
                    if let Some(Partition::Released(_)) = self.partitions.get(&partition) {
                        return self.left_logs(partition, logs);
                    }
                    if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
                        opening.logs = Some(Some(logs.into_iter().collect()));
                    }
                    self.opened(now, partition);
                }
            }
            PeerInput::Log(ticket, entries) => self.log_read(now, ticket, entries),
            PeerInput::Snapshot(ticket, snapshot) => {
                let fix = self.reads.fixed(ticket);
                self.snapshot_fixed(now, fix, snapshot);
            }
            PeerInput::Rows(ticket, page) => self.paged(now, ticket, page),
            PeerInput::Body(blob, looked) => self.body_came(now, blob, looked),
            PeerInput::NoBody(blob) => self.nobody_has(now, &blob),
            PeerInput::WantAgain(blob) => self.want_again(blob),
            PeerInput::Missed(account, blob) => self.missed(account, blob),
        }
    }

    fn of_all(&mut self, now: Now, tell: impl Fn(&mut super::Own, Now)) {
        let open: Vec<PartitionId> = self.partitions.ids();
        for partition in open {
            if let Some(own) = self.partitions.running(partition) {
                tell(own, now);
            }
            self.ship(now, partition);
        }
    }

    fn frame(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        let Some(partition) = frame.partition().filter(|id| id.bucket().is_some()) else {
            return;
        };
        let tells_of_all = |node| {
            self.is_of_members(node)
                || node == self.config.origin && self.partitions.generation(partition) > 0
        };
        let is_of_nobody = match &frame {
            Frame::VisibleVector(told) => !tells_of_all(told.member),
            Frame::ReadersOf(told) => {
                !self.is_of_members(told.member) || told.member == self.config.origin
            }
            _ => false,
        };
        if is_of_nobody {
            return;
        }
        self.open(partition);
        self.windows.moved(now, &frame);
        match self.partitions.get_mut(&partition) {
            Some(Partition::Loading(opening)) => keep_early(&mut opening.frames, peer, frame),
            Some(Partition::Running(own)) if !own.failed => {
                match frame {
                    Frame::Leaving(ask) => self.asked_to_cover(peer, ask),
                    Frame::Covered(answer) => self.covered(now, peer, answer),
                    frame => own.received(now, peer, frame),
                }
                self.acknowledge(partition);
                self.confirm_on(partition);
                self.ship(now, partition);
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub(super) fn peers_due(&mut self, now: Now) {
        for (_, partition) in self.agenda.take_due(now) {
            self.left_on(now, partition);
            self.opened(now, partition);
            self.try_again(now, partition);
            let Some(own) = self.partitions.running(partition) else {
                continue;
            };
            if own.deadline().is_some_and(|at| at <= now.mono_micros) {
                own.time(now);
            }
            self.confirm_on(partition);
            self.leave_on(now, partition);
            self.ship(now, partition);
        }
    }

    /// Hands to the store what waits for it, in every partition as far as it can be.
    pub(super) fn work_on(&mut self, now: Now) {
        for partition in self.agenda.take_work() {
            loop {
                match self.carry_on(now, partition) {
                    None => break,
                    Some(Done::State) => {}
                    Some(Done::Batch { woken, sent }) => {
                        for account in woken {
                            self.woken(account);
                            self.again(now);
                        }
                        for put in sent {
                            self.sent_elsewhere(now, put);
                        }
                    }
                }
            }
            if let Some(own) = self.partitions.running(partition)
                && own.shipping.next_work().is_some()
            {
                self.agenda.work(partition);
            }
        }
    }

    /// Where the partition stands is known, if all was read.
    pub(super) fn opened(&mut self, now: Now, partition: PartitionId) {
        let Some(opened) = self.open_read(now, partition) else {
            return;
        };
        self.stand(now, partition);
        self.link_opened(now, partition, opened.frames, opened.anew);
        self.sweep_on(partition);
        self.agenda.join(partition);
        if opened.is_syncing {
            // What came while it was not known that it is.
            self.take_up(now, partition);
        }
        self.purge_again(partition);
        self.load_wanted(partition);
        if !opened.waits {
            self.load_deferred_loads(partition);
        }
    }
}
