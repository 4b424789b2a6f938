//! One account on one replica: the replicated state, and what this replica has shown.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use smallvec::SmallVec;
use whimbrel_crdt::mutants::broken;
use whimbrel_crdt::{Batch, Incarnation, OrMap, Stamp, VersionVector};

use crate::failover::Point;
use crate::ids::IdHasher;
use crate::keywords::{DELETED, FIRST_KEYWORD, Keywords, Register, Spelling};
use crate::missing_blobs::BLOB_TIMEOUT_MICROS;
use crate::record::{BoxRecord, CLAIMS_KEPT_MAX, HEAP_WORD, Record};
use crate::rollback::Lineage;
use crate::slab::Slab;
use crate::{AccountId, BlobName, Flag, Flags, MailboxId, MailboxName, MessageId, RowKey, Usage};

/// So long a claim waits for peers at most, however often its message was claimed before: the shortest first wait (100 ms, `replication::readers`),
/// doubled once for each superseded claim that is kept, so that it is reached on every link. Longer than any way there and back that is not a fault,
/// shorter than clients wait for an answer.
pub const TIMEOUT_MICROS_MAX: u64 = 25_600_000;

/// Another replica that is live and has readers on the account (docs/design.md#rule-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its slot.
    pub slot: u8,
    /// The greatest counter of the account heard from it.
    pub heard: u32,
    /// How long a message's first claim waits for it, in microseconds: three round trips, at most two seconds.
    pub timeout_micros: u64,
}

/// The other live replicas with readers on the account, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    readers: Vec<Peer>,
    /// Waiting is by a clock that nobody sets, and that does not stand still while nothing is written. At the end of time nobody waits.
    mono_micros: u64,
}

impl Peers {
    /// Readers here only, the common case: nobody waits.
    pub const fn none() -> Self {
        Self::new(u64::MAX, Vec::new())
    }

    /// These, at this moment of the monotonic clock.
    pub const fn new(mono_micros: u64, readers: Vec<Peer>) -> Self {
        Self {
            readers,
            mono_micros,
        }
    }

    /// How many of them have lower slots.
    pub(crate) fn rank(&self, slot: u8) -> u32 {
        let lower = self.readers.iter().filter(|peer| peer.slot < slot);
        u32::try_from(lower.count()).unwrap_or(u32::MAX)
    }

    /// Until when greater claims wait for a body that is not here at this moment.
    pub(crate) fn body_until(&self) -> Option<u64> {
        self.mono_micros.checked_add(BLOB_TIMEOUT_MICROS)
    }

    /// The moment.
    pub(crate) fn mono_micros(&self) -> u64 {
        self.mono_micros
    }

    /// Until when what is claimed at this moment waits for them, if its message has so many superseded claims: each doubles the wait. Perhaps those were
    /// shown too soon, and late elsewhere, for peers answer later than they are waited for; so in the end they are heard.
    pub(crate) fn until(&self, superseded: usize) -> u64 {
        let patience = self.readers.iter().map(|peer| peer.timeout_micros);
        let first = patience.max().unwrap_or(0);
        let doubled = match broken("waits-alike") {
            true => first,
            false => first.saturating_mul(1 << superseded.min(CLAIMS_KEPT_MAX)),
        };
        self.mono_micros
            .saturating_add(doubled.min(TIMEOUT_MICROS_MAX).max(first))
    }

    /// Whether from each a counter at least as high as that of the claim was heard.
    pub(crate) fn heard(&self, uid: u32) -> bool {
        self.readers.iter().all(|peer| peer.heard >= uid / 64)
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
    /// This replica's hybrid clock, in microseconds: for MODSEQ.
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
    /// Something waits for peers, or for a body: [`Replica::release`] is due when they are heard, or at this time in microseconds, on the clock
    /// of [`Peers::new`].
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
    /// An operation claims a UID that is not above all that its slot has claimed: two nodes have one slot, or one gave a UID twice.
    #[error("operation claims a UID for {0} that its slot has passed")]
    ClaimedTwice(MessageId),
}

/// Whether a collection leaves tombstones of imports ([`EntryTag::IMPORT`](crate::EntryTag::IMPORT)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// Who imports one again adds nothing: so it must be where other nodes may remember it.
    Left,
    /// Who imports one again brings it back.
    None,
}

/// What a collection dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Message records dropped, in the order in which their rows have to go: of the copies that share a content row the one that takes it
    /// along is the last.
    pub messages: Vec<Dropped>,
    /// Mailbox records dropped.
    pub mailboxes: Vec<MailboxId>,
    /// Whether the limit ended it: more is due.
    pub more: bool,
}

