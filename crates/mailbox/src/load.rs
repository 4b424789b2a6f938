//! An account from its rows.

use whimbrel_crdt::{Incarnation, VersionVector};

use crate::failover::Point;
use crate::keywords::Register;
use crate::record::{BoxRecord, FlagDot, Rare, Record};
use crate::replica::{Claimed, Vanished};
use crate::rollback::{Lineage, Retired};
use crate::rows::{
    AccountRow, FlagRow, MailboxRow, MarkRow, MessageRow, TombstoneRow, VanishedRow, decode_row,
};
use crate::{AccountId, Flag, LoadError, MailboxId, MailboxName, MessageId, Replica, RowKey};

impl Replica {
    /// From all rows but content rows, in any order; quickest in the order of the keys. `applied` is what this replica
    /// has applied now: hidden records count as hidden since now.
    ///
    /// The next [`Self::release`] makes messages visible that waited for peers.
    pub fn load(
        account: AccountId,
        slot: u8,
        rows: impl IntoIterator<Item = (RowKey, Vec<u8>)>,
        applied: &VersionVector,
    ) -> Result<Self, LoadError> {
        let mut replica = Self::new(account, slot);
        replica.take_dirty();
        let mut marks = Vec::new();
        // Messages that came before their mailbox.
        let mut early = Vec::new();
        for (key, bytes) in rows {
            match &key {
                RowKey::Account => replica.load_account(decode_row(&key, &bytes)?),
                RowKey::Mailbox(id) => replica.load_mailbox(*id, decode_row(&key, &bytes)?),
                RowKey::Mark(name) => {
                    marks.push((name.clone(), decode_row::<MarkRow>(&key, &bytes)?))
                }
                RowKey::Subscription(name) => {
                    replica
                        .subscriptions
                        .restore(name.clone(), decode_row(&key, &bytes)?);
                }
                RowKey::Vanished(modseq) => {
                    let row: VanishedRow = decode_row(&key, &bytes)?;
                    let vanished = Vanished {
                        modseq: *modseq,
                        names: row.names,
                    };
                    replica.history_uids += vanished.cost();
                    replica.history.push_back(vanished);
                }
                RowKey::Message(id) => {
                    let row: MessageRow = decode_row(&key, &bytes)?;
                    match replica.box_by_id.get(&row.mailbox) {
                        Some(number) => replica.load_message(*id, row, *number),
                        None => early.push((*id, row)),
                    }
                }
                RowKey::Tombstone(id) => {
                    let TombstoneRow {} = decode_row(&key, &bytes)?;
                    replica.tombstones.insert(*id);
                }
                RowKey::Content(_) => {}
            }
        }
        for (id, row) in early {
            let number = replica.box_by_id.get(&row.mailbox).copied();
            replica.load_message(
                id,
                row,
                number.ok_or(LoadError::Dangling(RowKey::Message(id)))?,
            );
        }
        // A join that a crash cut short leaves both.
        let known = &replica.by_id;
        replica.tombstones.retain(|id| !known.contains_key(id));
        replica
            .history
            .make_contiguous()
            .sort_by_key(|vanished| vanished.modseq);
        replica.count_origins();
        replica.load_views(applied, marks);
        Ok(replica)
    }

    fn load_account(&mut self, row: AccountRow) {
        self.created = row.created;
        self.uidvalidity_floor = row.uidvalidity_floor;
        self.epoch = row.epoch;
        self.counter = row.counter;
        self.claimed = row.claimed.into_iter().collect();
        self.claimed_before = row.before.map(|of| {
            Box::new(Claimed {
                epoch: of.epoch,
                counters: of.counters.into_iter().collect(),
            })
        });
        for point in row.points.into_iter().flatten() {
            let points = self.points.entry(point.slot).or_default();
            points.push(Point {
                origin: point.origin,
                number: point.number,
                counter: point.counter,
            });
        }
        self.floor = row.floor;
        self.history_from = row.history_from;
        self.last_change = self.last_change.max(row.last_change);
        if let Some(row) = row.lineage {
            let retired = row.retired.into_iter().map(|retired| Retired {
                slot: retired.slot,
                counter_max: retired.counter_max,
                known: retired.known,
            });
            self.lineage = Lineage {
                incarnation: row.incarnation.map(|of| Incarnation::from_hash(of.get())),
                round: row.round,
                slot: row.slot,
                since: row.since,
                retired: retired.collect(),
            };
        }
    }

    fn load_mailbox(&mut self, id: MailboxId, row: MailboxRow) {
        let number = match self.box_by_id.get(&id) {
            Some(number) => *number,
            None => self.insert_box(BoxRecord::new(
                id,
                row.name.stamp,
                row.name.value.clone(),
                None,
            )),
        };
        let record = &mut self.boxes[number];
        record.exist = row.exist;
        record.name = row.name;
        record.special_use = row.special_use;
        record.base_modseq = row.base_modseq;
        record.visible_from = row.visible_from;
    }

