//! Numbers that rise, such as UIDNEXT, held against moments: answers may cross.

use std::collections::BTreeMap;

/// Numbers that never fall, with the moments in which they were told.
pub struct Monotonic<K>(BTreeMap<K, Vec<(u64, u64)>>);

impl<K> Default for Monotonic<K> {
    fn default() -> Self {
        Monotonic(BTreeMap::new())
    }
}

impl<K: Ord> Monotonic<K> {
    /// This was told in this moment.
    pub fn told(&mut self, key: K, moment: u64, value: u64) {
        let all = self.0.entry(key).or_default();
        if all.last().is_none_or(|(_, last)| *last < value) {
            all.push((moment, value));
        }
    }

    /// The greatest that had been told by then: who asked later is told no less.
    pub fn as_of(&self, key: &K, moment: u64) -> u64 {
        let all = self.0.get(key).map_or(&[][..], Vec::as_slice);
        let by_then = all.partition_point(|(at, _)| *at <= moment);
        by_then.checked_sub(1).map_or(0, |last| all[last].1)
    }

    /// Forgets what was told of others.
    pub fn retain(&mut self, mut of: impl FnMut(&K) -> bool) {
        self.0.retain(|key, _| of(key));
    }
}
