//! Receiving blobs.
//!
//! A fetch goes on with another peer where it stopped with the first. After a crash it begins anew: the store drops unfinished uploads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::{Config, unrequested::Ahead};
use crate::{
    Now, broken,
    wire::{BlobChunk, BlobDone, BlobName, BlobPush, BlobWant, Frame},
};

/// What the driver has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a frame to a peer.
    Send(Incarnation, Frame),
    /// Append to the upload of this blob, and begin it if there is none; then call [`Fetches::written`].
    Write(BlobName, Bytes),
    /// All bytes are written and the hash is right: finish the upload, and tell peers when it is durable.
    Finish(BlobName),
    /// Drop the upload: the bytes of this peer (the last sender) have another hash, or no peer that sent a part has the rest. The fetch begins anew
    /// with another peer, and writes that are still running are not reported.
    Discard(BlobName, Incarnation),
    /// All peers lack the blob, or were silent. It is asked for again after a while.
    Nowhere(BlobName),
    /// No peer had the blob a while ago, and it is forgotten here: an owner that still lacks it asks for it again ([`Fetches::want`]).
    Again(BlobName),
}

/// A blob that no peer has rests for `stall_micros_max`. Each further rest is twice as long, up to so many times: 80 s in the end by default. A new
/// link ends all rests. But a peer may get the blob from a node that this node does not reach, and does not say so.
const REST_DOUBLED_MAX: u32 = 4;

struct Fetch {
    priority: u8,
    hasher: blake3::Hasher,
    /// Bytes that came.
    received: u64,
    /// Bytes that came, not written yet.
    writing: u64,
    /// The end of what was asked for.
    asked: u64,
    peer: Option<Incarnation>,
    heard_at: u64,
    /// Peers that lack the blob, or sent other bytes.
    failed: BTreeSet<Incarnation>,
}

/// The blobs that this node lacks.
pub struct Fetches {
    config: Config,
    peers: BTreeSet<Incarnation>,
    /// Wanted blobs by priority, the least first, then by age; some may have been pushed since.
    wanted: BTreeMap<(u8, u64), BlobName>,
    known: BTreeSet<BlobName>,
    count: u64,
    active: BTreeMap<BlobName, Fetch>,
    /// Some active fetches may have no peer: only then all are looked at, not after each one that ends.
    seeks: bool,
    /// No active fetch was heard of before this time.
    heard_from: u64,
    /// Blobs that no peer has, and until when they rest: they take no places of others. Blobs that were removed everywhere before they were fetched
    /// are among them.
    resting: BTreeMap<BlobName, u64>,
    /// The resting blobs in the order of time.
    resting_until: BTreeSet<(u64, BlobName)>,
    /// How often each blob has rested since the last new link.
    rested: BTreeMap<BlobName, u32>,
    ahead: Ahead,
    /// Peers that push; others have an earlier version.
    pushers: BTreeSet<Incarnation>,
    /// Pushed blobs that are being written, with their bytes.
    taking: BTreeMap<BlobName, u64>,
    taking_bytes: u64,
    /// Blobs that are about to be pushed, with their priority,
    coming: BTreeMap<BlobName, u8>,
    /// and until when they are waited for, in this order; some may have come.
    coming_until: VecDeque<(u64, BlobName)>,
    out: VecDeque<Output>,
}

