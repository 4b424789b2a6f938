//! What is shown: after each step the touched records are compared with what this replica shows of them.
//!
//! A living message is shown under its greatest claim, unless that is *late* (below what was told of the name, docs/design.md#rule-4) or
//! *pending* (a peer may still bring a lower one, docs/design.md#rule-5, or a lower one is here and its body is not), or its body is not here. While
//! a new claim is late or pending, the message stays
//! shown under its former UID: that vanishes when the new one is final.
//!
//! Order within [`Replica::settle`]: count the living, hide what is gone, list the mailboxes, then show. So a message
//! finds its mailbox listed, and what vanishes is told under the name it had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use whimbrel_crdt::VersionVector;
use whimbrel_crdt::mutants::broken;

use crate::keywords::{DELETED, FIRST_KEYWORD, FLAGGED, SEEN};
use crate::record::{KEYWORDS_LISTED_MAX, Record};
use crate::replica::NameState;
use crate::{Effects, MailboxName, Message, MessageId, Peers, Replica, RowKey, steps};

/// What one step tells.
struct Telling<'a> {
    applied: &'a VersionVector,
    /// Made when something is hidden, shared by all that is.
    hidden_at: Option<Arc<VersionVector>>,
    now: u64,
    peers: &'a Peers,
    modseq: Option<u64>,
    vanished: BTreeMap<MailboxName, Vec<u32>>,
    changed: BTreeSet<MailboxName>,
    list_changed: bool,
}

impl Telling<'_> {
    fn hidden_at(&mut self) -> Arc<VersionVector> {
        self.hidden_at
            .get_or_insert_with(|| Arc::new(self.applied.clone()))
            .clone()
    }
}

impl Replica {
    pub(crate) fn touch(&mut self, index: u32) {
        self.look_at(index);
        self.mark_dirty(index);
    }

    /// What is shown of the record is looked at in this step.
    pub(crate) fn look_at(&mut self, index: u32) {
        let bits = &mut self.records[index].bits;
        if !bits.touched {
            bits.touched = true;
            self.touched.push(index);
        }
    }

    /// The row of the record is to be written.
    pub(crate) fn mark_dirty(&mut self, index: u32) {
        let bits = &mut self.records[index].bits;
        if !bits.dirty {
            bits.dirty = true;
            self.dirty.push(index);
        }
    }

    /// The row of the record is to be written for what is shown of it.
    fn mark_visible_dirty(&mut self, index: u32) {
        let bits = &mut self.records[index].bits;
        if !bits.dirty && !bits.dirty_visible {
            bits.dirty_visible = true;
            self.dirty_visible.push(index);
        }
    }

    pub(crate) fn touch_box(&mut self, number: u32) {
        let record = &mut self.boxes[number];
        if !record.touched {
            record.touched = true;
            self.touched_boxes.push(number);
        }
        self.mark_mailbox_dirty(number);
    }

    /// The row of the mailbox is to be written.
    pub(crate) fn mark_mailbox_dirty(&mut self, number: u32) {
        let record = &mut self.boxes[number];
        if !record.dirty {
            record.dirty = true;
            self.dirty_boxes.push(number);
        }
    }

    /// Changes the claims of a record, and the indexes of them.
    pub(crate) fn change_claims(&mut self, index: u32, change: impl FnOnce(&mut Record)) {
        self.stop_waiting(index);
        self.awaits_no_body(index);
        let record = &mut self.records[index];
        for uid in record.older() {
            if self.older.get(uid) == Some(&index) {
                self.older.remove(uid);
            }
        }
        change(record);
        if record.epoch == self.epoch {
            for uid in record.older() {
                self.older.insert(*uid, index);
            }
        }
    }

