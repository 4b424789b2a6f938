//! What a partition machine is told, what it wants, and its bounds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Hash, Incarnation, VersionVector};

use super::snapshot::{StateConfig, StateInput, StateOutput};
use crate::{
    roster::Holding,
    wire::{Frame, Room},
};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes that a peer may send before they are durable here, and that are queued or on the way to one peer.
    pub window_bytes: u64,
    /// Batches, likewise: a small one costs more than its bytes.
    pub window_batches: u32,
    /// Bytes read from the log that the owner has not applied yet.
    pub applying_bytes_max: usize,
    /// Bytes asked of the log at once.
    pub read_bytes_max: usize,
    /// Bytes of batches in one frame; one batch may be more.
    pub frame_bytes_max: usize,
    /// Origins in one partition: members, and those that were.
    pub origins_max: usize,
    /// A batch stamped further ahead is not applied before its time.
    pub ahead_micros_max: u64,
    /// A third node's batch is given to a peer that has lacked it for so long.
    pub forward_after_micros: u64,
    /// What was not acknowledged for so long is sent again.
    pub resend_after_micros: u64,
    /// Vectors are told again after so long while peer and we differ.
    pub refresh_micros: u64,
    /// And after so long while we do not.
    pub quiet_refresh_micros: u64,
    /// Stable numbers that stay in each log, for peers that come back.
    pub kept: u64,
    /// Logs are cut by at least so many numbers at once.
    pub cut_step: u64,
    /// Rows in place of a log.
    pub state: StateConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window_bytes: 1 << 20,
            window_batches: 1024,
            applying_bytes_max: 1 << 20,
            read_bytes_max: 256 << 10,
            frame_bytes_max: 256 << 10,
            origins_max: 1024,
            ahead_micros_max: 300_000_000,
            forward_after_micros: 1_000_000,
            resend_after_micros: 5_000_000,
            refresh_micros: 1_000_000,
            quiet_refresh_micros: 30_000_000,
            kept: 4096,
            cut_step: 1024,
            state: StateConfig::default(),
        }
    }
}

impl Config {
    /// What we keep for a peer, and no more than one or the other allows.
    pub(super) fn room_of(&self, allowed: Option<Room>) -> Room {
        let (bytes, batches) = (self.window_bytes, self.window_batches);
        let allowed = allowed.unwrap_or(Room { bytes, batches });
        Room {
            bytes: allowed.bytes.min(bytes),
            batches: allowed.batches.min(batches),
        }
    }
}

/// What a node takes of its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Taking {
    /// As much as their windows allow.
    #[default]
    All,
    /// One batch of each: nobody knows yet whether it finds room on the disk.
    One,
    /// Nothing: the disk has just refused something.
    Nothing,
}

/// Records stand for more than the log holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{applied} of {origin:?} are applied, its log ends with {last}")]
pub struct ResumeError {
    pub(super) origin: Incarnation,
    pub(super) applied: u64,
    pub(super) last: u64,
}

/// Where a log stands on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The last number, 0 if there is none.
    pub last: u64,
    /// The hash of the batch that holds it.
    pub hash: Hash,
    /// Numbers below have been cut.
    pub low: u64,
}

/// How a node that belongs to the partition stands to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// Counts how often it came back. What it said in an earlier life counts for nothing: it has dropped what it had then.
    pub generation: u32,
    /// It holds nothing of the partition any more; its log has so many operations. Where all of them are applied nobody waits for its word.
    pub left: Option<u64>,
}

impl Membership {
    /// Nodes of which nothing else was said.
    pub fn of(nodes: impl IntoIterator<Item = Incarnation>) -> BTreeMap<Incarnation, Self> {
        let nodes = nodes.into_iter();
        nodes.map(|node| (node, Self::default())).collect()
    }
}

/// What the store knows at the start.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// Where each log stands.
    pub logs: BTreeMap<Incarnation, LogEnd>,
    /// What the records stand for. Of this node's own log it is less than there is when it has come back and dropped them before: then it takes a state.
    pub applied: VersionVector,
    /// Who belongs to the partition, this node included.
    pub members: BTreeMap<Incarnation, Membership>,
    /// What is known to have been stable: hidden records of before may have been dropped.
    pub stable: VersionVector,
    /// This node is new, and was never found to have all that others had.
    pub syncing: bool,
}

/// Names what was asked of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A batch as it lies in a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its first number.
    pub first: u64,
    /// Its last number.
    pub last: u64,
    /// As it was sealed.
    pub bytes: Bytes,
}

/// A batch of another node, to be stored.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// What it says.
    pub batch: Box<Batch>,
    /// As received: stored and forwarded unchanged.
    pub bytes: Bytes,
    /// Of the bytes.
    pub hash: Hash,
}

/// How a partition stands at this node, for whoever watches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is held of each log.
    pub logs: BTreeMap<Incarnation, Holding>,
    /// How many operations all members have applied.
    pub stable: u64,
    /// Bytes of states that came since this machine was made.
    pub state_bytes: u64,
    /// Bytes in memory: of batches that are being stored, applied or sent, and of states.
    pub memory_bytes: usize,
    /// What is known of each peer that was ever linked.
    pub peers: BTreeMap<Incarnation, PeerReport>,
}

