//! What lies where: four trees, keys with big-endian numbers so that their order is the order of bytes.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `log` | `h` partition origin | position: low, next, hash |
//! | `log` | `e` partition origin first | count, previous hash, the batch's bytes |
//! | `records` | partition, the caller's key | the caller's value |
//! | `blobs` | upload, index of the chunk | the chunk's bytes |
//! | each | [`MARK_KEY`] | the number of the last write that removed from this tree |
//! | `meta` | [`SEAL_KEY`] | the newest [seal](crate::commit_record) |
//! | `meta` | `b` upload | a finished blob: hash, size, bytes a chunk |
//! | `meta` | `r` upload partition holder | a reference |
//! | `meta` | `d` upload | *doubtful*: nothing may name it (unfinished, not yet named, or just released); a start sweeps these |
//!
//! Four and not one, because each has another life: logs are appended and cut, records overwritten, chunks large and written
//! once (so their values lie apart from the tree). Not more, because each costs memory of its own.

use bytes::Bytes;
use whimbrel_storage::types::prefix_end;
use whimbrel_storage::{
    BlobInfo, BlobName, Hash, LogEntry, LogPosition, Origin, PartitionId, UploadId,
};

pub(crate) const SEAL_KEY: &[u8] = b"\0seal";
/// Before all other keys of each tree.
///
/// Whether a tree's files hold what came before a journal is told by the greatest sequence number in them ([`crate::verify::front`]; the tree itself
/// lets a journal go by it). Merging into the last level drops what says that a row was removed, and with it the number of a write that only removed.
/// What was put last stays: this.
pub(crate) const MARK_KEY: &[u8] = b"\0";

const HEAD: u8 = b'h';
const ENTRY: u8 = b'e';
const INFO: u8 = b'b';
const REFERENCE: u8 = b'r';
const DOUBTFUL: u8 = b'd';

/// Bytes before the batch in the value of an entry.
const ENTRY_HEAD_BYTES: usize = 4 + 32;

pub(crate) fn head(partition: PartitionId, origin: Origin) -> Vec<u8> {
    log_key(HEAD, partition, origin)
}

pub(crate) fn heads(partition: PartitionId) -> Vec<u8> {
    let mut key = vec![HEAD];
    key.extend(partition.0.to_be_bytes());
    key
}

pub(crate) const ALL_HEADS: &[u8] = &[HEAD];
pub(crate) const ALL_ENTRIES: &[u8] = &[ENTRY];
pub(crate) const ALL_INFOS: &[u8] = &[INFO];
pub(crate) const ALL_DOUBTFUL: &[u8] = &[DOUBTFUL];

fn log_key(tag: u8, partition: PartitionId, origin: Origin) -> Vec<u8> {
    let mut key = Vec::with_capacity(25);
    key.push(tag);
    key.extend(partition.0.to_be_bytes());
    key.extend(origin.0.to_be_bytes());
    key
}

/// What the keys of a log's entries begin with.
pub(crate) fn entries(partition: PartitionId, origin: Origin) -> Vec<u8> {
    log_key(ENTRY, partition, origin)
}

pub(crate) fn entry(partition: PartitionId, origin: Origin, first: u64) -> Vec<u8> {
    let mut key = log_key(ENTRY, partition, origin);
    key.extend(first.to_be_bytes());
    key
}

/// Partition, origin and, of an entry, first number.
pub(crate) fn parse_log_key(key: &[u8]) -> Option<(PartitionId, Origin, Option<u64>)> {
    let (partition, rest) = key.get(1..)?.split_first_chunk::<8>()?;
    let (origin, rest) = rest.split_first_chunk::<8>()?;
    let first = if rest.is_empty() {
        None
    } else {
        Some(u64::from_be_bytes(rest.try_into().ok()?))
    };
    Some((
        PartitionId(u64::from_be_bytes(*partition)),
        Origin(u64::from_be_bytes(*origin)),
        first,
    ))
}

pub(crate) fn position_value(position: &LogPosition) -> Vec<u8> {
    let mut value = Vec::with_capacity(48);
    value.extend(position.low.to_be_bytes());
    value.extend(position.next.to_be_bytes());
    value.extend(position.hash.0);
    value
}

pub(crate) fn parse_position(value: &[u8]) -> Option<LogPosition> {
    let (low, rest) = value.split_first_chunk::<8>()?;
    let (next, rest) = rest.split_first_chunk::<8>()?;
    let hash = Hash(rest.try_into().ok()?);
    Some(LogPosition {
        low: u64::from_be_bytes(*low),
        next: u64::from_be_bytes(*next),
        hash,
    })
}

pub(crate) fn entry_value(entry: &LogEntry) -> Vec<u8> {
    let mut value = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.bytes.len());
    value.extend(entry.count.to_be_bytes());
    value.extend(entry.previous.0);
    value.extend_from_slice(&entry.bytes);
    value
}

