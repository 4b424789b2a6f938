//! What other nodes say, and the driver of them: members, streams and frames. Partitions are told, and what they want of the store is handed to it.

use whimbrel_crdt::{Incarnation, PartitionId};

use super::{
    Own, Partition, PartitionOwner, blob_arrivals, building, collect, confirming, deferred_loads,
    failover, leaving, opening, placement, releasing,
    remote_batches::{self, Done},
    replication, snapshot, waiting,
};
use crate::{
    machine::Now,
    peers::{Frame, PeerInput, blobs, keep_early},
};

impl PartitionOwner {
    pub(super) fn peer(&mut self, now: Now, input: PeerInput) {
        match input {
            PeerInput::Members(slots) => placement::members(&mut self.mail, now, slots),
            PeerInput::Holders(holders) => placement::placed(&mut self.mail, now, holders),
            PeerInput::Former(slots) => failover::former(&mut self.mail, slots),
            PeerInput::Closed(closed) => {
                self.of_all(now, |own, now| {
                    own.shipping.closed(now, &closed);
                });
                self.mail.links.close(closed);
            }
            PeerInput::GiveUp(of) => replication::shorten(&mut self.mail, now, &of),
            PeerInput::Linked(peer, features) if self.mail.config.peers.contains_key(&peer) => {
                self.mail.links.open(peer, features);
                self.mail.partitions.drop_early(peer);
                self.of_all(now, |own, now| own.linked(now, peer, None));
                let all = self.mail.partitions.ids().into_iter();
                let all: Vec<_> = all.map(|of| (of, peer)).collect();
                self.windows.open_windows(&mut self.mail, now, all);
            }
            PeerInput::Unlinked(peer) => {
                self.mail.links.end(peer);
                self.mail.partitions.drop_early(peer);
                self.of_all(now, |own, now| own.unlinked(now, peer));
            }
            PeerInput::Clock(clock) => self.mail.stamps.set_clock(clock),
            PeerInput::RoundTrip(peer, micros) => {
                if self.mail.links.round_trip(peer, micros) {
                    self.of_all(now, |own, _| own.readers.round_trip(peer, micros));
                }
            }
            PeerInput::Frame(peer, frame) if self.mail.links.has(peer) => {
                self.frame(now, peer, frame);
            }
            PeerInput::Linked(..) | PeerInput::Frame(..) => {}
            PeerInput::Ready(partition, to) => {
                if let Some(own) = self.mail.partitions.running(partition)
                    && let Some(frame) = own.transmit(now, to)
                {
                    self.windows.moved(now, &frame);
                    self.mail.out.extend(blobs::send(to.peer, frame));
                }
                replication::ship(&mut self.mail, now, partition);
            }
            PeerInput::Open(partition) => self.mail.open(partition),
            PeerInput::Logs(ticket, logs) => {
                if let Some(partition) = self.mail.reads.log_ends_found(ticket) {
                    if let Some(Partition::Released(_)) = self.mail.partitions.get(&partition) {
                        return releasing::logs_came(&mut self.mail, partition, logs);
                    }
                    if let Some(Partition::Loading(opening)) =
                        self.mail.partitions.get_mut(&partition)
                    {
                        opening.logs = Some(Some(logs.into_iter().collect()));
                    }
                    self.opened(now, partition);
                }
            }
            PeerInput::Log(ticket, entries) => {
                replication::log_read(&mut self.mail, now, ticket, entries)
            }
            PeerInput::Snapshot(ticket, snapshot) => {
                let fix = self.mail.reads.fixed(ticket);
                self.snapshot_fixed(now, fix, snapshot);
            }
            PeerInput::Rows(ticket, page) => self.paged(now, ticket, page),
            PeerInput::Body(blob, looked) => {
                blob_arrivals::body_came(&mut self.mail, now, blob, looked)
            }
            PeerInput::NoBody(blob) => blob_arrivals::nobody_has(&mut self.mail, now, &blob),
            PeerInput::WantAgain(blob) => blob_arrivals::want_again(&mut self.mail, blob),
            PeerInput::Missed(account, blob) => {
                blob_arrivals::missed(&mut self.mail, account, blob)
            }
        }
    }

    fn of_all(&mut self, now: Now, tell: impl Fn(&mut Own, Now)) {
        let open: Vec<PartitionId> = self.mail.partitions.ids();
        for partition in open {
            if let Some(own) = self.mail.partitions.running(partition) {
                tell(own, now);
            }
            replication::ship(&mut self.mail, now, partition);
        }
    }

