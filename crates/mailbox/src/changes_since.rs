//! What has changed under a name since a MODSEQ: all of it, or part by part, so that a part costs what it tells.

use std::collections::BTreeSet;

use crate::record::BoxRecord;
use crate::{MailboxName, Replica, steps};

/// A part of what has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPart {
    /// UIDs of messages that are new or have new flags, ascending.
    pub uids: Vec<u32>,
    /// Up to which MODSEQ that is all; `None`: nothing else has changed.
    pub up_to: Option<u64>,
}

impl Replica {
    /// Messages of a mailbox that have changed since `modseq`, in the order of their MODSEQs, which come with their UIDs.
    fn changed_in<'a>(
        &'a self,
        number: u32,
        record: &'a BoxRecord,
        modseq: u64,
    ) -> impl Iterator<Item = (u64, u32)> + 'a {
        let base = record.base_modseq;
        // All that has not changed since the mailbox came under its name counts as changed then.
        let came = (base > modseq).then(|| record.uids.iter());
        let came = came
            .into_iter()
            .flatten()
            .inspect(|_| steps::count(1))
            .filter(move |(_, index)| self.records[**index].modseq <= base)
            .map(move |(uid, _)| (base, *uid));
        let from = record
            .changed
            .partition_point(|(at, _)| *at <= modseq.max(base));
        let fresh = record.changed[from..]
            .iter()
            .inspect(|_| steps::count(1))
            .filter(move |(at, index)| self.is_fresh(number, *at, *index))
            .map(|(at, index)| (*at, self.records[*index].visible_uid));
        came.chain(fresh)
    }

    /// UIDs under the name that are new or have new flags since `modseq`, ascending. Costs what changed, not what is there.
    pub fn changed_since(&self, name: &MailboxName, modseq: u64) -> Vec<u32> {
        let members = self.members(name);
        let changed = members.flat_map(|(number, record)| self.changed_in(number, record, modseq));
        let mut changed: Vec<u32> = changed.map(|(_, uid)| uid).collect();
        changed.sort_unstable();
        changed
    }

    /// Whether this MODSEQ, which a client names in a condition, may have been announced here, or the one before it (a client that knows all up to
    /// an announced one asks for one more), and not by another replica: of two nodes with neighbouring slots that is not known, for both announce
    /// with one time what one batch brought. None of a time after `now_micros` and a day was announced.
    pub fn may_have_announced(&self, modseq: u64, others: &BTreeSet<u8>, now_micros: u64) -> bool {
        // Every message has a greater one.
        let Some(before) = modseq.checked_sub(1).filter(|before| *before > 0) else {
            return true;
        };
        let slots = [modseq, before].map(|modseq| (modseq % 64) as u8);
        if slots.iter().any(|slot| others.contains(slot)) {
            return false;
        }
        // A number that nobody gave out is taken at its word.
        let day = 24 * 3600 * 1_000_000;
        !slots.contains(&self.slot)
            || modseq / 64 > self.last_change.max(now_micros.saturating_add(day))
            || self.is_own_modseq(modseq)
            || self.is_own_modseq(before)
    }

    /// Some `count_max` of the messages up to `uid_max` that [`Self::changed_since`] tells, those that changed first. A part ends between two
    /// MODSEQs, or the next one would repeat or miss what was changed at once: more than `count_max` messages with one MODSEQ are one part.
    pub fn changed_part(
        &self,
        name: &MailboxName,
        modseq: u64,
        uid_max: u32,
        count_max: usize,
    ) -> ChangedPart {
        let mut found: Vec<(u64, u32)> = Vec::new();
        // Up to here everything is found, whatever the mailbox of the name.
        let mut complete = u64::MAX;
        for (number, record) in self.members(name) {
            let before = found.len();
            let changed = self.changed_in(number, record, modseq);
            for (at, uid) in changed.filter(|(_, uid)| *uid <= uid_max) {
                if let (true, Some((last, _))) = (found.len() - before >= count_max, found.last())
                    && *last < at
                {
                    complete = complete.min(*last);
                    break;
                }
                found.push((at, uid));
            }
        }
        found.sort_unstable();
        let mut end = found.partition_point(|(at, _)| *at <= complete);
        if end > count_max {
            let next = found[count_max].0;
            end = match found.partition_point(|(at, _)| *at < next) {
                0 => found.partition_point(|(at, _)| *at == next),
                end => end,
            };
        }
        let is_part = complete < u64::MAX || end < found.len();
        let last = found[..end].last().map(|(at, _)| *at);
        let mut uids: Vec<u32> = found[..end].iter().map(|(_, uid)| *uid).collect();
        uids.sort_unstable();
        ChangedPart {
            uids,
            up_to: last.filter(|_| is_part),
        }
    }

    /// UIDs visible under the name that are greater than this one, ascending.
    pub fn uids_above(&self, name: &MailboxName, uid: u32) -> Vec<u32> {
        let Some(first) = uid.checked_add(1) else {
            return Vec::new();
        };
        let members = self.members(name);
        let above = members.flat_map(|(_, record)| record.uids.range(first..));
        let mut above: Vec<u32> = above.map(|(uid, _)| *uid).collect();
        steps::count(above.len());
        above.sort_unstable();
        above
    }

    /// UIDs that have ceased to be visible under the name since `modseq`, each once at least; `None` when the history does not reach back so far.
    fn gone<'a>(
        &'a self,
        name: &'a MailboxName,
        modseq: u64,
    ) -> Option<impl Iterator<Item = u32> + 'a> {
        let state = self.names.get(name)?;
        if modseq < self.history_from || modseq < state.history_from {
            return None;
        }
        let from = self
            .history
            .partition_point(|vanished| vanished.modseq <= modseq);
        let entries = self.history.range(from..);
        let names = entries.flat_map(|vanished| &vanished.names);
        let gone = names
            .inspect(|(_, uids)| steps::count(uids.len()))
            .filter(move |(other, _)| other == name)
            .flat_map(|(_, uids)| uids.iter().copied());
        Some(gone.filter(move |uid| self.visible_index(name, *uid).is_none()))
    }

    /// UIDs that have ceased to be visible under the name since `modseq`, ascending. `None` when the history does not reach back so far:
    /// then what the client knows must be compared with what is visible. Costs what has vanished since in the whole account.
    pub fn vanished_since(&self, name: &MailboxName, modseq: u64) -> Option<Vec<u32>> {
        let mut vanished: Vec<u32> = self.gone(name, modseq)?.collect();
        vanished.sort_unstable();
        vanished.dedup();
        Some(vanished)
    }

    /// Whether [`Self::vanished_since`] tells any up to `uid_max`; ends at the first.
    pub fn has_vanished_since(
        &self,
        name: &MailboxName,
        modseq: u64,
        uid_max: u32,
    ) -> Option<bool> {
        Some(self.gone(name, modseq)?.any(|uid| uid <= uid_max))
    }
}
