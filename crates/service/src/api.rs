//! What a session can ask of the server, and what it hears back.
//!
//! A session machine (in `frontend`) has at most one [`Call`] under way; the driver (`server` on tokio, `sim` on
//! virtual time) carries it to the machine that owns the matter and brings the [`Reply`]. Calls are values: they hold
//! no channel and no handle, so the same session runs in both drivers.
//!
//! Whatever a reply tells is already on disk: owners hold replies until the sync that covers all they saw.

mod mailboxes;
mod queue;

use std::net::IpAddr;

use bytes::Bytes;
pub use whimbrel_mailbox::{
    AccountId, Below, BlobName, Date, EntryId, Flag, Flags, Keyword, MailboxId, MailboxName,
    MessageId, SpecialUse, Uids,
};
use zeroize::Zeroizing;

pub use self::{
    mailboxes::{Changes, Mailbox, Quota, Row, Selected, Since, Status, Usage},
    queue::{Delivery, Entry, QueueCall, QueueEntry, QueuePage, QueueState, sent_target},
};

/// Names one client session for as long as its connection lasts. Given by the driver, never used twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Names an upload in progress: the unique part of the blob's future name.
pub type UploadId = [u8; 16];

/// A question of a session.
#[derive(Debug)]
pub enum Call {
    /// Who is this, and may he come in? Answered by [`Reply::Authenticated`].
    Authenticate(Authenticate),
    /// Begins SCRAM: what is this name's salt? Answered by [`Reply::ScramChallenge`], whether there is such a name or not.
    ScramBegin {
        /// The name as the client gave it.
        login: String,
        /// Where the client connects from.
        peer: IpAddr,
    },
    /// Ends SCRAM. Answered by [`Reply::ScramAuthenticated`].
    ScramFinish(ScramFinish),
    /// Who receives mail for this address? Answered by [`Reply::Resolved`].
    Resolve {
        /// The local part as the client gave it, unquoted.
        local: String,
        /// The domain as the client gave it; `None` for `<Postmaster>`.
        domain: Option<String>,
        /// Who asks.
        asker: Asker,
    },
    /// Something about one account's mail. Answered by the [`Reply`] that the call names.
    Mailbox {
        /// Whose.
        account: AccountId,
        /// What.
        call: MailboxCall,
        /// Under which UIDVALIDITY the UIDs in it were told: under another one they mean other messages, and nothing is done
        /// ([`Failure::Gone`]). `None`: it has none.
        uid_validity: Option<u32>,
        /// So many other nodes must have what it writes before it is answered, at most all.
        other_nodes: usize,
    },
    /// The content rows (see [`crate::content::Content`]) of these messages, by origin id, in the order asked. A missing one is
    /// `None`; one that is damaged is empty, which no content row is. Answered by [`Reply::Contents`], maybe by fewer rows than were asked
    /// for (see [`CONTENTS_BYTES_MAX`]). At most [`CONTENTS_PER_CALL_MAX`].
    Contents {
        /// Whose.
        account: AccountId,
        /// Origin ids, as [`Row::origin`] gives them.
        origins: Vec<MessageId>,
    },
    /// Starts an upload, so named if free. Answered by [`Reply::Upload`].
    BlobCreate(Option<UploadId>),
    /// Adds bytes to an upload. Answered by [`Reply::Done`]; chunks of any size up to [`BLOB_CHUNK_BYTES_MAX`].
    BlobWrite {
        /// Which.
        upload: UploadId,
        /// What.
        bytes: Bytes,
    },
    /// Ends an upload. Answered by [`Reply::Blob`]. The blob is durable no later than the write that names it.
    BlobFinish {
        /// Which.
        upload: UploadId,
    },
    /// Gives an upload up. Answered by [`Reply::Done`].
    BlobAbort {
        /// Which.
        upload: UploadId,
    },
    /// Reads part of a blob. Answered by [`Reply::Bytes`]: at most [`BLOB_CHUNK_BYTES_MAX`], and fewer than asked only at the end of a chunk of
    /// the store or of the blob.
    BlobRead {
        /// Which.
        blob: BlobName,
        /// First byte.
        offset: u64,
        /// At most so many.
        len: u32,
    },
    /// May this account send mail from these addresses? Answered by [`Reply::Done`] if all are its own, else by [`Reply::NotYours`].
    MaySend {
        /// Who has logged in.
        account: AccountId,
        /// Local part, unquoted, and domain.
        addresses: Vec<(String, String)>,
        /// A new message begins: it is counted, and [`Failure::Throttled`] if there were too many.
        begins: bool,
    },
    /// Reads from several blobs at once, as [`Call::BlobRead`] does from one. The first is what is wanted, and if it cannot be read the call
    /// fails; the others are read ahead, and of what cannot be read there is nothing. Answered by [`Reply::Blobs`]. For many short messages,
    /// which cost more to ask for than to read. At most [`BLOB_READS_PER_CALL_MAX`] ranges and [`BLOB_READS_BYTES_MAX`].
    BlobReadMany(Vec<BlobRange>),
    /// Accepts a message for delivery. Answered by [`Reply::Done`] when the queue entry and its body are on the disks of as many nodes as have to have
    /// them.
    Accept(Entry),
    /// The administrator looks at the queue. Answered by [`Reply::Queue`].
    Queue(QueueCall),
    /// Asks for a turn at work that holds much memory or a core for long (SORT, THREAD): so many sessions have one at a time, the others
    /// wait. Answered by [`Reply::Done`] when it has come.
    TurnBegin,
    /// Gives the turn back, had or not. Answered by [`Reply::Done`]. A connection that ends gives it back, too.
    TurnEnd,
}

