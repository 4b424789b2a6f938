//! The values that pass between the server and an engine.

use bytes::Bytes;

/// Longest key of a record in bytes: an LSM tree keeps keys in its index blocks, so they must stay small.
pub const RECORD_KEY_BYTES_MAX: usize = 4096;
/// Longest name of a reference to a blob in bytes: it becomes part of a key.
pub const HOLDER_BYTES_MAX: usize = 512;
/// Largest commit in bytes, keys, values and batch together. A bound on what one group can hold in memory; an owner
/// splits larger changes into several batches long before.
pub const COMMIT_BYTES_MAX: usize = 16 << 20;

/// BLAKE3 of some stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first entry of a log names as the one before it.
    pub const ZERO: Hash = Hash([0; 32]);

    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Hash(*blake3::hash(bytes).as_bytes())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// A partition as the store sees it: a number. The caller gives it its meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(pub u64);

/// The writer of a log: an incarnation, as the store sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin(pub u64);

/// One batch in the log of (partition, origin). It takes the numbers `first .. first + count`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Who wrote the batch.
    pub origin: Origin,
    /// The first number it takes; the first entry of a log has 1.
    pub first: u64,
    /// How many numbers it takes, at least 1.
    pub count: u32,
    /// The hash of the entry before ([`LogEntry::hash`]); [`Hash::ZERO`] in the first entry of a log.
    pub previous: Hash,
    /// The batch as received; it is stored and read back unchanged.
    pub bytes: Bytes,
}

impl LogEntry {
    /// The hash by which the next entry names this one: BLAKE3 of the stored bytes.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(&self.bytes)
    }

    /// The first number after this entry.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }
}

/// Deletes the entries of a log that lie completely below a number. The position of the log stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The origin of the log.
    pub origin: Origin,
    /// Entries whose last number is below this are deleted.
    pub below: u64,
}

/// A log goes on after a number although the entries before it are not here: a snapshot has brought their effects. Earlier entries of the log are
/// deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jump {
    /// The origin of the log.
    pub origin: Origin,
    /// The number that the next entry must begin with. It is greater than the one expected until now.
    pub next: u64,
    /// The hash that the next entry must name as the one before.
    pub hash: Hash,
}

/// Names the records of a partition as they were at one moment ([`LogStore::snapshot`](crate::LogStore::snapshot)). An engine uses no name twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotId(pub u64);

/// Snapshots at once, of all partitions: each keeps records that were overwritten or removed since. A node that several peers ask for snapshots of
/// all its partitions sends some first; a peer that gets none asks again.
pub const SNAPSHOTS_MAX: usize = 32;

/// The position of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// Entries that end at or below this number have been cut; reading starts here.
    pub low: u64,
    /// The number the next entry must have as its first.
    pub next: u64,
    /// The hash the next entry must name as the one before.
    pub hash: Hash,
}

/// The length of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLength {
    /// The partition.
    pub partition: PartitionId,
    /// The origin of the log.
    pub origin: Origin,
    /// Its position.
    pub position: LogPosition,
    /// Bytes of its entries.
    pub bytes: u64,
}

impl LogPosition {
    /// The position of a log without any entry.
    pub const EMPTY: LogPosition = LogPosition {
        low: 1,
        next: 1,
        hash: Hash::ZERO,
    };
}

/// One change to derived records or to the references of blobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Write a record of the commit's partition, over whatever was there.
    Put {
        /// At most [`RECORD_KEY_BYTES_MAX`] bytes, not empty.
        key: Bytes,
        /// The new value.
        value: Bytes,
    },
    /// Remove a record of the commit's partition; no error if there is none.
    Delete {
        /// The record's key.
        key: Bytes,
    },
    /// `holder`, in the commit's partition, names the blob from now on. A repetition changes nothing. [`Commit::bodies_come`] says whether the blob
    /// has to exist.
    Reference {
        /// The blob.
        blob: crate::BlobName,
        /// The name of the reference, unique within the partition: at most [`HOLDER_BYTES_MAX`] bytes.
        holder: Bytes,
    },
    /// `holder` no longer names the blob; no error if it did not. When the commit that removes the last reference of all
    /// partitions is durable, the engine removes the blob.
    Release {
        /// The blob.
        blob: crate::BlobName,
        /// The name of the reference.
        holder: Bytes,
    },
}

/// Bytes that each part of a commit counts beside its payload.
const PART_BYTES: usize = 32;

impl Mutation {
    /// Size in bytes as [`Commit::bytes`] counts it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        PART_BYTES
            + match self {
                Mutation::Put { key, value } => key.len() + value.len(),
                Mutation::Delete { key } => key.len(),
                Mutation::Reference { holder, .. } | Mutation::Release { holder, .. } => {
                    PART_BYTES + holder.len()
                }
            }
    }
}

