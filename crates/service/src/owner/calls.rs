//! What each call does to an account in memory.

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, At, Flags, MailboxName, Op, Replica, StoreMode};

use super::{
    Mail,
    answers::{failure, new_message, row, rows, since, status},
    confirming,
    failover::{self, Names},
    held_answers, imports, looking,
    sent_copies::{self, SentCopies, SentMessage},
    split_commits::{fits, fits_append},
};
use crate::{
    api::{
        Call, Failure, FlagChange, MESSAGES_PER_CALL_MAX, MailboxCall, NewMail, ROWS_PER_CALL_MAX,
        Replaced, Reply, STATUSES_PER_CALL_MAX,
    },
    machine::{Input, MinUidValidity, Now, Output, RequestId},
};

/// How many messages one [`MailboxCall::Flagged`] looks at, where no list says which have the flags: some tenths of a millisecond, in which
/// other calls wait.
const FLAGGED_LOOKS_MAX: usize = 16 * 1024;

/// Calls of sessions.
#[derive(Default)]
pub(super) struct Calls {
    /// Second copies of sent mail that are looked for.
    pub(super) sent: SentCopies,
}

impl Calls {
    pub(super) fn carry_out(
        &mut self,
        mail: &mut Mail,
        now: Now,
        account: AccountId,
        call: MailboxCall,
    ) -> Result<Reply, Failure> {
        match call {
            MailboxCall::List { top, after, uses } => {
                looking::list(mail, account, top.as_ref(), after.as_ref(), uses)
            }
            MailboxCall::Usage => Ok(Reply::Usage(mail.usage(account)?)),
            MailboxCall::Status { name } => {
                mail.write(now, account, Vec::new(), &[&name]);
                Ok(Reply::Status(status(
                    mail.accounts.replica(account)?,
                    &name,
                )?))
            }
            MailboxCall::Statuses { mut names } => {
                names.truncate(STATUSES_PER_CALL_MAX);
                // All that is told of them is on disk by one commit.
                mail.write(now, account, Vec::new(), &names.iter().collect::<Vec<_>>());
                let replica = mail.accounts.replica(account)?;
                let all = names.iter().map(|name| status(replica, name));
                Ok(Reply::Statuses(all.collect()))
            }
            MailboxCall::Select { session, name, .. } => {
                looking::select(mail, now, account, session, name)
            }
            MailboxCall::Unselect { session } => {
                mail.hangup(session);
                Ok(Reply::Done)
            }
            MailboxCall::Changes {
                session,
                since,
                expunges,
            } => looking::changes(mail, now, account, session, since, expunges),
            MailboxCall::Known { session } => looking::known(mail, account, session),
            MailboxCall::Since {
                name,
                modseq,
                vanished,
            } => {
                selected_exists(mail, account, &name)?;
                let replica = mail.accounts.replica(account)?;
                Ok(Reply::Since(since(replica, &name, modseq, vanished)))
            }
            MailboxCall::Believed { modseqs } => Ok(Reply::Believed(failover::believed(
                mail, now, account, modseqs,
            )?)),
            MailboxCall::Rows { name, uids } => {
                let uids = &uids[..uids.len().min(ROWS_PER_CALL_MAX)];
                Ok(Reply::Rows(rows(
                    mail.accounts.replica(account)?,
                    &name,
                    uids,
                )))
            }
            MailboxCall::Flagged {
                name,
                from,
                to,
                set,
                unset,
            } => {
                let (rows_max, looks_max) = (ROWS_PER_CALL_MAX, FLAGGED_LOOKS_MAX);
                let replica = mail.accounts.replica(account)?;
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
            } => self.append(mail, now, account, &name, messages, replaces),
            MailboxCall::Import { name, messages } => {
                imports::import(mail, now, account, &name, messages)
            }
            MailboxCall::Copy {
                name,
                uids,
                to,
                remove,
                ..
            } => copy(mail, now, account, &name, &uids, &to, remove),
            MailboxCall::Store {
                name,
                uids,
                change,
                flags,
                unchanged_since,
                ..
            } => store(
                mail,
                now,
                account,
                &name,
                &uids,
                change,
                &flags,
                unchanged_since,
            ),
            MailboxCall::Expunge {
                name, uids, up_to, ..
            } => expunge(mail, now, account, &name, uids, up_to),
            MailboxCall::Remove { name, uids } => remove(mail, now, account, &name, &uids),
            MailboxCall::Create { name, special_use } => {
                let at = mail.at(now, account);
                let plan = mail
                    .accounts
                    .replica(account)?
                    .plan_create(&at, &name, special_use)
                    .map_err(failure)?;
                let id = plan.outcome.id;
                mail.takes_mailboxes(account, plan.ops.len())?;
                mail.write(now, account, plan.ops, &[]);
                Ok(Reply::Created(id))
            }
            MailboxCall::Delete { name } => delete(mail, now, account, &name),
            MailboxCall::Rename { from, to, rest } => match rest {
                None => rename(mail, now, account, &from, &to),
                Some(up_to) => rename_inbox(mail, now, account, &to, up_to),
            },
            MailboxCall::Named {
                name,
                uid_validity,
                numbers,
                told,
                modseq,
            } => {
                let mut elsewhere = false;
                if mail.accounts.replica(account)?.uidvalidity() == uid_validity {
                    let names = Names {
                        name: &name,
                        numbers: &numbers,
                        told,
                        modseq,
                    };
                    elsewhere = failover::named(mail, now, account, &names)?;
                }
                Ok(Reply::Named { elsewhere })
            }
            MailboxCall::Subscribe { name, subscribed } => {
                let replica = mail.accounts.replica(account)?;
                let ops = if subscribed {
                    replica.plan_subscribe(&name).map_err(failure)?.ops
                } else {
                    replica.plan_unsubscribe(&name).ops
                };
                mail.write(now, account, ops, &[]);
                Ok(Reply::Done)
            }
        }
    }

