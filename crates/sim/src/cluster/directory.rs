//! Administrators at any node: accounts and aliases come and go, passwords change, and in the end all nodes say the same.
//!
//! *Guests* are accounts that may be removed, beside the clients' accounts, which stay. Checked when all is healed: the directory's rows are alike at
//! all nodes; one
//! password of those that were set lets somebody in, at every node the same; what was made and acknowledged and nobody removed is there; no row is left of an
//! account that is not; no two accounts with one address have one UIDVALIDITY.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{AccountId, Authenticate, Call, MailboxCall, MailboxName, Reply, SessionId},
    log::{OWN_ROWS_END, store_partition},
    machine::RequestId,
    owner::keys,
};
use whimbrel_storage::{KeyRange, ScanLimit};

use super::{
    SECOND, World,
    clients::{Asked, mailbox},
};
use crate::{client::NAMES, node::VERIFIER_PREFIX};
use whimbrel_testkit::Rng;

const GUESTS: [&str; 3] = [
    "guest0@example.org",
    "guest1@example.org",
    "guest2@example.net",
];
/// Sources of aliases: some are accounts' addresses, some lead to each other.
const ALIASES: [&str; 4] = [
    "info@example.org",
    "help@example.org",
    "guest0@example.org",
    "@example.net",
];

/// What administrators did.
pub(super) struct Guests {
    /// Draws who uses such an account.
    rng: Rng,
    /// Sessions of those, and where they are.
    sessions: BTreeMap<AccountId, (usize, SessionId)>,
    /// Who was made, and at which address.
    made: BTreeMap<AccountId, String>,
    /// Of these, who was acknowledged.
    acknowledged: BTreeSet<AccountId>,
    /// Addresses of which an account was removed, or may have been.
    removed: BTreeSet<String>,
    /// Passwords that were set, by address.
    passwords: BTreeMap<String, BTreeSet<String>>,
    /// Accounts whose making was not answered yet.
    asked: BTreeMap<RequestId, AccountId>,
    /// At which node changes were asked for, and when.
    changes: BTreeMap<RequestId, (usize, u64)>,
    /// Whose UIDVALIDITY that was which was told of an address.
    validities: BTreeMap<(String, u32), AccountId>,
    /// Passwords that were asked for, until that is answered.
    passwords_asked: BTreeMap<RequestId, (String, Option<String>)>,
    /// What was asked of the password of an address.
    passwords_set: BTreeMap<String, Password>,
    /// Answers to the world itself.
    answers: BTreeMap<RequestId, AdminReply>,
}

impl Guests {
    pub(super) fn new(seed: u64) -> Self {
        Guests {
            rng: Rng::new(seed ^ 0x0009_0e57_05ed),
            sessions: BTreeMap::new(),
            made: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            removed: BTreeSet::new(),
            passwords: BTreeMap::new(),
            asked: BTreeMap::new(),
            changes: BTreeMap::new(),
            validities: BTreeMap::new(),
            passwords_asked: BTreeMap::new(),
            passwords_set: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }
}

/// The password of an address, judged if all changes of it were asked of one node, one after the other: then what was acknowledged last holds.
#[derive(Default)]
struct Password {
    at: BTreeSet<Incarnation>,
    under_way: BTreeSet<RequestId>,
    crossed: bool,
    /// The last one that was acknowledged, if nothing was asked since.
    last: Option<String>,
}

impl World {
    /// An account is made at a node.
    pub(super) fn make_account(&mut self, node: usize, address: &str, account: AccountId) {
        let password = format!("{}", self.rng.below(1_000_000));
        self.guests.made.insert(account, address.to_owned());
        let passwords = self.guests.passwords.entry(address.to_owned());
        passwords.or_default().insert(password.clone());
        let call = AdminCall::AddAccount {
            address: address.to_owned(),
            verifier: format!("{VERIFIER_PREFIX}{password}"),
            scram: None,
            account,
        };
        let request = self.admin(node, call);
        self.guests.asked.insert(request, account);
    }

