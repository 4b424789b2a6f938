//! What clients see: names, counts, UIDs, rows, changes.

use std::collections::BTreeSet;

use whimbrel_crdt::Stamp;

use crate::record::BoxRecord;
use crate::{
    BlobName, Date, Flags, Keyword, MailboxId, MailboxName, Message, MessageId, Replica,
    SpecialUse, Uids, steps,
};

/// One name of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameInfo {
    /// The name.
    pub name: MailboxName,
    /// MAILBOXID; `None` for a name that is only subscribed.
    pub id: Option<MailboxId>,
    /// Its special use.
    pub special_use: Option<SpecialUse>,
    /// Whether it is subscribed.
    pub subscribed: bool,
}

/// What STATUS and SELECT say. Only what is visible counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// MESSAGES
    pub messages: u32,
    /// UNSEEN
    pub unseen: u32,
    /// DELETED
    pub deleted: u32,
    /// SIZE, in bytes.
    pub size: u64,
    /// The size of those that are deleted, in bytes.
    pub deleted_size: u64,
    /// How many do not end with CRLF.
    pub open_ends: u32,
    /// UIDNEXT. Call [`Replica::announce`] before a client gets it.
    pub uidnext: u32,
    /// UIDVALIDITY
    pub uidvalidity: u32,
    /// HIGHESTMODSEQ
    pub highestmodseq: u64,
    /// MAILBOXID
    pub id: MailboxId,
}

/// What an account holds: messages that are not visible yet, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Messages; each copy is one.
    pub messages: u64,
    /// Their sizes.
    pub bytes: u64,
}

/// One visible message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its UID.
    pub uid: u32,
    /// Its id; POP3's UIDL.
    pub message: MessageId,
    /// The message it is a copy of, itself if none: EMAILID, and the key of its content row.
    pub origin: MessageId,
    /// Its flags.
    pub flags: Flags,
    /// Its MODSEQ.
    pub modseq: u64,
    /// RFC822.SIZE
    pub size: u32,
    /// It does not end with CRLF.
    pub open_end: bool,
    /// INTERNALDATE
    pub date: Date,
    /// When it came into its mailbox, in seconds since the epoch: the time of its placement; of a delivery, which is placed at the same time
    /// wherever it is made, when it was accepted.
    pub saved: i64,
    /// Where the bytes are.
    pub blob: BlobName,
}

/// Whether a message's UID may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It is visible under its greatest claim.
    VisibleMessage(u32),
    /// That claim waits for peers, or is late.
    Waits,
    /// The blob is not here, and it may never come.
    Lacks,
    /// It was removed.
    Gone,
}

