//! The frames by which a node that leaves a partition finds out that those who stay have what it has (`docs/decisions/0040`).

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use super::BlobName;

/// A bit of the handshake's features: knows of members that do not hold a partition. Nobody leaves one while a member has it not.
pub const FEATURE_HOLDERS: u64 = 16;

/// Bodies that one [`Covered`] names. Who lacks more is not ready to answer.
pub const COVERED_LACKS_MAX: usize = 1024;

/// Asks whether all of this is applied at the receiver, with its bodies, and the receiver holds the partition and knows that the sender leaves.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leaving {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All that is on the sender's disk.
    #[n(1)]
    pub has: VersionVector,
}

/// The answer to [`Leaving`]: it is so. Who cannot say so does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Covered {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// As asked.
    #[n(1)]
    pub has: VersionVector,
    /// Bodies that these operations name and that are not there, and perhaps some that only later ones name: it is so only if they are not at the node that
    /// leaves, either.
    #[n(2)]
    pub lacks: Vec<BlobName>,
    /// The members that hold the partition, as the answering node knows it: each of them is to be asked.
    #[n(3)]
    pub holders: BTreeSet<Incarnation>,
}
