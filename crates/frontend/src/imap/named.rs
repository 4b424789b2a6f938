//! UIDs that a client names and that it cannot know from here (docs/design.md#rule-6).
//!
//! A client that comes from another node names what it was told there: a UID, or the UIDNEXT from which it asks (`n:*`), beyond the UIDNEXT that was told
//! here before it came. So does one to which an older copy of the disk, put back since, had told more. Before the command is carried out the owner is asked
//! to believe it, and what that changes is told, so that new messages lie where the client looks for them. It costs nothing where nothing such is named.
//!
//! `*` means the last message that the client was told of before, as if nothing had been told within the command: a STORE for `*`, or
//! for a range up to `*`, does not reach a message that the client has not heard of. A range that begins above all it knows asks for what is new.
//!
//! What was told here before the session counts until the session is told a UID: what a client names later it may have from it. And a number says that the
//! client knows it where it begins something. `1:256` is no sign, for 256 is what SELECT said, and nothing is left out that lies below it.

use std::collections::VecDeque;

use whimbrel_imap::{
    Command, CommandBody,
    command::{Fetch, FetchItem, Qresync, SearchKey, Store},
    core::{MessageSet, SequenceSet},
};
use whimbrel_service::api::{MailboxCall, NAMED_PER_CALL_MAX, Reply};

use super::{
    context::Context,
    outcome::Outcome,
    sync::Sync,
    task::{Step, Task, Wake},
    view::View,
};

/// What a command names that the session does not know.
pub(super) struct Unknown {
    numbers: Vec<u32>,
    /// The UIDNEXT that was told here before the session.
    told: Option<u32>,
    /// The MODSEQ of another node since which it asks for changes.
    modseq: Option<u64>,
}

/// A command that waits for what it names.
pub(super) struct Named {
    unknown: Unknown,
    command: Option<Box<Command>>,
    state: NamedState,
}

enum NamedState {
    Begin,
    Asked,
    Telling(Sync),
}

impl Named {
    /// For a command that names this.
    pub(super) fn new(unknown: Unknown, command: Command) -> Named {
        Named {
            unknown,
            command: Some(Box::new(command)),
            state: NamedState::Begin,
        }
    }
}

/// What a command names that the session does not know: nothing, as a rule. `always`: whether each FETCH tells a UID.
pub(super) fn unknown(view: &mut View, command: &Command, always: bool) -> Option<Unknown> {
    let told = match tells_uids(&command.body, always) {
        true => view.told_before.take(),
        false => view.told_before,
    };
    let set = set_of(&command.body)?;
    let modseq = since_elsewhere(view, &command.body);
    let numbers = match modseq {
        // It says where the client was, whatever was told here.
        Some(_) => set.greatest_named().into_iter().collect(),
        None => {
            let from = told.map_or(view.uid_next, |told| told.min(view.uid_next));
            beyond(set, from)
        }
    };
    (!numbers.is_empty()).then_some(Unknown {
        numbers,
        told,
        modseq,
    })
}

/// The MODSEQ of CHANGEDSINCE, if it has not the slot of those that are told here.
fn since_elsewhere(view: &View, body: &CommandBody) -> Option<u64> {
    let CommandBody::Fetch(fetch) = body else {
        return None;
    };
    let is_of_another = |modseq: &u64| *modseq % 64 != view.highest_modseq % 64;
    fetch.changed_since.filter(is_of_another)
}

/// Whether the answer may have a UID of the selected mailbox. `always`: each FETCH has one.
fn tells_uids(body: &CommandBody, always: bool) -> bool {
    match body {
        CommandBody::Fetch(fetch) => {
            let condstore = fetch.changed_since.is_some();
            let asks = fetch.items.contains(&FetchItem::Uid);
            let asks = asks || condstore || fetch.items.contains(&FetchItem::ModSeq);
            fetch.uid || asks || always
        }
        CommandBody::Store(store) => store.uid || store.unchanged_since.is_some() || always,
        CommandBody::Search(search) => search.uid,
        CommandBody::Sort(sort) => sort.uid,
        CommandBody::Thread(thread) => thread.uid,
        CommandBody::Copy { .. } | CommandBody::Move { .. } => true,
        _ => false,
    }
}

/// The set of UIDs in a command that is carried out on the selected mailbox. EXPUNGE may be told before each of them: they are all `UID`.
fn set_of(body: &CommandBody) -> Option<&SequenceSet> {
    let set = match body {
        CommandBody::Fetch(fetch) if fetch.uid => &fetch.set,
        CommandBody::Store(store) if store.uid => &store.set,
        CommandBody::Copy { uid: true, set, .. } | CommandBody::Move { uid: true, set, .. } => set,
        // Message numbers beside it would mean other messages after an EXPUNGE.
        CommandBody::Search(search) if search.uid && !search.key.has_numbers() => {
            uids_of(&search.key)?
        }
        _ => return None,
    };
    set.numbers()
}