    /// The password that was set for an address that has one only.
    pub(super) fn password_of(&self, address: &str) -> String {
        let passwords = self.guests.passwords.get(address);
        let first = passwords.and_then(BTreeSet::first);
        first.cloned().unwrap_or_default()
    }

    fn admin(&mut self, node: usize, call: AdminCall) -> RequestId {
        let request = self.request();
        self.say(|| format!("administrator at {node}: {call:?}"));
        self.bring(node);
        if !matches!(call, AdminCall::ListAccounts) {
            self.guests.changes.insert(request, (node, self.now));
        }
        self.password_asked(node, request, &call);
        self.members[node].node.admin(request, call);
        request
    }

    fn password_asked(&mut self, node: usize, request: RequestId, call: &AdminCall) {
        let (address, password) = match call {
            AdminCall::AddAccount {
                address, verifier, ..
            }
            | AdminCall::SetVerifier {
                address, verifier, ..
            } => (address, verifier.strip_prefix(VERIFIER_PREFIX)),
            AdminCall::RemoveAccount { address } => (address, None),
            _ => return,
        };
        let set = self
            .guests
            .passwords_set
            .entry(address.clone())
            .or_default();
        set.at.insert(self.members[node].id);
        set.crossed |= !set.under_way.is_empty();
        set.under_way.insert(request);
        set.last = None;
        let asked = (address.clone(), password.map(str::to_owned));
        self.guests.passwords_asked.insert(request, asked);
    }

    /// Only what was done is the last word: of what was refused nothing is known.
    fn password_answered(&mut self, request: RequestId, reply: &AdminReply) {
        let Some((address, password)) = self.guests.passwords_asked.remove(&request) else {
            return;
        };
        let set = self.guests.passwords_set.entry(address).or_default();
        set.under_way.remove(&request);
        if set.under_way.is_empty() && *reply == AdminReply::Done {
            set.last = password;
        }
    }

    /// The UIDVALIDITY of a guest was told: nobody who had its address before, or has it beside it, has the same (U1).
    pub(super) fn validity_told(&mut self, account: AccountId, told: u32) -> Result<(), String> {
        let Some(address) = self.guests.made.get(&account) else {
            return Ok(());
        };
        let place = (address.clone(), told);
        let first = *self.guests.validities.entry(place).or_insert(account);
        match first == account {
            true => Ok(()),
            false => Err(format!(
                "U1: {first} and {account}, both {address}, were told to have UIDVALIDITY {told}"
            )),
        }
    }

    /// An administrator does something at some node, while clients use accounts that may be removed.
    pub(super) fn administer(&mut self) {
        self.perhaps_use_a_guest();
        self.administer_quietly();
        self.perhaps_use_a_guest();
    }

    /// Perhaps some client looks at such an account, appends to it and makes mailboxes, at a node that may know it or not.
    fn perhaps_use_a_guest(&mut self) {
        if self.guests.rng.one_in(2) {
            return;
        }
        let made = self.guests.made.keys();
        let made = made.filter(|account| !self.accounts.contains(account));
        let made: Vec<AccountId> = made.copied().collect();
        if made.is_empty() {
            return;
        }
        let account = *self.guests.rng.pick(&made);
        let mut nodes = self.there();
        nodes.retain(|index| self.members[*index].is_up() && self.serves(*index, account));
        if nodes.is_empty() {
            return;
        }
        self.note("cluster: a guest is used");
        let known = self.guests.sessions.get(&account).copied();
        let known = known.filter(|(node, _)| nodes.contains(node) && self.guests.rng.one_in(2));
        let (node, session) = known.unwrap_or_else(|| {
            let node = *self.guests.rng.pick(&nodes);
            self.next_session += 1;
            (node, SessionId(self.next_session))
        });
        let before = self.guests.sessions.insert(account, (node, session));
        if let Some((at, old)) = before.filter(|before| *before != (node, session)) {
            self.guest_goes(at, old);
        }
        let name = *self.guests.rng.pick(&NAMES);
        let of_it = mailbox(name);
        let select = MailboxCall::Select {
            session,
            name: MailboxName::inbox(),
            read_only: false,
        };
        let subscribe = MailboxCall::Subscribe {
            name: of_it.clone(),
            subscribed: true,
        };
        let create = MailboxCall::Create {
            name: of_it,
            special_use: None,
        };
        self.bring(node);
        for call in [select, create, subscribe] {
            if self.guests.rng.one_in(2) {
                self.ask_for(node, Asked::other(node, account, call, self.now));
            }
        }
        if let Some((call, body)) = self.appended(node, account, session, name) {
            let mut asked = Asked::append(node, account, body, self.now);
            asked.call = Some(call);
            self.ask_for(node, asked);
        }
    }

