//! Messages that come from elsewhere (`docs/decisions/0042`).
//!
//! What a message is at its source says under which id it is here, and with its bytes what its upload is called: whoever brings it, at whatever node, makes
//! the same message with the same body. So it does not matter of which of them a third node hears first, and each can give it the body.

use whimbrel_mailbox::{AccountId, BlobName, MailboxName, MessageId};

use super::{
    Mail, Partition,
    answers::{failure, new_message},
    blob_arrivals,
    keys::partition_of,
    split_commits::fits_append,
};
use crate::{
    api::{EntryId, Failure, NewMail, Reply, UploadId},
    machine::Now,
};

/// What the upload of bytes with this hash is to be called that brings this to the account. One that is called otherwise (the name was in use, of another
/// upload of it or a body on its way) is taken by a node alone, and makes a body of its own; in a cluster it is refused for a while, unless the message is
/// here.
#[must_use]
pub fn import_upload(entry: EntryId, account: AccountId, hash: &[u8; 32]) -> UploadId {
    MessageId::imported_upload(entry, account, hash)
}

pub(super) fn import(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    name: &MailboxName,
    messages: Vec<(EntryId, NewMail)>,
) -> Result<Reply, Failure> {
    let came = came_again(mail, account, &messages)?;
    let at = mail.at(now, account);
    let messages = messages.into_iter();
    let messages = messages.map(|(entry, new)| (entry, new_message(new)));
    let replica = mail.accounts.replica(account)?;
    let plan = replica
        .plan_import(&at, name, messages.collect())
        .map_err(failure)?;
    fits_append(replica, &plan)?;
    mail.write(now, account, plan.ops, &[name]);
    if !came.is_empty() {
        for blob in came {
            blob_arrivals::body_came(mail, now, blob, now.mono_micros);
        }
        // The answer waits for the commits that say so: they are the partition's, and with them the bodies are durable.
        let newest = mail
            .partitions
            .running(partition_of(account))
            .map(|own| own.newest());
        if let Some(entry) = mail.accounts.get_mut(&account) {
            entry.newest = entry.newest.max(newest);
        }
    }
    Ok(Reply::Appended {
        uid_validity: mail.accounts.replica(account)?.uidvalidity(),
        uids: plan.outcome,
    })
}

/// Bodies that were not here, and that are now: other nodes imported the messages, too, and may be gone.
///
/// # Errors
/// One is on its way, and the upload is called otherwise: only when it is here the message is. Or the message is new in a cluster, and the upload
/// called otherwise: others make the same message with the body that is called as it is, and one of another name would be nowhere if its only
/// node lost it, though they had its bytes.
fn came_again(
    mail: &Mail,
    account: AccountId,
    messages: &[(EntryId, NewMail)],
) -> Result<Vec<BlobName>, Failure> {
    let replica = mail.accounts.replica(account)?;
    let Some(Partition::Running(own)) = mail.partitions.get(&partition_of(account)) else {
        return Err(Failure::Temporary);
    };
    let mut came = Vec::new();
    for (entry, new) in messages {
        let Some(blob) = replica.blob(&MessageId::imported(*entry, account)) else {
            let called = import_upload(*entry, account, &new.blob.hash);
            if !mail.config.is_alone() && new.blob.upload != called {
                return Err(Failure::Temporary);
            }
            continue;
        };
        if !own.missing_blobs.contains_key(&blob) {
            continue;
        }
        if blob != new.blob || !own.missing_blobs.is_named_durably(&blob) {
            return Err(Failure::Temporary);
        }
        came.push(blob);
    }
    Ok(came)
}
