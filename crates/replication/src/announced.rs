//! What each node has announced of an account (DESIGN 4, rule 6).
//!
//! Purpose: when a client comes from another node, claims below what it names are made again unless each other node knew them when it told
//! something. For each slot the greatest counter claimed says that (docs/decisions/0001). A node makes it known to those who have readers on the
//! account, when nothing is hidden there and all of it is durable.
//!
//! Invariants:
//! - What a node said counts when its log is applied here up to the number at which it said so.
//! - Who has said nothing in this epoch has announced nothing that could be relied on.
//!
//! All is forgotten in a crash, with what was not durable, and said anew on each link.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use crate::{
    broken,
    wire::{Account, Announced as Told, Claimed, Frame},
};

/// Accounts of which what one peer said is kept, and of which we keep what we say: who has more claims again what it need not.
pub const ACCOUNTS_MAX: usize = 1 << 16;

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// There is something to send: [`Announced::transmit`].
    Wake(Incarnation),
    /// A peer has readers on this account: the owner should say what it may, by [`Announced::say`].
    Wanted(Account),
}

/// Claims of one epoch: for each slot the greatest counter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    epoch: u32,
    claimed: BTreeMap<u8, u32>,
}

/// What a peer said of an account.
#[derive(Default)]
struct Known {
    counted: Option<Said>,
    /// What waits for the peer's log, with the number: the first, and the newest.
    candidate: Option<(u64, Said)>,
    latest: Option<(u64, Said)>,
}

#[derive(Default)]
struct Peer {
    linked: bool,
    awake: bool,
    /// Accounts on which it has readers.
    watches: BTreeSet<Account>,
    due: BTreeSet<Account>,
    accounts: BTreeMap<Account, Known>,
    waiting: BTreeSet<(u64, Account)>,
}

impl Peer {
    fn count(&mut self, account: Account, applied: u64) {
        let Some(known) = self.accounts.get_mut(&account) else {
            return;
        };
        while let Some((upto, said)) = known.candidate.take().or_else(|| known.latest.take()) {
            if upto > applied && !broken("announced-without-number") {
                known.candidate = Some((upto, said));
                self.waiting.insert((upto, account));
                break;
            }
            known.counted = Some(said);
        }
    }
}

/// What is announced of one partition's accounts.
pub struct Announced {
    partition: PartitionId,
    /// What we may make known, and the number at which that was so.
    ours: BTreeMap<Account, (u64, Said)>,
    applied: VersionVector,
    peers: BTreeMap<Incarnation, Peer>,
    out: VecDeque<Output>,
}

impl Announced {
    /// Nothing is known.
    pub fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            ours: BTreeMap::new(),
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
    pub fn linked(&mut self, id: Incarnation) {
        let peer = self.peers.entry(id).or_default();
        peer.linked = true;
        peer.awake = false;
        peer.due = peer.watches.clone();
        self.wake(id);
    }

