//! Changes to many messages, in commits that the store takes.
//!
//! The store bounds a commit, so what names more messages than fit must be cut into several batches, or be refused. A crash between two
//! batches leaves the first of them:
//!
//! - COPY is never cut: "partial copy MUST NOT be done" (RFC 9051, 6.4.7). Too great a one is refused before anything is done; so are an APPEND
//!   and a RENAME that would be greater than a commit.
//! - MOVE may be cut between messages: "it might fail partway through the set", and "The server MUST leave each message in a state where it is in
//!   at least one of the source or target mailboxes" (RFC 6851, 3.3), in no case in both. An operation moves each of its messages whole.
//! - STORE and EXPUNGE change each message by itself, and so does a DELETE of a large mailbox, which is emptied first.
//! - Claims made again (an epoch, late messages, a takeover) are cut where they are planned: the row of a message that waits for its claim says
//!   that it is not shown.
//! - Messages that a RENAME would make late are claimed again before it, under the old name: a crash leaves them with new UIDs, and nothing else.

use whimbrel_mailbox::{AccountId, At, MailboxName, Plan, PlanError, Replica};
use whimbrel_storage::COMMIT_BYTES_MAX;

use super::{PartitionOwner, calls::failure};
use crate::{api::Failure, machine::Now};

/// Bytes of one commit that plans may use up; the rest is for what is written beside them. At some 480 bytes a message without keywords this is
/// room for 32,000 messages.
const BATCH_BYTES_MAX: usize = COMMIT_BYTES_MAX - (1 << 20);

/// Messages in one batch of what may be cut: an owner plans and writes no more at a time, and a commit stays small, which others share a sync
/// with.
pub(super) const MESSAGES_PER_BATCH_MAX: usize = 4096;

/// Rows in one commit without operations, but for those of its last message: removed ones have some hundred bytes, a mailbox or a mark a name's (1,000 bytes) more, and of those an
/// account has ten thousand at most.
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

impl PartitionOwner {
    /// Plans for some of the messages at a time, and writes; `told` gets what each plan tells.
    #[allow(clippy::too_many_arguments, reason = "the parts of one call")]
    pub(super) fn in_batches<T>(
        &mut self,
        now: Now,
        account: AccountId,
        uids: &[u32],
        announce: &[&MailboxName],
        plan: impl Fn(&Replica, &At, &[u32]) -> Result<Plan<T>, PlanError>,
        mut told: impl FnMut(T),
    ) -> Result<(), Failure> {
        let mut len = MESSAGES_PER_BATCH_MAX;
        let mut rest = uids;
        while !rest.is_empty() {
            let chunk = &rest[..len.min(rest.len())];
            let at = self.at(now, account);
            let replica = self.replica(account)?;
            let planned = plan(replica, &at, chunk).map_err(failure)?;
            // Many keywords: fewer messages at a time. One always fits.
            if chunk.len() > 1 && !fits(replica, &planned) {
                len = chunk.len() / 2;
                continue;
            }
            self.write(now, account, planned.ops, announce);
            told(planned.outcome);
            rest = &rest[chunk.len()..];
        }
        Ok(())
    }
}
