//! Ops change replicated state here and nowhere else; a snapshot is joined in [`merge`](crate::merge).

use whimbrel_crdt::mutants::broken;
use whimbrel_crdt::{Context, Dot, DotSet, Lww};

use crate::keywords::{DELETED, Register};
use crate::op::{Append, BoxRemoval, Claim, CopyEntry, CreateMailbox, Deliver, MoveEntry};
use crate::record::{Bits, BoxRecord, Record};
use crate::rows::encode_content;
use crate::{
    ApplyError, Effects, Flags, MailboxId, Message, MessageId, NewId, Op, Order, Removal, Replica,
    RowKey, Step,
};

impl Replica {
    /// Applies operations, own or foreign. The caller sees to causal order and to applying each once.
    ///
    /// On an error the replica is half changed: throw it away and load it again from its rows.
    pub fn apply(&mut self, step: &Step<'_>, ops: Vec<Op>) -> Result<Effects, ApplyError> {
        for (seq, op) in (step.first..).zip(ops) {
            let context = Context {
                dot: Dot::new(step.origin, seq),
                stamp: whimbrel_crdt::Stamp {
                    hlc: step.hlc + (seq - step.first),
                    origin: step.origin,
                },
                deps: step.deps,
            };
            self.apply_one(&context, op)?;
        }
        Ok(self.settle(step.applied, step.now_micros, step.peers))
    }

    fn apply_one(&mut self, context: &Context<'_>, op: Op) -> Result<(), ApplyError> {
        match op {
            Op::Open {
                created,
                uidvalidity_floor,
            } => {
                self.created = self.created.max(created);
                self.uidvalidity_floor = self.uidvalidity_floor.max(uidvalidity_floor);
                self.dirty_keys.insert(RowKey::Account);
            }
            Op::CreateMailbox(create) => self.apply_create(context, create),
            Op::DeleteMailbox {
                mailboxes,
                messages,
            } => {
                for BoxRemoval { mailbox, dots } in mailboxes {
                    let number = self.box_number(mailbox)?;
                    dots.iter()
                        .for_each(|dot| _ = self.boxes[number].exist.remove(*dot));
                    if broken("delete-removes-unseen") {
                        self.boxes[number].exist = DotSet::new();
                    }
                    self.touch_box(number);
                }
                self.apply_removals(&messages)?;
            }
            Op::RenameMailbox { mailboxes, to } => {
                for mailbox in mailboxes {
                    let number = self.keep_box(context, mailbox)?;
                    self.boxes[number].name.write(context.stamp, to.clone());
                }
            }
            Op::Subscribe { name } => {
                self.list_changed = true;
                self.dirty_keys.insert(RowKey::Subscription(name.clone()));
                self.subscriptions.add(name, context);
            }
            Op::Unsubscribe { name, dots } => {
                self.list_changed = true;
                self.subscriptions.remove(&name, &dots);
                self.dirty_keys.insert(RowKey::Subscription(name));
            }
            Op::Append(append) => self.apply_append(context, append)?,
            Op::Deliver(deliver) => self.apply_deliver(context, deliver)?,
            Op::Copy {
                mailbox,
                entries,
                epoch,
            } => {
                let number = self.keep_box(context, mailbox)?;
                for (index, entry) in (0..).zip(entries) {
                    self.apply_copy(context, number, epoch, index, entry)?;
                }
            }
            Op::Move {
                mailbox,
                entries,
                epoch,
            } => {
                let number = self.keep_box(context, mailbox)?;
                for entry in entries {
                    self.apply_move(context, number, epoch, entry)?;
                }
            }
            Op::Store {
                messages,
                set,
                clear,
                rescue,
            } => {
                self.apply_store(context, &messages, &set, &clear, rescue)?;
            }
            Op::Expunge { messages } => self.apply_removals(&messages)?,
            Op::Claim { claims, epoch } => {
                for Claim {
                    message,
                    placement,
                    uid,
                } in claims
                {
                    self.see(message, epoch, uid)?;
                    let slot = self.index_of(message)?;
                    self.touch(slot);
                    if self.records[slot].placed == placement || broken("claim-for-any-placement") {
                        self.change_claims(slot, |record| record.claim(epoch, uid));
                    }
                }
            }
            Op::Bump { counter, epoch } => {
                if epoch == self.epoch {
                    self.counter = self.counter.max(counter);
                    self.dirty_keys.insert(RowKey::Account);
                }
            }
            Op::Epoch { uidvalidity } => self.raise_epoch(uidvalidity),
        }
        Ok(())
    }

