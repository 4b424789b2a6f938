//! SMTP and LMTP sessions on the whole service: its machines on a model disk in virtual time.
mod bodies;
mod deliver;
mod durable;
mod faults;
mod hostile;
mod mailbox;
mod script;
mod sent;
mod split;
mod submit;
mod world;
