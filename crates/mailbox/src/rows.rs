//! The rows in which an account is stored: keys, encodings, taking what changed.
//!
//! A row is a version byte and CBOR with numbered fields. Replicated registers and what this replica shows lie in the
//! same rows, so that lateness is stored in the batch's own write. Indexes and counts are not stored: loading makes them.

use std::num::NonZeroU64;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{DotSet, Incarnation, Lww, Stamp};

use crate::failover::Point;
use crate::keywords::FIRST_KEYWORD;
use crate::op::if_true;
use crate::record::FlagDot;
use crate::rollback::Lineage;
use crate::{
    BlobName, EntryTag, Flag, Keyword, MailboxId, MailboxName, Message, MessageId, Replica,
    SpecialUse, steps,
};

/// The only version written.
const ROW_VERSION: u8 = 1;

/// Which row of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// The account itself.
    Account,
    /// One mailbox.
    Mailbox(MailboxId),
    /// What was announced under a name.
    Mark(MailboxName),
    /// A subscribed name.
    Subscription(MailboxName),
    /// What vanished at a MODSEQ.
    Vanished(u64),
    /// One message.
    Message(MessageId),
    /// An import that was removed, of which nothing else is kept.
    Tombstone(MessageId),
    /// The content of a message and its copies: not loaded with the account.
    Content(MessageId),
}

/// What a content row holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Content {
    /// Where the bytes are.
    #[n(0)]
    pub blob: BlobName,
    /// The summary, opaque.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub summary: Vec<u8>,
}

/// Rows that do not make an account. Permanent; the account is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Written by a later version.
    #[error("row of version {0}")]
    Version(u8),
    /// A key that is none.
    #[error("malformed row key")]
    Key,
    /// Not in the encoding.
    #[error("malformed row {0:?}: {1}")]
    Malformed(RowKey, String),
    /// Rows that contradict each other.
    #[error("row {0:?} names what is not there")]
    Dangling(RowKey),
}

impl RowKey {
    /// The first byte of content rows: a load scans the account's rows below it.
    pub const CONTENT_PREFIX: u8 = 0x80;

    /// The key's bytes, to be prefixed by the account: rows that are loaded with the account sort before
    /// [`Self::CONTENT_PREFIX`], mailboxes before messages.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (prefix, rest): (u8, &[u8]) = match self {
            Self::Account => (1, &[]),
            Self::Mailbox(id) => (2, &id.0),
            Self::Mark(name) => (3, name.as_str().as_bytes()),
            Self::Subscription(name) => (4, name.as_str().as_bytes()),
            Self::Vanished(modseq) => (5, &modseq.to_be_bytes()),
            Self::Message(id) => (6, &id.0),
            Self::Tombstone(id) => (7, &id.0),
            Self::Content(id) => (Self::CONTENT_PREFIX, &id.0),
        };
        let mut bytes = Vec::with_capacity(1 + rest.len());
        bytes.push(prefix);
        bytes.extend_from_slice(rest);
        bytes
    }

    /// From the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LoadError> {
        let (prefix, rest) = bytes.split_first().ok_or(LoadError::Key)?;
        let id = || <[u8; 16]>::try_from(rest).map_err(|_| LoadError::Key);
        let name = || {
            let text = std::str::from_utf8(rest).map_err(|_| LoadError::Key)?;
            MailboxName::new(text).map_err(|_| LoadError::Key)
        };
        Ok(match *prefix {
            1 if rest.is_empty() => Self::Account,
            2 => Self::Mailbox(MailboxId(id()?)),
            3 => Self::Mark(name()?),
            4 => Self::Subscription(name()?),
            5 => Self::Vanished(u64::from_be_bytes(
                rest.try_into().map_err(|_| LoadError::Key)?,
            )),
            6 => Self::Message(MessageId(id()?)),
            7 => Self::Tombstone(MessageId(id()?)),
            Self::CONTENT_PREFIX => Self::Content(MessageId(id()?)),
            _ => return Err(LoadError::Key),
        })
    }
}

