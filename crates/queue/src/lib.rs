#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod frame;
mod gossip;
mod machine;
mod mutants;
mod table;
mod types;

pub use api::{
    Change, Choice, Close, Config, Counters, Input, Join, Output, Refusal, Start, Ticket, Tuple,
    longer,
};
pub use frame::{
    ASK_IDS_MAX, Delete, Deleted, FRAME_BYTES, Frame, FrameError, Know, Knowledge, Part, Record,
    Shown, Split, Store,
};
pub use gossip::{ADDRESS_BYTES_MAX, Gossip};
pub use machine::{PeerState, Queue};
pub use types::{
    Id, NODES_MAX, Node, Nodes, Now, OWNERS_MAX, Owners, Ownership, PROGRESS_BYTES_MAX, Version,
};
