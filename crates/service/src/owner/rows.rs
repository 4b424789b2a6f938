//! What the rows and operations of an account mean to the store: mutations, and references to blobs.

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, BlobName, Flag, Flags, MessageId, Op, Replica, RowKey};
use whimbrel_storage::Mutation;

use super::keys;

/// The blob that an operation names, as batches have it: hash and upload (docs/design.md#delivery: peers fetch it beside the batch). Copies name none
/// that is new.
pub(super) fn named_blob(op: &Op) -> Option<Vec<u8>> {
    let blob = match op {
        Op::Append(append) => append.message.blob,
        Op::Deliver(deliver) => deliver.message.blob,
        _ => return None,
    };
    Some([&blob.hash[..], &blob.upload[..]].concat())
}

/// Whether operations do nothing but remove, or mark for removal, so that they lead to more room on the disk.
pub(super) fn free_room(ops: &[Op]) -> bool {
    let deleted = Flags::from_iter([Flag::Deleted]);
    ops.iter().all(|op| match op {
        Op::Expunge { .. } | Op::DeleteMailbox { .. } => true,
        Op::Store { set, clear, .. } => *set == deleted && clear.is_empty(),
        _ => false,
    })
}

/// Turns a changed row into mutations; a content row holds the account's reference to its blob.
pub(super) fn push_row(
    mutations: &mut Vec<Mutation>,
    account: AccountId,
    row: &RowKey,
    value: Option<Vec<u8>>,
) {
    let key = keys::row_key(account, row);
    match value {
        Some(value) => {
            if let RowKey::Content(origin) = row
                && let Ok(content) = whimbrel_mailbox::Content::decode(&value)
            {
                mutations.push(Mutation::Reference {
                    blob: blob_name(&content.blob),
                    holder: holder(account, *origin),
                });
            }
            mutations.push(Mutation::Put {
                key,
                value: value.into(),
            });
        }
        None => mutations.push(Mutation::Delete { key }),
    }
}

/// The rows of an account that must be in the write of the operations that changed them.
pub(super) fn take_state(replica: &mut Replica, account: AccountId) -> Vec<Mutation> {
    let mut mutations = Vec::new();
    for (row, value) in replica.take_dirty_state() {
        push_row(&mut mutations, account, &row, value);
    }
    for (origin, blob) in replica.take_replaced() {
        mutations.push(Mutation::Release {
            blob: blob_name(&blob),
            holder: holder(account, origin),
        });
    }
    mutations
}

/// The body whose hold a row of an account ends.
pub(super) fn released_body(row: &Mutation) -> Option<whimbrel_mailbox::BlobName> {
    match row {
        Mutation::Release { blob, .. } => Some(whimbrel_mailbox::BlobName {
            hash: blob.hash.0,
            upload: blob.upload.0,
        }),
        _ => None,
    }
}

/// What a content row holds that came with a state, and under which name. Until its account is joined nothing else may: an entry of the queue whose
/// delivery is in the state is finished when this node has that.
pub(super) fn held_by_coming(
    key: &Bytes,
    value: &[u8],
) -> Option<(whimbrel_storage::BlobName, Bytes)> {
    match keys::row_of_key(keys::key_of_coming(key)) {
        Ok(RowKey::Content(_)) => {
            let content = whimbrel_mailbox::Content::decode(value).ok()?;
            Some((blob_name(&content.blob), key.clone()))
        }
        _ => None,
    }
}

/// Removes a row that came with a state, and what it holds.
pub(super) fn drop_coming(mutations: &mut Vec<Mutation>, key: Bytes, value: &[u8]) {
    let held = held_by_coming(&key, value);
    mutations.push(Mutation::Delete { key });
    let held = held.map(|(blob, holder)| Mutation::Release { blob, holder });
    mutations.extend(held);
}

/// The name under which a content row holds its blob. Not the account's alone: two messages of an account may hold one blob, and the
/// release of one must not drop the other's.
pub(crate) fn holder(account: AccountId, origin: MessageId) -> Bytes {
    [account.0, origin.0].concat().into()
}

/// A blob's name as the store has it.
#[must_use]
pub fn blob_name(name: &whimbrel_mailbox::BlobName) -> whimbrel_storage::BlobName {
    whimbrel_storage::BlobName {
        upload: whimbrel_storage::UploadId(name.upload),
        hash: whimbrel_storage::Hash(name.hash),
    }
}

/// The operations, if they claim UIDs of their maker's slot alone. Whose slot another one has now, or nobody knows, may claim any.
pub(super) fn of_slot(ops: Vec<Op>, slot: Option<u8>) -> Result<Vec<Op>, String> {
    match slot {
        Some(slot) if !ops.iter().all(|op| op.claims_only(slot)) => Err(format!(
            "an operation claims UIDs of another slot than {slot}, its maker's"
        )),
        _ => Ok(ops),
    }
}

/// Rows that may be written after the batch: what another node's RENAME, or time, shows at once may be more than one commit has room for.
pub(super) fn take_visible(replica: &mut Replica, account: AccountId) -> Vec<Mutation> {
    let mut rows = Vec::new();
    for (row, value) in replica.take_dirty_visible() {
        push_row(&mut rows, account, &row, value);
    }
    rows
}

/// A body's name as batches have it: see `rows::named_blob`.
pub(crate) fn blob_of_batch(name: &[u8]) -> Option<BlobName> {
    let (hash, upload) = name.split_first_chunk()?;
    let upload = upload.try_into().ok()?;
    Some(BlobName {
        hash: *hash,
        upload,
    })
}
