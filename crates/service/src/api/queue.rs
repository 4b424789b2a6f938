//! What is given to the queue, what the administrator asks of it, and what he is shown.

use bytes::Bytes;
use whimbrel_crdt::Incarnation;

use super::{AccountId, BlobName, Date, EntryId, MailboxName};

/// An accepted transaction: envelope and final bytes, fixed at acceptance (docs/design.md#the-queue).
#[derive(Clone, Debug)]
pub struct Entry {
    /// Random, 128 bits.
    pub id: EntryId,
    /// The envelope sender; empty for `<>`.
    pub sender: String,
    /// Who gets it.
    pub deliveries: Vec<Delivery>,
    /// The message's bytes as received.
    pub blob: BlobName,
    /// When it was accepted; becomes the internal date.
    pub date: Date,
}

/// One recipient of an [`Entry`].
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The account.
    pub account: AccountId,
    /// The mailbox wished for by plus-addressing, else INBOX. If it does not exist at delivery, INBOX it is; the derived id follows
    /// from the wish.
    pub target: MailboxName,
    /// The encoded content row: trace header fields of this recipient, and the summary.
    pub content: Bytes,
    /// Whole size in bytes, trace header fields included.
    pub size: u32,
    /// It does not end with CRLF.
    pub open_end: bool,
    /// The sender's own copy: it goes, as seen, into the mailbox for sent mail instead of `target`, which only gives it its id (see
    /// [`sent_target`]). An account without such a mailbox gets none.
    pub sent: bool,
}

/// The target of a sender's copy: a name that no address can ask for (it has a space), so that the copy is never taken for a delivery to
/// `anne+...`.
#[must_use]
pub fn sent_target() -> MailboxName {
    MailboxName::new("Sent copy").expect("a name of letters and a space is valid")
}

/// What the administrator asks of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCall {
    /// Entries that this node holds, by their ids.
    List {
        /// The first id that is wanted; `None`: from the beginning.
        from: Option<EntryId>,
        /// At most so many; a page has no more than 100.
        limit: usize,
    },
    /// One entry.
    Show(EntryId),
}

/// Entries of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePage {
    /// Those that were here when they were looked for.
    pub entries: Vec<QueueEntry>,
    /// Where to go on; `None`: these were the last.
    pub next: Option<EntryId>,
}

/// An entry, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Its id.
    pub id: EntryId,
    /// The envelope sender; empty for `<>`.
    pub sender: String,
    /// Bytes of the message.
    pub size: u32,
    /// When it was accepted.
    pub date: Date,
    /// Who gets it: accounts, and the mailboxes wished for.
    pub deliveries: Vec<(AccountId, MailboxName)>,
    /// The nodes that have it; the first one delivers.
    pub owners: Vec<Incarnation>,
    /// What this node does with it.
    pub state: QueueState,
}

/// What a node does with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Its client still waits for other nodes.
    Accepting,
    /// These deliveries are under way, by their places.
    Delivering {
        /// Which.
        open: Vec<usize>,
    },
    /// It is delivered when that is due: microseconds since 1970; 0: as soon as there is room.
    Waiting {
        /// When.
        not_before_micros: u64,
    },
    /// Another node delivers it.
    Copy,
}
