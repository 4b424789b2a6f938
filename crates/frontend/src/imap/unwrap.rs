//! Undoes the encoding of a message around what is wanted (`whimbrel_mime::section::Within`): octets of its body in, those of the range out.

use whimbrel_mime::{Span, section::Within, transfer::TransferDecoder};

/// What of an encoded body is still to come.
pub(super) struct Unwrap {
    decoder: TransferDecoder,
    /// Octets of one piece; empty in between.
    buffer: Vec<u8>,
    /// Decoded octets before the range, and of the range.
    skip: u64,
    left: u64,
}

impl Unwrap {
    /// For a range of what comes out of the body of `within`, which is what is to be read.
    pub(super) fn new(within: Within, span: Span) -> Unwrap {
        Unwrap {
            decoder: TransferDecoder::new(within.encoding),
            buffer: Vec::new(),
            skip: span.start.saturating_sub(within.body.start),
            left: span.len,
        }
    }

    /// Whether the whole range came out: what is behind it need not be read.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The next octets of the body; `None` at its end.
    pub(super) fn push(&mut self, bytes: Option<&[u8]>, take: &mut impl FnMut(&[u8])) {
        match bytes {
            Some(bytes) => self.decoder.push(bytes, &mut self.buffer),
            None => self.decoder.finish(&mut self.buffer),
        }
        let len = self.buffer.len() as u64;
        let from = self.skip.min(len);
        let to = (from + self.left).min(len);
        self.skip -= from;
        self.left -= to - from;
        take(&self.buffer[from as usize..to as usize]);
        self.buffer.clear();
    }
}
