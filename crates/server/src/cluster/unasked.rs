//! Peers that could not be asked at the start what they remember of this node.
//!
//! It goes on without their word, since a node that is alone serves. If its disk is an older one after all, what it writes meanwhile has numbers under which they have other operations.
//! The two cannot be told apart any more, and must not meet: by numbers alone each would take away what the other has. So it is kept where the own logs ended at that start, each peer is asked
//! again until it answers, and a disk that turns out to be older, and was written to, does not start.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use minicbor::{Decode, Encode};
use tokio::time::{sleep, timeout};
use whimbrel_cluster::NodeName;
use whimbrel_crdt::{Incarnation, PartitionId};

use super::{
    question::Held,
    settle::{forgotten_by, remembered_by},
    state::State,
};
use crate::{serve::StartError, store_calls::Store};

/// Before peers are asked again. Who is linked tells of the partitions that are open meanwhile.
const AGAIN: Duration = Duration::from_secs(5);
/// An answer takes some milliseconds, and a way.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Where the logs of an incarnation ended when it was started and not all could be asked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Unasked {
    /// Whose logs.
    #[n(0)]
    pub incarnation: Incarnation,
    /// The last number in each partition; those that are missing were empty.
    #[n(1)]
    pub ends: BTreeMap<PartitionId, u64>,
}

impl Unasked {
    pub(super) fn new(incarnation: Incarnation, logs: &[Held]) -> Unasked {
        let ends = logs.iter().map(|log| (log.partition, log.last));
        Unasked {
            incarnation,
            ends: ends.collect(),
        }
    }

    /// Operations that were written since.
    fn written(&self, logs: &[Held]) -> u64 {
        let end = |log: &Held| self.ends.get(&log.partition).copied().unwrap_or(0);
        logs.iter()
            .map(|log| log.last.saturating_sub(end(log)))
            .sum()
    }
}

/// Refuses a disk that is older than what was told from it, if it was written to since a start at which nobody could say so.
pub(super) async fn refuse_written<S: Store>(
    state: &State<S>,
    me: Incarnation,
) -> Result<(), StartError> {
    let Some(unasked) = state.files.unasked()?.filter(|of| of.incarnation == me) else {
        return Ok(());
    };
    let logs = state.logs_of(me).await;
    let logs = logs.map_err(|error| StartError::Store(error.to_string()))?;
    match unasked.written(&logs) {
        0 => Ok(()),
        written => Err(StartError::Cluster(format!(
            "this disk is older than what was told from it, and {written} operations were written to it before the other nodes could be asked: they have others under these \
             numbers, so that the two cannot be joined. Move DATA/store away and start again: the node gets from the others what they have. What was written here is in the store that \
             was moved (docs/operations.md, \"A snapshot that was put back\")"
        ))),
    }
}

/// Asks these peers until each has answered, or is no member any more.
pub(super) async fn ask_later<S: Store>(state: Arc<State<S>>, mut names: BTreeSet<NodeName>) {
    let me = state.me();
    while !names.is_empty() {
        sleep(AGAIN).await;
        let peers = state.peers(&*state.roster.lock().await);
        names.retain(|name| peers.iter().any(|peer| peer.name == *name));
        for peer in &peers {
            if !names.contains(&peer.name) {
                continue;
            }
            let asking = remembered_by(&state, me, peer);
            let Ok(Ok(remembered)) = timeout(ANSWER_TIME_MAX, asking).await else {
                continue;
            };
            match forgotten_by(&state, me, peer, &remembered).await {
                Ok(None) => {
                    names.remove(&peer.name);
                }
                Ok(Some(because)) => return state.is_older(&because),
                Err(error) => tracing::warn!(%error, "the own logs cannot be read"),
            }
        }
    }
    if let Err(error) = state.files.all_asked() {
        tracing::warn!(%error, "it stays noted that not all nodes could be asked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_since_is_counted() {
        let log = |partition, last| Held {
            partition: PartitionId(partition),
            last,
            hash: [0; 32],
        };
        let me = Incarnation::from_hash(1);
        let unasked = Unasked::new(me, &[log(1, 5), log(2, 7)]);
        let check = |logs: &[Held], expected| assert_eq!(unasked.written(logs), expected);
        check(&[log(1, 5), log(2, 7)], 0);
        check(&[log(1, 5), log(2, 9), log(3, 1)], 3);
        check(&[], 0);
    }
}
