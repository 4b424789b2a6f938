//! Memory and CPU of the server over time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::process::Tree;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// A curve.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// The scenario.
    pub name: String,
    /// The server.
    pub label: String,
    /// Seconds, MiB (PSS), percent of one core.
    pub points: Vec<(f64, f64, f64)>,
    /// What began when.
    pub marks: Vec<(f64, String)>,
}

impl Series {
    /// The greatest memory, in MiB.
    #[must_use]
    pub fn peak_mib(&self) -> f64 {
        self.points
            .iter()
            .fold(0.0, |peak, point| peak.max(point.1))
    }
}

/// Looks again and again, on a thread of its own.
pub struct Sampler {
    started: Instant,
    stop: Arc<AtomicBool>,
    marks: Mutex<Vec<(f64, String)>>,
    thread: JoinHandle<Vec<(f64, f64, f64)>>,
}

impl Sampler {
    /// Begins.
    #[must_use]
    pub fn start(tree: Tree) -> Sampler {
        let started = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut points = Vec::new();
            let (mut before, mut at) = (tree.cpu_seconds(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                let (cpu, now) = (tree.cpu_seconds(), Instant::now());
                let percent = (cpu - before).max(0.0) * 100.0 / (now - at).as_secs_f64();
                points.push((
                    started.elapsed().as_secs_f64(),
                    tree.pss_kib() as f64 / 1024.0,
                    percent,
                ));
                (before, at) = (cpu, now);
            }
            points
        });
        Sampler {
            started,
            stop,
            marks: Mutex::new(Vec::new()),
            thread,
        }
    }

    /// Something begins.
    pub fn mark(&self, what: &str) {
        if let Ok(mut marks) = self.marks.lock() {
            marks.push((self.started.elapsed().as_secs_f64(), what.to_owned()));
        }
    }

    /// Ends.
    #[must_use]
    pub fn end(self, name: &str, label: &str) -> Series {
        self.stop.store(true, Ordering::Relaxed);
        Series {
            name: name.to_owned(),
            label: label.to_owned(),
            points: self.thread.join().unwrap_or_default(),
            marks: self.marks.into_inner().unwrap_or_default(),
        }
    }
}
