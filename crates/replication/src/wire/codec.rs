//! Frames to bytes and back.

use bytes::{Buf, Bytes, BytesMut};
use minicbor::{Decode, Encode};

use super::{
    BULK_BYTES_MAX, BlobChunk, BlobPush, CONTROL_BYTES_MAX, Deliver, Frame, HEADER_BYTES,
    StateChunk,
    blobs::{BlobChunkHead, BlobPushHead},
    deliver::DeliverHead,
    frames::{Batches, BatchesHead, StateChunkHead},
};

mod kind {
    pub(super) const HANDSHAKE: u16 = 1;
    pub(super) const PING: u16 = 2;
    pub(super) const PONG: u16 = 3;
    pub(super) const ROSTER: u16 = 4;
    pub(super) const HELLO: u16 = 16;
    pub(super) const BATCHES: u16 = 17;
    pub(super) const ACK: u16 = 18;
    pub(super) const READERS: u16 = 19;
    // 20 was a report of one account alone; no release sent it.
    pub(super) const ANNOUNCED: u16 = 21;
    pub(super) const SHOWN: u16 = 22;
    pub(super) const LINKS: u16 = 23;
    pub(super) const READERS_OF: u16 = 24;
    pub(super) const STATE_BEGIN: u16 = 32;
    pub(super) const STATE_CHUNK: u16 = 33;
    pub(super) const STATE_END: u16 = 34;
    pub(super) const STATE_TAKE: u16 = 35;
    pub(super) const BLOB_WANT: u16 = 48;
    pub(super) const BLOB_HAVE: u16 = 49;
    pub(super) const BLOB_CHUNK: u16 = 50;
    pub(super) const BLOB_DONE: u16 = 51;
    pub(super) const BLOB_PUSH: u16 = 52;
    pub(super) const LEAVING: u16 = 36;
    pub(super) const COVERED: u16 = 37;
    pub(super) const DELIVER: u16 = 64;
    pub(super) const DELIVERED: u16 = 65;
    pub(super) const QUEUE: u16 = 66;
}

/// Bytes that are no frame. The peer is at fault, and the link ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Longer than a frame of its kind may be.
    #[error("frame of kind {kind} with {bytes} bytes")]
    TooLong {
        /// As sent.
        kind: u16,
        /// As sent.
        bytes: usize,
    },
    /// Not in the encoding.
    #[error("malformed frame of kind {kind}: {what}")]
    Malformed {
        /// As sent.
        kind: u16,
        /// What is wrong, for the log.
        what: String,
    },
}

