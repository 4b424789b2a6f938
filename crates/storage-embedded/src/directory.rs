//! The directory of a store, apart from the tree's own files in `lsm/`:
//!
//! - `LOCK`: held while open, so that two processes never write;
//! - `FORMAT`: one line with the version of the format and the store's random id;
//! - `SYNCED`: the number of the last write known to be synced. Written after each sync, itself synced only when a journal
//!   is changed and at a clean end: after a power loss it may be old, but it never says too much. It catches what seals
//!   cannot: damage behind which nothing was written any more, and journals that are gone;
//! - `PROBE`: for a moment, while it is tried whether the disk takes writes again.
//!
//! Directories are made with mode 0700, files with 0600. The tree makes files by the process's umask; the directory's mode
//! protects them, and `whimbrel` sets the umask as well.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::commit_record::StoreId;
use crate::config::PROBE;
use crate::failure::OpenError;

const FORMAT_LINE: &str = "whimbrel-store";
/// The format this version writes, and the newest it reads.
pub(crate) const FORMAT_VERSION: u64 = 1;
pub(crate) const SYNCED_BYTES: usize = 24;

#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) id: StoreId,
    /// Whether the store was just made.
    pub(crate) is_new: bool,
    _lock: Lock,
}

/// Held until it is dropped.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// By itself, not by the closing: a process that is being started by another thread has a copy of the descriptor for a moment, and with it the lock.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the store's lock is given up late");
        }
    }
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        make_private_dir(path)?;
        let lock_path = path.join("LOCK");
        let opened = match private().open(&lock_path) {
            // So that a store of another version is told from one that only waits for its disk.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                File::open(&lock_path)
            }
            opened => opened,
        };
        let file = opened.map_err(OpenError::io(&lock_path, "cannot be opened"))?;
        let lock = match file.try_lock() {
            Ok(()) => Lock(file),
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => {
                return Err(OpenError::io(&lock_path, "cannot be locked")(error));
            }
        };
        let format = path.join("FORMAT");
        let (id, is_new) = match fs::read(&format) {
            Ok(bytes) => (parse_format(&format, &bytes)?, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.join("lsm").join("version").exists() {
                    return Err(OpenError::damaged(
                        &format,
                        "the file is missing, but the store's files are there",
                    ));
                }
                (make_format(path, &format)?, true)
            }
            Err(error) => return Err(OpenError::io(&format, "cannot be read")(error)),
        };
        make_private_dir(&path.join("lsm"))?;
        let probe = path.join(PROBE);
        if let Err(error) = fs::remove_file(&probe)
            && !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ReadOnlyFilesystem
            )
        {
            return Err(OpenError::io(&probe, "cannot be removed")(error));
        }
        Ok(Directory {
            path: path.to_owned(),
            id,
            is_new,
            _lock: lock,
        })
    }

    /// Where the tree and its journals are.
    pub(crate) fn tree(&self) -> PathBuf {
        self.path.join("lsm")
    }

    /// Everything was made: from now on missing files are damage.
    pub(crate) fn is_made(&self) -> Result<bool, OpenError> {
        let path = self.path.join("SYNCED");
        path.try_exists()
            .map_err(OpenError::io(&path, "cannot be looked at"))
    }
}

/// The file that remembers how far was synced.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    file: File,
    id: StoreId,
}

