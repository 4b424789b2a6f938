//! One node without its sockets: the service's machines on a model disk, in virtual time.
//!
//! The node does what `server`'s drivers do (routes calls, carries out outputs, groups commits under one sync), but every completion is an
//! event in a queue ordered by virtual time, with latencies drawn from the seed. [`Node::crash`] loses what was not synced and starts the
//! machines anew; calls under way get no answer, as with a real crash.
//!
//! size: what the drivers of `server` do in several files, around one set of fields that each part changes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, PartitionId};
use whimbrel_replication::members::Ends;
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{
        AccountId, BlobName, BlobRange, CONTENTS_BYTES_MAX, Call, EntryId, Event, Failure, Reply,
        Row, SessionId,
    },
    auth::{self, Authenticator},
    directory::{self, DirectoryOwner},
    figures::Figures,
    log::{POSITION_KEY, store_partition},
    machine::{Input, Machine, Note, Now, Output, RequestId, Route, Ticket, route},
    owner::{self, PartitionOwner, keys},
    peers::{
        Clock, Entry, Frame, Holders, LogEnd, Page, PartitionReport, PeerInput, PeerOutput, Phase,
        Snapshot, Stream,
        blobs::{self, Bodies, BodyOutput, FEATURE_CONFIRM, FEATURE_PUSH, ReadId},
        log_retention::{Length, given_up},
        snapshot::{Fixing, LOOKED_AT},
    },
    queue::{self, QueueOwner},
    senders,
};
use whimbrel_storage::{
    BlobInfo, Commit, KeyRange, LogEntry, LogPosition, Origin, Refusal, ScanLimit, SnapshotId,
    StoreError, UploadId,
    blob::read_ahead,
    group::GroupCommit,
    memory::{DiskCopy, Memory, SyncMark},
};

use whimbrel_testkit::Rng;

use crate::checkers::axioms::{Cuts, StoredPartition, Wrote};

/// How fast the node's disk and processor are, in virtual microseconds, and what the machines are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speed {
    /// A sync takes from the first to the second.
    pub sync_micros: (u64, u64),
    /// Commits that nobody waits for are held back from the first to the second, unless one comes that somebody waits for. A crash
    /// loses what is held back, and reads do not see it.
    pub lazy_micros: (u64, u64),
    /// A page of a scan, a read, a write to an upload.
    pub read_micros: (u64, u64),
    /// A password verification.
    pub verify_micros: (u64, u64),
}

impl Default for Speed {
    fn default() -> Self {
        Speed {
            sync_micros: (200, 5_000),
            lazy_micros: (0, 20_000),
            read_micros: (5, 200),
            verify_micros: (20_000, 60_000),
        }
    }
}

/// What a node's `node.toml` says of it.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Random.
    pub incarnation: Incarnation,
    /// One that was free.
    pub slot: u8,
    /// How often all had been used.
    pub round: u32,
}

/// Which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dest {
    Directory,
    Queue,
    Owner(usize),
}

#[derive(Debug)]
enum Happening {
    /// An input reaches a machine.
    Input(Dest, Input),
    /// The sync under way ends.
    Synced {
        mark: SyncMark,
        group: Vec<(Dest, Ticket)>,
    },
    /// Commits that nobody waits for are held back no longer.
    Patience,
    /// The answer of the store to a session's call.
    Answer(RequestId, Reply),
    /// A machine's deadline.
    Timer(Dest),
    /// A body is asked for again, or what is to be done for bodies is tried again.
    Want(BlobName),
    Bodies,
    /// The deadline of the bodies.
    BodyTimer,
    /// Bytes of a body were read for another node.
    BodyRead(ReadId, Option<Bytes>, bool),
}

/// What leaves the node.
#[derive(Debug)]
pub enum Outcome {
    /// The answer to a call.
    Reply(RequestId, Reply),
    /// The answer to the administrator.
    Admin(RequestId, AdminReply),
    /// A session is told.
    Notify(SessionId, Event),
    /// A call has reached its account's owner. Calls and deliveries of one account are carried out in the order in which they reach it.
    Reached(RequestId),
    /// A delivery has reached its account's owner.
    DeliveryReached(EntryId, Ticket),
    /// A delivery is durable.
    DeliveryDone(EntryId, Ticket),
    /// A delivery was not made, and will be tried again.
    DeliveryFailed(EntryId, Ticket),
    /// A commit was refused by the disk.
    CommitFailed,
    /// A partition has something for another node, or (`None`) the bodies have: [`Node::ready`].
    Wake(Option<PartitionId>, Incarnation),
    /// The stream to another node is to be made anew.
    Unlink(Incarnation),
    /// A line for the log.
    Note(Note),
    /// The node stopped itself.
    Stopped(String),
}

/// The node.
pub struct Node {
    /// The disk, with its faults.
    pub disk: Memory,
    /// What was written, until somebody has looked at it.
    pub wrote: Vec<Wrote>,
    /// Up to where logs are kept for nobody who is away.
    given_up: BTreeMap<(PartitionId, Incarnation), u64>,
    /// How fast things are.
    pub speed: Speed,
    owner_config: owner::Config,
    partitions: BTreeSet<PartitionId>,
    queue_limits: queue::Limits,
    group: GroupCommit<(Dest, Ticket, Commit)>,
    /// Until when what waits is held back, if nobody waits for any of it.
    held_back_until: Option<u64>,
    /// Bytes that all logs together may have; `None`: any.
    pub log_retention_bytes: Option<u64>,
    /// What an account may send, from the next start on.
    pub senders: senders::Limits,
    runs: u8,
    directory: DirectoryOwner,
    queue: QueueOwner,
    owners: Vec<PartitionOwner>,
    happenings: BTreeMap<(u64, u64), Happening>,
    timers: BTreeMap<Dest, u64>,
    /// Added to the virtual time to give the wall clock: skew, and jumps.
    pub wall_offset_micros: u64,
    time: u64,
    /// Until when its disk hangs.
    hangs_until: u64,
    count: u64,
    uploads: u64,
    /// Those that were begun by clients here; with what they were to be called, if that name was in use.
    own_uploads: BTreeMap<[u8; 16], Option<[u8; 16]>>,
    deliveries: BTreeMap<Ticket, EntryId>,
    rng: Rng,
    outcomes: VecDeque<Outcome>,
    /// What [`Node::ready`] gave.
    sending: Option<Frame>,
    bodies: Bodies,
    bodies_config: blobs::Config,
    /// What is to be done for bodies, and was not for want of room.
    body_work: VecDeque<BodyOutput>,
    body_waits: bool,
    /// Uploads that the store does not begin: one that held the body has let go of it before it was here. What comes of them is dropped, and they are
    /// fetched again.
    body_refused: BTreeSet<BlobName>,
    /// Uploads that are being written.
    body_uploads: BTreeSet<BlobName>,
    body_timer: Option<u64>,
    /// Rows that were fixed for other nodes.
    states: BTreeMap<u64, SnapshotId>,
    stopped: bool,
    /// Steps taken, for reports.
    pub steps: u64,
    dirty: BTreeSet<Dest>,
}

