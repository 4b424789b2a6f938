//! Whether what is stored fits together: the rules behind `whimbrel check`.
//!
//! Rows are derived from logs. Where a log is whole (its beginning was not cut), what it says is carried out again, and the rows must
//! say the same; in any case rows must be readable, and what they name must be there. Nothing is mended here.

mod queue;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, PartitionId, VersionVector};
use whimbrel_directory::{Directory, state::Row};
use whimbrel_mailbox::{
    AccountId, BlobName, Content, LoadError, Message, MessageId, Op, Peers, Replica, RowKey, Step,
    Tombstones,
};
use whimbrel_storage::{LogEntry, LogPosition, Origin};

pub use self::queue::queue;
use crate::{
    log::{OWN_ROWS_END, POSITION_KEY, Position},
    owner::{self, keys},
};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The row's key in its partition; empty: the partition as a whole.
    pub key: Vec<u8>,
    /// What.
    pub what: String,
    /// Whether something may be lost or changed; else it is only of no use.
    pub is_damage: bool,
}

impl Fault {
    fn damage(key: impl Into<Vec<u8>>, what: impl Into<String>) -> Self {
        Fault {
            key: key.into(),
            what: what.into(),
            is_damage: true,
        }
    }

    fn useless(key: impl Into<Vec<u8>>, what: impl Into<String>) -> Self {
        Fault {
            is_damage: false,
            ..Fault::damage(key, what)
        }
    }
}

/// A blob that something names, and under which name it must be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The key of the row that names it.
    pub key: Vec<u8>,
    /// Which.
    pub blob: whimbrel_storage::BlobName,
    /// By whom.
    pub holder: Bytes,
}

/// A log entry as the batch that it must be, its operations readable.
///
/// # Errors
/// What is wrong.
pub fn batch(partition: PartitionId, entry: &LogEntry) -> Result<Batch, String> {
    let batch = Batch::decode(&entry.bytes).map_err(|error| error.to_string())?;
    let same = batch.partition == partition
        && batch.origin.get() == entry.origin.0
        && batch.first == entry.first
        && batch.count == entry.count
        && batch.previous.0 == entry.previous.0;
    if !same {
        return Err("the batch is not what its entry says".into());
    }
    for section in &batch.sections {
        let ops = if partition == PartitionId::DIRECTORY {
            whimbrel_directory::op::decode(&section.ops)
                .map(|ops| ops.len())
                .map_err(|error| error.to_string())?
        } else {
            Op::decode_all(&section.ops)
                .map(|ops| ops.len())
                .map_err(|error| error.to_string())?
        };
        if ops != section.count as usize {
            return Err("a section has not as many operations as it says".into());
        }
    }
    Ok(batch)
}

/// Holds the position row of a partition against the logs that are there.
///
/// # Errors
/// What is wrong; else what has been applied.
pub fn position(
    row: Option<&Bytes>,
    logs: &[(Origin, LogPosition)],
) -> Result<VersionVector, Fault> {
    let fault = |what: String| Fault::damage(POSITION_KEY, what);
    let Some(row) = row else {
        return match logs {
            [] => Ok(VersionVector::new()),
            _ => Err(fault("the row of the log's position is missing".into())),
        };
    };
    let position: Position = minicbor::decode(row).map_err(|error| fault(error.to_string()))?;
    for (origin, log) in logs {
        let own = position.origin.is_some_and(|own| own.get() == origin.0);
        if own && (position.next, position.hash) != (log.next, log.hash.0) {
            return Err(fault(format!(
                "it says that the log goes on at {}, the log goes on at {}",
                position.next, log.next
            )));
        }
        let applied = position.applied.get(Incarnation::from_hash(origin.0));
        // What others sent may lie here before it can be applied, and who came back to a partition has its own operations from others.
        let lacks = own && applied + 1 < log.next && log.low < log.next;
        if applied + 1 > log.next || lacks {
            return Err(fault(format!(
                "it says that {applied} of {:016x} is applied, the log goes on at {}",
                origin.0, log.next
            )));
        }
    }
    Ok(position.applied)
}

/// One account's operations carried out again.
pub struct Replay {
    replica: Replica,
    applied: VersionVector,
    /// What was brought for one message at several nodes: earlier versions kept what came first.
    brought: BTreeMap<MessageId, Vec<Message>>,
}

impl Replay {
    /// Before anything was done.
    #[must_use]
    pub fn new(account: AccountId) -> Self {
        Replay {
            replica: Replica::new(account, 0),
            applied: VersionVector::new(),
            brought: BTreeMap::new(),
        }
    }

    /// Whether the batch opens the account: then nothing of it came before.
    #[must_use]
    pub fn is_begin(batch: &Batch, account: AccountId) -> bool {
        let sections = batch.sections.iter().filter(|of| of.subject == account.0);
        sections
            .filter_map(|section| Op::decode_all(&section.ops).ok())
            .any(|ops| ops.iter().any(|op| matches!(op, Op::Open { .. })))
    }

