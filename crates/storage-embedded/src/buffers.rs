//! Write buffers: what was written and is not yet in files of the tree is bounded.
//!
//! The tree begins a new buffer on its own threads, and lets the old one grow for as long as they are busy: 20 uploads at once made one of
//! 174 MiB where 8 were meant. So whoever fills a buffer begins the next one here, and whoever comes to write waits while too many full ones are
//! not in files. Nothing that empties them needs what a waiting write holds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fjall::AbstractTree as _;

use crate::config::Config;
use crate::seal::{TREES, Trees};

/// The tree tells nobody when a buffer has been emptied: how often to look. Moving one takes tens of milliseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// The bounds, and how often they were met.
pub(crate) struct Buffers {
    bytes_max: [u64; TREES],
    full_max: usize,
    waits: AtomicU64,
}

impl Buffers {
    pub(crate) fn new(config: &Config) -> Self {
        Buffers {
            bytes_max: bytes_max(config),
            full_max: config.full_buffers_max.max(1),
            waits: AtomicU64::new(0),
        }
    }

    /// Waits until no tree that is to be written has too many full buffers. `alive` is asked meanwhile: a tree that has failed empties none.
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
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    fn have_room(&self, trees: &Trees, touches: [bool; TREES]) -> bool {
        trees
            .all()
            .into_iter()
            .zip(touches)
            .all(|(tree, touched)| !touched || tree.sealed_memtable_count() < self.full_max)
    }

    /// After a write: where it filled a buffer, the next one is begun. One write at a time.
    pub(crate) fn turn(&self, trees: &Trees, touches: [bool; TREES]) -> fjall::Result<()> {
        for ((tree, touched), bytes_max) in trees.all().into_iter().zip(touches).zip(self.bytes_max)
        {
            // A thread of the tree may have been first: then the new one is empty, and stays.
            if touched && tree.tree.active_memtable().size() > bytes_max {
                tree.rotate_memtable()?;
            }
        }
        Ok(())
    }

    /// Writes that have waited.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

/// Of each tree ([`Trees::all`]).
pub(crate) fn bytes_max(config: &Config) -> [u64; TREES] {
    let blobs = config.write_buffer_bytes;
    [blobs / 2, blobs / 2, blobs, blobs / 4]
}
