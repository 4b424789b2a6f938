//! Sending blobs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::Config;
use crate::wire::{BlobChunk, BlobDone, BlobHave, BlobName, BlobPush, BlobWant, Frame};

/// Names a read. One blob may have several reads for one peer, some of them of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(u64);

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read a part of a blob; answer with [`Serves::read`].
    Read {
        /// Names the read in the answer.
        id: ReadId,
        /// The blob.
        name: BlobName,
        /// The first byte.
        offset: u64,
        /// The most bytes.
        bytes: usize,
    },
    /// There is something to send: call [`Serves::transmit`] when no partition has a frame.
    Wake(Incarnation),
}

#[derive(Clone, Copy)]
struct Serve {
    next: u64,
    upto: u64,
    /// The read that is running, or whose result is not sent yet.
    read: Option<ReadId>,
}

/// Blobs to be pushed to one peer.
#[derive(Default)]
struct Pushes {
    /// Not read yet, in the order of the batches that name them,
    queue: VecDeque<BlobName>,
    /// and which of these were not asked for meanwhile.
    queued: BTreeSet<BlobName>,
    /// Being read, with what the peer has asked for in the meantime. Usually the pushed blob reaches the peer before the question comes.
    reading: BTreeMap<BlobName, (ReadId, Option<BlobWant>)>,
    /// Read.
    ready: VecDeque<Frame>,
    /// The last blobs pushed on this link: the batch that accepts a message and the one that delivers it name the same blob.
    given: BTreeSet<BlobName>,
    given_order: VecDeque<BlobName>,
    /// Whether pushed blobs have the next turn, not blobs that were asked for.
    turn: bool,
}

/// The blobs that are being sent.
pub struct Serves {
    config: Config,
    /// Pushes to each linked peer that accepts them.
    pushes: BTreeMap<Incarnation, Pushes>,
    serves: BTreeMap<(Incarnation, BlobName), Serve>,
    ready: BTreeMap<Incarnation, VecDeque<Frame>>,
    reads: BTreeMap<ReadId, (Incarnation, BlobName)>,
    last_read: u64,
    out: VecDeque<Output>,
}

impl Serves {
    /// Nobody wants anything.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            pushes: BTreeMap::new(),
            serves: BTreeMap::new(),
            ready: BTreeMap::new(),
            reads: BTreeMap::new(),
            last_read: 0,
            out: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// There is a link; `pushes`: the peer accepts pushed blobs ([`FEATURE_PUSH`](super::FEATURE_PUSH)).
    pub fn linked(&mut self, peer: Incarnation, pushes: bool) {
        self.unlinked(peer);
        if pushes {
            self.pushes.insert(peer, Pushes::default());
        }
    }

    /// A batch that names this blob was sent to the peer: the blob is pushed after it. Beyond the bound the peer asks for it.
    pub fn push(&mut self, peer: Incarnation, name: BlobName) {
        let pushes_max = self.config.pushes_max;
        // A blob that was asked for is not pushed.
        let is_served = self.serves.contains_key(&(peer, name));
        let Some(pushes) = self.pushes.get_mut(&peer) else {
            return;
        };
        if is_served || pushes.queue.len() >= pushes_max || !pushes.given.insert(name) {
            return;
        }
        pushes.given_order.push_back(name);
        if pushes.given_order.len() > pushes_max
            && let Some(oldest) = pushes.given_order.pop_front()
        {
            pushes.given.remove(&oldest);
        }
        pushes.queue.push_back(name);
        pushes.queued.insert(name);
        self.push_on(peer);
    }

    fn push_on(&mut self, peer: Incarnation) {
        loop {
            let Some(pushes) = self.pushes.get_mut(&peer) else {
                return;
            };
            if pushes.reading.len() + pushes.ready.len() >= self.config.pushing_max {
                return;
            }
            let Some(name) = pushes.queue.pop_front() else {
                return;
            };
            if !pushes.queued.remove(&name) {
                continue;
            }
            let id = self.read_of(peer, name, 0, self.config.push_bytes_max);
            if let Some(pushes) = self.pushes.get_mut(&peer) {
                pushes.reading.insert(name, (id, None));
            }
        }
    }

    fn read_of(&mut self, peer: Incarnation, name: BlobName, offset: u64, bytes: usize) -> ReadId {
        self.last_read += 1;
        let id = ReadId(self.last_read);
        self.reads.insert(id, (peer, name));
        self.out.push_back(Output::Read {
            id,
            name,
            offset,
            bytes,
        });
        id
    }

    /// A blob was read to be pushed.
    fn pushed(&mut self, peer: Incarnation, name: BlobName, data: Option<Bytes>) {
        let Some(pushes) = self.pushes.get_mut(&peer) else {
            return;
        };
        let asked = pushes.reading.remove(&name).and_then(|(_, asked)| asked);
        match (data, asked) {
            // It is too large to be pushed, and was asked for.
            (None, Some(want)) => self.want(peer, want),
            (data, _) => pushes
                .ready
                .push_back(Frame::BlobPush(BlobPush { name, data })),
        }
        self.push_on(peer);
        self.out.push_back(Output::Wake(peer));
    }