#[derive(Encode, Decode)]
pub(crate) struct AccountRow {
    #[n(0)]
    pub(crate) created: u32,
    #[n(1)]
    pub(crate) uidvalidity_floor: u32,
    #[n(2)]
    pub(crate) epoch: u32,
    #[n(3)]
    pub(crate) counter: u32,
    #[n(4)]
    pub(crate) claimed: Vec<(u8, u32)>,
    #[n(5)]
    pub(crate) floor: u32,
    #[n(6)]
    pub(crate) history_from: u64,
    #[n(7)]
    pub(crate) last_change: u64,
    /// `None` in rows from before lineages were kept.
    #[n(8)]
    pub(crate) lineage: Option<LineageRow>,
    /// `None` where there are none: at a node that is alone.
    #[n(9)]
    pub(crate) points: Option<Vec<PointRow>>,
    /// `None` before the first epoch that rose, and in rows from before it was kept.
    #[n(10)]
    pub(crate) before: Option<ClaimedRow>,
}

/// What was claimed in the last epoch that is over.
#[derive(Encode, Decode)]
pub(crate) struct ClaimedRow {
    #[n(0)]
    pub(crate) epoch: u32,
    #[n(1)]
    pub(crate) counters: Vec<(u8, u32)>,
}

/// Claims of the slot up to the counter were made up to the number.
#[derive(Encode, Decode)]
pub(crate) struct PointRow {
    #[n(0)]
    pub(crate) slot: u8,
    #[n(1)]
    pub(crate) origin: Incarnation,
    #[n(2)]
    pub(crate) number: u64,
    #[n(3)]
    pub(crate) counter: u32,
}

#[derive(Encode, Decode)]
pub(crate) struct LineageRow {
    #[n(0)]
    pub(crate) incarnation: Option<NonZeroU64>,
    #[n(1)]
    pub(crate) round: u32,
    #[n(2)]
    pub(crate) slot: u8,
    #[n(3)]
    pub(crate) since: u64,
    #[n(4)]
    pub(crate) retired: Vec<RetiredRow>,
}

#[derive(Encode, Decode)]
pub(crate) struct RetiredRow {
    #[n(0)]
    pub(crate) slot: u8,
    #[n(1)]
    pub(crate) counter_max: u32,
    #[n(2)]
    pub(crate) known: Vec<(u8, u32)>,
}

#[derive(Encode, Decode)]
pub(crate) struct MailboxRow {
    #[n(0)]
    pub(crate) exist: DotSet,
    #[n(1)]
    pub(crate) name: Lww<MailboxName>,
    #[n(2)]
    pub(crate) special_use: Lww<Option<SpecialUse>>,
    #[n(3)]
    pub(crate) base_modseq: u64,
    #[n(4)]
    pub(crate) visible_from: Option<(u32, u32)>,
}

#[derive(Encode, Decode)]
pub(crate) struct MarkRow {
    #[n(0)]
    pub(crate) mark: u32,
    #[n(1)]
    pub(crate) history_from: u64,
}

#[derive(Encode, Decode)]
pub(crate) struct FlagRow {
    #[n(0)]
    pub(crate) flag: StoredFlag,
    #[n(1)]
    pub(crate) dot: whimbrel_crdt::Dot,
    /// It is the keyword as the operation of the dot spells it. Rows of earlier versions do not say so: they have the spelling that this replica had
    /// heard first.
    #[cbor(n(2), with = "if_true", has_nil)]
    pub(crate) is_exact: bool,
}

/// A system flag by its number, a keyword by its text.
pub(crate) struct StoredFlag(pub(crate) Flag);

