//! Bodies that messages name and that are still on other nodes: what names one is shown when it has come.

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_storage::{Mutation, Room};

use super::{Partition, PartitionOwner, Phase};
use crate::{
    log,
    machine::{Now, Output, Ticket},
    peers::PeerOutput,
};

impl PartitionOwner {
    /// A body is here, or was at this time of the monotonic clock: what names it is shown.
    pub(super) fn body_came(&mut self, now: Now, blob: BlobName, looked: u64) {
        let open: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for partition in open {
            let ticket = self.ticket();
            let Some(own) = self.running(partition) else {
                continue;
            };
            if !broken("body-held-by-another") {
                if let Some((_, early)) = own.naming.get_mut(&blob) {
                    *early = true;
                    continue;
                }
                if own.named_since.get(&blob).is_some_and(|at| looked < *at) {
                    self.out.push_back(Output::Peer(PeerOutput::Want(blob)));
                    continue;
                }
            }
            own.named_since.remove(&blob);
            if !own.lacking.remove(&blob) {
                continue;
            }
            own.lacking_of.remove(&blob);
            let mut commit = own.log.commit();
            commit.mutations.push(Mutation::Delete {
                key: log::lacking_key(&blob),
            });
            self.hand_out_for(partition, ticket, commit);
            self.not_awaited(partition, &blob);
            let waiting = self.accounts.iter().filter(|(_, entry)| {
                let lacks = matches!(&entry.phase, Phase::Running(replica) if replica.lacks(&blob));
                lacks && entry.partition == partition
            });
            let waiting: Vec<AccountId> = waiting.map(|(account, _)| *account).collect();
            for account in waiting {
                self.show_anew(now, account, Room::Ordinary, |replica, at, peers| {
                    replica.body_came(&blob, at, peers)
                });
            }
        }
    }

    /// A commit that names bodies is durable: from now on they are held for it. One that was here before may be gone meanwhile, if all others that held it
    /// have let go (the queue has, when it is delivered): it is looked for again.
    pub(super) fn held(&mut self, now: Now, partition: PartitionId, ticket: Ticket) {
        let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
            return;
        };
        for (blob, (_, early)) in own.naming.extract_if(.., |_, (of, _)| *of <= ticket) {
            own.named_since.insert(blob, now.mono_micros);
            if early {
                self.out.push_back(Output::Peer(PeerOutput::Want(blob)));
            }
        }
    }
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
