//! The owner of some partitions: the mail of the accounts in them.
//!
//! One owner runs on one thread and holds the loaded accounts of its partitions. A call finds its account in memory or has it
//! loaded; a write is planned by `mailbox`, sealed into a batch, applied by the same `apply` that foreign batches take, and handed out as one
//! commit with the rows it changed; the answer waits in the partition's gate.
//!
//! Invariants:
//! - Commits of a partition are handed out in the order of their numbers.
//! - An answer leaves when the newest commit of its account that it saw is durable; UIDs and UIDNEXTs are announced in that commit.
//! - When a commit fails (full disk) all accounts of the partition are dropped and read again: memory is never ahead of the store.
//! - Accounts that no session watches are evicted, the longest unused first, when the budget is passed.
//!
//! Reading order: this file (phases, loading, writing, time), [`calls`] (what a call does), [`sent`], [`keys`], [`rows`].

mod batches;
mod calls;
mod collect;
pub mod keys;
mod rows;
mod sent;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
pub use whimbrel_crdt::Incarnation;
use whimbrel_crdt::{Dot, PartitionId, Section};
use whimbrel_mailbox::{
    AccountId, At, EntryTag, MailboxName, Op, Peers, Renewal, Replica, RowKey, SpecialUse, Step,
};

pub use self::rows::blob_name;
pub(crate) use self::rows::holder;
use self::rows::{named_blob, push_row};
use crate::{
    api::{Call, Event, Failure, MailboxCall, Reply, SessionId},
    figures::Figures,
    gate::Gate,
    log::{self, Log},
    machine::{Birth, Input, Machine, Note, Now, Output, RequestId, Ticket},
};

/// What an owner is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's incarnation.
    pub origin: Incarnation,
    /// Its slot: the low bits of the UIDs it claims.
    pub slot: u8,
    /// Accounts in memory, in bytes: beyond it those that nobody watches are evicted. `storage.accounts_bytes_max`, divided by the owners.
    pub accounts_bytes_max: usize,
    /// Calls that wait for one account to be loaded: beyond, a client is told to try later. A limit of memory against a store that
    /// hangs. `limits.waiting_calls_max`.
    pub waiting_calls_max: usize,
    /// How often this node's slots have been used up: see [`whimbrel_mailbox::Renewal`].
    pub round: u32,
    /// How far an account's UIDs leap ahead when an older copy of the disk was put back. Not a key: smaller ones are for tests of what
    /// follows when it was not enough.
    pub lead: u32,
    /// How long a removed message's bytes stay, in seconds, so that a session which is reading them can end. `storage.collect_after`.
    pub collect_after_seconds: u64,
}

impl Config {
    fn renewal(&self) -> Renewal {
        Renewal {
            incarnation: self.origin,
            round: self.round,
            lead: self.lead,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            // Replaced by every driver; an incarnation is never zero.
            origin: Incarnation::from_hash(1),
            slot: 0,
            accounts_bytes_max: 64 << 20,
            waiting_calls_max: 1024,
            round: 0,
            lead: LEAD,
            collect_after_seconds: 60,
        }
    }
}

/// 2^18 UIDs, 0.4 % of all: more than an account is given, beyond one in 32 s, between a backup and the loss. It grows with the age of
/// the copy, to 3.5 % at most.
const LEAD: u32 = 1 << 18;

/// The owner of some partitions.
pub struct PartitionOwner {
    config: Config,
    partitions: BTreeMap<PartitionId, Partition>,
    accounts: BTreeMap<AccountId, Account>,
    sessions: BTreeMap<SessionId, Watch>,
    loads: BTreeMap<Ticket, Load>,
    /// Second copies of sent mail that are looked for.
    searches: sent::Searches,
    /// Commits under way.
    commits: BTreeMap<Ticket, PartitionId>,
    /// When which account is due for collection; one that is not due any more is passed over.
    due: BTreeSet<(u64, AccountId)>,
    /// Queue entries of which a delivery was made here and that may be handed out again.
    unfinished: BTreeSet<EntryTag>,
    /// Whether the queue has handed out again all that it held at the start.
    queue_recovered: bool,
    /// Memory of all loaded accounts, in bytes.
    bytes: usize,
    /// What was counted since the start.
    counted: Figures,
    next_ticket: u64,
    next_use: u64,
    out: VecDeque<Output>,
}

