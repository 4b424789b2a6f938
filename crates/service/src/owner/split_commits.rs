//! Changes to many messages, in commits that the store takes.
//!
//! The store bounds a commit, and what one call does is bounded ([`MESSAGES_PER_CALL_MAX`](crate::api::MESSAGES_PER_CALL_MAX)), so what names
//! more messages than that must be cut, or be refused. The session asks for the parts one by one; between two of them others are served, and a
//! crash, a full disk or the end of the connection leaves the first of them:
//!
//! - COPY is never cut: "partial copy MUST NOT be done" (RFC 9051, 6.4.7). It is one commit; too great a one is refused before anything is done.
//!   So are an APPEND and a RENAME that would be greater than a commit.
//! - MOVE may be cut between messages: "it might fail partway through the set", and "The server MUST leave each message in a state where it is in
//!   at least one of the source or target mailboxes" (RFC 6851, 3.3), in no case in both. An operation moves each of its messages whole.
//! - STORE and EXPUNGE change each message by itself, and so does a DELETE of a large mailbox, which is emptied first.
//! - RENAME of a large INBOX is CREATE and MOVE of what was in it at the beginning.
//! - Claims made again (an epoch, late messages, a takeover) are cut where they are planned: the row of a message that waits for its claim says
//!   that it is not shown.
//! - Messages that a RENAME would make late are claimed again before it, under the old name: what is left half done has new UIDs, and nothing
//!   else has changed.

use whimbrel_mailbox::{AccountId, At, MailboxName, Plan, PlanError, Replica};
use whimbrel_storage::COMMIT_BYTES_MAX;

use super::{Mail, answers::failure};
use crate::{
    api::{Failure, ROWS_PER_CALL_MAX},
    machine::Now,
};

/// Bytes of one commit that plans may use up; the rest is for what is written beside them. At some 480 bytes a message without keywords this is
/// room for 32,000 messages.
pub(super) const BATCH_BYTES_MAX: usize = COMMIT_BYTES_MAX - (1 << 20);

/// Rows in one commit without operations, but for those of its last message. Most have some hundred bytes; of those with a hundred keywords fewer
/// make [`BATCH_BYTES_MAX`].
pub(super) const ROWS_PER_COMMIT_MAX: usize = 8192;

/// Whether what was planned fits into one commit.
pub(super) fn fits<T>(replica: &Replica, plan: &Plan<T>) -> bool {
    replica.commit_bytes_max(&plan.ops) <= BATCH_BYTES_MAX
}

/// Refuses messages that are added at once and would be greater than a commit.
pub(super) fn fits_append<T>(replica: &Replica, plan: &Plan<T>) -> Result<(), Failure> {
    if fits(replica, plan) {
        Ok(())
    } else {
        Err(Failure::Limit(
            "Too much for one APPEND: send the messages in several",
        ))
    }
}

impl Mail {
    /// Plans for the first of the messages, as many as one call may change at once, and writes. Says what the plan tells, and about how many
    /// it is.
    pub(super) fn one_batch<T>(
        &mut self,
        now: Now,
        account: AccountId,
        uids: &[u32],
        announce: &[&MailboxName],
        plan: impl Fn(&Replica, &At, &[u32]) -> Result<Plan<T>, PlanError>,
    ) -> Result<(T, usize), Failure> {
        let mut len = uids.len().min(self.config.messages_per_call_max.max(1));
        loop {
            let at = self.at(now, account);
            let replica = self.accounts.replica(account)?;
            let planned = plan(replica, &at, &uids[..len]).map_err(failure)?;
            // Many keywords: fewer messages at a time. One always fits.
            if len > 1 && !fits(replica, &planned) {
                len /= 2;
                continue;
            }
            self.write(now, account, planned.ops, announce);
            return Ok((planned.outcome, len));
        }
    }

    /// Plans and writes for all of the messages, which are few: [`ROWS_PER_CALL_MAX`](crate::api::ROWS_PER_CALL_MAX).
    pub(super) fn in_batches<T>(
        &mut self,
        now: Now,
        account: AccountId,
        uids: &[u32],
        plan: impl Fn(&Replica, &At, &[u32]) -> Result<Plan<T>, PlanError>,
    ) -> Result<(), Failure> {
        if uids.len() > ROWS_PER_CALL_MAX {
            return Err(Failure::Limit("too many messages in one call"));
        }
        let mut rest = uids;
        while !rest.is_empty() {
            let (_, done) = self.one_batch(now, account, rest, &[], &plan)?;
            rest = &rest[done..];
        }
        Ok(())
    }
}
