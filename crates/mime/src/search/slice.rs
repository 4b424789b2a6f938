//! Work that is cut into slices.

/// Work that may be done before others have their chance. A unit is what it costs to look through one byte: a nanosecond or less.
#[derive(Debug)]
pub struct Slice {
    left: usize,
}

impl Slice {
    /// So much of it.
    pub fn new(work: usize) -> Slice {
        Slice { left: work }
    }

    /// Of which nobody sees the end: nobody waits.
    pub fn endless() -> Slice {
        Slice::new(usize::MAX)
    }

    /// So much was done; it may be more than was left.
    pub fn take(&mut self, work: usize) {
        self.left = self.left.saturating_sub(work);
    }

    /// Whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }
}