impl<C> Encode<C> for StoredFlag {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match &self.0 {
            Flag::Keyword(keyword) => e.str(keyword.as_str())?,
            system => e.u8(Flag::SYSTEM
                .iter()
                .position(|flag| flag == system)
                .unwrap_or(0) as u8)?,
        };
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for StoredFlag {
    fn decode(d: &mut minicbor::Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        if d.datatype()? == minicbor::data::Type::String {
            return Ok(Self(Flag::Keyword(d.decode_with::<C, Keyword>(ctx)?)));
        }
        let flag = Flag::SYSTEM.get(usize::from(d.u8()?)).cloned();
        flag.map(Self)
            .ok_or_else(|| minicbor::decode::Error::message("unknown flag"))
    }
}

#[derive(Encode, Decode)]
pub(crate) struct MessageRow {
    #[n(0)]
    pub(crate) exist: DotSet,
    #[n(1)]
    pub(crate) placed: Stamp,
    #[n(2)]
    pub(crate) mailbox: MailboxId,
    #[n(3)]
    pub(crate) epoch: u32,
    #[n(4)]
    pub(crate) uid: u32,
    #[n(5)]
    pub(crate) older: Option<Vec<u32>>,
    #[n(6)]
    pub(crate) flags: Vec<FlagRow>,
    #[n(7)]
    pub(crate) entry: Option<EntryTag>,
    #[n(8)]
    pub(crate) killed: bool,
    #[n(9)]
    pub(crate) deleted_ever: bool,
    #[n(10)]
    pub(crate) message: Message,
    #[n(11)]
    pub(crate) origin: Option<MessageId>,
    #[n(12)]
    pub(crate) modseq: u64,
    #[n(13)]
    pub(crate) shown: u32,
}

/// All that is said of it is in its key.
#[derive(Encode, Decode)]
pub(crate) struct TombstoneRow {}

#[derive(Encode, Decode)]
pub(crate) struct VanishedRow {
    #[n(0)]
    pub(crate) names: Vec<(MailboxName, Vec<u32>)>,
}

fn encode_row<T: Encode<()>>(row: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(192);
    bytes.push(ROW_VERSION);
    // Writing to memory cannot fail, and no type here refuses to be encoded.
    minicbor::encode(row, &mut bytes).expect("writing to memory cannot fail");
    bytes
}

pub(crate) fn decode_row<'b, T: Decode<'b, ()>>(
    key: &RowKey,
    bytes: &'b [u8],
) -> Result<T, LoadError> {
    let (version, rest) = bytes.split_first().ok_or(LoadError::Version(0))?;
    if *version != ROW_VERSION {
        return Err(LoadError::Version(*version));
    }
    minicbor::decode(rest).map_err(|error| LoadError::Malformed(key.clone(), error.to_string()))
}

pub(crate) fn encode_content(message: &Message, summary: &[u8]) -> Vec<u8> {
    encode_row(&Content {
        blob: message.blob,
        summary: summary.to_vec(),
    })
}

/// A content row that is looked at where it lies.
#[derive(Decode)]
struct ContentRef<'b> {
    #[n(0)]
    _blob: BlobName,
    #[cbor(n(1), with = "minicbor::bytes")]
    summary: &'b [u8],
}

impl Content {
    /// The summary in the bytes of a content row, not copied.
    pub fn summary_in(bytes: &[u8]) -> Result<&[u8], LoadError> {
        decode_row::<ContentRef<'_>>(&RowKey::Content(MessageId([0; 16])), bytes)
            .map(|content| content.summary)
    }

    /// From the bytes of a content row.
    pub fn decode(bytes: &[u8]) -> Result<Self, LoadError> {
        decode_row(&RowKey::Content(MessageId([0; 16])), bytes)
    }
}

/// Whether what this replica shows goes into the row: not when replicas are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Local {
    With,
    Without,
}

impl Replica {
    fn account_row(&self, local: Local) -> Vec<u8> {
        let local = local == Local::With;
        encode_row(&AccountRow {
            created: self.created,
            uidvalidity_floor: self.uidvalidity_floor,
            epoch: self.epoch,
            counter: self.counter,
            claimed: self.claimed(),
            floor: if local { self.floor } else { 0 },
            history_from: if local { self.history_from } else { 0 },
            last_change: if local { self.last_change } else { 0 },
            lineage: (local && self.lineage != Lineage::default()).then(|| self.lineage_row()),
            points: (local && !self.points.is_empty()).then(|| self.point_rows()),
            // How much of it is known hangs on when a replica heard of which epoch.
            before: self.claimed_before.as_ref().filter(|_| local).map(|of| {
                let counters = of.counters.iter();
                ClaimedRow {
                    epoch: of.epoch,
                    counters: counters.map(|(slot, counter)| (*slot, *counter)).collect(),
                }
            }),
        })
    }

    fn point_rows(&self) -> Vec<PointRow> {
        let row = |slot: u8, point: &Point| PointRow {
            slot,
            origin: point.origin,
            number: point.number,
            counter: point.counter,
        };
        let points = self.points.iter();
        points
            .flat_map(|(slot, points)| points.iter().map(|point| row(*slot, point)))
            .collect()
    }

