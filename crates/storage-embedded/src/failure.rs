//! How opening fails, and how failures of the tree become those of the traits.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use whimbrel_storage::StoreError;

/// Why a store was not opened. Each says which file, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A newer version wrote it.
    #[error("{} was written by a newer version of Whimbrel (its format is {found}, this version reads up to {known}): run that version", path.display())]
    Newer {
        /// The format file.
        path: PathBuf,
        /// Format found there.
        found: u64,
        /// The newest this version knows.
        known: u64,
    },
    /// The directory holds something else, or its format file is damaged.
    #[error("{} is not the format file of a Whimbrel store: {why}. If this is the data directory, restore the file from a backup; else choose an empty directory", path.display())]
    NotAStore {
        /// The format file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Acknowledged data is missing or changed.
    #[error("{}: {why}. Acknowledged data is missing or changed, so the store is not opened and nothing was altered. Copy the whole data directory aside, check the disk, and restore from a backup or, with other nodes, start with an empty directory", path.display())]
    Damaged {
        /// The file, or the directory when no single file can be named.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The system refused something.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Self {
        OpenError::Damaged {
            path: path.to_owned(),
            why: why.into(),
        }
    }

    pub(crate) fn io<'a>(
        path: &'a Path,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| OpenError::Io {
            path: path.to_owned(),
            what,
            source,
        }
    }

    /// The tree did not open or could not be read: I/O apart, its checksums or its own structure do not hold.
    pub(crate) fn tree(path: &Path, error: fjall::Error) -> Self {
        match error {
            fjall::Error::Locked => OpenError::InUse(path.to_owned()),
            fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))
                if source.kind() != io::ErrorKind::NotFound
                    && source.kind() != io::ErrorKind::UnexpectedEof
                    && source.raw_os_error().is_some() =>
            {
                OpenError::Io {
                    path: path.to_owned(),
                    what: "the tree could not be opened",
                    source,
                }
            }
            other => OpenError::damaged(
                path,
                format!("the tree's files do not fit together ({other:?})"),
            ),
        }
    }
}

impl OpenError {
    /// Whether the same may succeed later, when the machine has what it lacks now.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(self, OpenError::Io { source, .. } if passes(source))
    }
}

/// Whether the system refused for a lack that can pass: of room, of a quota, of descriptors, of a file system that can be written to. What was to be
/// written then is not there, and all that was there still is.
#[must_use]
pub fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    ) || [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// [`passes`] of an error of the tree.
pub(crate) fn tree_passes(error: &fjall::Error) -> bool {
    matches!(error, fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) if passes(source))
}

/// A read failed.
pub(crate) fn read_error(error: fjall::Error) -> StoreError {
    match &error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))
            if source.kind() != io::ErrorKind::NotFound
                && source.kind() != io::ErrorKind::UnexpectedEof
                && source.raw_os_error().is_some() =>
        {
            StoreError::Read(source.to_string().into())
        }
        _ => StoreError::Damaged(format!("{error:?}").into()),
    }
}
