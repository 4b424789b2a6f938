//! Cuts logs that have become too long while a member is away.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use whimbrel_service::peers::{
    PeerInput,
    log_retention::{Length, given_up},
};

use super::roster_store::State;
use crate::{metrics, router::Router, store_calls::Store};

/// How often the logs are measured: in between they grow by what the disk accepts in that time.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Runs as long as the node.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Router>, bytes_max: u64) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Ok(lengths) = state.store.log_lengths().await else {
            // The writers hear of the error.
            continue;
        };
        let lengths: Vec<Length> = lengths.iter().filter_map(Length::of).collect();
        let bytes = lengths.iter().map(|log| log.bytes).sum();
        metrics::log_bytes(bytes);
        let logs = given_up(&lengths, bytes_max);
        if logs.is_empty() {
            continue;
        }
        tracing::info!(
            bytes,
            logs = logs.len(),
            "logs exceed cluster.log_retention_bytes and are being cut: absent members will get snapshots of these partitions"
        );
        board
            .tell_of_peers(|| PeerInput::GiveUp(logs.clone()))
            .await;
    }
}
