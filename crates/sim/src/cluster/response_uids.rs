//! What is told without a look: the UIDs of what was written (APPENDUID, COPYUID), and STATUS.
//!
//! A UID that was told is its message's for ever (U1), and below the UIDNEXT that its node tells of the name to whom asks later (U2). In the end
//! STATUS of each mailbox is what is shown.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_service::api::{AccountId, MailboxCall, MailboxName, Reply, Row, Status};

use super::{SECOND, World, clients::mailbox};
use crate::{checkers::monotonic::Monotonic, client};

/// All is healed: a body that is late, and what follows from it, changes what is shown no longer than this.
const TIMEOUT_MICROS: u64 = 60 * SECOND;

/// What was told.
#[derive(Default)]
pub(super) struct Given {
    /// Sizes of the messages that UIDs denote.
    sizes: BTreeMap<(AccountId, u32), u32>,
    /// By node and name: what UIDNEXT must be at least.
    nexts: Monotonic<(usize, AccountId, String)>,
    /// Accounts of guests whose UIDVALIDITY has risen, since an account that had the address was removed: UIDs told before it mean nothing any more.
    pub(super) risen: BTreeSet<AccountId>,
}

impl Given {
    /// A UID denotes a message of this size.
    fn size(&mut self, account: AccountId, uid: u32, size: u32) -> Result<(), String> {
        if self.risen.contains(&account) {
            return Ok(());
        }
        let known = *self.sizes.entry((account, uid)).or_insert(size);
        match known == size {
            true => Ok(()),
            false => Err(format!(
                "U1: UID {uid} of {account} denoted message {known}, and now {size}"
            )),
        }
    }

    /// Another disk is there in the place of a node's.
    pub(super) fn forget(&mut self, node: usize) {
        self.nexts.retain(|(of, ..)| *of != node);
    }

    /// A node goes on with these accounts alone: with an older disk, or it has left a partition.
    pub(super) fn forget_unless(&mut self, node: usize, mut has: impl FnMut(AccountId) -> bool) {
        self.nexts.retain(|(at, of, _)| *at != node || has(*of));
    }
}

impl World {
    /// A message is shown.
    pub(super) fn row_seen(&mut self, account: AccountId, row: &Row) -> Result<(), String> {
        self.looks.seen(account, row.uid, row.id)?;
        self.looks.given.size(account, row.uid, row.size)
    }

    /// UIDNEXT of a name is told to who asked then.
    pub(super) fn next_told(
        &self,
        (node, account, name): (usize, AccountId, &str),
        uid_next: u32,
        asked: u64,
    ) -> Result<(), String> {
        let key = (node, account, name.to_owned());
        // In the same moment it may have been asked before.
        let before = asked.saturating_sub(1);
        let least = self.looks.given.nexts.as_of(&key, before);
        let has_risen = self.looks.given.risen.contains(&account);
        match u64::from(uid_next) < least && !has_risen {
            true => Err(format!(
                "U2: node {node} tells UIDNEXT {uid_next} of {name}, and told a UID below {least}"
            )),
            false => Ok(()),
        }
    }

    /// These UIDs were told of what is new under a name.
    fn given(&mut self, node: usize, account: AccountId, name: &MailboxName, last: Option<u32>) {
        if let Some(last) = last {
            let key = (node, account, name.as_str().to_owned());
            let given = &mut self.looks.given;
            given.nexts.told(key, self.now, u64::from(last) + 1);
        }
    }

