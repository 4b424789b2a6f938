//! The engine as a whole: its handle, its thread, its beginning and end.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;
use whimbrel_storage::StoreError;

use crate::config::Config;
use crate::core::Core;
use crate::directory::Directory;
use crate::failure::OpenError;
use crate::open;
use crate::queue::Queue;
use crate::sealer::Sealer;
use crate::uploads::Uploads;
use crate::writer::Writer;

/// The embedded engine. Clones are the same store; the last one that goes closes it.
#[derive(Clone)]
pub struct Embedded(Arc<Handle>);

struct Handle {
    core: Arc<Core>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the engine has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Atomic writes that were synced, one sync each.
    pub groups: u64,
    /// Commits (and deletions of blobs) in them.
    pub commits: u64,
    /// Bytes of commits that wait at present.
    pub waiting_bytes: usize,
    /// Writes that waited because too much was not in files yet ([`Config::full_buffers_max`]), since it was opened or opened again.
    pub waits: u64,
}

impl Embedded {
    /// Opens the store in `config.path`, or makes one in an empty directory. Reads the journals and walks the retained logs
    /// first, so it blocks for a while: seconds for gigabytes.
    ///
    /// # Errors
    /// See [`OpenError`]; unless it is opened, nothing is changed but a torn end that nobody was told about.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let directory = Directory::open(&config.path)?;
        let (sealer, opened) = open::open(&config, &directory, None)?;
        let path = config.path.clone();
        let core = Arc::new(Core {
            tree: RwLock::new(Some(sealer)),
            queue: Queue::new(config.group_bytes_max),
            readers: Arc::new(Semaphore::new(config.readers_max.max(1))),
            uploaders: Arc::new(Semaphore::new(config.readers_max.max(1))),
            uploads: Uploads::default(),
            config,
            directory,
        });
        let writer = Writer {
            core: Arc::clone(&core),
            opened,
            broken: whimbrel_storage::rules::Broken::default(),
            sync_took: Duration::ZERO,
            away: None,
            lacked: false,
            reopened_at: None,
            unknown_at: Vec::new(),
            abandoned: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("storage-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::io(&path, "no thread"))?;
        Ok(Embedded(Arc::new(Handle {
            core,
            writer: Mutex::new(Some(thread)),
        })))
    }

    /// Resolves when the store has failed and accepts nothing any more: the process must then end.
    pub fn failed(&self) -> impl Future<Output = StoreError> + Send + 'static {
        let mut failed = self.0.core.queue.failed();
        async move {
            loop {
                if let Some(error) = failed.borrow_and_update().clone() {
                    return error;
                }
                if failed.changed().await.is_err() {
                    // Closed without a failure: there is nothing to tell.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (groups, commits) = self.0.core.queue.totals();
        // Nobody waits for a tree that is being opened again.
        let tree = self.0.core.tree.try_read().ok();
        let waits = tree.and_then(|tree| tree.as_ref().map(Sealer::waits));
        Totals {
            groups,
            commits,
            waiting_bytes: self.0.core.queue.waiting_bytes(),
            waits: waits.unwrap_or(0),
        }
    }

    /// Takes no more work, finishes what waits and closes the files. When it returns, and no upload or read of another handle
    /// is under way, the directory can be opened again.
    pub async fn close(self) {
        let core = self.0.core.clone();
        core.queue.close();
        let writer = self.0.take_writer();
        // Joining waits for one sync at most, but that may be long on a bad disk: not on a thread that runs tasks.
        let joined = tokio::task::spawn_blocking(move || writer.map(JoinHandle::join));
        if !matches!(joined.await, Ok(None | Some(Ok(())))) {
            tracing::error!("the storage writer ended by a panic");
        }
        // Reads and uploads on blocking threads hold the files open: wait for them.
        let permits = u32::try_from(core.config.readers_max.max(1)).unwrap_or(u32::MAX);
        let _ = core.readers.acquire_many(permits).await;
        let _ = core.uploaders.acquire_many(permits).await;
        drop(self);
        drop(core);
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

impl Handle {
    fn take_writer(&self) -> Option<JoinHandle<()>> {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.queue.close();
        if let Some(writer) = self.take_writer()
            && writer.join().is_err()
        {
            tracing::error!("the storage writer ended by a panic");
        }
    }
}
