//! Joining snapshots, and forgetting hidden records.

use std::collections::BTreeMap;

use whimbrel_crdt::mutants::broken;
use whimbrel_crdt::{DotSet, VersionVector};

use crate::failover::is_claimed;
use crate::keywords::FIRST_KEYWORD;
use crate::record::{Bits, BoxRecord, Record};
use crate::replica::Claimed;
use crate::{
    Collected, Dropped, Effects, EntryTag, Message, MessageId, Order, Peers, Replica, RowKey,
    Tombstones,
};

/// What a replica has applied. A delivery has no dot of its own that would say so: who has applied it and keeps no record has removed and collected
/// it, and who keeps one all the same has an older copy of a disk, or a snapshot of one that has.
struct Knew {
    /// All that the other one has.
    all: bool,
    /// In this epoch, and in the one before.
    claimed: [Claimed; 2],
}

impl Knew {
    fn of(replica: &Replica, applied: &VersionVector, others: &VersionVector) -> Self {
        let claimed = Claimed {
            epoch: replica.epoch,
            counters: replica.claimed.clone(),
        };
        let before = replica.claimed_before.as_deref().cloned();
        Knew {
            all: applied.covers_all(others),
            claimed: [before.unwrap_or_else(|| claimed.clone()), claimed],
        }
    }

    /// Whether this message, of which the other one has the record.
    fn has(&self, record: &Record) -> bool {
        let mut of_epoch = self.claimed.iter().filter(|of| of.epoch == record.epoch);
        let claims = || record.older().iter().chain([&record.uid]);
        let claimed = |of: &Claimed, uid: u32| uid > 0 && is_claimed(&of.counters, uid);
        self.all || of_epoch.any(|of| claims().any(|uid| claimed(of, *uid)))
    }
}

impl Replica {
    /// Joins a snapshot of another replica: `mine` and `theirs` are the vectors that the two have applied.
    ///
    /// Equals applying the operations that `theirs` covers and `mine` does not. What the other shows stays its own. The
    /// content rows of messages that are new here, or that name a greater blob there, are not part of the snapshot: the caller copies them.
    pub fn join(
        &mut self,
        mine: &VersionVector,
        other: &Self,
        theirs: &VersionVector,
        now_micros: u64,
        peers: &Peers,
    ) -> Effects {
        self.created = self.created.max(other.created);
        self.uidvalidity_floor = self.uidvalidity_floor.max(other.uidvalidity_floor);
        let knew = [Knew::of(self, mine, theirs), Knew::of(other, theirs, mine)];
        self.raise_epoch(other.epoch);
        if self.epoch == other.epoch {
            self.counter = self.counter.max(other.counter);
            for (slot, counter) in &other.claimed {
                let claimed = self.claimed.entry(*slot).or_insert(0);
                *claimed = (*claimed).max(*counter);
            }
            self.join_points(other);
        }
        self.note_claimed(other.epoch, other.claimed.clone());
        if let Some(before) = other.claimed_before.as_deref().cloned() {
            self.note_claimed(before.epoch, before.counters);
        }
        self.dirty_keys.insert(RowKey::Account);
        let names = self.subscriptions.iter().chain(other.subscriptions.iter());
        self.dirty_keys
            .extend(names.map(|(name, _)| RowKey::Subscription(name.clone())));
        self.subscriptions.join(mine, &other.subscriptions, theirs);
        self.join_boxes(mine, other, theirs);
        self.join_records(mine, other, theirs, &knew);
        self.count_origins();
        let mut applied = mine.clone();
        applied.merge(theirs);
        self.settle(&applied, now_micros, peers)
    }

    fn join_boxes(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        let nothing = DotSet::new();
        let numbers: Vec<(u32, Option<u32>)> = self
            .boxes
            .iter()
            .map(|(number, b)| (number, other.box_by_id.get(&b.id).copied()))
            .collect();
        for (number, other_number) in numbers {
            let theirs_box = other_number.map(|n| &other.boxes[n]);
            let record = &mut self.boxes[number];
            record
                .exist
                .join(mine, theirs_box.map_or(&nothing, |b| &b.exist), theirs);
            if let Some(theirs_box) = theirs_box {
                record.name.join(&theirs_box.name);
                record.special_use.join(&theirs_box.special_use);
            }
            self.touch_box(number);
        }
        for (_, theirs_box) in other.boxes.iter() {
            if self.box_by_id.contains_key(&theirs_box.id) {
                continue;
            }
            let mut record = BoxRecord::new(
                theirs_box.id,
                theirs_box.name.stamp,
                theirs_box.name.value.clone(),
                theirs_box.special_use.value,
            );
            record.special_use.stamp = theirs_box.special_use.stamp;
            record.exist.join(mine, &theirs_box.exist, theirs);
            let number = self.insert_box(record);
            self.touch_box(number);
        }
    }

