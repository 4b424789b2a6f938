//! Up to when this node has heard of all entries that any other node knew.
//!
//! A removed message that came from the queue is remembered as long as its entry may still come: a node that takes the entry over would bring the
//! message back where nobody remembers it. Partitions are not ordered among each other, so that a delivery and its removal may be here, and the entry
//! not. But whoever made the delivery had applied the entry, and says so on the link on which its removal is acknowledged. So what another node has
//! said some seconds later covers the entry, and when this node has applied all that each of them has said by then, it knows it, or never will.
//!
//! Owners are told (`Output::CaughtUp`), and forget no such message before (`owner::collect`).

use whimbrel_crdt::VersionVector;

use super::{Phase, QueueOwner};
use crate::machine::{Now, Output};

/// How often it is looked.
const LOOKED_EVERY_MICROS: u64 = 2_000_000;

/// What another node had when its frames left it may be here so much later: a link on which nothing is heard for 3 s ends, the way takes up to 2.8 s,
/// and an acknowledgement goes out before all that is longer.
const ON_THE_WAY_MICROS: u64 = 10_000_000;

/// What is known of one other node.
#[derive(Default)]
pub(super) struct PeerProgress {
    /// All that it had applied then is applied here.
    upto: Option<u64>,
    /// What it had said to have applied, and when that was looked at.
    next: Option<(u64, VersionVector)>,
}

impl QueueOwner {
    /// Looks from whom everything is here, and tells the owners.
    pub(super) fn catch_up(&mut self, now: Now) {
        if self.heard_at.is_some_and(|at| at > now.mono_micros) {
            return;
        }
        self.heard_at = None;
        let Phase::Running(running) = &self.phase else {
            return;
        };
        if self.config.peers.is_empty() && !self.config.in_cluster {
            return;
        }
        self.heard_at = Some(now.mono_micros + LOOKED_EVERY_MICROS);
        let before = now.mono_micros.saturating_sub(ON_THE_WAY_MICROS);
        for peer in &self.config.peers {
            let heard = self.heard.entry(*peer).or_default();
            let is_here =
                |(_, theirs): &mut (u64, VersionVector)| running.shipping.applied_all(theirs);
            if let Some((at, _)) = heard.next.take_if(is_here) {
                heard.upto = Some(at);
            }
            if heard.next.is_none() {
                let theirs = running.shipping.said_by(*peer);
                heard.next = theirs.map(|theirs| (before, theirs.clone()));
            }
        }
        self.heard
            .retain(|peer, _| self.config.peers.contains(peer));
        // Of whom nothing was heard since the start may have any entry.
        let all: Option<Vec<u64>> = self.heard.values().map(|heard| heard.upto).collect();
        if let Some(all) = all {
            let at = all.into_iter().min().unwrap_or(now.mono_micros);
            self.out.push_back(Output::CaughtUp(at));
        }
    }
}
