//! The owner of the directory partition: who has an account, who receives mail for an address, who may log in.
//!
//! The state is whole in memory. A change is planned against it, sealed, committed and applied; its answer waits until it is on
//! disk, and so do the answers of later questions, since they may have seen it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId, Section};
use whimbrel_directory::{Account, AccountKey, Address, Credential, Directory, Op, Refusal};
use whimbrel_mailbox::AccountId;
use whimbrel_storage::Mutation;

use crate::{
    admin::{AccountLine, AdminCall, AdminReply},
    api::{Call, Failure, Reply, Resolution, Target},
    auth::{Authenticator, Known, MadeUp},
    figures::Figures,
    gate::Gate,
    log::{self, Log},
    machine::{Birth, Input, Machine, Now, Output, RequestId, Ticket},
    peers::{self, Shipping, Then, Want},
    saslprep::saslprep,
    senders::{self, Senders},
};

/// With more domains than this a login without a domain leads nowhere: each is tried, and strangers ask.
const BARE_LOGIN_DOMAINS_MAX: usize = 64;

/// The subject of the directory's sections: there is one directory.
const SUBJECT: [u8; 16] = *b"whimbrel direct.";

/// The directory's owner.
pub struct DirectoryOwner {
    state: Phase,
    authenticator: Authenticator,
    senders: Senders,
    next_ticket: u64,
    out: VecDeque<Output>,
}

enum Phase {
    /// The rows are being read; questions wait.
    Loading {
        origin: Incarnation,
        ticket: Ticket,
        rows: Vec<(Vec<u8>, bytes::Bytes)>,
        waiting: Vec<Input>,
    },
    Running(Box<Running>),
}

struct Running {
    directory: Directory,
    log: Log,
    /// Alone so far: it says what of the log may be cut.
    shipping: Shipping,
    gate: Gate,
    /// Accounts to purge when the removal is durable.
    purges: BTreeMap<Ticket, AccountId>,
    /// A commit failed: everything is read again when the ones behind it have failed, too.
    failed: bool,
}

impl DirectoryOwner {
    /// Begins by reading its rows. `origin` is this node's incarnation.
    #[must_use]
    pub fn new(origin: Incarnation, authenticator: Authenticator) -> Self {
        let mut owner = DirectoryOwner {
            state: Phase::Loading {
                origin,
                ticket: Ticket(0),
                rows: Vec::new(),
                waiting: Vec::new(),
            },
            authenticator,
            senders: Senders::new(senders::Limits::default()),
            next_ticket: 0,
            out: VecDeque::new(),
        };
        owner.load(origin, Vec::new());
        owner
    }

    /// With these bounds on what an account sends.
    #[must_use]
    pub fn with_senders(mut self, limits: senders::Limits) -> Self {
        self.senders = Senders::new(limits);
        self
    }

    fn load(&mut self, origin: Incarnation, waiting: Vec<Input>) {
        let ticket = self.ticket();
        self.state = Phase::Loading {
            origin,
            ticket,
            rows: Vec::new(),
            waiting,
        };
        self.out.push_back(Output::Load {
            ticket,
            partition: PartitionId::DIRECTORY,
            from: Vec::new(),
            to: vec![0xff],
        });
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn loaded(&mut self, now: Now, ticket: Ticket, page: Vec<(Vec<u8>, bytes::Bytes)>, done: bool) {
        let Phase::Loading {
            origin,
            ticket: expected,
            rows,
            waiting,
        } = &mut self.state
        else {
            return;
        };
        if ticket != *expected {
            return;
        }
        rows.extend(page);
        if !done {
            return;
        }
        let (origin, rows, waiting) = (*origin, std::mem::take(rows), std::mem::take(waiting));
        match Running::from_rows(origin, &rows) {
            Ok(running) => {
                // A crash may have cut a purge short; one that is complete finds nothing.
                self.out.extend(
                    running
                        .directory
                        .removed()
                        .map(|account| Output::Purge(AccountId(account))),
                );
                self.out.extend(risen(&running.directory));
                self.state = Phase::Running(Box::new(running));
            }
            Err(cause) => return self.out.push_back(Output::Fatal(cause)),
        }
        for input in waiting {
            self.handle(now, input);
        }
    }

    fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        let purge = running.purges.remove(&ticket);
        if done {
            running.shipping.committed(now, ticket);
            while let Some(want) = running.shipping.poll() {
                match want {
                    Want::Cut(origin, below) => running.log.cut(origin, below),
                    other => {
                        let cause = format!("a partition without peers wants {other:?}");
                        self.out.push_back(Output::Fatal(cause));
                    }
                }
            }
            self.out.extend(purge.map(Output::Purge));
            running.gate.committed(ticket, &mut self.out);
        } else {
            running.failed = true;
            running.gate.failed(ticket, &mut self.out);
        }
        if running.failed && running.gate.is_idle() {
            let origin = running.log.origin();
            self.load(origin, Vec::new());
        }
    }

