//! Protocol sessions as state machines: one machine a connection, from the bytes of a client to calls of the service, and back.
//!
//! Purpose: what IMAP, POP3, SMTP and LMTP clients are told. The codecs of `imap`, `pop3` and `smtp` read and write; `service` knows the mail.
//! Nothing here has a socket, a clock or a thread: `server::driver` carries out each `session::Action`, and simulated clusters carry out those of IMAP.
//!
//! Invariants:
//! - A session has at most one call under way.
//! - Output is made only when it is polled for, one chunk at a time: who does not read holds no more than that.
//! - While a command runs no input is read, so pipelined commands wait in the socket.
//! - Nothing that came in the clear before TLS is acted upon after it, and no password is taken in the clear.
//! - IMAP sequence numbers change only where EXPUNGE and EXISTS are written; POP3 message numbers never change.
//! - No session sees an operation: what it knows of mail is in the terms of `service::api`.
//!
//! Reading order: `session` (actions, events, handover), `sasl`; `imap/mod`, `imap/task`, `imap/context`, `imap/dispatch`, `imap/view`, `imap/sync`.
//! Then a file a command (`append/`, `fetch/`, `list`, `search/`); `pop3/mod`, `pop3/maildrop`; `smtp`, then `smtp/`.
//! To add a command: CONTRIBUTING.md.

pub mod imap;
pub mod pop3;
pub mod sasl;
pub mod session;
pub mod smtp;
