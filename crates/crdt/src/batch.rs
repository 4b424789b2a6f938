//! The envelope in which operations travel and are stored.
//!
//! A batch is what one replica commits at once: one log entry. Operations are numbered: the `i`-th of a batch has the
//! dot `origin:first + i`, the stamp `stamp.hlc + i`, and has seen `deps` and the earlier operations of its origin.
//! The sections' operations are opaque here; their crates encode them.
//!
//! Encoding, version 1: a CBOR array whose first item is the version, then numbered fields. Fields that a reader does
//! not know are skipped; an unknown version is an error that names it. The hash is BLAKE3 over the encoded bytes.

use minicbor::{Decode, Encode};

use crate::{Context, Dot, Incarnation, Stamp, VersionVector};

/// The only version written.
pub const BATCH_VERSION: u32 = 1;

/// A batch larger than this is refused: one batch is in memory at a time, several times over.
pub const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The index of the field with the names of a batch's blobs.
const BLOBS_INDEX: usize = 8;

/// BLAKE3 of the encoded bytes of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in &self.0[..8] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("..")
    }
}

/// What kind of state a partition holds, and which part of it.
///
/// The kind is in the high byte: 0 accounts (bucket 0..=255), 1 the directory, 2 and 3 the queue; others are for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PartitionId(#[n(0)] pub u16);

impl PartitionId {
    /// The directory of the whole cluster.
    pub const DIRECTORY: Self = Self(0x0100);
    /// A node's part of the queue. It has no log.
    pub const QUEUE: Self = Self(0x0300);
    /// The queue of earlier versions, which all nodes had.
    pub const FORMER_QUEUE: Self = Self(0x0200);

    /// The partition of the accounts in one bucket.
    pub const fn accounts(bucket: u8) -> Self {
        Self(bucket as u16)
    }

    /// The bucket, if this is a partition of accounts.
    pub const fn bucket(self) -> Option<u8> {
        if self.0 < 0x0100 {
            Some(self.0 as u8)
        } else {
            None
        }
    }
}

/// The operations of a batch on one subject.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Section {
    /// The account, or the fixed id of the directory or queue.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub subject: [u8; 16],
    /// The greatest UID counter in the account after the operations.
    #[n(1)]
    pub counter: u32,
    /// How many operations there are: they take that many sequence numbers.
    #[n(2)]
    pub count: u32,
    /// The operations, encoded by their own crate.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub ops: Vec<u8>,
}

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Batch {
    /// Its partition.
    #[n(0)]
    pub partition: PartitionId,
    /// Its origin.
    #[n(1)]
    pub origin: Incarnation,
    /// The number of its first operation.
    #[n(2)]
    pub first: u64,
    /// How many operations it has: the sum over the sections.
    #[n(3)]
    pub count: u32,
    /// The hash of the batch of this origin before it; zeros for the first.
    #[cbor(n(4), with = "hash_bytes")]
    pub previous: Hash,
    /// What its maker had applied.
    #[n(5)]
    pub deps: VersionVector,
    /// The stamp of the first operation.
    #[n(6)]
    pub stamp: Stamp,
    /// The operations by subject.
    #[n(7)]
    pub sections: Vec<Section>,
    /// The names of the blobs that the operations name, encoded by their own crate.
    #[n(8)]
    pub blobs: Vec<minicbor::bytes::ByteVec>,
}

mod hash_bytes {
    use super::Hash;

    pub(super) fn encode<C, W: minicbor::encode::Write>(
        hash: &Hash,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&hash.0)?;
        Ok(())
    }

    pub(super) fn decode<C>(
        d: &mut minicbor::Decoder<'_>,
        _: &mut C,
    ) -> Result<Hash, minicbor::decode::Error> {
        match d.bytes()?.try_into() {
            Ok(bytes) => Ok(Hash(bytes)),
            Err(_) => Err(minicbor::decode::Error::message("a hash has 32 bytes")),
        }
    }
}

/// The encoded bytes of a batch and their hash: what is stored and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The bytes as written or received.
    pub bytes: Vec<u8>,
    /// BLAKE3 of `bytes`.
    pub hash: Hash,
}

