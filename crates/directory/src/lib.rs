//! The directory: domains, accounts, aliases and credentials, as a replicated map on every node.
//!
//! It is small (some hundred bytes an account) and read by every login and every RCPT, so all of it is in memory. Each thing is an observed-remove
//! set element with its attributes: adding wins over concurrent removal. When two nodes create accounts with one address at once, the one with the
//! earlier stamp holds the address, the other is *set aside*: it keeps its mail and is reported, and gets the address when the holder is removed.
//!
//! Reading order: [`address`], [`credential`], [`quota`], [`op`], [`state`], [`resolve`], [`plan`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
pub mod credential;
pub mod fuzz;
pub mod op;
pub mod plan;
pub mod quota;
pub mod resolve;
pub mod state;

pub use address::{Address, AddressError, Domain};
pub use credential::{Credential, DecoySecret, ScramKeys};
pub use op::{AccountKey, Op, OpError};
pub use plan::Refusal;
pub use quota::{OwnQuota, QuotaChange};
pub use resolve::{Resolution, Target};
pub use state::{Account, Directory};
