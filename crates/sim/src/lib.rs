//! A whole server in one thread on virtual time from one seed, with checkers.
//!
//! Reading order: [`rng`], [`node`] (the machines on a model disk), then the world around it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod node;
pub mod rng;
