//! The sending ends of all links, for frames to all peers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use whimbrel_cluster::{Handle, Linked};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::{Place, Roster};
use whimbrel_service::peers::Frame;

/// The link to the node that has a name now. There may be another link under that name: to a removed node that had the name before and has not heard
/// of its removal.
pub(super) fn link_of<'l>(links: &'l [Linked], name: &str, place: &Place) -> Option<&'l Linked> {
    let mut links = links.iter();
    links.find(|link| link.name.as_str() == name && link.incarnation == place.incarnation)
}

/// Links that are up.
#[derive(Default)]
pub(super) struct Links(Mutex<BTreeMap<Incarnation, Handle>>, Mutex<Since>);

/// When the last change of each link was.
type Since = BTreeMap<Incarnation, Instant>;

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Incarnation, Handle>> {
        // A panic leaves no change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, Since> {
        // As above.
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how many seconds the link is up, or down; `None`: it was never up since the start.
    pub(super) fn seconds(&self, peer: Incarnation) -> Option<u64> {
        let since = self.since().get(&peer).copied()?;
        Some(since.elapsed().as_secs())
    }

    /// A link is up: its peer gets the roster, and each change of it from then on.
    pub(super) fn up(
        &self,
        peer: Incarnation,
        handle: Handle,
        members: impl FnOnce() -> Arc<Roster>,
    ) {
        let mut links = self.lock();
        // Earlier rosters go to existing links only: no change comes in between.
        handle.push(&Frame::Roster(Roster::clone(&members())));
        links.insert(peer, handle);
        drop(links);
        self.since().insert(peer, Instant::now());
    }

    pub(super) fn down(&self, peer: Incarnation) {
        self.lock().remove(&peer);
        self.since().insert(peer, Instant::now());
    }

    /// Whether frames of this node may be on their way to the machines.
    pub(super) fn is_up(&self, peer: Incarnation) -> bool {
        self.lock().contains_key(&peer)
    }

    pub(super) fn close_all(&self) {
        self.lock().values().for_each(Handle::close);
    }

    /// Queues a frame on all links, and then does this, before a new link can come up.
    pub(super) fn tell_all(&self, frame: &Frame, then: impl FnOnce()) {
        let links = self.lock();
        for handle in links.values() {
            handle.push(frame);
        }
        then();
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_cluster::NodeName;
    use whimbrel_replication::placement::Role;

    use super::*;

    /// A session to the one node was dropped when the link to the other one ended.
    #[test]
    fn of_two_links_under_a_name_the_members_is_taken() {
        let [removed, present, other] = [1, 2, 3].map(Incarnation::from_hash);
        let link = |name: &str, incarnation| Linked {
            name: NodeName::new(name).unwrap(),
            incarnation,
            wire: 1,
            features: 0,
            round_trip_micros: None,
            ahead_micros: None,
            pongs: 0,
            received: 0,
            sent: 0,
        };
        let place = Place {
            shares: None,
            version: 1,
            incarnation: present,
            address: "eu-1.example.org:1".into(),
            region: "eu".into(),
            role: Role::Worker.number(),
        };
        let check = |links: &[Linked], expected: Option<Incarnation>| {
            let found = link_of(links, "eu-1", &place);
            assert_eq!(found.map(|link| link.incarnation), expected);
        };
        let (old, new) = (link("eu-1", removed), link("eu-1", present));
        check(&[old.clone(), new.clone()], Some(present));
        check(&[new, old.clone()], Some(present));
        check(&[old, link("us-1", other)], None);
    }
}
