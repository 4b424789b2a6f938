//! The bodies of a node: those it lacks are fetched from peers, those it has are given.
//!
//! One machine a node, beside the owners: a body belongs to no partition. An owner wants a body when it applies a batch that names it
//! ([`PeerOutput::Request`](super::PeerOutput::Request)); the driver asks here, and tells all owners when the body is durable
//! ([`PeerInput::Body`](super::PeerInput::Body)), or is there already. After a crash the owners want again what they still lack.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, mutants::broken};
use whimbrel_mailbox::BlobName;
pub use whimbrel_replication::blobs::{Config, FEATURE_CONFIRM, FEATURE_PUSH, ReadId};
use whimbrel_replication::{
    blobs::{FetchOutput, Fetches, ServeOutput, Serves},
    wire::{self, Frame},
};

use super::{PeerOutput, clocks};
use crate::{
    machine::{Now, Output},
    owner::blob_of_batch,
};

/// What a body was wanted for says how soon it is fetched; all are wanted alike so far.
const PRIORITY: u8 = 0;

/// Peers that are silent, or lack a body, are looked at again after so long.
const QUIET_MICROS: u64 = 1_000_000;

/// Bodies on their way to this node of which it is known who else is to be given them: some hundred bytes each. Who is forgotten asks.
const LATER_MAX: usize = 4096;

/// What the driver has to do, in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyOutput {
    /// There is something for the node: [`Bodies::transmit`] when its stream takes a frame and no partition has one.
    Wake(Incarnation),
    /// Append to the upload of this body, which begins with the first of them; then [`Bodies::written`].
    Write(BlobName, Bytes),
    /// Finish the upload, then [`Bodies::finished`]; when it is durable the owners are told.
    Finish(BlobName),
    /// Throw the upload away: it begins anew.
    Discard(BlobName),
    /// No peer has it for now: tell the owners of partitions.
    Nowhere(BlobName),
    /// It is not looked for any more: who lacks it still is asked to want it again ([`PeerInput::WantAgain`](super::PeerInput::WantAgain)).
    Again(BlobName),
    /// Read so much of a body that is here; answer [`Bodies::read`].
    Read {
        /// Of the answer.
        id: ReadId,
        /// Which.
        name: BlobName,
        /// From where.
        offset: u64,
        /// At most so many.
        bytes: usize,
    },
}

/// The bodies of a node.
pub struct Bodies {
    fetches: Fetches,
    serves: Serves,
    /// What is wanted of each peer: small, and before what it is given.
    asks: BTreeMap<Incarnation, VecDeque<Frame>>,
    /// Uploads that are to be finished, and are not yet: what is wanted meanwhile is on its way.
    finishing: BTreeSet<BlobName>,
    /// Nodes that are to be given a body when it is here: of batches that were passed on while it was still coming, and of questions.
    later: BTreeMap<BlobName, BTreeSet<Incarnation>>,
    /// Not called before this time: what has waited for long may have nobody to be asked of.
    quiet_until: u64,
    out: VecDeque<BodyOutput>,
}

pub(crate) fn on_wire(name: &BlobName) -> wire::BlobName {
    let mut bytes = [0; 48];
    bytes[..16].copy_from_slice(&name.upload);
    bytes[16..].copy_from_slice(&name.hash);
    wire::BlobName(bytes)
}

pub(crate) fn off_wire(name: &wire::BlobName) -> BlobName {
    let (mut upload, mut hash) = ([0; 16], [0; 32]);
    upload.copy_from_slice(&name.0[..16]);
    hash.copy_from_slice(&name.0[16..]);
    BlobName { hash, upload }
}

/// What a driver does to send a frame: the bodies that its batches name go behind it.
pub(crate) fn send(peer: Incarnation, frame: Frame) -> impl Iterator<Item = Output> {
    let mut names = Vec::new();
    if let Frame::Batches(batches) = &frame {
        for batch in &batches.batches {
            names.extend(Batch::blobs_of(batch).filter_map(blob_of_batch));
        }
    }
    let push = (!names.is_empty()).then_some(PeerOutput::Push(peer, names));
    let send = std::iter::once(PeerOutput::Send(peer, frame));
    send.chain(push).map(Output::Peer)
}

