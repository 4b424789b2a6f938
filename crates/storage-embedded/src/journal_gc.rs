//! Journals that the tree has removed: the system frees them where nobody waits.
//!
//! The tree removes a journal under a lock that whoever begins a write buffer needs. To free its blocks takes the system up to a tenth of a second
//! (seen on ext4 with `discard`). It does that when the last descriptor is closed: so the one by which a journal was synced stays open until the tree
//! has removed it, and is closed by a thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How often it is looked whether a journal is gone, while there is one that is to go. So much later its room on the disk comes back.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Descriptors kept at most; the oldest is closed for a further one. The tree seldom has more journals.
const KEPT_MAX: usize = 16;

/// Takes journals that something newer follows. Once it is dropped, all are closed.
pub(crate) struct Removed(Sender<File>);

impl Removed {
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, files) = channel::<File>();
        thread::Builder::new()
            .name("journals".to_owned())
            .spawn(move || {
                let mut kept: Vec<File> = Vec::new();
                loop {
                    let next = if kept.is_empty() {
                        files.recv().map_err(|_| RecvTimeoutError::Disconnected)
                    } else {
                        files.recv_timeout(LOOK_PAUSE)
                    };
                    match next {
                        Ok(file) => kept.push(file),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                    kept.retain(|file| file.metadata().is_ok_and(|file| file.nlink() > 0));
                    if kept.len() > KEPT_MAX {
                        kept.remove(0);
                    }
                }
            })?;
        Ok(Removed(sender))
    }

    /// The journal will be removed some time.
    pub(crate) fn keep(&self, file: File) {
        // If the thread is gone, it is closed here.
        let _ = self.0.send(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_stays_open_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("7.jnl");
        let open = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            targets
                .filter(|target| {
                    target
                        .to_string_lossy()
                        .starts_with(&*path.to_string_lossy())
                })
                .count()
        };
        let removed = Removed::new().unwrap();
        removed.keep(File::create(&path).unwrap());
        thread::sleep(3 * LOOK_PAUSE);
        assert_eq!(open(), 1, "it is closed before it is removed");
        std::fs::remove_file(&path).unwrap();
        while open() > 0 {
            thread::yield_now();
        }
    }
}
