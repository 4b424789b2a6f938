//! How many connections a destination gets, which destination may begin one now, and which is left alone for a while.
//!
//! A destination is a set of hosts ([`Key`]), not a domain. Its *window* is how many connections it may have: it grows by 1/N with each success and
//! shrinks by one with each failure, and is halved by a host that says that it has too much to do (Postfix's scheduler has these rules, too). When as many
//! connections in a row have failed as the window has, the destination is *dead*: nothing is begun there for a time that doubles with each death, then one
//! connection finds out. What waited for it is given back, to be attempted by its [schedule](crate::schedule), for waiting here would cost memory.
//!
//! Who may begin: the destination with the fewest connections, and of these the one that has waited longest since it last began one. So one with 10,000
//! messages never delays one with a few. Some connections are kept for destinations that have none.
//!
//! Invariants: never more than [`Config::connections_max`] connections, and never more for a destination than its window; at most
//! [`Config::destinations_max`] destinations and [`Config::waiting_max`] items in memory. A greedy destination always leaves room for others to wait.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{destinations::Key, draw::Draw, mutants::broken};

/// Time since an origin that the caller chooses and keeps. It never goes back.
pub type Time = Duration;

/// Sizes and times. `T` of [`Limits`] should be small: a number of an entry, not the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Connections of this node; at least 1.
    pub connections_max: usize,
    /// Of these, so many are only for destinations that have none.
    pub connections_kept: usize,
    /// Connections to a destination that nothing is known of; at least 1.
    pub window_initial: u32,
    /// Connections to a destination.
    pub window_max: u32,
    /// How long a destination is left alone after its first death. Each further one doubles it.
    pub dead_initial: Duration,
    /// The longest such time, before jitter of ±10 %.
    pub dead_max: Duration,
    /// What was learned of a destination is forgotten when nothing was sent there for so long.
    pub forget_after: Duration,
    /// Destinations in memory; at least 1.
    pub destinations_max: usize,
    /// Items that wait for a connection.
    pub waiting_max: usize,
    /// Of these, for one destination.
    pub waiting_of_one_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            connections_max: 200,
            connections_kept: 50,
            window_initial: 2,
            window_max: 20,
            dead_initial: Duration::from_secs(60),
            dead_max: Duration::from_secs(60 * 60),
            forget_after: Duration::from_secs(24 * 60 * 60),
            destinations_max: 10_000,
            waiting_max: 100_000,
            waiting_of_one_max: 1_000,
        }
    }
}

/// How a connection ended, or one transaction on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The host works, whatever it said about recipients.
    Success,
    /// No connection, or it was lost, or the host failed.
    Failure,
    /// The host has too much to do: 421, or 4.7.x to the session.
    Busy,
    /// The host wants less from this server: 4.7.x to a recipient. It is no sign that it is down: greylisting says it to every first message.
    Slow,
    /// Nothing was learned: this node's own failure.
    Nothing,
}

/// What became of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer<T> {
    /// It waits for its turn.
    Waits,
    /// The destination is dead until then: attempt it later.
    Dead(T, Time),
    /// Too much waits, for this destination or in all: offer it again soon.
    Full(T),
}

/// What became of a destination by an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// It goes on.
    None,
    /// It is dead until then; what waited is given back.
    Died(Time, VecDeque<T>),
}

/// One whole connection of a window.
const ONE: u64 = 1_000;

#[derive(Clone, Debug)]
struct Destination<T> {
    /// In thousandths of a connection.
    window: u64,
    /// In thousandths of a window: failures in a row.
    failed: u64,
    /// How often it died since the last success.
    deaths: u32,
    dead_until: Option<Time>,
    active: usize,
    waiting: VecDeque<T>,
    /// The number of the last change: for the order of those with as many connections.
    turn: u64,
    used: Time,
}

impl<T> Destination<T> {
    /// Neither connected nor waited for: it can be forgotten.
    fn is_idle(&self) -> bool {
        self.active == 0 && self.waiting.is_empty()
    }

    fn is_healthy(&self) -> bool {
        self.deaths == 0 && self.failed == 0
    }

    fn may_begin(&self) -> bool {
        !self.waiting.is_empty() && (self.active as u64 + 1) * ONE <= self.window
    }
}

