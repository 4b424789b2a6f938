//! The queue: accepted transactions until every recipient's mailbox has them.
//!
//! An entry is a tuple of the crate [`whimbrel_queue`]: this node and f others hold its row and its body before the client is told that it is accepted.
//! One node acts on it: it hands the deliveries to the owners of the accounts, which add the message under an id derived from entry, account and
//! target. A crash, or a node that takes over, leads to deliveries that are made again, and that changes nothing where they were made. When the last one
//! is durable, here and on as many other nodes as had to have the entry, the entry is done, and goes everywhere.
//!
//! Here are the rows and bodies, the deliveries, and what is carried between the machine of that crate and this node's driver. A node that is alone
//! has the same machine, with f = 0.
//!
//! Invariants:
//! - A node says that it has an entry when row and body are in one commit that is durable ([`arriving`]).
//! - As long as a delivery of an entry may still be made here, the machine is told that the entry is held ([`deliveries`]): so no other node forgets a
//!   message that this delivery would bring back (D2, `proofs/README.md`).
//! - Who acts is decided by the machine alone. What it cannot deliver itself it has delivered ([`forwarding`]).
//!
//! Reading order: this file, [`rows`], [`accepting`], [`deliveries`], [`arriving`], [`forwarding`], [`listing`].

mod accepting;
mod arriving;
mod deliveries;
mod forwarding;
mod listing;
mod loading;
mod peers;
mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{BlobName, EntryId, Order};
use whimbrel_queue::{self as machine, Change, Node};
use whimbrel_storage::{COMMIT_BYTES_MAX, Commit, Mutation, Room};

pub(crate) use self::rows::{Row, entry_of_payload, fuzz_row, holder, payload_of_entry, row_of};
use self::{
    accepting::Accepting, arriving::Arriving, deliveries::Acting, forwarding::Forwarding,
    listing::Listing, loading::Loading,
};
use crate::{
    api::{Call, Reply, UploadId},
    figures::Figures,
    log,
    machine::{Input, Machine, Note, Now, Output, RequestId, Ticket},
    peers::{Holders, PeerOutput},
    stamps::Stamps,
};

/// What bounds the queue. Keys in `[queue]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Entries that this node holds: beyond, senders are told to come back. `queue.entries_max`.
    pub entries_max: usize,
    /// Envelopes and summaries in memory, in bytes: of entries that are being accepted, and of those that are being delivered. `queue.bytes_max`.
    pub bytes_max: usize,
    /// After how many seconds a delivery that was not confirmed is handed out again (its account could not be loaded, or the disk was
    /// full). `queue.retry_after`.
    pub retry_after_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries_max: 1_000_000,
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
    /// Its slot: its number among the nodes of the queue.
    pub slot: u8,
    /// The other nodes, and their slots. Empty: this node is alone.
    pub peers: BTreeMap<Incarnation, u8>,
    /// Which partitions of accounts they hold: who does not is not asked for deliveries there.
    pub holders: Holders,
    /// How many machines have accounts: all of them say when no delivery of an entry is under way any more.
    pub owners: usize,
    /// f: so many other nodes must have an entry before it is accepted; never more than there are. `queue.other_nodes`.
    pub other_nodes: usize,
    /// After how many seconds without its node an entry is delivered by another one. `queue.takeover_after`.
    pub takeover_after_seconds: u64,
    /// After how many seconds without one of its nodes an entry is given to another one. `queue.repair_after`.
    pub repair_after_seconds: u64,
    /// Entries are given to the nearest nodes that are at least so many microseconds away, there and back; `None`: to any. `queue.min_round_trip`.
    pub min_round_trip_micros: Option<u64>,
    /// What bounds it.
    pub limits: Limits,
    /// How long a client waits for the other nodes. `queue.confirm_timeout`.
    pub confirm_micros: u64,
    /// Whatever differs from start to start.
    pub seed: u64,
}

