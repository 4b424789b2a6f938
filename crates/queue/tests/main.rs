//! The production machine in clusters that fail.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod cases;
mod histories;
#[cfg(feature = "mutants")]
mod mutants;
mod world;
