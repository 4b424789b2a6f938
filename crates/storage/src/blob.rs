//! Blobs: the bytes of messages, written and read as streams.
//!
//! **Life of a blob.** [`BlobStore::create`] begins an upload, [`BlobWriter::write`] appends to it, [`BlobWriter::finish`]
//! gives it its name. A blob is kept while a [`Reference`](crate::Mutation::Reference) names it; when the commit with the last
//! [`Release`](crate::Mutation::Release) is durable, the engine removes it (later, and again after a crash). An upload that
//! was never finished, or finished but never named by a committed reference, is removed when the engine is next opened; a
//! caller that knows earlier calls [`BlobWriter::abort`] or [`BlobStore::delete`].
//!
//! **Durability.** A finished blob is durable at the latest when a commit that was *submitted after `finish` returned* to the
//! [`LogStore`](crate::LogStore) of the same engine gives `Ok`. So a blob costs no sync of its own: the commit that names it covers it.

use std::fmt;
use std::future::Future;

use bytes::Bytes;

use crate::{Hash, StoreError};

/// Names one upload: 128 random bits (or a dot) from the caller, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub [u8; 16]);

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upload ")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a blob: its upload and BLAKE3 of the stored bytes. Two uploads of the same bytes are two blobs, so that no references are counted
/// across accounts. Names are ordered by upload first, which is the order of [`BlobStore::list`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlobName {
    /// The upload that made it.
    pub upload: UploadId,
    /// BLAKE3 of its bytes.
    pub hash: Hash,
}

impl BlobName {
    /// Bytes of [`BlobName::to_bytes`].
    pub const BYTES: usize = 48;

    /// Upload and hash, one after the other.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.upload.0);
        bytes[16..].copy_from_slice(&self.hash.0);
        bytes
    }

    /// The inverse of [`BlobName::to_bytes`]; `None` if the length is not [`BlobName::BYTES`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (upload, hash) = bytes.split_at_checked(16)?;
        Some(BlobName {
            upload: UploadId(upload.try_into().ok()?),
            hash: Hash(hash.try_into().ok()?),
        })
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.upload, self.hash)
    }
}

/// A finished blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobInfo {
    /// Its name.
    pub name: BlobName,
    /// Its size in bytes.
    pub size: u64,
}

/// A range of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobRange {
    /// Of which blob.
    pub name: BlobName,
    /// The first byte.
    pub offset: u64,
    /// The most bytes.
    pub len: u64,
}

/// Blobs as streams. All methods may be called from several tasks at once.
pub trait BlobStore: Send + Sync + 'static {
    /// An upload under way.
    type Writer: BlobWriter;
    /// A range being read.
    type Reader: BlobReader;

    /// Begins an upload. Refused when the id is in use.
    fn create(
        &self,
        upload: UploadId,
    ) -> impl Future<Output = Result<Self::Writer, StoreError>> + Send;

    /// Name and size of a blob; `None` if it does not exist.
    fn stat(
        &self,
        name: BlobName,
    ) -> impl Future<Output = Result<Option<BlobInfo>, StoreError>> + Send;

    /// Begins to read `len` bytes from `offset`; bytes beyond the end are left out. Nothing is read before the first [`BlobReader::next`], which
    /// fails if the blob does not exist.
    fn read(&self, name: BlobName, offset: u64, len: u64) -> Self::Reader;

    /// Reads from several blobs at once, which costs less than one read after the other. Each read gives what [`BlobReader::next`] would give first.
    /// The first read is the one that the caller needs, and fails as it would alone. The others are read ahead: a read that fails gives nothing,
    /// unless the error stops the node. A later read of that blob then reports the error.
    fn read_many(
        &self,
        ranges: Vec<BlobRange>,
    ) -> impl Future<Output = Result<Vec<Bytes>, StoreError>> + Send;

    /// Removes a blob that no reference names (an upload that was finished and then not used). No error if it does not exist; does nothing while a
    /// reference names it. Need not be durable when it returns.
    fn delete(&self, name: BlobName) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Up to `limit` finished blobs above `after`, in ascending order.
    fn list(
        &self,
        after: Option<BlobName>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<BlobInfo>, StoreError>> + Send;
}

/// The result of [`BlobStore::read_many`] for the range at this place.
///
/// The errors that it has to pass on.
pub fn read_ahead(at: usize, read: Result<Bytes, StoreError>) -> Result<Bytes, StoreError> {
    match read {
        Err(error) if at > 0 && !error.stops_node() => Ok(Bytes::new()),
        read => read,
    }
}

/// An upload under way. One that is dropped counts as aborted, at the latest after the next start.
pub trait BlobWriter: Send {
    /// Appends to the upload. The engine cuts what it gets into its own chunks; memory held is bounded by one chunk and
    /// `bytes` itself. Returns when more may be written (this is the flow control).
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends the upload and returns the name of the blob. See the module for when it is durable. All references to this upload may be released before
    /// this is called. Then an engine may refuse the call, as on a full disk, and keeps nothing of the upload.
    fn finish(self) -> impl Future<Output = Result<BlobInfo, StoreError>> + Send;

    /// Drops the upload and removes what was written.
    fn abort(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A range of a blob being read.
pub trait BlobReader: Send {
    /// The next bytes, never empty and never more than [`CHUNK_BYTES_MAX`]; `None` at the end. If the blob is removed in the meantime, this fails: a
    /// reader never gets fewer bytes than the blob had.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;
}

/// The most bytes that a reader gives at once.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;
