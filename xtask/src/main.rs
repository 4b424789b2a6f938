//! Chores of the project: `cargo xtask COMMAND`.
//!
//! It uses a few small crates without procedural macros, so that the first command in a fresh clone starts after some fifteen seconds.
//!
//! Reading order: [`test`] is what CI runs; [`programs`] builds test programs, [`jobs`] runs several at a time, [`step`] runs a command and counts;
//! [`imports`], [`purity`],
//! [`tidy`] with [`switches`], [`references`] and [`licenses`] are the checks of our own; [`proofs`] has Coq check the proofs; [`cargo_toml`]
//! reads what cargo says of the workspace; [`source`] reads Rust.

mod cargo_toml;
mod fuzz;
mod imports;
mod jobs;
mod licenses;
mod older;
mod packages;
mod programs;
mod proofs;
mod purity;
mod references;
mod source;
mod step;
mod switches;
mod test;
mod tidy;

use std::process::ExitCode;

use test::Tier;

const USAGE: &str = "usage: cargo xtask COMMAND

  test                     everything CI runs: installs what it needs, some 20 minutes on two cores
  test --fast              checks and tests without packages, clippy, simulator, end-to-end tests
  test --long              everything: all clients, all mutants, proofs, 5,000 clusters, fuzzers; over two hours
  imports                  which crate imports which, and purity
  purity                   that the pure crates are pure, alone
  tidy                     sizes and words that must not be in the tree
  references               that files, sections and decisions exist which texts refer to
  licenses                 licences, bans and sources of deny.toml, without cargo-deny
  proofs                   the proofs in proofs/, checked by Coq, see docs/proofs.md
  explore [NAME|--mutants] every order of events of a few nodes
  mutants [CRATE] [RULE...]
                           rules broken on purpose, each caught; whimbrel-sim: by the simulated clusters
  fuzz [TARGET] [--seconds N]
                           fuzzers with coverage guidance, see fuzz/README.md
  sim --seeds N | --seed S the simulator, clusters; further arguments are passed on (--node-seeds N, --first S)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let count = match words.as_slice() {
        ["test"] => test::run(Tier::Default),
        ["test", "--fast"] => test::run(Tier::Fast),
        ["test", "--long"] => test::run(Tier::Long),
        ["imports"] => {
            step::report("imports", imports::check()).plus(step::report("purity", purity::check()))
        }
        ["purity"] => step::report("purity", purity::check()),
        ["tidy"] => step::report("tidy", tidy::check()),
        ["references"] => step::report("references", references::check()),
        ["licenses"] => step::report("licenses", licenses::check()),
        ["proofs"] => proofs::run(),
        ["explore", rest @ ..] => proofs::explore(rest),
        ["mutants", rest @ ..] => test::mutants(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["sim", rest @ ..] => test::sim(rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    // The last word of `test`; the other commands end with that of what they ran.
    if words.first() == Some(&"test") {
        println!("{} passed, {} failed", count.passed, count.failed);
    }
    if count.failed == 0 && count.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
