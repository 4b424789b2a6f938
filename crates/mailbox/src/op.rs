//! The operations on an account, and their encoding.
//!
//! One operation has one dot, however many messages it names, so that a STORE on 1:* of a large mailbox is one
//! operation. Ids of what an operation makes come from its dot ([`NewId::Fresh`]) and are not written out.
//!
//! Encoding, version 1: a CBOR array: the version, then each operation as `[kind, fields]`. Fields are numbered; unknown
//! ones are skipped. An unknown kind is an error that names it: new meaning is a new kind, never a new field.

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Stamp};

use crate::{BlobName, EntryTag, Flags, MailboxId, MailboxName, MessageId};

/// The only version written.
pub const OPS_VERSION: u32 = 1;

/// The use that a mailbox was made for (RFC 6154).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum SpecialUse {
    /// `\All`
    #[n(1)]
    All,
    /// `\Archive`
    #[n(2)]
    Archive,
    /// `\Drafts`
    #[n(3)]
    Drafts,
    /// `\Flagged`
    #[n(4)]
    Flagged,
    /// `\Junk`
    #[n(5)]
    Junk,
    /// `\Sent`
    #[n(6)]
    Sent,
    /// `\Trash`
    #[n(7)]
    Trash,
    /// `\Important` (RFC 8457)
    #[n(8)]
    Important,
}

/// An internal date: the instant, and the zone it was given in, which IMAP gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Date {
    /// Seconds since the epoch.
    #[n(0)]
    pub seconds: i64,
    /// Minutes east of Greenwich.
    #[n(1)]
    pub zone_minutes: i16,
}

/// What never changes about a message, and is the same in all its copies.
///
/// Two nodes that import one message at the same time may bring two of these for it: then it is the greater one, on all nodes (docs/decisions/0090).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Message {
    /// Where the bytes are.
    #[n(0)]
    pub blob: BlobName,
    /// RFC822.SIZE.
    #[n(1)]
    pub size: u32,
    /// INTERNALDATE.
    #[n(2)]
    pub date: Date,
    /// It does not end with CRLF: POP3 must send one behind it, and counts it.
    #[cbor(n(3), with = "if_true", has_nil)]
    pub open_end: bool,
}

/// A field that is written only if it is true: few are, and what was written before there was one keeps its meaning.
pub(crate) mod if_true {
    use minicbor::{Decoder, Encoder, decode::Error, encode::Write};

    pub(crate) fn encode<C, W: Write>(
        value: &bool,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bool(*value)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<bool, Error> {
        d.bool()
    }

    pub(crate) fn nil() -> Option<bool> {
        Some(false)
    }

    pub(crate) fn is_nil(value: &bool) -> bool {
        !*value
    }
}

/// Where the id of a new mailbox comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NewId {
    /// From the dot of the operation.
    #[n(0)]
    Fresh,
    /// Derived: the same on every node.
    #[n(1)]
    Derived(#[n(0)] MailboxId),
}

/// A new mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CreateMailbox {
    /// Its id.
    #[n(0)]
    pub id: NewId,
    /// Its first name.
    #[n(1)]
    pub name: MailboxName,
    /// Its special use.
    #[n(2)]
    pub special_use: Option<SpecialUse>,
}

/// A message to remove, with exactly the existence dots that were visible.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Removal {
    /// The message.
    #[n(0)]
    pub message: MessageId,
    /// Its existence dots. A delivery has none: it is one class, and naming the message removes it.
    #[n(1)]
    pub dots: Vec<Dot>,
}

/// A mailbox to remove, with exactly the existence dots that were visible.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BoxRemoval {
    /// The mailbox.
    #[n(0)]
    pub mailbox: MailboxId,
    /// Its existence dots.
    #[n(1)]
    pub dots: Vec<Dot>,
}

/// An appended message; its id is the first of the operation's dot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Append {
    /// Where.
    #[n(0)]
    pub mailbox: MailboxId,
    /// Its claim.
    #[n(1)]
    pub uid: u32,
    /// Initial flags.
    #[n(2)]
    pub flags: Flags,
    /// What never changes.
    #[n(3)]
    pub message: Message,
    /// The summary: opaque here, stored once in a content row.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub content: Vec<u8>,
    /// The epoch that the claim was made in: void in any other.
    #[n(5)]
    pub epoch: u32,
}

