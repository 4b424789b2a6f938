//! Who looks at accounts, here and at other nodes, and what waits for them (docs/design.md#rule-5).
//!
//! While another node has readers on an account, a new claim is shown, and its UID told, only when that node was heard with a counter at
//! least as high: whatever it claims from then on is above. So nothing is late in a whole network where each node that writes to the account has
//! readers of it: one without is not waited for, and what it claims may be late. Who was waited for long enough (three round trips,
//! two seconds at most, and twice as long for each time that the message was claimed before) is waited for no longer; what is late then is claimed
//! again (docs/design.md#rule-4).
//!
//! `mailbox` says what waits; `replication::readers` says who was heard with what. Here the two meet: counters go out when they are durable, what
//! comes in releases what waits, and answers that tell UIDs of waiting messages are [held](super::held_answers) until these are shown.
//!
//! Invariants:
//! - A counter is told when the commit that raised it is durable.
//! - What was heard releases what waits before anything else is told: else a lower claim that waited would be late.

use std::collections::BTreeMap;

use whimbrel_crdt::{Batch, Incarnation};
use whimbrel_mailbox::{AccountId, Peer, Peers};

use super::{Mail, Own, Phase, keys, replication};
use crate::{
    machine::{Now, Ticket},
    peers::{Frame, Stream, clocks},
};

impl Own {
    pub(super) fn linked(&mut self, now: Now, peer: Incarnation, round_trip: Option<u64>) {
        self.shipping.linked(now, peer);
        if self.members.get(&peer).is_some_and(|of| of.left.is_some()) {
            return;
        }
        self.hears(now, peer);
        if let Some(micros) = round_trip {
            self.readers.round_trip(peer, micros);
        }
    }

    pub(super) fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.shipping.unlinked(now, peer);
        self.readers.unlinked(clocks(now), peer);
        self.announced.unlinked(peer);
        self.confirming.stream_of(peer);
        self.parting.stream_of(peer);
        self.keep_announced_soon();
    }

    pub(super) fn received(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        match frame {
            Frame::Readers(told) => self.readers.received(clocks(now), peer, told),
            Frame::Links(told) => self.readers.received_links(peer, told),
            Frame::ReadersOf(told) => self.readers.received_of(clocks(now), peer, told),
            Frame::Announced(told) => {
                self.announced.received(peer, told, self.log.applied());
            }
            Frame::VisibleVector(told) => self.announced.received_of(told, self.log.applied()),
            Frame::BlobHave(have) => self.told_of_body(peer, &have),
            other => {
                if matches!(&other, Frame::Hello(hello) if hello.begins_anew()) {
                    self.hears(now, peer);
                }
                if matches!(&other, Frame::Hello(hello) if hello.syncing == Some(true)) {
                    self.announced.is_new(peer);
                }
                self.shipping.received(now, &self.log, peer, other);
            }
        }
    }

    /// Small ones first.
    pub(super) fn transmit(&mut self, now: Now, to: Stream) -> Option<Frame> {
        let peer = to.peer;
        let small = self.readers.transmit(peer);
        let small = small.or_else(|| self.announced.transmit(peer));
        let small = small.or_else(|| self.confirming.transmit(peer));
        let small = small.or_else(|| self.parting.transmit(peer));
        small.or_else(|| self.shipping.transmit(now, to))
    }

    pub(super) fn time(&mut self, now: Now) {
        self.shipping.time(now);
        self.readers.time(clocks(now));
        self.confirming.time(now);
    }

    /// When it wants to be called, as it was reckoned last.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) fn reckon(&mut self, now: Now) -> Option<u64> {
        let shipping = self.shipping.reckon(now);
        let others = self.readers.deadline().into_iter().chain(self.report_at());
        let others = others.chain(self.confirming.deadline());
        let others = others.chain(self.retry_at);
        let others = others.chain(self.parting.deadline());
        self.deadline = shipping.into_iter().chain(others).min();
        self.deadline
    }

    /// A batch of another node is being applied: what its origin claimed up to the counters in it is here.
    pub(super) fn applied(&mut self, batch: &Batch) {
        let sections = batch.sections.iter();
        let counters: Vec<_> = sections.map(|of| (of.subject, of.counter)).collect();
        self.readers.applied(batch.origin, batch.last(), &counters);
        self.announced.applied(self.log.applied());
    }

    /// A commit is durable, and with it the counters that rose by it.
    pub(super) fn counted(&mut self, origin: Incarnation, ticket: Ticket) {
        let mut counters = Vec::new();
        while let Some((_, account, counter)) = self.counters.pop_front_if(|(of, ..)| *of <= ticket)
        {
            counters.push((account.0, counter));
        }
        let durable = self.shipping.durable(origin);
        self.readers.durable(durable, &counters);
    }

    /// The counter of an account is told when all that is under way is durable: it rose by that at the latest.
    pub(super) fn rose(&mut self, account: AccountId, counter: u32) {
        match self.gate.newest() {
            None => self.readers.durable(0, &[(account.0, counter)]),
            Some(newest) => self.counters.push_back((newest, account, counter)),
        }
    }

    /// The other live replicas with readers on the account. `slots`: of all members.
    pub(super) fn peers(
        &self,
        now: Now,
        account: AccountId,
        slots: &BTreeMap<Incarnation, u8>,
    ) -> Peers {
        if slots.is_empty() || self.nobody_waits {
            return Peers::none();
        }
        let heard = self.readers.peers(clocks(now), account.0).into_iter();
        let peers = heard.filter_map(|heard| {
            Some(Peer {
                slot: *slots.get(&heard.peer)?,
                heard: heard.counter,
                timeout_micros: heard.timeout_micros,
            })
        });
        Peers::new(now.mono_micros, peers.collect())
    }
}

/// Tells other nodes of accounts that are looked at here from now on, or no more.
pub(super) fn tell_of_readers(mail: &mut Mail, now: Now) {
    for account in mail.agenda.take_watched() {
        let partition = keys::partition_of(account);
        let counter = mail.accounts.get(&account).and_then(|entry| {
            let watched = !entry.watchers.is_empty();
            match &entry.phase {
                Phase::Running(replica) if watched => Some(replica.counter()),
                _ => None,
            }
        });
        if mail.config.peers.is_empty() {
            continue;
        }
        let Some(own) = mail.partitions.running(partition) else {
            continue;
        };
        match counter {
            None => own.readers.unwatch(account.0),
            Some(_) if own.readers.is_watched(account.0) => {}
            Some(counter) => {
                own.readers.watch(account.0, 0);
                own.rose(account, counter);
            }
        }
        replication::hear(mail, now, partition);
    }
}

/// Accounts of which something has waited long enough.
pub(super) fn waits_due(mail: &mut Mail, now: Now) {
    while let Some((at, account)) = mail.agenda.next_to_show(now) {
        let entry = mail.accounts.get(&account);
        if entry.is_some_and(|entry| entry.wait_until == Some(at)) {
            mail.release(now, account);
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_mailbox::{CLAIMS_KEPT_MAX, TIMEOUT_MICROS_MAX};
    use whimbrel_replication::readers::Config;

    /// Claims end on every link that is faster than the longest wait only if all waits come to it in the end.
    #[test]
    fn the_shortest_wait_comes_to_the_longest() {
        let config = Config::default();
        assert_eq!(
            config.timeout_micros_min << CLAIMS_KEPT_MAX,
            TIMEOUT_MICROS_MAX
        );
        assert!(config.timeout_micros_max <= TIMEOUT_MICROS_MAX);
    }
}
