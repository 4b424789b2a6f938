//! Sent mail: the server's own copy of what was submitted, and what becomes of it when the client keeps one, too.
//!
//! Many clients append what they have sent to the mailbox for sent mail by themselves. Theirs is always kept: it may hold more (Bcc, drafts' flags),
//! and the client knows its UID. Ours is then a *twin* (the same identity, the other maker, both from the last ten minutes) and is expunged; flags
//! that somebody has set on it meanwhile go to the client's. If it was moved, or marked as deleted, both stay. Whichever of the two comes second has
//! the other looked for, so the order does not matter. One copy of the client's takes the place of one of ours, also where a message was sent twice.
//!
//! The identity of a message is its Message-ID. Where the client has sent none, it is when, by whom, to whom and under what subject it was written.
//!
//! How they are found: the newest messages of the mailbox are gone through, the last one first, for those that were made the other way. Of what has come
//! since the start it is remembered what its identity is; of the others, and of those that have the right one, the content rows are read from the
//! store when the commit of the second one is durable (before that it could not be seen which others are), and compared, one after the other. What is
//! found is expunged by an operation of its own. A crash in between leaves both; nothing is lost.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, Flag, Flags, MailboxName, MessageId, Op, SpecialUse};
use whimbrel_mime::summary::SortKeys;

use super::{Load, Mail, keys};
use crate::{
    content::Content,
    machine::{Now, Ticket},
};

/// How old a copy of ours may be that a client's makes superfluous, in seconds; and how old a client's that makes ours so.
const TWIN_SECONDS_MAX: i64 = 600;
/// Newest messages among which a twin is looked for, in memory. Who was offline sends by the hundred, and his client keeps its copies afterwards; more
/// than this in ten minutes is no mail that people send.
const LOOKED_AT_MAX: usize = 4096;
/// Messages in a row that are older than that, behind which no younger ones are looked for: a mailbox is nearly always in the order of time.
const OLDER_MAX: usize = 16;
/// Latest messages that came into mailboxes for sent mail, of all accounts, whose identities are remembered, by their hashes: some 100 bytes each.
/// What is forgotten is read from the store.
const KNOWN_MAX: usize = 4096;
/// Searches of all accounts that wait for the disk: beyond, twins stay. A mailbox that is filled by a thousand appends needs none of them.
const SEARCHES_MAX: usize = 1024;

/// Copies of clients of which it is remembered that they have taken the place of one of ours. Who sends so much more in ten minutes loses a second
/// copy that says the same.
const PAIRED_MAX: usize = 1024;

/// The mailbox for sent mail where none has that use.
pub(super) const USUAL_NAME: &str = "Sent";

/// A message that was put into the mailbox for sent mail.
pub(super) struct SentMessage {
    pub(super) account: AccountId,
    pub(super) message: MessageId,
    pub(super) content: Bytes,
}

/// A message that has come, and how far its twin was looked for.
struct Search {
    account: AccountId,
    name: MailboxName,
    message: MessageId,
    /// Whether it is the server's.
    ours: bool,
    identity: Identity,
    hashes: Hashes,
    /// What came before is no twin.
    since: i64,
    /// Messages with this UID and greater ones were looked at.
    below: u32,
    /// How many may still be looked at.
    left: usize,
    older_left: usize,
}

/// One content row that is being read: of what may be a twin.
struct Twin {
    search: Search,
    other: MessageId,
    /// The key of its content row.
    origin: MessageId,
}

/// Searches under way.
#[derive(Default)]
pub(super) struct SentCopies {
    /// By the commit for which each waits.
    waiting: BTreeMap<Ticket, Vec<Twin>>,
    /// By the ticket with which its content row is read.
    read: BTreeMap<Ticket, Twin>,
    count: usize,
    known: RecentMessages,
    /// The latest clients' copies that have taken the place of one of ours.
    paired: VecDeque<(AccountId, MessageId)>,
}

/// Identities of the latest messages, by their hashes: that of none, too.
#[derive(Default)]
struct RecentMessages {
    hashes: BTreeMap<(AccountId, MessageId), Hashes>,
    /// In the order in which they came.
    order: VecDeque<(AccountId, MessageId)>,
}

impl RecentMessages {
    fn insert(&mut self, account: AccountId, message: MessageId, identity: &Identity) {
        let key = (account, message);
        if self.hashes.insert(key, identity.hashes()).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
        }
    }

    /// Whether a message may be the one of these hashes.
    fn may_be(&self, account: AccountId, message: MessageId, hashes: &Hashes) -> bool {
        let known = self.hashes.get(&(account, message));
        known.is_none_or(|known| {
            let mut pairs = known.iter().zip(hashes);
            pairs.any(|(known, of)| known.is_some() && known == of)
        })
    }
}

