//! The own log of one partition: numbers, hash chain, clock.
//!
//! Every write of an owner is sealed here into a batch that follows the one before. The position is kept in a record of the
//! partition, in the same atomic write, so that a start need not read the log to go on. Batches of other nodes are applied under the same record, and
//! lie in logs of their own.
//!
//! What of the logs is forgotten is decided by `replication`, which knows what every member has applied; here it waits for the next commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
};

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::{
    Batch, Hash, Hlc, Incarnation, PartitionId, Section, Stamp, VersionVector, mutants::broken,
};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_replication::partition::{Foreign, LogEnd, SnapshotProgress};
use whimbrel_storage::{Commit, Cut, Jump, LogEntry, Mutation, Origin, Room};

use crate::machine::Now;

/// Key of the record that holds a [`Position`]; no other record's key starts with this byte.
pub const POSITION_KEY: &[u8] = b"\0position";

/// Before the name of a body that is not here: a row for each, written with the batch that names it, gone when the body is durable, or when no record
/// names it any more.
const MISSING_BLOBS: &[u8] = b"\0lacking";

/// Key of the row that holds what other members have shown: [`whimbrel_replication::announced`].
pub(crate) const ANNOUNCED_KEY: &[u8] = b"\0announced";

/// Key of the row which says where this node's log ended when it dropped the partition: a [`Position`] with nothing applied. It is alone then.
pub const AWAY_KEY: &[u8] = b"\0away";

/// Whether these are the rows of another incarnation that had dropped the partition, came back to it, and does not apply all that it once wrote. No
/// log has these operations, they come with a state, and a state is given for them to who wrote them. Without having dropped it, it has only not yet
/// applied what came to it again: that waits for its time, or for other operations.
pub(crate) fn lacks_own_of_before(
    origin: Incarnation,
    rows: &[(Vec<u8>, Bytes)],
    last: impl Fn(Incarnation) -> u64,
) -> bool {
    let row = |of: &[u8]| rows.iter().find(|(key, _)| key == of).map(|(_, row)| row);
    let position = row(POSITION_KEY).and_then(|row| minicbor::decode::<Position>(row).ok());
    let Some(position) = position else {
        return false;
    };
    let wrote = position.origin.and_then(|of| Incarnation::new(of.get()));
    wrote.is_some_and(|of| {
        let has_all_again = row(GROWN_KEY).is_some_and(|row| has_grown(of, row));
        let dropped = row(DROPPED_KEY).is_some() && !has_all_again;
        of != origin && dropped && position.applied.get(of) < last(of)
    })
}

/// Key of the row which says that this node has once dropped the partition: without [`GROWN_KEY`] it has not all again.
pub const DROPPED_KEY: &[u8] = b"\0dropped";

/// The row itself, of a log that ends there; `record`: the position.
///
/// # Errors
/// When the record is damaged.
pub(crate) fn away(
    partition: PartitionId,
    origin: Incarnation,
    end: Option<&LogEnd>,
    record: Option<&[u8]>,
) -> Result<Mutation, PositionError> {
    let log = match record {
        Some(record) => Log::load(partition, origin, record)?,
        None => Log::new(partition, origin),
    };
    let position = Position {
        next: end.map_or(1, |end| end.last + 1),
        hash: end.map_or([0; 32], |end| end.hash.0),
        applied: VersionVector::new(),
        collected: None,
        ..log.position
    };
    Ok(Mutation::Put {
        key: AWAY_KEY.into(),
        value: encode(&position).into(),
    })
}

/// Cuts these logs where they end.
pub(crate) fn cuts_at_ends(logs: &BTreeMap<Incarnation, LogEnd>) -> Vec<Cut> {
    let cut = |(origin, end): (&Incarnation, &LogEnd)| Cut {
        origin: Origin(origin.get()),
        below: end.last + 1,
    };
    logs.iter().map(cut).collect()
}

/// Key of the row which says that this node has all that others had when it was new. Only nodes that joined a cluster have it, one in each partition.
///
/// It is of one incarnation, whose eight bytes it has: a node that goes on under another one has lost something, and what it had once proves nothing any more.
pub const GROWN_KEY: &[u8] = b"\0grown";

/// The row itself.
pub(crate) fn grown(origin: Incarnation) -> Mutation {
    Mutation::Put {
        key: GROWN_KEY.into(),
        value: Bytes::copy_from_slice(&origin.get().to_be_bytes()),
    }
}

