//! Bodies that messages name and that are still on other nodes: what names one is shown when it has come.
//!
//! A row of the partition says of each that it is not here, and which accounts have records that name it; it is written by the commit that names it,
//! and goes when the body is durable, or with the last of these records: nobody may have it any more then.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use whimbrel_crdt::mutants::broken;
use whimbrel_mailbox::{AccountId, BlobName, Op, Replica};
use whimbrel_storage::Mutation;

use super::rows::{blob_name, blob_of_batch, named_blob};
use crate::{
    log,
    machine::{Now, Ticket},
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
pub(super) struct MissingBlobs {
    all: BTreeMap<BlobName, MissingBlob>,
    accounts: BTreeMap<AccountId, usize>,
    /// So many of which it is not known who names them.
    of_anybody: usize,
    /// Those that commits under way name.
    naming: BTreeMap<Ticket, Vec<BlobName>>,
}

/// What a body that has come is to what names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is here, and stays.
    Here,
    /// It may have gone since it was seen: it is asked for again.
    AskAgain,
    /// Nothing names it, or the commit that does is not durable, or it was asked for again.
    Waits,
}

impl Deref for MissingBlobs {
    type Target = BTreeMap<BlobName, MissingBlob>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<(BlobName, MissingBlob)> for MissingBlobs {
    fn from_iter<T: IntoIterator<Item = (BlobName, MissingBlob)>>(all: T) -> Self {
        let mut all_missing = MissingBlobs::default();
        for (blob, missing_blobs) in all {
            all_missing.remove(&blob);
            match &missing_blobs.accounts {
                None => all_missing.of_anybody += 1,
                Some(accounts) => accounts.iter().for_each(|account| {
                    *all_missing.accounts.entry(*account).or_default() += 1;
                }),
            }
            all_missing.all.insert(blob, missing_blobs);
        }
        all_missing
    }
}

impl MissingBlobs {
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

    pub(super) fn remove(&mut self, blob: &BlobName) -> Option<MissingBlob> {
        let missing_blobs = self.all.remove(blob)?;
        match &missing_blobs.accounts {
            None => self.of_anybody -= 1,
            Some(accounts) => accounts
                .iter()
                .for_each(|account| one_less(&mut self.accounts, *account)),
        }
        Some(missing_blobs)
    }

    /// These accounts name a body by this commit. Gives the row that says so, if it is to be written.
    pub(super) fn lack(
        &mut self,
        blob: BlobName,
        accounts: &BTreeSet<AccountId>,
        ticket: Ticket,
    ) -> Option<Mutation> {
        self.naming.entry(ticket).or_default().push(blob);
        let known = self.name(blob, accounts, Named::By(ticket, false))?;
        Some(log::missing_blob_row(&blob, known))
    }

    /// No record of the account names these any more. Gives the rows that change: what no other account names is missed by nobody, as
    /// [`missed_no_more`](super::blob_arrivals::missed_no_more) is to be told.
    pub(super) fn names_no_more(
        &mut self,
        account: AccountId,
        blobs: impl IntoIterator<Item = BlobName>,
    ) -> Vec<Mutation> {
        let mut rows = Vec::new();
        for blob in blobs {
            let Some(accounts) = self.unname(&blob, account) else {
                continue;
            };
            if !accounts.is_empty() {
                rows.push(log::missing_blob_row(&blob, accounts));
                continue;
            }
            self.remove(&blob);
            rows.push(Mutation::Delete {
                key: log::missing_blob_key(&blob),
            });
        }
        rows
    }

    /// The bodies that are not here and that the account was said to name.
    pub(super) fn named_by(&self, account: AccountId) -> Vec<BlobName> {
        let of_it = self.all.iter().filter(|(_, of)| {
            let accounts = of.accounts.as_ref();
            accounts.is_some_and(|accounts| accounts.contains(&account))
        });
        of_it.map(|(blob, _)| *blob).collect()
    }

    /// A body is here, or was at this time of the monotonic clock.
    pub(super) fn came(&mut self, blob: &BlobName, looked: u64) -> Came {
        let Some(missing) = self.all.get_mut(blob) else {
            return Came::Waits;
        };
        match &mut missing.named {
            _ if broken("body-held-by-another") => Came::Here,
            Named::By(_, early) => {
                *early = true;
                Came::Waits
            }
            Named::Since(at, asked) if looked < *at => match std::mem::replace(asked, true) {
                true => Came::Waits,
                false => Came::AskAgain,
            },
            Named::Since(..) => Came::Here,
        }
    }

    /// A commit is durable, and from now on bodies are held that it names. Gives those that are to be asked for again: what was here before may be gone
    /// meanwhile, if all others that held it have let go (the queue has, when it is delivered).
    pub(super) fn durable(&mut self, now: Now, ticket: Ticket) -> Vec<BlobName> {
        let mut ask_again = Vec::new();
        while let Some(named) = self.naming.first_entry()
            && *named.key() <= ticket
        {
            let (by, blobs) = named.remove_entry();
            for blob in blobs {
                let Some(missing) = self.all.get_mut(&blob) else {
                    continue;
                };
                // Perhaps by a later one, too.
                if let Named::By(of, early) = missing.named
                    && of == by
                {
                    missing.named = Named::Since(now.mono_micros, early);
                    ask_again.extend(early.then_some(blob));
                }
            }
        }
        ask_again
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

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: AccountId = AccountId([1; 16]);

    fn blob() -> BlobName {
        BlobName {
            hash: [1; 32],
            upload: [2; 16],
        }
    }

    #[test]
    fn a_body_counts_when_it_was_here_after_its_commit() {
        let mut missing = MissingBlobs::default();
        assert_eq!(missing.came(&blob(), 0), Came::Waits);
        assert!(missing.lack(blob(), &[ACCOUNT].into(), Ticket(1)).is_some());
        assert_eq!(missing.came(&blob(), 5), Came::Waits);
        assert!(missing.durable(Now::mono(9), Ticket(0)).is_empty());
        // It came early: whether it is still here is asked once.
        assert_eq!(missing.durable(Now::mono(9), Ticket(1)), [blob()]);
        assert_eq!(missing.came(&blob(), 8), Came::Waits);
        assert_eq!(missing.came(&blob(), 9), Came::Here);
        assert!(missing.lack(blob(), &[ACCOUNT].into(), Ticket(2)).is_none());
        assert!(missing.durable(Now::mono(20), Ticket(2)).is_empty());
        assert_eq!(missing.came(&blob(), 19), Came::AskAgain);
        assert_eq!(missing.came(&blob(), 19), Came::Waits);
        assert_eq!(missing.named_by(ACCOUNT), [blob()]);
        assert_eq!(missing.names_no_more(ACCOUNT, [blob()]).len(), 1);
        assert!(missing.is_empty() && missing.accounts().unwrap().count() == 0);
    }
}
