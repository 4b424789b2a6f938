//! The queue: accepted transactions until every recipient's mailbox has them.
//!
//! An entry is accepted when its row is on disk, here and, in a cluster, on as many other nodes as the configuration says, its body included; then
//! its deliveries are forwarded to the owners of the accounts, which add the message under an id derived from entry, account and target. A crash at
//! any point leads to the deliveries being handed out again, here or at another node, and that changes nothing where they were made. When the last
//! one is durable, here and on as many other nodes as had to have the entry, the row goes, everywhere; when that is durable no delivery can come
//! again, and the owners are told that the entry is finished.
//!
//! Alone the queue is rows and nothing else. In a cluster it is a partition, with a log that says which entries were taken, finished and given up
//! ([`remote_batches`], `docs/decisions/0026`); where logs were cut, its state is given ([`snapshot`], `docs/decisions/0035`).
//!
//! Invariants:
//! - What is provisional (too few nodes have it yet) is not delivered. Its client gets one answer: done, or a temporary failure.
//! - Whatever is in the queue after a crash counts, whoever took it: a client may have been answered.
//! - The node that took an entry delivers it; another one only when that node is away, or does not come to an end with it. What it cannot make itself
//!   it has made ([`forwarding`]).

mod accepting;
mod barrier;
mod forwarding;
mod holders;
mod remote_batches;
mod rows;
mod snapshot;
mod takeover;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{BlobName, EntryId, Order};
pub use whimbrel_replication::waits;
use whimbrel_replication::{
    partition::{Membership, Resume},
    waits::Waits,
};
use whimbrel_storage::{Commit, Mutation};

pub(crate) use self::rows::{
    Done, Taken, entry_key, entry_of_row, fuzz_row, holder, read, row_of_entry,
};
use self::{
    forwarding::Forwarding,
    remote_batches::Other,
    rows::{Op, without},
};
use crate::{
    api::{Call, Entry, Failure, Reply, UploadId},
    figures::Figures,
    log::{self, Log},
    machine::{Input, Machine, Note, Now, Output, RequestId, Ticket},
    owner::keys::COMING_END,
    peers::{
        self, Ends, Frame, Holders, LogEnd, PartitionReport, PeerOutput, Shipping,
        log_reads::LogReads,
        singleton_snapshot::{Coming, Giving, StoredSnapshots},
    },
    stamps::Stamps,
};

/// What bounds the queue. Keys in `[queue]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Entries not yet delivered: beyond, senders are told to come back. `queue.entries_max`.
    pub entries_max: usize,
    /// Their envelopes and summaries in memory, in bytes. `queue.bytes_max`.
    pub bytes_max: usize,
    /// After how many seconds a delivery that was not confirmed is handed out again (its account could not be loaded, or the disk was
    /// full). `queue.retry_after`.
    pub retry_after_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries_max: 10_000,
            bytes_max: 64 << 20,
            retry_after_seconds: 10,
        }
    }
}

/// What the queue's owner is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's incarnation.
    pub origin: Incarnation,
    /// The other nodes. Empty: this node is alone.
    pub peers: BTreeSet<Incarnation>,
    /// Which partitions of accounts they hold: who does not is not asked for deliveries there.
    pub holders: Holders,
    /// Whether it belongs to a cluster, perhaps as the only one: the store says then where the logs stand.
    pub in_cluster: bool,
    /// How many of them must have an entry before it is accepted; never more than there are. `queue.other_nodes`.
    pub other_nodes: usize,
    /// After how many seconds without its node an entry is delivered by another one. `queue.takeover_after`.
    pub takeover_after_seconds: u64,
    /// What bounds it.
    pub limits: Limits,
    /// How long a client waits for the other nodes. `queue.confirm_timeout`.
    pub waits: waits::Config,
    /// Bounds and times of what goes to and comes from them.
    pub shipping: peers::Config,
}

impl Config {
    /// Of a node that is alone.
    #[must_use]
    pub fn alone(origin: Incarnation, limits: Limits) -> Self {
        Config {
            origin,
            peers: BTreeSet::new(),
            holders: Holders::default(),
            in_cluster: false,
            other_nodes: 1,
            takeover_after_seconds: 60,
            limits,
            waits: waits::Config::default(),
            shipping: peers::Config::default(),
        }
    }
}

