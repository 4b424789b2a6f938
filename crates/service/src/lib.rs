//! What the server does, as state machines: authenticate, resolve, deliver, append, store, expunge.
//!
//! Three kinds of owner, all [`machine::Machine`]s: [`directory::DirectoryOwner`] (accounts, aliases, logins),
//! [`queue::QueueOwner`] (accepted transactions until they are delivered) and [`owner::PartitionOwner`] (the mail of the accounts of
//! some partitions). Sessions speak to them in [`api`] terms.
//!
//! Invariants: no answer leaves before what it saw is on disk ([`gate`]); commits of a partition are submitted in order; no
//! machine reads a clock or does I/O.
//!
//! Reading order: [`api`], [`machine`], [`log`], [`gate`], [`peers`], then the owners.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod api;
pub mod auth;
pub mod content;
pub mod directory;
pub mod figures;
#[doc(hidden)]
pub mod fuzz;
pub mod gate;
pub mod log;
pub mod machine;
pub mod owner;
pub mod peers;
pub mod printable;
pub mod queue;
pub mod saslprep;
pub mod scram;
pub mod senders;
mod stamps;
mod tally;
pub mod turns;
pub mod verify;
