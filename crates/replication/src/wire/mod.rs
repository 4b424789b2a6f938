//! The wire format between nodes: frames, their bytes, their bounds.
//!
//! A frame is the length of its body (4 bytes, most significant first), its kind (2 bytes) and its body: a CBOR array of numbered
//! fields and, where a frame carries bulk, raw bytes behind it. Unknown fields and unknown kinds are skipped.
//!
//! Invariants:
//! - A frame that is longer than its kind allows, or of an unknown kind, is not kept in memory.
//! - The memory for a frame is in proportion to its length.
//!
//! Reading order: `frames`, `blobs`, `deliver`, `codec`.

mod blobs;
mod codec;
mod deliver;
mod frames;
mod leaving;

pub use blobs::{BlobChunk, BlobDone, BlobHave, BlobName, BlobPush, BlobWant};
use bytes::Bytes;
pub use codec::{Decoder, WireError};
pub use deliver::{Deliver, Delivered};
pub use frames::{
    Account, Ack, Announced, Batches, Excepted, Generations, Handshake, Head, Hello, Links, Ping,
    Pong, Readers, ReadersOf, Reading, Room, StateBegin, StateChunk, StateEnd, StateTake,
    VisibleVector,
};
pub use leaving::{COVERED_LACKS_MAX, Covered, FEATURE_HOLDERS, Leaving};
use whimbrel_crdt::PartitionId;

pub use crate::roster::Roster;

/// The oldest version of the wire format that this program speaks.
pub const WIRE_MIN: u16 = 2;
/// The newest.
pub const WIRE_MAX: u16 = 2;

/// Bytes before a body.
pub const HEADER_BYTES: usize = 6;

/// Longest body of a frame that carries bulk: the greatest commit of the store (16 MiB) and a little.
pub const BULK_BYTES_MAX: usize = (16 << 20) + (64 << 10);

/// Longest body of any other frame: vectors of some thousand origins.
pub const CONTROL_BYTES_MAX: usize = 256 << 10;

/// One message between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Frame {
    Handshake(Handshake),
    Ping(Ping),
    Pong(Pong),
    Roster(Roster),
    Hello(Hello),
    Batches(Batches),
    Ack(Ack),
    Readers(Readers),
    Links(Links),
    ReadersOf(ReadersOf),
    Announced(Announced),
    VisibleVector(VisibleVector),
    StateBegin(StateBegin),
    StateChunk(StateChunk),
    StateEnd(StateEnd),
    StateTake(StateTake),
    BlobWant(BlobWant),
    BlobHave(BlobHave),
    BlobChunk(BlobChunk),
    BlobDone(BlobDone),
    BlobPush(BlobPush),
    Leaving(Leaving),
    Covered(Covered),
    Deliver(Deliver),
    Delivered(Delivered),
    /// A frame of the queue, in the form of the crate `queue`.
    Queue(Bytes),
}

impl Frame {
    /// The partition it belongs to; `None` if it belongs to the link or to blobs.
    pub fn partition(&self) -> Option<PartitionId> {
        Some(match self {
            Self::Hello(frame) => frame.partition,
            Self::Batches(frame) => frame.partition,
            Self::Ack(frame) => frame.partition,
            Self::Readers(frame) => frame.partition,
            Self::Links(frame) => frame.partition,
            Self::ReadersOf(frame) => frame.partition,
            Self::Announced(frame) => frame.partition,
            Self::VisibleVector(frame) => frame.partition,
            Self::StateBegin(frame) => frame.partition,
            Self::StateChunk(frame) => frame.partition,
            Self::StateEnd(frame) => frame.partition,
            Self::StateTake(frame) => frame.partition,
            Self::Leaving(frame) => frame.partition,
            Self::Covered(frame) => frame.partition,
            Self::BlobHave(frame) => return frame.partition,
            Self::Deliver(_) | Self::Delivered(_) | Self::Queue(_) => PartitionId::QUEUE,
            Self::Handshake(_)
            | Self::Ping(_)
            | Self::Pong(_)
            | Self::Roster(_)
            | Self::BlobWant(_)
            | Self::BlobChunk(_)
            | Self::BlobDone(_)
            | Self::BlobPush(_) => return None,
        })
    }
}
