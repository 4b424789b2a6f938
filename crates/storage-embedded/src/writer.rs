//! The writer thread: takes everything that waits, writes it at once, syncs once, tells everyone.
//!
//! The sync is an `fdatasync` of our own on the journal's file, not the tree's `persist`: that one holds the journal's lock
//! while the disk works, so that no blob could be written meanwhile. It is as safe: the tree syncs a journal whole before it
//! begins the next, so after a write the journal to sync is the newest one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use whimbrel_storage::{BlobName, Commit, GroupCommit, Hash, StoreError, UploadId};

use crate::blobs::Serial;
use crate::commit_record::{Failure, Sealer, Tree};
use crate::config::Config;
use crate::directory::SyncedFile;
use crate::engine::Core;
use crate::failure::{OpenError, passes};
use crate::group::{After, Group};
use crate::verify::Positions;
use crate::wal_tail::{JournalFile, Unsynced};
use crate::{blob_gc, keys, open};

/// Entries of cut logs removed after one group.
const TRIM_ROWS_MAX: usize = 1024;
/// How often the writer lets others run when that lets a group grow.
const YIELDS_MAX: usize = 16;
/// Commits that nobody waits for are held back as long as the last sync took, as if the disk were still busy, and never longer than this.
const LAZY_WAIT_MAX: Duration = Duration::from_millis(20);

/// Uploads that nobody goes on with and could not be removed yet. Of more the marks stay, and the next start removes them.
const ABANDONED_MAX: usize = 1024;

/// How often it is tried to open a tree again that takes no writes.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// A tree that gave up and does not say why, on a disk that takes writes, is opened again so often in so long, as a process that ended would be by
/// systemd; more often it would hide a damage.
pub(crate) const UNKNOWN_MAX: usize = 5;
const UNKNOWN_WINDOW: Duration = Duration::from_secs(600);
/// How long a group that is written waits for a descriptor to be synced by.
const FOLLOW_WAIT_MAX: Duration = Duration::from_secs(10);
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// What the writer is asked to do.
pub(crate) enum Work {
    Commit(Commit, Hash),
    Delete(BlobName),
    /// An upload whose writer was dropped.
    Abandon(UploadId, Serial),
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
    woken: bool,
}

/// What the writer's thread has to do next.
enum Next {
    Group(Vec<Job>),
    /// Look whether all is well: somebody could not write, or the time has come.
    Look,
    /// Closed and done.
    End,
}

