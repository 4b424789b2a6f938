//! Memory of argon2, kept from one check of a password to the next.
//!
//! A check needs its megabytes for milliseconds. Taken from the allocator each time and given back, they stay in the process until the
//! allocator happens to look after them, for which an idle server gives it no occasion: what the process holds would depend on when
//! somebody logged in last. So what one check needs is kept, which is a figure (`auth.argon2_memory`), and the kernel need not find and clear
//! the pages anew for each login. Checks at the same time, up to `auth.verifications_max`, take theirs from the allocator: kept, it would be
//! memory for a moment that comes once a day.

use std::sync::{Mutex, PoisonError};

use argon2::Block;

/// What is lent to one check at a time.
#[derive(Debug)]
pub(super) struct Memory {
    /// Empty before the first check and while it is lent.
    kept: Mutex<Vec<Block>>,
    /// Larger ones, which verifiers made under another configuration need, are not kept.
    blocks_max: usize,
}

impl Memory {
    pub(super) fn new(blocks_max: usize) -> Self {
        Memory {
            kept: Mutex::default(),
            blocks_max,
        }
    }

    /// Lends `count` blocks, which hold anything.
    pub(super) fn lend<T>(&self, count: usize, work: impl FnOnce(&mut [Block]) -> T) -> T {
        let mut blocks = match count <= self.blocks_max {
            true => std::mem::take(&mut *self.kept()),
            false => Vec::new(),
        };
        if blocks.len() < count {
            // Not grown: what is there need not be copied.
            drop(blocks);
            blocks = vec![Block::new(); count];
        }
        let done = work(&mut blocks[..count]);
        if count <= self.blocks_max {
            let mut kept = self.kept();
            if kept.len() < blocks.len() {
                *kept = blocks;
            }
        }
        done
    }

    /// How many blocks are kept now.
    #[cfg(test)]
    pub(super) fn kept_blocks(&self) -> usize {
        self.kept().len()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        // A buffer is whole whatever panicked.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_check_needs_is_kept() {
        let memory = Memory::new(64);
        assert_eq!(memory.kept_blocks(), 0);
        let lent = |memory: &Memory| memory.lend(64, |blocks| blocks.as_ptr() as usize);
        let first = lent(&memory);
        assert_eq!(memory.kept_blocks(), 64);
        assert_eq!(lent(&memory), first, "the same memory");
        // Two at once have two buffers, of which one stays.
        memory.lend(64, |outer| {
            assert_eq!(memory.kept_blocks(), 0);
            assert_ne!(lent(&memory), outer.as_ptr() as usize);
            assert_eq!(memory.kept_blocks(), 64);
        });
        assert_eq!(memory.kept_blocks(), 64);
    }

    #[test]
    fn other_sizes_are_lent_and_larger_ones_not_kept() {
        let memory = Memory::new(64);
        for (lent, then_kept) in [(8, 8), (16, 16), (8, 16), (65, 16), (64, 64)] {
            assert_eq!(memory.lend(lent, |blocks| blocks.len()), lent);
            assert_eq!(memory.kept_blocks(), then_kept);
        }
    }
}
