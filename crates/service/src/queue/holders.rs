//! Who holds the bodies of entries: the node that delivers one is told, and finishes it when as many of these nodes have the delivery as had to have the entry.
//!
//! The node that took an entry is told by each other one, when its body and the commit that says so are durable. One that takes over says to all that it
//! has the body, and asks; who has it answers, at once or when it comes.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{BlobName, EntryId};
use whimbrel_replication::wire::BlobHave;

use super::{QueueOwner, entry_id};
use crate::{
    machine::{Now, Output, RequiredCopies},
    peers::{PeerOutput, off_wire, on_wire},
};

/// What a peer is to be told of bodies, in the order in which it became due: of each entry once, however often it asks or begins anew before it takes
/// what it is told.
///
/// Nothing is left out: who is not told of a body might wait for that with its delivery until the next stream. So it is bounded by the entries that
/// there are, each of which takes more.
#[derive(Default)]
pub(super) struct Haves {
    next: u64,
    order: BTreeMap<u64, EntryId>,
    /// With the body, and whether the same is asked of the peer.
    due: BTreeMap<EntryId, (u64, BlobName, bool)>,
}

impl Haves {
    fn push(&mut self, id: EntryId, blob: BlobName, ask: bool) {
        let (next, order) = (&mut self.next, &mut self.order);
        let due = self.due.entry(id).or_insert_with(|| {
            *next += 1;
            order.insert(*next, id);
            (*next, blob, ask)
        });
        due.2 |= ask;
    }

    fn pop(&mut self) -> Option<(BlobName, bool)> {
        let (_, id) = self.order.pop_first()?;
        let (_, blob, ask) = self.due.remove(&id)?;
        Some((blob, ask))
    }

    /// The entry is not there any more.
    fn forget(&mut self, id: EntryId) {
        if let Some((at, ..)) = self.due.remove(&id) {
            self.order.remove(&at);
        }
    }
}

impl QueueOwner {
    /// How many others must have what is accepted now, and what was delivered before it is finished.
    pub(super) fn needed(&self) -> usize {
        self.config.other_nodes.min(self.config.peers.len())
    }

    /// Who else must have the deliveries of an entry.
    pub(super) fn others_of(&self, id: EntryId) -> RequiredCopies {
        match self.holders.get(&id) {
            Some(nodes) => RequiredCopies {
                needed: self.needed(),
                nodes: nodes.clone(),
            },
            // Nobody else has heard of it.
            None => RequiredCopies::default(),
        }
    }

    /// A peer has a body on its disk, held by its entry.
    pub(super) fn blob_have(&mut self, now: Now, peer: Incarnation, have: BlobHave) {
        if !have.here {
            return;
        }
        let outcomes = self.waits.has_blob(peer, have.name);
        let blob = off_wire(&have.name);
        let id = entry_id(&blob.upload);
        let needed = self.needed();
        if let Some(nodes) = self.holders.get_mut(&id) {
            let is_new = nodes.insert(peer);
            let is_enough = is_new && nodes.len() == needed;
            if have.ask {
                self.tell_of(peer, blob, false);
            }
            // Those that were named with its deliveries were too few.
            if is_enough && self.entries.get(&id).is_some_and(|of| !of.removing) {
                self.deliveries.retain(|_, (of, _)| *of != id);
                self.forwarding.take_back(id);
                self.hand_out(now, id);
            } else if is_new {
                self.holders_grew(id);
            }
        } else if let Some(other) = self.others.get_mut(&id).filter(|_| have.ask) {
            other.asked.insert(peer);
            if other.durable && !self.missing_blobs.contains_key(&blob) {
                self.tell_of(peer, blob, false);
            }
        }
        self.resolve(now, outcomes);
    }

    /// On a new stream: what was told of bodies may have been lost with the one before.
    pub(super) fn tell_again(&mut self, peer: Incarnation) {
        let of_peer = |by: Incarnation, asked: &BTreeSet<_>| by == peer || asked.contains(&peer);
        let here = self.others.values();
        let here = here.filter(|of| of_peer(of.taken.by, &of.asked));
        let here = here.filter(|of| !self.missing_blobs.contains_key(&of.blob));
        let adopted = self.entries.values().filter(|of| {
            let by = of.taken.map(|taken| taken.by);
            by.is_some_and(|by| by != self.config.origin)
        });
        let adopted = adopted.map(|of| (of.entry.blob, true));
        let all: Vec<_> = here.map(|of| (of.blob, false)).chain(adopted).collect();
        for (blob, ask) in all {
            self.tell_of(peer, blob, ask);
        }
    }

    /// What was said of bodies while entries were not known is said, and asked, once more.
    pub(super) fn say_again(&mut self) {
        for peer in self.links.iter().copied().collect::<Vec<_>>() {
            self.tell_again(peer);
            self.ask_again(peer);
        }
    }

    /// Asks a peer whether it has the bodies of what was taken here.
    fn ask_again(&mut self, peer: Incarnation) {
        let own = self.entries.values().filter(|of| {
            let by = of.taken.map(|taken| taken.by);
            by == Some(self.config.origin)
        });
        let own: Vec<BlobName> = own.map(|of| of.entry.blob).collect();
        for blob in own {
            self.tell_of(peer, blob, true);
        }
    }

    pub(super) fn tell_of(&mut self, peer: Incarnation, blob: BlobName, ask: bool) {
        if self.links.contains(&peer) {
            let haves = self.haves.entry(peer).or_default();
            haves.push(entry_id(&blob.upload), blob, ask);
            let wake = PeerOutput::Wake(PartitionId::QUEUE, peer);
            self.out.push_back(Output::Peer(wake));
        }
    }

    /// What a peer is told next.
    pub(super) fn next_have(&mut self, peer: Incarnation) -> Option<BlobHave> {
        let (blob, ask) = self.haves.get_mut(&peer)?.pop()?;
        Some(BlobHave {
            name: on_wire(&blob),
            here: true,
            ask,
            partition: None,
        })
    }

    /// An entry is finished, or given up, or was never accepted.
    pub(super) fn ended(&mut self, id: EntryId) {
        self.holders.remove(&id);
        for haves in self.haves.values_mut() {
            haves.forget(id);
        }
    }

    /// All was read again: of what is not there any more nothing has to be known.
    pub(super) fn forget_holders(&mut self) {
        let provisional = self.provisional.values();
        let provisional: BTreeSet<EntryId> = provisional.map(|of| of.entry.id).collect();
        let there = |id: &EntryId| self.entries.contains_key(id) || provisional.contains(id);
        self.holders.retain(|id, _| there(id));
        let there = |id: &EntryId| there(id) || self.others.contains_key(id);
        for haves in self.haves.values_mut() {
            let gone: Vec<EntryId> = haves.due.keys().filter(|id| !there(id)).copied().collect();
            gone.into_iter().for_each(|id| haves.forget(id));
        }
    }
}
