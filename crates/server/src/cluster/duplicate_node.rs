//! Nobody else lives as this node: asked of the peers beside what they remember, before anything is written.
//!
//! A copy that was made below the file system, of a volume or of a virtual machine, knows nothing of it, and its disk is no older than the other's.
//! But a peer that is linked to the one while the other starts can say so ([`identity::Elsewheres`](whimbrel_replication::identity::Elsewheres)).
//! Where nobody says so a start waits for nothing.

use std::time::Duration;

use tokio::time::{sleep_until, timeout};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::identity::{DuplicateNode, Elsewheres};

use super::{
    roster_store::State,
    startup_identity::{Answer, all, remembered_by},
};
use crate::{clock::Clock, serve::StartError, store_calls::Store};

/// For a peer to answer again: it did so some milliseconds ago.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Asks those again of which somebody is linked under this node's incarnation, until that is over or has shown to be another node; their last answers.
///
/// # Errors
/// When another node lives under this incarnation.
pub(super) async fn refuse<S: Store>(
    state: &State<S>,
    me: Incarnation,
    answers: Vec<Answer>,
    clock: Clock,
) -> Result<Vec<Answer>, StartError> {
    let asked = answers.into_iter().map(|answer| {
        Box::pin(async move {
            let name = answer.peer.name.to_string();
            ask(state, me, answer, clock).await.ok_or(name)
        })
    });
    let asked = all(asked.collect()).await;
    let alone: Result<Vec<Answer>, String> = asked.into_iter().collect();
    alone.map_err(|peer| {
        StartError::Cluster(format!(
            "another machine runs as this node: {peer} is linked to one of the same incarnation ({:016x}), which has answered it since this start. One of the two is a copy, of a virtual \
             machine or of a volume. Stop the one that is not to go on. If this is the copy, it can be a node of its own: start it with an empty data directory and another cluster.name, \
             after `whimbrel cluster join TOKEN` (docs/cluster.md, \"A machine that was copied\")",
            me.get()
        ))
    })
}

/// One peer's last answer; `None`: another node lives.
async fn ask<S: Store>(
    state: &State<S>,
    me: Incarnation,
    mut answer: Answer,
    clock: Clock,
) -> Option<Answer> {
    let mut elsewheres = Elsewheres::default();
    let mut follows = elsewheres.answered(clock.of_peers(), answer.remembered.answered);
    let peer = answer.peer.clone();
    if follows != DuplicateNode::Nobody {
        tracing::info!(peer = %peer.name, "a peer is linked to a node of this incarnation: waiting until that link ends, or that node answers");
    }
    loop {
        match follows {
            DuplicateNode::Nobody => return Some(answer),
            DuplicateNode::Alive => return None,
            DuplicateNode::Unknown => {
                tracing::warn!(peer = %peer.name, "a peer keeps a silent link to a node of this incarnation: it is taken for a link of the last run of this node");
                return Some(answer);
            }
            DuplicateNode::Ask { at_micros } => sleep_until(clock.instant(at_micros)).await,
        }
        let again = timeout(ANSWER_TIME_MAX, remembered_by(state, me, &peer, clock)).await;
        let now = clock.of_peers();
        follows = match again {
            Ok(Ok(again)) => {
                answer = again;
                elsewheres.answered(now, answer.remembered.answered)
            }
            Ok(Err(_)) | Err(_) => elsewheres.unanswered(now),
        };
    }
}
