//! The frames by which a node has another one make a delivery of the queue: it does not hold the account's partition itself, or not as a whole.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use whimbrel_crdt::Incarnation;

/// A bit of the handshake's features: makes deliveries for others. Who has it not skips these frames, and is not asked.
pub const FEATURE_DELIVER: u64 = 8;

/// Asks the receiver to make a delivery of an entry that the queue has there, too.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Deliver {
    /// Which entry.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub entry: [u8; 16],
    /// Which of its deliveries.
    #[n(1)]
    pub index: u32,
    /// So many others have to have applied it before it is done.
    #[n(2)]
    pub needed: u32,
    /// Of these, which have the body until the entry is finished.
    #[n(3)]
    pub nodes: BTreeSet<Incarnation>,
}

/// The answer to [`Deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Delivered {
    /// Which entry.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub entry: [u8; 16],
    /// Which of its deliveries.
    #[n(1)]
    pub index: u32,
    /// Whether it is durable, there and at as many others as were asked for; if not, it is not made there now.
    #[n(2)]
    pub done: bool,
}
