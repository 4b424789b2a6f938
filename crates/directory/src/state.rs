//! The replicated state: `apply` for operations, `join` for states, rows for the store.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Context, DotSet, Lww, OrMap, Stamp, VersionVector, mutants::broken};

use crate::{
    address::{Address, Domain},
    credential::{Credential, DecoySecret},
    op::{AccountKey, Op},
    quota::OwnQuota,
};

/// An account's entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Account {
    /// The operations by which it exists; empty: the account was removed.
    #[n(0)]
    pub exists: DotSet,
    /// The stamp of its creation: decides who holds the address.
    #[n(1)]
    pub created_stamp: Stamp,
    /// Folded address.
    #[n(2)]
    pub address: String,
    /// Seconds since 1970.
    #[n(3)]
    pub created: u64,
    /// UIDVALIDITY of its mailboxes, as far as it is known here: see [`Directory::uid_validity`].
    #[n(4)]
    pub uid_validity: u32,
    /// What is stored of its password.
    #[n(5)]
    pub credential: Lww<Credential>,
    /// The UIDVALIDITY that it was created with, if it has risen since. Also absent where it had risen before this field existed: then `uid_validity`
    /// has the risen one.
    #[n(6)]
    pub born: Option<u32>,
    /// Its quota, if it was ever set.
    #[n(7)]
    pub quota: Option<Lww<OwnQuota>>,
}

impl Account {
    /// The UIDVALIDITY that it was created with: the same at every node.
    #[must_use]
    pub fn born(&self) -> u32 {
        self.born.unwrap_or(self.uid_validity)
    }

    /// Its quota, where it differs from the default.
    #[must_use]
    pub fn quota(&self) -> OwnQuota {
        self.quota
            .as_ref()
            .map_or_else(OwnQuota::default, |of| of.value)
    }

    fn write_quota(&mut self, quota: &Lww<OwnQuota>) {
        match &mut self.quota {
            Some(own) if !broken("quota-by-arrival") => own.join(quota),
            _ => self.quota = Some(quota.clone()),
        }
    }
}

/// The whole directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    domains: OrMap<String>,
    accounts: BTreeMap<AccountKey, Account>,
    /// From -> to.
    aliases: BTreeMap<String, OrMap<String>>,
    /// Greatest UIDVALIDITY ever given under an address: it outlives the account.
    floors: BTreeMap<String, u32>,
    /// See [`Op::SetDecoy`].
    decoy: Option<Lww<DecoySecret>>,
    /// Derived: living accounts by address, the holder first.
    holders: BTreeMap<String, BTreeSet<(Stamp, AccountKey)>>,
    /// Derived: living accounts by the domain of their address, the earliest first.
    elders: BTreeMap<String, BTreeSet<(Stamp, AccountKey)>>,
    /// Derived: all accounts by address, the removed ones too.
    bearers: BTreeMap<String, BTreeSet<(Stamp, AccountKey)>>,
}

/// Names one stored row; its order is the order in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A domain's dots.
    Domain(String),
    /// An [`Account`].
    Account(AccountKey),
    /// An alias' dots.
    Alias(String, String),
    /// A UIDVALIDITY floor.
    Floor(String),
    /// The secret behind made-up salts.
    Decoy,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("directory row {key:02x?} cannot be read: {cause}")]
pub struct RowError {
    key: Vec<u8>,
    cause: String,
}

