//! The content row of a message: what is read when more than flags and figures are asked for, written once.
//!
//! A message's bytes are its *prefix* (trace header fields that this server added for this recipient) followed by its blob.
//! The summary (made by `mime`) describes that whole. Both are opaque here.

use bytes::Bytes;
use minicbor::{Decoder, Encoder};

/// Format of a content row. A reader refuses a greater one.
const CONTENT_VERSION: u8 = 1;

/// A decoded content row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Header fields that precede the blob's bytes; empty for APPEND.
    pub prefix: Bytes,
    /// Encoded summary of the whole message.
    pub summary: Bytes,
}

/// A content row that cannot be read: damage, or written by a newer version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Not CBOR, or not what was expected.
    #[error("content row is damaged")]
    Damaged,
    /// Written by a newer version.
    #[error("content row has version {0}, newest known is {CONTENT_VERSION}")]
    Version(u8),
}

impl Content {
    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.prefix.len() + self.summary.len() + 16);
        let mut encoder = Encoder::new(&mut out);
        // Writing to a Vec cannot fail.
        let written = encoder
            .array(3)
            .and_then(|e| e.u8(CONTENT_VERSION))
            .and_then(|e| e.bytes(&self.prefix))
            .and_then(|e| e.bytes(&self.summary));
        debug_assert!(written.is_ok());
        Bytes::from(out)
    }

    /// The inverse of [`Content::encode`]; shares the memory of `row`.
    ///
    /// # Errors
    /// When the row is damaged or of a newer version.
    pub fn decode(row: &Bytes) -> Result<Self, ContentError> {
        let (prefix, summary) = Self::within(row)?;
        Ok(Content {
            prefix: row.slice_ref(prefix),
            summary: row.slice_ref(summary),
        })
    }

    /// As [`Content::decode`]: prefix and summary where they lie.
    ///
    /// # Errors
    /// As there.
    pub fn within(row: &[u8]) -> Result<(&[u8], &[u8]), ContentError> {
        let mut decoder = Decoder::new(row);
        let damaged = |_| ContentError::Damaged;
        if decoder.array().map_err(damaged)?.is_none_or(|len| len < 3) {
            return Err(ContentError::Damaged);
        }
        let version = decoder.u8().map_err(damaged)?;
        if version > CONTENT_VERSION {
            return Err(ContentError::Version(version));
        }
        let prefix = decoder.bytes().map_err(damaged)?;
        Ok((prefix, decoder.bytes().map_err(damaged)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_is_the_inverse_of_encode() {
        let check = |prefix: &'static [u8], summary: &'static [u8]| {
            let content = Content {
                prefix: Bytes::from_static(prefix),
                summary: Bytes::from_static(summary),
            };
            assert_eq!(Content::decode(&content.encode()), Ok(content));
        };
        check(b"", b"");
        check(b"Return-Path: <>\r\n", &[0, 1, 2, 255]);
    }

    #[test]
    fn damage_and_newer_versions_are_refused() {
        let check = |row: &'static [u8], expected| {
            assert_eq!(Content::decode(&Bytes::from_static(row)), Err(expected))
        };
        check(b"", ContentError::Damaged);
        check(&[0x83, 0x01, 0x40], ContentError::Damaged);
        check(&[0x82, 0x01, 0x40], ContentError::Damaged);
        check(&[0x83, 0x02, 0x40, 0x40], ContentError::Version(2));
    }
}
