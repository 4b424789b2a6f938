//! What the administrator asks of the queue, and what he is shown.

use whimbrel_crdt::Incarnation;

use super::{AccountId, Date, EntryId, MailboxName};

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
