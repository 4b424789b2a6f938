//! What each call does to an account in memory.

use std::sync::Arc;

use bytes::Bytes;
use whimbrel_crdt::Dot;
use whimbrel_mailbox::{
    AccountId, At, Flag, Flags, MailboxName, NewMessage, Op, PlanError, Replica, StoreMode,
    VisibleMessage,
};

use super::{
    Partition, PartitionOwner, Phase,
    failover::Names,
    keys,
    split_commits::{fits, fits_append},
};
use crate::{
    api::{
        Entry, Failure, FlagChange, MESSAGES_PER_CALL_MAX, MailboxCall, NewMail, ROWS_PER_CALL_MAX,
        Replaced, Reply, Row, STATUSES_PER_CALL_MAX, Since, Status,
    },
    machine::{Input, Note, Now, Output, RequiredCopies, Ticket},
};

/// How many messages one [`MailboxCall::Flagged`] looks at, where no list says which have the flags: some tenths of a millisecond, in which
/// other calls wait.
const FLAGGED_LOOKS_MAX: usize = 16 * 1024;

pub(super) fn new_message(new: NewMail) -> NewMessage {
    NewMessage {
        flags: new.flags,
        blob: new.blob,
        size: new.size,
        open_end: new.open_end,
        date: new.date,
        content: new.content.into(),
    }
}

impl PartitionOwner {
    /// UIDVALIDITY may have risen while a session's command was under way: its UIDs mean other messages then, or none.
    pub(super) fn is_of(
        &self,
        account: AccountId,
        uid_validity: Option<u32>,
    ) -> Result<(), Failure> {
        match uid_validity {
            Some(told) if self.replica(account)?.uidvalidity() != told => Err(Failure::Gone),
            _ => Ok(()),
        }
    }