/// The queue's owner.
pub struct QueueOwner {
    config: Config,
    /// The clock by which it writes.
    stamps: Stamps,
    phase: Phase,
    /// Calls that wait until the rows are read.
    calls: VecDeque<(RequestId, Call)>,
    /// Entries that this node delivers.
    entries: BTreeMap<EntryId, Pending>,
    bytes: usize,
    /// Deliveries handed out.
    deliveries: BTreeMap<Ticket, (EntryId, usize)>,
    commits: BTreeMap<Ticket, Waiting>,
    /// How many entries are being accepted: what is being removed is still among the entries.
    accepting: usize,
    /// When unconfirmed deliveries and failed removals are tried again, on the monotonic clock.
    retry_at: Option<u64>,
    // In a cluster.
    waits: Waits,
    /// Entries that are in our log and wait for other nodes, by their numbers in it.
    provisional: BTreeMap<u64, Provisional>,
    /// Entries that other nodes deliver.
    others: BTreeMap<EntryId, Other>,
    /// Bodies of theirs that are not here, or not durable.
    missing_blobs: BTreeMap<BlobName, EntryId>,
    /// Bodies of which peers are to be told that they are here, and whether the same is asked of them.
    haves: BTreeMap<Incarnation, holders::Haves>,
    /// Which other nodes have said to hold the bodies of entries in our log, and of those that were taken over.
    holders: BTreeMap<EntryId, BTreeSet<Incarnation>>,
    /// Deliveries that other nodes make, and those that are made for them.
    forwarding: Forwarding,
    /// Deliveries that others made since the start.
    counted_handed: u64,
    /// Nodes to which there is a stream.
    links: BTreeSet<Incarnation>,
    /// Nodes of whose logs there is no more than is here.
    closed: Ends,
    /// Since when there has been none to these.
    gone: BTreeMap<Incarnation, u64>,
    /// Since when there has been one to every other member.
    complete_since: Option<u64>,
    /// When entries of others are looked at.
    look_at: Option<u64>,
    /// Up to when all is here that each other node had, and when that is looked at again.
    heard: BTreeMap<Incarnation, barrier::PeerProgress>,
    heard_at: Option<u64>,
    /// Rows of entries that are being taken over.
    adopting: BTreeMap<Ticket, EntryId>,
    /// Logs that are being read for the partition's machine.
    reads: LogReads,
    /// Reads that failed are tried again then.
    reads_at: Option<u64>,
    /// States that are given.
    giving: Giving,
    /// How many were taken since the start.
    snapshots_received: u64,
    next_ticket: u64,
    out: VecDeque<Output>,
}

enum Phase {
    Loading(Loading),
    Running(Box<Running>),
}

/// The rows are being read; calls wait.
struct Loading {
    ticket: Ticket,
    position: Option<Bytes>,
    /// What the rows say of states.
    found: StoredSnapshots,
    /// Whether all rows are read.
    read: bool,
    /// Where the logs stand; the store is not asked where there are no peers.
    logs: Option<Option<BTreeMap<Incarnation, LogEnd>>>,
    /// What peers sent meanwhile.
    frames: Vec<(Incarnation, Frame)>,
    /// It was read before, until a commit failed: on the streams that are there all is said again.
    anew: bool,
    /// The store could not read all: it is asked again in a while.
    failed: bool,
}

/// What is written and told as a partition.
struct Running {
    log: Log,
    shipping: Shipping,
    /// A state that comes: which of its entries have come.
    coming: Coming,
    /// Commits that rest on each other.
    under_way: BTreeSet<Ticket>,
    /// What it does of itself when it has read all, and has not done yet since a commit was refused a moment ago.
    begins: bool,
    /// Rows that are of no use.
    gone: Vec<Mutation>,
    /// A batch of another node cannot be applied by this program: nothing behind it is.
    stalled: bool,
    /// A commit failed: everything is read again when the ones behind it have failed, too.
    failed: bool,
}

struct Pending {
    entry: Arc<Entry>,
    bytes: usize,
    /// Where it was taken: other nodes have it, too, or may. `None`: here, alone.
    taken: Option<Taken>,
    /// Deliveries not confirmed yet.
    open: BTreeSet<usize>,
    /// When it was accepted, on the monotonic clock; `None`: before the start, or by another node.
    accepted: Option<u64>,
    /// When they were handed out first, on the monotonic clock,
    first_handed_out: u64,
    /// and when last.
    handed_out: u64,
    removing: bool,
}

