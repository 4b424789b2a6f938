//! Clients that go from node to node and ask each only for what is new: what they overlook (docs/design.md#rule-6).
//!
//! Of INBOX a client knows UIDNEXT as it was told last, the MODSEQ, and which messages it was shown. Where it selects INBOX it looks only at what has
//! a UID of at least that. What is there below it, and was never shown to it, it overlooks. Clients with QRESYNC, which say where they were, must
//! overlook nothing at any time but what had left INBOX where they looked; others nothing that is still there when all is healed.

use std::collections::BTreeSet;

use whimbrel_crdt::Incarnation;
use whimbrel_service::api::{MailboxCall, MailboxName, MessageId, Reply, Row, SessionId};

use super::{Uids, World, coverage::OVERLOOKED_AFTER_CHANGES};

/// What a client knows of INBOX.
#[derive(Clone, Default)]
pub(super) struct Knows {
    pub(super) uid_validity: u32,
    pub(super) uid_next: u32,
    pub(super) modseq: u64,
    pub(super) seen: BTreeSet<MessageId>,
    /// UIDs that had left INBOX where it looked. A node that has not heard of that still shows them: that is nothing new. What comes back has another UID.
    pub(super) left: Uids,
    /// Who told it of INBOX.
    pub(super) told_by: BTreeSet<Incarnation>,
}

impl Knows {
    /// What a client with QRESYNC says before it selects.
    pub(super) fn before_select(&self) -> MailboxCall {
        MailboxCall::Named {
            name: MailboxName::inbox(),
            uid_validity: self.uid_validity,
            numbers: vec![self.uid_next.saturating_sub(1)],
            told: None,
            modseq: Some(self.modseq),
        }
    }

    /// What one without names after that, if it has to be believed: `n:*`.
    pub(super) fn after_select(&self, told: u32, uid_next: u32) -> Option<MailboxCall> {
        (self.uid_next > told.min(uid_next)).then(|| MailboxCall::Named {
            name: MailboxName::inbox(),
            uid_validity: self.uid_validity,
            numbers: vec![self.uid_next],
            told: Some(told),
            modseq: None,
        })
    }

    /// It asks from its UIDNEXT on: what of these is below, and was never shown to it.
    pub(super) fn overlooked<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Row>,
    ) -> Vec<(u32, MessageId)> {
        let below = rows.into_iter().filter(|row| row.uid < self.uid_next);
        let below = below.filter(|row| !self.left.contains(&row.uid));
        let missed = below.filter(|row| !self.seen.contains(&row.id));
        missed.map(|row| (row.uid, row.id)).collect()
    }

    /// All of these were there, and what is new was read.
    pub(super) fn read(&mut self, uid_validity: u32, uid_next: u32, modseq: u64, rows: &[Row]) {
        if self.uid_validity != uid_validity {
            *self = Knows::default();
        }
        let from = self.uid_next;
        let new = rows.iter().filter(|row| row.uid >= from);
        self.seen.extend(new.map(|row| row.id));
        self.uid_validity = uid_validity;
        self.uid_next = self.uid_next.max(uid_next);
        self.modseq = modseq;
    }
}

impl World {
    /// All is healed: each client goes somewhere once more, and overlooks nothing.
    pub(super) fn nothing_overlooked(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            let (account, with_qresync) = (client.account, client.with_qresync);
            let Some(mut knows) = client.knows.clone() else {
                continue;
            };
            knows.left.clear();
            let node = self.any_member();
            if with_qresync {
                self.ask_and_wait(node, account, knows.before_select())?;
            }
            let (told, mut uids, uid_next) = self.inbox(node, account)?;
            if let Some(call) = knows.after_select(told, uid_next).filter(|_| !with_qresync) {
                self.ask_and_wait(node, account, call)?;
                uids = self.inbox(node, account)?.1;
            }
            let call = MailboxCall::Rows {
                name: MailboxName::inbox(),
                uids,
            };
            let Reply::Rows(rows) = self.ask_and_wait(node, account, call)? else {
                return Err("rows of INBOX were not told".into());
            };
            // What was refused, where those are gone who knew that, is there again; who names its MODSEQ is told of all that is there.
            let lasting = rows.iter().filter(|row| !self.kept.was_refused(row.size));
            let missed = knows.overlooked(lasting);
            // What was moved away or removed at a node that was removed later came and left where the client was before it looked, and is there again.
            let is_new = |id: &MessageId| {
                !(self.nodes_were_removed() && self.removals.may_have_left(account, *id))
            };
            if let Some((uid, id)) = missed.iter().find(|(_, id)| is_new(id)) {
                let cause = format!(
                    "client {index} overlooks {id}, UID {uid}, at {node}: it asks from {}",
                    knows.uid_next
                );
                if !self.may_overlook(with_qresync, &knows) {
                    return Err(cause);
                }
                self.note(OVERLOOKED_AFTER_CHANGES);
                self.say(|| cause);
            }
        }
        Ok(())
    }

    /// Counted only, of a client without QRESYNC that was at a node which was removed or lost its disk: nothing shows that it was there, unless it
    /// has a UID that nobody else gave (`docs/decisions/0033`).
    fn may_overlook(&self, with_qresync: bool, knows: &Knows) -> bool {
        let stays = |id| (self.members.iter()).any(|of| of.id == id && !of.doubtful);
        !with_qresync && knows.told_by.iter().any(|id| !stays(*id))
    }

    pub(super) fn inbox(
        &mut self,
        node: usize,
        account: whimbrel_service::api::AccountId,
    ) -> Result<(u32, Vec<u32>, u32), String> {
        let call = MailboxCall::Select {
            session: SessionId(u64::MAX),
            name: MailboxName::inbox(),
            read_only: true,
        };
        match self.ask_and_wait(node, account, call)? {
            Reply::Selected(selected) => Ok((
                selected.told,
                selected.uids.to_vec(),
                selected.status.uid_next,
            )),
            other => Err(format!("INBOX cannot be selected: {other:?}")),
        }
    }
}
