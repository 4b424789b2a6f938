//! Tuples whose owners are away: asking before adopting, and entrusting tuples to others when too few are left.
//!
//! A walk over the table finds them: when a peer is taken for dead, when it was away for long, and once a minute. It gives way after some thousand rows.

use std::collections::BTreeMap;

use super::{
    Queue,
    peers::{PeerState, Statement},
};
use crate::{
    frame::{ASK_IDS_MAX, Frame, Knowledge},
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes, Version},
};

/// Questions under way.
const ROUNDS_MAX: usize = 8;

/// Rows that are looked at between two inputs.
const WALK_ROWS: usize = 4096;

/// What a rewritten list costs of the rate of repair, beside payloads.
const REWRITE_BYTES: i64 = 200;

/// When so many payloads wait to be sent again, no more lists are rewritten.
const LOADS_MAX: usize = 1000;

/// A question to all peers about some tuples.
#[derive(Clone, Debug, Hash)]
pub(super) struct Round {
    ids: Vec<Asked>,
    /// Who is waited for.
    peers: Nodes,
    /// Answers that have not come.
    missing: usize,
    until: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Asked {
    id: Id,
    /// As it was when the question was asked.
    version: Version,
    answered: Nodes,
    unknown: Nodes,
}

/// The walk over the table.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Walk {
    at: Option<Id>,
    /// Something has changed since it began.
    pub(super) again: bool,
    /// When it begins all the same.
    pub(super) next_at: u64,
    /// It waits for the rate of repair.
    stalled: bool,
}

/// Questions by number, and which tuples they are about.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Rounds {
    number: u32,
    open: BTreeMap<u32, Round>,
    of: BTreeMap<Id, u32>,
    /// To be asked about next.
    soon: Vec<Id>,
}

impl Queue {
    /// A tuple is to be asked about soon.
    pub(super) fn ask_about(&mut self, id: Id) {
        if self.rounds.soon.len() < ASK_IDS_MAX {
            self.rounds.soon.push(id);
        } else {
            self.walk.again = true;
        }
    }

    fn is_gone(&self, node: Node) -> bool {
        node != self.me && self.state_of(node) == PeerState::Terminated
    }

    /// With what is in doubt nobody adopts.
    fn is_barred(row: &Row) -> bool {
        row.has(Flag::DOUBT) && !broken("older-disk-adopts")
    }

    /// Whether others are to be asked about a tuple, since its acting owner is away.
    fn is_orphan(&self, row: &Row) -> bool {
        let first = row.owners.first();
        first != self.me
            && !Self::is_barred(row)
            && (self.is_gone(first) || row.has(Flag::FIRST_GONE))
            && !self.rounds.of.contains_key(&row.id)
    }

    /// Owners beside this node that are not missing for long.
    fn kept_owners(&self, row: &Row) -> Nodes {
        let (now, after) = (self.now.monotonic, self.config.repair_after);
        let others = row.owners.set().without(self.me).iter();
        others
            .filter(|node| {
                let peer = self.peers.get(node);
                peer.is_some_and(|peer| peer.missing_since.is_none_or(|since| now < since + after))
            })
            .collect()
    }

    fn needs_repair(&self, row: &Row) -> bool {
        row.owners.first() == self.me
            && !row.has(Flag::WAITING)
            && !row.has(Flag::DOUBT)
            && self.kept_owners(row).len() < self.others_needed()
            && !broken("no-repair")
    }

    /// Entrusts a tuple to others in place of those that are missing. False: the rate is used up.
    fn repair(&mut self, id: Id) -> bool {
        let Some(row) = self.row(id).copied().filter(|row| self.needs_repair(row)) else {
            return true;
        };
        let kept = self.kept_owners(&row);
        let count = self.others_needed().saturating_sub(kept.len());
        let others = self.choose(count, row.owners.set());
        if others.is_empty() {
            return true;
        }
        if broken("repair-without-rate") {
            self.rate_left = i64::MAX;
        }
        if self.rate_left <= 0 || self.loads.len() > LOADS_MAX {
            return false;
        }
        self.rate_left -= REWRITE_BYTES;
        self.counters.repaired += 1;
        self.rewrite(id, kept, &others);
        true
    }

