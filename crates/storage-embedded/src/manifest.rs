//! Checks the tree's own bookkeeping before the tree reads it.
//!
//! The tree does not check everything itself. A tree whose `current` file is missing it takes for one that was never finished
//! and *deletes*; one whose directory is missing it makes anew, empty; and the list of tables it decodes without looking at its
//! checksum, so that a damaged count makes it ask for gigabytes. Here: every tree of a store that was once opened must be
//! there, and the list that `current` names must have the checksum that `current` gives (number u64, XXH3-128 u128, both
//! little-endian). The tables that the list names, and their blocks, the tree checks when it opens and reads them.
//!
//! The folders of trees are numbers, given in the order in which the trees are made and never twice. Where the making was interrupted, one is left out.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::failure::OpenError;
use crate::trees::TREES;

/// The version file of the tree: its name, and the version of its layout.
pub(crate) const TREE_VERSION: &[u8] = b"FJL\x03";
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// Folders of the trees: first that in which the tree keeps the names of the others, then these in the order of
/// [`TREE_NAMES`](crate::trees::TREE_NAMES).
/// If some are missing, those that are ordinarily there.
pub(crate) fn folders(directory: &Path) -> io::Result<[PathBuf; TREES + 1]> {
    let all = directory.join("keyspaces");
    let mut numbers: Vec<u64> = Vec::new();
    match fs::read_dir(&all) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
            }
        }
        // Then all of them are missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    numbers.sort_unstable();
    let numbers: [u64; TREES + 1] = match numbers.try_into() {
        Ok(numbers) => numbers,
        Err(_) => std::array::from_fn(|index| index as u64),
    };
    Ok(numbers.map(|number| all.join(number.to_string())))
}

/// Checks all trees in the tree's directory.
pub(crate) fn check(directory: &Path) -> Result<(), OpenError> {
    let folders =
        folders(directory).map_err(OpenError::io(directory, "its trees cannot be listed"))?;
    for folder in folders {
        let current = folder.join("current");
        let bytes = match fs::read(&current) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::damaged(&current, "the file is missing"));
            }
            Err(error) => return Err(OpenError::io(&current, "cannot be read")(error)),
        };
        let parts = bytes
            .split_first_chunk::<8>()
            .filter(|_| bytes.len() == CURRENT_BYTES);
        let parts = parts.and_then(|(number, rest)| Some((number, rest.first_chunk::<16>()?)));
        let (number, checksum) =
            parts.ok_or_else(|| OpenError::damaged(&current, "it has the wrong length"))?;
        let list = folder.join(format!("v{}", u64::from_le_bytes(*number)));
        let found = match hash(&list) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::damaged(&list, "the list of tables is missing"));
            }
            Err(error) => return Err(OpenError::io(&list, "cannot be read")(error)),
        };
        if found != u128::from_le_bytes(*checksum) {
            return Err(OpenError::damaged(
                &list,
                "the list of tables does not have its checksum",
            ));
        }
    }
    Ok(())
}

fn hash(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.digest128()),
            read => hasher.update(&buffer[..read]),
        }
    }
}
