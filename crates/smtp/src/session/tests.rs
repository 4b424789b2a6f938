//! Transcripts against the machine, and what any client can do to it.

mod auth;
mod bad_inputs;
mod commands;
mod data;
mod extensions;
mod lmtp;
pub(crate) mod script;
mod splits;
mod starttls;
mod time;