    /// Carries out what a batch says of the account. Batches come in an order in which each follows those that it depends on.
    ///
    /// # Errors
    /// What cannot be carried out.
    pub fn take(&mut self, batch: &Batch) -> Result<(), String> {
        self.applied.merge(&batch.deps);
        self.applied.advance(batch.origin, batch.last());
        let account = self.replica.account();
        for (index, section) in batch.indexed_sections() {
            if section.subject != account.0 {
                continue;
            }
            let ops = Op::decode_all(&section.ops).map_err(|error| error.to_string())?;
            for op in &ops {
                if let Op::Deliver(deliver) = op {
                    let brought = self.brought.entry(deliver.id).or_default();
                    brought.push(deliver.message.clone());
                }
            }
            let now = batch.stamp.hlc + u64::from(index);
            let peers = Peers::none();
            let step = Step::of(batch, index, &self.applied, now, &peers);
            self.replica
                .apply(&step, ops)
                .map_err(|error| error.to_string())?;
            // Content rows are made as well; they are not compared.
            drop(self.replica.take_dirty());
            self.replica.take_replaced();
        }
        Ok(())
    }

    /// What earlier versions chose by the order in which they heard of it is taken as it is stored: nodes come to agree on it when they write.
    fn believe(&mut self, stored: &mut Replica) {
        stored.spell_as(&self.replica);
        for (message, brought) in &self.brought {
            let chosen = stored.message(message).filter(|of| brought.contains(of));
            if let Some(chosen) = chosen.filter(|_| brought.len() > 1) {
                self.replica.choose(*message, &chosen);
            }
        }
    }

    fn rows(mut self) -> Vec<(RowKey, Vec<u8>)> {
        // What is hidden may be collected: it is compared no further.
        self.replica
            .collect(&self.applied, &|_, _| true, Tombstones::None, usize::MAX);
        self.replica.replicated_rows(false)
    }
}

/// An account's rows: whether they can be read, name each other, and say what its log says.
pub fn account(
    account: AccountId,
    rows: Vec<(Vec<u8>, Bytes)>,
    applied: &VersionVector,
    replay: Option<Replay>,
) -> (Vec<Fault>, Vec<Needed>) {
    let (mut faults, mut needed) = (Vec::new(), Vec::new());
    let mut contents: BTreeMap<MessageId, BlobName> = BTreeMap::new();
    let mut loaded = Vec::with_capacity(rows.len());
    let mut replay = replay;
    for (key, value) in rows {
        if keys::is_held(&key) {
            // What the log says is not all in the rows yet.
            replay = None;
            match owner::held_blobs(&value) {
                Ok(blobs) => needed.extend(blobs.into_iter().map(|blob| Needed {
                    key: key.clone(),
                    blob,
                    holder: key.clone().into(),
                })),
                Err(what) => faults.push(Fault::damage(key, what)),
            }
            continue;
        }
        match keys::row_of_key(&key) {
            Ok(RowKey::Content(origin)) => match content(&value) {
                Ok(blob) => drop(contents.insert(origin, blob)),
                Err(what) => faults.push(Fault::damage(key, what)),
            },
            Ok(row) => loaded.push((row, value.to_vec())),
            Err(error) => faults.push(Fault::damage(key, error.to_string())),
        }
    }
    let versions: BTreeMap<u8, RowKey> = loaded
        .iter()
        .map(|(row, value)| (value.first().copied().unwrap_or(0), row.clone()))
        .collect();
    let mut replica = match Replica::load(account, 0, loaded, applied) {
        Ok(replica) => replica,
        Err(error) => {
            let row = match &error {
                LoadError::Malformed(row, _) | LoadError::Dangling(row) => row.clone(),
                LoadError::Version(of) => versions.get(of).cloned().unwrap_or(RowKey::Account),
                LoadError::Key => RowKey::Account,
            };
            faults.push(Fault::damage(
                keys::row_key(account, &row),
                error.to_string(),
            ));
            return (faults, needed);
        }
    };
    for (origin, blob) in replica.contents() {
        let key = keys::content_key(account, origin).to_vec();
        match contents.remove(&origin) {
            Some(named) if named == blob => needed.push(Needed {
                key,
                blob: owner::blob_name(&blob),
                holder: owner::holder(account, origin),
            }),
            Some(_) => faults.push(Fault::damage(
                key,
                "it names another blob than its message does",
            )),
            None => faults.push(Fault::damage(key, "a message has no content row")),
        }
    }
    // A crash in the middle of a collection could leave some behind, as long as a message and its content row went in two commits.
    faults.extend(contents.into_keys().map(|origin| {
        Fault::useless(
            keys::content_key(account, origin),
            "no message has this content row",
        )
    }));
    if let Some(mut replay) = replay {
        replay.believe(&mut replica);
        let said: BTreeMap<_, _> = replay.rows().into_iter().collect();
        replica.collect(applied, &|_, _| true, Tombstones::None, usize::MAX);
        let found: BTreeMap<_, _> = replica.replicated_rows(false).into_iter().collect();
        let all: BTreeSet<&RowKey> = said.keys().chain(found.keys()).collect();
        for row in all {
            let what = match (said.get(row), found.get(row)) {
                (Some(said), Some(found)) if said == found => continue,
                (Some(_), Some(_)) => "the row is not what the log says",
                (Some(_), None) => "by the log there is such a row",
                _ => "by the log there is no such row",
            };
            faults.push(Fault::damage(keys::row_key(account, row), what));
        }
    }
    (faults, needed)
}

