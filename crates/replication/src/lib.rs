//! Causal broadcast of batches between replicas: wire format, links, partitions, members; pure, no I/O
//!
//! Purpose: the machines by which nodes come to hold the same logs and apply them in causal order. What is in a batch is opaque here.
//! `service::peers` drives a partition inside its owner; `server::cluster` drives members, identity and placement; the simulator drives the same machines.
//! `docs/replication.md` tells the whole.
//!
//! Invariants:
//! - Machines take `(now, input)` and give outputs; the driver carries these out and brings back what comes of them.
//! - A peer is told what is durable, never what is under way.
//! - Only the batch that follows by number and hash is taken: a gap waits, a fork is refused.
//! - A batch is handed to its owner after all that it depends on.
//! - Nothing a peer does decides how much memory is used: windows and `budget` do.
//!
//! Reading order: `wire`, `link`; `partition/api`, `partition/mod`, `receive`, `apply`, `ship`, `stability`, then `snapshot`, `snapshot_send`,
//! `snapshot_receive`, `syncing`, `release`. Who: `identity`, `members`, `roster`, `holders`, `placement`. Clients: `waits`, `readers`, `announced`.
//! Then `blobs`, `paths`, `clocks`, `budget`.

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
