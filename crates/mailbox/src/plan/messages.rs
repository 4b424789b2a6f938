//! APPEND, deliveries, COPY, MOVE, STORE, EXPUNGE.

use whimbrel_crdt::Stamp;
use whimbrel_crdt::mutants::broken;

use super::*;
use crate::EntryTag;

impl Replica {
    /// APPEND and MULTIAPPEND; the outcome is the UIDs for APPENDUID.
    pub fn plan_append(
        &self,
        at: &At,
        name: &MailboxName,
        messages: Vec<NewMessage>,
    ) -> Result<Plan<Vec<u32>>, PlanError> {
        let mailbox = self.target(name)?;
        let mut claims = self.claims(at);
        let mut keywords = self.new_keywords();
        let mut plan = Plan {
            ops: Vec::with_capacity(messages.len()),
            outcome: Vec::new(),
        };
        for NewMessage {
            flags,
            blob,
            size,
            open_end,
            date,
            content,
        } in messages
        {
            keywords.add(&flags)?;
            let uid = claims.take()?;
            let message = Message {
                blob,
                size,
                date,
                open_end,
            };
            plan.ops.push(Op::Append(Append {
                mailbox,
                uid,
                flags,
                message,
                content,
                epoch: self.epoch,
            }));
            plan.outcome.push(uid);
        }
        Ok(plan)
    }

    /// A delivery of a queue entry into `name`. `target` is the name that the recipient's address asked for, fixed at
    /// acceptance: it and not `name` decides the id.
    pub fn plan_deliver(
        &self,
        at: &At,
        entry: EntryId,
        target: &MailboxName,
        name: &MailboxName,
        message: NewMessage,
    ) -> Result<Plan<Delivered>, PlanError> {
        let mailbox = self.target(name)?;
        let id = MessageId::delivered(entry, self.account, target);
        if self.by_id.contains_key(&id) {
            return Ok(Plan {
                ops: Vec::new(),
                outcome: Delivered {
                    message: id,
                    uid: None,
                },
            });
        }
        let uid = self.claims(at).take()?;
        Ok(Plan {
            ops: vec![self.deliver(entry, entry.tag(), id, mailbox, uid, message)],
            outcome: Delivered {
                message: id,
                uid: Some(uid),
            },
        })
    }

    /// Puts a message here under an id that follows from the entry; flags are no part of it.
    fn deliver(
        &self,
        entry: EntryId,
        tag: EntryTag,
        id: MessageId,
        mailbox: MailboxId,
        uid: u32,
        message: NewMessage,
    ) -> Op {
        let NewMessage {
            blob,
            size,
            open_end,
            date,
            content,
            ..
        } = message;
        Op::Deliver(Deliver {
            id,
            entry: tag,
            placement: entry.placement(mailbox),
            mailbox,
            uid,
            message: Message {
                blob,
                size,
                date,
                open_end,
            },
            content,
            epoch: self.epoch,
        })
    }

    /// Messages that come from elsewhere; the outcome is the UIDs of those that are new. An entry stands for what the message is there: who
    /// brings it again, whatever became of it here and in whatever mailbox it lies by now, changes nothing while it is remembered.
    pub fn plan_import(
        &self,
        at: &At,
        name: &MailboxName,
        messages: Vec<(EntryId, NewMessage)>,
    ) -> Result<Plan<Vec<u32>>, PlanError> {
        let mailbox = self.target(name)?;
        let mut claims = self.claims(at);
        let mut keywords = self.new_keywords();
        let mut plan = Plan {
            ops: Vec::with_capacity(messages.len()),
            outcome: Vec::new(),
        };
        let mut seen = std::collections::BTreeSet::new();
        for (entry, mut message) in messages {
            let id = MessageId::imported(entry, self.account);
            let known = self.by_id.contains_key(&id) || self.tombstones.contains(&id);
            if known || !seen.insert(id) {
                continue;
            }
            let flags = std::mem::replace(&mut message.flags, Flags::none());
            keywords.add(&flags)?;
            let uid = claims.take()?;
            let tag = if broken("import-is-a-delivery") {
                entry.tag()
            } else {
                EntryTag::IMPORT
            };
            plan.ops
                .push(self.deliver(entry, tag, id, mailbox, uid, message));
            if !flags.is_empty() {
                plan.ops.push(Op::Store {
                    messages: vec![id],
                    set: flags,
                    clear: Flags::none(),
                    rescue: false,
                });
            }
            plan.outcome.push(uid);
        }
        Ok(plan)
    }

