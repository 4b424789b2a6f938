//! Walks the logs at start: every retained entry follows the one before by number and hash, and ends where its position says.
//!
//! This is the check of last resort: it needs nothing of the tree but that it gives back what it holds, and finds whatever
//! went wrong below it. It costs one sequential read of the retained logs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fjall::{AbstractTree, AnyTree, Keyspace, KvSeparationOptions, Readable, SeqNo};
use whimbrel_storage::{LogPosition, Origin, PartitionId};

use crate::commit_record::{Seal, StoreId};
use crate::failure::OpenError;
use crate::keys::{self, SEAL_KEY};
use crate::manifest;
use crate::trees::{TREE_NAMES, TREES, Tree, Trees};

pub(crate) type Positions = BTreeMap<(PartitionId, Origin), LogPosition>;
/// Bytes of the entries of logs.
pub(crate) type Lengths = BTreeMap<(PartitionId, Origin), u64>;

/// The logs of a store as they were found.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) positions: Positions,
    pub(crate) lengths: Lengths,
    /// Logs that still have entries below their low mark: a cut that was not yet carried out.
    pub(crate) untrimmed: Vec<(PartitionId, Origin)>,
}

/// Walks all logs.
pub(crate) fn logs(path: &Path, view: &impl Readable, trees: &Trees) -> Result<Logs, OpenError> {
    let broken = |what: String| OpenError::damaged(path, what);
    let mut logs = Logs::default();
    for row in view.range(&trees.log, keys::prefix_range(keys::ALL_HEADS)) {
        let (key, value) = row
            .into_inner()
            .map_err(|error| OpenError::tree(path, error))?;
        let parsed = keys::parse_log_key(&key).zip(keys::parse_position(&value));
        let ((partition, origin, _), position) =
            parsed.ok_or_else(|| broken("a log's position cannot be read".to_owned()))?;
        logs.positions.insert((partition, origin), position);
    }
    // What the next entry of each log has to be: (first, previous hash if known).
    let mut expected: BTreeMap<_, _> = logs
        .positions
        .iter()
        .map(|(log, position)| (*log, (position.low, None)))
        .collect();
    for row in view.range(&trees.log, keys::prefix_range(keys::ALL_ENTRIES)) {
        let (key, value) = row
            .into_inner()
            .map_err(|error| OpenError::tree(path, error))?;
        let key = keys::parse_log_key(&key)
            .and_then(|(partition, origin, first)| Some((partition, origin, first?)));
        let (partition, origin, first) =
            key.ok_or_else(|| broken("the key of a log entry cannot be read".to_owned()))?;
        let name = || format!("entry {first} of {origin:?} in {partition:?}");
        let value = Bytes::from(value);
        let entry = keys::parse_entry(origin, first, &value)
            .ok_or_else(|| broken(format!("{} cannot be read", name())))?;
        let Some((next, previous)) = expected.get_mut(&(partition, origin)) else {
            return Err(broken(format!(
                "{} belongs to a log without a position",
                name()
            )));
        };
        if first < *next && previous.is_none() {
            if logs.untrimmed.last() != Some(&(partition, origin)) {
                logs.untrimmed.push((partition, origin));
            }
            continue;
        }
        if first != *next {
            return Err(broken(format!(
                "{} follows, but {next} was to come",
                name()
            )));
        }
        if previous.is_some_and(|previous| previous != entry.previous) {
            return Err(broken(format!(
                "{} does not name the hash of the entry before it",
                name()
            )));
        }
        *next = entry.end();
        *previous = Some(entry.hash());
        *logs.lengths.entry((partition, origin)).or_default() += entry.bytes.len() as u64;
    }
    for ((partition, origin), position) in &logs.positions {
        let (next, hash) = expected[&(*partition, *origin)];
        let name = || format!("the log of {origin:?} in {partition:?}");
        if next != position.next {
            return Err(broken(format!(
                "{} ends at {next}, but its position says {}",
                name(),
                position.next
            )));
        }
        if hash.is_some_and(|hash| hash != position.hash) {
            return Err(broken(format!(
                "the last entry of {} is not the one its position names",
                name()
            )));
        }
    }
    Ok(logs)
}

/// The greatest sequence number in the files of each tree, in the order of [`Seal::touched`], of trees that are not open.
pub(crate) fn persisted(directory: &Path) -> Result<[u64; TREES], OpenError> {
    let [_, folders @ ..] = folders(directory)?;
    let mut numbers = [0; TREES];
    for (index, (number, folder)) in numbers.iter_mut().zip(folders).enumerate() {
        let tree = tree(&folder, index == Tree::Blobs as usize)?;
        *number = tree.get_highest_persisted_seqno().unwrap_or(0);
    }
    Ok(numbers)
}

/// The number of the last write that is in the files of `meta`, which is not open: each puts its seal there. 0 if there is none.
pub(crate) fn last_in_files(directory: &Path, id: &StoreId) -> Result<u64, OpenError> {
    let [.., folder] = folders(directory)?;
    if !folder.join("current").exists() {
        return Ok(0);
    }
    manifest::check(directory)?;
    let seal = tree(&folder, false)?.get(SEAL_KEY, SeqNo::MAX);
    let seal = seal.map_err(|error| OpenError::tree(&folder, error.into()))?;
    let seal = seal.and_then(|bytes| Seal::decode(id, &bytes));
    Ok(seal.map_or(0, |seal| seal.number))
}

fn folders(directory: &Path) -> Result<[PathBuf; TREES + 1], OpenError> {
    manifest::folders(directory).map_err(OpenError::io(directory, "its trees cannot be listed"))
}

fn tree(folder: &Path, separated: bool) -> Result<AnyTree, OpenError> {
    let config = lsm_tree::Config::new(folder, Default::default(), Default::default());
    config
        .with_kv_separation(separated.then(KvSeparationOptions::default))
        .open()
        .map_err(|error| OpenError::tree(folder, error.into()))
}

/// As [`persisted`], of trees that are open.
pub(crate) fn persisted_of(trees: &Trees) -> [u64; TREES] {
    let number = |tree: &Keyspace| tree.tree.get_highest_persisted_seqno().unwrap_or(0);
    trees.all().map(number)
}

/// What was written before the oldest journal must be in the tree's files: else a journal is missing at the front.
pub(crate) fn front(first: &Seal, persisted: [u64; TREES]) -> Result<(), String> {
    for ((tree, touched), persisted) in TREE_NAMES.into_iter().zip(first.touched).zip(persisted) {
        if touched > persisted {
            return Err(format!(
                "the oldest journal begins with write {}, but the tree {tree:?} holds what came before only up to {persisted} of {touched}: an older journal or a table is missing",
                first.number,
            ));
        }
    }
    Ok(())
}