    pub(super) fn carry_out(
        &mut self,
        now: Now,
        account: AccountId,
        call: MailboxCall,
    ) -> Result<Reply, Failure> {
        match call {
            MailboxCall::List { top, after, uses } => {
                self.list(account, top.as_ref(), after.as_ref(), uses)
            }
            MailboxCall::Usage => Ok(Reply::Usage(self.usage(account)?)),
            MailboxCall::Status { name } => {
                self.write(now, account, Vec::new(), &[&name]);
                Ok(Reply::Status(status(self.replica(account)?, &name)?))
            }
            MailboxCall::Statuses { mut names } => {
                names.truncate(STATUSES_PER_CALL_MAX);
                // All that is told of them is on disk by one commit.
                self.write(now, account, Vec::new(), &names.iter().collect::<Vec<_>>());
                let replica = self.replica(account)?;
                let all = names.iter().map(|name| status(replica, name));
                Ok(Reply::Statuses(all.collect()))
            }
            MailboxCall::Select { session, name, .. } => self.select(now, account, session, name),
            MailboxCall::Unselect { session } => {
                self.hangup(session);
                Ok(Reply::Done)
            }
            MailboxCall::Changes {
                session,
                since,
                expunges,
            } => self.changes(now, account, session, since, expunges),
            MailboxCall::Known { session } => self.known(account, session),
            MailboxCall::Since {
                name,
                modseq,
                vanished,
            } => {
                self.selected_exists(account, &name)?;
                let replica = self.replica(account)?;
                Ok(Reply::Since(since(replica, &name, modseq, vanished)))
            }
            MailboxCall::Believed { modseqs } => {
                Ok(Reply::Believed(self.believed(now, account, modseqs)?))
            }
            MailboxCall::Rows { name, uids } => {
                let uids = &uids[..uids.len().min(ROWS_PER_CALL_MAX)];
                Ok(Reply::Rows(rows(self.replica(account)?, &name, uids)))
            }
            MailboxCall::Flagged {
                name,
                from,
                to,
                set,
                unset,
            } => {
                let (rows_max, looks_max) = (ROWS_PER_CALL_MAX, FLAGGED_LOOKS_MAX);
                let replica = self.replica(account)?;
                let found = replica.flagged(&name, from..=to, &set, &unset, rows_max, looks_max);
                Ok(Reply::Flagged {
                    rows: found.visible.into_iter().map(row).collect(),
                    up_to: found.up_to,
                })
            }
            MailboxCall::Append {
                name,
                messages,
                replaces,
                ..
            } => self.append(now, account, &name, messages, replaces),
            MailboxCall::Import { name, messages } => self.import(now, account, &name, messages),
            MailboxCall::Copy {
                name,
                uids,
                to,
                remove,
                ..
            } => self.copy(now, account, &name, &uids, &to, remove),
            MailboxCall::Store {
                name,
                uids,
                change,
                flags,
                unchanged_since,
                ..
            } => self.store(now, account, &name, &uids, change, &flags, unchanged_since),
            MailboxCall::Expunge {
                name, uids, up_to, ..
            } => self.expunge(now, account, &name, uids, up_to),
            MailboxCall::Remove { name, uids } => self.remove(now, account, &name, &uids),
            MailboxCall::Create { name, special_use } => {
                let at = self.at(now, account);
                let plan = self
                    .replica(account)?
                    .plan_create(&at, &name, special_use)
                    .map_err(failure)?;
                let id = plan.outcome.id;
                self.takes_mailboxes(account, plan.ops.len())?;
                self.write(now, account, plan.ops, &[]);
                Ok(Reply::Created(id))
            }
            MailboxCall::Delete { name } => self.delete(now, account, &name),
            MailboxCall::Rename { from, to, rest } => match rest {
                None => self.rename(now, account, &from, &to),
                Some(up_to) => self.rename_inbox(now, account, &to, up_to),
            },
            MailboxCall::Named {
                name,
                uid_validity,
                numbers,
                told,
                modseq,
            } => {
                let mut elsewhere = false;
                if self.replica(account)?.uidvalidity() == uid_validity {
                    let names = Names {
                        name: &name,
                        numbers: &numbers,
                        told,
                        modseq,
                    };
                    elsewhere = self.named(now, account, &names)?;
                }
                Ok(Reply::Named { elsewhere })
            }
            MailboxCall::Subscribe { name, subscribed } => {
                let replica = self.replica(account)?;
                let ops = if subscribed {
                    replica.plan_subscribe(&name).map_err(failure)?.ops
                } else {
                    replica.plan_unsubscribe(&name).ops
                };
                self.write(now, account, ops, &[]);
                Ok(Reply::Done)
            }
        }
    }

    /// APPEND and REPLACE: one batch, whatever the number of messages.
    fn append(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        messages: Vec<NewMail>,
        replaces: Option<Replaced>,
    ) -> Result<Reply, Failure> {
        if messages.iter().any(|new| !new.flags.keywords().is_empty()) {
            self.forget_keywords(account);
        }
        let at = self.at(now, account);
        let replica = self.replica(account)?;
        let contents: Vec<Bytes> = if self.is_for_sent(account, name) {
            messages.iter().map(|new| new.content.clone()).collect()
        } else {
            Vec::new()
        };
        let bytes = messages.iter().map(|new| u64::from(new.size)).sum::<u64>();
        let replaced = replaces.as_ref().and_then(|replaced| {
            let Replaced { name, uid } = replaced;
            Some(u64::from(replica.row(name, *uid)?.size))
        });
        self.takes(
            account,
            messages.len() - usize::from(replaced.is_some()),
            bytes.saturating_sub(replaced.unwrap_or(0)),
        )?;
        let messages = messages.into_iter().map(new_message).collect();
        let mut plan = replica.plan_append(&at, name, messages).map_err(failure)?;
        if let Some(Replaced { name: from, uid }) = &replaces {
            let expunge = replica
                .plan_expunge(from, &[*uid])
                .map_err(|_| Failure::Gone)?;
            if expunge.outcome.uids.is_empty() {
                return Err(Failure::NoSuchMessage);
            }
            plan.ops.extend(expunge.ops);
        }
        fits_append(replica, &plan)?;
        self.write(now, account, plan.ops, &[name]);
        let uids = plan.outcome;
        for (uid, content) in uids.iter().zip(&contents) {
            self.sent_arrived(now, account, name, *uid, content, false);
        }
        if replaces.is_some() {
            self.collect_soon(now, account);
        }
        Ok(Reply::Appended {
            uid_validity: self.replica(account)?.uidvalidity(),
            uids,
        })
    }

