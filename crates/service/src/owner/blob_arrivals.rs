//! Bodies come: what names them is shown, and whoever waits for them is answered.
//!
//! What is missing in a partition says [`super::missing_blobs`]. A body that has come is here for good when the commit is durable that names it: then
//! accounts that are not in memory are loaded for it, and the row that says that it is missing goes with what is shown.

use std::collections::BTreeSet;

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_storage::{Mutation, Room};

use super::{
    Mail, Partition, Phase, keys::partition_of, missing_blobs::Came, rows::blob_name,
    syncing::SyncState,
};
use crate::{
    log,
    machine::{Note, Now, Output, Ticket},
    peers::PeerOutput,
};

/// A body is here, or was at this time of the monotonic clock: what names it is shown.
pub(super) fn body_came(mail: &mut Mail, now: Now, blob: BlobName, looked: u64) {
    for partition in mail.bodies.missing_in(&blob) {
        let Some(own) = mail.partitions.running(partition) else {
            continue;
        };
        match own.missing_blobs.came(&blob, looked) {
            Came::Here => {}
            Came::AskAgain => {
                mail.out.peer(PeerOutput::Request(blob));
                continue;
            }
            Came::Waits => continue,
        }
        let of = own.missing_blobs.get(&blob);
        let named_by = of.and_then(|of| of.accounts.clone()).unwrap_or_default();
        let (waiting, here): (Vec<AccountId>, Vec<AccountId>) = named_by
            .into_iter()
            .partition(|account| is_to_be_loaded(mail, *account, blob, looked));
        if !waiting.is_empty() {
            for account in here {
                body_came_to(mail, now, partition, account, blob);
            }
            continue;
        }
        let Some(own) = mail.partitions.running(partition) else {
            continue;
        };
        let accounts = own.missing_blobs.remove(&blob).and_then(|of| of.accounts);
        mail.bodies.miss_no_more(blob, partition);
        if let Some(own) = mail.partitions.running(partition) {
            own.parting.ask_anew();
        }
        let waiting = match accounts {
            None => mail.accounts.find(partition, |_| true),
            Some(accounts) => accounts.into_iter().collect(),
        };
        let mut row = Some(Mutation::Delete {
            key: log::missing_blob_key(&blob),
        });
        for account in waiting {
            let entry = mail.accounts.get(&account);
            let lacks = entry.is_some_and(
                |entry| matches!(&entry.phase, Phase::Running(replica) if replica.lacks(&blob)),
            );
            if lacks {
                // In one commit with what is shown first.
                mail.show_with(now, account, row.take(), |replica, at, peers| {
                    replica.blob_arrived(&blob, at, peers)
                });
            }
        }
        if let Some(row) = row {
            write_row(mail, partition, row);
        }
        if let Some(own) = mail.partitions.running(partition) {
            own.confirming.here(&blob, own.newest());
        }
        not_awaited(mail, partition, &blob);
    }
}

/// Others that name a body which has come are loaded yet: the account is done with it. It may not be in memory any more when they are, and were
/// all waited for none might ever be there together with the others.
fn body_came_to(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    account: AccountId,
    blob: BlobName,
) {
    let entry = mail.accounts.get(&account);
    let Some(Phase::Running(replica)) = entry.map(|entry| &entry.phase) else {
        // One that stalls, or goes: at the end, with the last.
        return;
    };
    let lacks = replica.lacks(&blob);
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let row = own.missing_blobs.names_no_more(account, [blob]).pop();
    if lacks {
        mail.show_with(now, account, row, |replica, at, peers| {
            replica.blob_arrived(&blob, at, peers)
        });
    } else if let Some(row) = row {
        write_row(mail, partition, row);
    }
}

/// By a commit of its own, which goes with what is shown: were it refused on a full disk, the body would be looked for again and again.
fn write_row(mail: &mut Mail, partition: PartitionId, row: Mutation) {
    let ticket = mail.out.ticket();
    if let Some(own) = mail.partitions.running(partition) {
        let mut commit = own.log.commit();
        commit.room = Room::Vital;
        commit.mutations.push(row);
        mail.hand_out_for(partition, ticket, commit);
    }
}

/// Nobody had the body a while ago. What no record names any more is not missing any more, and not asked for.
pub(super) fn want_again(mail: &mut Mail, blob: BlobName) {
    if !mail.bodies.missing_in(&blob).is_empty() {
        mail.out.push(Output::Peer(PeerOutput::Request(blob)));
    }
}

