//! Protocol sessions as state machines: protocol events to service calls to responses.

pub mod imap;
pub mod pop3;
pub mod sasl;
pub mod session;
pub mod smtp;