    /// Changes the placement of a record, and the indexes of it.
    pub(crate) fn change_placement(&mut self, index: u32, change: impl FnOnce(&mut Record)) {
        let before = self.records[index].mailbox;
        self.change_claims(index, change);
        let after = self.records[index].mailbox;
        if before != after {
            self.boxes[before].records -= 1;
            self.boxes[after].records += 1;
        }
    }

    /// A message, and with it its copies, has other bytes, or another date, than those that were here. What was told of it by its UID holds no more,
    /// so that it is given a new one ([`Replica::settle`]): "the internal date, RFC822.SIZE, envelope, body structure, and message texts [...] MUST
    /// never change" (RFC 9051, 2.3.1.1).
    pub(crate) fn change_message(&mut self, origin: MessageId, message: &Message) {
        let own = self.by_id.get(&origin).copied();
        let mut copies: Vec<u32> = Vec::new();
        if self.origins.contains_key(&origin) {
            let all = self.records.iter();
            let all = all.filter(|(_, record)| record.copy_of() == Some(origin));
            copies.extend(all.map(|(index, _)| index));
        }
        for index in own.into_iter().chain(copies) {
            self.awaits_no_body(index);
            let record = &mut self.records[index];
            let before = record.message();
            record.set_message(message.clone());
            if record.bits.living {
                self.usage.bytes -= u64::from(before.size);
                self.usage.bytes += u64::from(message.size);
            }
            if record.shown != 0 {
                record.bits.replaced = true;
                let mailbox = &mut self.boxes[record.view_box];
                if record.bits.deleted {
                    mailbox.deleted_size -= u64::from(before.size);
                    mailbox.deleted_size += u64::from(message.size);
                }
                mailbox.size -= u64::from(before.size);
                mailbox.size += u64::from(message.size);
                mailbox.open_ends -= u32::from(before.open_end);
                mailbox.open_ends += u32::from(message.open_end);
            }
            self.touch(index);
        }
    }

    /// The bytes and the date of one of several that were brought for a message. For the check of a store.
    pub fn choose(&mut self, message: MessageId, chosen: &Message) {
        self.change_message(message, chosen);
    }

    /// Whether clients may have been told of the UID under which it is shown.
    fn is_announced(&self, index: u32) -> bool {
        let record = &self.records[index];
        let name = self.boxes[record.view_box].listed.as_ref();
        let state = name.and_then(|name| self.names.get(name));
        state.is_some_and(|state| record.shown < state.mark)
    }

    pub(crate) fn stop_waiting(&mut self, index: u32) {
        let record = &mut self.records[index];
        if record.bits.late {
            self.late.remove(&(record.epoch, record.uid));
        }
        if record.bits.pending {
            self.pending.remove(&record.uid);
        }
        record.bits.late = false;
        record.bits.pending = false;
    }

    /// The next MODSEQ: `max(last + 1, now) * 64 + index`.
    pub(crate) fn modseq(&mut self, now_micros: u64) -> u64 {
        // 2^57 microseconds are 4,500 years; MODSEQ has 63 bits (RFC 7162, 3.1).
        let next = self.last_change + u64::from(!broken("modseq-given-twice"));
        self.last_change = next.max(now_micros.min((1 << 57) - 1));
        self.last_change * 64 + u64::from(self.slot)
    }

    fn modseq_of(&mut self, telling: &mut Telling<'_>) -> u64 {
        match telling.modseq {
            Some(modseq) => modseq,
            None => *telling.modseq.insert(self.modseq(telling.now)),
        }
    }

