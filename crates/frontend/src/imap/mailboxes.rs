//! CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE and STATUS (RFC 9051, 6.3.4 to 6.3.8 and 6.3.11; RFC 6154; RFC 8438; RFC 8474).

use whimbrel_imap::{
    command::{SpecialUse as WireUse, StatusItem},
    core::MailboxName as WireName,
    encode::{self, Code, StatusValues},
};
use whimbrel_service::api::{Call, MailboxCall, MailboxName, Reply, SpecialUse, Status};

use super::{
    context::{self, Context},
    objectid,
    outcome::{EndCode, Outcome},
    task::{Step, Task, Wake},
};

/// A command that is one call, or the same until it is done, and has no data to tell.
pub(super) struct Simple {
    call: MailboxCall,
    done: &'static str,
    /// The selected mailbox may be gone by it.
    leaves: bool,
}

impl Simple {
    fn new(call: MailboxCall, done: &'static str) -> Simple {
        Simple {
            call,
            done,
            leaves: false,
        }
    }
}

impl Task for Simple {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go => Step::Call(cx.call(self.call.clone())),
            // A large mailbox: others get in between.
            Wake::Reply(Reply::Partly { rest: goes_on }) => {
                if let MailboxCall::Rename { rest, .. } = &mut self.call {
                    *rest = goes_on;
                }
                Step::Call(cx.call(self.call.clone()))
            }
            Wake::Reply(Reply::Done) => {
                if self.leaves
                    && let Some(view) = &mut cx.view
                {
                    view.left = true;
                }
                Step::Done(Outcome::ok(self.done))
            }
            // "A server advertising the OBJECTID capability MUST include the MAILBOXID response code in the tagged OK response to all
            // successful CREATE commands" (RFC 8474, 4.1).
            Wake::Reply(Reply::Created(id)) => {
                let code = EndCode::MailboxId(objectid::mailbox_id(id));
                Step::Done(Outcome::ok_code(code, self.done))
            }
            Wake::Reply(reply) => Step::Done(Outcome::of_reply(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

/// The name of a mailbox that is to be. One that is not in normalization form C is refused rather than converted, so that the client finds
/// under each name just what it has put there, and no OLDNAME is ever due (RFC 9051, 5.1 and 6.3.9.7).
fn new_name(mailbox: &WireName) -> Result<MailboxName, Outcome> {
    if !mailbox.is_net_unicode() {
        return Err(Outcome::no(
            Code::Cannot,
            "Mailbox name is not in Unicode normalization form C",
        ));
    }
    let text = mailbox.as_str();
    let text = text.strip_suffix(MailboxName::SEPARATOR).unwrap_or(text);
    MailboxName::new(text).map_err(|error| Outcome::no(Code::Cannot, error.to_string()))
}

/// "If the mailbox name is suffixed with the server's hierarchy separator character, this is a declaration that the client intends to
/// create mailbox names under this name in the hierarchy" (RFC 9051, 6.3.4); here every mailbox can have them.
pub(super) fn create(
    mailbox: &WireName,
    uses: &[WireUse],
    unknown_use: bool,
) -> Result<Simple, Outcome> {
    let name = new_name(mailbox)?;
    let special_use = match uses {
        _ if unknown_use => return Err(Outcome::no(Code::UseAttr, "No such special use")),
        [] => None,
        // "The specified special use is not supported" (RFC 6154, 3): they present messages that lie in other mailboxes (2), and no mailbox
        // here does.
        [WireUse::All | WireUse::Flagged] => {
            return Err(Outcome::no(
                Code::UseAttr,
                "No mailbox shows what lies in others",
            ));
        }
        [one] => Some(service_use(*one)),
        _ => {
            return Err(Outcome::no(
                Code::UseAttr,
                "A mailbox has one special use at most",
            ));
        }
    };
    Ok(Simple::new(
        MailboxCall::Create { name, special_use },
        "Created",
    ))
}

/// DELETE. Of the selected mailbox, too: the session then goes back to the authenticated state.
pub(super) fn delete(mailbox: &WireName) -> Result<Simple, Outcome> {
    let name = context::existing_name(mailbox)?;
    Ok(Simple {
        leaves: true,
        ..Simple::new(MailboxCall::Delete { name }, "Deleted")
    })
}

/// RENAME.
pub(super) fn rename(from: &WireName, to: &WireName) -> Result<Simple, Outcome> {
    let to = new_name(to)?;
    let from = context::existing_name(from)?;
    Ok(Simple {
        leaves: true,
        ..Simple::new(
            MailboxCall::Rename {
                from,
                to,
                rest: None,
            },
            "Renamed",
        )
    })
}

/// SUBSCRIBE and UNSUBSCRIBE.
pub(super) fn subscribe(mailbox: &WireName, subscribed: bool) -> Result<Simple, Outcome> {
    let name = context::name(mailbox)?;
    let done = if subscribed {
        "Subscribed"
    } else {
        "Unsubscribed"
    };
    Ok(Simple::new(
        MailboxCall::Subscribe { name, subscribed },
        done,
    ))
}

/// Waits for the answer to a call that does not matter, then ends.
pub(super) struct After(pub(super) Option<Outcome>);

impl Task for After {
    fn step(&mut self, _cx: &mut Context, _wake: Wake<'_>) -> Step {
        Step::Done(self.0.take().unwrap_or_else(Outcome::bug))
    }
}

/// STATUS.
pub(super) struct StatusTask {
    name: MailboxName,
    items: Vec<StatusItem>,
}

impl StatusTask {
    pub(super) fn new(mailbox: &WireName, items: Vec<StatusItem>) -> Result<StatusTask, Outcome> {
        Ok(StatusTask {
            name: context::existing_name(mailbox)?,
            items,
        })
    }
}

impl Task for StatusTask {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go => Step::Call(status_call(cx, &self.name)),
            Wake::Reply(Reply::Status(status)) => {
                write_status(cx, &self.name, &self.items, &status);
                Step::Done(Outcome::ok("STATUS completed"))
            }
            Wake::Reply(reply) => Step::Done(Outcome::of_reply(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

/// Asks for the figures of a mailbox.
pub(super) fn status_call(cx: &Context, name: &MailboxName) -> Call {
    cx.call(MailboxCall::Status { name: name.clone() })
}

/// `* STATUS`. HIGHESTMODSEQ is a CONDSTORE enabling item (RFC 7162, 3.1).
pub(super) fn write_status(
    cx: &mut Context,
    name: &MailboxName,
    items: &[StatusItem],
    status: &Status,
) {
    if items.contains(&StatusItem::HighestModSeq) {
        cx.enable_condstore();
    }
    let values = StatusValues {
        messages: u64::from(status.messages),
        recent: 0,
        uid_next: status.uid_next,
        uid_validity: status.uid_validity,
        unseen: u64::from(status.unseen),
        deleted: u64::from(status.deleted),
        size: status.size,
        deleted_size: status.deleted_size,
        highest_mod_seq: status.highest_modseq,
        append_limit: cx.limits.syntax.append_bytes_max,
        mailbox_id: items
            .contains(&StatusItem::MailboxId)
            .then(|| objectid::mailbox_id(status.id)),
    };
    encode::status_data(&mut cx.out, name.as_str(), items, &values, cx.utf8);
}

fn service_use(special: WireUse) -> SpecialUse {
    match special {
        WireUse::All => SpecialUse::All,
        WireUse::Archive => SpecialUse::Archive,
        WireUse::Drafts => SpecialUse::Drafts,
        WireUse::Flagged => SpecialUse::Flagged,
        WireUse::Important => SpecialUse::Important,
        WireUse::Junk => SpecialUse::Junk,
        WireUse::Sent => SpecialUse::Sent,
        WireUse::Trash => SpecialUse::Trash,
    }
}

/// The attribute of LIST.
pub(super) fn wire_use(special: SpecialUse) -> WireUse {
    match special {
        SpecialUse::All => WireUse::All,
        SpecialUse::Archive => WireUse::Archive,
        SpecialUse::Drafts => WireUse::Drafts,
        SpecialUse::Flagged => WireUse::Flagged,
        SpecialUse::Important => WireUse::Important,
        SpecialUse::Junk => WireUse::Junk,
        SpecialUse::Sent => WireUse::Sent,
        SpecialUse::Trash => WireUse::Trash,
    }
}
