//! What a client that keeps everything relies on, held against all that any session of a cluster is told.
//!
//! Nobody asks for it: whoever connects to a port that was given to [`watch`] (each server of a test gives its own) by an [`Imap`](crate::imap::Imap)
//! has a [`Session`] in it, which hears what goes to and fro and, behind each SELECT, lists the mailbox as a client with CONDSTORE does. What clients
//! know they know together, whichever node they are at:
//!
//! - **UIDVALIDITY** of a mailbox does not change, at no node.
//! - **U1** a UID never denotes two messages, at no node: EMAILID, name and size stay (RFC 9051, 2.3.1.1; RFC 8474, 5.1).
//! - **U2** what a node shows as new has a UID of at least each UIDNEXT that it has told before; UIDNEXT and HIGHESTMODSEQ do not go back.
//! - **Flags** under one MODSEQ are the same; with CHANGEDSINCE whoever comes from any node, this one or another, misses none (RFC 7162, 3.1.4.1).
//! - Numbers, EXISTS, EXPUNGE and VANISHED of each session add up (RFC 9051, 7.4 and 7.5; RFC 7162, 3.2.10).
//!
//! Which node serves a session, its port does not say: it may be brought to another one. The last six bits of HIGHESTMODSEQ do, they are the node's slot.
//!
//! Sessions run side by side and hear late: what a command must obey is what was heard before it was *sent*.

mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use self::session::Session;
use crate::{
    imap::parse::{Fetched, Node, modseq},
    message,
};

/// Slots of nodes: a MODSEQ is a number times this, plus the slot of the node that gave it.
const SLOTS: u64 = 64;

static PORTS: Mutex<BTreeMap<u16, Arc<Strict>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever objects panics, and so may others who watch the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on whoever connects to this port is one of these clients.
pub fn watch(port: u16, strict: &Arc<Strict>) {
    locked(&PORTS).insert(port, Arc::clone(strict));
}

/// What the clients of one cluster know.
#[derive(Debug, Default)]
pub struct Strict {
    /// By user and mailbox.
    known: Mutex<BTreeMap<(String, String), Known>>,
}

/// What they know of one mailbox.
#[derive(Debug, Default)]
struct Known {
    validity: Option<u32>,
    messages: BTreeMap<u32, Identity>,
    /// Flags of a UID under a MODSEQ.
    flags: BTreeMap<(u32, u64), BTreeSet<String>>,
    nodes: BTreeMap<u64, AtNode>,
    cache: Option<Cache>,
}

/// What one node has told.
#[derive(Debug, Default)]
struct AtNode {
    uids: BTreeSet<u32>,
    next: u32,
    modseq: u64,
}

/// What shows that a message is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Identity {
    email_id: Option<String>,
    name: Option<String>,
    size: Option<usize>,
}

/// A mailbox as it was listed last, at whichever node.
#[derive(Clone, Debug)]
struct Cache {
    modseq: u64,
    flags: BTreeMap<u32, BTreeSet<String>>,
}

/// What a session that is about to open a mailbox must not be told less than.
#[derive(Clone, Debug, Default)]
struct Before {
    /// UIDNEXT and HIGHESTMODSEQ, by slot.
    told: BTreeMap<u64, (u32, u64)>,
    cache: Option<Cache>,
}

/// All that a node shows of a mailbox.
struct Listing {
    validity: u32,
    next: u32,
    modseq: u64,
    flags: BTreeMap<u32, BTreeSet<String>>,
    /// Messages that have changed behind `modseq`.
    later: BTreeSet<u32>,
}

impl Identity {
    fn of(items: &Fetched) -> Identity {
        let whole = items.bytes("BODY[]").or_else(|| items.bytes("RFC822"));
        let size = items.get("RFC822.SIZE").map(|size| size.text());
        Identity {
            email_id: match items.get("EMAILID") {
                Some(Node::List(list)) => list.first().map(Node::text),
                _ => None,
            },
            name: whole.and_then(message::name_of),
            size: whole
                .map(<[u8]>::len)
                .or_else(|| size.and_then(|size| size.parse().ok())),
        }
    }

    /// Takes in what the other one knows; whether they can be the same.
    fn join(&mut self, other: Identity) -> bool {
        fn one<T: PartialEq>(known: &mut Option<T>, told: Option<T>) -> bool {
            match (&*known, &told) {
                (Some(known), Some(told)) => known == told,
                (None, Some(_)) => {
                    *known = told;
                    true
                }
                (_, None) => true,
            }
        }
        one(&mut self.email_id, other.email_id)
            && one(&mut self.name, other.name)
            && one(&mut self.size, other.size)
    }
}

