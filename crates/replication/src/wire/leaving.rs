//! Frames by which a node that leaves a partition finds out that the other holders have what it has (`docs/decisions/0040`).

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use super::BlobName;

/// A feature of the handshake: the node knows of members that do not hold a partition. No node leaves a partition while a member lacks the feature.
pub const FEATURE_HOLDERS: u64 = 16;

/// Blobs that one [`Covered`] names. A node that lacks more is not ready to answer.
pub const COVERED_LACKS_MAX: usize = 1024;

/// Asks whether the receiver has applied all of this, with its blobs, holds the partition, and knows that the sender leaves.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leaving {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// All that the sender has stored.
    #[n(1)]
    pub has: VersionVector,
}

/// The answer to [`Leaving`], if it is yes. Otherwise there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Covered {
    /// The partition.
    #[n(0)]
    pub partition: PartitionId,
    /// As in the question.
    #[n(1)]
    pub has: VersionVector,
    /// Blobs that these ops name and that the answering node lacks, and perhaps some that only later ops name. The answer is yes only if the leaving
    /// node lacks them, too.
    #[n(2)]
    pub lacks: Vec<BlobName>,
    /// The holders of the partition, as the answering node knows them: each of them has to be asked.
    #[n(3)]
    pub holders: BTreeSet<Incarnation>,
}