    /// Brings what is shown in line with the state, for all that was touched.
    pub(crate) fn settle(&mut self, applied: &VersionVector, now: u64, peers: &Peers) -> Effects {
        let mut telling = Telling {
            applied,
            hidden_at: None,
            now,
            peers,
            modseq: None,
            vanished: BTreeMap::new(),
            changed: BTreeSet::new(),
            list_changed: false,
        };
        self.look_at_what_waited(peers);
        let mut touched = std::mem::take(&mut self.touched);
        steps::count(touched.len());
        self.keywords.changed(touched.len());
        for index in &touched {
            self.weigh(*index);
            self.count_living(*index, &mut telling);
        }
        for index in &touched {
            let record = &self.records[*index];
            let stays =
                record.alive() && record.mailbox == record.view_box && record.epoch == self.epoch;
            let replaced = record.bits.replaced;
            if record.shown != 0 && !stays {
                self.hide(*index, Some(&mut telling));
                self.mark_visible_dirty(*index);
            } else if record.shown != 0 && replaced && !broken("replaced-keeps-uid") {
                // Shown anew, when its body is here: under the same UID if nobody was told of it, and else it is late.
                let told = self.is_announced(*index);
                self.hide(*index, told.then_some(&mut telling));
                self.mark_visible_dirty(*index);
            }
            let record = &mut self.records[*index];
            record.bits.replaced = false;
            record.view_box = record.mailbox;
        }
        for number in std::mem::take(&mut self.touched_boxes) {
            self.boxes[number].touched = false;
            self.list(number, &mut telling, &mut touched);
        }
        for index in &touched {
            self.classify(*index, &mut telling);
            let bits = &mut self.records[*index].bits;
            bits.touched = false;
            bits.flags_changed = false;
        }
        self.effects(telling)
    }

    fn count_living(&mut self, index: u32, telling: &mut Telling<'_>) {
        let record = &mut self.records[index];
        let (alive, view_box, mailbox) = (record.alive(), record.view_box, record.mailbox);
        if record.bits.living && (!alive || view_box != mailbox) {
            self.count_member(index, view_box, false);
            self.touch_box(view_box);
        } else if view_box != mailbox
            && self.hidden_boxes.contains_key(&view_box)
            && !broken("left-mailbox-not-restarted")
        {
            // Who does not know that the message has left may see it alive in there, and the mailbox by it: its time begins anew.
            self.touch_box(view_box);
        }
        let record = &mut self.records[index];
        if alive && !record.bits.living {
            self.count_member(index, mailbox, true);
            if self.boxes[mailbox].living == 1 {
                self.touch_box(mailbox);
            }
        }
        if alive {
            self.hidden.remove(&index);
        } else if !broken("hidden-since-not-restarted") || !self.hidden.contains_key(&index) {
            // Any operation that names a hidden record begins its time anew.
            self.hidden.insert(index, telling.hidden_at());
        }
    }

    /// A message lives in a mailbox, or no longer.
    pub(crate) fn count_member(&mut self, index: u32, mailbox: u32, lives: bool) {
        let record = &mut self.records[index];
        record.bits.living = lives;
        let (living, size) = (&mut self.boxes[mailbox].living, u64::from(record.size));
        if lives {
            *living += 1;
            self.usage.messages += 1;
            self.usage.bytes += size;
        } else {
            *living -= 1;
            self.usage.messages -= 1;
            self.usage.bytes -= size;
        }
    }

    /// Takes a message out of the view of its mailbox.
    fn hide(&mut self, index: u32, telling: Option<&mut Telling<'_>>) {
        self.uncount(index);
        let record = &mut self.records[index];
        let uid = std::mem::take(&mut record.shown);
        let mailbox = &mut self.boxes[record.view_box];
        let removed = mailbox.uids.remove(&uid);
        assert_eq!(
            removed,
            Some(index),
            "a shown message is in the view of its mailbox"
        );
        mailbox.list.remove(uid);
        mailbox.size -= u64::from(record.size);
        mailbox.open_ends -= u32::from(record.open_end);
        if let (Some(telling), Some(name)) =
            (telling, &self.boxes[self.records[index].view_box].listed)
        {
            telling.vanished.entry(name.clone()).or_default().push(uid);
            telling.changed.insert(name.clone());
        }
    }

    /// Takes a message out of the view for another epoch; that is told by UIDVALIDITY.
    pub(crate) fn hide_unannounced(&mut self, index: u32) {
        self.hide(index, None);
    }

