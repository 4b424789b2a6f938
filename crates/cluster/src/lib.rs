//! Streams between nodes: the cluster's certificates, tokens for joining, mutual TLS, frames over sockets
//!
//! Purpose: the layer between the machines of `replication` and the network. It knows who may speak and how frames become bytes; the content of
//! frames is opaque here. It keeps no file: certificates and tokens are passed as values.
//!
//! Invariants:
//! - Nothing of a peer is read before TLS 1.3 has verified a certificate of the cluster's own authority. A node that joins has none: it is asked for
//!   its token and nothing else.
//! - The name in a peer's handshake is that of its certificate.
//! - The frames that wait for a peer are bounded ([`Handle::offer`]). What a peer sends waits in its socket until it is read.
//! - A large blob never delays a small frame by more than one pack.
//!
//! Reading order: `name`, `authority`, `token`, `join`, `pack`, `outbox`, `socket`, `stream`, `places`, `relay`, `transport`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authority;
pub mod fuzz;
mod join;
mod name;
mod outbox;
mod pack;
mod places;
mod relay;
pub mod socket;
mod stream;
mod token;
mod transport;

pub use authority::{Authority, AuthorityError, Credentials};
pub use join::{Admission, JoinError, Refused, ask, ask_member};
pub use name::{NameError, NodeName};
pub use outbox::{BULK_BYTES_MAX, Handle, NoRoom, OUTBOX_BYTES_MAX};
pub use pack::FEATURE_LZ4;
pub use places::Place;
pub use relay::{RelayStream, Relayed, Relays};
pub use token::{TOKENS_MAX, Token, TokenError, Tokens};
pub use transport::{
    Clock, Event, Lanes, LinkId, Linked, MemberRequest, Peer, PeerIdentity, Transport, handshake,
};

/// Names a cluster: drawn when it is founded.
pub type ClusterId = [u8; 16];
