//! The frames, one type each. Fields are only ever added, as options.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::{Hash, Incarnation, PartitionId, VersionVector};

/// The sender's identity, versions and features. The first frame of each side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Handshake {
    /// The cluster: nodes of another cluster are refused.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub cluster: [u8; 16],
    /// The node's name, which must be that of its certificate.
    #[n(1)]
    pub name: String,
    /// Its incarnation.
    #[n(2)]
    pub incarnation: Incarnation,
    /// The oldest version of the wire format it speaks.
    #[n(3)]
    pub wire_min: u16,
    /// The newest.
    #[n(4)]
    pub wire_max: u16,
    /// Its features, one bit each.
    #[n(5)]
    pub features: u64,
}

/// Asks for a [`Pong`] with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ping {
    /// The number, chosen by the sender.
    #[n(0)]
    pub id: u64,
}

/// The answer to a [`Ping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pong {
    /// The number of the ping.
    #[n(0)]
    pub id: u64,
    /// The sender's wall clock, in microseconds since 1970.
    #[n(1)]
    pub wall_micros: Option<u64>,
}

/// How much the receiver of batches is willing to hold that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Room {
    /// Bytes on the way and not acknowledged. One batch is always allowed.
    #[n(0)]
    pub bytes: u64,
    /// Batches on the way and not acknowledged. 0: none may be sent for now.
    #[n(1)]
    pub batches: u32,
}

/// The hash of the last durable batch of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Head {
    /// The origin of the log.
    #[n(0)]
    pub origin: Incarnation,
    /// BLAKE3 of the batch.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
}

impl Head {
    /// The hash.
    pub const fn hash(&self) -> Hash {
        Hash(self.hash)
    }
}

/// How often two nodes have come back to a partition, as the sender knows it. Frames of other generations do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Generations {
    /// The sender.
    #[n(0)]
    pub mine: u32,
    /// The receiver.
    #[n(1)]
    pub yours: u32,
}

/// The state of a replica: the first frame for a partition on a link.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// What is on its disk.
    #[n(1)]
    pub durable: VersionVector,
    /// What is applied there, and durable as applied.
    #[n(2)]
    pub applied: VersionVector,
    /// The hash of the last batch of each origin in `durable`.
    #[n(3)]
    pub heads: Vec<Head>,
    /// What may be sent to it.
    #[n(4)]
    pub room: Room,
    /// What the receiver has reported as stored, as far as the sender remembers. A receiver that has less has lost something.
    #[n(5)]
    pub yours: Option<VersionVector>,
    /// `true`: the sender begins anew on this link and knows nothing of earlier frames, so the receiver has to say everything again. `false`: the
    /// sender understands this field. `None`: an earlier version, which does not.
    #[n(6)]
    pub anew: Option<bool>,
    /// The sender is syncing: what it has does not cover what clients may know. `None`: it is not.
    #[n(7)]
    pub syncing: Option<bool>,
    /// The generations of both nodes; `None`: neither has ever left the partition.
    #[n(8)]
    pub lives: Option<Generations>,
}

impl Hello {
    /// Whether the receiver has to say everything again on this link.
    pub fn begins_anew(&self) -> bool {
        self.anew == Some(true)
    }
}

/// Batches as they were sealed; those of one origin in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// The partition.
    pub partition: PartitionId,
    /// Counts how often the sender began to send again: see [`Ack::again`].
    pub round: u32,
    /// The bytes of each.
    pub batches: Vec<Bytes>,
}

/// The head of a [`Batches`] frame, before the bytes.
#[derive(Clone, Debug, Encode, Decode)]
pub(super) struct BatchesHead {
    #[n(0)]
    pub(super) partition: PartitionId,
    #[n(1)]
    pub(super) round: u32,
    #[n(2)]
    pub(super) lengths: Vec<u32>,
}

/// What the sender has stored and applied by now.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ack {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// What is on its disk.
    #[n(1)]
    pub durable: VersionVector,
    /// What is applied there, and durable as applied.
    #[n(2)]
    pub applied: VersionVector,
    /// What may be sent to it.
    #[n(3)]
    pub room: Room,
    /// A batch of this round did not follow, or there was no room: send again what is not durable.
    #[n(4)]
    pub again: Option<u32>,
    /// As in a [`Hello`].
    #[n(5)]
    pub lives: Option<Generations>,
}

/// The id of an account.
pub type Account = [u8; 16];

/// An account with readers, or without them any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reading {
    /// The account.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub account: Account,
    /// Whether the sender has readers on it.
    #[n(1)]
    pub reading: bool,
    /// The account's counter at the sender.
    #[n(2)]
    pub counter: u32,
}

/// The sender's readers and counters (docs/design.md#rule-5).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Readers {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The end of the sender's own log: the counters count when that log is applied up to here.
    #[n(1)]
    pub upto: u64,
    /// Accounts of which something changed.
    #[n(2)]
    pub accounts: Vec<Reading>,
    /// Earlier reports are void unless they are repeated.
    #[n(3)]
    pub anew: Option<bool>,
}

