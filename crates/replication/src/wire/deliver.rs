//! Frames by which a node asks another one to make a delivery of the queue, because it does not hold the account's partition itself, or not
//! completely.

use std::collections::BTreeSet;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::Incarnation;

/// Asks the receiver to make a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The id of the entry.
    pub entry: [u8; 16],
    /// The index of the delivery in the entry.
    pub index: u32,
    /// So many other nodes have to apply the delivery before it is done.
    pub needed: u32,
    /// Nodes that count for this: they have the blob until the entry is done.
    pub nodes: BTreeSet<Incarnation>,
    /// These are too few: other nodes count when they say that they have the blob.
    pub asks: bool,
    /// The entry with this delivery alone, in the queue's own form: raw bytes behind the other fields.
    pub delivery: Bytes,
}

/// [`Deliver`] without its raw bytes.
#[derive(Encode, Decode)]
pub(super) struct DeliverHead {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(super) entry: [u8; 16],
    #[n(1)]
    pub(super) index: u32,
    #[n(2)]
    pub(super) needed: u32,
    #[n(3)]
    pub(super) nodes: BTreeSet<Incarnation>,
    #[n(4)]
    pub(super) asks: bool,
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