/// The limits of one node.
#[derive(Clone, Debug)]
pub struct Limits<T> {
    config: Config,
    seed: u64,
    destinations: BTreeMap<Key, Destination<T>>,
    /// Those that may begin a connection, by their connections, then by who waits longest.
    ready: BTreeSet<(usize, u64, Key)>,
    /// Those that can be forgotten, the healthy ones first, then by last use.
    idle: BTreeSet<(bool, Time, Key)>,
    active: usize,
    waiting: usize,
    turn: u64,
}

impl<T> Limits<T> {
    /// Nothing is known yet. The seed spreads the times of death.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Limits<T> {
        Limits {
            config,
            seed,
            destinations: BTreeMap::new(),
            ready: BTreeSet::new(),
            idle: BTreeSet::new(),
            active: 0,
            waiting: 0,
            turn: 0,
        }
    }

    /// Something is to be sent to a destination.
    ///
    /// How much may wait for one destination is at most what is free in all (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
    /// packet switches", 1998): however many destinations are greedy, there is room for one that is not.
    pub fn offer(&mut self, now: Time, key: Key, item: T) -> Offer<T> {
        if !self.destinations.contains_key(&key) && !self.make_room() {
            return Offer::Full(item);
        }
        let config = self.config;
        let free = config.waiting_max - self.waiting;
        let most = if broken("greedy-fills-all") {
            config.waiting_max
        } else {
            config.waiting_of_one_max.min(free)
        };
        self.change(now, key, |destination| {
            if let Some(until) = destination.dead_until.filter(|until| now < *until) {
                return Offer::Dead(item, until);
            }
            if destination.waiting.len() >= most {
                return Offer::Full(item);
            }
            destination.waiting.push_back(item);
            Offer::Waits
        })
    }

    /// Who may begin a connection now: the destination and what is to be sent first. [`Limits::done`] ends it.
    pub fn begin(&mut self, now: Time) -> Option<(Key, T)> {
        if self.active >= self.config.connections_max {
            return None;
        }
        let next = if broken("most-connections-first") {
            self.ready.last()
        } else {
            self.ready.first()
        };
        let &(active, _, key) = next?;
        let free = self.config.connections_max - self.active;
        if active > 0 && free <= self.config.connections_kept && !broken("none-kept") {
            return None;
        }
        let item = self.change(now, key, |destination| {
            destination.active += 1;
            destination.waiting.pop_front()
        });
        item.map(|item| (key, item))
    }

    /// What to send next on a connection that has just sent something with success, instead of ending it. `None`: end it, because nothing waits, or the
    /// window has shrunk, or all connections are in use and a destination with fewer of them waits.
    pub fn again(&mut self, now: Time, key: Key) -> Option<T> {
        let destination = self.destinations.get(&key)?;
        let others_wait = self
            .ready
            .first()
            .is_some_and(|(active, ..)| *active + 1 < destination.active);
        let all_in_use = self.active + self.config.connections_kept >= self.config.connections_max;
        if destination.active as u64 * ONE > destination.window || (all_in_use && others_wait) {
            return None;
        }
        self.change(now, key, |destination| destination.waiting.pop_front())
    }

    /// What was learned from a transaction whose connection goes on.
    pub fn learn(&mut self, now: Time, key: Key, outcome: Outcome) -> Change<T> {
        let (config, seed) = (self.config, self.seed);
        self.change(now, key, |destination| {
            learn(&config, seed, now, key, destination, outcome)
        })
    }

    /// A connection from [`Limits::begin`] has ended.
    ///
    /// # Panics
    /// If the destination has no connection: each ends once.
    pub fn done(&mut self, now: Time, key: Key, outcome: Outcome) -> Change<T> {
        let (config, seed) = (self.config, self.seed);
        self.change(now, key, |destination| {
            assert!(
                destination.active > 0,
                "a connection ends that did not begin"
            );
            destination.active -= 1;
            learn(&config, seed, now, key, destination, outcome)
        })
    }

    /// How many connections a destination may have, has, and until when it is dead, if it is; `None`: nothing is known of it.
    #[must_use]
    pub fn look(&self, now: Time, key: Key) -> Option<(u64, usize, Option<Time>)> {
        let destination = self.destinations.get(&key)?;
        let dead = destination.dead_until.filter(|until| now < *until);
        Some((destination.window / ONE, destination.active, dead))
    }

    /// Destinations in memory.
    #[must_use]
    pub fn destinations(&self) -> usize {
        self.destinations.len()
    }

    /// Connections that have begun and not ended.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Items that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Changes a destination, and keeps the sums and both orders.
    fn change<R>(
        &mut self,
        now: Time,
        key: Key,
        change: impl FnOnce(&mut Destination<T>) -> R,
    ) -> R {
        let config = self.config;
        let destination = self
            .destinations
            .entry(key)
            .or_insert_with(|| fresh(&config, now));
        self.ready
            .remove(&(destination.active, destination.turn, key));
        self.idle
            .remove(&(!destination.is_healthy(), destination.used, key));
        self.active -= destination.active;
        self.waiting -= destination.waiting.len();
        if now.saturating_sub(destination.used) >= config.forget_after && destination.is_idle() {
            *destination = fresh(&config, now);
        }
        let before = destination.active;
        let result = change(destination);
        destination.used = now;
        // Its turn is over when it has begun; else it keeps its place.
        if destination.active > before || destination.turn == 0 {
            self.turn += 1;
            destination.turn = self.turn;
        }
        self.active += destination.active;
        self.waiting += destination.waiting.len();
        if destination.may_begin() {
            self.ready
                .insert((destination.active, destination.turn, key));
        }
        if destination.is_idle() {
            self.idle
                .insert((!destination.is_healthy(), destination.used, key));
        }
        result
    }

    /// Forgets a destination if there are too many: the one that was not used for longest, among the healthy ones if there are any. To forget that one is
    /// dead costs connections that fail.
    fn make_room(&mut self) -> bool {
        if self.destinations.len() < self.config.destinations_max {
            return true;
        }
        let oldest = if broken("dead-forgotten-first") {
            self.idle.pop_last()
        } else {
            self.idle.pop_first()
        };
        oldest.is_some_and(|(_, _, key)| self.destinations.remove(&key).is_some())
    }
}

