//! The bodies of this node on tokio: what `service::peers::bodies` wants is done here, with the store and the links.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
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
        bodies::{Bodies, BodyOutput, Config},
    },
};
use whimbrel_storage::{BlobReader as _, BlobWriter as _, Refusal, StoreError, UploadId};

use super::state::State;
use crate::{
    clock::{Alarm, Clock},
    store_calls::Store,
    switchboard::Switchboard,
};

/// Frames that wait: what may come of each fetch is asked for, so these are few.
pub(super) const TOLD_MAX: usize = 256;
/// What found no room, on the disk or among what is fetched, is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// What machines ask for.
pub(crate) enum Ask {
    /// Get it, or tell that it is here.
    Want(BlobName),
    /// The same: a batch that names it came a moment ago.
    Coming(BlobName),
    /// Batches that name these were sent to the node.
    Push(Incarnation, Vec<BlobName>),
}

/// What links bring.
pub(super) enum Told {
    /// With the features that both have.
    Up(Incarnation, Handle, u64),
    Down(Incarnation),
    Frame(Incarnation, Frame),
}

/// Whether something could be done.
enum Done {
    Yes,
    /// The disk takes no writes at present.
    NoRoom,
    /// The node stops.
    Dead,
}

pub(super) struct Driver<S: Store> {
    state: Arc<State<S>>,
    board: Arc<Switchboard>,
    clock: Clock,
    bodies: Bodies,
    links: BTreeMap<Incarnation, Handle>,
    /// Peers for which there is something.
    awake: BTreeSet<Incarnation>,
    room: Arc<Notify>,
    writers: BTreeMap<BlobName, S::Writer>,
    /// Uploads that the store does not begin: one that held the body has let go of it before it was here, and until another holds it the store takes nothing
    /// under its name. What comes of them is dropped, and they are fetched again.
    refused: BTreeSet<BlobName>,
    /// What is to be done, in its order.
    work: VecDeque<BodyOutput>,
    /// Bodies that found no place among what is fetched.
    later: VecDeque<BlobName>,
    retry_at: Option<Instant>,
}

impl<S: Store> Driver<S> {
    pub(super) fn new(
        state: Arc<State<S>>,
        board: Arc<Switchboard>,
        clock: Clock,
        config: Config,
    ) -> Self {
        Driver {
            state,
            board,
            clock,
            bodies: Bodies::new(config),
            links: BTreeMap::new(),
            awake: BTreeSet::new(),
            room: Arc::default(),
            writers: BTreeMap::new(),
            refused: BTreeSet::new(),
            work: VecDeque::new(),
            later: VecDeque::new(),
            retry_at: None,
        }
    }

    /// To be told when a link has room again.
    pub(super) fn room(&self) -> Arc<Notify> {
        Arc::clone(&self.room)
    }