    fn lineage_row(&self) -> LineageRow {
        let retired = self.lineage.retired.iter().map(|retired| RetiredRow {
            slot: retired.slot,
            counter_max: retired.counter_max,
            known: retired.known.clone(),
        });
        LineageRow {
            incarnation: self
                .lineage
                .incarnation
                .and_then(|of| NonZeroU64::new(of.get())),
            round: self.lineage.round,
            slot: self.lineage.slot,
            since: self.lineage.since,
            retired: retired.collect(),
        }
    }

    fn mailbox_row(&self, number: u32, local: Local) -> Vec<u8> {
        let record = &self.boxes[number];
        encode_row(&MailboxRow {
            exist: record.exist.clone(),
            name: record.name.clone(),
            special_use: record.special_use.clone(),
            base_modseq: if local == Local::With {
                record.base_modseq
            } else {
                0
            },
            visible_from: record.visible_from.filter(|_| local == Local::With),
        })
    }

    fn message_row(&self, index: u32, local: Local) -> Vec<u8> {
        let record = &self.records[index];
        let flag = |entry: &FlagDot| FlagRow {
            flag: StoredFlag(self.flag(entry.flag, entry.spelling)),
            dot: entry.dot,
            is_exact: entry.flag >= FIRST_KEYWORD && entry.spelling.is_exact(),
        };
        let mut flags: Vec<FlagRow> = record.flags.iter().map(flag).collect();
        // Registers of keywords are numbered by each replica: the row must not depend on it.
        flags.sort_by(|a, b| (&a.flag.0, a.dot).cmp(&(&b.flag.0, b.dot)));
        encode_row(&MessageRow {
            exist: record.exist.clone(),
            placed: record.placed,
            mailbox: self.boxes[record.mailbox].id,
            epoch: record.epoch,
            uid: record.uid,
            older: (!record.older().is_empty()).then(|| record.older().to_vec()),
            flags,
            entry: record.entry,
            killed: record.killed,
            deleted_ever: record.deleted_ever,
            message: record.message(),
            origin: record.copy_of(),
            modseq: if local == Local::With {
                record.modseq
            } else {
                0
            },
            shown: if local == Local::With {
                record.shown
            } else {
                0
            },
        })
    }

    fn encode_key(&self, key: &RowKey) -> Option<Vec<u8>> {
        match key {
            RowKey::Account => Some(self.account_row(Local::With)),
            RowKey::Mark(name) => match (self.names.get(name), self.gone_marks.get(name)) {
                (Some(state), _) => Some(encode_row(&MarkRow {
                    mark: state.mark,
                    history_from: state.history_from,
                })),
                (None, Some(mark)) => Some(encode_row(&MarkRow {
                    mark: *mark,
                    history_from: 0,
                })),
                (None, None) => None,
            },
            RowKey::Subscription(name) => self.subscriptions.dots(name).map(encode_row),
            RowKey::Vanished(modseq) => {
                let at = self
                    .history
                    .binary_search_by_key(modseq, |vanished| vanished.modseq)
                    .ok()?;
                Some(encode_row(&VanishedRow {
                    names: self.history[at].names.clone(),
                }))
            }
            RowKey::Mailbox(id) => Some(self.mailbox_row(*self.box_by_id.get(id)?, Local::With)),
            RowKey::Message(id) => Some(self.message_row(*self.by_id.get(id)?, Local::With)),
            RowKey::Tombstone(id) => {
                let is_left = self.tombstones.contains(id);
                is_left.then(|| encode_row(&TombstoneRow {}))
            }
            RowKey::Content(_) => None,
        }
    }

    /// Content rows among those that changed since the last call that name another blob now, with the one that they named: its hold goes in the same
    /// write. To be taken with [`Self::take_dirty_state`].
    pub fn take_replaced(&mut self) -> Vec<(MessageId, BlobName)> {
        std::mem::take(&mut self.replaced)
    }

    /// As [`Self::take_dirty`], of the marks of names alone.
    pub(crate) fn take_dirty_marks(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let marks = |key: &RowKey| matches!(key, RowKey::Mark(_));
        let keys: Vec<RowKey> = self.dirty_keys.extract_if(.., marks).collect();
        let row = |key: RowKey| {
            let bytes = self.encode_key(&key);
            (key, bytes)
        };
        keys.into_iter().map(row).collect()
    }

    /// As [`Self::take_dirty`], of the mailboxes alone.
    pub(crate) fn take_dirty_boxes(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let mut rows = Vec::new();
        for number in std::mem::take(&mut self.dirty_boxes) {
            if let Some(record) = self.boxes.get_mut(number)
                && std::mem::take(&mut record.dirty)
            {
                let id = record.id;
                let bytes = self.mailbox_row(number, Local::With);
                rows.push((RowKey::Mailbox(id), Some(bytes)));
            }
        }
        rows
    }