impl Call {
    /// Of what no other node need have.
    #[must_use]
    pub fn mailbox(account: AccountId, call: MailboxCall) -> Self {
        Call::Mailbox {
            account,
            call,
            uid_validity: None,
            other_nodes: 0,
        }
    }
}

/// Most content rows in one [`Call::Contents`]. An answer that has come to [`CONTENTS_BYTES_MAX`] ends there, so that it has one row at least
/// and may have fewer than were asked for: who wants the others asks again.
pub const CONTENTS_PER_CALL_MAX: usize = 256;

/// Where an answer to [`Call::Contents`] ends: bounds what it holds in memory, whatever the messages are.
pub const CONTENTS_BYTES_MAX: usize = 256 * 1024;

/// Most ranges in one [`Call::BlobReadMany`].
pub const BLOB_READS_PER_CALL_MAX: usize = 64;

/// Most bytes that they may ask for together: what a session holds of the bodies of messages that come next.
pub const BLOB_READS_BYTES_MAX: usize = 128 * 1024;

/// A range of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRange {
    /// Which.
    pub blob: BlobName,
    /// First byte.
    pub offset: u64,
    /// How many at the most.
    pub len: u32,
}

/// Most bytes in one blob write or read: what a session holds of a body at a time.
pub const BLOB_CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Who asks for a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A server in front, which is trusted.
    Front,
    /// Anybody, from there: if too many recipients that it named were unknown, it is not answered ([`Failure::Throttled`]).
    Stranger(IpAddr),
    /// An account that sends: its recipients are counted, and [`Failure::Throttled`] if there were too many.
    Account(AccountId),
}

/// A login to check.
pub struct Authenticate {
    /// The name as the client gave it.
    pub login: String,
    /// The password; zeroed when dropped, never logged.
    pub password: Zeroizing<Vec<u8>>,
    /// Where the client connects from: failures are counted for it.
    pub peer: IpAddr,
}

impl std::fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticate")
            .field("login", &self.login)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A proof of SCRAM-SHA-256 to check. The messages it covers hold no secret, and say who the client wants to be.
#[derive(Clone, Debug)]
pub struct ScramFinish {
    /// The name as the client gave it in its first message.
    pub login: String,
    /// Where the client connects from: failures are counted for it.
    pub peer: IpAddr,
    /// The messages that are proved (RFC 5802, 3: AuthMessage).
    pub auth_message: Vec<u8>,
    /// ClientProof.
    pub proof: [u8; SCRAM_KEY_BYTES],
}

