//! What the fuzzers try, one module a target: any bytes, and laws that must hold. The seeds in `corpus/` are tried by an ordinary test, too
//! (`crates/server/tests/corpus.rs`), which takes this file as one of its modules.

pub mod control;
pub mod encodings;
pub mod imap_client;
pub mod imap_decoder;
pub mod imap_session;
pub mod mime;
pub mod pop3;
pub mod sasl;
pub mod smtp_session;
pub mod transfer;

/// A target's name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("control", control::run),
    ("encodings", encodings::run),
    ("imap_client", imap_client::run),
    ("imap_decoder", imap_decoder::run),
    ("imap_session", imap_session::run),
    ("mime", mime::run),
    ("pop3", pop3::run),
    ("sasl", sasl::run),
    ("smtp_session", smtp_session::run),
    ("transfer", transfer::run),
];