/// Between a look at the store for a body and what is told of it: up to three times this.
const LOOK_MICROS: u64 = 5_000;

/// Bodies that found no room are tried again after so long.
const BODY_RETRY_MICROS: u64 = 100_000;

/// Virtual time begins in 2026, so that stamps look like stamps.
pub(crate) const EPOCH_MICROS: u64 = 1_767_225_600_000_000;

impl Node {
    /// A node on an empty disk with two owners.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let owner_config = owner::Config {
            origin: Incarnation::from_hash(0x5ea5_0001),
            slot: 7,
            ..owner::Config::default()
        };
        Node::with(seed, owner_config, queue::Limits::default())
    }

    /// A node with its own limits.
    #[must_use]
    pub fn with(seed: u64, owner_config: owner::Config, queue_limits: queue::Limits) -> Self {
        Node::among(seed, owner_config, queue_limits, &all_partitions())
    }

    /// The same, in a world with accounts in these partitions: others are never asked for.
    #[must_use]
    pub fn among(
        seed: u64,
        owner_config: owner::Config,
        queue_limits: queue::Limits,
        partitions: &BTreeSet<PartitionId>,
    ) -> Self {
        let mut node = Node {
            disk: Memory::new(),
            wrote: Vec::new(),
            given_up: BTreeMap::new(),
            speed: Speed::default(),
            group: GroupCommit::new(whimbrel_storage::group::GROUP_BYTES_MAX_DEFAULT),
            held_back_until: None,
            log_retention_bytes: None,
            senders: senders::Limits::default(),
            runs: 1,
            directory: directory(&owner_config, 1),
            queue: QueueOwner::new(queue_config(&owner_config, &queue_limits, 1)),
            owners: owners(&owner_config),
            partitions: partitions.clone(),
            owner_config,
            queue_limits,
            happenings: BTreeMap::new(),
            timers: BTreeMap::new(),
            wall_offset_micros: EPOCH_MICROS,
            time: 0,
            hangs_until: 0,
            count: 0,
            uploads: seed << 20,
            deliveries: BTreeMap::new(),
            rng: Rng::new(seed),
            outcomes: VecDeque::new(),
            sending: None,
            bodies: Bodies::new(blobs::Config::default()),
            bodies_config: blobs::Config::default(),
            body_work: VecDeque::new(),
            body_waits: false,
            body_refused: BTreeSet::new(),
            body_uploads: BTreeSet::new(),
            own_uploads: BTreeMap::new(),
            body_timer: None,
            states: BTreeMap::new(),
            stopped: false,
            steps: 0,
            dirty: BTreeSet::new(),
        };
        node.wake_all();
        node
    }

    /// How many bodies it has room for: before anything else is done with it.
    pub fn set_bodies(&mut self, config: blobs::Config) {
        self.bodies_config = config;
        self.bodies = Bodies::new(config);
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now {
            wall_micros: self.time + self.wall_offset_micros,
            mono_micros: self.time,
        }
    }

    /// Asks the service.
    pub fn call(&mut self, request: RequestId, call: Call) {
        match route(&call) {
            Route::Directory => self.input_soon(Dest::Directory, Input::Call(request, call)),
            Route::Queue => self.input_soon(Dest::Queue, Input::Call(request, call)),
            Route::Owner(account) => {
                let dest = self.owner_of(account);
                self.input_soon(dest, Input::Call(request, call));
            }
            Route::Store => {
                let reply = self.store_call(call);
                let at = self.read_until();
                self.at(at, Happening::Answer(request, reply));
            }
        }
    }

    /// Asks as administrator.
    pub fn admin(&mut self, request: RequestId, call: AdminCall) {
        self.input_soon(Dest::Directory, Input::Admin(request, call));
    }

    /// A session's connection is gone.
    pub fn hangup(&mut self, session: SessionId) {
        for owner in 0..self.owners.len() {
            self.input_soon(Dest::Owner(owner), Input::Hangup(session));
        }
    }

    /// There is a stream to another node, or there is none any more.
    pub fn link(&mut self, peer: Incarnation, up: bool) {
        self.link_to(peer, up, true);
    }

    /// The same; `pushes`: both give bodies unasked.
    pub fn link_to(&mut self, peer: Incarnation, up: bool, pushes: bool) {
        let owners = (0..self.owners.len()).map(Dest::Owner);
        let features = FEATURE_CONFIRM | if pushes { FEATURE_PUSH } else { 0 };
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            let input = if up {
                PeerInput::Linked(peer, features)
            } else {
                PeerInput::Unlinked(peer)
            };
            self.input(dest, Input::Peer(input));
        }
        let now = self.now();
        match up {
            true => self.bodies.linked(now, peer, features),
            false => self.bodies.unlinked(now, peer),
        }
        self.settle();
    }

    /// The last round trip to another node took so long.
    pub fn round_trip(&mut self, peer: Incarnation, micros: u64) {
        for owner in 0..self.owners.len() {
            let input = PeerInput::RoundTrip(peer, micros);
            self.input(Dest::Owner(owner), Input::Peer(input));
        }
        self.settle();
    }

    /// How its clock stands.
    pub fn clock(&mut self, clock: Clock) {
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            self.input(dest, Input::Peer(PeerInput::Clock(clock)));
        }
        self.settle();
    }

    /// Who belongs to the cluster, this node among them, and their slots; and who did, until its logs were closed.
    pub fn members(&mut self, slots: BTreeMap<Incarnation, u8>, former: BTreeMap<Incarnation, u8>) {
        self.owner_config.former.clone_from(&former);
        self.owner_config.peers.clone_from(&slots);
        self.owner_config.peers.remove(&self.owner_config.origin);
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            self.input(dest, Input::Peer(PeerInput::Former(former.clone())));
            self.input(dest, Input::Peer(PeerInput::Members(slots.clone())));
        }
        self.settle();
    }

    /// Where the closed logs of some end.
    pub fn closed(&mut self, ends: &Ends) {
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            self.input(dest, Input::Peer(PeerInput::Closed(ends.clone())));
        }
        self.settle();
    }

    /// It leaves a partition only if so many others hold it. It starts anew.
    pub fn hold_at_least(&mut self, others: usize) {
        self.owner_config.holders_min = others;
        self.reopen();
    }

    /// Who holds which partition, for the next start.
    pub fn set_holders(&mut self, holders: Holders) {
        self.owner_config.holders = holders;
    }

    /// Who holds which partition; this one of accounts is to be looked at.
    pub fn placed(&mut self, holders: &Holders, partition: PartitionId) {
        self.owner_config.holders.clone_from(holders);
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            let holders = PeerInput::Holders(holders.clone());
            self.input(dest, Input::Peer(holders));
        }
        let dest = self.dest_of(partition);
        self.input(dest, Input::Peer(PeerInput::Open(partition)));
        self.settle();
    }

    /// How its partitions stand.
    #[must_use]
    pub fn reports(&self) -> Vec<PartitionReport> {
        let owners = self.owners.iter().flat_map(PartitionOwner::reports);
        let others = self.directory.reports().into_iter();
        owners.chain(others).chain(self.queue.reports()).collect()
    }

    /// Accounts whose UIDVALIDITY is to rise, and has not yet.
    #[must_use]
    pub fn too_low(&self) -> Vec<AccountId> {
        self.directory.too_low()
    }

    /// How one of them stands.
    #[must_use]
    pub fn report(&self, partition: PartitionId) -> Option<PartitionReport> {
        match self.dest_of(partition) {
            Dest::Owner(index) => self.owners[index].report_on(partition),
            Dest::Directory => self.directory.reports().pop(),
            Dest::Queue => None,
        }
    }

    /// Bytes of bodies in memory, that come from other nodes.
    #[must_use]
    pub fn bodies_bytes(&self) -> u64 {
        self.bodies.memory_bytes()
    }

    /// A frame has come from another node.
    pub fn receive(&mut self, peer: Incarnation, frame: Frame) {
        if let Some(partition) = frame.partition() {
            let input = Input::Peer(PeerInput::Frame(peer, frame));
            self.input(self.dest_of(partition), input);
        } else {
            let now = self.now();
            self.bodies.received(now, peer, frame);
        }
        self.settle();
    }

    /// The stream to another node takes a frame of this partition, or of the bodies.
    pub fn ready(&mut self, partition: Option<PartitionId>, peer: Incarnation) -> Option<Frame> {
        let Some(partition) = partition else {
            let frame = self.bodies.transmit(peer);
            self.settle();
            return frame;
        };
        let input = Input::Peer(PeerInput::Ready(partition, Stream::open(peer)));
        self.input(self.dest_of(partition), input);
        self.settle();
        self.sending.take()
    }

    /// What has left the node since the last call.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        if self.stopped {
            return None;
        }
        self.happenings
            .first_key_value()
            .map(|((time, _), _)| *time)
    }

    /// What the machines tell of themselves.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let now = self.now();
        let sum = self.directory.figures(now).plus(self.queue.figures(now));
        let owners = self.owners.iter().map(|owner| owner.figures(now));
        owners.fold(sum, Figures::plus)
    }

    /// Virtual time in microseconds.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Lets the next thing happen; says whether there was one.
    pub fn step(&mut self) -> bool {
        if self.stopped {
            return false;
        }
        let Some(((time, _), happening)) = self.happenings.pop_first() else {
            return false;
        };
        self.time = self.time.max(time);
        self.steps += 1;
        match happening {
            Happening::Input(dest, input) => {
                match (&dest, &input) {
                    (Dest::Owner(_), Input::Call(request, _)) => {
                        self.outcomes.push_back(Outcome::Reached(*request))
                    }
                    (Dest::Owner(_), Input::Deliver { entry, ticket, .. }) => {
                        self.outcomes
                            .push_back(Outcome::DeliveryReached(entry.id, *ticket));
                    }
                    _ => {}
                }
                self.input(dest, input);
            }
            Happening::Answer(request, reply) => {
                self.outcomes.push_back(Outcome::Reply(request, reply))
            }
            // One that was set for later has come in place of an earlier one: it is for nothing, and must not set yet another one.
            Happening::Timer(dest) if self.timers.get(&dest).is_some_and(|set| *set > time) => {}
            Happening::Timer(dest) => {
                self.timers.remove(&dest);
                self.input(dest, Input::Time);
            }
            // The disk hangs since.
            Happening::Synced { mark, group } if self.time < self.hangs_until => {
                self.at(self.hangs_until, Happening::Synced { mark, group });
            }
            Happening::Synced { mark, group } => self.synced(mark, group),
            Happening::Want(blob) => self.want_body(blob, false),
            Happening::Bodies => self.body_waits = false,
            Happening::BodyTimer => {
                self.body_timer = None;
                let now = self.now();
                self.bodies.time(now);
            }
            Happening::BodyRead(id, data, end) => self.bodies.read(id, data, end),
            // What was held back goes when everything is carried out.
            Happening::Patience => {}
        }
        self.settle();
        true
    }

    /// Moves virtual time on when nothing happens until then.
    pub fn advance_to(&mut self, time: u64) {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.time = self.time.max(time);
    }

    /// Its disk finishes nothing until then: neither the sync under way nor a read that begins.
    pub fn hang_until(&mut self, time: u64) {
        self.hangs_until = time;
    }

    /// It was stopped until now: what was due meanwhile comes now.
    pub fn sleep_until(&mut self, time: u64) {
        self.time = self.time.max(time);
    }

    /// Loses what was not synced (how much of it is up to `seed`) and starts again. Calls under way are never answered.
    pub fn crash(&mut self, seed: u64) {
        self.disk.crash(seed);
        self.restart();
    }

    /// As [`Node::crash`]; it starts again at this time.
    pub fn crash_until(&mut self, seed: u64, time: u64) {
        self.happenings.clear();
        self.time = self.time.max(time);
        self.crash(seed);
    }

    /// Whether a body and the content row of a message are here and whole.
    #[must_use]
    pub fn holds(&self, account: AccountId, row: &Row, text: &Bytes, content: &Bytes) -> bool {
        let read = self.blob_text(&row.blob);
        let partition = store_partition(keys::partition_of(account));
        let rows = self
            .disk
            .get(partition, &[keys::content_key(account, row.origin)]);
        let found = rows.first().and_then(Option::as_ref);
        let found = found.and_then(|row| keys::content_of_row(row).ok());
        read.is_some_and(|bytes| bytes[..] == text[..]) && found.as_ref() == Some(content)
    }

    /// A body, in as many pieces as it was written.
    fn blob_text(&self, blob: &BlobName) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            let name = owner::blob_name(blob);
            let piece = self.disk.blob_read(name, text.len() as u64, usize::MAX);
            match piece.ok()? {
                end if end.is_empty() => return Some(text),
                piece => text.extend_from_slice(&piece),
            }
        }
    }

    /// A body that nothing names is given up.
    pub fn drop_upload(&mut self, blob: BlobName) {
        self.store_call(Call::BlobAbort {
            upload: blob.upload,
        });
    }

    /// Uploads a body at once; `None`: the disk is full.
    pub fn upload(&mut self, bytes: Bytes) -> Option<BlobName> {
        self.upload_as(None, bytes)
    }

    /// The same; called so, if that can be.
    pub fn upload_as(
        &mut self,
        called: Option<whimbrel_service::api::UploadId>,
        bytes: Bytes,
    ) -> Option<BlobName> {
        let Reply::Upload(upload) = self.store_call(Call::BlobCreate(called)) else {
            return None;
        };
        self.store_call(Call::BlobWrite { upload, bytes });
        match self.store_call(Call::BlobFinish { upload }) {
            Reply::Blob(blob) => Some(blob),
            _ => None,
        }
    }

    /// A node comes back with this disk among these members: an empty one, or one that is older than what they remember. It goes on under another incarnation,
    /// and is syncing.
    pub fn renew(
        &mut self,
        copy: DiskCopy,
        identity: Identity,
        peers: BTreeMap<Incarnation, u8>,
        time: u64,
    ) {
        self.time = self.time.max(time);
        self.owner_config.peers = peers;
        self.owner_config.syncing = true;
        self.put_back(copy, identity);
    }

    /// An older copy of the disk of a node that is alone is put back, and the node started as `server` starts it then: under another incarnation.
    pub fn put_back(&mut self, copy: DiskCopy, identity: Identity) {
        self.disk.put_back(copy);
        self.owner_config.origin = identity.incarnation;
        self.owner_config.slot = identity.slot;
        self.owner_config.round = identity.round;
        self.restart();
    }

    /// Stops in good order and starts again.
    pub fn reopen(&mut self) {
        self.disk.reopen();
        self.restart();
    }

    fn restart(&mut self) {
        let partitions = self.disk.partitions().into_iter();
        let disk = partitions.map(|partition| {
            let position = self.disk.get(partition, &[POSITION_KEY.into()]);
            let position = position.into_iter().next().flatten();
            StoredPartition {
                partition,
                position,
                logs: self.disk.log_positions(partition),
            }
        });
        self.wrote.push(Wrote::Began {
            me: self.owner_config.origin,
            disk: disk.collect(),
        });
        self.group = GroupCommit::new(whimbrel_storage::group::GROUP_BYTES_MAX_DEFAULT);
        self.held_back_until = None;
        self.runs = self.runs.wrapping_add(1);
        self.directory =
            directory(&self.owner_config, self.runs).with_senders(self.senders.clone());
        self.queue = QueueOwner::new(queue_config(
            &self.owner_config,
            &self.queue_limits,
            self.runs,
        ));
        self.owners = owners(&self.owner_config);
        self.happenings.clear();
        self.timers.clear();
        self.deliveries.clear();
        self.outcomes.clear();
        self.sending = None;
        self.bodies = Bodies::new(self.bodies_config);
        self.body_work.clear();
        self.body_waits = false;
        self.body_refused.clear();
        self.body_uploads.clear();
        self.body_timer = None;
        self.states.clear();
        self.stopped = false;
        self.wake_all();
    }

    /// Entries that this node holds.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Entries of an older disk that wait for a node which may know of them.
    #[must_use]
    pub fn queue_doubts(&self) -> usize {
        self.queue.doubts()
    }

    /// Whether nothing is left of entries, as far as this node knows.
    #[must_use]
    pub fn queue_is_quiet(&self) -> bool {
        self.queue.is_quiet()
    }

    /// How often it has started.
    #[must_use]
    pub fn runs(&self) -> u8 {
        self.runs
    }

    /// Whether nothing is under way but timers.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.happenings
            .values()
            .all(|happening| matches!(happening, Happening::Timer(_)))
    }

    /// Groups synced and commits in them.
    #[must_use]
    pub fn commits(&self) -> (u64, u64) {
        self.group.totals()
    }

    fn owner_of(&self, account: whimbrel_service::api::AccountId) -> Dest {
        self.dest_of(keys::partition_of(account))
    }

    fn dest_of(&self, partition: PartitionId) -> Dest {
        if partition == PartitionId::DIRECTORY {
            Dest::Directory
        } else if partition == PartitionId::QUEUE {
            Dest::Queue
        } else {
            Dest::Owner(usize::from(partition.0) % self.owners.len())
        }
    }

    /// When a read ends that begins now.
    fn read_until(&mut self) -> u64 {
        self.time.max(self.hangs_until) + self.draw(self.speed.read_micros)
    }

    fn draw(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.between(low, high)
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.count += 1;
        self.happenings.insert((time, self.count), happening);
    }

    /// Channels between threads keep their order, so an input comes after those sent before.
    fn input_soon(&mut self, dest: Dest, input: Input) {
        self.at(self.time, Happening::Input(dest, input));
    }

    fn input(&mut self, dest: Dest, input: Input) {
        let now = self.now();
        self.machine(dest).handle(now, input);
        self.dirty.insert(dest);
    }

    fn machine(&mut self, dest: Dest) -> &mut dyn Machine {
        match dest {
            Dest::Directory => &mut self.directory,
            Dest::Queue => &mut self.queue,
            Dest::Owner(index) => &mut self.owners[index],
        }
    }

    fn wake_all(&mut self) {
        self.dirty = [Dest::Directory, Dest::Queue].into();
        self.dirty.extend((0..self.owners.len()).map(Dest::Owner));
        if !self.owner_config.peers.is_empty() {
            let stored = self.disk.partitions().into_iter();
            let stored = stored.filter_map(|partition| u16::try_from(partition.0).ok());
            let stored = stored.map(PartitionId).filter(|of| of.bucket().is_some());
            let mut open: BTreeSet<PartitionId> = stored.collect();
            if self.owner_config.syncing {
                open.extend(&self.partitions);
            }
            for partition in open {
                let dest = self.dest_of(partition);
                self.input(dest, Input::Peer(PeerInput::Open(partition)));
            }
        }
        self.settle();
    }

    /// Carries out what the machines that were touched want.
    fn settle(&mut self) {
        while let Some(dest) = self.dirty.pop_first() {
            while let Some(output) = self.machine(dest).poll() {
                self.output(dest, output);
            }
            if let Some(deadline) = self.machine(dest).deadline()
                && self.timers.get(&dest).is_none_or(|set| deadline < *set)
            {
                self.timers.insert(dest, deadline);
                self.at(deadline.max(self.time), Happening::Timer(dest));
            }
        }
        self.do_for_bodies();
        self.start_sync();
    }

    fn output(&mut self, dest: Dest, output: Output) {
        match output {
            Output::Commit(ticket, commit) => {
                let (bytes, lazy) = (commit.bytes(), commit.lazy);
                let item = (dest, ticket, commit);
                let queued = if lazy {
                    self.group.submit_lazy(item, bytes)
                } else {
                    self.group.submit(item, bytes)
                };
                if let Err((_, error)) = queued {
                    self.stop(error.to_string());
                }
            }
            Output::Build(ticket, building) => {
                let at = self.time + self.draw(self.speed.read_micros);
                let built = Input::Built(ticket, building.run());
                self.at(at, Happening::Input(dest, built));
            }
            Output::Discard(replica) => drop(replica),
            Output::Load {
                ticket,
                partition,
                from,
                to,
            } => self.load(dest, ticket, partition, from, &to),
            Output::Reply(request, reply) => {
                self.outcomes.push_back(Outcome::Reply(request, reply))
            }
            Output::AdminReply(request, reply) => {
                self.outcomes.push_back(Outcome::Admin(request, reply))
            }
            Output::Notify(session, event) => {
                self.outcomes.push_back(Outcome::Notify(session, event))
            }
            // The simulated drivers hold no logins: the directory's own tests look at this.
            Output::EndSessions(..) => {}
            Output::Verify {
                ticket,
                verifier,
                password,
            } => {
                let matches =
                    verifier.as_bytes() == [VERIFIER_PREFIX.as_bytes(), &password].concat();
                let at = self.time + self.draw(self.speed.verify_micros);
                self.at(at, Happening::Input(dest, Input::Verified(ticket, matches)));
            }
            Output::Deliver {
                ticket,
                entry,
                index,
                others,
            } => {
                let Some(delivery) = entry.deliveries.get(index) else {
                    return;
                };
                self.deliveries.insert(ticket, entry.id);
                let dest = self.owner_of(delivery.account);
                self.input_soon(
                    dest,
                    Input::Deliver {
                        ticket,
                        entry: Arc::clone(&entry),
                        index,
                        others,
                    },
                );
            }
            Output::Delivered(ticket) => {
                if let Some(entry) = self.deliveries.get(&ticket) {
                    self.outcomes
                        .push_back(Outcome::DeliveryDone(*entry, ticket));
                }
                self.input_soon(Dest::Queue, Input::Delivered(ticket));
            }
            Output::NotHere(ticket) => self.input_soon(Dest::Queue, Input::NotHere(ticket)),
            Output::NotDelivered(ticket) => {
                if let Some(entry) = self.deliveries.get(&ticket) {
                    self.outcomes
                        .push_back(Outcome::DeliveryFailed(*entry, ticket));
                }
                self.input_soon(Dest::Queue, Input::NotDelivered(ticket));
            }
            Output::Closing(entry) => {
                for owner in 0..self.owners.len() {
                    self.input_soon(Dest::Owner(owner), Input::Closing(entry));
                }
            }
            Output::Closed(entry) => self.input_soon(Dest::Queue, Input::Closed(entry)),
            Output::Swept { began, least } => {
                for owner in 0..self.owners.len() {
                    self.input_soon(Dest::Owner(owner), Input::Swept { began, least });
                }
            }
            Output::AskBirth(account) => self.input_soon(Dest::Directory, Input::AskBirth(account)),
            Output::AccountOrigin(account, status) => {
                let dest = self.owner_of(account);
                self.input_soon(dest, Input::AccountOrigin(account, status));
            }
            Output::Purge(account) => {
                let dest = self.owner_of(account);
                self.input_soon(dest, Input::Purge(account));
            }
            Output::UidValidity(account, uid_validity) => {
                self.input_soon(Dest::Directory, Input::UidValidity(account, uid_validity));
            }
            Output::Full(account, full) => {
                self.input_soon(Dest::Directory, Input::Full(account, full));
            }
            Output::Quota(account, quota) => {
                let dest = self.owner_of(account);
                self.input_soon(dest, Input::Quota(account, quota));
            }
            Output::LeastUidValidity(account, least) => {
                let dest = self.owner_of(account);
                self.input_soon(dest, Input::LeastUidValidity(account, least));
            }
            Output::Peer(output) => self.peer(dest, output),
            Output::Log(note) => self.outcomes.push_back(Outcome::Note(note)),
            Output::Fatal(cause) => self.stop(cause),
        }
    }

    fn peer(&mut self, dest: Dest, output: PeerOutput) {
        match output {
            PeerOutput::LoadLogs { ticket, partition } => {
                let logs = self.disk.log_positions(store_partition(partition));
                let logs = logs.into_iter().map(log_end).collect();
                let at = self.read_until();
                let input = Input::Peer(PeerInput::Logs(ticket, logs));
                self.at(at, Happening::Input(dest, input));
            }
            PeerOutput::ReadLog {
                ticket,
                partition,
                origin,
                from,
                bytes_max,
            } => {
                let (partition, origin) = (store_partition(partition), Origin(origin.get()));
                let page = self.disk.read_log(partition, origin, from, bytes_max);
                let entries = page.entries.into_iter().map(entry).collect();
                let at = self.read_until();
                let input = Input::Peer(PeerInput::Log(ticket, entries));
                self.at(at, Happening::Input(dest, input));
            }
            PeerOutput::Wake(partition, peer) => {
                self.outcomes
                    .push_back(Outcome::Wake(Some(partition), peer));
            }
            PeerOutput::Snapshot { ticket, partition } => {
                let snapshot = self.fix(store_partition(partition));
                let at = self.read_until();
                let input = Input::Peer(PeerInput::Snapshot(ticket, snapshot));
                self.at(at, Happening::Input(dest, input));
            }
            PeerOutput::ReadRows {
                ticket,
                partition,
                state,
                from,
                to,
                bytes_max,
            } => {
                let range = KeyRange {
                    start: from.into(),
                    end: Some(to.into()),
                };
                let limit = ScanLimit {
                    rows: 7,
                    bytes: bytes_max.min(4096),
                };
                let page = match state {
                    None => Ok(self.disk.scan(store_partition(partition), &range, limit)),
                    Some(state) => {
                        let fixed = self.states.get(&state).copied();
                        let fixed = fixed.unwrap_or(SnapshotId(0));
                        self.disk.scan_at(fixed, &range, limit)
                    }
                };
                let at = self.read_until();
                let input = match page {
                    Ok(page) => {
                        let rows = page.rows.into_iter();
                        let rows = rows.map(|(key, value)| (key.to_vec(), value)).collect();
                        let end = page.next.is_none();
                        Input::Peer(PeerInput::Rows(ticket, Page { rows, end }))
                    }
                    Err(error) => Input::LoadFailed(ticket, error),
                };
                self.at(at, Happening::Input(dest, input));
            }
            PeerOutput::Release(state) => {
                if let Some(snapshot) = self.states.remove(&state) {
                    self.disk.release(snapshot);
                }
            }
            PeerOutput::Request(blob) => self.want_body(blob, false),
            PeerOutput::Coming(blob) => self.want_body(blob, true),
            PeerOutput::Push(peer, blobs) => self.bodies.push(peer, &blobs),
            PeerOutput::Send(_, frame) => self.sending = Some(frame),
            PeerOutput::Unlink(peer) => self.outcomes.push_back(Outcome::Unlink(peer)),
        }
    }

    /// Fixes the rows of a partition, and looks up what they stand for.
    fn fix(&mut self, partition: whimbrel_storage::PartitionId) -> Option<Snapshot> {
        let fixed = self.disk.snapshot(partition).ok()?;
        let snapshot = self.look_up(partition, fixed);
        match &snapshot {
            Some(snapshot) => _ = self.states.insert(snapshot.state, fixed),
            None => self.disk.release(fixed),
        }
        snapshot
    }

    fn look_up(
        &mut self,
        partition: whimbrel_storage::PartitionId,
        fixed: SnapshotId,
    ) -> Option<Snapshot> {
        let one = ScanLimit { rows: 1, bytes: 1 };
        let found = |prefix: &[u8]| {
            let range = KeyRange::prefix(prefix.to_vec());
            self.disk.scan_at(fixed, &range, one).ok()
        };
        let mut rows = Vec::new();
        for prefix in LOOKED_AT {
            rows.extend(found(prefix)?.rows);
        }
        let ends = self.disk.log_positions(partition).into_iter();
        let ends = ends.map(log_end).collect();
        let mut fixing = Fixing::new(self.rng.number().max(1), &rows, &ends)?;
        while let Some((origin, from)) = fixing.lacks() {
            let page = self.disk.read_log(partition, Origin(origin.get()), from, 1);
            let first = page.entries.into_iter().next().map(entry);
            if !fixing.entry(first.as_ref()) {
                return None;
            }
        }
        fixing.done()
    }

    /// Tells the owners that a body is here, or gets it.
    fn want_body(&mut self, blob: BlobName, coming: bool) {
        let now = self.now();
        if self.disk.blob_stat(owner::blob_name(&blob)).is_some() {
            return self.tell_body(blob, LOOK_MICROS * u64::from(blob.hash[0] % 4));
        }
        let taken = match coming {
            true => self.bodies.coming(now, &blob),
            false => self.bodies.want(now, &blob),
        };
        if !taken {
            self.at(self.time + BODY_RETRY_MICROS, Happening::Want(blob));
        }
    }

    /// What was finished before is durable no later than what an owner commits for it.
    fn tell_body(&mut self, blob: BlobName, after: u64) {
        let looked = self.now().mono_micros;
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Queue]) {
            let input = Input::Peer(PeerInput::Body(blob, looked));
            self.at(self.time + after, Happening::Input(dest, input));
        }
    }

    fn ask_who_lacks(&mut self, blob: BlobName, after: u64) {
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Queue]) {
            let input = Input::Peer(PeerInput::WantAgain(blob));
            self.at(self.time + after, Happening::Input(dest, input));
        }
    }

    fn do_for_bodies(&mut self) {
        while let Some(work) = self.bodies.poll() {
            self.body_work.push_back(work);
        }
        while let Some(work) = self.body_work.pop_front() {
            if !self.body(&work) {
                // No room: in their order, later.
                self.body_work.push_front(work);
                if !std::mem::replace(&mut self.body_waits, true) {
                    self.at(self.time + BODY_RETRY_MICROS, Happening::Bodies);
                }
                break;
            }
            while let Some(more) = self.bodies.poll() {
                self.body_work.push_back(more);
            }
        }
        if let Some(deadline) = self.bodies.deadline()
            && self.body_timer.is_none_or(|set| deadline < set)
        {
            self.body_timer = Some(deadline);
            self.at(deadline.max(self.time), Happening::BodyTimer);
        }
    }

    /// Says whether it could be done.
    fn body(&mut self, work: &BodyOutput) -> bool {
        match work {
            BodyOutput::Wake(peer) => self.outcomes.push_back(Outcome::Wake(None, *peer)),
            BodyOutput::Write(blob, bytes) => {
                match self.write_body(blob, bytes) {
                    Ok(()) => {}
                    Err(StoreError::Refused(Refusal::UploadExists(_))) => {
                        self.body_refused.insert(*blob);
                    }
                    // No room, or nothing at all is written any more.
                    Err(_) => return false,
                }
                self.bodies.written(blob, bytes.len() as u64);
            }
            BodyOutput::Finish(blob) => match self.finish_body(blob) {
                Ok(info) if info.name == owner::blob_name(blob) => {
                    self.bodies.finished(blob);
                    self.tell_body(*blob, 0);
                }
                Ok(info) => self.stop(format!("a body was fetched as another one: {info:?}")),
                Err(StoreError::Refused(Refusal::UploadExists(_))) => {
                    self.bodies.finished(blob);
                    self.ask_who_lacks(*blob, BODY_RETRY_MICROS);
                }
                Err(_) => return false,
            },
            BodyOutput::Again(blob) => self.ask_who_lacks(*blob, 0),
            BodyOutput::Nowhere(blob) => {
                for owner in 0..self.owners.len() {
                    let input = Input::Peer(PeerInput::NoBody(*blob));
                    self.input_soon(Dest::Owner(owner), input);
                }
            }
            BodyOutput::Discard(blob) => {
                self.body_refused.remove(blob);
                if self.body_uploads.remove(blob) {
                    drop(self.disk.blob_abort(UploadId(blob.upload)));
                }
            }
            BodyOutput::Read {
                id,
                name,
                offset,
                bytes,
            } => {
                let stored = owner::blob_name(name);
                let data = self.disk.blob_read(stored, *offset, *bytes).ok();
                let size = self.disk.blob_stat(stored).map_or(0, |info| info.size);
                let end = data
                    .as_ref()
                    .is_some_and(|data| offset + data.len() as u64 >= size);
                let at = self.read_until();
                self.at(at, Happening::BodyRead(*id, data, end));
            }
        }
        true
    }

    /// As the server does: the first bytes begin the upload.
    fn write_body(&mut self, blob: &BlobName, bytes: &Bytes) -> Result<(), StoreError> {
        let upload = UploadId(blob.upload);
        if self.body_refused.contains(blob) {
            return Ok(());
        }
        if !self.body_uploads.contains(blob) {
            self.disk.blob_create(upload)?;
            self.body_uploads.insert(*blob);
        }
        self.disk.blob_write(upload, bytes.clone())
    }

    fn finish_body(&mut self, blob: &BlobName) -> Result<BlobInfo, StoreError> {
        let upload = UploadId(blob.upload);
        if self.body_refused.remove(blob) {
            return Err(Refusal::UploadExists(upload).into());
        }
        if !self.body_uploads.contains(blob) {
            // An empty one: nothing was written.
            self.disk.blob_create(upload)?;
            self.body_uploads.insert(*blob);
        }
        let info = self.disk.blob_finish(upload)?;
        self.body_uploads.remove(blob);
        Ok(info)
    }

    fn stop(&mut self, cause: String) {
        self.stopped = true;
        self.outcomes.push_back(Outcome::Stopped(cause));
    }

    fn load(
        &mut self,
        dest: Dest,
        ticket: Ticket,
        partition: whimbrel_crdt::PartitionId,
        from: Vec<u8>,
        to: &[u8],
    ) {
        // Small pages, so that the machines see many.
        let limit = ScanLimit {
            rows: 7,
            bytes: 4096,
        };
        let mut range = KeyRange {
            start: from.into(),
            end: Some(Bytes::copy_from_slice(to)),
        };
        let mut at = self.time.max(self.hangs_until);
        loop {
            let page = self.disk.scan(store_partition(partition), &range, limit);
            let rows = page
                .rows
                .into_iter()
                .map(|(key, value)| (key.to_vec(), value))
                .collect();
            at += self.draw(self.speed.read_micros);
            let done = page.next.is_none();
            self.at(
                at,
                Happening::Input(dest, Input::Loaded { ticket, rows, done }),
            );
            match page.next {
                Some(next) => range.start = next,
                None => return,
            }
        }
    }

    fn start_sync(&mut self) {
        if self.group.may_wait() {
            let until = match self.held_back_until {
                Some(until) => until,
                None => {
                    let until = self.time + self.draw(self.speed.lazy_micros);
                    self.at(until, Happening::Patience);
                    until
                }
            };
            self.held_back_until = Some(until);
            if self.time < until {
                return;
            }
        }
        let Some(group) = self.group.start() else {
            return;
        };
        self.held_back_until = None;
        let mut written = Vec::with_capacity(group.len());
        for (dest, ticket, commit) in group {
            let wrote = Wrote::of(self.owner_config.origin, &commit, self.cuts(&commit));
            match self.disk.write(commit) {
                Ok(()) => {
                    self.wrote.push(wrote);
                    written.push((dest, ticket));
                }
                // As the server does it: whatever else is refused is a defect.
                Err(StoreError::Full(_) | StoreError::Refused(Refusal::Broken { .. })) => {
                    self.outcomes.push_back(Outcome::CommitFailed);
                    self.input_soon(dest, Input::CommitFailed(ticket));
                }
                Err(error) => return self.stop(error.to_string()),
            }
        }
        let mark = self.disk.begin_sync();
        let at = self.time.max(self.hangs_until) + self.draw(self.speed.sync_micros);
        self.at(
            at,
            Happening::Synced {
                mark,
                group: written,
            },
        );
    }

    fn synced(&mut self, mark: SyncMark, group: Vec<(Dest, Ticket)>) {
        let result = self.disk.complete_sync(mark);
        let failed = result.as_ref().err().map(ToString::to_string);
        let _ = self.group.done(result);
        if let Some(cause) = failed {
            return self.stop(cause);
        }
        for (dest, ticket) in group {
            self.input(dest, Input::Committed(ticket));
        }
        self.shorten_logs();
    }

    /// What a commit cuts of logs that are not given up, and the other members that hold the partition and never left it.
    fn cuts(&self, commit: &Commit) -> Cuts {
        let Ok(number) = u16::try_from(commit.partition.0) else {
            return Cuts::default();
        };
        let partition = PartitionId(number);
        let cuts = commit.cuts.iter().filter_map(|cut| {
            let origin = Incarnation::new(cut.origin.0)?;
            let given_up = self.given_up.get(&(partition, origin)).copied();
            (cut.below > given_up.unwrap_or(0) + 1).then_some((origin, cut.below))
        });
        let owner::Config { peers, holders, .. } = &self.owner_config;
        let stays = |id: &&Incarnation| {
            let state = holders.holder_state(**id, partition);
            state.phase == Phase::Holds && state.generation == 0
        };
        let below: Vec<(Incarnation, u64)> = cuts.collect();
        let members = peers.keys().filter(stays).filter(|_| !below.is_empty());
        Cuts {
            members: members.copied().collect(),
            below,
        }
    }

    /// As a server does it now and then.
    fn shorten_logs(&mut self) {
        let Some(bytes_max) = self.log_retention_bytes else {
            return;
        };
        let lengths = self.disk.log_lengths();
        let lengths: Vec<Length> = lengths.iter().filter_map(Length::of).collect();
        let logs = given_up(&lengths, bytes_max);
        if logs.is_empty() {
            return;
        }
        for (of, number) in &logs {
            let given_up = self.given_up.entry(*of).or_default();
            *given_up = (*number).max(*given_up);
        }
        let owners = (0..self.owners.len()).map(Dest::Owner);
        for dest in owners.chain([Dest::Directory, Dest::Queue]) {
            self.input(dest, Input::Peer(PeerInput::GiveUp(logs.clone())));
        }
    }

    fn store_call(&mut self, call: Call) -> Reply {
        match self.try_store_call(call) {
            Ok(reply) => reply,
            Err(StoreError::Full(_)) => Reply::Failed(Failure::Storage),
            Err(_) => Reply::Failed(Failure::Temporary),
        }
    }

    fn try_store_call(&mut self, call: Call) -> Result<Reply, StoreError> {
        Ok(match call {
            Call::Contents { account, origins } => {
                let wanted: Vec<Bytes> = origins
                    .iter()
                    .map(|origin| keys::content_key(account, *origin))
                    .collect();
                let rows = self
                    .disk
                    .get(store_partition(keys::partition_of(account)), &wanted);
                // No further one when there is so much.
                let mut bytes = 0;
                let rows = rows.into_iter().take_while(|row| {
                    let has_room = bytes < CONTENTS_BYTES_MAX;
                    bytes += row.as_ref().map_or(0, Bytes::len);
                    has_room
                });
                Reply::Contents(
                    rows.map(|row| row.map(|row| keys::content_of_row(&row).unwrap_or_default()))
                        .collect(),
                )
            }
            Call::TurnBegin | Call::TurnEnd => Reply::Done,
            Call::BlobCreate(called) => {
                self.uploads += 1;
                let mut own = [0; 16];
                own[..8].copy_from_slice(&Rng::new(self.uploads).number().to_be_bytes());
                own[8..].copy_from_slice(&self.uploads.to_be_bytes());
                let mut upload = called.unwrap_or(own);
                // As `server::store_calls`.
                match self.disk.blob_create(UploadId(upload)) {
                    Err(StoreError::Refused(Refusal::UploadExists(_))) if called.is_some() => {
                        upload = own;
                        self.disk.blob_create(UploadId(upload))?;
                    }
                    created => created?,
                }
                let called = called.filter(|called| *called != upload);
                self.own_uploads.insert(upload, called);
                Reply::Upload(upload)
            }
            Call::BlobWrite { upload, bytes } => {
                self.disk.blob_write(UploadId(upload), bytes)?;
                Reply::Done
            }
            Call::BlobFinish { upload } => {
                let own = self.disk.blob_finish(UploadId(upload))?.name;
                let mut name = own;
                if let Some(called) = self.own_uploads.get(&upload).copied().flatten() {
                    name.upload = UploadId(called);
                    if self.disk.blob_stat(name).is_some() {
                        self.disk.blob_delete(own)?;
                        // It is another one's.
                        self.own_uploads.remove(&upload);
                        self.own_uploads.remove(&called);
                    } else {
                        name = own;
                    }
                }
                Reply::Blob(BlobName {
                    hash: name.hash.0,
                    upload: name.upload.0,
                })
            }
            Call::BlobAbort { upload } if self.own_uploads.remove(&upload).is_none() => Reply::Done,
            Call::BlobAbort { upload } => {
                let upload = UploadId(upload);
                // An upload that is finished already is removed as an unnamed blob.
                let before = whimbrel_storage::BlobName {
                    upload,
                    hash: whimbrel_storage::Hash([0; 32]),
                };
                let next = self.disk.blob_list(Some(before), 1).pop();
                match next
                    .map(|info| info.name)
                    .filter(|name| name.upload == upload)
                {
                    Some(name) => self.disk.blob_delete(name)?,
                    None => drop(self.disk.blob_abort(upload)),
                }
                Reply::Done
            }
            Call::BlobReadMany(ranges) => {
                let read = |(at, range): (usize, &BlobRange)| {
                    let name = owner::blob_name(&range.blob);
                    let read = self.disk.blob_read(name, range.offset, range.len as usize);
                    read_ahead(at, read)
                };
                let read: Result<_, StoreError> = ranges.iter().enumerate().map(read).collect();
                Reply::Blobs(read?)
            }
            Call::BlobRead { blob, offset, len } => Reply::Bytes(self.disk.blob_read(
                owner::blob_name(&blob),
                offset,
                len as usize,
            )?),
            Call::Authenticate(_)
            | Call::ScramBegin { .. }
            | Call::ScramFinish(_)
            | Call::MaySend { .. }
            | Call::Resolve { .. }
            | Call::Mailbox { .. }
            | Call::Accept(_)
            | Call::Queue(_) => Reply::Failed(Failure::Temporary),
        })
    }
}