/// A message from the queue.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Deliver {
    /// Derived ([`MessageId::delivered`]): two nodes that deliver one entry make one message.
    #[n(0)]
    pub id: MessageId,
    /// The entry.
    #[n(1)]
    pub entry: EntryTag,
    /// Derived ([`crate::EntryId::placement`]): lower than every real stamp.
    #[n(2)]
    pub placement: Stamp,
    /// Where.
    #[n(3)]
    pub mailbox: MailboxId,
    /// Its claim.
    #[n(4)]
    pub uid: u32,
    /// What never changes.
    #[n(5)]
    pub message: Message,
    /// The summary: opaque here, stored once in a content row.
    #[cbor(n(6), with = "minicbor::bytes")]
    pub content: Vec<u8>,
    /// The epoch that the claim was made in: void in any other.
    #[n(7)]
    pub epoch: u32,
}

/// One message of a COPY; the id of the copy is the entry's index under the operation's dot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CopyEntry {
    /// What is copied.
    #[n(0)]
    pub source: MessageId,
    /// The claim of the copy.
    #[n(1)]
    pub uid: u32,
    /// The flags it had when it was copied.
    #[n(2)]
    pub flags: Flags,
}

/// One message of a MOVE.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MoveEntry {
    /// What is moved.
    #[n(0)]
    pub message: MessageId,
    /// Its claim at the new place.
    #[n(1)]
    pub uid: u32,
    /// Asserts `\Deleted` off: the mover saw it off.
    #[n(2)]
    pub undelete: bool,
}

/// A claim for the present placement of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Claim {
    /// The message.
    #[n(0)]
    pub message: MessageId,
    /// The stamp of the placement it is for: for any other placement it is void.
    #[n(1)]
    pub placement: Stamp,
    /// The UID.
    #[n(2)]
    pub uid: u32,
}