/// A message record that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Whose.
    pub message: MessageId,
    /// The content row that goes with it, by origin, and the blob that it named. Two rows may name one blob: a transaction with two targets
    /// in one account is two messages.
    pub content: Option<(MessageId, BlobName)>,
    /// Nothing says that it was here: who imports it again brings it back ([`Tombstones::None`]).
    pub forgotten: bool,
}

/// A name that some mailbox bears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameState {
    /// The mailboxes that bear it, by number, ascending.
    pub(crate) boxes: SmallVec<[u32; 2]>,
    /// UIDNEXT told: 1 + the greatest announced UID.
    pub(crate) mark: u32,
    /// What vanished before this MODSEQ is not in the history.
    pub(crate) history_from: u64,
    /// HIGHESTMODSEQ
    pub(crate) highest: u64,
}

/// What vanished at one MODSEQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vanished {
    pub(crate) modseq: u64,
    pub(crate) names: Vec<(MailboxName, Vec<u32>)>,
}

/// What all mailboxes list of their messages, as it was when it was looked at last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    bytes: usize,
    /// How many records there were.
    records: usize,
    /// How often it was asked for since.
    asked: usize,
}

/// What was claimed in an epoch that is over.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) epoch: u32,
    /// For each slot the greatest counter.
    pub(crate) counters: BTreeMap<u8, u32>,
}

/// One account on one replica.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(crate) account: AccountId,
    pub(crate) slot: u8,

    // Replicated.
    pub(crate) created: u32,
    pub(crate) uidvalidity_floor: u32,
    /// The UIDVALIDITY that the last epoch began with, 0 before the first.
    pub(crate) epoch: u32,
    /// The greatest UID counter seen in this epoch.
    pub(crate) counter: u32,
    /// For each slot the greatest counter claimed with it in this epoch.
    pub(crate) claimed: BTreeMap<u8, u32>,
    /// The same of the epoch before it, if there was one.
    pub(crate) claimed_before: Option<Box<Claimed>>,
    /// Which operations stand for which of them, ascending.
    pub(crate) points: BTreeMap<u8, Vec<Point>>,
    pub(crate) records: Slab<Record>,
    pub(crate) boxes: Slab<BoxRecord>,
    pub(crate) subscriptions: OrMap<MailboxName>,
    /// Imports of which nothing else is kept, since they were removed: none of them has a record, and who imports one again adds nothing
    /// (docs/decisions/0042).
    pub(crate) tombstones: BTreeSet<MessageId>,

    // Indexes.
    /// Never iterated.
    pub(crate) by_id: HashMap<MessageId, u32, BuildHasherDefault<IdHasher>>,
    pub(crate) box_by_id: BTreeMap<MailboxId, u32>,
    pub(crate) keywords: Keywords,
    /// Records of which a row of an earlier version has said how a keyword is spelled.
    pub(crate) as_heard: BTreeSet<u32>,
    /// Of records that live.
    pub(crate) usage: Usage,
    /// What the records have on the heap, in words.
    pub(crate) heap_words: usize,
    /// Superseded claims of living placements.
    pub(crate) older: BTreeMap<u32, u32>,
    /// How many records have this origin, where it is more than one, or where the origin has but a tombstone.
    pub(crate) origins: BTreeMap<MessageId, u32>,
    /// Hidden messages, with what was applied when they were hidden or last named.
    pub(crate) hidden: BTreeMap<u32, Arc<VersionVector>>,
    pub(crate) hidden_boxes: BTreeMap<u32, Arc<VersionVector>>,

    // What this replica shows and has told.
    pub(crate) names: BTreeMap<MailboxName, NameState>,
    /// Marks of names that no mailbox bears now.
    pub(crate) gone_marks: BTreeMap<MailboxName, u32>,
    /// The mark of every name that has none of its own.
    pub(crate) floor: u32,
    /// Late messages by (epoch, claim).
    pub(crate) late: BTreeMap<(u32, u32), u32>,
    /// Messages that wait for peers, by claim, with the time when they wait no longer. Those that waited before a load wait for nobody.
    pub(crate) pending: BTreeMap<u32, (u32, u64)>,
    /// Bodies that are not here, with the messages that are not shown for it.
    pub(crate) missing_blobs: BTreeMap<BlobName, Vec<u32>>,
    /// Claims of some of them, for which greater ones wait, with the message and until when.
    pub(crate) awaited: BTreeMap<u32, (u32, u64)>,
    /// Nothing waits any more for some that were among these: what did is yet to be looked at.
    pub(crate) awaits_less: bool,
    /// The last MODSEQ without its slot.
    pub(crate) last_change: u64,
    pub(crate) history: VecDeque<Vanished>,
    pub(crate) history_uids: usize,
    /// What vanished at or before this MODSEQ is not in the history.
    pub(crate) history_from: u64,
    pub(crate) lineage: Lineage,

    pub(crate) listed: Listed,

    // Work of the present step, and rows to write.
    pub(crate) list_changed: bool,
    pub(crate) touched: Vec<u32>,
    pub(crate) touched_boxes: Vec<u32>,
    pub(crate) dirty: Vec<u32>,
    /// Messages of which nothing but what is shown has changed, unless they are in `dirty`, too.
    pub(crate) dirty_visible: Vec<u32>,
    pub(crate) dirty_boxes: Vec<u32>,
    pub(crate) dirty_rows: BTreeMap<RowKey, Option<Vec<u8>>>,
    /// Rows whose bytes are made when they are taken.
    pub(crate) dirty_keys: BTreeSet<RowKey>,
    pub(crate) content_bytes: usize,
    /// Content rows that name another blob now, with the one that they named.
    pub(crate) replaced: Vec<(MessageId, BlobName)>,
}

