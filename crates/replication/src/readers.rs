//! Which other nodes have readers on an account, and how high its counter is there (docs/design.md#rule-5).
//!
//! Purpose: a claim becomes visible at once when every other live peer with readers has reported a counter at least as high, for whatever that peer
//! claims later is higher. Nodes report to each other which accounts have readers, and the counters of these accounts.
//!
//! Invariants:
//! - A counter counts when its sender's log is applied here up to the number that came with it: then everything that the sender had claimed up to
//!   that counter is here. Frames of a link are in order; batches may come on other ways.
//! - `Reads` reports every change once, also when a peer is forgotten.
//! - Only durable counters are reported: a counter that a crash takes back could be claimed again.
//! - A node without a link to this one is heard through a common peer, which passes its reports on ([`crate::paths`]).
//! - Only live peers are waited for, and the first claim of a message waits no longer than the time-out. What the owner makes visible after that may
//!   be late (docs/design.md#rule-4); a claim that is made again waits longer (`mailbox::Peers`).
//!
//! Nothing of this survives a crash; it is reported anew on each link.

mod others;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use others::{Relay, of_peer};

use crate::{
    Now, broken,
    paths::Paths,
    wire::{Account, Frame, Links, Readers as ReadersFrame, Reading},
};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A peer without a link for so long is not live (docs/design.md#glossary). A link ends by itself after the same time of silence.
    pub silence_micros_max: u64,
    /// How many round trips a peer is waited for.
    pub timeout_round_trips: u64,
    /// The least time-out: a counter is reported after a sync of the peer's disk, which the round trip of a ping does not contain.
    pub timeout_micros_min: u64,
    /// The greatest time-out. It also holds where no round trip was measured.
    pub timeout_micros_max: u64,
    /// Accounts for which one peer may report readers; for further accounts nobody waits.
    pub accounts_max: usize,
    /// Accounts in one frame: some 25 bytes each.
    pub frame_accounts_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            silence_micros_max: 3_000_000,
            timeout_round_trips: 3,
            timeout_micros_min: 100_000,
            timeout_micros_max: 2_000_000,
            accounts_max: 1 << 16,
            frame_accounts_max: 4096,
        }
    }
}

/// What the driver has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// There is something to send: [`Readers::transmit`].
    Wake(Incarnation),
    /// Fewer peers are waited for than before: the owner makes visible what waited for them.
    RemoteReaders(Account),
    /// A peer has readers on the account now, or none any more.
    Reads {
        /// The peer.
        peer: Incarnation,
        /// The account.
        account: Account,
        /// Whether it has readers.
        reading: bool,
    },
    /// The pairs between which this node forwards have changed: [`Readers::passes`].
    Passes,
}

/// Another live peer with readers on an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteReaders {
    /// The peer. Its slot is known to the membership.
    pub peer: Incarnation,
    /// The greatest counter of the peer that counts.
    pub counter: u32,
    /// How long the first claim of a message waits for this peer.
    pub timeout_micros: u64,
}

/// What is known of a peer's readers on one account.
#[derive(Default)]
struct PeerReaders {
    heard: u32,
    /// The greatest counter that was reported, whether it counts yet or not.
    told: u32,
    /// Nodes whose report of these readers still holds: the peer itself, or nodes that pass its reports on.
    by: Vec<Incarnation>,
    /// Counters that wait for the peer's log, each with its number: the first of them, and the newest.
    candidate: Option<(u64, u32)>,
    latest: Option<(u64, u32)>,
    /// Since then no node that reported these readers is linked, or the report was not repeated on a newer link.
    stale_since: Option<u64>,
}

impl PeerReaders {
    /// The report of this node does not hold any more. Whether no other report is left.
    fn is_left_by(&mut self, teller: Incarnation) -> bool {
        self.by.retain(|by| *by != teller);
        self.by.is_empty()
    }
}

