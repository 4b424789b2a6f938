//! See [`whimbrel_bench::cli`].

use std::process::ExitCode;

use clap::Parser as _;
use whimbrel_bench::cli::{Cli, run};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whimbrel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