    fn uncount(&mut self, index: u32) {
        self.list_by_flags(index, false);
    }

    pub(crate) fn count(&mut self, index: u32) {
        self.list_by_flags(index, true);
        let record = &self.records[index];
        let keywords = &mut self.boxes[record.view_box].keywords;
        for entry in &record.flags {
            if entry.flag >= FIRST_KEYWORD && keywords.len() < KEYWORDS_LISTED_MAX {
                let shown = record.spelling(entry.flag).unwrap_or(entry.spelling);
                keywords.insert((entry.flag, shown));
            }
        }
    }

    /// Brings the lists of those with some flags in line; one whose flag has not changed is not written to.
    fn list_by_flags(&mut self, index: u32, shown: bool) {
        let record = &mut self.records[index];
        let unseen = shown && !record.has(SEEN);
        let deleted = shown && record.has(DELETED);
        let flagged = shown && record.has(FLAGGED);
        let mailbox = &mut self.boxes[record.view_box];
        let bits = &mut record.bits;
        let size = u64::from(record.size);
        match (bits.deleted, deleted) {
            (false, true) => mailbox.deleted_size += size,
            (true, false) => mailbox.deleted_size -= size,
            _ => {}
        }
        for (is_in, belongs, uids) in [
            (&mut bits.unseen, unseen, &mut mailbox.unseen),
            (&mut bits.deleted, deleted, &mut mailbox.deleted),
            (&mut bits.flagged, flagged, &mut mailbox.flagged),
        ] {
            match (std::mem::replace(is_in, belongs), belongs) {
                (false, true) => assert!(uids.insert(record.shown), "a UID denotes one message"),
                (true, false) => {
                    let place = uids.remove(record.shown);
                    assert!(place.is_some(), "who has the mark is in the list");
                }
                _ => {}
            }
        }
    }

    /// Brings the list of names in line with one mailbox; adds to `touched` what must be looked at again.
    fn list(&mut self, number: u32, telling: &mut Telling<'_>, touched: &mut Vec<u32>) {
        let record = &self.boxes[number];
        let visible = record.visible();
        if visible {
            self.hidden_boxes.remove(&number);
        } else {
            self.hidden_boxes.insert(number, telling.hidden_at());
        }
        let record = &self.boxes[number];
        let name = visible.then(|| record.name.value.clone());
        if name == record.listed {
            return;
        }
        telling.list_changed = true;
        let modseq = self.modseq_of(telling);
        if let Some(old) = self.boxes[number].listed.take() {
            let uids = self.boxes[number].uids.keys().copied();
            telling
                .vanished
                .entry(old.clone())
                .or_default()
                .extend(uids);
            self.unlist(number, &old);
            telling.changed.insert(old);
        }
        let Some(name) = name else { return };
        let mark = self.enlist(number, &name, modseq);
        let epoch = self.epoch;
        let record = &mut self.boxes[number];
        if !broken("renamed-keeps-modseq") {
            record.base_modseq = modseq;
        }
        record.listed = Some(name.clone());
        telling.changed.insert(name);
        // What is below the mark of the new name was not shown under it: it is late. There may be any number of such messages, and another node's
        // RENAME is small: their rows are not written, the mailbox's says it of all of them.
        let stale = record.visible_from.is_some();
        let below: Vec<u32> = match broken("rename-shows-below-mark") {
            true => Vec::new(),
            false => record.uids.range(..mark).map(|(_, index)| *index).collect(),
        };
        record.visible_from = (!below.is_empty() || stale).then_some((epoch, mark));
        for index in below {
            self.hide(index, None);
            self.look_again(index, touched);
        }
        // What was late or pending under the old name may not be so under the new one. Meanwhile it is not shown under a former UID, under which
        // nobody knows it there.
        let waiting = self
            .late
            .values()
            .copied()
            .chain(self.pending.values().map(|(index, _)| *index));
        let here: Vec<u32> = waiting
            .filter(|index| self.records[*index].mailbox == number)
            .collect();
        for index in here {
            let shown = self.records[index].shown != 0;
            if shown {
                self.hide(index, None);
            }
            if shown || stale {
                self.mark_visible_dirty(index);
            }
            self.look_again(index, touched);
        }
    }

