//! UIDs that a client names and that it cannot know from here (DESIGN, 4.6).
//!
//! When an older copy of the disk was put back, a client may name what it was told in the time that was lost: a UID, or the UIDNEXT from which
//! it asks (`n:*`), beyond the UIDNEXT that this session was told. Before the command is carried out the owner is asked to believe it, and what
//! that changes is told, so that new messages lie where the client looks for them. It costs nothing where nothing such is named.

use whimbrel_imap::{
    Command, CommandBody,
    command::{Qresync, SearchKey},
    core::{MessageSet, SequenceSet},
};
use whimbrel_service::api::{MailboxCall, NAMED_PER_CALL_MAX, Reply};

use super::{
    context::Context,
    sync::Sync,
    task::{Outcome, Step, Task, Wake},
    view::View,
};

/// A command that waits for what it names.
pub(super) struct Named {
    numbers: Vec<u32>,
    command: Option<Box<Command>>,
    state: State,
}

enum State {
    Begin,
    Asked,
    Telling(Sync),
}

impl Named {
    /// For a command that names these numbers.
    pub(super) fn new(numbers: Vec<u32>, command: Command) -> Named {
        Named {
            numbers,
            command: Some(Box::new(command)),
            state: State::Begin,
        }
    }
}

/// What a command names that the session does not know: nothing, as a rule.
pub(super) fn unknown(view: &View, command: &Command) -> Vec<u32> {
    set_of(&command.body).map_or_else(Vec::new, |set| beyond(set, view.uid_next))
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
                let call = MailboxCall::Named {
                    name: view.name.clone(),
                    uid_validity: view.uid_validity,
                    numbers: std::mem::take(&mut self.numbers),
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