enum Partition {
    /// Its position is being read.
    Loading,
    Running(Box<Own>),
}

/// A partition in which we write.
struct Own {
    log: Log,
    gate: Gate,
    /// A commit failed: nothing more is accepted until those behind it have failed, too.
    failed: bool,
}

struct Account {
    partition: PartitionId,
    phase: Phase,
    /// What waits for it to be loaded.
    waiting: VecDeque<Input>,
    watchers: BTreeSet<SessionId>,
    /// The newest commit of the account.
    newest: Option<Ticket>,
    /// When removed messages are due to be dropped, on the monotonic clock.
    collect_at: Option<u64>,
    last_use: u64,
    bytes: usize,
}

enum Phase {
    /// Waits for its partition.
    Absent,
    Loading {
        rows: Vec<(RowKey, Vec<u8>)>,
    },
    /// Nothing is stored: the directory is asked.
    Asking,
    Running(Box<Replica>),
    /// Its rows are being removed.
    Purging,
}

/// What a load is for.
enum Load {
    Position(PartitionId),
    Rows(AccountId),
    Purge(AccountId),
    /// Of what may be a second copy of sent mail.
    Twin(Box<sent::Twin>),
}

/// A session that looks at a mailbox.
struct Watch {
    account: AccountId,
    name: MailboxName,
    /// Greatest UID it was told.
    known_up_to: u32,
    /// Up to which MODSEQ it was told what vanished.
    vanished_since: u64,
}

/// What every account is born with (RFC 6154), besides INBOX.
const DEFAULT_FOLDERS: [(&str, SpecialUse); 5] = [
    ("Drafts", SpecialUse::Drafts),
    ("Sent", SpecialUse::Sent),
    ("Archive", SpecialUse::Archive),
    ("Junk", SpecialUse::Junk),
    ("Trash", SpecialUse::Trash),
];

impl PartitionOwner {
    /// An owner that has loaded nothing yet. It owns whatever is routed to it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        PartitionOwner {
            config,
            partitions: BTreeMap::new(),
            accounts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            loads: BTreeMap::new(),
            searches: sent::Searches::default(),
            commits: BTreeMap::new(),
            due: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            queue_recovered: false,
            bytes: 0,
            counted: Figures::default(),
            next_ticket: 0,
            next_use: 0,
            out: VecDeque::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    // --- Loading -------------------------------------------------------------------------------------------------------

    /// Whether the account can be used now; else `input` waits for it, or is refused.
    fn ready(&mut self, account: AccountId, input: Input) -> Result<Input, ()> {
        let partition = keys::partition_of(account);
        if matches!(self.partitions.get(&partition), Some(Partition::Running(own)) if own.failed) {
            self.refuse(input, Failure::Storage);
            return Err(());
        }
        self.next_use += 1;
        let last_use = self.next_use;
        let waiting_calls_max = self.config.waiting_calls_max;
        let entry = self.accounts.entry(account).or_insert_with(|| Account {
            partition,
            phase: Phase::Absent,
            waiting: VecDeque::new(),
            watchers: BTreeSet::new(),
            newest: None,
            collect_at: None,
            last_use,
            bytes: 0,
        });
        entry.last_use = last_use;
        match entry.phase {
            Phase::Running(_) => return Ok(input),
            Phase::Absent | Phase::Loading { .. } | Phase::Asking | Phase::Purging => {
                if entry.waiting.len() >= waiting_calls_max {
                    self.refuse(input, Failure::Temporary);
                } else {
                    entry.waiting.push_back(input);
                }
            }
        }
        self.load(account);
        Err(())
    }

