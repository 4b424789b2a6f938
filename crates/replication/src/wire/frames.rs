//! The frames, one type each. Fields are only ever added, as options.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::{Hash, Incarnation, PartitionId, VersionVector};

/// Who speaks, and what it understands. The first frame of each side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Handshake {
    /// The cluster: nodes of another one are refused.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub cluster: [u8; 16],
    /// The node's name, which must be that of its certificate.
    #[n(1)]
    pub name: String,
    /// Its present life.
    #[n(2)]
    pub incarnation: Incarnation,
    /// The oldest version of the wire format it speaks.
    #[n(3)]
    pub wire_min: u16,
    /// The newest.
    #[n(4)]
    pub wire_max: u16,
    /// What it can do, one bit each.
    #[n(5)]
    pub features: u64,
}

/// Asks for the same number back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ping {
    /// Chosen by who asks.
    #[n(0)]
    pub id: u64,
}

/// Gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pong {
    /// As asked.
    #[n(0)]
    pub id: u64,
    /// The sender's wall clock, in microseconds since 1970.
    #[n(1)]
    pub wall_micros: Option<u64>,
}

/// How much more the receiver of batches is willing to hold that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Room {
    /// Bytes on the way and not acknowledged. One batch is always allowed.
    #[n(0)]
    pub bytes: u64,
    /// Batches, likewise; none of them: nothing may be sent for now.
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

/// How often two nodes have come back to a partition, as the sender knows it: what is said of other lives counts for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Generations {
    /// The sender.
    #[n(0)]
    pub mine: u32,
    /// The receiver.
    #[n(1)]
    pub yours: u32,
}

/// Where a replica stands: the first frame for a partition on a link.
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
    /// The last hash of each origin of `durable`.
    #[n(3)]
    pub heads: Vec<Head>,
    /// What may be sent to it.
    #[n(4)]
    pub room: Room,
    /// What the receiver has said to be on its own disk, as far as the sender remembers: one that has less has lost something.
    #[n(5)]
    pub yours: Option<VersionVector>,
    /// `true`: it has begun anew on this link and knows nothing of what was said on it before, so that the receiver, too, says all again. Otherwise, that
    /// it would understand this; `None`: a version that does not.
    #[n(6)]
    pub anew: Option<bool>,
    /// The sender is new, and has not all that another one had when they were linked: what it has says nothing of what clients know. `None`: no.
    #[n(7)]
    pub syncing: Option<bool>,
    /// Of which lives this is said; `None`: neither of the two nodes has ever left the partition.
    #[n(8)]
    pub lives: Option<Generations>,
}

impl Hello {
    /// Whether all is to be said again on this link.
    pub fn begins_anew(&self) -> bool {
        self.anew == Some(true)
    }
}

/// Batches, as they were sealed: those of one origin in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// The partition.
    pub partition: PartitionId,
    /// Counts how often the sender began again: see [`Ack::again`].
    pub round: u32,
    /// The bytes of each.
    pub batches: Vec<Bytes>,
}

/// What lies before the bytes of [`Batches`].
#[derive(Clone, Debug, Encode, Decode)]
pub(super) struct BatchesHead {
    #[n(0)]
    pub(super) partition: PartitionId,
    #[n(1)]
    pub(super) round: u32,
    #[n(2)]
    pub(super) lengths: Vec<u32>,
}

/// What is durable and applied by now.
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
    /// Something of this round did not follow, or there was no room: send again what is not durable.
    #[n(4)]
    pub again: Option<u32>,
    /// As in a [`Hello`].
    #[n(5)]
    pub lives: Option<Generations>,
}

/// The id of an account.
pub type Account = [u8; 16];

/// An account that somebody looks at.
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

/// Readers and counters (docs/design.md#rule-5).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Readers {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The sender's own number when it said so: the counters count when its log is applied up to it.
    #[n(1)]
    pub upto: u64,
    /// Accounts of which something changed.
    #[n(2)]
    pub accounts: Vec<Reading>,
    /// What was told on an older link is void, unless told again.
    #[n(3)]
    pub anew: Option<bool>,
}

/// With whom the sender has links ([`crate::paths`]).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Links {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All of them.
    #[n(1)]
    pub peers: Vec<Incarnation>,
}

/// Readers and counters of a node with which the receiver has no link, as that node has told the sender.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadersOf {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// Whose readers.
    #[n(1)]
    pub member: Incarnation,
    /// The round trip between the sender and that node, in microseconds; `None`: not measured.
    #[n(2)]
    pub round_trip_micros: Option<u64>,
    /// That node's own number: as in its [`Readers`].
    #[n(3)]
    pub upto: u64,
    /// Accounts of which something changed.
    #[n(4)]
    pub accounts: Vec<Reading>,
    /// The sender begins: what it told before is void.
    #[n(5)]
    pub anew: Option<bool>,
    /// The sender tells nothing of that node any more.
    #[n(6)]
    pub ends: Option<bool>,
}

/// What the sender has shown to its clients (docs/design.md#rule-6).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Announced {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All that it covers is durable at the sender, and shown there or claimed again in the sender's log, up to its own number.
    #[n(1)]
    pub vector: VersionVector,
    /// But of these accounts something is not.
    #[cbor(n(2), with = "accounts")]
    pub except: Vec<Account>,
}

/// What another member than the sender has shown to its clients, as far as it counts at the sender: for who is new, and never heard it say so.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct VisibleVector {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// Who has shown it.
    #[n(1)]
    pub member: Incarnation,
    /// As in its [`Announced`].
    #[n(2)]
    pub vector: VersionVector,
    /// Accounts of which less was shown.
    #[n(3)]
    pub except: Vec<Excepted>,
}

/// An account of which less was shown than of the others.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Excepted {
    /// Which.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub account: Account,
    /// What was shown of it.
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

/// Names the state of a partition at one moment. With 0 for its name: the receiver lacks what no log here has any more, up to `applied`; it should
/// ask for a state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateBegin {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// Chosen by the sender, for this state alone.
    #[n(1)]
    pub state: u64,
    /// What is applied in it.
    #[n(2)]
    pub applied: VersionVector,
    /// The hash at which each log of `applied` goes on.
    #[n(3)]
    pub heads: Vec<Head>,
    /// The greatest time given or observed by the sender: what the receiver makes of it must be later.
    #[n(4)]
    pub hlc: Option<u64>,
    /// The question that this answers: [`StateTake::question`].
    #[n(5)]
    pub question: Option<u64>,
}

/// Asks for a state, or for more of it: acknowledges what came before.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateTake {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// Which state; 0: whichever. One that is not there any more: likewise.
    #[n(1)]
    pub state: u64,
    /// Rows above this key. Empty: from the first.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub after: Vec<u8>,
    /// Bytes that may come before this is asked again. 0: no more, the state may be dropped.
    #[n(3)]
    pub bytes: u64,
    /// Another number for each question, on one link. Where `state` is not one that is being given, a state that was fixed for an earlier question is no
    /// answer: what the asker joined meanwhile may have relied on more.
    #[n(4)]
    pub question: Option<u64>,
}

/// Rows of a state.
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
    /// The rows, encoded by whoever keeps them.
    pub rows: Bytes,
}

/// What lies before the bytes of [`StateChunk`].
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

/// All rows of a state were sent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateEnd {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// The name of the snapshot.
    #[n(1)]
    pub state: u64,
    /// The key of its last row: a receiver that has not come so far asks again.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub last: Vec<u8>,
}
