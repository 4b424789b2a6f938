//! The client against transcripts, against the server machine, and against servers that say anything.

mod ends;
mod messages;
mod opening;
mod script;
mod through;
