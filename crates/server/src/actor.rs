//! One machine of the service on tokio: takes inputs one at a time, carries out outputs, and returns their completions.
//!
//! Invariants:
//! - Commits of a machine reach the store in the order given, and their completions come back in that order.
//! - Frames for another node go to the link that was up when the machine was told of it, never to a later one.
//! - After a commit that failed for good, or an [`Output::Fatal`], the machine is never called again, and none of its remaining outputs is carried
//!   out: the node stops.

mod questions;
mod reading;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, mpsc, oneshot};
use whimbrel_cluster::Handle;
use whimbrel_crdt::{Hash, Incarnation};
use whimbrel_service::{
    admin::AdminReply,
    api::Reply,
    log::store_partition,
    machine::{Input, Machine, Note, Output, RequestId, Ticket},
    peers::{
        Entry, Frame, LogEnd, Page, PeerInput, PeerOutput, Snapshot, Stream,
        snapshot::{Fixing, LOOKED_AT},
    },
};
use whimbrel_storage::{
    Commit, KeyRange, LogEntry, LogPosition, LogStore, Origin, PartitionId, Refusal, ScanLimit,
    SnapshotId, StoreError,
};

use self::questions::Questions;
use crate::{
    clock::{Alarm, Clock},
    cluster::Ask,
    metrics::{self, Fault},
    node::random,
    password::Verifier,
    registry::Registry,
    router::{FromPeer, Inbox, Question, Router, Work},
};

/// Pages of a scan that wait for the machine: the scan goes on when it has taken them.
const PAGES_MAX: usize = 4;

/// How long a machine runs before other tasks get a turn.
const SLICE: Duration = Duration::from_millis(1);

/// Called with the reason when the node has to stop. It should not return; if it does (in tests), nothing more happens.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// What all actors share.
pub(crate) struct Shared<S> {
    pub(crate) clock: Clock,
    pub(crate) store: S,
    pub(crate) board: Arc<Router>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) verifier: Verifier,
    /// Scans at once, over all machines.
    pub(crate) loads: Arc<Semaphore>,
    pub(crate) fatal: Fatal,
    /// Requests for blobs of other nodes; `None`: there are no other nodes, and no blob is ever requested.
    pub(crate) wants: Option<mpsc::UnboundedSender<Ask>>,
}

type Outcome = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

struct Committing {
    ticket: Ticket,
    log: Option<(PartitionId, Origin)>,
    outcome: Outcome,
    /// When the commit was submitted; unset for a lazy commit.
    began: Option<Instant>,
    _work: Work,
}

enum Waiter {
    Call(oneshot::Sender<Reply>),
    Admin(oneshot::Sender<AdminReply>),
}

/// The node stops.
struct Dead;

/// A panic means a broken invariant. This stops the node; otherwise the machine's questions would stay unanswered and the node would run on.
pub(crate) struct PanicStops {
    pub(crate) name: &'static str,
    pub(crate) fatal: Fatal,
}

impl Drop for PanicStops {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.fatal)(&format!("{}: panicked", self.name));
        }
    }
}

pub(crate) struct Actor<M, S> {
    name: &'static str,
    machine: M,
    shared: Arc<Shared<S>>,
    inbox: Inbox,
    questions: Questions,
    pages: mpsc::Receiver<(Input, Work)>,
    to_pages: mpsc::Sender<(Input, Work)>,
    next_request: u64,
    waiters: HashMap<RequestId, (Waiter, Work)>,
    commits: VecDeque<Committing>,
    /// How many commits were begun; the last one has this number.
    begun: u64,
    /// The number of the last commit for which somebody waits.
    last_awaited: u64,
    /// Logs on which a commit failed for lack of room: later ones are refused, and that is no defect.
    broken: HashSet<(PartitionId, Origin)>,
    links: BTreeMap<Incarnation, Link>,
    /// Snapshots of the store, by the name under which peers know them.
    states: States,
    /// The frame that the machine gave for a link with room.
    sending: Option<Frame>,
}

type States = Arc<Mutex<BTreeMap<u64, SnapshotId>>>;

