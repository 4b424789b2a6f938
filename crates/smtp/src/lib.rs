//! SMTP and LMTP: types, strict codec, server session machine and client machine. No I/O.
//!
//! The crate knows the protocol and nothing else: not who exists, not where mail is kept, not what time it is. A
//! [`Session`](session::Session) takes bytes in any split together with the time, and gives bytes to send and questions to its
//! owner; the owner answers by method calls.
//!
//! Invariants:
//! - Only `<CRLF>` ends a command line and only `<CRLF>.<CRLF>` ends DATA. A bare CR or LF is refused, never converted.
//! - A value of a type of this crate is valid: no [`Mailbox`], [`Reply`] or header built here can hold CR, LF or NUL.
//! - Memory is bounded by [`Limits`]: no declared size allocates, no line is buffered beyond its limit, bodies stream.
//!
//! Reading order: [`limits`], [`address`], [`reply`], [`dsn`], [`command`], [`text`] (line ends and dots), [`session`], [`trace`],
//! [`client`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
pub mod client;
pub mod command;
pub mod dsn;
#[doc(hidden)]
pub mod fuzz;
pub mod header_watch;
pub mod limits;
pub mod reply;
pub mod session;
pub mod text;
pub mod trace;

pub use address::{Domain, ForwardPath, HostName, LocalPart, Mailbox, ReversePath};
pub use header_watch::HeaderWatch;
pub use limits::Limits;
pub use reply::{Enhanced, Refusal, Reply};
pub use session::{Config, Output, Role, Session};

/// Monotonic time since an origin that the owner of a machine chooses and keeps. It never goes back.
pub type Time = core::time::Duration;
