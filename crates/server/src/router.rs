//! Routes inputs to the machines: one address for each, and which machine owns what.
//!
//! Every machine has two lanes. Questions of sessions and of the administrator come by a bounded one, so that clients wait when an owner is busy.
//! Inputs from other machines, and completions, come by an unbounded one. If a machine waited for room in another's lane while that one waits for
//! room in its own, both would stand still for ever. The machines themselves bound what lies in the unbounded lane.
//!
//! Inputs from other nodes have a bounded lane of their own ([`FromPeer`]): the link waits, and so does the peer. No machine waits for an input in
//! that lane.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use whimbrel_cluster::Handle;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{AccountId, BlobName};
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{Call, Failure, QueueCall, Reply, SessionId},
    figures::Figures,
    machine::{Input, Route, route},
    owner::keys::partition_of,
    peers::{Frame, PartitionReport, PeerInput},
};

/// Questions that wait for one machine before the next caller has to wait; as many again wait in turns, account by account.
pub(crate) const QUESTIONS_MAX: usize = 1024;
/// Questions for figures that wait for one machine; further callers get none.
const FIGURES_MAX: usize = 16;

/// Frames of other nodes that wait for one machine. Each has some hundred kilobytes at most; one with a single large batch has 16 MiB.
const FROM_PEERS_MAX: usize = 8;

/// Counts work under way anywhere: a stopping server waits until there is none.
#[derive(Clone, Debug, Default)]
pub struct Work(Arc<()>);

impl Work {
    /// One more piece of work, until it is dropped.
    #[must_use]
    pub fn begin(&self) -> Work {
        self.clone()
    }

    /// Whether there is no work, except `idle_holders` (callers that keep a `Work` to begin others from it).
    #[must_use]
    pub fn is_idle(&self, idle_holders: usize) -> bool {
        Arc::strong_count(&self.0) <= idle_holders
    }
}

/// A question, and the receiver of its answer.
pub(crate) enum Question {
    Call(Call, oneshot::Sender<Reply>, Work),
    Admin(AdminCall, oneshot::Sender<AdminReply>, Work),
    /// A session that goes on has left this account; there is no answer.
    Hangup(SessionId, Work),
}

impl Question {
    /// The account that the question is about.
    pub(crate) fn account(&self) -> Option<AccountId> {
        match self {
            Question::Call(Call::Mailbox { account, .. }, ..) => Some(*account),
            _ => None,
        }
    }
}

/// Inputs about other nodes.
pub(crate) enum FromPeer {
    /// The input; for a link that is up also the handle for frames to the peer.
    Told(PeerInput, Option<Handle>),
    /// Asks for a report on the machine's partitions, after all earlier inputs.
    Report(oneshot::Sender<Vec<PartitionReport>>),
}

/// The address of a machine.
#[derive(Clone)]
pub(crate) struct Address {
    questions: mpsc::Sender<Question>,
    inputs: mpsc::UnboundedSender<(Input, Work)>,
    figures: mpsc::Sender<oneshot::Sender<Figures>>,
    peers: mpsc::Sender<FromPeer>,
    room: Arc<Notify>,
}

/// The machine's end of its lanes.
pub(crate) struct Inbox {
    pub(crate) questions: mpsc::Receiver<Question>,
    pub(crate) inputs: mpsc::UnboundedReceiver<(Input, Work)>,
    pub(crate) figures: mpsc::Receiver<oneshot::Sender<Figures>>,
    pub(crate) peers: mpsc::Receiver<FromPeer>,
    /// Notified when a link has room again.
    pub(crate) room: Arc<Notify>,
}

/// The addresses of all machines. Cheap to share; kept behind one `Arc`.
pub struct Router {
    directory: Address,
    queue: Address,
    owners: Vec<Address>,
    work: Work,
    older: watch::Sender<Option<String>>,
}

/// The receiving ends of all lanes, for the machines' actors.
pub(crate) struct Inboxes {
    pub(crate) directory: Inbox,
    pub(crate) queue: Inbox,
    pub(crate) owners: Vec<Inbox>,
}

fn lanes() -> (Address, Inbox) {
    let (to_questions, questions) = mpsc::channel(QUESTIONS_MAX);
    let (to_inputs, inputs) = mpsc::unbounded_channel();
    let (to_figures, figures) = mpsc::channel(FIGURES_MAX);
    let (to_peers, peers) = mpsc::channel(FROM_PEERS_MAX);
    let room = Arc::new(Notify::new());
    (
        Address {
            questions: to_questions,
            inputs: to_inputs,
            figures: to_figures,
            peers: to_peers,
            room: Arc::clone(&room),
        },
        Inbox {
            questions,
            inputs,
            figures,
            peers,
            room,
        },
    )
}

