//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::unwrap_used, missing_docs)]

mod client;
mod decoder;
mod hostile_server;
mod reference;
mod structure;
mod transcripts;
