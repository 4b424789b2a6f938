//! Causal broadcast of batches between replicas: wire format, links, partitions; pure, no I/O
//!
//! Purpose: the machines by which nodes come to hold the same logs and apply them in causal order. What is in a batch is opaque here.
//! `service` drives them; only the simulator links nodes yet. `docs/replication.md` tells the whole.
//!
//! Invariants:
//! - Machines take `(now, input)` and give outputs; the driver carries these out and brings back what comes of them.
//! - Nothing a peer does decides how much memory is used.
//!
//! Reading order: `wire`, `link`, `partition`, `identity`, `members`, `roster`, `placement`, `waits`, `blobs`, `paths`, `readers`,
//! `announced`, `clocks`, `budget`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod announced;
pub mod blobs;
pub mod budget;
pub mod clocks;
#[doc(hidden)]
pub mod fuzz;
pub mod holders;
pub mod identity;
pub mod link;
pub mod members;
pub mod partition;
pub mod paths;
pub mod placement;
pub mod readers;
pub mod roster;
pub mod waits;
pub mod wire;

pub(crate) use whimbrel_crdt::mutants::broken;

/// The two clocks, read by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since 1970 by the wall clock, which may jump.
    pub wall_micros: u64,
    /// Microseconds by a clock that only goes forward; for time-outs.
    pub mono_micros: u64,
}
