//! What the queue keeps.
//!
//! | Key | Value |
//! |---|---|
//! | 1 `life` | the incarnation that wrote last, how often an older copy of the disk was put back, and the numbers that this node has had |
//! | `a` slot | for how many microseconds this node said it would be away |
//! | `e` id | the name of the body, if the entry is not done, and the machine's record ([`whimbrel_queue::Record`]) |
//! | `f` id index | the name of the body of a delivery that is made for another node |
//! | `p` id | the payload: sender, body, date, deliveries ([`payload_of_entry`]) |
//!
//! Payloads come last: at a start all else is read, and they are not.

use bytes::{BufMut as _, Bytes, BytesMut};
use minicbor::{Decode, Encode};
use whimbrel_crdt::Incarnation;
use whimbrel_mailbox::{AccountId, BlobName, Date, EntryId, MailboxName};
use whimbrel_queue::{Node, Nodes, Record};
use whimbrel_storage::Mutation;

use crate::{
    api::{Delivery, Entry},
    log,
    owner::blob_name,
};

const LIFE_KEY: &[u8] = b"\x01life";
const AWAY_ROW: u8 = b'a';
const ENTRY_ROW: u8 = b'e';
const HOLD_ROW: u8 = b'f';
const PAYLOAD_ROW: u8 = b'p';

/// Where payloads begin, and all else has ended.
pub(super) const PAYLOADS: &[u8] = &[PAYLOAD_ROW];

/// Format of a payload.
const PAYLOAD_VERSION: u8 = 2;

/// Bytes of a body's name.
const NAME_BYTES: usize = 48;

fn key(kind: u8, id: EntryId) -> Bytes {
    [&[kind], &id.0[..]].concat().into()
}

pub(super) fn payload_key(id: EntryId) -> Bytes {
    key(PAYLOAD_ROW, id)
}

/// The name under which an entry holds its body.
pub(crate) fn holder(id: EntryId) -> Bytes {
    key(ENTRY_ROW, id)
}

fn hold_key((id, index): (EntryId, u32)) -> Bytes {
    [&[HOLD_ROW], &id.0[..], &index.to_be_bytes()]
        .concat()
        .into()
}

fn name_bytes(blob: &BlobName) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes[..32].copy_from_slice(&blob.hash);
    bytes[32..].copy_from_slice(&blob.upload);
    bytes
}

fn name_of(bytes: &[u8]) -> Option<BlobName> {
    Some(BlobName {
        hash: bytes.get(..32)?.try_into().ok()?,
        upload: bytes.get(32..NAME_BYTES)?.try_into().ok()?,
    })
}

/// The row of an entry, or of one that is done and not forgotten.
pub(super) fn put(id: EntryId, blob: Option<&BlobName>, record: &Record) -> Mutation {
    let record = record.encode();
    let mut value = BytesMut::with_capacity(1 + NAME_BYTES + record.len());
    value.put_u8(blob.is_some().into());
    if let Some(blob) = blob {
        value.put_slice(&name_bytes(blob));
    }
    value.put_slice(&record);
    Mutation::Put {
        key: key(ENTRY_ROW, id),
        value: value.freeze(),
    }
}

pub(super) fn delete(id: EntryId) -> Mutation {
    let key = key(ENTRY_ROW, id);
    Mutation::Delete { key }
}

pub(super) fn put_payload(id: EntryId, value: Bytes) -> Mutation {
    let key = payload_key(id);
    Mutation::Put { key, value }
}

pub(super) fn delete_payload(id: EntryId) -> Mutation {
    let key = payload_key(id);
    Mutation::Delete { key }
}

pub(super) fn reference(id: EntryId, blob: &BlobName) -> Mutation {
    Mutation::Reference {
        blob: blob_name(blob),
        holder: holder(id),
    }
}

pub(super) fn release(id: EntryId, blob: &BlobName) -> Mutation {
    Mutation::Release {
        blob: blob_name(blob),
        holder: holder(id),
    }
}

/// The body of a delivery that is made for another node is held.
pub(super) fn hold(delivery: (EntryId, u32), blob: &BlobName) -> [Mutation; 2] {
    let key = hold_key(delivery);
    let value = Bytes::copy_from_slice(&name_bytes(blob));
    let (holder, blob) = (key.clone(), blob_name(blob));
    [
        Mutation::Reference { blob, holder },
        Mutation::Put { key, value },
    ]
}

