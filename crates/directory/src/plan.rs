//! Plans operations for an administrator's changes, checked against the present state.

use std::collections::BTreeSet;

use whimbrel_crdt::mutants::broken;

use crate::{
    address::{Address, AddressError, Domain},
    credential::{Credential, DecoySecret},
    op::{AccountKey, Op},
    quota::{OwnQuota, QuotaChange},
    resolve::Extension,
    state::Directory,
};

/// Slots that nodes can have: see `mailbox`, whose UIDs are divided among nodes likewise.
const SLOTS: u32 = 64;

/// Why a change was not made; the text is for the administrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not an address.
    #[error("{text:?} is not an email address: {cause}")]
    Address {
        /// The text that was given.
        text: String,
        /// Why.
        cause: AddressError,
    },
    /// A domain in a spelling that DNS does not have.
    #[error(
        "{0} would receive no mail: write its domain as in DNS, where a name that is not ASCII begins with xn--"
    )]
    NotInDns(Address),
    /// Taken.
    #[error("account {0} exists already")]
    AccountExists(Address),
    /// Not there.
    #[error("there is no account {0}")]
    NoAccount(Address),
    /// Taken.
    #[error("alias {0} -> {1} exists already")]
    AliasExists(Address, Address),
    /// Not there.
    #[error("no alias {0}")]
    NoAlias(String),
    /// An alias to nowhere.
    #[error("{0} is not on this server; aliases lead to local accounts only")]
    NoTarget(Address),
    /// An alias to itself, of an address that is no account.
    #[error("an alias cannot lead to itself: {0} is not an account")]
    ToItself(Address),
    /// An alias by which an account would get no mail any more.
    #[error(
        "{0} is an account: with this alias, its mail goes to {1} alone. If you mean that, add --instead. For both to get it, add the alias {0} -> {0} first"
    )]
    IsAccount(Address, Address),
    /// An alias by which this address would lead in a circle, or too far, or to too many.
    #[error("with this alias, {0} would lead back to itself, too far, or to too many accounts")]
    Loop(Address),
}

fn parse(
    text: &str,
    parse: impl FnOnce(&str) -> Result<Address, AddressError>,
) -> Result<Address, Refusal> {
    parse(text).map_err(|cause| Refusal::Address {
        text: text.to_owned(),
        cause,
    })
}

/// Senders look domains up as they are in DNS (RFC 5890, 2.3.2.1), and most write them so. Another spelling is another address, which senders never
/// mean. Addresses that were added before this check stay.
fn in_dns(address: Address) -> Result<Address, Refusal> {
    if address.domain().as_str().is_ascii() {
        Ok(address)
    } else {
        Err(Refusal::NotInDns(address))
    }
}

impl Directory {
    /// Plans a new account, by the node that has this slot; its domain becomes ours with it.
    ///
    /// # Errors
    /// When the address is bad or taken.
    pub fn plan_add_account(
        &self,
        address: &str,
        account: AccountKey,
        now_seconds: u64,
        slot: u8,
        credential: impl Into<Credential>,
    ) -> Result<Vec<Op>, Refusal> {
        let address = in_dns(parse(address, Address::parse)?)?;
        if self.holder(&address).is_some() {
            return Err(Refusal::AccountExists(address));
        }
        let name = address.to_string();
        // UIDVALIDITY is about the second of creation, and greater than that of every earlier account with this address (docs/design.md#rule-7). It is
        // a non-zero 32-bit number (RFC 9051, 2.3.1.1).
        let second = u32::try_from(now_seconds).unwrap_or(u32::MAX).max(1);
        let uid_validity = self.next_uid_validity(&name, slot, second);
        let mut ops = self.plan_domain(address.domain());
        ops.push(Op::AddAccount {
            account,
            address: name,
            created: now_seconds,
            uid_validity,
            credential: credential.into(),
        });
        Ok(ops)
    }

    /// The least UIDVALIDITY of the node with this slot that is at least `least` and above all that were given under the address. Of each [`SLOTS`]
    /// numbers in a row a node has one. So no two accounts of an address have the same, even if two nodes create them at once; a node knows its own.
    #[must_use]
    pub fn next_uid_validity(&self, address: &str, slot: u8, least: u32) -> u32 {
        let least = least.max(self.uid_validity_floor(address).saturating_add(1));
        if broken("uid-validity-of-any-slot") {
            return least;
        }
        let short = (u32::from(slot) + SLOTS - least % SLOTS) % SLOTS;
        least.saturating_add(short)
    }

    /// Plans the secret behind made-up salts, if there is none yet.
    #[must_use]
    pub fn plan_decoy(&self, secret: DecoySecret) -> Vec<Op> {
        match self.decoy() {
            Some(_) => Vec::new(),
            None => vec![Op::SetDecoy { secret }],
        }
    }

    fn plan_domain(&self, domain: &Domain) -> Vec<Op> {
        if self.has_domain(domain) {
            Vec::new()
        } else {
            vec![Op::AddDomain {
                domain: domain.as_str().to_owned(),
            }]
        }
    }