    fn guest_goes(&mut self, node: usize, session: SessionId) {
        let member = &self.members[node];
        if member.down.is_none() && !member.out {
            self.bring(node);
            self.members[node].node.hangup(session);
        }
    }

    /// All is healed.
    pub(super) fn guests_go(&mut self) {
        for (_, (node, session)) in std::mem::take(&mut self.guests.sessions) {
            self.guest_goes(node, session);
        }
    }

    fn administer_quietly(&mut self) {
        let node = self.any_member();
        if !self.members[node].is_up() {
            return;
        }
        let address = (*self.rng.pick(&GUESTS)).to_owned();
        match self.rng.below(10) {
            0..=3 => {
                self.note("cluster: account made");
                let mut id = [0; 16];
                id[..8].copy_from_slice(&self.rng.number().to_be_bytes());
                let account = self.account(id);
                self.make_account(node, &address, account);
            }
            4 | 5 => {
                self.note("cluster: account removed");
                self.guests.removed.insert(address.clone());
                self.admin(node, AdminCall::RemoveAccount { address });
            }
            6 | 7 => {
                self.note("cluster: password set");
                let password = format!("{}", self.rng.below(1_000_000));
                let passwords = self.guests.passwords.entry(address.clone());
                passwords.or_default().insert(password.clone());
                let call = AdminCall::SetVerifier {
                    address,
                    verifier: format!("{VERIFIER_PREFIX}{password}"),
                    scram: None,
                    keeps_sessions: false,
                };
                self.admin(node, call);
            }
            8 => {
                self.note("cluster: alias added");
                let from = (*self.rng.pick(&ALIASES)).to_owned();
                let to = if self.rng.one_in(2) {
                    address
                } else {
                    (*self.rng.pick(&ALIASES[..3])).to_owned()
                };
                self.admin(
                    node,
                    AdminCall::AddAlias {
                        from,
                        to,
                        instead: true,
                    },
                );
            }
            _ => {
                self.note("cluster: alias removed");
                let from = (*self.rng.pick(&ALIASES)).to_owned();
                self.admin(node, AdminCall::RemoveAlias { from, to: None });
            }
        }
    }

    pub(super) fn administered(
        &mut self,
        request: RequestId,
        reply: AdminReply,
    ) -> Result<(), String> {
        if let Some((node, asked)) = self.guests.changes.remove(&request)
            && reply == AdminReply::Done
            && self.must_refuse(node, asked)
        {
            return Err(format!(
                "node {node} changes the directory though its clock is far from all others"
            ));
        }
        self.password_answered(request, &reply);
        match self.guests.asked.remove(&request) {
            Some(account) if reply == AdminReply::Done => {
                self.guests.acknowledged.insert(account);
            }
            Some(_) => {}
            None => _ = self.guests.answers.insert(request, reply),
        }
        Ok(())
    }

    /// An address that mail comes for.
    pub(super) fn any_address(&mut self) -> (String, String) {
        let index = self.rng.below(self.plan.accounts + 2);
        let local = match self.rng.one_in(4) {
            true => "info".to_owned(),
            false if index < self.plan.accounts => format!("user{index}"),
            false => format!("guest{}", index - self.plan.accounts),
        };
        (local, "example.org".to_owned())
    }