#[derive(Default)]
struct Peer {
    linked: bool,
    awake: bool,
    /// The next frame says that all earlier reports are void.
    anew: bool,
    due: BTreeSet<Account>,
    /// Whether the list of this node's links is due to the peer.
    links_due: bool,
    /// The nodes whose readers are passed on to this peer, and what is due of each.
    relayed: BTreeMap<Incarnation, Relay>,
    /// Nodes whose readers are not passed on any more, which the peer has to hear.
    ended: BTreeSet<Incarnation>,
    /// The end of its log at its last report.
    upto: u64,
    /// Nodes that pass its reports on, with the round trip between the two.
    by: BTreeMap<Incarnation, Option<u64>>,
    /// When it was last heard, if it is not linked and nobody passes its reports on.
    unlinked_at: u64,
    round_trip_micros: Option<u64>,
    accounts: BTreeMap<Account, PeerReaders>,
    /// Counters that wait, by the number they wait for.
    waiting: BTreeSet<(u64, Account)>,
}

impl Peer {
    fn is_reached(&self) -> bool {
        self.linked || !self.by.is_empty()
    }

    /// Drops what is due to this peer.
    fn fall_silent(&mut self) {
        self.due.clear();
        self.links_due = false;
        self.relayed.clear();
        self.ended.clear();
    }

    /// What this node has reported of the peer is void unless it is repeated.
    fn left_by(&mut self, now: Now, teller: Incarnation) {
        for known in self.accounts.values_mut() {
            if known.is_left_by(teller) {
                known.stale_since.get_or_insert(now.mono_micros);
            }
        }
    }

    /// This node passes the peer's reports on no longer.
    fn is_told_no_more_by(&mut self, now: Now, teller: Incarnation) {
        if self.by.remove(&teller).is_some() {
            self.left_by(now, teller);
            self.part(now);
        }
    }

    /// Notes the time if the peer is not reached any more.
    fn part(&mut self, now: Now) {
        if !self.is_reached() {
            self.unlinked_at = now.mono_micros;
        }
    }

    /// How long the first claim of a message waits for this peer.
    fn patience(&self, config: &Config, round_trips: impl Fn(Incarnation) -> Option<u64>) -> u64 {
        let (trips, least) = (config.timeout_round_trips, config.timeout_micros_min);
        let (round_trip, least) = if self.linked || self.by.is_empty() {
            (self.round_trip_micros, least)
        } else {
            // Two disks are synced before the peer is heard: its own, and that of the node in between.
            let ways = self.by.iter();
            let ways =
                ways.filter_map(|(by, rest)| Some(round_trips(*by)?.saturating_add((*rest)?)));
            (ways.min(), 2 * least)
        };
        let patience = round_trip.map(|micros| micros.saturating_mul(trips));
        let most = config.timeout_micros_max;
        patience.unwrap_or(most).max(least).min(most)
    }

    /// Counts the counters that need not wait any longer. Whether the greatest one has grown.
    fn count(&mut self, account: Account, applied: u64) -> bool {
        let Some(known) = self.accounts.get_mut(&account) else {
            return false;
        };
        let before = known.heard;
        while let Some((upto, counter)) = known.candidate.take().or_else(|| known.latest.take()) {
            if upto > applied && !broken("heard-without-number") {
                known.candidate = Some((upto, counter));
                self.waiting.insert((upto, account));
                break;
            }
            known.heard = known.heard.max(counter);
        }
        known.heard > before
    }

    /// The peer has no readers on the account. Whether it had some.
    fn forget(&mut self, account: Account) -> bool {
        let Some(known) = self.accounts.remove(&account) else {
            return false;
        };
        if let Some((upto, _)) = known.candidate {
            self.waiting.remove(&(upto, account));
        }
        true
    }
}

/// The readers of one partition's accounts.
pub struct Readers {
    config: Config,
    partition: PartitionId,
    /// Accounts with readers here, and their counters, durable.
    here: BTreeMap<Account, u32>,
    /// The end of our own durable log.
    own: u64,
    applied: VersionVector,
    peers: BTreeMap<Incarnation, Peer>,
    paths: Paths,
    /// Pairs (of, to): the readers of `of` are reported to `to`, because the two have no link.
    passes: BTreeSet<(Incarnation, Incarnation)>,
    out: VecDeque<Output>,
}

