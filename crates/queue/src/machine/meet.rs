//! What comes of what another node says of a tuple.
//!
//! Wherever two nodes meet over a tuple their holders and progresses are joined, and the newer list of owners wins. Nothing is deleted because another
//! node has nothing: its list may be older than this one's. An owner that has nothing has lost its copy, and gets it again.

use bytes::Bytes;

use super::{Queue, say::Say};
use crate::{
    frame::{Knowledge, Store},
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Ownership, Version},
};

impl Queue {
    pub(super) fn on_store(&mut self, from: Node, store: Store) {
        let Store {
            id,
            ownership,
            payload,
        } = store;
        if self.tombs.contains_key(&id) {
            self.meet_tombstone(from, id);
            return;
        }
        if self.row(id).is_some() {
            let newer = self.merge(from, id, &ownership);
            // Either says at which version it is held.
            if newer {
                self.say(from, id, Say::Know(0));
            } else {
                self.say(from, id, Say::Stored);
            }
            return;
        }
        let Some(payload) = payload else {
            self.say(from, id, Say::Know(0));
            return;
        };
        let mut row = Row::new(id, &ownership);
        row.holders = row.holders.with(self.me).with(from);
        row.confirm(from);
        if !ownership.progress.is_empty() {
            row.set(Flag::PROGRESS, true);
            self.progress.insert(id, ownership.progress);
        }
        self.insert_row(row, ownership.tracked);
        self.touch_new(id, payload, Some(from));
        self.say(from, id, Say::Stored);
        if row.owners.first() == self.me {
            // It had adopted it, and has lost it since.
            self.act_and_store(id);
        }
    }

    /// When the list is durable this node acts, and its other owners get it and are to confirm.
    pub(super) fn act_and_store(&mut self, id: Id) {
        let me = self.me;
        let Some(row) = self.row_mut(id) else {
            return;
        };
        let others = row.owners.set().without(me);
        row.sent = row.sent.union(others);
        self.touch(id);
        for node in others.iter() {
            self.say(node, id, Say::Store);
        }
        self.say(me, id, Say::Act);
    }

    /// Joins what another node says of a tuple that both hold. Whether this node's list is the newer one.
    fn merge(&mut self, from: Node, id: Id, theirs: &Ownership) -> bool {
        let me = self.me;
        self.clear_doubt(id);
        self.join_progress(id, &theirs.progress);
        let Some(row) = self.row_mut(id) else {
            return false;
        };
        let before = *row;
        if !broken("holders-not-joined") {
            row.holders = row.holders.union(theirs.holders).with(from);
        }
        if from == row.owners.first() {
            row.set(Flag::FIRST_GONE, false);
        }
        let (mine, other) = (row.version(), theirs.version());
        if other > mine && mine.first == me && broken("acting-owner-keeps-its-list") {
            return true;
        }
        if other > mine {
            row.owners = theirs.owners;
            row.term = theirs.term;
            row.stored = 0;
            row.holders = row.holders.union(theirs.owners.set());
            row.set(Flag::FIRST_GONE, false);
        }
        if other >= mine {
            row.confirm(from);
        }
        let row = *row;
        let durable = |row: &Row| (row.version(), row.owners, row.holders);
        if durable(&row) != durable(&before) {
            self.touch(id);
        }
        if other > mine {
            if before.owners.first() == me {
                self.lost_to_another(id);
                self.call_back(&row);
                self.take_back(id);
                if broken("returning-drops-copy") {
                    self.drop_copy(id);
                    return false;
                }
            }
            let first = row.owners.first();
            if first == me && broken("lost-adoption-not-acted-on") {
                return false;
            }
            if first == me {
                self.act_and_store(id);
            } else if from != first {
                // It may have lost its copy since, and have said so when this node had another list.
                self.say(first, id, Say::Know(0));
            }
            return false;
        }
        if other == mine && row.owners.first() == me {
            // Only owners confirm; the others learn that they may leave.
            self.waiting_stored(from, id);
            self.confirmed(id);
        }
        other < mine
    }

