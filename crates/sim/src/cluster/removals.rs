//! What must hold where messages are removed, too: what is gone stays gone, and what nobody removed is there.
//!
//! Which messages survive an EXPUNGE depends on what it had seen: a MOVE or a cleared `\Deleted` of which it did not know saves the message. So the
//! checker judges those messages alone of which all that could save them was asked of the node that expunged them: it had seen whatever came before,
//! and nothing comes after.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_service::{
    api::{AccountId, Failure, FlagChange, MailboxCall, MessageId, Reply, Row},
    machine::RequestId,
};

use super::{World, checks::Looks, is_keeping, names::is_own};
use crate::client;

/// What clients asked for that removes messages, or saves them.
#[derive(Default)]
pub(super) struct Removals {
    /// Nodes that were asked to move this message, or to clear its `\Deleted`.
    savers: BTreeMap<(AccountId, MessageId), BTreeSet<usize>>,
    /// Nodes that were asked the same of messages of which the client did not know which they are, and how often.
    savers_of_any: BTreeMap<AccountId, BTreeMap<usize, u32>>,
    /// The nodes that expunged it, and said so.
    expunged: BTreeMap<(AccountId, MessageId), usize>,
    bodies: BTreeMap<MessageId, u32>,
    /// Bodies of messages that were to be marked `\Deleted`.
    marked: BTreeSet<(AccountId, u32)>,
    /// Messages that somebody wanted to move, at some node.
    moved: BTreeSet<(AccountId, MessageId)>,
    /// Messages that were expunged, or to be replaced, at some node.
    removed: BTreeSet<(AccountId, MessageId)>,
    /// Accounts in which somebody wanted to rename INBOX, which moves whatever is in it.
    emptied: BTreeMap<AccountId, u32>,
    /// Accounts where it is not known what was removed, and for how many reasons.
    unclear: BTreeMap<AccountId, u32>,
    /// What was asked and may be refused, so that it was nothing: at which node.
    under_way: BTreeMap<RequestId, (usize, AccountId, Many)>,
}

/// What concerns messages that nobody has named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    /// RENAME of INBOX.
    Moved,
    /// DELETE
    Gone,
}

/// One reason less.
fn take<K: Ord>(of: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = of.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            of.remove(key);
        }
    }
}

impl Removals {
    /// A node has shown this message.
    pub(super) fn shown(&mut self, row: &Row) {
        self.bodies.insert(row.id, row.size);
    }

    /// It is answered: what was refused before anything was done was nothing.
    pub(super) fn refused(&mut self, request: RequestId, reply: &Reply) {
        let Some((node, account, many)) = self.under_way.remove(&request) else {
            return;
        };
        let is_nothing = matches!(
            reply,
            Reply::Failed(
                Failure::BadName
                    | Failure::Clock
                    | Failure::Exists
                    | Failure::HasChildren
                    | Failure::Inbox
                    | Failure::NoSuchMailbox
                    | Failure::TooFewNodes
            )
        );
        match many {
            _ if !is_nothing => {}
            Many::Gone => take(&mut self.unclear, &account),
            Many::Moved => {
                take(&mut self.emptied, &account);
                if let Some(savers) = self.savers_of_any.get_mut(&account) {
                    take(savers, &node);
                }
            }
        }
    }

    /// A client asks this of a node.
    pub(super) fn asked(
        &mut self,
        request: RequestId,
        node: usize,
        account: AccountId,
        call: &MailboxCall,
        looks: &Looks,
    ) {
        match call {
            MailboxCall::Copy {
                uids, remove: true, ..
            } => {
                self.saves(node, account, uids, looks);
                let ids = uids.iter().filter_map(|uid| looks.owner(account, *uid));
                self.moved.extend(ids.map(|id| (account, id)));
            }
            MailboxCall::Store {
                uids,
                change,
                flags,
                ..
            } => {
                let names_deleted = client::numbers(flags).contains(&client::DELETED);
                let (marks, clears) = match change {
                    FlagChange::Add => (names_deleted, false),
                    FlagChange::Remove => (false, names_deleted),
                    FlagChange::Replace => (names_deleted, !names_deleted),
                };
                if clears {
                    self.saves(node, account, uids, looks);
                }
                if marks {
                    self.marks(account, uids, looks);
                }
            }
            MailboxCall::Remove { uids, .. } => self.marks(account, uids, looks),
            MailboxCall::Append {
                replaces: Some(replaced),
                ..
            } => {
                self.marks(account, &[replaced.uid], looks);
                let id = looks.owner(account, replaced.uid);
                self.removed.extend(id.map(|id| (account, id)));
            }
            // What is in INBOX moves, whatever that is.
            MailboxCall::Rename { from, .. } if from.is_inbox() => {
                let savers = self.savers_of_any.entry(account).or_default();
                *savers.entry(node).or_default() += 1;
                *self.emptied.entry(account).or_default() += 1;
                let of_it = (node, account, Many::Moved);
                self.under_way.insert(request, of_it);
            }
            MailboxCall::Delete { name } if !is_own(name.as_str()) => {
                *self.unclear.entry(account).or_default() += 1;
                let of_it = (node, account, Many::Gone);
                self.under_way.insert(request, of_it);
            }
            _ => {}
        }
    }