    fn call(&mut self, now: Now, request: RequestId, call: Call) {
        let DirectoryOwner {
            state: Phase::Running(running),
            authenticator,
            senders,
            next_ticket,
            out,
        } = self
        else {
            return;
        };
        match call {
            Call::Authenticate(ask) => {
                let known = running.known(&ask.login);
                authenticator.begin(now, request, ask, known, &mut ticket_from(next_ticket), out);
            }
            Call::ScramBegin { login, peer } => {
                let known = running.known_by_scram(&login);
                let made_up = MadeUp {
                    name: folded(&login),
                    secret: running.directory.decoy(),
                };
                let challenge = authenticator.scram_begin(now, request, peer, known, &made_up);
                running.gate.reply(challenge, out);
            }
            Call::ScramFinish(ask) => {
                let known = running.known_by_scram(&ask.login);
                authenticator.scram_finish(now, request, &ask, known, out);
            }
            Call::MaySend {
                account,
                addresses,
                begins,
            } => {
                let reply = if begins && !senders.begin(now, account) {
                    Reply::Failed(Failure::Throttled)
                } else {
                    let directory = &running.directory;
                    let foreign = addresses
                        .iter()
                        .position(|(local, domain)| !directory.may_send(&account.0, local, domain));
                    foreign.map_or(Reply::Done, Reply::NotYours)
                };
                running.gate.reply(Output::Reply(request, reply), out);
            }
            Call::Resolve { local, domain } => {
                let reply = running.resolve(&local, domain.as_deref());
                running
                    .gate
                    .reply(Output::Reply(request, Reply::Resolved(reply)), out);
            }
            _ => out.push_back(Output::Fatal(
                "a call that is not the directory's was routed to it".into(),
            )),
        }
    }

    /// An account's UIDVALIDITY has risen. What a failed commit loses is told again when the account is loaded again.
    fn raised(&mut self, now: Now, account: AccountId, uid_validity: u32) {
        let ticket = self.ticket();
        let DirectoryOwner {
            state: Phase::Running(running),
            out,
            ..
        } = self
        else {
            return;
        };
        let known = running.directory.account(&account.0);
        if running.failed || known.is_none_or(|entry| entry.uid_validity >= uid_validity) {
            return;
        }
        let op = Op::RaiseUidValidity {
            account: account.0,
            uid_validity,
        };
        let commit = running.apply(now, ticket, &[op]);
        out.push_back(Output::Commit(ticket, commit));
    }

