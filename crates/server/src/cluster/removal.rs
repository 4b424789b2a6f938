//! Members that were removed: what this node holds of their logs is said, the logs are closed when all say the same, and a newcomer that has the slot of
//! one of them waits until it knows all that was written under it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{members::Ends, roster::Holdings};
use whimbrel_service::peers::PeerInput;

use super::roster_store::State;
use crate::{router::Router, store_calls::Store};

/// How often it is looked what is here of removed members' logs. Nothing is looked at while there is none that is not closed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Logs that are closed and not completely here are looked at this often at first, and half as often each time: holders of what this node does not
/// hold are asked, and of some logs nobody has all.
const CLOSED_EVERY_MAX: Duration = Duration::from_secs(60);

/// Partitions of which there is one.
const NODE_WIDE: [PartitionId; 2] = [PartitionId::DIRECTORY, PartitionId::QUEUE];

/// Runs as long as the node. `filled`: this node knows all that was written under its slot.
pub(super) async fn watch<S: Store>(
    state: Arc<State<S>>,
    board: Arc<Router>,
    filled: watch::Sender<bool>,
) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut complete, mut next) = (Ends::new(), Closed::default());
    loop {
        ticks.tick().await;
        look(&state, &board, &mut complete, &mut next).await;
        let before = state.holders_before();
        if !*filled.borrow() && before.iter().all(|id| complete.contains_key(id)) {
            tracing::info!("this node has all operations of the earlier owner of its slot");
            if let Err(error) = state.files.keep_filled(state.me()) {
                tracing::warn!(%error, "cannot record that; the next start checks again");
            }
            filled.send_replace(true);
        }
    }
}

/// When closed logs are looked at next.
#[derive(Default)]
struct Closed {
    of: Vec<Incarnation>,
    pause: Duration,
    at: Option<Instant>,
}

impl Closed {
    /// Those of these that are to be looked at now.
    fn due(&mut self, of: Vec<Incarnation>, now: Instant) -> Vec<Incarnation> {
        if self.of != of {
            (self.of, self.pause, self.at) = (of, LOOK_EVERY / 2, None);
        }
        if self.at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.pause = (self.pause * 2).min(CLOSED_EVERY_MAX);
        self.at = Some(now + self.pause);
        self.of.clone()
    }
}

async fn look<S: Store>(state: &State<S>, board: &Router, complete: &mut Ends, next: &mut Closed) {
    let roster = state.roster();
    let closing = roster.members().closing();
    let closed: Vec<Incarnation> = roster.former().into_keys().collect();
    // On what is closed may rest what is being closed.
    let closed = match closing.is_empty() {
        true => {
            let lacks = closed.into_iter().filter(|id| !complete.contains_key(id));
            next.due(lacks.collect(), Instant::now())
        }
        false => closed,
    };
    if closing.is_empty() && closed.is_empty() {
        return;
    }
    // What comes from them directly must have come to its end: others may never get it.
    if closing.iter().any(|id| state.links.is_up(*id)) {
        return;
    }
    let of: Vec<Incarnation> = closing.into_iter().chain(closed).collect();
    let Some(holdings) = holdings(state, board, &of).await else {
        return;
    };
    let me = state.me();
    let settled = state.change(|roster| roster.settle(me, &holdings).map(drop));
    if let Err(error) = settled.await {
        tracing::warn!(%error, "cannot report which logs of a removed member are here");
    }
    let roster = state.roster();
    let now = roster.complete(&holdings);
    let new: BTreeMap<_, _> = now
        .into_iter()
        .filter(|(id, _)| !complete.contains_key(id))
        .collect();
    if !new.is_empty() {
        for id in new.keys() {
            let name = roster.members().get(*id).map(|member| member.name.clone());
            let incarnation = format!("{:016x}", id.get());
            let logs = holdings.get(id).into_iter().flat_map(BTreeMap::values);
            let stranded: u64 = logs.map(|log| log.stored - log.applied).sum();
            if stranded > 0 {
                tracing::warn!(
                    name,
                    incarnation,
                    operations = stranded,
                    "some operations of a removed member depend on others that were lost with it: no node can apply them"
                );
            }
            tracing::info!(
                name,
                incarnation,
                "the logs of a removed member are closed and complete here"
            );
        }
        complete.extend(new);
        board
            .tell_of_peers(|| PeerInput::Closed(complete.clone()))
            .await;
    }
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
        let replicated = partition.filter(|id| id.bucket().is_some() || NODE_WIDE.contains(id));
        if let Some(partition) = replicated.filter(|partition| !open.contains(partition)) {
            // It could not be read when it was to be.
            if partition.bucket().is_some() {
                board.open_partition(partition);
            }
            return None;
        }
    }
    let mut holdings: Holdings = of.iter().map(|id| (*id, Default::default())).collect();
    // Of what this node does not hold it says what a holder says.
    let left = reports.iter().filter(|report| report.left.is_some());
    let left: BTreeSet<PartitionId> = left.map(|report| report.partition).collect();
    let closed = state.roster().former().into_keys().collect();
    for log in state.held_elsewhere(&left, of, &closed).await? {
        let logs = holdings.get_mut(&log.of);
        logs.map(|logs| logs.insert(log.partition, log.holding()));
    }
    for report in reports.into_iter().filter(|report| report.left.is_none()) {
        let logs = report.open?.logs;
        for (id, of) in &mut holdings {
            of.insert(report.partition, logs.get(id).copied().unwrap_or_default());
        }
    }
    Some(holdings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closed_logs_are_looked_at_less_and_less_often() {
        let node = |id: u64| Incarnation::new(id).expect("not zero");
        let (mut closed, begun) = (Closed::default(), Instant::now());
        let of = vec![node(1), node(2)];
        let looks = |closed: &mut Closed, of: &[Incarnation], from: u64, to: u64| {
            let seconds = from..to;
            let due = seconds.filter(|second| {
                let now = begun + Duration::from_secs(*second);
                !closed.due(of.to_vec(), now).is_empty()
            });
            due.collect::<Vec<u64>>()
        };
        assert_eq!(
            looks(&mut closed, &of, 0, 200),
            [0, 1, 2, 4, 8, 16, 32, 64, 124, 184]
        );
        // One is complete, or another is closed.
        assert_eq!(looks(&mut closed, &of[..1], 200, 203), [200, 201, 202]);
        assert!(looks(&mut closed, &[], 203, 210).is_empty());
    }
}
