//! A simulated client: what it knows, what it does next, and what its answers must be.

use std::{collections::BTreeSet, sync::LazyLock};

use whimbrel_service::api::{
    AccountId, Changes, Flag, FlagChange, Flags, Keyword, MailboxCall, MailboxName, Reply, Row,
    Selected, SessionId,
};

use whimbrel_testkit::Rng;

use crate::model::{Message, Model, Number, Op};

/// How many flags clients use.
pub const FLAGS_COUNT: u8 = 7;

/// Of these so many are keywords, the last ones.
pub const KEYWORDS_COUNT: usize = 3;

/// Each spelled in two ways, which are one (RFC 9051, 2.3.2); one begins like another.
pub const KEYWORDS: [[&str; KEYWORDS_COUNT]; 2] = [
    ["$Forwarded", "urgent", "urgent.1"],
    ["$FORWARDED", "Urgent", "Urgent.1"],
];

/// The number of `\Deleted`.
pub const DELETED: u8 = 0;

/// The number of `\Seen`.
pub const SEEN: u8 = 1;

const SYSTEM: [Flag; 4] = [Flag::Deleted, Flag::Seen, Flag::Flagged, Flag::Answered];

/// Flags by the model's numbers, in both spellings.
static FLAGS: LazyLock<[Vec<Flag>; 2]> = LazyLock::new(|| {
    KEYWORDS.map(|spelled| {
        let keywords = spelled.iter().filter_map(|text| Keyword::new(text));
        let keywords = keywords.map(Flag::Keyword);
        SYSTEM.into_iter().chain(keywords).collect()
    })
});

/// How a client spells keywords that it names together with these.
#[must_use]
pub fn spelling(numbers: &BTreeSet<u8>) -> usize {
    numbers.len() % KEYWORDS.len()
}

/// Names that clients create, rename and fill: few, so that they meet.
pub const NAMES: [&str; 8] = [
    "INBOX",
    "Archive",
    "Sent",
    "work",
    "work/a",
    "work/b",
    "lists",
    "lists/x/y",
];

/// The flags as the service has them.
#[must_use]
pub fn flags(numbers: &BTreeSet<u8>) -> Flags {
    let mut flags = Flags::none();
    for number in numbers {
        flags.insert(FLAGS[spelling(numbers)][usize::from(*number)].clone());
    }
    flags
}

/// The flags as the model has them.
#[must_use]
pub fn numbers(flags: &Flags) -> BTreeSet<u8> {
    (0u8..)
        .zip(&FLAGS[0])
        .filter(|(_, flag)| flags.contains(flag))
        .map(|(number, _)| number)
        .collect()
}

/// One message as a client knows it.
#[derive(Clone, Debug)]
pub struct CachedMessage {
    /// Its UID.
    pub uid: u32,
    /// See [`Message::entered`].
    pub entered: Number,
    /// See [`Message::key`].
    pub key: Number,
    /// Flags as told last, if they were.
    pub flags: Option<BTreeSet<u8>>,
}

/// The mailbox a client looks at.
#[derive(Clone, Debug)]
pub struct View {
    /// Its name.
    pub name: String,
    /// What is in it, ascending by UID.
    pub messages: Vec<CachedMessage>,
    /// For the next Changes.
    pub as_of: u64,
    /// The mailbox was deleted or renamed.
    pub gone: bool,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its session; a new one after each connection.
    pub session: SessionId,
    /// Whose mail.
    pub account: AccountId,
    /// What it looks at.
    pub view: Option<View>,
    /// When it does something next, in virtual microseconds; none while it waits for an answer.
    pub due: Option<u64>,
}

/// A call, with what the model makes of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The call.
    pub call: MailboxCall,
    /// What it does to the account.
    pub op: Op,
    /// Which mailbox it tells of.
    pub about: Option<String>,
}

fn mailbox(name: &str) -> MailboxName {
    MailboxName::new(name).unwrap_or_else(|_| MailboxName::inbox())
}

fn some_flags(rng: &mut Rng) -> BTreeSet<u8> {
    (0..FLAGS_COUNT).filter(|_| rng.one_in(2)).collect()
}

/// A name: mostly one that there is.
pub fn a_name(rng: &mut Rng, model: &Model) -> String {
    let there: Vec<&String> = model.boxes.keys().collect();
    if rng.one_in(3) {
        (*rng.pick(&NAMES)).to_owned()
    } else {
        (*rng.pick(&there)).clone()
    }
}

/// Whether a RENAME gives a mailbox a name that was told of before.
pub fn shuffles(model: &Model, from: &str, to: &str, told: impl Fn(&str) -> bool) -> bool {
    let below = format!("{from}/");
    let moved = model
        .boxes
        .keys()
        .filter(|name| *name == from || name.starts_with(&below));
    moved
        .map(|name| format!("{to}{}", &name[from.len()..]))
        .any(|name| told(&name))
}

