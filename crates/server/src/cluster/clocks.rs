//! Whether this node's clock can be trusted: measured on the links, judged by [`whimbrel_replication::clocks`], reported to the machines.
//!
//! Until there are links, the peers that were asked at the start count. So a node that starts with a wrong clock writes nothing by it.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, MissedTickBehavior, interval};
use whimbrel_cluster::Linked;
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    Now,
    clocks::{Clocks, Config, Event, Refused},
};
use whimbrel_service::peers::{Clock as Told, PeerInput};

use super::roster_store::State;
use crate::{clock::Clock, router::Router, store_calls::Store};

/// For so long the answers of peers that were asked at the start count, until their links are up.
const ASKED_FOR_MICROS: u64 = 10_000_000;

/// The machines get a new report when the clock was slewed by so much: well below what they take for a jump.
const SLEWED_MICROS: u64 = 1_000_000;

/// How far a peer's wall clock was ahead of the monotonic one here, when it was asked at the start.
pub(super) type PeerTimes = BTreeMap<Incarnation, i64>;

struct Peer {
    name: String,
    /// Round trips that were counted.
    pongs: u64,
}

/// The judge, and the measurements that it has got.
pub(super) struct Guard {
    clocks: Clocks,
    peers: BTreeMap<Incarnation, Peer>,
    asked_until: u64,
    told: Option<Told>,
}

fn ahead_of_mono(now: Now) -> i64 {
    let ahead = i128::from(now.wall_micros) - i128::from(now.mono_micros);
    i64::try_from(ahead).unwrap_or(i64::MAX)
}

impl Guard {
    pub(super) fn new(now: Now, asked: &PeerTimes) -> Self {
        let mut clocks = Clocks::new(Config::default(), now);
        let here = ahead_of_mono(now);
        for (id, ahead) in asked {
            clocks.linked(now, *id);
            clocks.measured(now, *id, ahead.saturating_sub(here));
        }
        let peer = |id: &Incarnation| {
            let name = format!("{:016x}", id.get());
            (*id, Peer { name, pongs: 0 })
        };
        Guard {
            clocks,
            peers: asked.keys().map(peer).collect(),
            asked_until: now.mono_micros + ASKED_FOR_MICROS,
            told: None,
        }
    }

    /// Looks at the clocks. Returns the report for the machines, if it is new.
    fn look(&mut self, now: Now, links: &[Linked]) -> Option<Told> {
        let is_linked = |id: &Incarnation| links.iter().any(|link| link.incarnation == *id);
        let early = now.mono_micros < self.asked_until;
        let gone = self
            .peers
            .extract_if(.., |id, peer| !(is_linked(id) || early && peer.pongs == 0));
        for (id, _) in gone {
            self.clocks.unlinked(now, id);
        }
        for link in links {
            let id = link.incarnation;
            let peer = self.peers.entry(id).or_insert_with(|| {
                self.clocks.linked(now, id);
                Peer {
                    name: String::new(),
                    pongs: 0,
                }
            });
            peer.name = link.name.to_string();
            if let Some(ahead) = link.ahead_micros
                && std::mem::replace(&mut peer.pongs, link.pongs) != link.pongs
            {
                self.clocks.measured(now, id, ahead);
            }
        }
        self.clocks.time(now);
        let here = ahead_of_mono(now);
        let is = match self.clocks.check() {
            Ok(()) => Told::Right { ahead_micros: here },
            Err(_) => Told::Wrong,
        };
        let known = match (self.told, is) {
            (Some(Told::Wrong), Told::Wrong) => true,
            (Some(Told::Right { ahead_micros }), Told::Right { .. }) => {
                here.abs_diff(ahead_micros) < SLEWED_MICROS
            }
            _ => false,
        };
        if known {
            return None;
        }
        self.told = Some(is);
        self.told
    }

    fn log(&mut self) {
        while let Some(event) = self.clocks.poll() {
            match event {
                Event::Stopped(refused) => {
                    tracing::error!(%refused, "nothing is written while that is so: correct the wrong clock, and check NTP");
                }
                Event::GoesOn => {
                    tracing::warn!(
                        "the clock agrees with those of the other nodes: writes are accepted again"
                    );
                }
                Event::JumpedAlone { micros } => {
                    let seconds = micros / 1_000_000;
                    tracing::warn!(
                        seconds,
                        "the clock jumped, and no other node can be asked whether it is right"
                    );
                }
                Event::PeerOff { peer, micros } => {
                    let seconds = micros / 1_000_000;
                    tracing::warn!(
                        peer = self.name(peer),
                        seconds,
                        "the clock of a peer is ahead of this one (behind, if less than 0)"
                    );
                }
                Event::PeerBack(peer) => {
                    tracing::info!(
                        peer = self.name(peer),
                        "the clock of a peer agrees with this one again"
                    );
                }
            }
        }
    }

