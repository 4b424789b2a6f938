//! Between an owner and other nodes: what goes in and out, and the machine that keeps one partition's logs alike everywhere.
//!
//! Nothing here knows an account. An owner holds one [`Shipping`] for each open partition, gives it what comes from peers and what has become
//! durable, and carries out what it wants, in its order (`owner::replication`). The driver brings frames and takes them away: it knows streams, and
//! nothing of what is in a frame but its partition.
//!
//! Invariants:
//! - What the machine wants stored or applied is forwarded to the store in the order in which it was wanted.
//! - The machine is told of a commit when it is durable, in the order of the commits.
//!
//! Reading order: this file (inputs and outputs), [`shipping`], `log_reads`, [`snapshot`] (rows in place of a log), `taking` (one that comes, of
//! accounts or of the directory), `singleton_snapshot` (those of the directory), [`blobs`], `buffered_frames` (what comes before a
//! partition is open).

pub mod blobs;
mod buffered_frames;
pub(crate) mod log_reads;
pub mod log_retention;
mod shipping;
pub(crate) mod singleton_snapshot;
pub mod snapshot;
pub(crate) mod taking;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_replication::roster::Holding;
pub use whimbrel_replication::{
    budget,
    holders::{HolderState, Holders, Phase},
    members::Ends,
    partition::{Config, Entry, LogEnd, PeerReport, Report, Rows, Snapshot, SnapshotProgress},
    readers,
    wire::Frame,
};

use self::log_retention::GivenUp;
pub(crate) use self::{
    blobs::{off_wire, on_wire},
    buffered_frames::keep_early,
    shipping::{BatchWork, OnDurable, Shipping, StateWork, Wanted, Work},
};
use crate::machine::{Now, Ticket};
pub use crate::stamps::Clock;

pub(crate) fn clocks(now: Now) -> whimbrel_replication::Now {
    whimbrel_replication::Now {
        wall_micros: now.wall_micros,
        mono_micros: now.mono_micros,
    }
}

/// A stream that takes a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// To this node.
    pub peer: Incarnation,
    /// Of bodies and states, too. Where there is no room for these all else goes on, and the driver says [`PeerInput::Ready`] again when there is.
    pub takes_bulk: bool,
}

impl Stream {
    /// With room for all.
    #[must_use]
    pub fn open(peer: Incarnation) -> Stream {
        Stream {
            peer,
            takes_bulk: true,
        }
    }
}

/// When reading from the store has failed it is tried again after so long.
pub(crate) const READ_AGAIN_MICROS: u64 = 1_000_000;

/// What an owner of partitions is told of other nodes.
#[derive(Debug)]
pub enum PeerInput {
    /// The members of the cluster, this node among them, and their slots. Told before the first of a new one is linked.
    Members(BTreeMap<Incarnation, u8>),
    /// Who holds which partition, as the members of before say. Told behind these, and before frames of who knew it. The directory is everybody's.
    Holders(Holders),
    /// Those whose logs are closed, and the slots they had. Told before members without them.
    Former(BTreeMap<Incarnation, u8>),
    /// Where the logs of those end that belong to the cluster no more: nothing is taken beyond.
    Closed(Ends),
    /// Logs that have become too long are kept up to these numbers for no member that is away.
    GiveUp(GivenUp),
    /// There is a stream to this node; one that was before is gone. The features that both have.
    Linked(Incarnation, u64),
    /// The stream is gone.
    Unlinked(Incarnation),
    /// How long the last round trip to the node took: so long its readers are waited for, three times. Without it they are waited for
    /// for the longest time.
    RoundTrip(Incarnation, u64),
    /// How this node's clock stands. Told again when that changes, and when it is slewed.
    Clock(Clock),
    /// The node sent a frame for a partition of this owner.
    Frame(Incarnation, Frame),
    /// The stream to the node takes a frame: answer [`PeerOutput::Send`], or nothing until the next [`PeerOutput::Wake`].
    Ready(PartitionId, Stream),
    /// The store has a log of this partition: others may lack what is in it.
    Open(PartitionId),
    /// The answer to [`PeerOutput::LoadLogs`].
    Logs(Ticket, Vec<(Incarnation, LogEnd)>),
    /// The answer to [`PeerOutput::ReadLog`].
    Log(Ticket, Vec<Entry>),
    /// The answer to [`PeerOutput::Snapshot`]; `None`: there can be none now.
    Snapshot(Ticket, Option<Snapshot>),
    /// The answer to [`PeerOutput::ReadRows`].
    Rows(Ticket, Page),
    /// A body was durable here at this time of the monotonic clock, or later. Told to all owners.
    Body(BlobName, u64),
    /// No node to which there is a stream has the body. Told to all owners.
    NoBody(BlobName),
    /// The body is looked for no more, since no node had it a while ago: if it is still missing here, it is to be wanted again. Told to all
    /// owners and the queue.
    WantAgain(BlobName),
    /// A session of the account has found that a body is not here, which a record of it named a moment ago. Told to the account's owner.
    Missed(AccountId, BlobName),
}