fn content(value: &Bytes) -> Result<BlobName, String> {
    let content = Content::decode(value).map_err(|error| error.to_string())?;
    // An account's content rows hold what `content` encodes.
    crate::content::Content::decode(&content.summary.into()).map_err(|error| error.to_string())?;
    Ok(content.blob)
}

/// The bodies that a row of an account names, if it can be read: that of a message, or those of a part of a batch that is held.
#[must_use]
pub fn named(key: &[u8], row: &[u8]) -> Vec<BlobName> {
    if account_of(key).is_some() && keys::is_held(key) {
        let held = owner::held_blobs(row).unwrap_or_default().into_iter();
        let name = |blob: whimbrel_storage::BlobName| BlobName {
            hash: blob.hash.0,
            upload: blob.upload.0,
        };
        return held.map(name).collect();
    }
    match keys::row_of_key(key) {
        Ok(RowKey::Content(_)) => {
            let content = Content::decode(row).ok();
            content.map(|content| content.blob).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The account that a row of an accounts' partition belongs to; `None`: it is no account's.
#[must_use]
pub fn account_of(key: &[u8]) -> Option<AccountId> {
    keys::account_of_key(key)
}

/// Whether the account's partition is this one.
#[must_use]
pub fn is_at_home(account: AccountId, partition: PartitionId) -> bool {
    keys::partition_of(account) == partition
}

/// The directory from its rows, and what is wrong with them. `batches`: all there ever were, in an order in which each follows those that it
/// depends on; `None` if some were cut.
pub fn directory(rows: &[(Vec<u8>, Bytes)], batches: Option<&[Batch]>) -> (Directory, Vec<Fault>) {
    let (mut directory, mut faults) = (Directory::default(), Vec::new());
    let replicated =
        |(key, _): &&(Vec<u8>, Bytes)| &key[..] >= OWN_ROWS_END && !keys::is_coming(key);
    for (key, value) in rows.iter().filter(replicated) {
        if let Err(error) = directory.load(key, value) {
            faults.push(Fault::damage(key.as_slice(), error.to_string()));
        }
    }
    let Some(batches) = batches else {
        return (directory, faults);
    };
    let mut replayed = Directory::default();
    let mut touched: BTreeSet<Row> = BTreeSet::new();
    for batch in batches {
        for (index, section) in batch.indexed_sections() {
            let ops = whimbrel_directory::op::decode(&section.ops).unwrap_or_default();
            for (at, op) in (index..).zip(&ops) {
                touched.extend(replayed.apply(&batch.context(at), op));
            }
        }
    }
    let said = touched
        .iter()
        .filter_map(|row| Some((row.key(), replayed.row(row)?)));
    let said: BTreeMap<Vec<u8>, Vec<u8>> = said.collect();
    let found = rows.iter().filter(replicated);
    let found: BTreeMap<&[u8], &Bytes> =
        found.map(|(key, value)| (key.as_slice(), value)).collect();
    for (key, value) in &said {
        match found.get(key.as_slice()) {
            Some(found) if **found == value[..] => {}
            Some(_) => faults.push(Fault::damage(
                key.as_slice(),
                "the row is not what the log says",
            )),
            None => faults.push(Fault::damage(
                key.as_slice(),
                "by the log there is such a row",
            )),
        }
    }
    let more = found.keys().filter(|key| !said.contains_key(**key));
    faults.extend(more.map(|key| Fault::damage(*key, "by the log there is no such row")));
    (directory, faults)
}

/// Brings batches into an order in which each follows those that it depends on; those whose logs lie in `batches` whole.
#[must_use]
pub fn ordered(batches: Vec<Batch>) -> Vec<Batch> {
    let mut batches = batches;
    // A batch's stamp is greater than those of all that it depends on: its clock has seen them.
    batches.sort_by_key(|batch| (batch.stamp, batch.first));
    batches
}
