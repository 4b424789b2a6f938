//! POP3 types, resumable parser and reply encoder: no I/O (RFC 1939, 2449, 2595, 5034, 6856).
//!
//! Bytes go into a [`Decoder`] in any split, [`Event`]s come out; a session writes its answers with the functions of [`encode`] into a
//! buffer, and messages through a [`Body`], which stuffs dots and counts the lines of TOP.
//!
//! Invariants:
//! - A value of a type in [`command`] is valid: it was checked when it was built.
//! - What a decoder holds is bounded by its [`Limits`] and by what was pushed at once, and is overwritten when it was read: passwords
//!   come as lines.
//! - No line of an answer can end another one early: what the encoder is given holds no line end, and every line of a message that begins
//!   with a dot gets a second one.
//!
//! Reading order: [`limits`], [`command`], [`decode`], [`encode`], [`body`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod body;
pub mod command;
pub mod decode;
pub mod encode;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
mod secret;

pub use body::Body;
pub use command::{Command, CommandError};
pub use decode::{Decoder, Event, SaslReply};
pub use limits::Limits;
pub use secret::Secret;
