//! A node that is new, or came for one whose disk was lost: until it has what another one has, it brings whoever comes to nodes that are not (`docs/decisions/0028`).

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use whimbrel_crdt::PartitionId;
use whimbrel_service::peers::PartitionReport;

use super::state::State;
use crate::{store_calls::Store, switchboard::Switchboard};

/// How often it is looked whether it is over: sessions that come before that are served elsewhere, as they were.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Those of accounts, and the directory.
const PARTITIONS: usize = 257;

/// Runs until it has all.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Switchboard>) {
    let mut is_told = false;
    while let Some(reports) = board.all_reports().await {
        if grown(&reports) == PARTITIONS {
            state.has_grown();
            if let Err(error) = state.files.forget_young() {
                tracing::warn!(%error, "at its next start this node looks again whether it has all");
            }
            tracing::info!("this node has what another one had: it serves");
            return;
        }
        if !is_told && reports.iter().any(|of| of.young && of.open.is_some()) {
            tracing::info!(
                "this node is new: until it has what the others have, they serve whoever comes"
            );
            is_told = true;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Of how many partitions it is known that all is here.
fn grown(reports: &[PartitionReport]) -> usize {
    let counts = |of: &&PartitionReport| {
        of.partition.bucket().is_some() || of.partition == PartitionId::DIRECTORY
    };
    let reports = reports.iter().filter(counts);
    // What this node has left is none of those.
    let grown = |of: &PartitionReport| of.left.is_some() || of.open.is_some() && !of.young;
    reports.filter(|of| grown(of)).count()
}