/// Bytes of a proof and of a signature: SHA-256.
pub const SCRAM_KEY_BYTES: usize = 32;

/// Something about one account's mail.
#[derive(Clone, Debug)]
pub enum MailboxCall {
    /// A page of the names: existing mailboxes, subscriptions, and what stands above them. [`Reply::Mailboxes`].
    List {
        /// Only names below this one; `None`: all.
        top: Option<MailboxName>,
        /// The last name of the page before that exists or is subscribed; `None`: from the beginning.
        after: Option<MailboxName>,
        /// Whether special uses below a name are asked for ([`Below::special_use`], [`Below::both`]).
        uses: bool,
    },
    /// What the account holds, and what it may. [`Reply::Usage`].
    Usage,
    /// Figures of one mailbox. [`Reply::Status`].
    Status {
        /// Which.
        name: MailboxName,
    },
    /// Of [`STATUSES_PER_CALL_MAX`] at most. [`Reply::Statuses`].
    Statuses {
        /// Which.
        names: Vec<MailboxName>,
    },
    /// Begins to watch a mailbox; a session watches at most one. [`Reply::Selected`].
    Select {
        /// Who.
        session: SessionId,
        /// Which.
        name: MailboxName,
        /// EXAMINE: the session will change nothing.
        read_only: bool,
    },
    /// Ceases to watch. [`Reply::Done`].
    Unselect {
        /// Who.
        session: SessionId,
    },
    /// What has changed for a watching session since the MODSEQ it was last told; raises what the account regards as shown to it.
    /// [`Reply::Changes`].
    Changes {
        /// Who.
        session: SessionId,
        /// The `as_of` of the session's last [`Selected`] or [`Changes`].
        since: u64,
        /// Whether messages that are gone may be told now (RFC 9051, 7.5.1: not during FETCH, STORE, SEARCH by number). If not, they are told by a later
        /// call that allows it, and so are new ones that would follow them.
        expunges: bool,
    },
    /// The UIDs that a watching session was told by its calls so far, which holds no list of them while it waits. [`Reply::Known`].
    Known {
        /// Who.
        session: SessionId,
    },
    /// What has changed since a MODSEQ that the client names (RFC 7162: CHANGEDSINCE, QRESYNC). [`Reply::Since`].
    Since {
        /// Which mailbox.
        name: MailboxName,
        /// As the client names it. It is believed only if this replica gave it out.
        modseq: u64,
        /// Whether vanished messages are asked for, too.
        vanished: bool,
    },
    /// Which of these MODSEQs, which a client names in conditions (RFC 7162, 3.1.5), this replica may have told it: of any other it is not
    /// known what the client had seen when it was told it. [`Reply::Believed`].
    Believed {
        /// As the client names them: what it was told, or one more.
        modseqs: Vec<u64>,
    },
    /// Flags and figures of these messages, in the order of their UIDs; those that are gone are left out. [`Reply::Rows`]. At most
    /// [`ROWS_PER_CALL_MAX`].
    Rows {
        /// Which mailbox.
        name: MailboxName,
        /// UIDs as this session knows them, ascending.
        uids: Vec<u32>,
    },
    /// As [`MailboxCall::Rows`], of all messages in a range of UIDs that have all of some flags and none of others; the session leaves out
    /// those that it does not know. [`Reply::Flagged`].
    Flagged {
        /// Which mailbox.
        name: MailboxName,
        /// The first UID.
        from: u32,
        /// The last UID.
        to: u32,
        /// Flags that each has.
        set: Flags,
        /// Flags that none has.
        unset: Flags,
    },
    /// Adds messages, all of them or none, in one commit. [`Reply::Appended`].
    Append {
        /// The session that is told the UIDs.
        session: SessionId,
        /// Where to.
        name: MailboxName,
        /// At least one.
        messages: Vec<NewMail>,
        /// REPLACE (RFC 8508): a message that goes in the same commit.
        replaces: Option<Replaced>,
    },
    /// Adds messages from elsewhere, all of those that are not here yet or none, in one commit. [`Reply::Appended`], with the UIDs of those
    /// that are new. Only for the administrator: who chooses ids could keep other mail out.
    Import {
        /// Where to.
        name: MailboxName,
        /// At least one; each with what it is elsewhere.
        messages: Vec<(EntryId, NewMail)>,
    },
    /// Copies or moves messages. A COPY is done whole or not at all; of a MOVE as much as one call may do, and the session asks for the rest.
    /// [`Reply::Copied`].
    Copy {
        /// The session that is told the UIDs.
        session: SessionId,
        /// Where from.
        name: MailboxName,
        /// UIDs as this session knows them, ascending.
        uids: Vec<u32>,
        /// Where to.
        to: MailboxName,
        /// MOVE (RFC 6851).
        remove: bool,
    },
    /// Changes flags, of at most [`ROWS_PER_CALL_MAX`] messages. [`Reply::Stored`].
    Store {
        /// Who.
        session: SessionId,
        /// Which mailbox.
        name: MailboxName,
        /// UIDs as this session knows them, ascending.
        uids: Vec<u32>,
        /// Add, remove or replace.
        change: FlagChange,
        /// The flags in question.
        flags: Flags,
        /// RFC 7162, 3.1.3: leave those that have a greater MODSEQ; all of them if this replica did not give out this one.
        unchanged_since: Option<u64>,
    },
    /// Removes the messages that are `\Deleted`: all, or those of `uids`, at most [`MESSAGES_PER_CALL_MAX`]. As much is done as one call may
    /// do; the session asks for the rest. [`Reply::Expunged`].
    Expunge {
        /// Who.
        session: SessionId,
        /// Which mailbox.
        name: MailboxName,
        /// UID EXPUNGE (RFC 4315): only these.
        uids: Option<Vec<u32>>,
        /// Only those that this session was shown: greatest UID it knows. A message that came since stays.
        up_to: u32,
    },
    /// Removes these messages, `\Deleted` or not, as POP3 does at its end (RFC 1939, 6). What is gone already is no failure.
    /// At most [`ROWS_PER_CALL_MAX`]. [`Reply::Done`].
    Remove {
        /// Which mailbox.
        name: MailboxName,
        /// UIDs as this session knows them, ascending.
        uids: Vec<u32>,
    },
    /// CREATE, with superior names. [`Reply::Created`].
    Create {
        /// The new name.
        name: MailboxName,
        /// CREATE-SPECIAL-USE (RFC 6154).
        special_use: Option<SpecialUse>,
    },
    /// DELETE. [`Reply::Done`], or [`Reply::Partly`] as long as more messages are in it than one call removes: the session asks again.
    Delete {
        /// Which.
        name: MailboxName,
    },
    /// RENAME, with inferior names; of INBOX: moves its messages (RFC 9051, 6.3.6). [`Reply::Done`], or [`Reply::Partly`]: the session asks
    /// again.
    Rename {
        /// The old name.
        from: MailboxName,
        /// The new name.
        to: MailboxName,
        /// What [`Reply::Partly`] said; `None` to begin.
        rest: Option<u32>,
    },
    /// A client named these numbers under a name: UIDs, or UIDNEXTs (the beginning of `n:*`), which it was told some time. To be asked
    /// before anything else of the command is done when one is greater than the UIDNEXT that the session knows, and with the known
    /// UIDs of QRESYNC: it may come from another node, or an older copy of the disk may have been put back since. [`Reply::Named`]; what
    /// it changes is told by [`MailboxCall::Changes`].
    Named {
        /// Where.
        name: MailboxName,
        /// Under which UIDVALIDITY it was told them: of another one they say nothing.
        uid_validity: u32,
        /// The greatest of them, at most [`NAMED_PER_CALL_MAX`].
        numbers: Vec<u32>,
        /// [`Selected::told`], if the client has been told no UID since; `None`: what is told now.
        told: Option<u32>,
        /// The MODSEQ that it knows of this mailbox: whose it is says where the client was.
        modseq: Option<u64>,
    },
    /// SUBSCRIBE or UNSUBSCRIBE. [`Reply::Done`].
    Subscribe {
        /// Which; need not exist (RFC 9051, 6.3.7).
        name: MailboxName,
        /// Which of the two.
        subscribed: bool,
    },
}