impl Fetches {
    /// Nothing is wanted.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            peers: BTreeSet::new(),
            wanted: BTreeMap::new(),
            known: BTreeSet::new(),
            count: 0,
            active: BTreeMap::new(),
            seeks: false,
            heard_from: 0,
            resting: BTreeMap::new(),
            resting_until: BTreeSet::new(),
            rested: BTreeMap::new(),
            ahead: Ahead::default(),
            pushers: BTreeSet::new(),
            taking: BTreeMap::new(),
            taking_bytes: 0,
            coming: BTreeMap::new(),
            coming_until: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// A blob is wanted; priority 0 is the most urgent. `coming`: the batch that names it came a moment ago, so its sender is about to push it.
    /// Returns `false` if too many are wanted: ask again later.
    pub fn want(&mut self, now: Now, name: BlobName, priority: u8, coming: bool) -> bool {
        if self.known.contains(&name) {
            return true;
        }
        let given = self.ahead.take(&name);
        if let Some(Some(data)) = &given
            && self.take(name, data)
        {
            return true;
        }
        if self.resting.contains_key(&name) {
            return true;
        }
        if self.known.len() >= self.config.wanted_max {
            return false;
        }
        self.known.insert(name);
        while let Some((_, first)) = self.coming_until.front()
            && !self.coming.contains_key(first)
        {
            self.coming_until.pop_front();
        }
        let listed = self.coming_until.len() < self.config.wanted_max;
        let comes = coming && given.is_none() && !self.ahead.has_come(&name);
        if comes && listed && self.are_given_unasked() {
            let until = now
                .mono_micros
                .saturating_add(self.config.coming_micros_max);
            self.coming.insert(name, priority);
            self.coming_until.push_back((until, name));
        } else {
            self.queue(name, priority);
            self.begin(now);
        }
        true
    }

    /// Whether the sender of a batch pushes its blobs. The sender is not known here, so all peers have to push: one that does not would be waited for
    /// in vain.
    fn are_given_unasked(&self) -> bool {
        !self.pushers.is_empty() && self.pushers == self.peers
    }

    /// Queues a blob after all others of its priority.
    fn queue(&mut self, name: BlobName, priority: u8) {
        self.count += 1;
        self.wanted.insert((priority, self.count), name);
    }

    /// Takes a pushed blob, if its hash is right and there is room: the disk may be unable to take it now.
    fn take(&mut self, name: BlobName, data: &Bytes) -> bool {
        let bytes = data.len() as u64;
        let right = blake3::hash(data).as_bytes() == name.hash();
        let fits = self.taking_bytes + bytes <= self.config.ahead_bytes_max;
        if !fits || !right && !broken("blob-unverified") {
            return false;
        }
        self.taking_bytes += bytes;
        self.taking_bytes -= self.taking.insert(name, bytes).unwrap_or(0);
        self.ahead.came(&self.config, name);
        if !data.is_empty() {
            self.out.push_back(Output::Write(name, data.clone()));
        }
        self.out.push_back(Output::Finish(name));
        self.known.remove(&name);
        self.rested.remove(&name);
        if let Some(until) = self.resting.remove(&name) {
            self.resting_until.remove(&(until, name));
        }
        true
    }

    /// Whether the blob is wanted, or was pushed: it will come, or is being written.
    pub fn is_coming(&self, name: &BlobName) -> bool {
        self.known.contains(name) || self.taking.contains_key(name) || self.ahead.has(name)
    }

    /// An upload was finished or dropped.
    pub fn finished(&mut self, name: &BlobName) {
        self.taking_bytes -= self.taking.remove(name).unwrap_or(0);
    }

