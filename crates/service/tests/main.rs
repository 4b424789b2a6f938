//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]

mod auth;
mod directory;
#[cfg(feature = "mutants")]
mod mutants;
mod owner;
mod queue;
