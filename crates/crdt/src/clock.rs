//! Hybrid logical clocks (Kulkarni et al., "Logical Physical Clocks", 2014) in one number.

use minicbor::{Decode, Encode};

use crate::Incarnation;

/// A time stamp: totally ordered, and later than every stamp its maker had seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Stamp {
    /// Microseconds since the epoch, run ahead where needed.
    #[n(0)]
    pub hlc: u64,
    /// Breaks ties.
    #[n(1)]
    pub origin: Incarnation,
}

/// The clock of one origin: one number, in microseconds since the epoch, that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hlc(u64);

impl Hlc {
    /// A clock that goes on from the greatest stamp of a log.
    pub const fn restore(greatest: u64) -> Self {
        Self(greatest)
    }

    /// The greatest time given or observed.
    pub const fn last(self) -> u64 {
        self.0
    }

    /// The time of the next operation: `max(last + 1, wall)`.
    pub fn tick(&mut self, wall_micros: u64) -> u64 {
        self.0 = self.0.saturating_add(1).max(wall_micros);
        self.0
    }

    /// The time of the first of `count` operations that follow each other by one: all of them are used up.
    pub fn tick_many(&mut self, wall_micros: u64, count: u32) -> u64 {
        let first = self.tick(wall_micros);
        self.0 = first.saturating_add(u64::from(count.saturating_sub(1)));
        first
    }

    /// A stamp of another origin was seen: what is made from now on is later.
    pub fn observe(&mut self, foreign: u64) {
        self.0 = self.0.max(foreign);
    }
}
