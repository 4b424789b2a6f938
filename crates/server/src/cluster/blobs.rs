//! The blobs of this node on tokio: carries out the requests of `service::peers::blobs` with the store and the links.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep_until},
};
use whimbrel_cluster::Handle;
use whimbrel_crdt::Incarnation;
use whimbrel_mailbox::BlobName;
use whimbrel_service::{
    owner::blob_name,
    peers::{
        Frame,
        blobs::{Bodies, BodyOutput, Config},
    },
};
use whimbrel_storage::StoreError;

use super::{
    calls::{Calls, Came},
    roster_store::State,
};
use crate::{
    clock::{Alarm, Clock},
    router::Router,
    store_calls::Store,
};

/// Frames that wait: few are enough, since each fetch asks for what may come.
pub(super) const TOLD_MAX: usize = 256;
/// A write that found no room on the disk is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// Requests of the machines.
pub(crate) enum Ask {
    /// Get the blob, or report that it is here.
    Want(BlobName),
    /// The same; a batch that names the blob came a moment ago.
    Coming(BlobName),
    /// Batches that name these blobs were sent to the node.
    Push(Incarnation, Vec<BlobName>),
}

/// Events of the links.
pub(super) enum Told {
    /// A link is up; with the features that both nodes have.
    Up(Incarnation, Handle, u64),
    Down(Incarnation),
    Frame(Incarnation, Frame),
}

pub(super) struct Driver<S: Store> {
    state: Arc<State<S>>,
    board: Arc<Router>,
    clock: Clock,
    bodies: Bodies,
    links: BTreeMap<Incarnation, Handle>,
    /// Peers for which there is something to send.
    awake: BTreeSet<Incarnation>,
    room: Arc<Notify>,
    calls: Calls<S>,
    /// Blobs that found no place among those that are fetched.
    later: VecDeque<BlobName>,
    /// Blobs whose fetch failed: owners that lack them ask again. Under the name of a blob that no reference names any more the store accepts
    /// nothing.
    anew: BTreeSet<BlobName>,
    retry_at: Option<Instant>,
}

impl<S: Store> Driver<S> {
    pub(super) fn new(
        state: Arc<State<S>>,
        board: Arc<Router>,
        clock: Clock,
        config: Config,
    ) -> Self {
        let calls = Calls::new(state.store.clone(), clock);
        Driver {
            state,
            board,
            clock,
            bodies: Bodies::new(config),
            links: BTreeMap::new(),
            awake: BTreeSet::new(),
            room: Arc::default(),
            calls,
            later: VecDeque::new(),
            anew: BTreeSet::new(),
            retry_at: None,
        }
    }

    /// Notified when a link has room again.
    pub(super) fn room(&self) -> Arc<Notify> {
        Arc::clone(&self.room)
    }

    /// Runs until nothing can reach it, or the node stops.
    pub(super) async fn run(
        mut self,
        mut wants: mpsc::UnboundedReceiver<Ask>,
        mut told: mpsc::Receiver<Told>,
    ) {
        let _guard = self.state.guard("bodies");
        let mut alarm = Alarm::new();
        let room = Arc::clone(&self.room);
        loop {
            self.carry_out();
            if self.calls.is_stuck() {
                self.retry();
            }
            alarm.set(&self.clock, self.bodies.deadline());
            let retry = self.retry_at;
            tokio::select! {
                Some(came) = self.calls.next() => {
                    for came in came {
                        if self.came(came).is_none() {
                            return;
                        }
                    }
                }
                Some(ask) = wants.recv(), if self.calls.has_room() => {
                    if matches!(ask, Ask::Push(..)) {
                        // The other channel reported the link before this.
                        for _ in 0..TOLD_MAX {
                            let Ok(told) = told.try_recv() else { break };
                            self.told(told);
                        }
                    }
                    self.asked(ask);
                }
                Some(told) = told.recv() => self.told(told),
                // All are looked at below.
                () = room.notified() => {}
                () = alarm.ring() => self.bodies.time(self.clock.now()),
                () = at(retry) => {
                    self.retry_at = None;
                    self.calls.try_again();
                    for blob in std::mem::take(&mut self.anew) {
                        self.board.ask_who_lacks(blob);
                    }
                }
            }
        }
    }

    fn retry(&mut self) {
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
    }

