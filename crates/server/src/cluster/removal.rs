//! Members that were removed: what this node holds of their logs is said, the logs are closed when all say the same, and a newcomer that has the slot of
//! one of them waits until it knows all that was written under it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::roster::Holdings;
use whimbrel_service::{
    cluster::closing::{self, Closing, LOOK_EVERY},
    peers::PeerInput,
};

use super::roster_store::State;
use crate::{router::Router, store_calls::Store};

/// Runs as long as the node. `filled`: this node knows all that was written under its slot.
pub(super) async fn watch<S: Store>(
    state: Arc<State<S>>,
    board: Arc<Router>,
    filled: watch::Sender<bool>,
) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun, mut closing) = (Instant::now(), Closing::default());
    loop {
        ticks.tick().await;
        look(&state, &board, &mut closing, begun.elapsed()).await;
        let before = state.holders_before();
        let complete = closing.complete();
        if !*filled.borrow() && before.iter().all(|id| complete.contains_key(id)) {
            tracing::info!("this node has all operations of the earlier owner of its slot");
            if let Err(error) = state.files.keep_filled(state.me()) {
                tracing::warn!(%error, "cannot record that; the next start checks again");
            }
            filled.send_replace(true);
        }
    }
}

async fn look<S: Store>(state: &State<S>, board: &Router, closing: &mut Closing, now: Duration) {
    let of = closing.due(&state.roster(), |id| state.links.is_up(id), now);
    if of.is_empty() {
        return;
    }
    let Some(holdings) = holdings(state, board, &of).await else {
        return;
    };
    let me = state.me();
    let settled = state.change(|roster| roster.settle(me, &holdings).map(drop));
    if let Err(error) = settled.await {
        tracing::warn!(%error, "cannot report which logs of a removed member are here");
    }
    let roster = state.roster();
    let new = closing.said(&roster, &holdings);
    if new.is_empty() {
        return;
    }
    for log in new {
        let member = roster.members().get(log.of);
        let name = member.map(|member| member.name.clone());
        let incarnation = format!("{:016x}", log.of.get());
        if log.stranded > 0 {
            tracing::warn!(
                name,
                incarnation,
                operations = log.stranded,
                "some operations of a removed member depend on others that were lost with it: no node can apply them"
            );
        }
        tracing::info!(
            name,
            incarnation,
            "the logs of a removed member are closed and complete here"
        );
    }
    let complete = closing.complete();
    board
        .tell_of_peers(|| PeerInput::Closed(complete.clone()))
        .await;
}

/// What is here of these logs; `None`: a partition is being opened.
async fn holdings<S: Store>(
    state: &State<S>,
    board: &Router,
    of: &[Incarnation],
) -> Option<Holdings> {
    let reports = board.all_reports().await?;
    let open: BTreeSet<PartitionId> = reports.iter().map(|report| report.partition).collect();
    for partition in state.store.partitions().await.ok()? {
        let partition = u16::try_from(partition.0).ok().map(PartitionId);
        let replicated =
            partition.filter(|id| id.bucket().is_some() || *id == PartitionId::DIRECTORY);
        if let Some(partition) = replicated.filter(|partition| !open.contains(partition)) {
            // It could not be read when it was to be.
            if partition.bucket().is_some() {
                board.open_partition(partition);
            }
            return None;
        }
    }
    let mut holdings = closing::holdings(&reports, of)?;
    // Of what this node does not hold it says what the holders say.
    let closed = state.roster().former().into_keys().collect();
    let left = closing::left(&reports);
    for (of, logs) in state.held_by_holders(&left, of, &closed).await? {
        holdings.entry(of).or_default().extend(logs);
    }
    Some(holdings)
}