impl Replica {
    /// All names: those that exist, and those that are only subscribed; in order.
    pub fn names(&self) -> Vec<NameInfo> {
        let mut names: Vec<NameInfo> = Vec::with_capacity(self.names.len());
        for name in self.names.keys() {
            let first = self.first_box(name).map(|number| &self.boxes[number]);
            names.push(NameInfo {
                name: name.clone(),
                id: first.map(|record| record.id),
                special_use: first.and_then(|record| record.special_use.value),
                subscribed: self.subscriptions.contains(name),
            });
        }
        for (name, _) in self.subscriptions.iter() {
            if !self.names.contains_key(name) {
                names.push(NameInfo {
                    name: name.clone(),
                    id: None,
                    special_use: None,
                    subscribed: true,
                });
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names
    }

    /// How many names exist.
    pub fn names_count(&self) -> usize {
        self.names.len()
    }

    /// What the account holds.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether a mailbox bears the name.
    pub fn exists(&self, name: &MailboxName) -> bool {
        self.names.contains_key(name)
    }

    /// Whether this mailbox bears the name, alone or with others.
    pub fn bears(&self, id: MailboxId, name: &MailboxName) -> bool {
        self.members(name).any(|(_, record)| record.id == id)
    }

    /// The member of a union that stands for it: the one with the greatest stamp.
    pub(crate) fn first_box(&self, name: &MailboxName) -> Option<u32> {
        let boxes = &self.names.get(name)?.boxes;
        boxes
            .iter()
            .copied()
            .max_by_key(|number| (self.boxes[*number].name.stamp, self.boxes[*number].id))
    }

    /// The mailboxes that bear a name.
    pub(crate) fn members(&self, name: &MailboxName) -> impl Iterator<Item = (u32, &BoxRecord)> {
        let boxes = self.names.get(name).map_or(&[][..], |state| &state.boxes);
        boxes.iter().map(|number| (*number, &self.boxes[*number]))
    }

    /// UIDNEXT: what was announced, or 1 + the greatest UID that is visible.
    pub(crate) fn uidnext(&self, name: &MailboxName) -> u32 {
        let greatest = self
            .members(name)
            .filter_map(|(_, record)| record.uids.last_key_value())
            .map(|(uid, _)| *uid);
        let after_visible = greatest.max().map_or(1, |uid| uid.saturating_add(1));
        self.names
            .get(name)
            .map_or(1, |state| state.mark)
            .max(after_visible)
    }

    /// Counts and numbers of a name, `None` if no mailbox bears it. Costs nothing in the number of messages.
    pub fn status(&self, name: &MailboxName) -> Option<Status> {
        let state = self.names.get(name)?;
        let id = self.boxes[self.first_box(name)?].id;
        let mut status = Status {
            messages: 0,
            unseen: 0,
            deleted: 0,
            size: 0,
            deleted_size: 0,
            open_ends: 0,
            uidnext: self.uidnext(name),
            uidvalidity: self.uidvalidity(),
            highestmodseq: state.highest,
            id,
        };
        for (_, record) in self.members(name) {
            status.messages += record.uids.len() as u32;
            status.unseen += record.unseen.len() as u32;
            status.deleted += record.deleted.len() as u32;
            status.size += record.size;
            status.deleted_size += record.deleted_size;
            status.open_ends += record.open_ends;
        }
        Some(status)
    }

    /// UIDVALIDITY, the same for all names.
    pub fn uidvalidity(&self) -> u32 {
        self.created
            .max(self.uidvalidity_floor)
            .max(self.epoch)
            .max(1)
    }

    /// The UIDVALIDITY that the present epoch began with, 0 before the first.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// All UIDs visible under the name, ascending.
    pub fn uids(&self, name: &MailboxName) -> Vec<u32> {
        let count = self.members(name).map(|(_, record)| record.uids.len());
        let mut uids: Vec<u32> = Vec::with_capacity(count.sum());
        for (_, record) in self.members(name) {
            uids.extend(record.uids.keys());
        }
        steps::count(uids.len());
        if self.members(name).nth(1).is_some() {
            // Stable sort finds the ascending runs of the members.
            uids.sort();
        }
        uids
    }

    /// As [`Self::uids`], shared with what is kept here: costs nothing in the number of messages, but for a name that several mailboxes bear.
    pub fn uid_list(&self, name: &MailboxName) -> Uids {
        let mut members = self.members(name);
        match (members.next(), members.next()) {
            (Some((_, record)), None) => record.list.clone(),
            _ => Uids::from(&*self.uids(name)),
        }
    }

    /// The first UID visible under the name whose message has no `\Seen`.
    pub fn first_unseen(&self, name: &MailboxName) -> Option<u32> {
        let members = self.members(name);
        members
            .filter_map(|(_, record)| record.unseen.first())
            .min()
    }

    /// Keywords that messages under the name have, or have had since the account was loaded, sorted, in one spelling each.
    pub fn keywords(&self, name: &MailboxName) -> Vec<Keyword> {
        let spelled = self.members(name).flat_map(|(_, record)| &record.keywords);
        let spelled = spelled.map(|(_, spelling)| self.keywords.keyword(*spelling));
        let spelled: BTreeSet<&Keyword> = spelled.collect();
        let mut keywords: Vec<Keyword> = spelled.into_iter().cloned().collect();
        // Spellings of one are neighbours.
        keywords.dedup_by(|later, first| later.same(first));
        keywords
    }

    /// The first UIDs visible under the name, ascending: those up to `uid_max`, at most so many.
    pub fn first_uids(&self, name: &MailboxName, uid_max: u32, count_max: usize) -> Vec<u32> {
        let mut uids: Vec<u32> = Vec::new();
        for (_, record) in self.members(name) {
            let first = record.uids.range(..=uid_max).take(count_max);
            uids.extend(first.map(|(uid, _)| *uid));
        }
        steps::count(uids.len());
        uids.sort();
        uids.truncate(count_max);
        uids
    }

    /// The content rows that its records name, the hidden ones too, each once with the blob in it.
    pub fn contents(&self) -> impl Iterator<Item = (MessageId, BlobName)> {
        let all = self
            .records
            .iter()
            .map(|(_, record)| (record.origin(), record.blob));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }

    /// The record visible under exactly this UID.
    pub(crate) fn visible_index(&self, name: &MailboxName, uid: u32) -> Option<u32> {
        self.members(name)
            .find_map(|(_, record)| record.uids.get(&uid).copied())
    }

    pub(crate) fn row_of(&self, index: u32) -> Row {
        steps::count(1);
        let record = &self.records[index];
        let placed = i64::try_from(record.placed.hlc / 1_000_000).unwrap_or(i64::MAX);
        Row {
            uid: record.visible_uid,
            message: record.id,
            origin: record.origin(),
            flags: self.flags_of(record),
            modseq: record.modseq.max(self.boxes[record.view_box].base_modseq),
            size: record.size,
            open_end: record.open_end,
            date: record.message().date,
            saved: if placed == 0 { record.seconds } else { placed },
            blob: record.blob,
        }
    }

    /// The message visible under exactly this UID.
    pub fn row(&self, name: &MailboxName, uid: u32) -> Option<Row> {
        self.visible_index(name, uid).map(|slot| self.row_of(slot))
    }

    /// The messages visible under UIDs of the range, ascending.
    pub fn rows(&self, name: &MailboxName, uids: std::ops::RangeInclusive<u32>) -> Vec<Row> {
        if uids.is_empty() {
            return Vec::new();
        }
        let slots = self
            .members(name)
            .flat_map(|(_, record)| record.uids.range(uids.clone()));
        let mut rows: Vec<Row> = slots.map(|(_, slot)| self.row_of(*slot)).collect();
        rows.sort_by_key(|row| row.uid);
        rows
    }

    /// The record that bears this UID under the name, or bore it before it was claimed again (docs/design.md#rule-2).
    pub(crate) fn resolve_index(&self, name: &MailboxName, uid: u32) -> Option<u32> {
        if let Some(index) = self.visible_index(name, uid) {
            return Some(index);
        }
        let index = *self
            .older
            .get(&uid)
            .or_else(|| self.pending.get(&uid).map(|(index, _)| index))?;
        let record = &self.records[index];
        let here =
            record.visible_uid != 0 && self.boxes[record.view_box].listed.as_ref() == Some(name);
        here.then_some(index)
    }

    /// The present UID of the message that bears this UID, or bore it before it was claimed again (docs/design.md#rule-2).
    pub fn resolve(&self, name: &MailboxName, uid: u32) -> Option<u32> {
        self.resolve_index(name, uid)
            .map(|index| self.records[index].visible_uid)
    }

    /// The message for which this UID was claimed, whether or not it is visible yet.
    pub fn claimant(&self, name: &MailboxName, uid: u32) -> Option<MessageId> {
        let index = self.visible_index(name, uid);
        let index = index.or_else(|| self.older.get(&uid).copied());
        let index = index.or_else(|| self.pending.get(&uid).map(|(index, _)| *index));
        let index = index.or_else(|| self.late.get(&(self.epoch, uid)).copied());
        let index = index.or_else(|| self.held_back_index(uid));
        index.map(|index| self.records[index].id)
    }

    /// Whether the message's present UID may be announced.
    pub fn visibility(&self, message: &MessageId) -> Visibility {
        let Some(index) = self.by_id.get(message).copied() else {
            return Visibility::Gone;
        };
        match &self.records[index] {
            record if !record.alive() => Visibility::Gone,
            record if record.visible_uid == record.uid => Visibility::VisibleMessage(record.uid),
            record if self.is_held_back(index, record) => Visibility::Lacks,
            _ => Visibility::Waits,
        }
    }

    /// The blob that its record names; `None`: it is not here.
    pub fn blob(&self, message: &MessageId) -> Option<BlobName> {
        let index = self.by_id.get(message)?;
        Some(self.records[*index].blob)
    }

    /// What never changes about a message; `None`: it is not here.
    pub fn message(&self, message: &MessageId) -> Option<Message> {
        let index = self.by_id.get(message)?;
        Some(self.records[*index].message())
    }

    /// When the message was put where it is, by whom; `None`: it is not here.
    pub fn placed(&self, message: &MessageId) -> Option<Stamp> {
        let index = self.by_id.get(message)?;
        Some(self.records[*index].placed)
    }

    /// Whether a MODSEQ that a client names was given by this replica: its index is ours, and it is neither of the future nor of a time that
    /// was lost. Of any other it is not known what the client had seen when it got it.
    pub fn is_own_modseq(&self, modseq: u64) -> bool {
        modseq % 64 == u64::from(self.slot)
            && modseq / 64 <= self.last_change
            && modseq >= self.lineage.since
    }
}
