//! The owner of some partitions: the mail of the accounts in them.
//!
//! One owner takes one input at a time and holds the loaded accounts of its partitions. A call finds its account in memory or has it
//! loaded; a write is planned by `mailbox`, sealed into a batch, applied by the same `apply` that foreign batches take, and forwarded out as one
//! commit with the rows it changed; the answer waits in the partition's gate.
//!
//! Invariants:
//! - Commits of a partition are forwarded out in the order of their numbers, those with batches of other nodes among them as they come.
//! - An answer leaves when the newest commit of its account that it saw is durable; UIDs and UIDNEXTs are announced in that commit.
//! - When a commit fails (full disk) all accounts of the partition are dropped and read again: memory is never ahead of the store.
//! - Accounts that no session watches are evicted, the longest unused first, when the budget is passed.
//!
//! Reading order: this file (phases, time), [`loading`] and [`building`], [`calls`] and [`looking`] (what a call does), [`writing`],
//! [`remote_batches`] (what other nodes did), [`split_commits`], [`reading`] (who else looks, and what waits for them), [`failover`] (clients that
//! come from another node), [`stalled_accounts`] (what cannot be done), [`snapshot`] and [`joining`] (rows in place of a log), [`syncing`] (a node
//! that is new), [`delivery_acks`] (deliveries that others must have), [`confirming`] (answers that wait for others), [`waiting`] (after a refused
//! commit), [`placement`] (who holds what), [`leaving`] and [`released`] (partitions that this node drops), [`collect`], [`sent_copies`], [`keys`],
//! [`rows`].

mod building;
mod calls;
mod collect;
mod confirming;
mod deferred_loads;
mod delivery_acks;
mod failover;
mod imports;
mod joining;
pub mod keys;
mod leaving;
mod loading;
mod looking;
mod memory;
mod missing_blobs;
mod notify;
mod pending_merge;
mod placement;
mod quota;
mod reading;
mod released;
mod remote_batches;
mod replication_budget;
mod rows;
mod sent_copies;
mod snapshot;
mod split_commits;
mod stalled_accounts;
mod syncing;
mod waiting;
mod writing;

pub use memory::LoadedAccounts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use whimbrel_crdt::Incarnation;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{
    AccountId, BlobName, EntryTag, MailboxName, Replica, RestoreRecovery, RowKey,
};

pub(crate) use self::missing_blobs::blob_of_batch;
pub(crate) use self::rows::holder;
pub(crate) use self::stalled_accounts::held_blobs;
pub use self::{imports::import_upload, rows::blob_name};
use crate::{
    api::{Call, Failure, MESSAGES_PER_CALL_MAX, MailboxId, Quota, Reply, SessionId},
    figures::Figures,
    gate::Gate,
    log::Log,
    machine::{Input, Machine, MinUidValidity, Now, Output, RequestId, Ticket},
    peers::{self, Ends, Frame, Holders, LeftReport, PartitionReport, Shipping},
    stamps::Stamps,
};
use whimbrel_replication::{announced::Announced, partition::Membership, readers::Readers, waits};

/// What an owner is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's incarnation.
    pub origin: Incarnation,
    /// Its slot: the low bits of the UIDs it claims.
    pub slot: u8,
    /// Accounts in memory, in bytes, of all owners of the node: beyond it those that nobody watches are evicted. `storage.accounts_bytes_max`.
    pub accounts_bytes_max: usize,
    /// How many owners the node has. `server.owners`.
    pub owners: usize,
    /// What each account may hold.
    pub quota: Quota,
    /// Calls that wait for one account to be loaded: beyond, a client is told to try later. A limit of memory against a store that
    /// hangs. `limits.waiting_calls_max`.
    pub waiting_calls_max: usize,
    /// How often this node's slots have been used up: see [`whimbrel_mailbox::RestoreRecovery`].
    pub round: u32,
    /// How far an account's UIDs leap ahead when an older copy of the disk was put back. Not a key: smaller ones are for tests of what
    /// follows when it was not enough.
    pub lead: u32,
    /// Messages that one call moves or removes: [`MESSAGES_PER_CALL_MAX`]. Not a key: smaller ones are for tests of what is cut.
    pub messages_per_call_max: usize,
    /// Bytes of rows that another node's batch changes in one commit. Not a key: smaller ones are for tests of what is cut.
    pub foreign_bytes_max: usize,
    /// How long a removed message's bytes stay, in seconds, so that a session which is reading them can end. `storage.collect_after`.
    pub collect_after_seconds: u64,
    /// The other members of its partitions, and their slots: nothing is forgotten before all of them have it. Empty: this node is alone.
    pub peers: BTreeMap<Incarnation, u8>,
    /// Which partitions the members hold.
    pub holders: Holders,
    /// This node leaves a partition only if so many others hold it: more than have to have what is accepted.
    pub holders_min: usize,
    /// Those that were members until their logs were closed, and the slots they had: clients that were at them may come at any time.
    pub former: BTreeMap<Incarnation, u8>,
    /// Whether it belongs to a cluster, perhaps as the only one: the store says then where the logs stand, those of nodes that were members among them.
    pub in_cluster: bool,
    /// Whether it came to its cluster with an empty disk, or goes on under a new incarnation, since it has lost something: then it serves of each
    /// partition nothing before it has what another node had.
    pub syncing: bool,
    /// Bounds and times of what goes to and comes from them.
    pub shipping: peers::Config,
    /// How much of it waits at once, of all partitions. `cluster.replication_buffer_bytes_max`.
    pub windows: peers::budget::Config,
    /// How long answers wait for other nodes, where calls ask for that (`cluster.write_timeout`), and how many of a partition at once.
    pub waits: waits::Config,
}

