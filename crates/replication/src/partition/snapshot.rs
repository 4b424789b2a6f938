//! Snapshots, rows in place of a log: what their transfer asks of the driver, and the answers.
//!
//! If no peer's log has what a replica lacks, a peer tells it so ([`StateBegin`](crate::wire::StateBegin) with no snapshot in it). The replica asks
//! one peer for a snapshot, stores the rows beside its own, and joins the two in one commit when all rows are there. Until then it works as before.
//! Rows are opaque here.
//!
//! Invariants:
//! - A snapshot is sent only to a member, and only if it is durable: so it contains what other nodes may have cut by then.
//! - Rows are stored in the order of their keys without a gap, and joined when the last one is there.
//! - Of a transfer the donor has one chunk in memory. The receiver has what it asked for and has not stored yet.
//!
//! Reading order: this file, `snapshot_send`, `snapshot_receive`.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, VersionVector};

use super::Ticket;

/// Bounds and times of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct StateConfig {
    /// Bytes of rows that may be on the way to this node, or not durable here.
    pub window_bytes: u64,
    /// Bytes of rows in one chunk; a single row may be larger. A batch waits for one chunk at most.
    pub chunk_bytes: usize,
    /// Snapshots sent at once: each keeps a snapshot of the store open.
    pub gives_max: usize,
    /// A snapshot that its receiver has not asked for during so long is dropped.
    pub send_timeout_micros: u64,
    /// A receiver leaves a donor that sent nothing for so long, if there is another one.
    pub donor_timeout_micros: u64,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            window_bytes: 1 << 20,
            chunk_bytes: 64 << 10,
            gives_max: 2,
            send_timeout_micros: 60_000_000,
            donor_timeout_micros: 15_000_000,
        }
    }
}

/// The rows of a partition at one moment, and what is applied in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Its name: a random number, not zero, so that it is never taken for an older snapshot of this node.
    pub state: u64,
    /// What is applied in the rows.
    pub applied: VersionVector,
    /// For each origin of `applied` the hash of the batch that ends there.
    pub heads: BTreeMap<Incarnation, Hash>,
    /// The greatest stamp given or observed.
    pub hlc: u64,
}

/// Some rows of a snapshot, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// As the owner encodes them.
    pub rows: Bytes,
    /// The key of the last row; without rows, the key after which the read began.
    pub last: Vec<u8>,
    /// Whether these are the last rows.
    pub end: bool,
}

/// A snapshot that is being received from another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotProgress {
    /// The sender.
    pub donor: Incarnation,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Rows up to this key have come.
    pub last: Vec<u8>,
}

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum StateInput {
    /// The answer to [`StateOutput::Snapshot`]; `None`: none can be made now.
    Snapshot(Ticket, Option<Snapshot>),
    /// The answer to [`StateOutput::Read`].
    Rows(Ticket, Rows),
    /// The answer to [`StateOutput::Read`] if the rows cannot be read, now or later. The receiver gets another snapshot.
    Lost(Ticket),
}

/// Outputs of the machine. `Begin`, `Store`, `Join` and `Forget` reach the store in their order, together with all other commits of the partition.
#[derive(Clone, Debug)]
pub enum StateOutput {
    /// Fix the rows as they are, with the position record that was written with them; answer [`StateInput::Snapshot`].
    Snapshot {
        /// Names the request in the answer.
        ticket: Ticket,
    },
    /// Read rows of a snapshot; answer [`StateInput::Rows`].
    Read {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The name of the snapshot.
        state: u64,
        /// Rows above this key. Empty: from the first.
        after: Vec<u8>,
        /// The most bytes of all rows; the first row may be larger.
        bytes_max: usize,
    },
    /// This snapshot is not needed any more.
    Drop {
        /// The name of the snapshot.
        state: u64,
    },
    /// A snapshot begins to arrive: note which one, and delete the rows of an earlier one.
    Begin {
        /// Which one.
        held: Box<SnapshotProgress>,
    },
    /// Store these rows beside our own, and note in the same commit that they are here up to `last`; answer [`super::Input::Done`].
    Store {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The key of the last row.
        last: Vec<u8>,
        /// The rows as received. Some may be here already, unchanged.
        rows: Bytes,
    },
    /// All rows are here: join them to ours. One commit merges the applied vectors, raises the clock to the snapshot's, and lets each log in `jumps`
    /// go on behind the number with that hash, nothing before it being there. Answer [`super::Input::Done`].
    Join {
        /// Names the request in the answer.
        ticket: Ticket,
        /// What is held.
        held: Box<SnapshotProgress>,
        /// Logs that end here before they end in the snapshot.
        jumps: BTreeMap<Incarnation, (u64, Hash)>,
    },
    /// Delete the rows of the snapshot: they are not needed any more, or too old.
    Forget,
}
