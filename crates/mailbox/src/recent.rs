//! What has just come into a mailbox, and where it is now: for an owner that looks for two copies of one message.

use crate::{Flags, MailboxName, MessageId, Replica, Row, SpecialUse};

/// A message that came of late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// As shown.
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

    /// The message with the greatest UID below this one.
    pub fn last_before(&self, name: &MailboxName, uid: u32) -> Option<Recent> {
        let last = self
            .members(name)
            .filter_map(|(_, record)| record.uids.range(..uid).next_back());
        let (_, &slot) = last.max()?;
        Some(Recent {
            row: self.row_of(slot),
            delivered: self.records[slot].entry.is_some(),
        })
    }

    /// Under which name and UID a delivered message is shown, if it is, lies where the delivery has put it, and has these flags and no other. One that
    /// was changed and changed back is as it was.
    pub fn as_delivered(&self, message: &MessageId, flags: &Flags) -> Option<(MailboxName, u32)> {
        let record = &self.records[*self.by_id.get(message)?];
        let name = self.boxes[record.view_box].listed.clone()?;
        // A placement by a delivery has no time; one by a client has (`EntryId::placement`).
        let stays = record.shown != 0 && record.entry.is_some() && record.placed.hlc == 0;
        (stays && self.flags_of(record) == *flags).then_some((name, record.shown))
    }
}