impl MailboxCall {
    /// The first page of the names.
    #[must_use]
    pub fn list() -> Self {
        MailboxCall::List {
            top: None,
            after: None,
            uses: false,
        }
    }

    /// Whether it is there to change something. Others may change what was told, no more.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            MailboxCall::Append { .. }
            | MailboxCall::Import { .. }
            | MailboxCall::Copy { .. }
            | MailboxCall::Store { .. }
            | MailboxCall::Expunge { .. }
            | MailboxCall::Remove { .. }
            | MailboxCall::Create { .. }
            | MailboxCall::Delete { .. }
            | MailboxCall::Rename { .. }
            | MailboxCall::Subscribe { .. } => true,
            MailboxCall::List { .. }
            | MailboxCall::Usage
            | MailboxCall::Status { .. }
            | MailboxCall::Statuses { .. }
            | MailboxCall::Select { .. }
            | MailboxCall::Unselect { .. }
            | MailboxCall::Changes { .. }
            | MailboxCall::Known { .. }
            | MailboxCall::Since { .. }
            | MailboxCall::Believed { .. }
            | MailboxCall::Rows { .. }
            | MailboxCall::Flagged { .. }
            | MailboxCall::Named { .. } => false,
        }
    }

    /// Whether it names messages by UIDs that the session was told: only under their UIDVALIDITY they mean these.
    #[must_use]
    pub fn names_uids(&self) -> bool {
        match self {
            MailboxCall::Append { replaces, .. } => replaces.is_some(),
            MailboxCall::Since { .. }
            | MailboxCall::Rows { .. }
            | MailboxCall::Flagged { .. }
            | MailboxCall::Copy { .. }
            | MailboxCall::Store { .. }
            | MailboxCall::Expunge { .. }
            | MailboxCall::Remove { .. } => true,
            _ => false,
        }
    }
}

