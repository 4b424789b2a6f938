//! The embedded storage engine: an LSM tree in the process.
//!
//! [`Embedded`] is both traits of `whimbrel-storage` on one directory. Commits of all partitions go through one writer
//! thread, which writes everything that waits as one atomic batch and syncs once. Blob chunks are written beside it without
//! a sync: they lie in the same journal before the commit that names them, so that commit's sync covers them.
//!
//! Invariants:
//!
//! - a commit is told `Ok` only after an `fdatasync` that began after its bytes were written;
//! - every atomic write carries a seal: a number without gaps, and how far the journal was known to be synced. Before
//!   the tree is opened, `journal` reads the journals themselves: what was acknowledged and is not there is an error that
//!   names the file, and only what was never acknowledged is cut off as a torn end;
//! - after a failed sync nothing is accepted ([`Embedded::failed`] tells the server to stop);
//! - a write that the system refuses for a lack that can pass leaves nothing behind: all are refused then, until the tree could be opened anew
//!   (`docs/decisions/0017`);
//! - what is read is covered by checksums of the tree; logs also by their own hash chain, walked at start (`verify`).
//!
//! Reading order: `config`, `keys` (what lies where), `trees`, `commit_record` (seals), `buffers`, `room`, `sealer`; `journal`, `manifest`, `verify`,
//! `open`; `uploads`, `queue`, `core`, `wal_tail`, `group` (one atomic write made of many commits), `writer`, `engine`; `blobs`, `reads`, `snapshots`,
//! `multi_get`; `check` (every byte, without opening).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blob_gc;
mod blobs;
mod buffers;
pub mod check;
mod commit_record;
mod config;
mod core;
mod directory;
mod engine;
mod failure;
#[doc(hidden)]
pub mod fuzz;
mod group;
mod journal;
mod journal_gc;
mod keys;
mod manifest;
mod multi_get;
mod open;
mod queue;
mod reads;
mod room;
mod sealer;
mod snapshots;
#[cfg(test)]
mod tests;
mod trees;
mod uploads;
mod verify;
mod wal_tail;
mod writer;

pub use blobs::{EmbeddedReader, EmbeddedWriter};
pub use config::{Config, Disk, FILES_OPEN_MIN, RealDisk};
pub use core::blocking_here;
pub use engine::{Embedded, Totals};
pub use failure::{OpenError, passes};
