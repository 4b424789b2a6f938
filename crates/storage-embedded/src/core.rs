//! What all parts of an open engine share: the tree, the queue before the writer, and the blocking threads for reads and uploads.

use std::cell::Cell;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Semaphore, oneshot};
use whimbrel_storage::{BlobName, Commit, Hash, StoreError};

use crate::config::Config;
use crate::directory::Directory;
use crate::queue::{Job, Queue, Work};
use crate::sealer::Sealer;
use crate::uploads::Uploads;

/// What reads and uploads need.
pub(crate) struct Core {
    /// None while it cannot be opened again. Whoever uses it holds the lock, so that it is not shut meanwhile.
    pub(crate) tree: RwLock<Option<Sealer>>,
    pub(crate) queue: Queue,
    pub(crate) config: Config,
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) uploaders: Arc<Semaphore>,
    pub(crate) uploads: Uploads,
    // Last: the lock is let go of when all else is closed.
    pub(crate) directory: Directory,
}

impl Core {
    pub(crate) fn submit(
        &self,
        work: Work,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let (done, result) = oneshot::channel();
        let bytes = match &work {
            Work::Commit(commit, _) => commit.bytes(),
            Work::Delete(_) | Work::Abandon(..) => BlobName::BYTES,
        };
        self.queue.submit(Job { work, done }, bytes);
        // The writer tells everyone; one that is gone without a word has panicked, and nobody knows what it had written.
        async move {
            result
                .await
                .unwrap_or_else(|_| Err(StoreError::Poisoned("the storage writer is gone".into())))
        }
    }

    pub(crate) fn commit(
        &self,
        commit: Commit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        // Hashed here, on the caller's thread: the writer's is the one that all wait for.
        let hash = commit
            .entry
            .as_ref()
            .map_or(Hash::ZERO, |entry| entry.hash());
        self.submit(Work::Commit(commit, hash))
    }

    /// Tells the writer's thread that something could not be written.
    pub(crate) fn told<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match &result {
            Err(error) if error.stops_node() => self.queue.fail(error),
            Err(_) => self.queue.wake(),
            Ok(_) => {}
        }
        result
    }

    /// Runs `work` on the tree, on a blocking thread, when one of `permits` is free.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        permits: &Arc<Semaphore>,
        work: impl FnOnce(&Sealer) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        if MAY_BLOCK.get() {
            return self.with(work);
        }
        let core = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let result = core.with(work);
            drop(core);
            drop(permit);
            result
        });
        match done.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down.
            Err(_) => Err(StoreError::Closed),
        }
    }

    /// Does something with the tree, which stays open meanwhile.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Sealer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.tree.read().unwrap_or_else(PoisonError::into_inner) {
            Some(sealer) => work(sealer),
            None => Err(StoreError::Read(
                "the store is shut until it can be opened again".into(),
            )),
        }
    }
}

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread that may block, as those of [`tokio::task::spawn_blocking`] may: what it asks of a store is done there and then. To hand a
/// small call to another thread costs more than the call; who has many makes them all on one.
pub fn blocking_here<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            MAY_BLOCK.set(self.0);
        }
    }
    let _before = Before(MAY_BLOCK.replace(true));
    work()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Embedded;
    use crate::tests::{config, runtime, tempdir};

    #[test]
    fn who_may_block_is_served_on_its_own_thread() {
        let directory = tempdir();
        let runtime = runtime();
        let (config, _) = config(directory.path());
        let engine = runtime.block_on(async { Embedded::open(config).unwrap() });
        let core = engine.core().clone();
        let read = async {
            core.blocking(&core.readers, |_| Ok(thread::current().id()))
                .await
        };
        let here = thread::current().id();
        assert_eq!(blocking_here(|| runtime.block_on(read)), Ok(here));
        let read = async {
            core.blocking(&core.readers, |_| Ok(thread::current().id()))
                .await
        };
        assert_ne!(runtime.block_on(read), Ok(here));
        runtime.block_on(engine.close());
    }
}
