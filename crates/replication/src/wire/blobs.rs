//! The frames by which bodies travel, beside the batches that name them.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::PartitionId;

/// The name of a blob: 16 bytes of its upload, then BLAKE3 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct BlobName(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 48]);

impl BlobName {
    /// From the bytes in a batch; `None` if they are not as many.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// BLAKE3 of the blob's bytes.
    pub fn hash(&self) -> &[u8] {
        &self.0[16..]
    }
}

/// Asks for the bytes of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobWant {
    /// The blob.
    #[n(0)]
    pub name: BlobName,
    /// From which byte on.
    #[n(1)]
    pub offset: u64,
    /// How many bytes may come before this is asked again; 0: no more at all.
    #[n(2)]
    pub bytes: u64,
}

/// Whether a blob is on the sender's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobHave {
    /// The blob.
    #[n(0)]
    pub name: BlobName,
    /// Whether it is there.
    #[n(1)]
    pub here: bool,
    /// Whether the same is asked of the receiver.
    #[n(2)]
    pub ask: bool,
    /// The partition of which a batch names it; `None`: the queue's.
    #[n(3)]
    pub partition: Option<PartitionId>,
}

/// Bytes of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobChunk {
    /// The blob.
    pub name: BlobName,
    /// Where they begin.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// What lies before the bytes of [`BlobChunk`].
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(super) struct BlobChunkHead {
    #[n(0)]
    pub(super) name: BlobName,
    #[n(1)]
    pub(super) offset: u64,
}

/// A blob that nobody has asked for, sent behind the batch that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobPush {
    /// The blob.
    pub name: BlobName,
    /// All of it; `None`: it is to be asked for, since it is larger than what is given unasked.
    pub data: Option<Bytes>,
}

/// What lies before the bytes of [`BlobPush`].
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(super) struct BlobPushHead {
    #[n(0)]
    pub(super) name: BlobName,
    #[n(1)]
    pub(super) whole: bool,
}

/// A blob has this many bytes, and all of them were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobDone {
    /// The blob.
    #[n(0)]
    pub name: BlobName,
    /// Its length.
    #[n(1)]
    pub length: u64,
}
