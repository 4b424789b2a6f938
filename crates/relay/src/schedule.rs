//! When an entry is attempted, given up, and when its sender is told that it is late.
//!
//! Everything follows from the *age* of the entry, its id, and the configuration. There is no counter of attempts: a counter that is lost with a node
//! begins anew at the next one, and mail is retried for ever. Whoever adopts an entry knows its age, and goes on where it is.
//!
//! The moments of an entry are a fixed row of ages. The first is its release, then each follows the one before by the next of [`Config::waits`], then
//! by [`Config::repeat`] without end. All waits of one entry are longer or shorter by the same share, up to [`Config::jitter_percent`]: so entries
//! that were accepted together drift apart. An attempt that begins late is followed by the next moment that is at least half a wait away.
//!
//! Invariants: the next attempt never comes earlier when the age is greater; it lies at least half a wait ahead; an entry that is found overdue is
//! attempted once before it is given up.

use core::time::Duration;

use crate::{draw::Draw, mutants::broken};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits in a [`Config`]: more of them would only describe `repeat`.
pub const WAITS_MAX: usize = 32;
/// A shorter wait is none.
pub const WAIT_MIN: Duration = Duration::from_secs(1);
/// No duration of a [`Config`] is longer: so no sum of them overflows.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// With more, moments of one entry would come near each other.
pub const JITTER_PERCENT_MAX: u32 = 50;

/// The times of a [`Schedule`]. The default is what a server on the open Internet wants (RFC 5321 4.5.4.1: "the give-up time generally needs to be at
/// least 4-5 days").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// From the first attempt to the second, and so on; at most [`WAITS_MAX`].
    pub waits: Vec<Duration>,
    /// The wait after all these.
    pub repeat: Duration,
    /// By how much the waits of an entry are longer or shorter, at most.
    pub jitter_percent: u32,
    /// Age at which an entry is given up.
    pub expiry: Duration,
    /// The same for notifications: a null sender waits for no answer, and each of them is one more message at a host that takes none.
    pub expiry_null_sender: Duration,
    /// Age at which the sender is told that an entry is late.
    pub late: Duration,
    /// Wait at least so long after a connection that was lost behind the final dot: the server may have the message, and may still be busy with it. Others
    /// took 60 seconds, and their users had up to five copies.
    pub lost_wait: Duration,
    /// Entries that are found overdue are spread over so long.
    pub catch_up: Duration,
    /// How long an entry may be held back for its sender (FUTURERELEASE, RFC 4865).
    pub hold_max: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            waits: [5, 10, 20, 40, 60].map(|minutes| MINUTE * minutes).to_vec(),
            repeat: 2 * HOUR,
            jitter_percent: 10,
            expiry: 5 * DAY,
            expiry_null_sender: DAY,
            late: 4 * HOUR,
            lost_wait: 15 * MINUTE,
            catch_up: 10 * MINUTE,
            hold_max: 60 * DAY,
        }
    }
}

/// Why a [`Config`] is none, or a hold is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// More than [`WAITS_MAX`].
    #[error("more than {WAITS_MAX} waits")]
    TooManyWaits,
    /// Below [`WAIT_MIN`].
    #[error("a wait is shorter than a second")]
    TooShort,
    /// Above [`DURATION_MAX`].
    #[error("a time is longer than 366 days")]
    TooLong,
    /// Above [`JITTER_PERCENT_MAX`].
    #[error("jitter is more than {JITTER_PERCENT_MAX} %")]
    Jitter,
    /// Above [`Config::hold_max`].
    #[error("held back for too long")]
    Hold,
}

/// What the schedule needs to know of an entry. All of it is in the entry itself, or in its progress, which nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Its id: the source of its jitter.
    pub id: [u8; 16],
    /// It is a notification.
    pub null_sender: bool,
    /// Age before which it is not sent, from [`Schedule::hold`]; zero for most.
    pub hold: Duration,
    /// Age at which a connection was last lost behind the final dot.
    pub lost: Option<Duration>,
}

/// What comes next for an entry, and at which age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// An attempt.
    Attempt(Duration),
    /// It is given up: what is left fails.
    Expire(Duration),
}

impl Next {
    /// The age.
    #[must_use]
    pub fn age(self) -> Duration {
        match self {
            Next::Attempt(age) | Next::Expire(age) => age,
        }
    }
}

/// A [`Config`] that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    config: Config,
}

impl Schedule {
    /// Checks the configuration.
    ///
    /// # Errors
    /// When a time or a number is beyond its limit.
    pub fn new(config: Config) -> Result<Schedule, ScheduleError> {
        if config.waits.len() > WAITS_MAX {
            return Err(ScheduleError::TooManyWaits);
        }
        if config.jitter_percent > JITTER_PERCENT_MAX {
            return Err(ScheduleError::Jitter);
        }
        if config.waits.iter().any(|wait| *wait < WAIT_MIN) || config.repeat < WAIT_MIN {
            return Err(ScheduleError::TooShort);
        }
        let others = [
            config.repeat,
            config.expiry,
            config.expiry_null_sender,
            config.late,
            config.lost_wait,
            config.catch_up,
            config.hold_max,
        ];
        if config
            .waits
            .iter()
            .chain(&others)
            .any(|time| *time > DURATION_MAX)
        {
            return Err(ScheduleError::TooLong);
        }
        Ok(Schedule { config })
    }

