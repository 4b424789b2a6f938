//! Waves: when no tracked tuple below an id can come again.
//!
//! Each node sends waves, one after the other; a wave ends when all members have answered it. An answer names the least tracked tuple that its sender held
//! *at any time since its answer to the wave before*, tombstones and deliveries for others included. So all answers to one wave cover the moment at
//! which it began: what is below all of them was nowhere at that moment. What was on its way then was also at its sender, or came from an earlier life
//! of a node that has linked anew since, and was thrown away. Clocks do not matter.
//!
//! A node that has started answers 0 to its first wave, and answers none before it was linked with each member.

use std::collections::BTreeMap;

use super::{Queue, peers::Statement};
use crate::{
    api::Output,
    frame::Frame,
    mutants::broken,
    types::{Id, Node, Nodes},
};

/// The least id at some time; none: there was none.
type Least = Option<Id>;

fn lower(one: Least, other: Least) -> Least {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What this node knows of another node's waves.
#[derive(Clone, Debug, Hash)]
struct Seen {
    /// The last wave seen.
    wave: u64,
    /// What was answered to it.
    answer: Least,
    /// The least since then.
    since: Least,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Waves {
    number: u64,
    /// When it began.
    began: u64,
    /// Answers to the present wave.
    answers: BTreeMap<Node, Least>,
    /// The least at this node since its own wave before.
    own: Least,
    /// No wave has ended yet: the next one covers times before the start.
    is_first: bool,
    seen: BTreeMap<Node, Seen>,
    /// Nodes that were linked since the start.
    linked: Nodes,
    /// When waves are sent again.
    pub(super) due: u64,
}

impl Waves {
    pub(super) fn new(number: u64, now: u64) -> Waves {
        Waves {
            number,
            began: now,
            answers: BTreeMap::new(),
            own: Some(Id::MIN),
            is_first: true,
            seen: BTreeMap::new(),
            linked: Nodes::NONE,
            due: now,
        }
    }

    pub(super) fn linked(&mut self, node: Node) {
        self.linked.insert(node);
    }

    /// A tracked tuple has come.
    pub(super) fn note(&mut self, id: Id) {
        self.own = lower(self.own, Some(id));
        for seen in self.seen.values_mut() {
            seen.since = lower(seen.since, Some(id));
        }
    }
}

impl Queue {
    /// The wave that has begun last. What is known by now is covered by every wave with a greater number.
    #[must_use]
    pub fn wave(&self) -> u64 {
        self.waves.number
    }

    /// When that wave began, by the monotonic clock. It lasts as long as a member is away.
    #[must_use]
    pub fn wave_began(&self) -> u64 {
        self.waves.began
    }

    /// The least tracked tuple here: a tuple counts until its removal is durable.
    fn least(&self) -> Least {
        let row = self.tracked.first().map(|row| row.id);
        let mut tombs = self.tombs.iter();
        let tomb = tombs.find(|(_, tomb)| tomb.tracked).map(|(id, _)| *id);
        let mut busy = self.busy.iter();
        let busy = busy.find(|(_, busy)| busy.tracked).map(|(id, _)| *id);
        let held = self.holding.keys().next().copied();
        let held = held.filter(|_| !broken("least-without-deliveries"));
        let busy = busy.filter(|_| !broken("least-without-writes"));
        let least = lower(lower(row, held), busy);
        if broken("least-without-tombstones") {
            least
        } else {
            lower(least, tomb)
        }
    }

    fn has_met_all(&self) -> bool {
        let others = self.members.without(self.me);
        others.minus(self.waves.linked).is_empty() || broken("wave-before-all-were-met")
    }

    pub(super) fn send_wave(&mut self, node: Node) {
        let wave = Frame::Wave(self.waves.number);
        self.send(node, Statement::Frame(wave));
    }

    /// Sends the present wave to all once more.
    pub(super) fn send_waves(&mut self) {
        let now = self.now.monotonic;
        if now < self.waves.due {
            return;
        }
        self.waves.due = now + self.config.wave_every;
        for node in self.linked().iter() {
            self.send_wave(node);
        }
        self.end_wave();
    }

    pub(super) fn on_wave(&mut self, node: Node, wave: u64) {
        if !self.has_met_all() {
            return;
        }
        let least = self.least();
        let first = if broken("first-answer-counts") {
            least
        } else {
            Some(Id::MIN)
        };
        let seen = self.waves.seen.entry(node).or_insert(Seen {
            wave: wave.wrapping_add(1),
            answer: None,
            since: first,
        });
        if seen.wave != wave {
            seen.wave = wave;
            seen.answer = lower(seen.since, least);
            seen.since = least;
        }
        let answer = if broken("least-of-the-moment") {
            least
        } else {
            lower(seen.answer, seen.since)
        };
        let low = Frame::Low {
            wave,
            least: answer,
        };
        self.send(node, Statement::Frame(low));
    }

    pub(super) fn on_low(&mut self, node: Node, wave: u64, least: Least) {
        if wave == self.waves.number && self.members.contains(node) {
            self.waves.answers.insert(node, least);
        }
    }

    /// Ends the present wave, if all have answered, and begins the next one.
    fn end_wave(&mut self) {
        let others = self.members.without(self.me);
        let mut answered = others.iter();
        let all = answered.all(|node| self.waves.answers.contains_key(&node));
        if !all && !broken("wave-without-all") {
            return;
        }
        let now = self.least();
        let own = if broken("wave-without-own") {
            None
        } else {
            lower(self.waves.own, now)
        };
        let answers = std::mem::take(&mut self.waves.answers);
        let others = answers.iter().filter(|(node, _)| others.contains(**node));
        let least = others.fold(own, |least, (_, answer)| lower(least, *answer));
        let wave = self.waves.number;
        let began = std::mem::replace(&mut self.waves.began, self.now.monotonic);
        let counts = !self.waves.is_first && self.has_met_all();
        self.waves.number = wave.wrapping_add(1);
        self.waves.own = now;
        self.waves.is_first = false;
        for node in self.linked().iter() {
            self.send_wave(node);
        }
        if counts {
            self.out.push_back(Output::Swept { wave, began, least });
        }
    }
}
