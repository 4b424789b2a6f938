//! From a client's wish to operations: what is visible here decides; nothing is changed.

use whimbrel_crdt::Dot;

use crate::{
    BlobName, Date, EntryId, Flags, MailboxId, MailboxName, MessageId, NameError, Op, Peers,
    Replica, SpecialUse,
};

/// When, and under which number, the planned operations will be applied.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wall clock, microseconds since the epoch.
    pub now_micros: u64,
    /// The dot of the first planned operation. The plan holds only if they get exactly this dot and those after it.
    pub next: Dot,
}

/// Operations to apply, and what to tell when they are on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T> {
    /// Empty if there is nothing to do.
    pub ops: Vec<Op>,
    /// What to tell.
    pub outcome: T,
}

/// Why a wish cannot be granted. Permanent unless said otherwise; the text may be told to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// NONEXISTENT, or TRYCREATE.
    #[error("no such mailbox")]
    NoMailbox,
    /// ALREADYEXISTS
    #[error("mailbox exists")]
    Exists,
    /// CANNOT: INBOX cannot be deleted.
    #[error("INBOX cannot be deleted")]
    Inbox,
    /// CANNOT: a name cannot be made.
    #[error(transparent)]
    Name(#[from] NameError),
    /// CANNOT: RENAME into itself.
    #[error("a mailbox cannot be moved below itself")]
    IntoItself,
    /// LIMIT
    #[error("too many mailboxes")]
    TooManyMailboxes,
    /// LIMIT
    #[error("too many keywords")]
    TooManyKeywords,
    /// The account is not open yet.
    #[error("the account is not open")]
    NotOpen,
    /// LIMIT: the counter is at its end; an epoch is due.
    #[error("no UIDs are left")]
    NoUids,
}

/// A message to append or deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Initial flags (ignored for a delivery).
    pub flags: Flags,
    /// Where the bytes are.
    pub blob: BlobName,
    /// RFC822.SIZE
    pub size: u32,
    /// INTERNALDATE
    pub date: Date,
    /// The summary, opaque.
    pub content: Vec<u8>,
}

/// CREATE
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// MAILBOXID
    pub id: MailboxId,
}

/// RENAME
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Old and new names, the children's too.
    pub names: Vec<(MailboxName, MailboxName)>,
}

/// A delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The message.
    pub message: MessageId,
    /// The UID it gets; `None` if it was delivered before.
    pub uid: Option<u32>,
}

/// COPY: COPYUID in the order of the sources' UIDs. Call [`Replica::announce`] on the target before it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Source UID (as it is at present) and target UID.
    pub uids: Vec<(u32, u32)>,
    /// UIDs that name nothing shown.
    pub missing: Vec<u32>,
}

/// MOVE: as for COPY.
pub type Moved = Copied;

/// How STORE names flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// `+FLAGS`
    Add,
    /// `-FLAGS`
    Remove,
    /// `FLAGS`
    Replace,
}

/// STORE
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The present UIDs of the messages found, ascending.
    pub uids: Vec<u32>,
    /// UIDs that name nothing shown.
    pub missing: Vec<u32>,
}

/// What a client that may come from another node names (rule 6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// For each name the greatest UID or UIDNEXT - 1 that the client named.
    pub named: Vec<(MailboxName, u32)>,
    /// For each slot the greatest counter that every other node which served the account has announced: the least over
    /// those nodes. A claim not covered by it may be unknown to the client.
    pub announced: Vec<(u8, u32)>,
}

impl Replica {
    /// The account begins: INBOX and the default folders, each once in the cluster.
    pub fn plan_open(
        &self,
        created: u32,
        uidvalidity_floor: u32,
        folders: &[(MailboxName, Option<SpecialUse>)],
    ) -> Plan<()> {
        let _ = (created, uidvalidity_floor, folders);
        todo!()
    }

