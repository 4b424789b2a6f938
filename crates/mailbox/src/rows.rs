//! The rows in which an account is stored: keys, encodings, taking what changed, loading.
//!
//! A row is a version byte and CBOR with numbered fields. Replicated registers and what this replica shows lie in the
//! same rows, so that lateness is stored in the batch's own write. Indexes and counts are not stored: loading makes them.

use minicbor::{Decode, Encode};
use whimbrel_crdt::{DotSet, Lww, Stamp, VersionVector};

use crate::record::{BoxRecord, FlagDot, Rare, Record};
use crate::replica::Vanished;
use crate::{
    AccountId, BlobName, EntryTag, Flag, Keyword, MailboxId, MailboxName, Message, MessageId,
    Replica, SpecialUse,
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
            Self::CONTENT_PREFIX => Self::Content(MessageId(id()?)),
            _ => return Err(LoadError::Key),
        })
    }
}

#[derive(Encode, Decode)]
struct AccountRow {
    #[n(0)]
    created: u32,
    #[n(1)]
    uidvalidity_floor: u32,
    #[n(2)]
    epoch: u32,
    #[n(3)]
    counter: u32,
    #[n(4)]
    claimed: Vec<(u8, u32)>,
    #[n(5)]
    floor: u32,
    #[n(6)]
    history_from: u64,
    #[n(7)]
    last_change: u64,
}

#[derive(Encode, Decode)]
struct MailboxRow {
    #[n(0)]
    exist: DotSet,
    #[n(1)]
    name: Lww<MailboxName>,
    #[n(2)]
    special_use: Lww<Option<SpecialUse>>,
    #[n(3)]
    base_modseq: u64,
}

#[derive(Encode, Decode)]
struct MarkRow {
    #[n(0)]
    mark: u32,
    #[n(1)]
    history_from: u64,
}

#[derive(Encode, Decode)]
struct FlagRow {
    #[n(0)]
    flag: StoredFlag,
    #[n(1)]
    dot: whimbrel_crdt::Dot,
}

/// A system flag by its number, a keyword by its text.
struct StoredFlag(Flag);

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
struct MessageRow {
    #[n(0)]
    exist: DotSet,
    #[n(1)]
    placed: Stamp,
    #[n(2)]
    mailbox: MailboxId,
    #[n(3)]
    epoch: u32,
    #[n(4)]
    uid: u32,
    #[n(5)]
    older: Option<Vec<u32>>,
    #[n(6)]
    flags: Vec<FlagRow>,
    #[n(7)]
    entry: Option<EntryTag>,
    #[n(8)]
    killed: bool,
    #[n(9)]
    deleted_ever: bool,
    #[n(10)]
    message: Message,
    #[n(11)]
    origin: Option<MessageId>,
    #[n(12)]
    modseq: u64,
    #[n(13)]
    shown: u32,
}

#[derive(Encode, Decode)]
struct VanishedRow {
    #[n(0)]
    names: Vec<(MailboxName, Vec<u32>)>,
}

fn encode_row<T: Encode<()>>(row: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(192);
    bytes.push(ROW_VERSION);
    // Writing to memory cannot fail, and no type here refuses to be encoded.
    minicbor::encode(row, &mut bytes).expect("writing to memory cannot fail");
    bytes
}

