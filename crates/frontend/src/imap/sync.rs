//! Tells the client what has changed in the selected mailbox: EXPUNGE, EXISTS, FLAGS and FETCH.
//!
//! Asks [`MailboxCall::Changes`] until there is nothing more, and writes the answers piece by piece. This is the only place, apart from
//! [`super::expunge`], where sequence numbers change.

use whimbrel_imap::encode::{self, Code, FetchWriter};
use whimbrel_service::api::{Changes, Failure, MailboxCall, Reply, Row};

use super::{
    context::Context,
    view::{View, wire_flags},
};

/// One telling of changes.
pub(super) struct Sync {
    expunges: bool,
    /// Untagged FETCH has the UID.
    uid: bool,
    state: State,
}

enum State {
    Ask,
    Wait,
    Tell(Box<Tell>),
}

/// An answer that is being told.
struct Tell {
    /// Numbers of EXPUNGE that are still to be written, in the order of `numbers`.
    numbers: std::vec::IntoIter<u32>,
    exists: bool,
    flags: bool,
    changed: std::vec::IntoIter<Row>,
    more: bool,
}

/// What a [`Sync`] wants next.
pub(super) enum SyncStep {
    /// The answer to this.
    Call(whimbrel_service::api::Call),
    /// To go on when there is room for output.
    Again,
    /// Nothing: all is told.
    Done,
    /// The mailbox is gone.
    Gone,
}

impl Sync {
    /// With `expunges`, EXPUNGE may be sent. With `uid`, each FETCH has the UID.
    pub(super) fn new(expunges: bool, uid: bool) -> Sync {
        Sync {
            expunges,
            uid,
            state: State::Ask,
        }
    }

    /// Goes on. `reply` answers the call.
    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> SyncStep {
        match (&mut self.state, reply) {
            (State::Ask, None) => {
                self.state = State::Wait;
                if self.expunges {
                    cx.view_mut().dirty = false;
                }
                let since = cx.view().as_of;
                let call = MailboxCall::Changes {
                    session: cx.session,
                    since,
                    expunges: self.expunges,
                };
                SyncStep::Call(cx.call(call))
            }
            (State::Wait, Some(Reply::Changes(changes))) => {
                if changes.gone {
                    return SyncStep::Gone;
                }
                let tell = Tell::new(
                    cx.view.as_deref_mut().expect("only in the selected state"),
                    changes,
                    cx.limits.keywords_max,
                );
                self.state = State::Tell(Box::new(tell));
                SyncStep::Again
            }
            (State::Wait, Some(Reply::Failed(Failure::Gone | Failure::NoSuchMailbox))) => {
                SyncStep::Gone
            }
            (State::Wait, Some(_)) => {
                // A temporary failure: nothing is told now, and it is tried again after the next command.
                cx.view_mut().dirty = true;
                SyncStep::Done
            }
            (State::Tell(tell), _) => {
                if !tell.write(cx, self.uid) {
                    return SyncStep::Again;
                }
                if tell.more {
                    self.state = State::Ask;
                    return SyncStep::Again;
                }
                let view = cx.view_mut();
                view.told = Vec::new();
                // What this session deleted or renamed was another mailbox.
                view.left = false;
                SyncStep::Done
            }
            // A call is under way.
            (State::Ask | State::Wait, _) => SyncStep::Again,
        }
    }
}

impl Tell {
    fn new(view: &mut View, changes: Changes, keywords_max: usize) -> Tell {
        let vanished = match &changes.present {
            None => changes.vanished,
            Some(present) => view.missing_from(present),
        };
        let numbers = if vanished.is_empty() {
            Vec::new()
        } else {
            view.remove(&vanished)
        };
        let exists = view.arrive(changes.present.as_deref().unwrap_or(&changes.arrived));
        let flags = view.learn_keywords(&changes.changed, keywords_max);
        view.uid_next = changes.uid_next;
        view.highest_modseq = changes.highest_modseq;
        view.as_of = changes.as_of;
        view.told.sort_unstable();
        Tell {
            numbers: numbers.into_iter(),
            exists,
            flags,
            changed: changes.changed.into_iter(),
            more: changes.more,
        }
    }

    /// Writes what there is room for; says whether that was all.
    fn write(&mut self, cx: &mut Context, uid: bool) -> bool {
        for number in self.numbers.by_ref() {
            encode::expunge(&mut cx.out, number);
            if cx.is_full() {
                return false;
            }
        }
        if std::mem::take(&mut self.exists) {
            let count = cx.view().count();
            encode::exists(&mut cx.out, count);
        }
        if std::mem::take(&mut self.flags) {
            write_flags(cx);
        }
        for row in self.changed.by_ref() {
            let view = cx.view();
            if view.told.binary_search(&(row.uid, row.modseq)).is_ok() {
                continue;
            }
            if let Some(place) = view.place(row.uid) {
                write_row(cx, place, &row, uid, true, false);
            }
            if cx.is_full() {
                return false;
            }
        }
        true
    }
}

/// FLAGS, and what of them can be kept.
pub(super) fn write_flags(cx: &mut Context) {
    let flags = cx.view().flags();
    encode::flags(&mut cx.out, &flags);
    if cx.view().read_only {
        cx.ok(
            Some(Code::PermanentFlags(&[], false)),
            "No flags can be changed",
        );
    } else {
        cx.ok(
            Some(Code::PermanentFlags(&flags, true)),
            "Flags are permanent",
        );
    }
}

/// An untagged FETCH about the flags of a message. `with_modseq` asks for MODSEQ even if CONDSTORE was not enabled.
pub(super) fn write_row(
    cx: &mut Context,
    place: u32,
    row: &Row,
    uid: bool,
    with_flags: bool,
    with_modseq: bool,
) {
    let mut fetch = FetchWriter::begin(&mut cx.out, place + 1);
    // RFC 7162, 3.2.4, asks for the UID when CONDSTORE is in use; clients of IMAP4rev2 may expect as much.
    if uid || cx.condstore || cx.rev2 {
        fetch.uid(&mut cx.out, row.uid);
    }
    if with_flags {
        fetch.flags(&mut cx.out, &wire_flags(&row.flags), false);
    }
    if cx.condstore || with_modseq {
        fetch.mod_seq(&mut cx.out, row.modseq);
    }
    fetch.end(&mut cx.out);
}