impl Directory {
    /// Applies one operation, local or foreign, in causal order, and names the rows that changed.
    pub fn apply(&mut self, context: &Context<'_>, op: &Op) -> Vec<Row> {
        match op {
            Op::AddDomain { domain } => {
                self.domains.add(domain.clone(), context);
                vec![Row::Domain(domain.clone())]
            }
            Op::RemoveDomain { domain, seen } => {
                match self.domains.dots(domain) {
                    Some(all) if broken("removal-takes-unseen") => {
                        let all = all.as_slice().to_vec();
                        self.domains.remove(domain, &all);
                    }
                    _ => self.domains.remove(domain, seen),
                }
                vec![Row::Domain(domain.clone())]
            }
            Op::AddAccount {
                account,
                address,
                created,
                uid_validity,
                credential,
            } => {
                let entry = self.accounts.entry(*account).or_insert_with(|| Account {
                    exists: DotSet::new(),
                    created_stamp: context.stamp,
                    address: address.clone(),
                    created: *created,
                    uid_validity: *uid_validity,
                    credential: Lww::new(context.stamp, credential.clone()),
                    born: None,
                    quota: None,
                });
                entry.exists.insert(context.dot);
                self.raise_floor(address, *uid_validity);
                self.index(*account);
                vec![Row::Account(*account), Row::Floor(address.clone())]
            }
            Op::RemoveAccount { account, seen } => {
                if let Some(entry) = self.accounts.get_mut(account) {
                    for dot in seen {
                        entry.exists.remove(*dot);
                    }
                }
                self.index(*account);
                vec![Row::Account(*account)]
            }
            Op::SetCredential {
                account,
                credential,
                keeps_sessions: _,
            } => {
                if let Some(entry) = self.accounts.get_mut(account) {
                    if broken("credential-by-arrival") {
                        entry.credential = Lww::new(context.stamp, credential.clone());
                    }
                    entry.credential.write(context.stamp, credential.clone());
                    if broken("change-revives") {
                        entry.exists.insert(context.dot);
                    }
                }
                if broken("change-revives") {
                    self.index(*account);
                }
                vec![Row::Account(*account)]
            }
            Op::SetQuota { account, quota } => {
                if let Some(entry) = self.accounts.get_mut(account) {
                    entry.write_quota(&Lww::new(context.stamp, *quota));
                }
                vec![Row::Account(*account)]
            }
            Op::RaiseUidValidity {
                account,
                uid_validity,
            } => {
                let Some(entry) = self.accounts.get_mut(account) else {
                    return Vec::new();
                };
                if *uid_validity > entry.uid_validity {
                    entry.born.get_or_insert(entry.uid_validity);
                    entry.uid_validity = *uid_validity;
                }
                let address = entry.address.clone();
                self.raise_floor(&address, *uid_validity);
                vec![Row::Account(*account), Row::Floor(address)]
            }
            Op::AddAlias { from, to } => {
                self.aliases
                    .entry(from.clone())
                    .or_default()
                    .add(to.clone(), context);
                vec![Row::Alias(from.clone(), to.clone())]
            }
            Op::RemoveAlias { from, to, seen } => {
                if let Some(targets) = self.aliases.get_mut(from) {
                    if !broken("alias-stays") {
                        targets.remove(to, seen);
                    }
                    if targets.iter().next().is_none() {
                        self.aliases.remove(from);
                    }
                }
                vec![Row::Alias(from.clone(), to.clone())]
            }
            Op::SetDecoy { secret } => {
                self.join_decoy(&Lww::new(context.stamp, *secret));
                vec![Row::Decoy]
            }
        }
    }

    fn raise_floor(&mut self, address: &str, uid_validity: u32) {
        let floor = self.floors.entry(address.to_owned()).or_insert(0);
        if !broken("floor-forgotten") {
            *floor = (*floor).max(uid_validity);
        }
    }

    /// The earliest one counts: a node that makes another one before it has heard of it changes nothing for the others.
    fn join_decoy(&mut self, other: &Lww<DecoySecret>) {
        let own = self.decoy.as_ref();
        if own.is_none_or(|own| other.stamp < own.stamp || broken("latest-decoy")) {
            self.decoy = Some(other.clone());
        }
    }

