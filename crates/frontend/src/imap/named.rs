//! UIDs that a client names and that it cannot know from here (DESIGN, 4.6).
//!
//! A client that comes from another node names what it was told there: a UID, or the UIDNEXT from which it asks (`n:*`), beyond the UIDNEXT that was told
//! here before it came. So does one to which an older copy of the disk, put back since, had told more. Before the command is carried out the owner is asked
//! to believe it, and what that changes is told, so that new messages lie where the client looks for them. It costs nothing where nothing such is named.
//!
//! `*` means the last message that the client was told of before, as if nothing had been told within the command: a flag for `*`, or for what lies from a
//! message that the client knows to `*`, is not for one that it has not heard of. A range that begins above all it knows asks for what is new.
//!
//! What was told here before counts for the first command of a session that names UIDs: what a client names later it may have from this session.

use whimbrel_imap::{
    Command, CommandBody,
    command::{Fetch, Qresync, SearchKey, Store},
    core::{MessageSet, SequenceSet},
};
use whimbrel_service::api::{MailboxCall, NAMED_PER_CALL_MAX, Reply};

use super::{
    context::Context,
    sync::Sync,
    task::{Outcome, Step, Task, Wake},
    view::View,
};

/// What a command names that the session does not know.
pub(super) struct Unknown {
    numbers: Vec<u32>,
    /// The UIDNEXT that was told here before the session.
    told: Option<u32>,
}

/// A command that waits for what it names.
pub(super) struct Named {
    unknown: Unknown,
    command: Option<Box<Command>>,
    state: State,
}

enum State {
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
            state: State::Begin,
        }
    }
}

/// What a command names that the session does not know: nothing, as a rule.
pub(super) fn unknown(view: &mut View, command: &Command) -> Option<Unknown> {
    let set = set_of(&command.body)?;
    let told = view.told_before.take();
    let from = told.map_or(view.uid_next, |told| told.min(view.uid_next));
    let numbers = beyond(set, from);
    (!numbers.is_empty()).then_some(Unknown { numbers, told })
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
    match set {
        MessageSet::Numbers(set) => Some(set),
        MessageSet::Saved => None,
    }
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
        | CommandBody::Move { set, .. } => {
            if let MessageSet::Numbers(set) = set {
                set.pin(last);
            }
        }
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

/// The numbers of a set above `uid_next`, the greatest ones.
fn beyond(set: &SequenceSet, uid_next: u32) -> Vec<u32> {
    let star = set.star().filter(|number| *number != u32::MAX);
    let ends = set.ranges().iter().rev();
    let ends = ends
        .take(NAMED_PER_CALL_MAX / 2)
        .flat_map(|(first, last)| [*first, *last]);
    let mut numbers: Vec<u32> = ends
        .chain(star)
        .filter(|number| *number > uid_next)
        .collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.dedup();
    numbers.truncate(NAMED_PER_CALL_MAX);
    numbers
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
            (State::Begin, _) => {
                self.state = State::Asked;
                let view = cx.view();
                if let Some(command) = &mut self.command {
                    pin(view, &mut command.body);
                }
                let call = MailboxCall::Named {
                    name: view.name.clone(),
                    uid_validity: view.uid_validity,
                    numbers: std::mem::take(&mut self.unknown.numbers),
                    told: self.unknown.told,
                    modseq: None,
                };
                Step::Call(cx.call(call))
            }
            (State::Asked, Wake::Reply(Reply::Done)) => {
                self.state = State::Telling(Sync::new(true, true));
                Step::Again
            }
            (State::Asked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Telling(sync), wake) => {
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
            (State::Asked, _) => Step::Again,
        }
    }
}