/// One change to an account.
///
/// Claims count only in the epoch in which they were made (0 before the first).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Op {
    /// The account begins.
    #[n(1)]
    Open {
        /// When, in seconds since the epoch: ticks of the counter follow from it.
        #[n(0)]
        created: u32,
        /// UIDVALIDITY is at least this: above every earlier account with the address.
        #[n(1)]
        uidvalidity_floor: u32,
    },
    /// CREATE
    #[n(2)]
    CreateMailbox(#[n(0)] CreateMailbox),
    /// DELETE, with all messages that were visible in it.
    #[n(3)]
    DeleteMailbox {
        /// The members of the union that bears the name.
        #[n(0)]
        mailboxes: Vec<BoxRemoval>,
        /// Their visible messages.
        #[n(1)]
        messages: Vec<Removal>,
    },
    /// RENAME of all members of a union.
    #[n(4)]
    RenameMailbox {
        /// The members.
        #[n(0)]
        mailboxes: Vec<MailboxId>,
        /// The new name.
        #[n(1)]
        to: MailboxName,
    },
    /// SUBSCRIBE
    #[n(5)]
    Subscribe {
        /// The name, which need not exist.
        #[n(0)]
        name: MailboxName,
    },
    /// UNSUBSCRIBE
    #[n(6)]
    Unsubscribe {
        /// The name.
        #[n(0)]
        name: MailboxName,
        /// The subscriptions that were visible.
        #[n(1)]
        dots: Vec<Dot>,
    },
    /// APPEND
    #[n(7)]
    Append(#[n(0)] Append),
    /// A delivery from the queue.
    #[n(8)]
    Deliver(#[n(0)] Deliver),
    /// COPY
    #[n(9)]
    Copy {
        /// The target.
        #[n(0)]
        mailbox: MailboxId,
        /// What is copied.
        #[n(1)]
        entries: Vec<CopyEntry>,
        /// The epoch that the claims were made in: void in any other.
        #[n(2)]
        epoch: u32,
    },
    /// MOVE
    #[n(10)]
    Move {
        /// The target.
        #[n(0)]
        mailbox: MailboxId,
        /// What is moved.
        #[n(1)]
        entries: Vec<MoveEntry>,
        /// The epoch that the claims were made in: void in any other.
        #[n(2)]
        epoch: u32,
    },
    /// STORE
    #[n(11)]
    Store {
        /// The messages.
        #[n(0)]
        messages: Vec<MessageId>,
        /// Flags set.
        #[n(1)]
        set: Flags,
        /// Flags unset.
        #[n(2)]
        clear: Flags,
        /// Someone cleared `\Deleted`: the messages survive a concurrent EXPUNGE.
        #[n(3)]
        rescue: bool,
    },
    /// EXPUNGE
    #[n(12)]
    Expunge {
        /// The messages.
        #[n(0)]
        messages: Vec<Removal>,
    },
    /// Claims made again.
    #[n(13)]
    Claim {
        /// The claims.
        #[n(0)]
        claims: Vec<Claim>,
        /// The epoch that the claims were made in: void in any other.
        #[n(1)]
        epoch: u32,
    },
    /// The counter is at least this: a client named such a UID.
    #[n(14)]
    Bump {
        /// The counter.
        #[n(0)]
        counter: u32,
        /// The epoch it is of.
        #[n(1)]
        epoch: u32,
    },
    /// Uniqueness cannot be vouched for: UIDVALIDITY rises to this, older claims are void.
    #[n(15)]
    Epoch {
        /// Seconds since the epoch.
        #[n(0)]
        uidvalidity: u32,
    },
}

/// The greatest kind that this program knows.
const KIND_MAX: u32 = 15;

/// Why bytes are no operations. Permanent: the account stalls until a program that knows them runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by a later version.
    #[error("operations of version {0}, this program reads version {OPS_VERSION}")]
    Version(u32),
    /// A kind that a later version knows.
    #[error("operation of unknown kind {0}")]
    Kind(u32),
    /// Not in the encoding.
    #[error("malformed operations: {0}")]
    Malformed(String),
}

impl Op {
    /// Whether all UIDs that it claims are of this slot. Whoever knows the slot of its maker refuses it otherwise: the UIDs would be another's.
    pub fn claims_only(&self, slot: u8) -> bool {
        let of = |uid: u32| uid % 64 == u32::from(slot);
        match self {
            Self::Append(append) => of(append.uid),
            Self::Deliver(deliver) => of(deliver.uid),
            Self::Copy { entries, .. } => entries.iter().all(|entry| of(entry.uid)),
            Self::Move { entries, .. } => entries.iter().all(|entry| of(entry.uid)),
            Self::Claim { claims, .. } => claims.iter().all(|claim| of(claim.uid)),
            _ => true,
        }
    }

    /// The epoch that its claims were made in: whoever made them was in it.
    fn epoch(&self) -> u32 {
        match self {
            Self::Append(append) => append.epoch,
            Self::Deliver(deliver) => deliver.epoch,
            Self::Copy { epoch, .. }
            | Self::Move { epoch, .. }
            | Self::Claim { epoch, .. }
            | Self::Bump { epoch, .. } => *epoch,
            _ => 0,
        }
    }

    /// The latest epoch that any of these claims was made in.
    pub fn epoch_of_all(ops: &[Self]) -> u32 {
        ops.iter().map(Self::epoch).max().unwrap_or(0)
    }

    /// Encodes the operations of one section.
    pub fn encode_all(ops: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let mut encoder = minicbor::Encoder::new(&mut bytes);
        let mut write = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            encoder.array(1 + ops.len() as u64)?.u32(OPS_VERSION)?;
            ops.iter().try_for_each(|op| encoder.encode(op).map(|_| ()))
        };
        // Writing to memory cannot fail, and no type here refuses to be encoded.
        write().expect("writing to memory cannot fail");
        bytes
    }

    /// Decodes the operations of one section. Never panics, allocates in proportion to the length of `bytes`.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let malformed = |error: minicbor::decode::Error| DecodeError::Malformed(error.to_string());
        let mut decoder = minicbor::Decoder::new(bytes);
        let length = match decoder.array().map_err(malformed)? {
            Some(length) if length >= 1 => length,
            _ => return Err(DecodeError::Malformed("no version".into())),
        };
        let version = decoder.u32().map_err(malformed)?;
        if version != OPS_VERSION {
            return Err(DecodeError::Version(version));
        }
        let mut ops = Vec::new();
        for _ in 1..length {
            let mut probe = decoder.probe();
            probe.array().map_err(malformed)?;
            let kind = probe.u32().map_err(malformed)?;
            if kind == 0 || kind > KIND_MAX {
                return Err(DecodeError::Kind(kind));
            }
            ops.push(decoder.decode().map_err(malformed)?);
        }
        if decoder.position() != bytes.len() {
            return Err(DecodeError::Malformed("bytes after the end".into()));
        }
        Ok(ops)
    }
}
