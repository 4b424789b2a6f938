//! Causal broadcast of batches between replicas: wire format, links, partitions, members; pure, no I/O
//!
//! Purpose: the machines by which nodes come to hold the same logs and apply them in causal order. The content of a batch is opaque here.
//! `service::peers` drives a partition inside its owner; `server::cluster` drives members, identity and placement; the simulator drives the same
//! machines. `docs/replication.md` describes frames and machines.
//!
//! Invariants:
//! - Machines take `(now, input)` and give outputs. The driver carries the outputs out and returns their results as inputs.
//! - A node reports to its peers what is durable, never what is still being written.
//! - Only the batch that follows by number and hash is accepted. A batch behind a gap must be sent again; a fork stops the link.
//! - The owner gets a batch after all batches on which it depends.
//! - Windows and `budget` bound the memory, whatever a peer does.
//!
//! Reading order: `wire`, `link`; `partition/api`, `partition/mod`, `receive`, `apply`, `ship`, `stability`, then `snapshot`, `snapshot_send`,
//! `snapshot_receive`, `syncing`, `release`. Membership: `identity`, `members`, `roster`, `holders`, `placement`. Clients: `waits`, `readers`,
//! `announced`. Then `blobs`, `paths`, `clocks`, `budget`.

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
