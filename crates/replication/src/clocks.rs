//! Whether this node's clock can be trusted: it is compared with the clocks of the peers and with the monotonic one (docs/design.md#clocks).
//!
//! Purpose: stamps decide which of two concurrent writes wins, so the writes of a node whose clock is far ahead would win for as long. A node with a
//! wrong clock makes no ops; a peer with a wrong clock is reported, and `partition` holds its batches back.
//!
//! Rules:
//! - The clock is more than a minute off the median of the reachable peers: the node makes no ops while that lasts. Of two medians the one nearer to
//!   our clock counts. With one peer nobody can say who is wrong: neither makes ops, and an operator has to look.
//! - The wall clock jumped against the monotonic one: the node makes no ops until half of the reachable peers were measured again and the median
//!   agrees.
//! - No peer is reachable: the node goes on, and a jump is reported.
//!
//! The HLC never goes back, whatever the wall clock does: it begins at the greatest stamp of the log.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::Incarnation;

use crate::{Now, broken};

/// By how much the wall clock may move against the monotonic one between two looks: more than clock slewing does.
pub const JUMP_MICROS_MAX: u64 = 5_000_000;

/// How far a clock may be off: a minute, well below the five minutes that a batch may be stamped ahead.
pub const OFF_MICROS_MAX: u64 = 60_000_000;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// [`OFF_MICROS_MAX`].
    pub off_micros_max: u64,
    /// [`JUMP_MICROS_MAX`].
    pub jump_micros_max: u64,
    /// How often [`Clocks::time`] is called.
    pub look_after_micros: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            off_micros_max: OFF_MICROS_MAX,
            jump_micros_max: JUMP_MICROS_MAX,
            look_after_micros: 1_000_000,
        }
    }
}

/// Why the node makes no ops: temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The median of the peers differs from our clock by so much.
    #[error("the clock is off by {} s from those of the other nodes", .micros / 1_000_000)]
    Off {
        /// Ahead of ours; negative: behind.
        micros: i64,
    },
    /// Our clock jumped, and the peers were not measured again yet.
    #[error("the clock jumped by {} s, which no other node has confirmed yet", .micros / 1_000_000)]
    Jumped {
        /// Forward; negative: back.
        micros: i64,
    },
}

/// What the operator has to know, each once until it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node makes no ops from now on.
    Stopped(Refused),
    /// The node makes ops again.
    GoesOn,
    /// The clock jumped, and no peer was reachable.
    JumpedAlone {
        /// Forward; negative: back.
        micros: i64,
    },
    /// A peer's clock is off.
    PeerOff {
        /// The peer.
        peer: Incarnation,
        /// Ahead of ours; negative: behind.
        micros: i64,
    },
    /// The peer's clock is right again.
    PeerBack(Incarnation),
}

#[derive(Default)]
struct Peer {
    /// How far its clock is ahead of ours, measured since the last jump.
    ahead_micros: Option<i64>,
    told: bool,
}

/// The clock of this node.
pub struct Clocks {
    config: Config,
    /// The clocks at the last look.
    seen: Now,
    /// The sum of jumps that no peer has confirmed.
    jump_micros: i64,
    /// The reachable peers.
    peers: BTreeMap<Incarnation, Peer>,
    refused: Option<Refused>,
    out: VecDeque<Event>,
}

impl Clocks {
    /// At the start the clock counts as right until a peer's clock says otherwise.
    pub fn new(config: Config, now: Now) -> Self {
        Self {
            config,
            seen: now,
            jump_micros: 0,
            peers: BTreeMap::new(),
            refused: None,
            out: VecDeque::new(),
        }
    }

    /// The next thing to report.
    pub fn poll(&mut self) -> Option<Event> {
        self.out.pop_front()
    }

    /// Whether the node may make ops.
    ///
    /// # Errors
    /// Why not: the client gets its protocol's temporary error.
    pub fn check(&self) -> Result<(), Refused> {
        match self.refused {
            Some(refused) if !broken("clock-unguarded") => Err(refused),
            _ => Ok(()),
        }
    }

    /// There is a link to this peer.
    pub fn linked(&mut self, now: Now, id: Incarnation) {
        self.peers.insert(id, Peer::default());
        self.time(now);
    }

    /// The link to this peer is gone.
    pub fn unlinked(&mut self, now: Now, id: Incarnation) {
        self.peers.remove(&id);
        self.time(now);
    }

    /// A peer's clock was measured: it is so far ahead of ours ([`crate::link::Link::ahead_of_mono_micros`]).
    pub fn measured(&mut self, now: Now, id: Incarnation, ahead_micros: i64) {
        // First, so that a measurement from before a jump does not count after it.
        self.time(now);
        let most = self.config.off_micros_max;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.ahead_micros = Some(ahead_micros);
        let off = ahead_micros.unsigned_abs() > most;
        if off != peer.told {
            peer.told = off;
            self.out.push_back(if off {
                Event::PeerOff {
                    peer: id,
                    micros: ahead_micros,
                }
            } else {
                Event::PeerBack(id)
            });
        }
        self.judge();
    }

    /// Looks at the clocks.
    pub fn time(&mut self, now: Now) {
        let seen = std::mem::replace(&mut self.seen, now);
        let wall = i128::from(now.wall_micros) - i128::from(seen.wall_micros);
        let mono = i128::from(now.mono_micros) - i128::from(seen.mono_micros);
        let jump = i64::try_from(wall - mono).unwrap_or(i64::MAX);
        if jump.unsigned_abs() > self.config.jump_micros_max && !broken("jump-unnoticed") {
            self.jump_micros = self.jump_micros.saturating_add(jump);
            for peer in self
                .peers
                .values_mut()
                .filter(|_| !broken("measured-before-the-jump"))
            {
                peer.ahead_micros = None;
            }
            if self.peers.is_empty() {
                self.out.push_back(Event::JumpedAlone { micros: jump });
            }
        }
        self.judge();
    }

    /// When to call [`Clocks::time`], on the monotonic clock.
    pub fn deadline(&self) -> u64 {
        self.seen
            .mono_micros
            .saturating_add(self.config.look_after_micros)
    }

    fn judge(&mut self) {
        let mut ahead: Vec<i64> = self.peers.values().filter_map(|p| p.ahead_micros).collect();
        let asked = 2 * ahead.len() >= self.peers.len();
        if asked && !(self.peers.is_empty() && broken("stops-when-alone")) {
            self.jump_micros = 0;
        }
        ahead.sort_unstable();
        let refused = match median(&ahead) {
            _ if self.jump_micros != 0 => Some(Refused::Jumped {
                micros: self.jump_micros,
            }),
            Some(micros) if micros.unsigned_abs() > self.config.off_micros_max => {
                Some(Refused::Off { micros })
            }
            _ => None,
        };
        let before = std::mem::replace(&mut self.refused, refused);
        let kind = |refused: &Refused| std::mem::discriminant(refused);
        if before.as_ref().map(kind) != refused.as_ref().map(kind) {
            self.out.push_back(match refused {
                Some(refused) => Event::Stopped(refused),
                None => Event::GoesOn,
            });
        }
    }
}

/// The median; of two the one nearer to zero.
fn median(sorted: &[i64]) -> Option<i64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 || broken("upper-median") {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(if lower.unsigned_abs() < upper.unsigned_abs() {
        lower
    } else {
        upper
    })
}
