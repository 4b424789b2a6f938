//! Which logs are kept for nobody any more, when all of them together have become too long.
//!
//! What a member lacks stays in the logs, however long it is away, as long as there is room for it (`cluster.log_retention_bytes`). When there is
//! not, whole partitions are given up for it, those whose logs are longest first: who lacks anything of a partition that was cut gets all of its
//! state, so to cut a little of each would cost a state of each.

use std::collections::BTreeMap;

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_storage::LogLength;

/// How long a log on this disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Which partition's.
    pub partition: PartitionId,
    /// Whose.
    pub origin: Incarnation,
    /// The last number in it.
    pub last: u64,
    /// Bytes of its batches.
    pub bytes: u64,
}

impl Length {
    /// As the store tells it; `None` if it is no partition of a node's.
    #[must_use]
    pub fn of(log: &LogLength) -> Option<Self> {
        Some(Length {
            partition: PartitionId(u16::try_from(log.partition.0).ok()?),
            origin: Incarnation::from_hash(log.origin.0),
            last: log.position.next - 1,
            bytes: log.bytes,
        })
    }
}

/// Logs, and the numbers up to which they are kept for no member that is away.
pub type GivenUp = BTreeMap<(PartitionId, Incarnation), u64>;

/// What is given up so that all together have no more than so many bytes.
#[must_use]
pub fn given_up(lengths: &[Length], bytes_max: u64) -> GivenUp {
    let mut total: u64 = lengths.iter().map(|log| log.bytes).sum();
    let mut partitions: BTreeMap<PartitionId, u64> = BTreeMap::new();
    for log in lengths {
        *partitions.entry(log.partition).or_default() += log.bytes;
    }
    let mut longest: Vec<_> = partitions.into_iter().collect();
    longest.sort_by_key(|(partition, bytes)| (std::cmp::Reverse(*bytes), *partition));
    let mut given_up = GivenUp::new();
    for (partition, bytes) in longest {
        if total <= bytes_max {
            break;
        }
        total -= bytes;
        let of = lengths.iter().filter(|log| log.partition == partition);
        given_up.extend(of.map(|log| ((log.partition, log.origin), log.last)));
    }
    given_up
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(partition: u16, origin: u64, bytes: u64) -> Length {
        Length {
            partition: PartitionId(partition),
            origin: Incarnation::from_hash(origin),
            last: 10 * bytes,
            bytes,
        }
    }

    #[test]
    fn the_longest_partitions_go_and_no_more_than_needed() {
        let logs = [log(1, 1, 40), log(1, 2, 40), log(2, 1, 70), log(3, 1, 5)];
        assert_eq!(given_up(&logs, 155), GivenUp::new());
        let partitions = |bytes_max| -> Vec<u16> {
            let up = given_up(&logs, bytes_max);
            let mut partitions: Vec<u16> = up.keys().map(|(of, _)| of.0).collect();
            partitions.dedup();
            partitions
        };
        assert_eq!(partitions(154), [1]);
        assert_eq!(partitions(75), [1]);
        assert_eq!(partitions(74), [1, 2]);
        assert_eq!(partitions(0), [1, 2, 3]);
        let up = given_up(&logs, 154);
        assert_eq!(up.len(), 2, "both logs of it");
        assert!(up.values().all(|upto| *upto == 400));
    }
}
