//! The owner of the directory partition: who has an account, who receives mail for an address, who may log in.
//!
//! The state is whole in memory. A change is planned against it, sealed, committed and applied; its answer waits until it is on disk, and so do the
//! answers of later questions, since they may have seen it. Every node has the whole directory, and each may change it: what others changed comes in
//! as batches ([`remote_batches`]), or as a state where logs were cut ([`snapshot`]).
//!
//! size: one machine, whose inputs all meet its one state.

mod decoys;
mod remote_batches;
mod snapshot;
mod uidvalidity_bump;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId, Section, mutants::broken};
use whimbrel_directory::{Account, AccountKey, Address, Credential, Directory, Op, Refusal};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::partition::{Membership, Resume};
use whimbrel_storage::Mutation;

use crate::{
    admin::{AccountLine, AdminCall, AdminReply},
    api::{Asker, Call, Failure, Reply, Resolution, Target},
    auth::{Authenticator, Credentials},
    figures::Figures,
    gate::Gate,
    log::{self, Log},
    machine::{AccountOrigin, AccountStatus, Input, Machine, Now, Output, RequestId, Ticket},
    owner::keys::{is_coming, key_of_coming},
    peers::{
        self, Ends, Frame, Holders, LogEnd, OnDurable, PartitionReport, PeerOutput,
        READ_AGAIN_MICROS, Shipping,
        log_reads::LogReads,
        singleton_snapshot::{Coming, Giving, StoredSnapshots},
        snapshot::Joined,
    },
    saslprep::saslprep,
    senders::{self, Senders},
    stamps::Stamps,
    tally::Tally,
};

/// With more domains than this a login without a domain leads nowhere: each is tried, and strangers ask.
const BARE_LOGIN_DOMAINS_MAX: usize = 64;

/// The subject of the directory's sections: there is one directory.
const SUBJECT: [u8; 16] = *b"whimbrel direct.";

/// What the directory's owner is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's incarnation.
    pub origin: Incarnation,
    /// Its slot: which of the UIDVALIDITYs it gives, so that no other node gives the same.
    pub slot: u8,
    /// The other nodes. Empty: this node is alone.
    pub peers: BTreeSet<Incarnation>,
    /// Who holds which partition of accounts.
    pub holders: Holders,
    /// Whether it belongs to a cluster, perhaps as the only one: the store says then where the logs stand.
    pub in_cluster: bool,
    /// Whether it came to its cluster with an empty disk: then nobody is answered before it has what another node had.
    pub syncing: bool,
    /// Bounds and times of what goes to and comes from them.
    pub shipping: peers::Config,
}

impl Config {
    /// Of a node that is alone.
    #[must_use]
    pub fn alone(origin: Incarnation, slot: u8) -> Self {
        Config {
            origin,
            slot,
            peers: BTreeSet::new(),
            holders: Holders::default(),
            in_cluster: false,
            syncing: false,
            shipping: peers::Config::default(),
        }
    }
}

/// What bounds how many addresses strangers find out by naming recipients. Keys in `[smtp]`.
#[derive(Clone, Debug)]
pub struct ProbeLimits {
    /// Unknown recipients of one peer (an IPv4 address or an IPv6 /64) within the window, over all its connections, before it is not answered.
    /// `smtp.unknown_recipients_per_address_max`.
    pub unknown_max: u32,
    /// How long they count, in seconds. `smtp.unknown_recipients_window`.
    pub window_seconds: u64,
    /// Peers that are remembered. `auth.peers_max`.
    pub peers_max: usize,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        ProbeLimits {
            unknown_max: 200,
            window_seconds: 3600,
            peers_max: 16 * 1024,
        }
    }
}

/// Recipients that nobody knows, by who named them.
struct Probes {
    unknown_max: u32,
    tally: Tally,
}

impl Probes {
    fn new(limits: &ProbeLimits) -> Self {
        Probes {
            unknown_max: limits.unknown_max,
            tally: Tally::new(limits.peers_max, limits.window_seconds),
        }
    }
}

