//! What a node decides about itself and other nodes, beside its machines: which partitions it holds, and
//! when the logs of removed members are closed.
//!
//! Purpose: `server::cluster` and the simulator drive the same decisions. The server brings what it knows (members, links, reports of machines) and
//! the time, keeps the change of the members on disk, and tells the machines. The simulator does the same without files and sockets.
//!
//! Invariant: nothing here does I/O or reads a clock.
//!
//! Reading order: [`placing`], `backoff`; [`closing`].

mod backoff;
pub mod closing;
pub mod placing;