    /// Goes on through the table.
    pub(super) fn walk_on(&mut self) {
        if !self.gate.is_open() {
            return;
        }
        let now = self.now.monotonic;
        if self.rounds.open.len() < ROUNDS_MAX && !self.rounds.soon.is_empty() {
            let soon = std::mem::take(&mut self.rounds.soon);
            self.ask(soon);
        }
        if self.walk.at.is_none() {
            if !self.walk.again && now < self.walk.next_at {
                return;
            }
            self.walk.again = false;
            self.walk.next_at = if broken("asked-once") {
                u64::MAX
            } else {
                now + self.config.ask_every
            };
            self.walk.at = Some(Id::MIN);
        }
        self.walk.stalled = false;
        if self.rounds.open.len() >= ROUNDS_MAX {
            return;
        }
        self.refill_rate();
        let from = self.walk.at.unwrap_or(Id::MIN);
        let (found, next) = self.rows_of_both(from, WALK_ROWS, |row| {
            self.is_orphan(row) || self.needs_repair(row) || row.has(Flag::DOUBT)
        });
        let mut orphans = Vec::new();
        for id in found {
            let Some(row) = self.row(id).copied() else {
                continue;
            };
            if Self::is_barred(&row) {
                self.judge_doubt(id);
            } else if self.is_orphan(&row) {
                if orphans.len() == ASK_IDS_MAX {
                    self.walk.at = Some(id);
                    self.ask(orphans);
                    return;
                }
                orphans.push(id);
            } else if !self.repair(id) {
                self.walk.at = Some(id);
                self.walk.stalled = true;
                self.ask(orphans);
                return;
            }
        }
        self.walk.at = next;
        self.ask(orphans);
    }

    fn ask(&mut self, mut ids: Vec<Id>) {
        ids.sort_unstable();
        ids.dedup();
        let asked: Vec<Asked> = ids
            .iter()
            .filter_map(|id| self.row(*id))
            .filter(|row| self.is_orphan(row))
            .map(|row| Asked {
                id: row.id,
                version: row.version(),
                answered: Nodes::NONE,
                unknown: Nodes::NONE,
            })
            .collect();
        if asked.is_empty() {
            return;
        }
        let deaf = |node: &Node| {
            let peer = self.peers.get(node);
            peer.is_some_and(|peer| peer.deaf) && !broken("deaf-peers-waited-for")
        };
        let mut peers: Nodes = self.linked().iter().filter(|node| !deaf(node)).collect();
        if broken("adopts-without-asking") {
            peers = Nodes::NONE;
        }
        self.rounds.number = self.rounds.number.wrapping_add(1).max(1);
        let number = self.rounds.number;
        let ids: Vec<Id> = asked.iter().map(|asked| asked.id).collect();
        for id in &ids {
            self.rounds.of.insert(*id, number);
        }
        let round = Round {
            missing: asked.len() * peers.len(),
            ids: asked,
            peers,
            until: self.now.monotonic + self.config.ask_wait,
        };
        self.rounds.open.insert(number, round);
        for node in peers.iter() {
            let ask = Frame::Ask {
                round: number,
                ids: ids.clone(),
            };
            self.send(node, Statement::Frame(ask));
        }
    }

    /// A peer has answered a question.
    pub(super) fn answered(&mut self, from: Node, id: Id, round: u32, knowledge: &Knowledge) {
        let round = if broken("unknown-of-before-counts") && round == 0 {
            self.rounds.of.get(&id).copied().unwrap_or(0)
        } else {
            round
        };
        self.mark(from, id, round, |asked| match knowledge {
            Knowledge::Unknown => {
                asked.unknown.insert(from);
            }
            // It may be needed: this is no word that it is gone.
            Knowledge::Doubt if broken("doubt-is-no-copy") => {
                asked.unknown.insert(from);
            }
            Knowledge::Doubt | Knowledge::Holds(_) => {
                asked.unknown.remove(from);
            }
        });
    }

    /// A peer has answered that a tuple is done.
    pub(super) fn answered_finished(&mut self, from: Node, id: Id) {
        if let Some(round) = self.rounds.of.get(&id).copied() {
            self.mark(from, id, round, |_| {});
        }
    }