    /// What the directories do not have alike, if anything.
    pub(super) fn directories_differ(&self) -> Option<String> {
        let base = self.first_there();
        let first = self.directory_rows(base);
        for node in base + 1..self.members.len() {
            if self.members[node].out {
                continue;
            }
            let other = self.directory_rows(node);
            if other != first {
                let apart = |a: &Rows, b: &Rows| -> Vec<String> {
                    let odd = a.iter().filter(|(key, value)| b.get(*key) != Some(value));
                    odd.map(|(key, _)| key.escape_ascii().to_string()).collect()
                };
                return Some(format!(
                    "directory of node {base}: {:?}, of node {node}: {:?}",
                    apart(&first, &other),
                    apart(&other, &first)
                ));
            }
        }
        None
    }

    fn directory_rows(&self, node: usize) -> Rows {
        let range = KeyRange {
            start: OWN_ROWS_END.into(),
            end: None,
        };
        let partition = store_partition(PartitionId::DIRECTORY);
        self.scan(node, partition, range)
    }

    fn scan(
        &self,
        node: usize,
        partition: whimbrel_storage::PartitionId,
        mut range: KeyRange,
    ) -> Rows {
        let mut rows = Rows::new();
        loop {
            let disk = &self.members[node].node.disk;
            let page = disk.scan(partition, &range, ScanLimit::default());
            let page_rows = page.rows.into_iter();
            rows.extend(page_rows.map(|(key, value)| (key.to_vec(), value.to_vec())));
            match page.next {
                Some(next) => range.start = next,
                None => return rows,
            }
        }
    }

    /// What must hold of the directory when nodes are alike.
    pub(super) fn directory_holds(&mut self) -> Result<(), String> {
        let living = self.living()?;
        for account in &self.guests.acknowledged {
            let address = &self.guests.made[account];
            if !self.guests.removed.contains(address) && !living.contains_key(account) {
                return Err(format!("account {account} of {address} is not there"));
            }
        }
        for account in self.guests.made.keys() {
            if living.contains_key(account) {
                continue;
            }
            let partition = store_partition(keys::partition_of(*account));
            for node in 0..self.members.len() {
                if self.members[node].out {
                    continue;
                }
                let range = KeyRange::prefix([b"a", &account.0[..]].concat());
                let rows = self.scan(node, partition, range);
                if !rows.is_empty() {
                    return Err(format!(
                        "node {node} has {} rows of account {account}, which is not there",
                        rows.len()
                    ));
                }
            }
        }
        let end = self.now + 300 * SECOND;
        while let Some((node, too_low)) = self.too_low() {
            if self.now > end {
                return Err(format!(
                    "at node {node} UIDVALIDITY of {too_low:?} does not rise"
                ));
            }
            self.run_until(self.now + SECOND)?;
        }
        self.validities_differ(&living)?;
        self.one_password(&living)
    }

    /// A node by whose directory UIDVALIDITY of these is to rise.
    fn too_low(&self) -> Option<(usize, Vec<AccountId>)> {
        let there = self.there().into_iter();
        let mut all = there.map(|node| (node, self.members[node].node.too_low()));
        all.find(|(_, accounts)| !accounts.is_empty())
    }

    /// Who is there, and at which address.
    fn living(&mut self) -> Result<BTreeMap<AccountId, String>, String> {
        match self.ask_admin(self.first_there(), AdminCall::ListAccounts)? {
            AdminReply::Accounts(lines) => {
                let lines = lines.into_iter();
                Ok(lines.map(|line| (line.account, line.address)).collect())
            }
            other => Err(format!("a list was answered by {other:?}")),
        }
    }

    fn ask_admin(&mut self, node: usize, call: AdminCall) -> Result<AdminReply, String> {
        let request = self.admin(node, call);
        let end = self.now + 60 * SECOND;
        loop {
            match self.guests.answers.remove(&request) {
                Some(reply) => return Ok(reply),
                None if self.now > end => return Err("a directory does not answer".into()),
                None => self.step()?,
            }
        }
    }

