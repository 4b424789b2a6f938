//! Frames of blobs, which travel beside the batches that name them.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::PartitionId;

/// The name of a blob: 16 bytes of its upload, then BLAKE3 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct BlobName(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 48]);

impl BlobName {
    /// The name from its bytes in a batch; `None` if there are not 48.
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
    /// The first byte that is asked for.
    #[n(1)]
    pub offset: u64,
    /// How many bytes may come before the next question; 0: no more at all.
    #[n(2)]
    pub bytes: u64,
}

/// Whether a blob is on the sender's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobHave {
    /// The blob.
    #[n(0)]
    pub name: BlobName,
    /// Whether the sender has the blob.
    #[n(1)]
    pub here: bool,
    /// Whether the sender asks the receiver the same.
    #[n(2)]
    pub ask: bool,
    /// The partition whose batch names the blob; `None`: a blob that was wanted is not here.
    #[n(3)]
    pub partition: Option<PartitionId>,
}

/// Bytes of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobChunk {
    /// The blob.
    pub name: BlobName,
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// The head of a [`BlobChunk`] frame, before the bytes.
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(super) struct BlobChunkHead {
    #[n(0)]
    pub(super) name: BlobName,
    #[n(1)]
    pub(super) offset: u64,
}

/// A blob that is pushed: sent unasked after the batch that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobPush {
    /// The blob.
    pub name: BlobName,
    /// The whole blob; `None`: the blob is too large to be pushed, and the receiver has to ask for it.
    pub data: Option<Bytes>,
}

/// The head of a [`BlobPush`] frame, before the bytes.
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(super) struct BlobPushHead {
    #[n(0)]
    pub(super) name: BlobName,
    #[n(1)]
    pub(super) whole: bool,
}

/// All bytes of a blob were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobDone {
    /// The blob.
    #[n(0)]
    pub name: BlobName,
    /// Its length.
    #[n(1)]
    pub length: u64,
}