fn fresh<T>(config: &Config, now: Time) -> Destination<T> {
    Destination {
        window: u64::from(config.window_initial.max(1)) * ONE,
        failed: 0,
        deaths: 0,
        dead_until: None,
        active: 0,
        waiting: VecDeque::new(),
        turn: 0,
        used: now,
    }
}

fn learn<T>(
    config: &Config,
    seed: u64,
    now: Time,
    key: Key,
    destination: &mut Destination<T>,
    outcome: Outcome,
) -> Change<T> {
    // A failure's share of the window as it is now.
    let share = ONE * ONE / destination.window;
    match outcome {
        Outcome::Nothing => return Change::None,
        Outcome::Success => {
            let most = u64::from(config.window_max.max(1)) * ONE;
            if destination.deaths > 0 {
                // It is back: as one that nothing is known of.
                destination.window = destination
                    .window
                    .max(u64::from(config.window_initial) * ONE);
            } else {
                destination.window += share;
            }
            destination.window = destination.window.min(most);
            destination.failed = 0;
            destination.deaths = 0;
            destination.dead_until = None;
            return Change::None;
        }
        Outcome::Slow => {
            destination.window = (destination.window / 2).max(ONE);
            return Change::None;
        }
        Outcome::Busy => destination.window = (destination.window / 2).max(ONE),
        Outcome::Failure => destination.window = destination.window.saturating_sub(ONE).max(ONE),
    }
    destination.failed += share;
    // Connections that began before the death end after it: they are no further ones.
    let is_dead = destination.dead_until.is_some_and(|until| now < until);
    if destination.failed < ONE || is_dead || broken("never-dead") {
        return Change::None;
    }
    let doubled = config
        .dead_initial
        .saturating_mul(1u32.checked_shl(destination.deaths).unwrap_or(u32::MAX));
    let time = doubled.min(config.dead_max);
    destination.deaths += 1;
    let mut draw = Draw::new(key.as_bytes(), seed ^ u64::from(destination.deaths));
    // 90 to 110 %: destinations that died of one cause, such as this node's own line, do not all come back at once.
    let percent = if broken("all-back-at-once") {
        100
    } else {
        u32::try_from(90 + draw.below(21)).unwrap_or(100)
    };
    let until = now + time * percent / 100;
    destination.dead_until = Some(until);
    // One connection finds out, and decides.
    destination.window = ONE;
    destination.failed = 0;
    Change::Died(until, core::mem::take(&mut destination.waiting))
}
