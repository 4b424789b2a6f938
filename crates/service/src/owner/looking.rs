//! What sessions see of an account: the list of names, a selected mailbox, and what has changed in it.

use whimbrel_mailbox::{AccountId, ListedName, MailboxName, PageSize};

use super::{
    Mail,
    answers::{rows, status},
    sessions::{SessionView, Watch},
};
use crate::{
    api::{
        CHANGES_PER_CALL_MAX, Changes, Failure, Mailbox, NAMES_BYTES_PER_CALL_MAX,
        NAMES_PER_CALL_MAX, Reply, Selected, SessionId,
    },
    machine::Now,
};

pub(super) fn list(
    mail: &Mail,
    account: AccountId,
    top: Option<&MailboxName>,
    after: Option<&MailboxName>,
    uses: bool,
) -> Result<Reply, Failure> {
    let size = PageSize {
        names_max: NAMES_PER_CALL_MAX,
        bytes_max: NAMES_BYTES_PER_CALL_MAX,
    };
    let (names, more) = mail
        .accounts
        .replica(account)?
        .names_after(top, after, uses, size);
    let names = names.into_iter().map(|ListedName { info, below }| Mailbox {
        exists: info.id.is_some(),
        name: info.name,
        special_use: info.special_use,
        subscribed: info.subscribed,
        below,
    });
    Ok(Reply::Mailboxes {
        names: names.collect(),
        more,
    })
}

pub(super) fn select(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    session: SessionId,
    name: MailboxName,
) -> Result<Reply, Failure> {
    mail.hangup(session);
    let told = mail.accounts.replica(account)?.announced_uidnext(&name);
    mail.write(now, account, Vec::new(), &[&name]);
    let replica = mail.accounts.replica(account)?;
    let status = status(replica, &name)?;
    let uids = replica.uid_list(&name);
    let first_unseen = replica.first_unseen(&name).and_then(|uid| uids.place(uid));
    let keywords = replica.keywords(&name);
    let as_of = status.highest_modseq;
    let watch = Watch {
        account,
        name,
        id: status.id,
        knows: SessionView {
            up_to: uids.last().unwrap_or(0),
            vanished_since: as_of,
        },
        before: None,
    };
    mail.sessions.begin(session, watch);
    if let Some(entry) = mail.accounts.get_mut(&account) {
        entry.watchers.insert(session);
    }
    mail.agenda.watched(account);
    Ok(Reply::Selected(Selected {
        status,
        uids,
        first_unseen: first_unseen.map(|place| place as u32),
        keywords,
        as_of,
        told,
    }))
}

pub(super) fn changes(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    session: SessionId,
    since: u64,
    expunges: bool,
) -> Result<Reply, Failure> {
    let watch = mail.sessions.get(session).ok_or(Failure::Gone)?;
    let (knew, name, id) = (watch.knows, watch.name.clone(), watch.id);
    let (known_up_to, vanished_since) = (knew.up_to, knew.vanished_since);
    mail.write(now, account, Vec::new(), &[&name]);
    let replica = mail.accounts.replica(account)?;
    let Ok(status) = status(replica, &name) else {
        return Ok(Reply::Changes(Changes {
            as_of: since,
            ..Changes::default()
        }));
    };
    // Others that bear the name take nothing away: names, UIDs and UIDVALIDITY hold.
    let is_there = replica.bears(id, &name);
    let id = if is_there { id } else { status.id };
    // Whatever this session was not told of came after its last answer.
    let arrived = replica.uids_above(&name, known_up_to);
    let part = replica.changed_part(&name, since, known_up_to, CHANGES_PER_CALL_MAX);
    let changed = rows(replica, &name, &part.uids);
    let as_of = part.up_to.unwrap_or(status.highest_modseq);
    let more = as_of < status.highest_modseq;
    let (mut vanished, mut present, mut held_back) = (Vec::new(), None, None);
    if !expunges {
        let gone = replica.has_vanished_since(&name, vanished_since, known_up_to);
        held_back = gone.unwrap_or(true).then_some(vanished_since);
    } else if let Some(gone) = replica.vanished_since(&name, vanished_since) {
        vanished = gone;
        vanished.retain(|uid| *uid <= known_up_to);
    } else {
        present = Some(replica.uids(&name));
    }
    let entry = mail.accounts.get(&account);
    let under_way = entry.and_then(|entry| entry.under_way(&mail.out));
    if let Some(watch) = mail.sessions.get_mut(session) {
        watch.before = under_way.map(|ticket| (ticket, knew));
        watch.knows.up_to = arrived.last().copied().unwrap_or(known_up_to);
        if held_back.is_none() {
            watch.knows.vanished_since = status.highest_modseq;
        }
    }
    Ok(Reply::Changes(Changes {
        vanished,
        arrived,
        changed,
        present,
        held_back,
        id: Some(id),
        more,
        highest_modseq: status.highest_modseq,
        uid_next: status.uid_next,
        as_of,
    }))
}

pub(super) fn known(mail: &Mail, account: AccountId, session: SessionId) -> Result<Reply, Failure> {
    let watch = mail.sessions.get(session).ok_or(Failure::Gone)?;
    let replica = mail.accounts.replica(account)?;
    let gone = replica.vanished_since(&watch.name, watch.knows.vanished_since);
    Ok(Reply::Known(gone.map(|gone| {
        let mut uids = replica.uids(&watch.name);
        uids.extend(gone);
        uids.retain(|uid| *uid <= watch.knows.up_to);
        uids.sort_unstable();
        uids.dedup();
        uids
    })))
}