/// Has `*` mean what the client was told, before it is told more.
fn pin(view: &View, body: &mut CommandBody) {
    let Some(last) = view.count().checked_sub(1).map(|place| view.uid(place)) else {
        return;
    };
    match body {
        CommandBody::Search(search) => search.key.pin_uids(last),
        CommandBody::Fetch(Fetch { set, .. })
        | CommandBody::Store(Store { set, .. })
        | CommandBody::Copy { set, .. }
        | CommandBody::Move { set, .. } => set.pin(last),
        _ => {}
    }
}

/// `UID n:*`, alone or beside other keys: what a client searches for that looks for new messages.
fn uids_of(key: &SearchKey) -> Option<&MessageSet> {
    match key {
        SearchKey::Uid(set) => Some(set),
        SearchKey::And(keys) => keys.iter().find_map(|key| match key {
            SearchKey::Uid(set) => Some(set),
            _ => None,
        }),
        _ => None,
    }
}

/// The numbers at which a set begins anew above `known`, the greatest ones: what lies between is left out.
fn beyond(set: &SequenceSet, known: u32) -> Vec<u32> {
    let star = set.star().filter(|number| *number != u32::MAX);
    // What an open range covers begins nothing.
    let open = star.unwrap_or(u32::MAX);
    let ranges = set.ranges().iter().copied();
    let ranges = ranges.filter(|(first, _)| *first < open);
    let mut reached = known.max(1);
    let mut numbers = VecDeque::new();
    for (first, last) in ranges.chain(star.map(|number| (number, u32::MAX))) {
        if first > reached {
            numbers.push_back(first);
        }
        if numbers.len() > NAMED_PER_CALL_MAX {
            numbers.pop_front();
        }
        reached = reached.max(last.saturating_add(1));
    }
    numbers.into()
}

/// What QRESYNC names: the known UIDs, and those beside the sequence numbers.
pub(super) fn known(qresync: &Qresync) -> Vec<u32> {
    let beside = qresync.sequence_match.as_ref().map(|(_, uids)| uids);
    let sets = qresync.known_uids.iter().chain(beside);
    let mut numbers: Vec<u32> = sets.filter_map(SequenceSet::greatest_named).collect();
    numbers.dedup();
    numbers
}

impl Task for Named {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (NamedState::Begin, _) => {
                self.state = NamedState::Asked;
                let view = cx.view();
                if let Some(command) = &mut self.command {
                    pin(view, &mut command.body);
                }
                let call = MailboxCall::Named {
                    name: view.name.clone(),
                    uid_validity: view.uid_validity,
                    numbers: std::mem::take(&mut self.unknown.numbers),
                    told: self.unknown.told,
                    modseq: self.unknown.modseq,
                };
                Step::Call(cx.call(call))
            }
            (NamedState::Asked, Wake::Reply(Reply::Named { .. })) => {
                self.state = NamedState::Telling(Sync::new(true, true));
                Step::Again
            }
            (NamedState::Asked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (NamedState::Telling(sync), wake) => {
                let reply = match wake {
                    Wake::Reply(reply) => Some(reply),
                    _ => None,
                };
                match sync.within(cx, reply) {
                    Ok(step) => step,
                    Err(_) => match self.command.take() {
                        Some(command) => Step::Begin(command),
                        None => Step::Done(Outcome::bug()),
                    },
                }
            }
            (NamedState::Asked, _) => Step::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(set: &str, known: u32, expected: &[u32]) {
        let set = SequenceSet::parse(set.as_bytes(), 100).unwrap();
        assert_eq!(beyond(&set, known), expected);
    }

    #[test]
    fn what_is_left_out_tells_what_a_client_knows() {
        // 193 is the last that was told here, 257 the UIDNEXT of this session.
        check("1:256", 194, &[]);
        check("64,128,193:256", 194, &[]);
        check("194:*", 194, &[]);
        check("1:*", 194, &[]);
        check("*", 194, &[]);
        check("230,100:*", 194, &[]);
        check("195:*", 194, &[195]);
        check("230:256", 194, &[230]);
        check("193,230", 194, &[230]);
        check("64:200,201,230,240:*", 194, &[230, 240]);
        check("300:*", 257, &[300]);
        check("257:*", 257, &[]);
        check("1:*", 0, &[]);
        let many: Vec<String> = (0..100).map(|at| (1000 + at * 2).to_string()).collect();
        let last: Vec<u32> = (1000..1200).step_by(2).collect();
        check(&many.join(","), 194, &last[100 - NAMED_PER_CALL_MAX..]);
    }
}
