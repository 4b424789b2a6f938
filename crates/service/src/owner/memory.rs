//! The memory of loaded accounts, over all owners of a node.
//!
//! Each owner has a share of what all may take. Beyond the whole an owner that takes more than its share evicts accounts that nobody watches. Watched
//! accounts stay, so that their growth has an end of its own: an account may be as large as what is left of twice the whole. However many accounts
//! grow, each next one finds room (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// An account of a few thousand messages grows in any case, in bytes.
const SMALL_BYTES: usize = 1 << 20;

/// What all owners of a node share: how many bytes their accounts take.
#[derive(Clone, Debug, Default)]
pub struct LoadedAccounts(Arc<AtomicUsize>);

/// The accounts of one owner.
#[derive(Debug)]
pub(super) struct Memory {
    own: usize,
    all: LoadedAccounts,
    /// What all may take before accounts are evicted.
    bytes_max: usize,
    /// How many owners there are.
    owners: usize,
}

impl Memory {
    pub(super) fn new(all: LoadedAccounts, bytes_max: usize, owners: usize) -> Memory {
        Memory {
            own: 0,
            all,
            bytes_max,
            owners: owners.max(1),
        }
    }

    /// What the accounts of this owner take.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// An account takes another number of bytes than before.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        self.own = self.own - before + after;
        // A figure: nothing else is read because of it.
        self.all.0.fetch_add(after, Ordering::Relaxed);
        self.all.0.fetch_sub(before, Ordering::Relaxed);
    }

    /// Whether accounts have to be evicted here.
    pub(super) fn is_over(&self) -> bool {
        self.is_beyond(self.bytes_max)
    }

    /// Whether those are evicted, too, that something is yet to be done with.
    pub(super) fn is_far_over(&self) -> bool {
        self.is_beyond(2 * self.bytes_max)
    }

    /// Whether an account of so many bytes may take more.
    pub(super) fn may_grow(&self, account: usize) -> bool {
        account <= SMALL_BYTES || account <= (2 * self.bytes_max).saturating_sub(self.all())
    }

    fn is_beyond(&self, bytes: usize) -> bool {
        self.all() > bytes && self.own > bytes / self.owners
    }

    fn all(&self) -> usize {
        self.all.0.load(Ordering::Relaxed)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.change(self.own, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn who_takes_more_than_its_share_evicts() {
        let all = LoadedAccounts::default();
        let mut one = Memory::new(all.clone(), 100 * MIB, 2);
        let mut other = Memory::new(all.clone(), 100 * MIB, 2);
        // Alone it may take everything.
        one.change(0, 100 * MIB);
        assert!(!one.is_over());
        other.change(0, 40 * MIB);
        assert!(one.is_over() && !other.is_over() && !one.is_far_over());
        one.change(100 * MIB, 170 * MIB);
        assert!(one.is_far_over() && !other.is_over());
        drop(one);
        assert_eq!(
            (all.0.load(Ordering::Relaxed), other.own()),
            (40 * MIB, 40 * MIB)
        );
    }

    #[test]
    fn each_next_account_finds_room() {
        let all = LoadedAccounts::default();
        let mut owners: Vec<Memory> = (0..4)
            .map(|_| Memory::new(all.clone(), 100 * MIB, 4))
            .collect();
        let mut sizes = Vec::new();
        for owner in &mut owners {
            let mut own = 0;
            while owner.may_grow(own) {
                owner.change(own, own + MIB / 2);
                own += MIB / 2;
            }
            sizes.push(own / MIB);
        }
        assert_eq!(sizes, [100, 50, 25, 12]);
        // Small ones grow whatever the others take.
        owners[0].change(100 * MIB, 500 * MIB);
        assert!(owners[1].may_grow(SMALL_BYTES) && !owners[1].may_grow(SMALL_BYTES + 1));
    }
}
