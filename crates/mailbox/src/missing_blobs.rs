//! Messages whose bytes are not here yet: blobs travel beside the operations, and a message is visible when its blob is here (docs/design.md#delivery).
//!
//! For clients such a message does not exist; it is neither late nor does it wait for peers. When its blob comes it is looked at as if it had
//! arrived only then: so below a mark that was announced meanwhile it is late. Lest that be so of every second message, what has a greater claim
//! waits for it a while ([`BLOB_TIMEOUT_MICROS`], docs/decisions/0019). The caller knows which blobs are missing, and says so after a load.

use std::collections::BTreeMap;

use whimbrel_crdt::{VersionVector, mutants::broken};

use crate::record::Record;
use crate::{BlobName, Effects, Peers, Replica};

/// So long what has a greater claim waits for a blob. It is the longest that a peer is waited for, too (docs/design.md#rule-5): most blobs are there
/// by then, and
/// one that nobody has holds up what came within this time, once.
pub(crate) const BLOB_TIMEOUT_MICROS: u64 = 2_000_000;

impl Replica {
    /// The blob is not here: messages that name it are not visible. To be said before the operations that name it are applied.
    pub fn lack(&mut self, blob: BlobName) {
        self.missing_blobs.entry(blob).or_default();
    }

    /// As [`Self::lack`], of all these, after a load: a message that is not visible for want of its blob waits for nothing else.
    pub fn lack_all<T>(&mut self, blobs: &BTreeMap<BlobName, T>) {
        if blobs.is_empty() {
            return;
        }
        let held = |(slot, record): (u32, &Record)| {
            let hidden = !record.alive() || record.visible_uid == 0;
            let held = hidden && blobs.contains_key(&record.blob);
            held.then_some((slot, record.blob, record.alive()))
        };
        let held: Vec<(u32, BlobName, bool)> = self.records.iter().filter_map(held).collect();
        for (slot, blob, is_alive) in held {
            // What is removed may come back before its blob does: it was moved, or a flag was taken from it, at the same time.
            self.lack(blob);
            if is_alive {
                self.stop_waiting(slot);
                self.missing_blobs.entry(blob).or_default().push(slot);
            }
        }
    }

    /// Whether a message may be held back for this blob.
    pub fn lacks(&self, blob: &BlobName) -> bool {
        self.missing_blobs.contains_key(blob)
    }

    /// What [`Self::lacks`] says it of.
    pub fn missing_blobs(&self) -> impl Iterator<Item = BlobName> {
        self.missing_blobs.keys().copied()
    }

    /// The blob is here: messages that name it become visible, or are late.
    pub fn blob_arrived(&mut self, blob: &BlobName, now_micros: u64, peers: &Peers) -> Effects {
        for index in self.missing_blobs.remove(blob).unwrap_or_default() {
            self.awaits_no_blob(index);
            let record = self.records.get(index);
            // It may have been removed meanwhile, and the place be another's.
            if record.is_some_and(|record| record.alive() && record.blob == *blob) {
                self.look_at(index);
            }
        }
        // Only living messages were touched, so that nothing is hidden here.
        self.settle(&VersionVector::new(), now_micros, peers)
    }

    /// Whether messages with greater claims wait for this blob.
    pub fn awaits(&self, blob: &BlobName) -> bool {
        let indices = self.missing_blobs.get(blob).into_iter().flatten();
        let mut records = indices.filter_map(|index| Some((index, self.records.get(*index)?)));
        records.any(|(index, record)| {
            let awaited = self.awaited.get(&record.uid);
            awaited.is_some_and(|(of, _)| of == index)
        })
    }

    /// Nobody who can be asked has the blob: nothing waits for it any more. When it comes its messages become visible, or are late, as ever.
    pub fn nobody_has(&mut self, blob: &BlobName, now_micros: u64, peers: &Peers) -> Effects {
        for slot in self.missing_blobs.get(blob).cloned().unwrap_or_default() {
            self.awaits_no_blob(slot);
        }
        self.settle(&VersionVector::new(), now_micros, peers)
    }

