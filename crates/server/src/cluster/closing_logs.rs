//! What others have of the logs of removed members, in partitions that this node does not hold.
//!
//! It counts when all who hold a partition say the same: what one of them alone has may be lost with it. If they are lost with what they said, this
//! node says less from then on.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::timeout;
use whimbrel_cluster::{Peer, ask_member};
use whimbrel_crdt::{Incarnation, PartitionId};

use super::{
    drain::UNFINISHED_WAIT_MAX,
    links::link_of,
    roster_store::State,
    rpc::{LogHeld, asked, pages},
};
use crate::store_calls::Store;

/// What one says of each of the logs of a partition.
type Said = BTreeMap<Incarnation, LogHeld>;

impl<S: Store> State<S> {
    /// What those who hold the partitions have of the logs of these, of which some are `closed`; `None`: of some partition not all say it, or not the same.
    pub(super) async fn held_elsewhere(
        &self,
        partitions: &BTreeSet<PartitionId>,
        of: &[Incarnation],
        closed: &BTreeSet<Incarnation>,
    ) -> Option<Vec<LogHeld>> {
        if partitions.is_empty() {
            return Some(Vec::new());
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
        // Of each partition what is said by who has all, and by who comes back to it.
        let mut all: BTreeMap<PartitionId, [Vec<Said>; 2]> = BTreeMap::new();
        for (peer, mut missing) in asked {
            for syncing in [false, true] {
                let said = self.held_by(&peer, &missing, of, syncing).await;
                missing.retain(|partition| {
                    let logs = said.iter().filter(|log| log.partition == *partition);
                    let logs: Said = logs.map(|log| (log.of, *log)).collect();
                    // All or nothing: it may have been left between two questions.
                    let whole = of.iter().all(|of| logs.contains_key(of));
                    if whole {
                        all.entry(*partition).or_default()[usize::from(syncing)].push(logs);
                    }
                    !whole
                });
            }
            if !missing.is_empty() {
                return None;
            }
        }
        let agreed = partitions
            .iter()
            .map(|partition| agreed(all.get(partition)?, closed));
        let agreed: Option<Vec<Said>> = agreed.collect();
        Some(agreed?.into_iter().flat_map(Said::into_values).collect())
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

/// What all say who have all of a partition; who comes back to it says less than there is, and counts when there is nobody else. Of what they have
/// applied it is the least. Of closed logs they need not have the same: what lies beyond the end is on the disk of one, and another was told of the
/// end.
fn agreed([whole, syncing]: &[Vec<Said>; 2], closed: &BTreeSet<Incarnation>) -> Option<Said> {
    let said = if whole.is_empty() { syncing } else { whole };
    let (first, others) = said.split_first()?;
    let mut agreed = first.clone();
    for other in others {
        for (of, log) in &mut agreed {
            let is_same = |theirs: &&LogHeld| theirs.stored == log.stored || closed.contains(of);
            let theirs = other.get(of).filter(is_same)?;
            if (theirs.applied, theirs.stored) < (log.applied, log.stored) {
                *log = *theirs;
            }
        }
    }
    Some(agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(logs: &[(u64, u64, u64)]) -> Said {
        let log = |(of, stored, applied): &(u64, u64, u64)| {
            let of = Incarnation::from_hash(*of);
            let log = LogHeld {
                partition: PartitionId(1),
                of,
                taken: *stored,
                stored: *stored,
                applied: *applied,
                lacks: None,
                syncing: None,
            };
            (of, log)
        };
        logs.iter().map(log).collect()
    }

    #[test]
    fn all_holders_must_say_the_same() {
        let check = |whole: &[Said], syncing: &[Said], expected: Option<Said>| {
            let none = BTreeSet::new();
            assert_eq!(agreed(&[whole.to_vec(), syncing.to_vec()], &none), expected);
        };
        let [ten, nine, behind] =
            [(10, 10), (9, 9), (10, 8)].map(|(stored, applied)| [said(&[(1, stored, applied)])]);
        check(&[], &[], None);
        check(&ten, &[], Some(ten[0].clone()));
        check(&[&ten[..], &nine].concat(), &[], None);
        check(&ten, &nine, Some(ten[0].clone()));
        check(&[], &nine, Some(nine[0].clone()));
        check(&[&ten[..], &behind].concat(), &[], Some(behind[0].clone()));
        // One of two holders was told where a closed log ends, and the other has started since.
        let beyond = [said(&[(1, 12, 10)])];
        let closed = [Incarnation::from_hash(1)].into();
        for whole in [[&ten[..], &beyond].concat(), [&beyond[..], &ten].concat()] {
            let said = agreed(&[whole, Vec::new()], &closed);
            assert_eq!(said, Some(ten[0].clone()));
        }
    }
}