/// A message to add.
#[derive(Clone, Debug)]
pub struct NewMail {
    /// Initial flags.
    pub flags: Flags,
    /// The internal date.
    pub date: Date,
    /// Whole size in bytes.
    pub size: u32,
    /// It does not end with CRLF.
    pub open_end: bool,
    /// The body.
    pub blob: BlobName,
    /// The encoded content row.
    pub content: Bytes,
}

/// A message that another one takes the place of.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// Where it lies.
    pub name: MailboxName,
    /// Its UID as this session knows it.
    pub uid: u32,
}

/// Messages that one call moves or removes, in one batch; of those with many keywords fewer. It bounds how long others wait for the owner, and a commit that
/// shares its sync with others'. The session asks again for the rest.
pub const MESSAGES_PER_CALL_MAX: usize = 4096;

/// Names in an answer to [`MailboxCall::List`], about: those that only stand above the last one are not counted.
pub const NAMES_PER_CALL_MAX: usize = 256;

/// Bytes of the names in it, likewise: what a session holds of a list at a time.
pub const NAMES_BYTES_PER_CALL_MAX: usize = 64 * 1024;

/// Of [`MailboxCall::Statuses`].
pub const STATUSES_PER_CALL_MAX: usize = 64;

/// Most messages in one [`MailboxCall::Rows`]: an owner works for no session longer than this at a time.
pub const ROWS_PER_CALL_MAX: usize = 1024;

/// How STORE changes flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagChange {
    /// `+FLAGS`
    Add,
    /// `-FLAGS`
    Remove,
    /// `FLAGS`
    Replace,
}