pub(crate) fn parse_entry(origin: Origin, first: u64, value: &Bytes) -> Option<LogEntry> {
    let (count, rest) = value.split_first_chunk::<4>()?;
    let (previous, _) = rest.split_first_chunk::<32>()?;
    Some(LogEntry {
        origin,
        first,
        count: u32::from_be_bytes(*count),
        previous: Hash(*previous),
        bytes: value.slice(ENTRY_HEAD_BYTES..),
    })
}

pub(crate) fn record(partition: PartitionId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(8 + key.len());
    full.extend(partition.0.to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// Bytes of a record's full key before the caller's.
pub(crate) const RECORD_PREFIX_BYTES: usize = 8;

/// The first full key after all of a partition; `None`: to the end of the tree.
pub(crate) fn records_end(partition: PartitionId) -> Option<Vec<u8>> {
    partition
        .0
        .checked_add(1)
        .map(|next| next.to_be_bytes().to_vec())
}

pub(crate) fn chunk(upload: UploadId, index: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(20);
    key.extend(upload.0);
    key.extend(index.to_be_bytes());
    key
}

fn meta_key(tag: u8, upload: UploadId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(tag);
    key.extend(upload.0);
    key
}

pub(crate) fn info(upload: UploadId) -> Vec<u8> {
    meta_key(INFO, upload)
}

pub(crate) fn doubtful(upload: UploadId) -> Vec<u8> {
    meta_key(DOUBTFUL, upload)
}

pub(crate) fn references(upload: UploadId) -> Vec<u8> {
    meta_key(REFERENCE, upload)
}

pub(crate) fn reference(upload: UploadId, partition: PartitionId, holder: &[u8]) -> Vec<u8> {
    let mut key = meta_key(REFERENCE, upload);
    key.extend(partition.0.to_be_bytes());
    key.extend_from_slice(holder);
    key
}

/// The upload in a key of `meta`.
pub(crate) fn parse_upload(key: &[u8]) -> Option<UploadId> {
    Some(UploadId(*key.get(1..)?.first_chunk()?))
}

/// A finished blob and how many bytes its chunks have.
pub(crate) fn info_value(info: &BlobInfo, chunk_bytes: u32) -> Vec<u8> {
    let mut value = Vec::with_capacity(44);
    value.extend(info.name.hash.0);
    value.extend(info.size.to_be_bytes());
    value.extend(chunk_bytes.to_be_bytes());
    value
}

pub(crate) fn parse_info(upload: UploadId, value: &[u8]) -> Option<(BlobInfo, u32)> {
    let (hash, rest) = value.split_first_chunk::<32>()?;
    let (size, rest) = rest.split_first_chunk::<8>()?;
    let chunk_bytes = u32::from_be_bytes(rest.try_into().ok()?);
    let name = BlobName {
        upload,
        hash: Hash(*hash),
    };
    (chunk_bytes > 0).then_some((
        BlobInfo {
            name,
            size: u64::from_be_bytes(*size),
        },
        chunk_bytes,
    ))
}

/// The range of all keys with a prefix.
pub(crate) fn prefix_range(prefix: &[u8]) -> (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    (
        Included(prefix.to_vec()),
        prefix_end(prefix).map_or(Unbounded, |end| Excluded(end.to_vec())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_back() {
        let (partition, origin) = (PartitionId(0x0102_0304_0506_0708), Origin(9));
        assert_eq!(
            parse_log_key(&entry(partition, origin, 77)),
            Some((partition, origin, Some(77)))
        );
        assert_eq!(
            parse_log_key(&head(partition, origin)),
            Some((partition, origin, None))
        );
        let position = LogPosition {
            low: 1,
            next: 2,
            hash: Hash::of(b"x"),
        };
        assert_eq!(parse_position(&position_value(&position)), Some(position));
        let written = LogEntry {
            origin,
            first: 7,
            count: 3,
            previous: Hash::of(b"y"),
            bytes: "batch".into(),
        };
        assert_eq!(
            parse_entry(origin, 7, &entry_value(&written).into()),
            Some(written)
        );
        let upload = UploadId([3; 16]);
        let blob = BlobInfo {
            name: BlobName {
                upload,
                hash: Hash::of(b"z"),
            },
            size: 1 << 40,
        };
        assert_eq!(
            parse_info(upload, &info_value(&blob, 65_536)),
            Some((blob, 65_536))
        );
        assert_eq!(
            parse_info(upload, &info_value(&blob, 0)),
            None,
            "no chunk size would divide by zero"
        );
        assert_eq!(parse_upload(&doubtful(upload)), Some(upload));
        for cut in 0..4 {
            assert_eq!(parse_position(&position_value(&position)[cut + 1..]), None);
        }
    }
}
