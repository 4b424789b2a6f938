//! Entry points for fuzzers, also used by tests: bytes as they are found on a disk, damage included. Each takes any bytes and panics when an
//! invariant is broken.

use std::path::Path;

use bytes::Bytes;
use whimbrel_storage::{Origin, UploadId};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    commit_record::{SEAL_BYTES, Seal, StoreId},
    journal, keys,
};

const ID: StoreId = [7; 32];

/// Keys and values of the trees, and seals: what can be read is written and read as the same; a seal with one bit turned is none.
pub fn values(data: &[u8]) {
    if let Some((partition, origin, first)) = keys::parse_log_key(data) {
        let again = match first {
            Some(first) => keys::entry(partition, origin, first),
            None => keys::head(partition, origin),
        };
        assert_eq!(again[1..], data[1..]);
    }
    if let Some(position) = keys::parse_position(data) {
        assert_eq!(keys::position_value(&position), data);
    }
    if let Some(entry) = keys::parse_entry(Origin(1), 1, &Bytes::copy_from_slice(data)) {
        assert_eq!(keys::entry_value(&entry), data);
    }
    let upload = UploadId([1; 16]);
    if let Some((info, chunk_bytes)) = keys::parse_info(upload, data) {
        assert_eq!(keys::info_value(&info, chunk_bytes), data);
    }
    let _ = keys::parse_upload(data);
    if let Some(seal) = Seal::decode(&ID, data) {
        assert_eq!(seal.encode(&ID), data);
    }
    let sealed = seal(data).encode(&ID);
    assert_eq!(Seal::decode(&ID, &sealed), Some(seal(data)));
    let mut turned = sealed;
    turned[number(data, 0) as usize % SEAL_BYTES] ^= 1 << (data.len() % 8);
    assert_eq!(Seal::decode(&ID, &turned), None);
}

fn number(data: &[u8], at: usize) -> u64 {
    data.get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn seal(data: &[u8]) -> Seal {
    Seal {
        number: number(data, 0),
        synced: number(data, 8),
        sequence: number(data, 16),
        ..Seal::default()
    }
}

/// A journal, alone in a directory that is given. With an even first byte the rest is the file as it is; with an odd one it says what each
/// write of a file is that was well made, and which byte of it is damaged then. It is good, torn (and cut), or named as damaged: and once cut
/// it is good.
pub fn journals(directory: &Path, data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let file = directory.join("0.jnl");
    let bytes = if choice & 1 == 0 {
        data.to_vec()
    } else {
        well_made(data)
    };
    std::fs::write(&file, &bytes).expect("the fuzzer's own directory");
    let Ok(found) = journal::check(directory, &ID, None, None) else {
        return;
    };
    let left = std::fs::metadata(&file).expect("it is there").len();
    assert_eq!(left + found.torn_bytes, bytes.len() as u64);
    let again = journal::check(directory, &ID, None, None).expect("what was cut is good");
    assert_eq!(again.writes, found.writes);
    assert_eq!(again.torn_bytes, 0, "nothing is torn twice");
}

/// A file of writes by the format in [`journal`], one for each three bytes of `data`, the last two of which say what is damaged.
fn well_made(data: &[u8]) -> Vec<u8> {
    let (writes, damage) = data.split_at(data.len().saturating_sub(2));
    let mut file = Vec::new();
    let mut number = 0;
    for piece in writes.chunks_exact(3) {
        number += 1 + u64::from(piece[0] == 255);
        let seal = Seal {
            number,
            synced: number.saturating_sub(u64::from(piece[1])),
            sequence: number * 4,
            ..Seal::default()
        };
        let value = vec![piece[2]; usize::from(piece[2]) * 3];
        let items: [(&[u8], &[u8]); 2] = [(b"key", &value), (keys::SEAL_KEY, &seal.encode(&ID))];
        file.push(1);
        file.extend((items.len() as u32).to_le_bytes());
        file.extend((number * 4).to_le_bytes());
        let mut hasher = Xxh3::new();
        for (key, value) in items {
            let mut item = vec![2, 0, 0];
            item.extend(1u64.to_le_bytes());
            item.extend((key.len() as u16).to_le_bytes());
            item.extend((value.len() as u32).to_le_bytes());
            item.extend((value.len() as u32).to_le_bytes());
            item.extend(key);
            item.extend(value);
            hasher.update(&item);
            file.extend(item);
        }
        file.push(3);
        file.extend(hasher.digest().to_le_bytes());
        file.extend(b"FJL\x03");
    }
    if let ([at, bit], false) = (damage, file.is_empty()) {
        let at = usize::from(*at) * file.len() / 256;
        match bit {
            0..=7 => file[at] ^= 1 << bit,
            8 => file.truncate(at),
            9 => file[at..].fill(0),
            _ => {}
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is called well made is: else the fuzzer would see nothing but refusals.
    #[test]
    fn a_well_made_journal_is_good() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("0.jnl");
        std::fs::write(&file, well_made(&[1, 1, 1, 2, 0, 90, 3, 2, 0, 0, 255])).expect("written");
        let found = journal::check(directory.path(), &ID, None, None).expect("good");
        assert_eq!(found.writes.map(|(_, last)| last.number), Some(3));
        assert_eq!(found.torn_bytes, 0);
    }

    #[test]
    fn the_entries_hold_for_ordinary_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        for length in 0..100u8 {
            let data: Vec<u8> = (0..length).map(|at| at.wrapping_mul(length)).collect();
            values(&data);
            journals(directory.path(), &data);
        }
    }
}
