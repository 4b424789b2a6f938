//! Rules broken on purpose, one at a time, to see the property tests object.
//!
//! Without the feature `mutants` every rule holds and the switch compiles to nothing.

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Breaks the rule of this name on the current thread; `None` mends all.
    pub fn break_rule(name: Option<&'static str>) {
        BROKEN.set(name);
    }

    /// Whether the rule is broken now.
    pub fn broken(name: &str) -> bool {
        BROKEN.get() == Some(name)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{break_rule, broken};

/// Whether the rule is broken now: never, without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn broken(_name: &str) -> bool {
    false
}
