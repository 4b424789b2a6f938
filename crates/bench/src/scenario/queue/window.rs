//! The time in which an experiment is measured, the same for every contestant.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Experiment, Load};
use crate::{
    error::{Result, wrong},
    lag::way::Ways,
    report::Figure,
};

/// What clients and whoever measures them tell each other.
#[derive(Default)]
pub(super) struct Flags {
    /// Messages that are done.
    pub(super) done: AtomicU64,
    /// Times are kept.
    pub(super) measuring: AtomicBool,
    /// Nothing new is put.
    pub(super) stopped: AtomicBool,
    /// Somebody has failed: it makes no sense to go on.
    pub(super) failed: AtomicBool,
}

impl Flags {
    pub(super) fn are(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed)
    }
}

/// Measures while clients run in threads of their own, then stops them. Gives also what they have seen.
pub(super) fn of_clients<S>(
    load: &Load,
    ways: &Ways,
    flags: &Flags,
    cpu: &dyn Fn() -> f64,
    clients: Vec<thread::ScopedJoinHandle<'_, Result<S>>>,
) -> Result<(Experiment, Vec<S>)> {
    let made = measured(
        load,
        ways,
        &Looks {
            done: &|| flags.done.load(Ordering::Relaxed),
            cpu,
            measure: &|on| flags.measuring.store(on, Ordering::Relaxed),
            failed: &|| Flags::are(&flags.failed),
        },
    );
    flags.stopped.store(true, Ordering::Relaxed);
    let seen = clients.into_iter().map(|client| match client.join() {
        Ok(seen) => seen,
        Err(_) => wrong("a thread panicked"),
    });
    // All are waited for, whatever one of them says.
    let seen: Vec<Result<S>> = seen.collect();
    let seen: Vec<S> = seen.into_iter().collect::<Result<_>>()?;
    Ok((made?, seen))
}

/// What is looked at before and after.
pub(super) struct Looks<'a> {
    /// Messages that are done.
    pub(super) done: &'a dyn Fn() -> u64,
    /// CPU of all nodes in seconds.
    pub(super) cpu: &'a dyn Fn() -> f64,
    /// Times are to be kept, or not any more.
    pub(super) measure: &'a dyn Fn(bool),
    /// Somebody has failed.
    pub(super) failed: &'a dyn Fn() -> bool,
}

/// Lets the load warm up, then measures it. After a failure what it gives means nothing.
pub(super) fn measured(load: &Load, ways: &Ways, looks: &Looks<'_>) -> Result<Experiment> {
    thread::sleep(load.warm_up());
    (looks.measure)(true);
    let (began, cpu_before) = (Instant::now(), (looks.cpu)());
    let carried_before = ways.carried_bytes();
    let done_before = (looks.done)();
    let mut done = done_before;
    let mut rates = Vec::new();
    while began.elapsed() < load.time && !(looks.failed)() {
        let at = Instant::now();
        let left = load.time.saturating_sub(began.elapsed());
        thread::sleep(left.min(Duration::from_secs(1)));
        let now = (looks.done)();
        rates.push((now - done) as f64 / at.elapsed().as_secs_f64());
        done = now;
    }
    let cpu = ((looks.cpu)() - cpu_before).max(0.0);
    let seconds = began.elapsed().as_secs_f64();
    let carried = ways.carried_bytes() - carried_before;
    (looks.measure)(false);
    let messages = done - done_before;
    if messages == 0 && !(looks.failed)() {
        return wrong("no message was done");
    }
    let count = messages.max(1) as f64;
    Ok(Experiment {
        rate: Figure::of(rates).map_or(0.0, |rate| rate.median),
        messages,
        cpu_ms: cpu * 1e3 / count,
        busy: cpu / seconds,
        wire_bytes: (carried > 0).then(|| carried as f64 / count),
        ..Experiment::of(load)
    })
}
