//! By which clock a machine stamps what it writes (docs/decisions/0039).
//!
//! Stamps decide which of two concurrent writes wins, and a batch from the future is held back elsewhere: so a node whose clock is wrong takes no
//! writes. What it has to write by itself (messages claimed again, entries of the queue that are finished) is stamped by the time at which the clock
//! was right last, gone on with the monotonic clock; if it never was, behind all that is known here.
//!
//! The node's driver says whether the clock is right ([`Clock`]), some time after it has become wrong. A jump is noticed here, before anything is stamped.

use whimbrel_crdt::mutants::broken;
use whimbrel_replication::clocks::JUMP_MICROS_MAX;

use crate::machine::Now;

/// What a machine is told of its node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It agrees with those of the other nodes, or nobody can be asked; so far is it ahead of the monotonic one.
    Right {
        /// In microseconds.
        ahead_micros: i64,
    },
    /// It does not, or it jumped and no other node has confirmed that.
    Wrong,
}

impl Clock {
    /// One that is right now.
    #[must_use]
    pub fn right(now: Now) -> Self {
        Clock::Right {
            ahead_micros: ahead(now),
        }
    }
}

fn ahead(now: Now) -> i64 {
    let ahead = i128::from(now.wall_micros) - i128::from(now.mono_micros);
    i64::try_from(ahead).unwrap_or(i64::MAX)
}

/// The clock of one machine. Until it is told of it, it is believed: a node that is alone is never told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    told: Option<Clock>,
    /// Both clocks when it was right last.
    right: Option<Now>,
}

impl Stamps {
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        if self.told.replace(clock).is_none() {
            // It was believed, and nobody knew.
            self.right = None;
        }
    }

    /// Whether the clock is right: writes are taken.
    pub(crate) fn is_right(&self, now: Now) -> bool {
        match self.told {
            None => true,
            Some(_) if broken("clock-unguarded") => true,
            Some(Clock::Right { ahead_micros }) => {
                ahead(now).abs_diff(ahead_micros) <= JUMP_MICROS_MAX
            }
            Some(Clock::Wrong) => false,
        }
    }

    /// Looks at it, before each input.
    pub(crate) fn look(&mut self, now: Now) {
        if self.is_right(now) {
            self.right = Some(now);
        }
    }

    /// The time for what this node writes.
    pub(crate) fn stamp(&self, now: Now) -> Now {
        let gone_on = |right: Now| {
            let since = now.mono_micros.saturating_sub(right.mono_micros);
            right.wall_micros.saturating_add(since)
        };
        Now {
            wall_micros: match self.is_right(now) {
                true => now.wall_micros,
                false => self.right.map_or(0, gone_on),
            },
            mono_micros: now.mono_micros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_not_looked_at() {
        let at = |wall: u64, mono: u64| Now {
            wall_micros: wall * 1_000_000,
            mono_micros: mono * 1_000_000,
        };
        let mut stamps = Stamps::default();
        // Nobody has said anything.
        assert!(stamps.is_right(at(7000, 1)));
        stamps.set_clock(Clock::right(at(1000, 0)));
        stamps.look(at(1010, 10));
        assert!(stamps.is_right(at(1010, 10)));
        // It is slewed.
        assert!(stamps.is_right(at(1024, 20)));
        // It jumps: noticed before the node's driver has said so, in both directions.
        for wall in [8000, 100] {
            assert!(!stamps.is_right(at(wall, 20)));
            assert_eq!(stamps.stamp(at(wall, 20)), at(1020, 20));
            stamps.look(at(wall, 20));
        }
        stamps.set_clock(Clock::Wrong);
        assert!(!stamps.is_right(at(1021, 21)));
        assert_eq!(stamps.stamp(at(1021, 21)), at(1021, 21));
        assert_eq!(stamps.stamp(at(5000, 22)), at(1022, 22));
        // It was right to jump.
        stamps.set_clock(Clock::right(at(8000, 22)));
        assert_eq!(stamps.stamp(at(8001, 23)), at(8001, 23));
        // One that was wrong when it was first looked at.
        let mut stamps = Stamps::default();
        stamps.look(at(9000, 1));
        stamps.set_clock(Clock::Wrong);
        assert_eq!(stamps.stamp(at(9001, 2)), at(0, 2));
    }
}