    fn load(&mut self, account: AccountId) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        if !matches!(entry.phase, Phase::Absent) {
            return;
        }
        let partition = entry.partition;
        match self.partitions.get(&partition) {
            Some(Partition::Running(_)) => {
                entry.phase = Phase::Loading { rows: Vec::new() };
                let (from, to) = keys::loaded_range(account);
                self.request(Load::Rows(account), partition, from, to);
            }
            Some(Partition::Loading) => {}
            None => {
                self.partitions.insert(partition, Partition::Loading);
                let from = log::POSITION_KEY.to_vec();
                let to = [log::POSITION_KEY, &[0]].concat();
                self.request(Load::Position(partition), partition, from, to);
            }
        }
    }

    fn request(&mut self, load: Load, partition: PartitionId, from: Vec<u8>, to: Vec<u8>) {
        let ticket = self.ticket();
        self.loads.insert(ticket, load);
        self.out.push_back(Output::Load {
            ticket,
            partition,
            from,
            to,
        });
    }

    fn loaded_page(&mut self, now: Now, ticket: Ticket, page: Vec<(Vec<u8>, Bytes)>, done: bool) {
        match self.loads.get(&ticket) {
            None => {}
            Some(Load::Position(partition)) => {
                let partition = *partition;
                self.loads.remove(&ticket);
                self.position_loaded(partition, page.first().map(|(_, value)| value));
            }
            Some(Load::Rows(account)) => {
                let account = *account;
                if done {
                    self.loads.remove(&ticket);
                }
                self.rows_loaded(now, account, page, done);
            }
            Some(Load::Purge(account)) => {
                let account = *account;
                if done {
                    self.loads.remove(&ticket);
                }
                self.purge_page(account, page, done);
            }
            Some(Load::Twin(_)) => {
                if let Some(Load::Twin(twin)) = self.loads.remove(&ticket) {
                    self.twin_loaded(now, &twin, &page);
                }
            }
        }
    }

    fn position_loaded(&mut self, partition: PartitionId, record: Option<&Bytes>) {
        let log = match record {
            None => Log::new(partition, self.config.origin),
            Some(record) => match Log::load(partition, self.config.origin, record) {
                Ok(log) => log,
                Err(error) => return self.out.push_back(Output::Fatal(error.to_string())),
            },
        };
        let own = Own {
            log,
            gate: Gate::default(),
            failed: false,
        };
        self.partitions
            .insert(partition, Partition::Running(Box::new(own)));
        let waiting: Vec<AccountId> = self
            .accounts
            .iter()
            .filter(|(_, entry)| entry.partition == partition)
            .map(|(id, _)| *id)
            .collect();
        for account in waiting {
            self.load(account);
        }
    }

    fn rows_loaded(
        &mut self,
        now: Now,
        account: AccountId,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Phase::Loading { rows } = &mut entry.phase else {
            return;
        };
        for (key, value) in page {
            match keys::row_of_key(&key) {
                Ok(row) => rows.push((row, value.to_vec())),
                Err(error) => return self.broken(account, &error.to_string()),
            }
        }
        if !done {
            return;
        }
        if rows.is_empty() {
            entry.phase = Phase::Asking;
            self.out.push_back(Output::AskBirth(account));
            return;
        }
        let rows = std::mem::take(rows);
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        match Replica::load(account, self.config.slot, rows, own.log.applied()) {
            Ok(replica) => self.run(now, account, replica, Vec::new()),
            Err(error) => self.broken(account, &error.to_string()),
        }
    }

    fn born(&mut self, now: Now, account: AccountId, birth: Option<Birth>) {
        match self.accounts.get(&account) {
            Some(entry) if matches!(entry.phase, Phase::Asking) => {}
            _ => return,
        }
        let Some(birth) = birth else {
            return self.gone(account);
        };
        let mut replica = Replica::new(account, self.config.slot);
        replica.begin(&self.config.renewal());
        // These are valid names: a test opens an account.
        let folders: Vec<_> = DEFAULT_FOLDERS
            .iter()
            .filter_map(|(name, special_use)| {
                Some((MailboxName::new(name).ok()?, Some(*special_use)))
            })
            .collect();
        let ops = replica
            .plan_open(birth.created, birth.uid_validity, &folders)
            .ops;
        self.run(now, account, replica, ops);
    }

    /// The account is in memory: makes the operations due, then takes up what waits.
    fn run(&mut self, now: Now, account: AccountId, mut replica: Replica, mut ops: Vec<Op>) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        // What waited for other replicas when it was stored need not wait now: there are none.
        replica.release(own.log.hlc().last(), &Peers::none());
        let at = At {
            now_micros: now.wall_micros,
            next: Dot::new(own.log.origin(), own.log.next()),
        };
        let renewal = self.config.renewal();
        let mut first = Vec::new();
        if replica.needs_renewal(&renewal) {
            // An older copy of the disk was put back. What is late is claimed again after this, in the same call.
            let plan = replica.plan_renewal(&at, &renewal);
            replica.renew(
                &renewal,
                plan.outcome,
                own.log.hlc().last().max(now.wall_micros),
            );
            ops = plan.ops;
            for (row, value) in replica.take_first_rows(plan.outcome) {
                push_row(&mut first, account, &row, value);
            }
        } else if ops.is_empty() {
            // A crash may have come between a RENAME and the claims that follow from it.
            ops = replica.plan_late(&at, &Peers::none()).ops;
        }
        if replica.epoch() > 0 {
            // The directory may have missed it.
            self.out
                .push_back(Output::UidValidity(account, replica.uidvalidity()));
        }
        self.counted.accounts_loads += 1;
        let hidden = replica.hidden() > 0;
        entry.phase = Phase::Running(Box::new(replica));
        let waiting = std::mem::take(&mut entry.waiting);
        if hidden {
            // Removed before the last stop, and not yet collected.
            self.collect_soon(now, account);
        }
        self.write_rows(account, first);
        self.write(now, account, ops, &[]);
        for input in waiting {
            self.handle(now, input);
        }
    }

    /// The account's rows cannot be read: it is not served, and the log says why. Nothing is overwritten.
    fn broken(&mut self, account: AccountId, cause: &str) {
        self.out.push_back(Output::Log(Note::Warning(format!(
            "account {account} cannot be loaded: {cause}"
        ))));
        self.drop_account(account, Failure::NoSuchAccount);
    }

    /// There is no such account (any more).
    fn gone(&mut self, account: AccountId) {
        self.drop_account(account, Failure::NoSuchAccount);
    }

    fn drop_account(&mut self, account: AccountId, failure: Failure) {
        let Some(entry) = self.accounts.remove(&account) else {
            return;
        };
        self.bytes -= entry.bytes;
        for session in entry.watchers {
            self.sessions.remove(&session);
            self.out.push_back(Output::Notify(session, Event::Shutdown));
        }
        for input in entry.waiting {
            self.refuse(input, failure);
        }
    }

    fn refuse(&mut self, input: Input, failure: Failure) {
        match input {
            Input::Call(request, _) => self
                .out
                .push_back(Output::Reply(request, Reply::Failed(failure))),
            // The account does not exist: nobody will ever take this delivery.
            Input::Deliver { ticket, .. } if failure == Failure::NoSuchAccount => {
                self.out.push_back(Output::Delivered(ticket))
            }
            Input::Deliver { ticket, .. } => self.out.push_back(Output::NotDelivered(ticket)),
            _ => {}
        }
    }

    // --- Writing -------------------------------------------------------------------------------------------------------

    /// Applies operations of our own and hands out the commits that hold them: one for these and one for each round of claims made again that
    /// they cause. Names in `announce` are about to be told.
    /// `lazy` if nobody waits for it, unless a session watches the account, which asks at once.
    fn write_for(
        &mut self,
        now: Now,
        account: AccountId,
        mut ops: Vec<Op>,
        announce: &[&MailboxName],
        lazy: bool,
    ) {
        loop {
            let Some(entry) = self.accounts.get_mut(&account) else {
                return;
            };
            let Phase::Running(replica) = &mut entry.phase else {
                return;
            };
            let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
                return;
            };
            let mut sealed = None;
            let mut late = false;
            let epoch = ops.iter().any(|op| matches!(op, Op::Epoch { .. }));
            if !ops.is_empty() {
                let count = u32::try_from(ops.len()).unwrap_or(u32::MAX);
                let encoded = Op::encode_all(&ops);
                let blobs = ops.iter().filter_map(named_blob).collect();
                for op in &ops {
                    if let Op::Claim { claims, .. } = op {
                        self.counted.claims_again += claims.len() as u64;
                    }
                }
                let reserved = own.log.reserve(now, count);
                let peers = Peers::none();
                let step = Step {
                    origin: own.log.origin(),
                    first: reserved.first,
                    hlc: reserved.hlc,
                    deps: &reserved.deps,
                    applied: own.log.applied(),
                    now_micros: own.log.hlc().last(),
                    peers: &peers,
                };
                let effects = match replica.apply(&step, std::mem::take(&mut ops)) {
                    Ok(effects) => effects,
                    Err(error) => {
                        // Own operations are planned from this very state: a defect; going on could lose mail.
                        return self
                            .out
                            .push_back(Output::Fatal(format!("account {account}: {error}")));
                    }
                };
                late = effects.late;
                for session in &entry.watchers {
                    if self
                        .sessions
                        .get(session)
                        .is_some_and(|watch| effects.changed.contains(&watch.name))
                    {
                        self.out.push_back(Output::Notify(*session, Event::Changed));
                    }
                }
                if epoch {
                    // A session cannot be told of it (RFC 9051, 2.3.1.1): it ends.
                    for session in std::mem::take(&mut entry.watchers) {
                        self.sessions.remove(&session);
                        self.out.push_back(Output::Notify(session, Event::Shutdown));
                    }
                    self.out
                        .push_back(Output::Log(Note::NewUidValidity(account)));
                    self.out
                        .push_back(Output::UidValidity(account, replica.uidvalidity()));
                }
                let section = Section {
                    subject: account.0,
                    counter: replica.counter(),
                    count,
                    ops: encoded,
                };
                sealed = Some(own.log.seal(&reserved, vec![section], blobs).1);
            }
            if !late {
                for name in announce {
                    replica.announce(name);
                }
            }
            let mut mutations = Vec::new();
            for (row, value) in replica.take_dirty() {
                push_row(&mut mutations, account, &row, value);
            }
            let bytes = replica.memory_bytes();
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
            if sealed.is_some() || !mutations.is_empty() {
                let mut commit = sealed.unwrap_or_else(|| own.log.commit());
                // Marks alone: looking works on a full disk.
                commit.from_reserve = commit.entry.is_none();
                commit.mutations.extend(mutations);
                commit.lazy = lazy && entry.watchers.is_empty();
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                entry.newest = Some(ticket);
                own.gate.submitted(ticket);
                self.commits.insert(ticket, entry.partition);
                self.out.push_back(Output::Commit(ticket, commit));
            }
            if late {
                let at = At {
                    now_micros: now.wall_micros,
                    next: Dot::new(own.log.origin(), own.log.next()),
                };
                ops = replica.plan_late(&at, &Peers::none()).ops;
                if !ops.is_empty() {
                    continue;
                }
                // Late, and nothing can be done: tell all the same.
                if announce.is_empty() {
                    return;
                }
                return self.write_for(now, account, Vec::new(), announce, lazy);
            }
            return;
        }
    }

    /// Lets an answer out when what it saw of the account is durable.
    fn answer(&mut self, account: AccountId, answer: Output) {
        let newest = self.accounts.get(&account).and_then(|entry| entry.newest);
        match self.partitions.get_mut(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.gate.reply_after(newest, answer, &mut self.out),
            _ => self.out.push_back(answer),
        }
    }

    fn committed(&mut self, ticket: Ticket, done: bool) {
        let Some(partition) = self.commits.remove(&ticket) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
            return;
        };
        if done {
            own.gate.committed(ticket, &mut self.out);
        } else {
            own.failed = true;
            own.gate.failed(ticket, &mut self.out);
        }
        let reset = own.failed && own.gate.is_idle();
        self.search_twins(ticket, done);
        if reset {
            self.reset(partition);
        }
    }

    /// After a failed commit: forgets the partition and its accounts; whoever comes next has them read again. Sessions keep watching.
    fn reset(&mut self, partition: PartitionId) {
        self.partitions.remove(&partition);
        self.loads.retain(|_, load| match load {
            Load::Position(id) => *id != partition,
            Load::Rows(account) | Load::Purge(account) => keys::partition_of(*account) != partition,
            // It looks its account up again, and finds it or not.
            Load::Twin(_) => true,
        });
        let affected: Vec<AccountId> = self
            .accounts
            .iter()
            .filter(|(_, entry)| entry.partition == partition)
            .map(|(id, _)| *id)
            .collect();
        for account in affected {
            let Some(entry) = self.accounts.get_mut(&account) else {
                continue;
            };
            self.bytes -= entry.bytes;
            entry.bytes = 0;
            entry.newest = None;
            let purging = matches!(entry.phase, Phase::Purging);
            entry.phase = Phase::Absent;
            if purging {
                self.purge(account);
            } else if !entry.waiting.is_empty() {
                self.load(account);
            } else if entry.watchers.is_empty() {
                self.accounts.remove(&account);
            }
        }
    }

    // --- Time and memory -----------------------------------------------------------------------------------------------

    /// Drops accounts that nobody watches, the longest unused first, until the budget is kept.
    fn evict(&mut self) {
        while self.bytes > self.config.accounts_bytes_max {
            let hard = self.bytes > 2 * self.config.accounts_bytes_max;
            let idle = self.accounts.iter().filter(|(_, entry)| {
                matches!(entry.phase, Phase::Running(_))
                    && entry.watchers.is_empty()
                    && entry.waiting.is_empty()
                    && (hard || entry.collect_at.is_none())
                    && !self.is_writing(entry)
            });
            let Some(account) = idle
                .min_by_key(|(_, entry)| entry.last_use)
                .map(|(id, _)| *id)
            else {
                return;
            };
            if let Some(entry) = self.accounts.remove(&account) {
                self.bytes -= entry.bytes;
                self.counted.accounts_evicted += 1;
            }
        }
    }

    /// Whether a commit of the account is under way: what is read from the store would be older than it.
    fn is_writing(&self, entry: &Account) -> bool {
        entry
            .newest
            .is_some_and(|newest| self.commits.contains_key(&newest))
    }

    fn hangup(&mut self, session: SessionId) {
        let Some(watch) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(entry) = self.accounts.get_mut(&watch.account) {
            entry.watchers.remove(&session);
        }
    }

    fn mailbox_call(
        &mut self,
        now: Now,
        request: RequestId,
        account: AccountId,
        call: MailboxCall,
    ) {
        let input = Input::Call(request, Call::Mailbox { account, call });
        let Ok(Input::Call(request, Call::Mailbox { call, .. })) = self.ready(account, input)
        else {
            return;
        };
        self.epoch_if_due(now, account, 0);
        let reply = match self.carry_out(now, account, call) {
            Ok(reply) => reply,
            Err(failure) => Reply::Failed(failure),
        };
        self.answer(account, Output::Reply(request, reply));
    }
}

