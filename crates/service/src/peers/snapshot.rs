//! Rows in place of a log, as they travel and are kept: see docs/replication.md.
//!
//! A chunk is a sequence of CBOR byte strings: key, value, key, value. What is in them is the owner's business.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode, Encoder};
use whimbrel_crdt::{Batch, Hash, Incarnation, VersionVector};

use super::{Entry, LogEnd, Snapshot, SnapshotProgress};
use crate::log::{POSITION_KEY, Position, UNFINISHED};

/// Rows of the partition itself that a snapshot is judged by: the driver reads the first row with each of these prefixes, of the moment of the
/// snapshot.
pub const LOOKED_AT: [&[u8]; 3] = [POSITION_KEY, UNFINISHED[0], UNFINISHED[1]];

/// A snapshot of which the hashes are looked up.
#[derive(Debug)]
pub struct Fixing {
    snapshot: Snapshot,
    lacks: Vec<Incarnation>,
}

impl Fixing {
    /// `rows`: what was found for [`LOOKED_AT`]. `ends`: where the logs stand now, which may be later. `None`: no state can be given now, because some
    /// account stands for less than the position says.
    #[must_use]
    pub fn new(
        state: u64,
        rows: &[(Bytes, Bytes)],
        ends: &BTreeMap<Incarnation, LogEnd>,
    ) -> Option<Fixing> {
        let position = rows.iter().find(|(key, _)| key == POSITION_KEY);
        if rows.iter().any(|(key, _)| key != POSITION_KEY) {
            return None;
        }
        let mut snapshot = Snapshot {
            state,
            applied: VersionVector::new(),
            heads: BTreeMap::new(),
            hlc: 0,
        };
        let mut lacks = Vec::new();
        if let Some((_, record)) = position {
            let position: Position = minicbor::decode(record).ok()?;
            snapshot.hlc = position.hlc;
            for (origin, number) in position.applied.iter() {
                match ends.get(&origin)? {
                    end if end.last == number => _ = snapshot.heads.insert(origin, end.hash),
                    _ => lacks.push(origin),
                }
            }
            snapshot.applied = position.applied;
        }
        Some(Fixing { snapshot, lacks })
    }

    /// Of which log the entry that holds this number has to be read.
    #[must_use]
    pub fn lacks(&self) -> Option<(Incarnation, u64)> {
        let origin = *self.lacks.last()?;
        Some((origin, self.snapshot.applied.get(origin) + 1))
    }

    /// The entry, if there is one: it names the hash of the one before. `false`: it does not follow what is applied, so no state can be given now.
    #[must_use]
    pub fn entry(&mut self, entry: Option<&Entry>) -> bool {
        let Some((origin, first)) = self.lacks() else {
            return false;
        };
        let batch = entry.and_then(|entry| Batch::decode(&entry.bytes).ok());
        let Some(batch) = batch.filter(|batch| batch.first == first) else {
            return false;
        };
        self.lacks.pop();
        self.snapshot.heads.insert(origin, batch.previous);
        true
    }

    /// The snapshot, when nothing is missing_blobs.
    #[must_use]
    pub fn done(self) -> Option<Snapshot> {
        self.lacks.is_empty().then_some(self.snapshot)
    }
}

/// Rows, as they travel.
pub(crate) fn encode_rows<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Bytes {
    let mut encoder = Encoder::new(Vec::new());
    for (key, value) in rows {
        let written = encoder.bytes(key).and_then(|encoder| encoder.bytes(value));
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
    }
    encoder.into_writer().into()
}

/// The inverse of [`encode_rows`]: keys and values within the chunk. Keys must ascend.
///
/// # Errors
/// What is wrong.
pub(crate) fn decode_rows(chunk: &Bytes) -> Result<Vec<(Bytes, Bytes)>, String> {
    let mut decoder = Decoder::new(chunk);
    let mut rows: Vec<(Bytes, Bytes)> = Vec::new();
    while decoder.position() < chunk.len() {
        let mut next = || decoder.bytes().map(|bytes| chunk.slice_ref(bytes));
        let key = next().map_err(|error| error.to_string())?;
        let value = next().map_err(|error| error.to_string())?;
        if rows.last().is_some_and(|(last, _)| *last >= key) {
            return Err("rows that are not in the order of their keys".into());
        }
        rows.push((key, value));
    }
    Ok(rows)
}

/// Which state is being taken, as stored.
#[derive(Encode, Decode)]
struct Taking {
    #[n(0)]
    donor: Incarnation,
    #[n(1)]
    state: u64,
    #[n(2)]
    applied: VersionVector,
    #[n(3)]
    heads: Vec<Head>,
    #[n(4)]
    hlc: u64,
}

#[derive(Encode, Decode)]
struct Head {
    #[n(0)]
    origin: Incarnation,
    #[cbor(n(1), with = "minicbor::bytes")]
    hash: [u8; 32],
}

/// As stored; the last key is in a row of its own.
pub(crate) fn encode_held(held: &SnapshotProgress) -> Bytes {
    let heads = held.snapshot.heads.iter();
    let taking = Taking {
        donor: held.donor,
        state: held.snapshot.state,
        applied: held.snapshot.applied.clone(),
        heads: heads
            .map(|(origin, hash)| Head {
                origin: *origin,
                hash: hash.0,
            })
            .collect(),
        hlc: held.snapshot.hlc,
    };
    crate::log::encode(&taking).into()
}

/// The inverse.
///
/// # Errors
/// When the row is damaged.
pub(crate) fn decode_held(row: &[u8], last: Vec<u8>) -> Result<SnapshotProgress, String> {
    let taking: Taking = minicbor::decode(row).map_err(|error| error.to_string())?;
    let heads = taking.heads.into_iter();
    Ok(SnapshotProgress {
        donor: taking.donor,
        snapshot: Snapshot {
            state: taking.state,
            applied: taking.applied,
            heads: heads.map(|head| (head.origin, Hash(head.hash))).collect(),
            hlc: taking.hlc,
        },
        last,
    })
}

/// A state that was taken, and is joined account by account, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Joined {
    #[n(0)]
    pub(crate) state: u64,
    /// What was applied here when it was taken.
    #[n(1)]
    pub(crate) mine: VersionVector,
    /// What is applied in the state.
    #[n(2)]
    pub(crate) theirs: VersionVector,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_travel_and_are_looked_at() {
        let check = |rows: &[(&[u8], &[u8])]| {
            let chunk = encode_rows(rows.iter().copied());
            let decoded = decode_rows(&chunk).unwrap();
            let decoded: Vec<_> = decoded.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            assert_eq!(decoded, rows);
            chunk
        };
        check(&[]);
        let chunk = check(&[(b"a", b""), (b"b", &[7; 70_000]), (b"ba", b"x")]);
        assert!(decode_rows(&chunk.slice(..chunk.len() - 1)).is_err());
        let unordered: [(&[u8], &[u8]); 2] = [(b"b", b""), (b"a", b"")];
        assert!(decode_rows(&encode_rows(unordered)).is_err());
    }

    #[test]
    fn what_is_being_taken_is_kept() {
        let one = Incarnation::new(1).unwrap();
        let held = SnapshotProgress {
            donor: one,
            snapshot: Snapshot {
                state: 9,
                applied: [(one, 7)].into_iter().collect(),
                heads: [(one, Hash([3; 32]))].into(),
                hlc: 5,
            },
            last: b"key".to_vec(),
        };
        let row = encode_held(&held);
        assert_eq!(decode_held(&row, b"key".to_vec()), Ok(held));
        assert!(decode_held(&row[1..], Vec::new()).is_err());
    }
}
