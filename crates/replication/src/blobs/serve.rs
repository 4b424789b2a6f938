//! Giving blobs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::Config;
use crate::wire::{BlobChunk, BlobDone, BlobHave, BlobName, BlobWant, Frame};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read so much of a blob; answer [`Serves::read`].
    Read {
        /// For whom.
        peer: Incarnation,
        /// Which blob.
        name: BlobName,
        /// From where.
        offset: u64,
        /// At most so much.
        bytes: usize,
    },
    /// There is something to send: [`Serves::transmit`], when no partition has anything.
    Wake(Incarnation),
}

#[derive(Clone, Copy)]
struct Serve {
    next: u64,
    upto: u64,
    /// A read is under way, or what it gave is not sent.
    busy: bool,
}

/// The blobs that are being given.
pub struct Serves {
    config: Config,
    serves: BTreeMap<(Incarnation, BlobName), Serve>,
    ready: BTreeMap<Incarnation, VecDeque<Frame>>,
    out: VecDeque<Output>,
}

impl Serves {
    /// Nobody wants anything.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            serves: BTreeMap::new(),
            ready: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// A peer asks.
    pub fn want(&mut self, peer: Incarnation, want: BlobWant) {
        if want.bytes == 0 {
            self.serves.remove(&(peer, want.name));
            return;
        }
        let count = self.serves.range(key(peer)).count();
        let known = self.serves.contains_key(&(peer, want.name));
        if !known && count >= self.config.serves_max {
            // It asks elsewhere when nothing comes.
            return;
        }
        let serve = self.serves.entry((peer, want.name)).or_insert(Serve {
            next: want.offset,
            upto: 0,
            busy: false,
        });
        serve.upto = want.offset.saturating_add(want.bytes);
        self.go_on(peer, want.name);
    }

    /// What was read: `None` if the blob is not here; `end` if these are its last bytes.
    pub fn read(&mut self, peer: Incarnation, name: BlobName, data: Option<Bytes>, end: bool) {
        let Some(serve) = self
            .serves
            .get_mut(&(peer, name))
            .filter(|serve| serve.busy)
        else {
            return;
        };
        let ready = self.ready.entry(peer).or_default();
        let Some(data) = data else {
            let (here, ask) = (false, false);
            ready.push_back(Frame::BlobHave(BlobHave { name, here, ask }));
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
        let frame = self.ready.get_mut(&peer)?.pop_front()?;
        if let Frame::BlobChunk(chunk) = &frame {
            if let Some(serve) = self.serves.get_mut(&(peer, chunk.name)) {
                serve.busy = false;
            }
            self.go_on(peer, chunk.name);
        }
        Some(frame)
    }

    /// The link is gone.
    pub fn unlinked(&mut self, peer: Incarnation) {
        self.ready.remove(&peer);
        self.serves.retain(|(other, _), _| *other != peer);
    }

    fn go_on(&mut self, peer: Incarnation, name: BlobName) {
        if let Some(serve) = self.serves.get_mut(&(peer, name))
            && !serve.busy
            && serve.next < serve.upto
        {
            serve.busy = true;
            let left = usize::try_from(serve.upto - serve.next).unwrap_or(usize::MAX);
            self.out.push_back(Output::Read {
                peer,
                name,
                offset: serve.next,
                bytes: left.min(self.config.chunk_bytes),
            });
        }
    }
}

fn key(peer: Incarnation) -> std::ops::RangeInclusive<(Incarnation, BlobName)> {
    (peer, BlobName([0; 48]))..=(peer, BlobName([255; 48]))
}
