//! The end of a tuple: tombstones, and copies that leave.
//!
//! A tuple that is done becomes a tombstone, until every node that may hold a copy has said that its copy is gone. Most are confirmed within a round
//! trip: a tombstone is in memory alone for a second, while the tuple's record stays on the disk.

use super::{Queue, say::Say};
use crate::{
    api::Output,
    frame::{Delete, Deleted},
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes, Version},
};

/// A tuple that is done.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Tombstone {
    pub(super) version: Version,
    /// All that may have held a copy.
    pub(super) holders: Nodes,
    /// Those that have not said yet that theirs is gone.
    pub(super) unconfirmed: Nodes,
    pub(super) tracked: bool,
    /// There is a record on the disk: of the tuple, or of the tombstone.
    pub(super) on_disk: bool,
    /// The record is to be a tombstone.
    pub(super) kept: bool,
}

impl Queue {
    /// Ends a tuple of this node.
    pub(super) fn finish(&mut self, id: Id) {
        let Some((row, tracked)) = self.take_row(id) else {
            return;
        };
        let asked = self.asked.remove(&id).unwrap_or_default();
        let asked = if broken("asked-peers-forgotten") {
            Nodes::NONE
        } else {
            asked
        };
        let listed = broken("tombstone-for-the-list-only");
        let known = if listed {
            row.owners.set()
        } else {
            row.holders
        };
        let holders = known.union(asked);
        let unconfirmed = holders.without(self.me).both(self.members);
        self.bury(&row, tracked, holders, unconfirmed);
        for node in unconfirmed.iter() {
            self.emit_finish(node, id);
        }
    }

    /// Finish needs no disk: a node that forgets it finds the tuple, and asks before it acts.
    fn emit_finish(&mut self, node: Node, id: Id) {
        if let Some(tomb) = self.tombs.get(&id).copied() {
            let delete = Delete {
                id,
                finished: true,
                version: tomb.version,
                holders: tomb.holders,
            };
            self.send(node, super::peers::Statement::Delete(delete));
        }
    }

    fn bury(&mut self, row: &Row, tracked: bool, holders: Nodes, unconfirmed: Nodes) {
        let id = row.id;
        let unconfirmed = if broken("no-tombstones") {
            Nodes::NONE
        } else {
            unconfirmed
        };
        self.touch_gone(id, row, tracked);
        let written = self.busy.get(&id).is_some_and(super::say::Busy::is_writing);
        let tomb = Tombstone {
            version: row.version(),
            holders,
            unconfirmed,
            tracked,
            // What is being written may be there when this is.
            on_disk: row.has(Flag::ON_DISK) || written,
            kept: broken("tombstones-written-at-once"),
        };
        self.tombs.insert(id, tomb);
        let due = self.now.monotonic + self.config.tombstone_wait;
        self.tomb_times.push_back((due, id));
    }

    /// Writes tombstones that nobody has confirmed in time.
    pub(super) fn keep_tombstones(&mut self) {
        while let Some((due, id)) = self.tomb_times.front().copied() {
            if due > self.now.monotonic {
                break;
            }
            self.tomb_times.pop_front();
            if let Some(tomb) = self.tombs.get_mut(&id)
                && !tomb.kept
                && !broken("tombstone-only-in-memory")
            {
                tomb.kept = true;
                self.touch(id);
            }
        }
    }

    /// Another node says that a tuple is done, or that this copy may go.
    pub(super) fn on_delete(&mut self, from: Node, delete: &Delete) {
        if delete.finished {
            self.on_finished(from, delete.id, delete.version, delete.holders);
        } else {
            self.on_leave(from, delete);
        }
    }

    pub(super) fn on_finished(&mut self, from: Node, id: Id, version: Version, named: Nodes) {
        self.close_store(from, id);
        self.lost_to_another(id);
        if let Some((row, tracked)) = self.take_row(id) {
            self.call_back(&row);
            let asked = self.asked.remove(&id).unwrap_or_default();
            // A node that this one ever sent the tuple may get it after it has heard from the other: it must hear it from this one, too.
            let sent = if broken("sent-copies-forgotten") {
                Nodes::NONE
            } else {
                row.sent
            };
            let rest = row.holders.minus(named).union(sent).union(asked);
            let rest = rest.without(self.me).without(from).both(self.members);
            let rest = if broken("finished-for-the-sender-alone") {
                Nodes::NONE
            } else {
                rest
            };
            let holders = row.holders.union(named).union(asked);
            self.bury(&row, tracked, holders, rest);
            for node in rest.iter() {
                self.emit_finish(node, id);
            }
        }
        if let Some(tomb) = self.tombs.get_mut(&id)
            && tomb.on_disk
            && !tomb.kept
        {
            // It is said to be gone when its record is.
            tomb.kept = true;
            self.touch(id);
        }
        if broken("tombstone-confirms") {
            self.confirm_removal(from, id);
        }
        if self.holding.contains_key(&id) && !broken("requests-not-cancelled") {
            self.out.push_back(Output::Cancel(id));
        }
        self.say(from, id, Say::Deleted(true, version));
        self.answered_finished(from, id);
    }

