//! Keeps free slots where they can be given: shares them out among linked members, and takes them back from earlier incarnations of this node.
//!
//! An earlier incarnation owns a part of the free slots, which comes back when its logs are closed. Its node removes it by itself as soon as nothing
//! can be lost by that: this node has all that others had, and each other member reports no link with that incarnation.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use whimbrel_cluster::Peer;
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::Roster;

use super::{roster_store::State, startup_identity::remembered_by, status::Remove};
use crate::{clock::Clock, store_calls::Store};

/// How often changes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time between two questions about earlier incarnations, at first and at most.
const ASK_AFTER: Duration = Duration::from_millis(500);
const ASK_AFTER_MAX: Duration = Duration::from_secs(60);

/// Time limit for a linked peer's answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs as long as the node.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, clock: Clock) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shared = None;
    let (mut pause, mut next) = (ASK_AFTER, Instant::now());
    loop {
        ticks.tick().await;
        let now = (state.roster(), linked(&state));
        if shared.as_ref() != Some(&now) {
            share_out(&state, &now.0, &now.1).await;
            shared = Some(now);
        }
        let lives = earlier_lives(&state);
        if lives.is_empty() {
            pause = ASK_AFTER;
        } else if Instant::now() >= next {
            give_up(&state, &lives, clock).await;
            next = Instant::now() + pause;
            pause = (pause * 2).min(ASK_AFTER_MAX);
        }
    }
}

fn linked<S: Store>(state: &State<S>) -> BTreeSet<Incarnation> {
    let links = state.transport.links().into_iter();
    let ids = links.map(|link| link.incarnation);
    ids.filter(|id| state.links.is_up(*id)).collect()
}

async fn share_out<S: Store>(state: &State<S>, roster: &Roster, linked: &BTreeSet<Incarnation>) {
    let me = state.me();
    // Usually there is nothing to give, and the lock is not waited for.
    if Roster::clone(roster).share_out(me, linked) != Ok(true) {
        return;
    }
    let given = state.change(|roster| roster.share_out(me, linked).map(drop));
    match given.await {
        Ok(()) => tracing::debug!("free slots were given to other members"),
        Err(error) => tracing::warn!(%error, "cannot give free slots to other members"),
    }
}

/// Earlier incarnations of this node that still belong to the cluster.
fn earlier_lives<S: Store>(state: &State<S>) -> Vec<Incarnation> {
    let (me, name) = (state.me(), state.credentials.name().to_string());
    let remove = Remove {
        node: name,
        earlier: true,
        really: true,
    };
    // There is none, or all were removed.
    let mut lives = remove.incarnations(&state.roster()).unwrap_or_default();
    lives.retain(|id| *id != me);
    lives
}

async fn give_up<S: Store>(state: &State<S>, lives: &[Incarnation], clock: Clock) {
    let peers = state.peers(&state.roster());
    let links = state.transport.links();
    let is_linked = |peer: &Peer| links.iter().any(|link| link.name == peer.name);
    // This node may have what they lack, or they what it lacks.
    if state.is_syncing() || peers.is_empty() || !peers.iter().all(is_linked) {
        return;
    }
    for life in lives {
        for peer in &peers {
            let asking = timeout(ANSWER_TIME_MAX, remembered_by(state, *life, peer, clock));
            match asking.await {
                Ok(Ok(answer)) if answer.remembered.answered.is_none() => {}
                Ok(Ok(_)) => {
                    let incarnation = format!("{:016x}", life.get());
                    tracing::warn!(
                        peer = %peer.name,
                        incarnation,
                        "a peer is linked to an earlier incarnation of this node, so the node runs twice. Stop one of the two"
                    );
                    return;
                }
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
    tracing::info!("this node has everything of its earlier incarnations, and removes them");
    let node = state.credentials.name().to_string();
    let removed = state.remove_lives(&node, lives).await;
    if let Err(error) = removed {
        tracing::warn!(%error, "cannot remove earlier incarnations of this node from the cluster");
    }
}
