//! What the writer and the readers of an encoded summary share: its version, and why bytes are none. The encoding is in `wire`.

/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 2;

/// Why bytes are no summary. The log's affair: a client is told that the message cannot be read. Permanent.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Written by a later version.
    #[error("summary has version {0}, which is unknown here")]
    Version(u32),
    /// Not the encoding of a summary.
    #[error("summary is damaged: {0}")]
    Damaged(&'static str),
}

pub(super) fn damaged(what: &'static str) -> DecodeError {
    DecodeError::Damaged(what)
}