/// The answer to a [`Call`].
#[derive(Debug)]
pub enum Reply {
    /// It is done, and on disk.
    Done,
    /// It is not.
    Failed(Failure),
    /// To [`Call::Authenticate`].
    Authenticated {
        /// The account.
        account: AccountId,
        /// Its address, as the directory spells it.
        login: String,
    },
    /// To [`Call::ScramBegin`].
    ScramChallenge {
        /// Of the name; made up, but always the same, where there are no keys.
        salt: [u8; 16],
        /// Of PBKDF2.
        iterations: u32,
        /// The server's part of the nonce: printable, never given twice, and not to be guessed.
        nonce: String,
    },
    /// To [`Call::ScramFinish`]: as [`Reply::Authenticated`], with the proof that this is the server.
    ScramAuthenticated {
        /// The account.
        account: AccountId,
        /// Its address, as the directory spells it.
        login: String,
        /// ServerSignature.
        signature: [u8; SCRAM_KEY_BYTES],
    },
    /// To [`Call::MaySend`]: place of the first address that is not the account's.
    NotYours(usize),
    /// To [`Call::Resolve`].
    Resolved(Resolution),
    /// To [`MailboxCall::List`].
    Mailboxes {
        /// Ordered by name. One that neither exists nor is subscribed stands before the first that is below it.
        names: Vec<Mailbox>,
        /// Others follow.
        more: bool,
    },
    /// To [`MailboxCall::Usage`].
    Usage(Usage),
    /// To [`MailboxCall::Status`].
    Status(Status),
    /// To [`MailboxCall::Statuses`].
    Statuses(Vec<Result<Status, Failure>>),
    /// To [`MailboxCall::Select`].
    Selected(Selected),
    /// To [`MailboxCall::Known`]: ascending. `None`: the history of vanished messages does not reach back so far.
    Known(Option<Vec<u32>>),
    /// To [`MailboxCall::Changes`].
    Changes(Changes),
    /// To [`MailboxCall::Since`].
    Since(Since),
    /// To [`MailboxCall::Believed`]: those that are, in the order asked.
    Believed(Vec<u64>),
    /// To [`MailboxCall::Named`].
    Named {
        /// Whether it has something of what it names from elsewhere, so that its MODSEQ does not say all that it has seen.
        elsewhere: bool,
    },
    /// To [`MailboxCall::Rows`].
    Rows(Vec<Row>),
    /// To [`MailboxCall::Flagged`].
    Flagged {
        /// At most [`ROWS_PER_CALL_MAX`], ascending by UID.
        rows: Vec<Row>,
        /// They are all up to this UID. It is the last that was asked for, or the session asks again for what is behind it.
        up_to: u32,
    },
    /// To [`MailboxCall::Create`]: the new mailbox (MAILBOXID of RFC 8474).
    Created(MailboxId),
    /// To [`MailboxCall::Append`].
    Appended {
        /// The mailbox's.
        uid_validity: u32,
        /// The new messages', in their order: need not ascend.
        uids: Vec<u32>,
    },
    /// To [`MailboxCall::Copy`].
    Copied {
        /// The target's.
        uid_validity: u32,
        /// Old UIDs, as named, and new ones: by the old.
        uids: Vec<(u32, u32)>,
        /// How many of the UIDs in the call it is about, the first ones: one at least. MOVE goes on with the rest.
        done: usize,
    },
    /// To [`MailboxCall::Store`].
    Stored {
        /// The messages as they are now, those left alone excepted.
        rows: Vec<Row>,
        /// UIDs left alone because of UNCHANGEDSINCE.
        modified: Vec<u32>,
    },
    /// To [`MailboxCall::Expunge`].
    Expunged {
        /// UIDs, ascending: one at least if there are more.
        uids: Vec<u32>,
        /// Whether there are more to be removed, by the same call again; above the last of `uids`.
        more: bool,
        /// The mailbox's HIGHESTMODSEQ after it.
        highest_modseq: u64,
    },
    /// To [`MailboxCall::Delete`] and [`MailboxCall::Rename`]: a part is done, and on disk.
    Partly {
        /// With what a RENAME goes on.
        rest: Option<u32>,
    },
    /// To [`Call::Contents`].
    Contents(Vec<Option<Bytes>>),
    /// To [`Call::BlobCreate`].
    Upload(UploadId),
    /// Entries of the queue.
    Queue(QueuePage),
    /// To [`Call::BlobFinish`].
    Blob(BlobName),
    /// To [`Call::BlobRead`].
    Bytes(Bytes),
    /// To [`Call::BlobReadMany`]: one for each range.
    Blobs(Vec<Bytes>),
}