/// It is held no longer.
pub(super) fn let_go(delivery: (EntryId, u32), blob: &BlobName) -> [Mutation; 2] {
    let key = hold_key(delivery);
    let (holder, blob) = (key.clone(), blob_name(blob));
    [Mutation::Release { blob, holder }, Mutation::Delete { key }]
}

/// A node is away for so long; 0: it is not.
pub(super) fn away(node: Node, micros: u64) -> Mutation {
    let key = Bytes::copy_from_slice(&[AWAY_ROW, node.number()]);
    match micros {
        0 => Mutation::Delete { key },
        _ => Mutation::Put {
            key,
            value: Bytes::copy_from_slice(&micros.to_be_bytes()),
        },
    }
}

/// Who writes from now on, in which life, and which numbers it has had.
pub(super) fn life(origin: Incarnation, life: u32, numbers: Nodes) -> Mutation {
    let origin = origin.get().to_be_bytes();
    let value = [
        &origin[..],
        &life.to_be_bytes(),
        &numbers.bits().to_be_bytes(),
    ]
    .concat();
    Mutation::Put {
        key: Bytes::from_static(LIFE_KEY),
        value: value.into(),
    }
}

/// A row that was read.
pub(crate) enum Row {
    /// Who wrote last, in which life, and which numbers it has had.
    Life(u64, u32, Nodes),
    /// A node is away for so many microseconds.
    Away(Node, u64),
    /// An entry, with its body if it is not done.
    Entry(EntryId, Option<BlobName>, Record),
    /// The body of a delivery for another node is held.
    Hold((EntryId, u32), BlobName),
    /// A payload.
    Payload(EntryId),
}

/// What a row says; `None`: it cannot be read.
pub(crate) fn row_of(key: &[u8], value: &Bytes) -> Option<Row> {
    if key == LIFE_KEY {
        let (origin, rest) = value.split_at_checked(8)?;
        let (life, numbers) = rest.split_at_checked(4)?;
        let numbers = Nodes::from_bits(u64::from_be_bytes(numbers.try_into().ok()?));
        let origin = u64::from_be_bytes(origin.try_into().ok()?);
        let life = u32::from_be_bytes(life.try_into().ok()?);
        return Some(Row::Life(origin, life, numbers));
    }
    let (kind, rest) = key.split_first()?;
    let id = |bytes: &[u8]| Some(EntryId(bytes.try_into().ok()?));
    Some(match *kind {
        AWAY_ROW => {
            let micros = u64::from_be_bytes(value[..].try_into().ok()?);
            Row::Away(Node::new(*rest.first()?)?, micros)
        }
        ENTRY_ROW => {
            let with_body = match value.first()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let blob = with_body.then(|| name_of(&value[1..]));
            let blob = match blob {
                Some(None) => return None,
                Some(Some(blob)) => Some(blob),
                None => None,
            };
            let from = if with_body { 1 + NAME_BYTES } else { 1 };
            let record = Record::decode(value.slice(from..)).ok()?;
            // Of what is not done the body is here.
            if with_body != matches!(record, Record::Tuple { .. }) {
                return None;
            }
            Row::Entry(id(rest)?, blob, record)
        }
        HOLD_ROW => {
            let (entry, index) = rest.split_at_checked(16)?;
            let index = u32::from_be_bytes(index.try_into().ok()?);
            Row::Hold((id(entry)?, index), name_of(value)?)
        }
        PAYLOAD_ROW => Row::Payload(id(rest)?),
        _ => return None,
    })
}

#[derive(Encode, Decode)]
struct Payload<'a> {
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

/// What the machine keeps of an entry.
pub(crate) fn payload_of_entry(entry: &Entry) -> Bytes {
    let deliveries = entry.deliveries.iter().map(|delivery| DeliveryRow {
        account: delivery.account,
        target: delivery.target.clone(),
        content: &delivery.content,
        size: delivery.size,
        sent: delivery.sent.then_some(true),
        open_end: delivery.open_end.then_some(true),
    });
    let payload = Payload {
        version: PAYLOAD_VERSION,
        sender: &entry.sender,
        blob: entry.blob,
        date: entry.date,
        deliveries: deliveries.collect(),
    };
    log::encode(&payload).into()
}

