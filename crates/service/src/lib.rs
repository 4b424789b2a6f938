//! What the server does, as state machines: check logins, resolve recipients, accept mail, deliver, and do what sessions ask of mailboxes.
//!
//! Purpose: three kinds of owner, all `machine::Machine`s. `directory::DirectoryOwner` knows accounts, aliases and logins.
//! `queue::QueueOwner` has accepted mail until it is delivered. `owner::PartitionOwner` has the mail of the accounts of some partitions.
//! Sessions speak to them in terms of `api`.
//!
//! Invariants:
//! - No answer leaves before what it saw is on disk (`gate`).
//! - Commits of a machine are given out in order, and a commit that fails takes what followed it along: the partition is read again.
//! - A batch of another node, the rows that it changes and the position are one commit.
//! - No machine reads a clock or does I/O; what takes long (rows into an account, argon2) is given out and comes back as an input.
//!
//! Reading order: `api`, `machine`, `log`, `gate`, `turns`, `rests`; `peers/mod`, `peers/shipping` (batches of others), `stamps`. Owner:
//! `owner/mod` (its machines and layers), `mail`, `partition`, `accounts`, `calls`, `writing`, `replication`, `remote_batches`. Directory:
//! `directory`, `auth`, `directory/decoys`, `scram`. Queue: `queue`, `queue/rows`, `accepting`, `deliveries`, `arriving`, `forwarding`.
//! Among other nodes: `cluster`. Offline: `verify`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod api;
pub mod auth;
pub mod cluster;
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
pub mod rests;
pub mod saslprep;
pub mod scram;
pub mod senders;
mod stamps;
mod tally;
pub mod turns;
pub mod verify;
