//! The shape that all owners share: inputs in, outputs polled.
//!
//! An owner is a state machine. The driver gives it one [`Input`] at a time, then polls it until it has no more
//! [`Output`]s, carries those out (in any order, except that commits of one machine reach the store in the order given), and
//! brings what comes of them back as inputs. Requests and tickets are chosen by whoever asks and come back unchanged.

use std::collections::BTreeSet;

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};
use whimbrel_directory::OwnQuota;
use whimbrel_mailbox::{AccountId, EntryId, LoadError, Order, Replica, RowKey};
use whimbrel_storage::{Commit, StoreError};
use zeroize::Zeroizing;

use crate::{
    admin::{AdminCall, AdminReply},
    api::{Call, Ended, Entry, Event, Reply, SessionId},
    figures::Figures,
    peers::{PartitionReport, PeerInput, PeerOutput},
};

/// The two clocks, read by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since 1970 by the wall clock, which may jump.
    pub wall_micros: u64,
    /// Microseconds by a clock that only goes forward; for time-outs.
    pub mono_micros: u64,
}

impl Now {
    /// A time by the clock that only goes forward.
    #[cfg(test)]
    pub(crate) fn mono(mono_micros: u64) -> Now {
        Now {
            mono_micros,
            ..Now::default()
        }
    }

    /// Seconds since 1970.
    pub fn wall_seconds(self) -> u64 {
        self.wall_micros / 1_000_000
    }
}

/// Names a call until its reply. Chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names something a machine asked of its driver. Chosen by the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What an account's mail begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountOrigin {
    /// When the account was made, in seconds since 1970.
    pub created: u32,
    /// UIDVALIDITY is at least this; the same at every node.
    pub uid_validity: u32,
    /// What it has risen to since, as far as it is known here: the epoch that the account is in. `uid_validity`, or less: in none.
    pub risen: u32,
}

/// What the directory knows of an account. Told when it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// It is there.
    Living(AccountOrigin),
    /// It was removed, and never comes back: an id is given once.
    Removed,
    /// Nothing was heard of it: there is none, or the news of its mail came before the news of itself.
    Unknown,
}

/// What a machine is told.
#[derive(Debug)]
pub enum Input {
    /// A session asks. Only the calls that this kind of machine answers (see [`route`]).
    Call(RequestId, Call),
    /// The administrator asks (directory only).
    Admin(RequestId, AdminCall),
    /// A page of a scan asked for with [`Output::Load`]: ordered, and the last one if `done`.
    Loaded {
        /// The load's.
        ticket: Ticket,
        /// Keys and values.
        rows: Vec<(Vec<u8>, Bytes)>,
        /// Whether nothing follows.
        done: bool,
    },
    /// The answer to [`Output::Build`].
    Built(Ticket, Result<Box<Replica>, (AccountId, LoadError)>),
    /// A load failed: the message goes to the log. What is damaged is not read again.
    LoadFailed(Ticket, StoreError),
    /// A commit is durable.
    Committed(Ticket),
    /// A commit left nothing behind, because the disk takes no writes or because one before it on the same log failed. (A store that fails
    /// otherwise stops the node.)
    CommitFailed(Ticket),
    /// A password was compared.
    Verified(Ticket, bool),
    /// The queue asks for a delivery (partition owners only).
    Deliver {
        /// The queue's ticket, to be given back in [`Output::Delivered`].
        ticket: Ticket,
        /// The entry.
        entry: std::sync::Arc<Entry>,
        /// Which of its deliveries.
        index: usize,
        /// Who else has to have it.
        others: RequiredCopies,
    },
    /// A delivery is durable, here and where it has to be, or can never be made (queue only).
    Delivered(Ticket),
    /// A delivery was not made for a temporary cause (queue only).
    NotDelivered(Ticket),
    /// A delivery is not made, since this node does not have the account's partition, or not as a whole: another node is to make it (queue only).
    NotHere(Ticket),
    /// No delivery of the entry that came before is to be made any more, if it still waits (partition owners only); answer [`Output::Closed`].
    Closing(EntryId),
    /// An owner has answered [`Output::Closing`] (queue only).
    Closed(EntryId),
    /// At this time of the monotonic clock no node had an entry that came before `least` (partition owners only).
    Swept {
        /// When.
        began: u64,
        /// `None`: no node had any entry.
        least: Option<Order>,
    },
    /// The node is about to stop, and means to be back in so many microseconds (queue only).
    Leaving(u64),
    /// A partition owner meets an account of which it has nothing (directory only); answer [`Output::AccountOrigin`].
    AskBirth(AccountId),
    /// The answer to [`Output::AskBirth`] (partition owners only).
    AccountOrigin(AccountId, AccountStatus),
    /// An account's UIDVALIDITY is this now (directory only): later accounts with its address must have a greater one.
    UidValidity(AccountId, u32),
    /// The account's UIDVALIDITY is too low, unless it has risen meanwhile (partition owners only): another account has held its address.
    LeastUidValidity(AccountId, MinUidValidity),
    /// An account has reached its quota, or has room again (directory only): mail for it is refused meanwhile.
    Full(AccountId, bool),
    /// What an account may hold, where that is not what every account may (partition owners only).
    Quota(AccountId, OwnQuota),
    /// A session's connection is gone.
    Hangup(SessionId),
    /// An account was removed from the directory: drop its mail (partition owners only).
    Purge(AccountId),
    /// Of other nodes.
    Peer(PeerInput),
    /// The deadline that the machine named has come.
    Time,
}

