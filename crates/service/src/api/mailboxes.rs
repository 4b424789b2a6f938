//! What is told of mailboxes and messages.

use whimbrel_mailbox::{
    Below, BlobName, Date, Flags, Keyword, MailboxId, MailboxName, MessageId, SpecialUse, Uids,
};

#[cfg(doc)]
use super::{MailboxCall, Reply};

/// One name in [`Reply::Mailboxes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    /// The name.
    pub name: MailboxName,
    /// Whether a mailbox bears it; else it is only subscribed, or stands above a name that exists or is subscribed.
    pub exists: bool,
    /// Its special use.
    pub special_use: Option<SpecialUse>,
    /// Whether it is subscribed.
    pub subscribed: bool,
    /// What is below it.
    pub below: Below,
}

/// Figures of one mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// MAILBOXID of RFC 8474.
    pub id: MailboxId,
    /// UIDVALIDITY.
    pub uid_validity: u32,
    /// UIDNEXT.
    pub uid_next: u32,
    /// MESSAGES.
    pub messages: u32,
    /// UNSEEN: how many.
    pub unseen: u32,
    /// DELETED: how many.
    pub deleted: u32,
    /// SIZE: the sum, in bytes.
    pub size: u64,
    /// DELETED-STORAGE: the sum of those with `\Deleted`, in bytes.
    pub deleted_size: u64,
    /// How many do not end with CRLF.
    pub open_ends: u32,
    /// HIGHESTMODSEQ.
    pub highest_modseq: u64,
}

/// What an account may hold; `None`: as much as there is room for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of messages, copies too.
    pub bytes_max: Option<u64>,
    /// Messages.
    pub messages_max: Option<u64>,
    /// Mailboxes.
    pub mailboxes_max: Option<u64>,
}

/// What an account holds, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of messages, copies too.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Mailboxes.
    pub mailboxes: u64,
    /// What it may.
    pub quota: Quota,
}

/// What SELECT tells.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The figures.
    pub status: Status,
    /// All UIDs, ascending: the session's sequence numbers are their places.
    pub uids: Uids,
    /// Place in `uids` of the first message that is not `\Seen` (rev1's UNSEEN), if any.
    pub first_unseen: Option<u32>,
    /// Keywords that messages of this mailbox have, or have had since the account was loaded; the first of them, if they are very many.
    pub keywords: Vec<Keyword>,
    /// To be given to the next [`MailboxCall::Changes`].
    pub as_of: u64,
    /// The UIDNEXT that was told under the name before: who knows a greater UID has it from elsewhere.
    pub told: u32,
}

/// What has changed since.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// UIDs that are gone, ascending; may name some that the session was never told of. Empty unless expunges were allowed.
    pub vanished: Vec<u32>,
    /// New UIDs, ascending, all greater than any UID told before.
    pub arrived: Vec<u32>,
    /// Messages known before whose flags changed, ascending by UID.
    pub changed: Vec<Row>,
    /// The session slept longer than the history of vanished messages reaches: these are all UIDs there are now, ascending; what it
    /// knows besides is gone (told only when expunges were allowed). `vanished` is empty then.
    pub present: Option<Vec<u32>>,
    /// Messages are gone, and it could not be told (expunges were not allowed): up to this MODSEQ the session was told everything.
    pub held_back: Option<u64>,
    /// Which mailbox has the name now: the one that was selected as long as that has it, be it with others that were made under the same name on
    /// other nodes. `None`: none has, it was deleted or renamed away. Another than was selected: that one is gone, too, and all of this is about
    /// one that the session has not seen.
    pub id: Option<MailboxId>,
    /// Whether more has changed than this answer holds (`changed` has at most [`CHANGES_PER_CALL_MAX`] rows): the session asks
    /// again at once, with the new `as_of`, which covers just what was told.
    pub more: bool,
    /// HIGHESTMODSEQ.
    pub highest_modseq: u64,
    /// UIDNEXT.
    pub uid_next: u32,
    /// To be given to the next call.
    pub as_of: u64,
}

/// What has changed since a MODSEQ that a client named.
#[derive(Clone, Debug, Default)]
pub struct Since {
    /// Whether this replica gave the MODSEQ out. If not, nothing is known of what the client has seen: everything may have changed, and
    /// the other fields are empty.
    pub believed: bool,
    /// UIDs of messages that are new or have new flags, ascending.
    pub changed: Vec<u32>,
    /// UIDs that have vanished, ascending; may name some that no client was told of. `None` if they were not asked for, or if the history
    /// does not reach back so far: then what the client knows and is not there is gone.
    pub vanished: Option<Vec<u32>>,
}

/// One message, without its content.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its UID under this name.
    pub uid: u32,
    /// Its identity.
    pub id: MessageId,
    /// EMAILID; key of its content row.
    pub origin: MessageId,
    /// Flags and keywords.
    pub flags: Flags,
    /// MODSEQ.
    pub modseq: u64,
    /// RFC822.SIZE.
    pub size: u32,
    /// It does not end with CRLF.
    pub open_end: bool,
    /// INTERNALDATE.
    pub date: Date,
    /// SAVEDATE (RFC 8514), in seconds since the epoch.
    pub saved: i64,
    /// Where the body lies.
    pub blob: BlobName,
}