    fn name(&self, peer: Incarnation) -> &str {
        self.peers.get(&peer).map_or("?", |peer| &peer.name)
    }

    /// Why nothing is written.
    fn refused(&self) -> Option<Refused> {
        self.clocks.check().err()
    }

    /// Looks once. Returns the report for the machines, if it is new. Before there are links it depends on the peers that were asked at the start.
    pub(super) fn judge<S: Store>(&mut self, state: &State<S>, clock: Clock) -> Option<Told> {
        let told = self.look(clock.of_peers(), &state.transport.links());
        self.log();
        state.clock_is(self.refused());
        told
    }

    /// Looks once, and reports to the machines.
    pub(super) async fn tell<S: Store>(&mut self, state: &State<S>, board: &Router, clock: Clock) {
        if let Some(told) = self.judge(state, clock) {
            board.tell_of_peers(|| PeerInput::Clock(told)).await;
        }
    }
}

/// Looks for ever.
pub(super) async fn watch<S: Store>(
    state: Arc<State<S>>,
    board: Arc<Router>,
    clock: Clock,
    mut guard: Guard,
) {
    let _guard = state.guard("clocks");
    let every = Duration::from_micros(Config::default().look_after_micros);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        guard.tell(&state, &board, clock).await;
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_cluster::NodeName;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(wall: u64, mono: u64) -> Now {
        Now {
            wall_micros: wall * 1_000_000,
            mono_micros: mono * 1_000_000,
        }
    }

    fn link(id: u64, pongs: u64, ahead_seconds: i64) -> Linked {
        Linked {
            name: NodeName::new(&format!("n{id}")).unwrap(),
            incarnation: Incarnation::from_hash(id),
            wire: 1,
            features: 0,
            round_trip_micros: Some(1),
            ahead_micros: (pongs > 0).then_some(ahead_seconds * SECOND),
            pongs,
            received: 0,
            sent: 0,
        }
    }

    #[test]
    fn who_was_asked_counts_until_there_are_links() {
        // Both clocks are an hour ahead.
        let asked: PeerTimes = [1, 2]
            .map(|id| (Incarnation::from_hash(id), 4600 * SECOND))
            .into_iter()
            .collect();
        let mut guard = Guard::new(at(1000, 0), &asked);
        assert_eq!(guard.look(at(1001, 1), &[]), Some(Told::Wrong));
        assert_eq!(
            guard.refused(),
            Some(Refused::Off {
                micros: 3600 * SECOND
            })
        );
        // Links without a measurement change nothing.
        let links = [link(1, 0, 0), link(2, 0, 0)];
        assert_eq!(guard.look(at(1002, 2), &links), None);
        // The clock is set: the others have to be measured again, which they were.
        let links = [link(1, 1, 0), link(2, 1, 0)];
        let now = at(4603, 3);
        let right = Told::Right {
            ahead_micros: 4600 * SECOND,
        };
        assert_eq!(guard.look(now, &links), Some(right));
        assert_eq!(guard.look(at(4604, 4), &links), None);
        // The clock is slewed by a second.
        let links = [link(1, 2, -1), link(2, 2, -1)];
        let right = Told::Right {
            ahead_micros: 4601 * SECOND,
        };
        assert_eq!(guard.look(at(4606, 5), &links), Some(right));
    }

    #[test]
    fn who_does_not_come_is_nobody() {
        let asked: PeerTimes = [(Incarnation::from_hash(1), 4600 * SECOND)].into();
        let mut guard = Guard::new(at(1000, 0), &asked);
        assert_eq!(guard.look(at(1009, 9), &[]), Some(Told::Wrong));
        let right = Told::Right {
            ahead_micros: 1000 * SECOND,
        };
        assert_eq!(guard.look(at(1010, 10), &[]), Some(right));
    }

    #[test]
    fn one_measurement_counts_once() {
        let mut guard = Guard::new(at(1000, 0), &PeerTimes::new());
        let links = [link(1, 5, 0)];
        assert!(matches!(
            guard.look(at(1001, 1), &links),
            Some(Told::Right { .. })
        ));
        // A jump, and no peer was measured since.
        assert_eq!(guard.look(at(9002, 2), &links), Some(Told::Wrong));
        assert_eq!(guard.look(at(9003, 3), &links), None);
        // The jump is confirmed.
        let links = [link(1, 6, 0)];
        assert!(matches!(
            guard.look(at(9004, 4), &links),
            Some(Told::Right { .. })
        ));
    }
}
