//! The production machine against simulated name servers, on virtual time.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod histories;
mod hostile;
#[cfg(feature = "mutants")]
mod mutants;
mod scenarios;
mod world;