impl Config {
    /// The slot of which a member makes its claims, or made them when it was one: no other that it may be taken for has it now.
    fn slot_of(&self, member: Incarnation) -> Option<u8> {
        let has_it = |slot: &u8| *slot == self.slot || self.peers.values().any(|of| of == slot);
        let gone = || self.former.get(&member).filter(|slot| !has_it(slot));
        self.peers.get(&member).or_else(gone).copied()
    }

    /// Slots of all that are members beside this node, or were.
    fn slots_of_others(&self) -> BTreeSet<u8> {
        let all = self.peers.values().chain(self.former.values());
        all.copied().collect()
    }

    /// Whether nobody else has, or may have, what is here.
    fn is_alone(&self) -> bool {
        self.peers.is_empty() && !self.in_cluster
    }

    fn renewal(&self) -> RestoreRecovery {
        RestoreRecovery {
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
            owners: 1,
            quota: Quota::default(),
            waiting_calls_max: 1024,
            round: 0,
            lead: LEAD,
            messages_per_call_max: MESSAGES_PER_CALL_MAX,
            foreign_bytes_max: split_commits::BATCH_BYTES_MAX,
            collect_after_seconds: 60,
            peers: BTreeMap::new(),
            holders: Holders::default(),
            holders_min: 1,
            former: BTreeMap::new(),
            in_cluster: false,
            syncing: false,
            shipping: peers::Config::default(),
            windows: peers::budget::Config::default(),
            waits: waits::Config::default(),
        }
    }
}

/// 2^18 counters, 0.4 % of all: more than an account is given, beyond one in 32 s, between a backup and the loss. It grows with the age of
/// the copy, to 1.2 % at most.
const LEAD: u32 = 1 << 18;