impl Machine for PartitionOwner {
    fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Call(request, Call::Mailbox { account, call }) => {
                self.mailbox_call(now, request, account, call)
            }
            Input::Call(..)
            | Input::Admin(..)
            | Input::AskBirth(_)
            | Input::UidValidity(..)
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::Verified(..) => {
                self.out.push_back(Output::Fatal(
                    "an input that is not a partition owner's was routed to one".into(),
                ));
            }
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::LoadFailed(ticket, cause) => self.load_failed(ticket, &cause),
            Input::Committed(ticket) => self.committed(ticket, true),
            Input::CommitFailed(ticket) => self.committed(ticket, false),
            Input::Birth(account, birth) => self.born(now, account, birth),
            Input::LeastUidValidity(account, least) => {
                if self
                    .ready(account, Input::LeastUidValidity(account, least))
                    .is_ok()
                {
                    self.epoch_if_due(now, account, least);
                }
            }
            Input::Deliver {
                ticket,
                entry,
                index,
            } => self.deliver(now, ticket, entry, index),
            Input::Finished(entry) => {
                self.unfinished.remove(&entry.tag());
            }
            Input::QueueRecovered => self.queue_recovered = true,
            Input::Hangup(session) => self.hangup(session),
            Input::Purge(account) => self.purge(account),
            Input::Time => self.collect_due(now),
        }
        self.evict();
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn figures(&self, _now: Now) -> Figures {
        let running = |entry: &&Account| matches!(entry.phase, Phase::Running(_));
        let logs = self
            .partitions
            .values()
            .filter_map(|partition| match partition {
                Partition::Running(own) => Some(own.log.next() - 1),
                Partition::Loading => None,
            });
        Figures {
            accounts_loaded: self.accounts.values().filter(running).count() as u64,
            accounts_bytes: self.bytes as u64,
            watchers: self.sessions.len() as u64,
            log_partitions: logs.clone().count() as u64,
            log_operations: logs.sum(),
            ..self.counted.clone()
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }
}