    fn join_progress(&mut self, id: Id, theirs: &Bytes) {
        if theirs.is_empty() {
            return;
        }
        let mine = self.progress.get(&id).cloned().unwrap_or_default();
        let joined = if broken("progress-replaced") {
            theirs.clone()
        } else {
            (self.config.join)(&mine, theirs)
        };
        if joined != mine {
            self.progress.insert(id, joined);
            if let Some(row) = self.row_mut(id) {
                row.set(Flag::PROGRESS, true);
            }
            self.touch(id);
        }
    }

    /// What follows when both hold a tuple.
    fn met(&mut self, from: Node, id: Id, newer: bool) {
        let Some(row) = self.row(id).copied() else {
            return;
        };
        if row.has(Flag::DOUBT) {
            return;
        }
        if row.owners.first() == self.me {
            if row.owners.set().contains(from) {
                if !row.is_confirmed(from) {
                    self.store_to(from, id);
                }
            } else {
                self.say(from, id, Say::Leave);
            }
        } else if newer {
            self.say(from, id, Say::Know(0));
        }
    }

    /// An owner is to hold the present list.
    fn store_to(&mut self, to: Node, id: Id) {
        if let Some(row) = self.row_mut(id)
            && row.sent.insert(to)
        {
            self.touch(id);
        }
        self.say(to, id, Say::Store);
    }

    pub(super) fn on_stored(&mut self, from: Node, id: Id, version: Version) {
        let me = self.me;
        self.store_over(from, id);
        if self.tombs.contains_key(&id) {
            self.meet_tombstone(from, id);
            return;
        }
        let Some(row) = self.row_mut(id) else {
            if !broken("stored-of-nothing-ignored") {
                self.say(from, id, Say::Know(0));
            }
            return;
        };
        if row.version() != version && !broken("stored-of-any-version") {
            self.waiting_stored_before(from, id);
            return;
        }
        row.confirm(from);
        if row.owners.first() == me {
            self.waiting_stored(from, id);
            self.confirmed(id);
        }
    }

    /// Tells those that are no owners any more, once all owners hold the present version.
    fn confirmed(&mut self, id: Id) {
        let Some(row) = self.row(id) else {
            return;
        };
        if row.all_confirmed(self.me) || broken("leave-before-all-have-stored") {
            self.leave_all(id);
        }
    }

    pub(super) fn leave_all(&mut self, id: Id) {
        let Some(row) = self.row(id) else {
            return;
        };
        let outside = row.holders.minus(row.owners.set());
        for node in outside.iter() {
            self.say(node, id, Say::Leave);
        }
    }

    pub(super) fn on_know(&mut self, from: Node, id: Id, round: u32, knowledge: &Knowledge) {
        self.answered(from, id, round, knowledge);
        self.store_over(from, id);
        if self.tombs.contains_key(&id) {
            match knowledge {
                // Only Deleted confirms a removal: this may have been said before a Store arrived there.
                Knowledge::Unknown if broken("unknown-confirms") => self.confirm_removal(from, id),
                Knowledge::Unknown => {
                    let wanted = self.tombs.get(&id);
                    if wanted.is_some_and(|tomb| tomb.unconfirmed.contains(from)) {
                        self.say(from, id, Say::Finish);
                    }
                }
                Knowledge::Holds(_) | Knowledge::Doubt => self.meet_tombstone(from, id),
            }
            return;
        }
        let Some(row) = self.row(id).copied() else {
            // Another node counts on a copy here.
            if matches!(knowledge, Knowledge::Holds(theirs) if theirs.owners.set().contains(self.me))
            {
                self.say(from, id, Say::Know(0));
            }
            return;
        };
        match knowledge {
            Knowledge::Holds(theirs) => {
                let newer = self.merge(from, id, theirs);
                self.met(from, id, newer);
            }
            Knowledge::Doubt => {
                self.add_holder(from, id);
                // What it has may be wanted, and is cleared by a word of this node.
                if row.has(Flag::DOUBT) {
                    self.doubt_unknown(from, id);
                } else {
                    self.say(from, id, Say::Know(0));
                }
            }
            Knowledge::Unknown => self.on_unknown(from, id, &row),
        }
    }

