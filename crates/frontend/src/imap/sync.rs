//! Tells the client what has changed in the selected mailbox: EXPUNGE (or VANISHED), EXISTS, FLAGS and FETCH.
//!
//! Asks [`MailboxCall::Changes`] until there is nothing more, and writes the answers piece by piece. This is the only place, apart from
//! [`super::expunge`], where sequence numbers change.
//!
//! "If the server sends MODSEQ FETCH data items while EXPUNGE (or VANISHED) replies with lower mod-sequences being delayed, the server MUST send
//! the HIGHESTMODSEQ response code with a lower value than the EXPUNGE's mod-sequence" (RFC 7162, 3.2): a client that lost its connection then
//! would never hear of the EXPUNGE. So who uses QRESYNC is told up to where it knows everything, and again when it knows all.

use whimbrel_imap::encode::{self, Code, FetchWriter};
use whimbrel_service::api::{Changes, Failure, MailboxCall, Reply, Row};

use super::{
    context::Context,
    gone::Gone,
    limits::IDLE_PAUSE_MICROS,
    task::Step,
    view::{View, wire_flags},
};

/// One telling of changes.
pub(super) struct Sync {
    expunges: bool,
    /// Untagged FETCH has the UID.
    uid: bool,
    state: SyncState,
}

enum SyncState {
    Ask,
    Wait,
    Tell(Box<Tell>),
}

/// An answer that is being told.
struct Tell {
    gone: Gone,
    exists: bool,
    flags: bool,
    changed: std::vec::IntoIter<Row>,
    held_back: Option<u64>,
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
            state: SyncState::Ask,
        }
    }

    /// Goes on in the middle of a command that is not at its end: `Err` when there is nothing more to tell; `true`: because the mailbox is
    /// gone, which the end of the command will find, too.
    pub(super) fn within(&mut self, cx: &mut Context, reply: Option<Reply>) -> Result<Step, bool> {
        match self.step(cx, reply) {
            SyncStep::Call(call) => Ok(Step::Call(call)),
            SyncStep::Again => Ok(Step::Again),
            SyncStep::Done => Err(false),
            SyncStep::Gone => {
                cx.view_mut().dirty = true;
                Err(true)
            }
        }
    }

    /// Goes on. `reply` answers the call.
    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> SyncStep {
        match (&mut self.state, reply) {
            (SyncState::Ask, None) => {
                self.state = SyncState::Wait;
                if self.expunges {
                    cx.view_mut().dirty = false;
                }
                let since = cx.view().as_of;
                let call = MailboxCall::Changes {
                    session: cx.peer.session,
                    since,
                    expunges: self.expunges,
                };
                SyncStep::Call(cx.call(call))
            }
            (SyncState::Wait, Some(Reply::Changes(changes))) => {
                // One of the same name that was made since is another mailbox: its MAILBOXID is not what SELECT told.
                if changes.id != Some(cx.view().id) {
                    return SyncStep::Gone;
                }
                cx.asks_from = 0;
                let tell = Tell::new(
                    cx.qresync,
                    cx.view.as_deref_mut().expect("only in the selected state"),
                    changes,
                    cx.limits.keywords_max,
                );
                self.state = SyncState::Tell(Box::new(tell));
                SyncStep::Again
            }
            (SyncState::Wait, Some(Reply::Failed(Failure::Gone | Failure::NoSuchMailbox))) => {
                SyncStep::Gone
            }
            (SyncState::Wait, Some(_)) => {
                // A temporary failure: nothing is told now, and it is tried again after the next command, or after a pause in IDLE.
                cx.view_mut().dirty = true;
                cx.asks_from = cx.now.mono_micros + IDLE_PAUSE_MICROS;
                if cx.qresync {
                    told_up_to(cx, Some(cx.view().known_to));
                }
                SyncStep::Done
            }
            (SyncState::Tell(tell), _) => {
                if !tell.write(cx, self.uid) {
                    return SyncStep::Again;
                }
                if tell.more {
                    self.state = SyncState::Ask;
                    return SyncStep::Again;
                }
                if cx.qresync {
                    let held_back = tell.held_back;
                    told_up_to(cx, held_back);
                }
                let view = cx.view_mut();
                view.told = Vec::new();
                // What this session deleted or renamed was another mailbox.
                view.left = false;
                SyncStep::Done
            }
            // A call is under way.
            (SyncState::Ask | SyncState::Wait, _) => SyncStep::Again,
        }
    }
}

impl Tell {
    fn new(qresync: bool, view: &mut View, changes: Changes, keywords_max: usize) -> Tell {
        let vanished = match &changes.present {
            None => changes.vanished,
            Some(present) => view.missing_from(present),
        };
        let gone = Gone::new(view, &vanished, qresync);
        let exists = view.arrive(changes.present.as_deref().unwrap_or(&changes.arrived));
        let flags = view.learn_keywords(&changes.changed, keywords_max);
        view.uid_next = changes.uid_next;
        view.highest_modseq = changes.highest_modseq;
        view.as_of = changes.as_of;
        view.known_to = changes.held_back.unwrap_or(changes.highest_modseq);
        if changes.more {
            view.known_to = view.known_to.min(changes.as_of);
        }
        view.told.sort_unstable();
        Tell {
            gone,
            exists,
            flags,
            changed: changes.changed.into_iter(),
            held_back: changes.held_back,
            more: changes.more,
        }
    }

    /// Writes what there is room for; says whether that was all.
    fn write(&mut self, cx: &mut Context, uid: bool) -> bool {
        if !self.gone.write(cx) {
            return false;
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

/// Tells up to which MODSEQ the client knows everything, if that is not what it must conclude from what it was told.
fn told_up_to(cx: &mut Context, held_back: Option<u64>) {
    let view = cx.view_mut();
    let was_held_back = std::mem::replace(&mut view.held_back, held_back.is_some());
    let highest = view.highest_modseq;
    if let Some(up_to) = held_back {
        let text = "Some messages are expunged, which cannot be announced now";
        cx.ok(Some(Code::HighestModSeq(up_to)), text);
    } else if was_held_back {
        let code = Code::HighestModSeq(highest);
        cx.ok(Some(code), "All changes are announced");
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