/// The directory's owner.
pub struct DirectoryOwner {
    config: Config,
    /// The clock by which it writes.
    stamps: Stamps,
    state: Phase,
    authenticator: Authenticator,
    senders: Senders,
    probes: Probes,
    /// Nodes to which there is a stream.
    links: BTreeSet<Incarnation>,
    /// Nodes of whose logs there is no more than is here.
    closed: Ends,
    /// Logs that are being read for the partition's machine.
    reads: LogReads,
    /// Reads that failed are tried again then.
    retry_at: Option<u64>,
    /// States that are given.
    giving: Giving,
    /// Accounts that have reached their quota, as far as their owners have said so since the start.
    full: BTreeSet<AccountId>,
    /// How many were taken since the start.
    snapshots_received: u64,
    /// Answers to owners that wait until what they tell is durable, in the order of the commits.
    standings: VecDeque<(Ticket, AccountId, AccountStatus)>,
    next_ticket: u64,
    out: VecDeque<Output>,
}

enum Phase {
    Loading(Loading),
    Running(Box<Running>),
}

/// The rows are being read; questions wait.
struct Loading {
    ticket: Ticket,
    rows: Vec<(Vec<u8>, bytes::Bytes)>,
    /// Whether these are all.
    read: bool,
    /// Where the logs stand; the store is not asked where there are no peers.
    logs: Option<Option<BTreeMap<Incarnation, LogEnd>>>,
    waiting: Vec<Input>,
    /// What peers sent meanwhile.
    frames: Vec<(Incarnation, Frame)>,
    /// It was read before, until a commit failed: on the streams that are there all is said again.
    anew: bool,
    /// It has waited since.
    waited: bool,
    /// The store could not read all: it is asked again in a while.
    failed: bool,
}

struct Running {
    directory: Directory,
    log: Log,
    shipping: Shipping,
    gate: Gate,
    /// A state that comes.
    coming: Coming,
    /// Its rows.
    theirs: Directory,
    /// What follows from a commit when it is durable.
    follows: BTreeMap<Ticket, Vec<Output>>,
    left_to: uidvalidity_bump::LeftTo,
    /// What it does of itself when it has read all, and has not done yet since a commit was refused a moment ago.
    begins: bool,
    /// Rows that are of no use.
    gone: Vec<Mutation>,
    /// A batch of another node cannot be applied by this program: nothing behind it is.
    stalled: bool,
    /// This node has not yet all that others had when it was new.
    syncing: bool,
    /// The commit that says that it has.
    growing: Option<Ticket>,
    /// A commit failed: everything is read again when the ones behind it have failed, too.
    failed: bool,
}

impl DirectoryOwner {
    /// Begins by reading its rows.
    #[must_use]
    pub fn new(config: Config, authenticator: Authenticator) -> Self {
        let mut owner = DirectoryOwner {
            config,
            stamps: Stamps::default(),
            state: Phase::Loading(Loading::new(Ticket(0))),
            authenticator,
            senders: Senders::new(senders::Limits::default()),
            probes: Probes::new(&ProbeLimits::default()),
            links: BTreeSet::new(),
            closed: Ends::new(),
            reads: LogReads::default(),
            retry_at: None,
            giving: Giving::new(PartitionId::DIRECTORY),
            full: BTreeSet::new(),
            snapshots_received: 0,
            standings: VecDeque::new(),
            next_ticket: 0,
            out: VecDeque::new(),
        };
        owner.load();
        owner
    }

    /// With these bounds on what an account sends.
    #[must_use]
    pub fn with_senders(mut self, limits: senders::Limits) -> Self {
        self.senders = Senders::new(limits);
        self
    }

    /// With these bounds on what strangers find out.
    #[must_use]
    pub fn with_probes(mut self, limits: &ProbeLimits) -> Self {
        self.probes = Probes::new(limits);
        self
    }

