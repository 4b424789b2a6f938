//! Reads a range of a message: what of it lies in the prefix, then what lies in the blob, chunk by chunk.

use bytes::Bytes;
use whimbrel_mime::{Span, Summary};
use whimbrel_service::{
    api::{BLOB_CHUNK_BYTES_MAX, BlobName, Call},
    content::Content,
};

/// A content row, decoded.
pub(super) struct Opened {
    pub(super) prefix: Bytes,
    pub(super) summary: Summary,
}

impl Opened {
    /// `None`: the row cannot be read.
    pub(super) fn new(row: &Bytes) -> Option<Opened> {
        let content = Content::decode(row).ok()?;
        let summary = Summary::decode(&content.summary).ok()?;
        (summary.prefix_len == content.prefix.len() as u64).then_some(Opened {
            prefix: content.prefix,
            summary,
        })
    }
}

/// What is still to be read of a range.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    prefix: Span,
    blob: Span,
}

/// The store gave other bytes than the summary promised.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

impl Reader {
    pub(super) fn new(summary: &Summary, span: Span) -> Reader {
        let (prefix, blob) = summary.split(span);
        Reader { prefix, blob }
    }

    /// What lies in the prefix, once.
    pub(super) fn prefix(&mut self, prefix: &Bytes) -> Option<Bytes> {
        let span = std::mem::take(&mut self.prefix);
        let end = (span.end() as usize).min(prefix.len());
        let start = (span.start as usize).min(end);
        (start < end).then(|| prefix.slice(start..end))
    }

    /// The next read; `None` when all is read.
    pub(super) fn call(&self, blob: BlobName) -> Option<Call> {
        let len = self.blob.len.min(BLOB_CHUNK_BYTES_MAX as u64) as u32;
        (len > 0).then_some(Call::BlobRead {
            blob,
            offset: self.blob.start,
            len,
        })
    }

    /// Its answer has come.
    pub(super) fn took(&mut self, bytes: &Bytes) -> Result<(), Mismatch> {
        let len = bytes.len() as u64;
        if len == 0 || len > self.blob.len {
            return Err(Mismatch);
        }
        self.blob.start += len;
        self.blob.len -= len;
        Ok(())
    }

    /// As [`Reader::call`], but reads on into what follows, up to [`AHEAD_BYTES`]: `end` is the end of the blob. For many short ranges
    /// that lie close together.
    pub(super) fn call_ahead(&self, blob: BlobName, end: u64) -> Option<Call> {
        let wanted = self.blob.len.min(BLOB_CHUNK_BYTES_MAX as u64);
        let more = AHEAD_BYTES.min(end.saturating_sub(self.blob.start));
        let len = wanted.max(more) as u32;
        (wanted > 0).then_some(Call::BlobRead {
            blob,
            offset: self.blob.start,
            len,
        })
    }

    /// What of this range was read already.
    pub(super) fn take_ahead(&mut self, ahead: &Ahead) -> Option<Bytes> {
        let from = self.blob.start.checked_sub(ahead.start)?;
        let rest = (ahead.bytes.len() as u64).checked_sub(from)?;
        let len = rest.min(self.blob.len);
        self.blob.start += len;
        self.blob.len -= len;
        (len > 0).then(|| ahead.bytes.slice(from as usize..(from + len) as usize))
    }

    /// The answer to [`Reader::call_ahead`].
    pub(super) fn ahead(&self, bytes: Bytes) -> Ahead {
        Ahead {
            start: self.blob.start,
            bytes,
        }
    }
}

/// Bytes of a blob that were read.
#[derive(Default)]
pub(super) struct Ahead {
    start: u64,
    bytes: Bytes,
}

/// Read at once where less is wanted: most messages without attachments are smaller than this.
const AHEAD_BYTES: u64 = 16 * 1024;