impl Client {
    /// What it does next; `fresh` is a name that nobody used. An APPEND has no blob yet; the world uploads one and fills it in.
    pub fn plan(&self, rng: &mut Rng, model: &Model, fresh: &str) -> Planned {
        let any = |rng: &mut Rng| a_name(rng, model);
        let session = self.session;
        let read = |call, about| Planned {
            call,
            op: Op::Nothing,
            about,
        };
        let Some(view) = self.view.as_ref().filter(|view| !view.gone) else {
            let name = if rng.one_in(3) {
                any(rng)
            } else {
                "INBOX".to_owned()
            };
            return read(
                MailboxCall::Select {
                    session,
                    name: mailbox(&name),
                    read_only: rng.one_in(4),
                },
                Some(name),
            );
        };
        let some: Vec<&CachedMessage> = view.messages.iter().filter(|_| rng.one_in(3)).collect();
        let uids: Vec<u32> = some.iter().map(|known| known.uid).collect();
        let which: Vec<Number> = some.iter().map(|known| known.entered).collect();
        let name = view.name.clone();
        match rng.below(40) {
            0..=1 => read(MailboxCall::list(), None),
            2..=3 => {
                let name = any(rng);
                read(
                    MailboxCall::Status {
                        name: mailbox(&name),
                    },
                    Some(name),
                )
            }
            4..=6 => {
                let name = any(rng);
                read(
                    MailboxCall::Select {
                        session,
                        name: mailbox(&name),
                        read_only: rng.one_in(4),
                    },
                    Some(name),
                )
            }
            7..=15 => read(
                MailboxCall::Changes {
                    session,
                    since: view.as_of,
                    expunges: !rng.one_in(3),
                },
                Some(name),
            ),
            16..=19 => {
                let uids = view
                    .messages
                    .iter()
                    .map(|known| known.uid)
                    .take(20)
                    .collect();
                read(
                    MailboxCall::Rows {
                        name: mailbox(&name),
                        uids,
                    },
                    Some(name),
                )
            }
            20..=24 => {
                let set = some_flags(rng);
                let change = *rng.pick(&[FlagChange::Add, FlagChange::Remove, FlagChange::Replace]);
                let (on, off) = match change {
                    FlagChange::Add => (set.clone(), BTreeSet::new()),
                    FlagChange::Remove => (BTreeSet::new(), set.clone()),
                    FlagChange::Replace => (
                        set.clone(),
                        (0..FLAGS_COUNT)
                            .filter(|flag| !set.contains(flag))
                            .collect(),
                    ),
                };
                let call = MailboxCall::Store {
                    session,
                    name: mailbox(&name),
                    uids,
                    change,
                    flags: flags(&set),
                    unchanged_since: None,
                };
                Planned {
                    call,
                    op: Op::Store {
                        name: name.clone(),
                        which,
                        set: on,
                        clear: off,
                    },
                    about: Some(name),
                }
            }
            25..=27 => {
                let last = view.messages.last();
                let call = MailboxCall::Expunge {
                    session,
                    name: mailbox(&name),
                    uids: None,
                    up_to: last.map_or(0, |known| known.uid),
                };
                let up_to = last.map_or(0, |known| known.entered);
                Planned {
                    call,
                    op: Op::Expunge {
                        name: name.clone(),
                        up_to,
                    },
                    about: Some(name),
                }
            }
            28..=31 => {
                let (to, remove) = (any(rng), rng.one_in(2));
                let call = MailboxCall::Copy {
                    session,
                    name: mailbox(&name),
                    uids,
                    to: mailbox(&to),
                    remove,
                };
                Planned {
                    call,
                    op: Op::Copy {
                        from: name,
                        which,
                        to: to.clone(),
                        remove,
                    },
                    about: Some(to),
                }
            }
            32..=33 => {
                let name = any(rng);
                let call = MailboxCall::Create {
                    name: mailbox(&name),
                    special_use: None,
                };
                Planned {
                    call,
                    op: Op::Create(name),
                    about: None,
                }
            }
            34 => {
                let name = any(rng);
                Planned {
                    call: MailboxCall::Delete {
                        name: mailbox(&name),
                    },
                    op: Op::Delete(name),
                    about: None,
                }
            }
            35 => {
                let from = any(rng);
                let to = if rng.one_in(4) {
                    any(rng)
                } else {
                    fresh.to_owned()
                };
                let call = MailboxCall::Rename {
                    from: mailbox(&from),
                    to: mailbox(&to),
                    rest: None,
                };
                Planned {
                    call,
                    op: Op::Rename(from, to, false),
                    about: None,
                }
            }
            36 => {
                let (name, subscribed) = (any(rng), rng.one_in(2));
                let call = MailboxCall::Subscribe {
                    name: mailbox(&name),
                    subscribed,
                };
                Planned {
                    call,
                    op: Op::Subscribe(name, subscribed),
                    about: None,
                }
            }
            _ => read(MailboxCall::Unselect { session }, None),
        }
    }