/// The owner of some partitions.
pub struct PartitionOwner {
    config: Config,
    /// The clock by which it writes.
    stamps: Stamps,
    partitions: BTreeMap<PartitionId, Partition>,
    accounts: BTreeMap<AccountId, Account>,
    sessions: BTreeMap<SessionId, Watch>,
    loads: BTreeMap<Ticket, Load>,
    /// Second copies of sent mail that are looked for.
    searches: sent_copies::Searches,
    /// Commits under way.
    commits: BTreeMap<Ticket, PartitionId>,
    /// Bodies that are missing_blobs, in all partitions.
    lacked: BTreeSet<(BlobName, PartitionId)>,
    /// Bodies that have come, and the accounts that are loaded for it; and when they were here.
    arrived: BTreeMap<AccountId, BTreeMap<BlobName, u64>>,
    windows: replication_budget::Windows,
    /// Nodes to which there is a stream.
    links: BTreeMap<Incarnation, Link>,
    /// Nodes of whose logs there is no more than is here.
    closed: Ends,
    /// Deliveries that other nodes must have.
    spreads: delivery_acks::Spreads,
    /// Logs that are being read for a partition's machine.
    reads: BTreeMap<Ticket, remote_batches::Read>,
    /// Rows that are being read page by page.
    pages: BTreeMap<Ticket, snapshot::Pages>,
    /// Partitions of which the rows are being fixed for a peer.
    snapshots: BTreeMap<Ticket, (PartitionId, whimbrel_replication::partition::Ticket)>,
    /// Partitions of which accounts are being joined.
    joins: BTreeSet<PartitionId>,
    /// Partitions that wait to hand something to the store.
    stirred: BTreeSet<PartitionId>,
    /// When a partition is to be looked at again: one that has no deadline then is passed over.
    timers: BTreeSet<(u64, PartitionId)>,
    /// When an account no longer waits for other nodes: one that waits for another time is passed over.
    waits: BTreeSet<(u64, AccountId)>,
    /// Accounts with answers that are held.
    holding: BTreeSet<AccountId>,
    /// Accounts that have got watchers, or have lost some.
    looked: BTreeSet<AccountId>,
    /// Removals of accounts that wait for a commit: of what was written last, or of the last of the removal itself.
    purges: BTreeMap<(Ticket, AccountId), collect::Purge>,
    /// When which account is due for collection; one that is not due any more is passed over.
    due: BTreeSet<(u64, AccountId)>,
    /// Queue entries of which a delivery may be forwarded out, for the first time or again.
    unfinished: BTreeSet<EntryTag>,
    /// Queue entries of which deliveries have come, until they are about to go: their bodies are here.
    open: BTreeSet<EntryTag>,
    /// Whether the queue has forwarded out again all that it held at the start.
    queue_recovered: bool,
    /// Of what other nodes had in the queue until then all is known.
    caught_up: Option<u64>,
    /// What accounts may hold.
    quotas: quota::Quotas,
    /// Memory of loaded accounts.
    memory: memory::Memory,
    /// What was counted since the start.
    counted: Figures,
    /// Of that, claims made again, by partition.
    claims: BTreeMap<PartitionId, u64>,
    next_ticket: u64,
    next_use: u64,
    out: VecDeque<Output>,
}

/// A stream to another node.
#[derive(Clone, Copy)]
struct Link {
    /// How long the last round trip took, if it is known.
    round_trip: Option<u64>,
    /// What both can do.
    features: u64,
}

enum Partition {
    /// Its position is being read, and where its logs stand.
    Loading(Box<loading::Opening>),
    Running(Box<Own>),
    /// This node has left it, or is about to: nothing is served.
    Released(Box<released::Released>),
}

/// A partition in which we write.
struct Own {
    log: Log,
    shipping: Shipping,
    /// Who belongs to it, this node included, as the machine was told.
    members: BTreeMap<Incarnation, Membership>,
    /// Who else looks at accounts.
    readers: Readers,
    /// What each member has shown to its clients.
    announced: Announced,
    /// What is shown here.
    reporting: failover::Reporting,
    /// A takeover is being done.
    nobody_waits: bool,
    /// Counters of accounts that are looked at here, by the commit with which each is durable.
    counters: VecDeque<(Ticket, AccountId, u32)>,
    /// When it wants to be called.
    deadline: Option<u64>,
    /// Bodies that batches of other nodes name and that are not here: what names them is not shown.
    missing_blobs: missing_blobs::Lackings,
    /// Those that commits under way name.
    naming: BTreeMap<Ticket, Vec<BlobName>>,
    /// This node leaves the partition.
    leaving: Option<leaving::Leaving>,
    /// What peers are asked and told when one of the two leaves: the last of it.
    parting: BTreeMap<Incarnation, Frame>,
    /// What those who leave have, and which bodies that it names are not here.
    covering: BTreeMap<Incarnation, leaving::Covering>,
    /// How often this node has come back to the partition.
    generation: u32,
    /// What was written here and waits for other nodes, and what they want to know of theirs.
    confirming: confirming::Confirming,
    gate: Gate,
    /// It does nothing of itself before this time: a commit was refused, or reading from the store failed.
    retry_at: Option<u64>,
    /// Then it looks for the bodies that are missing_blobs.
    looks_late: bool,
    /// Accounts in which messages were late while the partition was syncing, or may be since their claims were refused.
    late: BTreeSet<AccountId>,
    /// Accounts in which something was claimed again by commits that are under way, or were a moment ago.
    claiming: BTreeSet<AccountId>,
    /// Accounts that cannot go on.
    stalled: BTreeMap<AccountId, stalled_accounts::Stalled>,
    /// What is given to and taken from other nodes in place of logs.
    states: snapshot::States,
    /// Whether this node has what clients may know.
    age: syncing::SyncState,
    /// What is stable, and was when the queue had not been heard of as far as now.
    settled: collect::StableBefore,
    /// A commit failed: nothing more is accepted until those behind it have failed, too.
    failed: bool,
    /// Which was the first.
    first_failed: Option<Ticket>,
}

