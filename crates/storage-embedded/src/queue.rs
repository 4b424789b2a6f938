//! The queue before the writer's thread: what it is asked to do, and who waits for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use whimbrel_storage::{BlobName, Commit, GroupCommit, Hash, StoreError, UploadId};

use crate::uploads::Serial;

/// How often the writer lets others run when that lets a group grow.
const YIELDS_MAX: usize = 16;

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
    state: Mutex<Waiting>,
    changed: Condvar,
    failed: watch::Sender<Option<StoreError>>,
}

/// What waits.
struct Waiting {
    commits: GroupCommit<Job>,
    closing: bool,
    woken: bool,
}

/// What the writer's thread has to do next.
pub(crate) enum Next {
    Group(Vec<Job>),
    /// Look whether all is well: somebody could not write, or the time has come.
    Look,
    /// Closed and done.
    End,
}

impl Queue {
    pub(crate) fn new(group_bytes_max: usize) -> Self {
        let state = Waiting {
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
    pub(crate) fn next(&self, patience: Duration, look_at: Option<Instant>) -> Next {
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
    fn grown<'a>(&'a self, mut state: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
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

    pub(crate) fn done(&self, result: Result<(), StoreError>) {
        let failure = result.as_ref().err().cloned();
        let waiting = self.lock().commits.done(result);
        if let Some(error) = failure {
            self.tell_failure(&error, waiting);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn tell(done: oneshot::Sender<Result<(), StoreError>>, result: Result<(), StoreError>) {
    // Whoever no longer waits need not be told.
    let _ = done.send(result);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