    fn on_unknown(&mut self, from: Node, id: Id, row: &Row) {
        if row.has(Flag::DOUBT) {
            self.doubt_unknown(from, id);
            return;
        }
        if broken("deletes-what-another-has-not") && row.owners.set().contains(from) {
            self.drop_copy(id);
            return;
        }
        if row.owners.first() == self.me {
            // It has lost its copy, or a Store never came.
            if row.owners.set().contains(from) && !broken("lost-copy-not-stored-again") {
                if let Some(row) = self.row_mut(id) {
                    row.stored &= !row.owners.place(from).map_or(0, |place| 1 << place);
                    if row.sent.insert(from) {
                        self.touch(id);
                    }
                }
                self.say(from, id, Say::Load);
            } else {
                if broken("unknown-takes-out")
                    && let Some(row) = self.row_mut(id)
                {
                    row.holders.remove(from);
                }
                self.say(from, id, Say::Leave);
            }
        } else if from == row.owners.first() {
            if let Some(row) = self.row_mut(id) {
                row.set(Flag::FIRST_GONE, true);
            }
            self.ask_about(id);
        }
    }

    /// Notes that a node may hold a copy.
    pub(super) fn add_holder(&mut self, node: Node, id: Id) {
        if broken("asker-is-no-holder") {
            return;
        }
        if let Some(row) = self.row_mut(id)
            && row.holders.insert(node)
        {
            self.touch(id);
        }
    }

    /// Another node holds, or may hold, what is done.
    pub(super) fn meet_tombstone(&mut self, from: Node, id: Id) {
        if let Some(tomb) = self.tombs.get_mut(&id)
            && !broken("tombstone-does-not-learn")
        {
            tomb.holders.insert(from);
            if tomb.unconfirmed.insert(from) {
                tomb.kept = tomb.kept || tomb.on_disk;
                self.touch(id);
            }
        }
        self.say(from, id, Say::Finish);
    }

    pub(super) fn on_progress_of(&mut self, from: Node, id: Id, progress: &Bytes) {
        if self.tombs.contains_key(&id) {
            self.meet_tombstone(from, id);
        } else if self.row(id).is_some() {
            self.join_progress(id, progress);
        }
    }

    /// The application has done a part.
    pub(super) fn on_own_progress(&mut self, id: Id, progress: &Bytes) {
        let Some(row) = self.row(id).copied() else {
            return;
        };
        self.join_progress(id, progress);
        for node in row.owners.set().without(self.me).iter() {
            self.say(node, id, Say::Progress);
        }
    }

    /// An asker holds a copy, or had one.
    pub(super) fn on_ask(&mut self, from: Node, round: u32, ids: Vec<Id>) {
        for id in ids {
            if self.tombs.contains_key(&id) {
                self.meet_tombstone(from, id);
                continue;
            }
            self.add_holder(from, id);
            self.say(from, id, Say::Know(round));
            if self
                .row(id)
                .is_some_and(|row| row.owners.first() == self.me)
            {
                self.say(from, id, Say::Leave);
            }
        }
    }

    /// Another node has shown a tuple in a comparison.
    pub(super) fn on_shown(&mut self, from: Node, id: Id, version: Version, doubt: bool, sum: u64) {
        if self.tombs.contains_key(&id) {
            self.meet_tombstone(from, id);
            return;
        }
        self.add_holder(from, id);
        let Some(row) = self.row(id).copied() else {
            self.say(from, id, Say::Know(0));
            return;
        };
        let same = row.version() == version && self.progress_sum(id) == sum;
        if !same || doubt || row.has(Flag::DOUBT) {
            self.say(from, id, Say::Know(0));
        } else if row.owners.first() == self.me {
            if let Some(row) = self.row_mut(id) {
                row.confirm(from);
            }
            self.waiting_stored(from, id);
            self.confirmed(id);
            if !row.owners.set().contains(from) {
                self.say(from, id, Say::Leave);
            }
        }
    }
}
