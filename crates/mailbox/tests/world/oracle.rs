//! What an account must look like, computed from the whole history by definition. Shares no code with the crates.

use std::collections::{BTreeMap, BTreeSet};

pub type Id = [u8; 16];
pub type Time = (u64, u64);

/// Flags as bits; bit 4 is `\Deleted`.
pub const DELETED: u8 = 4;
pub const KEYWORDS: [u8; 2] = [8, 32];
const BITS: [u8; 5] = [1, 2, DELETED, KEYWORDS[0], KEYWORDS[1]];

/// The bit that says that a keyword is spelled in its other way.
pub const fn spelling(keyword: u8) -> u8 {
    keyword << 1
}

/// What a message's bytes are.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {
    Are(i64),
    /// Those of what it is a copy of.
    Of(Id),
}

#[derive(Clone, Debug)]
pub enum Act {
    Create {
        mailbox: Id,
        name: String,
    },
    Delete {
        mailboxes: Vec<Id>,
        messages: Vec<Id>,
    },
    Rename {
        mailboxes: Vec<Id>,
        name: String,
    },
    Subscribe {
        name: String,
    },
    Unsubscribe {
        name: String,
    },
    Make {
        message: Id,
        mailbox: Id,
        uid: u32,
        flags: u8,
        bytes: Bytes,
    },
    Deliver {
        message: Id,
        mailbox: Id,
        uid: u32,
        placed: Time,
        bytes: i64,
    },
    Move {
        message: Id,
        mailbox: Id,
        uid: u32,
        undelete: bool,
    },
    Store {
        messages: Vec<Id>,
        set: u8,
        clear: u8,
    },
    Expunge {
        messages: Vec<Id>,
    },
    Claim {
        message: Id,
        placed: Time,
        uid: u32,
    },
    Other,
}

/// One operation: who, the how-manieth, what he had seen of each, when.
#[derive(Clone, Debug)]
pub struct Fact {
    pub origin: u64,
    pub number: u64,
    pub seen: BTreeMap<u64, u64>,
    pub time: Time,
    pub act: Act,
}

impl Fact {
    pub fn before(&self, later: &Fact) -> bool {
        if self.origin == later.origin {
            self.number < later.number
        } else {
            later.seen.get(&self.origin).copied().unwrap_or(0) >= self.number
        }
    }
}

/// Message, flags, bytes.
pub type VisibleMessage = (Id, u8, i64);

/// For each name its messages: UID to (message, flags, bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub names: BTreeMap<String, BTreeMap<u32, VisibleMessage>>,
    pub subscribed: BTreeSet<String>,
}

pub fn view(facts: &[&Fact], inbox: Id) -> View {
    let mut messages = BTreeSet::new();
    let mut mailboxes = BTreeSet::from([inbox]);
    for fact in facts {
        match &fact.act {
            Act::Make { message, .. } | Act::Deliver { message, .. } => {
                _ = messages.insert(*message)
            }
            Act::Create { mailbox, .. } => _ = mailboxes.insert(*mailbox),
            _ => {}
        }
    }
    let mut living: BTreeMap<Id, Vec<(u32, VisibleMessage)>> = BTreeMap::new();
    for message in messages {
        if exists(facts, message) {
            let (mailbox, uid) = place(facts, message);
            living
                .entry(mailbox)
                .or_default()
                .push((uid, (message, flags(facts, message), bytes(facts, message))));
        }
    }
    let mut view = View::default();
    for mailbox in mailboxes {
        let here = living.remove(&mailbox).unwrap_or_default();
        if mailbox == inbox || !here.is_empty() || has_mailbox(facts, mailbox) {
            let name = if mailbox == inbox {
                "INBOX".to_string()
            } else {
                name(facts, mailbox)
            };
            let entry = view.names.entry(name).or_default();
            entry.extend(here);
        }
    }
    for fact in facts {
        if let Act::Subscribe { name } = &fact.act {
            let undone = |f: &&&Fact| {
                matches!(&f.act, Act::Unsubscribe { name: n } if n == name) && fact.before(f)
            };
            if !facts.iter().any(|f| undone(&f)) {
                view.subscribed.insert(name.clone());
            }
        }
    }
    view
}

fn removes(fact: &Fact, message: Id) -> bool {
    match &fact.act {
        Act::Expunge { messages } | Act::Delete { messages, .. } => messages.contains(&message),
        _ => false,
    }
}

/// A message exists if something that keeps it was not seen by anything that removes it. All deliveries are one.
fn exists(facts: &[&Fact], message: Id) -> bool {
    let unseen = |keep: &Fact| !facts.iter().any(|f| removes(f, message) && keep.before(f));
    let kept = facts.iter().any(|f| {
        let keeps = match &f.act {
            Act::Make { message: m, .. } | Act::Move { message: m, .. } => *m == message,
            Act::Store {
                messages, clear, ..
            } => messages.contains(&message) && clear & DELETED != 0,
            _ => false,
        };
        keeps && unseen(f)
    });
    let delivered = facts
        .iter()
        .any(|f| matches!(&f.act, Act::Deliver { message: m, .. } if *m == message));
    kept || (delivered && !facts.iter().any(|f| removes(f, message)))
}

