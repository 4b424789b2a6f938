//! `whimbrel`: see [`whimbrel_server::cli`].

use std::process::ExitCode;

use clap::Parser as _;
use whimbrel_server::cli::{Cli, run};

/// Thousands of small, short-lived buffers on all threads: the system's allocator keeps much more of them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse())
}