impl Config {
    /// Of a node that is alone.
    #[must_use]
    pub fn alone(origin: Incarnation, slot: u8, limits: Limits) -> Self {
        Config {
            origin,
            slot,
            peers: BTreeMap::new(),
            holders: Holders::default(),
            owners: 1,
            other_nodes: 1,
            takeover_after_seconds: 60,
            repair_after_seconds: 300,
            min_round_trip_micros: None,
            limits,
            confirm_micros: 10_000_000,
            seed: 0,
        }
    }
}

/// The queue's owner.
pub struct QueueOwner {
    config: Config,
    /// The clock by which it takes mail.
    stamps: Stamps,
    phase: Phase,
    /// Calls that wait until the rows are read.
    calls: VecDeque<(RequestId, Call)>,
    /// Nodes to which there is a stream.
    links: BTreeSet<Incarnation>,
    /// The members by their numbers in the queue.
    nodes: BTreeMap<Node, Incarnation>,
    commits: BTreeMap<Ticket, Waiting>,
    loads: BTreeMap<Ticket, Loads>,
    /// The bodies of the entries that are here.
    bodies: BTreeMap<EntryId, BlobName>,
    accepting: Accepting,
    arriving: Arriving,
    acting: Acting,
    forwarding: Forwarding,
    listing: Listing,
    /// What the disk has refused of [`Waiting::Life`].
    life_refused: Option<Vec<Mutation>>,
    /// What the machine wants is being done.
    is_carrying: bool,
    next_ticket: u64,
    out: VecDeque<Output>,
}

enum Phase {
    Loading(Loading),
    Running(Box<machine::Queue>),
}

/// What a commit was for.
enum Waiting {
    /// Records of the machine's.
    Written(Vec<EntryId>),
    /// What holds the body of a delivery that is made for another node.
    Hold(forwarding::Delivery, BlobName),
    /// What says in which life of the disk all else is written.
    Life(Vec<Mutation>),
    Nothing,
}

/// What is read, and for what.
enum Loads {
    /// Everything, at the start.
    All,
    /// What a version before had in its queue.
    Former,
    /// An entry that this node is to deliver, with what was done of it.
    Act(EntryId, bytes::Bytes),
    /// The payload of an entry that is to be sent to another node.
    Payload(EntryId),
    /// For the administrator.
    List(RequestId),
}