/// A session has found that a body is not here which a record names. If no row says so it is written now, and the body wanted of other nodes:
/// what was shown stays shown, and can be read when it has come. Other accounts that name it find out by themselves.
pub(super) fn missed(mail: &mut Mail, account: AccountId, blob: BlobName) {
    if mail.config.peers.is_empty() {
        return;
    }
    let partition = partition_of(account);
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    if own.failed {
        return;
    }
    let known = own.missing_blobs.get(&blob);
    let known = known.is_some_and(|of| {
        let accounts = of.accounts.as_ref();
        accounts.is_none_or(|accounts| accounts.contains(&account))
    });
    if known {
        // It is under way, or nobody has it; a node that is linked since may.
        mail.out.push(Output::Peer(PeerOutput::Request(blob)));
        return;
    }
    let named = mail.accounts.get(&account).is_some_and(|entry| {
        matches!(&entry.phase, Phase::Running(replica) if replica.contents().any(|(_, of)| of == blob))
    });
    // The message was removed meanwhile, and the body with it.
    if !named {
        return;
    }
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    own.parting.lacks_anew();
    let mut commit = own.log.commit();
    commit.mutations.extend(
        own.missing_blobs
            .lack(blob, &BTreeSet::from([account]), ticket),
    );
    mail.bodies.miss(blob, partition);
    mail.counted.blobs_missed += 1;
    mail.hand_out_for(partition, ticket, commit);
    let text = format!(
        "body {} of account {account} is not here, and nothing said so: it is looked for at other nodes",
        blob_name(&blob)
    );
    mail.out.push(Output::Log(Note::Warning(text)));
    mail.out.push(Output::Peer(PeerOutput::Request(blob)));
}

/// A commit that names bodies is durable: from now on they are held for it. One that was here before may be gone meanwhile, if all others that held it
/// have let go (the queue has, when it is delivered): it is looked for again.
pub(super) fn held(mail: &mut Mail, now: Now, partition: PartitionId, ticket: Ticket) {
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    let ask_again = own.missing_blobs.durable(now, ticket).into_iter();
    let ask_again = ask_again.map(PeerOutput::Request);
    mail.out.extend(ask_again.map(Output::Peer));
}

/// A body has come, or was here at this time of the monotonic clock. Whether an account that names it has to be loaded first; it will be.
pub(super) fn is_to_be_loaded(
    mail: &mut Mail,
    account: AccountId,
    blob: BlobName,
    looked: u64,
) -> bool {
    let phase = mail.accounts.get(&account).map(|entry| &entry.phase);
    let is_here = match phase {
        None | Some(Phase::Absent | Phase::Loading { .. } | Phase::Asking | Phase::Joining(_)) => {
            // A stalled one is loaded by the next start.
            mail.partitions.is_stalled(account)
        }
        Some(Phase::Resuming(_)) => false,
        Some(Phase::Running(_) | Phase::Unopened | Phase::Removed | Phase::Purging) => true,
    };
    if is_here {
        return false;
    }
    mail.bodies.arrive(account, blob, looked);
    mail.accounts.used(account);
    mail.load(account);
    true
}

/// A body is here, or no linked node has it, or nothing names it.
pub(super) fn not_awaited(mail: &mut Mail, partition: PartitionId, blob: &BlobName) {
    if let Some(own) = mail.partitions.running(partition)
        && let SyncState::Fetching(bodies) = &mut own.age
        && bodies.remove(blob)
    {
        all_fetched(mail, partition);
    }
}

/// Of these bodies some may not be missing any more, since no message names them.
pub(super) fn missed_no_more(
    mail: &mut Mail,
    partition: PartitionId,
    blobs: impl IntoIterator<Item = BlobName>,
) {
    for blob in blobs {
        let own = mail.partitions.running(partition);
        if let Some(own) = own.filter(|own| !own.missing_blobs.contains_key(&blob)) {
            // As for who asks from now on: what named it is gone, here as there, when this is durable.
            own.confirming.here(&blob, own.newest());
            mail.bodies.miss_no_more(blob, partition);
            not_awaited(mail, partition, &blob);
        }
    }
}

/// No linked node has this body: nothing waits for it, and who is new need not have it.
pub(super) fn nobody_has(mail: &mut Mail, now: Now, blob: &BlobName) {
    for partition in mail.bodies.missing_in(blob) {
        let own = mail.partitions.running(partition);
        let accounts = own.and_then(|own| own.missing_blobs.get(blob)?.accounts.clone());
        for account in accounts.into_iter().flatten() {
            let entry = mail.accounts.get(&account);
            let waits = entry.is_some_and(
                |entry| matches!(&entry.phase, Phase::Running(replica) if replica.awaits(blob)),
            );
            if waits {
                mail.show_with(now, account, None, |replica, at, peers| {
                    replica.nobody_has(blob, at, peers)
                });
            }
        }
        not_awaited(mail, partition, blob);
    }
}

/// That this node has all of the partition is kept, when nothing is missing.
pub(super) fn all_fetched(mail: &mut Mail, partition: PartitionId) {
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    if !matches!(&own.age, SyncState::Fetching(bodies) if bodies.is_empty() || broken("syncing-without-bodies"))
    {
        return;
    }
    own.age = SyncState::Growing(ticket);
    let mut commit = own.log.commit();
    commit.mutations.push(log::grown(own.log.origin()));
    // And whether anybody was left who had all of it.
    commit.mutations.push(own.log.record());
    // Told once, to who is new.
    commit.mutations.extend(own.announced_row());
    mail.hand_out_for(partition, ticket, commit);
}

/// Bodies that are not here are looked for.
pub(super) fn want_all(mail: &mut Mail, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let missing_blobs: Vec<BlobName> = own.missing_blobs.keys().copied().collect();
    let want = |blob| Output::Peer(PeerOutput::Request(blob));
    mail.out.extend(missing_blobs.into_iter().map(want));
}
