//! The words of the protocol, each as a type that cannot hold an invalid value.
//!
//! Reading order: [`Tag`], [`SequenceSet`], [`MailboxName`] (with [`utf7`]), [`Flag`], [`Date`] and [`DateTime`], [`ObjectId`], [`PartialRange`], [`Secret`].

mod date;
mod flag;
pub(crate) mod mailbox;
mod object_id;
mod partial;
mod secret;
pub(crate) mod set;
mod tag;
pub mod utf7;

pub use date::{Date, DateTime};
pub use flag::{Flag, Keyword, StoreOperation};
pub use mailbox::{InvalidName, MailboxName};
pub use object_id::ObjectId;
pub use partial::PartialRange;
pub use secret::Secret;
pub use set::{MessageSet, SequenceSet, SetBuilder, SetError};
pub use tag::Tag;

/// A modification sequence (RFC 7162, section 3): 63 bits, 0 only where the syntax allows it.
pub type ModSeq = u64;

/// Whether `byte` may stand in an atom (RFC 9051, `ATOM-CHAR`).
pub fn is_atom_char(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e)
        && !matches!(byte, b'(' | b')' | b'{' | b'%' | b'*' | b'"' | b'\\' | b']')
}

/// Whether `byte` may stand in an unquoted astring (RFC 9051, `ASTRING-CHAR`).
pub fn is_astring_char(byte: u8) -> bool {
    is_atom_char(byte) || byte == b']'
}