    fn look_again(&mut self, index: u32, touched: &mut Vec<u32>) {
        if !self.records[index].bits.touched {
            self.records[index].bits.touched = true;
            touched.push(index);
        }
    }

    fn unlist(&mut self, number: u32, name: &MailboxName) {
        let state = self
            .names
            .get_mut(name)
            .expect("a listed mailbox is listed under its name");
        state.boxes.retain(|other| *other != number);
        if state.boxes.is_empty() {
            let mark = state.mark;
            self.names.remove(name);
            self.keep_gone_mark(name.clone(), mark);
        }
    }

    /// Lists a mailbox under a name and gives the name's mark.
    fn enlist(&mut self, number: u32, name: &MailboxName, modseq: u64) -> u32 {
        if !self.names.contains_key(name) {
            let mark = self.gone_marks.remove(name).unwrap_or(self.floor);
            let state = NameState {
                boxes: Default::default(),
                mark,
                history_from: modseq,
                highest: modseq,
            };
            self.names.insert(name.clone(), state);
            self.dirty_keys.insert(RowKey::Mark(name.clone()));
        }
        let state = self.names.get_mut(name).expect("it was put there just now");
        if let Err(at) = state.boxes.binary_search(&number) {
            state.boxes.insert(at, number);
        }
        state.mark
    }

    /// Shows a touched message, or finds why it cannot be shown yet.
    fn classify(&mut self, index: u32, telling: &mut Telling<'_>) {
        let record = &self.records[index];
        let pending_until = record
            .bits
            .pending
            .then(|| self.pending.get(&record.uid).map(|(_, until)| *until));
        self.stop_waiting(index);
        let record = &self.records[index];
        if !record.alive() {
            return;
        }
        let (epoch, uid, number) = (record.epoch, record.uid, record.mailbox);
        if record.shown != 0 && record.bits.flags_changed {
            self.count(index);
            if !broken("flags-keep-modseq") {
                self.stamp(index, telling);
            }
        }
        if self.records[index].shown == uid && epoch == self.epoch {
            return;
        }
        if self.hold_back(index, telling.peers) {
            return;
        }
        let name = self.boxes[number].listed.as_ref();
        let mark = name
            .and_then(|name| self.names.get(name))
            .map_or(0, |state| state.mark);
        if epoch != self.epoch || (uid < mark && !broken("late-is-shown")) {
            self.late.insert((epoch, uid), index);
            self.records[index].bits.late = true;
            return;
        }
        // Two nodes had one index, and their states were joined: the second is claimed again. This one was not told.
        let taken = self.boxes[number].uids.get(&uid);
        if taken.is_some_and(|other| *other != index) {
            self.late.insert((epoch, uid), index);
            self.records[index].bits.late = true;
            return;
        }
        let below = self.body_awaited_below(uid, telling.peers);
        let until = pending_until.flatten().unwrap_or_else(|| {
            let superseded = self.records[index].older().len();
            // What waits with a lower claim would be late once this one is told.
            let lower = self.pending.range(..uid).next_back();
            let lower = lower.map_or(0, |(_, (_, until))| *until);
            let own = telling.peers.until(superseded);
            own.max(lower).max(below.unwrap_or(0))
        });
        let in_time = until > telling.peers.mono_micros();
        let waits = !telling.peers.heard(uid) || below.is_some();
        if in_time && waits && !broken("nobody-waits") {
            self.pending.insert(uid, (index, until));
            self.records[index].bits.pending = true;
            return;
        }
        self.make_visible(index, telling);
    }