    /// The link is gone. What the peer said stays true.
    pub fn unlinked(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.linked = false;
            peer.due.clear();
        }
    }

    /// A peer has readers on the account, or no more: [`crate::readers::Output::Reads`].
    pub fn watched(&mut self, id: Incarnation, account: Account, reading: bool) {
        let peer = self.peers.entry(id).or_default();
        if !reading {
            peer.watches.remove(&account);
            peer.due.remove(&account);
            if !self.is_watched(account) {
                self.ours.remove(&account);
            }
            return;
        }
        peer.watches.insert(account);
        if self.ours.contains_key(&account) {
            peer.due.insert(account);
            self.wake(id);
        } else {
            self.out.push_back(Output::Wanted(account));
        }
    }

    fn is_watched(&self, account: Account) -> bool {
        let mut peers = self.peers.values();
        peers.any(|peer| peer.watches.contains(&account))
    }

    /// Nothing of the account is hidden here, these are its claims, and all of that is durable, as is our own log up to `own`.
    ///
    /// Ignored if no peer has readers on it.
    pub fn say(&mut self, own: u64, account: Account, epoch: u32, claimed: &[(u8, u32)]) {
        if !self.is_watched(account) {
            return;
        }
        let claimed = claimed.iter().copied().collect();
        let said = Said { epoch, claimed };
        let same = self.ours.get(&account).is_some_and(|(_, s)| *s == said);
        if same || (self.ours.len() >= ACCOUNTS_MAX && !self.ours.contains_key(&account)) {
            return;
        }
        self.ours.insert(account, (own, said));
        let watching = self
            .peers
            .iter_mut()
            .filter(|(_, peer)| peer.linked && peer.watches.contains(&account));
        let ids: Vec<Incarnation> = watching
            .map(|(id, peer)| {
                peer.due.insert(account);
                *id
            })
            .collect();
        for id in ids {
            self.wake(id);
        }
    }

    /// A peer's log is applied here up to this number. Also at the start.
    pub fn applied(&mut self, id: Incarnation, number: u64) {
        self.applied.advance(id, number);
        let applied = self.applied.get(id);
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        while let Some(first) = peer.waiting.first().copied() {
            if first.0 > applied {
                break;
            }
            peer.waiting.remove(&first);
            peer.count(first.1, applied);
        }
    }

    /// A peer says what it has announced. Without claims by slot, as an older node says it, nothing is said.
    pub fn received(&mut self, id: Incarnation, told: Told) {
        let (Some(epoch), Some(claimed)) = (told.epoch, told.claimed) else {
            return;
        };
        let applied = self.applied.get(id);
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.linked) else {
            return;
        };
        let account = told.account;
        if peer.accounts.len() >= ACCOUNTS_MAX && !peer.accounts.contains_key(&account) {
            return;
        }
        let claimed = claimed.iter().map(|c| (c.slot, c.counter)).collect();
        let known = peer.accounts.entry(account).or_default();
        if known.latest.as_ref().is_none_or(|(n, _)| *n <= told.upto) {
            known.latest = Some((told.upto, Said { epoch, claimed }));
        }
        peer.count(account, applied);
    }

    /// The next frame for a peer whose stream takes bytes; `None`: nothing until [`Output::Wake`].
    pub fn transmit(&mut self, id: Incarnation) -> Option<Frame> {
        let peer = self.peers.get_mut(&id).filter(|peer| peer.linked)?;
        while let Some(account) = peer.due.pop_first() {
            let Some((upto, said)) = self.ours.get(&account) else {
                continue;
            };
            let claimed = said.claimed.iter().map(|(slot, counter)| Claimed {
                slot: *slot,
                counter: *counter,
            });
            return Some(Frame::Announced(Told {
                partition: self.partition,
                upto: *upto,
                account,
                vector: Default::default(),
                epoch: Some(said.epoch),
                claimed: Some(claimed.collect()),
            }));
        }
        peer.awake = false;
        None
    }

    /// What all these nodes have announced of the account in this epoch: for each slot the least of their greatest counters. `others`: all members whose
    /// logs are open, but for us.
    pub fn known(
        &self,
        account: Account,
        epoch: u32,
        others: &BTreeSet<Incarnation>,
    ) -> Vec<(u8, u32)> {
        let mut least: Option<BTreeMap<u8, u32>> = None;
        for other in others {
            let known = self.peers.get(other).and_then(|p| p.accounts.get(&account));
            let said = known.and_then(|known| known.counted.as_ref());
            let said = said.filter(|s| s.epoch == epoch || broken("announced-in-another-epoch"));
            let Some(said) = said else {
                if broken("announced-by-silence") {
                    continue;
                }
                return Vec::new();
            };
            match &mut least {
                None => least = Some(said.claimed.clone()),
                Some(least) => least.retain(|slot, counter| {
                    *counter = (*counter).min(said.claimed.get(slot).copied().unwrap_or(0));
                    *counter > 0
                }),
            }
        }
        least.unwrap_or_default().into_iter().collect()
    }

    /// Nobody reads the account here any more: what was said of it is forgotten.
    pub fn forget(&mut self, account: Account) {
        for peer in self.peers.values_mut() {
            let known = peer.accounts.remove(&account);
            if let Some((upto, _)) = known.and_then(|known| known.candidate) {
                peer.waiting.remove(&(upto, account));
            }
        }
    }

    fn wake(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id).filter(|p| p.linked && !p.awake) {
            peer.awake = true;
            self.out.push_back(Output::Wake(id));
        }
    }
}
