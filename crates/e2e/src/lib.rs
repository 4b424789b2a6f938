//! End-to-end tests: real processes, real clients, protocol scripts.
//!
//! Nothing here imports a crate of the product: clients, models and checkers know the RFCs alone, so that a mistake of the server
//! cannot be in its judge as well. Nothing here measures time either: a test waits for a condition, with a deadline so generous that
//! only a hang meets it.
//!
//! Reading order: [`server`] starts and stops the product; [`wire`], [`imap`], [`pop3`] and [`mail`] are the clients; [`message`] makes messages
//! that know what they must look like; [`strict`], [`device`], [`uid_history`], [`trace`] and [`memory`] are checkers; [`model`] is what a random
//! client believes.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test harness fails by panicking"
)]

pub mod cache;
pub mod certificates;
pub mod device;
pub mod imap;
pub mod mail;
pub mod memory;
pub mod message;
pub mod model;
pub mod pop3;
pub mod process;
pub mod random;
pub mod server;
pub mod strict;
pub mod trace;
pub mod uid_history;
pub mod wire;