impl Bodies {
    /// Nothing is wanted.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Bodies {
            fetches: Fetches::new(config),
            serves: Serves::new(config),
            asks: BTreeMap::new(),
            finishing: BTreeSet::new(),
            later: BTreeMap::new(),
            quiet_until: 0,
            out: VecDeque::new(),
        }
    }

    /// A body that is not here is wanted. `false`: too many are, ask again later.
    pub fn want(&mut self, now: Now, name: &BlobName) -> bool {
        self.wanted(now, name, false)
    }

    /// The same, of a batch that has come a moment ago: whoever sent it gives the body unasked, mostly.
    pub fn coming(&mut self, now: Now, name: &BlobName) -> bool {
        self.wanted(now, name, true)
    }

    fn wanted(&mut self, now: Now, name: &BlobName, coming: bool) -> bool {
        if self.finishing.contains(name) {
            return true;
        }
        let name = on_wire(name);
        let taken = self.fetches.want(clocks(now), name, PRIORITY, coming);
        self.settle();
        taken
    }

    /// A batch that names these was sent to the node.
    pub fn push(&mut self, peer: Incarnation, names: &[BlobName]) {
        for name in names {
            if !self.is_given_later(peer, name) {
                self.serves.push(peer, on_wire(name));
            }
        }
        self.settle();
    }

    /// Whether the body is on its way to this node: the other one is given it when it is here. Without that it would look for the body elsewhere, find it
    /// nowhere, and wait.
    fn is_given_later(&mut self, peer: Incarnation, name: &BlobName) -> bool {
        let comes = self.finishing.contains(name) || self.fetches.is_coming(&on_wire(name));
        if !comes || broken("bodies-are-not-given-later") {
            return false;
        }
        if self.later.len() >= LATER_MAX && !self.later.contains_key(name) {
            // The oldest upload, as a rule.
            self.later.pop_first();
        }
        self.later.entry(*name).or_default().insert(peer);
        true
    }

    /// There is a stream to a node; the features that both have ([`FEATURE_PUSH`]).
    pub fn linked(&mut self, now: Now, peer: Incarnation, features: u64) {
        let pushes = features & FEATURE_PUSH != 0;
        self.asks.remove(&peer);
        self.serves.linked(peer, pushes);
        self.fetches.linked(clocks(now), peer, pushes);
        self.settle();
    }

    /// There is none any more.
    pub fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.asks.remove(&peer);
        self.serves.unlinked(peer);
        self.fetches.unlinked(clocks(now), peer);
        self.settle();
    }

    /// A frame of no partition came.
    pub fn received(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        match frame {
            Frame::BlobWant(want) => {
                if want.bytes > 0 {
                    self.is_given_later(peer, &off_wire(&want.name));
                }
                self.serves.want(peer, want);
            }
            Frame::BlobHave(have) if !have.here => {
                self.fetches.lacks(clocks(now), peer, have.name);
            }
            Frame::BlobChunk(chunk) => self.fetches.chunk(clocks(now), peer, chunk),
            Frame::BlobDone(done) => self.fetches.done(clocks(now), peer, done),
            Frame::BlobPush(push) => self.fetches.pushed(clocks(now), peer, push),
            _ => {}
        }
        self.settle();
    }

    /// So many bytes of a body were written.
    pub fn written(&mut self, name: &BlobName, bytes: u64) {
        self.fetches.written(on_wire(name), bytes);
        self.settle();
    }

    /// An upload was finished, or could not be: then the body is to be wanted again.
    pub fn finished(&mut self, name: &BlobName) {
        self.finishing.remove(name);
        self.fetches.finished(&on_wire(name));
        for peer in self.later.remove(name).unwrap_or_default() {
            self.serves.push(peer, on_wire(name));
        }
        self.settle();
    }

    /// What was read of a body: `None` if it is not here; `end` if these are its last bytes.
    pub fn read(&mut self, id: ReadId, data: Option<Bytes>, end: bool) {
        self.serves.read(id, data, end);
        self.settle();
    }

    /// The deadline has come.
    pub fn time(&mut self, now: Now) {
        self.quiet_until = now.mono_micros + QUIET_MICROS;
        self.fetches.time(clocks(now));
        self.settle();
    }

    /// Bytes that came and are not written, or not wanted, yet.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.fetches.memory_bytes()
    }

    /// When [`Bodies::time`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let wanted = self.fetches.deadline()?;
        Some(wanted.max(self.quiet_until))
    }

    /// The next frame for a peer.
    pub fn transmit(&mut self, peer: Incarnation) -> Option<Frame> {
        let ask = self.asks.get_mut(&peer).and_then(VecDeque::pop_front);
        let frame = ask.or_else(|| self.serves.transmit(peer));
        self.settle();
        frame
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<BodyOutput> {
        self.out.pop_front()
    }

    fn settle(&mut self) {
        while let Some(output) = self.fetches.poll() {
            self.out.push_back(match output {
                FetchOutput::Send(peer, frame) => {
                    self.asks.entry(peer).or_default().push_back(frame);
                    BodyOutput::Wake(peer)
                }
                FetchOutput::Write(name, bytes) => BodyOutput::Write(off_wire(&name), bytes),
                FetchOutput::Finish(name) => {
                    let name = off_wire(&name);
                    self.finishing.insert(name);
                    BodyOutput::Finish(name)
                }
                FetchOutput::Nowhere(name) => BodyOutput::Nowhere(off_wire(&name)),
                FetchOutput::Again(name) => BodyOutput::Again(off_wire(&name)),
                FetchOutput::Discard(name, _) => BodyOutput::Discard(off_wire(&name)),
            });
        }
        while let Some(output) = self.serves.poll() {
            self.out.push_back(match output {
                ServeOutput::Wake(peer) => BodyOutput::Wake(peer),
                ServeOutput::Read {
                    id,
                    name,
                    offset,
                    bytes,
                } => BodyOutput::Read {
                    id,
                    name: off_wire(&name),
                    offset,
                    bytes,
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_replication::wire::{BlobChunk, BlobDone, BlobPush};

    const NOW: Now = Now {
        wall_micros: 0,
        mono_micros: 0,
    };

    /// A batch is passed on before its body is here.
    #[test]
    fn a_body_that_comes_is_given_on() {
        let [from, to] = [2, 3].map(|id| Incarnation::new(id).unwrap());
        let data = Bytes::from_static(b"body");
        let blob = BlobName {
            hash: *blake3::hash(&data).as_bytes(),
            upload: [3; 16],
        };
        let name = on_wire(&blob);
        let mut bodies = Bodies::new(Config::default());
        for peer in [from, to] {
            bodies.linked(NOW, peer, FEATURE_PUSH);
        }
        assert!(bodies.coming(NOW, &blob));
        bodies.push(to, &[blob]);
        assert_eq!(bodies.poll(), None, "it is not read before it is here");
        let push = Frame::BlobPush(BlobPush {
            name,
            data: Some(data.clone()),
        });
        bodies.received(NOW, from, push.clone());
        assert_eq!(bodies.poll(), Some(BodyOutput::Write(blob, data.clone())));
        assert_eq!(bodies.poll(), Some(BodyOutput::Finish(blob)));
        bodies.finished(&blob);
        let Some(BodyOutput::Read { id, .. }) = bodies.poll() else {
            panic!("it is read");
        };
        bodies.read(id, Some(data), true);
        assert_eq!(bodies.transmit(to), Some(push));
        assert_eq!(bodies.transmit(from), None);
    }

    /// It asked too soon, found it nowhere, and waits.
    #[test]
    fn who_asked_for_a_body_that_comes_is_told() {
        let [from, to] = [2, 3].map(|id| Incarnation::new(id).unwrap());
        let blob = BlobName {
            hash: [4; 32],
            upload: [3; 16],
        };
        let name = on_wire(&blob);
        let (mut between, mut end) = (
            Bodies::new(Config::default()),
            Bodies::new(Config::default()),
        );
        between.linked(NOW, from, FEATURE_PUSH);
        between.linked(NOW, to, FEATURE_PUSH);
        end.linked(NOW, from, FEATURE_PUSH);
        assert!(between.want(NOW, &blob));
        assert!(end.want(NOW, &blob));
        let asked = end.transmit(from).unwrap();
        between.received(NOW, to, asked);
        let read = |bodies: &mut Bodies| loop {
            match bodies.poll() {
                Some(BodyOutput::Read { id, .. }) => return id,
                Some(_) => {}
                None => panic!("it is read"),
            }
        };
        let id = read(&mut between);
        between.read(id, None, false);
        let lacks = between.transmit(to).unwrap();
        assert!(matches!(&lacks, Frame::BlobHave(have) if !have.here));
        end.received(NOW, from, lacks);
        let polled = |bodies: &mut Bodies| std::iter::from_fn(|| bodies.poll()).collect::<Vec<_>>();
        assert!(polled(&mut end).contains(&BodyOutput::Nowhere(blob)));
        // It is large: its bytes are asked for.
        between.finished(&blob);
        let id = read(&mut between);
        between.read(id, Some(Bytes::from_static(b"first bytes")), false);
        let push = between.transmit(to).unwrap();
        assert_eq!(push, Frame::BlobPush(BlobPush { name, data: None }));
        end.received(NOW, from, push);
        assert_eq!(polled(&mut end), [BodyOutput::Again(blob)]);
    }

    /// The disk was full when an upload was to be finished, and the body was wanted again: fetched twice it could never be finished.
    #[test]
    fn what_is_being_finished_is_not_fetched_again() {
        let peer = Incarnation::new(2).unwrap();
        let data = Bytes::from_static(b"body");
        let blob = BlobName {
            hash: *blake3::hash(&data).as_bytes(),
            upload: [3; 16],
        };
        let mut bodies = Bodies::new(Config::default());
        bodies.linked(NOW, peer, 0);
        assert!(bodies.want(NOW, &blob));
        assert_eq!(bodies.poll(), Some(BodyOutput::Wake(peer)));
        assert!(matches!(bodies.transmit(peer), Some(Frame::BlobWant(_))));
        let name = on_wire(&blob);
        let (offset, length) = (0, data.len() as u64);
        let chunk = BlobChunk {
            name,
            offset,
            data: data.clone(),
        };
        bodies.received(NOW, peer, Frame::BlobChunk(chunk));
        assert_eq!(bodies.poll(), Some(BodyOutput::Write(blob, data)));
        bodies.written(&blob, length);
        bodies.received(NOW, peer, Frame::BlobDone(BlobDone { name, length }));
        assert_eq!(bodies.poll(), Some(BodyOutput::Finish(blob)));
        assert!(bodies.want(NOW, &blob));
        assert_eq!(bodies.poll(), None);
        bodies.finished(&blob);
        assert!(bodies.want(NOW, &blob));
        assert_eq!(bodies.poll(), Some(BodyOutput::Wake(peer)));
    }
}