    fn mark(&mut self, from: Node, id: Id, round: u32, then: impl FnOnce(&mut Asked)) {
        if let Some(round) = self.rounds.open.get_mut(&round)
            && round.peers.contains(from)
            && let Ok(place) = round.ids.binary_search_by_key(&id, |asked| asked.id)
            && let Some(asked) = round.ids.get_mut(place)
        {
            if asked.answered.insert(from) {
                round.missing -= 1;
            }
            then(asked);
        }
    }

    /// A link is over: its answers do not come.
    pub(super) fn round_without(&mut self, node: Node) {
        for round in self.rounds.open.values_mut() {
            if round.peers.remove(node) {
                let open = round
                    .ids
                    .iter()
                    .filter(|asked| !asked.answered.contains(node));
                round.missing -= open.count();
            }
        }
    }

    /// Adopts what nobody else is to act on, where all have answered or were waited for.
    pub(super) fn end_rounds(&mut self) {
        let now = self.now.monotonic;
        let over = |round: &Round| round.missing == 0 || now >= round.until;
        let open = self.rounds.open.iter();
        let numbers: Vec<u32> = open
            .filter(|(_, round)| over(round))
            .map(|(at, _)| *at)
            .collect();
        for number in numbers {
            let Some(round) = self.rounds.open.remove(&number) else {
                continue;
            };
            for asked in &round.ids {
                self.rounds.of.remove(&asked.id);
                for node in round.peers.minus(asked.answered).iter() {
                    if let Some(peer) = self.peers.get_mut(&node) {
                        peer.deaf = true;
                    }
                }
            }
            for asked in round.ids {
                if self.may_adopt(&asked) {
                    self.counters.adopted += 1;
                    let owners = self
                        .row(asked.id)
                        .map_or(Nodes::NONE, |row| row.owners.set());
                    self.rewrite(asked.id, owners, &[]);
                }
            }
        }
    }

    fn may_adopt(&self, asked: &Asked) -> bool {
        let Some(row) = self.row(asked.id) else {
            return false;
        };
        let changed = row.version() != asked.version && !broken("adopts-a-changed-list");
        if Self::is_barred(row) || changed {
            return false;
        }
        let owners = row.owners.as_slice().iter();
        let mut before = owners.take_while(|owner| **owner != self.me);
        let free = |owner: &Node| self.is_gone(*owner) || asked.unknown.contains(*owner);
        row.owners.first() != self.me
            && if broken("adopts-before-earlier-terminated") {
                free(&row.owners.first())
            } else {
                before.all(free)
            }
    }

    pub(super) fn rounds_are_over(&self) -> bool {
        self.rounds.open.is_empty() && self.rounds.soon.is_empty()
    }

    /// When the walk goes on, or a question is over.
    pub(super) fn walk_deadline(&self) -> Option<u64> {
        if !self.gate.is_open() {
            return None;
        }
        let now = self.now.monotonic;
        let rounds = self.rounds.open.values();
        let round = rounds
            .map(|round| if round.missing == 0 { now } else { round.until })
            .min();
        let full = self.rounds.open.len() >= ROUNDS_MAX;
        let soon = (!full && !self.rounds.soon.is_empty()).then_some(now);
        let walk = match (self.walk.at, self.walk.stalled) {
            (Some(_), true) => Some(now + 100_000),
            (Some(_), false) if full => None,
            (Some(_), false) => Some(now),
            (None, _) if self.walk.again => Some(now),
            (None, _) => Some(self.walk.next_at),
        };
        [round, soon, walk].into_iter().flatten().min()
    }

    /// What is said of an older disk's tuple by a node that knows it is needed.
    pub(super) fn clear_doubt(&mut self, id: Id) {
        if broken("doubt-never-cleared") {
            return;
        }
        let Some(row) = self.row_mut(id).filter(|row| row.has(Flag::DOUBT)) else {
            return;
        };
        row.set(Flag::DOUBT, false);
        row.set(Flag::STALE, false);
        row.stored = 0;
        let acts = row.owners.first();
        self.doubts.remove(&id);
        self.touch(id);
        if acts == self.me {
            self.act_and_store(id);
        } else {
            self.walk.again = true;
        }
    }
}