    /// Reads all of it. With peers the store is asked for the logs, too; alone the position record says enough.
    fn load(&mut self) {
        let (ticket, partition) = (self.ticket(), PartitionId::DIRECTORY);
        let mut loading = Loading::new(ticket);
        if let Phase::Loading(before) = &mut self.state {
            loading.waiting = std::mem::take(&mut before.waiting);
            loading.frames = std::mem::take(&mut before.frames);
            (loading.anew, loading.waited) = (before.anew, before.waited);
        }
        self.out.push_back(Output::Load {
            ticket,
            partition,
            from: Vec::new(),
            to: vec![0xff],
        });
        if self.config.peers.is_empty() && !self.config.in_cluster {
            loading.logs = Some(None);
        } else {
            let load = PeerOutput::LoadLogs { ticket, partition };
            self.out.push_back(Output::Peer(load));
        }
        self.reads.forget(PartitionId::DIRECTORY);
        self.out.extend(self.giving.end());
        self.state = Phase::Loading(loading);
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn loaded_page(
        &mut self,
        now: Now,
        ticket: Ticket,
        page: Vec<(Vec<u8>, bytes::Bytes)>,
        done: bool,
    ) {
        if let Phase::Loading(loading) = &mut self.state
            && loading.ticket == ticket
        {
            loading.rows.extend(page);
            loading.read = done;
        }
        self.loaded(now);
    }

    /// Goes on if everything was read.
    fn loaded(&mut self, now: Now) {
        let Phase::Loading(loading) = &mut self.state else {
            return;
        };
        if !loading.read || loading.logs.is_none() {
            return;
        }
        let mut rows = loading.rows.iter();
        let joins = rows.any(|(key, _)| key == log::JOINING_KEY);
        if joins && loading.anew && !std::mem::replace(&mut loading.waited, true) {
            // It begins with commits, and answers nobody who has not seen them.
            self.retry_at = Some(now.mono_micros + READ_AGAIN_MICROS);
            return;
        }
        let Some(logs) = loading.logs.take() else {
            return;
        };
        let rows = std::mem::take(&mut loading.rows);
        let waiting = std::mem::take(&mut loading.waiting);
        let (frames, anew) = (std::mem::take(&mut loading.frames), loading.anew);
        match Running::from_rows(&self.config, &rows, logs) {
            Ok((mut running, joining, gone)) => {
                if let Some(held) = running.coming.held() {
                    running.shipping.hold(now, held.clone());
                }
                // A crash may have cut a purge short; one that is complete finds nothing.
                self.out.extend(
                    running
                        .directory
                        .removed()
                        .map(|account| Output::Purge(AccountId(account))),
                );
                running.gone = gone;
                self.state = Phase::Running(Box::new(running));
                if !anew {
                    self.begin();
                }
                if let Some(joined) = joining {
                    self.join_rows(&joined);
                }
            }
            Err(cause) => return self.out.push_back(Output::Fatal(cause)),
        }
        // Of what they waited for, some may be lost.
        for (_, account, _) in std::mem::take(&mut self.standings) {
            self.send_account_status(account);
        }
        self.link_loaded(now, frames, anew);
        for input in waiting {
            self.handle(now, input);
        }
    }

    fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        let follows = running.follows.remove(&ticket);
        if done {
            if !running.failed {
                running.shipping.committed(now, ticket);
                running.syncing &= running.growing.is_none_or(|after| after > ticket);
            }
            self.out.extend(follows.into_iter().flatten());
            running.gate.committed(ticket, &mut self.out);
        } else {
            running.failed = true;
            running.gate.failed(ticket, &mut self.out);
        }
        if running.failed && running.gate.is_idle() {
            return self.load_anew();
        }
        while done
            && let Some((_, account, account_status)) =
                self.standings.pop_front_if(|(after, ..)| *after <= ticket)
        {
            self.out
                .push_back(Output::AccountOrigin(account, account_status));
        }
        self.ship(now);
    }

    /// Answers an owner that asked for an account, when what is told of it is durable: a removal that is lost in a crash was none.
    fn send_account_status(&mut self, account: AccountId) {
        let (after, account_status) = match &self.state {
            Phase::Loading(loading) => (loading.ticket, AccountStatus::Unknown),
            Phase::Running(running) => {
                let account_status = running.account_status(account);
                match running.gate.newest() {
                    Some(newest) => (newest, account_status),
                    None => {
                        return self
                            .out
                            .push_back(Output::AccountOrigin(account, account_status));
                    }
                }
            }
        };
        self.standings.push_back((after, account, account_status));
    }