    fn admin(&mut self, now: Now, request: RequestId, call: AdminCall) {
        let ticket = self.ticket();
        let DirectoryOwner {
            state: Phase::Running(running),
            authenticator,
            out,
            ..
        } = self
        else {
            return;
        };
        let answer = |refusal: Refusal| AdminReply::Refused(refusal.to_string());
        let directory = &running.directory;
        let planned = match call {
            AdminCall::AddAccount {
                address,
                verifier,
                scram,
                account,
            } => directory
                .plan_add_account(
                    &address,
                    account.0,
                    now.wall_seconds(),
                    Credential { verifier, scram },
                )
                .map(|ops| (ops, None)),
            AdminCall::RemoveAccount { address } => directory
                .plan_remove_account(&address)
                .map(|(ops, account)| (ops, Some(AccountId(account)))),
            AdminCall::SetVerifier {
                address,
                verifier,
                scram,
            } => directory
                .plan_set_credential(&address, Credential { verifier, scram })
                .map(|ops| (ops, None)),
            AdminCall::AddAlias { from, to } => {
                directory.plan_add_alias(&from, &to).map(|ops| (ops, None))
            }
            AdminCall::RemoveAlias { from, to } => directory
                .plan_remove_alias(&from, to.as_deref())
                .map(|ops| (ops, None)),
            AdminCall::ListAccounts => {
                let lines = directory
                    .accounts()
                    .map(|(account, entry, set_aside)| AccountLine {
                        address: entry.address.clone(),
                        account: AccountId(account),
                        created: entry.created,
                        set_aside,
                    });
                let reply = AdminReply::Accounts(lines.collect());
                return running.gate.reply(Output::AdminReply(request, reply), out);
            }
            AdminCall::ListAliases => {
                let reply = AdminReply::Aliases(
                    directory
                        .aliases()
                        .map(|(from, to, _)| (from.to_owned(), to.to_owned()))
                        .collect(),
                );
                return running.gate.reply(Output::AdminReply(request, reply), out);
            }
        };
        match planned {
            Ok(_) if running.failed => {
                out.push_back(Output::AdminReply(
                    request,
                    AdminReply::Refused("the disk takes no writes, try again later".into()),
                ));
            }
            Ok((mut ops, purge)) => {
                ops.extend(directory.plan_decoy(authenticator.decoy_secret()));
                let commit = running.apply(now, ticket, &ops);
                out.push_back(Output::Commit(ticket, commit));
                running
                    .purges
                    .extend(purge.map(|account| (ticket, account)));
                // One that was set aside may have come forward.
                out.extend(risen(&running.directory));
                running
                    .gate
                    .reply(Output::AdminReply(request, AdminReply::Done), out);
            }
            Err(refusal) => running
                .gate
                .reply(Output::AdminReply(request, answer(refusal)), out),
        }
    }
}

/// A login name such that all spellings of an account's name are one: a made-up salt must differ no more often than a real one.
fn folded(login: &str) -> String {
    let prepared = saslprep(login).map_or_else(|_| login.to_owned(), |name| name.to_string());
    match Address::parse(&prepared) {
        Ok(address) => address.to_string(),
        Err(_) => prepared.to_lowercase(),
    }
}

/// Owners are told again at each start until they have answered by [`Input::UidValidity`].
fn risen(directory: &Directory) -> impl Iterator<Item = Output> {
    directory
        .below_least()
        .map(|(account, least)| Output::LeastUidValidity(AccountId(account), least))
}

fn ticket_from(next: &mut u64) -> impl FnMut() -> Ticket {
    move || {
        *next += 1;
        Ticket(*next)
    }
}

impl Running {
    fn from_rows(origin: Incarnation, rows: &[(Vec<u8>, bytes::Bytes)]) -> Result<Self, String> {
        let mut directory = Directory::default();
        let mut log = Log::new(PartitionId::DIRECTORY, origin);
        for (key, value) in rows {
            if key == log::POSITION_KEY {
                log = Log::load(PartitionId::DIRECTORY, origin, value)
                    .map_err(|error| error.to_string())?;
            } else {
                directory
                    .load(key, value)
                    .map_err(|error| error.to_string())?;
            }
        }
        let (alone, config) = (BTreeSet::new(), peers::Config::default());
        let (id, ends, applied) = (PartitionId::DIRECTORY, log.ends(), log.applied());
        let shipping = Shipping::resume(config, id, origin, &alone, ends, applied)
            .map_err(|error| error.to_string())?;
        Ok(Running {
            directory,
            log,
            shipping,
            gate: Gate::default(),
            purges: BTreeMap::new(),
            failed: false,
        })
    }

    /// Seals, applies, and gives the commit with the rows that changed, to be handed out at once.
    fn apply(&mut self, now: Now, ticket: Ticket, ops: &[Op]) -> whimbrel_storage::Commit {
        // An operation list is short: an administrator's.
        let count = u32::try_from(ops.len()).unwrap_or(u32::MAX);
        let section = Section {
            subject: SUBJECT,
            counter: 0,
            count,
            ops: whimbrel_directory::op::encode(ops),
        };
        let reserved = self.log.reserve(now, count);
        let (batch, mut commit) = self.log.seal(&reserved, vec![section], Vec::new());
        for (index, op) in (0..).zip(ops) {
            for row in self.directory.apply(&batch.context(index), op) {
                let key = row.key().into();
                commit.mutations.push(match self.directory.row(&row) {
                    Some(value) => Mutation::Put {
                        key,
                        value: value.into(),
                    },
                    None => Mutation::Delete { key },
                });
            }
        }
        let then = Then::own(&commit, self.log.hash());
        self.shipping.committing(ticket, then);
        self.gate.submitted(ticket);
        commit
    }

