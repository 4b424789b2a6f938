//! Streams to other nodes, and where the logs of former members end.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;

use crate::peers::Ends;

/// A stream to another node.
#[derive(Clone, Copy)]
pub(super) struct Link {
    /// How long the last round trip took, if it is known.
    pub(super) round_trip: Option<u64>,
    /// What both can do.
    features: u64,
}

impl Link {
    /// Whether both ends have a feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }
}

#[derive(Default)]
pub(super) struct Links {
    open: BTreeMap<Incarnation, Link>,
    closed: Ends,
}

impl Links {
    /// There is a stream, which is new.
    pub(super) fn open(&mut self, peer: Incarnation, features: u64) {
        let link = Link {
            round_trip: None,
            features,
        };
        self.open.insert(peer, link);
    }

    /// The stream is gone.
    pub(super) fn end(&mut self, peer: Incarnation) {
        self.open.remove(&peer);
    }

    /// The last round trip took so long; `false`: there is no stream.
    pub(super) fn round_trip(&mut self, peer: Incarnation, micros: u64) -> bool {
        let link = self.open.get_mut(&peer);
        link.map(|link| link.round_trip = Some(micros)).is_some()
    }

    pub(super) fn has(&self, peer: Incarnation) -> bool {
        self.open.contains_key(&peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Incarnation, Link)> {
        self.open.iter().map(|(peer, link)| (*peer, *link))
    }

    /// Nodes of whose logs there is no more than is here.
    pub(super) fn closed(&self) -> &Ends {
        &self.closed
    }

    pub(super) fn close(&mut self, closed: Ends) {
        self.closed = closed;
    }
}