    /// Plans to remove an account.
    ///
    /// # Errors
    /// When there is none.
    pub fn plan_remove_account(&self, address: &str) -> Result<(Vec<Op>, AccountKey), Refusal> {
        let address = parse(address, Address::parse)?;
        let (account, entry) = self.holder(&address).ok_or(Refusal::NoAccount(address))?;
        Ok((
            vec![Op::RemoveAccount {
                account,
                seen: entry.exists.as_slice().to_vec(),
            }],
            account,
        ))
    }

    /// Plans a new password; `keeps_sessions`: those that are logged in stay.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn plan_set_credential(
        &self,
        address: &str,
        credential: impl Into<Credential>,
        keeps_sessions: bool,
    ) -> Result<Vec<Op>, Refusal> {
        let address = parse(address, Address::parse)?;
        let (account, _) = self.holder(&address).ok_or(Refusal::NoAccount(address))?;
        Ok(vec![Op::SetCredential {
            account,
            credential: credential.into(),
            keeps_sessions: keeps_sessions.then_some(true),
        }])
    }

    /// Plans the quota of an account.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn plan_set_quota(&self, address: &str, change: QuotaChange) -> Result<Vec<Op>, Refusal> {
        let address = parse(address, Address::parse)?;
        let (account, entry) = self.holder(&address).ok_or(Refusal::NoAccount(address))?;
        let quota = change.of(entry.quota());
        Ok(vec![Op::SetQuota { account, quota }])
    }

    /// The quota of an account, where it differs from the default.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn quota_of(&self, address: &str) -> Result<OwnQuota, Refusal> {
        let address = parse(address, Address::parse)?;
        let held = self.holder(&address).map(|(_, entry)| entry.quota());
        held.ok_or(Refusal::NoAccount(address))
    }

    /// Plans an alias. Its domain becomes ours with it. `instead`: if `from` is an account, its mail goes to `to` instead.
    ///
    /// When an address is bad, the target is not here, the alias would lead nowhere, or an account would get no mail any more and `instead` is not
    /// set.
    pub fn plan_add_alias(&self, from: &str, to: &str, instead: bool) -> Result<Vec<Op>, Refusal> {
        let from = in_dns(parse(from, Address::parse_alias)?)?;
        let to = parse(to, Address::parse)?;
        if self
            .alias_targets(&from.to_string())
            .any(|target| target == to.to_string())
        {
            return Err(Refusal::AliasExists(from, to));
        }
        // An alias to itself means the account, which then gets its mail beside others.
        let is_kept = to == from || self.alias_targets(&from.to_string()).next().is_some();
        if !instead && !is_kept && self.holder(&from).is_some() {
            return Err(Refusal::IsAccount(from, to));
        }
        match self.extension(&from, &to) {
            Extension::Fine => {}
            Extension::Nowhere if to == from => return Err(Refusal::ToItself(to)),
            Extension::Nowhere => return Err(Refusal::NoTarget(to)),
            Extension::TooMuch(upper) => return Err(Refusal::Loop(upper)),
        }
        if self.leads_to(&to, &from) {
            return Err(Refusal::Loop(from));
        }
        let mut ops = self.plan_domain(from.domain());
        ops.push(Op::AddAlias {
            from: from.to_string(),
            to: to.to_string(),
        });
        Ok(ops)
    }

    /// Whether following aliases from `start` comes to `goal`; an alias to itself means the account and is no loop.
    fn leads_to(&self, start: &Address, goal: &Address) -> bool {
        let start = self.reached(start.clone()).0;
        let mut visited = BTreeSet::from([start.clone()]);
        let mut open = vec![start.clone()];
        while let Some(name) = open.pop() {
            for to in self.alias_targets(&name.to_string()) {
                let Ok(to) = Address::parse_alias(to) else {
                    continue;
                };
                let to = self.reached(to).0;
                if to == *goal && to != start {
                    return true;
                }
                if visited.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        false
    }

    /// Plans to remove an alias; without `to`, all aliases of `from`. Other aliases that led through it to an account may lead there by a longer way,
    /// or not any more: the administrator has to check.
    ///
    /// # Errors
    /// When there is none.
    pub fn plan_remove_alias(&self, from: &str, to: Option<&str>) -> Result<Vec<Op>, Refusal> {
        let from = parse(from, Address::parse_alias)?;
        let to = to
            .map(|to| parse(to, Address::parse))
            .transpose()?
            .map(|to| to.to_string());
        let name = from.to_string();
        let ops: Vec<Op> = self
            .aliases()
            .filter(|(f, t, _)| *f == name && to.as_ref().is_none_or(|to| to == t))
            .map(|(f, t, dots)| Op::RemoveAlias {
                from: f.to_owned(),
                to: t.to_owned(),
                seen: dots.as_slice().to_vec(),
            })
            .collect();
        if ops.is_empty() {
            Err(Refusal::NoAlias(match to {
                Some(to) => format!("{name} -> {to}"),
                None => name,
            }))
        } else {
            Ok(ops)
        }
    }
}
