//! Frames by which a node asks another one to make a delivery of the queue, because it does not hold the account's partition itself, or not
//! completely.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use whimbrel_crdt::Incarnation;

/// A feature of the handshake: the node makes deliveries for others. A node without it skips these frames, and is not asked.
pub const FEATURE_DELIVER: u64 = 8;

/// Asks the receiver to make a delivery of an entry that its queue has, too.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Deliver {
    /// The id of the entry.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub entry: [u8; 16],
    /// The index of the delivery in the entry.
    #[n(1)]
    pub index: u32,
    /// So many other nodes have to apply the delivery before it is done.
    #[n(2)]
    pub needed: u32,
    /// Nodes that count for this: they have the blob until the entry is finished.
    #[n(3)]
    pub nodes: BTreeSet<Incarnation>,
}

/// The answer to [`Deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Delivered {
    /// The id of the entry.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub entry: [u8; 16],
    /// The index of the delivery in the entry.
    #[n(1)]
    pub index: u32,
    /// Whether the delivery is durable, there and at as many other nodes as asked. If not, it is not made there now.
    #[n(2)]
    pub done: bool,
}