    /// Takes the answer to a SELECT; `expected` is the mailbox when it was carried out.
    pub fn selected(
        &mut self,
        name: &str,
        selected: &Selected,
        expected: Option<&[Message]>,
    ) -> Result<(), String> {
        let messages = match expected {
            Some(expected) if expected.len() != selected.uids.len() => {
                return Err(format!(
                    "{name} has {} messages, {} were told",
                    expected.len(),
                    selected.uids.len()
                ));
            }
            Some(expected) => known(&selected.uids.to_vec(), expected),
            None => Vec::new(),
        };
        if selected.status.messages as usize != selected.uids.len() {
            return Err(format!(
                "SELECT told {} UIDs and {} messages",
                selected.uids.len(),
                selected.status.messages
            ));
        }
        let gone = expected.is_none();
        self.view = Some(View {
            name: name.to_owned(),
            messages,
            as_of: selected.as_of,
            gone,
        });
        Ok(())
    }

    /// Takes the answer to Changes; `expected` is the mailbox when it was carried out, if that is certain.
    pub fn changed(
        &mut self,
        changes: &Changes,
        expunges: bool,
        expected: Option<&[Message]>,
    ) -> Result<(), String> {
        let Some(view) = &mut self.view else {
            return Ok(());
        };
        view.as_of = changes.as_of;
        view.gone |= changes.id.is_none();
        let Some(expected) = expected else {
            // What arrived cannot be told apart: select again.
            view.gone = true;
            return Ok(());
        };
        if changes.id.is_none() {
            return Err(format!("{} is there, but was told to be gone", view.name));
        }
        if !expunges && !changes.vanished.is_empty() {
            return Err("vanished messages were told where that is not allowed".into());
        }
        view.messages.retain(|known| {
            let present = changes
                .present
                .as_ref()
                .is_none_or(|present| present.contains(&known.uid));
            present && !changes.vanished.contains(&known.uid)
        });
        let unknown: Vec<Message> = expected
            .iter()
            .filter(|m| view.messages.iter().all(|known| known.entered != m.entered))
            .cloned()
            .collect();
        if unknown.len() != changes.arrived.len() {
            return Err(format!(
                "{} messages came into {}, {} were told",
                unknown.len(),
                view.name,
                changes.arrived.len()
            ));
        }
        view.messages.extend(known(&changes.arrived, &unknown));
        if !view.messages.is_sorted_by_key(|known| known.uid) {
            return Err(format!(
                "a message that came into {} has a lower UID than one known before",
                view.name
            ));
        }
        for row in &changes.changed {
            if let Some(known) = view.messages.iter_mut().find(|known| known.uid == row.uid) {
                known.flags = Some(numbers(&row.flags));
            }
        }
        for known in &view.messages {
            match expected.iter().find(|m| m.entered == known.entered) {
                None if expunges => {
                    return Err(format!(
                        "UID {} of {} is gone, but was not told to be",
                        known.uid, view.name
                    ));
                }
                Some(m)
                    if known.flags.as_ref().is_some_and(|told| *told != m.flags)
                        && !changes.more =>
                {
                    return Err(format!(
                        "UID {} of {} has flags {:?}, told were {:?}",
                        known.uid, view.name, m.flags, known.flags
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes rows; `expected` is the mailbox when they were read, if that is certain.
    pub fn rows(
        &mut self,
        asked: &[u32],
        rows: &[Row],
        expected: Option<&[Message]>,
    ) -> Result<(), String> {
        let (Some(view), Some(expected)) = (&mut self.view, expected) else {
            return Ok(());
        };
        for uid in asked {
            let Some(known) = view.messages.iter_mut().find(|known| known.uid == *uid) else {
                continue;
            };
            let there = expected.iter().find(|m| m.entered == known.entered);
            match (there, rows.iter().find(|row| row.uid == *uid)) {
                (None, None) => {}
                (Some(m), Some(row)) => {
                    if row.size != m.body || numbers(&row.flags) != m.flags {
                        return Err(format!(
                            "UID {uid} of {} should be {m:?}, is {row:?}",
                            view.name
                        ));
                    }
                }
                (there, row) => {
                    return Err(format!(
                        "UID {uid} of {}: there {there:?}, told {row:?}",
                        view.name
                    ));
                }
            }
        }
        // Flags known from here on are those of Changes: a row may be newer than the next Changes begins.
        Ok(())
    }
}

fn known(uids: &[u32], messages: &[Message]) -> Vec<CachedMessage> {
    let pairs = uids.iter().zip(messages);
    pairs
        .map(|(uid, m)| CachedMessage {
            uid: *uid,
            entered: m.entered,
            key: m.key,
            flags: None,
        })
        .collect()
}

/// The mailbox a call tells of, in a model.
#[must_use]
pub fn about<'a>(model: &'a Model, name: Option<&str>) -> Option<&'a [Message]> {
    model.boxes.get(name?).map(Vec::as_slice)
}

/// Whether an answer is what the model's verdict says it should be.
#[must_use]
pub fn is_done(reply: &Reply) -> bool {
    !matches!(reply, Reply::Failed(_))
}
