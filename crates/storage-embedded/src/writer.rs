//! The writer thread: takes everything that waits, writes it at once, syncs once, tells everyone.
//!
//! The sync is an `fdatasync` of our own on the journal's file, not the tree's `persist`: that one holds the journal's lock
//! while the disk works, so that no blob could be written meanwhile. It is as safe: the tree syncs a journal whole before it
//! begins the next, so after a write the journal to sync is the newest one.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use whimbrel_storage::{BlobName, Commit, GroupCommit, Hash, StoreError, UploadId};

use crate::config::Config;
use crate::directory::SyncedFile;
use crate::group::{After, Group};
use crate::seal::{Sealer, Tree};
use crate::verify::Positions;
use crate::{journal, keys, sweep};

/// Entries of cut logs removed after one group.
const TRIM_ROWS_MAX: usize = 1024;
/// How often the writer lets others run when that lets a group grow.
const YIELDS_MAX: usize = 16;
/// Commits that nobody waits for are held back as long as the last sync took, as if the disk were still busy, and never longer than this.
const LAZY_WAIT_MAX: Duration = Duration::from_millis(20);

/// What the writer is asked to do.
pub(crate) enum Work {
    Commit(Commit, Hash),
    Delete(BlobName),
    /// An upload whose writer was dropped.
    Abandon(UploadId),
}

/// Work and who waits for it.
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) done: oneshot::Sender<Result<(), StoreError>>,
}

/// The queue before the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    failed: watch::Sender<Option<StoreError>>,
}

struct State {
    commits: GroupCommit<Job>,
    closing: bool,
}

impl Queue {
    pub(crate) fn new(group_bytes_max: usize) -> Self {
        let state = State {
            commits: GroupCommit::new(group_bytes_max),
            closing: false,
        };
        Queue {
            state: Mutex::new(state),
            changed: Condvar::new(),
            failed: watch::Sender::new(None),
        }
    }

    pub(crate) fn submit(&self, job: Job, bytes: usize) {
        let mut state = self.lock();
        let refused = if state.closing {
            Some((job, StoreError::Closed))
        } else if matches!(&job.work, Work::Commit(commit, _) if commit.lazy) {
            state.commits.submit_lazy(job, bytes).err()
        } else {
            state.commits.submit(job, bytes).err()
        };
        drop(state);
        match refused {
            None => self.changed.notify_one(),
            Some((job, error)) => tell(job.done, Err(error)),
        }
    }