impl QueueOwner {
    /// Begins by reading the entries that are there.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut queue = QueueOwner {
            config,
            stamps: Stamps::default(),
            phase: Phase::Loading(Loading::default()),
            calls: VecDeque::new(),
            links: BTreeSet::new(),
            nodes: BTreeMap::new(),
            commits: BTreeMap::new(),
            loads: BTreeMap::new(),
            bodies: BTreeMap::new(),
            accepting: Accepting::default(),
            arriving: Arriving::default(),
            acting: Acting::default(),
            forwarding: Forwarding::default(),
            listing: Listing::default(),
            life_refused: None,
            is_carrying: false,
            next_ticket: 0,
            out: VecDeque::new(),
        };
        queue.name_nodes();
        queue.load();
        queue
    }

    /// Entries that are not finished, those of other nodes that have a copy here included.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.phase {
            Phase::Running(queue) => queue.len(),
            Phase::Loading(_) => self.bodies.len(),
        }
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries of an older disk of which it is not known whether they are done: a node that may know is not linked.
    #[must_use]
    pub fn doubts(&self) -> usize {
        match &self.phase {
            Phase::Running(queue) => queue.doubts(),
            Phase::Loading(_) => 0,
        }
    }

    /// Whether nothing is left of entries, here and elsewhere, as far as this node knows.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        match &self.phase {
            Phase::Running(queue) => {
                queue.is_empty() && queue.tombstones() == 0 && queue.is_quiet()
            }
            Phase::Loading(_) => false,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn warn(&mut self, text: String) {
        self.out.push_back(Output::Log(Note::Warning(text)));
    }

    fn running(&mut self) -> Option<&mut machine::Queue> {
        match &mut self.phase {
            Phase::Running(queue) => Some(queue),
            Phase::Loading(_) => None,
        }
    }

    // --- The machine ---------------------------------------------------------------------------------------------------

    /// Tells the machine of something, and does what it wants.
    fn tell(&mut self, now: Now, input: machine::Input) {
        if let Some(queue) = self.running() {
            queue.handle(times(now), input);
            self.carry_out(now);
        }
    }

    /// Does what the machine wants, until it wants nothing more. What it is told meanwhile is done in the same round.
    fn carry_out(&mut self, now: Now) {
        if std::mem::replace(&mut self.is_carrying, true) {
            return;
        }
        let mut writes = Writes::default();
        while let Some(output) = self.running().and_then(machine::Queue::poll) {
            match output {
                machine::Output::Write { id, change, from } => {
                    self.write(now, entry_id_of(id), change, from, &mut writes);
                }
                machine::Output::Accepted(ticket) => self.accepted(now, ticket),
                machine::Output::Refused(ticket, why) => self.refused(ticket, why),
                machine::Output::Mine(id, progress) => self.act(now, id, progress),
                machine::Output::NotMine(id) => self.act_no_more(id),
                machine::Output::Cancel(id) => self.cancelled(id),
                machine::Output::Stale(id) => self.warn(format!(
                    "queue entry {} is of an older copy of the disk, and no other node has it: nobody delivers it",
                    entry_id_of(id)
                )),
                machine::Output::Read(id) => {
                    self.load_payload(entry_id_of(id), Loads::Payload(entry_id_of(id)));
                }
                machine::Output::Wake(node) => {
                    if let Some(peer) = self.nodes.get(&node) {
                        let wake = PeerOutput::Wake(PartitionId::QUEUE, *peer);
                        self.out.push_back(Output::Peer(wake));
                    }
                }
                // The transport ends links on which nothing arrives. Where it does, the peer waits for its disk: to begin anew would cost all partitions.
                machine::Output::Close(_, machine::Close::Silent) => {}
                machine::Output::Close(node, _) => {
                    if let Some(peer) = self.nodes.get(&node) {
                        self.out.push_back(Output::Peer(PeerOutput::Unlink(*peer)));
                    }
                }
                machine::Output::Away(node, micros) => {
                    writes.small.push(rows::away(node, micros));
                }
                machine::Output::Swept { began, least, .. } => {
                    let least = least.map(|least| Order::of(&least.0));
                    self.out.push_back(Output::Swept { began, least });
                }
            }
        }
        // Who is handed an entry of which this node had the content in memory has it by now.
        self.accepting.ready.clear();
        self.hand_out_writes(writes);
        self.is_carrying = false;
    }

    /// What the disk is to hold of an entry.
    fn write(
        &mut self,
        now: Now,
        id: EntryId,
        change: Change,
        from: Option<Node>,
        writes: &mut Writes,
    ) {
        let (change, is_gone) = match change {
            Change::Tuple(record, Some(payload)) => {
                if self.bodies.contains_key(&id) && from.is_none() {
                    writes.add(id, self.entry_rows(id, &record, Some(payload)), true);
                } else {
                    self.arrives(now, id, record, payload, from);
                }
                return;
            }
            Change::Tuple(record, None) => (self.entry_rows(id, &record, None), false),
            Change::Tombstone(record) => (vec![rows::put(id, None, &record)], true),
            Change::Remove => (vec![rows::delete(id)], true),
        };
        let mut mutations = change;
        if is_gone {
            mutations.push(rows::delete_payload(id));
            // What is under way may need the body.
            self.close(id);
            if let Some(blob) = self.bodies.remove(&id) {
                mutations.push(rows::release(id, &blob));
            }
        }
        writes.add(id, mutations, !is_gone);
    }

    /// The rows of an entry that is here.
    fn entry_rows(
        &self,
        id: EntryId,
        record: &machine::Record,
        payload: Option<bytes::Bytes>,
    ) -> Vec<Mutation> {
        let blob = self.bodies.get(&id);
        let mut mutations = vec![rows::put(id, blob, record)];
        if let (Some(payload), Some(blob)) = (payload, blob) {
            mutations.push(rows::put_payload(id, payload));
            mutations.push(rows::reference(id, blob));
        }
        mutations
    }

    fn hand_out_writes(&mut self, writes: Writes) {
        let Writes { groups, small } = writes;
        let groups = groups.into_iter();
        let small = (!small.is_empty()).then_some(Group {
            mutations: small,
            ..Group::default()
        });
        for group in groups.chain(small) {
            let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
            commit.lazy = !group.is_awaited;
            if !group.is_awaited {
                commit.room = Room::Frees;
            }
            commit.mutations = group.mutations;
            self.commit(commit, Waiting::Written(group.ids));
        }
    }

    fn commit(&mut self, commit: Commit, waiting: Waiting) {
        let ticket = self.ticket();
        self.commits.insert(ticket, waiting);
        self.out.push_back(Output::Commit(ticket, commit));
    }

    fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        match self.commits.remove(&ticket) {
            Some(Waiting::Written(ids)) => {
                for id in ids {
                    self.arrived(id, done);
                    let id = machine::Id(id.0);
                    let input = match done {
                        true => machine::Input::Written(id),
                        false => machine::Input::NotWritten(id),
                    };
                    if let Some(queue) = self.running() {
                        queue.handle(times(now), input);
                    }
                }
                self.carry_out(now);
            }
            Some(Waiting::Hold(delivery, blob)) => self.held(delivery, blob, done),
            Some(Waiting::Life(mutations)) if !done => self.life_refused = Some(mutations),
            Some(Waiting::Life(_) | Waiting::Nothing) | None => {}
        }
    }

    /// Reads the payload of an entry.
    fn load_payload(&mut self, id: EntryId, of: Loads) {
        let key = rows::payload_key(id);
        let ticket = self.ticket();
        self.loads.insert(ticket, of);
        self.out.push_back(Output::Load {
            ticket,
            partition: PartitionId::QUEUE,
            to: [&key[..], &[0]].concat(),
            from: key.into(),
        });
    }

    fn loaded(&mut self, now: Now, ticket: Ticket, rows: Vec<(Vec<u8>, bytes::Bytes)>, done: bool) {
        let page = || rows.first().map(|(_, value)| value.clone());
        match self.loads.get(&ticket) {
            Some(Loads::All) => self.loaded_page(now, rows, done),
            Some(Loads::Former) => self.former_page(now, &rows, done),
            Some(Loads::Act(id, progress)) => {
                let (id, progress) = (*id, progress.clone());
                self.read_to_act(now, id, &progress, page());
            }
            Some(Loads::Payload(id)) => {
                let payload = machine::Input::Payload(machine::Id(id.0), page());
                self.tell(now, payload);
            }
            Some(Loads::List(request)) => {
                let request = *request;
                self.listed(request, rows, done);
            }
            None => {}
        }
        if done {
            self.loads.remove(&ticket);
        }
    }

    /// What was asked for cannot be read.
    fn load_failed(&mut self, now: Now, ticket: Ticket, cause: &whimbrel_storage::StoreError) {
        match self.loads.remove(&ticket) {
            Some(Loads::All | Loads::Former) => {
                let fatal = format!("the queue cannot be read: {cause}");
                return self.out.push_back(Output::Fatal(fatal));
            }
            Some(Loads::Act(id, _)) => self.give_back(now, id),
            // It is asked for again when the peers are linked anew, or the tuple is repaired.
            Some(Loads::Payload(id)) => {
                self.tell(now, machine::Input::Payload(machine::Id(id.0), None));
            }
            Some(Loads::List(request)) => self.list_failed(request),
            None => return,
        }
        self.warn(format!("reading the queue failed: {cause}"));
    }

    fn call(&mut self, now: Now, request: RequestId, call: Call) {
        if matches!(self.phase, Phase::Loading(_)) {
            return self.calls.push_back((request, call));
        }
        let failure = match call {
            Call::Accept(entry) => self.accept(now, request, entry).err(),
            Call::Queue(call) => self.list(request, call).err(),
            _ => {
                return self.out.push_back(Output::Fatal(
                    "a call that is not the queue's was routed to it".into(),
                ));
            }
        };
        if let Some(failure) = failure {
            let reply = Reply::Failed(failure);
            self.out.push_back(Output::Reply(request, reply));
        }
    }

    /// How many other nodes must have what is accepted, and what was delivered before it is done.
    fn needed(&self) -> usize {
        self.config.other_nodes.min(self.config.peers.len())
    }

    fn time(&mut self, now: Now) {
        if let Some(mutations) = self.life_refused.take() {
            self.begin_life(mutations);
        }
        self.give_up_late(now);
        self.retry(now);
        self.drop_late_bodies(now);
        self.tell(now, machine::Input::Time);
    }
}

