//! The sending ends of all links, for what all peers are told.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use whimbrel_cluster::Handle;
use whimbrel_crdt::Incarnation;
use whimbrel_service::peers::Frame;

/// Links that are up.
#[derive(Default)]
pub(super) struct Links(Mutex<BTreeMap<Incarnation, Handle>>);

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Incarnation, Handle>> {
        // Nothing in here is left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn up(&self, peer: Incarnation, handle: Handle) {
        self.lock().insert(peer, handle);
    }

    pub(super) fn down(&self, peer: Incarnation) {
        self.lock().remove(&peer);
    }

    pub(super) fn close_all(&self) {
        self.lock().values().for_each(Handle::close);
    }

    /// Puts a frame into all of them.
    pub(super) fn push_all(&self, frame: &Frame) {
        for handle in self.lock().values() {
            handle.push(frame);
        }
    }
}