    /// What waited for blobs, and for none that is awaited yet, is looked at in the step that begins. However a wait has ended: the blob is here, or
    /// nobody has it, or its time is over, or its message was removed or claimed anew.
    pub(crate) fn look_at_what_waited(&mut self, peers: &Peers) {
        if !self.awaited.is_empty() {
            let touched = self.touched.iter().copied();
            let gone: Vec<u32> = touched.filter(|of| !self.records[*of].alive()).collect();
            for slot in gone {
                self.awaits_no_blob(slot);
            }
        }
        let lowest = self.lowest_awaited_blob(peers);
        // Most blobs come when nothing waits for them any more, and many may wait for other nodes then.
        if !std::mem::take(&mut self.awaits_less) {
            return;
        }
        let below = self
            .pending
            .range(..lowest.map_or(u32::MAX, |(uid, _)| uid));
        let free = below.filter(|(uid, _)| peers.heard(**uid));
        let free: Vec<u32> = free.map(|(_, (slot, _))| *slot).collect();
        for slot in free {
            self.look_at(slot);
        }
    }

    /// When the first of what waits need wait no longer, if nobody is heard until then and no blob comes.
    pub(crate) fn waits_until(&mut self, peers: &Peers) -> Option<u64> {
        let awaited = self.lowest_awaited_blob(peers);
        let until = |(uid, (_, until)): (&u32, &(u32, u64))| match awaited {
            // It waits for the blob alone, which may be given up long before it would have given up other nodes.
            Some((lowest, end)) if lowest < *uid && peers.heard(*uid) => end.min(*until),
            _ => *until,
        };
        self.pending.iter().map(until).min()
    }

    /// Holds a message back if its blob is not here.
    pub(crate) fn hold_back(&mut self, index: u32, peers: &Peers) -> bool {
        let record = &self.records[index];
        if record.visible_uid != 0 || broken("body-not-awaited") {
            return false;
        }
        let Some(waiting) = self.missing_blobs.get_mut(&record.blob) else {
            return false;
        };
        if !waiting.contains(&index) {
            waiting.push(index);
        }
        if let (Some(until), true) = (peers.blob_until(), record.epoch == self.epoch) {
            self.awaited.entry(record.uid).or_insert((index, until));
        }
        true
    }

    /// The message for which this UID was claimed, if it is held back.
    pub(crate) fn held_back_index(&self, uid: u32) -> Option<u32> {
        let awaited = self.awaited.get(&uid).map(|(index, _)| *index);
        awaited.or_else(|| {
            let all = self.missing_blobs.values().flatten();
            let mut all = all.filter_map(|index| Some((*index, self.records.get(*index)?)));
            let found = all.find(|(index, record)| {
                record.uid == uid && record.epoch == self.epoch && self.is_held_back(*index, record)
            });
            found.map(|(index, _)| index)
        })
    }

    /// Whether the message is not visible since its blob is not here.
    pub(crate) fn is_held_back(&self, index: u32, record: &Record) -> bool {
        let waiting = self.missing_blobs.get(&record.blob);
        let held = waiting.is_some_and(|indices| indices.contains(&index));
        held && record.alive() && record.visible_uid == 0
    }

    /// Nothing waits for the blob of this message any more.
    pub(crate) fn awaits_no_blob(&mut self, index: u32) {
        if let Some(record) = self.records.get(index)
            && self
                .awaited
                .get(&record.uid)
                .is_some_and(|(of, _)| *of == index)
        {
            let uid = record.uid;
            self.awaited.remove(&uid);
            self.awaits_less = true;
        }
    }

    /// The lowest claim for whose blob greater ones wait, and until when.
    pub(crate) fn lowest_awaited_blob(&mut self, peers: &Peers) -> Option<(u32, u64)> {
        while let Some((uid, (_, until))) = self.awaited.first_key_value() {
            if *until > peers.mono_micros() && !broken("nobody-waits-for-bodies") {
                return Some((*uid, *until));
            }
            self.awaited.pop_first();
            self.awaits_less = true;
        }
        None
    }

    /// Until when a claim waits for the blob of a lower one.
    pub(crate) fn blob_awaited_below(&mut self, uid: u32, peers: &Peers) -> Option<u64> {
        let (lowest, until) = self.lowest_awaited_blob(peers)?;
        (lowest < uid).then_some(until)
    }
}