/// The stamp of what is there without anyone's doing: INBOX.
pub(crate) const NEVER: Stamp = Stamp {
    hlc: 0,
    origin: Incarnation::from_hash(1),
};

/// Every flag but a keyword has a fixed register.
fn system_register(flag: &Flag) -> u32 {
    let place = Flag::SYSTEM.iter().position(|system| system == flag);
    match place {
        Some(at) => at as u32,
        None => unreachable!("{flag:?} has no fixed register"),
    }
}

impl Replica {
    /// An account of which nothing is known yet: it has an empty INBOX.
    pub fn new(account: AccountId, slot: u8) -> Self {
        assert!(slot < 64, "a slot has six bits");
        let mut replica = Self {
            account,
            slot,
            created: 0,
            uidvalidity_floor: 0,
            epoch: 0,
            counter: 0,
            claimed: BTreeMap::new(),
            claimed_before: None,
            points: BTreeMap::new(),
            records: Slab::default(),
            boxes: Slab::default(),
            subscriptions: OrMap::default(),
            tombstones: BTreeSet::new(),
            by_id: HashMap::default(),
            box_by_id: BTreeMap::new(),
            keywords: Keywords::default(),
            as_heard: BTreeSet::new(),
            usage: Usage::default(),
            heap_words: 0,
            older: BTreeMap::new(),
            origins: BTreeMap::new(),
            hidden: BTreeMap::new(),
            hidden_boxes: BTreeMap::new(),
            names: BTreeMap::new(),
            gone_marks: BTreeMap::new(),
            floor: 0,
            late: BTreeMap::new(),
            pending: BTreeMap::new(),
            missing_blobs: BTreeMap::new(),
            awaited: BTreeMap::new(),
            awaits_less: false,
            last_change: 0,
            history: VecDeque::new(),
            history_uids: 0,
            history_from: 0,
            lineage: Lineage::default(),
            listed: Listed::default(),
            list_changed: false,
            touched: Vec::new(),
            touched_boxes: Vec::new(),
            dirty: Vec::new(),
            dirty_visible: Vec::new(),
            dirty_boxes: Vec::new(),
            dirty_rows: BTreeMap::new(),
            dirty_keys: BTreeSet::new(),
            content_bytes: 0,
            replaced: Vec::new(),
        };
        let inbox = BoxRecord::new(MailboxId::inbox(), NEVER, MailboxName::inbox(), None);
        let number = replica.insert_box(inbox);
        replica.touch_box(number);
        replica.settle(&VersionVector::new(), 1, &Peers::none());
        replica
    }

    /// The account.
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The slot of this replica: the low six bits of the UIDs it claims.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// The greatest UID counter seen, for the batch's section.
    pub fn counter(&self) -> u32 {
        self.counter
    }

    /// Whether everything visible is shown.
    pub fn is_clean(&self) -> bool {
        self.late.is_empty() && self.pending.is_empty() && self.missing_blobs.is_empty()
    }

    /// For each slot the greatest counter claimed with it.
    ///
    /// Claims of one slot are made in ascending order, so that this says of each claim whether it was known.
    pub fn claimed(&self) -> Vec<(u8, u32)> {
        self.claimed
            .iter()
            .map(|(slot, counter)| (*slot, *counter))
            .collect()
    }

    /// How many records there are, the hidden ones too.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// How many of them are hidden.
    pub fn hidden(&self) -> usize {
        self.hidden.len()
    }