    /// Joins another state; the vectors say what each side has applied. Equals applying the operations that are missing.
    ///
    /// Entries of removed accounts are kept without dots (they are few and small), so that a late SetCredential finds them.
    pub fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        self.domains.join(mine, &other.domains, theirs);
        let nothing = OrMap::default();
        self.aliases.retain(|from, targets| {
            targets.join(mine, other.aliases.get(from).unwrap_or(&nothing), theirs);
            targets.iter().next().is_some()
        });
        for (from, targets) in &other.aliases {
            if !self.aliases.contains_key(from) {
                let mut joined = OrMap::default();
                joined.join(mine, targets, theirs);
                if joined.iter().next().is_some() {
                    self.aliases.insert(from.clone(), joined);
                }
            }
        }
        for (address, floor) in &other.floors {
            if !broken("join-forgets-floors") {
                self.raise_floor(address, *floor);
            }
        }
        if let Some(decoy) = &other.decoy {
            self.join_decoy(decoy);
        }
        for (key, account) in &other.accounts {
            match self.accounts.get_mut(key) {
                Some(own) => {
                    own.exists.join(mine, &account.exists, theirs);
                    own.credential.join(&account.credential);
                    if let Some(quota) = &account.quota {
                        own.write_quota(quota);
                    }
                    own.uid_validity = own.uid_validity.max(account.uid_validity);
                    // Rows from before the field existed may have the risen one.
                    let born = [own.born, account.born];
                    own.born = born.into_iter().flatten().min();
                }
                None => {
                    self.accounts.insert(*key, account.clone());
                }
            }
            self.index(*key);
        }
    }

    /// Brings the derived index up to date for one account.
    fn index(&mut self, key: AccountKey) {
        let Some(account) = self.accounts.get(&key) else {
            return;
        };
        let place = (account.created_stamp, key);
        self.bearers
            .entry(account.address.clone())
            .or_default()
            .insert(place);
        let domain = domain_of(&account.address);
        for (index, name) in [
            (&mut self.holders, account.address.as_str()),
            (&mut self.elders, domain),
        ] {
            if !account.exists.is_empty() {
                index.entry(name.to_owned()).or_default().insert(place);
            } else if let Some(places) = index.get_mut(name) {
                places.remove(&place);
                if places.is_empty() {
                    index.remove(name);
                }
            }
        }
    }

    /// Whether we receive mail for the domain.
    #[must_use]
    pub fn has_domain(&self, domain: &Domain) -> bool {
        self.domains.contains(&domain.as_str().to_owned())
    }

    /// Our domains, in order.
    pub fn domains(&self) -> impl Iterator<Item = (&String, &DotSet)> {
        self.domains.iter()
    }

    /// The account that holds an address.
    #[must_use]
    pub fn holder(&self, address: &Address) -> Option<(AccountKey, &Account)> {
        let places = self.holders.get(&address.to_string())?;
        let (_, key) = if broken("latest-holds") {
            places.last()?
        } else {
            places.first()?
        };
        Some((*key, self.accounts.get(key)?))
    }

    /// The earliest account of a domain, by the stamps of creation: the same on every replica that knows the same accounts.
    #[must_use]
    pub fn eldest(&self, domain: &Domain) -> Option<(AccountKey, &Account)> {
        let (_, key) = self.elders.get(domain.as_str())?.first()?;
        Some((*key, self.accounts.get(key)?))
    }

    /// The earliest account of all.
    #[must_use]
    pub fn eldest_of_all(&self) -> Option<(AccountKey, &Account)> {
        let firsts = self.elders.values().filter_map(|places| places.first());
        let (_, key) = firsts.min()?;
        Some((*key, self.accounts.get(key)?))
    }

    /// A living account.
    #[must_use]
    pub fn account(&self, key: &AccountKey) -> Option<&Account> {
        self.accounts
            .get(key)
            .filter(|account| !account.exists.is_empty())
    }

    /// The least UIDVALIDITY that an account's mailboxes may have: its own, above that of every earlier account with the same address (also removed
    /// ones, whose entries stay), and no other's. So clients do not mistake an account for another one: neither one that was set aside and gets the
    /// address when the holder is removed, nor one that was created in the same second elsewhere.
    #[must_use]
    pub fn uid_validity(&self, key: &AccountKey) -> Option<u32> {
        let bearers = self.bearers.get(&self.accounts.get(key)?.address)?;
        let of = |key: &AccountKey| {
            self.accounts
                .get(key)
                .map_or(0, |account| account.uid_validity)
        };
        let mut least = 0u32;
        for (_, other) in bearers {
            least = least.saturating_add(1).max(of(other));
            while bearers
                .iter()
                .any(|(_, third)| third != other && of(third) == least)
            {
                least = least.saturating_add(1);
            }
            if other == key {
                break;
            }
        }
        Some(least)
    }

    /// Accounts that hold their address with a UIDVALIDITY below the least that they may have, and that least one.
    pub fn below_least(&self) -> impl Iterator<Item = (AccountKey, u32)> {
        self.bearers
            .iter()
            .filter(|(_, bearers)| bearers.len() > 1)
            .filter_map(|(address, _)| self.below_least_of(address))
    }

    /// The one of these accounts that holds the address of this account, which may have been removed.
    #[must_use]
    pub fn below_least_beside(&self, key: &AccountKey) -> Option<(AccountKey, u32)> {
        self.below_least_of(&self.accounts.get(key)?.address)
    }

    fn below_least_of(&self, address: &str) -> Option<(AccountKey, u32)> {
        let (_, key) = self.holders.get(address)?.first()?;
        let least = self.uid_validity(key)?;
        (self.accounts.get(key)?.uid_validity < least).then_some((*key, least))
    }

    /// Living accounts by address; the third says whether it is set aside behind an earlier one.
    pub fn accounts(&self) -> impl Iterator<Item = (AccountKey, &Account, bool)> {
        self.holders.values().flat_map(move |holders| {
            holders
                .iter()
                .enumerate()
                .filter_map(move |(place, (_, key))| {
                    Some((*key, self.accounts.get(key)?, place > 0))
                })
        })
    }

    /// Living accounts in the order of their keys, from this one on and round.
    pub fn accounts_from(&self, key: &AccountKey) -> impl Iterator<Item = (AccountKey, &Account)> {
        let all = self
            .accounts
            .range(*key..)
            .chain(self.accounts.range(..*key));
        let living = all.filter(|(_, account)| !account.exists.is_empty());
        living.map(|(key, account)| (*key, account))
    }

    /// The greatest UIDVALIDITY that is known of an account, also of one that was removed.
    #[must_use]
    pub fn given(&self, key: &AccountKey) -> Option<u32> {
        self.accounts.get(key).map(|account| account.uid_validity)
    }

    /// The living accounts of an address, the one that holds it first.
    pub fn accounts_of(&self, address: &str) -> impl Iterator<Item = AccountKey> {
        let holders = self.holders.get(address).into_iter().flatten();
        holders.map(|(_, key)| *key)
    }

    /// Whether there was such an account and it was removed.
    #[must_use]
    pub fn was_removed(&self, key: &AccountKey) -> bool {
        self.accounts
            .get(key)
            .is_some_and(|account| account.exists.is_empty())
    }

    /// Accounts that were removed: their entries stay, without a dot.
    pub fn removed(&self) -> impl Iterator<Item = AccountKey> {
        self.accounts
            .iter()
            .filter(|(_, account)| account.exists.is_empty())
            .map(|(key, _)| *key)
    }

    /// Aliases in order: from, to, dots.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str, &DotSet)> {
        self.aliases.iter().flat_map(|(from, targets)| {
            targets
                .iter()
                .map(move |(to, dots)| (from.as_str(), to.as_str(), dots))
        })
    }

    /// Where an alias leads.
    pub fn alias_targets(&self, from: &str) -> impl Iterator<Item = &str> {
        self.aliases
            .get(from)
            .into_iter()
            .flat_map(|targets| targets.iter().map(|(to, _)| to.as_str()))
    }

    /// Greatest UIDVALIDITY ever given under an address.
    #[must_use]
    pub fn uid_validity_floor(&self, address: &str) -> u32 {
        self.floors.get(address).copied().unwrap_or(0)
    }

    /// The secret behind made-up salts, once it is there.
    #[must_use]
    pub fn decoy(&self) -> Option<DecoySecret> {
        self.decoy.as_ref().map(|decoy| decoy.value)
    }

    /// All rows of which something may be stored.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let domains = self.domains.iter();
        let domains = domains.map(|(domain, _)| Row::Domain(domain.clone()));
        let accounts = self.accounts.keys().copied().map(Row::Account);
        let aliases = self.aliases();
        let aliases = aliases.map(|(from, to, _)| Row::Alias(from.to_owned(), to.to_owned()));
        let floors = self.floors.keys().cloned().map(Row::Floor);
        let rows = domains.chain(accounts).chain(aliases).chain(floors);
        rows.chain(self.decoy.iter().map(|_| Row::Decoy))
    }

    /// The stored form of a row: `None` where nothing is to be stored.
    #[must_use]
    pub fn row(&self, row: &Row) -> Option<Vec<u8>> {
        match row {
            Row::Domain(domain) => self.domains.dots(domain).map(encode),
            Row::Account(key) => self.accounts.get(key).map(encode),
            Row::Alias(from, to) => self.aliases.get(from)?.dots(to).map(encode),
            Row::Floor(address) => self.floors.get(address).map(encode),
            Row::Decoy => self.decoy.as_ref().map(encode),
        }
    }

    /// Puts a stored row back.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let failed = |cause: String| RowError {
            key: key.to_vec(),
            cause,
        };
        match Row::decode(key).ok_or_else(|| failed("unknown key".into()))? {
            Row::Domain(domain) => self.domains.restore(domain, decode(value).map_err(failed)?),
            Row::Account(account) => {
                self.accounts
                    .insert(account, decode(value).map_err(failed)?);
                self.index(account);
            }
            Row::Alias(from, to) => self
                .aliases
                .entry(from)
                .or_default()
                .restore(to, decode(value).map_err(failed)?),
            Row::Floor(address) => {
                self.floors.insert(address, decode(value).map_err(failed)?);
            }
            Row::Decoy => self.decoy = Some(decode(value).map_err(failed)?),
        }
        Ok(())
    }
}