fn decode_row<'b, T: Decode<'b, ()>>(key: &RowKey, bytes: &'b [u8]) -> Result<T, LoadError> {
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

impl Content {
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
        })
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
        })
    }

    fn message_row(&self, slot: u32, local: Local) -> Vec<u8> {
        let record = &self.records[slot];
        let flag = |entry: &FlagDot| FlagRow {
            flag: StoredFlag(self.flag(entry.flag)),
            dot: entry.dot,
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
            message: record.message.clone(),
            origin: record.rare.as_ref().and_then(|rare| rare.origin),
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
            RowKey::Content(_) => None,
        }
    }

    /// The rows that changed since the last call: new bytes, or `None` for a row that goes.
    pub fn take_dirty(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let mut rows = std::mem::take(&mut self.dirty_rows);
        self.content_bytes = 0;
        for key in std::mem::take(&mut self.dirty_keys) {
            let bytes = self.encode_key(&key);
            rows.insert(key, bytes);
        }
        for number in std::mem::take(&mut self.dirty_boxes) {
            if let Some(record) = self.boxes.get_mut(number)
                && std::mem::take(&mut record.dirty)
            {
                let id = record.id;
                rows.insert(
                    RowKey::Mailbox(id),
                    Some(self.mailbox_row(number, Local::With)),
                );
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|slot| match self.records.get_mut(*slot) {
            Some(record) => std::mem::take(&mut record.bits.dirty),
            None => false,
        });
        rows.reserve(dirty.len());
        for slot in &dirty {
            rows.push((
                RowKey::Message(self.records[*slot].id),
                Some(self.message_row(*slot, Local::With)),
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

    /// From all rows but content rows, in any order; quickest in the order of the keys. `applied` is what this replica
    /// has applied now: hidden records count as hidden since now.
    ///
    /// Messages that waited for peers are shown by the next [`Self::release`].
    pub fn load(
        account: AccountId,
        slot: u8,
        rows: impl IntoIterator<Item = (RowKey, Vec<u8>)>,
        applied: &VersionVector,
    ) -> Result<Self, LoadError> {
        let mut replica = Self::new(account, slot);
        replica.take_dirty();
        let mut marks = Vec::new();
        // Messages that came before their mailbox.
        let mut early = Vec::new();
        for (key, bytes) in rows {
            match &key {
                RowKey::Account => replica.load_account(decode_row(&key, &bytes)?),
                RowKey::Mailbox(id) => replica.load_mailbox(*id, decode_row(&key, &bytes)?),
                RowKey::Mark(name) => {
                    marks.push((name.clone(), decode_row::<MarkRow>(&key, &bytes)?))
                }
                RowKey::Subscription(name) => {
                    replica
                        .subscriptions
                        .restore(name.clone(), decode_row(&key, &bytes)?);
                }
                RowKey::Vanished(modseq) => {
                    let row: VanishedRow = decode_row(&key, &bytes)?;
                    replica.history_uids +=
                        row.names.iter().map(|(_, uids)| uids.len()).sum::<usize>();
                    replica.history.push_back(Vanished {
                        modseq: *modseq,
                        names: row.names,
                    });
                }
                RowKey::Message(id) => {
                    let row: MessageRow = decode_row(&key, &bytes)?;
                    match replica.box_by_id.get(&row.mailbox) {
                        Some(number) => replica.load_message(*id, row, *number),
                        None => early.push((*id, row)),
                    }
                }
                RowKey::Content(_) => {}
            }
        }
        for (id, row) in early {
            let number = replica.box_by_id.get(&row.mailbox).copied();
            replica.load_message(
                id,
                row,
                number.ok_or(LoadError::Dangling(RowKey::Message(id)))?,
            );
        }
        replica
            .history
            .make_contiguous()
            .sort_by_key(|vanished| vanished.modseq);
        replica.count_origins();
        replica.load_views(applied, marks);
        Ok(replica)
    }

    fn load_account(&mut self, row: AccountRow) {
        self.created = row.created;
        self.uidvalidity_floor = row.uidvalidity_floor;
        self.epoch = row.epoch;
        self.counter = row.counter;
        self.claimed = row.claimed.into_iter().collect();
        self.floor = row.floor;
        self.history_from = row.history_from;
        self.last_change = self.last_change.max(row.last_change);
    }

    fn load_mailbox(&mut self, id: MailboxId, row: MailboxRow) {
        let number = match self.box_by_id.get(&id) {
            Some(number) => *number,
            None => self.insert_box(BoxRecord::new(
                id,
                row.name.stamp,
                row.name.value.clone(),
                None,
            )),
        };
        let record = &mut self.boxes[number];
        record.exist = row.exist;
        record.name = row.name;
        record.special_use = row.special_use;
        record.base_modseq = row.base_modseq;
    }

    fn load_message(&mut self, id: MessageId, row: MessageRow, mailbox: u32) {
        let mut flags: smallvec::SmallVec<[FlagDot; 1]> = smallvec::SmallVec::new();
        for FlagRow { flag, dot } in row.flags {
            flags.push(FlagDot {
                flag: self.register(&flag.0),
                dot,
            });
        }
        flags.sort_unstable();
        let older = row.older.unwrap_or_default();
        let rare = Rare {
            older,
            origin: row.origin,
        };
        let slot = self.insert_record(Record {
            id,
            exist: row.exist,
            placed: row.placed,
            mailbox,
            epoch: row.epoch,
            uid: row.uid,
            flags,
            entry: row.entry,
            killed: row.killed,
            deleted_ever: row.deleted_ever,
            message: row.message,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            modseq: row.modseq,
            shown: row.shown,
            view_box: mailbox,
            bits: Default::default(),
        });
        if self.records[slot].alive() {
            self.boxes[mailbox].living += 1;
            self.records[slot].bits.living = true;
        }
    }

    /// Makes the indexes of what is shown.
    fn load_views(&mut self, applied: &VersionVector, marks: Vec<(MailboxName, MarkRow)>) {
        let since = std::sync::Arc::new(applied.clone());
        self.names.clear();
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let record = &mut self.boxes[number];
            if !record.visible() {
                self.hidden_boxes.insert(number, since.clone());
                continue;
            }
            let name = record.name.value.clone();
            record.listed = Some(name.clone());
            let state = self.names.entry(name).or_default();
            state.boxes.push(number);
            state.highest = state.highest.max(record.base_modseq);
        }
        for (name, row) in marks {
            match self.names.get_mut(&name) {
                Some(state) => {
                    state.mark = row.mark;
                    state.history_from = row.history_from;
                }
                None => drop(self.gone_marks.insert(name, row.mark)),
            }
        }
        let slots: Vec<u32> = self.records.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.load_view(slot, &since);
        }
        for vanished in &self.history {
            for (name, _) in &vanished.names {
                if let Some(state) = self.names.get_mut(name) {
                    state.highest = state.highest.max(vanished.modseq);
                }
            }
            self.last_change = self.last_change.max(vanished.modseq / 64);
        }
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let record = &mut self.boxes[number];
            record.changed.sort_unstable();
            let highest = record
                .changed
                .last()
                .map_or(0, |(modseq, _)| *modseq)
                .max(record.base_modseq);
            self.last_change = self.last_change.max(highest / 64);
            if let Some(state) = record
                .listed
                .as_ref()
                .and_then(|name| self.names.get_mut(name))
            {
                state.highest = state.highest.max(highest);
            }
        }
        for state in self.names.values_mut() {
            // What was cut may have been the last that was told.
            state.highest = state.highest.max(self.history_from).max(state.history_from);
        }
        self.last_change = self.last_change.max(self.history_from / 64);
    }

    fn load_view(&mut self, slot: u32, since: &std::sync::Arc<VersionVector>) {
        if !self.records[slot].alive() {
            self.hidden.insert(slot, since.clone());
        }
        self.change_claims(slot, |_| {});
        let record = &self.records[slot];
        if record.shown != 0 {
            let (shown, size, number, modseq) = (
                record.shown,
                record.message.size,
                record.mailbox,
                record.modseq,
            );
            let mailbox = &mut self.boxes[number];
            mailbox.uids.insert(shown, slot);
            mailbox.size += u64::from(size);
            mailbox.changed.push((modseq, slot));
            self.count(slot);
        }
        let record = &self.records[slot];
        if !record.alive() || (record.shown == record.uid && record.epoch == self.epoch) {
            return;
        }
        let (epoch, uid) = (record.epoch, record.uid);
        let name = self.boxes[record.mailbox].listed.as_ref();
        let mark = name
            .and_then(|name| self.names.get(name))
            .map_or(0, |state| state.mark);
        let late = epoch != self.epoch || uid < mark;
        if late {
            self.late.insert((epoch, uid), slot);
        } else {
            self.pending.insert(uid, (slot, 0));
        }
        let bits = &mut self.records[slot].bits;
        bits.late = late;
        bits.pending = !late;
    }
}
