//! The binary `whimbrel`: config, sockets, TLS, clocks, threads and other nodes around the machines of `service` and `frontend`.
//!
//! Purpose: it carries out the outputs of machines and returns their results. It decides nothing about mail. The simulator does not run what
//! `cluster` decides by itself (where sessions go, which partitions a node holds, the identity at the start): end-to-end tests do.
//!
//! Invariants:
//! - Commits of a machine reach the store in their order, and complete in that order.
//! - After a failed sync, a `Fatal` or a panic, no further answer is sent: the node stops.
//! - Bytes are read only while a session wants them, and the output of one session is bounded (`answer_budget`, write timeout).
//! - The node's identity is settled before anything is written (`node`, `cluster/startup_identity`).
//! - `config/schema` is the only list of keys, `metrics` the only list of figures; both write their documents.
//!
//! Reading order: `cli`, `config/schema`, `serve` (how a server is put together). Machines on tokio: `service`, `actor`, `router`. A connection:
//! `listen`, `crowd`, `handshakes`, `driver`, `transport`, `store_calls`, `answer_budget`, `registry`, `sessions`. Other nodes: `cluster/mod`,
//! `link_input`, `roster_store`, `startup_identity`, `relay`, `placing`, `status`. Then `metrics/mod`, `metrics/gather`; `node`, `admin`, `check`,
//! `transfer`, `demo`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod actor;
pub mod admin;
mod answer_budget;
pub mod check;
pub mod cli;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
mod crowd;
pub mod demo;
pub mod driver;
pub mod fuzz;
mod handshakes;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod node;
pub mod notify;
pub mod password;
pub mod registry;
pub mod router;
pub mod serve;
pub mod service;
pub mod sessions;
pub mod store_calls;
pub mod tls;
pub mod transfer;
pub mod transport;
pub mod waiting;
mod wrap;
