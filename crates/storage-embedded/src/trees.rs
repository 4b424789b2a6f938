//! The four trees of a store.

use fjall::Keyspace;

/// Trees that a write may touch.
pub(crate) const TREES: usize = 4;
/// In the order in which they are made.
pub(crate) const TREE_NAMES: [&str; TREES] = ["log", "records", "blobs", "meta"];

/// The four trees.
#[derive(Clone)]
pub(crate) struct Trees {
    pub(crate) log: Keyspace,
    pub(crate) records: Keyspace,
    pub(crate) blobs: Keyspace,
    pub(crate) meta: Keyspace,
}

impl Trees {
    /// In the order of [`TREE_NAMES`].
    pub(crate) fn all(&self) -> [&Keyspace; TREES] {
        [&self.log, &self.records, &self.blobs, &self.meta]
    }
}

/// Index into [`TREE_NAMES`], and whatever else has a value for each tree.
#[derive(Clone, Copy)]
pub(crate) enum Tree {
    Log = 0,
    Records = 1,
    Blobs = 2,
    Meta = 3,
}