    /// What an answer tells of what was written.
    pub(super) fn written(
        &mut self,
        node: usize,
        account: AccountId,
        call: &MailboxCall,
        reply: &Reply,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("node {node}, account {account}: {what}: {reply:?}"));
        match (call, reply) {
            (
                MailboxCall::Append { name, messages, .. },
                Reply::Appended { uid_validity, uids },
            ) => {
                self.looks.validity(account, *uid_validity)?;
                // In the order of the messages: one may have been claimed again before it was told.
                let new: BTreeSet<u32> = uids.iter().copied().collect();
                if uids.len() != messages.len() || new.len() != uids.len() {
                    return wrong("not a UID for each message");
                }
                for (uid, message) in uids.iter().zip(messages) {
                    self.looks.given.size(account, *uid, message.size)?;
                }
                self.given(node, account, name, new.last().copied());
            }
            // The UIDs are told to an importer, who tells them to nobody.
            (MailboxCall::Import { .. }, Reply::Appended { uid_validity, .. }) => {
                self.looks.validity(account, *uid_validity)?;
            }
            (
                MailboxCall::Copy {
                    uids, to, remove, ..
                },
                Reply::Copied {
                    uid_validity,
                    uids: told,
                    done,
                },
            ) => {
                self.looks.validity(account, *uid_validity)?;
                let named = uids.get(..*done).unwrap_or(&[]);
                let is_named = told.iter().all(|(old, _)| named.contains(old));
                let new: BTreeSet<u32> = told.iter().map(|(_, new)| *new).collect();
                let rise = told.is_sorted_by(|(one, _), (next, _)| one < next);
                if (!uids.is_empty() && named.is_empty())
                    || !is_named
                    || !rise
                    || new.len() != told.len()
                {
                    return wrong(&format!("of {uids:?}"));
                }
                for (old, new) in told {
                    if let Some(size) = self.looks.given.sizes.get(&(account, *old)).copied() {
                        self.looks.given.size(account, *new, size)?;
                    }
                    // What is moved is the same message.
                    if let Some(id) = self.looks.owner(account, *old).filter(|_| *remove) {
                        self.looks.seen(account, *new, id)?;
                    }
                }
                self.given(node, account, to, new.last().copied());
            }
            _ => {}
        }
        Ok(())
    }

    /// STORE with UNCHANGEDSINCE (RFC 7162, 3.1.3) has changed these: none that was known here to have changed since, and nothing where the MODSEQ is
    /// another node's, which says nothing of this one.
    pub(super) fn left_what_changed(
        &self,
        node: usize,
        account: AccountId,
        since: u64,
        rows: &[Row],
        asked: u64,
    ) -> Result<(), String> {
        let at = (self.members[node].id, account);
        let slot = self.slots.get(&at.0).copied();
        let is_ours = slot.is_some_and(|slot| since % 64 == u64::from(slot));
        let newer = |row: &&Row| {
            let known = self.modseqs.known(at, row.id, asked);
            known.is_some_and(|known| known > since)
        };
        match rows.iter().find(|row| !is_ours || newer(row)) {
            Some(row) => Err(format!(
                "node {node}, account {account}: UNCHANGEDSINCE {since} (its own: {is_ours}), and changed was {row:?}"
            )),
            None => Ok(()),
        }
    }

    /// STATUS of a mailbox is told to who asked then.
    pub(super) fn status_told(
        &mut self,
        (node, account, name): (usize, AccountId, &str),
        status: &Status,
        asked: u64,
    ) -> Result<(), String> {
        self.looks.validity(account, status.uid_validity)?;
        self.looks.told(node, account, name, status.uid_next)?;
        self.next_told((node, account, name), status.uid_next, asked)?;
        let fits = status.unseen <= status.messages && status.deleted <= status.messages;
        match fits {
            true => Ok(()),
            false => Err(format!(
                "node {node}, account {account}: {name} has more of some than there are: {status:?}"
            )),
        }
    }

    /// When nodes are alike: STATUS tells what there is.
    pub(super) fn statuses_hold(&mut self) -> Result<(), String> {
        let end = self.now + TIMEOUT_MICROS;
        for node in self.there() {
            for account in self.accounts.clone() {
                while let Some(cause) = self.status_differs(node, account)? {
                    if self.now > end {
                        return Err(format!("node {node}, account {account}: {cause}"));
                    }
                    self.run_until(self.now + SECOND)?;
                }
            }
        }
        Ok(())
    }

    fn status_differs(
        &mut self,
        node: usize,
        account: AccountId,
    ) -> Result<Option<String>, String> {
        for (name, shown) in self.picture(node, account)?.figures() {
            let (asked, call) = (
                self.now,
                MailboxCall::Status {
                    name: mailbox(&name),
                },
            );
            let reply = self.ask_and_wait(node, account, call)?;
            let Reply::Status(status) = reply else {
                return Ok(Some(format!("STATUS of {name} is answered by {reply:?}")));
            };
            self.status_told((node, account, &name), &status, asked)?;
            let told = (status.messages, status.unseen, status.deleted, status.size);
            if told != shown {
                return Ok(Some(format!(
                    "STATUS of {name} tells {told:?} (messages, unseen, deleted, size), shown are {shown:?}"
                )));
            }
        }
        self.note("cluster: STATUS tells what is shown");
        self.search_differs(node, account)
    }

    /// A search by flags finds all that have them.
    fn search_differs(
        &mut self,
        node: usize,
        account: AccountId,
    ) -> Result<Option<String>, String> {
        let picture = self.picture(node, account)?;
        for name in picture.figures().into_keys() {
            let shown = picture.flags_of(&name).unwrap_or_default();
            let Some((newest, ..)) = shown.last() else {
                continue;
            };
            for flag in 0..client::FLAGS_COUNT {
                let has = shown.iter().filter(|(_, flags, _)| flags.contains(&flag));
                let has: Vec<u32> = has.map(|(uid, ..)| *uid).collect();
                let (mut found, mut from) = (Vec::new(), 1);
                while from <= *newest {
                    let call = MailboxCall::Flagged {
                        name: mailbox(&name),
                        from,
                        to: *newest,
                        set: client::flags(&BTreeSet::from([flag])),
                        unset: client::flags(&BTreeSet::new()),
                    };
                    let reply = self.ask_and_wait(node, account, call)?;
                    let Reply::Flagged { rows, up_to } = reply else {
                        return Ok(Some(format!("a search is answered by {reply:?}")));
                    };
                    // Sessions that know an earlier UID of a message are given it under that.
                    let of_it = rows.iter().map(|row| row.uid);
                    found.extend(of_it.filter(|uid| shown.iter().any(|(of, ..)| of == uid)));
                    if up_to < from {
                        return Err(format!("node {node}: a search of {name} does not go on"));
                    }
                    from = up_to + 1;
                }
                if found != has {
                    return Ok(Some(format!(
                        "of {name} a search for flag {flag} finds {found:?}, shown with it are {has:?}"
                    )));
                }
            }
        }
        Ok(None)
    }
}