/// What is to be written after one input: entries by commits of bounded size.
#[derive(Default)]
struct Writes {
    groups: Vec<Group>,
    /// Whatever is no entry.
    small: Vec<Mutation>,
}

#[derive(Default)]
struct Group {
    ids: Vec<EntryId>,
    mutations: Vec<Mutation>,
    bytes: usize,
    /// Somebody waits for it.
    is_awaited: bool,
}

impl Writes {
    fn add(&mut self, id: EntryId, mutations: Vec<Mutation>, is_awaited: bool) {
        let bytes: usize = mutations.iter().map(Mutation::bytes).sum();
        // Half of it is always enough for one entry, and much is in memory already.
        let fits = |group: &Group| {
            group.bytes + bytes < COMMIT_BYTES_MAX / 2 && group.is_awaited == is_awaited
        };
        let place = match self.groups.iter().rposition(fits) {
            Some(place) => place,
            None => {
                self.groups.push(Group {
                    is_awaited,
                    ..Group::default()
                });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[place];
        group.bytes += bytes;
        group.mutations.extend(mutations);
        group.ids.push(id);
    }
}

fn times(now: Now) -> machine::Now {
    machine::Now {
        monotonic: now.mono_micros,
        unix: now.wall_micros,
    }
}

fn entry_id_of(id: machine::Id) -> EntryId {
    EntryId(id.0)
}

/// How the progresses of two nodes are joined: a bit for each delivery that is made.
fn join(one: &[u8], other: &[u8]) -> bytes::Bytes {
    let len = one.len().max(other.len());
    let byte = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    (0..len).map(|at| byte(one, at) | byte(other, at)).collect()
}

impl Machine for QueueOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.stamps.look(now);
        match input {
            Input::Call(request, call) => self.call(now, request, call),
            Input::Loaded { ticket, rows, done } => self.loaded(now, ticket, rows, done),
            Input::LoadFailed(ticket, cause) => self.load_failed(now, ticket, &cause),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::Delivered(ticket) => self.delivered(now, ticket),
            Input::NotDelivered(ticket) => self.not_delivered(now, ticket),
            Input::NotHere(ticket) => self.not_here(now, ticket),
            Input::Closed(id) => self.closed(now, id),
            Input::Leaving(micros) => self.tell(now, machine::Input::Leaving(micros)),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => self.time(now),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn figures(&self, now: Now) -> Figures {
        let Phase::Running(queue) = &self.phase else {
            return Figures::default();
        };
        // Ids begin with the time at which their entries came.
        let oldest = self
            .bodies
            .keys()
            .next()
            .map(|id| Order::of(&id.0).millis());
        let age = oldest.map_or(0, |at| (now.wall_micros / 1000).saturating_sub(at) / 1000);
        let counted = queue.counters();
        Figures {
            queue_entries: queue.len() as u64,
            queue_bytes: (self.accepting.bytes + self.acting.bytes) as u64,
            queue_oldest_seconds: age,
            queue_tombstones: queue.tombstones() as u64,
            queue_forgetting_waits_seconds: now.mono_micros.saturating_sub(queue.wave_began())
                / 1_000_000,
            queue_adopted: counted.adopted,
            queue_repaired: counted.repaired,
            queue_replaced: counted.replaced,
            queue_both_acted: counted.both_acted,
            deliveries_forwarded: self.forwarding.counted,
            ..Figures::default()
        }
    }

    fn deadline(&self) -> Option<u64> {
        let queue = match &self.phase {
            Phase::Running(queue) => queue.deadline(),
            Phase::Loading(_) => None,
        };
        let times = [
            self.accepting.deadline(),
            self.acting.retry_at,
            self.arriving.deadline(),
        ];
        times.into_iter().chain([queue]).flatten().min()
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
