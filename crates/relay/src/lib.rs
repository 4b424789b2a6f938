#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod destinations;
mod draw;
pub mod dsn;
pub mod limits;
mod mutants;
pub mod replies;
pub mod schedule;
pub mod srs;
mod status;

pub use status::Status;