/// In our log, and not accepted yet.
struct Provisional {
    request: RequestId,
    entry: Arc<Entry>,
    bytes: usize,
    /// How many other nodes have to have it.
    needed: usize,
    /// It is on this disk.
    durable: bool,
}

/// What a commit was for.
enum Waiting {
    /// With the size of its row.
    Accept(RequestId, Arc<Entry>, usize),
    Remove(EntryId),
    // In a cluster; these rest on each other.
    /// The provisional entry of this number.
    Take(u64),
    /// Finished, or given up: with whom to tell.
    Close(EntryId, Option<RequestId>),
    /// What another node did: these entries are closed, these taken.
    Foreign(Vec<EntryId>, Vec<EntryId>),
    Body(BlobName),
    /// An entry that nobody can deliver is forgotten.
    Forget(EntryId),
}

impl QueueOwner {
    /// Begins by reading the entries that are there.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut queue = QueueOwner {
            waits: Waits::new(config.waits),
            config,
            stamps: Stamps::default(),
            phase: Phase::Loading(Loading::new(Ticket(0))),
            calls: VecDeque::new(),
            entries: BTreeMap::new(),
            bytes: 0,
            deliveries: BTreeMap::new(),
            commits: BTreeMap::new(),
            accepting: 0,
            retry_at: None,
            provisional: BTreeMap::new(),
            others: BTreeMap::new(),
            missing_blobs: BTreeMap::new(),
            haves: BTreeMap::new(),
            holders: BTreeMap::new(),
            forwarding: Forwarding::default(),
            counted_handed: 0,
            links: BTreeSet::new(),
            closed: Ends::new(),
            gone: BTreeMap::new(),
            complete_since: None,
            look_at: None,
            heard: BTreeMap::new(),
            heard_at: None,
            adopting: BTreeMap::new(),
            reads: LogReads::default(),
            reads_at: None,
            giving: Giving::new(PartitionId::QUEUE),
            snapshots_received: 0,
            next_ticket: 0,
            out: VecDeque::new(),
        };
        queue.load();
        queue
    }

    /// Entries that are not finished, each once, those of other nodes included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.accepting + self.others.len()
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    // --- Reading -------------------------------------------------------------------------------------------------------

    /// Reads all of it. What is provisional stays as it is: it waits for other nodes.
    fn load(&mut self) {
        let (ticket, partition) = (self.ticket(), PartitionId::QUEUE);
        let mut loading = Loading::new(ticket);
        match &mut self.phase {
            Phase::Loading(before) => {
                loading.frames = std::mem::take(&mut before.frames);
                loading.anew = before.anew;
            }
            // What peers ask for from now on is kept.
            Phase::Running(_) => self.forwarding.begin_anew(),
        }
        self.out.push_back(Output::Load {
            ticket,
            partition,
            from: vec![0],
            to: vec![COMING_END],
        });
        if self.config.peers.is_empty() && !self.config.in_cluster {
            loading.logs = Some(None);
        } else {
            let load = PeerOutput::LoadLogs { ticket, partition };
            self.out.push_back(Output::Peer(load));
        }
        self.entries.clear();
        self.deliveries.clear();
        self.others.clear();
        self.missing_blobs.clear();
        self.adopting.clear();
        self.reads.forget(PartitionId::QUEUE);
        self.out.extend(self.giving.end());
        self.bytes = self.provisional.values().map(|of| of.bytes).sum();
        let accepting = self.commits.values().map(|waiting| match waiting {
            Waiting::Accept(_, _, bytes) => *bytes,
            _ => 0,
        });
        self.bytes += accepting.sum::<usize>();
        self.phase = Phase::Loading(loading);
    }

    fn loaded_page(&mut self, now: Now, page: Vec<(Vec<u8>, Bytes)>, done: bool) {
        let Phase::Loading(loading) = &mut self.phase else {
            return;
        };
        loading.read = done;
        for (key, row) in page {
            let Phase::Loading(loading) = &mut self.phase else {
                return;
            };
            if key == log::POSITION_KEY {
                loading.position = Some(row);
            } else if loading.found.look(&key, &row) {
            } else if let Some(blob) = log::missing_blob_of_key(&key) {
                let id = entry_id(&blob.upload);
                self.missing_blobs.insert(blob, id);
            } else if let Some((entry, taken)) = entry_of_row(&key, &row) {
                self.found(now, entry, taken, row.len());
            } else {
                // It was accepted, so it must not be dropped: someone has to look at it.
                return self.out.push_back(Output::Fatal(format!(
                    "queue entry {key:02x?} cannot be read"
                )));
            }
        }
        self.loaded(now);
    }

    /// An entry is there at the start.
    fn found(&mut self, now: Now, entry: Entry, taken: Option<Taken>, bytes: usize) {
        self.out.push_back(Output::Unfinished(entry.id));
        match taken.filter(|taken| taken.by != self.config.origin) {
            // It still waits for other nodes, or did a moment ago.
            None if self.entries.contains_key(&entry.id)
                || self.provisional.values().any(|of| of.entry.id == entry.id) => {}
            None => self.insert(Arc::new(entry), bytes, None, taken),
            Some(taken) => {
                let other = Other::new(now, taken, entry.blob, true);
                self.others.insert(entry.id, other);
            }
        }
    }

    /// Goes on if everything was read.
    fn loaded(&mut self, now: Now) {
        let Phase::Loading(loading) = &mut self.phase else {
            return;
        };
        if !loading.read {
            return;
        }
        let Some(logs) = loading.logs.take() else {
            return;
        };
        let position = loading.position.take();
        let found = std::mem::take(&mut loading.found);
        let (frames, anew) = (std::mem::take(&mut loading.frames), loading.anew);
        match Running::new(&self.config, position.as_deref(), logs, found) {
            Ok((mut running, gone)) => {
                if let Some(held) = running.coming.held() {
                    running.shipping.hold(now, held.clone());
                }
                running.gone = gone;
                self.phase = Phase::Running(Box::new(running));
            }
            Err(cause) => return self.out.push_back(Output::Fatal(cause)),
        }
        self.forget_holders();
        if !anew {
            self.begin(now);
        }
        self.out.push_back(Output::QueueRecovered);
        self.link_loaded(now, frames, anew);
        for (request, call) in std::mem::take(&mut self.calls) {
            self.call(now, request, call);
        }
    }

    fn insert(
        &mut self,
        entry: Arc<Entry>,
        bytes: usize,
        accepted: Option<u64>,
        taken: Option<Taken>,
    ) {
        self.bytes += bytes;
        if taken.is_some() {
            self.holders.entry(entry.id).or_default();
        }
        let open = (0..entry.deliveries.len()).collect();
        self.entries.insert(
            entry.id,
            Pending {
                entry,
                bytes,
                taken,
                open,
                accepted,
                first_handed_out: 0,
                handed_out: 0,
                removing: false,
            },
        );
    }

    // --- Commits -------------------------------------------------------------------------------------------------------

    fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        match self.commits.remove(&ticket) {
            None => {}
            Some(Waiting::Accept(request, entry, bytes)) => {
                self.accepting -= 1;
                self.bytes -= bytes;
                if !done {
                    return self
                        .out
                        .push_back(Output::Reply(request, Reply::Failed(Failure::Storage)));
                }
                self.out.push_back(Output::Reply(request, Reply::Done));
                let id = entry.id;
                self.out.push_back(Output::Unfinished(id));
                self.insert(entry, bytes, Some(now.mono_micros), None);
                self.hand_out(now, id);
            }
            Some(Waiting::Remove(id)) if done => {
                if let Some(pending) = self.entries.remove(&id) {
                    self.bytes -= pending.bytes;
                }
                self.out.push_back(Output::Finished(id));
            }
            Some(Waiting::Remove(id)) => {
                if let Some(pending) = self.entries.get_mut(&id) {
                    pending.removing = false;
                }
                self.retry_later(now);
            }
            Some(waiting) => self.said(now, ticket, waiting, done),
        }
    }

    // --- Delivering ----------------------------------------------------------------------------------------------------

    fn hand_out(&mut self, now: Now, id: EntryId) {
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        if pending.first_handed_out == 0 {
            pending.first_handed_out = now.mono_micros.max(1);
        }
        pending.handed_out = now.mono_micros;
        let (entry, open) = (pending.entry.clone(), pending.open.clone());
        if open.is_empty() {
            return self.remove(now, id);
        }
        let others = self.others_of(id);
        for index in open {
            let ticket = self.ticket();
            self.deliveries.insert(ticket, (id, index));
            self.out.push_back(Output::Deliver {
                ticket,
                entry: entry.clone(),
                index,
                others: others.clone(),
            });
        }
        self.retry_later(now);
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_at
            .get_or_insert(now.mono_micros + self.config.limits.retry_after_seconds * 1_000_000);
    }

    fn delivered(&mut self, now: Now, ticket: Ticket) {
        match self.deliveries.remove(&ticket) {
            Some((id, index)) => self.delivery_done(now, id, index),
            None => self.made(ticket, true),
        }
    }

    fn delivery_done(&mut self, now: Now, id: EntryId, index: usize) {
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        if pending.open.remove(&index)
            && let Some(accepted) = pending.accepted
        {
            let took = now.mono_micros.saturating_sub(accepted);
            self.out.push_back(Output::Log(Note::DeliveryTook(took)));
        }
        if pending.open.is_empty() {
            self.remove(now, id);
        }
    }

    fn remove(&mut self, now: Now, id: EntryId) {
        let is_writable = matches!(&self.phase, Phase::Running(running) if !running.failed);
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        if !is_writable || std::mem::replace(&mut pending.removing, true) {
            return;
        }
        self.out.push_back(Output::Closing(id));
        let mutations = without(id, &pending.entry.blob).into();
        if pending.taken.is_some() {
            let waiting = |_| Waiting::Close(id, None);
            self.say(now, &Op::Finish { id }, None, mutations, true, waiting);
            return;
        }
        let ticket = self.ticket();
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        commit.lazy = true;
        commit.follows = self.has_commits_under_way();
        commit.mutations = mutations;
        self.commits.insert(ticket, Waiting::Remove(id));
        self.out.push_back(Output::Commit(ticket, commit));
    }

    /// Whether what is written now fails if something before it does: else the store would take it for a new beginning, and what rests on what was
    /// refused behind it.
    fn has_commits_under_way(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if !running.under_way.is_empty())
    }

    /// Hands out again what was not confirmed in time. An owner that has it in hand already answers twice, which is harmless.
    fn retry(&mut self, now: Now) {
        if self.retry_at.is_none_or(|at| at > now.mono_micros) {
            return;
        }
        self.retry_at = None;
        let before = now
            .mono_micros
            .saturating_sub(self.config.limits.retry_after_seconds * 1_000_000);
        let waiting = self.entries.iter().filter(|(_, pending)| !pending.removing);
        let due: BTreeSet<EntryId> = waiting
            .filter(|(_, pending)| pending.handed_out <= before)
            .map(|(id, _)| *id)
            .collect();
        // Nor what another node has finished meanwhile.
        let is_open = |id: &EntryId| !due.contains(id) && self.entries.contains_key(id);
        self.deliveries.retain(|_, (id, _)| is_open(id));
        // What others were asked for and have not answered may wait for nodes that are away: what waits for a place has its turn first.
        let (asked, others): (Vec<EntryId>, Vec<EntryId>) =
            due.iter().partition(|id| self.forwarding.is_asked(**id));
        for id in &due {
            self.forwarding.take_back(*id);
        }
        if let Some(first) = due.first() {
            self.out.push_back(Output::Log(Note::Warning(format!(
                "{} entries of the queue are not delivered yet, here or at as many other nodes as have to have them, trying again; the oldest is {first}",
                due.len()
            ))));
        }
        for id in others.into_iter().chain(asked) {
            self.hand_out(now, id);
        }
        if !self.entries.is_empty() {
            self.retry_later(now);
        }
    }
}