/// Whether what stands in that row is of this incarnation.
pub(crate) fn has_grown(origin: Incarnation, value: &[u8]) -> bool {
    value == origin.get().to_be_bytes()
}

/// Before an account for which parts of batches are held: their number.
const STALLED: &[u8] = b"\0stalled";

/// Key of the row which says that parts of batches are held for an account.
pub(crate) fn stalled_key(account: AccountId) -> Bytes {
    [STALLED, &account.0].concat().into()
}

/// The account for which a row says that parts of batches are held; `None`: it is another row.
#[must_use]
pub fn stalled_of_key(key: &[u8]) -> Option<AccountId> {
    let account = key.strip_prefix(STALLED)?.try_into().ok()?;
    Some(AccountId(account))
}

/// Which state is being taken.
pub(crate) const TAKING_KEY: &[u8] = b"\0taking";
/// Up to which key its rows are here.
pub(crate) const TAKEN_KEY: &[u8] = b"\0taken";
/// Which state was taken and is being joined to what is here, account by account.
pub const JOINING_KEY: &[u8] = b"\0joining";
/// Before the name of a state of which rows are held that are of no use any more.
const SWEPT: &[u8] = b"\0swept";

/// Key of the row which says that what is held of a state has to go.
pub(crate) fn swept_key(state: u64) -> Bytes {
    [SWEPT, &state.to_be_bytes()].concat().into()
}

/// The state of which a row says that what is held of it has to go; `None`: it is another row.
pub(crate) fn swept_of_key(key: &[u8]) -> Option<u64> {
    let state = key.strip_prefix(SWEPT)?.try_into().ok()?;
    Some(u64::from_be_bytes(state))
}

/// First key and first key beyond of rows which say that the account rows of the partition stand for less than its position: of stalled accounts, and
/// of what is to be joined.
pub(crate) const UNFINISHED: [&[u8]; 2] = [STALLED, JOINING_KEY];

/// First key and first key beyond of the rows of the partition itself.
pub(crate) const OWN_ROWS: (&[u8], &[u8]) = (b"\0", OWN_ROWS_END);
/// First key of the replicated rows of a partition: those before are this node's.
pub const OWN_ROWS_END: &[u8] = b"\x01";

/// Key of the row which says that a body is not here.
pub(crate) fn missing_blob_key(blob: &BlobName) -> Bytes {
    [MISSING_BLOBS, &blob.upload, &blob.hash].concat().into()
}

/// The body that a row says is not here; `None`: it is another row.
#[must_use]
pub fn missing_blob_of_key(key: &[u8]) -> Option<BlobName> {
    let (upload, hash) = key.strip_prefix(MISSING_BLOBS)?.split_first_chunk()?;
    let hash = hash.try_into().ok()?;
    Some(BlobName {
        hash,
        upload: *upload,
    })
}

/// The accounts in the row of a body that is not here; `None`: a row from before they were kept.
pub(crate) fn accounts_of(value: &[u8]) -> Option<BTreeSet<AccountId>> {
    match value.as_chunks() {
        ([], _) => None,
        (accounts, []) => Some(accounts.iter().copied().map(AccountId).collect()),
        _ => None,
    }
}

/// The row of a body that is not here, and that records of these accounts name; they are some.
pub(crate) fn missing_blob_row(blob: &BlobName, accounts: &BTreeSet<AccountId>) -> Mutation {
    let value: Vec<u8> = accounts.iter().flat_map(|account| account.0).collect();
    Mutation::Put {
        key: missing_blob_key(blob),
        value: value.into(),
    }
}

/// Where the own log stands, as stored. The numbers 4 and 5 were used for when to cut.
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
    /// Whose log it is. Positions from before this was kept do not say it: then it is another's.
    #[n(6)]
    pub origin: Option<NonZeroU64>,
    /// What was stable at the last collection; `None`: there was none, or none with peers.
    #[n(7)]
    pub collected: Option<VersionVector>,
    /// When this node went on although nobody was left who had what clients may know, in seconds since 1970.
    #[n(8)]
    pub alone: Option<u32>,
    /// When it did so without operations of its own, of before it had left the partition.
    #[n(9)]
    pub own_lost: Option<u32>,
}

