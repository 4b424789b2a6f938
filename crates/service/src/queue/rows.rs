//! What the queue keeps and tells: the rows of entries, and the operations of its batches.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::{Batch, Incarnation, Section, VersionVector, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Date, EntryId, MailboxName};
use whimbrel_storage::Mutation;

use crate::{
    api::{Delivery, Entry},
    log,
    owner::blob_name,
};

/// Before the rows of entries.
pub(super) const ENTRY_ROW: u8 = b'e';
/// Format of a row.
const ROW_VERSION: u8 = 1;
/// Format of operations.
const OPS_VERSION: u8 = 1;
/// The subject of the queue's sections: there is one queue.
const SUBJECT: [u8; 16] = *b"whimbrel queue..";

pub(crate) fn entry_key(id: EntryId) -> Bytes {
    [&[ENTRY_ROW], &id.0[..]].concat().into()
}

/// The name under which an entry holds its blob.
pub(crate) fn holder(id: EntryId) -> Bytes {
    entry_key(id)
}

#[derive(Encode, Decode)]
struct EntryRow<'a> {
    #[n(0)]
    version: u8,
    #[b(1)]
    sender: &'a str,
    #[n(2)]
    blob: BlobName,
    #[n(3)]
    date: Date,
    #[b(4)]
    deliveries: Vec<DeliveryRow<'a>>,
    /// The node that took it; absent: this one, when it was alone.
    #[n(5)]
    taken_by: Option<Incarnation>,
    /// The number of its *take* in that node's log; absent in the operation itself, and in rows from before it was kept.
    #[n(6)]
    number: Option<u64>,
}

/// Where an entry was taken: by which node, and under which number of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) by: Incarnation,
    pub(crate) number: Option<u64>,
}

impl Taken {
    /// Whether whoever has applied this has heard of the entry, if it is known where it was taken.
    pub(super) fn is_in(self, applied: &VersionVector) -> Option<bool> {
        Some(applied.get(self.by) >= self.number?)
    }
}

#[derive(Encode, Decode)]
struct DeliveryRow<'a> {
    #[n(0)]
    account: AccountId,
    #[n(1)]
    target: MailboxName,
    #[cbor(b(2), with = "minicbor::bytes")]
    content: &'a [u8],
    #[n(3)]
    size: u32,
    /// Absent but for a sender's own copy.
    #[n(4)]
    sent: Option<bool>,
    /// Absent unless it does not end with CRLF.
    #[n(5)]
    open_end: Option<bool>,
}

pub(crate) fn row_of_entry(entry: &Entry, taken: Option<Taken>) -> Bytes {
    let deliveries = entry.deliveries.iter().map(|delivery| DeliveryRow {
        account: delivery.account,
        target: delivery.target.clone(),
        content: &delivery.content,
        size: delivery.size,
        sent: delivery.sent.then_some(true),
        open_end: delivery.open_end.then_some(true),
    });
    let row = EntryRow {
        version: ROW_VERSION,
        sender: &entry.sender,
        blob: entry.blob,
        date: entry.date,
        deliveries: deliveries.collect(),
        taken_by: taken.map(|taken| taken.by),
        number: taken.and_then(|taken| taken.number),
    };
    log::encode(&row).into()
}

/// An entry, and where it was taken.
pub(crate) fn entry_of_row(key: &[u8], row: &Bytes) -> Option<(Entry, Option<Taken>)> {
    let (&ENTRY_ROW, id) = key.split_first()? else {
        return None;
    };
    let id = EntryId(id.try_into().ok()?);
    let decoded: EntryRow<'_> = minicbor::decode(row).ok()?;
    if decoded.version != ROW_VERSION {
        return None;
    }
    let deliveries = decoded.deliveries.iter().map(|delivery| Delivery {
        account: delivery.account,
        target: delivery.target.clone(),
        content: row.slice_ref(delivery.content),
        size: delivery.size,
        sent: delivery.sent == Some(true),
        open_end: delivery.open_end == Some(true),
    });
    let entry = Entry {
        id,
        sender: decoded.sender.to_owned(),
        blob: decoded.blob,
        date: decoded.date,
        deliveries: deliveries.collect(),
    };
    let number = decoded.number;
    let taken = decoded.taken_by.map(|by| Taken { by, number });
    Some((entry, taken))
}

/// For fuzzers: a row that can be read is written and read as the same.
pub(crate) fn fuzz_row(row: &Bytes) {
    let key = entry_key(EntryId([1; 16]));
    if let Some((entry, taken)) = entry_of_row(&key, row) {
        let held: usize = entry.deliveries.iter().map(|d| d.content.len()).sum();
        assert!(held <= row.len(), "contents are slices of the row");
        let written = row_of_entry(&entry, taken);
        let again = entry_of_row(&key, &written);
        assert!(again.is_some_and(|(again, by)| row_of_entry(&again, by) == written));
    }
}

/// Mutations that take an entry's row away, and what it holds.
pub(super) fn without(id: EntryId, blob: &BlobName) -> [Mutation; 3] {
    [
        Mutation::Delete { key: entry_key(id) },
        Mutation::Delete {
            key: log::missing_blob_key(blob),
        },
        Mutation::Release {
            blob: blob_name(blob),
            holder: holder(id),
        },
    ]
}

/// Mutations that put it there.
pub(super) fn with(id: EntryId, blob: &BlobName, row: Bytes) -> [Mutation; 2] {
    [
        Mutation::Reference {
            blob: blob_name(blob),
            holder: holder(id),
        },
        Mutation::Put {
            key: entry_key(id),
            value: row,
        },
    ]
}

