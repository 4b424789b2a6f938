//! Inputs and outputs of a partition machine, and its bounds.

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
    /// Bytes that a peer may send before they are durable here; also the bytes that are queued or on the way to one peer.
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
    /// A third node's batch is sent to a peer that has lacked it for so long.
    pub forward_after_micros: u64,
    /// Batches that were not acknowledged for so long are sent again.
    pub resend_after_micros: u64,
    /// A node sends its vectors to a peer again after so long while the two nodes differ.
    pub refresh_micros: u64,
    /// The same while they do not differ.
    pub quiet_refresh_micros: u64,
    /// Stable numbers that stay in each log, for peers that come back.
    pub kept: u64,
    /// Logs are cut by at least so many numbers at once.
    pub cut_step: u64,
    /// Snapshots.
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
    /// The window of the configuration, and no more than `allowed`.
    pub(super) fn room_of(&self, allowed: Option<Room>) -> Room {
        let (bytes, batches) = (self.window_bytes, self.window_batches);
        let allowed = allowed.unwrap_or(Room { bytes, batches });
        Room {
            bytes: allowed.bytes.min(bytes),
            batches: allowed.batches.min(batches),
        }
    }
}

/// What a node accepts from its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Taking {
    /// As much as their windows allow.
    #[default]
    All,
    /// One batch of each peer: it is not known yet whether the disk has room.
    One,
    /// Nothing: the disk has just refused a write.
    Nothing,
}

/// More ops are applied in the rows than the log holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{applied} of {origin:?} are applied, its log ends with {last}")]
pub struct ResumeError {
    pub(super) origin: Incarnation,
    pub(super) applied: u64,
    pub(super) last: u64,
}

/// Where a log begins and ends on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The last number, 0 if there is none.
    pub last: u64,
    /// The hash of the batch that contains it.
    pub hash: Hash,
    /// Numbers below have been cut.
    pub low: u64,
}

/// What a member has said of itself and the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// Counts how often the member came back. Its reports of an earlier generation do not count: it has dropped what it had then.
    pub generation: u32,
    /// The member has left: it holds nothing of the partition any more, and its log has so many ops. A node that has applied all of them waits for no
    /// reports of this member.
    pub left: Option<u64>,
}

impl Membership {
    /// Members that have never left.
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
    /// What is applied in the rows. It covers less than the whole own log when this node has dropped its rows and come back: then the node takes a
    /// snapshot.
    pub applied: VersionVector,
    /// Who belongs to the partition, this node included.
    pub members: BTreeMap<Incarnation, Membership>,
    /// What was stable: hidden records that it covers may have been dropped.
    pub stable: VersionVector,
    /// Whether this node is syncing.
    pub syncing: bool,
}

/// Names a request to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A batch as it lies in a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its first number.
    pub first: u64,
    /// Its last number.
    pub last: u64,
    /// Its bytes, as sealed.
    pub bytes: Bytes,
}

/// A batch of another node, to be stored.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// The decoded batch.
    pub batch: Box<Batch>,
    /// Its bytes as received: they are stored and forwarded unchanged.
    pub bytes: Bytes,
    /// The hash of the bytes.
    pub hash: Hash,
}

/// The state of a partition at this node, for metrics and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is held of each log.
    pub logs: BTreeMap<Incarnation, Holding>,
    /// How many ops are stable.
    pub stable: u64,
    /// Bytes of snapshots received since this machine was made.
    pub state_bytes: u64,
    /// Bytes in memory: batches that are being stored, applied or sent, and rows of snapshots.
    pub memory_bytes: usize,
    /// Each peer that was ever linked.
    pub peers: BTreeMap<Incarnation, PeerReport>,
}

/// What is known of a peer, for metrics and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReport {
    /// Ops that are on disk here and that the peer has not acknowledged.
    pub lacks: u64,
    /// Their bytes, except those that were here before this machine was made.
    pub lag_bytes: u64,
    /// When the oldest of them came here, by the monotonic clock, or when this machine was made. `None`: the peer lacks nothing.
    pub lag_since_micros: Option<u64>,
    /// Ops that the peer has reported and that are not on disk here.
    pub has_more: u64,
    /// Bytes that are queued to the peer, or not acknowledged yet.
    pub queued_bytes: u64,
    /// 1 if the peer has said that it is syncing, else 0.
    pub syncing: u64,
}