/// What is known of a peer, for whoever watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReport {
    /// Operations that are on disk here, and that it has not said to have.
    pub lacks: u64,
    /// Their bytes, those aside that were here before this machine was made.
    pub lag_bytes: u64,
    /// When the oldest of them came here, by the monotonic clock, or when this machine was made; `None`: it lacks nothing.
    pub lag_since_micros: Option<u64>,
    /// Operations that it has said to have, and that are not on disk here.
    pub has_more: u64,
    /// Bytes that wait to be sent to it, or for its acknowledgement.
    pub queued_bytes: u64,
    /// It has said that it is new, and has not yet what another one had: 1, or 0.
    pub syncing: u64,
}

impl PeerReport {
    /// Of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        PeerReport {
            lacks: self.lacks + other.lacks,
            lag_bytes: self.lag_bytes + other.lag_bytes,
            lag_since_micros: [self.lag_since_micros, other.lag_since_micros]
                .into_iter()
                .flatten()
                .min(),
            has_more: self.has_more + other.has_more,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            syncing: self.syncing + other.syncing,
        }
    }
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// There is a link to this peer now; an older one is gone.
    Linked(Incarnation),
    /// The same, but another machine has spoken on this link before: the peer is told so, and says all again.
    LinkedAnew(Incarnation),
    /// The link is gone.
    Unlinked(Incarnation),
    /// The peer sent a frame for this partition.
    Received(Incarnation, Frame),
    /// The owner's next batch is durable.
    Own(Entry, Hash),
    /// A [`Output::Store`] or [`Output::Apply`] is durable.
    Done(Ticket),
    /// The answer to [`Output::Read`]: entries that follow each other; none if the log ends before.
    Log(Ticket, Vec<Entry>),
    /// Who belongs to the partition from now on, this node included. Links with those that have left, or have come back, need not be told again.
    Members(BTreeMap<Incarnation, Membership>),
    /// These logs are closed: nothing of them is taken beyond these numbers. What is below may still have to come, to who has come back to the partition.
    Closed(BTreeMap<Incarnation, u64>),
    /// Numbers of this log up to this one are kept for no member that lacks them and is not linked: it gets a state.
    GiveUp(Incarnation, u64),
    /// What operations of this log up to this number made is forgotten, as nobody else may do who hears of them: nobody is given them, be he linked.
    Forgotten(Incarnation, u64),
    /// State transfer: see there.
    State(StateInput),
    /// Whose batches are given to whom at once: of linked peers that have no link with each other ([`crate::paths`]).
    Passes(BTreeSet<(Incarnation, Incarnation)>),
    /// The deadline has come.
    Time,
}

/// What the machine wants.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append to the log of its origin and, if `apply`, apply it in the same commit; answer [`Input::Done`].
    Store {
        /// For the answer.
        ticket: Ticket,
        /// What.
        foreign: Foreign,
        /// Whether it is handed over as well.
        apply: bool,
    },
    /// Apply what is in the log already; answer [`Input::Done`].
    Apply {
        /// For the answer.
        ticket: Ticket,
        /// What.
        batch: Box<Batch>,
    },
    /// Read a log; answer [`Input::Log`].
    Read {
        /// For the answer.
        ticket: Ticket,
        /// Whose.
        origin: Incarnation,
        /// From the batch that holds this number, or the first one above.
        from: u64,
        /// No further entry beyond so many bytes; one in any case.
        bytes_max: usize,
    },
    /// There is something to send: [`Partition::transmit`].
    Wake(Incarnation),
    /// Forget the entries of this log that end below the number.
    Cut {
        /// Whose.
        origin: Incarnation,
        /// The number.
        below: u64,
    },
    /// All members have applied this: what was hidden before may go.
    Stable(VersionVector),
    /// The peer lacks what this log no longer has: it is told that it needs a state. For the log.
    Behind {
        /// Who.
        peer: Incarnation,
        /// Whose log.
        origin: Incarnation,
    },
    /// A new node has all that another one had: keep that, so that it is known at the next start, then clients may be served. Once.
    Grown,
    /// State transfer: see there.
    State(StateOutput),
    /// Close the link: the peer broke the rules.
    Stop(Incarnation),
    /// A person has to know.
    Alarm(Alarm),
    /// Stop the node: the log is damaged.
    Fatal(String),
}

/// What a person has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// One number of one origin names two batches.
    TwoHashes {
        /// Who has the other one.
        peer: Incarnation,
        /// Whose number.
        origin: Incarnation,
        /// The number.
        number: u64,
    },
    /// A peer knows more of our own log than we do: this disk is older than what was acknowledged.
    Forgotten {
        /// Who.
        peer: Incarnation,
        /// Our number there.
        number: u64,
    },
    /// A batch from the future is held back.
    Ahead {
        /// Whose.
        origin: Incarnation,
        /// Its first number.
        first: u64,
        /// How far ahead.
        micros: u64,
    },
    /// What a peer sent is no batch of this partition.
    Malformed {
        /// Who.
        peer: Incarnation,
        /// What is wrong.
        what: String,
    },
    /// There would be more origins than there may be.
    Origins(Incarnation),
    /// So many operations of this node, made before it left, no holder has: those who had them are lost. It goes on without them.
    OwnLost(u64),
    /// A new node, or one that came back, goes on with what is here: nobody is left who had what clients may know.
    Alone,
}