    /// Whether this message may have left INBOX at some node before anybody looked there.
    pub(super) fn may_have_left(&self, account: AccountId, id: MessageId) -> bool {
        self.was_moved(account, id) || self.removed.contains(&(account, id))
    }

    /// Whether somebody wanted to move this message, at some node.
    pub(super) fn was_moved(&self, account: AccountId, id: MessageId) -> bool {
        self.moved.contains(&(account, id)) || self.emptied.contains_key(&account)
    }

    fn saves(&mut self, node: usize, account: AccountId, uids: &[u32], looks: &Looks) {
        for uid in uids {
            if let Some(id) = looks.owner(account, *uid) {
                self.savers.entry((account, id)).or_default().insert(node);
            } else {
                let savers = self.savers_of_any.entry(account).or_default();
                *savers.entry(node).or_default() += 1;
            }
        }
    }

    fn marks(&mut self, account: AccountId, uids: &[u32], looks: &Looks) {
        for uid in uids {
            let id = looks.owner(account, *uid);
            match id.and_then(|id| self.bodies.get(&id)) {
                Some(body) => {
                    self.marked.insert((account, *body));
                }
                None => *self.unclear.entry(account).or_default() += 1,
            }
        }
    }

    /// A node has answered EXPUNGE: what is gone.
    pub(super) fn answered(
        &mut self,
        node: usize,
        account: AccountId,
        reply: &Reply,
        looks: &Looks,
    ) -> Vec<MessageId> {
        let Reply::Expunged { uids, .. } = reply else {
            return Vec::new();
        };
        let ids = uids.iter().filter_map(|uid| looks.owner(account, *uid));
        let ids: Vec<MessageId> = ids.collect();
        self.expunged
            .extend(ids.iter().map(|id| ((account, *id), node)));
        self.removed.extend(ids.iter().map(|id| (account, *id)));
        ids
    }

    /// A node has answered REPLACE: what is gone, `\Deleted` or not.
    pub(super) fn replaced(
        &mut self,
        node: usize,
        account: AccountId,
        call: &MailboxCall,
        looks: &Looks,
    ) -> Option<MessageId> {
        let MailboxCall::Append {
            replaces: Some(replaced),
            ..
        } = call
        else {
            return None;
        };
        let id = looks.owner(account, replaced.uid)?;
        self.expunged.insert((account, id), node);
        Some(id)
    }

    /// That it was expunged may be gone.
    pub(super) fn forget(&mut self, account: AccountId, id: MessageId) {
        self.expunged.remove(&(account, id));
    }

    /// Whether nothing could save this message that the node which expunged it had not seen.
    fn is_gone(&self, account: AccountId, id: MessageId) -> bool {
        let Some(node) = self.expunged.get(&(account, id)) else {
            return false;
        };
        let savers = self.savers.get(&(account, id)).into_iter().flatten();
        let of_any = self.savers_of_any.get(&account).into_iter();
        let mut savers = savers.chain(of_any.flat_map(BTreeMap::keys));
        savers.all(|saver| saver == node)
    }
}

impl World {
    /// When nodes are alike: what was removed is not there, what nobody removed is.
    pub(super) fn removals_hold(&mut self) -> Result<(), String> {
        let (mut gone, mut there) = (0, 0);
        for account in self.accounts.clone() {
            if is_keeping(account) {
                continue;
            }
            let all = self.all_visible(account)?;
            if let Some((id, body)) = all
                .iter()
                .find(|(id, _)| self.removals.is_gone(account, *id))
            {
                return Err(format!(
                    "message {id} (body {body}) of {account} was expunged, nothing saved it, and it is there"
                ));
            }
            let expunged = self.removals.expunged.keys();
            gone += expunged
                .filter(|(of, id)| *of == account && self.removals.is_gone(account, *id))
                .count();
            if self.removals.unclear.contains_key(&account) {
                continue;
            }
            let bodies: BTreeSet<u32> = all.iter().map(|(_, body)| *body).collect();
            for body in self.kept.acknowledged_of(account) {
                let marked = self.removals.marked.contains(&(account, body));
                there += usize::from(!marked);
                if !marked && !bodies.contains(&body) {
                    return Err(format!(
                        "D1: message {body} of {account} was acknowledged, nobody removed it, and it is gone"
                    ));
                }
            }
        }
        for (what, count) in [
            ("cluster: expunged and gone", gone),
            ("cluster: there where others were removed", there),
        ] {
            *self.report.coverage.entry(what).or_default() += count as u64;
        }
        Ok(())
    }
}
