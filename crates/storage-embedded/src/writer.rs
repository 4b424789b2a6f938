//! The writer thread: takes everything that waits, writes it at once, syncs once, tells everyone.
//!
//! The sync is an `fdatasync` of our own on the journal's file, not the tree's `persist`: that one holds the journal's lock
//! while the disk works, so that no blob could be written meanwhile. It is as safe: the tree syncs a journal whole before it
//! begins the next, so after a write the journal to sync is the newest one.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_storage::{StoreError, UploadId};

use crate::core::Core;
use crate::failure::{OpenError, passes};
use crate::group::{After, Group};
use crate::open::Opened;
use crate::queue::{Job, Next, Work, tell};
use crate::room::{Lack, lack_of_anything};
use crate::sealer::{Failure, Sealer};
use crate::trees::Tree;
use crate::uploads::Serial;
use crate::wal_tail::Unsynced;
use crate::{blob_gc, keys, open};

/// Entries of cut logs removed after one group.
const TRIM_ROWS_MAX: usize = 1024;
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

impl Away {
    fn tell(&mut self, found: String) {
        if self.found != found {
            tracing::warn!(found, "storage still takes no writes");
            self.found = found;
        }
    }
}
