//! The queue's rows, held against each other: what is not done has a payload, which names the body that its row names.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_mailbox::{BlobName, EntryId};

use super::{Fault, Needed};
use crate::{
    owner,
    queue::{Row, entry_of_payload, holder, row_of},
};

/// How many entries the rows of the queue hold, what these name, and what is wrong.
#[must_use]
pub fn queue(rows: &[(Vec<u8>, Bytes)]) -> (usize, Vec<Needed>, Vec<Fault>) {
    let (mut needed, mut faults) = (Vec::new(), Vec::new());
    let mut entries: BTreeMap<EntryId, (BlobName, Vec<u8>)> = BTreeMap::new();
    let mut payloads: BTreeMap<EntryId, (Option<BlobName>, Vec<u8>)> = BTreeMap::new();
    for (key, value) in rows {
        let mut needs = |blob: &BlobName, holder: Bytes| {
            needed.push(Needed {
                key: key.clone(),
                blob: owner::blob_name(blob),
                holder,
            });
        };
        match row_of(key, value) {
            None => faults.push(Fault::damage(key.as_slice(), "the entry cannot be read")),
            Some(Row::Entry(id, Some(blob), _)) => {
                needs(&blob, holder(id));
                entries.insert(id, (blob, key.clone()));
            }
            Some(Row::Hold(_, blob)) => needs(&blob, Bytes::copy_from_slice(key)),
            Some(Row::Payload(id)) => {
                let blob = entry_of_payload(id, value).map(|entry| entry.blob);
                payloads.insert(id, (blob, key.clone()));
            }
            Some(Row::Entry(_, None, _) | Row::Life(..) | Row::Away(..)) => {}
        }
    }
    for (id, (blob, key)) in &entries {
        let what = match payloads.remove(id) {
            None => "the entry has no payload",
            Some((None, _)) => "the payload of the entry cannot be read",
            Some((Some(named), _)) if named != *blob => "row and payload name different bodies",
            Some(_) => continue,
        };
        faults.push(Fault::damage(key.as_slice(), what));
    }
    for (_, key) in payloads.into_values() {
        faults.push(Fault::damage(key, "the payload belongs to no entry"));
    }
    (entries.len(), needed, faults)
}
