//! IMAP types, resumable parser, encoder and client machine: no I/O.
//!
//! Bytes go into a [`Decoder`] in any split, [`Event`]s come out; a session turns them into calls and writes its answers with the
//! functions of [`encode`] into a buffer. Nothing here reads a socket, a clock or a mailbox.
//!
//! Invariants:
//! - A value of a type in [`core`] or [`command`] is valid: it was checked when it was built.
//! - What a decoder holds is bounded by its [`Limits`] in every state, whatever was declared by the client.
//! - No byte is looked at more than a fixed number of times, however the input is split.
//!
//! Reading order: [`core`], [`command`] (one file a command, type and parser together), [`decode`], [`encode`], [`client`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod command;
pub mod core;
pub mod decode;
pub mod encode;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;

#[cfg(test)]
mod testing;

pub use command::{Command, CommandBody};
pub use decode::{
    AppendBegin, AppendLiteral, AppendMessage, Decoder, Event, Import, Replaced, SaslReply,
};
pub use limits::Limits;