    /// No more work is taken; the writer ends when what waits is done.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_one();
    }

    /// Groups and what they held.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.lock().commits.totals()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.lock().commits.waiting_bytes()
    }

    pub(crate) fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        self.failed.subscribe()
    }

    /// Stops everything: something could not be written.
    pub(crate) fn fail(&self, error: &StoreError) {
        let waiting = self.lock().commits.fail(error.clone());
        self.tell_failure(error, waiting);
    }

    fn tell_failure(&self, error: &StoreError, waiting: Vec<Job>) {
        for job in waiting {
            tell(job.done, Err(error.clone()));
        }
        self.failed.send_modify(|failed| {
            failed.get_or_insert_with(|| {
                tracing::error!(%error, "storage is stopped");
                error.clone()
            });
        });
    }

    /// Waits for the next group; `None` when closed and done. One that nobody waits for is held back for `patience`.
    fn next(&self, patience: Duration) -> Option<Vec<Job>> {
        let mut state = self.lock();
        let mut held_back_until = None;
        let mut grow = true;
        loop {
            if state.commits.may_wait() && !state.closing {
                let now = Instant::now();
                let until = *held_back_until.get_or_insert(now + patience);
                if now < until {
                    state = self
                        .changed
                        .wait_timeout(state, until - now)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                    continue;
                }
            }
            if grow {
                state = self.grown(state);
            }
            if let Some(group) = state.commits.start() {
                return Some(group);
            }
            if state.closing {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            // Whoever comes to a disk that is idle is served at once; but who comes to lazy ones was perhaps not alone.
            grow = state.commits.may_wait();
        }
    }

    /// Lets others run while that lets the next group grow.
    fn grown<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        for _ in 0..YIELDS_MAX {
            if !state.commits.may_grow() {
                break;
            }
            let waiting = state.commits.waiting();
            drop(state);
            std::thread::yield_now();
            state = self.lock();
            if state.commits.waiting() == waiting {
                break;
            }
        }
        state
    }

    fn done(&self, result: Result<(), StoreError>) {
        let failure = result.as_ref().err().cloned();
        let waiting = self.lock().commits.done(result);
        if let Some(error) = failure {
            self.tell_failure(&error, waiting);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(done: oneshot::Sender<Result<(), StoreError>>, result: Result<(), StoreError>) {
    // Whoever no longer waits need not be told.
    let _ = done.send(result);
}

/// The thread's own state.
pub(crate) struct Writer {
    pub(crate) queue: Arc<Queue>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) config: Config,
    pub(crate) positions: Positions,
    pub(crate) broken: whimbrel_storage::rules::Broken,
    pub(crate) untrimmed: Vec<(whimbrel_storage::PartitionId, whimbrel_storage::Origin)>,
    pub(crate) journal: JournalFile,
    pub(crate) synced_file: SyncedFile,
    /// The last one.
    pub(crate) sync_took: Duration,
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        while let Some(jobs) = self.queue.next(self.sync_took.min(LAZY_WAIT_MAX)) {
            if let Err(error) = self.group(jobs) {
                self.queue.fail(&error);
            }
        }
        if self.sealer.failure().is_none() {
            if let Err(error) = self.settle() {
                tracing::warn!(%error, "what nobody waits for could not be synced");
            }
            if let Err(error) = self.synced_file.sync() {
                tracing::warn!(%error, "the note of what was synced could not be synced");
            }
        }
    }

    /// Syncs what was written and waited for by nobody (entries below a cut that were removed, blobs without a name): nothing would be lost with it, but
    /// damage of it could not be told from a torn end, and a clean end has none.
    fn settle(&mut self) -> Result<(), StoreError> {
        match self.sealer.flush()? {
            Some(number) => self.sync(number),
            None => Ok(()),
        }
    }

    /// One group; an error stops the store.
    fn group(&mut self, jobs: Vec<Job>) -> Result<(), StoreError> {
        let lack = Lack::now(&self.config);
        let mut group = Group::new(&self.sealer, &mut self.positions, &mut self.broken, lack);
        let mut commits = Vec::with_capacity(jobs.len());
        let mut deletions = Vec::new();
        for Job { work, done } in jobs {
            let (result, waiting) = match work {
                Work::Commit(commit, hash) => (group.add(commit, hash), &mut commits),
                Work::Delete(name) => (group.delete(name), &mut deletions),
                Work::Abandon(upload) => (group.abandon(upload), &mut deletions),
            };
            match result {
                Ok(()) => waiting.push(done),
                Err(error) => tell(done, Err(error)),
            }
        }
        if group.taken == 0 {
            self.queue.done(Ok(()));
            return Ok(());
        }
        let written = group
            .write()
            .and_then(|(number, after)| self.sync(number).map(|()| after));
        let result = written.as_ref().map(|_| ()).map_err(|error| match error {
            StoreError::Poisoned(_) => error.clone(),
            other => self.sealer.fail(&other.to_string()),
        });
        self.queue.done(result.clone());
        for done in commits {
            tell(done, result.clone());
        }
        let result = result.and_then(|()| self.after(written.unwrap_or_default()));
        for done in deletions {
            tell(done, result.clone());
        }
        result
    }

    fn sync(&mut self, number: u64) -> Result<(), StoreError> {
        let changed = self
            .journal
            .follow()
            .map_err(|error| self.sealer.fail(&format!("finding the journal: {error}")))?;
        let began = Instant::now();
        self.config.disk.sync(&self.journal.file).map_err(|error| {
            self.sealer.fail(&format!(
                "syncing {}: {error}",
                journal::path_of(&self.journal.directory, self.journal.number).display()
            ))
        })?;
        self.sync_took = began.elapsed();
        self.sealer.set_synced(number);
        // Only a help for the next start: a failure to write it costs no safety.
        if let Err(error) = self.synced_file.note(number) {
            tracing::warn!(%error, "the note of what was synced could not be written");
        } else if changed && let Err(error) = self.synced_file.sync() {
            tracing::warn!(%error, "the note of what was synced could not be synced");
        }
        Ok(())
    }

    /// What lags behind: blobs without a name, entries below a cut.
    fn after(&mut self, after: After) -> Result<(), StoreError> {
        for upload in after.unnamed {
            sweep::remove(&self.sealer, upload)?;
        }
        self.untrimmed.extend(after.cut);
        self.trim()
    }

    fn trim(&mut self) -> Result<(), StoreError> {
        let Some((partition, origin)) = self.untrimmed.last().copied() else {
            return Ok(());
        };
        let low = self
            .positions
            .get(&(partition, origin))
            .map_or(0, |position| position.low);
        let mut write = self.sealer.begin();
        let mut rows = 0;
        let range = keys::entry(partition, origin, 0)..keys::entry(partition, origin, low);
        for row in
            fjall::Readable::range(&self.sealer.db().snapshot(), &self.sealer.trees.log, range)
                .take(TRIM_ROWS_MAX)
        {
            write.remove(
                &self.sealer.trees,
                Tree::Log,
                row.key().map_err(crate::failure::read_error)?,
            );
            rows += 1;
        }
        if rows < TRIM_ROWS_MAX {
            self.untrimmed.pop();
        }
        if rows > 0 {
            self.sealer.write(write, false)?;
        }
        Ok(())
    }
}

