//! What an account should hold: a sequential model of the calls, sharing no code with the product.
//!
//! A history is a list of operations in the order in which they reached the account's owner. Each is known to be durable, known to have
//! failed, or unknown (its answer is still out, or a crash swallowed it). A crash keeps a prefix of what was not known to be durable; which one is
//! found by comparing.

use std::collections::{BTreeMap, BTreeSet};

/// The place of an operation in the order of execution, and what it makes: the `index`-th message of operation `number` is
/// `number * 2^20 + index`.
pub type Number = u64;

/// Messages one operation may make.
const MESSAGES_PER_OP: u64 = 1 << 20;

/// One message in one mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its identity: never changes, not by a MOVE either.
    pub key: Number,
    /// By what it came under its present name.
    pub entered: Number,
    /// By what it came under earlier names, since it was put where it is: the UIDs of that time still name it (docs/design.md#rule-2), for a
    /// client that has not heard of a RENAME away and back.
    pub past: Vec<Number>,
    /// What stands in it. Many messages may hold the same (COPY).
    pub body: u32,
    /// Flags by number.
    pub flags: BTreeSet<u8>,
}

impl Message {
    /// Whether one of these names it.
    fn is_among(&self, which: &[Number]) -> bool {
        which.contains(&self.entered) || self.past.iter().any(|past| which.contains(past))
    }
}

/// The flag that EXPUNGE looks for.
pub const DELETED: u8 = 0;

/// What changes an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads only.
    Nothing,
    /// CREATE
    Create(String),
    /// DELETE
    Delete(String),
    /// RENAME. The third says whether the new name was told of before: then messages may be late under it, get new UIDs and with
    /// them another order.
    Rename(String, String, bool),
    /// SUBSCRIBE or UNSUBSCRIBE
    Subscribe(String, bool),
    /// APPEND
    Append {
        /// Where.
        name: String,
        /// What.
        body: u32,
        /// How.
        flags: BTreeSet<u8>,
    },
    /// COPY or MOVE of messages by [`Message::entered`].
    Copy {
        /// From where.
        from: String,
        /// Which.
        which: Vec<Number>,
        /// Where.
        to: String,
        /// MOVE
        remove: bool,
    },
    /// STORE on messages by [`Message::entered`].
    Store {
        /// Where.
        name: String,
        /// Which.
        which: Vec<Number>,
        /// Turned on.
        set: BTreeSet<u8>,
        /// Turned off.
        clear: BTreeSet<u8>,
    },
    /// EXPUNGE of what is deleted and came not later than this.
    Expunge {
        /// Where.
        name: String,
        /// The last one.
        up_to: Number,
    },
    /// A client names a UID of a time that was lost: messages that came since may get new UIDs, and with them another order.
    Named(String),
    /// A delivery: once, whatever happens.
    Deliver {
        /// The entry.
        entry: [u8; 16],
        /// The mailbox wished for.
        target: String,
        /// What.
        body: u32,
    },
}

/// How an operation should be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Done,
    /// It cannot be done.
    Refused,
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Mailboxes, messages in the order in which they came.
    pub boxes: BTreeMap<String, Vec<Message>>,
    /// Subscriptions.
    pub subscribed: BTreeSet<String>,
    /// Entries delivered.
    pub delivered: BTreeSet<[u8; 16]>,
    /// Mailboxes whose order is not known after such a RENAME: they are compared as sets, and clients do not act on their messages.
    pub shuffled: BTreeSet<String>,
}

impl Default for Model {
    fn default() -> Self {
        let names = ["INBOX", "Drafts", "Sent", "Archive", "Junk", "Trash"];
        Model {
            boxes: names
                .into_iter()
                .map(|name| (name.to_owned(), Vec::new()))
                .collect(),
            subscribed: names.into_iter().map(str::to_owned).collect(),
            delivered: BTreeSet::new(),
            shuffled: BTreeSet::new(),
        }
    }
}

