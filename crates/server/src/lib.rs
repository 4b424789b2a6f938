//! The binary `whimbrel`: config, sockets, TLS, clocks and threads around the machines of `service` and `frontend`.
//!
//! It decides nothing about mail. Reading order: [`cli`] (what can be asked of the program), [`config`], [`serve`] (how a
//! server is put together), [`service`] and [`actor`] (machines on tokio), [`switchboard`] (how they are reached), [`listen`],
//! [`driver`] and [`transport`] (a connection's life; what it may hold: `answers`; its TLS: `handshakes`), [`cluster`] (other nodes), [`admin`], [`check`], then the rest.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod actor;
pub mod admin;
mod answers;
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
pub mod serve;
pub mod service;
pub mod sessions;
pub mod store_calls;
pub mod switchboard;
pub mod tls;
pub mod transfer;
pub mod transport;
pub mod waiting;