impl SentCopies {
    /// A content row cannot be read: both copies stay.
    pub(super) fn load_failed(&mut self, ticket: Ticket) {
        self.read.remove(&ticket);
    }

    /// A message has come into the mailbox for sent mail, by the newest commit of its account: its twin is looked for. `ours`: it is the server's.
    pub(super) fn came(
        &mut self,
        mail: &mut Mail,
        now: Now,
        name: &MailboxName,
        put: SentMessage,
        ours: bool,
    ) {
        let SentMessage {
            account,
            message,
            content,
        } = put;
        let Some(entry) = mail.accounts.get(&account) else {
            return;
        };
        let ticket = entry.newest;
        let identity = Identity::of(&content);
        let known = &mut self.known;
        known.insert(account, message, &identity);
        let Some(ticket) = ticket.filter(|_| identity.is_known()) else {
            return;
        };
        let now = i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX);
        let search = Search {
            account,
            name: name.clone(),
            message,
            ours,
            hashes: identity.hashes(),
            identity,
            since: now.saturating_sub(TWIN_SECONDS_MAX),
            below: u32::MAX,
            left: LOOKED_AT_MAX,
            older_left: OLDER_MAX,
        };
        if self.count >= SEARCHES_MAX {
            return;
        }
        if let Some(twin) = self.next_twin(mail, search) {
            self.count += 1;
            self.waiting.entry(ticket).or_default().push(twin);
        }
    }

    /// A client has put a message there at another node, perhaps before that had heard of the server's. Of the server's this is not asked: each node at
    /// which it is shown hears of the client's.
    pub(super) fn came_elsewhere(&mut self, mail: &mut Mail, now: Now, put: SentMessage) {
        if let Some(name) = sent_mailbox(mail, put.account) {
            self.came(mail, now, &name, put, false);
        }
    }

    /// What is to be looked at next.
    fn next_twin(&self, mail: &Mail, mut search: Search) -> Option<Twin> {
        let replica = mail.accounts.replica(search.account).ok()?;
        while search.left > 0 && search.older_left > 0 {
            let other = replica.last_before(&search.name, search.below)?;
            search.below = other.row.uid;
            search.left -= 1;
            if other.row.saved < search.since {
                search.older_left -= 1;
                continue;
            }
            search.older_left = OLDER_MAX;
            let message = other.row.message;
            let known = &self.known;
            if other.delivered != search.ours
                && message != search.message
                && known.may_be(search.account, message, &search.hashes)
            {
                return Some(Twin {
                    search,
                    other: message,
                    origin: other.row.origin,
                });
            }
        }
        None
    }

    /// A commit is durable, or failed: what waited for it is looked up, or forgotten.
    pub(super) fn committed(&mut self, mail: &mut Mail, ticket: Ticket, done: bool) {
        for twin in self.waiting.remove(&ticket).unwrap_or_default() {
            self.count -= 1;
            if done {
                self.load_twin(mail, twin);
            }
        }
    }

    fn load_twin(&mut self, mail: &mut Mail, twin: Twin) {
        let from = keys::content_key(twin.search.account, twin.origin).to_vec();
        let to = [&from[..], &[0]].concat();
        let partition = keys::partition_of(twin.search.account);
        let ticket = (mail.reads).rows(&mut mail.out, Load::Twin, partition, (from, to));
        self.read.insert(ticket, twin);
    }

    /// The content row of what may be a twin.
    pub(super) fn loaded(
        &mut self,
        mail: &mut Mail,
        now: Now,
        ticket: Ticket,
        page: &[(Vec<u8>, Bytes)],
    ) {
        let Some(twin) = self.read.remove(&ticket) else {
            return;
        };
        let search = &twin.search;
        let key = keys::content_key(search.account, twin.origin);
        let row = page.iter().find(|(found, _)| *found == key);
        let content = row.and_then(|(_, value)| keys::content_of_row(value).ok());
        let is_twin = content.is_some_and(|content| {
            let other = Identity::of(&content);
            let known = &mut self.known;
            known.insert(search.account, twin.other, &other);
            let is_same = match search.ours {
                true => Identity::is_same(&search.identity, &other),
                false => Identity::is_same(&other, &search.identity),
            };
            is_same
                && Content::decode(&content).is_ok_and(|content| is_made_by(&content, !search.ours))
        });
        if is_twin && self.expunge_twin(mail, now, &twin) {
            return;
        }
        if let Some(twin) = self.next_twin(mail, twin.search) {
            self.load_twin(mail, twin);
        }
    }

    /// Expunges ours of the two; false if it stays.
    fn expunge_twin(&mut self, mail: &mut Mail, now: Now, twin: &Twin) -> bool {
        let search = &twin.search;
        let (ours, theirs) = match search.ours {
            true => (search.message, twin.other),
            false => (twin.other, search.message),
        };
        let pair = (search.account, theirs);
        if self.paired.contains(&pair) {
            return false;
        }
        let Ok(replica) = mail.accounts.replica(search.account) else {
            return false;
        };
        // It may be gone by now, or somebody wants it where it has been put.
        let Some((name, uid)) = replica.as_delivered(&ours) else {
            return false;
        };
        let flags = replica.row(&name, uid).map(|row| row.flags);
        let flags = flags.unwrap_or_default();
        if name != search.name || flags.contains(&Flag::Deleted) {
            return false;
        }
        let Ok(mut plan) = replica.plan_expunge(&name, &[uid]) else {
            return false;
        };
        // That it is seen the client says itself.
        let set = flags.without(&Flags::from_iter([Flag::Seen]));
        if !set.is_empty() {
            plan.ops.push(Op::Store {
                messages: vec![theirs],
                set,
                clear: Flags::none(),
                rescue: false,
            });
        }
        if self.paired.len() >= PAIRED_MAX {
            self.paired.pop_front();
        }
        self.paired.push_back(pair);
        mail.write(now, search.account, plan.ops, &[]);
        mail.collect_soon(now, search.account);
        true
    }
}

