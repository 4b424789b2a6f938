//! Watches a node that is new, or came for one whose disk was lost: other nodes serve its clients until it has caught up
//! ([`whimbrel_service::cluster::syncing`]).

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use whimbrel_crdt::PartitionId;
use whimbrel_service::cluster::syncing::{Progress, look};

use super::roster_store::State;
use crate::{router::Router, store_calls::Store};

/// How often it is looked whether it is over: sessions that come before that are served by other nodes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The partitions of accounts, and the directory.
fn all() -> impl Iterator<Item = PartitionId> {
    let accounts = (0..=u8::MAX).map(PartitionId::accounts);
    accounts.chain([PartitionId::DIRECTORY])
}

/// Runs until this node has everything.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Router>) {
    let mut is_logged = false;
    while let Some(reports) = board.all_reports().await {
        match look(all(), &reports) {
            Progress::CaughtUp => {
                state.has_grown();
                if let Err(error) = state.files.forget_syncing() {
                    tracing::warn!(%error, "cannot record that this node has everything; the next start checks again");
                }
                tracing::info!("this node has caught up with another node, and serves clients");
                return;
            }
            Progress::Syncing { unopened, open } => {
                if open && !is_logged {
                    tracing::info!(
                        "this node is syncing: until it has caught up, other nodes serve its clients"
                    );
                    is_logged = true;
                }
                // The directory is always open.
                let unopened = unopened.into_iter().filter(|of| of.bucket().is_some());
                unopened.for_each(|partition| board.open_partition(partition));
            }
        }
        sleep(LOOK_EVERY).await;
    }
}
