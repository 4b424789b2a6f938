//! One account on one replica: the replicated state, and what this replica has shown.

use whimbrel_crdt::{Batch, Incarnation, VersionVector};

use crate::{AccountId, BlobName, EntryTag, MailboxId, MailboxName, MessageId, Op, RowKey};

/// Another replica that is live and has readers on the account (rule 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its slot.
    pub slot: u8,
    /// The greatest counter of the account heard from it.
    pub heard: u32,
    /// How long to wait for it, in microseconds: three round trips, at most two seconds.
    pub patience_micros: u64,
}

/// The other live replicas with readers on the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(pub Vec<Peer>);

impl Peers {
    /// Readers here only, the common case: nobody waits.
    pub const fn none() -> Self {
        Self(Vec::new())
    }
}

/// The circumstances in which operations are applied.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Who made them.
    pub origin: Incarnation,
    /// The number of the first of them.
    pub first: u64,
    /// The time of the first of them.
    pub hlc: u64,
    /// What their batch depends on.
    pub deps: &'a VersionVector,
    /// What this replica has applied, this batch included.
    pub applied: &'a VersionVector,
    /// This replica's hybrid clock, in microseconds: for MODSEQ and for waiting.
    pub now_micros: u64,
    /// Who else reads.
    pub peers: &'a Peers,
}

impl<'a> Step<'a> {
    /// The step for the section of `batch` whose first operation has this index ([`Batch::indexed_sections`]).
    pub fn of(
        batch: &'a Batch,
        index: u32,
        applied: &'a VersionVector,
        now_micros: u64,
        peers: &'a Peers,
    ) -> Self {
        Self {
            origin: batch.origin,
            first: batch.first + u64::from(index),
            hlc: batch.stamp.hlc + u64::from(index),
            deps: &batch.deps,
            applied,
            now_micros,
            peers,
        }
    }
}

/// What a step changed for those who look at the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Names under which something shown changed, sorted: their sessions ask for [`Replica::changes`].
    pub changed: Vec<MailboxName>,
    /// The list of names, special uses or subscriptions changed.
    pub list_changed: bool,
    /// There are late messages: [`Replica::plan_late`] is due.
    pub late: bool,
    /// Something waits for peers: [`Replica::release`] is due when they are heard, or at this time in microseconds.
    pub wait_until: Option<u64>,
}

/// Operations that cannot be applied: the causal order was broken, or the state lost something. Permanent.
///
/// The replica is then half changed: throw it away and load it again from its rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// An operation names a message that is not here.
    #[error("operation names the unknown message {0}")]
    MissingMessage(MessageId),
    /// An operation names a mailbox that is not here.
    #[error("operation names the unknown mailbox {0}")]
    MissingMailbox(MailboxId),
    /// An operation claims UID 0.
    #[error("operation claims an impossible UID for {0}")]
    BadClaim(MessageId),
}

/// What a collection dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Message records dropped.
    pub messages: usize,
    /// Mailbox records dropped.
    pub mailboxes: usize,
    /// Blobs that this account names no more.
    pub released: Vec<BlobName>,
}

/// One account on one replica.
#[derive(Clone, Debug)]
pub struct Replica {
    account: AccountId,
    slot: u8,
}

impl Replica {
    /// An account of which nothing is known yet: it has an empty INBOX.
    pub fn new(account: AccountId, slot: u8) -> Self {
        Self { account, slot }
    }

    /// The account.
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The slot of this replica: the low six bits of the UIDs it claims.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Applies operations, own or foreign. The caller sees to causal order and to applying each once.
    pub fn apply(&mut self, step: &Step<'_>, ops: Vec<Op>) -> Result<Effects, ApplyError> {
        let _ = (step, ops);
        todo!()
    }

    /// Joins another replica's state: `mine` and `theirs` are the vectors that the two states have applied.
    pub fn join(
        &mut self,
        mine: &VersionVector,
        other: &Self,
        theirs: &VersionVector,
        now_micros: u64,
        peers: &Peers,
    ) -> Effects {
        let _ = (mine, other, theirs, now_micros, peers);
        todo!()
    }

    /// Shows what waited for peers (rule 5) and need wait no longer.
    pub fn release(&mut self, now_micros: u64, peers: &Peers) -> Effects {
        let _ = (now_micros, peers);
        todo!()
    }

    /// Drops hidden records: those hidden without a break since a vector that `stable` covers, deliveries only when
    /// their queue entry is `finished` at every owner.
    pub fn collect(
        &mut self,
        stable: &VersionVector,
        finished: &dyn Fn(EntryTag) -> bool,
    ) -> Collected {
        let _ = (stable, finished);
        todo!()
    }

    /// Marks as told all UIDs shown under the name, and its UIDNEXT (rule 3).
    ///
    /// To be called before any of them is told. Says whether the stored mark changes: then the next
    /// [`Self::take_dirty`] has it, and it must be on disk before the answer goes out.
    pub fn announce(&mut self, name: &MailboxName) -> bool {
        let _ = name;
        todo!()
    }

    /// The rows that changed since the last call: new bytes, or `None` for a row that goes.
    pub fn take_dirty(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        todo!()
    }

    /// The greatest UID counter seen, for the batch's section.
    pub fn counter(&self) -> u32 {
        todo!()
    }

    /// An estimate of the memory that the account takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        todo!()
    }

    /// Whether everything visible is shown: only then may this replica make known what it has announced (rule 6).
    pub fn is_clean(&self) -> bool {
        todo!()
    }

    /// For each slot the greatest counter claimed with it: what this replica may make known as announced (rule 6).
    pub fn claimed(&self) -> Vec<(u8, u32)> {
        todo!()
    }
}