impl Row {
    /// The row's key: a letter, then the name; the parts of an alias are divided by NUL, which no address holds.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let (letter, name) = match self {
            Row::Domain(domain) => (b'd', domain.as_bytes().to_vec()),
            Row::Account(key) => (b'a', key.to_vec()),
            Row::Alias(from, to) => (b'l', [from.as_bytes(), &[0], to.as_bytes()].concat()),
            Row::Floor(address) => (b'f', address.as_bytes().to_vec()),
            Row::Decoy => (b's', Vec::new()),
        };
        [&[letter], name.as_slice()].concat()
    }

    fn decode(key: &[u8]) -> Option<Row> {
        let (letter, name) = key.split_first()?;
        let text = || String::from_utf8(name.to_vec()).ok();
        Some(match letter {
            b'd' => Row::Domain(text()?),
            b'a' => Row::Account(name.try_into().ok()?),
            b'l' => {
                let text = text()?;
                let (from, to) = text.split_once('\0')?;
                Row::Alias(from.to_owned(), to.to_owned())
            }
            b'f' => Row::Floor(text()?),
            b's' if name.is_empty() => Row::Decoy,
            _ => return None,
        })
    }
}

/// The part behind the `@` of a folded address.
fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

fn encode<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    let written = minicbor::encode(value, &mut out);
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
    out
}

fn decode<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, String> {
    minicbor::decode(bytes).map_err(|error| error.to_string())
}