    fn apply_create(&mut self, context: &Context<'_>, create: CreateMailbox) {
        let id = match create.id {
            NewId::Fresh => MailboxId::from_dot(context.dot),
            NewId::Derived(id) => id,
        };
        let number = match self.box_by_id.get(&id) {
            Some(number) => *number,
            None => self.insert_box(BoxRecord::new(
                id,
                context.stamp,
                create.name.clone(),
                create.special_use,
            )),
        };
        let record = &mut self.boxes[number];
        record.name.write(context.stamp, create.name);
        record
            .special_use
            .join(&Lww::new(context.stamp, create.special_use));
        record.exist.supersede(context);
        self.touch_box(number);
    }

    /// Adds the operation's existence dot to its target mailbox.
    fn keep_box(&mut self, context: &Context<'_>, id: MailboxId) -> Result<u32, ApplyError> {
        let number = self.box_number(id)?;
        if !broken("target-gets-no-dot") {
            self.boxes[number].exist.supersede(context);
        }
        self.touch_box(number);
        Ok(number)
    }

    fn apply_append(&mut self, context: &Context<'_>, append: Append) -> Result<(), ApplyError> {
        let mailbox = self.keep_box(context, append.mailbox)?;
        let order = Order::of(&append.message.blob.upload);
        let id = MessageId::from_dot(context.dot, 0, order);
        self.see(id, append.epoch, append.uid)?;
        self.store_content(id, &append.message, append.content);
        let mut record = new_record(
            id,
            context.stamp,
            mailbox,
            append.epoch,
            append.uid,
            append.message,
        );
        record.exist.insert(context.dot);
        let slot = self.insert_record(record);
        self.set_flags(slot, &append.flags, context);
        self.touch(slot);
        Ok(())
    }

    fn apply_deliver(&mut self, context: &Context<'_>, deliver: Deliver) -> Result<(), ApplyError> {
        let mailbox = self.keep_box(context, deliver.mailbox)?;
        let Deliver {
            id,
            entry,
            placement,
            epoch,
            uid,
            message,
            content,
            ..
        } = deliver;
        self.see(id, epoch, uid)?;
        let placement = if broken("delivery-placed-now") {
            context.stamp
        } else {
            placement
        };
        let index = match self.by_id.get(&id) {
            // Bytes and date of a queue entry were fixed when it was accepted; those of an import may differ where it was imported at two nodes.
            Some(index) => {
                let index = *index;
                self.take_greater(id, self.records[index].message(), message, content);
                // Imports of before had the tag of what they were there: whichever comes first, the same one stays.
                let record = &mut self.records[index];
                record.entry = record.entry.max(Some(entry));
                self.change_placement(index, |record| record.place(placement, mailbox, epoch, uid));
                if broken("delivery-revives") {
                    self.records[index].killed = false;
                }
                index
            }
            None => {
                let killed = self.take_tombstone(id);
                // Copies of what is gone keep its content, and an import may bring another.
                let message = match self.message_of_copies(id) {
                    Some(of_copies) => {
                        let greater = of_copies.clone().max(message.clone());
                        self.take_greater(id, of_copies, message, content);
                        *self.origins.entry(id).or_default() += 1;
                        greater
                    }
                    None => {
                        self.store_content(id, &message, content);
                        message
                    }
                };
                let mut record = new_record(id, placement, mailbox, epoch, uid, message);
                record.entry = Some(entry);
                // Whoever imported it knew of neither: it stays removed.
                record.killed = killed;
                self.insert_record(record)
            }
        };
        self.touch(index);
        Ok(())
    }

    fn apply_copy(
        &mut self,
        context: &Context<'_>,
        mailbox: u32,
        epoch: u32,
        index: u32,
        entry: CopyEntry,
    ) -> Result<(), ApplyError> {
        let CopyEntry { source, uid, flags } = entry;
        let order = Order::of(&source.0);
        let source = self.index_of(source)?;
        // Nothing of it changes, so that its row stays; if it is hidden, its time begins anew.
        self.look_at(source);
        let (origin, message) = (
            self.records[source].origin(),
            self.records[source].message(),
        );
        let id = MessageId::from_dot(context.dot, index, order);
        self.see(id, epoch, uid)?;
        let mut record = new_record(id, context.stamp, mailbox, epoch, uid, message);
        record.exist.insert(context.dot);
        record.rare.get_or_insert_default().origin = Some(origin);
        *self.origins.entry(origin).or_insert(1) += 1;
        let slot = self.insert_record(record);
        self.set_flags(slot, &flags, context);
        self.touch(slot);
        Ok(())
    }