    /// A peer asks for a blob.
    pub fn want(&mut self, peer: Incarnation, want: BlobWant) {
        if let Some(pushes) = self.pushes.get_mut(&peer) {
            if let Some((_, asked)) = pushes.reading.get_mut(&want.name) {
                *asked = (want.bytes > 0).then_some(want);
                return;
            }
            pushes.queued.remove(&want.name);
        }
        if want.bytes == 0 {
            self.serves.remove(&(peer, want.name));
            return;
        }
        let count = self.serves.range(key(peer)).count();
        let known = self.serves.contains_key(&(peer, want.name));
        if !known && count >= self.config.serves_max {
            // The peer asks another one when nothing comes.
            return;
        }
        let serve = self.serves.entry((peer, want.name)).or_insert(Serve {
            next: want.offset,
            upto: 0,
            read: None,
        });
        serve.upto = want.offset.saturating_add(want.bytes);
        self.go_on(peer, want.name);
    }

    /// The result of a read: `None` if the blob is not here; `end` if these are its last bytes.
    pub fn read(&mut self, id: ReadId, data: Option<Bytes>, end: bool) {
        let Some((peer, name)) = self.reads.remove(&id) else {
            return;
        };
        let pushing = self.pushes.get(&peer).and_then(|of| of.reading.get(&name));
        if pushing.is_some_and(|(of, _)| *of == id) {
            return self.pushed(peer, name, data.filter(|_| end));
        }
        let serve = self.serves.get_mut(&(peer, name));
        let Some(serve) = serve.filter(|serve| serve.read == Some(id)) else {
            // This read is of no use any more.
            return;
        };
        let ready = self.ready.entry(peer).or_default();
        let Some(data) = data else {
            let (here, ask) = (false, false);
            ready.push_back(Frame::BlobHave(BlobHave {
                name,
                here,
                ask,
                partition: None,
            }));
            self.serves.remove(&(peer, name));
            return self.out.push_back(Output::Wake(peer));
        };
        let offset = serve.next;
        serve.next += data.len() as u64;
        let length = serve.next;
        if !data.is_empty() {
            ready.push_back(Frame::BlobChunk(BlobChunk { name, offset, data }));
        }
        if end {
            ready.push_back(Frame::BlobDone(BlobDone { name, length }));
            self.serves.remove(&(peer, name));
        }
        self.out.push_back(Output::Wake(peer));
    }

    /// The next frame for a peer; only when no partition has one.
    pub fn transmit(&mut self, peer: Incarnation) -> Option<Frame> {
        if let Some(pushes) = self.pushes.get_mut(&peer) {
            pushes.turn = !pushes.turn;
            let asked = self.ready.get(&peer).is_some_and(|ready| !ready.is_empty());
            if (pushes.turn || !asked)
                && let Some(frame) = pushes.ready.pop_front()
            {
                self.push_on(peer);
                return Some(frame);
            }
        }
        let frame = self.ready.get_mut(&peer)?.pop_front()?;
        if let Frame::BlobChunk(chunk) = &frame {
            if let Some(serve) = self.serves.get_mut(&(peer, chunk.name)) {
                serve.read = None;
            }
            self.go_on(peer, chunk.name);
        }
        Some(frame)
    }

    /// The link is gone.
    pub fn unlinked(&mut self, peer: Incarnation) {
        self.pushes.remove(&peer);
        self.ready.remove(&peer);
        self.serves.retain(|(other, _), _| *other != peer);
        self.reads.retain(|_, (other, _)| *other != peer);
    }

    fn go_on(&mut self, peer: Incarnation, name: BlobName) {
        let Some(serve) = self.serves.get(&(peer, name)).copied() else {
            return;
        };
        if serve.read.is_some() || serve.next >= serve.upto {
            return;
        }
        let left = usize::try_from(serve.upto - serve.next).unwrap_or(usize::MAX);
        let bytes = left.min(self.config.chunk_bytes);
        let id = self.read_of(peer, name, serve.next, bytes);
        if let Some(serve) = self.serves.get_mut(&(peer, name)) {
            serve.read = Some(id);
        }
    }
}

fn key(peer: Incarnation) -> std::ops::RangeInclusive<(Incarnation, BlobName)> {
    (peer, BlobName([0; 48]))..=(peer, BlobName([255; 48]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_forgotten_when_a_link_ends() {
        let [left, stays] = [2, 3].map(|id| Incarnation::new(id).unwrap());
        let mut serves = Serves::new(Config::default());
        let read = |serves: &mut Serves| match serves.poll() {
            Some(Output::Read { id, .. }) => id,
            other => panic!("{other:?}"),
        };
        let want = |number| BlobWant {
            name: BlobName([number; 48]),
            offset: 0,
            bytes: 100,
        };
        for peer in [left, stays] {
            serves.linked(peer, true);
        }
        serves.push(left, BlobName([1; 48]));
        serves.want(left, want(2));
        serves.want(stays, want(2));
        let [pushed, asked, other] = [(); 3].map(|()| read(&mut serves));
        serves.unlinked(left);
        assert_eq!(serves.reads.keys().collect::<Vec<_>>(), [&other]);
        // The same on a new link: results of the old link's reads are dropped.
        serves.linked(left, true);
        serves.push(left, BlobName([1; 48]));
        let again = read(&mut serves);
        for old in [pushed, asked] {
            serves.read(old, Some(Bytes::from_static(b"old")), true);
        }
        assert_eq!((serves.poll(), serves.transmit(left)), (None, None));
        serves.read(again, Some(Bytes::from_static(b"new")), true);
        let push = BlobPush {
            name: BlobName([1; 48]),
            data: Some(Bytes::from_static(b"new")),
        };
        assert_eq!(serves.transmit(left), Some(Frame::BlobPush(push)));
    }
}
