//! From an address to the accounts that receive for it.
//!
//! In this order: an alias of exactly this address; the account that holds it; the same again without `+detail`; the catch-all of the domain. An
//! alias wins over an account of the same name, so that `anne -> anne, bob` works; one that leads back to itself means the account.

use std::collections::BTreeSet;

use crate::{
    address::{Address, DETAIL_SEPARATOR},
    op::AccountKey,
    state::Directory,
};

/// How far aliases of aliases are followed: beyond this it is taken for a loop.
pub const ALIAS_DEPTH_MAX: usize = 8;
/// Most accounts that one address may lead to: bounds the work of one RCPT.
pub const ALIAS_TARGETS_MAX: usize = 1000;

/// What an address stands for.
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
        let Ok(domain) = crate::Domain::new(domain) else {
            return Resolution::NotOurs;
        };
        if !self.has_domain(&domain) {
            return Resolution::NotOurs;
        }
        let mut search = Search::new(self);
        if let Ok(address) = Address::new(local, domain.as_str())
            && !search.follow(&address, None, 0)
            && let Some(plain) = address.without_detail()
        {
            let detail = local.split_once(DETAIL_SEPARATOR);
            search.follow(&plain, detail.map(|(_, detail)| detail.to_owned()), 0);
        }
        if search.found.is_empty() && !search.overrun {
            search.follow(&Address::catch_all(domain), None, 0);
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

/// What an alias of `from` to `to` would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// It leads to an account.
    Fine,
    /// `to` leads to no account.
    Nowhere,
    /// Too far, or with the others of `from` to too many.
    TooMuch,
}

impl Directory {
    /// The address that the target of an alias means, and its detail: `info -> anne+info` is Anne's if `anne+info` itself is nobody's.
    pub(crate) fn reached(&self, to: Address) -> (Address, Option<String>) {
        let known =
            self.holder(&to).is_some() || self.alias_targets(&to.to_string()).next().is_some();
        match to.without_detail() {
            Some(plain) if !known => {
                let own = to.local().split_once(DETAIL_SEPARATOR);
                (plain, own.map(|(_, own)| own.to_owned()))
            }
            _ => (to, None),
        }
    }

    /// Judges an alias that is to be added. The catch-all has no part in it: it receives what has no other receiver, and an alias is one.
    pub(crate) fn extension(&self, from: &Address, to: &Address) -> Extension {
        let mut search = Search::new(self);
        search.follow(&self.reached(to.clone()).0, None, 1);
        if search.overrun {
            return Extension::TooMuch;
        }
        if search.found.is_empty() {
            return Extension::Nowhere;
        }
        search.follow(from, None, 0);
        if search.overrun {
            Extension::TooMuch
        } else {
            Extension::Fine
        }
    }
}

struct Search<'a> {
    directory: &'a Directory,
    found: BTreeSet<Target>,
    /// Aliases followed already: each is followed once, so the work is bounded by their number.
    visited: BTreeSet<String>,
    overrun: bool,
}

impl<'a> Search<'a> {
    fn new(directory: &'a Directory) -> Self {
        Search {
            directory,
            found: BTreeSet::new(),
            visited: BTreeSet::new(),
            overrun: false,
        }
    }

    /// Adds what `address` leads to; says whether it is known at all.
    fn follow(&mut self, address: &Address, detail: Option<String>, depth: usize) -> bool {
        let name = address.to_string();
        if !self.visited.insert(name.clone()) {
            return true;
        }
        let mut known = false;
        for to in self.directory.alias_targets(&name) {
            known = true;
            let Ok(to) = Address::parse_alias(to) else {
                continue;
            };
            let (to, own) = self.directory.reached(to);
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
