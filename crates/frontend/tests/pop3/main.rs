//! POP3 sessions on the service's machines: scripts, and what scripts cannot say.
#![allow(clippy::unwrap_used, missing_docs)]

mod limits;
mod login;
mod maildrop;
mod messages;
mod random;
mod script;
mod world;
