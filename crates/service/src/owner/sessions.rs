//! Sessions that look at mailboxes, and what each of them was told.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, Effects, MailboxName};

use super::{keys::partition_of, outbox::Outbox};
use crate::{
    api::{Event, MailboxId, SessionId},
    machine::{Note, Output, Ticket},
};

/// A session that looks at a mailbox.
pub(super) struct Watch {
    pub(super) account: AccountId,
    pub(super) name: MailboxName,
    /// What the session was told it has selected.
    pub(super) id: MailboxId,
    pub(super) knows: SessionView,
    /// What it knows if this commit fails, and with it the last answer. A session asks one thing at a time.
    pub(super) before: Option<(Ticket, SessionView)>,
}

/// What a session was told of the mailbox that it looks at.
#[derive(Clone, Copy)]
pub(super) struct SessionView {
    /// The greatest UID.
    pub(super) up_to: u32,
    /// Up to which MODSEQ what vanished.
    pub(super) vanished_since: u64,
}

#[derive(Default)]
pub(super) struct Sessions(BTreeMap<SessionId, Watch>);

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&Watch> {
        self.0.get(&session)
    }

    pub(super) fn get_mut(&mut self, session: SessionId) -> Option<&mut Watch> {
        self.0.get_mut(&session)
    }

    pub(super) fn begin(&mut self, session: SessionId, watch: Watch) {
        self.0.insert(session, watch);
    }

    /// The session looks at nothing any more.
    pub(super) fn end(&mut self, session: SessionId) -> Option<Watch> {
        self.0.remove(&session)
    }

    /// The session cannot go on: its client is to log in again.
    pub(super) fn shut_down(&mut self, out: &mut Outbox, session: SessionId) {
        self.0.remove(&session);
        out.push(Output::Notify(session, Event::Shutdown));
    }

    /// Tells those that watch a changed mailbox; ends those of the account if its UIDVALIDITY has risen.
    pub(super) fn changed(
        &mut self,
        out: &mut Outbox,
        account: AccountId,
        watchers: &mut BTreeSet<SessionId>,
        effects: &Effects,
        risen: Option<u32>,
    ) {
        for session in watchers.iter() {
            let watch = self.0.get(session);
            if watch.is_some_and(|watch| effects.changed.contains(&watch.name)) {
                out.push(Output::Notify(*session, Event::Changed));
            }
        }
        if let Some(uid_validity) = risen {
            // A session cannot be told of it (RFC 9051, 2.3.1.1): it ends.
            for session in std::mem::take(watchers) {
                self.shut_down(out, session);
            }
            out.push(Output::Log(Note::NewUidValidity(account)));
            out.push(Output::UidValidity(account, uid_validity));
        }
    }

    /// A commit has failed, and all answers that saw it: sessions do not know what these told.
    pub(super) fn unannounced(&mut self, partition: PartitionId, failed: Ticket) {
        let of_partition = |watch: &&mut Watch| partition_of(watch.account) == partition;
        for watch in self.0.values_mut().filter(of_partition) {
            let before = watch.before.take_if(|(waited, _)| *waited >= failed);
            if let Some((_, knew)) = before {
                watch.knows = knew;
            }
        }
    }
}