/// The sending end of a link.
struct Link {
    handle: Handle,
    /// Partitions that have something for the link, each once; the first is next.
    awake: VecDeque<whimbrel_crdt::PartitionId>,
    /// Partitions that were asked while there was no room for rows of snapshots, and are asked again when there is.
    held: BTreeSet<whimbrel_crdt::PartitionId>,
}

impl Link {
    fn new(handle: Handle) -> Link {
        Link {
            handle,
            awake: VecDeque::new(),
            held: BTreeSet::new(),
        }
    }

    fn wake(&mut self, partition: whimbrel_crdt::PartitionId) {
        if !self.awake.contains(&partition) {
            self.awake.push_back(partition);
        }
    }

    /// The next partition that has something for the stream, and whether the stream takes rows of snapshots now.
    fn next(&mut self) -> Option<(whimbrel_crdt::PartitionId, bool)> {
        if !self.held.is_empty() && self.handle.has_room(true) {
            for partition in std::mem::take(&mut self.held) {
                self.wake(partition);
            }
        }
        if self.awake.is_empty() || !self.handle.has_room(false) {
            return None;
        }
        let partition = self.awake.pop_front()?;
        let takes_bulk = self.handle.has_room(true);
        if !takes_bulk {
            self.held.insert(partition);
        }
        Some((partition, takes_bulk))
    }
}