    fn load_message(&mut self, id: MessageId, row: MessageRow, mailbox: u32) {
        let mut flags: smallvec::SmallVec<[FlagDot; 1]> = smallvec::SmallVec::new();
        for FlagRow {
            flag,
            dot,
            is_exact,
        } in row.flags
        {
            let Register { flag, spelling } = match &flag.0 {
                Flag::Keyword(keyword) => self.keywords.add(keyword, is_exact),
                system => self.register(system),
            };
            flags.push(FlagDot {
                flag,
                dot,
                spelling,
            });
        }
        flags.sort_unstable();
        let older = row.older.unwrap_or_default();
        let rare = Rare {
            older,
            origin: row.origin,
        };
        let index = self.insert_record(Record {
            id,
            exist: row.exist,
            placed: row.placed,
            mailbox,
            epoch: row.epoch,
            uid: row.uid,
            flags,
            entry: row.entry,
            killed: row.killed,
            deleted_ever: row.deleted_ever,
            blob: row.message.blob,
            size: row.message.size,
            zone_minutes: row.message.date.zone_minutes,
            open_end: row.message.open_end,
            seconds: row.message.date.seconds,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            modseq: row.modseq,
            visible_uid: row.visible_uid,
            view_box: mailbox,
            bits: Default::default(),
        });
        self.note_spelling(index);
        self.weigh(index);
        if self.records[index].alive() {
            self.count_member(index, mailbox, true);
        }
    }

    /// Makes the indexes of what is visible.
    fn load_views(&mut self, applied: &VersionVector, marks: Vec<(MailboxName, MarkRow)>) {
        let since = std::sync::Arc::new(applied.clone());
        self.names.clear();
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let record = &mut self.boxes[number];
            if !record.visible() {
                self.hidden_boxes.insert(number, since.clone());
                continue;
            }
            let name = record.name.value.clone();
            record.listed = Some(name.clone());
            let state = self.names.entry(name).or_default();
            state.boxes.push(number);
            state.highest = state.highest.max(record.base_modseq);
        }
        for (name, row) in marks {
            match self.names.get_mut(&name) {
                Some(state) => {
                    state.mark = row.mark;
                    state.history_from = row.history_from;
                }
                None => drop(self.gone_marks.insert(name, row.mark)),
            }
        }
        let slots: Vec<u32> = self.records.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.load_view(slot, &since);
        }
        for vanished in &self.history {
            for (name, _) in &vanished.names {
                if let Some(state) = self.names.get_mut(name) {
                    state.highest = state.highest.max(vanished.modseq);
                }
            }
            self.last_change = self.last_change.max(vanished.modseq / 64);
        }
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let record = &mut self.boxes[number];
            // In the order of the UIDs, so that each list is written from begin to end.
            record.list = record.uids.keys().copied().collect();
            let slots: Vec<u32> = record.uids.values().copied().collect();
            slots.into_iter().for_each(|slot| self.count(slot));
            let record = &mut self.boxes[number];
            record.changed.sort_unstable();
            let highest = record
                .changed
                .last()
                .map_or(0, |(modseq, _)| *modseq)
                .max(record.base_modseq);
            self.last_change = self.last_change.max(highest / 64);
            if let Some(state) = record
                .listed
                .as_ref()
                .and_then(|name| self.names.get_mut(name))
            {
                state.highest = state.highest.max(highest);
            }
        }
        let slot = u64::from(self.slot);
        for state in self.names.values_mut() {
            // What was cut may have been the last that was announced.
            state.highest = state.highest.max(self.history_from).max(state.history_from);
            // The last change was given under another slot: clients get a MODSEQ that is believed when they name it.
            if state.highest % 64 != slot {
                state.highest = (state.highest / 64 + 1) * 64 + slot;
            }
            self.last_change = self.last_change.max(state.highest / 64);
        }
        self.last_change = self.last_change.max(self.history_from / 64);
    }

    fn load_view(&mut self, index: u32, since: &std::sync::Arc<VersionVector>) {
        if !self.records[index].alive() {
            self.hidden.insert(index, since.clone());
        }
        self.change_claims(index, |_| {});
        // Neither an epoch nor a RENAME writes every row: what was visible before it is not visible now.
        let record = &self.records[index];
        let mailbox = &self.boxes[record.mailbox];
        if record.epoch != self.epoch || mailbox.hides(self.epoch, record.visible_uid) {
            self.records[index].visible_uid = 0;
        }
        let record = &self.records[index];
        if record.visible_uid != 0 {
            let mailbox = &mut self.boxes[record.mailbox];
            mailbox.uids.insert(record.visible_uid, index);
            mailbox.size += u64::from(record.size);
            mailbox.open_ends += u32::from(record.open_end);
            mailbox.changed.push((record.modseq, index));
        }
        let record = &self.records[index];
        if !record.alive() || (record.visible_uid == record.uid && record.epoch == self.epoch) {
            return;
        }
        let (epoch, uid) = (record.epoch, record.uid);
        let name = self.boxes[record.mailbox].listed.as_ref();
        let mark = name
            .and_then(|name| self.names.get(name))
            .map_or(0, |state| state.mark);
        let late = epoch != self.epoch || uid < mark;
        if late {
            self.late.insert((epoch, uid), index);
        } else {
            self.pending.insert(uid, (index, 0));
        }
        let bits = &mut self.records[index].bits;
        bits.late = late;
        bits.pending = !late;
    }
}
