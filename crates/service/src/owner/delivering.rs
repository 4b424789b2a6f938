//! Deliveries of the queue are made.

use std::sync::Arc;

use whimbrel_mailbox::{AccountId, Flag, Flags, MailboxName, NewMessage, Op};

use super::{
    Mail, Partition,
    calls::Calls,
    deliveries::Made,
    keys,
    sent_copies::{self, SentMessage},
};
use crate::{
    api::Entry,
    machine::{Input, Note, Now, Output, RequiredCopies, Ticket},
};

impl Calls {
    /// A delivery of the queue. What was delivered before is done already; an account that does not exist takes nothing.
    pub(super) fn deliver(
        &mut self,
        mail: &mut Mail,
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
        let Ok(Input::Deliver { others, .. }) = mail.ready(account, input) else {
            return;
        };
        if !mail.stamps.is_right(now) {
            // It stays in the queue.
            return mail.out.push(Output::NotDelivered(ticket));
        }
        mail.epoch_if_due(now, account, 0);
        let at = mail.at(now, account);
        let message = NewMessage {
            flags: Flags::none(),
            blob: entry.blob,
            size: delivery.size,
            open_end: delivery.open_end,
            date: entry.date,
            content: delivery.content.to_vec(),
        };
        let Ok(replica) = mail.accounts.replica(account) else {
            return;
        };
        let name = if delivery.sent {
            match sent_copies::sent_mailbox(mail, account) {
                Some(name) => name,
                // Nobody wants to have it.
                None => return mail.answer(account, Output::Delivered(ticket)),
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
                mail.write_for(now, account, plan.ops, &[], true, None);
                let replica = mail.accounts.replica(account).ok();
                let put = uid.filter(|_| delivery.sent);
                let put = put.and_then(|uid| replica?.claimant(&name, uid));
                if let Some(message) = put {
                    let put = SentMessage {
                        account,
                        message,
                        content: delivery.content.clone(),
                    };
                    self.sent.came(mail, now, &name, put, true);
                }
                if uid.is_some() {
                    mail.out.push(Output::Log(Note::Delivered {
                        entry: entry.id.to_string(),
                        account,
                    }));
                }
                delivered(mail, account, ticket, &entry, uid.is_some(), others);
            }
            Err(error) => {
                // The entry stays in the queue and is tried again.
                mail.out.push(Output::Log(Note::Warning(format!(
                    "entry {} cannot be delivered to {account}: {error}",
                    entry.id
                ))));
                mail.out.push(Output::NotDelivered(ticket));
            }
        }
    }
}

/// A delivery is made: just now by us, or before, by whomever. Answers the queue, at once or when enough others have it.
fn delivered(
    mail: &mut Mail,
    account: AccountId,
    ticket: Ticket,
    entry: &Entry,
    now: bool,
    others: RequiredCopies,
) {
    if others.needed == 0 {
        return mail.answer(account, Output::Delivered(ticket));
    }
    let partition = keys::partition_of(account);
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return;
    };
    let (applied, origin) = (own.log.applied(), own.log.origin());
    let vector = match now {
        true => [(origin, applied.get(origin))].into_iter().collect(),
        false => applied.clone(),
    };
    let made = Made {
        vector,
        others,
        body: entry.blob,
    };
    mail.deliveries.made(partition, entry.id, ticket, made);
    mail.acknowledge(partition);
}
