//! Answers that wait: until messages are shown whose UIDs they tell, or until other nodes have what was written.
//!
//! Invariant: an answer that tells UIDs tells those under which the messages are shown.

use whimbrel_crdt::{Stamp, mutants::broken};
use whimbrel_mailbox::{AccountId, MailboxName, MessageId, Visibility};

use super::{
    Mail, Phase,
    confirming::{self, Confirm, OtherNodes},
};
use crate::{
    api::{Failure, MailboxCall, Reply},
    machine::{Now, Output, RequestId, Ticket},
};

/// An answer that waits until the messages whose UIDs it tells are shown, or until other nodes have what was written, or both.
pub(super) struct WaitingAnswer {
    request: RequestId,
    /// Where messages were put whose UIDs it tells, and which these are.
    target: Option<MailboxName>,
    messages: Vec<MessageId>,
    /// Tells the UIDs that were claimed first.
    reply: Reply,
    pub(super) others: OtherNodes,
    /// What is taken back when they do not have it in time; `None`: it is done, whatever others have.
    put: Option<Vec<(MessageId, Stamp)>>,
    /// The commit that it tells of; `None`: it was durable.
    commit: Option<Ticket>,
}

impl WaitingAnswer {
    /// A commit of the partition has failed, and is the first that did. Whether the answer tells of what is durable, and so is given when the account
    /// was read again. What others had to have is taken back then, since it is not known any more how far they are.
    pub(super) fn outlives(&mut self, failed: Ticket) -> bool {
        if self.commit.is_some_and(|commit| commit >= failed) || broken("refused-stays") {
            return false;
        }
        if matches!(self.others, OtherNodes::Awaited(_)) {
            self.others = OtherNodes::TooFew;
        }
        true
    }

    /// What is told when it will never be known.
    pub(super) fn refused(self, failure: Failure) -> Output {
        Output::Reply(self.request, Reply::Failed(failure))
    }
}

/// The mailbox of which the answer to this call tells new UIDs. An importer is told of UIDs, too, and tells them to nobody.
pub(super) fn tells_uids_of(call: &MailboxCall) -> Option<MailboxName> {
    match call {
        MailboxCall::Append { name, .. } => Some(name.clone()),
        MailboxCall::Copy { to, .. } => Some(to.clone()),
        _ => None,
    }
}

/// The new UIDs that an answer tells, in its order.
fn told_uids(reply: &mut Reply) -> Vec<&mut u32> {
    match reply {
        Reply::Appended { uids, .. } => uids.iter_mut().collect(),
        Reply::Copied { uids, .. } => uids.iter_mut().map(|(_, new)| new).collect(),
        _ => Vec::new(),
    }
}

// --- Answers that are held ------------------------------------------------------------------------------------------

/// Keeps an answer for which other nodes must have what was written, or that tells UIDs (of messages in `target`) which are not shown; gives it back if
/// it need not be kept.
pub(super) fn hold(
    mail: &mut Mail,
    account: AccountId,
    request: RequestId,
    target: Option<MailboxName>,
    mut reply: Reply,
    confirm: Option<Confirm>,
) -> Option<Reply> {
    let entry = mail.accounts.get_mut(&account);
    let commit = entry.as_ref().and_then(|entry| entry.newest);
    let (kept, replica) = match entry.map(|entry| (&mut entry.held, &entry.phase)) {
        Some((kept, Phase::Running(replica))) => (kept, replica),
        _ if confirm.is_some() => return Some(Reply::Failed(Failure::Temporary)),
        _ => return Some(reply),
    };
    let told_at_once = replica.is_clean() || broken("uids-told-at-once");
    let mut messages = Vec::new();
    if let Some(target) = target
        .as_ref()
        .filter(|_| confirm.is_some() || !told_at_once)
    {
        let claimed = told_uids(&mut reply);
        let claimants = claimed.iter().map(|uid| replica.claimant(target, **uid));
        messages = claimants.collect::<Option<_>>().unwrap_or_default();
    }
    let shown = |of| matches!(replica.visibility(of), Visibility::VisibleMessage(_));
    if confirm.is_none() && (told_at_once || messages.iter().all(shown)) {
        return Some(reply);
    }
    let put = confirm.as_ref().filter(|of| of.adds).map(|_| {
        let put = messages.iter().map(|of| Some((*of, replica.placed(of)?)));
        put.flatten().collect()
    });
    if confirm.is_none() {
        mail.agenda.answer(account);
    }
    kept.push(WaitingAnswer {
        request,
        target,
        messages,
        reply,
        others: confirm.map_or(OtherNodes::Enough, |of| OtherNodes::Awaited(of.number)),
        put,
        commit,
    });
    None
}

