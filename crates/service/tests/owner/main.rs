//! An owner by itself: how its changes are cut into commits and calls, what a collection leaves, and what operations cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod batches;
mod collection;
mod confirm;
mod elsewhere;
mod foreign;
mod imports;
mod lacking;
mod leaving;
mod node;
mod pair;
mod parts;
mod placed;
mod refused;
mod states;
mod steps;
mod unions;
mod untold;
mod windows;
mod world;
