//! Asks the holders of partitions that this node does not hold what they have of the logs of removed members
//! ([`whimbrel_service::cluster::closing`]).

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::timeout;
use whimbrel_cluster::{Peer, ask_member};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::roster::Holdings;
use whimbrel_service::cluster::closing::HolderReports;

use super::{
    drain::UNFINISHED_WAIT_MAX,
    links::link_of,
    roster_store::State,
    rpc::{LogHeld, asked, pages},
};
use crate::store_calls::Store;

impl<S: Store> State<S> {
    /// What the holders of the partitions have of the logs of these, of which some are `closed`; `None`: of some partition not all say it, or not the
    /// same.
    pub(super) async fn held_by_holders(
        &self,
        partitions: &BTreeSet<PartitionId>,
        of: &[Incarnation],
        closed: &BTreeSet<Incarnation>,
    ) -> Option<Holdings> {
        if partitions.is_empty() {
            return Some(Holdings::new());
        }
        let roster = self.roster();
        let linked = self.transport.links();
        let mut asked: Vec<(Peer, BTreeSet<PartitionId>)> = Vec::new();
        for peer in self.peers(&roster) {
            let place = roster.places().get(peer.name.as_str())?;
            let holds = |partition: &&PartitionId| roster.holds(place.incarnation, **partition);
            let held: BTreeSet<PartitionId> = partitions.iter().filter(holds).copied().collect();
            if held.is_empty() {
                continue;
            }
            // Nobody is asked in vain.
            link_of(&linked, peer.name.as_str(), place)?;
            asked.push((peer, held));
        }
        let mut reports = HolderReports::new(of);
        for (peer, mut missing) in asked {
            for syncing in [false, true] {
                let said = self.held_by(&peer, &missing, of, syncing).await;
                missing.retain(|partition| {
                    let logs = said.iter().filter(|log| log.partition == *partition);
                    let logs: BTreeMap<_, _> = logs.map(|log| (log.of, log.holding())).collect();
                    !reports.said(*partition, syncing, logs)
                });
            }
            if !missing.is_empty() {
                return None;
            }
        }
        reports.agreed(partitions, closed)
    }

    /// What one says.
    async fn held_by(
        &self,
        peer: &Peer,
        partitions: &BTreeSet<PartitionId>,
        of: &[Incarnation],
        syncing: bool,
    ) -> Vec<LogHeld> {
        let mut held = Vec::new();
        for page in pages(partitions, of, syncing) {
            let question = asked(&page, self.me());
            let asking = ask_member(&self.credentials, &peer.name, &peer.address, question);
            let Ok(Ok(answer)) = timeout(UNFINISHED_WAIT_MAX, asking).await else {
                break;
            };
            let Ok(said) = minicbor::decode::<Vec<LogHeld>>(&answer) else {
                break;
            };
            held.extend(said);
        }
        held
    }
}