impl Loading {
    fn new(ticket: Ticket) -> Self {
        Loading {
            ticket,
            position: None,
            found: StoredSnapshots::default(),
            read: false,
            logs: None,
            frames: Vec::new(),
            anew: false,
            failed: false,
        }
    }
}

impl Running {
    fn new(
        config: &Config,
        position: Option<&[u8]>,
        logs: Option<BTreeMap<Incarnation, LogEnd>>,
        found: StoredSnapshots,
    ) -> Result<(Self, Vec<Mutation>), String> {
        let (id, origin) = (PartitionId::QUEUE, config.origin);
        let log = match position {
            Some(record) => Log::load(id, origin, record).map_err(|error| error.to_string())?,
            None => Log::new(id, origin),
        };
        let ends = logs.unwrap_or_else(|| log.ends());
        let (applied, stable) = (log.applied(), log.collected());
        let shipping = config.shipping;
        let members = Membership::of(config.peers.iter().copied().chain([origin]));
        // It is never syncing: what it takes is new.
        let known = Resume {
            logs: ends,
            applied: applied.clone(),
            stable,
            ..Resume::default()
        };
        let shipping = Shipping::resume(shipping, id, origin, members, known);
        let (coming, gone) = found.settle(None)?;
        let running = Running {
            shipping: shipping.map_err(|error| error.to_string())?,
            log,
            coming,
            under_way: BTreeSet::new(),
            begins: true,
            gone: Vec::new(),
            stalled: false,
            failed: false,
        };
        Ok((running, gone))
    }
}