    /// A peer pushes a blob.
    pub fn pushed(&mut self, now: Now, peer: Incarnation, push: BlobPush) {
        let BlobPush { name, data } = push;
        if !self.pushers.contains(&peer) {
            return;
        }
        let size = data.as_ref().map_or(0, Bytes::len);
        if size > self.config.push_bytes_max {
            return;
        }
        if let Some(fetch) = self.active.get(&name) {
            // It was asked for in the meantime: the first copy that comes is taken.
            let (begun, asked) = (fetch.received > 0, fetch.peer);
            let rest = (fetch.received, fetch.asked - fetch.received);
            let Some(data) = data else {
                return;
            };
            if !begun && self.take(name, &data) {
                self.active.remove(&name);
                if let Some(asked) = asked {
                    self.stop(asked, name);
                }
                self.begin(now);
            } else if asked == Some(peer) && rest.1 > 0 {
                // The peer may have answered the question by this push: then nothing else comes, so ask again.
                let (offset, bytes) = rest;
                let want = BlobWant {
                    name,
                    offset,
                    bytes,
                };
                self.out
                    .push_back(Output::Send(peer, Frame::BlobWant(want)));
            }
        } else if let Some(priority) = self.coming.remove(&name) {
            if !data.is_some_and(|data| self.take(name, &data)) {
                self.queue(name, priority);
                self.begin(now);
            }
        } else if self.known.contains(&name) || self.resting.contains_key(&name) {
            // The blob is in `wanted`, and is skipped when its turn comes.
            if let Some(data) = data {
                self.take(name, &data);
            } else if let Some(until) = self.resting.remove(&name) {
                // No peer had it; now one has.
                self.resting_until.remove(&(until, name));
                self.rested.remove(&name);
                self.out.push_back(Output::Again(name));
            }
        } else {
            let peers = self.pushers.len();
            self.ahead
                .keep(&self.config, now, name, (peer, data), peers);
        }
    }

    /// Tells the peer to send no more of the blob.
    fn stop(&mut self, peer: Incarnation, name: BlobName) {
        let stop = BlobWant {
            name,
            offset: 0,
            bytes: 0,
        };
        self.out
            .push_back(Output::Send(peer, Frame::BlobWant(stop)));
    }

    /// There is a link; `pushes`: the peer pushes blobs ([`FEATURE_PUSH`](super::FEATURE_PUSH)).
    pub fn linked(&mut self, now: Now, peer: Incarnation, pushes: bool) {
        self.unlinked(now, peer);
        self.peers.insert(peer);
        if pushes {
            self.pushers.insert(peer);
        }
        for fetch in self.active.values_mut() {
            fetch.failed.remove(&peer);
        }
        self.seeks = true;
        // The peer may have blobs that no other peer had.
        self.rested.clear();
        self.end_rest(u64::MAX);
        self.begin(now);
    }