impl SyncedFile {
    /// Opens or makes it. The number is `None` if there is none to be trusted: then less can be checked.
    pub(crate) fn open(directory: &Directory) -> Result<(Self, Option<u64>), OpenError> {
        let path = directory.path.join("SYNCED");
        let mut file = private()
            .open(&path)
            .map_err(OpenError::io(&path, "cannot be opened"))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file)
            .take(1024)
            .read_to_end(&mut bytes)
            .map_err(OpenError::io(&path, "cannot be read"))?;
        let number = parse_synced(&directory.id, &bytes);
        if number.is_none() && !directory.is_new {
            tracing::warn!(path = %path.display(), "the note of what was synced is missing or damaged; going by the journals alone");
        }
        Ok((
            SyncedFile {
                file,
                id: directory.id,
            },
            number,
        ))
    }

    /// Notes that all writes up to `number` are synced. Not synced itself: it may be late, never early.
    pub(crate) fn note(&self, number: u64) -> io::Result<()> {
        let mut bytes = [0; SYNCED_BYTES];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        let checksum = blake3::keyed_hash(&self.id, &bytes[..8]);
        bytes[8..].copy_from_slice(&checksum.as_bytes()[..SYNCED_BYTES - 8]);
        self.file.write_all_at(&bytes, 0)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

pub(crate) fn parse_synced(id: &StoreId, bytes: &[u8]) -> Option<u64> {
    let (number, checksum) = bytes.split_first_chunk::<8>()?;
    let expected = blake3::keyed_hash(id, number);
    (checksum == &expected.as_bytes()[..SYNCED_BYTES - 8]).then(|| u64::from_be_bytes(*number))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options
}

fn make_private_dir(path: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(OpenError::io(path, "cannot be made"))?;
    let metadata = fs::metadata(path).map_err(OpenError::io(path, "cannot be looked at"))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(OpenError::io(path, "cannot be made private"))?;
    }
    Ok(())
}

fn make_format(path: &Path, format: &Path) -> Result<StoreId, OpenError> {
    let mut id = StoreId::default();
    getrandom::fill(&mut id)
        .map_err(|error| OpenError::io(format, "no random numbers")(io::Error::other(error)))?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    // Under another name first, so that it is never there in part.
    let fresh = path.join("FORMAT.new");
    let write = || {
        let mut file = private().open(&fresh)?;
        file.set_len(0)?;
        let line = format!("{FORMAT_LINE} {FORMAT_VERSION} {hex}");
        writeln!(file, "{line} {}", line_sum(&line))?;
        file.sync_all()?;
        fs::rename(&fresh, format)?;
        File::open(path)?.sync_all()
    };
    write().map_err(OpenError::io(format, "cannot be made"))?;
    Ok(id)
}

/// Checksum of the format file's line: whether it or the journals are damaged could not be told otherwise.
fn line_sum(line: &str) -> String {
    blake3::hash(line.as_bytes()).to_hex()[..16].to_owned()
}

pub(crate) fn parse_format(path: &Path, bytes: &[u8]) -> Result<StoreId, OpenError> {
    let not = |why: &str| OpenError::NotAStore {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let text = std::str::from_utf8(bytes).map_err(|_| not("it is not text"))?;
    let line = text
        .strip_suffix('\n')
        .ok_or_else(|| not("its line does not end"))?;
    let mut words = line.split(' ');
    if words.next() != Some(FORMAT_LINE) {
        return Err(not("it does not begin with its name"));
    }
    let found: u64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| not("it has no version"))?;
    if found > FORMAT_VERSION {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: FORMAT_VERSION,
        });
    }
    let hex = words
        .next()
        .filter(|hex| hex.len() == 64 && hex.is_ascii())
        .ok_or_else(|| not("it has no id"))?;
    let mut id = StoreId::default();
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16)
            .map_err(|_| not("its id is not hexadecimal"))?;
    }
    // Stores made before it was written have none.
    if let Some(sum) = words.next() {
        let summed = line.strip_suffix(sum).map(str::trim_end);
        if summed.is_none_or(|line| line_sum(line) != sum) {
            return Err(not("its checksum is wrong"));
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tempdir;

    #[test]
    fn the_lock_does_not_wait_for_copies_of_its_descriptor() {
        let path = tempdir();
        let first = Directory::open(path.path()).unwrap();
        // As a process has it that was begun and is not yet another program.
        let copy = first._lock.0.try_clone().unwrap();
        assert!(matches!(
            Directory::open(path.path()),
            Err(OpenError::InUse(_))
        ));
        drop(first);
        let second = Directory::open(path.path()).unwrap();
        drop(copy);
        assert!(matches!(
            Directory::open(path.path()),
            Err(OpenError::InUse(_))
        ));
        drop(second);
    }
}