    fn call(&mut self, now: Now, request: RequestId, call: Call) {
        let DirectoryOwner {
            state: Phase::Running(running),
            authenticator,
            senders,
            probes,
            full,
            next_ticket,
            out,
            ..
        } = self
        else {
            return;
        };
        if running.is_syncing() {
            return out.push_back(Output::Reply(request, Reply::Failed(Failure::Temporary)));
        }
        match call {
            Call::Authenticate(ask) => {
                let looked = running.looked_up(&ask.login, authenticator);
                authenticator.begin(
                    now,
                    request,
                    ask,
                    looked,
                    &mut ticket_from(next_ticket),
                    out,
                );
            }
            Call::ScramBegin { login, peer } => {
                let (known, made_up) = running.known_or_made_up(&login, authenticator);
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
            Call::Resolve {
                local,
                domain,
                asker,
            } => {
                let seconds = now.mono_micros / 1_000_000;
                probes.tally.forget(seconds);
                let may_ask = match asker {
                    Asker::Front => true,
                    Asker::Stranger(peer) => probes.tally.of(peer) < probes.unknown_max,
                    Asker::Account(account) => senders.recipient(now, account),
                };
                if !may_ask {
                    let reply = Reply::Failed(Failure::Throttled);
                    return out.push_back(Output::Reply(request, reply));
                }
                let reply = running.resolve(&local, domain.as_deref(), full);
                if let (Resolution::NoSuchUser, Asker::Stranger(peer)) = (&reply, asker) {
                    probes.tally.count(seconds, peer);
                }
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
        // Of a removed account, too: whoever has its address now must not be taken for it.
        let known = running.directory.given(&account.0);
        if running.failed || known.is_none_or(|given| given >= uid_validity) {
            return;
        }
        let op = Op::RaiseUidValidity {
            account: account.0,
            uid_validity,
        };
        let commit = running.write(self.stamps.stamp(now), ticket, &[op]);
        out.push_back(Output::Commit(ticket, commit));
        self.raise_all();
    }

    fn admin(&mut self, now: Now, request: RequestId, call: AdminCall) {
        let ticket = self.ticket();
        let is_right = self.stamps.is_right(now);
        let DirectoryOwner {
            config,
            state: Phase::Running(running),
            authenticator,
            out,
            ..
        } = self
        else {
            return;
        };
        if running.is_syncing() {
            return out.push_back(Output::AdminReply(
                request,
                AdminReply::Refused(
                    "this node is new and has not yet all accounts: try again later, or on another node"
                        .into(),
                ),
            ));
        }
        let is_right = is_right && !running.shipping.is_held_back(now, &running.log);
        let answer = |refusal: Refusal| AdminReply::Refused(refusal.to_string());
        let directory = &running.directory;
        let planned = match call {
            AdminCall::AddAccount {
                address,
                verifier,
                scram,
                account,
            } => directory.plan_add_account(
                &address,
                account.0,
                now.wall_seconds(),
                config.slot,
                Credential { verifier, scram },
            ),
            AdminCall::RemoveAccount { address } => {
                directory.plan_remove_account(&address).map(|(ops, _)| ops)
            }
            AdminCall::SetVerifier {
                address,
                verifier,
                scram,
                keeps_sessions,
            } => {
                let credential = Credential { verifier, scram };
                directory.plan_set_credential(&address, credential, keeps_sessions)
            }
            AdminCall::SetQuota { address, change } => directory.plan_set_quota(&address, change),
            AdminCall::ShowQuota { address } => {
                let reply = directory.quota_of(&address);
                let reply = reply.map_or_else(answer, AdminReply::Quota);
                return running.gate.reply(Output::AdminReply(request, reply), out);
            }
            AdminCall::AddAlias { from, to, instead } => {
                directory.plan_add_alias(&from, &to, instead)
            }
            AdminCall::RemoveAlias { from, to } => {
                directory.plan_remove_alias(&from, to.as_deref())
            }
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
            Ok(_) if !is_right => {
                let refused = AdminReply::Refused(Failure::Clock.to_string());
                out.push_back(Output::AdminReply(request, refused));
            }
            Ok(mut ops) => {
                ops.extend(directory.plan_decoy(authenticator.decoy_secret()));
                let commit = running.write(now, ticket, &ops);
                out.push_back(Output::Commit(ticket, commit));
                running
                    .gate
                    .reply(Output::AdminReply(request, AdminReply::Done), out);
                // One that was set aside may have come forward.
                self.raise_all();
            }
            Err(refusal) => running
                .gate
                .reply(Output::AdminReply(request, answer(refusal)), out),
        }
    }
}

fn ticket_from(next: &mut u64) -> impl FnMut() -> Ticket {
    move || {
        *next += 1;
        Ticket(*next)
    }
}

impl Loading {
    fn new(ticket: Ticket) -> Self {
        Loading {
            ticket,
            rows: Vec::new(),
            read: false,
            logs: None,
            waiting: Vec::new(),
            frames: Vec::new(),
            anew: false,
            waited: false,
            failed: false,
        }
    }
}

impl Running {
    fn from_rows(
        config: &Config,
        rows: &[(Vec<u8>, bytes::Bytes)],
        logs: Option<BTreeMap<Incarnation, LogEnd>>,
    ) -> Result<(Self, Option<Joined>, Vec<Mutation>), String> {
        let (id, origin) = (PartitionId::DIRECTORY, config.origin);
        let mut directory = Directory::default();
        let mut log = Log::new(id, origin);
        let (mut found, mut joining) = (StoredSnapshots::default(), None);
        let mut syncing = config.syncing;
        for (key, value) in rows {
            if key == log::GROWN_KEY {
                syncing &= !log::has_grown(origin, value);
            } else if key == log::POSITION_KEY {
                log = Log::load(id, origin, value).map_err(|error| error.to_string())?;
            } else if key == log::JOINING_KEY {
                let joined = minicbor::decode::<Joined>(value);
                joining = Some(joined.map_err(|error| error.to_string())?);
            } else if !found.look(key, value) {
                directory
                    .load(key, value)
                    .map_err(|error| error.to_string())?;
            }
        }
        let (coming, gone) = found.settle(joining.as_ref().map(|of| of.state))?;
        let mut theirs = Directory::default();
        let came = rows.iter().filter(|(key, _)| is_coming(key));
        for (key, value) in came.map(|(key, value)| (key_of_coming(key), value)) {
            if coming.has(key) {
                theirs.load(key, value).map_err(|error| error.to_string())?;
            }
        }
        let ends = logs.unwrap_or_else(|| log.ends());
        let shipping = Shipping::resume(
            config.shipping,
            id,
            origin,
            Membership::of(config.peers.iter().copied().chain([origin])),
            Resume {
                logs: ends,
                applied: log.applied().clone(),
                stable: log.collected(),
                syncing,
                ..Resume::default()
            },
        )
        .map_err(|error| error.to_string())?;
        let running = Running {
            directory,
            log,
            shipping,
            gate: Gate::default(),
            coming,
            theirs,
            follows: BTreeMap::new(),
            left_to: BTreeMap::new(),
            begins: true,
            gone: Vec::new(),
            stalled: false,
            syncing,
            growing: None,
            failed: false,
        };
        Ok((running, joining, gone))
    }

    /// Whether others may know of accounts of which this node has not heard: an answer would be that there are none.
    fn is_syncing(&self) -> bool {
        self.syncing && !broken("syncing-answers")
    }

    /// Seals, applies, and gives the commit with the rows that changed, to be handed out at once.
    fn write(&mut self, now: Now, ticket: Ticket, ops: &[Op]) -> whimbrel_storage::Commit {
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
        let follows = self.apply(&batch, ops, &mut commit.mutations);
        if !follows.is_empty() {
            self.follows.insert(ticket, follows);
        }
        let then = OnDurable::own(&commit, self.log.hash());
        self.shipping.committing(ticket, then);
        self.gate.submitted(ticket);
        commit
    }

    fn known(&self, login: &str) -> Option<Credentials> {
        let (account, entry) = if login.contains('@') {
            self.directory.holder(&Address::parse(login).ok()?)?
        } else {
            self.only_holder(login)?
        };
        Some(Credentials {
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
    fn known_by_scram(&self, login: &str) -> Option<Credentials> {
        self.known(&saslprep(login).ok()?)
    }

    fn resolve(&self, local: &str, domain: Option<&str>, full: &BTreeSet<AccountId>) -> Resolution {
        let resolution = match domain {
            Some(domain) => self.directory.resolve(local, domain),
            None => self.directory.resolve_postmaster(),
        };
        match resolution {
            whimbrel_directory::Resolution::NoSuchUser => Resolution::NoSuchUser,
            whimbrel_directory::Resolution::NotOurs => Resolution::NotOurs,
            whimbrel_directory::Resolution::Loop => Resolution::Loop,
            whimbrel_directory::Resolution::Local(targets)
                if targets
                    .iter()
                    .all(|target| full.contains(&AccountId(target.account))) =>
            {
                Resolution::Full
            }
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

    /// What the account's own state is opened with, if it is there. Every node opens it alike, whatever else it knows: what has to be above an
    /// account that held the address before is told by [`Output::LeastUidValidity`].
    fn account_status(&self, account: AccountId) -> AccountStatus {
        match self.directory.account(&account.0) {
            Some(entry) => AccountStatus::Living(AccountOrigin {
                created: u32::try_from(entry.created).unwrap_or(u32::MAX),
                uid_validity: entry.born(),
                risen: entry.uid_validity,
            }),
            None if self.directory.was_removed(&account.0) => AccountStatus::Removed,
            None => AccountStatus::Unknown,
        }
    }
}

impl Machine for DirectoryOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.stamps.look(now);
        if let (
            Phase::Loading(_),
            Input::Call(..) | Input::Admin(..) | Input::UidValidity(..) | Input::Verified(..),
        ) = (&self.state, &input)
        {
            return self.put_off(input);
        }
        match input {
            Input::Call(request, call) => self.call(now, request, call),
            Input::Admin(request, call) => self.admin(now, request, call),
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::LoadFailed(ticket, cause) => {
                if !self.read_failed(now, ticket, &cause) {
                    self.out.push_back(Output::Fatal(format!(
                        "the directory cannot be read: {cause}"
                    )));
                }
            }
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
                    Phase::Loading(_) => None,
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
            Input::AskBirth(account) => self.send_account_status(account),
            Input::UidValidity(account, uid_validity) => self.raised(now, account, uid_validity),
            Input::Full(account, true) => {
                self.full.insert(account);
            }
            Input::Full(account, false) => {
                self.full.remove(&account);
            }
            Input::AccountOrigin(..)
            | Input::LeastUidValidity(..)
            | Input::Quota(..)
            | Input::Deliver { .. }
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::NotHere(_)
            | Input::Closed(_)
            | Input::Built(..)
            | Input::Closing(_)
            | Input::Swept { .. }
            | Input::Leaving(_)
            | Input::Hangup(_)
            | Input::Purge(_) => {}
            Input::Peer(input) => self.peer(now, input),
            Input::Time => self.time(now),
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<u64> {
        let Phase::Running(running) = &self.state else {
            return self.retry_at;
        };
        // One that failed does nothing by itself any more: its times would be over for ever.
        let times = [running.shipping.deadline(), running.late_at()];
        let times = times.into_iter().filter(|_| !running.failed);
        times.chain([self.retry_at]).flatten().min()
    }

    fn reports(&self) -> Vec<PartitionReport> {
        vec![PartitionReport {
            partition: PartitionId::DIRECTORY,
            open: match &self.state {
                Phase::Running(running) if !running.failed => Some(running.shipping.report()),
                _ => None,
            },
            blobs_missing: 0,
            accounts_stalled: 0,
            uids_reassigned: 0,
            syncing: match &self.state {
                Phase::Running(running) => running.is_syncing(),
                _ => self.config.syncing,
            },
            complete_at: BTreeSet::new(),
            left: None,
        }]
    }

    fn figures(&self, _now: Now) -> Figures {
        let states = Figures {
            snapshots_sent: self.giving.given,
            snapshots_received: self.snapshots_received,
            ..Figures::default()
        };
        let Phase::Running(running) = &self.state else {
            return states;
        };
        Figures {
            directory_accounts: running.directory.accounts().count() as u64,
            directory_domains: running.directory.domains().count() as u64,
            partitions_syncing: u64::from(running.is_syncing()),
            logins_cached: self.authenticator.cached() as u64,
            ..states
        }
    }
}
