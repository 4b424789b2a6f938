//! From a client's wish to operations: what is visible here decides; nothing is changed.

mod mailboxes;
mod messages;
mod reassign;
mod size;

pub use self::size::Cut;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Dot;
use whimbrel_crdt::mutants::broken;

use crate::op::{Append, BoxRemoval, Claim, CopyEntry, CreateMailbox, Deliver, MoveEntry, Removal};
use crate::{
    BlobName, Date, EntryId, Flag, Flags, KEYWORDS_MAX, MailboxId, MailboxName, Message, MessageId,
    NameError, NewId, Op, Peers, Renewed, Replica, RestoreRecovery, SpecialUse,
};

/// Most mailboxes of an account: LIST and RENAME go through all of them.
pub const MAILBOXES_MAX: usize = 10_000;

/// Seconds of one tick of the UID counter: 2^26 ticks last 68 years.
const TICK_SECONDS: u64 = 32;

/// The counter ends here: a UID has 32 bits, six of them the slot.
const COUNTER_MAX: u32 = (1 << 26) - 1;

/// A UID that a client names is believed up to this far ahead of the counter (docs/design.md#rule-6).
pub(crate) const NAMED_AHEAD_MAX: u32 = 1 << 20;

/// Messages claimed again at a time: what they change must fit into one write of the store, and others wait for it.
pub const CLAIMS_PER_OP_MAX: usize = 4096;

/// Bytes of what messages that are claimed again change, at a time: half of what the store takes in one write, for other rows may be written
/// with them.
const CLAIMS_BYTES_MAX: usize = 8 << 20;

/// By how much the lead of a renewal grows with time: more than the UIDs that an account is given in a second for long.
const LEAD_PER_SECOND: u64 = 4;

/// Up to so many times the lead: what was idle for a year must not use up its UIDs, and who names a UID that was given above it is believed
/// at other nodes, too ([`NAMED_AHEAD_MAX`]).
const LEAD_GROWS_TO: u64 = 2;

/// When, and under which number, the planned operations will be applied.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wall clock, microseconds since the epoch.
    pub now_micros: u64,
    /// The dot of the first planned operation. The plan holds only if they get exactly this dot and those after it.
    pub next: Dot,
}

/// Operations to apply, and what to tell when they are on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T> {
    /// Empty if there is nothing to do.
    pub ops: Vec<Op>,
    /// What to tell.
    pub outcome: T,
}

/// Why a wish cannot be granted. Permanent unless said otherwise; the text may be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// NONEXISTENT, or TRYCREATE.
    #[error("no such mailbox")]
    NoMailbox,
    /// ALREADYEXISTS
    #[error("mailbox exists")]
    Exists,
    /// CANNOT: INBOX cannot be deleted.
    #[error("INBOX cannot be deleted")]
    Inbox,
    /// CANNOT: a name cannot be made.
    #[error(transparent)]
    Name(#[from] NameError),
    /// CANNOT: RENAME into itself.
    #[error("a mailbox cannot be moved below itself")]
    IntoItself,
    /// LIMIT
    #[error("too many mailboxes")]
    TooManyMailboxes,
    /// LIMIT
    #[error("too many keywords")]
    TooManyKeywords,
    /// The account is not open yet.
    #[error("the account is not open")]
    NotOpen,
    /// LIMIT: the counter is at its end; an epoch is due.
    #[error("no UIDs are left")]
    NoUids,
}

/// A message to append or deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Initial flags (ignored for a delivery).
    pub flags: Flags,
    /// Where the bytes are.
    pub blob: BlobName,
    /// RFC822.SIZE
    pub size: u32,
    /// It does not end with CRLF.
    pub open_end: bool,
    /// INTERNALDATE
    pub date: Date,
    /// The summary, opaque.
    pub content: Vec<u8>,
}

/// CREATE
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// MAILBOXID
    pub id: MailboxId,
}

/// RENAME
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Old and new names, the children's too.
    pub names: Vec<(MailboxName, MailboxName)>,
}

/// A delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The message.
    pub message: MessageId,
    /// The UID it gets; `None` if it was delivered before.
    pub uid: Option<u32>,
}