/// The nodes with which the sender has links ([`crate::paths`]).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Links {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All these nodes.
    #[n(1)]
    pub peers: Vec<Incarnation>,
}

/// Readers and counters of a node without a link to the receiver, as that node has reported them to the sender.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadersOf {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The node that has the readers.
    #[n(1)]
    pub member: Incarnation,
    /// The round trip between the sender and that node, in microseconds; `None`: not measured.
    #[n(2)]
    pub round_trip_micros: Option<u64>,
    /// The end of that node's log, as in its [`Readers`].
    #[n(3)]
    pub upto: u64,
    /// Accounts of which something changed.
    #[n(4)]
    pub accounts: Vec<Reading>,
    /// The sender begins: its earlier reports are void.
    #[n(5)]
    pub anew: Option<bool>,
    /// The sender passes on nothing more of that node.
    #[n(6)]
    pub ends: Option<bool>,
}

/// What the sender has made visible to its clients (docs/design.md#rule-6).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Announced {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All that the vector covers is durable at the sender, and visible there or claimed again in the sender's log, which the vector names, too.
    #[n(1)]
    pub vector: VersionVector,
    /// Accounts of which something is hidden.
    #[cbor(n(2), with = "accounts")]
    pub except: Vec<Account>,
}

/// What another member has made visible to its clients, as far as it counts at the sender: for a new node, which cannot hear it from that member.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct VisibleVector {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// That other member.
    #[n(1)]
    pub member: Incarnation,
    /// As in its [`Announced`].
    #[n(2)]
    pub vector: VersionVector,
    /// Accounts of which less is visible.
    #[n(3)]
    pub except: Vec<Excepted>,
}

/// An account of which less is visible than of the others.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Excepted {
    /// The account.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub account: Account,
    /// What is visible of it.
    #[n(1)]
    pub vector: VersionVector,
}

/// Ids of accounts, one behind the other.
mod accounts {
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{Encoder, Error as WriteError, Write};

    use super::Account;

    pub(super) fn encode<C, W: Write>(
        accounts: &[Account],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), WriteError<W::Error>> {
        e.bytes(accounts.as_flattened())?;
        Ok(())
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Account>, Error> {
        match d.bytes()?.as_chunks() {
            (accounts, []) => Ok(accounts.to_vec()),
            _ => Err(Error::message("an account's id has 16 bytes")),
        }
    }
}

/// Names a snapshot of a partition. If `state` is 0, there is no snapshot: the receiver lacks what no log here has any more, up to `applied`, and
/// should ask for one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateBegin {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The snapshot's name, chosen by the sender.
    #[n(1)]
    pub state: u64,
    /// What is applied in it.
    #[n(2)]
    pub applied: VersionVector,
    /// The hash after which each log of `applied` goes on.
    #[n(3)]
    pub heads: Vec<Head>,
    /// The greatest stamp given or observed by the sender: the receiver's later stamps must be above it.
    #[n(4)]
    pub hlc: Option<u64>,
    /// The question that this frame answers: [`StateTake::question`].
    #[n(5)]
    pub question: Option<u64>,
}

/// Asks for a snapshot, or for more of it, and acknowledges what came before.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateTake {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The name of the snapshot. 0, or a snapshot that does not exist any more: any snapshot.
    #[n(1)]
    pub state: u64,
    /// Rows above this key. Empty: from the first.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub after: Vec<u8>,
    /// Bytes that may come before the next question. 0: no more, the snapshot may be dropped.
    #[n(3)]
    pub bytes: u64,
    /// The number of the question, a new one for each on a link. If `state` names no snapshot that is being sent, the sender makes a new one: what
    /// the receiver has joined since an earlier question may depend on more.
    #[n(4)]
    pub question: Option<u64>,
}

/// Rows of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateChunk {
    /// The partition.
    pub partition: PartitionId,
    /// The name of the snapshot.
    pub state: u64,
    /// The key after which the chunk begins.
    pub after: Vec<u8>,
    /// The key of its last row.
    pub last: Vec<u8>,
    /// The rows, as the owner encodes them.
    pub rows: Bytes,
}

/// The head of a [`StateChunk`] frame, before the bytes.
#[derive(Clone, Debug, Encode, Decode)]
pub(super) struct StateChunkHead {
    #[n(0)]
    pub(super) partition: PartitionId,
    #[n(1)]
    pub(super) state: u64,
    #[cbor(n(2), with = "minicbor::bytes")]
    pub(super) after: Vec<u8>,
    #[cbor(n(3), with = "minicbor::bytes")]
    pub(super) last: Vec<u8>,
}

/// All rows of a snapshot were sent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateEnd {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The name of the snapshot.
    #[n(1)]
    pub state: u64,
    /// The key of its last row: a receiver that has not reached it asks again.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub last: Vec<u8>,
}
