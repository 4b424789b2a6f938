//! Wall clocks that are set, by more than a node may be off, and what nodes know of each other's.
//!
//! Whatever a clock does, all that the other checkers say holds. A node whose clock is more than a minute off those of all nodes that it reaches, and
//! has had time to find out, acknowledges no write.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    Now,
    clocks::{self, Clocks},
};
use whimbrel_service::peers::Clock;

use super::{SECOND, World, network::Event};
use crate::node::EPOCH_MICROS;
use whimbrel_testkit::Rng;

/// How long it takes until a node has measured again: pings, and the next look.
const LOOK_MICROS: u64 = SECOND;

/// From when on it must have found out.
const KNOWN_MICROS: u64 = 2 * SECOND + 1;

/// How far from the others a clock may be, and how far it is set. Forward no further than others take batches from the future, so that nobody has to
/// wait for them.
const OFF_MICROS_MAX: u64 = 60 * SECOND;
const FORWARD_MICROS: (u64, u64) = (130 * SECOND, 280 * SECOND);
const BACK_MICROS: (u64, u64) = (130 * SECOND, 7200 * SECOND);

/// What the nodes know of clocks. Draws from a generator of its own.
pub(super) struct Guards {
    rng: Rng,
    /// A clock is set once in so many calls; 0: never.
    often: u64,
    of: BTreeMap<usize, Guard>,
}

struct Guard {
    clocks: Clocks,
    linked: Vec<Incarnation>,
    /// Since when it has been off those of all nodes that it reaches.
    off_since: Option<u64>,
}

impl Guards {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xc10c_c10c);
        let often = if rng.one_in(3) {
            rng.between(20, 80)
        } else {
            0
        };
        Guards {
            rng,
            often,
            of: BTreeMap::new(),
        }
    }
}

impl World {
    /// Whether a node must have refused a write that it was asked for at this time.
    pub(super) fn must_refuse(&self, index: usize, asked_at: u64) -> bool {
        let guard = self.guards.of.get(&index);
        let since = guard.and_then(|guard| guard.off_since);
        since.is_some_and(|since| since + KNOWN_MICROS <= asked_at)
    }

    /// Perhaps a clock is set far from the others, or back to where they are.
    pub(super) fn maybe_set_a_clock(&mut self) {
        let often = self.guards.often;
        if often == 0 || !self.guards.rng.one_in(often) {
            return;
        }
        let there = self.there();
        let index = *self.guards.rng.pick(&there);
        let is_off = self.is_far(index);
        let offset = match self.guards.rng.below(2) {
            _ if is_off => EPOCH_MICROS,
            0 => EPOCH_MICROS + self.guards.rng.between(FORWARD_MICROS.0, FORWARD_MICROS.1),
            _ => EPOCH_MICROS - self.guards.rng.between(BACK_MICROS.0, BACK_MICROS.1),
        };
        self.note("cluster: clock far off");
        self.set_clock(index, offset);
    }

    /// A node was stopped: it looks at clocks from now on.
    pub(super) fn clock_slept(&mut self, index: usize) {
        if let Some(guard) = self.guards.of.get_mut(&index) {
            guard.off_since = guard.off_since.map(|_| self.now);
        }
    }

    fn is_far(&self, index: usize) -> bool {
        let offset = self.members[index].node.wall_offset_micros;
        !(EPOCH_MICROS - 60 * SECOND..=EPOCH_MICROS + 120 * SECOND).contains(&offset)
    }

    /// Clocks that are off are set right, so that any two agree: where two are left, or as many are off as are not, nobody knows which one is wrong, and
    /// none acknowledges a write until a person has looked.
    pub(super) fn mend_clocks(&mut self) {
        for index in self.there() {
            let offset = self.members[index].node.wall_offset_micros;
            // What is measured is off by as much as the ways there and back differ.
            let right = EPOCH_MICROS..=EPOCH_MICROS + OFF_MICROS_MAX - SECOND;
            if !right.contains(&offset) {
                self.set_clock(index, EPOCH_MICROS);
            }
        }
    }