    /// The rows that changed since the last call: new bytes, or `None` for a row that goes. Of some messages nothing has changed but what is
    /// shown: see [`Self::take_dirty_visible`].
    pub fn take_dirty(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let mut rows = self.take_dirty_state();
        rows.extend(self.take_dirty_visible());
        rows
    }

    /// Of the rows that changed since the last call those of messages of which nothing has changed but what is shown. They may be written after the
    /// others, in as many writes as they need: a crash in between leaves messages that are shown as before, or not, and both is mended by the load.
    /// Nothing may be told or announced of them before they are written. To be taken after [`Self::take_dirty_state`].
    pub fn take_dirty_visible(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let mut rows = Vec::new();
        for index in std::mem::take(&mut self.dirty_visible) {
            if let Some(record) = self.records.get_mut(index)
                && std::mem::take(&mut record.bits.dirty_visible)
            {
                let id = record.id;
                rows.push((
                    RowKey::Message(id),
                    Some(self.message_row(index, Local::With)),
                ));
            }
        }
        steps::count(rows.len());
        rows
    }

    /// Of the rows that changed since the last call those that must be in the write of the operations that changed them.
    pub fn take_dirty_state(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let mut rows = std::mem::take(&mut self.dirty_rows);
        self.content_bytes = 0;
        for key in std::mem::take(&mut self.dirty_keys) {
            let bytes = self.encode_key(&key);
            rows.insert(key, bytes);
        }
        rows.extend(self.take_dirty_boxes());
        let mut rows: Vec<_> = rows.into_iter().collect();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|index| match self.records.get_mut(*index) {
            Some(record) => {
                let dirty = std::mem::take(&mut record.bits.dirty);
                // Its row is written with all that changed.
                record.bits.dirty_visible &= !dirty;
                dirty
            }
            None => false,
        });
        steps::count(dirty.len());
        rows.reserve(dirty.len());
        for index in &dirty {
            rows.push((
                RowKey::Message(self.records[*index].id),
                Some(self.message_row(*index, Local::With)),
            ));
        }
        rows
    }

    /// All rows but the content rows, in the order of their keys: what [`Self::load`] takes.
    pub fn all_rows(&self) -> Vec<(RowKey, Vec<u8>)> {
        let mut keys = vec![RowKey::Account];
        keys.extend(
            self.names
                .keys()
                .chain(self.gone_marks.keys())
                .cloned()
                .map(RowKey::Mark),
        );
        keys.extend(
            self.subscriptions
                .iter()
                .map(|(name, _)| RowKey::Subscription(name.clone())),
        );
        keys.extend(
            self.history
                .iter()
                .map(|vanished| RowKey::Vanished(vanished.modseq)),
        );
        keys.extend(self.box_by_id.keys().copied().map(RowKey::Mailbox));
        keys.extend(
            self.records
                .iter()
                .map(|(_, record)| RowKey::Message(record.id)),
        );
        keys.extend(self.tombstones.iter().copied().map(RowKey::Tombstone));
        keys.sort();
        keys.into_iter()
            .filter_map(|key| self.encode_key(&key).map(|bytes| (key, bytes)))
            .collect()
    }

    /// The replicated state alone, in a canonical form: equal on replicas that have applied the same. Records that are
    /// hidden here are left out unless asked for: another replica may have collected them.
    pub fn replicated_rows(&self, hidden: bool) -> Vec<(RowKey, Vec<u8>)> {
        let mut rows = vec![(RowKey::Account, self.account_row(Local::Without))];
        for (number, record) in self.boxes.iter() {
            if hidden || record.visible() {
                rows.push((
                    RowKey::Mailbox(record.id),
                    self.mailbox_row(number, Local::Without),
                ));
            }
        }
        for (slot, record) in self.records.iter() {
            if hidden || record.alive() {
                rows.push((
                    RowKey::Message(record.id),
                    self.message_row(slot, Local::Without),
                ));
            }
        }
        for (name, dots) in self.subscriptions.iter() {
            rows.push((RowKey::Subscription(name.clone()), encode_row(dots)));
        }
        rows.sort();
        rows
    }
}
