//! Each part against its rules; with the feature `mutants`, against broken ones.

#![allow(clippy::unwrap_used, unreachable_pub)]
// What only the mutants use.
#![cfg_attr(not(feature = "mutants"), allow(dead_code))]

mod destinations;
mod dsn;
mod limits;
#[cfg(feature = "mutants")]
mod mutants;
mod replies;
mod schedule;
mod srs;

/// A test by its name: what is run once more with each rule broken.
pub type Case = (&'static str, fn());