/// The entry again; `None`: it cannot be read.
pub(crate) fn entry_of_payload(id: EntryId, payload: &Bytes) -> Option<Entry> {
    let decoded: Payload<'_> = minicbor::decode(payload).ok()?;
    if decoded.version != PAYLOAD_VERSION {
        return None;
    }
    let deliveries = decoded.deliveries.iter().map(|delivery| Delivery {
        account: delivery.account,
        target: delivery.target.clone(),
        content: payload.slice_ref(delivery.content),
        size: delivery.size,
        sent: delivery.sent == Some(true),
        open_end: delivery.open_end == Some(true),
    });
    Some(Entry {
        id,
        sender: decoded.sender.to_owned(),
        blob: decoded.blob,
        date: decoded.date,
        deliveries: deliveries.collect(),
    })
}

/// For fuzzers: what can be read is written and read as the same.
pub(crate) fn fuzz_row(row: &Bytes) {
    let id = EntryId([1; 16]);
    if let Some(entry) = entry_of_payload(id, row) {
        let held: usize = entry.deliveries.iter().map(|d| d.content.len()).sum();
        assert!(held <= row.len(), "contents are slices of the payload");
        let written = payload_of_entry(&entry);
        let again = entry_of_payload(id, &written);
        assert!(again.is_some_and(|again| payload_of_entry(&again) == written));
    }
    if let Some(Row::Entry(id, blob, record)) = row_of(&holder(id), row) {
        let Mutation::Put { key, value } = put(id, blob.as_ref(), &record) else {
            unreachable!("a row is put");
        };
        assert!(
            matches!(row_of(&key, &value), Some(Row::Entry(_, again, found)) if again == blob && found == record)
        );
    }
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
    fn payloads_of_version_2_keep_their_meaning() {
        let payload = payload_of_entry(&entry());
        is_kept("queue-payload-v2.cbor", &payload);
        let read = entry_of_payload(entry().id, &payload).expect("it is read");
        assert_eq!(payload_of_entry(&read), payload);
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let (id, blob) = (entry().id, entry().blob);
        let record = Record::Tombstone {
            version: whimbrel_queue::Version::default(),
            holders: whimbrel_queue::Nodes::from_bits(6),
            unconfirmed: whimbrel_queue::Nodes::from_bits(2),
            tracked: true,
        };
        let tuple = Record::Tuple {
            ownership: whimbrel_queue::Ownership {
                owners: whimbrel_queue::Owners::of(Node::new(3).unwrap()),
                ..whimbrel_queue::Ownership::default()
            },
            sent: whimbrel_queue::Nodes::NONE,
            life: 1,
        };
        for (blob, record) in [(None, &record), (Some(&blob), &tuple)] {
            let Mutation::Put { key, value } = put(id, blob, record) else {
                panic!("a row is put");
            };
            let Some(Row::Entry(read, body, found)) = row_of(&key, &value) else {
                panic!("an entry");
            };
            assert_eq!((read, body.as_ref(), &found), (id, blob, record));
            assert!(
                row_of(&key, &value.slice(..value.len() - 1)).is_none(),
                "it is cut"
            );
        }
        // An entry without its body is none.
        let Mutation::Put { key, value } = put(id, None, &tuple) else {
            panic!("a row is put");
        };
        assert!(row_of(&key, &value).is_none());
        let [_, Mutation::Put { key, value }] = hold((id, 7), &blob) else {
            panic!("a row is put");
        };
        assert!(
            matches!(row_of(&key, &value), Some(Row::Hold((read, 7), body)) if read == id && body == blob)
        );
        let Mutation::Put { key, value } = life(Incarnation::from_hash(9), 2, Nodes::from_bits(5))
        else {
            panic!("a row is put");
        };
        assert!(
            matches!(row_of(&key, &value), Some(Row::Life(9, 2, numbers)) if numbers.bits() == 5)
        );
        let Mutation::Put { key, value } = away(Node::new(5).unwrap(), 1000) else {
            panic!("a row is put");
        };
        assert!(matches!(row_of(&key, &value), Some(Row::Away(node, 1000)) if node.number() == 5));
    }
}
