//! What clients are shown: names, counts, UIDs, rows, changes.

use crate::{BlobName, Date, Flags, MailboxId, MailboxName, MessageId, Replica, SpecialUse};

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

/// What STATUS and SELECT tell. Only what is shown counts.
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
    /// UIDNEXT. Call [`Replica::announce`] before it is told.
    pub uidnext: u32,
    /// UIDVALIDITY
    pub uidvalidity: u32,
    /// HIGHESTMODSEQ
    pub highestmodseq: u64,
    /// MAILBOXID
    pub id: MailboxId,
}

/// One shown message.
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
    /// INTERNALDATE
    pub date: Date,
    /// Where the bytes are.
    pub blob: BlobName,
}

/// What changed under a name since a MODSEQ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New or with new flags, ascending.
    pub changed: Vec<u32>,
    /// UIDs that are shown no more, ascending. Not of use unless `complete`.
    pub vanished: Vec<u32>,
    /// Whether `vanished` is all: else the history was cut, and what the client knows must be compared with what is
    /// shown.
    pub complete: bool,
    /// The MODSEQ to ask from next time.
    pub highestmodseq: u64,
}

impl Replica {
    /// All names: those that exist, and those that are only subscribed; in order.
    pub fn names(&self) -> Vec<NameInfo> {
        todo!()
    }

    /// Whether a mailbox bears the name.
    pub fn exists(&self, name: &MailboxName) -> bool {
        let _ = name;
        todo!()
    }

    /// Counts and numbers of a name, `None` if no mailbox bears it. Costs nothing in the number of messages.
    pub fn status(&self, name: &MailboxName) -> Option<Status> {
        let _ = name;
        todo!()
    }

    /// UIDVALIDITY, the same for all names.
    pub fn uidvalidity(&self) -> u32 {
        todo!()
    }

    /// All UIDs shown under the name, ascending.
    pub fn uids(&self, name: &MailboxName) -> Vec<u32> {
        let _ = name;
        todo!()
    }

    /// The message shown under exactly this UID.
    pub fn row(&self, name: &MailboxName, uid: u32) -> Option<Row> {
        let _ = (name, uid);
        todo!()
    }

    /// The messages shown under UIDs of the range, ascending.
    pub fn rows(&self, name: &MailboxName, uids: std::ops::RangeInclusive<u32>) -> Vec<Row> {
        let _ = (name, uids);
        todo!()
    }

    /// The present UID of the message that bears this UID, or bore it before it was claimed again (rule 2).
    pub fn resolve(&self, name: &MailboxName, uid: u32) -> Option<u32> {
        let _ = (name, uid);
        todo!()
    }

    /// What changed under the name since `modseq`. Costs what changed, not what is there.
    pub fn changes(&self, name: &MailboxName, modseq: u64) -> Changes {
        let _ = (name, modseq);
        todo!()
    }

    /// Whether a MODSEQ that a client names was given by this replica: its slot is ours, and it is not of the future.
    pub fn is_own_modseq(&self, modseq: u64) -> bool {
        let _ = modseq;
        todo!()
    }
}