impl Frame {
    /// Appends the bytes of the frame.
    ///
    /// If it is longer than a frame of its kind may be: the code that makes frames keeps to the limits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let kind = match self {
            Self::Handshake(frame) => put(out, kind::HANDSHAKE, frame),
            Self::Ping(frame) => put(out, kind::PING, frame),
            Self::Pong(frame) => put(out, kind::PONG, frame),
            Self::Roster(frame) => put(out, kind::ROSTER, frame),
            Self::Hello(frame) => put(out, kind::HELLO, frame),
            Self::Batches(frame) => {
                let head = BatchesHead {
                    partition: frame.partition,
                    round: frame.round,
                    lengths: frame.batches.iter().map(|b| b.len() as u32).collect(),
                };
                put(out, kind::BATCHES, &head);
                for batch in &frame.batches {
                    out.extend_from_slice(batch);
                }
                kind::BATCHES
            }
            Self::Ack(frame) => put(out, kind::ACK, frame),
            Self::Readers(frame) => put(out, kind::READERS, frame),
            Self::Links(frame) => put(out, kind::LINKS, frame),
            Self::ReadersOf(frame) => put(out, kind::READERS_OF, frame),
            Self::Announced(frame) => put(out, kind::ANNOUNCED, frame),
            Self::VisibleVector(frame) => put(out, kind::SHOWN, frame),
            Self::StateBegin(frame) => put(out, kind::STATE_BEGIN, frame),
            Self::StateChunk(frame) => {
                let head = StateChunkHead {
                    partition: frame.partition,
                    state: frame.state,
                    after: frame.after.clone(),
                    last: frame.last.clone(),
                };
                put(out, kind::STATE_CHUNK, &head);
                out.extend_from_slice(&frame.rows);
                kind::STATE_CHUNK
            }
            Self::StateEnd(frame) => put(out, kind::STATE_END, frame),
            Self::StateTake(frame) => put(out, kind::STATE_TAKE, frame),
            Self::BlobWant(frame) => put(out, kind::BLOB_WANT, frame),
            Self::BlobHave(frame) => put(out, kind::BLOB_HAVE, frame),
            Self::BlobChunk(frame) => {
                let head = BlobChunkHead {
                    name: frame.name,
                    offset: frame.offset,
                };
                put(out, kind::BLOB_CHUNK, &head);
                out.extend_from_slice(&frame.data);
                kind::BLOB_CHUNK
            }
            Self::BlobDone(frame) => put(out, kind::BLOB_DONE, frame),
            Self::BlobPush(frame) => {
                let (name, whole) = (frame.name, frame.data.is_some());
                put(out, kind::BLOB_PUSH, &BlobPushHead { name, whole });
                out.extend_from_slice(frame.data.as_deref().unwrap_or_default());
                kind::BLOB_PUSH
            }
            Self::Leaving(frame) => put(out, kind::LEAVING, frame),
            Self::Covered(frame) => put(out, kind::COVERED, frame),
            Self::Deliver(frame) => {
                let head = DeliverHead {
                    entry: frame.entry,
                    index: frame.index,
                    needed: frame.needed,
                    nodes: frame.nodes.clone(),
                    asks: frame.asks,
                };
                put(out, kind::DELIVER, &head);
                out.extend_from_slice(&frame.delivery);
                kind::DELIVER
            }
            Self::Delivered(frame) => put(out, kind::DELIVERED, frame),
            Self::Queue(bytes) => {
                out.extend_from_slice(bytes);
                kind::QUEUE
            }
        };
        let length = out.len() - start - HEADER_BYTES;
        assert!(length <= bytes_max(kind), "frame {kind} of {length} bytes");
        out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
        out[start + 4..start + HEADER_BYTES].copy_from_slice(&kind.to_be_bytes());
    }

    fn decode(kind: u16, body: Bytes) -> Result<Self, WireError> {
        let malformed = |what: String| WireError::Malformed { kind, what };
        Ok(match kind {
            kind::HANDSHAKE => Self::Handshake(get(kind, &body)?.0),
            kind::PING => Self::Ping(get(kind, &body)?.0),
            kind::PONG => Self::Pong(get(kind, &body)?.0),
            kind::ROSTER => Self::Roster(get(kind, &body)?.0),
            kind::HELLO => Self::Hello(get(kind, &body)?.0),
            kind::BATCHES => {
                let (head, mut at): (BatchesHead, usize) = get(kind, &body)?;
                let mut batches = Vec::new();
                for length in head.lengths {
                    let end = at + length as usize;
                    if end > body.len() {
                        return Err(malformed("a batch ends beyond the frame".into()));
                    }
                    batches.push(body.slice(at..end));
                    at = end;
                }
                Self::Batches(Batches {
                    partition: head.partition,
                    round: head.round,
                    batches,
                })
            }
            kind::ACK => Self::Ack(get(kind, &body)?.0),
            kind::READERS => Self::Readers(get(kind, &body)?.0),
            kind::LINKS => Self::Links(get(kind, &body)?.0),
            kind::READERS_OF => Self::ReadersOf(get(kind, &body)?.0),
            kind::ANNOUNCED => Self::Announced(get(kind, &body)?.0),
            kind::SHOWN => Self::VisibleVector(get(kind, &body)?.0),
            kind::STATE_BEGIN => Self::StateBegin(get(kind, &body)?.0),
            kind::STATE_CHUNK => {
                let (head, at): (StateChunkHead, usize) = get(kind, &body)?;
                Self::StateChunk(StateChunk {
                    partition: head.partition,
                    state: head.state,
                    after: head.after,
                    last: head.last,
                    rows: body.slice(at..),
                })
            }
            kind::STATE_END => Self::StateEnd(get(kind, &body)?.0),
            kind::STATE_TAKE => Self::StateTake(get(kind, &body)?.0),
            kind::BLOB_WANT => Self::BlobWant(get(kind, &body)?.0),
            kind::BLOB_HAVE => Self::BlobHave(get(kind, &body)?.0),
            kind::BLOB_CHUNK => {
                let (head, at): (BlobChunkHead, usize) = get(kind, &body)?;
                Self::BlobChunk(BlobChunk {
                    name: head.name,
                    offset: head.offset,
                    data: body.slice(at..),
                })
            }
            kind::BLOB_DONE => Self::BlobDone(get(kind, &body)?.0),
            kind::BLOB_PUSH => {
                let (head, at): (BlobPushHead, usize) = get(kind, &body)?;
                Self::BlobPush(BlobPush {
                    name: head.name,
                    data: head.whole.then(|| body.slice(at..)),
                })
            }
            kind::LEAVING => Self::Leaving(get(kind, &body)?.0),
            kind::COVERED => Self::Covered(get(kind, &body)?.0),
            kind::DELIVER => {
                let (head, at): (DeliverHead, usize) = get(kind, &body)?;
                Self::Deliver(Deliver {
                    entry: head.entry,
                    index: head.index,
                    needed: head.needed,
                    nodes: head.nodes,
                    asks: head.asks,
                    delivery: body.slice(at..),
                })
            }
            kind::DELIVERED => Self::Delivered(get(kind, &body)?.0),
            kind::QUEUE => Self::Queue(body),
            _ => return Err(malformed("unknown".into())),
        })
    }
}

