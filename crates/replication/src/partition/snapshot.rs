//! Rows in place of a log: what state transfer asks of the driver, and is told.
//!
//! A replica whose peers no longer have the log it lacks is told so ([`StateBegin`](crate::wire::StateBegin) with no state in it), asks one of them,
//! keeps the rows that come beside its own, and when it has all of them joins the two states in one commit. Until then it works on as it was. What is
//! in a row is the owner's business.
//!
//! Invariants:
//! - A state is given only to a member, and from a snapshot that is durable: what others may have cut by then is in it.
//! - Rows are kept in the order of their keys without a gap, and joined when the last one is there.
//! - Of a transfer one chunk is in memory at the donor, and at the receiver what it asked for and has not on disk yet.
//!
//! Reading order: this file, `snapshot_send`, `snapshot_receive`.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, VersionVector};

use super::Ticket;

/// Bounds and times of state transfer.
#[derive(Clone, Copy, Debug)]
pub struct StateConfig {
    /// Bytes of rows that may be on the way to this node, or here and not durable.
    pub window_bytes: u64,
    /// Bytes of rows in one chunk; one row may be more. A batch waits for no more than this.
    pub chunk_bytes: usize,
    /// States given at once: each holds a snapshot of the store open.
    pub gives_max: usize,
    /// A snapshot of which nobody has asked anything for so long is dropped.
    pub send_timeout_micros: u64,
    /// A donor of which nothing came for so long is left for another, if there is one.
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

/// The rows of a partition at one moment, and what they stand for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Its name: a random number, not zero, so that none is ever taken for an older one of this node.
    pub state: u64,
    /// What is applied in the rows.
    pub applied: VersionVector,
    /// For each origin of `applied` the hash of the batch that ends there.
    pub heads: BTreeMap<Incarnation, Hash>,
    /// The greatest time given or observed.
    pub hlc: u64,
}

/// Some rows of a snapshot, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// As the owner encodes them.
    pub rows: Bytes,
    /// The key of the last one; if there is none, the key after which was read.
    pub last: Vec<u8>,
    /// Whether there is none behind.
    pub end: bool,
}

/// A state that is being taken from another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotProgress {
    /// Who gives it.
    pub donor: Incarnation,
    /// What it is.
    pub snapshot: Snapshot,
    /// Rows up to this key are here.
    pub last: Vec<u8>,
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum StateInput {
    /// The answer to [`StateOutput::Snapshot`]; `None`: there can be none now.
    Snapshot(Ticket, Option<Snapshot>),
    /// The answer to [`StateOutput::Read`].
    Rows(Ticket, Rows),
    /// The same: they cannot be read, and will not be. Whoever wants a state gets another.
    Lost(Ticket),
}

/// What the machine wants. `Begin`, `Store`, `Join` and `Forget` reach the store in their order, together with all other commits of the
/// partition.
#[derive(Clone, Debug)]
pub enum StateOutput {
    /// Fix the rows as they are, with the position record that was written with them; answer [`StateInput::Snapshot`].
    Snapshot {
        /// For the answer.
        ticket: Ticket,
    },
    /// Read rows of a snapshot; answer [`StateInput::Rows`].
    Read {
        /// For the answer.
        ticket: Ticket,
        /// Which one.
        state: u64,
        /// Rows above this key. Empty: from the first.
        after: Vec<u8>,
        /// No further row beyond so many bytes; one in any case.
        bytes_max: usize,
    },
    /// Nobody needs this snapshot any more.
    Drop {
        /// Which one.
        state: u64,
    },
    /// A state begins to come: write down which, and forget what is held of another.
    Begin {
        /// Which one.
        held: Box<SnapshotProgress>,
    },
    /// Keep these rows beside our own, and that they are here up to `last`, in one commit; answer [`super::Input::Done`].
    Store {
        /// For the answer.
        ticket: Ticket,
        /// The key of the last row.
        last: Vec<u8>,
        /// As they came. Some may be here already: they are the same.
        rows: Bytes,
    },
    /// All rows are here: join them to ours. One commit that raises the applied vector to both, the clock to that of the state, and for each log in
    /// `jumps` lets the log go on behind the number, with that hash, nothing before it being there. Answer [`super::Input::Done`].
    Join {
        /// For the answer.
        ticket: Ticket,
        /// What is held.
        held: Box<SnapshotProgress>,
        /// Logs that end here before they do in the state.
        jumps: BTreeMap<Incarnation, (u64, Hash)>,
    },
    /// Forget what is held: it came otherwise, or is too old.
    Forget,
}
