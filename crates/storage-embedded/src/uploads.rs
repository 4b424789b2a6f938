//! Which uploads of this process are under way, and what became of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_storage::{StoreError, UploadId};

use crate::sealer::Sealer;

/// Uploads of this process that nothing durable names yet, begun or finished, and those that something named while they were being written.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<Known>);

/// What is known of them.
#[derive(Debug, Default)]
struct Known {
    all: BTreeMap<UploadId, Upload>,
    next: u64,
    /// Those with lesser numbers are lost: the store was opened again meanwhile, which removes what nothing names.
    lost_below: u64,
    /// Whole and named, and still marked.
    marked: Vec<UploadId>,
}

/// Marks that are to go with one group, and as many as wait for that. Those of more go at the next start.
const MARKED_MAX: usize = 512;

/// A number that no two uploads have: what is said of one must not be taken for another of its name, which may begin when it is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Serial(u64);

#[derive(Clone, Copy, Debug)]
struct Upload {
    serial: Serial,
    /// The last that named it let go of it while it was being written: nobody may ever come for it.
    let_go: bool,
}

impl Known {
    fn is_lost(&self, serial: Serial) -> bool {
        serial.0 < self.lost_below
    }
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if it is known. It stays what it is then: what is lost must not be named.
    pub(crate) fn begin(&self, upload: UploadId) -> Option<Serial> {
        let mut known = self.lock();
        let serial = Serial(known.next);
        let Entry::Vacant(of) = known.all.entry(upload) else {
            return None;
        };
        of.insert(Upload {
            serial,
            let_go: false,
        });
        known.next += 1;
        Some(serial)
    }

    /// It is named, or never will be.
    pub(crate) fn forget(&self, upload: UploadId) {
        self.lock().all.remove(&upload);
    }

    /// [`Uploads::forget`] unless it is forgotten already, and another of its name known.
    pub(crate) fn forget_this(&self, upload: UploadId, serial: Serial) {
        let mut known = self.lock();
        if known.all.get(&upload).is_some_and(|of| of.serial == serial) {
            known.all.remove(&upload);
        }
    }

    /// It is whole, and was named before: its mark goes with the next group, which knows whether it still is.
    pub(crate) fn whole(&self, upload: UploadId, serial: Serial) {
        self.forget_this(upload, serial);
        let mut known = self.lock();
        if known.marked.len() < MARKED_MAX {
            known.marked.push(upload);
        }
    }

    pub(crate) fn take_marked(&self) -> Vec<UploadId> {
        std::mem::take(&mut self.lock().marked)
    }

    pub(crate) fn is_known(&self, upload: UploadId, serial: Serial) -> bool {
        let known = self.lock();
        known.all.get(&upload).is_some_and(|of| of.serial == serial)
    }

    pub(crate) fn is_lost(&self, upload: UploadId) -> bool {
        let known = self.lock();
        let of = known.all.get(&upload);
        of.is_some_and(|of| known.is_lost(of.serial))
    }

    /// Whether this one is, be it known still or not.
    pub(crate) fn was_lost(&self, serial: Serial) -> bool {
        self.lock().is_lost(serial)
    }

    pub(crate) fn lose_all(&self) {
        let mut known = self.lock();
        known.lost_below = known.next;
    }

    /// Nothing names it any more, and it was being written. If something names it again, it is kept all the same.
    pub(crate) fn let_go(&self, upload: UploadId) {
        if let Some(of) = self.lock().all.get_mut(&upload) {
            of.let_go = true;
        }
    }

    pub(crate) fn is_let_go(&self, upload: UploadId) -> bool {
        self.lock().all.get(&upload).is_some_and(|of| of.let_go)
    }

    /// The store was opened again, and has kept these: they were finished, and something durable names them.
    pub(crate) fn keep(&self, sealer: &Sealer) -> Result<(), StoreError> {
        let all: Vec<UploadId> = self.lock().all.keys().copied().collect();
        for upload in all {
            if sealer.is_kept(upload)? {
                self.forget(upload);
            }
        }
        Ok(())
    }
}