/// Whether it is this mailbox, or one below it.
fn is_of(name: &str, of: &str) -> bool {
    let rest = name.strip_prefix(of);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Strict {
    /// The account was removed: whoever has its address next is somebody else.
    pub fn forget(&self, user: &str) {
        locked(&self.known).retain(|(of, _), _| of != user);
    }

    /// What had these names was removed or renamed.
    fn forget_mailboxes(&self, user: &str, names: &[String]) {
        let is_meant = |name: &String| names.iter().any(|of| is_of(name, of));
        locked(&self.known).retain(|(of, name), _| of != user || !is_meant(name));
    }

    fn with<T>(&self, user: &str, mailbox: &str, then: impl FnOnce(&mut Known) -> T) -> T {
        let key = (user.to_owned(), mailbox.to_owned());
        then(locked(&self.known).entry(key).or_default())
    }

    fn before(&self, user: &str, mailbox: &str) -> Before {
        self.with(user, mailbox, |known| Before {
            told: known
                .nodes
                .iter()
                .map(|(slot, node)| (*slot, (node.next, node.modseq)))
                .collect(),
            cache: known.cache.clone(),
        })
    }
}

impl Known {
    fn validity(&mut self, told: u32) -> Result<(), String> {
        match *self.validity.get_or_insert(told) {
            known if known == told => Ok(()),
            known => Err(format!("UIDVALIDITY {told}, was {known}")),
        }
    }

    /// A FETCH response of this UID.
    fn fetched(&mut self, uid: u32, items: &Fetched) -> Result<(), String> {
        let told = Identity::of(items);
        let known = self.messages.entry(uid).or_default();
        let before = known.clone();
        if !known.join(told.clone()) {
            return Err(format!("U1: UID {uid} was {before:?} and is {told:?}"));
        }
        let under = items.get("MODSEQ").and_then(modseq);
        if let (Some(flags), Some(under)) = (items.flags(), under) {
            let flags: BTreeSet<String> = flags.into_iter().collect();
            let known = self.flags.entry((uid, under));
            let known = known.or_insert_with(|| flags.clone());
            if *known != flags {
                return Err(format!(
                    "UID {uid} had {known:?} under MODSEQ {under}, and has {flags:?}"
                ));
            }
        }
        Ok(())
    }

    /// A SELECT that was sent when no more than this was told.
    fn opened(&mut self, next: u32, modseq: Option<u64>, before: &Before) -> Result<(), String> {
        let Some(modseq) = modseq else { return Ok(()) };
        let slot = modseq % SLOTS;
        let (least, since) = before.told.get(&slot).copied().unwrap_or_default();
        if next < least {
            return Err(format!("UIDNEXT went back from {least} to {next}"));
        }
        if modseq < since {
            return Err(format!("HIGHESTMODSEQ went back from {since} to {modseq}"));
        }
        Ok(())
    }

    /// A whole look, and what was told as changed since the one before.
    fn listed(
        &mut self,
        listing: Listing,
        changed: Option<&BTreeMap<u32, BTreeSet<String>>>,
        before: &Before,
    ) -> Result<(), String> {
        self.validity(listing.validity)?;
        let slot = listing.modseq % SLOTS;
        let node = self.nodes.entry(slot).or_default();
        let (floor, _) = before.told.get(&slot).copied().unwrap_or_default();
        for uid in listing.flags.keys() {
            if *uid < floor && !node.uids.contains(uid) {
                return Err(format!(
                    "U2: UID {uid} is new after UIDNEXT {floor} was told"
                ));
            }
        }
        node.uids.extend(listing.flags.keys());
        node.next = node.next.max(listing.next);
        node.modseq = node.modseq.max(listing.modseq);
        if let (Some(cache), Some(changed)) = (&before.cache, changed) {
            for (uid, flags) in &listing.flags {
                // What changed while we looked was told, or will be.
                if listing.later.contains(uid) {
                    continue;
                }
                let believed = changed.get(uid).or_else(|| cache.flags.get(uid));
                if believed != Some(flags) {
                    return Err(format!(
                        "UID {uid} has {flags:?}; who asked for what has changed since {} believes {believed:?}",
                        cache.modseq
                    ));
                }
            }
        }
        self.cache = Some(Cache {
            modseq: listing.modseq,
            flags: listing.flags,
        });
        Ok(())
    }
}
