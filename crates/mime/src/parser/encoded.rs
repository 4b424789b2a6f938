//! A message under an encoding, mostly base64. RFC 2046 5.2.1 allows message/rfc822 none that would have to be undone, and programs send it
//! all the same: without a look inside nobody would see its text.
//!
//! The encoding is undone while the part streams by, and another parser reads what comes out. The ranges of what is inside are of the decoded
//! text, counted from where the body of the part begins. No encoding makes a text longer, so these ranges lie within the body, as those of
//! all parts do; who reads them asks [`crate::section::Resolved::within`]. One level is undone: of such a message inside such a message
//! nothing is known.

use super::Parser;
use super::text::HeldEnd;
use crate::summary::Message;
use crate::transfer::{Encoding, TransferDecoder};

/// Bytes that are decoded at a time.
const PIECE_BYTES: usize = 4096;

pub(super) struct Encoded {
    transfer: TransferDecoder,
    parser: Parser,
    decoded: Vec<u8>,
    held: HeldEnd,
}

impl Encoded {
    /// `parser` stands where the body begins.
    pub(super) fn new(encoding: Encoding, parser: Parser) -> Encoded {
        Encoded {
            transfer: TransferDecoder::new(encoding),
            parser,
            decoded: Vec::new(),
            held: HeldEnd::default(),
        }
    }

    /// More of the body, as it is.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        held.push(bytes, |bytes| self.decode(bytes));
        self.held = held;
    }

    fn decode(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.transfer.push(piece, &mut self.decoded);
            self.parser.push(&self.decoded);
            self.decoded.clear();
        }
    }

    /// Its end. `cut`: by a delimiter, to which the last line end belongs. Gives back the parser for what it did not use.
    pub(super) fn finish(mut self, cut: bool) -> (Message, Parser) {
        let end = self.held.take();
        if !cut {
            self.decode(end);
        }
        self.transfer.finish(&mut self.decoded);
        self.parser.push(&self.decoded);
        (self.parser.end_message(), self.parser)
    }
}
