//! Sessions that watch an account learn that it has changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_mailbox::{AccountId, Effects};

use super::Watch;
use crate::{
    api::{Event, SessionId},
    machine::{Note, Output},
};

/// What a notification needs of an owner.
pub(super) struct Notifier<'a> {
    pub(super) sessions: &'a mut BTreeMap<SessionId, Watch>,
    pub(super) out: &'a mut VecDeque<Output>,
}

impl Notifier<'_> {
    /// Notifies the sessions that watch a changed mailbox; ends those of the account if its UIDVALIDITY has risen.
    pub(super) fn changed(
        self,
        account: AccountId,
        watchers: &mut BTreeSet<SessionId>,
        effects: &Effects,
        risen: Option<u32>,
    ) {
        let Notifier { sessions, out } = self;
        for session in watchers.iter() {
            let watch = sessions.get(session);
            if watch.is_some_and(|watch| effects.changed.contains(&watch.name)) {
                out.push_back(Output::Notify(*session, Event::Changed));
            }
        }
        if let Some(uid_validity) = risen {
            // A session cannot be told of it (RFC 9051, 2.3.1.1): it ends.
            for session in std::mem::take(watchers) {
                sessions.remove(&session);
                out.push_back(Output::Notify(session, Event::Shutdown));
            }
            out.push_back(Output::Log(Note::NewUidValidity(account)));
            out.push_back(Output::UidValidity(account, uid_validity));
        }
    }
}
