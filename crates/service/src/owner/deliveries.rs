//! Deliveries of the queue: which may still be made here, which other nodes must have before the queue is answered, and which messages no entry can
//! bring back.
//!
//! Partitions are not ordered among each other: the end of an entry may reach the other nodes before the batch of the account has. Were this node lost
//! then, they would have dropped the entry, and nobody the message. So the queue says which nodes have the body for its entry, and is answered when
//! enough of them have applied what delivered it: from then on their accounts hold the body. Where these are too few, others are asked for the body
//! when they have applied it. An answer that never comes costs a delivery that is made again, and changes nothing: the queue asks in its own time.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};
use whimbrel_mailbox::{BlobName, EntryId, EntryTag, Order};

use super::partition::Own;
use crate::{
    machine::{RequiredCopies, Ticket},
    peers::Shipping,
};

/// A delivery that is made here.
pub(super) struct Made {
    /// What others must have applied.
    pub(super) vector: VersionVector,
    pub(super) others: RequiredCopies,
    pub(super) body: BlobName,
}

impl Made {
    fn is_done(&self, shipping: &Shipping, told: &BTreeSet<Incarnation>) -> bool {
        let nodes = self.others.nodes.union(told);
        let have = nodes.filter(|peer| shipping.has_applied(**peer, &self.vector));
        // What another node made may be applied here and not be durable: then its commit may be refused yet.
        shipping.applied_all(&self.vector) && have.count() >= self.others.needed
    }
}

/// What was seen of the queues of all nodes at one time.
#[derive(Clone, Copy)]
pub(super) struct Sweep {
    /// When, on the monotonic clock.
    pub(super) began: u64,
    /// No entry before this was anywhere then; `None`: no entry at all.
    pub(super) least: Option<Order>,
}

#[derive(Default)]
pub(super) struct Deliveries {
    /// Entries of which deliveries have come, until none is to be made any more: their bodies are here.
    open: BTreeSet<EntryTag>,
    sweep: Option<Sweep>,
    /// Deliveries that other nodes must have, at most one for each open delivery of the queue.
    made: BTreeMap<PartitionId, BTreeMap<(EntryId, Ticket), Made>>,
}

impl Deliveries {
    // --- Entries of the queue ------------------------------------------------------------------------------------------

    /// A delivery of the entry has come.
    pub(super) fn came(&mut self, entry: EntryTag) {
        self.open.insert(entry);
    }

    /// None is to be made any more.
    pub(super) fn close(&mut self, entry: EntryId) {
        self.open.remove(&entry.tag());
        let deliveries = (entry, Ticket(0))..=(entry, Ticket(u64::MAX));
        self.made.retain(|_, of| {
            of.extract_if(deliveries.clone(), |_, _| true)
                .for_each(drop);
            !of.is_empty()
        });
    }

    pub(super) fn swept(&mut self, began: u64, least: Option<Order>) {
        self.sweep = Some(Sweep { began, least });
    }

    /// Whether the body of the entry is here for it.
    pub(super) fn is_open(&self, entry: EntryTag) -> bool {
        self.open.contains(&entry)
    }

    /// The last look at the queues of all nodes.
    pub(super) fn sweep(&self) -> Option<Sweep> {
        self.sweep
    }

    // --- Deliveries that others must have ------------------------------------------------------------------------------

    pub(super) fn made(
        &mut self,
        partition: PartitionId,
        entry: EntryId,
        ticket: Ticket,
        made: Made,
    ) {
        let of = self.made.entry(partition).or_default();
        of.insert((entry, ticket), made);
    }

    /// Deliveries that enough others have by now, and whom of `peers` to ask for bodies.
    pub(super) fn take_done(
        &mut self,
        partition: PartitionId,
        own: &mut Own,
        peers: &[Incarnation],
    ) -> Vec<Ticket> {
        let Some(of) = self.made.get_mut(&partition) else {
            return Vec::new();
        };
        let nobody = BTreeSet::new();
        let (shipping, confirming) = (&own.shipping, &mut own.confirming);
        let done = of.extract_if(.., |_, made| {
            let told = confirming.told_of(&made.body).unwrap_or(&nobody);
            if made.is_done(shipping, told) {
                confirming.tell_no_more(&made.body);
                return true;
            }
            if made.others.asks {
                let applied = peers
                    .iter()
                    .filter(|peer| shipping.has_applied(**peer, &made.vector));
                for peer in applied {
                    confirming.ask_for(*peer, made.body);
                }
            }
            false
        });
        let done = done.map(|((_, ticket), _)| ticket).collect();
        if of.is_empty() {
            self.made.remove(&partition);
        }
        done
    }

    /// The partition is read anew, or left: nothing waits any more. Gives what waited.
    pub(super) fn forget(&mut self, partition: PartitionId) -> Vec<Ticket> {
        let made = self.made.remove(&partition).unwrap_or_default();
        made.into_keys().map(|(_, ticket)| ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_of_an_entry_that_is_closed() {
        let (entry, partition) = (EntryId([7; 16]), PartitionId::accounts(1));
        let mut deliveries = Deliveries::default();
        deliveries.came(entry.tag());
        assert!(deliveries.is_open(entry.tag()));
        let made = || Made {
            vector: VersionVector::new(),
            others: RequiredCopies::default(),
            body: BlobName {
                hash: [0; 32],
                upload: [0; 16],
            },
        };
        // Two deliveries of one entry, in one partition.
        deliveries.made(partition, entry, Ticket(1), made());
        deliveries.made(partition, entry, Ticket(2), made());
        assert_eq!(deliveries.made[&partition].len(), 2);
        deliveries.close(entry);
        assert!(!deliveries.is_open(entry.tag()));
        assert!(deliveries.forget(partition).is_empty());
    }
}
