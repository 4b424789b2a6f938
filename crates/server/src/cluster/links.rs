//! The sending ends of all links, for what all peers are told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use whimbrel_cluster::{Handle, Linked};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::{Place, Roster};
use whimbrel_service::peers::Frame;

/// The link to the node that has a name now. There may be another under that name: to who had it before and has not heard yet that it was removed.
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
        // Nothing in here is left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, Since> {
        // As above.
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how many seconds it is up, or down; `None`: it was never up since the start.
    pub(super) fn seconds(&self, peer: Incarnation) -> Option<u64> {
        let since = self.since().get(&peer).copied()?;
        Some(since.elapsed().as_secs())
    }

    /// A link is there: its peer is shown the members, and each change of them from then on.
    pub(super) fn up(
        &self,
        peer: Incarnation,
        handle: Handle,
        members: impl FnOnce() -> Arc<Roster>,
    ) {
        let mut links = self.lock();
        // What they were before is told to the links that are there: none comes between.
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

    /// Puts a frame into all of them, and then does this, before a link can come up.
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

    /// A session that went to the one node was given up when the link to the other ended.
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
