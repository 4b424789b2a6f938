//! GETQUOTA and GETQUOTAROOT (RFC 9208). An account has one quota root, the empty name, for all its mailboxes.

use whimbrel_imap::{
    core::MailboxName as WireName,
    encode::{self, Code, Resource, ResourceUse},
};
use whimbrel_service::api::{MailboxCall, MailboxName, Reply, Usage};

use super::{
    context::{self, Context},
    outcome::Outcome,
    task::{Step, Task, Wake},
};

const ROOT: &str = "";

/// Either command.
pub(super) struct Quota {
    /// GETQUOTAROOT: of this mailbox.
    mailbox: Option<MailboxName>,
}

impl Quota {
    /// GETQUOTA.
    pub(super) fn of_root(root: &[u8]) -> Result<Quota, Outcome> {
        if root != ROOT.as_bytes() {
            return Err(Outcome::no(Code::NonExistent, "No such quota root"));
        }
        Ok(Quota { mailbox: None })
    }

    /// GETQUOTAROOT (RFC 9208, 4.1.3). The root is the same for a mailbox that does not exist yet.
    pub(super) fn of_mailbox(mailbox: &WireName) -> Result<Quota, Outcome> {
        Ok(Quota {
            mailbox: Some(context::name(mailbox)?),
        })
    }
}

impl Task for Quota {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go => Step::Call(cx.call(MailboxCall::Usage)),
            Wake::Reply(Reply::Usage(usage)) => {
                let mut text = "GETQUOTA completed";
                if let Some(mailbox) = &self.mailbox {
                    encode::quota_root(&mut cx.out, mailbox.as_str(), ROOT, cx.utf8);
                    text = "GETQUOTAROOT completed";
                }
                encode::quota(&mut cx.out, ROOT, &uses(&usage));
                Step::Done(Outcome::ok(text))
            }
            Wake::Reply(reply) => Step::Done(Outcome::of_reply(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

/// Of what is limited.
fn uses(usage: &Usage) -> Vec<ResourceUse> {
    let limits = &usage.quota;
    let all = [
        (Resource::Storage, usage.bytes, limits.bytes_max),
        (Resource::Message, usage.messages, limits.messages_max),
        (Resource::Mailbox, usage.mailboxes, limits.mailboxes_max),
    ];
    let limited = all.into_iter().filter_map(|(resource, used, limit)| {
        Some(ResourceUse {
            resource,
            used,
            limit: limit?,
        })
    });
    limited.collect()
}
