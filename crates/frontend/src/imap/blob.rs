//! Reads a range of a message: what of it lies in the prefix, then what lies in the blob, chunk by chunk.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_mime::{Span, Summary, View, Wanted};
use whimbrel_service::{
    api::{
        BLOB_CHUNK_BYTES_MAX, BLOB_READS_BYTES_MAX, BLOB_READS_PER_CALL_MAX, BlobName, BlobRange,
        Call, Reply,
    },
    content::Content,
};

/// A content row, decoded.
pub(super) struct Opened {
    pub(super) prefix: Bytes,
    /// Half a kilobyte that is handed on often.
    pub(super) summary: Box<Summary>,
}

impl Opened {
    /// `None`: the row cannot be read.
    pub(super) fn new(row: &Bytes, wanted: Wanted) -> Option<Opened> {
        let content = Content::decode(row).ok()?;
        let summary = Box::new(Summary::decode_shared(&content.summary, wanted).ok()?);
        (summary.prefix_len == content.prefix.len() as u64).then_some(Opened {
            prefix: content.prefix,
            summary,
        })
    }
}

/// A content row where it lies. `None`: it cannot be read.
pub(super) fn view(row: &[u8]) -> Option<View<'_>> {
    let (prefix, summary) = Content::within(row).ok()?;
    let view = View::new(summary).ok()?;
    (view.prefix_len == prefix.len() as u64).then_some(view)
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

/// What was read of messages that come next, so that many short ones cost few calls.
#[derive(Default)]
pub(super) struct ReadAhead {
    asked: Vec<BlobRange>,
    pieces: VecDeque<(BlobRange, Bytes)>,
}

impl ReadAhead {
    /// What answers a read that is here already. What was read for messages before it is dropped.
    pub(super) fn take(&mut self, call: &Call) -> Option<Bytes> {
        let Call::BlobRead { blob, offset, len } = call else {
            return None;
        };
        let at = self.pieces.iter().position(|(of, _)| of.blob == *blob)?;
        self.pieces.drain(..at);
        let (of, bytes) = self.pieces.front()?;
        let from = usize::try_from(offset.checked_sub(of.offset)?).ok()?;
        let to = bytes.len().min(from.saturating_add(*len as usize));
        (from < to).then(|| bytes.slice(from..to))
    }

    /// Makes a call that reads the begin of what comes `next` (blobs and how much of each), too.
    pub(super) fn ask(&mut self, call: Call, next: impl Iterator<Item = (BlobName, u32)>) -> Call {
        let Call::BlobRead { blob, offset, len } = call else {
            return call;
        };
        let mut next = next.peekable();
        // A long message may be read in many pieces: what comes behind it is read once.
        let is_there = |next: &(BlobName, u32)| self.pieces.iter().any(|(of, _)| of.blob == next.0);
        if next.peek().is_some_and(is_there) {
            return Call::BlobRead { blob, offset, len };
        }
        self.pieces.clear();
        self.asked.clear();
        self.asked.push(BlobRange { blob, offset, len });
        let mut room = BLOB_READS_BYTES_MAX.saturating_sub(len as usize);
        for (blob, len) in next.take(BLOB_READS_PER_CALL_MAX - 1) {
            let Some(left) = room.checked_sub(len as usize) else {
                break;
            };
            room = left;
            let offset = 0;
            self.asked.push(BlobRange { blob, offset, len });
        }
        if self.asked.len() == 1 {
            return Call::BlobRead { blob, offset, len };
        }
        Call::BlobReadMany(self.asked.clone())
    }

    /// The answer to what [`ReadAhead::ask`] made: gives what was wanted in the first place.
    pub(super) fn answer(&mut self, reply: Reply) -> Reply {
        let Reply::Blobs(blobs) = reply else {
            return reply;
        };
        // What was wanted is kept with the others: its header may be asked for after its body.
        self.pieces.extend(self.asked.drain(..).zip(blobs));
        let wanted = self.pieces.front().map(|(_, bytes)| bytes.clone());
        Reply::Bytes(wanted.unwrap_or_default())
    }

    /// Drops what was read; what is being read is not touched.
    pub(super) fn shed(&mut self) {
        self.pieces = VecDeque::new();
    }

    /// Nothing of it is wanted any more.
    pub(super) fn clear(&mut self) {
        *self = ReadAhead::default();
    }
}

/// Bytes of a blob that were read.
#[derive(Default)]
pub(super) struct Ahead {
    start: u64,
    bytes: Bytes,
}

/// Read at once where less is wanted: most messages without attachments are smaller than this.
pub(super) const AHEAD_BYTES: u64 = 16 * 1024;
