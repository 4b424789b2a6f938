//! From what is in memory, and what was planned, to what the API tells.

use whimbrel_mailbox::{MailboxName, NewMessage, PlanError, Replica, VisibleMessage};

use crate::api::{Failure, NewMail, Row, Since, Status};

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

/// What has changed since a MODSEQ that a client names. One that this replica did not give out says nothing of what the client has seen.
pub(super) fn since(replica: &Replica, name: &MailboxName, modseq: u64, vanished: bool) -> Since {
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

pub(super) fn row(shown: VisibleMessage<'_>) -> Row {
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
