//! Streams between nodes: the cluster's certificates, tokens for joining, mutual TLS, frames over sockets
//!
//! Purpose: what lies between the machines of `replication` and the network. It knows who may speak and how frames become bytes; what
//! the frames say is none of its business. It keeps no file: certificates and tokens are given and taken as values.
//!
//! Invariants:
//! - Nothing of a peer is listened to before TLS 1.3 has shown a certificate of the cluster's own authority; only who joins has none, and it is
//!   asked for its token and nothing else.
//! - The name in a peer's handshake is that of its certificate.
//! - What waits to be sent to a peer is bounded ([`Handle::offer`]); what a peer sends waits in its socket until it is taken.
//! - A large body never delays a small operation by more than one pack.
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