    /// The link is gone.
    pub fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.peers.remove(&peer);
        self.pushers.remove(&peer);
        for fetch in self.active.values_mut() {
            if fetch.peer == Some(peer) {
                fetch.peer = None;
            }
        }
        self.seeks = true;
        self.begin(now);
    }

    /// The peer has said that it lacks the blob.
    pub fn lacks(&mut self, now: Now, peer: Incarnation, name: BlobName) {
        self.leave(peer, name);
        self.begin(now);
    }

    fn leave(&mut self, peer: Incarnation, name: BlobName) {
        if let Some(fetch) = self.active.get_mut(&name)
            && fetch.peer == Some(peer)
        {
            fetch.failed.insert(peer);
            fetch.peer = None;
            self.seeks = true;
        }
    }

    /// Bytes came.
    pub fn chunk(&mut self, now: Now, peer: Incarnation, chunk: BlobChunk) {
        let Some(fetch) = self.active.get_mut(&chunk.name) else {
            return;
        };
        let length = chunk.data.len() as u64;
        let beyond = fetch.received + length > fetch.asked;
        let expected = fetch.peer == Some(peer) && chunk.offset == fetch.received;
        if !expected || beyond || length == 0 {
            return;
        }
        fetch.hasher.update(&chunk.data);
        fetch.received += length;
        fetch.writing += length;
        fetch.heard_at = now.mono_micros;
        self.out.push_back(Output::Write(chunk.name, chunk.data));
    }

    /// So many bytes of a blob were written.
    pub fn written(&mut self, name: BlobName, bytes: u64) {
        let window = self.config.window_bytes;
        let Some(fetch) = self.active.get_mut(&name) else {
            return;
        };
        fetch.writing = fetch.writing.saturating_sub(bytes);
        let done = fetch.received - fetch.writing;
        // Asks again when half of the window is free, not for each chunk.
        if let Some(peer) = fetch.peer
            && done + window >= fetch.asked + window / 2
        {
            fetch.asked = done + window;
            let want = BlobWant {
                name,
                offset: fetch.received,
                bytes: fetch.asked - fetch.received,
            };
            self.out
                .push_back(Output::Send(peer, Frame::BlobWant(want)));
        }
    }

    /// The peer has sent the blob to its end.
    pub fn done(&mut self, now: Now, peer: Incarnation, done: BlobDone) {
        let Some(fetch) = self.active.get_mut(&done.name) else {
            return;
        };
        if fetch.peer != Some(peer) {
            return;
        }
        let right = fetch.hasher.finalize().as_bytes() == done.name.hash();
        if (right || broken("blob-unverified")) && done.length == fetch.received {
            self.active.remove(&done.name);
            self.known.remove(&done.name);
            self.rested.remove(&done.name);
            self.ahead.came(&self.config, done.name);
            self.out.push_back(Output::Finish(done.name));
        } else {
            fetch.hasher = blake3::Hasher::new();
            (fetch.received, fetch.writing, fetch.asked) = (0, 0, 0);
            self.out.push_back(Output::Discard(done.name, peer));
            self.leave(peer, done.name);
        }
        self.begin(now);
    }

    /// Time has passed: peers that do not answer are left.
    pub fn time(&mut self, now: Now) {
        let late = now.mono_micros.saturating_sub(self.config.stall_micros_max);
        let stalled: Vec<(BlobName, Incarnation)> = self
            .active
            .iter()
            .filter(|(_, fetch)| fetch.heard_at <= late && fetch.writing == 0)
            .filter_map(|(name, fetch)| Some((*name, fetch.peer?)))
            .collect();
        for (name, peer) in stalled {
            self.stop(peer, name);
            self.leave(peer, name);
        }
        self.rest(now);
        self.end_rest(now.mono_micros);
        self.ahead.time(now);
        while let Some((until, name)) = self.coming_until.front().copied()
            && until <= now.mono_micros
        {
            self.coming_until.pop_front();
            if let Some(priority) = self.coming.remove(&name) {
                self.queue(name, priority);
            }
        }
        // A fetch that failed with all peers tries all of them again.
        for (name, fetch) in &mut self.active {
            if self.peers.iter().all(|peer| fetch.failed.contains(peer)) {
                if !fetch.failed.is_empty() {
                    self.out.push_back(Output::Nowhere(*name));
                }
                fetch.failed.clear();
            }
        }
        self.seeks = true;
        self.begin(now);
        let heard = self.active.values().map(|fetch| fetch.heard_at).min();
        self.heard_from = heard.unwrap_or(0);
    }

    /// When to call [`Fetches::time`], or earlier.
    pub fn deadline(&self) -> Option<u64> {
        let stalled = self.heard_from.saturating_add(self.config.stall_micros_max);
        let stalled = (!self.active.is_empty()).then_some(stalled);
        let rested = self.resting_until.first().map(|(until, _)| *until);
        let coming = self.coming_until.front().map(|(until, _)| *until);
        let times = [stalled, rested, coming, self.ahead.deadline()];
        times.into_iter().flatten().min()
    }

    /// Lets blobs rest that all peers lack, if others wait or nothing of them came.
    fn rest(&mut self, now: Now) {
        let nobody_has = |fetch: &Fetch| {
            let failed = self.peers.iter().all(|peer| fetch.failed.contains(peer));
            fetch.peer.is_none() && failed && !self.peers.is_empty() && fetch.writing == 0
        };
        let useless = |fetch: &Fetch| fetch.received == 0 || !self.wanted.is_empty();
        let due = self.active.iter();
        let due = due.filter(|(_, fetch)| nobody_has(fetch) && useless(fetch));
        let due: Vec<BlobName> = due.map(|(name, _)| *name).collect();
        for name in due {
            let Some(fetch) = self.active.remove(&name) else {
                continue;
            };
            if let (true, Some(peer)) = (fetch.received > 0, fetch.failed.last()) {
                self.out.push_back(Output::Discard(name, *peer));
            }
            self.out.push_back(Output::Nowhere(name));
            self.known.remove(&name);
            let times = self.rested.entry(name).or_default();
            let micros = self.config.stall_micros_max << (*times).min(REST_DOUBLED_MAX);
            *times += 1;
            let until = now.mono_micros.saturating_add(micros);
            self.resting.insert(name, until);
            self.resting_until.insert((until, name));
        }
        while self.resting.len() > self.config.resting_max {
            self.end_first_rest();
        }
        if self.rested.len() > 2 * self.config.resting_max {
            // Blobs that nobody wanted again are among them.
            self.rested.clear();
        }
    }

    /// Forgets blobs that rest until this time, and asks the driver to want them again: perhaps nobody needs them any more.
    fn end_rest(&mut self, until: u64) {
        while let Some((first, _)) = self.resting_until.first()
            && *first <= until
        {
            self.end_first_rest();
        }
    }

    fn end_first_rest(&mut self) {
        if let Some((_, name)) = self.resting_until.pop_first() {
            self.resting.remove(&name);
            self.out.push_back(Output::Again(name));
        }
    }

    /// Begins the most urgent fetches, and assigns a peer to each fetch without one: the peer with the fewest fetches.
    fn begin(&mut self, now: Now) {
        if self.seeks {
            self.rest(now);
        }
        let mut idle: Vec<BlobName> = Vec::new();
        while self.active.len() < self.config.fetches_max {
            let Some(((priority, _), name)) = self.wanted.pop_first() else {
                break;
            };
            if !self.known.contains(&name) || self.active.contains_key(&name) {
                // It was pushed in the meantime.
                continue;
            }
            let fetch = Fetch {
                priority,
                hasher: blake3::Hasher::new(),
                received: 0,
                writing: 0,
                asked: 0,
                peer: None,
                heard_at: now.mono_micros,
                failed: BTreeSet::new(),
            };
            if self.active.is_empty() {
                self.heard_from = now.mono_micros;
            }
            self.active.insert(name, fetch);
            idle.push(name);
        }
        if std::mem::take(&mut self.seeks) {
            let without = self.active.iter().filter(|(_, f)| f.peer.is_none());
            idle = without.map(|(name, _)| *name).collect();
        }
        if idle.is_empty() {
            return;
        }
        let mut load: BTreeMap<Incarnation, usize> = self.peers.iter().map(|p| (*p, 0)).collect();
        for peer in self.active.values().filter_map(|fetch| fetch.peer) {
            *load.entry(peer).or_default() += 1;
        }
        idle.sort_by_key(|name| self.active.get(name).map(|fetch| fetch.priority));
        for name in idle {
            let Some(fetch) = self.active.get_mut(&name) else {
                continue;
            };
            let able = load
                .iter_mut()
                .filter(|(peer, _)| !fetch.failed.contains(peer));
            let Some((peer, work)) = able.min_by_key(|(_, work)| **work) else {
                self.seeks = true;
                continue;
            };
            *work += 1;
            fetch.peer = Some(*peer);
            fetch.heard_at = now.mono_micros;
            fetch.asked = fetch.received - fetch.writing + self.config.window_bytes;
            let want = BlobWant {
                name,
                offset: fetch.received,
                bytes: fetch.asked - fetch.received,
            };
            self.out
                .push_back(Output::Send(*peer, Frame::BlobWant(want)));
        }
    }

    /// Bytes that came and are not written or not wanted yet.
    pub fn memory_bytes(&self) -> u64 {
        let writing: u64 = self.active.values().map(|fetch| fetch.writing).sum();
        writing + self.taking_bytes + self.ahead.bytes()
    }
}
