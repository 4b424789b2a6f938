//! A model of a storage engine in memory, with a disk that forgets.
//!
//! [`Memory`] does each operation at once, for a simulator that decides itself when a sync begins and ends;
//! [`MemoryStore`] wraps it in the asynchronous traits, for the conformance suite and for tests of the server.
//!
//! **Crash semantics.** Every write is seen by reads at once but is durable only when a sync that began after it has
//! completed. [`Memory::crash`] keeps what was durable and, decided by a seed, a prefix of what was not: a real disk may have
//! written some of it. A commit is kept whole or not at all. Nothing else is promised by any engine, so whatever survives this
//! model survives them all.
//!
//! **Faults**, as switches: a full disk, a sync that fails. How slow the disk is, the driver decides.

mod disk;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use disk::{DiskCopy, Faults, Memory, SyncMark};
pub use store::{MemoryReader, MemoryStore, MemoryWriter};
