//! Finds the accounts that receive mail for an address.
//!
//! In this order: an alias of exactly this address; the account that holds it; the same again without `+detail`; the catch-all of the domain. An
//! alias wins over an account of the same name, so that `anne -> anne, bob` works; one that leads back to itself means the account.
//!
//! `postmaster` always has an account (RFC 5321, 4.5.1): if all of this leads to none, or in a circle, it is the earliest account of the domain, and
//! if the domain has no account, the earliest of all. Earliest is by the stamp of creation, so every replica finds the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    address::{Address, DETAIL_SEPARATOR, Domain},
    op::AccountKey,
    state::{Account, Directory},
};

/// How far aliases of aliases are followed: a longer chain counts as a loop.
pub const ALIAS_DEPTH_MAX: usize = 8;
/// Most accounts that one address may lead to: bounds the work of one RCPT.
pub const ALIAS_TARGETS_MAX: usize = 1000;

/// The local part that every domain has (RFC 5321, 4.5.1).
const POSTMASTER: &str = "postmaster";

/// The result of resolving an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// At least one account, in the order of their addresses, each once.
    Local(Vec<Target>),
    /// The domain is ours, the address is not.
    NoSuchUser,
    /// Not our domain.
    NotOurs,
    /// Aliases too deep, or too many targets.
    Loop,
}

/// One receiving account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its address.
    pub address: String,
    /// The account.
    pub account: AccountKey,
    /// `x` of `anne+x`, as the sender wrote it (case matters in mailbox names).
    pub detail: Option<String>,
}

impl Directory {
    /// Resolves an address given as parts; `local` is unquoted and as the sender wrote it.
    #[must_use]
    pub fn resolve(&self, local: &str, domain: &str) -> Resolution {
        // What our rules for addresses forbid can be no account or alias, but a catch-all takes it.
        let Ok(domain) = Domain::new(domain) else {
            return Resolution::NotOurs;
        };
        if !self.has_domain(&domain) {
            return Resolution::NotOurs;
        }
        let found = self.named(local, &domain);
        if matches!(found, Resolution::Local(_)) || local.to_lowercase() != POSTMASTER {
            return found;
        }
        postmaster(self.eldest(&domain).or_else(|| self.eldest_of_all()))
    }

    /// Resolves `<Postmaster>` without a domain: the postmaster of the first of our domains that has one, else the earliest account.
    #[must_use]
    pub fn resolve_postmaster(&self) -> Resolution {
        let mut named = self.domains().filter_map(|(domain, _)| {
            let found = self.named(POSTMASTER, &Domain::new(domain).ok()?);
            matches!(found, Resolution::Local(_)).then_some(found)
        });
        named
            .next()
            .unwrap_or_else(|| postmaster(self.eldest_of_all()))
    }

    /// Whether an account may send mail from an address: its own, the same with a detail, and any other that leads to it alone. An account that is
    /// postmaster only for lack of another may not send as postmaster.
    #[must_use]
    pub fn may_send(&self, account: &AccountKey, local: &str, domain: &str) -> bool {
        let Some(entry) = self.account(account) else {
            return false;
        };
        let Ok(domain) = Domain::new(domain) else {
            return false;
        };
        if let Ok(address) = Address::new(local, domain.as_str()) {
            let plain = self.reached(address).0;
            if plain.to_string() == entry.address
                && self
                    .holder(&plain)
                    .is_some_and(|(holder, _)| holder == *account)
            {
                return true;
            }
        }
        let leads_here = |targets: &[Target]| targets.iter().all(|to| to.account == *account);
        self.has_domain(&domain)
            && matches!(self.named(local, &domain), Resolution::Local(targets) if leads_here(&targets))
    }

    /// Resolves by aliases and accounts alone. The domain is ours.
    fn named(&self, local: &str, domain: &Domain) -> Resolution {
        let mut search = Search::new(self, None);
        if let Ok(address) = Address::new(local, domain.as_str())
            && !search.follow(&address, None, 0)
            && let Some(plain) = address.without_detail()
        {
            let detail = local.split_once(DETAIL_SEPARATOR);
            search.follow(&plain, detail.map(|(_, detail)| detail.to_owned()), 0);
        }
        if search.found.is_empty() && !search.overrun {
            search.follow(&Address::catch_all(domain.clone()), None, 0);
        }
        if search.overrun {
            Resolution::Loop
        } else if search.found.is_empty() {
            Resolution::NoSuchUser
        } else {
            Resolution::Local(search.found.into_iter().collect())
        }
    }
}

fn postmaster(eldest: Option<(AccountKey, &Account)>) -> Resolution {
    match eldest {
        Some((account, entry)) => Resolution::Local(vec![Target {
            address: entry.address.clone(),
            account,
            detail: None,
        }]),
        None => Resolution::NoSuchUser,
    }
}

/// The effect of an alias of `from` to `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// It leads to an account.
    Fine,
    /// `to` leads to no account.
    Nowhere,
    /// With it this address, `from` or one that leads there, would lead too far or to too many.
    TooMuch(Address),
}