/// The own log of one partition.
#[derive(Clone, Debug)]
pub struct Log {
    partition: PartitionId,
    origin: Incarnation,
    position: Position,
    hlc: Hlc,
    /// What the next commit cuts.
    cuts: Vec<Cut>,
    /// What the next commit writes besides.
    kept: Option<Mutation>,
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
            origin: NonZeroU64::new(origin.get()),
            collected: None,
            alone: None,
            own_lost: None,
        };
        Log {
            partition,
            origin,
            position,
            hlc: Hlc::default(),
            cuts: Vec::new(),
            kept: None,
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
            log.position.collected = position.collected;
            // Not what is lost of its own: no UID of the other one's slot is given any more.
            log.position.alone = position.alone;
            log.hlc = hlc;
            return Ok(log);
        }
        Ok(Log {
            partition,
            origin,
            position,
            hlc,
            cuts: Vec::new(),
            kept: None,
            begun: false,
        })
    }

    /// The commit with which a log that was left goes on, in another life: the row that says where it ended becomes its position. If it is another
    /// incarnation's, nobody else knows that this node has dropped what it had.
    pub(crate) fn come_back(&mut self) -> Commit {
        let mut commit = self.commit();
        // Three small rows: were it refused on a full disk, it would be made again at once, and again.
        commit.room = Room::Vital;
        commit.mutations.push(Mutation::Put {
            key: DROPPED_KEY.into(),
            value: Bytes::new(),
        });
        commit.mutations.push(Mutation::Delete {
            key: AWAY_KEY.into(),
        });
        commit.mutations.push(self.record());
        commit
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
        commit.cuts = std::mem::take(&mut self.cuts);
        commit.mutations.extend(self.kept.take());
        commit
    }

    /// [`Log::commit`] of what other nodes made: they have the bodies that it names.
    pub(crate) fn commit_of_others(&mut self) -> Commit {
        Commit {
            bodies_come: true,
            ..self.commit()
        }
    }

    /// The row of the partition is written with the next commit, whatever that is for.
    pub(crate) fn keep(&mut self, row: Mutation) {
        self.kept = Some(row);
    }

    /// Entries of a log that end below the number are forgotten with the next commit. If that never comes to be, it is decided again.
    pub fn cut(&mut self, origin: Incarnation, below: u64) {
        let origin = Origin(origin.get());
        self.cuts.push(Cut { origin, below });
    }

    /// Whether something is to be cut with the next commit.
    pub(crate) fn cuts(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Where the logs stand, as far as the position record says. Where they begin it does not say: cutting again what is cut does no harm.
    #[must_use]
    pub fn ends(&self) -> BTreeMap<Incarnation, LogEnd> {
        let position = &self.position;
        let closed = |(origin, last)| {
            let hash = Hash::default();
            let low = last + 1;
            (origin, LogEnd { last, hash, low })
        };
        let mut ends: BTreeMap<_, _> = position.applied.iter().map(closed).collect();
        let own = LogEnd {
            last: position.next - 1,
            hash: Hash(position.hash),
            low: 1,
        };
        ends.insert(self.origin, own);
        ends
    }

    /// The hash of the newest batch.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash(self.position.hash)
    }

    /// A batch of another node is about to be applied: its time was seen, what is made from now on depends on it. [`Log::foreign`] must follow.
    pub fn take(&mut self, batch: &Batch) {
        let last = batch.stamp.hlc + u64::from(batch.count.saturating_sub(1));
        self.hlc.observe(last);
        self.position.hlc = self.hlc.last();
        self.position.applied.advance(batch.origin, batch.last());
    }

    /// A state of another node is joined to what is here. Gives the commit that says so, to which the caller adds its own rows.
    pub(crate) fn join(
        &mut self,
        held: &SnapshotProgress,
        jumps: &BTreeMap<Incarnation, (u64, Hash)>,
    ) -> Commit {
        self.hlc.observe(held.snapshot.hlc);
        self.position.hlc = self.hlc.last();
        if !broken("joined-without-position") {
            self.position.applied.merge(&held.snapshot.applied);
        }
        let mut commit = self.commit();
        let jumps = jumps.iter().map(|(origin, (last, hash))| Jump {
            origin: Origin(origin.get()),
            next: last + 1,
            hash: whimbrel_storage::Hash(hash.0),
        });
        commit.jumps = jumps.collect();
        commit.mutations.push(self.record());
        commit
    }

    /// The commit that holds a batch of another node, if it is not in its log yet, and the position if it was applied. The caller adds
    /// its own records.
    pub fn foreign(&mut self, entry: Option<&Foreign>, applied: bool) -> Commit {
        let mut commit = self.commit_of_others();
        commit.entry = entry.map(|foreign| LogEntry {
            origin: Origin(foreign.batch.origin.get()),
            first: foreign.batch.first,
            count: foreign.batch.count,
            previous: whimbrel_storage::Hash(foreign.batch.previous.0),
            bytes: foreign.bytes.clone(),
        });
        if applied {
            commit.mutations.push(self.record());
        }
        commit
    }

    /// Nobody is left who had what clients may know, and this node goes on; `own_lost`: its own operations are among that. Written with the next position.
    pub(crate) fn go_on_alone(&mut self, now: Now, own_lost: bool) {
        let second = u32::try_from(now.wall_micros / 1_000_000).unwrap_or(u32::MAX);
        self.position.alone = Some(second);
        if own_lost {
            self.position.own_lost = Some(second);
        }
    }

    /// Whether operations that this node made are lost, and it goes on without.
    pub(crate) fn own_lost(&self) -> bool {
        self.position.own_lost.is_some()
    }

    /// The least UIDVALIDITY of an account of which nothing is here, and that had this one: clients may know UIDs of it of which nobody knows any more.
    pub(crate) fn least_opened(&self, uid_validity: u32) -> Option<u32> {
        above(self.position.alone?, uid_validity)
    }

    /// The same of an account of which something is here: UIDs of this node's slot may be told that it does not know any more.
    pub(crate) fn least_found(&self, uid_validity: u32) -> Option<u32> {
        above(self.position.own_lost?, uid_validity)
    }

    /// What was stable when something was collected.
    #[must_use]
    pub fn collected(&self) -> VersionVector {
        self.position.collected.clone().unwrap_or_default()
    }

    /// Something is about to be collected for being stable: to be written with the first of it, for a state that lacks it must not be taken after
    /// a crash.
    pub(crate) fn collect(&mut self, stable: &VersionVector) -> Mutation {
        self.position.collected = Some(stable.clone());
        self.record()
    }

    pub(crate) fn record(&self) -> Mutation {
        Mutation::Put {
            key: POSITION_KEY.into(),
            value: encode(&self.position).into(),
        }
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

    /// Makes the batch of these sections and the commit that holds it and its position record. The caller adds its own
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
        self.position.hash = sealed.hash.0;
        commit.mutations.push(self.record());
        (batch, commit)
    }
}

