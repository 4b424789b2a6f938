//! The rows in which an account is stored: keys, encodings, loading.

use whimbrel_crdt::VersionVector;

use crate::{AccountId, BlobName, MailboxId, MailboxName, MessageId, Replica};

/// Which row of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// The account itself.
    Account,
    /// One mailbox.
    Mailbox(MailboxId),
    /// What was announced under a name.
    Mark(MailboxName),
    /// A subscribed name.
    Subscription(MailboxName),
    /// One message.
    Message(MessageId),
    /// What vanished at a MODSEQ.
    Vanished(u64),
    /// The content of a message and its copies: not loaded with the account.
    Content(MessageId),
}

/// What a content row holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Where the bytes are.
    pub blob: BlobName,
    /// The summary, opaque.
    pub summary: Vec<u8>,
}

/// Rows that do not make an account. Permanent; the account is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Written by a later version.
    #[error("row of version {0}")]
    Version(u8),
    /// A key that is none.
    #[error("malformed row key")]
    Key,
    /// Not in the encoding.
    #[error("malformed row {0:?}: {1}")]
    Malformed(RowKey, String),
    /// Rows that contradict each other.
    #[error("row {0:?} names what is not there")]
    Dangling(RowKey),
}

impl RowKey {
    /// The key's bytes, to be prefixed by the account: rows that are loaded with the account sort before
    /// [`Self::CONTENT_PREFIX`].
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }

    /// From the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LoadError> {
        let _ = bytes;
        todo!()
    }

    /// The first byte of content rows: a load scans the account's rows below it.
    pub const CONTENT_PREFIX: u8 = 0x80;
}

impl Content {
    /// From the bytes of a content row.
    pub fn decode(bytes: &[u8]) -> Result<Self, LoadError> {
        let _ = bytes;
        todo!()
    }
}

impl Replica {
    /// From all rows but content rows, in any order. `applied` is what this replica has applied now.
    pub fn load(
        account: AccountId,
        slot: u8,
        rows: impl IntoIterator<Item = (RowKey, Vec<u8>)>,
        applied: &VersionVector,
    ) -> Result<Self, LoadError> {
        let _ = (account, slot, rows.into_iter(), applied);
        todo!()
    }
}
