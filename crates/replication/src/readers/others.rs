//! Readers of nodes without a link to this one, and what this node passes on about such readers ([`crate::paths`]).
//!
//! Invariant: a report of another node's readers holds until its sender takes it back or is not heard any more, whatever others report.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use whimbrel_crdt::Incarnation;

use super::{Output, Readers};
use crate::{
    Now, broken,
    wire::{Account, Frame, Links, Readers as ReadersFrame, ReadersOf, Reading},
};

/// What one peer is to hear of another peer's readers.
#[derive(Default)]
pub(super) struct Relay {
    due: BTreeSet<Account>,
    /// The next frame says that all earlier reports are void.
    anew: bool,
}

/// The pairs of [`Readers::passes`] by which the readers of a peer are passed on.
pub(super) fn of_peer(of: Incarnation) -> RangeInclusive<(Incarnation, Incarnation)> {
    (of, Incarnation::MIN)..=(of, Incarnation::MAX)
}

impl Readers {
    /// The links of this node have changed: reports that to all peers, and finds out between which pairs it forwards now.
    pub(super) fn tell_links(&mut self) {
        for id in self.paths.ours() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.links_due = true;
            }
            self.wake(id);
        }
        self.pass_on();
    }

    /// A peer names the nodes with which it has links.
    pub fn received_links(&mut self, id: Incarnation, told: Links) {
        self.paths.links_of(id, told.peers);
        self.pass_on();
    }

    /// Pairs (of, to) between which this node forwards.
    pub fn passes(&self) -> &BTreeSet<(Incarnation, Incarnation)> {
        &self.passes
    }

    /// Begins and ends passing on reports, as the links are now.
    fn pass_on(&mut self) {
        let now = if broken("nothing-passed-on") {
            BTreeSet::new()
        } else {
            self.paths.pairs()
        };
        if now == self.passes {
            return;
        }
        let before = std::mem::replace(&mut self.passes, now);
        for (of, to) in before.difference(&self.passes) {
            let peer = self.peers.get_mut(to).filter(|peer| peer.linked);
            if let Some(peer) = peer
                && peer.relayed.remove(of).is_some()
            {
                peer.ended.insert(*of);
            }
        }
        for (of, to) in self.passes.difference(&before) {
            let accounts = self.peers.get(of).map(|peer| &peer.accounts);
            let due = accounts.into_iter().flat_map(BTreeMap::keys).copied();
            let relay = Relay {
                due: due.collect(),
                anew: true,
            };
            if let Some(peer) = self.peers.get_mut(to) {
                peer.ended.remove(of);
                peer.relayed.insert(*of, relay);
            }
        }
        let changed = before.symmetric_difference(&self.passes);
        let woken: BTreeSet<Incarnation> = changed.map(|(_, to)| *to).collect();
        woken.into_iter().for_each(|to| self.wake(to));
        self.out.push_back(Output::Passes);
    }

    /// Readers of this peer have changed: passes that on.
    pub(super) fn relay(&mut self, of: Incarnation, accounts: &[Account]) {
        let to = self.passes.range(of_peer(of));
        let to: Vec<Incarnation> = to.map(|(_, to)| *to).collect();
        for to in to {
            let peer = self.peers.get_mut(&to);
            if let Some(relay) = peer.and_then(|peer| peer.relayed.get_mut(&of)) {
                relay.due.extend(accounts);
                self.wake(to);
            }
        }
    }

    /// What this peer has passed on about others is void.
    pub(super) fn told_by_nobody(&mut self, now: Now, id: Incarnation) {
        for peer in self.peers.values_mut() {
            peer.is_told_no_more_by(now, id);
        }
    }

    /// A peer passes on the readers of a member without a link to this node. The caller has checked that it is a member.
    pub fn received_of(&mut self, now: Now, from: Incarnation, told: ReadersOf) {
        let is_linked = self.peers.get(&from).is_some_and(|peer| peer.linked);
        if !is_linked || from == told.member {
            return;
        }
        let member = told.member;
        let peer = self.peers.entry(member).or_default();
        if told.ends == Some(true) {
            return peer.is_told_no_more_by(now, from);
        }
        peer.by.insert(from, told.round_trip_micros);
        if !peer.linked {
            let told = ReadersFrame {
                partition: told.partition,
                upto: told.upto,
                accounts: told.accounts,
                anew: told.anew,
            };
            self.take(now, member, from, told);
        }
    }

    /// The next frame for a peer about readers of other nodes.
    pub(super) fn transmit_of(&mut self, to: Incarnation) -> Option<Frame> {
        let peer = self.peers.get_mut(&to)?;
        if let Some(member) = peer.ended.pop_first() {
            return Some(Frame::ReadersOf(ReadersOf {
                partition: self.partition,
                member,
                round_trip_micros: None,
                upto: 0,
                accounts: Vec::new(),
                anew: None,
                ends: Some(true),
            }));
        }
        let due = |relay: &Relay| relay.anew || !relay.due.is_empty();
        let (member, relay) = peer.relayed.iter_mut().find(|(_, relay)| due(relay))?;
        let (member, anew) = (*member, std::mem::take(&mut relay.anew));
        let mut accounts = Vec::new();
        while accounts.len() < self.config.frame_accounts_max
            && let Some(account) = relay.due.pop_first()
        {
            accounts.push(account);
        }
        let of = self.peers.get(&member)?;
        let reading = |account: &Account| of.accounts.get(account).map(|known| known.told);
        let accounts = accounts.iter().map(|account| Reading {
            account: *account,
            reading: reading(account).is_some(),
            counter: reading(account).unwrap_or(0),
        });
        Some(Frame::ReadersOf(ReadersOf {
            partition: self.partition,
            member,
            round_trip_micros: of.round_trip_micros,
            upto: of.upto,
            accounts: accounts.collect(),
            anew: anew.then_some(true),
            ends: None,
        }))
    }
}