/// The latest placement, and the greatest claim for it.
fn place(facts: &[&Fact], message: Id) -> (Id, u32) {
    let placement = |f: &Fact| match &f.act {
        Act::Make {
            message: m,
            mailbox,
            uid,
            ..
        }
        | Act::Move {
            message: m,
            mailbox,
            uid,
            ..
        } if *m == message => Some((f.time, *mailbox, *uid)),
        Act::Deliver {
            message: m,
            mailbox,
            uid,
            placed,
            ..
        } if *m == message => Some((*placed, *mailbox, *uid)),
        _ => None,
    };
    let (time, mailbox, _) = facts
        .iter()
        .filter_map(|f| placement(f))
        .max()
        .expect("it was made");
    let made = facts
        .iter()
        .filter_map(|f| placement(f))
        .filter(|p| p.0 == time)
        .map(|p| p.2);
    let claimed = facts.iter().filter_map(|f| match &f.act {
        Act::Claim {
            message: m,
            placed,
            uid,
        } if *m == message && *placed == time => Some(*uid),
        _ => None,
    });
    (
        mailbox,
        made.chain(claimed)
            .max()
            .expect("it was claimed when it was made"),
    )
}

/// Of the last words on each flag (those that no later one has seen) one set is enough, for `\Deleted` all must be.
fn flags(facts: &[&Fact], message: Id) -> u8 {
    let mut all = 0;
    for bit in BITS {
        let says = |f: &Fact| match &f.act {
            Act::Make {
                message: m, flags, ..
            } if *m == message && flags & bit != 0 => Some(true),
            Act::Move {
                message: m,
                undelete: true,
                ..
            } if *m == message && bit == DELETED => Some(false),
            Act::Store {
                messages,
                set,
                clear,
            } if messages.contains(&message) => {
                if set & bit != 0 {
                    Some(true)
                } else if clear & bit != 0 {
                    Some(false)
                } else {
                    None
                }
            }
            _ => None,
        };
        let words: Vec<(&Fact, bool)> = facts
            .iter()
            .filter_map(|f| says(f).map(|set| (*f, set)))
            .collect();
        let last: Vec<bool> = words
            .iter()
            .filter(|(f, _)| !words.iter().any(|(g, _)| f.before(g)))
            .map(|(_, set)| *set)
            .collect();
        let set = if bit == DELETED {
            !last.is_empty() && last.iter().all(|s| *s)
        } else {
            last.contains(&true)
        };
        all |= if set { bit } else { 0 };
        if set && KEYWORDS.contains(&bit) {
            // Of those that set it the least says how it is spelled, whoever was heard first.
            let sets = words
                .iter()
                .filter(|(f, set)| *set && !words.iter().any(|(g, _)| f.before(g)));
            let first = sets.min_by_key(|(f, _)| (f.origin, f.number));
            let named = first.map_or(0, |(f, _)| match &f.act {
                Act::Make { flags, .. } => *flags,
                Act::Store { set, .. } => *set,
                _ => 0,
            });
            all |= named & spelling(bit);
        }
    }
    all
}

/// Two may bring other bytes for one message: it has the greater ones, and its copies have them, too.
fn bytes(facts: &[&Fact], message: Id) -> i64 {
    let brought = facts.iter().filter_map(|f| match &f.act {
        Act::Make {
            message: m,
            bytes: of,
            ..
        } if *m == message => Some(match of {
            Bytes::Are(bytes) => *bytes,
            Bytes::Of(source) => bytes(facts, *source),
        }),
        Act::Deliver {
            message: m, bytes, ..
        } if *m == message => Some(*bytes),
        _ => None,
    });
    brought.max().expect("somebody made it")
}

fn has_mailbox(facts: &[&Fact], mailbox: Id) -> bool {
    facts.iter().any(|f| {
        let keeps = match &f.act {
            Act::Create { mailbox: b, .. }
            | Act::Make { mailbox: b, .. }
            | Act::Deliver { mailbox: b, .. }
            | Act::Move { mailbox: b, .. } => *b == mailbox,
            Act::Rename { mailboxes, .. } => mailboxes.contains(&mailbox),
            _ => false,
        };
        let removes = |g: &&&Fact| {
            matches!(&g.act, Act::Delete { mailboxes, .. } if mailboxes.contains(&mailbox))
                && f.before(g)
        };
        keeps && !facts.iter().any(|g| removes(&g))
    })
}

fn name(facts: &[&Fact], mailbox: Id) -> String {
    let names = facts.iter().filter_map(|f| match &f.act {
        Act::Create { mailbox: b, name } if *b == mailbox => Some((f.time, name.clone())),
        Act::Rename { mailboxes, name } if mailboxes.contains(&mailbox) => {
            Some((f.time, name.clone()))
        }
        _ => None,
    });
    names.max().expect("it was created").1
}
