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
        let mut search = Search {
            directory: self,
            found: BTreeSet::new(),
            visited: BTreeSet::new(),
            overrun: false,
        };
        if let Ok(address) = Address::new(local, domain.as_str()) {
            if !search.follow(&address, None, 0)
                && let Some(plain) = address.without_detail()
            {
                let detail = local
                    .split_once(DETAIL_SEPARATOR)
                    .map(|(_, detail)| detail.to_owned());
                search.follow(&plain, detail, 0);
            }
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

struct Search<'a> {
    directory: &'a Directory,
    found: BTreeSet<Target>,
    /// Aliases followed already: each is followed once, so the work is bounded by their number.
    visited: BTreeSet<String>,
    overrun: bool,
}

impl Search<'_> {
    /// Adds what `address` leads to; says whether it is known at all.
    fn follow(&mut self, address: &Address, detail: Option<String>, depth: usize) -> bool {
        let name = address.to_string();
        if !self.visited.insert(name.clone()) {
            return true;
        }
        let mut known = false;
        for to in self.directory.alias_targets(&name) {
            known = true;
            if to == name {
                self.take(address, detail.clone());
            } else if depth == ALIAS_DEPTH_MAX {
                self.overrun = true;
            } else if let Ok(next) = Address::parse_alias(to) {
                self.follow(&next, detail.clone(), depth + 1);
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
