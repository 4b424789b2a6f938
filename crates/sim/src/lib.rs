//! A whole server in one thread on virtual time from one seed, with checkers.
//!
//! Invariants: the machines are those of the product, built as the server builds them; a seed gives the same history on every machine; checkers know nothing
//! of how the load was made.
//!
//! Reading order: [`node`] (the machines on a model disk), [`model`] (what an account should hold), [`client`], [`world`]
//! (clients, faults, checks), [`checkers`], `stored`; [`cluster`] (several nodes and a network).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod checkers;
pub mod client;
pub mod cluster;
pub mod model;
pub mod node;
mod stored;
pub mod world;
