//! The tests of the crate as its users meet it, in one program: a test binary for each file would be linked for each file.

#![allow(clippy::unwrap_used)]

mod queue;
mod whimbrel;