    fn known(&self, login: &str) -> Option<Known> {
        let (account, entry) = if login.contains('@') {
            self.directory.holder(&Address::parse(login).ok()?)?
        } else {
            self.only_holder(login)?
        };
        Some(Known {
            account: AccountId(account),
            login: entry.address.clone(),
            verifier: entry.credential.value.verifier.clone(),
            scram: entry.credential.value.scram.clone(),
        })
    }

    /// Who logs in by the local part alone: the one account of that name. If a second domain has one, nobody.
    fn only_holder(&self, local: &str) -> Option<(AccountKey, &Account)> {
        let mut domains = self.directory.domains();
        let mut found = None;
        for (domain, _) in domains.by_ref().take(BARE_LOGIN_DOMAINS_MAX) {
            let holder = self.directory.holder(&Address::new(local, domain).ok()?);
            if holder.is_some() && found.is_some() {
                return None;
            }
            found = found.or(holder);
        }
        found.filter(|_| domains.next().is_none())
    }

    /// RFC 5802, 5.1: names are prepared with SASLprep before they are looked up.
    fn known_by_scram(&self, login: &str) -> Option<Known> {
        self.known(&saslprep(login).ok()?)
    }

    fn resolve(&self, local: &str, domain: Option<&str>) -> Resolution {
        let resolution = match domain {
            Some(domain) => self.directory.resolve(local, domain),
            None => self.directory.resolve_postmaster(),
        };
        match resolution {
            whimbrel_directory::Resolution::NoSuchUser => Resolution::NoSuchUser,
            whimbrel_directory::Resolution::NotOurs => Resolution::NotOurs,
            whimbrel_directory::Resolution::Loop => Resolution::Loop,
            whimbrel_directory::Resolution::Local(targets) => Resolution::Local(
                targets
                    .into_iter()
                    .map(|target| Target {
                        account: AccountId(target.account),
                        address: target.address,
                        detail: target.detail,
                    })
                    .collect(),
            ),
        }
    }

    /// What the account's own state is opened with.
    fn birth(&self, account: AccountId) -> Option<Birth> {
        let entry = self.directory.account(&account.0)?;
        Some(Birth {
            created: u32::try_from(entry.created).unwrap_or(u32::MAX),
            uid_validity: self.directory.uid_validity(&account.0)?,
        })
    }
}

impl Machine for DirectoryOwner {
    fn handle(&mut self, now: Now, input: Input) {
        if let (
            Phase::Loading { waiting, .. },
            Input::Call(..) | Input::Admin(..) | Input::AskBirth(_) | Input::UidValidity(..),
        ) = (&mut self.state, &input)
        {
            return waiting.push(input);
        }
        match input {
            Input::Call(request, call) => self.call(now, request, call),
            Input::Admin(request, call) => self.admin(now, request, call),
            Input::Loaded { ticket, rows, done } => self.loaded(now, ticket, rows, done),
            Input::LoadFailed(_, cause) => self.out.push_back(Output::Fatal(format!(
                "the directory cannot be read: {cause}"
            ))),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::Verified(ticket, matches) => {
                let DirectoryOwner {
                    state,
                    authenticator,
                    next_ticket,
                    out,
                    ..
                } = self;
                let still = |login: &str| match state {
                    Phase::Running(running) => running.known(login),
                    Phase::Loading { .. } => None,
                };
                authenticator.verified(
                    now,
                    ticket,
                    matches,
                    still,
                    &mut ticket_from(next_ticket),
                    out,
                );
            }
            Input::AskBirth(account) => {
                if let Phase::Running(running) = &self.state {
                    self.out
                        .push_back(Output::Birth(account, running.birth(account)));
                }
            }
            Input::UidValidity(account, uid_validity) => self.raised(now, account, uid_validity),
            Input::Birth(..)
            | Input::LeastUidValidity(..)
            | Input::Deliver { .. }
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::Finished(_)
            | Input::QueueRecovered
            | Input::Hangup(_)
            | Input::Purge(_)
            | Input::Peer(_)
            | Input::Time => {}
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn figures(&self, _now: Now) -> Figures {
        let Phase::Running(running) = &self.state else {
            return Figures::default();
        };
        Figures {
            directory_accounts: running.directory.accounts().count() as u64,
            directory_domains: running.directory.domains().count() as u64,
            logins_cached: self.authenticator.cached() as u64,
            ..Figures::default()
        }
    }
}