    fn make_visible(&mut self, index: u32, telling: &mut Telling<'_>) {
        if self.records[index].shown != 0 {
            self.hide(index, Some(telling));
        }
        let record = &mut self.records[index];
        record.shown = record.uid;
        let mailbox = &mut self.boxes[record.view_box];
        mailbox.size += u64::from(record.size);
        mailbox.open_ends += u32::from(record.open_end);
        let before = mailbox.uids.insert(record.uid, index);
        assert_eq!(before, None, "U1: a UID denotes one message");
        mailbox.list.insert(record.uid);
        self.count(index);
        self.stamp(index, telling);
    }

    /// Gives a shown message the MODSEQ of the step.
    fn stamp(&mut self, index: u32, telling: &mut Telling<'_>) {
        let modseq = self.modseq_of(telling);
        self.mark_visible_dirty(index);
        let record = &mut self.records[index];
        let mailbox = &mut self.boxes[record.view_box];
        if let Some(name) = &mailbox.listed
            && !telling.changed.contains(name)
        {
            telling.changed.insert(name.clone());
        }
        if std::mem::replace(&mut record.modseq, modseq) == modseq {
            return;
        }
        if mailbox.changed.len() == mailbox.changed.capacity() {
            // By a quarter, not by double: it is a tenth of what a message takes.
            mailbox
                .changed
                .reserve_exact((mailbox.changed.len() / 4).max(4));
        }
        mailbox.changed.push((modseq, index));
        if mailbox.changed.len() > 2 * mailbox.uids.len() + 64 {
            let number = record.view_box;
            let mut changed = std::mem::take(&mut self.boxes[number].changed);
            changed.retain(|(modseq, index)| self.is_fresh(number, *modseq, *index));
            self.boxes[number].changed = changed;
        }
    }

    /// Whether an entry of a mailbox's list by MODSEQ still holds.
    pub(crate) fn is_fresh(&self, number: u32, modseq: u64, index: u32) -> bool {
        let fresh = |record: &Record| {
            record.modseq == modseq && record.shown != 0 && record.view_box == number
        };
        self.records.get(index).is_some_and(fresh)
    }

    fn effects(&mut self, mut telling: Telling<'_>) -> Effects {
        if !telling.changed.is_empty() {
            let modseq = self.modseq_of(&mut telling);
            let unannounced = |name: &MailboxName| {
                broken("vanishing-keeps-highest") && telling.vanished.contains_key(name)
            };
            for name in telling.changed.iter().filter(|name| !unannounced(name)) {
                if let Some(state) = self.names.get_mut(name) {
                    state.highest = modseq;
                }
            }
            if !telling.vanished.is_empty() {
                self.remember(modseq, std::mem::take(&mut telling.vanished));
            }
        }
        Effects {
            changed: telling.changed.into_iter().collect(),
            list_changed: std::mem::take(&mut self.list_changed) || telling.list_changed,
            late: !self.late.is_empty(),
            wait_until: self.waits_until(telling.peers),
        }
    }

    /// Shows what waited for peers (docs/design.md#rule-5) and need wait no longer.
    pub fn release(&mut self, now_micros: u64, peers: &Peers) -> Effects {
        let body = self.lowest_awaited_body(peers).map(|(uid, _)| uid);
        let ready = |(uid, (_, until)): &(&u32, &(u32, u64))| {
            let heard = peers.heard(**uid) && body.is_none_or(|lowest| lowest > **uid);
            *until <= peers.mono_micros() || heard
        };
        let due: Vec<u32> = self
            .pending
            .iter()
            .filter(ready)
            .map(|(_, (slot, _))| *slot)
            .collect();
        for slot in due {
            self.look_at(slot);
        }
        // Only living messages wait, so that nothing is hidden here.
        self.settle(&VersionVector::new(), now_micros, peers)
    }
}
