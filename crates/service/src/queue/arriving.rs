//! Entries that other nodes give to this one: each waits for its body, and both are written in one commit.
//!
//! The sender gives a small body unasked, behind the entry; a large one is fetched. The store refuses a commit that names a body which is not here: so
//! what is durable is whole.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::Incarnation;
use whimbrel_mailbox::{BlobName, EntryId};
use whimbrel_queue::{self as machine, Node, Record};

use super::{QueueOwner, Writes, entry_of_payload};
use crate::{
    machine::{Now, Output},
    peers::PeerOutput,
};

/// A body that has not come in this time does not come: the entry is refused, and its sender tries another node.
const BODY_MICROS_MAX: u64 = 600_000_000;

/// How often it is looked for such.
const LOOKED_EVERY_MICROS: u64 = 5_000_000;

#[derive(Default)]
pub(super) struct Arriving {
    waiting: BTreeMap<EntryId, Waiting>,
    by_body: BTreeMap<BlobName, EntryId>,
    /// New here, and not durable yet.
    writing: BTreeSet<EntryId>,
    look_at: Option<u64>,
}

struct Waiting {
    from: Option<Node>,
    blob: BlobName,
    record: Record,
    payload: Bytes,
    since: u64,
}

impl Arriving {
    pub(super) fn wants(&self, blob: &BlobName) -> bool {
        self.by_body.contains_key(blob)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.look_at.filter(|_| !self.waiting.is_empty())
    }

    fn take(&mut self, id: EntryId) -> Option<Waiting> {
        let of = self.waiting.remove(&id)?;
        self.by_body.remove(&of.blob);
        Some(of)
    }
}

impl QueueOwner {
    /// An entry is to be written as soon as its body is here.
    pub(super) fn arrives(
        &mut self,
        now: Now,
        id: EntryId,
        record: Record,
        payload: Bytes,
        from: Option<Node>,
    ) {
        let Some(entry) = entry_of_payload(id, &payload) else {
            self.warn(format!(
                "queue entry {id} of another node cannot be read: it is not taken"
            ));
            return self.tell(now, machine::Input::NotWritten(machine::Id(id.0)));
        };
        let blob = entry.blob;
        self.arriving.by_body.insert(blob, id);
        let since = now.mono_micros;
        self.arriving
            .look_at
            .get_or_insert(since + LOOKED_EVERY_MICROS);
        let waiting = Waiting {
            from,
            blob,
            record,
            payload,
            since,
        };
        self.arriving.waiting.insert(id, waiting);
        self.out.push_back(Output::Peer(PeerOutput::Coming(blob)));
    }

    /// A body is here.
    pub(super) fn body_came(&mut self, blob: BlobName) {
        if let Some(id) = self.arriving.by_body.get(&blob).copied()
            && let Some(of) = self.arriving.take(id)
        {
            self.bodies.insert(id, blob);
            self.arriving.writing.insert(id);
            let mut writes = Writes::default();
            writes.add(id, self.entry_rows(id, &of.record, Some(of.payload)), true);
            self.hand_out_writes(writes);
        }
        self.body_to_make(blob);
    }

    /// What was new here is durable, or was refused.
    pub(super) fn arrived(&mut self, id: EntryId, done: bool) {
        if self.arriving.writing.remove(&id) && !done {
            self.bodies.remove(&id);
        }
    }

    /// Who gave these entries gives their bodies no more.
    pub(super) fn arriving_unlinked(&mut self, now: Now, peer: Incarnation) {
        let node = self.node_of(peer);
        let of_peer = self
            .arriving
            .waiting
            .iter()
            .filter(|(_, of)| of.from == node);
        let of_peer: Vec<EntryId> = of_peer.map(|(id, _)| *id).collect();
        self.refuse_all(now, of_peer);
    }

    /// Bodies that do not come, or of entries that are done meanwhile.
    pub(super) fn drop_late_bodies(&mut self, now: Now) {
        if self.arriving.look_at.is_none_or(|at| at > now.mono_micros) {
            return;
        }
        self.arriving.look_at = Some(now.mono_micros + LOOKED_EVERY_MICROS);
        let super::Phase::Running(queue) = &self.phase else {
            return;
        };
        let is_vain = |id: &EntryId, of: &Waiting| {
            let waited = now.mono_micros.saturating_sub(of.since);
            waited > BODY_MICROS_MAX || queue.get(machine::Id(id.0)).is_none()
        };
        let vain = self
            .arriving
            .waiting
            .iter()
            .filter(|(id, of)| is_vain(id, of));
        let vain: Vec<EntryId> = vain.map(|(id, _)| *id).collect();
        self.refuse_all(now, vain);
    }

    fn refuse_all(&mut self, now: Now, ids: Vec<EntryId>) {
        for id in ids {
            self.arriving.take(id);
            self.tell(now, machine::Input::NotWritten(machine::Id(id.0)));
        }
    }
}
