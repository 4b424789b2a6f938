//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::unwrap_used, missing_docs)]

mod conflicts;
mod encoding;
mod laws;
#[cfg(feature = "mutants")]
mod mutants;
mod node;
mod plan;
mod resolve;
mod world;