    /// A large mailbox is emptied batch by batch first, each in a call of its own.
    fn delete(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
    ) -> Result<Reply, Failure> {
        // Refusals come before anything is removed.
        if name.is_inbox() {
            return Err(Failure::Inbox);
        }
        let messages_max = self.config.messages_per_call_max;
        let replica = self.replica(account)?;
        if status(replica, name)?.messages as usize <= messages_max {
            let plan = replica.plan_delete(name).map_err(failure)?;
            if fits(replica, &plan) {
                self.write(now, account, plan.ops, &[]);
                self.collect_soon(now, account);
                return Ok(Reply::Done);
            }
        }
        let uids = replica.first_uids(name, u32::MAX, messages_max);
        self.take_away(now, account, name, &uids)?;
        Ok(Reply::Partly { rest: None })
    }

    /// UIDVALIDITY rises when UIDs may run out within this call, or because the directory asks for it (docs/design.md#rule-7).
    pub(super) fn epoch_if_due(&mut self, now: Now, account: AccountId, least: u32) {
        let at = self.at(now, account);
        let Ok(replica) = self.replica(account) else {
            return;
        };
        let known = replica.uidvalidity();
        let lost = match self.partitions.get(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.log.least_found(known),
            _ => None,
        };
        let least = lost.unwrap_or(0).max(least);
        if replica.needs_epoch(&at) || known < least {
            let plan = replica.plan_epoch(&at, least);
            self.write(now, account, plan.ops, &[]);
        }
    }