impl Readers {
    /// No readers. `own`: up to where our own log is durable.
    pub fn new(config: Config, partition: PartitionId, me: Incarnation, own: u64) -> Self {
        Self {
            config,
            partition,
            paths: Paths::new(me),
            passes: BTreeSet::new(),
            here: BTreeMap::new(),
            own,
            applied: VersionVector::new(),
            peers: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// There is a link to this peer now; an older one is gone.
    pub fn linked(&mut self, now: Now, id: Incarnation) {
        // The peer may have forgotten what it reported of others before.
        self.told_by_nobody(now, id);
        let peer = self.peers.entry(id).or_default();
        peer.linked = true;
        peer.awake = false;
        peer.anew = true;
        peer.fall_silent();
        peer.due = self.here.keys().copied().collect();
        self.wake(id);
        self.paths.linked(id);
        // Reports of an older link are void there.
        self.passes.retain(|(_, to)| *to != id);
        self.tell_links();
    }

    /// The link is gone. The peer counts as live until it was not linked for long enough.
    pub fn unlinked(&mut self, now: Now, id: Incarnation) {
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.linked) else {
            return;
        };
        peer.linked = false;
        peer.fall_silent();
        peer.left_by(now, id);
        peer.part(now);
        self.told_by_nobody(now, id);
        self.paths.unlinked(id);
        self.passes.retain(|(_, to)| *to != id);
        self.tell_links();
    }

    /// The peer has left the partition: it has no readers from now on, linked or not.
    pub fn left(&mut self, now: Now, id: Incarnation) {
        self.unlinked(now, id);
        let had = self.peers.remove(&id).map(|peer| peer.accounts);
        for account in had.into_iter().flat_map(BTreeMap::into_keys) {
            self.out.push_back(Output::RemoteReaders(account));
            self.out.push_back(Output::Reads {
                peer: id,
                account,
                reading: false,
            });
        }
    }

    /// How long the last round trip to this peer took.
    pub fn round_trip(&mut self, id: Incarnation, micros: u64) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.round_trip_micros = Some(micros);
        }
    }

    /// The account has readers here from now on. Its counter is durably at least this.
    pub fn watch(&mut self, account: Account, counter: u32) {
        self.here.insert(account, counter);
        self.announce(account);
    }

    /// The account has no readers here any more.
    pub fn unwatch(&mut self, account: Account) {
        if self.here.remove(&account).is_some() {
            self.announce(account);
        }
    }

    /// Our own log is durable up to this number, and the counters of these accounts are durably at least this high.
    pub fn durable(&mut self, own: u64, counters: &[(Account, u32)]) {
        self.own = self.own.max(own);
        for (account, counter) in counters {
            if let Some(known) = self.here.get_mut(account)
                && *known < *counter
                && !broken("counter-not-told")
            {
                *known = *counter;
                self.announce(*account);
            }
        }
    }

    /// A peer's log is applied here up to this number; `counters`: those that its batches carry. Also called at the start.
    pub fn applied(&mut self, id: Incarnation, number: u64, counters: &[(Account, u32)]) {
        self.applied.advance(id, number);
        let applied = self.applied.get(id);
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let mut more = BTreeSet::new();
        for (account, counter) in counters {
            if let Some(known) = peer.accounts.get_mut(account)
                && known.heard < *counter
            {
                known.heard = *counter;
                more.insert(*account);
            }
        }
        while let Some(first) = peer.waiting.first().copied() {
            if first.0 > applied {
                break;
            }
            peer.waiting.remove(&first);
            if peer.count(first.1, applied) {
                more.insert(first.1);
            }
        }
        self.out.extend(more.into_iter().map(Output::RemoteReaders));
    }

    /// A peer reports its readers.
    pub fn received(&mut self, now: Now, id: Incarnation, told: ReadersFrame) {
        if self.peers.get(&id).is_some_and(|peer| peer.linked) {
            let passed_on = self.passes.range(of_peer(id)).next().is_some();
            let changed = told.accounts.iter().filter(|_| passed_on);
            let changed: Vec<Account> = changed.map(|of| of.account).collect();
            self.take(now, id, id, told);
            self.relay(id, &changed);
        }
    }

    /// `by` reports the readers of `id`: the peer itself, or a node that passes its reports on.
    fn take(&mut self, now: Now, id: Incarnation, by: Incarnation, told: ReadersFrame) {
        let accounts_max = self.config.accounts_max;
        let applied = self.applied.get(id);
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if told.anew == Some(true) && !broken("readers-of-an-older-link") {
            peer.left_by(now, by);
        }
        peer.upto = peer.upto.max(told.upto);
        for Reading {
            account,
            reading,
            counter,
        } in told.accounts
        {
            if !reading {
                let known = peer.accounts.get_mut(&account);
                let others_tell = known.is_some_and(|known| !known.is_left_by(by));
                if !(others_tell && by != id) && peer.forget(account) {
                    self.out.push_back(Output::RemoteReaders(account));
                    self.out.push_back(Output::Reads {
                        peer: id,
                        account,
                        reading,
                    });
                }
                continue;
            }
            if !peer.accounts.contains_key(&account) {
                if peer.accounts.len() >= accounts_max {
                    continue;
                }
                peer.accounts.insert(account, PeerReaders::default());
                self.out.push_back(Output::Reads {
                    peer: id,
                    account,
                    reading,
                });
            }
            if let Some(known) = peer.accounts.get_mut(&account) {
                known.stale_since = None;
                if !known.by.contains(&by) {
                    known.by.push(by);
                }
                known.told = known.told.max(counter);
                let latest = known.latest.unwrap_or_default();
                known.latest = Some((latest.0.max(told.upto), latest.1.max(counter)));
            }
            if peer.count(account, applied) {
                self.out.push_back(Output::RemoteReaders(account));
            }
        }
    }

    /// The next frame for a peer whose stream takes bytes; `None`: nothing until [`Output::Wake`].
    pub fn transmit(&mut self, id: Incarnation) -> Option<Frame> {
        let peer = self.peers.get_mut(&id).filter(|peer| peer.linked)?;
        if std::mem::take(&mut peer.links_due) {
            return Some(Frame::Links(Links {
                partition: self.partition,
                peers: self.paths.ours(),
            }));
        }
        if peer.due.is_empty() && !peer.anew {
            let frame = self.transmit_of(id);
            if frame.is_none()
                && let Some(peer) = self.peers.get_mut(&id)
            {
                peer.awake = false;
            }
            return frame;
        }
        let mut accounts = Vec::new();
        while accounts.len() < self.config.frame_accounts_max
            && let Some(account) = peer.due.pop_first()
        {
            let counter = self.here.get(&account);
            accounts.push(Reading {
                account,
                reading: counter.is_some(),
                counter: counter.copied().unwrap_or(0),
            });
        }
        Some(Frame::Readers(ReadersFrame {
            partition: self.partition,
            upto: self.own,
            accounts,
            anew: std::mem::take(&mut peer.anew).then_some(true),
        }))
    }

    /// The other live peers with readers on the account.
    pub fn peers(&self, now: Now, account: Account) -> Vec<RemoteReaders> {
        let live = self.peers.iter().filter(|(_, peer)| {
            is_live(now, peer, self.config.silence_micros_max)
                || broken("the-silent-are-waited-for")
        });
        let readers = live.filter_map(|(id, peer)| {
            let round_trip = |of| self.peers.get(&of)?.round_trip_micros;
            Some(RemoteReaders {
                peer: *id,
                counter: peer.accounts.get(&account)?.heard,
                timeout_micros: peer.patience(&self.config, round_trip),
            })
        });
        readers.collect()
    }

    /// Whether every live peer with readers on the account has reported a counter at least as high.
    pub fn is_heard(&self, now: Now, account: Account, counter: u32) -> bool {
        let mut peers = self.peers(now, account).into_iter();
        peers.all(|heard| heard.counter >= counter)
    }

    /// Time has passed: a peer that is not live has no readers.
    pub fn time(&mut self, now: Now) {
        let silence = self.config.silence_micros_max;
        let mut forgotten = Vec::new();
        for (id, peer) in &mut self.peers {
            let dead = !is_live(now, peer, silence);
            let gone = peer.accounts.iter().filter(|(_, known)| {
                let stale = known.stale_since;
                dead || stale.is_some_and(|since| now.mono_micros.saturating_sub(since) >= silence)
            });
            let gone: Vec<Account> = gone.map(|(account, _)| *account).collect();
            for account in gone {
                peer.forget(account);
                forgotten.push((*id, account));
                self.out.push_back(Output::RemoteReaders(account));
                self.out.push_back(Output::Reads {
                    peer: *id,
                    account,
                    reading: false,
                });
            }
        }
        for (id, account) in forgotten {
            self.relay(id, &[account]);
        }
        self.peers.retain(|_, peer| is_live(now, peer, silence));
    }

    /// When to call [`Readers::time`], on the monotonic clock.
    pub fn deadline(&self) -> Option<u64> {
        let silence = self.config.silence_micros_max;
        let peers = self.peers.values().filter(|p| !p.accounts.is_empty());
        let ends = peers.map(|peer| {
            let stale = peer.accounts.values().filter_map(|known| known.stale_since);
            let gone = (!peer.is_reached()).then_some(peer.unlinked_at);
            stale.chain(gone).min()
        });
        ends.flatten()
            .min()
            .map(|since| since.saturating_add(silence))
    }

    /// Whether the account has readers here.
    pub fn is_watched(&self, account: Account) -> bool {
        self.here.contains_key(&account)
    }

    /// Reports the account to all peers.
    fn announce(&mut self, account: Account) {
        let linked = self.peers.iter_mut().filter(|(_, peer)| peer.linked);
        let ids: Vec<Incarnation> = linked
            .map(|(id, peer)| {
                peer.due.insert(account);
                *id
            })
            .collect();
        for id in ids {
            self.wake(id);
        }
    }

    fn wake(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id).filter(|peer| !peer.awake) {
            peer.awake = true;
            self.out.push_back(Output::Wake(id));
        }
    }
}