/// The machine is gone: the node is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopped;

impl Router {
    pub(crate) fn new(owners: usize) -> (Arc<Self>, Inboxes) {
        assert!(owners > 0, "an account needs an owner");
        let (directory, directory_inbox) = lanes();
        let (queue, queue_inbox) = lanes();
        let (owners, owner_inboxes) = (0..owners).map(|_| lanes()).unzip();
        let board = Router {
            directory,
            queue,
            owners,
            work: Work::default(),
            older: watch::Sender::new(None),
        };
        (
            Arc::new(board),
            Inboxes {
                directory: directory_inbox,
                queue: queue_inbox,
                owners: owner_inboxes,
            },
        )
    }

    /// The count of work under way.
    #[must_use]
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Sends a session's call to its machine; the receiver gets the reply. Waits while the machine has too many questions.
    ///
    /// Calls that go to the store ([`Route::Store`]) fail here.
    pub async fn call(&self, call: Call) -> Result<oneshot::Receiver<Reply>, Stopped> {
        let (reply, receiver) = oneshot::channel();
        let address = match route(&call) {
            Route::Directory => &self.directory,
            Route::Queue => &self.queue,
            Route::Owner(account) => self.owner(account),
            Route::Store => {
                // The receiver is only returned below.
                let _ = reply.send(Reply::Failed(Failure::Temporary));
                return Ok(receiver);
            }
        };
        let question = Question::Call(call, reply, self.work.begin());
        address
            .questions
            .send(question)
            .await
            .map_err(|_| Stopped)?;
        Ok(receiver)
    }

    /// Tells the owner of an account that a session which goes on has left it: after its earlier questions, and before its next ones, perhaps about
    /// the same account.
    pub async fn leave(&self, account: AccountId, session: SessionId) -> Result<(), Stopped> {
        let question = Question::Hangup(session, self.work.begin());
        let sent = self.owner(account).questions.send(question).await;
        sent.map_err(|_| Stopped)
    }

    /// Sends a question of the administrator to the queue.
    pub async fn queue(&self, call: QueueCall) -> Result<Reply, Stopped> {
        let receiver = self.call(Call::Queue(call)).await?;
        receiver.await.map_err(|_| Stopped)
    }

    /// Tells the queue that the node stops and means to be back after so many microseconds.
    pub(crate) fn leave_queue(&self, micros: u64) {
        self.tell_queue(Input::Leaving(micros));
    }

    /// Sends a question of the administrator to the directory.
    pub async fn admin(&self, call: AdminCall) -> Result<AdminReply, Stopped> {
        let (reply, receiver) = oneshot::channel();
        let question = Question::Admin(call, reply, self.work.begin());
        self.directory
            .questions
            .send(question)
            .await
            .map_err(|_| Stopped)?;
        receiver.await.map_err(|_| Stopped)
    }

    /// The figures of all machines together; `None` if one of them is gone.
    pub async fn figures(&self) -> Option<Figures> {
        let mut asked = Vec::with_capacity(self.owners.len() + 2);
        for address in [&self.directory, &self.queue]
            .into_iter()
            .chain(&self.owners)
        {
            let (reply, receiver) = oneshot::channel();
            address.figures.try_send(reply).ok()?;
            asked.push(receiver);
        }
        let mut sum = Figures::default();
        for figures in asked {
            sum = sum.plus(figures.await.ok()?);
        }
        Some(sum)
    }

    /// Tells the owner of an account that a session which asked about it is gone.
    pub fn hang_up(&self, account: AccountId, session: SessionId) {
        self.tell_owner(account, Input::Hangup(session));
    }

    pub(crate) fn tell_directory(&self, input: Input) {
        self.send(&self.directory, input);
    }

    pub(crate) fn tell_queue(&self, input: Input) {
        self.send(&self.queue, input);
    }

    pub(crate) fn tell_owner(&self, account: AccountId, input: Input) {
        self.send(self.owner(account), input);
    }

    pub(crate) fn tell_all_owners(&self, mut input: impl FnMut() -> Input) {
        for owner in &self.owners {
            self.send(owner, input());
        }
    }

    /// There is a link to another node: the machines put frames for it into the handle.
    pub(crate) async fn link_up(&self, peer: Incarnation, handle: &Handle, features: u64) {
        for machine in self.replicating() {
            let told = PeerInput::Linked(peer, features);
            let told = FromPeer::Told(told, Some(handle.clone()));
            // As below.
            let _ = machine.peers.send(told).await;
        }
    }

