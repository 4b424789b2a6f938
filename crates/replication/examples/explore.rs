//! Looks at every order of events of a few nodes, within the bounds of `explore::LARGE`: some minutes on two cores.
//!
//! `cargo xtask explore [NAME]`; with `--mutants` the rules that hold are broken, one after the other, to see that some order of events shows each.

#[cfg(feature = "mutants")]
#[path = "../../crdt/mutants/harness.rs"]
mod harness;
#[path = "../tests/world/mod.rs"]
mod world;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

#[cfg(feature = "mutants")]
use world::explore::{BROKEN, SMALL};
use world::explore::{LARGE, search};

/// There are fewer within all bounds.
const STATES_MAX: u64 = 1_000_000;

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    #[cfg(feature = "mutants")]
    if part == "--mutants" {
        return ExitCode::from(u8::from(!harness::run(BROKEN, 0, object)));
    }
    let all = LARGE.iter().filter(|bounds| bounds.name.contains(&part));
    let all: Vec<_> = all.collect();
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let look = || {
        let (mut states, mut violations) = (0, 0);
        while let Some(bounds) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            match search(bounds, STATES_MAX) {
                Ok(figures) => {
                    println!("{}: {figures:?} {:.1?}", bounds.name, begun.elapsed());
                    states += figures.states;
                    violations += u64::from(!figures.whole);
                }
                Err(found) => {
                    println!("{}: {found:#?}", bounds.name);
                    violations += 1;
                }
            }
        }
        (states, violations)
    };
    // Two cores.
    let [one, other] = std::thread::scope(|scope| {
        let threads = [scope.spawn(look), scope.spawn(look)];
        threads.map(|thread| thread.join().unwrap_or((0, 1)))
    });
    let (states, violations) = (one.0 + other.0, one.1 + other.1);
    println!(
        "explore: bounds={} violations={violations} states={states} seconds={}",
        all.len(),
        begun.elapsed().as_secs()
    );
    ExitCode::from(u8::from(violations > 0))
}

/// What shows that a rule is broken.
#[cfg(feature = "mutants")]
fn object(_: u64) -> Option<String> {
    /// Enough for each of them.
    const STATES_MAX: u64 = 100_000;
    let mut states = 0;
    for bounds in SMALL.iter().chain(LARGE) {
        let name = bounds.name;
        match std::panic::catch_unwind(|| search(bounds, STATES_MAX)) {
            Ok(Ok(figures)) => states += figures.states,
            Ok(Err(found)) => {
                states += found.states;
                let (what, trail) = (found.what, found.trail);
                return Some(format!(
                    "by \"{name}\" after {states} states: {trail:?} ({what})"
                ));
            }
            Err(_) => return Some(format!("by \"{name}\" (panic)")),
        }
    }
    None
}