    /// The hold that a sender asks for, if it is allowed (RFC 4865 4: HOLDFOR, and HOLDUNTIL less the time of acceptance).
    ///
    /// # Errors
    /// [`ScheduleError::Hold`] above [`Config::hold_max`].
    pub fn hold(&self, wanted: Duration) -> Result<Duration, ScheduleError> {
        if wanted > self.config.hold_max {
            return Err(ScheduleError::Hold);
        }
        Ok(wanted)
    }

    /// The age of the first attempt of an entry that was just accepted.
    #[must_use]
    pub fn first(&self, entry: &Timed) -> Duration {
        entry.hold
    }

    /// What follows an attempt at this age that left something to do.
    #[must_use]
    pub fn next(&self, entry: &Timed, age: Duration) -> Next {
        let expiry = self.expiry(entry);
        let next = self.not_after_lost(entry, self.moment_after(entry, age));
        if next < expiry {
            Next::Attempt(next)
        } else {
            Next::Expire(expiry.max(age))
        }
    }

    /// What comes next for an entry that this node finds at a start, or adopts, at this age. Whether an attempt is overdue is unknown, so one follows
    /// soon: within [`Config::catch_up`], and within as long again as the entry has waited already. Where in that time is the entry's own, so that a
    /// node that was down does not begin with all entries at once.
    ///
    /// An entry that expired while nobody was there to attempt it has one attempt left.
    #[must_use]
    pub fn found(&self, entry: &Timed, age: Duration) -> Next {
        if age < entry.hold {
            return Next::Attempt(entry.hold);
        }
        let expiry = self.expiry(entry);
        if age >= expiry && broken("expired-untried") {
            return Next::Expire(age);
        }
        let window = self.config.catch_up.min(age - entry.hold);
        let window = if broken("overdue-at-once") {
            Duration::ZERO
        } else {
            window
        };
        let share = Draw::new(&entry.id, 2).below(SHARES);
        let soon = age + window.mul_div(share, SHARES);
        let next = self.moment_after(entry, age).min(soon);
        Next::Attempt(self.not_after_lost(entry, next))
    }

    /// The age at which an entry is given up. It counts from the release of an entry that was held back.
    #[must_use]
    pub fn expiry(&self, entry: &Timed) -> Duration {
        let expiry = match entry.null_sender {
            true => self.config.expiry_null_sender,
            false => self.config.expiry,
        };
        entry.hold + expiry
    }

    /// The age from which the sender is to be told once that the entry is late (RFC 3461 5.2.5); `None`: never, because there is nobody to be told, or
    /// the entry is given up before.
    #[must_use]
    pub fn late(&self, entry: &Timed) -> Option<Duration> {
        let late = entry.hold + self.config.late;
        (!entry.null_sender && late < self.expiry(entry)).then_some(late)
    }

    /// Whether the sender is to be told now. `told`: it was, by this node or another; that belongs to the entry's progress.
    #[must_use]
    pub fn is_late(&self, entry: &Timed, age: Duration, told: bool) -> bool {
        let told = told && !broken("late-told-again");
        !told
            && self
                .late(entry)
                .is_some_and(|late| (late..self.expiry(entry)).contains(&age))
    }

    /// The first moment that follows an attempt at this age at a distance of half a wait or more.
    fn moment_after(&self, entry: &Timed, age: Duration) -> Duration {
        let age = age.saturating_sub(entry.hold);
        let mut moment = Duration::ZERO;
        for wait in &self.config.waits {
            let wait = self.scaled(entry, *wait);
            if age <= moment + wait / 2 {
                return entry.hold + moment + wait;
            }
            moment += wait;
        }
        let wait = self.scaled(entry, self.config.repeat).as_nanos();
        // As above, for any number of further waits at once: the entry may be years old.
        let beyond = age.saturating_sub(moment).as_nanos();
        let count = (beyond + wait / 2).div_ceil(wait).max(1);
        entry.hold + moment + nanos(count * wait)
    }

    fn not_after_lost(&self, entry: &Timed, next: Duration) -> Duration {
        match entry.lost {
            Some(lost) if !broken("lost-at-once") => next.max(lost + self.config.lost_wait),
            _ => next,
        }
    }

    /// A wait, longer or shorter by the entry's own share.
    fn scaled(&self, entry: &Timed, wait: Duration) -> Duration {
        if broken("no-jitter") {
            return wait;
        }
        // Millionths: 1,000,000 less the jitter, and up to twice the jitter more.
        let jitter = u64::from(self.config.jitter_percent) * 10_000;
        let share = 1_000_000 - jitter + Draw::new(&entry.id, 1).below(2 * jitter + 1);
        wait.mul_div(share, 1_000_000)
    }
}

/// Parts of the time over which overdue entries are spread.
const SHARES: u64 = 1 << 32;

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

trait MulDiv {
    fn mul_div(self, by: u64, of: u64) -> Duration;
}

impl MulDiv for Duration {
    /// `self * by / of`, in whole nanoseconds.
    fn mul_div(self, by: u64, of: u64) -> Duration {
        nanos(self.as_nanos() * u128::from(by) / u128::from(of))
    }
}
