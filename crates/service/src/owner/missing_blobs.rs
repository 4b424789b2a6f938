//! Bodies that messages name and that are still on other nodes: what names one is shown when it has come.
//!
//! A row of the partition says of each that it is not here, and which accounts have records that name it; it is written by the commit that names it,
//! and goes when the body is durable, or with the last of these records: nobody may have it any more then.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Op, Replica};
use whimbrel_storage::{Mutation, Room};

use super::{
    Mail, Own, Partition, Phase,
    keys::partition_of,
    rows::{blob_name, blob_of_batch, named_blob},
    syncing::SyncState,
};
use crate::{
    log,
    machine::{Note, Now, Output, Ticket},
    peers::PeerOutput,
};

/// A body that is not here.
pub(super) struct MissingBlob {
    /// The accounts that name it, some; `None`: that is not known.
    pub(super) accounts: Option<BTreeSet<AccountId>>,
    named: Named,
}

#[derive(Clone, Copy)]
enum Named {
    /// By a commit that is under way; and whether the body was said to be here before.
    By(Ticket, bool),
    /// Since this time of the monotonic clock: one that is here from then on stays. And whether it was looked for since: of a body that many batches
    /// name, one after the other, what was looked at before comes again and again, to all owners, and each asking again for each of these would
    /// double them each time.
    Since(u64, bool),
}

impl MissingBlob {
    /// As it was found at the start.
    pub(super) fn read(accounts: Option<BTreeSet<AccountId>>, now: u64) -> Self {
        let named = Named::Since(now, false);
        MissingBlob { accounts, named }
    }
}

/// The bodies of a partition that are not here, and how many of them each account names: what is told of the partition five times a second must not
/// look at each.
#[derive(Default)]
pub(super) struct Lackings {
    all: BTreeMap<BlobName, MissingBlob>,
    accounts: BTreeMap<AccountId, usize>,
    /// So many of which it is not known who names them.
    of_anybody: usize,
}

impl Deref for Lackings {
    type Target = BTreeMap<BlobName, MissingBlob>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<(BlobName, MissingBlob)> for Lackings {
    fn from_iter<T: IntoIterator<Item = (BlobName, MissingBlob)>>(all: T) -> Self {
        let mut lackings = Lackings::default();
        for (blob, missing_blobs) in all {
            lackings.remove(&blob);
            match &missing_blobs.accounts {
                None => lackings.of_anybody += 1,
                Some(accounts) => accounts.iter().for_each(|account| {
                    *lackings.accounts.entry(*account).or_default() += 1;
                }),
            }
            lackings.all.insert(blob, missing_blobs);
        }
        lackings
    }
}

impl Lackings {
    /// The accounts that name any of them; `None`: that is not known of all.
    pub(super) fn accounts(&self) -> Option<impl Iterator<Item = AccountId>> {
        (self.of_anybody == 0).then(|| self.accounts.keys().copied())
    }

    /// Whether the commit that names it is durable, so that one that comes is held.
    pub(super) fn is_named_durably(&self, blob: &BlobName) -> bool {
        let of = self.all.get(blob);
        of.is_some_and(|of| matches!(of.named, Named::Since(..)))
    }

    /// These accounts name it, too. Gives all that do, if they are more than before.
    fn name(
        &mut self,
        blob: BlobName,
        accounts: &BTreeSet<AccountId>,
        named: Named,
    ) -> Option<&BTreeSet<AccountId>> {
        let missing_blobs = self.all.entry(blob).or_insert(MissingBlob {
            accounts: Some(BTreeSet::new()),
            named,
        });
        missing_blobs.named = named;
        let known = missing_blobs.accounts.as_mut()?;
        let mut more = false;
        for account in accounts {
            if known.insert(*account) {
                more = true;
                *self.accounts.entry(*account).or_default() += 1;
            }
        }
        more.then_some(known)
    }

    /// The account is in memory now, and its messages are held back for these: it is told when they come, though the row may not say that it names
    /// them. Those that wait for nothing are not among what is held.
    pub(super) fn hold_back(
        &mut self,
        account: AccountId,
        blobs: impl IntoIterator<Item = BlobName>,
    ) {
        for blob in blobs {
            let known = self.all.get_mut(&blob);
            let known = known.and_then(|missing_blobs| missing_blobs.accounts.as_mut());
            if known.is_some_and(|known| known.insert(account)) {
                *self.accounts.entry(account).or_default() += 1;
            }
        }
    }

    /// The account does not name it any more. Gives who does; `None`: it was not known to.
    fn unname(&mut self, blob: &BlobName, account: AccountId) -> Option<&BTreeSet<AccountId>> {
        let known = self.all.get_mut(blob)?.accounts.as_mut()?;
        if !known.remove(&account) {
            return None;
        }
        one_less(&mut self.accounts, account);
        Some(known)
    }

