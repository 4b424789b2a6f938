//! The production machine in clusters that fail.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod histories;
mod world;