struct Account {
    partition: PartitionId,
    phase: Phase,
    /// What waits for it to be loaded.
    waiting: VecDeque<Input>,
    watchers: BTreeSet<SessionId>,
    /// Answers for which it is not enough that what they tell is on disk here.
    held: Vec<reading::WaitingAnswer>,
    /// When something of it is shown although not all have heard of it, on the monotonic clock.
    wait_until: Option<u64>,
    /// The newest commit of the account.
    newest: Option<Ticket>,
    /// When removed messages are due to be dropped, on the monotonic clock.
    collect_at: Option<u64>,
    takeover_room: failover::TakeoverRoom,
    last_use: u64,
    measured: quota::Measured,
}

impl Account {
    fn new(partition: PartitionId) -> Self {
        Account {
            partition,
            phase: Phase::Absent,
            waiting: VecDeque::new(),
            watchers: BTreeSet::new(),
            held: Vec::new(),
            wait_until: None,
            newest: None,
            collect_at: None,
            takeover_room: failover::TakeoverRoom::default(),
            last_use: 0,
            measured: quota::Measured::default(),
        }
    }
}

enum Phase {
    /// Waits for its partition.
    Absent,
    Loading {
        rows: Vec<(RowKey, Vec<u8>)>,
        /// All were read, and it is being made of them.
        building: Option<Ticket>,
    },
    /// Nothing is stored: the directory is asked.
    Asking,
    /// Nothing is stored, and a batch of another node that is about to be applied names it.
    Unopened,
    /// The same, and the account was removed: what the batch does to it is dropped.
    Removed,
    /// It was read, and becomes the join of that and what came with a state.
    Joining(Box<joining::Coming>),
    /// It was stalled: what is held for it is being applied.
    Resuming(Box<Replica>),
    Running(Box<Replica>),
    /// Its rows are being removed.
    Purging,
}

/// What a load is for.
enum Load {
    Position(PartitionId),
    Logs(PartitionId),
    Rows(AccountId),
    Held(AccountId),
    Purge(AccountId),
    /// Of what may be a second copy of sent mail.
    Twin(Box<sent_copies::Twin>),
}

/// A session that looks at a mailbox.
struct Watch {
    account: AccountId,
    name: MailboxName,
    /// What the session was told it has selected.
    id: MailboxId,
    knows: SessionView,
    /// What it knows if this commit fails, and with it the last answer. A session asks one thing at a time.
    before: Option<(Ticket, SessionView)>,
}

/// What a session was told of the mailbox that it looks at.
#[derive(Clone, Copy)]
struct SessionView {
    /// The greatest UID.
    up_to: u32,
    /// Up to which MODSEQ what vanished.
    vanished_since: u64,
}