/// What there is no room for on the disk.
pub(crate) struct Lack {
    pub(crate) ordinary: Option<StoreError>,
    pub(crate) frees: Option<StoreError>,
}

impl Lack {
    pub(crate) fn now(config: &Config) -> Lack {
        let free = config.disk.free_bytes(&config.path).unwrap_or(u64::MAX);
        let below = |bytes_min: u64| {
            (free < bytes_min).then(|| {
                let path = config.path.display();
                let what = format!("{path} has {free} bytes left, {bytes_min} are kept free");
                StoreError::Full(what.into())
            })
        };
        Lack {
            ordinary: below(config.free_bytes_min),
            frees: below(config.removal_free_bytes_min.min(config.free_bytes_min)),
        }
    }
}

/// The newest journal, open for syncing.
pub(crate) struct JournalFile {
    directory: PathBuf,
    number: u64,
    file: File,
}

impl JournalFile {
    pub(crate) fn open(directory: PathBuf, number: u64) -> std::io::Result<Self> {
        let file = File::open(journal::path_of(&directory, number))?;
        Ok(JournalFile {
            directory,
            number,
            file,
        })
    }

    /// Goes on to the newest journal. Whether it was another one.
    ///
    /// The next one is usually there or not. But blobs alone can fill several journals, and those that became superfluous are removed,
    /// the oldest first, before anything had to be synced here: when the one at hand is gone, the directory tells.
    fn follow(&mut self) -> std::io::Result<bool> {
        let mut changed = false;
        loop {
            let next = journal::path_of(&self.directory, self.number + 1);
            // Looked for before it is opened: without a free descriptor opening fails even where there is nothing, and nothing new is
            // needed then.
            if next.try_exists()? {
                self.file = match File::open(next) {
                    Ok(file) => file,
                    // Removed meanwhile, and so the one at hand.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                self.number += 1;
            } else if self.file.metadata()?.nlink() > 0 {
                return Ok(changed);
            } else {
                let newest = journal::newest(&self.directory).map_err(std::io::Error::other)?;
                let (number, path) = newest.ok_or(std::io::ErrorKind::NotFound)?;
                self.file = File::open(path)?;
                self.number = number;
            }
            changed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(queue: &Queue, lazy: bool) {
        let mut commit = Commit::new(whimbrel_storage::PartitionId(0));
        commit.lazy = lazy;
        let (done, _) = oneshot::channel();
        let work = Work::Commit(commit, Hash::ZERO);
        queue.submit(Job { work, done }, 10);
    }

    /// Submits commits, lazy or not, then takes a group that could be held back for ever.
    #[track_caller]
    fn check_group(lazy: &[bool], late: bool, expected: usize) {
        let queue = Arc::new(Queue::new(1 << 20));
        for lazy in lazy {
            submit(&queue, *lazy);
        }
        let other = late.then(|| {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || submit(&queue, false))
        });
        let group = queue.next(Duration::from_secs(3600)).unwrap();
        if let Some(other) = other {
            other.join().unwrap();
        }
        assert_eq!(group.len(), expected);
    }

    #[test]
    fn lazy_commits_go_with_the_next_that_somebody_waits_for() {
        check_group(&[true, true], true, 3);
        check_group(&[true, false, true], false, 3);
        check_group(&[false], false, 1);
    }

    #[test]
    fn lazy_commits_are_held_back_no_longer_than_that() {
        let queue = Queue::new(1 << 20);
        submit(&queue, true);
        assert_eq!(queue.next(Duration::ZERO).unwrap().len(), 1);
        queue.done(Ok(()));
        // Who closes does not wait either.
        submit(&queue, true);
        queue.close();
        assert!(queue.next(Duration::from_secs(3600)).is_some());
        queue.done(Ok(()));
        assert!(queue.next(Duration::from_secs(3600)).is_none());
    }

    #[test]
    fn the_newest_journal_is_found_even_when_those_between_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number| journal::path_of(directory.path(), number);
        let make = |number| drop(File::create(path(number)).unwrap());
        make(5);
        let mut journal = JournalFile::open(directory.path().to_owned(), 5).unwrap();
        let mut check = |changed: bool, number: u64| {
            assert_eq!(journal.follow().unwrap(), changed);
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
}