/// UIDVALIDITYs are seconds, up to 63 more for the slot of who gives them, and clocks may differ by a minute.
const UIDVALIDITIES_AHEAD: u32 = 128;

/// What UIDVALIDITY is at least when what was told under this one, by a second, is lost; `None`: it came after that.
fn above(lost: u32, uid_validity: u32) -> Option<u32> {
    let last = lost.saturating_add(UIDVALIDITIES_AHEAD);
    (uid_validity <= last).then(|| last.saturating_add(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_before_a_loss_is_told_apart_from_what_comes_after() {
        let (partition, origin) = (PartitionId(7), Incarnation::from_hash(1));
        let mut log = Log::new(partition, origin);
        assert_eq!((log.least_opened(1), log.least_found(1)), (None, None));
        let now = Now {
            wall_micros: 1_000_000_000,
            ..Now::default()
        };
        log.go_on_alone(now, false);
        assert_eq!(
            (log.least_opened(9), log.least_found(9)),
            (Some(1_129), None)
        );
        log.go_on_alone(now, true);
        let load = |log: &Log, origin| match log.record() {
            Mutation::Put { value, .. } => Log::load(partition, origin, &value).unwrap(),
            other => panic!("{other:?}"),
        };
        let log = load(&log, origin);
        for told in [1, 1_000, 1_128] {
            assert_eq!(log.least_opened(told), Some(1_129));
            assert_eq!(log.least_found(told), Some(1_129));
        }
        for new in [1_129, u32::MAX] {
            assert_eq!((log.least_opened(new), log.least_found(new)), (None, None));
        }
        // Another incarnation has another slot.
        let other = load(&log, Incarnation::from_hash(2));
        assert_eq!(other.least_opened(1), Some(1_129));
        assert_eq!((other.least_found(1), other.own_lost()), (None, false));
    }
}
