//! What all members have applied, and which parts of logs may be cut.
//!
//! A batch is stable here when each member has reported an *applied* vector that covers it, and this node has applied that member's own batches up to
//! its number in that report. Then everything that the member made before it had applied the batch is applied here as well.
//!
//! While a snapshot is being received, only what it covers can become stable: what is stable may be collected, and a snapshot from before a removal
//! would bring the removed record back (`proofs/spec/Forgotten.v`).
//!
//! Reports only grow, so three vectors of each member are enough: what is confirmed, the report that waits for the member's own batches, and the
//! newest.

use whimbrel_crdt::{Incarnation, VersionVector};

use super::{Output, Partition};
use crate::broken;

impl Partition {
    /// A peer reports what it has applied.
    pub(super) fn report(&mut self, id: Incarnation, applied: VersionVector) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.applied.merge(&applied);
            // The report has to name the last op that the peer has made, also in an earlier generation.
            let counts = !peer.lacks_own || broken("own-of-before-not-counted");
            match &mut peer.latest {
                _ if !counts => {}
                Some(latest) => latest.merge(&applied),
                None => peer.latest = Some(applied),
            }
        }
        self.settle();
    }

    /// Finds out what is stable now.
    pub(super) fn settle(&mut self) {
        for (id, peer) in &mut self.peers {
            let own = self.origins.get(id).map_or(0, |origin| origin.applied);
            while let Some(report) = peer.candidate.take().or_else(|| peer.latest.take()) {
                if report.get(*id) > own && !broken("report-without-number") {
                    peer.candidate = Some(report);
                    break;
                }
                peer.confirmed.merge(&report);
            }
        }
        // What this node wrote before it left may not depend on ops that would become stable now; the same holds for any member.
        let own = self.origins.get(&self.me);
        if own.is_some_and(|own| own.applied < own.stored) && !broken("own-of-before-not-asked") {
            return self.cut();
        }
        let mut stable = self.applied();
        for (member, membership) in self.members.iter().filter(|(id, _)| **id != self.me) {
            if let Some(left) = membership.left {
                // What the member wrote before it left may not depend on ops that would become stable now.
                if !self.is_complete(*member, left) {
                    return self.cut();
                }
                continue;
            }
            match self.peers.get(member) {
                Some(peer) => stable.meet(&peer.confirmed),
                None if broken("absent-not-asked") => {}
                None => return self.cut(),
            }
        }
        // The same holds for removed members: what they wrote may not be applied yet.
        if self.lacks_of_removed() && !broken("closed-not-asked") {
            return self.cut();
        }
        if let Some(applied) = self.take_applied() {
            stable.meet(applied);
        }
        // A new member has reported nothing yet; what was stable stays stable.
        if self.stable.covers_all(&stable) {
            return self.cut();
        }
        self.stable.merge(&stable);
        self.cut();
        self.out.push_back(Output::Stable(self.stable.clone()));
    }

    /// Whether a batch of a removed member is not applied here, up to the end of its log. Of some batches this node knows only that others have them.
    fn lacks_of_removed(&self) -> bool {
        let lacks = |id: &Incarnation, known: u64| {
            if *id == self.me || self.members.contains_key(id) {
                return false;
            }
            let applied = self.origins.get(id).map_or(0, |origin| origin.applied);
            let end = self.closed.get(id).copied().unwrap_or(u64::MAX);
            applied < known.min(end)
        };
        let mut holders = self.peers.iter().filter(|(peer, _)| self.holds(**peer));
        let mut here = self.origins.iter();
        here.any(|(id, origin)| lacks(id, origin.stored))
            || holders.any(|(_, peer)| peer.durable.iter().any(|(id, known)| lacks(&id, known)))
    }

    /// The log is not kept up to this number for members that are away: they get a snapshot.
    pub(super) fn give_up(&mut self, id: Incarnation, number: u64) {
        if let Some(origin) = self.origins.get_mut(&id) {
            origin.given_up = origin.given_up.max(number);
            self.cut();
        }
    }

    /// No peer gets the log up to this number any more.
    pub(super) fn forgotten(&mut self, id: Incarnation, number: u64) {
        if let Some(origin) = self.origins.get_mut(&id) {
            let below = number.min(origin.applied) + 1;
            if below > origin.low {
                origin.low = below;
                self.out.push_back(Output::Cut { origin: id, below });
            }
        }
    }

    fn cut(&mut self) {
        let linked = || self.peers.values().filter(|peer| peer.linked);
        for (id, origin) in &mut self.origins {
            let upto = if broken("cut-at-own-pace") {
                origin.applied
            } else {
                let too_far = origin.given_up.min(origin.applied);
                // A linked peer still gets what it lacks.
                let sent = linked().map(|peer| peer.durable.get(*id)).min();
                self.stable
                    .get(*id)
                    .max(too_far.min(sent.unwrap_or(too_far)))
            };
            let below = (upto + 1).saturating_sub(self.config.kept);
            if below >= origin.low + self.config.cut_step && !broken("nothing-is-cut") {
                origin.low = below;
                self.out.push_back(Output::Cut { origin: *id, below });
            }
        }
    }
}