fn is_live(now: Now, peer: &Peer, silence_micros_max: u64) -> bool {
    peer.is_reached() || now.mono_micros.saturating_sub(peer.unlinked_at) < silence_micros_max
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ReadersOf;

    const X: Account = [1; 16];

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    fn at(millis: u64) -> Now {
        Now {
            wall_micros: 0,
            mono_micros: millis * 1000,
        }
    }

    fn told(upto: u64, reading: bool, counter: u32, anew: bool) -> ReadersFrame {
        ReadersFrame {
            partition: PartitionId(1),
            upto,
            accounts: vec![Reading {
                account: X,
                reading,
                counter,
            }],
            anew: anew.then_some(true),
        }
    }

    /// Node 2 is linked and has readers.
    fn readers() -> Readers {
        let mut readers = Readers::new(Config::default(), PartitionId(1), node(1), 0);
        readers.linked(at(0), node(2));
        readers.received(at(0), node(2), told(0, true, 5, true));
        readers
    }

    #[test]
    fn a_counter_counts_when_the_log_is_there() {
        let mut readers = readers();
        assert!(readers.is_heard(at(0), X, 5));
        assert!(!readers.is_heard(at(0), X, 6));
        readers.received(at(0), node(2), told(7, true, 9, false));
        readers.received(at(0), node(2), told(8, true, 12, false));
        assert!(!readers.is_heard(at(0), X, 6));
        readers.applied(node(2), 7, &[(X, 6)]);
        assert_eq!(readers.peers(at(0), X)[0].counter, 9);
        readers.applied(node(2), 8, &[]);
        assert!(readers.is_heard(at(0), X, 12));
        let outputs: Vec<Output> = std::iter::from_fn(|| readers.poll()).collect();
        assert_eq!(
            outputs
                .iter()
                .filter(|o| **o == Output::RemoteReaders(X))
                .count(),
            3
        );
    }

    #[test]
    fn nobody_waits_where_nobody_reads() {
        let mut readers = readers();
        assert!(readers.is_heard(at(0), [2; 16], 1000));
        readers.received(at(0), node(2), told(0, false, 0, false));
        assert!(readers.is_heard(at(0), X, 1000));
    }

    #[test]
    fn who_has_left_has_no_readers() {
        let mut readers = readers();
        while readers.poll().is_some() {}
        assert!(!readers.is_heard(at(0), X, 6));
        readers.left(at(0), node(2));
        assert!(readers.is_heard(at(0), X, 6));
        let outputs: Vec<Output> = std::iter::from_fn(|| readers.poll()).collect();
        assert!(
            outputs.contains(&Output::RemoteReaders(X)),
            "what waits is released"
        );
        readers.received(at(0), node(2), told(0, true, 5, true));
        assert!(readers.is_heard(at(0), X, 6), "it is not linked");
        readers.linked(at(0), node(2));
        readers.received(at(0), node(2), told(0, true, 5, true));
        assert!(!readers.is_heard(at(0), X, 6), "it is back");
    }

    #[test]
    fn the_silent_are_not_waited_for() {
        let mut readers = readers();
        assert_eq!(readers.deadline(), None);
        readers.unlinked(at(1000), node(2));
        readers.unlinked(at(2000), node(2));
        assert!(!readers.is_heard(at(3999), X, 6));
        assert!(readers.is_heard(at(4000), X, 6));
        assert_eq!(readers.deadline(), Some(4_000_000));
        readers.time(at(4000));
        assert_eq!(readers.deadline(), None);
        assert!(readers.peers.is_empty());
    }

    #[test]
    fn an_older_link_is_forgotten() {
        let mut readers = readers();
        readers.linked(at(0), node(2));
        let mut again = told(0, true, 5, true);
        again.accounts[0].account = [2; 16];
        readers.received(at(100), node(2), again);
        readers.time(at(3099));
        assert_eq!(readers.peers(at(3099), X).len(), 1);
        readers.time(at(3100));
        assert_eq!(readers.peers(at(3100), X).len(), 0);
        assert_eq!(readers.peers(at(3100), [2; 16]).len(), 1);
    }

    #[test]
    fn the_timeout_is_three_round_trips() {
        let check = |round_trip: Option<u64>, expected: u64| {
            let mut readers = readers();
            if let Some(micros) = round_trip {
                readers.round_trip(node(2), micros);
            }
            assert_eq!(readers.peers(at(0), X)[0].timeout_micros, expected);
        };
        check(None, 2_000_000);
        check(Some(100), 100_000);
        check(Some(100_000), 300_000);
        check(Some(1_000_000), 2_000_000);
    }

    /// What a peer says of another round trip is any number.
    #[test]
    fn a_round_trip_of_others_is_bounded() {
        let mut readers = readers();
        readers.round_trip(node(2), 1000);
        let of = |round_trip_micros| ReadersOf {
            partition: PartitionId(1),
            member: node(3),
            round_trip_micros,
            upto: 0,
            accounts: told(0, true, 5, true).accounts,
            anew: Some(true),
            ends: None,
        };
        for (micros, expected) in [
            (Some(u64::MAX), 2_000_000),
            (None, 2_000_000),
            (Some(1000), 200_000),
            (Some(100_000), 303_000),
        ] {
            readers.received_of(at(0), node(2), of(micros));
            let heard = readers.peers(at(0), X);
            let third = heard.iter().find(|heard| heard.peer == node(3)).unwrap();
            assert_eq!(third.timeout_micros, expected, "{micros:?}");
        }
    }

    #[test]
    fn what_peers_say_is_bounded() {
        let config = Config {
            accounts_max: 3,
            ..Config::default()
        };
        let mut readers = Readers::new(config, PartitionId(1), node(1), 0);
        readers.linked(at(0), node(2));
        for account in 0..10 {
            let mut frame = told(0, true, 5, false);
            frame.accounts[0].account = [account; 16];
            readers.received(at(0), node(2), frame);
        }
        assert_eq!(readers.peers[&node(2)].accounts.len(), 3);
    }

    #[test]
    fn a_link_begins_with_all_in_bounded_frames() {
        let config = Config {
            frame_accounts_max: 2,
            ..Config::default()
        };
        let mut readers = Readers::new(config, PartitionId(1), node(1), 0);
        for account in 0..3 {
            readers.watch([account; 16], 1);
        }
        readers.durable(4, &[([1; 16], 8), ([9; 16], 9)]);
        readers.linked(at(0), node(2));
        let frames: Vec<ReadersFrame> = std::iter::from_fn(|| readers.transmit(node(2)))
            .filter_map(|frame| match frame {
                Frame::Readers(told) => Some(told),
                Frame::Links(_) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        let counts: Vec<_> = frames.iter().map(|f| (f.accounts.len(), f.anew)).collect();
        assert_eq!(counts, [(2, Some(true)), (1, None)]);
        assert_eq!(frames[0].accounts[1].counter, 8);
        assert_eq!(frames[0].upto, 4);
    }
}