impl Model {
    /// Carries out the operation with this number.
    pub fn apply(&mut self, number: Number, op: &Op) -> Verdict {
        let made = |index: usize| number * MESSAGES_PER_OP + index as u64;
        match op {
            Op::Nothing => Verdict::Done,
            Op::Create(name) => {
                if self.boxes.contains_key(name) {
                    return Verdict::Refused;
                }
                self.make(name);
                Verdict::Done
            }
            Op::Delete(name) => {
                if name == "INBOX" || self.boxes.remove(name).is_none() {
                    return Verdict::Refused;
                }
                self.shuffled.remove(name);
                Verdict::Done
            }
            Op::Rename(from, to, shuffles) => self.rename(from, to, *shuffles, made),
            Op::Subscribe(name, true) => {
                self.subscribed.insert(name.clone());
                Verdict::Done
            }
            Op::Subscribe(name, false) => {
                self.subscribed.remove(name);
                Verdict::Done
            }
            Op::Append { name, body, flags } => {
                let message = Message {
                    key: made(0),
                    entered: made(0),
                    past: Vec::new(),
                    body: *body,
                    flags: flags.clone(),
                };
                match self.boxes.get_mut(name) {
                    Some(messages) => messages.push(message),
                    None => return Verdict::Refused,
                }
                Verdict::Done
            }
            Op::Copy {
                from,
                which,
                to,
                remove,
            } => {
                let Some(source) = self.boxes.get_mut(from) else {
                    return Verdict::Refused;
                };
                let mut taken: Vec<Message> = source
                    .iter()
                    .filter(|m| m.is_among(which))
                    .cloned()
                    .collect();
                if !self.boxes.contains_key(to) {
                    return Verdict::Refused;
                }
                for (index, message) in taken.iter_mut().enumerate() {
                    message.entered = made(index);
                    message.past.clear();
                    if !remove {
                        message.key = made(index);
                    }
                }
                if *remove && let Some(source) = self.boxes.get_mut(from) {
                    source.retain(|m| !m.is_among(which));
                }
                if taken.len() > 1 && self.shuffled.contains(from) {
                    self.shuffled.insert(to.clone());
                }
                self.boxes.entry(to.clone()).or_default().extend(taken);
                Verdict::Done
            }
            Op::Store {
                name,
                which,
                set,
                clear,
            } => {
                let Some(messages) = self.boxes.get_mut(name) else {
                    return Verdict::Refused;
                };
                for message in messages.iter_mut().filter(|m| m.is_among(which)) {
                    message.flags.retain(|flag| !clear.contains(flag));
                    message.flags.extend(set);
                }
                Verdict::Done
            }
            Op::Named(name) => {
                if self.boxes.contains_key(name) {
                    self.shuffled.insert(name.clone());
                }
                Verdict::Done
            }
            Op::Expunge { name, up_to } => {
                let Some(messages) = self.boxes.get_mut(name) else {
                    return Verdict::Refused;
                };
                messages.retain(|m| m.entered > *up_to || !m.flags.contains(&DELETED));
                Verdict::Done
            }
            Op::Deliver {
                entry,
                target,
                body,
            } => {
                if self.delivered.insert(*entry) {
                    let message = Message {
                        key: made(0),
                        entered: made(0),
                        past: Vec::new(),
                        body: *body,
                        flags: BTreeSet::new(),
                    };
                    let name = if self.boxes.contains_key(target) {
                        target.as_str()
                    } else {
                        "INBOX"
                    };
                    self.boxes.entry(name.to_owned()).or_default().push(message);
                }
                Verdict::Done
            }
        }
    }