    fn remove(&mut self, blob: &BlobName) -> Option<MissingBlob> {
        let missing_blobs = self.all.remove(blob)?;
        match &missing_blobs.accounts {
            None => self.of_anybody -= 1,
            Some(accounts) => accounts
                .iter()
                .for_each(|account| one_less(&mut self.accounts, *account)),
        }
        Some(missing_blobs)
    }
}

fn one_less(counts: &mut BTreeMap<AccountId, usize>, account: AccountId) {
    if let Some(count) = counts.get_mut(&account) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&account);
        }
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
        self.naming.entry(ticket).or_default().push(blob);
        let known = self
            .missing_blobs
            .name(blob, accounts, Named::By(ticket, false))?;
        Some(log::missing_blob_row(&blob, known))
    }

    /// No record of the account names these any more. Gives the rows that change: what no other account names is missed by nobody, as
    /// [`PartitionOwner::missed_no_more`] is to be told.
    pub(super) fn names_no_more(
        &mut self,
        account: AccountId,
        blobs: impl IntoIterator<Item = BlobName>,
    ) -> Vec<Mutation> {
        let mut rows = Vec::new();
        for blob in blobs {
            let Some(accounts) = self.missing_blobs.unname(&blob, account) else {
                continue;
            };
            if !accounts.is_empty() {
                rows.push(log::missing_blob_row(&blob, accounts));
                continue;
            }
            self.missing_blobs.remove(&blob);
            rows.push(Mutation::Delete {
                key: log::missing_blob_key(&blob),
            });
        }
        rows
    }

    /// The bodies that are not here and that the account was said to name.
    pub(super) fn missing_blobs_of(&self, account: AccountId) -> Vec<BlobName> {
        let of_it = self.missing_blobs.iter().filter(|(_, of)| {
            let accounts = of.accounts.as_ref();
            accounts.is_some_and(|accounts| accounts.contains(&account))
        });
        of_it.map(|(blob, _)| *blob).collect()
    }
}

/// Those of which the account has no record. It looks at all of the account, if there are any.
pub(super) fn unnamed_by(replica: &Replica, mut blobs: Vec<BlobName>) -> Vec<BlobName> {
    if !blobs.is_empty() {
        let named: BTreeSet<BlobName> = replica.contents().map(|(_, blob)| blob).collect();
        blobs.retain(|blob| !named.contains(blob));
    }
    blobs
}

/// The bodies that operations bring.
pub(super) fn brought(ops: &[Op]) -> Vec<BlobName> {
    let names = ops.iter().filter_map(named_blob);
    names.filter_map(|name| blob_of_batch(&name)).collect()
}

/// Which accounts have records that name the bodies of a batch. An account that is not here any more has none, and its bodies are nowhere any more.
#[derive(Default)]
pub(super) struct Naming(pub(super) BTreeMap<BlobName, BTreeSet<AccountId>>);

impl Naming {
    /// Records of the account name these, or may.
    pub(super) fn all(&mut self, account: AccountId, blobs: impl IntoIterator<Item = BlobName>) {
        for blob in blobs {
            self.0.entry(blob).or_default().insert(account);
        }
    }

    /// The account's part was applied, which brings these and wrote these rows.
    pub(super) fn applied(
        &mut self,
        account: AccountId,
        brought: Vec<BlobName>,
        replica: &Replica,
        rows: &[Mutation],
    ) {
        let new = rows.iter().filter_map(|row| match row {
            Mutation::Reference { blob, .. } => Some(*blob),
            _ => None,
        });
        let new: BTreeSet<_> = new.collect();
        let (new, others): (Vec<BlobName>, Vec<BlobName>) = brought
            .into_iter()
            .partition(|blob| new.contains(&blob_name(blob)));
        self.all(account, new);
        // A delivery that was made already: its message is here, or has been, and is gone.
        let gone = unnamed_by(replica, others.clone());
        let others = others.into_iter().filter(|blob| !gone.contains(blob));
        self.all(account, others);
    }
}

/// A body is here, or was at this time of the monotonic clock: what names it is shown.
pub(super) fn body_came(mail: &mut Mail, now: Now, blob: BlobName, looked: u64) {
    for partition in mail.bodies.missing_in(&blob) {
        let Some(own) = mail.partitions.running(partition) else {
            continue;
        };
        let Some(missing_blobs) = own.missing_blobs.all.get_mut(&blob) else {
            continue;
        };
        if !broken("body-held-by-another") {
            match &mut missing_blobs.named {
                Named::By(_, early) => {
                    *early = true;
                    continue;
                }
                Named::Since(at, asked) if looked < *at => {
                    if !std::mem::replace(asked, true) {
                        mail.out.push(Output::Peer(PeerOutput::Request(blob)));
                    }
                    continue;
                }
                Named::Since(..) => {}
            }
        }
        let named_by: Vec<AccountId> = missing_blobs.accounts.iter().flatten().copied().collect();
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
            own.asks_anew();
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
    let row = own.names_no_more(account, [blob]).pop();
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

/// Nobody had the body a while ago. What the last record that named it has left is missing_blobs no more, and asked for no more.
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
    own.lacks_anew();
    let mut commit = own.log.commit();
    commit
        .mutations
        .extend(own.lack(blob, &BTreeSet::from([account]), ticket));
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
    while let Some(named) = own.naming.first_entry()
        && *named.key() <= ticket
    {
        let (by, blobs) = named.remove_entry();
        for blob in blobs {
            let Some(missing_blobs) = own.missing_blobs.all.get_mut(&blob) else {
                continue;
            };
            // Perhaps by a later one, too.
            if let Named::By(of, early) = missing_blobs.named
                && of == by
            {
                missing_blobs.named = Named::Since(now.mono_micros, early);
                if early {
                    mail.out.push(Output::Peer(PeerOutput::Request(blob)));
                }
            }
        }
    }
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

/// Of these bodies some may be missing_blobs no more, since no message names them.
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

/// When nothing is missing_blobs that is kept.
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