    /// CREATE. Superior names are created too (RFC 9051, 6.3.4).
    pub fn plan_create(
        &self,
        at: &At,
        name: &MailboxName,
        special_use: Option<SpecialUse>,
    ) -> Result<Plan<Created>, PlanError> {
        let _ = (at, name, special_use);
        todo!()
    }

    /// DELETE. Children stay.
    pub fn plan_delete(&self, name: &MailboxName) -> Result<Plan<()>, PlanError> {
        let _ = name;
        todo!()
    }

    /// RENAME, with the children. RENAME INBOX makes a new mailbox and moves the messages (RFC 9051, 6.3.6).
    pub fn plan_rename(
        &self,
        at: &At,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Plan<Renamed>, PlanError> {
        let _ = (at, from, to);
        todo!()
    }

    /// SUBSCRIBE; the name need not exist.
    pub fn plan_subscribe(&self, name: &MailboxName) -> Result<Plan<()>, PlanError> {
        let _ = name;
        todo!()
    }

    /// UNSUBSCRIBE
    pub fn plan_unsubscribe(&self, name: &MailboxName) -> Plan<()> {
        let _ = name;
        todo!()
    }

    /// APPEND and MULTIAPPEND; the outcome is the UIDs for APPENDUID.
    pub fn plan_append(
        &self,
        at: &At,
        name: &MailboxName,
        messages: Vec<NewMessage>,
    ) -> Result<Plan<Vec<u32>>, PlanError> {
        let _ = (at, name, messages);
        todo!()
    }

    /// A delivery of a queue entry into `name`. `target` is the name that the recipient's address asked for, fixed at
    /// acceptance: it and not `name` decides the id.
    pub fn plan_deliver(
        &self,
        at: &At,
        entry: EntryId,
        target: &MailboxName,
        name: &MailboxName,
        message: NewMessage,
    ) -> Result<Plan<Delivered>, PlanError> {
        let _ = (at, entry, target, name, message);
        todo!()
    }

    /// COPY
    pub fn plan_copy(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Copied>, PlanError> {
        let _ = (at, from, uids, to);
        todo!()
    }

    /// MOVE
    pub fn plan_move(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Moved>, PlanError> {
        let _ = (at, from, uids, to);
        todo!()
    }

    /// STORE. `shown` gives, for a replacing STORE, the flags that the session was shown for a UID; `None` means as
    /// they are now.
    pub fn plan_store(
        &self,
        name: &MailboxName,
        uids: &[u32],
        mode: StoreMode,
        flags: &Flags,
        shown: &dyn Fn(u32) -> Option<Flags>,
    ) -> Result<Plan<Stored>, PlanError> {
        let _ = (name, uids, mode, flags, shown);
        todo!()
    }

    /// EXPUNGE of exactly these UIDs; the caller has selected those with `\Deleted`.
    pub fn plan_expunge(
        &self,
        name: &MailboxName,
        uids: &[u32],
    ) -> Result<Plan<Stored>, PlanError> {
        let _ = (name, uids);
        todo!()
    }

    /// Late messages claimed again (rule 4). `peers` are those who will do the same at once: they give the rank.
    pub fn plan_late(&self, at: &At, peers: &Peers) -> Plan<()> {
        let _ = (at, peers);
        todo!()
    }

    /// What must be done before a client that may come from another node is answered (rule 6). After applying it, call
    /// [`Replica::raise_marks`] with the same.
    pub fn plan_takeover(&self, at: &At, takeover: &Takeover) -> Plan<()> {
        let _ = (at, takeover);
        todo!()
    }

    /// A new epoch: UIDVALIDITY rises. The last resort.
    pub fn plan_epoch(&self, at: &At) -> Plan<()> {
        let _ = at;
        todo!()
    }

    /// Raises the marks of the names to what a client named (rule 6), which counts as announced.
    pub fn raise_marks(&mut self, takeover: &Takeover) {
        let _ = takeover;
        todo!()
    }
}