    /// Runs until nobody can reach it, or the node stops.
    pub(super) async fn run(
        mut self,
        mut wants: mpsc::UnboundedReceiver<Ask>,
        mut told: mpsc::Receiver<Told>,
    ) {
        let _guard = self.state.guard("bodies");
        let mut alarm = Alarm::new();
        let room = Arc::clone(&self.room);
        loop {
            if self.carry_out().await.is_none() {
                return;
            }
            alarm.set(&self.clock, self.bodies.deadline());
            let retry = self.retry_at;
            tokio::select! {
                Some(ask) = wants.recv() => {
                    if self.asked(ask).await.is_none() {
                        return;
                    }
                }
                Some(told) = told.recv() => self.told(told),
                // All are looked at below.
                () = room.notified() => {}
                () = alarm.ring() => self.bodies.time(self.clock.now()),
                () = at(retry) => {
                    self.retry_at = None;
                    for _ in 0..self.later.len() {
                        if let Some(blob) = self.later.pop_front()
                            && !self.bodies.want(self.clock.now(), &blob)
                        {
                            self.later.push_back(blob);
                            self.retry();
                        }
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

    /// `None`: the node stops.
    async fn asked(&mut self, ask: Ask) -> Option<()> {
        let (blob, coming) = match ask {
            Ask::Want(blob) => (blob, false),
            Ask::Coming(blob) => (blob, true),
            Ask::Push(peer, blobs) => {
                if self.links.contains_key(&peer) {
                    self.bodies.push(peer, &blobs);
                }
                return Some(());
            }
        };
        // It is here, or got.
        match self.state.store.stat(blob_name(&blob)).await {
            Ok(Some(_)) => self.tell(blob),
            Ok(None) => {
                let now = self.clock.now();
                let taken = match coming {
                    true => self.bodies.coming(now, &blob),
                    false => self.bodies.want(now, &blob),
                };
                if !taken {
                    self.later.push_back(blob);
                    self.retry();
                }
            }
            Err(error) => {
                self.failed(&error)?;
                self.later.push_back(blob);
                self.retry();
            }
        }
        Some(())
    }

    /// What was finished before is durable no later than what an owner commits for it.
    fn tell(&self, blob: BlobName) {
        self.board.tell_of_body(blob);
    }

    /// `None`: the node stops.
    fn failed(&self, error: &StoreError) -> Option<()> {
        if error.stops_node() {
            self.state.die(&format!("bodies: the store: {error}"));
            return None;
        }
        tracing::warn!(%error, "a body of another node");
        Some(())
    }

    /// Does all that is wanted and can be done. `None`: the node stops.
    async fn carry_out(&mut self) -> Option<()> {
        loop {
            self.send();
            while let Some(output) = self.bodies.poll() {
                self.work.push_back(output);
            }
            let Some(work) = self.work.pop_front() else {
                return Some(());
            };
            match self.carry(&work).await {
                Done::Yes => {}
                Done::NoRoom => {
                    self.work.push_front(work);
                    self.retry();
                    return Some(());
                }
                Done::Dead => return None,
            }
        }
    }

    /// Fills the links of those for whom there is something.
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

    async fn carry(&mut self, work: &BodyOutput) -> Done {
        match work {
            BodyOutput::Wake(peer) => {
                self.awake.insert(*peer);
                Done::Yes
            }
            BodyOutput::Write(blob, bytes) => match self.write(blob, bytes.clone()).await {
                Ok(()) => {
                    self.bodies.written(blob, bytes.len() as u64);
                    Done::Yes
                }
                Err(StoreError::Full(_)) => Done::NoRoom,
                Err(StoreError::Refused(Refusal::UploadExists(_))) => {
                    self.refused.insert(*blob);
                    self.bodies.written(blob, bytes.len() as u64);
                    Done::Yes
                }
                Err(error) => self.done(&error),
            },
            BodyOutput::Finish(blob) if self.refused.remove(blob) => {
                self.bodies.finished(blob);
                self.later.push_back(*blob);
                self.retry();
                Done::Yes
            }
            BodyOutput::Finish(blob) => {
                let Some(writer) = self.writers.remove(blob) else {
                    // An empty body: nothing was written.
                    return self.finish_empty(blob).await;
                };
                let finished = writer.finish().await;
                self.finished(blob, finished)
            }
            BodyOutput::Nowhere(blob) => {
                self.board.tell_of_no_body(*blob);
                Done::Yes
            }
            BodyOutput::Discard(blob) => {
                self.refused.remove(blob);
                let Some(writer) = self.writers.remove(blob) else {
                    return Done::Yes;
                };
                match writer.abort().await {
                    Ok(()) => Done::Yes,
                    Err(error) => self.done(&error),
                }
            }
            BodyOutput::Read {
                id,
                name,
                offset,
                bytes,
            } => match read(&self.state.store, name, *offset, *bytes).await {
                Ok((data, end)) => {
                    self.bodies.read(*id, data, end);
                    Done::Yes
                }
                Err(error) => {
                    self.bodies.read(*id, None, false);
                    self.done(&error)
                }
            },
        }
    }

    fn done(&self, error: &StoreError) -> Done {
        self.failed(error).map_or(Done::Dead, |()| Done::Yes)
    }

    async fn finish_empty(&mut self, blob: &BlobName) -> Done {
        let created = self.state.store.create(UploadId(blob.upload)).await;
        match created {
            Ok(writer) => {
                let finished = writer.finish().await;
                self.finished(blob, finished)
            }
            Err(StoreError::Full(_)) => Done::NoRoom,
            Err(error) => self.finished(blob, Err(error)),
        }
    }

    async fn write(&mut self, blob: &BlobName, bytes: Bytes) -> Result<(), StoreError> {
        if self.refused.contains(blob) {
            return Err(Refusal::UploadExists(UploadId(blob.upload)).into());
        }
        if !self.writers.contains_key(blob) {
            let writer = self.state.store.create(UploadId(blob.upload)).await?;
            self.writers.insert(*blob, writer);
        }
        match self.writers.get_mut(blob) {
            Some(writer) => writer.write(bytes).await,
            None => Ok(()),
        }
    }

    fn finished(
        &mut self,
        blob: &BlobName,
        finished: Result<whimbrel_storage::BlobInfo, StoreError>,
    ) -> Done {
        self.bodies.finished(blob);
        match finished {
            Ok(info) if info.name == blob_name(blob) => {
                self.tell(*blob);
                Done::Yes
            }
            Ok(info) => {
                self.state
                    .die(&format!("a body was fetched as another one: {info:?}"));
                Done::Dead
            }
            Err(error) => {
                // It begins anew.
                self.later.push_back(*blob);
                self.retry();
                self.done(&error)
            }
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// So many bytes of a body, and whether they are its last; `None` if it is not here.
async fn read<S: Store>(
    store: &S,
    blob: &BlobName,
    offset: u64,
    bytes: usize,
) -> Result<(Option<Bytes>, bool), StoreError> {
    let name = blob_name(blob);
    let Some(info) = store.stat(name).await? else {
        return Ok((None, false));
    };
    let mut reader = store.read(name, offset, bytes as u64);
    let mut data = BytesMut::new();
    loop {
        match reader.next().await {
            Ok(Some(more)) => data.extend_from_slice(&more),
            Ok(None) => break,
            // Removed meanwhile.
            Err(StoreError::NoBlob(_)) => return Ok((None, false)),
            Err(error) => return Err(error),
        }
    }
    let end = offset + data.len() as u64 >= info.size;
    Ok((Some(data.freeze()), end))
}
