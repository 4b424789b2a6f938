//! The newest journal: synced by a descriptor of our own, and followed when the tree goes on to the next.
//!
//! What could not be written the system tells once at each descriptor that was open then, and not at one that is opened later. So a journal is synced by the
//! one at hand before that is let go of: a sync of the tree's own may have failed, which nobody is told, and the next one, by another of its threads, succeeds.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::config::Disk;
use crate::failure::OpenError;
use crate::journal;
use crate::journal_gc::Removed;

/// The newest journal, open for syncing.
pub(crate) struct JournalFile {
    directory: PathBuf,
    number: u64,
    file: File,
    removed: Removed,
}

/// Why it is not known that all is on the disk.
#[derive(Debug)]
pub(crate) enum Unsynced {
    /// It could not be written there.
    Sync(PathBuf, io::Error),
    /// The newest journal is not at hand. Of the one that is, all is there.
    Find(io::Error),
}

impl JournalFile {
    pub(crate) fn open(directory: PathBuf, number: u64) -> io::Result<Self> {
        let file = File::open(journal::path_of(&directory, number))?;
        Ok(JournalFile {
            directory,
            number,
            file,
            removed: Removed::new()?,
        })
    }

    fn path(&self) -> PathBuf {
        journal::path_of(&self.directory, self.number)
    }

    /// Syncs the one at hand and those behind it, to the newest. Whether that is another one.
    ///
    /// # Errors
    /// See [`Unsynced`].
    pub(crate) fn sync(&mut self, disk: &dyn Disk) -> Result<bool, Unsynced> {
        let mut changed = false;
        loop {
            let synced = disk.sync(&self.file);
            synced.map_err(|error| Unsynced::Sync(self.path(), error))?;
            // Looked for behind the sync: where there is none, all that was written before lay in the one at hand.
            if !self.follow().map_err(Unsynced::Find)? {
                return Ok(changed);
            }
            changed = true;
        }
    }

    /// Whether nothing that was written to the one at hand was lost, since it was opened.
    ///
    /// # Errors
    /// It was, which does not pass, whatever the system calls it.
    pub(crate) fn vouch(&self, disk: &dyn Disk) -> Result<(), OpenError> {
        disk.sync(&self.file).map_err(|error| OpenError::Io {
            path: self.path(),
            what: "what was written is not certain to be on the disk",
            source: io::Error::other(error.to_string()),
        })
    }

    /// Goes on to the next journal. Whether there is one.
    ///
    /// It is usually there or not. But blobs alone can fill several journals, and those that became superfluous are removed,
    /// the oldest first, before anything had to be synced here: when the one at hand is gone, the directory tells.
    fn follow(&mut self) -> io::Result<bool> {
        loop {
            let next = journal::path_of(&self.directory, self.number + 1);
            // Looked for before it is opened: without a free descriptor opening fails even where there is nothing, and nothing new is
            // needed then.
            if next.try_exists()? {
                match File::open(next) {
                    Ok(file) => self.removed.keep(std::mem::replace(&mut self.file, file)),
                    // Removed meanwhile, and so the one at hand.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
                self.number += 1;
            } else if self.file.metadata()?.nlink() > 0 {
                return Ok(false);
            } else {
                let newest = journal::newest(&self.directory).map_err(io::Error::other)?;
                let (number, path) = newest.ok_or(io::ErrorKind::NotFound)?;
                let file = File::open(path)?;
                self.removed.keep(std::mem::replace(&mut self.file, file));
                self.number = number;
            }
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TestDisk;

    #[test]
    fn the_newest_journal_is_found_even_when_those_between_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number| journal::path_of(directory.path(), number);
        let make = |number| drop(File::create(path(number)).unwrap());
        make(5);
        let mut journal = JournalFile::open(directory.path().to_owned(), 5).unwrap();
        let mut check = |changed: bool, number: u64| {
            assert_eq!(journal.sync(&TestDisk::default()).unwrap(), changed);
            assert_eq!(journal.number, number);
            assert_eq!(
                journal.file.metadata().unwrap().ino(),
                std::fs::metadata(path(number)).unwrap().ino()
            );
        };
        check(false, 5);
        make(6);
        make(7);
        check(true, 7);
        make(9);
        make(10);
        std::fs::remove_file(path(5)).unwrap();
        std::fs::remove_file(path(6)).unwrap();
        std::fs::remove_file(path(7)).unwrap();
        check(true, 10);
        check(false, 10);
    }

    /// Another thread of the tree went on to the next one, for which its second sync was enough.
    #[test]
    fn what_was_lost_shows_before_the_next_journal_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let make = |number| File::create(journal::path_of(directory.path(), number)).unwrap();
        let first = make(5);
        let mut journal = JournalFile::open(directory.path().to_owned(), 5).unwrap();
        let disk = TestDisk::default();
        disk.lose(&first);
        make(6);
        let synced = journal.sync(&disk);
        assert!(
            matches!(&synced, Err(Unsynced::Sync(path, _)) if path.ends_with("5.jnl")),
            "{synced:?}"
        );
    }
}