fn put<T: Encode<()>>(out: &mut Vec<u8>, kind: u16, body: &T) -> u16 {
    match minicbor::encode(body, out) {
        Ok(()) => kind,
        Err(error) => unreachable!("writing to memory cannot fail: {error}"),
    }
}

/// The fields, and the offset of their end.
fn get<'b, T: Decode<'b, ()>>(kind: u16, body: &'b [u8]) -> Result<(T, usize), WireError> {
    // Raw bytes follow the fields of a bulk frame; the fields themselves are few.
    let fields = &body[..body.len().min(CONTROL_BYTES_MAX)];
    let mut decoder = minicbor::Decoder::new(fields);
    match decoder.decode() {
        Ok(fields) => Ok((fields, decoder.position())),
        Err(error) => Err(WireError::Malformed {
            kind,
            what: error.to_string(),
        }),
    }
}

fn known(kind: u16) -> bool {
    matches!(kind, 1..=4 | 16..=19 | 21..=24 | 32..=37 | 48..=52 | 64..=66)
}

fn bytes_max(kind: u16) -> usize {
    match kind {
        kind::BATCHES | kind::STATE_CHUNK | kind::BLOB_CHUNK => BULK_BYTES_MAX,
        kind::DELIVER | kind::QUEUE => BULK_BYTES_MAX,
        // Frames of unknown kinds are skipped without being kept.
        _ if !known(kind) => BULK_BYTES_MAX,
        _ => CONTROL_BYTES_MAX,
    }
}

/// Cuts a stream of bytes into frames. Keeps one frame at most, and nothing of frames of an unknown kind.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    /// Bytes that belong to a frame of an unknown kind and have not come yet.
    skip: usize,
}

impl Decoder {
    /// Takes bytes of the stream; then call [`Decoder::frame`] until it returns `None`.
    pub fn push(&mut self, mut data: &[u8]) {
        let skipped = self.skip.min(data.len());
        self.skip -= skipped;
        data.advance(skipped);
        self.buffer.extend_from_slice(data);
    }

    /// The next complete frame.
    ///
    /// The stream is broken: close the link.
    pub fn frame(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let [a, b, c, d, e, f] = *header;
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let kind = u16::from_be_bytes([e, f]);
            if length > bytes_max(kind) {
                return Err(WireError::TooLong {
                    kind,
                    bytes: length,
                });
            }
            if !known(kind) {
                self.buffer.advance(HEADER_BYTES);
                let here = length.min(self.buffer.len());
                self.buffer.advance(here);
                self.skip = length - here;
                continue;
            }
            if self.buffer.len() < HEADER_BYTES + length {
                return Ok(None);
            }
            self.buffer.advance(HEADER_BYTES);
            let body = self.buffer.split_to(length).freeze();
            return Frame::decode(kind, body).map(Some);
        }
    }

    /// Bytes in memory.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}