    fn told(&mut self, told: Told) {
        let now = self.clock.now();
        match told {
            Told::Up(peer, handle, features) => {
                self.links.insert(peer, handle);
                self.bodies.linked(now, peer, features);
            }
            Told::Down(peer) => {
                self.links.remove(&peer);
                self.bodies.unlinked(now, peer);
            }
            Told::Frame(peer, frame) => self.bodies.received(now, peer, frame),
        }
    }

    fn asked(&mut self, ask: Ask) {
        match ask {
            // The blob is here, or is fetched.
            Ask::Want(blob) => self.calls.look(blob, false),
            Ask::Coming(blob) => self.calls.look(blob, true),
            Ask::Push(peer, blobs) => {
                if self.links.contains_key(&peer) {
                    self.bodies.push(peer, &blobs);
                }
            }
        }
    }

    /// Fetches blobs that found no place before.
    fn want_more(&mut self) {
        let now = self.clock.now();
        while let Some(blob) = self.later.front()
            && self.bodies.want(now, blob)
        {
            self.later.pop_front();
        }
    }

    /// An upload that was finished before is durable no later than an owner's next commit.
    fn tell(&self, blob: BlobName, looked: u64) {
        self.board.tell_of_body(blob, looked);
    }

    /// `None`: the node stops.
    fn failed(&self, error: &StoreError) -> Option<()> {
        if error.stops_node() {
            self.state.die(&format!("bodies: the store: {error}"));
            return None;
        }
        // The blob is fetched again if it is still needed. Its references may have been released while it came; the store itself warns of a full
        // disk.
        match error {
            StoreError::Full(_) => tracing::debug!(%error, "a blob of another node was not stored"),
            _ => tracing::warn!(%error, "the store failed for a blob of another node"),
        }
        Some(())
    }

    /// Carries out all outputs that can be carried out now.
    fn carry_out(&mut self) {
        self.want_more();
        loop {
            self.send();
            let Some(work) = self.bodies.poll() else {
                return;
            };
            self.carry(work);
        }
    }

    /// Fills the links of peers for which there is something.
    fn send(&mut self) {
        for peer in std::mem::take(&mut self.awake) {
            let Some(handle) = self.links.get(&peer) else {
                continue;
            };
            loop {
                if !handle.has_room(true) {
                    self.awake.insert(peer);
                    break;
                }
                let Some(frame) = self.bodies.transmit(peer) else {
                    break;
                };
                handle.push(&frame);
            }
        }
    }

    fn carry(&mut self, work: BodyOutput) {
        match work {
            BodyOutput::Wake(peer) => _ = self.awake.insert(peer),
            BodyOutput::Write(blob, bytes) => self.calls.write(blob, bytes),
            BodyOutput::Finish(blob) => self.calls.finish(blob),
            BodyOutput::Nowhere(blob) => self.board.tell_of_no_body(blob),
            BodyOutput::Again(blob) => self.board.ask_who_lacks(blob),
            BodyOutput::Discard(blob) => self.calls.discard(blob),
            BodyOutput::Read {
                id,
                name,
                offset,
                bytes,
            } => self.calls.read(id, name, offset, bytes),
        }
    }

    /// `None`: the node stops.
    fn came(&mut self, came: Came) -> Option<()> {
        match came {
            Came::Here(blob, looked) => self.tell(blob, looked),
            Came::MissingBlob(blob, coming) => {
                let now = self.clock.now();
                let taken = match coming {
                    true => self.bodies.coming(now, &blob),
                    false => self.bodies.want(now, &blob),
                };
                if !taken {
                    self.later.push_back(blob);
                }
            }
            Came::NotLooked(blob) => self.later.push_back(blob),
            Came::Written(blob, bytes) => self.bodies.written(&blob, bytes),
            Came::Finished(blob, info, looked) if info.name == blob_name(&blob) => {
                self.bodies.finished(&blob);
                self.tell(blob, looked);
            }
            Came::Finished(_, info, _) => {
                self.state
                    .die(&format!("a body was fetched as another one: {info:?}"));
                return None;
            }
            Came::Unfinished(blob) => {
                self.bodies.finished(&blob);
                self.anew.insert(blob);
                self.retry();
            }
            Came::Read(id, data, end) => self.bodies.read(id, data, end),
            Came::Failed(error) => return self.failed(&error),
        }
        Some(())
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