    /// RENAME INBOX of a large INBOX is CREATE and MOVE, batch by batch; any other is one commit.
    fn rename(
        &mut self,
        now: Now,
        account: AccountId,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Reply, Failure> {
        let at = self.at(now, account);
        let replica = self.replica(account)?;
        if from.is_inbox() {
            let status = status(replica, from)?;
            if status.messages as usize <= self.config.messages_per_call_max {
                let plan = replica.plan_rename(&at, from, to).map_err(failure)?;
                let creates = plan
                    .ops
                    .iter()
                    .filter(|op| matches!(op, Op::CreateMailbox(_)));
                self.takes_mailboxes(account, creates.count())?;
                if fits(replica, &plan) {
                    self.write(now, account, plan.ops, &[]);
                    return Ok(Reply::Done);
                }
            }
            let create = replica.plan_create(&at, to, None).map_err(failure)?;
            self.takes_mailboxes(account, create.ops.len())?;
            self.write(now, account, create.ops, &[]);
            // What comes meanwhile stays.
            return self.rename_inbox(now, account, to, status.uid_next - 1);
        }
        let mut plan = replica.plan_rename(&at, from, to).map_err(failure)?;
        let creates = plan
            .ops
            .iter()
            .filter(|op| matches!(op, Op::CreateMailbox(_)));
        self.takes_mailboxes(account, creates.count())?;
        let claims = plan.ops.pop_if(|op| matches!(op, Op::Claim { .. }));
        if !fits(replica, &plan) {
            return Err(Failure::Limit("Too many names for one RENAME"));
        }
        plan.ops.extend(claims);
        if fits(replica, &plan) {
            self.write(now, account, plan.ops, &[]);
            return Ok(Reply::Done);
        }
        // What is claimed again is above every mark, so there is less of it the next time.
        let claims = replica
            .plan_claims_for_rename(&at, from, to)
            .map_err(failure)?;
        assert!(!claims.ops.is_empty(), "claims are what does not fit");
        self.write(now, account, claims.ops, &[]);
        Ok(Reply::Partly { rest: None })
    }

    /// Moves some of what was in INBOX when its RENAME began, whose greatest UID is `up_to`.
    fn rename_inbox(
        &mut self,
        now: Now,
        account: AccountId,
        to: &MailboxName,
        up_to: u32,
    ) -> Result<Reply, Failure> {
        let inbox = MailboxName::inbox();
        let messages_max = self.config.messages_per_call_max;
        let replica = self.replica(account)?;
        let uids = replica.first_uids(&inbox, up_to, messages_max.saturating_add(1));
        if uids.is_empty() {
            return Ok(Reply::Done);
        }
        let plan =
            |replica: &Replica, at: &At, uids: &[u32]| replica.plan_move(at, &inbox, uids, to);
        let (_, done) = self.one_batch(now, account, &uids, &[to], plan)?;
        if done == uids.len() {
            return Ok(Reply::Done);
        }
        Ok(Reply::Partly { rest: Some(up_to) })
    }

    /// A delivery of the queue. What was delivered before is done already; an account that does not exist takes nothing.
    pub(super) fn deliver(
        &mut self,
        now: Now,
        ticket: Ticket,
        entry: Arc<Entry>,
        index: usize,
        others: RequiredCopies,
    ) {
        let Some(delivery) = entry.deliveries.get(index) else {
            return;
        };
        let account = delivery.account;
        let input = Input::Deliver {
            ticket,
            entry: entry.clone(),
            index,
            others,
        };
        let Ok(Input::Deliver { others, .. }) = self.ready(account, input) else {
            return;
        };
        self.unfinished.insert(entry.id.tag());
        if !self.stamps.is_right(now) {
            // It stays in the queue.
            return self.out.push_back(Output::NotDelivered(ticket));
        }
        self.epoch_if_due(now, account, 0);
        let at = self.at(now, account);
        let message = NewMessage {
            flags: Flags::none(),
            blob: entry.blob,
            size: delivery.size,
            open_end: delivery.open_end,
            date: entry.date,
            content: delivery.content.to_vec(),
        };
        let Ok(replica) = self.replica(account) else {
            return;
        };
        let name = if delivery.sent {
            match self.sent_mailbox(account) {
                Some(name) => name,
                // Nobody wants to have it.
                None => return self.answer(account, Output::Delivered(ticket)),
            }
        } else if replica.exists(&delivery.target) {
            delivery.target.clone()
        } else {
            MailboxName::inbox()
        };
        match replica.plan_deliver(&at, entry.id, &delivery.target, &name, message) {
            Ok(mut plan) => {
                let uid = plan.outcome.uid;
                if let (true, Some(_)) = (delivery.sent, uid) {
                    let mut seen = Flags::none();
                    seen.insert(Flag::Seen);
                    plan.ops.push(Op::Store {
                        messages: vec![plan.outcome.message],
                        set: seen,
                        clear: Flags::none(),
                        rescue: false,
                    });
                }
                // Who sent it was answered when it was in the queue.
                self.write_for(now, account, plan.ops, &[], true, None);
                if let (true, Some(uid)) = (delivery.sent, uid) {
                    self.sent_arrived(now, account, &name, uid, &delivery.content, true);
                }
                if uid.is_some() {
                    self.out.push_back(Output::Log(Note::Delivered {
                        entry: entry.id.to_string(),
                        account,
                    }));
                }
                self.delivery_acks(account, ticket, (entry.id, index), uid.is_some(), others);
            }
            Err(error) => {
                // The entry stays in the queue and is tried again.
                self.out.push_back(Output::Log(Note::Warning(format!(
                    "entry {} cannot be delivered to {account}: {error}",
                    entry.id
                ))));
                self.out.push_back(Output::NotDelivered(ticket));
            }
        }
    }

    pub(super) fn replica(&self, account: AccountId) -> Result<&Replica, Failure> {
        match self.accounts.get(&account).map(|entry| &entry.phase) {
            Some(Phase::Running(replica)) => Ok(replica),
            _ => Err(Failure::Temporary),
        }
    }

    /// A session's mailbox may be deleted or renamed under it.
    fn selected_exists(&self, account: AccountId, name: &MailboxName) -> Result<(), Failure> {
        if self.replica(account)?.exists(name) {
            Ok(())
        } else {
            Err(Failure::Gone)
        }
    }

    pub(super) fn at(&self, now: Now, account: AccountId) -> At {
        let (next, last) = match self.partitions.get(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => {
                let log = &own.log;
                (Dot::new(log.origin(), log.next()), log.hlc().last())
            }
            _ => (Dot::new(self.config.origin, 1), 0),
        };
        let wall_micros = self.stamps.stamp(now).wall_micros;
        At {
            // Not less than what others have written, where this node does not know the time.
            now_micros: match self.stamps.is_right(now) {
                true => wall_micros,
                false => wall_micros.max(last),
            },
            next,
        }
    }

    fn copy(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
        remove: bool,
    ) -> Result<Reply, Failure> {
        self.selected_exists(account, name)?;
        let (told, done);
        if remove {
            let plan =
                |replica: &Replica, at: &At, uids: &[u32]| replica.plan_move(at, name, uids, to);
            let moved = self.one_batch(now, account, uids, &[to], plan)?;
            (told, done) = (moved.0.uids, moved.1);
        } else {
            let at = self.at(now, account);
            let replica = self.replica(account)?;
            let sizes = replica
                .visible(name, uids)
                .map(|shown| u64::from(shown.size()));
            self.takes(account, uids.len(), sizes.sum())?;
            let plan = replica.plan_copy(&at, name, uids, to).map_err(failure)?;
            if !fits(replica, &plan) {
                return Err(Failure::Limit(
                    "Too many messages for one COPY: copy them in parts",
                ));
            }
            (told, done) = (plan.outcome.uids, uids.len());
            self.write(now, account, plan.ops, &[to]);
        }
        Ok(Reply::Copied {
            uid_validity: self.replica(account)?.uidvalidity(),
            uids: told,
            done,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one call")]
    fn store(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uids: &[u32],
        change: FlagChange,
        flags: &Flags,
        unchanged_since: Option<u64>,
    ) -> Result<Reply, Failure> {
        let mode = match change {
            FlagChange::Add => StoreMode::Add,
            FlagChange::Remove => StoreMode::Remove,
            FlagChange::Replace => StoreMode::Replace,
        };
        self.selected_exists(account, name)?;
        if !matches!(change, FlagChange::Remove) && !flags.keywords().is_empty() {
            self.may_grow(account)?;
            self.forget_keywords(account);
        }
        let replica = self.replica(account)?;
        let believed = unchanged_since.is_none_or(|since| replica.is_own_modseq(since));
        let modified: Vec<u32> = match unchanged_since {
            None => Vec::new(),
            Some(since) => replica
                .visible(name, uids)
                .filter(|shown| shown.modseq() > since || !believed)
                .map(|shown| shown.uid())
                .collect(),
        };
        // Both ascend.
        let mut left = modified.iter().peekable();
        let wanted: Vec<u32> = uids
            .iter()
            .copied()
            .filter(|uid| left.next_if_eq(&uid).is_none())
            .collect();
        let plan = |replica: &Replica, _: &At, uids: &[u32]| {
            replica.plan_store(name, uids, mode, flags, &|_| None)
        };
        self.in_batches(now, account, &wanted, plan)?;
        let rows = rows(self.replica(account)?, name, &wanted);
        Ok(Reply::Stored { rows, modified })
    }

    fn expunge(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uids: Option<Vec<u32>>,
        up_to: u32,
    ) -> Result<Reply, Failure> {
        self.selected_exists(account, name)?;
        let replica = self.replica(account)?;
        let before = status(replica, name)?;
        let messages_max = self.config.messages_per_call_max;
        let mut doomed: Vec<u32> = match uids {
            _ if before.deleted == 0 => Vec::new(),
            None => replica.deleted_uids(name, up_to, messages_max.saturating_add(1)),
            Some(uids) if uids.len() > MESSAGES_PER_CALL_MAX => {
                return Err(Failure::Limit("too many messages in one call"));
            }
            Some(uids) => {
                let shown = replica.visible(name, &uids);
                let deleted = shown.filter(|shown| shown.is_deleted());
                let uids = deleted.map(|shown| shown.uid());
                uids.filter(|uid| *uid <= up_to).collect()
            }
        };
        let done = self.take_away(now, account, name, &doomed)?;
        let more = done < doomed.len();
        doomed.truncate(done);
        let highest_modseq = status(self.replica(account)?, name)
            .map_or(before.highest_modseq, |status| status.highest_modseq);
        Ok(Reply::Expunged {
            uids: doomed,
            more,
            highest_modseq,
        })
    }

    fn remove(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uids: &[u32],
    ) -> Result<Reply, Failure> {
        self.selected_exists(account, name)?;
        let plan = |replica: &Replica, _: &At, uids: &[u32]| replica.plan_expunge(name, uids);
        self.in_batches(now, account, uids, plan)?;
        if !uids.is_empty() {
            self.collect_soon(now, account);
        }
        Ok(Reply::Done)
    }

    /// Removes the first of these messages, as many as one call may; says how many.
    fn take_away(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uids: &[u32],
    ) -> Result<usize, Failure> {
        if uids.is_empty() {
            return Ok(0);
        }
        let plan = |replica: &Replica, _: &At, uids: &[u32]| replica.plan_expunge(name, uids);
        let (_, done) = self.one_batch(now, account, uids, &[], plan)?;
        self.collect_soon(now, account);
        Ok(done)
    }
}

/// What has changed since a MODSEQ that a client names. One that this replica did not give out says nothing of what the client has seen.
fn since(replica: &Replica, name: &MailboxName, modseq: u64, vanished: bool) -> Since {
    if !replica.is_own_modseq(modseq) {
        return Since::default();
    }
    let gone = vanished.then(|| replica.vanished_since(name, modseq));
    Since {
        believed: true,
        changed: replica.changed_since(name, modseq),
        vanished: gone.flatten(),
    }
}

pub(super) fn status(replica: &Replica, name: &MailboxName) -> Result<Status, Failure> {
    let status = replica.status(name).ok_or(Failure::NoSuchMailbox)?;
    Ok(Status {
        id: status.id,
        uid_validity: status.uidvalidity,
        uid_next: status.uidnext,
        messages: status.messages,
        unseen: status.unseen,
        deleted: status.deleted,
        size: status.size,
        deleted_size: status.deleted_size,
        open_ends: status.open_ends,
        highest_modseq: status.highestmodseq,
    })
}

/// The messages that a session knows by these UIDs, under these UIDs: a claim made since then is told by EXPUNGE and EXISTS, not here.
pub(super) fn rows(replica: &Replica, name: &MailboxName, uids: &[u32]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(uids.len());
    rows.extend(replica.visible(name, uids).map(row));
    rows
}

fn row(shown: VisibleMessage<'_>) -> Row {
    let found = shown.row();
    Row {
        uid: found.uid,
        id: found.message,
        origin: found.origin,
        flags: found.flags,
        modseq: found.modseq,
        size: found.size,
        open_end: found.open_end,
        date: found.date,
        saved: found.saved,
        blob: found.blob,
    }
}

pub(super) fn failure(error: PlanError) -> Failure {
    match error {
        PlanError::NoMailbox => Failure::NoSuchMailbox,
        PlanError::Exists => Failure::Exists,
        PlanError::Inbox => Failure::Inbox,
        PlanError::Name(_) | PlanError::IntoItself => Failure::BadName,
        PlanError::TooManyMailboxes => Failure::Limit("too many mailboxes"),
        PlanError::TooManyKeywords => Failure::Limit("too many keywords"),
        PlanError::NotOpen => Failure::Temporary,
        PlanError::NoUids => Failure::Limit("no UIDs are left"),
    }
}
