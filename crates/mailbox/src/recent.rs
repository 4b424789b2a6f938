//! What has just come into a mailbox, and where it is now: for an owner that looks for two copies of one message.

use whimbrel_crdt::Dot;

use crate::{MailboxId, MailboxName, MessageId, Op, Order, Replica, Row, SpecialUse, Step};

/// A message that came of late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// As clients see it.
    pub row: Row,
    /// Whether the queue delivered it.
    pub delivered: bool,
}

impl Replica {
    /// The special use of a mailbox.
    pub fn use_of(&self, name: &MailboxName) -> Option<SpecialUse> {
        self.boxes[self.first_box(name)?].special_use.value
    }

    /// The mailbox of this use; of several the first by name.
    pub fn with_use(&self, special_use: SpecialUse) -> Option<MailboxName> {
        let has_it = |name: &&MailboxName| self.use_of(name) == Some(special_use);
        self.names.keys().filter(has_it).min().cloned()
    }

    /// Messages that clients of another node put into the mailbox of this use, or the one of this name where none has that use, by operations about
    /// to be applied; with their content rows.
    pub fn put_into(
        &self,
        step: &Step<'_>,
        ops: &[Op],
        special_use: SpecialUse,
        usual: &str,
    ) -> Vec<(MessageId, Vec<u8>)> {
        let is_of_use = |mailbox: &MailboxId| {
            let record = self
                .box_by_id
                .get(mailbox)
                .map(|number| &self.boxes[*number]);
            record.is_some_and(|record| match record.special_use.value {
                Some(of) => of == special_use,
                None => record.name.value.as_str() == usual,
            })
        };
        let numbered = ops.iter().zip(step.first..);
        let put = numbered.filter_map(|(op, number)| match op {
            Op::Append(append) if is_of_use(&append.mailbox) => {
                let dot = Dot::new(step.origin, number);
                let order = Order::of(&append.message.blob.upload);
                let id = MessageId::from_dot(dot, 0, order);
                Some((id, append.content.clone()))
            }
            _ => None,
        });
        put.collect()
    }

    /// The message with the greatest UID below this one.
    pub fn last_before(&self, name: &MailboxName, uid: u32) -> Option<Recent> {
        let last = self
            .members(name)
            .filter_map(|(_, record)| record.uids.range(..uid).next_back());
        let (_, &index) = last.max()?;
        Some(Recent {
            row: self.row_of(index),
            delivered: self.records[index].entry.is_some(),
        })
    }

    /// Under which name and UID a delivered message is visible, if it is, and lies where the delivery has put it. One that was moved and moved back does not.
    pub fn as_delivered(&self, message: &MessageId) -> Option<(MailboxName, u32)> {
        let record = &self.records[*self.by_id.get(message)?];
        let name = self.boxes[record.view_box].listed.clone()?;
        // A placement by a delivery has no time; one by a client has (`EntryId::placement`).
        let stays = record.visible_uid != 0 && record.entry.is_some() && record.placed.hlc == 0;
        stays.then_some((name, record.visible_uid))
    }
}
