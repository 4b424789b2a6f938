//! Counts how many messages are looked at, so that a test can say what an operation costs without a clock.
//!
//! Without the feature `steps` it compiles to nothing.

#[cfg(feature = "steps")]
mod counter {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// So many were looked at.
    pub(crate) fn count(steps: usize) {
        STEPS.set(STEPS.get() + steps as u64);
    }

    /// How many were looked at on the current thread since the last call.
    pub fn take() -> u64 {
        STEPS.replace(0)
    }
}

#[cfg(feature = "steps")]
pub(crate) use counter::count;
#[cfg(feature = "steps")]
pub use counter::take;

/// So many were looked at.
#[cfg(not(feature = "steps"))]
#[inline(always)]
pub(crate) const fn count(_steps: usize) {}