    /// COPY
    pub fn plan_copy(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Copied>, PlanError> {
        self.transfer(
            at,
            from,
            uids,
            to,
            |index, claims| {
                let record = &self.records[index];
                Ok(CopyEntry {
                    source: record.id,
                    uid: claims.take()?,
                    flags: self.flags_of(record),
                })
            },
            |entry| entry.uid,
            |mailbox, entries, epoch| Op::Copy {
                mailbox,
                entries,
                epoch,
            },
        )
    }

    /// MOVE
    pub fn plan_move(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Moved>, PlanError> {
        self.transfer(
            at,
            from,
            uids,
            to,
            |slot, claims| self.move_entry(slot, claims),
            |entry| entry.uid,
            |mailbox, entries, epoch| Op::Move {
                mailbox,
                entries,
                epoch,
            },
        )
    }

    /// What COPY and MOVE have in common: the messages in the order of their UIDs, an entry with a new claim for each, one operation.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one call, and what differs"
    )]
    fn transfer<E>(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
        entry: impl Fn(u32, &mut Claims) -> Result<E, PlanError>,
        uid: impl Fn(&E) -> u32,
        op: impl FnOnce(MailboxId, Vec<E>, u32) -> Op,
    ) -> Result<Plan<Copied>, PlanError> {
        let mailbox = self.target(to)?;
        let mut claims = self.claims(at);
        let (found, missing) = self.select_as_named(from, uids);
        let mut outcome = Copied {
            uids: Vec::with_capacity(found.len()),
            missing,
        };
        let mut entries = Vec::with_capacity(found.len());
        for (named, slot) in found {
            let entry = entry(slot, &mut claims)?;
            outcome.uids.push((named, uid(&entry)));
            entries.push(entry);
        }
        let ops = if entries.is_empty() {
            Vec::new()
        } else {
            vec![op(mailbox, entries, self.epoch)]
        };
        Ok(Plan { ops, outcome })
    }

    /// STORE. `seen` gives, for a replacing STORE, the flags that the session saw for a UID; `None` means as
    /// they are now.
    ///
    /// `+FLAGS` and `-FLAGS` write each flag that is named, changed here or not: elsewhere it may be otherwise.
    pub fn plan_store(
        &self,
        name: &MailboxName,
        uids: &[u32],
        mode: StoreMode,
        flags: &Flags,
        seen: &dyn Fn(u32) -> Option<Flags>,
    ) -> Result<Plan<Stored>, PlanError> {
        match mode {
            StoreMode::Remove => check_keywords(flags)?,
            StoreMode::Add | StoreMode::Replace => self.new_keywords().add(flags)?,
        }
        if !self.exists(name) {
            return Err(PlanError::NoMailbox);
        }
        let (found, missing) = self.select(name, uids);
        let mut groups: BTreeMap<(Flags, Flags), Vec<MessageId>> = BTreeMap::new();
        for (uid, index) in &found {
            let record = &self.records[*index];
            let change = match mode {
                StoreMode::Add => {
                    let mut set = flags.clone();
                    if !flags.keywords().is_empty() {
                        let before = self.flags_of(record);
                        check_keywords(&before.union(flags))?;
                        // A keyword that it has keeps its spelling: else two clients that spell it otherwise would change it in turn.
                        set = flags.spelled_as(&before);
                    }
                    (set, Flags::none())
                }
                StoreMode::Remove => (Flags::none(), flags.clone()),
                StoreMode::Replace => {
                    let before = seen(*uid).unwrap_or_else(|| self.flags_of(record));
                    (flags.without(&before), before.without(flags))
                }
            };
            groups.entry(change).or_default().push(record.id);
        }
        let groups = groups
            .into_iter()
            .filter(|((set, clear), _)| !set.is_empty() || !clear.is_empty());
        let ops = groups.map(|((set, clear), messages)| {
            let rescue = clear.contains(&Flag::Deleted);
            Op::Store {
                messages,
                set,
                clear,
                rescue,
            }
        });
        let ops = ops.collect();
        Ok(Plan {
            ops,
            outcome: Stored {
                uids: found.into_iter().map(|(uid, _)| uid).collect(),
                missing,
            },
        })
    }

    /// EXPUNGE of messages that lie where they were put at these times, whatever that is called now, visible or not. One that was moved since somebody
    /// wants to have, and what is gone is gone.
    pub fn plan_take_back(&self, put: &[(MessageId, Stamp)]) -> Plan<()> {
        let indices = put.iter().filter_map(|(message, placed)| {
            let index = *self.by_id.get(message)?;
            let record = &self.records[index];
            (record.alive() && record.placed == *placed).then_some(index)
        });
        let messages: Vec<Removal> = indices.map(|index| self.removal(index)).collect();
        let op = (!messages.is_empty()).then_some(Op::Expunge { messages });
        Plan {
            ops: op.into_iter().collect(),
            outcome: (),
        }
    }

    /// EXPUNGE of exactly these UIDs; the caller has selected those with `\Deleted`.
    pub fn plan_expunge(
        &self,
        name: &MailboxName,
        uids: &[u32],
    ) -> Result<Plan<Stored>, PlanError> {
        if !self.exists(name) {
            return Err(PlanError::NoMailbox);
        }
        let (found, missing) = self.select(name, uids);
        let messages: Vec<Removal> = found.iter().map(|(_, slot)| self.removal(*slot)).collect();
        let op = (!messages.is_empty()).then_some(Op::Expunge { messages });
        let uids = found.into_iter().map(|(uid, _)| uid).collect();
        Ok(Plan {
            ops: op.into_iter().collect(),
            outcome: Stored { uids, missing },
        })
    }
}