/// Gives the answers that need not be held any more, whatever it is.
pub(super) fn answer_all_held(mail: &mut Mail, now: Now) {
    for account in mail.agenda.take_answers() {
        answer_held(mail, now, account);
        let entry = mail.accounts.get(&account);
        let waits = |held: &WaitingAnswer| !matches!(held.others, OtherNodes::Awaited(_));
        if entry.is_some_and(|entry| entry.held.iter().any(waits)) {
            mail.agenda.answer(account);
        }
    }
}

/// Under which UIDs messages are told to be in a mailbox, where they are shown now. Of what is not, or not any more, the claim is told that was
/// made for it, and so the mailbox's UIDNEXT is above it.
fn tell_uids_of<'a>(
    mail: &mut Mail,
    account: AccountId,
    target: &MailboxName,
    told: impl Iterator<Item = (&'a mut u32, &'a MessageId)>,
) {
    let entry = mail.accounts.get_mut(&account);
    let Some(Phase::Running(replica)) = entry.map(|entry| &mut entry.phase) else {
        return;
    };
    for (uid, message) in told {
        match replica.visibility(message) {
            Visibility::VisibleMessage(shown) if replica.resolve(target, shown) == Some(shown) => {
                *uid = shown;
            }
            // Once its body comes, or its wait ends, it is claimed again: what was told of its mailbox is above this claim.
            _ => replica.announce_uid(target, *uid),
        }
    }
}

fn answer_held(mail: &mut Mail, now: Now, account: AccountId) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Phase::Running(replica) = &mut entry.phase else {
        return;
    };
    let is_ready = |held: &mut WaitingAnswer| match held.others {
        OtherNodes::Awaited(_) => false,
        OtherNodes::Enough => !waits(replica, &held.messages),
        OtherNodes::TooFew => true,
    };
    let ready: Vec<WaitingAnswer> = entry.held.extract_if(.., is_ready).collect();
    for mut held in ready {
        if matches!(held.others, OtherNodes::TooFew) {
            let failure = confirming::not_confirmed(mail, now, account, held.put.as_deref());
            mail.answer(account, held.refused(failure));
            continue;
        }
        let Ok(replica) = mail.accounts.replica(account) else {
            return;
        };
        // In an epoch that is over it was what it is told with: of the present one it says nothing.
        let is_of_now = match &held.reply {
            Reply::Appended { uid_validity, .. } | Reply::Copied { uid_validity, .. } => {
                *uid_validity == replica.uidvalidity()
            }
            _ => true,
        };
        if let Some(target) = held.target.as_ref().filter(|_| is_of_now) {
            let told = told_uids(&mut held.reply).into_iter();
            tell_uids_of(mail, account, target, told.zip(&held.messages));
            mail.write(now, account, Vec::new(), &[target]);
        }
        mail.answer(account, Output::Reply(held.request, held.reply));
    }
}

/// For a body no answer waits: nobody may have it.
fn waits(replica: &whimbrel_mailbox::Replica, messages: &[MessageId]) -> bool {
    let mut standings = messages.iter().map(|message| replica.visibility(message));
    standings.any(|visibility| visibility == Visibility::Waits)
}