/// Why bytes are no batch. All are permanent: such bytes of a peer are refused, and on disk they stop the partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Written by a later version.
    #[error("batch of version {0}, this program reads version {BATCH_VERSION}")]
    Version(u32),
    /// Longer than [`BATCH_BYTES_MAX`].
    #[error("batch of {0} bytes")]
    TooLong(usize),
    /// Not in the encoding.
    #[error("malformed batch: {0}")]
    Malformed(String),
    /// The counts contradict each other, or numbers would overflow.
    #[error("batch with impossible numbers: {0}")]
    Numbers(&'static str),
}

impl Batch {
    /// Encodes and hashes.
    pub fn seal(&self) -> Sealed {
        let mut bytes = Vec::with_capacity(
            256 + self
                .sections
                .iter()
                .map(|s| s.ops.len() + 48)
                .sum::<usize>(),
        );
        let mut encoder = minicbor::Encoder::new(&mut bytes);
        let written = encoder
            .array(2)
            .and_then(|e| e.u32(BATCH_VERSION))
            .and_then(|e| e.encode(self));
        match written {
            Ok(_) => {}
            Err(error) => unreachable!("writing to memory cannot fail: {error}"),
        }
        let hash = Hash(*blake3::hash(&bytes).as_bytes());
        Sealed { bytes, hash }
    }

    /// Decodes and checks. Never panics, allocates in proportion to the length of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() > BATCH_BYTES_MAX {
            return Err(BatchError::TooLong(bytes.len()));
        }
        let malformed = |error: minicbor::decode::Error| BatchError::Malformed(error.to_string());
        let mut decoder = minicbor::Decoder::new(bytes);
        match decoder.array().map_err(malformed)? {
            Some(length) if length >= 2 => {}
            _ => return Err(BatchError::Malformed("no version".into())),
        }
        let version = decoder.u32().map_err(malformed)?;
        if version != BATCH_VERSION {
            return Err(BatchError::Version(version));
        }
        let batch: Self = decoder.decode().map_err(malformed)?;
        batch.check()?;
        Ok(batch)
    }

    /// The names of the blobs in an encoded batch, without decoding the rest; none if it is not one of this version.
    pub fn blobs_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let found = || {
            let mut decoder = minicbor::Decoder::new(bytes);
            decoder.array()?;
            if decoder.u32()? != BATCH_VERSION {
                return Ok(Vec::new());
            }
            decoder.array()?;
            for _ in 0..BLOBS_INDEX {
                decoder.skip()?;
            }
            let count = decoder.array()?.unwrap_or(0);
            (0..count).map(|_| decoder.bytes()).collect()
        };
        let names: Result<Vec<&[u8]>, minicbor::decode::Error> = found();
        names.unwrap_or_default().into_iter()
    }

    fn check(&self) -> Result<(), BatchError> {
        let sum: u64 = self
            .sections
            .iter()
            .map(|section| u64::from(section.count))
            .sum();
        if sum != u64::from(self.count) || self.count == 0 {
            return Err(BatchError::Numbers("count"));
        }
        if self.first == 0 || self.first.checked_add(u64::from(self.count)).is_none() {
            return Err(BatchError::Numbers("first"));
        }
        if self.stamp.hlc.checked_add(u64::from(self.count)).is_none()
            || self.stamp.origin != self.origin
        {
            return Err(BatchError::Numbers("stamp"));
        }
        if self.deps.get(self.origin) >= self.first {
            return Err(BatchError::Numbers("deps"));
        }
        Ok(())
    }

    /// The number of the last operation.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }

    /// The context of the `index`-th operation, counted over all sections.
    pub fn context(&self, index: u32) -> Context<'_> {
        Context {
            dot: Dot::new(self.origin, self.first + u64::from(index)),
            stamp: Stamp {
                hlc: self.stamp.hlc + u64::from(index),
                origin: self.stamp.origin,
            },
            deps: &self.deps,
        }
    }

    /// Each section with the index of its first operation.
    pub fn indexed_sections(&self) -> impl Iterator<Item = (u32, &Section)> {
        self.sections.iter().scan(0u32, |next, section| {
            let index = *next;
            *next += section.count;
            Some((index, section))
        })
    }
}