impl Queue {
    pub(crate) fn new(group_bytes_max: usize) -> Self {
        let state = State {
            commits: GroupCommit::new(group_bytes_max),
            closing: false,
            woken: false,
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

    /// The writer's thread is to look whether all is well.
    pub(crate) fn wake(&self) {
        self.lock().woken = true;
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

    /// Waits for the next group, or for `look_at`. A group that nobody waits for is held back for `patience`.
    fn next(&self, patience: Duration, look_at: Option<Instant>) -> Next {
        let mut state = self.lock();
        let mut held_back_until = None;
        let mut grow = true;
        loop {
            let now = Instant::now();
            if std::mem::take(&mut state.woken) || look_at.is_some_and(|at| at <= now) {
                return Next::Look;
            }
            if state.commits.may_wait() && !state.closing {
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
                return Next::Group(group);
            }
            if state.closing {
                return Next::End;
            }
            state = match look_at {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self
                        .changed
                        .wait_timeout(state, at.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
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
    pub(crate) core: Arc<Core>,
    pub(crate) opened: Opened,
    pub(crate) broken: whimbrel_storage::rules::Broken,
    /// The last one.
    pub(crate) sync_took: Duration,
    /// Nothing is written at present.
    pub(crate) away: Option<Away>,
    /// Whether there was too little room since the tree was opened.
    pub(crate) lacked: bool,
    /// When the tree was last opened again.
    pub(crate) reopened_at: Option<Instant>,
    /// When it was although nobody knew what had ailed it, as far back as it matters.
    pub(crate) unknown_at: Vec<Instant>,
    /// What nobody goes on with and could not be removed: tried again with the next group.
    pub(crate) abandoned: Vec<(UploadId, Serial)>,
}

/// What of an open store is the writer's.
pub(crate) struct Opened {
    pub(crate) positions: Positions,
    pub(crate) untrimmed: Vec<(whimbrel_storage::PartitionId, whimbrel_storage::Origin)>,
    pub(crate) journal: JournalFile,
    pub(crate) synced_file: SyncedFile,
}

/// The tree refused a write and takes no more: what is read is all that was acknowledged, and all who want to write are told to try again.
pub(crate) struct Away {
    /// What they are told.
    error: StoreError,
    /// Whether the cause is one that can pass.
    known: bool,
    /// The last write that was made.
    last: u64,
    /// When it is tried next.
    next: Instant,
    /// What was last found, so that it is told once.
    found: String,
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let core = Arc::clone(&self.core);
        let mut stopped = false;
        loop {
            let look_at = self.away.as_ref().map(|away| away.next);
            let look_at = look_at.filter(|_| !stopped);
            let patience = self.sync_took.min(LAZY_WAIT_MAX);
            let result = match core.queue.next(patience, look_at) {
                Next::End => break,
                Next::Look => Ok(()),
                Next::Group(jobs) if self.away.is_some() => {
                    self.refuse(jobs);
                    Ok(())
                }
                Next::Group(jobs) => {
                    let tree = core.tree.read().unwrap_or_else(PoisonError::into_inner);
                    let sealer = tree.as_ref().expect("it is shut only while it is away");
                    self.group(sealer, jobs)
                }
            };
            if !stopped && let Err(error) = result.and_then(|()| self.look()) {
                core.queue.fail(&error);
                stopped = true;
            }
        }
        let tree = core.tree.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sealer) = &*tree
            && sealer.failure().is_none()
        {
            if let Err(error) = self.settle(sealer) {
                tracing::warn!(%error, "what nobody waits for could not be synced");
            }
            if let Err(error) = self.opened.synced_file.sync() {
                tracing::warn!(%error, "the note of what was synced could not be synced");
            }
        }
    }

    /// Looks whether the tree still takes writes. If not, everybody is told to try again, until it could be opened anew; an error stops the
    /// store.
    fn look(&mut self) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        if self.away.is_none() {
            let tree = core.tree.read().unwrap_or_else(PoisonError::into_inner);
            let Some((sealer, failure)) =
                tree.as_ref().and_then(|tree| Some((tree, tree.failure()?)))
            else {
                return Ok(());
            };
            let error = failure.error();
            let Failure::Away { known, .. } = failure else {
                return Err(error);
            };
            tracing::error!(%error, "storage takes no writes; what is there can be read, and it is tried again");
            self.away = Some(Away {
                known: known || self.lacked,
                last: sealer.last(),
                next: self
                    .reopened_at
                    .map_or_else(Instant::now, |at| at + REOPEN_PAUSE),
                found: error.to_string(),
                error,
            });
        }
        let Some(away) = &mut self.away else {
            return Ok(());
        };
        if Instant::now() < away.next {
            return Ok(());
        }
        away.next = Instant::now() + REOPEN_PAUSE;
        if let Some(lack) = lack_of_anything(&core.config) {
            away.known = true;
            away.tell(lack);
            return Ok(());
        }
        if !away.known {
            self.unknown_at.retain(|at| at.elapsed() < UNKNOWN_WINDOW);
            if self.unknown_at.len() >= UNKNOWN_MAX {
                return Err(StoreError::Poisoned(away.error.to_string().into()));
            }
            self.unknown_at.push(Instant::now());
            // Opening may take some tries, which are one.
            away.known = true;
        }
        let last = away.last;
        match self.reopen(last) {
            Ok(()) => {
                self.away = None;
                tracing::info!("storage takes writes again");
                Ok(())
            }
            Err(error) if error.passes() => {
                if let Some(away) = &mut self.away {
                    away.tell(error.to_string());
                }
                Ok(())
            }
            Err(error) => Err(StoreError::Poisoned(error.to_string().into())),
        }
    }

    /// Shuts the tree and opens it as a start does. What is read or uploaded meanwhile waits.
    fn reopen(&mut self, last: u64) -> Result<(), OpenError> {
        let core = Arc::clone(&self.core);
        let mut tree = core.tree.write().unwrap_or_else(PoisonError::into_inner);
        // The tree tells nobody of a sync of its own that fails, and the files as they are read show nothing of it. The descriptors at hand do, which were
        // opened before.
        self.opened.journal.vouch(&*core.config.disk)?;
        if tree.as_mut().is_some_and(|sealer| !sealer.buffers.end()) {
            // It holds the tree, and nobody knows for how long. Reading goes on until the node has stopped.
            let source = std::io::ErrorKind::TimedOut.into();
            return Err(OpenError::io(
                &core.config.path,
                "a thread of the tree does not end",
            )(source));
        }
        // What it still holds back goes to the journal now, if that is possible; what was refused is cut off again.
        *tree = None;
        self.opened.journal.vouch(&*core.config.disk)?;
        core.uploads.lose_all();
        let (sealer, opened) = open::open(&core.config, &core.directory, Some(last))?;
        if let Err(error) = core.uploads.keep(&sealer) {
            tracing::warn!(%error, "uploads that were named are refused until the next start");
        }
        self.opened = opened;
        self.lacked = false;
        self.reopened_at = Some(Instant::now());
        *tree = Some(sealer);
        Ok(())
    }

    /// Refuses a group while nothing is written.
    fn refuse(&mut self, jobs: Vec<Job>) {
        let Some(error) = self.away.as_ref().map(|away| away.error.clone()) else {
            return;
        };
        for job in jobs {
            match &job.work {
                Work::Commit(commit, _) => self.broken.note(commit.partition, false),
                Work::Delete(name) => self.core.uploads.forget(name.upload),
                Work::Abandon(upload, serial) => self.abandon_later([(*upload, *serial)]),
            }
            tell(job.done, Err(error.clone()));
        }
        self.core.queue.done(Ok(()));
    }

    fn abandon_later(&mut self, uploads: impl IntoIterator<Item = (UploadId, Serial)>) {
        for (upload, serial) in uploads {
            if self.abandoned.len() < ABANDONED_MAX {
                self.abandoned.push((upload, serial));
            } else {
                self.core.uploads.forget_this(upload, serial);
            }
        }
    }

    /// Syncs what was written and waited for by nobody (entries below a cut that were removed, blobs without a name): nothing would be lost with it, but
    /// damage of it could not be told from a torn end, and a clean end has none.
    fn settle(&mut self, sealer: &Sealer) -> Result<(), StoreError> {
        match sealer.flush()? {
            Some(number) => self.sync(sealer, number),
            None => Ok(()),
        }
    }

    /// One group; an error stops the store.
    fn group(&mut self, sealer: &Sealer, jobs: Vec<Job>) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        let lack = Lack::now(&core.config);
        self.lacked |= lack.ordinary.is_some();
        let positions = &mut self.opened.positions;
        let mut group = Group::new(sealer, positions, &mut self.broken, &core.uploads, lack);
        let mut commits = Vec::with_capacity(jobs.len());
        let mut deletions = Vec::new();
        let mut left = Vec::new();
        for (upload, serial) in std::mem::take(&mut self.abandoned) {
            if group.abandon(upload, serial).is_err() {
                left.push((upload, serial));
            }
        }
        for Job { work, done } in jobs {
            let (result, waiting) = match work {
                Work::Commit(commit, hash) => (group.add(commit, hash), &mut commits),
                Work::Delete(name) => (group.delete(name), &mut deletions),
                Work::Abandon(upload, serial) => {
                    let result = group.abandon(upload, serial);
                    left.extend(result.is_err().then_some((upload, serial)));
                    (result, &mut deletions)
                }
            };
            match result {
                Ok(()) => waiting.push(done),
                Err(error) => tell(done, Err(error)),
            }
        }
        if group.taken == 0 {
            self.abandon_later(left);
            core.queue.done(Ok(()));
            for done in deletions {
                tell(done, Ok(()));
            }
            return Ok(());
        }
        let written = group.write();
        if written.is_err() {
            left.append(&mut group.abandoned);
        }
        self.abandon_later(left);
        let written = written.and_then(|(number, after)| self.sync(sealer, number).map(|()| after));
        let result = written.as_ref().map(|_| ()).map_err(|error| match error {
            StoreError::Poisoned(_) | StoreError::Full(_) => error.clone(),
            other => sealer.fail(&other.to_string()),
        });
        // One that was refused leaves nothing behind, and the next may go.
        let stops = result.clone().or_else(unless_stopped);
        core.queue.done(stops.clone());
        for done in commits {
            tell(done, result.clone());
        }
        let result = result.and_then(|()| self.after(sealer, written.unwrap_or_default()));
        for done in deletions {
            tell(done, result.clone());
        }
        stops.and(result.or_else(unless_stopped))
    }

    fn sync(&mut self, sealer: &Sealer, number: u64) -> Result<(), StoreError> {
        let opened = &mut self.opened;
        let until = Instant::now() + FOLLOW_WAIT_MAX;
        let began = Instant::now();
        let changed = loop {
            let error = match opened.journal.sync(&*self.core.config.disk) {
                Ok(changed) => break changed,
                Err(Unsynced::Sync(path, error)) => {
                    return Err(sealer.fail(&format!("syncing {}: {error}", path.display())));
                }
                Err(Unsynced::Find(error)) => error,
            };
            // Without a descriptor for a new journal: the tree has one.
            if passes(&error) && sealer.persist().is_ok() {
                break false;
            }
            // What was written is neither certain nor refused: whoever waits for it waits.
            if !passes(&error) || Instant::now() > until {
                return Err(sealer.fail(&format!("finding the journal: {error}")));
            }
            std::thread::sleep(FOLLOW_PAUSE);
        };
        self.sync_took = began.elapsed();
        sealer.set_synced(number);
        // Only a help for the next start: a failure to write it costs no safety.
        if let Err(error) = opened.synced_file.note(number) {
            tracing::warn!(%error, "the note of what was synced could not be written");
        } else if changed && let Err(error) = opened.synced_file.sync() {
            tracing::warn!(%error, "the note of what was synced could not be synced");
        }
        Ok(())
    }

    /// What lags behind: blobs without a name, entries below a cut.
    fn after(&mut self, sealer: &Sealer, after: After) -> Result<(), StoreError> {
        self.opened.untrimmed.extend(after.cut);
        // As with those that nothing names, below.
        for (upload, serial) in after.abandoned {
            self.core.uploads.forget_this(upload, serial);
        }
        let named = after.named.into_iter().try_for_each(|upload| {
            // One that is still being written is in use. One that is lost was named by who knows that it comes again.
            if self.core.uploads.is_lost(upload) || sealer.is_whole(upload)? {
                self.core.uploads.forget(upload);
            }
            Ok(())
        });
        let mut unnamed = after.unnamed;
        let unfinished = after.unfinished.into_iter().try_for_each(|upload| {
            // It was said before that it is let go of, and who writes it makes it whole before he looks for that. So one of both sees what the other did.
            if sealer.is_whole(upload)? {
                unnamed.push(upload);
            }
            Ok(())
        });
        let removed = unnamed.into_iter().try_for_each(|upload| {
            // It may come again: named and let go of in one group it was named at no time. Forgotten before it goes: until then its rows refuse
            // another of its name, and one that begins behind that is remembered.
            self.core.uploads.forget(upload);
            blob_gc::remove(sealer, upload)
        });
        match named
            .and(unfinished)
            .and(removed)
            .and_then(|()| self.trim(sealer))
        {
            // It is marked, and goes when the store is opened next. What is named stays remembered as an upload: one of its name is refused until then.
            Err(error @ StoreError::Read(_)) => {
                tracing::warn!(%error, "what nothing names could not be removed yet");
                Ok(())
            }
            other => other,
        }
    }

    fn trim(&mut self, sealer: &Sealer) -> Result<(), StoreError> {
        let Some((partition, origin)) = self.opened.untrimmed.last().copied() else {
            return Ok(());
        };
        let low = self
            .opened
            .positions
            .get(&(partition, origin))
            .map_or(0, |position| position.low);
        let mut write = sealer.begin();
        let mut rows = 0;
        let range = keys::entry(partition, origin, 0)..keys::entry(partition, origin, low);
        for row in fjall::Readable::range(&sealer.db().snapshot(), &sealer.trees.log, range)
            .take(TRIM_ROWS_MAX)
        {
            write.remove(Tree::Log, row.key().map_err(crate::failure::read_error)?);
            rows += 1;
        }
        if rows < TRIM_ROWS_MAX {
            self.opened.untrimmed.pop();
        }
        if rows > 0 {
            sealer.write(write, false)?;
        }
        Ok(())
    }
}

/// A refusal is no reason to stop.
fn unless_stopped(error: StoreError) -> Result<(), StoreError> {
    match error {
        StoreError::Full(_) => Ok(()),
        other => Err(other),
    }
}

/// What is lacking for the tree to be opened again, if anything is.
pub(crate) fn lack_of_anything(config: &Config) -> Option<String> {
    // It puts itself in order first, which takes room.
    if let Some(lack) = Lack::now(config).frees {
        return Some(lack.to_string());
    }
    let probed = config.disk.probe(&config.path);
    let error = probed.err()?;
    Some(format!(
        "{} cannot be written to: {error}",
        config.path.display()
    ))
}

impl Away {
    fn tell(&mut self, found: String) {
        if self.found != found {
            tracing::warn!(found, "storage still takes no writes");
            self.found = found;
        }
    }
}

/// What there is no room for on the disk.
pub(crate) struct Lack {
    /// For anything at all, be it a removal.
    pub(crate) any: Option<StoreError>,
    pub(crate) ordinary: Option<StoreError>,
    pub(crate) frees: Option<StoreError>,
}

impl Lack {
    pub(crate) fn now(config: &Config) -> Lack {
        let path = config.path.display();
        let free = match config.disk.free_bytes(&config.path) {
            Ok(free) => free,
            Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
                let lack = Some(StoreError::Full(format!("{path}: {error}").into()));
                return Lack {
                    any: lack.clone(),
                    ordinary: lack.clone(),
                    frees: lack,
                };
            }
            Err(_) => u64::MAX,
        };
        let below = |bytes_min: u64| {
            (free < bytes_min).then(|| {
                let what = format!("{path} has {free} bytes left, {bytes_min} are kept free");
                StoreError::Full(what.into())
            })
        };
        Lack {
            any: None,
            ordinary: below(config.free_bytes_min),
            frees: below(config.removal_free_bytes_min.min(config.free_bytes_min)),
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

    fn group(queue: &Queue, patience: Duration) -> Option<Vec<Job>> {
        match queue.next(patience, None) {
            Next::Group(group) => Some(group),
            Next::End => None,
            Next::Look => panic!("nobody asked to look"),
        }
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
        let group = group(&queue, Duration::from_secs(3600)).unwrap();
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
        assert_eq!(group(&queue, Duration::ZERO).unwrap().len(), 1);
        queue.done(Ok(()));
        // Who closes does not wait either.
        submit(&queue, true);
        queue.close();
        assert!(group(&queue, Duration::from_secs(3600)).is_some());
        queue.done(Ok(()));
        assert!(group(&queue, Duration::from_secs(3600)).is_none());
    }
}
