//! Sent mail: the server's own copy of what was submitted, and what becomes of it when the client keeps one, too.
//!
//! Many clients append what they have sent to the mailbox for sent mail by themselves. Theirs is always kept: it may hold more (Bcc, drafts' flags),
//! and the client knows its UID. Ours is then a *twin* (same Message-ID, the other maker, both from the last ten minutes) and is expunged, unless
//! somebody has done anything with it: then both stay. Whichever of the two comes second has the other looked for, so the order does not matter. One copy
//! of the client's takes the place of one of ours, also where a message was sent twice.
//!
//! How they are found: of the newest messages of the mailbox those that were made the other way are few, mostly one or none; their content rows
//! are read from the store when the commit of the second one is durable (before that it could not be seen which others are), and
//! compared, one after the other. What is found is expunged by an operation of its own. A crash in between leaves both; nothing is lost.

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, Flag, Flags, MailboxName, MessageId, SpecialUse};
use whimbrel_mime::summary::Glance;

use super::{Load, PartitionOwner, keys};
use crate::{
    content::Content,
    machine::{Now, Ticket},
};

/// How old a copy of ours may be that a client's makes superfluous, in seconds; and how old a client's that makes ours so.
const TWIN_SECONDS_MAX: i64 = 600;
/// Newest messages among which a twin is looked for: the two come one soon after the other.
const LOOKED_AT_MAX: usize = 16;
/// Searches of all accounts that wait for the disk: beyond, twins stay. A mailbox that is filled by a thousand appends needs none of them.
const SEARCHES_MAX: usize = 1024;

/// Copies of clients of which it is remembered that they have taken the place of one of ours. Who sends so much more in ten minutes loses a second
/// copy that says the same.
const PAIRED_MAX: usize = 1024;

/// The mailbox for sent mail where none has that use.
const USUAL_NAME: &str = "Sent";

/// A message that has come, and those that may be its twins.
struct Search {
    account: AccountId,
    name: MailboxName,
    message: MessageId,
    /// Whether it is the server's.
    ours: bool,
    message_id: Box<[u8]>,
    /// Messages, and the keys of their content rows.
    others: Vec<(MessageId, MessageId)>,
}

/// One content row that is being read.
pub(super) struct Twin {
    pub(super) account: AccountId,
    name: MailboxName,
    message_id: Box<[u8]>,
    /// What has come, and whether it is the server's.
    message: MessageId,
    ours: bool,
    /// What may be its twin, and the key of its content row.
    other: MessageId,
    origin: MessageId,
    /// Those to be looked at if it is not.
    others: std::vec::IntoIter<(MessageId, MessageId)>,
}

/// Searches under way.
#[derive(Default)]
pub(super) struct Searches {
    /// By the commit for which each waits.
    waiting: std::collections::BTreeMap<Ticket, Vec<Search>>,
    count: usize,
    /// The latest clients' copies that have taken the place of one of ours.
    paired: std::collections::VecDeque<(AccountId, MessageId)>,
}

impl PartitionOwner {
    /// Where copies of sent mail go: the mailbox of that use, else one of the usual name.
    pub(super) fn sent_mailbox(&self, account: AccountId) -> Option<MailboxName> {
        let replica = self.replica(account).ok()?;
        replica.with_use(SpecialUse::Sent).or_else(|| {
            let usual = MailboxName::new(USUAL_NAME).ok()?;
            replica.exists(&usual).then_some(usual)
        })
    }

    /// Whether a mailbox is the one where copies of sent mail go.
    pub(super) fn is_for_sent(&self, account: AccountId, name: &MailboxName) -> bool {
        // Most are not, and that costs no look at the others.
        let may_be = self.replica(account).is_ok_and(|replica| {
            replica.use_of(name) == Some(SpecialUse::Sent) || name.as_str() == USUAL_NAME
        });
        may_be && self.sent_mailbox(account).as_ref() == Some(name)
    }