    fn join_records(
        &mut self,
        mine: &VersionVector,
        other: &Self,
        theirs: &VersionVector,
        [here, there]: &[Knew; 2],
    ) {
        let keywords = self.keywords.translate(&other.keywords);
        let nothing = DotSet::new();
        let indices: Vec<u32> = self.records.iter().map(|(index, _)| index).collect();
        for index in indices {
            if !other.by_id.contains_key(&self.records[index].id) {
                let record = &mut self.records[index];
                record.exist.join(mine, &nothing, theirs);
                record.killed |= other.tombstones.contains(&record.id);
                record.killed |= there.has(record);
                record.join_flags(mine, &[], theirs);
                self.touch(index);
            }
        }
        // What is here of messages that have copies: the content row is of that.
        let copies = self.records.iter();
        let copied = copies.filter_map(|(_, record)| Some((record.copy_of()?, record.message())));
        let copied: BTreeMap<MessageId, Message> = copied.collect();
        let mut greater: BTreeMap<MessageId, Message> = BTreeMap::new();
        for (_, record) in other.records.iter() {
            if broken("join-drops-hidden") && !record.alive() {
                continue;
            }
            let mut translated = record.clone();
            translated.mailbox = self.box_by_id[&other.boxes[record.mailbox].id];
            for entry in &mut translated.flags {
                if entry.flag >= FIRST_KEYWORD {
                    let here = keywords.of(entry.spelling);
                    (entry.flag, entry.spelling) = (here.flag, here.spelling);
                }
            }
            translated.flags.sort_unstable();
            let origin = record.origin();
            let message = self.by_id.get(&origin);
            let message = message.map(|index| self.records[*index].message());
            let message = message.or_else(|| copied.get(&origin).cloned());
            let is_less = |of: &Message| *of < record.message();
            if message.as_ref().is_some_and(is_less) && !broken("join-keeps-first-import") {
                greater.insert(origin, record.message());
            }
            match self.by_id.get(&record.id) {
                Some(index) => {
                    let index = *index;
                    self.change_placement(index, |record| record.join(mine, &translated, theirs));
                    self.touch(index);
                    self.note_spelling(index);
                }
                None => {
                    translated.exist = DotSet::new();
                    translated.exist.join(mine, &record.exist, theirs);
                    let flags = std::mem::take(&mut translated.flags);
                    translated.join_flags(mine, &flags, theirs);
                    translated.modseq = 0;
                    translated.visible_uid = 0;
                    translated.view_box = translated.mailbox;
                    translated.bits = Bits::default();
                    // It is collected once more.
                    translated.killed |= self.take_tombstone(record.id) || here.has(record);
                    if let Some(message) = message {
                        translated.set_message(message);
                    }
                    let index = self.insert_record(translated);
                    self.change_claims(index, |_| {});
                    self.touch(index);
                    self.note_spelling(index);
                }
            }
        }
        if !greater.is_empty() {
            self.count_origins();
        }
        for (origin, message) in &greater {
            self.change_message(*origin, message);
        }
        for id in &other.tombstones {
            if !self.by_id.contains_key(id) && self.tombstones.insert(*id) {
                self.dirty_keys.insert(RowKey::Tombstone(*id));
            }
        }
    }

    /// Its record takes the tombstone's place; whether there was one.
    pub(crate) fn take_tombstone(&mut self, id: MessageId) -> bool {
        let was_left = self.tombstones.remove(&id);
        if was_left {
            self.dirty_keys.insert(RowKey::Tombstone(id));
        }
        was_left
    }

    /// What the copies of a message have, whose own record is not here.
    pub(crate) fn message_of_copies(&self, origin: MessageId) -> Option<Message> {
        self.origins.get(&origin)?;
        let mut all = self.records.iter();
        let copy = all.find(|(_, record)| record.copy_of() == Some(origin));
        copy.map(|(_, record)| record.message())
    }