impl<M, S> Actor<M, S>
where
    M: Machine + Send + 'static,
    S: LogStore + Clone,
{
    pub(crate) fn new(
        name: &'static str,
        machine: M,
        inbox: Inbox,
        shared: Arc<Shared<S>>,
    ) -> Self {
        let (to_pages, pages) = mpsc::channel(PAGES_MAX);
        Actor {
            name,
            machine,
            shared,
            inbox,
            questions: Questions::default(),
            pages,
            to_pages,
            next_request: 0,
            waiters: HashMap::new(),
            commits: VecDeque::new(),
            begun: 0,
            last_awaited: 0,
            broken: HashSet::new(),
            links: BTreeMap::new(),
            states: States::default(),
            sending: None,
        }
    }

    /// Runs until nothing can reach the machine, or the node stops.
    pub(crate) async fn run(mut self) {
        let _guard = self.stops();
        let mut alarm = Alarm::new();
        if self.carry_out().is_err() {
            return;
        }
        let mut since = Instant::now();
        loop {
            if since.elapsed() >= SLICE {
                // Other tasks need this thread of the runtime, too.
                tokio::task::yield_now().await;
                since = Instant::now();
            }
            alarm.set(&self.shared.clock, self.machine.deadline());
            if self.sort_questions().is_err() {
                return;
            }
            let now = Instant::now();
            let asked = self.questions.has(now, self.committed());
            let mut asks = None;
            // The branches have no order: each gets its turn, whatever the others bring.
            let (input, _work) = tokio::select! {
                Some(input) = self.inbox.inputs.recv() => input,
                () = std::future::ready(()), if asked => {
                    let committed = self.committed();
                    match self.questions.next(now, committed) {
                        Some(question) => {
                            asks = question.account();
                            self.question(question)
                        }
                        None => continue,
                    }
                }
                () = self.questions.rest(now), if !asked => continue,
                Some(question) = self.inbox.questions.recv(), if !asked && self.questions.has_room() => {
                    if self.sort(question).is_err() {
                        return;
                    }
                    continue;
                }
                Some(page) = self.pages.recv() => page,
                Some(told) = self.inbox.peers.recv() => match told {
                    FromPeer::Told(input, handle) => self.of_peer(input, handle),
                    FromPeer::Report(asked) => {
                        // As below.
                        let _ = asked.send(self.machine.reports());
                        continue;
                    }
                },
                () = self.inbox.room.notified() => {
                    if self.send().is_err() {
                        return;
                    }
                    continue;
                }
                Some(asked) = self.inbox.figures.recv() => {
                    // The caller may have stopped waiting.
                    let _ = asked.send(self.machine.figures(self.shared.clock.now()));
                    continue;
                }
                (done, result) = first(&mut self.commits) => match self.completed(&done, result) {
                    Ok(input) => (input, done._work),
                    Err(Dead) => return,
                },
                () = alarm.ring() => (Input::Time, self.shared.board.work().begin()),
                else => return,
            };
            let began = Instant::now();
            self.machine.handle(self.shared.clock.now(), input);
            let told = self.carry_out().and_then(|()| self.send());
            if let Some(account) = asks {
                let commits = (self.last_awaited, self.committed());
                self.questions.worked(account, began, commits);
            }
            if told.and_then(|()| self.all_completed()).is_err() {
                return;
            }
        }
    }

    /// Takes questions out of the inbox, so that accounts take turns. The end of a session is passed on at once: all its earlier calls were answered.
    fn sort_questions(&mut self) -> Result<(), Dead> {
        while self.questions.has_room()
            && let Ok(question) = self.inbox.questions.try_recv()
        {
            self.sort(question)?;
        }
        Ok(())
    }

    fn sort(&mut self, question: Question) -> Result<(), Dead> {
        match question {
            Question::Hangup(session, _work) => {
                let input = Input::Hangup(session);
                self.machine.handle(self.shared.clock.now(), input);
                self.carry_out().and_then(|()| self.send())
            }
            Question::Call(..) | Question::Admin(..) => {
                self.questions.push(question);
                Ok(())
            }
        }
    }

    /// How many commits are done: they end in the order in which they were begun.
    fn committed(&self) -> u64 {
        self.begun - self.commits.len() as u64
    }

    /// Tells the machine of all commits that are done, before new inputs. One input may bring several commits. If their completions took turns with
    /// the other lanes, each would come late as long as inputs come, and with it the answer to a client.
    fn all_completed(&mut self) -> Result<(), Dead> {
        while let Some((done, result)) = first_done(&mut self.commits) {
            let input = self.completed(&done, result)?;
            self.machine.handle(self.shared.clock.now(), input);
            self.carry_out()?;
            self.send()?;
        }
        Ok(())
    }

    fn question(&mut self, question: Question) -> (Input, Work) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let (input, waiter, work) = match question {
            Question::Call(call, reply, work) => {
                (Input::Call(request, call), Waiter::Call(reply), work)
            }
            Question::Admin(call, reply, work) => {
                (Input::Admin(request, call), Waiter::Admin(reply), work)
            }
            Question::Hangup(session, work) => return (Input::Hangup(session), work),
        };
        self.waiters.insert(request, (waiter, work.begin()));
        (input, work)
    }

    /// What a finished commit means to the machine.
    fn completed(
        &mut self,
        done: &Committing,
        result: Result<(), StoreError>,
    ) -> Result<Input, Dead> {
        match result {
            Ok(()) => {
                if let Some(began) = done.began {
                    metrics::commit(self.name, began.elapsed());
                }
                if let Some(log) = &done.log {
                    self.broken.remove(log);
                }
                Ok(Input::Committed(done.ticket))
            }
            Err(error @ StoreError::Full(_)) => {
                metrics::fault(Fault::Commit);
                if crate::log::may_write("a change was not made") {
                    tracing::warn!(machine = self.name, %error, "a change was not made");
                }
                self.broken.extend(done.log);
                Ok(Input::CommitFailed(done.ticket))
            }
            Err(StoreError::Refused(Refusal::NotNext { .. } | Refusal::Fork { .. }))
                if done.log.is_some_and(|log| self.broken.contains(&log)) =>
            {
                Ok(Input::CommitFailed(done.ticket))
            }
            // It depends on a commit that was refused for lack of room, which was reported.
            Err(StoreError::Refused(Refusal::Broken { .. })) => {
                Ok(Input::CommitFailed(done.ticket))
            }
            Err(error) => Err(self.die(&format!("a commit failed: {error}"))),
        }
    }

    fn stops(&self) -> PanicStops {
        PanicStops {
            name: self.name,
            fatal: Arc::clone(&self.shared.fatal),
        }
    }

    fn die(&self, reason: &str) -> Dead {
        (self.shared.fatal)(&format!("{}: {reason}", self.name));
        Dead
    }

    /// Carries out outputs of the machine until there is none.
    fn carry_out(&mut self) -> Result<(), Dead> {
        let board = Arc::clone(&self.shared.board);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(ticket, commit) => self.commit(ticket, commit),
                Output::Build(ticket, building) => {
                    self.build(ticket, building);
                }
                Output::Discard(replica) => {
                    tokio::task::spawn_blocking(move || drop(replica));
                }
                Output::Load {
                    ticket,
                    partition,
                    from,
                    to,
                } => {
                    self.load(ticket, store_partition(partition), from, to);
                }
                Output::Reply(request, reply) => match self.waiters.remove(&request) {
                    // A session that is gone does not hear it.
                    Some((Waiter::Call(waiter), _)) => drop(waiter.send(reply)),
                    _ => return Err(self.die("an answer to nobody's question")),
                },
                Output::AdminReply(request, reply) => match self.waiters.remove(&request) {
                    Some((Waiter::Admin(waiter), _)) => drop(waiter.send(reply)),
                    _ => return Err(self.die("an answer to nobody's question")),
                },
                Output::Notify(session, event) => self.shared.registry.notify(session, event),
                Output::EndSessions(account, why) => {
                    tracing::info!(account = %account, because = why.label(), "ending the sessions of an account");
                    self.shared.registry.end(account, why);
                }
                Output::Verify {
                    ticket,
                    verifier,
                    password,
                } => self.verify(ticket, verifier, password),
                Output::Deliver {
                    ticket,
                    entry,
                    index,
                    others,
                } => match entry.deliveries.get(index) {
                    Some(delivery) => {
                        let account = delivery.account;
                        board.tell_owner(
                            account,
                            Input::Deliver {
                                ticket,
                                entry,
                                index,
                                others,
                            },
                        );
                    }
                    None => return Err(self.die("a delivery that its entry does not have")),
                },
                Output::AskBirth(account) => board.tell_directory(Input::AskBirth(account)),
                Output::AccountOrigin(account, status) => {
                    board.tell_owner(account, Input::AccountOrigin(account, status))
                }
                Output::UidValidity(account, uid_validity) => {
                    board.tell_directory(Input::UidValidity(account, uid_validity));
                }
                Output::Full(account, full) => board.tell_directory(Input::Full(account, full)),
                Output::Quota(account, quota) => {
                    board.tell_owner(account, Input::Quota(account, quota));
                }
                Output::LeastUidValidity(account, least) => {
                    board.tell_owner(account, Input::LeastUidValidity(account, least));
                }
                Output::Delivered(ticket) => board.tell_queue(Input::Delivered(ticket)),
                Output::NotDelivered(ticket) => board.tell_queue(Input::NotDelivered(ticket)),
                Output::NotHere(ticket) => board.tell_queue(Input::NotHere(ticket)),
                Output::Closing(entry) => board.tell_all_owners(|| Input::Closing(entry)),
                Output::Closed(entry) => board.tell_queue(Input::Closed(entry)),
                Output::Swept { began, least } => {
                    board.tell_all_owners(|| Input::Swept { began, least });
                }
                Output::Purge(account) => board.tell_owner(account, Input::Purge(account)),
                Output::Peer(output) => self.for_peers(output)?,
                Output::Log(note) => {
                    if let Note::Older(because) = &note {
                        board.is_older(because);
                    }
                    log(self.name, &note);
                }
                Output::Fatal(reason) => return Err(self.die(&reason)),
            }
        }
        Ok(())
    }

    // --- Other nodes ---------------------------------------------------------------------------------------------------

    fn of_peer(&mut self, input: PeerInput, handle: Option<Handle>) -> (Input, Work) {
        match (&input, handle) {
            (PeerInput::Linked(peer, _), Some(handle)) => {
                self.links.insert(*peer, Link::new(handle));
            }
            (PeerInput::Unlinked(peer), _) => _ = self.links.remove(peer),
            _ => {}
        }
        (Input::Peer(input), self.shared.board.work().begin())
    }

    fn for_peers(&mut self, output: PeerOutput) -> Result<(), Dead> {
        let Some(wants) = &self.shared.wants else {
            return Err(self.die("an owner without peers asked for one"));
        };
        match output {
            PeerOutput::LoadLogs { ticket, partition } => {
                let store = self.shared.store.clone();
                self.read(ticket, async move {
                    let logs = store.log_positions(store_partition(partition)).await?;
                    Ok(PeerInput::Logs(
                        ticket,
                        logs.into_iter().map(log_end).collect(),
                    ))
                });
            }
            PeerOutput::ReadLog {
                ticket,
                partition,
                origin,
                from,
                bytes_max,
            } => {
                let store = self.shared.store.clone();
                let (partition, origin) = (store_partition(partition), Origin(origin.get()));
                self.read(ticket, async move {
                    let page = store.read_log(partition, origin, from, bytes_max).await?;
                    let entries = page.entries.into_iter().map(entry).collect();
                    Ok(PeerInput::Log(ticket, entries))
                });
            }
            PeerOutput::Snapshot { ticket, partition } => {
                let (store, states) = (self.shared.store.clone(), Arc::clone(&self.states));
                self.read(ticket, async move {
                    let snapshot = fix(&store, store_partition(partition), &states).await?;
                    Ok(PeerInput::Snapshot(ticket, snapshot))
                });
            }
            PeerOutput::ReadRows {
                ticket,
                partition,
                state,
                from,
                to,
                bytes_max,
            } => {
                let store = self.shared.store.clone();
                // An unknown name belongs to a snapshot that went with the machine's partition.
                let known = lock(&self.states);
                let fixed = state.map(|state| known.get(&state).copied().unwrap_or(SnapshotId(0)));
                drop(known);
                let range = KeyRange {
                    start: from.into(),
                    end: Some(to.into()),
                };
                self.read(ticket, async move {
                    let limit = ScanLimit {
                        bytes: bytes_max,
                        ..ScanLimit::default()
                    };
                    let page = match fixed {
                        Some(snapshot) => store.scan_at(snapshot, range, limit).await?,
                        None => store.scan(store_partition(partition), range, limit).await?,
                    };
                    let rows = page.rows.into_iter();
                    let rows = rows.map(|(key, value)| (key.into(), value)).collect();
                    let end = page.next.is_none();
                    Ok(PeerInput::Rows(ticket, Page { rows, end }))
                });
            }
            PeerOutput::Release(state) => {
                let fixed = lock(&self.states).remove(&state);
                if let Some(snapshot) = fixed {
                    self.shared.store.release(snapshot);
                }
            }
            PeerOutput::Wake(partition, peer) => {
                if let Some(link) = self.links.get_mut(&peer) {
                    link.wake(partition);
                }
            }
            PeerOutput::Send(_, frame) => self.sending = Some(frame),
            // Offline no blob is fetched; the request is repeated at the next start.
            PeerOutput::Request(blob) => _ = wants.send(Ask::Want(blob)),
            PeerOutput::Coming(blob) => _ = wants.send(Ask::Coming(blob)),
            PeerOutput::Push(peer, blobs) => _ = wants.send(Ask::Push(peer, blobs)),
            PeerOutput::Unlink(peer) => {
                if let Some(link) = self.links.get(&peer) {
                    link.handle.close();
                }
            }
        }
        Ok(())
    }

    /// Fills the links that have room, one frame of each partition in turn.
    fn send(&mut self) -> Result<(), Dead> {
        let peers: Vec<Incarnation> = self.links.keys().copied().collect();
        for peer in peers {
            while let Some(link) = self.links.get_mut(&peer)
                && let Some((partition, takes_bulk)) = link.next()
            {
                let ready = PeerInput::Ready(partition, Stream { peer, takes_bulk });
                let ready = Input::Peer(ready);
                self.machine.handle(self.shared.clock.now(), ready);
                self.carry_out()?;
                if let Some(frame) = self.sending.take()
                    && let Some(link) = self.links.get_mut(&peer)
                {
                    // There was room a moment ago. The partition may have more.
                    link.handle.push(&frame);
                    link.wake(partition);
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, ticket: Ticket, commit: Commit) {
        let log = commit
            .entry
            .as_ref()
            .map(|entry| (commit.partition, entry.origin));
        // The store holds back a lazy commit, so its time says nothing of how fast the disk is.
        let began = (!commit.lazy).then(Instant::now);
        // The store queues the commit now, not when the future is polled: the order is that of the calls.
        let outcome = Box::pin(self.shared.store.commit(commit));
        self.begun += 1;
        if began.is_some() {
            self.last_awaited = self.begun;
        }
        self.commits.push_back(Committing {
            ticket,
            log,
            outcome,
            began,
            _work: self.shared.board.work().begin(),
        });
    }

    fn verify(&self, ticket: Ticket, verifier: String, password: zeroize::Zeroizing<Vec<u8>>) {
        let pool = self.shared.verifier.clone();
        let board = Arc::clone(&self.shared.board);
        let work = board.work().begin();
        tokio::spawn(async move {
            let matches = pool.check(verifier, password).await;
            // Only the directory asks.
            board.tell_directory(Input::Verified(ticket, matches));
            drop(work);
        });
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

fn lock(states: &States) -> MutexGuard<'_, BTreeMap<u64, SnapshotId>> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a snapshot of a partition's rows and looks up what is applied in them. `None`: no snapshot can be taken now.
async fn fix<S: LogStore>(
    store: &S,
    partition: PartitionId,
    states: &States,
) -> Result<Option<Snapshot>, StoreError> {
    let fixed = store.snapshot(partition).await?;
    let snapshot = look_up(store, partition, fixed).await;
    match &snapshot {
        Ok(Some(snapshot)) => _ = lock(states).insert(snapshot.state, fixed),
        _ => store.release(fixed),
    }
    snapshot
}

async fn look_up<S: LogStore>(
    store: &S,
    partition: PartitionId,
    fixed: SnapshotId,
) -> Result<Option<Snapshot>, StoreError> {
    let mut rows = Vec::new();
    for prefix in LOOKED_AT {
        let one = ScanLimit { rows: 1, bytes: 1 };
        let page = store.scan_at(fixed, KeyRange::prefix(prefix), one).await?;
        rows.extend(page.rows);
    }
    let logs = store.log_positions(partition).await?;
    let ends = logs.into_iter().map(log_end).collect();
    let state = u64::from_le_bytes(random()).max(1);
    let Some(mut fixing) = Fixing::new(state, &rows, &ends) else {
        return Ok(None);
    };
    while let Some((origin, from)) = fixing.lacks() {
        let page = store
            .read_log(partition, Origin(origin.get()), from, 1)
            .await?;
        let first = page.entries.into_iter().next().map(entry);
        if !fixing.entry(first.as_ref()) {
            return Ok(None);
        }
    }
    Ok(fixing.done())
}

/// The first commit under way, when it is done; later ones wait for it.
async fn first(commits: &mut VecDeque<Committing>) -> (Committing, Result<(), StoreError>) {
    let result = match commits.front_mut() {
        Some(front) => front.outcome.as_mut().await,
        None => return std::future::pending().await,
    };
    let done = commits
        .pop_front()
        .expect("it was there a moment ago, and nobody else takes");
    (done, result)
}

/// The same, if it is done already.
fn first_done(commits: &mut VecDeque<Committing>) -> Option<(Committing, Result<(), StoreError>)> {
    let mut all = pin!(first(commits));
    match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        // The caller polls it again.
        Poll::Pending => None,
    }
}

fn log(machine: &'static str, note: &Note) {
    match note {
        Note::LoggedIn { login, cached } => {
            metrics::login_check(*cached);
            // The session's own line says more.
            let login = crate::log::printable(login);
            tracing::debug!(login, cached, "password accepted");
        }
        Note::LoginFailed { login, peer } => {
            // The session's own line says more.
            tracing::debug!(login = crate::log::printable(login), %peer, "password refused");
        }
        Note::Delivered { entry, account } => {
            metrics::delivery();
            tracing::info!(entry, account = %account, "delivered");
        }
        Note::NewUidValidity(account) => {
            metrics::epoch();
            tracing::warn!(
                account = %account,
                "a new UIDVALIDITY: the account's clients load everything again"
            );
        }
        Note::DeliveryTook(micros) => metrics::delivery_took(Duration::from_micros(*micros)),
        Note::Warning(text) => {
            metrics::fault(Fault::Warning);
            // Notes are of one kind if they begin alike; after that come names and numbers.
            let words = text.split(' ').take(3).collect::<Vec<_>>();
            if crate::log::may_write(&words.join(" ")) {
                tracing::warn!(machine, "{text}");
            }
        }
        // The code that ends the node logs it.
        Note::Older(_) => {}
    }
}

#[cfg(test)]
#[path = "actor_tests.rs"]
mod tests;