/// An account that was read, and is to be made of its rows.
#[derive(Debug)]
pub struct Building {
    /// Whose.
    pub account: AccountId,
    /// The slot of this node.
    pub slot: u8,
    /// As [`Replica::load`] wants them.
    pub rows: Vec<(RowKey, Vec<u8>)>,
    /// What its partition had applied when all were read; whatever names the account waits for it.
    pub applied: VersionVector,
}

impl Building {
    /// Makes it, or says of which account some row cannot be read, and which.
    pub fn run(self) -> Result<Box<Replica>, (AccountId, LoadError)> {
        let loaded = Replica::load(self.account, self.slot, self.rows, &self.applied);
        loaded.map(Box::new).map_err(|error| (self.account, error))
    }
}

/// What the UIDVALIDITY of an account has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinUidValidity {
    /// At least this.
    pub least: u32,
    /// If it is below that it becomes this, or more: above all of the address, and one that only this node gives.
    pub next: u32,
}

/// Which other nodes must have a delivery before its entry is done: else it would be nowhere when this node is lost.
#[derive(Clone, Debug, Default)]
pub struct RequiredCopies {
    /// How many.
    pub needed: usize,
    /// Of these: they have the body, until the entry is done.
    pub nodes: BTreeSet<Incarnation>,
    /// These are too few: others are asked whether they have the body, and count when they say so.
    pub asks: bool,
}