    /// Counts the records of each origin anew, and keeps the counts above one, and those of copies of what is gone: it may come back, as an import does.
    pub(crate) fn count_origins(&mut self) {
        let mut origins: BTreeMap<_, u32> = BTreeMap::new();
        for (_, record) in self.records.iter() {
            if let Some(origin) = record.copy_of() {
                *origins
                    .entry(origin)
                    .or_insert(u32::from(self.by_id.contains_key(&origin))) += 1;
            }
        }
        origins.retain(|origin, count| *count > 1 || !self.by_id.contains_key(origin));
        self.origins = origins;
    }

    /// Drops hidden records: those hidden without a break since a vector that `stable` covers, deliveries only when
    /// their queue entry is `finished` at every node (asked with its order and that vector); of imports ([`EntryTag::IMPORT`]) `tombstones` are left, if so.
    ///
    /// Safe because whoever could still name such a record had, when it did, not yet applied what hid it; `stable` says
    /// that all have applied that, and that all they did before is applied here. A mailbox goes when, besides, the records of all messages
    /// that lay in it since then are gone: each was hidden for as long, for the mailbox's time begins anew when one leaves.
    ///
    /// At most `messages_max` messages at a time; what is left is due as before.
    pub fn collect(
        &mut self,
        stable: &VersionVector,
        finished: &dyn Fn(Order, &VersionVector) -> bool,
        tombstones: Tombstones,
        messages_max: usize,
    ) -> Collected {
        let mut collected = Collected::default();
        let mut due = self
            .hidden
            .iter()
            .filter(|(slot, since)| {
                let Record { entry, id, .. } = &self.records[**slot];
                // A delivery has the order of its entry.
                let order = Order::of(&id.0);
                let is_finished = |entry| entry == EntryTag::IMPORT || finished(order, since);
                let finished =
                    entry.is_none_or(is_finished) || broken("collects-unfinished-deliveries");
                finished && (stable.covers_all(since) || broken("collects-unstable"))
            })
            .map(|(slot, _)| *slot);
        let now: Vec<u32> = due.by_ref().take(messages_max).collect();
        collected.more = due.next().is_some();
        collected.messages.reserve_exact(now.len());
        for slot in now {
            let dropped = self.drop_record(slot, tombstones);
            collected.messages.extend(dropped);
        }
        let due: Vec<u32> = self
            .hidden_boxes
            .iter()
            .filter(|(number, since)| {
                let empty =
                    self.boxes[**number].records == 0 || broken("collects-mailbox-of-hidden");
                empty && (stable.covers_all(since) || broken("collects-unstable"))
            })
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            self.hidden_boxes.remove(&number);
            if let Some(record) = self.boxes.remove(number) {
                self.box_by_id.remove(&record.id);
                self.dirty_rows.insert(RowKey::Mailbox(record.id), None);
                collected.mailboxes.push(record.id);
            }
        }
        collected
    }

    fn drop_record(&mut self, index: u32, tombstones: Tombstones) -> Option<Dropped> {
        self.hidden.remove(&index);
        // Takes its claims out of the indexes.
        self.change_claims(index, |record: &mut Record| {
            record.set_claims(0, Vec::new())
        });
        let record = self.records.remove(index)?;
        self.heap_words -= usize::from(record.bits.heap_words);
        self.as_heard.remove(&index);
        self.by_id.remove(&record.id);
        self.boxes[record.mailbox].records -= 1;
        self.dirty_rows.insert(RowKey::Message(record.id), None);
        let is_import = record.entry == Some(EntryTag::IMPORT);
        let leaves = tombstones == Tombstones::Left && !broken("imports-leave-nothing");
        if is_import && leaves && self.tombstones.insert(record.id) {
            self.dirty_keys.insert(RowKey::Tombstone(record.id));
        }
        let origin = record.origin();
        let others = match self.origins.get_mut(&origin) {
            Some(count) => {
                *count -= 1;
                *count
            }
            None => 0,
        };
        let mut content = None;
        match others {
            0 => {
                self.origins.remove(&origin);
                self.dirty_rows.insert(RowKey::Content(origin), None);
                content = Some((origin, record.blob));
            }
            // Its own record is one that need not be counted; copies of what is gone are.
            1 if self.by_id.contains_key(&origin) => drop(self.origins.remove(&origin)),
            _ => {}
        }
        Some(Dropped {
            message: record.id,
            content,
            forgotten: is_import && tombstones == Tombstones::None,
        })
    }
}
