//! Messages by the UIDs that a client names: in ascending order, so that each is found from the one before.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::keywords::{DELETED, FLAGGED, SEEN};
use crate::record::{BoxRecord, Record};
use crate::{Flags, MailboxName, Replica, Row, Uids, steps};

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
        self.next = self.rest.next().map(|(uid, index)| (*uid, *index));
    }

    fn find(&mut self, uid: u32) -> Option<u32> {
        if uid <= self.from {
            self.seek(uid);
        }
        self.from = uid;
        for _ in 0..NEIGHBOURS_MAX {
            match self.next {
                Some((next, _)) if next < uid => self.pass(),
                next => {
                    return next
                        .filter(|(next, _)| *next == uid)
                        .map(|(_, index)| index);
                }
            }
        }
        self.seek(uid);
        self.next
            .filter(|(next, _)| *next == uid)
            .map(|(_, index)| index)
    }
}

/// A message that is shown.
#[derive(Clone, Copy)]
pub struct VisibleMessage<'a> {
    replica: &'a Replica,
    index: u32,
    /// The UID under which it was asked for, which may be one that it had before it was claimed again.
    uid: u32,
}

/// Messages that have some flags and not others: those up to a UID.
pub struct Flagged<'a> {
    /// They.
    pub shown: Vec<VisibleMessage<'a>>,
    /// The last UID that was looked at.
    pub up_to: u32,
}

impl VisibleMessage<'_> {
    /// The UID under which it was asked for.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// All about it, under the UID under which it was asked for.
    pub fn row(&self) -> Row {
        Row {
            uid: self.uid,
            ..self.replica.row_of(self.index)
        }
    }

    /// Its MODSEQ.
    pub fn modseq(&self) -> u64 {
        let record = self.record();
        let mailbox = &self.replica.boxes[record.view_box];
        record.modseq.max(mailbox.base_modseq)
    }

    /// Its size, in bytes.
    pub fn size(&self) -> u32 {
        self.record().size
    }

    /// Whether it has `\Deleted`.
    pub fn is_deleted(&self) -> bool {
        self.record().bits.deleted
    }

    fn record(&self) -> &Record {
        &self.replica.records[self.index]
    }
}

impl Replica {
    /// The messages that are shown under the name by these UIDs, or were before they were claimed again (docs/design.md#rule-2), in the order of the UIDs,
    /// which should ascend.
    pub fn visible<'a>(
        &'a self,
        name: &'a MailboxName,
        uids: &'a [u32],
    ) -> impl Iterator<Item = VisibleMessage<'a>> {
        let members = self.members(name);
        let mut walk = Walk {
            members: members
                .map(|(_, record)| Member::new(&record.uids))
                .collect(),
        };
        uids.iter().filter_map(move |&uid| {
            let mut members = walk.members.iter_mut();
            let index = members
                .find_map(|member| member.find(uid))
                .or_else(|| self.resolve_index(name, uid))?;
            Some(VisibleMessage {
                replica: self,
                index,
                uid,
            })
        })
    }

    /// Of the messages that [`Self::shown`] finds by the UIDs of a range those that have all of the flags `set` and none of `unset`: the first ones, at
    /// most `count_max`. Looks at some `looks_max` messages, at no other than these if one of the flags is `\Flagged`, `\Deleted` or the absence of
    /// `\Seen`. Both are at least 1.
    pub fn flagged(
        &self,
        name: &MailboxName,
        uids: RangeInclusive<u32>,
        set: &Flags,
        unset: &Flags,
        count_max: usize,
        looks_max: usize,
    ) -> Flagged<'_> {
        let mut up_to = *uids.end();
        let set: Option<SmallVec<[u32; 4]>> =
            set.iter().map(|flag| self.find_register(&flag)).collect();
        // A flag that no message ever had, none has; and nothing is before what is behind.
        let (Some(set), false) = (set, uids.is_empty()) else {
            let shown = Vec::new();
            return Flagged { shown, up_to };
        };
        let unset: SmallVec<[u32; 4]> = unset
            .iter()
            .filter_map(|flag| self.find_register(&flag))
            .collect();
        let meets = |index: u32| {
            let record = &self.records[index];
            set.iter().all(|register| record.has(*register))
                && !unset.iter().any(|register| record.has(*register))
        };
        let mut found: Vec<(u32, u32)> = Vec::new();
        // Each source ascends, and is looked at no further than those before it.
        let mut look = |source: &mut dyn Iterator<Item = (u32, Option<u32>)>| {
            let before = found.len();
            for (looks, (uid, index)) in source.enumerate() {
                if uid > up_to {
                    break;
                }
                if looks == looks_max || found.len() - before == count_max {
                    up_to = uid - 1;
                    break;
                }
                steps::count(1);
                if let Some(index) = index.filter(|index| meets(*index)) {
                    found.push((uid, index));
                }
            }
        };
        for (_, record) in self.members(name) {
            match record.with_flags(&set, &unset) {
                Some(list) => {
                    let listed = list.iter_from(*uids.start());
                    look(&mut listed.map(|uid| (uid, record.uids.get(&uid).copied())));
                }
                None => {
                    let range = record.uids.range(uids.clone());
                    look(&mut range.map(|(uid, index)| (*uid, Some(*index))));
                }
            }
        }
        // Under a UID that it had before, or will have, a client may know a message, too.
        let other = |uid: &u32| (*uid, self.resolve_index(name, *uid));
        look(&mut self.older.range(uids.clone()).map(|(uid, _)| other(uid)));
        look(&mut self.pending.range(uids).map(|(uid, _)| other(uid)));
        found.retain(|(uid, _)| *uid <= up_to);
        found.sort_unstable();
        found.dedup();
        if found.len() > count_max {
            found.truncate(count_max);
            up_to = found[count_max - 1].0;
        }
        let shown = found.into_iter().map(|(uid, index)| VisibleMessage {
            replica: self,
            index,
            uid,
        });
        Flagged {
            shown: shown.collect(),
            up_to,
        }
    }

    /// The first UIDs of messages with `\Deleted`, ascending: those up to `uid_max`, at most so many. Costs what they are.
    pub fn deleted_uids(&self, name: &MailboxName, uid_max: u32, count_max: usize) -> Vec<u32> {
        let mut uids: Vec<u32> = Vec::new();
        for (_, record) in self.members(name) {
            let first = record.deleted.iter().take(count_max);
            uids.extend(first.take_while(|uid| *uid <= uid_max));
        }
        steps::count(uids.len());
        uids.sort_unstable();
        uids.truncate(count_max);
        uids
    }
}

impl BoxRecord {
    /// The shortest list that has all messages with some flags and without others, if there is one.
    fn with_flags(&self, set: &[u32], unset: &[u32]) -> Option<&Uids> {
        let lists = [
            (set.contains(&FLAGGED), &self.flagged),
            (set.contains(&DELETED), &self.deleted),
            (unset.contains(&SEEN), &self.unseen),
        ];
        let lists = lists.into_iter().filter(|(has_all, _)| *has_all);
        lists.map(|(_, list)| list).min_by_key(|list| list.len())
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
