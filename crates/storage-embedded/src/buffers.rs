//! Write buffers: what was written and is not yet in files of the tree is bounded.
//!
//! The tree begins a new buffer on its own threads, and lets the old one grow for as long as they are busy: 20 uploads at once made one of 174 MiB
//! where 8 were meant. So a thread of our own begins the next one as soon as one is full, and whoever comes to write waits while too many full ones
//! are not in files. It is a thread because the tree removes journals along the way, a tenth of a second each on some file systems, and no write is
//! to wait for that. Nothing that empties buffers needs what a waiting write holds.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fjall::{AbstractTree as _, Keyspace};

use crate::config::Config;
use crate::trees::{TREES, Trees};

/// The tree tells nobody when a buffer has been emptied: how often to look. Moving one takes tens of milliseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// How long its thread may take to end. What it does takes a tenth of a second; a disk that stands still for a moment is no reason to stop.
const END_WAIT_MAX: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// The bounds, and how often they were met.
pub(crate) struct Buffers {
    bounds: Bounds,
    waits: AtomicU64,
    /// Tells the thread that a buffer is full, and the thread. `None` when it was ended.
    turner: Option<(SyncSender<()>, JoinHandle<()>)>,
}

#[derive(Clone, Copy)]
struct Bounds {
    bytes_max: [u64; TREES],
    full_max: usize,
}

impl Bounds {
    /// Whether a tree that is to be written has room: no more than so many full buffers, the one that is being filled among them once it is. Until the next one
    /// is begun it may become twice as large.
    fn have_room(self, tree: &Keyspace, bytes_max: u64) -> bool {
        let active = tree.tree.active_memtable().size();
        let full = tree.tree.sealed_memtable_count() + usize::from(active > bytes_max);
        full <= self.full_max && active <= 2 * bytes_max
    }

    /// Begins the next buffer where one is full.
    fn turn(self, trees: &Trees) {
        for (tree, bytes_max) in trees.all().into_iter().zip(self.bytes_max) {
            if tree.tree.active_memtable().size() > bytes_max
                && tree.tree.sealed_memtable_count() < self.full_max
                && let Err(error) = tree.rotate_memtable()
            {
                // What keeps the tree from putting itself in order it says with one of the next writes.
                tracing::warn!(?error, "beginning a write buffer");
            }
        }
    }
}

impl Buffers {
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn new(config: &Config, trees: &Trees) -> io::Result<Self> {
        let bounds = Bounds {
            bytes_max: bytes_max(config),
            full_max: config.full_buffers_max.max(1),
        };
        let (sender, full): (_, Receiver<()>) = sync_channel(1);
        let trees = trees.clone();
        let thread = thread::Builder::new()
            .name("buffers".to_owned())
            .spawn(move || {
                while full.recv().is_ok() {
                    bounds.turn(&trees);
                }
            })?;
        Ok(Buffers {
            bounds,
            waits: AtomicU64::new(0),
            turner: Some((sender, thread)),
        })
    }

    /// Waits until all trees that are to be written have room. `alive` is asked meanwhile: a tree that has failed empties no buffer.
    pub(crate) fn wait<E>(
        &self,
        trees: &Trees,
        touches: [bool; TREES],
        alive: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.have_room(trees, touches) {
            return Ok(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        while !self.have_room(trees, touches) {
            alive()?;
            self.wake();
            thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    fn have_room(&self, trees: &Trees, touches: [bool; TREES]) -> bool {
        let trees = trees.all().into_iter().zip(self.bounds.bytes_max);
        let mut written = trees.zip(touches).filter(|(_, touched)| *touched);
        written.all(|((tree, bytes_max), _)| self.bounds.have_room(tree, bytes_max))
    }

    /// After a write: where it filled a buffer, the next one is due.
    pub(crate) fn written(&self, trees: &Trees, touches: [bool; TREES]) {
        let trees = trees.all().into_iter().zip(self.bounds.bytes_max);
        let mut written = trees.zip(touches).filter(|(_, touched)| *touched);
        if written.any(|((tree, bytes_max), _)| tree.tree.active_memtable().size() > bytes_max) {
            self.wake();
        }
    }

    /// If the thread is told already, that is enough.
    fn wake(&self) {
        if let Some((sender, _)) = &self.turner {
            let _ = sender.try_send(());
        }
    }

    /// Writes that have waited.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl Buffers {
    /// Ends its thread: the tree can be opened again only when nobody holds it any more. `false`: it does not end. Where the tree's own threads have
    /// given up it may wait for them without end, and whoever waited for it would keep everybody from the tree.
    pub(crate) fn end(&mut self) -> bool {
        let Some((sender, thread)) = self.turner.take() else {
            return true;
        };
        drop(sender);
        let until = Instant::now() + END_WAIT_MAX;
        while !thread.is_finished() {
            if Instant::now() > until {
                return false;
            }
            thread::sleep(LOOK_PAUSE);
        }
        let _ = thread.join();
        true
    }

    /// As if its thread waited for one of the tree's.
    #[cfg(test)]
    pub(crate) fn hang(&mut self) {
        assert!(self.end());
        let (sender, full) = sync_channel(1);
        let thread = thread::spawn(move || {
            loop {
                let _ = full.recv();
                thread::park();
            }
        });
        self.turner = Some((sender, thread));
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if !self.end() {
            tracing::error!("the thread that begins write buffers does not end");
        }
    }
}

/// Of each tree ([`Trees::all`]).
pub(crate) fn bytes_max(config: &Config) -> [u64; TREES] {
    let blobs = config.write_buffer_bytes;
    [blobs / 2, blobs / 2, blobs, blobs / 4]
}
