//! What a replica ought to show, by the definition alone.
//!
//! Of each operation it is known which others its maker had applied. A thing is there if one of the operations that added it is in
//! nobody's past who removed it; no dots, no rows and no index are looked at.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_directory::{AccountKey, Address, DecoySecret, Directory, Domain, Op};

use super::{ADDRESSES, DOMAINS, Made};

/// Address, how many are before it there, key, created, UIDVALIDITY, verifier, bytes of its quota.
type Line = (String, usize, AccountKey, u64, u32, String, Option<u64>);

/// All that a directory tells.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Shown {
    domains: BTreeSet<String>,
    aliases: BTreeSet<(String, String)>,
    accounts: Vec<Line>,
    removed: BTreeSet<AccountKey>,
    floors: Vec<u32>,
    /// The earliest account of each domain, and of all.
    eldest: Vec<Option<AccountKey>>,
    decoy: Option<DecoySecret>,
}

pub(super) fn shown(directory: &Directory) -> Shown {
    let mut accounts: Vec<Line> = Vec::new();
    for (key, entry, aside) in directory.accounts() {
        let place = match accounts.last() {
            Some((address, place, ..)) if *address == entry.address => place + 1,
            _ => 0,
        };
        assert_eq!(aside, place > 0);
        let holder = directory.holder(&Address::parse(&entry.address).expect("an address"));
        assert_eq!(
            place == 0,
            holder.is_some_and(|(holder, _)| holder == key),
            "the first holds it"
        );
        assert_eq!(directory.account(&key), Some(entry));
        accounts.push((
            entry.address.clone(),
            place,
            key,
            entry.created,
            entry.uid_validity,
            entry.credential.value.verifier.clone(),
            entry.quota().bytes,
        ));
    }
    Shown {
        domains: directory.domains().map(|(name, _)| name.clone()).collect(),
        aliases: directory
            .aliases()
            .map(|(from, to, _)| (from.into(), to.into()))
            .collect(),
        accounts,
        removed: directory.removed().collect(),
        floors: ADDRESSES
            .map(|address| directory.uid_validity_floor(address))
            .to_vec(),
        eldest: DOMAINS
            .map(|domain| directory.eldest(&Domain::new(domain).expect("a domain")))
            .into_iter()
            .chain([directory.eldest_of_all()])
            .map(|found| found.map(|(key, _)| key))
            .collect(),
        decoy: directory.decoy(),
    }
}

/// The same by the definition.
pub(super) fn expected(all: &[Made], applied: &BTreeSet<usize>) -> Shown {
    let made = |number: &usize| &all[*number];
    let lives = |number: usize, removes: &dyn Fn(&Op) -> bool| {
        !applied
            .iter()
            .map(made)
            .any(|later| removes(&later.op) && later.past.contains(&number))
    };
    let mut shown = Shown::default();
    let mut floors = BTreeMap::new();
    let mut accounts = Vec::new();
    for &number in applied {
        match &all[number].op {
            Op::AddDomain { domain }
                if lives(
                    number,
                    &|op| matches!(op, Op::RemoveDomain { domain: gone, .. } if gone == domain),
                ) =>
            {
                shown.domains.insert(domain.clone());
            }
            Op::AddAlias { from, to } => {
                let removes = |op: &Op| matches!(op, Op::RemoveAlias { from: f, to: t, .. } if (f, t) == (from, to));
                if lives(number, &removes) {
                    shown.aliases.insert((from.clone(), to.clone()));
                }
            }
            Op::AddAccount {
                account,
                address,
                created,
                uid_validity,
                credential,
            } => {
                let raised = applied.iter().filter_map(|later| match &all[*later].op {
                    Op::RaiseUidValidity {
                        account: whose,
                        uid_validity,
                    } if whose == account => Some(*uid_validity),
                    _ => None,
                });
                let uid_validity = &raised.chain([*uid_validity]).max().expect("one at least");
                let floor = floors.entry(address.clone()).or_insert(0);
                *floor = (*floor).max(*uid_validity);
                if !lives(
                    number,
                    &|op| matches!(op, Op::RemoveAccount { account: gone, .. } if gone == account),
                ) {
                    shown.removed.insert(*account);
                    continue;
                }
                let newest = applied
                    .iter()
                    .map(made)
                    .filter_map(|later| match &later.op {
                        Op::SetCredential {
                            account: whose,
                            credential,
                            ..
                        } if whose == account => Some((later.stamp, credential)),
                        _ => None,
                    })
                    .max()
                    .map_or(credential, |(_, credential)| credential);
                let quotas = applied
                    .iter()
                    .map(made)
                    .filter_map(|later| match &later.op {
                        Op::SetQuota {
                            account: whose,
                            quota,
                        } if whose == account => Some((later.stamp, quota.bytes)),
                        _ => None,
                    });
                let quota = quotas.max().and_then(|(_, bytes)| bytes);
                accounts.push((
                    address.clone(),
                    all[number].stamp,
                    *account,
                    *created,
                    *uid_validity,
                    newest.verifier.clone(),
                    quota,
                ));
            }
            _ => {}
        }
    }
    let eldest = |suffix: &str| {
        let within = accounts
            .iter()
            .filter(|(address, ..)| address.ends_with(suffix));
        let first = within.min_by_key(|(_, stamp, ..)| *stamp);
        first.map(|(_, _, key, ..)| *key)
    };
    shown.eldest = DOMAINS
        .map(|domain| eldest(&format!("@{domain}")))
        .into_iter()
        .chain([eldest("")])
        .collect();
    let decoys = applied.iter().map(made).filter_map(|made| match &made.op {
        Op::SetDecoy { secret } => Some((made.stamp, *secret)),
        _ => None,
    });
    shown.decoy = decoys.min().map(|(_, secret)| secret);
    accounts.sort();
    let mut place = 0;
    for (address, _, key, created, uid_validity, verifier, quota) in accounts {
        place = match shown.accounts.last() {
            Some(before) if before.0 == address => place + 1,
            _ => 0,
        };
        shown
            .accounts
            .push((address, place, key, created, uid_validity, verifier, quota));
    }
    shown.floors = ADDRESSES
        .map(|address| floors.get(address).copied().unwrap_or(0))
        .to_vec();
    shown
}