    /// Passes an input about other nodes to all machines, after earlier ones.
    pub(crate) async fn tell_of_peers(&self, input: impl Fn() -> PeerInput) {
        for machine in self.replicating() {
            let told = FromPeer::Told(input(), None);
            // A machine that is gone has stopped the node.
            let _ = machine.peers.send(told).await;
        }
    }

    /// Reports on all open partitions, after all earlier inputs about other nodes; `None` if a machine is gone.
    pub(crate) async fn reports(&self) -> Option<Vec<PartitionReport>> {
        let mut reports = self.all_reports().await?;
        reports.retain(|report| report.left.is_none());
        Some(reports)
    }

    /// The same, including partitions that this node has left.
    pub(crate) async fn all_reports(&self) -> Option<Vec<PartitionReport>> {
        let mut asked = Vec::with_capacity(self.owners.len() + 1);
        for machine in self.replicating() {
            let (report, reported) = oneshot::channel();
            machine.peers.send(FromPeer::Report(report)).await.ok()?;
            asked.push(reported);
        }
        let mut reports = Vec::new();
        for reported in asked {
            reports.extend(reported.await.ok()?);
        }
        Some(reports)
    }

    /// Notes that the disk is older than what it has reported, as a peer has found; once is enough.
    pub(crate) fn is_older(&self, because: &str) {
        self.older.send_if_modified(|known| {
            let new = known.is_none();
            known.get_or_insert_with(|| because.to_owned());
            new
        });
    }

    /// Waits until the disk is found to be older. Returns the reason.
    pub(crate) async fn older(&self) -> String {
        let mut older = self.older.subscribe();
        loop {
            if let Some(because) = older.borrow_and_update().clone() {
                return because;
            }
            // Its sender is here.
            let _ = older.changed().await;
        }
    }

    /// The machines that have peers: all.
    fn replicating(&self) -> impl Iterator<Item = &Address> {
        [&self.directory, &self.queue]
            .into_iter()
            .chain(&self.owners)
    }

    /// A blob was here at this time of the monotonic clock, or later: reports that to all machines that may wait for it.
    pub(crate) fn tell_of_body(&self, blob: BlobName, looked: u64) {
        self.tell_who_may_lack(|| PeerInput::Body(blob, looked));
    }

    /// No linked node has a blob.
    pub(crate) fn tell_of_no_body(&self, blob: BlobName) {
        for owner in &self.owners {
            self.send(owner, Input::Peer(PeerInput::NoBody(blob)));
        }
    }

    /// A blob is not looked for any more: machines that still lack it ask again.
    pub(crate) fn ask_who_lacks(&self, blob: BlobName) {
        self.tell_who_may_lack(|| PeerInput::WantAgain(blob));
    }

    /// A session of the account found that a blob is not here.
    pub(crate) fn tell_of_missed(&self, account: AccountId, blob: BlobName) {
        let missed = PeerInput::Missed(account, blob);
        self.send(self.owner(account), Input::Peer(missed));
    }

    fn tell_who_may_lack(&self, input: impl Fn() -> PeerInput) {
        for machine in self.owners.iter().chain([&self.queue]) {
            self.send(machine, Input::Peer(input()));
        }
    }

    /// A frame for a partition; waits until its machine has room for it.
    pub(crate) async fn frame_of_peer(
        &self,
        partition: PartitionId,
        peer: Incarnation,
        frame: Frame,
    ) {
        let machine = if partition == PartitionId::DIRECTORY {
            &self.directory
        } else if partition == PartitionId::QUEUE {
            &self.queue
        } else if partition.bucket().is_some() {
            self.owner_of_partition(partition)
        } else {
            // Later versions may have partitions of other kinds.
            return;
        };
        let told = FromPeer::Told(PeerInput::Frame(peer, frame), None);
        // As above.
        let _ = machine.peers.send(told).await;
    }

    /// A link has room: machines with something for it look again.
    pub(crate) fn room_for_peers(&self) {
        for machine in self.replicating() {
            machine.room.notify_one();
        }
    }

    /// The store has a log of this partition.
    pub(crate) fn open_partition(&self, partition: PartitionId) {
        let input = Input::Peer(PeerInput::Open(partition));
        self.send(self.owner_of_partition(partition), input);
    }

    fn send(&self, address: &Address, input: Input) {
        // A machine that is gone has stopped the node, which says so itself.
        let _ = address.inputs.send((input, self.work.begin()));
    }

    fn owner(&self, account: AccountId) -> &Address {
        self.owner_of_partition(partition_of(account))
    }

    /// By partition, so that a partition has one owner.
    fn owner_of_partition(&self, partition: PartitionId) -> &Address {
        &self.owners[usize::from(partition.0) % self.owners.len()]
    }
}
