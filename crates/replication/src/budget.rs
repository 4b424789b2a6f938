//! One budget over the windows of all peers and partitions of a node.
//!
//! Purpose: a window of 1 MiB for each pair of peer and partition is more than a node with many of both has. So each begins small; one that is used grows
//! while there is room, one that is not shrinks. The driver tells [`crate::partition::Partition::set_window`] what changed.
//!
//! Invariant: all windows together are within the budget, unless there are more of them than it has smallest windows.

use std::collections::BTreeMap;

use crate::broken;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of all windows.
    pub total_bytes_max: u64,
    /// Bytes of the smallest window: batches of usual size, some at a time. A larger one always passes, alone.
    pub window_bytes_min: u64,
    /// Bytes of the greatest: more makes no link faster.
    pub window_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            total_bytes_max: 64 << 20,
            window_bytes_min: 16 << 10,
            window_bytes_max: 1 << 20,
        }
    }
}

struct Window {
    bytes: u64,
    /// The most that was used of it since the last division.
    used: u64,
}

/// The windows, by whatever names them.
pub struct Budget<K> {
    config: Config,
    windows: BTreeMap<K, Window>,
}

impl<K: Ord + Copy> Budget<K> {
    /// No windows.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            windows: BTreeMap::new(),
        }
    }

    /// New windows: what changed, themselves included.
    pub fn open(&mut self, keys: impl IntoIterator<Item = K>) -> Vec<(K, u64)> {
        let mut before = self.bytes();
        for key in keys {
            let window = Window {
                bytes: self.config.window_bytes_min,
                used: 0,
            };
            self.windows.insert(key, window);
            before.remove(&key);
        }
        self.fit();
        self.changes(&before)
    }

    /// All others are gone.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.windows.retain(|key, _| keep(key));
    }

    /// So much of it was in use at one moment.
    pub fn used(&mut self, key: K, bytes: u64) {
        if let Some(window) = self.windows.get_mut(&key) {
            window.used = window.used.max(bytes);
        }
    }

    /// From time to time, a second or so: takes from who uses less than a quarter, gives to who uses more than half, the smallest first. What changed.
    pub fn divide(&mut self) -> Vec<(K, u64)> {
        let before = self.bytes();
        let (min, max) = (self.config.window_bytes_min, self.config.window_bytes_max);
        for window in self.windows.values_mut() {
            if window.used < window.bytes / 4 && !broken("window-never-smaller") {
                window.bytes = (window.bytes / 2).max(min);
            }
        }
        let mut free = self.free();
        let busy = self.windows.values_mut().filter(|w| w.used > w.bytes / 2);
        let mut busy: Vec<&mut Window> = busy.collect();
        busy.sort_by_key(|window| window.bytes);
        for window in busy {
            let more = window.bytes.min(max - window.bytes.min(max));
            let more = if broken("budget-exceeded") {
                more
            } else {
                more.min(free)
            };
            window.bytes += more;
            free = free.saturating_sub(more);
        }
        for window in self.windows.values_mut() {
            window.used = 0;
        }
        self.changes(&before)
    }

    /// Whether all are as small as can be, and nothing was used of any since the last division.
    pub fn is_idle(&self) -> bool {
        let min = self.config.window_bytes_min;
        let mut windows = self.windows.values();
        windows.all(|window| window.used == 0 && window.bytes == min)
    }

    fn free(&self) -> u64 {
        let given: u64 = self.windows.values().map(|window| window.bytes).sum();
        self.config.total_bytes_max.saturating_sub(given)
    }

    /// Halves the greatest until all are within the budget.
    fn fit(&mut self) {
        let mut given: u64 = self.windows.values().map(|window| window.bytes).sum();
        let min = self.config.window_bytes_min;
        while given > self.config.total_bytes_max && !broken("budget-exceeded") {
            let greatest = self.windows.values_mut().max_by_key(|window| window.bytes);
            let Some(window) = greatest.filter(|window| window.bytes > min) else {
                return;
            };
            let less = (window.bytes / 2).max(min);
            given -= window.bytes - less;
            window.bytes = less;
        }
    }

    fn bytes(&self) -> BTreeMap<K, u64> {
        let windows = self.windows.iter();
        windows.map(|(key, window)| (*key, window.bytes)).collect()
    }

    fn changes(&self, before: &BTreeMap<K, u64>) -> Vec<(K, u64)> {
        let changed = self.windows.iter();
        let changed = changed.filter(|(key, window)| before.get(key) != Some(&window.bytes));
        changed.map(|(key, window)| (*key, window.bytes)).collect()
    }
}