fn log_end((origin, position): (Origin, LogPosition)) -> (Incarnation, LogEnd) {
    let end = LogEnd {
        last: position.next - 1,
        hash: Hash(position.hash.0),
        low: position.low,
    };
    (Incarnation::from_hash(origin.0), end)
}

fn entry(entry: LogEntry) -> Entry {
    Entry {
        first: entry.first,
        last: entry.end() - 1,
        bytes: entry.bytes,
    }
}

/// Verifiers in the simulator are this and the password: argon2 has nothing to be simulated for.
pub const VERIFIER_PREFIX: &str = "sim:";

/// `run`: how often the node has started; each start has a secret of its own, as a real one draws it.
fn directory(config: &owner::Config, run: u8) -> DirectoryOwner {
    let authenticator = Authenticator::new(auth::Limits::default(), [run; 32], "nobody's".into());
    let config = directory::Config {
        origin: config.origin,
        slot: config.slot,
        peers: config.peers.keys().copied().collect(),
        holders: config.holders.clone(),
        in_cluster: config.in_cluster,
        syncing: config.syncing,
        shipping: config.shipping,
    };
    DirectoryOwner::new(config, authenticator)
}

/// `run`: how often the node has started.
fn queue_config(config: &owner::Config, limits: &queue::Limits, run: u8) -> queue::Config {
    queue::Config {
        peers: config.peers.clone(),
        holders: config.holders.clone(),
        owners: OWNERS,
        takeover_after_seconds: 10,
        repair_after_seconds: 30,
        confirm_micros: waits().timeout_micros,
        seed: config.origin.get() ^ u64::from(run),
        ..queue::Config::alone(config.origin, config.slot, limits.clone())
    }
}

/// Machines that have accounts.
const OWNERS: usize = 2;

/// Every partition of accounts.
#[must_use]
pub(crate) fn all_partitions() -> BTreeSet<PartitionId> {
    (0..=u8::MAX).map(PartitionId::accounts).collect()
}

fn owners(config: &owner::Config) -> Vec<PartitionOwner> {
    let config = owner::Config {
        waits: waits(),
        ..config.clone()
    };
    (0..OWNERS)
        .map(|_| PartitionOwner::new(config.clone()))
        .collect()
}

/// How long clients and senders wait for other nodes.
fn waits() -> owner::waits::Config {
    owner::waits::Config {
        timeout_micros: 6_000_000,
        ..owner::waits::Config::default()
    }
}
