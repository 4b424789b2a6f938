//! Draining a node, and what others hold of what it has.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::timeout;
use whimbrel_cluster::{Peer, ask_member};
use whimbrel_crdt::Incarnation;
use whimbrel_service::peers::PartitionReport;

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

/// How many others hold all of it, of the partition of this node of which it is the fewest. Who does not hold a partition has said to lack nothing of the others.
fn least_holders(reports: &[PartitionReport], holds_all: impl Fn(Incarnation) -> bool) -> u64 {
    let here = reports.iter().filter(|report| report.left.is_none());
    let holders = here.map(|report| {
        // Of one that is being opened nothing is known.
        let peers = report.open.iter().flat_map(|open| &open.peers);
        peers
            .filter(|(id, peer)| peer.lacks == 0 && peer.young == 0 && holds_all(**id))
            .count() as u64
    });
    holders.min().unwrap_or(0)
}

impl<S: Store> State<S> {
    /// Who else holds what is here.
    async fn others(&self) -> Vec<DrainLine> {
        let peers = self.peers(&self.roster());
        let status = self.status().await;
        let mut lines = Vec::new();
        // A life before the present one has no address, and nothing is held there.
        for node in status.nodes {
            let peer = peers.iter().find(|peer| peer.name.as_str() == node.name);
            let Some(peer) = peer.filter(|_| node.address.is_some() && !node.removed) else {
                continue;
            };
            let unfinished = match node.linked {
                true => self.ask_unfinished(peer).await,
                false => None,
            };
            lines.push(DrainLine {
                name: node.name,
                linked: node.linked,
                lacks: node.lacks,
                unfinished,
            });
        }
        lines
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
        let others = self.others().await;
        let all = others.iter().filter(|line| line.holds_all());
        let all: BTreeSet<&str> = all.map(|line| line.name.as_str()).collect();
        let roster = self.roster();
        let holds_all = |id: Incarnation| {
            let mut places = roster.places().iter();
            places.any(|(name, place)| place.incarnation == id && all.contains(name.as_str()))
        };
        // Unknown is nobody.
        let reports = board.reports().await;
        let least = reports.map_or(0, |reports: Vec<_>| least_holders(&reports, holds_all));
        Ok(Drain {
            sessions: registry.served() as u64,
            // Unknown is not none.
            queue_entries: figures.map_or(u64::MAX, |figures| figures.queue_entries),
            others,
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