    fn apply_move(
        &mut self,
        context: &Context<'_>,
        mailbox: u32,
        epoch: u32,
        entry: MoveEntry,
    ) -> Result<(), ApplyError> {
        let MoveEntry {
            message,
            uid,
            undelete,
        } = entry;
        self.see(message, epoch, uid)?;
        let index = self.index_of(message)?;
        self.change_placement(index, |record| {
            record.place(context.stamp, mailbox, epoch, uid)
        });
        if !broken("move-does-not-keep") {
            self.records[index].exist.supersede(context);
        }
        if undelete && !broken("move-does-not-undelete") {
            self.records[index].clear_flag(DELETED, context);
        }
        self.touch(index);
        Ok(())
    }

    fn apply_store(
        &mut self,
        context: &Context<'_>,
        messages: &[MessageId],
        set: &Flags,
        clear: &Flags,
        rescue: bool,
    ) -> Result<(), ApplyError> {
        let set: Vec<Register> = set.iter().map(|flag| self.register(&flag)).collect();
        // What nobody has ever set need not be cleared, and is not remembered.
        let clear = clear.iter();
        let clear: Vec<u32> = clear.filter_map(|flag| self.find_register(&flag)).collect();
        for message in messages {
            let index = self.index_of(*message)?;
            let record = &mut self.records[index];
            clear
                .iter()
                .for_each(|register| record.clear_flag(*register, context));
            set.iter()
                .for_each(|register| record.set_flag(*register, context));
            let was_as_heard = !self.as_heard.is_empty();
            if (rescue && !broken("rescue-does-not-keep")) || broken("store-raises-the-dead") {
                record.exist.supersede(context);
            }
            if was_as_heard {
                self.note_spelling(index);
            }
            self.touch(index);
        }
        Ok(())
    }

    fn apply_removals(&mut self, removals: &[Removal]) -> Result<(), ApplyError> {
        for Removal { message, dots } in removals {
            let index = self.index_of(*message)?;
            let record = &mut self.records[index];
            for dot in dots
                .iter()
                .skip(usize::from(broken("expunge-forgets-a-dot")))
            {
                record.exist.remove(*dot);
            }
            if broken("expunge-removes-unseen") {
                record.exist = DotSet::new();
            }
            // A delivered message's existence by delivery is one class: whoever names it has seen a delivery.
            record.killed |= record.entry.is_some() && !broken("expunge-spares-delivery");
            self.touch(index);
        }
        Ok(())
    }

    fn set_flags(&mut self, index: u32, flags: &Flags, context: &Context<'_>) {
        for flag in flags.iter() {
            let register = self.register(&flag);
            self.records[index].set_flag(register, context);
        }
    }

    /// A message of this id is here, and comes with other bytes or another date: it is the greater one, whichever came first, and so are its copies, with
    /// which it shares its content row.
    fn take_greater(&mut self, id: MessageId, here: Message, coming: Message, content: Vec<u8>) {
        if coming <= here || broken("first-import-stays") {
            return;
        }
        if coming.blob != here.blob {
            self.store_content(id, &coming, content);
            self.replaced.push((id, here.blob));
        }
        self.change_message(id, &coming);
    }

    fn store_content(&mut self, id: MessageId, message: &Message, summary: Vec<u8>) {
        let bytes = encode_content(message, &summary);
        self.content_bytes += bytes.len();
        self.dirty_rows.insert(RowKey::Content(id), Some(bytes));
    }

    /// A claim was seen: the counter follows.
    fn see(&mut self, message: MessageId, epoch: u32, uid: u32) -> Result<(), ApplyError> {
        if uid < 64 {
            return Err(ApplyError::BadClaim(message));
        }
        if epoch == self.epoch {
            let (counter, slot) = (uid / 64, (uid % 64) as u8);
            if !broken("counter-ignores-claims") || slot == self.slot {
                self.counter = self.counter.max(counter);
            }
            let claimed = self.claimed.entry(slot).or_insert(0);
            // Claims of one slot ascend in the log of its node: so whatever others do, no UID is given twice.
            if counter <= *claimed {
                return Err(ApplyError::ClaimedTwice(message));
            }
            *claimed = counter.max(*claimed);
            self.dirty_keys.insert(RowKey::Account);
        } else {
            self.note_claimed(epoch, [((uid % 64) as u8, uid / 64)].into());
        }
        Ok(())
    }
}

fn new_record(
    id: MessageId,
    placed: whimbrel_crdt::Stamp,
    mailbox: u32,
    epoch: u32,
    uid: u32,
    message: Message,
) -> Record {
    Record {
        id,
        exist: DotSet::new(),
        placed,
        mailbox,
        epoch,
        uid,
        flags: smallvec::SmallVec::new(),
        entry: None,
        killed: false,
        deleted_ever: false,
        blob: message.blob,
        size: message.size,
        zone_minutes: message.date.zone_minutes,
        open_end: message.open_end,
        seconds: message.date.seconds,
        rare: None,
        modseq: 0,
        visible_uid: 0,
        view_box: mailbox,
        bits: Bits::default(),
    }
}
