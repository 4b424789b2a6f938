//! What a node decides about itself and other nodes, beside its machines: who it is when it starts, whether it has caught up, which partitions it
//! holds, when the logs of removed members are closed, and whether it can be stopped.
//!
//! Purpose: `server::cluster` and the simulator drive the same decisions. The server brings what it knows (members, links, reports of machines) and
//! the time, keeps the change of the members on disk, and tells the machines. The simulator does the same without files and sockets.
//!
//! Invariant: nothing here does I/O or reads a clock.
//!
//! Reading order: [`startup`], [`syncing`]; [`placing`], `backoff`; [`closing`]; [`drain`].

mod backoff;
pub mod closing;
pub mod drain;
pub mod placing;
pub mod startup;
pub mod syncing;
