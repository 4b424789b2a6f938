//! The own log of one partition: numbers, hash chain, clock.
//!
//! Every write of an owner is sealed here into a batch that follows the one before. The position is kept in a record of the
//! partition, in the same atomic write, so that a start need not read the log to go on.

use std::num::NonZeroU64;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Batch, Hash, Hlc, Incarnation, PartitionId, Section, Stamp, VersionVector};
use whimbrel_storage::{Commit, Cut, LogEntry, Mutation, Origin};

use crate::machine::Now;

/// Key of the record that holds a [`Position`]; no other record's key starts with this byte.
pub const POSITION_KEY: &[u8] = b"\0position";

/// Batches kept behind the newest one: records stand for all of them already, so they are for an engineer's eyes and for peers that lag a little.
/// Cutting goes in steps of as many, so that it is rarely part of a commit.
const BATCHES_KEPT: u64 = 1024;

/// Where the own log stands, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Position {
    /// Number of the next operation.
    #[n(0)]
    pub next: u64,
    /// Hash of the newest batch.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// The clock.
    #[n(2)]
    pub hlc: u64,
    /// What has been applied.
    #[n(3)]
    pub applied: VersionVector,
    /// First numbers of batches, one each [`BATCHES_KEPT`]: where the log can be cut next.
    #[n(4)]
    pub marks: Vec<u64>,
    /// Batches since the last mark.
    #[n(5)]
    pub since_mark: u64,
    /// Whose log it is. Positions from before this was kept do not say it: then it is another's.
    #[n(6)]
    pub origin: Option<NonZeroU64>,
}

/// The own log of one partition.
#[derive(Clone, Debug)]
pub struct Log {
    partition: PartitionId,
    origin: Incarnation,
    position: Position,
    hlc: Hlc,
    /// Whether a commit was handed out since the state was read from the store: later ones rest on it.
    begun: bool,
}

/// The position record is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position record of partition {0:?} cannot be read: {1}")]
pub struct PositionError(PartitionId, String);

impl Log {
    /// A log nobody has written to.
    #[must_use]
    pub fn new(partition: PartitionId, origin: Incarnation) -> Self {
        let position = Position {
            next: 1,
            hash: [0; 32],
            hlc: 0,
            applied: VersionVector::new(),
            marks: Vec::new(),
            since_mark: 0,
            origin: NonZeroU64::new(origin.get()),
        };
        Log {
            partition,
            origin,
            position,
            hlc: Hlc::default(),
            begun: false,
        }
    }

    /// A log that goes on from its position record. When that is another incarnation's, a new log begins on top of the old one, which stays
    /// as it is: another replica's closed log.
    ///
    /// # Errors
    /// When the record is damaged.
    pub fn load(
        partition: PartitionId,
        origin: Incarnation,
        record: &[u8],
    ) -> Result<Self, PositionError> {
        let position: Position = minicbor::decode(record)
            .map_err(|error| PositionError(partition, error.to_string()))?;
        let hlc = Hlc::restore(position.hlc);
        if position.origin.map(NonZeroU64::get) != Some(origin.get()) {
            let mut log = Log::new(partition, origin);
            log.position.hlc = position.hlc;
            log.position.applied = position.applied;
            log.hlc = hlc;
            return Ok(log);
        }
        Ok(Log {
            partition,
            origin,
            position,
            hlc,
            begun: false,
        })
    }

    /// Which partition it belongs to.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Who writes it.
    #[must_use]
    pub fn origin(&self) -> Incarnation {
        self.origin
    }

    /// Number of the next operation.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.position.next
    }

    /// What has been applied.
    #[must_use]
    pub fn applied(&self) -> &VersionVector {
        &self.position.applied
    }

    /// The greatest time given.
    #[must_use]
    pub fn hlc(&self) -> Hlc {
        self.hlc
    }

    /// A commit to the partition that holds nothing yet. All but the first since the state was read rest on those before, so that none
    /// survives one that is refused. They must be handed out in the order in which they are begun.
    pub fn commit(&mut self) -> Commit {
        let mut commit = Commit::new(store_partition(self.partition));
        commit.follows = std::mem::replace(&mut self.begun, true);
        commit
    }

    /// Takes the next `count` numbers and times for operations that are about to be applied; [`Log::seal`] must follow.
    pub fn reserve(&mut self, now: Now, count: u32) -> Reserved {
        assert!(count > 0, "a batch has at least one operation");
        let first = self.position.next;
        let hlc = self.hlc.tick_many(now.wall_micros, count);
        // Its own origin is implied by the number.
        let deps = self
            .position
            .applied
            .iter()
            .filter(|(origin, _)| *origin != self.origin)
            .collect();
        self.position.next = first + u64::from(count);
        self.position.hlc = self.hlc.last();
        self.position
            .applied
            .advance(self.origin, self.position.next - 1);
        Reserved {
            first,
            count,
            hlc,
            deps,
        }
    }

    /// Makes the batch of these sections and the commit that holds it, its position record and any cut. The caller adds its own
    /// records.
    pub fn seal(
        &mut self,
        reserved: &Reserved,
        sections: Vec<Section>,
        blobs: Vec<Vec<u8>>,
    ) -> (Batch, Commit) {
        let batch = Batch {
            partition: self.partition,
            origin: self.origin,
            first: reserved.first,
            count: reserved.count,
            previous: Hash(self.position.hash),
            deps: reserved.deps.clone(),
            stamp: Stamp {
                hlc: reserved.hlc,
                origin: self.origin,
            },
            sections,
            blobs: blobs.into_iter().map(Into::into).collect(),
        };
        assert_eq!(
            batch.last() + 1,
            self.position.next,
            "batches are sealed in the order of their numbers"
        );
        let sealed = batch.seal();
        let mut commit = self.commit();
        commit.entry = Some(LogEntry {
            origin: Origin(self.origin.get()),
            first: reserved.first,
            count: reserved.count,
            previous: whimbrel_storage::Hash(self.position.hash),
            bytes: sealed.bytes.into(),
        });
        let position = &mut self.position;
        position.hash = sealed.hash.0;
        position.since_mark += 1;
        if position.since_mark >= BATCHES_KEPT {
            position.since_mark = 0;
            position.marks.push(reserved.first);
            if position.marks.len() > 1 {
                let below = position.marks.remove(0);
                commit.cuts.push(Cut {
                    origin: Origin(self.origin.get()),
                    below,
                });
            }
        }
        commit.mutations.push(Mutation::Put {
            key: POSITION_KEY.into(),
            value: encode(&self.position).into(),
        });
        (batch, commit)
    }
}

/// Numbers and times taken for one batch.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// Number of its first operation.
    pub first: u64,
    /// How many it has.
    pub count: u32,
    /// Time of its first operation.
    pub hlc: u64,
    /// What it depends on.
    pub deps: VersionVector,
}

/// A partition as the store numbers it.
#[must_use]
pub fn store_partition(partition: PartitionId) -> whimbrel_storage::PartitionId {
    whimbrel_storage::PartitionId(u64::from(partition.0))
}

/// Encodes a record.
pub(crate) fn encode<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    let written = minicbor::encode(value, &mut out);
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
    out
}