/// What a machine wants.
#[derive(Debug)]
pub enum Output {
    /// Make this durable; answer [`Input::Committed`] or [`Input::CommitFailed`].
    Commit(Ticket, Commit),
    /// Scan these keys, in pages of bounded size; answer [`Input::Loaded`] for each.
    Load {
        /// For the answer.
        ticket: Ticket,
        /// Where.
        partition: PartitionId,
        /// First key.
        from: Vec<u8>,
        /// First key not wanted.
        to: Vec<u8>,
    },
    /// Do this on a thread of its own: the time it takes is for the account's owner to decide, and for nobody else to wait for. Answer [`Input::Built`].
    Build(Ticket, Building),
    /// Free this, likewise.
    Discard(Box<Replica>),
    /// The answer to [`Input::Call`].
    Reply(RequestId, Reply),
    /// The answer to [`Input::Admin`].
    AdminReply(RequestId, AdminReply),
    /// Tell a session.
    Notify(SessionId, Event),
    /// End all sessions that are logged in to the account, here and carried to other nodes.
    EndSessions(AccountId, Ended),
    /// Compare a password with an argon2id verifier on a thread of its own; answer [`Input::Verified`].
    Verify {
        /// For the answer.
        ticket: Ticket,
        /// PHC string.
        verifier: String,
        /// The password.
        password: Zeroizing<Vec<u8>>,
    },
    /// Route to the owner of `entry.deliveries[index].account` as [`Input::Deliver`].
    Deliver {
        /// For the answer.
        ticket: Ticket,
        /// The entry.
        entry: std::sync::Arc<Entry>,
        /// Which of its deliveries.
        index: usize,
        /// Who else has to have it.
        others: RequiredCopies,
    },
    /// Route to the directory as [`Input::AskBirth`].
    AskBirth(AccountId),
    /// Route to the owner of the account as [`Input::AccountOrigin`].
    AccountOrigin(AccountId, AccountStatus),
    /// Route to the directory as [`Input::UidValidity`].
    UidValidity(AccountId, u32),
    /// Route to the directory as [`Input::Full`].
    Full(AccountId, bool),
    /// Route to the owner of the account as [`Input::Quota`].
    Quota(AccountId, OwnQuota),
    /// Route to the owner of the account as [`Input::LeastUidValidity`].
    LeastUidValidity(AccountId, MinUidValidity),
    /// Route to the queue as [`Input::Delivered`].
    Delivered(Ticket),
    /// Route to the queue as [`Input::NotDelivered`].
    NotDelivered(Ticket),
    /// Route to the queue as [`Input::NotHere`].
    NotHere(Ticket),
    /// Route to every partition owner as [`Input::Closing`].
    Closing(EntryId),
    /// Route to the queue as [`Input::Closed`].
    Closed(EntryId),
    /// Route to every partition owner as [`Input::Swept`].
    Swept {
        /// When.
        began: u64,
        /// See there.
        least: Option<Order>,
    },
    /// Route to the owner of the account as [`Input::Purge`].
    Purge(AccountId),
    /// For other nodes (only of machines that have peers).
    Peer(PeerOutput),
    /// Tell the log.
    Log(Note),
    /// Stop the node: an invariant does not hold, going on could lose mail.
    Fatal(String),
}

/// A line for the log, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Someone came in.
    LoggedIn {
        /// The account's address.
        login: String,
        /// Whether the verifier had to be computed.
        cached: bool,
    },
    /// Someone did not.
    LoginFailed {
        /// As given, cut to a sane length, control characters replaced.
        login: String,
        /// From where.
        peer: std::net::IpAddr,
    },
    /// A message reached a mailbox.
    Delivered {
        /// Hexadecimal entry id.
        entry: String,
        /// The account's address is not known here; its id is.
        account: AccountId,
    },
    /// An account got a new UIDVALIDITY, because the UIDs it gave can no longer be vouched for: its clients load everything again.
    NewUidValidity(AccountId),
    /// A recipient's delivery is durable, on as many nodes as had to have the message, so many microseconds after it was accepted. Not told of
    /// messages that were accepted before the start.
    DeliveryTook(u64),
    /// Something is odd, and was survived.
    Warning(String),
    /// This disk is older than what was told from it; why. The node is to end, and to take a new incarnation.
    Older(String),
}

/// A machine of the service.
pub trait Machine {
    /// Takes one input.
    fn handle(&mut self, now: Now, input: Input);
    /// Gives the next output, until there is none.
    fn poll(&mut self) -> Option<Output>;
    /// When it wants [`Input::Time`], on the monotonic clock.
    fn deadline(&self) -> Option<u64>;
    /// What it can tell of itself.
    fn figures(&self, _now: Now) -> Figures {
        Figures::default()
    }
    /// How its partitions stand.
    fn reports(&self) -> Vec<PartitionReport> {
        Vec::new()
    }
}

/// Which machine a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The directory.
    Directory,
    /// The queue.
    Queue,
    /// The owner of this account's partition.
    Owner(AccountId),
    /// No machine: the driver answers, from the store (contents, blobs) or by itself (turns).
    Store,
}

/// Where a call goes.
pub fn route(call: &Call) -> Route {
    match call {
        Call::Authenticate(_)
        | Call::ScramBegin { .. }
        | Call::ScramFinish(_)
        | Call::MaySend { .. }
        | Call::Resolve { .. } => Route::Directory,
        Call::Accept(_) | Call::Queue(_) => Route::Queue,
        Call::Mailbox { account, .. } => Route::Owner(*account),
        Call::Contents { .. }
        | Call::BlobCreate(_)
        | Call::BlobWrite { .. }
        | Call::BlobFinish { .. }
        | Call::BlobAbort { .. }
        | Call::BlobRead { .. }
        | Call::BlobReadMany(_)
        | Call::TurnBegin
        | Call::TurnEnd => Route::Store,
    }
}