impl Directory {
    /// The address that the target of an alias means, and its detail: `info -> anne+info` is Anne's if `anne+info` itself is nobody's.
    pub(crate) fn reached(&self, to: Address) -> (Address, Option<String>) {
        Search::new(self, None).reached(to)
    }

    /// Judges an alias that is to be added, by what it would make of `from` and of every alias that leads there: a link at the far end of
    /// a chain makes the whole chain longer. The catch-all has no part in it: it receives what has no other receiver, and an alias is one.
    pub(crate) fn extension(&self, from: &Address, to: &Address) -> Extension {
        let mut below = Search::new(self, None);
        below.follow(&below.reached(to.clone()).0, None, 1);
        if below.overrun {
            return Extension::TooMuch(from.clone());
        }
        if below.found.is_empty() {
            return Extension::Nowhere;
        }
        let link = (from, to);
        for upper in self.leading_to(link) {
            let mut search = Search::new(self, Some(link));
            search.follow(&upper, None, 0);
            if search.overrun {
                return Extension::TooMuch(upper);
            }
        }
        Extension::Fine
    }

    /// The source of a link that is to be added, and every alias that leads to it with the link in place. An administrator waits for it, no
    /// client, so it may look at all aliases.
    fn leading_to(&self, link: (&Address, &Address)) -> BTreeSet<Address> {
        let mut found = BTreeSet::from([link.0.clone()]);
        // Most aliases have none above them: that costs a look at each, and no more.
        let may_lead_here =
            |to: &str| to.starts_with(link.0.local()) && to.ends_with(link.0.domain().as_str());
        if !self.aliases().any(|(_, to, _)| may_lead_here(to)) {
            return found;
        }
        let search = Search::new(self, Some(link));
        let mut sources: BTreeMap<Address, Vec<Address>> = BTreeMap::new();
        for (from, to, _) in self.aliases() {
            if let (Ok(from), Ok(to)) = (Address::parse_alias(from), Address::parse_alias(to)) {
                sources.entry(search.reached(to).0).or_default().push(from);
            }
        }
        let mut open = vec![link.0.clone()];
        while let Some(address) = open.pop() {
            for from in sources.remove(&address).unwrap_or_default() {
                if found.insert(from.clone()) {
                    open.push(from);
                }
            }
        }
        found
    }
}

struct Search<'a> {
    directory: &'a Directory,
    /// An alias that counts as if it existed.
    link: Option<(&'a Address, &'a Address)>,
    found: BTreeSet<Target>,
    /// Aliases followed already: each is followed once, so the work is bounded by their number.
    visited: BTreeSet<String>,
    overrun: bool,
}

impl<'a> Search<'a> {
    fn new(directory: &'a Directory, link: Option<(&'a Address, &'a Address)>) -> Self {
        Search {
            directory,
            link,
            found: BTreeSet::new(),
            visited: BTreeSet::new(),
            overrun: false,
        }
    }

    /// The targets of the aliases of `address`, with the assumed one.
    fn targets(&self, address: &Address) -> Vec<Address> {
        let name = address.to_string();
        let stored = self.directory.alias_targets(&name);
        let stored = stored.filter_map(|to| Address::parse_alias(to).ok());
        let supposed = self.link.filter(|(from, _)| *from == address);
        let supposed = supposed.map(|(_, to)| to.clone());
        let mut targets: Vec<Address> = stored.chain(supposed).collect();
        // The order decides at which depth each target is found: the assumed alias stands where it will stand once it is stored.
        targets.sort_by_cached_key(Address::to_string);
        targets
    }

    fn reached(&self, to: Address) -> (Address, Option<String>) {
        let known = self.directory.holder(&to).is_some()
            || self.link.is_some_and(|(from, _)| *from == to)
            || self
                .directory
                .alias_targets(&to.to_string())
                .next()
                .is_some();
        match to.without_detail() {
            Some(plain) if !known => {
                let own = to.local().split_once(DETAIL_SEPARATOR);
                (plain, own.map(|(_, own)| own.to_owned()))
            }
            _ => (to, None),
        }
    }

    /// Adds the accounts that `address` leads to; says whether it is known at all.
    fn follow(&mut self, address: &Address, detail: Option<String>, depth: usize) -> bool {
        if !self.visited.insert(address.to_string()) {
            return true;
        }
        let mut known = false;
        for to in self.targets(address) {
            known = true;
            let (to, own) = self.reached(to);
            let detail = own.or_else(|| detail.clone());
            if to == *address {
                self.take(address, detail);
            } else if depth == ALIAS_DEPTH_MAX {
                self.overrun = true;
            } else {
                self.follow(&to, detail, depth + 1);
            }
            if self.overrun {
                return true;
            }
        }
        known || self.take(address, detail)
    }

    fn take(&mut self, address: &Address, detail: Option<String>) -> bool {
        let Some((account, entry)) = self.directory.holder(address) else {
            return false;
        };
        self.found.insert(Target {
            address: entry.address.clone(),
            account,
            detail,
        });
        self.overrun |= self.found.len() > ALIAS_TARGETS_MAX;
        true
    }
}
