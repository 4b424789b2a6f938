//! What is due when: the soonest of the tuples on which this node acts.
//!
//! Only so many are in memory; when few are left, a walk over the table finds the next ones. So a million tuples that wait cost nothing here.

use std::collections::BTreeSet;

use super::Queue;
use crate::{
    api::Output,
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Now},
};

/// Tuples in the agenda.
const AGENDA_MAX: usize = 4096;

/// When fewer are left, and there are others, they are looked for.
const AGENDA_LOW: usize = AGENDA_MAX / 4;

/// Rows that are looked at between two inputs.
const WALK_ROWS: usize = 4096;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Agenda {
    /// By when it is due, and when that was expected on the monotonic clock.
    later: BTreeSet<(u64, u8, Id, u64)>,
    /// The same by the monotonic clock: a clock that is set back delays nothing.
    timers: BTreeSet<(u64, u64, u8, Id)>,
    /// By priority, then by when it was due.
    due: BTreeSet<(u8, u64, Id)>,
    /// Something had no room.
    incomplete: bool,
    /// Where the walk for others is.
    walk: Option<Id>,
}

impl Agenda {
    fn len(&self) -> usize {
        self.later.len() + self.due.len()
    }

    fn add(&mut self, now: Now, not_before: u64, priority: u8, id: Id) {
        let wait = not_before.saturating_sub(now.unix);
        let at = now.monotonic.saturating_add(wait);
        self.later.insert((not_before, priority, id, at));
        self.timers.insert((at, not_before, priority, id));
        if self.len() > AGENDA_MAX {
            self.incomplete = true;
            match self.later.pop_last() {
                Some((not_before, priority, id, at)) => {
                    self.timers.remove(&(at, not_before, priority, id));
                }
                None => _ = self.due.pop_last(),
            }
        }
    }

    /// What is due by one of the clocks.
    fn look(&mut self, now: Now) {
        while let Some(first) = self.later.first().filter(|first| first.0 <= now.unix) {
            self.is_due(*first);
        }
        while let Some(first) = self.timers.first().filter(|first| first.0 <= now.monotonic) {
            let (at, not_before, priority, id) = *first;
            self.is_due((not_before, priority, id, at));
        }
    }

    fn is_due(&mut self, (not_before, priority, id, at): (u64, u8, Id, u64)) {
        self.later.remove(&(not_before, priority, id, at));
        self.timers.remove(&(at, not_before, priority, id));
        self.due.insert((priority, not_before, id));
    }
}

impl Queue {
    /// Whether this node may act on a tuple now.
    fn may_act(&self, id: Id) -> Option<(u64, u8)> {
        let row = self.row(id)?;
        let not_yet = row.has(Flag::WAITING) && !broken("acts-before-acceptance");
        let acts = row.owners.first() == self.me
            && !not_yet
            && !row.has(Flag::HANDED)
            && (!row.has(Flag::DOUBT) || broken("older-disk-acts"));
        acts.then_some((row.not_before, row.priority))
    }

    /// A tuple is to be acted on when it is due.
    pub(super) fn plan(&mut self, id: Id) {
        if self.gate.is_open() {
            self.plan_new(id);
        }
    }

    /// A tuple that was put here: nothing that was found at a start.
    pub(super) fn plan_new(&mut self, id: Id) {
        if let Some((not_before, priority)) = self.may_act(id) {
            self.agenda.add(self.now, not_before, priority, id);
        }
    }

    /// Everything is to be looked at again.
    pub(super) fn plan_all(&mut self) {
        self.agenda.incomplete = true;
    }

    /// Gives the application what is due.
    pub(super) fn hand_out(&mut self) {
        self.refill();
        self.agenda.look(self.now);
        while self.handed < self.config.handed_max {
            let Some((priority, not_before, id)) = self.agenda.due.pop_first() else {
                break;
            };
            // It may be finished, adopted, put off or handed out by now.
            if self.may_act(id) != Some((not_before, priority)) {
                continue;
            }
            if let Some(row) = self.row_mut(id) {
                row.set(Flag::HANDED, true);
            }
            self.handed += 1;
            let progress = self.progress.get(&id).cloned().unwrap_or_default();
            self.out.push_back(Output::Mine(id, progress));
        }
    }

    /// The application is told that another node acts, if it has the tuple.
    pub(super) fn call_back(&mut self, row: &Row) {
        if row.has(Flag::HANDED) {
            self.counters.both_acted += 1;
            self.out.push_back(Output::NotMine(row.id));
        }
    }

    /// The application has a tuple no longer.
    pub(super) fn take_back(&mut self, id: Id) {
        if let Some(row) = self.row_mut(id)
            && row.has(Flag::HANDED)
        {
            row.set(Flag::HANDED, false);
            self.handed = self.handed.saturating_sub(1);
        }
    }

    pub(super) fn on_later(&mut self, id: Id, at: u64) {
        self.take_back(id);
        if let Some(row) = self.row_mut(id) {
            row.not_before = at;
        }
        self.plan(id);
    }

    /// Walks on through the table, when too little is left.
    fn refill(&mut self) {
        if !self.gate.is_open() {
            return;
        }
        if self.agenda.walk.is_none() {
            if !self.agenda.incomplete || self.agenda.len() > AGENDA_LOW {
                return;
            }
            self.agenda.incomplete = false;
            self.agenda.walk = Some(Id::MIN);
        }
        let from = self.agenda.walk.unwrap_or(Id::MIN);
        let (found, next) = self.rows_of_both(from, WALK_ROWS, |row| {
            row.owners.first() == self.me && !row.has(Flag::HANDED)
        });
        for id in found {
            self.plan(id);
        }
        self.agenda.walk = next;
    }

    /// When something is due, in microseconds of the monotonic clock.
    pub(super) fn agenda_deadline(&self) -> Option<u64> {
        let now = self.now;
        let walks = self.agenda.walk.is_some()
            || (self.agenda.incomplete && self.agenda.len() <= AGENDA_LOW && self.gate.is_open());
        let has_room = self.handed < self.config.handed_max;
        if walks || (has_room && !self.agenda.due.is_empty()) {
            return Some(now.monotonic);
        }
        let first = self.agenda.later.first().filter(|_| has_room)?;
        let by_wall = first.0.saturating_sub(now.unix);
        let timer = self.agenda.timers.first().map(|timer| timer.0);
        [Some(now.monotonic.saturating_add(by_wall)), timer]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_by_either_clock_is_due() {
        let id = Id([7; 16]);
        let at = |monotonic, unix| Now { monotonic, unix };
        for (now, is_due) in [
            (at(9, 1009), false),
            (at(10, 1010), true),
            (at(9, 5000), true),
            // The clock was set back.
            (at(9, 0), false),
            (at(10, 0), true),
        ] {
            let mut agenda = Agenda::default();
            agenda.add(at(0, 1000), 1010, 0, id);
            agenda.look(now);
            assert_eq!(!agenda.due.is_empty(), is_due, "{now:?}");
            assert_eq!(agenda.later.len(), agenda.timers.len());
        }
    }
}