    /// A message has come into the mailbox for sent mail, by the newest commit of its account: its twin is looked for.
    pub(super) fn sent_arrived(
        &mut self,
        now: Now,
        account: AccountId,
        name: &MailboxName,
        uid: u32,
        content: &Bytes,
        ours: bool,
    ) {
        let (Ok(replica), Some(entry)) = (self.replica(account), self.accounts.get(&account))
        else {
            return;
        };
        let Some(row) = replica.row(name, uid) else {
            return;
        };
        let now = i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX);
        let others: Vec<_> = replica
            .newest(name, LOOKED_AT_MAX)
            .into_iter()
            .filter(|other| other.delivered != ours && other.row.message != row.message)
            .filter(|other| now.saturating_sub(other.row.saved) <= TWIN_SECONDS_MAX)
            .map(|other| (other.row.message, other.row.origin))
            .collect();
        let (Some(ticket), false) = (entry.newest, others.is_empty()) else {
            return;
        };
        let Some(message_id) = message_id(content) else {
            return;
        };
        if self.searches.count >= SEARCHES_MAX {
            return;
        }
        self.searches.count += 1;
        self.searches
            .waiting
            .entry(ticket)
            .or_default()
            .push(Search {
                account,
                name: name.clone(),
                message: row.message,
                ours,
                message_id,
                others,
            });
    }

    /// A commit is durable, or failed: what waited for it is looked up, or forgotten.
    pub(super) fn search_twins(&mut self, ticket: Ticket, done: bool) {
        for search in self.searches.waiting.remove(&ticket).unwrap_or_default() {
            self.searches.count -= 1;
            if !done {
                continue;
            }
            let mut others = search.others.into_iter();
            let Some((other, origin)) = others.next() else {
                continue;
            };
            self.load_twin(Twin {
                account: search.account,
                name: search.name,
                message_id: search.message_id,
                message: search.message,
                ours: search.ours,
                other,
                origin,
                others,
            });
        }
    }

    fn load_twin(&mut self, twin: Twin) {
        let from = keys::content_key(twin.account, twin.origin).to_vec();
        let to = [&from[..], &[0]].concat();
        let partition = keys::partition_of(twin.account);
        self.request(Load::Twin(Box::new(twin)), partition, from, to);
    }

    /// The content row of what may be a twin.
    pub(super) fn twin_loaded(&mut self, now: Now, mut twin: Twin, page: &[(Vec<u8>, Bytes)]) {
        let key = keys::content_key(twin.account, twin.origin);
        let row = page.iter().find(|(found, _)| *found == key);
        let content = row.and_then(|(_, value)| keys::content_of_row(value).ok());
        let is_twin = content.is_some_and(|content| {
            message_id(&content).as_ref() == Some(&twin.message_id)
                && Content::decode(&content).is_ok_and(|content| is_made_by(&content, !twin.ours))
        });
        if is_twin && self.expunge_twin(now, &twin) {
            return;
        }
        if let Some((other, origin)) = twin.others.next() {
            self.load_twin(Twin {
                other,
                origin,
                ..twin
            });
        }
    }

    /// Expunges ours of the two; false if it stays.
    fn expunge_twin(&mut self, now: Now, twin: &Twin) -> bool {
        let (ours, theirs) = match twin.ours {
            true => (twin.message, twin.other),
            false => (twin.other, twin.message),
        };
        let pair = (twin.account, theirs);
        if self.searches.paired.contains(&pair) {
            return false;
        }
        let Ok(replica) = self.replica(twin.account) else {
            return false;
        };
        // It may be gone by now, or somebody wants it: has moved it, or flagged it, or has it unseen again.
        let seen = Flags::from_iter([Flag::Seen]);
        let Some((name, uid)) = replica.as_delivered(&ours, &seen) else {
            return false;
        };
        if name != twin.name {
            return false;
        }
        let Ok(plan) = replica.plan_expunge(&name, &[uid]) else {
            return false;
        };
        if self.searches.paired.len() >= PAIRED_MAX {
            self.searches.paired.pop_front();
        }
        self.searches.paired.push_back(pair);
        self.write(now, twin.account, plan.ops, &[]);
        self.collect_soon(now, twin.account);
        true
    }
}

/// Whether a message was put there by the server or by a client. The server's copy begins with its own Received field. What came by way of `anne+Sent`
/// was delivered, too, but is mail that she has received (it begins with Return-Path); what an administrator imported is all the sender's.
fn is_made_by(content: &Content, server: bool) -> bool {
    match server {
        true => content.prefix.starts_with(b"Received:"),
        false => content.prefix.is_empty(),
    }
}

/// The Message-ID of an encoded content row.
fn message_id(content: &Bytes) -> Option<Box<[u8]>> {
    let summary = Content::decode(content).ok()?.summary;
    let glance = Glance::new(&summary, false).ok()?;
    let id = glance.message_id?.trim_ascii();
    (!id.is_empty()).then(|| id.into())
}
