//! Operations of the directory and their encoding.
//!
//! Encoding: a CBOR array of the version and the operations; an operation is an array of its kind and numbered fields.
//! Unknown fields are skipped, an unknown version or kind is an error: a new meaning is a new kind.

use minicbor::{Decode, Encode};
use whimbrel_crdt::Dot;

use crate::{
    credential::{Credential, DecoySecret},
    quota::OwnQuota,
};

/// Newest encoding version written and read.
const OPS_VERSION: u8 = 1;

/// The random identity of an account (the mailbox crate's `AccountId`, as bytes).
pub type AccountKey = [u8; 16];

/// One change of the directory. Addresses are folded (see [`crate::Address`]) before they are put into an op.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Op {
    /// The server receives mail for this domain from now on.
    #[n(0)]
    AddDomain {
        /// Folded.
        #[n(0)]
        domain: String,
    },
    /// No longer.
    #[n(1)]
    RemoveDomain {
        /// Folded.
        #[n(0)]
        domain: String,
        /// What the maker saw of it.
        #[n(1)]
        seen: Vec<Dot>,
    },
    /// A new account.
    #[n(2)]
    AddAccount {
        /// Its identity.
        #[cbor(n(0), with = "minicbor::bytes")]
        account: AccountKey,
        /// Its address, folded.
        #[n(1)]
        address: String,
        /// When, in seconds since 1970.
        #[n(2)]
        created: u64,
        /// UIDVALIDITY of all its mailboxes: above that of every earlier account with this address.
        #[n(3)]
        uid_validity: u32,
        /// What is kept of its password.
        #[n(4)]
        credential: Credential,
    },
    /// An account is removed.
    #[n(3)]
    RemoveAccount {
        /// Which.
        #[cbor(n(0), with = "minicbor::bytes")]
        account: AccountKey,
        /// What the maker saw of it.
        #[n(1)]
        seen: Vec<Dot>,
    },
    /// A new password.
    #[n(4)]
    SetCredential {
        /// Whose.
        #[cbor(n(0), with = "minicbor::bytes")]
        account: AccountKey,
        /// What is kept of it.
        #[n(1)]
        credential: Credential,
        /// Sessions that are logged in stay. Earlier versions neither write nor know this field.
        #[n(2)]
        keeps_sessions: Option<bool>,
    },
    /// Mail for `from` goes to `to`, too.
    #[n(5)]
    AddAlias {
        /// Folded; the local part is empty for a catch-all.
        #[n(0)]
        from: String,
        /// Folded.
        #[n(1)]
        to: String,
    },
    /// No longer.
    #[n(6)]
    RemoveAlias {
        /// Folded.
        #[n(0)]
        from: String,
        /// Folded.
        #[n(1)]
        to: String,
        /// What the maker saw of it.
        #[n(2)]
        seen: Vec<Dot>,
    },
    /// The secret for made-up salts of names without SCRAM keys: the same on every node and after every start, so that no change of a salt shows
    /// which names exist.
    #[n(7)]
    SetDecoy {
        /// Random.
        #[n(0)]
        secret: DecoySecret,
    },
    /// An account's UIDVALIDITY has risen.
    #[n(8)]
    RaiseUidValidity {
        /// Whose.
        #[cbor(n(0), with = "minicbor::bytes")]
        account: AccountKey,
        /// It is at least this.
        #[n(1)]
        uid_validity: u32,
    },
    /// The quota of an account.
    #[n(9)]
    SetQuota {
        /// Which.
        #[cbor(n(0), with = "minicbor::bytes")]
        account: AccountKey,
        /// The complete quota.
        #[n(1)]
        quota: OwnQuota,
    },
}

/// Bytes that are no directory operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// Damage.
    #[error("directory operations cannot be read: {0}")]
    Damaged(String),
    /// Written by a newer version.
    #[error("directory operations have version {0}, newest known is {OPS_VERSION}")]
    Version(u8),
}

/// Encodes operations as the body of a section.
#[must_use]
pub fn encode(ops: &[Op]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut out);
    let written = encoder
        .array(2)
        .and_then(|e| e.u8(OPS_VERSION))
        .and_then(|e| e.encode(ops));
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
    out
}

/// The inverse of [`encode`].
///
/// # Errors
/// When the bytes are damaged, of a newer version, or hold an operation of an unknown kind.
pub fn decode(bytes: &[u8]) -> Result<Vec<Op>, OpError> {
    let damaged = |error: minicbor::decode::Error| OpError::Damaged(error.to_string());
    let mut decoder = minicbor::Decoder::new(bytes);
    if decoder.array().map_err(damaged)?.is_none_or(|len| len < 2) {
        return Err(OpError::Damaged("no version".into()));
    }
    let version = decoder.u8().map_err(damaged)?;
    if version != OPS_VERSION {
        return Err(OpError::Version(version));
    }
    decoder.decode().map_err(damaged)
}