impl Machine for QueueOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.stamps.look(now);
        match input {
            Input::Call(request, call) => self.call(now, request, call),
            Input::Loaded { ticket, rows, done } => match &self.phase {
                Phase::Loading(loading) if loading.ticket == ticket => {
                    self.loaded_page(now, rows, done);
                }
                _ => self.adopted(now, ticket, rows),
            },
            Input::LoadFailed(ticket, cause) => {
                let is_known = self.read_failed(now, ticket, &cause);
                let fatal = || Output::Fatal(format!("the queue cannot be read: {cause}"));
                self.out.extend((!is_known).then(fatal));
            }
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::Delivered(ticket) => self.delivered(now, ticket),
            // It stays open and is handed out again.
            Input::NotDelivered(ticket) => {
                self.deliveries.remove(&ticket);
                self.made(ticket, false);
            }
            Input::NotHere(ticket) => self.not_here(now, ticket),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => {
                self.retry(now);
                self.time(now);
            }
            _ => {}
        }
        self.ship(now);
        self.catch_up(now);
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn reports(&self) -> Vec<PartitionReport> {
        vec![PartitionReport {
            partition: PartitionId::QUEUE,
            open: match &self.phase {
                Phase::Running(running) if !running.failed => Some(running.shipping.report()),
                _ => None,
            },
            blobs_missing: self.missing_blobs.len() as u64,
            accounts_stalled: 0,
            uids_reassigned: 0,
            syncing: false,
            complete_at: BTreeSet::new(),
            left: None,
            keeps: self.keeps(),
        }]
    }

    fn figures(&self, now: Now) -> Figures {
        let oldest = self
            .entries
            .values()
            .map(|pending| pending.entry.date.seconds);
        let now = i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX);
        let age = oldest.min().map_or(0, |oldest| now.saturating_sub(oldest));
        Figures {
            // Those of other nodes are in their figures.
            queue_entries: (self.entries.len() + self.accepting) as u64,
            queue_bytes: self.bytes as u64,
            queue_oldest_seconds: u64::try_from(age).unwrap_or(0),
            deliveries_forwarded: self.counted_handed,
            snapshots_sent: self.giving.given,
            snapshots_received: self.snapshots_received,
            ..Figures::default()
        }
    }

    fn deadline(&self) -> Option<u64> {
        let shipping = match &self.phase {
            // One that failed does nothing by itself any more: its time would be over for ever.
            Phase::Running(running) if !running.failed => running.shipping.deadline(),
            _ => None,
        };
        let times = [self.retry_at, self.waits.deadline(), self.look_at];
        let times = times.into_iter();
        let times = times.chain([self.reads_at, self.heard_at, shipping]);
        times.flatten().min()
    }
}

/// The id of the entry for a finished upload: random because the upload's id is, and, but for the order in which both came, unrelated to it
/// for whoever sees only one of them.
#[must_use]
pub fn entry_id(upload: &UploadId) -> EntryId {
    let mut id = [0; 16];
    let derived = blake3::derive_key("whimbrel queue entry v1", upload);
    id.copy_from_slice(&derived[..16]);
    EntryId(Order::of(upload).before(id))
}
