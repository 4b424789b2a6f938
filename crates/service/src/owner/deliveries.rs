//! Deliveries of the queue: which of its entries may still be delivered, and which deliveries other nodes must have before the queue is answered.
//!
//! Partitions are not ordered among each other: *finish* may reach the other nodes before the batch of the account has. Were this node lost then,
//! they would have dropped the entry, and nobody the message. So the queue says which nodes hold the body for its entry, and is answered when enough
//! of them have applied what delivered it: from then on their accounts hold the body. An answer that never comes costs a delivery that is made again,
//! and changes nothing: the queue asks in its own time.
//!
//! Invariant: an entry that is not finished for certain counts as unfinished, so that what was delivered of it is not forgotten before.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{PartitionId, VersionVector};
use whimbrel_mailbox::{EntryId, EntryTag};

use crate::{
    machine::{RequiredCopies, Ticket},
    peers::Shipping,
};

/// An entry, and which of its deliveries.
pub(super) type Delivery = (EntryId, usize);

/// A delivery that is made here.
pub(super) struct Made {
    /// The queue's.
    pub(super) ticket: Ticket,
    /// What others must have applied.
    pub(super) vector: VersionVector,
    pub(super) others: RequiredCopies,
}

impl Made {
    fn is_done(&self, shipping: &Shipping) -> bool {
        let nodes = self.others.nodes.iter();
        let have = nodes.filter(|peer| shipping.has_applied(**peer, &self.vector));
        // What another node made may be applied here and not be durable: then its commit may be refused yet.
        shipping.applied_all(&self.vector) && have.count() >= self.others.needed
    }
}

#[derive(Default)]
pub(super) struct Deliveries {
    /// Entries of which a delivery may be given out, for the first time or again.
    unfinished: BTreeSet<EntryTag>,
    /// Entries of which deliveries have come, until they are about to go: their bodies are here.
    open: BTreeSet<EntryTag>,
    /// Whether the queue has given out again all that it held at the start.
    is_recovered: bool,
    /// All is known that other nodes had in the queue at this time of the monotonic clock.
    caught_up: Option<u64>,
    /// Deliveries that other nodes must have, at most one for each open delivery of the queue.
    made: BTreeMap<PartitionId, BTreeMap<Delivery, Made>>,
}

impl Deliveries {
    // --- Entries of the queue ------------------------------------------------------------------------------------------

    /// A delivery of the entry has come.
    pub(super) fn came(&mut self, entry: EntryTag) {
        self.open.insert(entry);
    }

    /// The entry is in the queue's store, or one of its deliveries is being made.
    pub(super) fn unfinished(&mut self, entry: EntryTag) {
        self.unfinished.insert(entry);
    }

    /// The entry lets go of its body.
    pub(super) fn closing(&mut self, entry: EntryTag) {
        self.open.remove(&entry);
    }

    /// The entry is gone, by whomever it was finished.
    pub(super) fn finished(&mut self, entry: EntryId) {
        self.open.remove(&entry.tag());
        self.unfinished.remove(&entry.tag());
        let deliveries = (entry, 0)..=(entry, usize::MAX);
        self.made.retain(|_, of| {
            of.extract_if(deliveries.clone(), |_, _| true)
                .for_each(drop);
            !of.is_empty()
        });
    }

    pub(super) fn recovered(&mut self) {
        self.is_recovered = true;
    }

    pub(super) fn caught_up(&mut self, at: u64) {
        self.caught_up = Some(at);
    }

    /// Whether the body of the entry is here for it.
    pub(super) fn is_open(&self, entry: EntryTag) -> bool {
        self.open.contains(&entry)
    }

    /// Whether no delivery of the entry can come again from this node's queue.
    pub(super) fn is_finished(&self, entry: EntryTag) -> bool {
        self.is_recovered && !self.unfinished.contains(&entry)
    }

    /// All entries that any node had at this time are known.
    pub(super) fn known_up_to(&self) -> Option<u64> {
        self.caught_up
    }

    // --- Deliveries that others must have ------------------------------------------------------------------------------

    pub(super) fn made(&mut self, partition: PartitionId, delivery: Delivery, made: Made) {
        let of = self.made.entry(partition).or_default();
        of.insert(delivery, made);
    }

    /// Deliveries that enough others have by now.
    pub(super) fn take_done(&mut self, partition: PartitionId, shipping: &Shipping) -> Vec<Ticket> {
        let Some(of) = self.made.get_mut(&partition) else {
            return Vec::new();
        };
        let done = of.extract_if(.., |_, made| made.is_done(shipping));
        let done = done.map(|(_, made)| made.ticket).collect();
        if of.is_empty() {
            self.made.remove(&partition);
        }
        done
    }

    /// The partition is read anew, or left: nothing waits any more. Gives what waited.
    pub(super) fn forget(&mut self, partition: PartitionId) -> Vec<Ticket> {
        let made = self.made.remove(&partition).unwrap_or_default();
        made.into_values().map(|made| made.ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_as_unfinished_until_the_queue_has_told_all() {
        let entry = EntryId([7; 16]);
        let mut deliveries = Deliveries::default();
        assert!(!deliveries.is_finished(entry.tag()));
        deliveries.unfinished(entry.tag());
        deliveries.recovered();
        assert!(!deliveries.is_finished(entry.tag()));
        deliveries.came(entry.tag());
        assert!(deliveries.is_open(entry.tag()));
        let made = Made {
            ticket: Ticket(1),
            vector: VersionVector::new(),
            others: RequiredCopies::default(),
        };
        deliveries.made(PartitionId::accounts(1), (entry, 0), made);
        deliveries.finished(entry);
        assert!(deliveries.is_finished(entry.tag()) && !deliveries.is_open(entry.tag()));
        assert!(deliveries.forget(PartitionId::accounts(1)).is_empty());
    }
}