    /// With superior names (RFC 9051, 6.3.4).
    fn make(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            self.boxes.entry(name[..at].to_owned()).or_default();
        }
        self.boxes.entry(name.to_owned()).or_default();
    }

    fn rename(
        &mut self,
        from: &str,
        to: &str,
        shuffles: bool,
        made: impl Fn(usize) -> Number,
    ) -> Verdict {
        let below = format!("{from}/");
        let is_there = |name: &String| name == from || name.starts_with(&below);
        if !self.boxes.keys().any(is_there) || self.boxes.contains_key(to) {
            return Verdict::Refused;
        }
        let mut moved = 0;
        let mut enter = |mut messages: Vec<Message>| {
            for message in &mut messages {
                message.past.push(message.entered);
                message.entered = made(moved);
                moved += 1;
            }
            messages
        };
        if from == "INBOX" {
            // These are moved, so they keep their order.
            let mut messages = enter(
                self.boxes
                    .insert(from.to_owned(), Vec::new())
                    .unwrap_or_default(),
            );
            messages.iter_mut().for_each(|message| message.past.clear());
            self.make(to);
            self.boxes.insert(to.to_owned(), messages);
            return Verdict::Done;
        }
        if to.starts_with(&format!("{from}/")) {
            return Verdict::Refused;
        }
        let names: Vec<String> = self
            .boxes
            .keys()
            .filter(|name| is_there(name))
            .cloned()
            .collect();
        let new = |name: &String| format!("{to}{}", &name[from.len()..]);
        if names.iter().any(|name| self.boxes.contains_key(&new(name))) {
            return Verdict::Refused;
        }
        let renamed: Vec<(String, Vec<Message>)> = names
            .iter()
            .map(|name| {
                (
                    new(name),
                    enter(self.boxes.remove(name).unwrap_or_default()),
                )
            })
            .collect();
        for name in &names {
            if self.shuffled.remove(name) || shuffles {
                self.shuffled.insert(new(name));
            }
        }
        // A name that was deleted, and stood above others, is none afterwards either.
        match to.rsplit_once('/') {
            _ if names.iter().any(|name| name == from) => self.make(to),
            Some((parent, _)) => self.make(parent),
            None => {}
        }
        self.boxes.extend(renamed);
        Verdict::Done
    }
}

/// What is known of an operation's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Durable.
    Acknowledged,
    /// Left nothing behind.
    Failed,
    /// Not answered.
    Unknown,
}

/// The operations of one account since the last time all of it was known.
#[derive(Clone, Debug, Default)]
pub struct History {
    base: Model,
    ops: Vec<(Number, Op, Fate)>,
    present: Model,
}

impl History {
    /// An operation reached the owner: gives its verdict, and the state it and later ones see.
    pub fn reached(&mut self, number: Number, op: Op) -> Verdict {
        let verdict = self.present.apply(number, &op);
        self.ops.push((number, op, Fate::Unknown));
        verdict
    }

    /// What becomes of it is known now.
    pub fn settle(&mut self, number: Number, fate: Fate) {
        let mut changed = false;
        if let Some((_, _, known)) = self.ops.iter_mut().find(|(n, ..)| *n == number) {
            changed = (*known == Fate::Failed) != (fate == Fate::Failed);
            *known = fate;
        }
        if changed {
            self.present = self.replay(self.ops.len());
        }
    }

    /// The state after the first `count` operations, those that failed left out.
    fn replay(&self, count: usize) -> Model {
        let mut model = self.base.clone();
        for (number, op, fate) in &self.ops[..count] {
            if *fate != Fate::Failed {
                model.apply(*number, op);
            }
        }
        model
    }

    /// The state if nothing fails that has not failed yet.
    #[must_use]
    pub fn present(&self) -> &Model {
        &self.present
    }

    /// Whether the order in a mailbox was unknown at some time since all was known last.
    #[must_use]
    pub fn ever_shuffled(&self, name: &str) -> bool {
        let renamed = self.ops.iter().any(|(_, op, _)| matches!(op, Op::Rename(_, to, true) if name == to || name.starts_with(&format!("{to}/"))));
        renamed || self.present.shuffled.contains(name) || self.base.shuffled.contains(name)
    }

    /// How many operations there are: for [`History::candidates`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The states in which a crash may have left the account, when `before` operations had reached it then; those that came since have all been
    /// carried out. The fullest first.
    pub fn candidates(&self, before: usize) -> impl Iterator<Item = Model> {
        let acknowledged = self.ops[..before]
            .iter()
            .rposition(|(_, _, fate)| *fate == Fate::Acknowledged)
            .map_or(0, |at| at + 1);
        (acknowledged..=before).rev().map(move |kept| {
            let mut model = self.replay(kept);
            for (number, op, fate) in &self.ops[before..] {
                if *fate != Fate::Failed {
                    model.apply(*number, op);
                }
            }
            model
        })
    }

    /// This is the state; what led here is forgotten.
    pub fn settled(&mut self, model: Model) {
        self.present = model.clone();
        self.base = model;
        self.ops.clear();
    }
}
