//! Identities that never change: accounts, mailboxes, messages, blobs, queue entries.
//!
//! Mailbox and message ids are opaque: drawn from the dot of the operation that makes them, or derived from what must
//! never exist twice (the default folders of an account; a queue entry's delivery).

use std::num::NonZeroU64;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation, Stamp};

use crate::MailboxName;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        /// 32 hexadecimal digits.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

id!(
    /// A user and all of his mailboxes. Random, never the address.
    AccountId
);
id!(
    /// One mailbox, whatever its name.
    MailboxId
);
id!(
    /// One message in one account, whatever its mailbox and UID. A copy is another message.
    MessageId
);
id!(
    /// One accepted transaction in the queue.
    EntryId
);

fn derive(label: &str, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(label);
    for part in parts {
        // Lengths make the parts unambiguous.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}

fn dot_bytes(dot: Dot) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dot.origin.get().to_le_bytes());
    bytes[8..].copy_from_slice(&dot.seq.to_le_bytes());
    bytes
}

impl MailboxId {
    /// The INBOX, the same id in every account and on every node.
    pub fn inbox() -> Self {
        Self::default_folder("INBOX")
    }

    /// A folder that every account is born with; `label` is fixed for ever, the name may change.
    pub fn default_folder(label: &str) -> Self {
        Self(derive("whimbrel default folder v1", &[label.as_bytes()]))
    }

    /// The mailbox that the operation `dot` creates.
    pub fn from_dot(dot: Dot) -> Self {
        Self(derive("whimbrel mailbox v1", &[&dot_bytes(dot)]))
    }
}

impl MessageId {
    /// The `index`-th message that the operation `dot` makes.
    pub fn from_dot(dot: Dot, index: u32) -> Self {
        Self(derive(
            "whimbrel message v1",
            &[&dot_bytes(dot), &index.to_le_bytes()],
        ))
    }

    /// The message that a queue entry becomes for one account and one target, on whatever node it is delivered.
    ///
    /// `target` is the name that the recipient's address asked for, fixed at acceptance, not where it ended up.
    pub fn delivered(entry: EntryId, account: AccountId, target: &MailboxName) -> Self {
        Self(derive(
            "whimbrel delivery v1",
            &[&entry.0, &account.0, target.as_str().as_bytes()],
        ))
    }

    /// The message that something of elsewhere becomes in an account, whoever brings it, and how often.
    pub fn imported(entry: EntryId, account: AccountId) -> Self {
        Self(derive("whimbrel import v1", &[&entry.0, &account.0]))
    }
}

/// The first eight bytes of a queue entry's id: enough to ask whether the entry is finished, small enough to keep with
/// each delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryTag(#[n(0)] NonZeroU64);

impl EntryId {
    /// Its tag.
    pub fn tag(self) -> EntryTag {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        EntryTag(NonZeroU64::new(u64::from_le_bytes(bytes)).unwrap_or(NonZeroU64::MIN))
    }

    /// The placement stamp of a delivery into `mailbox`: lower than every real stamp, and the same wherever it is made.
    ///
    /// It depends on the mailbox, so that a placement stamp names one mailbox.
    pub fn placement(self, mailbox: MailboxId) -> Stamp {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(
            &derive("whimbrel delivery placement v1", &[&self.0, &mailbox.0])[..8],
        );
        Stamp {
            hlc: 0,
            origin: Incarnation::from_hash(u64::from_le_bytes(bytes)),
        }
    }
}

/// The name of a blob: what it contains, and which upload brought it.
///
/// The upload is part of the name so that nobody learns from a hash whether another account has the same mail, and so
/// that no counting across accounts is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct BlobName {
    /// BLAKE3 of the stored bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// The upload, unique in the cluster.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub upload: [u8; 16],
}
