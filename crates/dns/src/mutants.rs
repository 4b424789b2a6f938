//! Rules broken on purpose, one at a time, to see the tests object. Without the feature `mutants` every rule holds and the switch compiles to nothing.

#[cfg(feature = "mutants")]
pub(crate) use whimbrel_crdt::mutants::broken;

/// Whether the rule is broken now: never, without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn broken(_name: &str) -> bool {
    false
}
