//! The two clocks of the machines, and the way back from their deadlines to tokio's timers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use whimbrel_service::machine::Now;

/// Monotonic time counts from the making of this clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts counting.
    #[must_use]
    pub fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Reads both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now {
            wall_micros: wall_micros(),
            mono_micros: micros(self.origin.elapsed()),
        }
    }

    /// Both clocks, for machines that talk with other nodes.
    pub(crate) fn of_peers(&self) -> whimbrel_replication::Now {
        let now = self.now();
        whimbrel_replication::Now {
            wall_micros: now.wall_micros,
            mono_micros: now.mono_micros,
        }
    }

    /// The instant of a machine's deadline. A deadline beyond the range of timers never comes.
    #[must_use]
    pub fn instant(&self, mono_micros: u64) -> Instant {
        /// Timers of tokio end in about two years; nothing here waits longer than a week.
        const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let wanted = self.origin.checked_add(Duration::from_micros(mono_micros));
        let far = Instant::now() + FAR;
        wanted.map_or(far, |instant| instant.min(far))
    }
}

/// Microseconds since the epoch.
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    micros(since.unwrap_or_default())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Sleeps until the deadline of a machine, or for ever. A new deadline moves the one timer there is.
pub(crate) struct Alarm {
    sleep: std::pin::Pin<Box<tokio::time::Sleep>>,
    at: Option<u64>,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Alarm {
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            at: None,
        }
    }

    /// Sets the timer; cheap if nothing changes.
    pub(crate) fn set(&mut self, clock: &Clock, deadline: Option<u64>) {
        if self.at == deadline {
            return;
        }
        self.at = deadline;
        if let Some(at) = deadline {
            self.sleep.as_mut().reset(clock.instant(at));
        }
    }

    /// Completes once for each time it was set.
    pub(crate) async fn ring(&mut self) {
        if self.at.is_none() {
            return std::future::pending().await;
        }
        self.sleep.as_mut().await;
        // A machine that names the same past deadline again is called again: the timer has to be set anew.
        self.at = None;
    }
}
