//! A node that is new, or came for one whose disk was lost: until it has what another one has, it brings whoever comes to nodes that are not
//! (`docs/decisions/0028`).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::sleep;
use whimbrel_crdt::PartitionId;
use whimbrel_service::peers::PartitionReport;

use super::roster_store::State;
use crate::{router::Router, store_calls::Store};

/// How often it is looked whether it is over: sessions that come before that are served elsewhere, as they were.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Those of accounts, and the directory.
const PARTITIONS: usize = 257;

/// Runs until it has all.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Router>) {
    let mut is_told = false;
    while let Some(reports) = board.all_reports().await {
        if grown(&reports) == PARTITIONS {
            state.has_grown();
            if let Err(error) = state.files.forget_syncing() {
                tracing::warn!(%error, "cannot record that this node has everything; the next start checks again");
            }
            tracing::info!("this node has caught up with another node, and serves clients");
            return;
        }
        if !is_told && reports.iter().any(|of| of.syncing && of.open.is_some()) {
            tracing::info!(
                "this node is syncing: until it has caught up, other nodes serve its clients"
            );
            is_told = true;
        }
        let known = reports.iter().map(|of| of.partition).collect();
        unopened(&known).for_each(|partition| board.open_partition(partition));
        sleep(LOOK_EVERY).await;
    }
}

/// All were opened at the start; of one that could not be read then nothing is known any more, and nobody else may ever ask for it.
fn unopened(known: &BTreeSet<PartitionId>) -> impl Iterator<Item = PartitionId> {
    let all = (0..=u8::MAX).map(PartitionId::accounts);
    all.filter(|partition| !known.contains(partition))
}

/// Of how many partitions it is known that all is here.
fn grown(reports: &[PartitionReport]) -> usize {
    let counts = |of: &&PartitionReport| {
        of.partition.bucket().is_some() || of.partition == PartitionId::DIRECTORY
    };
    let reports = reports.iter().filter(counts);
    // What this node has left is none of those.
    let grown = |of: &PartitionReport| of.left.is_some() || of.open.is_some() && !of.syncing;
    reports.filter(|of| grown(of)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_opened_again() {
        let mut known: BTreeSet<PartitionId> = (0..=u8::MAX).map(PartitionId::accounts).collect();
        known.insert(PartitionId::DIRECTORY);
        assert_eq!(unopened(&known).next(), None);
        known.retain(|partition| partition.0 > 2);
        let missing: Vec<PartitionId> = unopened(&known).collect();
        assert_eq!(missing, [0, 1, 2].map(PartitionId::accounts));
    }
}