    /// APPEND and REPLACE: one batch, whatever the number of messages.
    fn append(
        &mut self,
        mail: &mut Mail,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        messages: Vec<NewMail>,
        replaces: Option<Replaced>,
    ) -> Result<Reply, Failure> {
        if messages.iter().any(|new| !new.flags.keywords().is_empty())
            && let Some(replica) = mail.accounts.replica_mut(account)
        {
            replica.forget_keywords();
        }
        let at = mail.at(now, account);
        let replica = mail.accounts.replica(account)?;
        let contents: Vec<Bytes> = if sent_copies::is_for_sent(mail, account, name) {
            messages.iter().map(|new| new.content.clone()).collect()
        } else {
            Vec::new()
        };
        let bytes = messages.iter().map(|new| u64::from(new.size)).sum::<u64>();
        let replaced = replaces.as_ref().and_then(|replaced| {
            let Replaced { name, uid } = replaced;
            Some(u64::from(replica.row(name, *uid)?.size))
        });
        mail.takes(
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
        mail.write(now, account, plan.ops, &[name]);
        let uids = plan.outcome;
        for (uid, content) in uids.iter().zip(contents) {
            // It may wait for other nodes before it is shown.
            let replica = mail.accounts.replica(account).ok();
            if let Some(message) = replica.and_then(|replica| replica.claimant(name, *uid)) {
                let put = SentMessage {
                    account,
                    message,
                    content,
                };
                self.sent.came(mail, now, name, put, false);
            }
        }
        if replaces.is_some() {
            mail.collect_soon(now, account);
        }
        Ok(Reply::Appended {
            uid_validity: mail.accounts.replica(account)?.uidvalidity(),
            uids,
        })
    }

    pub(super) fn mailbox_call(
        &mut self,
        mail: &mut Mail,
        now: Now,
        request: RequestId,
        account: AccountId,
        call: Call,
    ) {
        let input = Input::Call(request, call);
        let Ok(Input::Call(
            request,
            Call::Mailbox {
                call,
                uid_validity,
                other_nodes,
                ..
            },
        )) = mail.ready(account, input)
        else {
            return;
        };
        mail.epoch_if_due(now, account, 0);
        let target = held_answers::tells_uids_of(&call);
        let refused = call.writes() && !mail.takes_writes(now, account);
        let confirm = confirming::to_be_confirmed(mail, account, &call, other_nodes);
        if matches!(confirm, Err(Failure::TooFewNodes)) {
            mail.counted.answers_too_few += 1;
        }
        let done = match (refused, confirm) {
            (true, _) => Err(Failure::Clock),
            (false, Err(failure)) => Err(failure),
            (false, Ok(confirm)) => is_of(mail, account, uid_validity)
                .and_then(|()| self.carry_out(mail, now, account, call))
                .map(|reply| (reply, confirm)),
        };
        let reply = match done {
            Ok((reply, confirm)) => {
                let confirm = confirm.and_then(|of| confirming::confirm(mail, now, account, of));
                held_answers::hold(mail, account, request, target, reply, confirm)
            }
            Err(failure) => {
                mail.warn_of_memory(account, &failure);
                Some(Reply::Failed(failure))
            }
        };
        if let Some(reply) = reply {
            mail.answer(account, Output::Reply(request, reply));
        }
    }
}

/// UIDVALIDITY may have risen while a session's command was under way: its UIDs mean other messages then, or none.
pub(super) fn is_of(
    mail: &Mail,
    account: AccountId,
    uid_validity: Option<u32>,
) -> Result<(), Failure> {
    match uid_validity {
        Some(told) if mail.accounts.replica(account)?.uidvalidity() != told => Err(Failure::Gone),
        _ => Ok(()),
    }
}

/// A large mailbox is emptied batch by batch first, each in a call of its own.
fn delete(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
) -> Result<Reply, Failure> {
    // Refusals come before anything is removed.
    if name.is_inbox() {
        return Err(Failure::Inbox);
    }
    let messages_max = mail.config.messages_per_call_max;
    let replica = mail.accounts.replica(account)?;
    if status(replica, name)?.messages as usize <= messages_max {
        let plan = replica.plan_delete(name).map_err(failure)?;
        if fits(replica, &plan) {
            mail.write(now, account, plan.ops, &[]);
            mail.collect_soon(now, account);
            return Ok(Reply::Done);
        }
    }
    let uids = replica.first_uids(name, u32::MAX, messages_max);
    take_away(mail, now, account, name, &uids)?;
    Ok(Reply::Partly { rest: None })
}

/// RENAME INBOX of a large INBOX is CREATE and MOVE, batch by batch; any other is one commit.
fn rename(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    from: &MailboxName,
    to: &MailboxName,
) -> Result<Reply, Failure> {
    let at = mail.at(now, account);
    let replica = mail.accounts.replica(account)?;
    if from.is_inbox() {
        let status = status(replica, from)?;
        if status.messages as usize <= mail.config.messages_per_call_max {
            let plan = replica.plan_rename(&at, from, to).map_err(failure)?;
            let creates = plan
                .ops
                .iter()
                .filter(|op| matches!(op, Op::CreateMailbox(_)));
            mail.takes_mailboxes(account, creates.count())?;
            if fits(replica, &plan) {
                mail.write(now, account, plan.ops, &[]);
                return Ok(Reply::Done);
            }
        }
        let create = replica.plan_create(&at, to, None).map_err(failure)?;
        mail.takes_mailboxes(account, create.ops.len())?;
        mail.write(now, account, create.ops, &[]);
        // What comes meanwhile stays.
        return rename_inbox(mail, now, account, to, status.uid_next - 1);
    }
    let mut plan = replica.plan_rename(&at, from, to).map_err(failure)?;
    let creates = plan
        .ops
        .iter()
        .filter(|op| matches!(op, Op::CreateMailbox(_)));
    mail.takes_mailboxes(account, creates.count())?;
    let claims = plan.ops.pop_if(|op| matches!(op, Op::Claim { .. }));
    if !fits(replica, &plan) {
        return Err(Failure::Limit("Too many names for one RENAME"));
    }
    plan.ops.extend(claims);
    if fits(replica, &plan) {
        mail.write(now, account, plan.ops, &[]);
        return Ok(Reply::Done);
    }
    // What is claimed again is above every mark, so there is less of it the next time.
    let claims = replica
        .plan_claims_for_rename(&at, from, to)
        .map_err(failure)?;
    assert!(!claims.ops.is_empty(), "claims are what does not fit");
    mail.write(now, account, claims.ops, &[]);
    Ok(Reply::Partly { rest: None })
}

/// Moves some of what was in INBOX when its RENAME began, whose greatest UID is `up_to`.
fn rename_inbox(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    to: &MailboxName,
    up_to: u32,
) -> Result<Reply, Failure> {
    let inbox = MailboxName::inbox();
    let messages_max = mail.config.messages_per_call_max;
    let replica = mail.accounts.replica(account)?;
    let uids = replica.first_uids(&inbox, up_to, messages_max.saturating_add(1));
    if uids.is_empty() {
        return Ok(Reply::Done);
    }
    let plan = |replica: &Replica, at: &At, uids: &[u32]| replica.plan_move(at, &inbox, uids, to);
    let (_, done) = mail.one_batch(now, account, &uids, &[to], plan)?;
    if done == uids.len() {
        return Ok(Reply::Done);
    }
    Ok(Reply::Partly { rest: Some(up_to) })
}

/// A session's mailbox may be deleted or renamed under it.
fn selected_exists(mail: &Mail, account: AccountId, name: &MailboxName) -> Result<(), Failure> {
    if mail.accounts.replica(account)?.exists(name) {
        Ok(())
    } else {
        Err(Failure::Gone)
    }
}

fn copy(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
    uids: &[u32],
    to: &MailboxName,
    remove: bool,
) -> Result<Reply, Failure> {
    selected_exists(mail, account, name)?;
    let (told, done);
    if remove {
        let plan = |replica: &Replica, at: &At, uids: &[u32]| replica.plan_move(at, name, uids, to);
        let moved = mail.one_batch(now, account, uids, &[to], plan)?;
        (told, done) = (moved.0.uids, moved.1);
    } else {
        let at = mail.at(now, account);
        let replica = mail.accounts.replica(account)?;
        let sizes = replica
            .visible(name, uids)
            .map(|shown| u64::from(shown.size()));
        mail.takes(account, uids.len(), sizes.sum())?;
        let plan = replica.plan_copy(&at, name, uids, to).map_err(failure)?;
        if !fits(replica, &plan) {
            return Err(Failure::Limit(
                "Too many messages for one COPY: copy them in parts",
            ));
        }
        (told, done) = (plan.outcome.uids, uids.len());
        mail.write(now, account, plan.ops, &[to]);
    }
    Ok(Reply::Copied {
        uid_validity: mail.accounts.replica(account)?.uidvalidity(),
        uids: told,
        done,
    })
}

#[allow(clippy::too_many_arguments, reason = "the parts of one call")]
fn store(
    mail: &mut Mail,
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
    selected_exists(mail, account, name)?;
    if !matches!(change, FlagChange::Remove) && !flags.keywords().is_empty() {
        mail.may_grow(account)?;
        if let Some(replica) = mail.accounts.replica_mut(account) {
            replica.forget_keywords();
        }
    }
    let replica = mail.accounts.replica(account)?;
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
    mail.in_batches(now, account, &wanted, plan)?;
    let rows = rows(mail.accounts.replica(account)?, name, &wanted);
    Ok(Reply::Stored { rows, modified })
}

fn expunge(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
    uids: Option<Vec<u32>>,
    up_to: u32,
) -> Result<Reply, Failure> {
    selected_exists(mail, account, name)?;
    let replica = mail.accounts.replica(account)?;
    let before = status(replica, name)?;
    let messages_max = mail.config.messages_per_call_max;
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
    let done = take_away(mail, now, account, name, &doomed)?;
    let more = done < doomed.len();
    doomed.truncate(done);
    let highest_modseq = status(mail.accounts.replica(account)?, name)
        .map_or(before.highest_modseq, |status| status.highest_modseq);
    Ok(Reply::Expunged {
        uids: doomed,
        more,
        highest_modseq,
    })
}

fn remove(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
    uids: &[u32],
) -> Result<Reply, Failure> {
    selected_exists(mail, account, name)?;
    let plan = |replica: &Replica, _: &At, uids: &[u32]| replica.plan_expunge(name, uids);
    mail.in_batches(now, account, uids, plan)?;
    if !uids.is_empty() {
        mail.collect_soon(now, account);
    }
    Ok(Reply::Done)
}

/// Removes the first of these messages, as many as one call may; says how many.
fn take_away(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
    uids: &[u32],
) -> Result<usize, Failure> {
    if uids.is_empty() {
        return Ok(0);
    }
    let plan = |replica: &Replica, _: &At, uids: &[u32]| replica.plan_expunge(name, uids);
    let (_, done) = mail.one_batch(now, account, uids, &[], plan)?;
    mail.collect_soon(now, account);
    Ok(done)
}

/// The directory has found a UIDVALIDITY too low. Where another node has raised it, it learns that of each that is asked.
pub(super) fn raise(mail: &mut Mail, now: Now, account: AccountId, least: MinUidValidity) {
    let input = Input::LeastUidValidity(account, least);
    if mail.ready(account, input).is_err() {
        return;
    }
    match mail.accounts.replica(account).map(Replica::uidvalidity) {
        Ok(known) if known >= least.least => {
            mail.out.push(Output::UidValidity(account, known));
        }
        _ => mail.epoch_if_due(now, account, least.next),
    }
}