    fn on_leave(&mut self, from: Node, delete: &Delete) {
        let id = delete.id;
        if self.tombs.contains_key(&id) {
            self.meet_tombstone(from, id);
            return;
        }
        let Some(row) = self.row(id).copied() else {
            self.say(from, id, Say::Deleted(false, delete.version));
            return;
        };
        let unnamed = row.holders.minus(delete.holders).without(self.me);
        let unnamed = !unnamed.both(self.members).is_empty();
        let newer = row.version() > delete.version
            || (row.version() == delete.version && row.owners.set().contains(self.me));
        let asked = self.asked.get(&id).is_some_and(|nodes| !nodes.is_empty());
        let newer = newer && !broken("leaves-at-an-older-word");
        let asked = asked && !broken("leaves-with-a-delivery-under-way");
        if newer || (unnamed && !broken("leaves-though-others-are-unnamed")) {
            self.say(from, id, Say::Know(0));
            return;
        }
        let mut wait = asked;
        // What this node has sent may arrive after all others were told to drop their copies.
        if self.stores.contains_key(&id) && !broken("leaves-with-a-store-under-way") {
            wait = true;
        }
        if wait {
            // It says so when that is over; an answer now would only bring the same word again, and so on.
            if broken("unready-to-leave-answers-at-once") {
                self.say(from, id, Say::Know(0));
            }
            return;
        }
        self.drop_copy(id);
        self.say(from, id, Say::Deleted(false, delete.version));
    }

    /// A Store has gone out to a node.
    pub(super) fn open_store(&mut self, to: Node, id: Id) {
        self.stores.entry(id).or_default().insert(to);
    }

    /// It was answered.
    pub(super) fn close_store(&mut self, from: Node, id: Id) {
        if let Some(nodes) = self.stores.get_mut(&id) {
            nodes.remove(from);
            if nodes.is_empty() {
                self.stores.remove(&id);
            }
        }
    }

    /// A Store was answered, or its link is over.
    pub(super) fn store_over(&mut self, from: Node, id: Id) {
        if self.stores.contains_key(&id) {
            self.close_store(from, id);
            self.leave_now(id);
        }
    }

    /// Nothing of this node's is under way any more: if it is no owner, the acting one may tell it to leave again.
    fn leave_now(&mut self, id: Id) {
        if let Some(row) = self.row(id)
            && !row.owners.set().contains(self.me)
            && !self.stores.contains_key(&id)
            && !self.asked.contains_key(&id)
        {
            let first = row.owners.first();
            self.say(first, id, Say::Know(0));
        }
    }

    /// Drops a copy without a tombstone.
    pub(super) fn drop_copy(&mut self, id: Id) {
        if let Some((row, tracked)) = self.take_row(id) {
            self.call_back(&row);
            self.touch_gone(id, &row, tracked);
        }
    }

    pub(super) fn on_deleted(&mut self, from: Node, deleted: &Deleted) {
        let id = deleted.id;
        if self.tombs.contains_key(&id) {
            if deleted.finished || broken("leave-confirms") {
                self.confirm_removal(from, id);
            }
        } else if !deleted.finished
            && let Some(row) = self.row_mut(id)
            && (row.version() == deleted.version || broken("leaves-the-set-at-any-version"))
            && !row.owners.set().contains(from)
            && row.holders.remove(from)
        {
            self.touch(id);
        }
    }

    pub(super) fn confirm_removal(&mut self, from: Node, id: Id) {
        if let Some(tomb) = self.tombs.get_mut(&id)
            && tomb.unconfirmed.remove(from)
            && (tomb.unconfirmed.is_empty() || tomb.kept)
        {
            self.touch(id);
        }
    }

    pub(super) fn on_asked(&mut self, id: Id, node: Node) {
        if self.row(id).is_some() {
            self.asked.entry(id).or_default().insert(node);
        }
    }

    pub(super) fn on_answered(&mut self, id: Id, node: Node) {
        if let Some(nodes) = self.asked.get_mut(&id) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.asked.remove(&id);
                self.leave_now(id);
            }
        }
    }

    pub(super) fn on_holding(&mut self, id: Id) {
        *self.holding.entry(id).or_default() += 1;
        self.waves.note(id);
    }

    pub(super) fn on_released(&mut self, id: Id) {
        if let Some(count) = self.holding.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.holding.remove(&id);
                self.settled(id);
            }
        }
    }
}
