//! Bodies that messages name and that are still on other nodes: what names one is shown when it has come.

use std::collections::BTreeSet;

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_storage::{Mutation, Room};

use super::{Own, Partition, PartitionOwner, Phase};
use crate::{
    log,
    machine::{Now, Output, Ticket},
    peers::PeerOutput,
};

/// A body that is not here.
pub(super) struct Lacking {
    /// The accounts that name it; none: that is not known.
    pub(super) accounts: BTreeSet<AccountId>,
    named: Named,
}

#[derive(Clone, Copy)]
enum Named {
    /// By a commit that is under way; and whether the body was said to be here before.
    By(Ticket, bool),
    /// Since this time of the monotonic clock: one that is here from then on stays.
    Since(u64),
}

impl Lacking {
    /// As it was found at the start.
    pub(super) fn read(accounts: BTreeSet<AccountId>, now: u64) -> Self {
        let named = Named::Since(now);
        Lacking { accounts, named }
    }
}

impl Own {
    /// These accounts name a body by this commit. Gives the row that says so, if it is to be written.
    pub(super) fn lack(
        &mut self,
        blob: BlobName,
        accounts: &BTreeSet<AccountId>,
        ticket: Ticket,
    ) -> Option<Mutation> {
        let named = Named::By(ticket, false);
        let lacking = self.lacking.entry(blob).or_insert(Lacking {
            accounts: BTreeSet::new(),
            named,
        });
        lacking.named = named;
        self.naming.entry(ticket).or_default().push(blob);
        let before = lacking.accounts.len();
        lacking.accounts.extend(accounts);
        (lacking.accounts.len() > before).then(|| {
            let value: Vec<u8> = lacking.accounts.iter().flat_map(|of| of.0).collect();
            Mutation::Put {
                key: log::lacking_key(&blob),
                value: value.into(),
            }
        })
    }
}

impl PartitionOwner {
    /// A body is here, or was at this time of the monotonic clock: what names it is shown.
    pub(super) fn body_came(&mut self, now: Now, blob: BlobName, looked: u64) {
        let all = (blob, PartitionId(0))..=(blob, PartitionId(u16::MAX));
        let lacked: Vec<PartitionId> = self.lacked.range(all).map(|(_, of)| *of).collect();
        for partition in lacked {
            let ticket = self.ticket();
            let Some(own) = self.running(partition) else {
                continue;
            };
            let Some(lacking) = own.lacking.get_mut(&blob) else {
                continue;
            };
            if !broken("body-held-by-another") {
                match &mut lacking.named {
                    Named::By(_, early) => {
                        *early = true;
                        continue;
                    }
                    Named::Since(at) if looked < *at => {
                        self.out.push_back(Output::Peer(PeerOutput::Want(blob)));
                        continue;
                    }
                    Named::Since(_) => {}
                }
            }
            let accounts = std::mem::take(&mut lacking.accounts);
            own.lacking.remove(&blob);
            let mut commit = own.log.commit();
            commit.mutations.push(Mutation::Delete {
                key: log::lacking_key(&blob),
            });
            self.lacked.remove(&(blob, partition));
            self.hand_out_for(partition, ticket, commit);
            if let Some(own) = self.running(partition) {
                own.confirming.here(&blob, ticket);
            }
            self.not_awaited(partition, &blob);
            let waiting = match accounts.is_empty() {
                true => self.accounts_of(partition),
                false => accounts.into_iter().collect(),
            };
            for account in waiting {
                let entry = self.accounts.get(&account);
                let lacks = entry.is_some_and(
                    |entry| matches!(&entry.phase, Phase::Running(replica) if replica.lacks(&blob)),
                );
                if lacks {
                    self.show_anew(now, account, Room::Ordinary, |replica, at, peers| {
                        replica.body_came(&blob, at, peers)
                    });
                }
            }
        }
    }

    fn accounts_of(&self, partition: PartitionId) -> Vec<AccountId> {
        let all = self.accounts.iter();
        let of = all.filter(|(_, entry)| entry.partition == partition);
        of.map(|(account, _)| *account).collect()
    }

    /// A commit that names bodies is durable: from now on they are held for it. One that was here before may be gone meanwhile, if all others that held it
    /// have let go (the queue has, when it is delivered): it is looked for again.
    pub(super) fn held(&mut self, now: Now, partition: PartitionId, ticket: Ticket) {
        let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
            return;
        };
        while let Some(named) = own.naming.first_entry()
            && *named.key() <= ticket
        {
            let (by, blobs) = named.remove_entry();
            for blob in blobs {
                let Some(lacking) = own.lacking.get_mut(&blob) else {
                    continue;
                };
                // Perhaps by a later one, too.
                if let Named::By(of, early) = lacking.named
                    && of == by
                {
                    lacking.named = Named::Since(now.mono_micros);
                    if early {
                        self.out.push_back(Output::Peer(PeerOutput::Want(blob)));
                    }
                }
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