/// How one partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Which.
    pub partition: PartitionId,
    /// Its logs and peers; `None`: it is being opened.
    pub open: Option<Report>,
    /// Bodies that batches name and that are not here.
    pub blobs_missing: u64,
    /// Accounts that cannot go on.
    pub accounts_stalled: u64,
    /// Claims made again since the start.
    pub uids_reassigned: u64,
    /// This node is new in it, or came back to it, and is not known to have all that another one had.
    pub syncing: bool,
    /// Other members that hold it and have what clients may know.
    pub complete_at: BTreeSet<Incarnation>,
    /// This node serves nothing of it any more.
    pub left: Option<LeftReport>,
}

impl PartitionReport {
    /// What is here of the logs of these; `None`: the partition is being opened.
    #[must_use]
    pub fn logs_of(&self, of: &[Incarnation]) -> Option<BTreeMap<Incarnation, Holding>> {
        let logs = &self.open.as_ref()?.logs;
        let logs = of
            .iter()
            .map(|of| (*of, logs.get(of).copied().unwrap_or_default()));
        Some(logs.collect())
    }
}

/// A partition that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftReport {
    /// The last number of this node's log. Those who stay have all of it.
    pub end: u64,
    /// Nothing of it is here any more: this node may come back.
    pub is_gone: bool,
}

/// Some rows, in the order of their keys.
#[derive(Debug, Default)]
pub struct Page {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, bytes::Bytes)>,
    /// Whether these are all that there are in the range.
    pub end: bool,
}

/// What an owner of partitions wants of other nodes, and of the logs in the store.
#[derive(Debug)]
pub enum PeerOutput {
    /// Find where the logs of the partition stand; answer [`PeerInput::Logs`].
    LoadLogs {
        /// For the answer.
        ticket: Ticket,
        /// Which partition.
        partition: PartitionId,
    },
    /// Read a log; answer [`PeerInput::Log`] with entries that follow each other, none if the log ends before.
    ReadLog {
        /// For the answer.
        ticket: Ticket,
        /// Which partition.
        partition: PartitionId,
        /// Whose log.
        origin: Incarnation,
        /// From the entry that holds this number, or the first one above.
        from: u64,
        /// No further entry beyond so many bytes; one in any case.
        bytes_max: usize,
    },
    /// Fix the rows of the partition as they are now, with a new name, for [`PeerOutput::ReadRows`]; answer [`PeerInput::Snapshot`]. What has
    /// to be looked up for the answer says [`snapshot::Fixing`].
    Snapshot {
        /// For the answer.
        ticket: Ticket,
        /// Which partition.
        partition: PartitionId,
    },
    /// Read one page of rows; answer [`PeerInput::Rows`], or [`Input::LoadFailed`](crate::machine::Input::LoadFailed).
    ReadRows {
        /// For the answer.
        ticket: Ticket,
        /// Which partition.
        partition: PartitionId,
        /// As they were fixed under this name; `None`: as they are.
        state: Option<u64>,
        /// First key.
        from: Vec<u8>,
        /// First key not wanted.
        to: Vec<u8>,
        /// No further row beyond so many bytes; one in any case.
        bytes_max: usize,
    },
    /// Nobody reads what was fixed under this name any more.
    Release(u64),
    /// The partition has something for the node: [`PeerInput::Ready`] when its stream takes a frame.
    Wake(PartitionId, Incarnation),
    /// Send this.
    Send(Incarnation, Frame),
    /// A body that a batch of another node names: tell [`PeerInput::Body`] at once if it is here, else get it ([`blobs::Bodies::want`]).
    Request(BlobName),
    /// The same, of a batch that has come a moment ago: its sender gives the body unasked, mostly ([`blobs::Bodies::coming`]).
    Coming(BlobName),
    /// Batches that name these were sent to the node: they go behind them ([`blobs::Bodies::push`]).
    Push(Incarnation, Vec<BlobName>),
    /// End the stream and make it anew, after a while: something was lost, or the node broke the rules.
    Unlink(Incarnation),
}
