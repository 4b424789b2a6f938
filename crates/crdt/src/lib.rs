//! Dots, version vectors, clocks, replicated sets and registers, and the batch envelope: pure, no I/O
//!
//! Purpose: the small algebra that every replicated type of Whimbrel is made of, and the envelope in which its
//! operations travel. Nothing here knows mail, reads a clock or draws a random number.
//!
//! Invariants:
//! - A [`Dot`] names one operation for ever; a [`VersionVector`] names a causally closed set of them.
//! - Every type has `apply`-like methods for one operation and a `join` for two states with the vectors that say
//!   what each has seen. Joining equals applying what is missing (property tests in `tests/laws.rs`).
//! - A [`Batch`] is hashed over the bytes as received, so that it is stored and forwarded unchanged.
//!
//! Reading order: `dot`, `clock`, `sets`, `batch`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batch;
mod clock;
mod dot;
#[doc(hidden)]
pub mod mutants;
mod sets;

pub use batch::{Batch, BatchError, Hash, PartitionId, Sealed, Section};
pub use clock::{Hlc, Stamp};
pub use dot::{Context, Dot, Incarnation, VersionVector};
pub use sets::{DisableWins, DotSet, EnableWins, Lww, OrMap};