    fn frame(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        let Some(partition) = frame.partition().filter(|id| id.bucket().is_some()) else {
            return;
        };
        let tells_of_all = |node| {
            failover::is_of_members(&self.mail, node)
                || node == self.mail.config.origin && self.mail.partitions.generation(partition) > 0
        };
        let is_of_nobody = match &frame {
            Frame::VisibleVector(told) => !tells_of_all(told.member),
            Frame::ReadersOf(told) => {
                !failover::is_of_members(&self.mail, told.member)
                    || told.member == self.mail.config.origin
            }
            _ => false,
        };
        if is_of_nobody {
            return;
        }
        self.mail.open(partition);
        self.windows.moved(now, &frame);
        match self.mail.partitions.get_mut(&partition) {
            Some(Partition::Loading(opening)) => keep_early(&mut opening.frames, peer, frame),
            Some(Partition::Running(own)) if !own.failed => {
                match frame {
                    Frame::Leaving(ask) => leaving::asked_to_cover(&mut self.mail, peer, ask),
                    Frame::Covered(answer) => leaving::covered(&mut self.mail, now, peer, answer),
                    frame => own.received(now, peer, frame),
                }
                self.mail.acknowledge(partition);
                confirming::confirm_on(&mut self.mail, partition);
                replication::ship(&mut self.mail, now, partition);
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub(super) fn peers_due(&mut self, now: Now) {
        for (_, partition) in self.mail.agenda.take_due(now) {
            releasing::look_at_holder(&mut self.mail, now, partition);
            self.opened(now, partition);
            waiting::try_again(&mut self.mail, now, partition);
            let Some(own) = self.mail.partitions.running(partition) else {
                continue;
            };
            if own.deadline().is_some_and(|at| at <= now.mono_micros) {
                own.time(now);
            }
            confirming::confirm_on(&mut self.mail, partition);
            leaving::leave_on(&mut self.mail, now, partition);
            replication::ship(&mut self.mail, now, partition);
        }
    }

    /// Hands to the store what waits for it, in every partition as far as it can be.
    pub(super) fn work_on(&mut self, now: Now) {
        for partition in self.mail.agenda.take_work() {
            loop {
                match remote_batches::carry_on(&mut self.mail, now, partition) {
                    None => break,
                    Some(Done::State) => {}
                    Some(Done::Batch { woken, sent }) => {
                        for account in woken {
                            building::woken(&mut self.mail, account);
                            self.again(now);
                        }
                        for put in sent {
                            self.calls.sent.came_elsewhere(&mut self.mail, now, put);
                        }
                    }
                }
            }
            if let Some(own) = self.mail.partitions.running(partition)
                && own.shipping.next_work().is_some()
            {
                self.mail.agenda.work(partition);
            }
        }
    }

    /// Where the partition stands is known, if all was read.
    pub(super) fn opened(&mut self, now: Now, partition: PartitionId) {
        let Some(opened) = opening::open_read(&mut self.mail, now, partition) else {
            return;
        };
        placement::stand(&mut self.mail, now, partition);
        self.link_opened(now, partition, opened.frames, opened.anew);
        snapshot::sweep_on(&mut self.mail, partition);
        self.mail.agenda.join(partition);
        if opened.is_syncing {
            // What came while it was not known that it is.
            self.take_up(now, partition);
        }
        collect::purge_again(&mut self.mail, partition);
        deferred_loads::load_wanted(&mut self.mail, partition);
        if !opened.waits {
            deferred_loads::load_deferred_loads(&mut self.mail, partition);
        }
    }

    /// A partition was opened: streams that are there, and what came on them meanwhile.
    pub(super) fn link_opened(
        &mut self,
        now: Now,
        partition: PartitionId,
        frames: Vec<(Incarnation, Frame)>,
        anew: bool,
    ) {
        let links = self.mail.links.iter();
        let links: Vec<_> = links.map(|(peer, link)| (peer, link.round_trip)).collect();
        let closed = self.mail.links.closed().clone();
        let Some(own) = self.mail.partitions.running(partition) else {
            return;
        };
        own.shipping.closed(now, &closed);
        for (peer, round_trip) in &links {
            own.linked(now, *peer, *round_trip);
        }
        if anew {
            let peers = links.iter().map(|(peer, _)| *peer);
            own.shipping.begin_anew(now, peers);
        }
        let windows = links.iter().map(|(peer, _)| (partition, *peer));
        self.windows.open_windows(&mut self.mail, now, windows);
        let Some(own) = self.mail.partitions.running(partition) else {
            return;
        };
        for (peer, frame) in frames {
            own.received(now, peer, frame);
        }
        if !own.looks_late {
            blob_arrivals::want_all(&mut self.mail, partition);
        }
        replication::ship(&mut self.mail, now, partition);
    }
}
