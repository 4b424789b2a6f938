//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::unwrap_used, missing_docs)]

mod admin;
mod another;
mod append;
mod check;
mod clients;
mod cluster;
mod demo;
mod dovecot;
mod durability;
mod faults;
mod hostile;
mod kill;
mod metrics;
mod moving;
mod notify;
mod pop3;
mod random;
mod restore;
