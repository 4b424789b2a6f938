//! Deliveries that other nodes must have before their entries are finished.
//!
//! Partitions are not ordered among each other: *finish* may reach the other nodes before the batch of the account has. Were this node lost then,
//! they would have dropped the entry, and nobody the message. So the queue says which nodes hold the body for its entry, and is answered when enough
//! of them have applied what delivered it: from then on their accounts hold the body. An answer that never comes costs a delivery that is made again,
//! and changes nothing: the queue asks in its own time.

use std::collections::BTreeMap;

use whimbrel_crdt::{PartitionId, VersionVector};
use whimbrel_mailbox::{AccountId, EntryId};

use super::{Own, Partition, PartitionOwner, keys};
use crate::machine::{Output, RequiredCopies, Ticket};

/// An entry, and which of its deliveries.
type Delivery = (EntryId, usize);

/// Those that wait, at most one for each open delivery of the queue.
pub(super) type Spreads = BTreeMap<PartitionId, BTreeMap<Delivery, DeliveryAcks>>;

pub(super) struct DeliveryAcks {
    ticket: Ticket,
    /// What others must have applied.
    made: VersionVector,
    others: RequiredCopies,
}

impl DeliveryAcks {
    /// The queue's.
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn is_done(&self, own: &Own) -> bool {
        let nodes = self.others.nodes.iter();
        let have = nodes.filter(|peer| own.shipping.has_applied(**peer, &self.made));
        // What another node made may be applied here and not be durable: then its commit may be refused yet.
        own.shipping.applied_all(&self.made) && have.count() >= self.others.needed
    }
}

impl PartitionOwner {
    /// A delivery is made: just now by us, or before, by whomever. Answers the queue, at once or when enough others have it.
    pub(super) fn delivery_acks(
        &mut self,
        account: AccountId,
        ticket: Ticket,
        delivery: Delivery,
        now: bool,
        others: RequiredCopies,
    ) {
        if others.needed == 0 {
            return self.answer(account, Output::Delivered(ticket));
        }
        let partition = keys::partition_of(account);
        let Some(Partition::Running(own)) = self.partitions.get(&partition) else {
            return;
        };
        let (applied, origin) = (own.log.applied(), own.log.origin());
        let made = match now {
            true => [(origin, applied.get(origin))].into_iter().collect(),
            false => applied.clone(),
        };
        let delivery_acks = DeliveryAcks {
            ticket,
            made,
            others,
        };
        let of = self.spreads.entry(partition).or_default();
        of.insert(delivery, delivery_acks);
        self.add_delivery_ack(partition);
    }

    /// A peer may have applied more, or more is durable here.
    pub(super) fn add_delivery_ack(&mut self, partition: PartitionId) {
        let Some(of) = self.spreads.get_mut(&partition) else {
            return;
        };
        if let Some(Partition::Running(own)) = self.partitions.get(&partition) {
            let done = of.extract_if(.., |_, delivery_acks| delivery_acks.is_done(own));
            let delivered = done.map(|(_, delivery_acks)| Output::Delivered(delivery_acks.ticket));
            self.out.extend(delivered);
        }
        if of.is_empty() {
            self.spreads.remove(&partition);
        }
    }

    /// The entry is finished, by whomever.
    pub(super) fn drop_delivery_acks(&mut self, entry: EntryId) {
        let deliveries = (entry, 0)..=(entry, usize::MAX);
        self.spreads.retain(|_, of| {
            of.extract_if(deliveries.clone(), |_, _| true)
                .for_each(drop);
            !of.is_empty()
        });
    }
}