impl PeerReport {
    /// The sum of both reports.
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

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// There is a link to this peer now; an older one is gone.
    Linked(Incarnation),
    /// The same, but another machine has used this link before: this machine asks the peer to say everything again.
    LinkedAnew(Incarnation),
    /// The link is gone.
    Unlinked(Incarnation),
    /// The peer sent a frame for this partition.
    Received(Incarnation, Frame),
    /// This node's next own batch is durable.
    Own(Entry, Hash),
    /// A [`Output::Store`] or [`Output::Apply`] is durable.
    Done(Ticket),
    /// The answer to [`Output::Read`]: entries without a gap; none if the log ends before.
    Log(Ticket, Vec<Entry>),
    /// The members of the partition from now on, this node included. The driver need not report again the links of members that left or came back.
    Members(BTreeMap<Incarnation, Membership>),
    /// These logs are closed: nothing beyond these numbers is accepted. A node that came back to the partition may still have to receive what lies
    /// below.
    Closed(BTreeMap<Incarnation, u64>),
    /// Up to this number the log is not kept for members that are away: they get a snapshot.
    GiveUp(Incarnation, u64),
    /// The effects of this log's ops up to this number are dropped. No peer gets these ops any more, not even a linked one.
    Forgotten(Incarnation, u64),
    /// State transfer: see there.
    State(StateInput),
    /// Pairs (of, to): this node forwards the batches of `of` to `to` at once, since the two have no link ([`crate::paths`]).
    Passes(BTreeSet<(Incarnation, Incarnation)>),
    /// The deadline has come.
    Time,
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append to the log of its origin and, if `apply`, apply it in the same commit; answer [`Input::Done`].
    Store {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The batch.
        foreign: Foreign,
        /// Whether the batch is applied in the same commit.
        apply: bool,
    },
    /// Apply what is in the log already; answer [`Input::Done`].
    Apply {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The batch.
        batch: Box<Batch>,
    },
    /// Read a log; answer [`Input::Log`].
    Read {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The origin of the log.
        origin: Incarnation,
        /// From the batch that holds this number, or the first one above.
        from: u64,
        /// The most bytes of all entries; the first entry may be larger.
        bytes_max: usize,
    },
    /// There is something to send to this peer: call [`Partition::transmit`].
    Wake(Incarnation),
    /// Delete the entries of this log that end below the number.
    Cut {
        /// The origin of the log.
        origin: Incarnation,
        /// The number.
        below: u64,
    },
    /// This is stable: records that were hidden before may be dropped.
    Stable(VersionVector),
    /// The peer lacks batches that this log no longer has, and is told to ask for a snapshot. This output is for the log file.
    Behind {
        /// The peer.
        peer: Incarnation,
        /// The origin of the log.
        origin: Incarnation,
    },
    /// This node is no longer syncing. Store that, then serve clients. Given once.
    Grown,
    /// State transfer: see there.
    State(StateOutput),
    /// Close the link: the peer has broken the protocol.
    Stop(Incarnation),
    /// Report this to the operator.
    Alarm(Alarm),
    /// Stop the node: the log is damaged.
    Fatal(String),
}

/// What the operator has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// One number of one origin names two batches.
    TwoHashes {
        /// The peer that has the other batch.
        peer: Incarnation,
        /// The origin of the log.
        origin: Incarnation,
        /// The number.
        number: u64,
    },
    /// A peer has more of our own log than we have: this disk has lost acknowledged batches.
    Forgotten {
        /// The peer.
        peer: Incarnation,
        /// The last number of our log that the peer has.
        number: u64,
    },
    /// A batch that is stamped too far ahead is held back.
    Ahead {
        /// The origin of the log.
        origin: Incarnation,
        /// Its first number.
        first: u64,
        /// How far its stamp is ahead of the wall clock.
        micros: u64,
    },
    /// A peer has sent something else than a batch of this partition.
    Malformed {
        /// The peer.
        peer: Incarnation,
        /// What is wrong.
        what: String,
    },
    /// This peer has named more origins than are allowed.
    Origins(Incarnation),
    /// So many ops that this node made before it left are lost: no holder has them. The node goes on without them.
    OwnLost(u64),
    /// A syncing node stops waiting: no member is left that has more of what clients may know.
    Alone,
}