/// What a node says of an entry to the others.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Op {
    /// It was taken: its row, as every node keeps it.
    #[n(0)]
    Take {
        #[n(0)]
        id: EntryId,
        #[cbor(n(1), with = "minicbor::bytes")]
        row: Vec<u8>,
    },
    /// All of its deliveries are made.
    #[n(1)]
    Finish {
        #[n(0)]
        id: EntryId,
    },
    /// Too few nodes had it in time: its client was told so.
    #[n(2)]
    Abort {
        #[n(0)]
        id: EntryId,
    },
}

/// The section of a batch that holds one operation.
pub(super) fn section(op: &Op) -> Section {
    let mut ops = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut ops);
    let written = encoder
        .array(2)
        .and_then(|e| e.u8(OPS_VERSION))
        .and_then(|e| e.encode([op]));
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
    Section {
        subject: SUBJECT,
        counter: 0,
        count: 1,
        ops,
    }
}

/// What an operation means at another node.
pub(crate) enum Done {
    /// An entry was taken; its row as it is kept.
    Taken(EntryId, Taken, BlobName, Bytes),
    /// It is finished, or given up.
    Closed(EntryId),
}

/// What a batch did; else why it cannot be read.
pub(crate) fn read(batch: &Batch) -> Result<Vec<Done>, String> {
    let mut done = Vec::new();
    for (number, op) in (batch.first..).zip(ops(batch)?) {
        done.push(match op {
            Op::Take { id, row } => {
                let row = Bytes::from(row);
                let (entry, taken) = entry_of_row(&entry_key(id), &row)
                    .ok_or("it has an entry that cannot be read")?;
                if taken.is_none_or(|taken| taken.by != batch.origin) {
                    return Err("it has an entry that its node did not take".into());
                }
                let taken = Taken {
                    by: batch.origin,
                    number: Some(number),
                };
                let row = row_of_entry(&entry, Some(taken));
                Done::Taken(id, taken, entry.blob, row)
            }
            Op::Abort { .. } if broken("abort-not-heard") => continue,
            Op::Finish { id } | Op::Abort { id } => Done::Closed(id),
        });
    }
    Ok(done)
}

/// The operations of a batch; else why they cannot be read.
fn ops(batch: &Batch) -> Result<Vec<Op>, String> {
    let mut all = Vec::new();
    for section in &batch.sections {
        if section.subject != SUBJECT {
            return Err("it has a section that is not the queue's".into());
        }
        let damaged = |error: minicbor::decode::Error| error.to_string();
        let mut decoder = minicbor::Decoder::new(&section.ops);
        if decoder.array().map_err(damaged)?.is_none_or(|len| len < 2) {
            return Err("its operations have no version".into());
        }
        let version = decoder.u8().map_err(damaged)?;
        if version != OPS_VERSION {
            return Err(format!("its operations have version {version}"));
        }
        let ops: Vec<Op> = decoder.decode().map_err(damaged)?;
        if ops.len() != section.count as usize {
            return Err("a section has not as many operations as it says".into());
        }
        all.extend(ops);
    }
    Ok(all)
}

/// A body's name as batches have it: hash and upload.
pub(super) fn named(blob: &BlobName) -> Vec<u8> {
    [&blob.hash[..], &blob.upload[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_kept(file: &str, now: &[u8]) {
        let path = format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, now).expect("the fixture is written");
        }
        assert_eq!(
            std::fs::read(&path).expect("the fixture is there"),
            now,
            "{file}"
        );
    }

    fn entry() -> Entry {
        let delivery = |sent, open_end| Delivery {
            account: AccountId([3; 16]),
            target: MailboxName::inbox(),
            content: Bytes::from_static(b"what of a message travels"),
            size: 1234,
            open_end,
            sent,
        };
        Entry {
            id: EntryId([1; 16]),
            sender: "carl@elsewhere.example".into(),
            deliveries: vec![delivery(false, false), delivery(true, true)],
            blob: BlobName {
                hash: [5; 32],
                upload: [6; 16],
            },
            date: Date {
                seconds: 1_700_000_000,
                zone_minutes: 60,
            },
        }
    }

    #[test]
    fn rows_of_version_1_keep_their_meaning() {
        let by = Incarnation::from_hash(7);
        let (alone, known) = (
            Taken { by, number: None },
            Taken {
                by,
                number: Some(9),
            },
        );
        for (file, taken) in [
            ("queue-row-v1-alone.cbor", None),
            ("queue-row-v1-taken.cbor", Some(alone)),
            ("queue-row-v1.cbor", Some(known)),
        ] {
            let row = row_of_entry(&entry(), taken);
            is_kept(file, &row);
            let (read, by) = entry_of_row(&entry_key(entry().id), &row).expect("it is read");
            assert_eq!((read.id, by), (entry().id, taken), "{file}");
            assert_eq!(row_of_entry(&read, by), row, "{file}");
        }
    }

    #[test]
    fn operations_of_version_1_keep_their_meaning() {
        let by = Incarnation::from_hash(7);
        let id = entry().id;
        let row = row_of_entry(&entry(), Some(Taken { by, number: None })).to_vec();
        for (file, op) in [
            ("queue-take-v1.cbor", Op::Take { id, row }),
            ("queue-finish-v1.cbor", Op::Finish { id }),
            ("queue-abort-v1.cbor", Op::Abort { id }),
        ] {
            let section = section(&op);
            is_kept(file, &section.ops);
            let batch = Batch {
                partition: whimbrel_crdt::PartitionId::QUEUE,
                origin: by,
                first: 1,
                count: 1,
                previous: whimbrel_crdt::Hash::default(),
                deps: VersionVector::new(),
                stamp: whimbrel_crdt::Stamp { hlc: 1, origin: by },
                sections: vec![section],
                blobs: Vec::new(),
            };
            assert_eq!(ops(&batch), Ok(vec![op]), "{file}");
        }
    }
}
