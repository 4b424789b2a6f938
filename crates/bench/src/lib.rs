//! `whimbrel-bench`: loads over real sockets against any mail server, with reports; and Whimbrel beside Dovecot.
//!
//! It knows nothing of the product, but for the queue, which it measures as a library ([`scenario::queue`]). Its clients are its own, lean, because
//! they share the machine with what they measure. They check every answer, because a server that does less than it is asked for is fast.
//!
//! Reading order: [`cli`] (what can be asked), [`scenario`] (the loads), [`measure`] and [`process`] (what is counted), [`report`],
//! [`compare`] and [`servers`], [`lag`] (several nodes); then the clients ([`wire`], [`imap`], [`smtp`], [`pop3`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod compare;
pub mod disk;
pub mod error;
pub mod facts;
pub mod imap;
pub mod lag;
pub mod mail;
pub mod measure;
pub mod pop3;
pub mod process;
pub mod progress;
pub mod random;
pub mod report;
pub mod scenario;
pub mod series;
pub mod servers;
pub mod smtp;
pub mod strace;
pub mod target;
pub mod wire;
