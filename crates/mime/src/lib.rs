//! What IMAP asks of a message: envelope, body structure, sections and searchable text, all streaming.
//!
//! A message is pushed through [`Parser`] in chunks of any size and is never whole in memory; what is left of it is a
//! [`Summary`] of bounded size. Everything that IMAP asks later is answered from the summary ([`Summary::header_fields`],
//! the envelope and the part tree) or by reading exactly the byte ranges it names ([`section`], [`search`]).
//!
//! Invariants:
//! - Lines end in LF or CRLF, also mixed; offsets and sizes are those of the bytes as they are, nothing is rewritten.
//! - How the message is cut into chunks changes nothing.
//! - No message is refused: beyond a limit ([`Limits`]) the parse goes on and knows less.
//! - Work is linear in the size of the message and memory is bounded by [`Limits`], whatever the message holds.
//!
//! Reading order: [`limits`], [`summary`], [`parser`], [`section`], [`header`], [`search`], [`preview`]; for SORT and THREAD [`subject`],
//! [`message_id`], [`collation`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod charset;
pub mod collation;
pub mod date;
#[doc(hidden)]
pub mod fuzz;
pub mod header;
mod html;
pub mod limits;
pub mod message_id;
pub mod parser;
mod prefix;
pub mod preview;
pub mod search;
pub mod section;
pub mod subject;
pub mod summary;
pub mod transfer;

pub use limits::Limits;
pub use parser::Parser;
pub use section::{HeaderFilter, Resolved, SectionText};
pub use summary::{
    Address, Content, DecodeError, Disposition, Envelope, Field, Fields, FirstAddress, Message,
    Octets, Param, Part, SortKeys, Span, Summary, View, Wanted,
};