/// The room on the disk that a commit may take. A commit that only removes records and cuts logs is accepted on any disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Nothing of the reserve.
    #[default]
    Ordinary,
    /// The part of the reserve that is not kept for the engine itself: the commit marks for removal, or removes, and so makes more room.
    Frees,
    /// All of the reserve: the commit is small, and the node cannot work without it.
    Vital,
}

/// A commit: what becomes durable together in one partition, at most one batch and its changes.
///
/// The order inside: the batch is appended, then logs jump, then they are cut, then some are forgotten, then mutations are done one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The partition all of this belongs to.
    pub partition: PartitionId,
    /// The batch to append, if any.
    pub entry: Option<LogEntry>,
    /// Whether this commit depends on all earlier commits to the partition. Then it is refused if one of those was refused: changes on top of a
    /// commit that failed leave nothing behind. A commit that does not depend on them begins anew, made by a caller that knows what was refused.
    pub follows: bool,
    /// Whether it may take room of the reserve.
    pub room: Room,
    /// Whether nobody waits for this commit. Then an engine may hold it back for a moment, to sync it together with one that somebody waits for. Its
    /// place in the order stays the same, and later commits wait for it in any case.
    pub lazy: bool,
    /// Whether the blobs that it names may still come, since other nodes have them. Otherwise a blob that is neither finished nor named by a
    /// reference is refused as [`Full`](crate::StoreError::Full). It was removed when an engine was opened again, or its last reference was released
    /// a moment ago, and the message would lack its text.
    pub bodies_come: bool,
    /// Logs that go on after a number from now on.
    pub jumps: Vec<Jump>,
    /// Logs to cut.
    pub cuts: Vec<Cut>,
    /// Logs to forget, which were cut at their ends before: their positions are deleted, too, as if they never had an entry.
    pub forgets: Vec<Origin>,
    /// Changes to records and references.
    pub mutations: Vec<Mutation>,
}

impl Commit {
    /// A commit that changes nothing yet.
    #[must_use]
    pub fn new(partition: PartitionId) -> Self {
        Commit {
            partition,
            entry: None,
            follows: false,
            room: Room::Ordinary,
            lazy: false,
            bodies_come: false,
            jumps: Vec::new(),
            cuts: Vec::new(),
            forgets: Vec::new(),
            mutations: Vec::new(),
        }
    }

    /// Size in bytes as group commit counts it: the payload and a little for each part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let entry = self
            .entry
            .as_ref()
            .map_or(0, |entry| entry.bytes.len() + PART_BYTES);
        let mutations = self.mutations.iter().map(Mutation::bytes);
        let logs = self.cuts.len() + self.forgets.len() + 2 * self.jumps.len();
        PART_BYTES + entry + logs * PART_BYTES + mutations.sum::<usize>()
    }
}

/// Keys from `start` (included) to `end` (excluded; `None`: to the end of the partition).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyRange {
    /// The first key that may be given.
    pub start: Bytes,
    /// The first key that may not.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// All keys of a partition.
    #[must_use]
    pub fn all() -> Self {
        KeyRange::default()
    }

    /// All keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        KeyRange {
            end: prefix_end(&start),
            start,
        }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

/// The least key above all keys that start with `prefix`, if there is one.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(Bytes::from(end))
}

/// How much a scan may give at once. At least one row is given if there is one, however large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLimit {
    /// Most rows.
    pub rows: usize,
    /// Keys and values together, in bytes, after which no further row is added.
    pub bytes: usize,
}

impl Default for ScanLimit {
    fn default() -> Self {
        ScanLimit {
            rows: 1024,
            bytes: 256 << 10,
        }
    }
}

/// Part of an answer to a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanPage {
    /// Keys and values in ascending order of keys.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Where the scan goes on; `None`: there was nothing more.
    pub next: Option<Bytes>,
}

/// Part of an answer to reading a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogPage {
    /// Entries in ascending order, without a gap.
    pub entries: Vec<LogEntry>,
    /// The first number that exists and was not given; `None`: the log ends here.
    pub next: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ranges_end_where_the_prefix_ends() {
        let check = |prefix: &[u8], inside: &[&[u8]], outside: &[&[u8]]| {
            let range = KeyRange::prefix(prefix.to_vec());
            for key in inside {
                assert!(range.contains(key), "{prefix:?} should contain {key:?}");
            }
            for key in outside {
                assert!(
                    !range.contains(key),
                    "{prefix:?} should not contain {key:?}"
                );
            }
        };
        check(b"a", &[b"a", b"a\xff\xff", b"ab"], &[b"b", b"", b"A"]);
        check(b"a\xff", &[b"a\xff", b"a\xff\xff"], &[b"b", b"a\xfe"]);
        check(b"\xff\xff", &[b"\xff\xff", b"\xff\xff\x01"], &[b"\xff\xfe"]);
        check(b"", &[b"", b"\xff"], &[]);
    }
}
