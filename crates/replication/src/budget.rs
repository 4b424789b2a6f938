//! One budget over the windows of all peers and partitions of a node.
//!
//! Purpose: a node with many peers and partitions cannot give each pair of them a window of 1 MiB. So each window begins small. A window that is used
//! grows while there is room; one that is not used shrinks. The driver passes the changes to [`crate::partition::Partition::set_window`].
//!
//! Invariant: all windows together are within the budget, unless there are more windows than smallest windows fit into it.

use std::collections::BTreeMap;

use crate::broken;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of all windows.
    pub total_bytes_max: u64,
    /// Bytes of the smallest window: several batches of usual size. A single larger batch always passes.
    pub window_bytes_min: u64,
    /// Bytes of the greatest window: more makes no link faster.
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

/// The windows, by any key.
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

    /// Adds windows. Returns all windows that changed, the new ones included.
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

    /// Drops all other windows.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.windows.retain(|key, _| keep(key));
    }

    /// So many bytes of the window were used at one moment.
    pub fn used(&mut self, key: K, bytes: u64) {
        if let Some(window) = self.windows.get_mut(&key) {
            window.used = window.used.max(bytes);
        }
    }

    /// Call this about every second. Shrinks windows of which less than a quarter was used; enlarges those of which more than half was used, the
    /// smallest first. Returns the changes.
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

    /// Whether all windows have the smallest size, and none was used since the last division.
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