    /// An estimate of the memory that the account takes, in bytes. Costs nothing in the number of messages, and on average nothing in that of mailboxes: what
    /// they have beside their records is looked at again only after it was asked for as often as there are mailboxes, or when there are more messages by an
    /// eighth.
    pub fn memory_bytes(&mut self) -> usize {
        /// What a B-tree of 4-byte keys and values takes for one entry, nodes being a little over half full.
        const TREE_ENTRY_BYTES: usize = 16;
        /// What one UID takes in [`crate::Uids`]: next to nothing, or up to four and a half where there are gaps, which is little beside a message.
        const LISTED_BYTES: usize = 1;
        /// What a B-tree of ids takes for one.
        const TOMBSTONE_BYTES: usize = 32;
        let messages = self.by_id.capacity() * (size_of::<(MessageId, u32)>() + 1)
            + self.records.heap_bytes()
            + self.records.len() * (TREE_ENTRY_BYTES + LISTED_BYTES);
        let boxes = self.boxes.heap_bytes() + self.boxes.len() * 512;
        self.listed.asked += 1;
        let (records, before) = (self.records.len(), self.listed.records);
        if self.listed.asked > self.boxes.len() || records > before + before / 8 {
            let each = self.boxes.iter().map(|(_, b)| {
                let marked = b.unseen.len() + b.deleted.len() + b.flagged.len();
                b.changed.capacity() * size_of::<(u64, u32)>()
                    + marked * LISTED_BYTES
                    + b.keywords.len() * TREE_ENTRY_BYTES
            });
            self.listed = Listed {
                asked: 0,
                records,
                bytes: each.sum(),
            };
        }
        let other = (self.names.len() + self.gone_marks.len()) * 256
            + (self.hidden.len()
                + self.older.len()
                + self.origins.len()
                + self.late.len()
                + self.pending.len())
                * 64
            + self.history_uids * 4
            + self.history.len() * 128
            + self.tombstones.len() * TOMBSTONE_BYTES
            + self.heap_words * HEAP_WORD
            + self.keywords.memory_bytes()
            + self.content_bytes;
        size_of::<Self>() + messages + boxes + self.listed.bytes + other
    }

    /// What a record has on the heap may have changed.
    pub(crate) fn weigh(&mut self, index: u32) {
        let record = &mut self.records[index];
        let words = record.heap_words();
        let before = std::mem::replace(&mut record.bits.heap_words, words);
        self.heap_words = self.heap_words - usize::from(before) + usize::from(words);
    }

    pub(crate) fn insert_box(&mut self, record: BoxRecord) -> u32 {
        let id = record.id;
        let number = self.boxes.insert(record);
        self.box_by_id.insert(id, number);
        number
    }

    pub(crate) fn insert_record(&mut self, record: Record) -> u32 {
        let id = record.id;
        self.boxes[record.mailbox].records += 1;
        let slot = self.records.insert(record);
        self.by_id.insert(id, slot);
        slot
    }

    /// The register of a flag that an operation names; a keyword is given one if it has none.
    pub(crate) fn register(&mut self, flag: &Flag) -> Register {
        match flag {
            Flag::Keyword(keyword) => self.keywords.add(keyword, true),
            system => Register {
                flag: system_register(system),
                spelling: Spelling::NONE,
            },
        }
    }

    /// The number of a flag's register; `None`: no record has the keyword, however it is spelled.
    pub(crate) fn find_register(&self, flag: &Flag) -> Option<u32> {
        match flag {
            Flag::Keyword(keyword) => self.keywords.find(keyword),
            system => Some(system_register(system)),
        }
    }

    /// The flag of a register, a keyword in this spelling.
    pub(crate) fn flag(&self, register: u32, spelling: Spelling) -> Flag {
        if register < FIRST_KEYWORD {
            Flag::SYSTEM[register as usize].clone()
        } else {
            Flag::Keyword(self.keywords.keyword(spelling).clone())
        }
    }

    /// The flags that a record has.
    pub(crate) fn flags_of(&self, record: &Record) -> Flags {
        let mut registers: SmallVec<[u32; 8]> = record.flags.iter().map(|of| of.flag).collect();
        registers.push(DELETED);
        registers.dedup();
        let has = registers
            .into_iter()
            .filter(|register| record.has(*register));
        has.map(|register| {
            let spelling = record.spelling(register).unwrap_or(Spelling::NONE);
            self.flag(register, spelling)
        })
        .collect()
    }

    /// The number of the mailbox in which an operation's target lies.
    pub(crate) fn box_number(&self, id: MailboxId) -> Result<u32, ApplyError> {
        self.box_by_id
            .get(&id)
            .copied()
            .ok_or(ApplyError::MissingMailbox(id))
    }

    pub(crate) fn index_of(&self, id: MessageId) -> Result<u32, ApplyError> {
        self.by_id
            .get(&id)
            .copied()
            .ok_or(ApplyError::MissingMessage(id))
    }
}