/// COPY: COPYUID in the order of the sources' UIDs. Call [`Replica::announce`] on the target before a client gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Source UID (as it was named) and target UID.
    pub uids: Vec<(u32, u32)>,
    /// UIDs that name nothing visible.
    pub missing: Vec<u32>,
}

/// MOVE: as for COPY.
pub type Moved = Copied;

/// How STORE names flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// `+FLAGS`
    Add,
    /// `-FLAGS`
    Remove,
    /// `FLAGS`
    Replace,
}

/// STORE
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The present UIDs of the messages found, ascending.
    pub uids: Vec<u32>,
    /// UIDs that name nothing visible.
    pub missing: Vec<u32>,
}

/// What a client that may come from another node names (docs/design.md#rule-6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// For each name the greatest UID or UIDNEXT - 1 that the client named.
    pub named: Vec<(MailboxName, u32)>,
    /// For each slot the greatest counter up to which every node at which the client may have been has made all claims visible: the least over
    /// those nodes ([`Replica::shown_by`]). A claim not covered by it may be unknown to the client.
    pub announced: Vec<(u8, u32)>,
}

/// UIDs in ascending order, above every counter seen.
struct Claims {
    next: u32,
    slot: u8,
    epoch: u32,
}

impl Claims {
    fn take(&mut self) -> Result<u32, PlanError> {
        if self.next > COUNTER_MAX {
            return Err(PlanError::NoUids);
        }
        let uid = self.next * 64 + u32::from(self.slot);
        self.next += 1;
        Ok(uid)
    }
}

impl Replica {
    /// Rule 1: above every counter seen, and following the account's age.
    fn claims(&self, at: &At) -> Claims {
        let base = if self.epoch > 0 {
            self.epoch
        } else {
            self.created
        };
        let age = (at.now_micros / 1_000_000).saturating_sub(u64::from(base));
        let tick = u32::try_from(age / TICK_SECONDS)
            .unwrap_or(u32::MAX)
            .min(COUNTER_MAX);
        Claims {
            next: (self.counter + 1).max(tick),
            slot: self.slot,
            epoch: self.epoch + u32::from(broken("claims-ahead-of-epoch")),
        }
    }

    fn is_open(&self) -> Result<(), PlanError> {
        if self.created == 0 {
            Err(PlanError::NotOpen)
        } else {
            Ok(())
        }
    }

    /// The mailbox that takes what is put into a name.
    fn target(&self, name: &MailboxName) -> Result<MailboxId, PlanError> {
        self.is_open()?;
        self.first_box(name)
            .map(|number| self.boxes[number].id)
            .ok_or(PlanError::NoMailbox)
    }

    /// The visible records that the UIDs name, by present UID, and the UIDs that name nothing.
    fn select(&self, name: &MailboxName, uids: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
        let (mut found, missing) = self.resolve_all(name, uids);
        for (uid, index) in &mut found {
            *uid = self.records[*index].visible_uid;
        }
        found.sort_unstable();
        found.dedup();
        (found, missing)
    }

    /// The same, by the UIDs that name them: of what was claimed again since it was announced to a session, its client knows no other.
    fn select_as_named(&self, name: &MailboxName, uids: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
        let (mut found, missing) = self.resolve_all(name, uids);
        found.sort_unstable();
        let mut slots = BTreeSet::new();
        found.retain(|(_, slot)| slots.insert(*slot));
        (found, missing)
    }

    /// The UIDs with the records that they name, and those that name nothing.
    fn resolve_all(&self, name: &MailboxName, uids: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
        crate::steps::count(uids.len());
        let (mut found, mut missing) = (Vec::with_capacity(uids.len()), Vec::new());
        for uid in uids {
            match self.resolve_index(name, *uid) {
                Some(slot) => found.push((*uid, slot)),
                None => missing.push(*uid),
            }
        }
        (found, missing)
    }
}

/// The dot of the `index`-th planned operation.
fn nth(at: &At, index: usize) -> Dot {
    Dot::new(at.next.origin, at.next.seq + index as u64)
}

fn check_keywords(flags: &Flags) -> Result<(), PlanError> {
    if flags.keywords().len() > KEYWORDS_MAX {
        Err(PlanError::TooManyKeywords)
    } else {
        Ok(())
    }
}
