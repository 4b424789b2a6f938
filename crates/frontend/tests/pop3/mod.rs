//! POP3 sessions on the service's machines: scripts, and what scripts cannot say.
mod limits;
mod login;
mod maildrop;
mod messages;
mod random;
mod script;
mod world;