/// Where copies of sent mail go: the mailbox of that use, else one of the usual name.
pub(super) fn sent_mailbox(mail: &Mail, account: AccountId) -> Option<MailboxName> {
    let replica = mail.accounts.replica(account).ok()?;
    replica.with_use(SpecialUse::Sent).or_else(|| {
        let usual = MailboxName::new(USUAL_NAME).ok()?;
        replica.exists(&usual).then_some(usual)
    })
}

/// Whether a mailbox is the one where copies of sent mail go.
pub(super) fn is_for_sent(mail: &Mail, account: AccountId, name: &MailboxName) -> bool {
    // Most are not, and that costs no look at the others.
    let may_be = mail.accounts.replica(account).is_ok_and(|replica| {
        replica.use_of(name) == Some(SpecialUse::Sent) || name.as_str() == USUAL_NAME
    });
    may_be && sent_mailbox(mail, account).as_ref() == Some(name)
}

/// Whether a message was put there by the server or by a client. The server's copy begins with its own Received field. What came by way of `anne+Sent`
/// was delivered, too, but is mail that she has received (it begins with Return-Path); what an administrator imported is all the sender's.
fn is_made_by(content: &Content, server: bool) -> bool {
    match server {
        true => content.prefix.starts_with(b"Received:"),
        false => content.prefix.is_empty(),
    }
}

/// By what a message is known to be the same as another.
#[derive(Default)]
struct Identity {
    message_id: Option<Box<[u8]>>,
    /// When, by whom, to whom and under what subject it was written.
    written: Option<Box<[u8]>>,
}

impl Identity {
    /// Of an encoded content row.
    fn of(content: &Bytes) -> Identity {
        let Ok(Content { summary, .. }) = Content::decode(content) else {
            return Identity::default();
        };
        let Ok(sort_keys) = SortKeys::new(&summary, false) else {
            return Identity::default();
        };
        let id = sort_keys.message_id.map(|id| id.trim_ascii());
        let id = id.filter(|id| !id.is_empty()).map(Box::from);
        let from = sort_keys.from.unwrap_or_default();
        let to = sort_keys.to.unwrap_or_default();
        let rest = [
            sort_keys.subject,
            from.mailbox,
            from.host,
            to.mailbox,
            to.host,
        ];
        let written = sort_keys.date.map(|date| {
            let parts = [Some(date)].into_iter().chain(rest);
            let parts = parts.map(|part| [&[0], part.unwrap_or_default()].concat());
            parts.flatten().collect()
        });
        Identity {
            message_id: id,
            written,
        }
    }

    /// Whether this may be a copy of something.
    fn is_known(&self) -> bool {
        self.message_id.is_some() || self.written.is_some()
    }

    /// Whether the server's and the client's are of one message. The server's has a Message-ID in any case.
    fn is_same(ours: &Identity, theirs: &Identity) -> bool {
        match &theirs.message_id {
            Some(_) => ours.message_id == theirs.message_id,
            None => theirs.written.is_some() && ours.written == theirs.written,
        }
    }

    fn hashes(&self) -> Hashes {
        [&self.message_id, &self.written].map(|of| of.as_deref().map(hash))
    }
}

/// Of an identity: by them most others are told apart without a look at the store.
type Hashes = [Option<u64>; 2];

fn hash(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