/// Why a call failed: what the session may tell its client. The private cause went to the log where it arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Wrong name or password; never says which.
    #[error("authentication failed")]
    Credentials,
    /// Too many failures from here, or too many logins at once: later.
    #[error("too many attempts, try again later")]
    Throttled,
    /// The login was right, and the account has as many sessions as it may.
    #[error("too many sessions of this account, try again later")]
    InUse,
    /// No such mailbox.
    #[error("no such mailbox")]
    NoSuchMailbox,
    /// The message to be replaced has been expunged.
    #[error("no such message")]
    NoSuchMessage,
    /// It exists already.
    #[error("mailbox exists already")]
    Exists,
    /// The name, or a child's name after a RENAME, is not allowed.
    #[error("mailbox name not allowed")]
    BadName,
    /// INBOX cannot be deleted.
    #[error("INBOX cannot be deleted")]
    Inbox,
    /// It has children, and no messages of its own to lose (RFC 9051, 6.3.5).
    #[error("mailbox has inferior names")]
    HasChildren,
    /// A named limit of count or size would be passed.
    #[error("{0}")]
    Limit(&'static str),
    /// The account would hold more than it may (RFC 9208).
    #[error("{0}")]
    OverQuota(&'static str),
    /// A message has more recipients than an entry of the queue has room for.
    #[error("too many recipients for one message")]
    TooManyRecipients,
    /// Full disk, or the queue is full: temporary.
    #[error("insufficient storage, try again later")]
    Storage,
    /// Fewer other nodes are reachable than have to have what was given: temporary.
    #[error("too few other nodes are reachable, try again later")]
    TooFewNodes,
    /// Too few other nodes said in time that they have it: temporary.
    #[error("other nodes do not answer, try again later")]
    NotConfirmed,
    /// The same, and it is done here: temporary.
    #[error("done on this node alone, try again later")]
    DoneHere,
    /// This node's clock is wrong, so it writes nothing: temporary.
    #[error("the clock of this node is wrong, try again later")]
    Clock,
    /// Any other temporary cause.
    #[error("temporary failure, try again later")]
    Temporary,
    /// The account has been removed, or its state cannot be read.
    #[error("account unavailable")]
    NoSuchAccount,
    /// The session was told things that no longer hold (its mailbox is gone): it should be disconnected or deselected.
    #[error("the selected mailbox is gone")]
    Gone,
}

/// What an address stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// At least one local account.
    Local(Vec<Target>),
    /// The domain is ours, the address is not.
    NoSuchUser,
    /// Each account that it leads to has reached its quota.
    Full,
    /// Not our domain: relaying.
    NotOurs,
    /// An alias leads to itself, or to more targets than allowed.
    Loop,
}

/// One account that an address leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The account.
    pub account: AccountId,
    /// Its own address, for Delivered-To.
    pub address: String,
    /// `x` of `anne+x`: the mailbox to deliver into, if it exists.
    pub detail: Option<String>,
}

/// Numbers in [`MailboxCall::Named`]: only the greatest that is plausible counts, and a client names few that are not.
pub const NAMED_PER_CALL_MAX: usize = 64;

/// Most rows in one [`Changes`]: no session holds more at a time, whatever was changed while it slept.
pub const CHANGES_PER_CALL_MAX: usize = 1024;

/// What a session is told without having asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The watched mailbox has changed: ask for [`MailboxCall::Changes`] when the protocol allows it.
    Changed,
    /// The server stops, or serves the account no more: say goodbye.
    Shutdown,
    /// Whoever has logged in may not be here any more: say why, and do nothing more for him.
    Ended(Ended),
}

/// Why the sessions of an account end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has another password than the one they logged in with.
    PasswordChanged,
    /// It is gone.
    AccountRemoved,
}

impl Ended {
    /// For the client.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Ended::PasswordChanged => "The password was changed, log in again",
            Ended::AccountRemoved => "The account was removed",
        }
    }

    /// For the log.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Ended::PasswordChanged => "password changed",
            Ended::AccountRemoved => "account removed",
        }
    }
}
