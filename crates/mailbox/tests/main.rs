//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::unwrap_used, missing_docs)]

mod conflicts;
mod encoding;
mod import;
mod memory;
mod message;
mod missing_blobs;
#[cfg(feature = "mutants")]
mod mutants;
mod node;
mod property;
mod renewal;
mod slow;
mod twice;
mod world;
