//! Messages by the UIDs that a client names: in ascending order, so that each is found from the one before.

use std::collections::{BTreeMap, btree_map};

use smallvec::SmallVec;

use crate::record::{FIRST_KEYWORD, Record, SEEN};
use crate::{Flags, Keyword, MailboxName, Replica, Row, steps};

/// Neighbours that are passed before the next message is searched for from above.
const NEIGHBOURS_MAX: usize = 8;

/// A walk through the messages shown under one name.
struct Walk<'a> {
    members: SmallVec<[Member<'a>; 2]>,
}

/// One mailbox of the name.
struct Member<'a> {
    uids: &'a BTreeMap<u32, u32>,
    rest: btree_map::Range<'a, u32, u32>,
    /// The first that was not passed.
    next: Option<(u32, u32)>,
    /// The last UID that was asked for.
    from: u32,
}

impl<'a> Member<'a> {
    fn new(uids: &'a BTreeMap<u32, u32>) -> Member<'a> {
        Member {
            uids,
            rest: uids.range(..0),
            next: None,
            // Whatever comes first is searched for.
            from: u32::MAX,
        }
    }

    fn seek(&mut self, uid: u32) {
        self.rest = self.uids.range(uid..);
        self.pass();
    }

    fn pass(&mut self) {
        steps::count(1);
        self.next = self.rest.next().map(|(uid, slot)| (*uid, *slot));
    }

    fn find(&mut self, uid: u32) -> Option<u32> {
        if uid <= self.from {
            self.seek(uid);
        }
        self.from = uid;
        for _ in 0..NEIGHBOURS_MAX {
            match self.next {
                Some((next, _)) if next < uid => self.pass(),
                next => return next.filter(|(next, _)| *next == uid).map(|(_, slot)| slot),
            }
        }
        self.seek(uid);
        self.next
            .filter(|(next, _)| *next == uid)
            .map(|(_, slot)| slot)
    }
}

/// A message that is shown.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    replica: &'a Replica,
    slot: u32,
    /// The UID under which it was asked for, which may be one that it had before it was claimed again.
    uid: u32,
}

impl Shown<'_> {
    /// The UID under which it was asked for.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// All about it, under the UID under which it was asked for.
    pub fn row(&self) -> Row {
        Row {
            uid: self.uid,
            ..self.replica.row_of(self.slot)
        }
    }

    /// Its MODSEQ.
    pub fn modseq(&self) -> u64 {
        let record = self.record();
        let mailbox = &self.replica.boxes[record.view_box];
        record.modseq.max(mailbox.base_modseq)
    }

    /// Whether it has `\Deleted`.
    pub fn is_deleted(&self) -> bool {
        self.record().bits.deleted
    }

    fn record(&self) -> &Record {
        &self.replica.records[self.slot]
    }
}

impl Replica {
    /// The messages that are shown under the name by these UIDs, or were before they were claimed again (rule 2), in the order of the UIDs,
    /// which should ascend.
    pub fn shown<'a>(
        &'a self,
        name: &'a MailboxName,
        uids: &'a [u32],
    ) -> impl Iterator<Item = Shown<'a>> {
        let members = self.members(name);
        let mut walk = Walk {
            members: members
                .map(|(_, record)| Member::new(&record.uids))
                .collect(),
        };
        uids.iter().filter_map(move |&uid| {
            let mut members = walk.members.iter_mut();
            let slot = members
                .find_map(|member| member.find(uid))
                .or_else(|| self.resolve_slot(name, uid))?;
            Some(Shown {
                replica: self,
                slot,
                uid,
            })
        })
    }

    /// Of [`Self::shown`] those that have all of the flags `set` and none of `unset`. Looks at nothing else of the others.
    pub fn flagged<'a>(
        &'a self,
        name: &'a MailboxName,
        uids: &'a [u32],
        set: &Flags,
        unset: &Flags,
    ) -> impl Iterator<Item = Shown<'a>> {
        let set: Option<SmallVec<[u32; 4]>> =
            set.iter().map(|flag| self.find_register(&flag)).collect();
        let unset: SmallVec<[u32; 4]> = unset
            .iter()
            .filter_map(|flag| self.find_register(&flag))
            .collect();
        // A flag that no message ever had, none has.
        let uids = if set.is_some() { uids } else { &[] };
        let set = set.unwrap_or_default();
        self.shown(name, uids).filter(move |shown| {
            let record = shown.record();
            set.iter().all(|register| record.has(*register))
                && !unset.iter().any(|register| record.has(*register))
        })
    }

    /// The first UIDs of messages with `\Deleted`, ascending: those up to `uid_max`, at most so many. Costs what they are.
    pub fn deleted_uids(&self, name: &MailboxName, uid_max: u32, count_max: usize) -> Vec<u32> {
        let mut uids: Vec<u32> = Vec::new();
        for (_, record) in self.members(name) {
            uids.extend(record.deleted.range(..=uid_max).take(count_max));
        }
        steps::count(uids.len());
        uids.sort_unstable();
        uids.truncate(count_max);
        uids
    }

    /// Of the first messages under the name, at most so many: the place of the first one without `\Seen`, and the keywords in use.
    pub fn first_looks(&self, name: &MailboxName, most: usize) -> (Option<u32>, Vec<Keyword>) {
        let members = self.members(name);
        let mut first: Vec<(u32, u32)> = members
            .flat_map(|(_, record)| record.uids.iter().take(most))
            .map(|(uid, slot)| (*uid, *slot))
            .collect();
        first.sort_unstable();
        first.truncate(most);
        steps::count(first.len());
        let mut unseen = None;
        let mut used = vec![false; self.keywords.len()];
        for (place, (_, slot)) in (0u32..).zip(&first) {
            let record = &self.records[*slot];
            if unseen.is_none() && !record.has(SEEN) {
                unseen = Some(place);
            }
            for entry in record
                .flags
                .iter()
                .filter(|entry| entry.flag >= FIRST_KEYWORD)
            {
                used[(entry.flag - FIRST_KEYWORD) as usize] = true;
            }
        }
        let used = self.keywords.iter().zip(used).filter(|(_, used)| *used);
        (unseen, used.map(|(keyword, _)| keyword.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_finds(
            uids in proptest::collection::btree_map(0u32..400, 0u32..9, 0..200),
            asked in proptest::collection::vec(0u32..410, 0..40),
            ascending in proptest::bool::ANY,
        ) {
            let mut asked = asked;
            if ascending {
                asked.sort_unstable();
            }
            let mut member = Member::new(&uids);
            for uid in asked {
                prop_assert_eq!(member.find(uid), uids.get(&uid).copied(), "{}", uid);
            }
        }
    }
}