impl PartitionOwner {
    /// An owner that has loaded nothing yet. It owns whatever is routed to it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::beside(config, LoadedAccounts::default())
    }

    /// One of several owners of a node, which share the memory for accounts.
    #[must_use]
    pub fn beside(config: Config, loaded: LoadedAccounts) -> Self {
        PartitionOwner {
            windows: replication_budget::Windows::new(config.windows),
            quotas: quota::Quotas::new(config.quota.clone()),
            memory: memory::Memory::new(loaded, config.accounts_bytes_max, config.owners),
            config,
            stamps: Stamps::default(),
            partitions: BTreeMap::new(),
            accounts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            loads: BTreeMap::new(),
            searches: sent_copies::Searches::default(),
            commits: BTreeMap::new(),
            lacked: BTreeSet::new(),
            arrived: BTreeMap::new(),
            links: BTreeMap::new(),
            closed: Ends::new(),
            spreads: BTreeMap::new(),
            reads: BTreeMap::new(),
            pages: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            joins: BTreeSet::new(),
            stirred: BTreeSet::new(),
            timers: BTreeSet::new(),
            waits: BTreeSet::new(),
            holding: BTreeSet::new(),
            looked: BTreeSet::new(),
            purges: BTreeMap::new(),
            due: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            open: BTreeSet::new(),
            queue_recovered: false,
            caught_up: None,
            counted: Figures::default(),
            claims: BTreeMap::new(),
            next_ticket: 0,
            next_use: 0,
            out: VecDeque::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    // --- Time and memory -----------------------------------------------------------------------------------------------

    /// Drops accounts that nobody watches, the longest unused first, until the budget is kept.
    fn evict(&mut self) {
        while self.memory.is_over() {
            let hard = self.memory.is_far_over();
            let idle = self.accounts.iter().filter(|(_, entry)| {
                matches!(entry.phase, Phase::Running(_))
                    && entry.watchers.is_empty()
                    && entry.waiting.is_empty()
                    // Of each session one answer at most, and not for long.
                    && entry.held.is_empty()
                    && (hard || entry.wait_until.is_none())
                    && (hard || entry.collect_at.is_none())
                    && self.under_way(entry).is_none()
            });
            // What the next batch of another node needs was loaded for it.
            let idle = idle.filter(|(account, entry)| !self.is_next(entry.partition, **account));
            let Some(account) = idle
                .min_by_key(|(_, entry)| entry.last_use)
                .map(|(id, _)| *id)
            else {
                return;
            };
            if let Some(mut entry) = self.accounts.remove(&account) {
                entry.measured.forget(&mut self.memory);
                self.counted.accounts_evicted += 1;
                if let Phase::Running(replica) = entry.phase {
                    self.out.push_back(Output::Discard(replica));
                }
            }
        }
    }

    /// The newest commit of the account, if it is under way: what is read from the store would be older than it, and answers wait for it.
    fn under_way(&self, entry: &Account) -> Option<Ticket> {
        let newest = entry.newest;
        newest.filter(|newest| self.commits.contains_key(newest))
    }

    fn hangup(&mut self, session: SessionId) {
        let Some(watch) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(entry) = self.accounts.get_mut(&watch.account) {
            entry.watchers.remove(&session);
        }
        self.looked.insert(watch.account);
    }

    /// The directory has found a UIDVALIDITY too low. Where another node has raised it, it learns that of each that is asked.
    fn raise(&mut self, now: Now, account: AccountId, least: MinUidValidity) {
        let input = Input::LeastUidValidity(account, least);
        if self.ready(account, input).is_err() {
            return;
        }
        match self.replica(account).map(Replica::uidvalidity) {
            Ok(known) if known >= least.least => {
                self.out.push_back(Output::UidValidity(account, known));
            }
            _ => self.epoch_if_due(now, account, least.next),
        }
    }

    /// Whether the clock is right, and was when this node wrote in that partition last.
    fn takes_writes(&mut self, now: Now, account: AccountId) -> bool {
        let held_back = match self.partitions.get_mut(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.shipping.is_held_back(now, &own.log),
            _ => false,
        };
        self.stamps.is_right(now) && !held_back
    }

    fn mailbox_call(&mut self, now: Now, request: RequestId, account: AccountId, call: Call) {
        let input = Input::Call(request, call);
        let Ok(Input::Call(
            request,
            Call::Mailbox {
                call,
                uid_validity,
                other_nodes,
                ..
            },
        )) = self.ready(account, input)
        else {
            return;
        };
        self.epoch_if_due(now, account, 0);
        let target = reading::tells_uids_of(&call);
        let refused = call.writes() && !self.takes_writes(now, account);
        let confirm = self.to_be_confirmed(account, &call, other_nodes);
        if matches!(confirm, Err(Failure::TooFewNodes)) {
            self.counted.answers_too_few += 1;
        }
        let done = match (refused, confirm) {
            (true, _) => Err(Failure::Clock),
            (false, Err(failure)) => Err(failure),
            (false, Ok(confirm)) => self
                .is_of(account, uid_validity)
                .and_then(|()| self.carry_out(now, account, call))
                .map(|reply| (reply, confirm)),
        };
        let reply = match done {
            Ok((reply, confirm)) => {
                let confirm = confirm.and_then(|of| self.confirm(now, account, of));
                self.hold(account, request, target, reply, confirm)
            }
            Err(failure) => {
                self.warn_of_memory(account, &failure);
                Some(Reply::Failed(failure))
            }
        };
        if let Some(reply) = reply {
            self.answer(account, Output::Reply(request, reply));
        }
    }

    /// How a partition stands, if it is open, or being opened.
    #[must_use]
    pub fn report_on(&self, partition: PartitionId) -> Option<PartitionReport> {
        let of = self.partitions.get(&partition)?;
        Some(self.report_of(partition, of))
    }

    fn report_of(&self, partition: PartitionId, state: &Partition) -> PartitionReport {
        let own = match state {
            Partition::Running(own) => Some(own),
            _ => None,
        };
        let count = |of: fn(&Own) -> usize| own.map_or(0, |own| of(own) as u64);
        PartitionReport {
            partition,
            open: own
                .filter(|own| !own.failed)
                .map(|own| own.shipping.report()),
            blobs_missing: count(|own| own.missing_blobs.len()),
            accounts_stalled: count(|own| own.stalled.len()),
            uids_reassigned: self.claims.get(&partition).copied().unwrap_or(0),
            syncing: own.map_or(self.config.syncing, |own| own.is_syncing()),
            complete_at: own.map_or_else(BTreeSet::new, |own| self.complete_at(own)),
            left: match state {
                Partition::Released(left) => Some(LeftReport {
                    end: left.end,
                    is_gone: left.is_gone(),
                }),
                _ => None,
            },
            keeps: BTreeSet::new(),
        }
    }
}

impl Machine for PartitionOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.stamps.look(now);
        match input {
            Input::Call(request, call @ Call::Mailbox { account, .. }) => {
                self.mailbox_call(now, request, account, call)
            }
            Input::Call(..)
            | Input::Admin(..)
            | Input::AskBirth(_)
            | Input::UidValidity(..)
            | Input::Full(..)
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::NotHere(_)
            | Input::Verified(..) => {
                self.out.push_back(Output::Fatal(
                    "an input that is not a partition owner's was routed to one".into(),
                ));
            }
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::Built(ticket, built) => self.built(now, ticket, built),
            Input::LoadFailed(ticket, cause) => self.load_failed(now, ticket, &cause),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::AccountOrigin(account, birth) => self.born(now, account, birth),
            Input::LeastUidValidity(account, least) => self.raise(now, account, least),
            Input::Quota(account, quota) => self.set_quota(account, quota),
            Input::Deliver {
                ticket,
                entry,
                index,
                others,
            } => {
                self.open.insert(entry.id.tag());
                self.deliver(now, ticket, entry, index, others);
            }
            Input::Closing(entry) => {
                self.open.remove(&entry.tag());
            }
            Input::Unfinished(entry) => {
                self.unfinished.insert(entry.tag());
            }
            Input::Finished(entry) => {
                self.open.remove(&entry.tag());
                self.unfinished.remove(&entry.tag());
                self.drop_delivery_acks(entry);
            }
            Input::QueueRecovered => self.queue_recovered = true,
            Input::CaughtUp(at) => self.caught_up = Some(at),
            Input::Hangup(session) => self.hangup(session),
            Input::Purge(account) => self.purge(account),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => {
                self.collect_due(now);
                self.peers_due(now);
                self.divide_windows(now);
                self.waits_due(now);
            }
        }
        self.work_on(now);
        self.join_all(now);
        self.tell_of_readers(now);
        self.answer_all_held(now);
        self.evict();
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn figures(&self, _now: Now) -> Figures {
        let running = |entry: &&Account| matches!(entry.phase, Phase::Running(_));
        let open = self.partitions.values().filter_map(|of| match of {
            Partition::Running(own) => Some(own),
            Partition::Loading(_) | Partition::Released(_) => None,
        });
        let logs = open.clone().map(|own| own.log.next() - 1);
        let hidden_ops = |own: &Own| {
            let members = self.config.peers.keys().copied();
            let members = members.filter(|id| self.config.has(*id, own.log.partition()));
            own.announced.hidden_ops(own.log.applied(), members)
        };
        Figures {
            accounts_loaded: self.accounts.values().filter(running).count() as u64,
            accounts_bytes: self.memory.own() as u64,
            accounts_stalled: open.clone().map(|own| own.stalled.len() as u64).sum(),
            watchers: self.sessions.len() as u64,
            log_partitions: logs.clone().count() as u64,
            log_operations: logs.sum(),
            hidden_ops: open.clone().map(|own| hidden_ops(own)).sum(),
            answers_confirming: open.clone().map(|own| own.confirming.waiting()).sum(),
            snapshots_waiting: open.filter(|own| own.has_waiting_state()).count() as u64,
            partitions_syncing: self.partitions_syncing(),
            ..self.counted.clone()
        }
    }

    fn reports(&self) -> Vec<PartitionReport> {
        let all = self.partitions.iter();
        all.map(|(partition, of)| self.report_of(*partition, of))
            .collect()
    }

    fn deadline(&self) -> Option<u64> {
        let collection = self.due.first().map(|(at, _)| *at);
        let peers = self.timers.first().map(|(at, _)| *at);
        let waits = self.waits.first().map(|(at, _)| *at);
        let windows = self.windows.deadline();
        let all = [collection, peers, waits, windows];
        all.into_iter().flatten().min()
    }
}
