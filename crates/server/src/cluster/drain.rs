//! Draining a node, and which members hold what it has ([`whimbrel_service::cluster::drain`]).

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::timeout;
use whimbrel_cluster::{Peer, ask_member};
use whimbrel_crdt::Incarnation;
use whimbrel_service::cluster::drain::{Handover, MemberHoldings, least_holders, written_by};

use super::{
    roster_store::State,
    rpc::{Question, asked},
    status::{Drain, DrainAsk, DrainLine},
};
use crate::store_calls::Store;

/// For a peer to say how much of what it was sent is not in its place.
pub(super) const UNFINISHED_WAIT_MAX: Duration = Duration::from_secs(2);

/// For another node to say how far it is with being drained: it asks all others.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);

/// While other nodes write, a member holds everything only at moments: one answer looks for them so long, with this pause.
const MOMENTS_LOOKED_FOR: Duration = Duration::from_secs(1);

/// See [`MOMENTS_LOOKED_FOR`].
const MOMENT_PAUSE: Duration = Duration::from_millis(50);

impl<S: Store> State<S> {
    /// Who else holds what is here.
    async fn others(&self) -> Vec<(Incarnation, DrainLine)> {
        let peers = self.peers(&self.roster());
        let status = self.status().await;
        let mut lines = Vec::new();
        let roster = self.roster();
        for node in status.nodes {
            let peer = peers.iter().find(|peer| peer.name.as_str() == node.name);
            let place = roster.places().get(&node.name);
            let (Some(peer), Some(place)) = (peer.filter(|_| node.is_member()), place) else {
                continue;
            };
            let unfinished = match node.linked {
                true => self.ask_unfinished(peer).await,
                false => None,
            };
            let line = DrainLine {
                name: node.name,
                linked: node.linked,
                lag_operations: node.lag_operations,
                unfinished,
            };
            lines.push((place.incarnation, line));
        }
        lines
    }

    /// The same, and who held everything a moment ago.
    async fn holders_of_all(&self) -> Vec<(Incarnation, DrainLine)> {
        let until = Instant::now() + MOMENTS_LOOKED_FOR;
        loop {
            // What is written after this is not missed: it is noticed at the next look.
            let written = self.written_here().await;
            let mut lines = self.others().await;
            self.note(written, &mut lines);
            let waits_for = |line: &DrainLine| line.unfinished.is_some() && !line.holds_all();
            if !lines.iter().any(|(_, line)| waits_for(line)) || Instant::now() >= until {
                return lines;
            }
            tokio::time::sleep(MOMENT_PAUSE).await;
        }
    }

    /// A member that has held everything since this node's last write holds it still, whatever came since.
    fn note(&self, written: u64, lines: &mut [(Incarnation, DrainLine)]) {
        let looks = lines.iter().map(|(id, line)| MemberHoldings {
            member: *id,
            linked: line.linked,
            holds_all: line.holds_all(),
        });
        let looks: Vec<MemberHoldings> = looks.collect();
        let mut handover = self.handover();
        let held_by = handover.note(written, &looks);
        for (_, line) in lines.iter_mut().filter(|(id, _)| held_by.contains(id)) {
            (line.lag_operations, line.unfinished) = (Some(0), Some(0));
        }
    }

    fn handover(&self) -> MutexGuard<'_, Handover> {
        self.handover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn written_here(&self) -> u64 {
        let reports = match self.served.get() {
            Some((board, _)) => board.reports().await.unwrap_or_default(),
            None => Vec::new(),
        };
        written_by(self.me(), &reports)
    }

    /// Sessions that are served here are told to end; those that come are served by other nodes, or hear the same, until it is cancelled or the server stops.
    pub(super) async fn drain(&self, ask: DrainAsk) -> Result<Drain, String> {
        let (Some((registry, _)), Some((board, _))) = (self.sessions.get(), self.served.get())
        else {
            return Err("the node is starting; try again".into());
        };
        match ask {
            DrainAsk::Cancel => {
                tracing::info!("no longer drained: sessions are accepted again");
                registry.reopen();
            }
            DrainAsk::Begin => registry.drain(),
            DrainAsk::Look => {}
        }
        let figures = board.figures().await;
        let others = self.holders_of_all().await;
        let all = others.iter().filter(|(_, line)| line.holds_all());
        let all: BTreeSet<Incarnation> = all.map(|(id, _)| *id).collect();
        // Unknown is nobody; and if something was written here since the lines were looked at, the next look says more.
        let reports = board.reports().await.unwrap_or_default();
        let is_as_noted = self.handover().is_of(written_by(self.me(), &reports));
        let least = match is_as_noted {
            true => least_holders(&reports, &all),
            false => 0,
        };
        Ok(Drain {
            sessions: registry.served() as u64,
            // Unknown is not none.
            queue_entries: figures.map_or(u64::MAX, |figures| figures.queue_entries),
            others: others.into_iter().map(|(_, line)| line).collect(),
            least: Some(least),
            draining: Some(registry.is_draining()),
        })
    }

    /// The same at another node, which is asked by the certificate of this one.
    pub(super) async fn drain_node(
        &self,
        node: Option<&str>,
        ask: DrainAsk,
    ) -> Result<Drain, String> {
        let Some(node) = node.filter(|node| *node != self.credentials.name().as_str()) else {
            return self.drain(ask).await;
        };
        let peers = self.peers(&self.roster());
        let peer = peers.iter().find(|peer| peer.name.as_str() == node);
        let peer = peer.ok_or_else(|| format!("there is no node {node} in the cluster"))?;
        let (cancel, look) = ask.words();
        let look = Some(look);
        let question = asked(&Question::Drain { cancel, look }, self.me());
        let asking = ask_member(&self.credentials, &peer.name, &peer.address, question);
        let answer = timeout(DRAIN_WAIT_MAX, asking).await;
        let answer = answer.map_err(|_| format!("{node} does not answer"))?;
        let answer = answer.map_err(|error| format!("{node}: {error}"))?;
        serde_json::from_slice(&answer).map_err(|_| {
            format!("{node} is not understood: is it of another version? Run the command there")
        })
    }

    async fn ask_unfinished(&self, peer: &Peer) -> Option<u64> {
        let question = asked(&Question::Unfinished, self.me());
        let asking = ask_member(&self.credentials, &peer.name, &peer.address, question);
        let answer = timeout(UNFINISHED_WAIT_MAX, asking).await.ok()?.ok()?;
        minicbor::decode(&answer).ok()
    }
}
