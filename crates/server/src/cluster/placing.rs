//! Drives the decision which partitions this node leaves, and to which it comes back ([`whimbrel_service::cluster::placing`]).

use std::{
    collections::BTreeSet,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{roster::RosterError, wire::FEATURE_HOLDERS};
use whimbrel_service::cluster::placing::{LOOK_EVERY, Move, Placing, Seen, Wanted};

use super::roster_store::{ChangeError, State};
use crate::{config::Config, router::Router, store_calls::Store};

/// How many nodes are to hold each partition.
pub(super) fn wanted(config: &Config) -> Wanted {
    Wanted {
        per_region: config.cluster.holders_per_region,
        least: least(config),
    }
}

/// So many members hold each partition, at least: one more than has to confirm a write.
pub(crate) fn least(config: &Config) -> usize {
    let others = [
        config.queue.other_nodes,
        config.imap.other_nodes,
        config.pop3.other_nodes,
    ];
    1 + others.into_iter().max().unwrap_or(0)
}

/// Runs as long as the node.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Router>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    loop {
        ticks.tick().await;
        if let Err(error) = look(&state, &board, begun.elapsed()).await {
            tracing::warn!(%error, "cannot report which partitions this node holds");
        }
    }
}

impl<S: Store> State<S> {
    pub(super) fn placing(&self) -> MutexGuard<'_, Placing> {
        self.placing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look<S: Store>(
    state: &State<S>,
    board: &Router,
    now: Duration,
) -> Result<(), ChangeError> {
    let (roster, me) = (state.roster(), state.me());
    if state.placing().is_idle(&roster, me) {
        return Ok(());
    }
    let Some(reports) = board.all_reports().await else {
        return Ok(());
    };
    let links = state.transport.links().into_iter();
    let linked: BTreeSet<Incarnation> = links
        .filter(|link| link.features & FEATURE_HOLDERS != 0)
        .map(|link| link.incarnation)
        .collect();
    let seen = Seen {
        me,
        roster: &roster,
        reports: &reports,
        linked: &linked,
        syncing: state.is_syncing(),
    };
    let moves = state.placing().look(&seen, now);
    for (partition, what) in moves {
        if what != Move::Open {
            match state
                .change(|roster| what.tell(roster, me, partition))
                .await
            {
                Err(ChangeError::Roster(RosterError::TooLong)) if what == Move::Leave => continue,
                told => told?,
            }
        }
        state.placing().done(partition, what, now);
        if what == Move::Leave {
            // Also sessions without a selected mailbox: their calls are refused from now on, and a client that connects again is relayed to a holder.
            state.turn_out(partition);
        }
        log(partition, what);
        board.open_partition(partition);
    }
    Ok(())
}

fn log(partition: PartitionId, what: Move) {
    let partition = partition.0;
    match what {
        Move::Open => {}
        Move::Leave => {
            tracing::info!(partition, "releasing a partition: other nodes hold it");
        }
        Move::Stay => tracing::info!(partition, "a partition is not released for now"),
        Move::GiveUp => tracing::warn!(
            partition,
            "a partition is not released: its holders do not report that they have all of it (an account is stalled there, blobs are missing, or the \
             number of holders differs between nodes). It is tried again later"
        ),
        Move::Left(_) => {
            tracing::info!(
                partition,
                "a partition was released: deleting its data here"
            );
        }
        Move::Come => tracing::info!(
            partition,
            "getting a partition back: it is held when all of it is here"
        ),
    }
}