    /// The first account's password is set once more, to what it is; whether that is done.
    pub(super) fn changes_the_directory(&mut self, node: usize) -> Result<bool, String> {
        let address = "user0@example.org".to_owned();
        let password = self.password_of(&address);
        let call = AdminCall::SetVerifier {
            address,
            verifier: format!("{VERIFIER_PREFIX}{password}"),
            scram: None,
            keeps_sessions: false,
        };
        Ok(self.ask_admin(node, call)? == AdminReply::Done)
    }

    /// U3, D1 and D2 of accounts that administrators made, and nobody asked to remove: nodes show the same, and of mail that was accepted for them all, once.
    pub(super) fn guests_hold(&mut self) -> Result<(), String> {
        let living = self.living()?;
        let guests = self.guests.made.iter().filter(|(account, address)| {
            living.contains_key(account) && !self.guests.removed.contains(*address)
        });
        let guests: Vec<AccountId> = guests.map(|(account, _)| *account).collect();
        for account in guests {
            if self.accounts.contains(&account) {
                continue;
            }
            let end = self.now + 300 * SECOND;
            while let Some(apart) = self.difference_of(account)? {
                if self.now > end {
                    return Err(format!("U3: nodes do not become alike: {apart}"));
                }
                self.run_until(self.now + SECOND)?;
            }
            self.all_there_once(account)?;
            self.note("cluster: looked at a guest");
        }
        Ok(())
    }

    fn validities_differ(&mut self, living: &BTreeMap<AccountId, String>) -> Result<(), String> {
        let mut given: BTreeMap<(String, u32), AccountId> = BTreeMap::new();
        for (account, address) in living {
            let call = MailboxCall::Select {
                session: SessionId(0),
                name: MailboxName::inbox(),
                read_only: true,
            };
            let reply = self.ask_and_wait(self.first_there(), *account, call)?;
            let Reply::Selected(selected) = reply else {
                return Err(format!("INBOX of {account} is not shown: {reply:?}"));
            };
            let place = (address.clone(), selected.status.uid_validity);
            if let Some(other) = given.insert(place, *account) {
                return Err(format!(
                    "U1: {account} and {other}, both {address}, have one UIDVALIDITY"
                ));
            }
        }
        let first = self.first_there();
        self.members[first].node.hangup(SessionId(0));
        Ok(())
    }

    /// At every node the same password lets in, one where there is an account; which one, where that is certain.
    fn one_password(&mut self, living: &BTreeMap<AccountId, String>) -> Result<(), String> {
        let mut peers = 0u32;
        let may_lack = self.nodes_were_renewed() || self.nodes_were_removed();
        for (address, passwords) in self.guests.passwords.clone() {
            let mut first = None;
            for node in 0..self.members.len() {
                if self.members[node].out {
                    continue;
                }
                let mut works = Vec::new();
                for password in &passwords {
                    // Each from elsewhere, so that nobody is refused for failing too often.
                    peers += 1;
                    let call = Call::Authenticate(Authenticate {
                        login: address.clone(),
                        password: password.clone().into_bytes().into(),
                        peer: std::net::Ipv4Addr::from(peers).into(),
                    });
                    match self.ask_node(node, call)? {
                        Reply::Authenticated { .. } => works.push(password.clone()),
                        Reply::Failed(_) => {}
                        other => return Err(format!("a login was answered by {other:?}")),
                    }
                }
                let is_there = living.values().any(|of| *of == address);
                if works.len() > 1 || works.is_empty() && is_there {
                    return Err(format!("{works:?} are passwords of {address}"));
                }
                let set = self.guests.passwords_set.get(&address);
                let set = set.filter(|set| !may_lack && !set.crossed && set.at.len() == 1);
                if let Some(last) = set.and_then(|set| set.last.as_ref())
                    && works != [last.clone()]
                {
                    return Err(format!(
                        "the password of {address} was set to {last}, and is {works:?}"
                    ));
                }
                let expected = first.get_or_insert_with(|| works.clone());
                if works != *expected {
                    return Err(format!(
                        "the password of {address} is {expected:?} at node 0, {works:?} at {node}"
                    ));
                }
            }
        }
        Ok(())
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
