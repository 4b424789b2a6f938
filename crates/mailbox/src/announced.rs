//! What was announced to clients and must be kept: marks (docs/design.md#rule-3) and the vanished history; and what ends it all, an epoch.
//!
//! A mark is the UIDNEXT that was announced for a name. It outlives the name; only when too many gone names have one, the lowest
//! are folded into a floor that stands for every name without a mark of its own (docs/decisions/0002).

use std::collections::BTreeMap;

use whimbrel_crdt::mutants::broken;

use crate::replica::{Claimed, Vanished};
use crate::{MailboxName, Replica, RowKey};

/// UIDs kept in an account's vanished history: 64 KiB. A client that was away for longer compares all it knows.
pub(crate) const HISTORY_UIDS_MAX: usize = 16_384;

/// What vanished under a name counts as so many UIDs: a name has a length, too, and whoever renames empty mailboxes again and again fills memory with names.
pub(crate) fn history_cost(name: &MailboxName, uids: &[u32]) -> usize {
    uids.len() + 8 + name.as_str().len() / 4
}

impl Vanished {
    pub(crate) fn cost(&self) -> usize {
        let all = self.names.iter();
        all.map(|(name, uids)| history_cost(name, uids)).sum()
    }
}

/// Marks of gone names kept apart. The lowest of more are folded into the account's floor.
pub(crate) const GONE_MARKS_MAX: usize = 256;

impl Replica {
    /// The mark of a name outlives it.
    pub(crate) fn keep_gone_mark(&mut self, name: MailboxName, mark: u32) {
        if broken("mark-goes-with-name") {
            self.dirty_keys.insert(RowKey::Mark(name));
            return;
        }
        let kept = self.gone_marks.entry(name.clone()).or_insert(0);
        *kept = (*kept).max(mark);
        self.dirty_keys.insert(RowKey::Mark(name));
        if self.gone_marks.len() > GONE_MARKS_MAX {
            let lowest = self
                .gone_marks
                .iter()
                .min_by_key(|(_, mark)| **mark)
                .map(|(name, _)| name.clone());
            if let Some(name) = lowest
                && let Some(mark) = self.gone_marks.remove(&name)
            {
                self.floor = self.floor.max(mark);
                self.dirty_keys.insert(RowKey::Mark(name));
                self.dirty_keys.insert(RowKey::Account);
            }
        }
    }

    /// Adds to the vanished history, and cuts it where it gets too long.
    pub(crate) fn remember(&mut self, modseq: u64, vanished: BTreeMap<MailboxName, Vec<u32>>) {
        if broken("vanished-forgotten") {
            return;
        }
        let mut names = Vec::new();
        for (name, mut uids) in vanished {
            if uids.len() <= HISTORY_UIDS_MAX / 4 {
                uids.sort_unstable();
                self.history_uids += history_cost(&name, &uids);
                names.push((name, uids));
            } else if let Some(state) = self.names.get_mut(&name) {
                state.history_from = modseq;
                self.dirty_keys.insert(RowKey::Mark(name));
            }
        }
        if !names.is_empty() {
            self.history.push_back(Vanished { modseq, names });
            self.dirty_keys.insert(RowKey::Vanished(modseq));
        }
        while self.history_uids > HISTORY_UIDS_MAX
            && let Some(cut) = self.history.pop_front()
        {
            self.history_uids -= cut.cost();
            self.history_from = cut.modseq;
            self.dirty_keys.insert(RowKey::Vanished(cut.modseq));
            self.dirty_keys.insert(RowKey::Account);
        }
    }

    /// Marks as announced all UIDs visible under the name, and its UIDNEXT (docs/design.md#rule-3).
    ///
    /// To be called before a client gets any of them. Says whether the stored mark changes: then the next
    /// [`Self::take_dirty`] has it, and it must be on disk before the answer goes out.
    pub fn announce(&mut self, name: &MailboxName) -> bool {
        let next = self.uidnext(name);
        match self.names.get_mut(name) {
            // A UIDNEXT of 1 promises nothing.
            Some(state) if state.mark.max(1) < next && !broken("announce-forgotten") => {
                state.mark = next;
                self.dirty_keys.insert(RowKey::Mark(name.clone()));
                true
            }
            _ => false,
        }
    }

    /// Announces the UID of a message that is not visible under the name, or not any more: as [`Self::announce`].
    pub fn announce_uid(&mut self, name: &MailboxName, uid: u32) {
        if self.uidnext(name) <= uid {
            self.raise_mark(name, uid.saturating_add(1));
        }
    }

    /// Raises the mark of a name to what a client named.
    pub(crate) fn raise_mark(&mut self, name: &MailboxName, next: u32) {
        match self.names.get_mut(name) {
            Some(state) => state.mark = state.mark.max(next),
            None => return self.keep_gone_mark(name.clone(), next.max(self.floor)),
        }
        self.dirty_keys.insert(RowKey::Mark(name.clone()));
    }

    /// These were claimed in an epoch: of the last one that is over it is kept. By its claims a delivery is known that was collected, and comes again
    /// with an older copy of a disk.
    pub(crate) fn note_claimed(&mut self, epoch: u32, counters: BTreeMap<u8, u32>) {
        if epoch >= self.epoch {
            return;
        }
        match &mut self.claimed_before {
            Some(before) if before.epoch > epoch => return,
            Some(before) if before.epoch == epoch => {
                for (slot, counter) in counters {
                    let known = before.counters.entry(slot).or_insert(0);
                    *known = counter.max(*known);
                }
            }
            before => *before = Some(Box::new(Claimed { epoch, counters })),
        }
        self.dirty_keys.insert(RowKey::Account);
    }

    /// Another node claims in an epoch of which nothing is known here: the operation by which it rose was passed over, when the account was done away
    /// with here. None of its claims would ever become visible. To be followed by [`Replica::apply`].
    pub fn follow_epoch(&mut self, epoch: u32) {
        if epoch > self.epoch {
            self.raise_epoch(epoch);
        }
    }

    /// A new epoch: all claims are void, nothing was announced under the new UIDVALIDITY.
    pub(crate) fn raise_epoch(&mut self, uidvalidity: u32) {
        if uidvalidity <= self.epoch {
            return self.note_claimed(uidvalidity, BTreeMap::new());
        }
        let before = std::mem::replace(&mut self.epoch, uidvalidity);
        self.counter = 0;
        self.floor = 0;
        let claimed = std::mem::take(&mut self.claimed);
        self.note_claimed(before, claimed);
        self.points.clear();
        self.older.clear();
        self.late.clear();
        self.pending.clear();
        self.awaited.clear();
        for (name, state) in &mut self.names {
            state.mark = 0;
            self.dirty_keys.insert(RowKey::Mark(name.clone()));
        }
        for name in std::mem::take(&mut self.gone_marks).into_keys() {
            self.dirty_keys.insert(RowKey::Mark(name));
        }
        for cut in std::mem::take(&mut self.history) {
            self.dirty_keys.insert(RowKey::Vanished(cut.modseq));
        }
        self.history_uids = 0;
        self.history_from = self.modseq(0);
        self.dirty_keys.insert(RowKey::Account);
        let indices: Vec<u32> = self.records.iter().map(|(index, _)| index).collect();
        for index in indices {
            if self.records[index].visible_uid != 0 {
                self.hide_unannounced(index);
            }
            let bits = &mut self.records[index].bits;
            bits.late = false;
            bits.pending = false;
            // Rows are written as their messages are claimed again, some at a time: until then the epoch in the row says that it is not
            // visible. All at once would be too much for one write.
            self.look_at(index);
        }
    }
}