    pub(super) fn set_clock(&mut self, index: usize, offset_micros: u64) {
        self.say(|| format!("the clock of {index} is set"));
        self.members[index].node.wall_offset_micros = offset_micros;
        for other in self.there() {
            self.clock_changed(other);
        }
    }

    /// A clock is another, or a link: the node finds out.
    pub(super) fn clock_changed(&mut self, index: usize) {
        let reached = self.reached(index);
        self.is_off(index, &reached);
        self.network.at(self.now + LOOK_MICROS, Event::Clock(index));
    }

    /// Whether its clock is far from those of all these nodes.
    fn is_off(&mut self, index: usize, reached: &[usize]) {
        let offset = |of: usize| self.members[of].node.wall_offset_micros;
        let (ours, count) = (offset(index), reached.len());
        let is = |of: &dyn Fn(u64) -> bool| reached.iter().filter(|of_| of(offset(**of_))).count();
        let ahead = is(&|theirs| theirs > ours + OFF_MICROS_MAX);
        let behind = is(&|theirs| theirs + OFF_MICROS_MAX < ours);
        let off = count > 0 && (ahead == count || behind == count);
        let now = self.now;
        if let Some(guard) = self.guards.of.get_mut(&index) {
            guard.off_since = match off {
                true => guard.off_since.or(Some(now)),
                false => None,
            };
        }
    }

    /// Whom it has a stream to.
    fn reached(&self, index: usize) -> Vec<usize> {
        let linked = self.members[index].linked.keys().copied();
        linked
            .filter(|peer| self.network.has_stream(index, *peer))
            .collect()
    }

    /// A node starts: it asks whom it can reach, before it does anything.
    pub(super) fn clock_begins(&mut self, index: usize) -> Result<(), String> {
        self.guards.of.remove(&index);
        let asked = self.there().into_iter().filter(|peer| {
            let down = self.members[*peer].down.is_some();
            *peer != index && !down && self.network.is_reachable(self.now, index, *peer)
        });
        let asked = asked.collect();
        self.clock_judged(index, asked)?;
        self.clock_changed(index);
        Ok(())
    }

    /// A node looks at its clock, and those of the others.
    pub(super) fn clock_looked(&mut self, index: usize) -> Result<(), String> {
        let member = &self.members[index];
        if member.out || member.down.is_some() {
            return Ok(());
        }
        let reached = self.reached(index);
        self.is_off(index, &reached);
        self.clock_judged(index, reached)
    }

    fn clock_judged(&mut self, index: usize, reached: Vec<usize>) -> Result<(), String> {
        self.bring(index);
        let own = self.members[index].node.now();
        let now = Now {
            wall_micros: own.wall_micros,
            mono_micros: own.mono_micros,
        };
        let guard = self.guards.of.entry(index).or_insert_with(|| Guard {
            clocks: Clocks::new(clocks::Config::default(), now),
            linked: Vec::new(),
            off_since: None,
        });
        let linked: Vec<Incarnation> = reached.iter().map(|of| self.members[*of].id).collect();
        for peer in guard.linked.iter().filter(|peer| !linked.contains(peer)) {
            guard.clocks.unlinked(now, *peer);
        }
        let before = std::mem::replace(&mut guard.linked, linked);
        let ours = self.members[index].node.wall_offset_micros;
        guard.clocks.time(now);
        for peer in reached {
            let member = &self.members[peer];
            if !before.contains(&member.id) {
                guard.clocks.linked(now, member.id);
            }
            let ahead = i128::from(member.node.wall_offset_micros) - i128::from(ours);
            let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
            guard.clocks.measured(now, member.id, ahead);
        }
        let clock = match guard.clocks.check() {
            Ok(()) => Clock::right(own),
            Err(_) => Clock::Wrong,
        };
        while guard.clocks.poll().is_some() {}
        self.members[index].node.clock(clock);
        self.outcomes(index)
    }
}
