//! What the server does, as state machines: authenticate, resolve, deliver, append, store, expunge.

pub mod admin;
pub mod api;
pub mod content;
pub mod machine;
