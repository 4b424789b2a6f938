//! The production machine in clusters that fail.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod cases;
mod explore;
mod histories;
#[cfg(feature = "mutants")]
mod mutants;
mod scale;
mod world;
