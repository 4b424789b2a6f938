//! Who belongs to the cluster, as this node knows it: kept, told to machines and peers, and what other nodes ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Mutex, oneshot, watch};
use whimbrel_cluster::{Credentials, NodeName, Peer, TokenError, Transport};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    clocks,
    members::Member,
    roster::{MergeOutcome, Place, Roster, RosterError},
    wire::Frame,
};
use whimbrel_service::{
    cluster::{
        drain::Handover,
        placing::{Placing, Wanted},
        startup::RememberedLog,
    },
    owner::keys::partition_of,
    peers::PeerInput,
};
use whimbrel_storage::StoreError;

use super::{
    NOT_FILLED,
    files::{Files, FilesError},
    links::Links,
    node_names::NodeNames,
    status::{Drain, DrainAsk, Removal, RemovalLine, Remove, Status},
};
use crate::{
    actor::{Fatal, PanicStops},
    clock::{Clock, wall_micros},
    registry::Registry,
    router::Router,
    serve::StartError,
    store_calls::Store,
};

/// What all tasks of the cluster share.
pub(super) struct State<S> {
    pub(super) files: Files,
    pub(super) credentials: Credentials,
    pub(super) store: S,
    pub(super) transport: Arc<Transport>,
    pub(super) links: Arc<Links>,
    /// Addresses that the configuration says.
    overrides: BTreeMap<NodeName, String>,
    /// The members, as all who read them find them: what is kept and told to the machines.
    roster: watch::Sender<Arc<Roster>>,
    /// Held while a change is kept, which may take as long as the disk likes, and told, so that all hear of changes in one order.
    changing: Mutex<()>,
    pub(super) me: OnceLock<Incarnation>,
    pub(super) served: OnceLock<(Arc<Router>, Fatal)>,
    /// Sessions, and the clock of the machines.
    pub(super) sessions: OnceLock<(Arc<Registry>, Clock)>,
    /// How many workers of a region serve a partition, to be shown.
    pub(super) workers: OnceLock<usize>,
    /// Members that were removed: nothing is taken from them.
    pub(super) removed: watch::Sender<BTreeSet<Incarnation>>,
    /// What peers remember of this node has been looked at: which partition, of which peer.
    judged: std::sync::Mutex<BTreeSet<(Incarnation, PartitionId)>>,
    /// Why nothing is written: the clock.
    clock: std::sync::Mutex<Option<clocks::Refused>>,
    /// This node is new, and has not all that another one had.
    syncing: AtomicBool,
    /// Which partitions this node leaves, and to which it comes back.
    pub(super) placing: std::sync::Mutex<Placing>,
    /// What other members hold of this node's operations, as drains saw it.
    pub(super) handover: std::sync::Mutex<Handover>,
}

/// Why a change of the members was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(
        "the cluster has a node {0} already: set another cluster.name. If that node never started, or is gone for good, run `whimbrel cluster remove {0}` on a \
         member (what it wrote and had not sent is lost), and try again"
    )]
    Name(NodeName),
    #[error(
        "this node was removed from the cluster; it can join as a new node, with an empty \
         data directory and a token"
    )]
    Removed,
}

impl<S: Store> State<S> {
    pub(super) fn new(
        files: Files,
        credentials: Credentials,
        roster: Roster,
        store: S,
        transport: Arc<Transport>,
        overrides: BTreeMap<NodeName, String>,
        wanted: Wanted,
    ) -> Self {
        State {
            syncing: files.is_syncing().into(),
            files,
            credentials,
            store,
            transport,
            links: Arc::default(),
            overrides,
            removed: watch::Sender::new(removed(&roster)),
            roster: watch::Sender::new(Arc::new(roster)),
            changing: Mutex::default(),
            me: OnceLock::new(),
            served: OnceLock::new(),
            sessions: OnceLock::new(),
            workers: OnceLock::new(),
            judged: std::sync::Mutex::default(),
            clock: std::sync::Mutex::default(),
            placing: std::sync::Mutex::new(Placing::new(wanted)),
            handover: std::sync::Mutex::default(),
        }
    }

    /// This node's incarnation is settled.
    pub(super) async fn begin(&self, me: Incarnation, place: Place) -> Result<(), StartError> {
        let name = self.credentials.name().to_string();
        let told = self.change(|roster| roster.announce(&name, place)).await;
        told.map_err(|error| StartError::Cluster(error.to_string()))?;
        // Nobody else says it.
        let _ = self.me.set(me);
        Ok(())
    }

    /// The machines run.
    pub(super) async fn serve(&self, board: Arc<Router>, fatal: Fatal) {
        let _ = self.served.set((board, fatal));
        // Somebody may have been let in since the machines were made.
        let _turn = self.changing.lock().await;
        self.tell_machines(&self.roster()).await;
    }

    /// # Panics
    /// Before it is settled: nothing that needs it runs then.
    pub(super) fn me(&self) -> Incarnation {
        *self.me.get().expect("links are made when it is settled")
    }

    /// Whether others must serve whoever comes, if they can be reached.
    pub(super) fn is_syncing(&self) -> bool {
        self.syncing.load(Ordering::Relaxed)
    }

    /// This node goes on under a new incarnation: clients may know more than its disk does.
    pub(super) fn keep_syncing(&self) -> Result<(), FilesError> {
        self.files.keep_syncing()?;
        self.syncing.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn has_grown(&self) {
        self.syncing.store(false, Ordering::Relaxed);
    }

    /// Stops the node if a task of the cluster panics.
    pub(super) fn guard(self: &Arc<Self>, name: &'static str) -> PanicStops {
        let state = Arc::clone(self);
        let fatal = Arc::new(move |reason: &str| state.die(reason));
        PanicStops { name, fatal }
    }

    /// Stops the node.
    pub(super) fn die(&self, reason: &str) {
        if let Some((_, fatal)) = self.served.get() {
            fatal(reason);
        }
    }

    /// The members now.
    pub(super) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.borrow())
    }

    /// Whether all that was written under this node's slot is here: that was seen before, or nobody had it.
    pub(super) fn is_filled(&self) -> bool {
        self.files.is_filled(self.me()) || self.holders_before().is_empty()
    }

    /// Who had this node's slot before, and left logs behind it must know.
    pub(super) fn holders_before(&self) -> BTreeSet<Incarnation> {
        self.roster().members().holders_before(self.me())
    }

    /// Whether this peer's view of the partition has to be judged still; asked once.
    pub(super) fn to_be_judged(&self, peer: Incarnation, partition: PartitionId) -> bool {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.insert((peer, partition))
    }

    /// It could not be.
    pub(super) fn not_judged(&self, peer: Incarnation, partition: PartitionId) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.remove(&(peer, partition));
    }

    /// The peers know more of this node than its disk: it stops.
    pub(super) fn is_older(&self, because: &str) {
        if let Err(error) = self.files.keep_renew(because) {
            tracing::error!(%error, "run `whimbrel node renew` before the next start");
        }
        self.die(&format!(
            "this disk is older than what other nodes got from it: {because}. At the next start the node takes a new incarnation"
        ));
    }

    pub(super) fn clock_is(&self, refused: Option<clocks::Refused>) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    // --- Changes -------------------------------------------------------------------------------------------------------

    /// Changes the members: kept first, then told to the machines, then to the peers.
    pub(super) async fn change<E>(
        &self,
        change: impl FnOnce(&mut Roster) -> Result<(), E>,
    ) -> Result<(), ChangeError>
    where
        E: Into<ChangeError>,
    {
        let _turn = self.changing.lock().await;
        let roster = self.roster();
        let mut changed = Roster::clone(&roster);
        change(&mut changed).map_err(Into::into)?;
        if changed == *roster {
            return Ok(());
        }
        self.keep(&changed).await?;
        self.publish(changed).await;
        Ok(())
    }

    /// Removes a node, or says what that would mean.
    async fn remove(&self, remove: &Remove) -> Result<Removal, String> {
        let me = self.me();
        let roster = self.roster();
        let lives = remove.incarnations(&roster)?;
        if lives.contains(&me) {
            return Err("that is this node itself: run the command on one that stays".into());
        }
        let line = |id: &Incarnation, member: &Member| RemovalLine {
            name: member.name.clone(),
            incarnation: format!("{:016x}", id.get()),
            linked: self.links.is_up(*id),
        };
        let members = roster.members();
        let lines = |of: &mut dyn Iterator<Item = Incarnation>| -> Vec<RemovalLine> {
            of.filter_map(|id| Some(line(&id, members.get(id)?)))
                .collect()
        };
        let others = members.open().into_iter();
        let mut others =
            others.filter(|id| *id != me && !lives.contains(id) && !members.is_out(*id));
        let removal = Removal {
            lives: lines(&mut lives.iter().copied()),
            others: lines(&mut others),
        };
        if remove.really {
            let done = self.remove_lives(&remove.node, &lives).await;
            done.map_err(|error| error.to_string())?;
        }
        Ok(removal)
    }

    /// Removes lives of a node.
    pub(super) async fn remove_lives(
        &self,
        node: &str,
        lives: &[Incarnation],
    ) -> Result<(), ChangeError> {
        let me = self.me();
        let removing = self.change(|roster| {
            for life in lives {
                let new = roster.remove(me, *life, wall_micros())?;
                if new {
                    let incarnation = format!("{:016x}", life.get());
                    tracing::warn!(node, incarnation, "a node was removed from the cluster");
                }
            }
            Ok::<_, RosterError>(())
        });
        removing.await
    }

    /// A peer has shown its members. What cannot be kept now (a full disk) counts all the same: the peer shows it again at the next start.
    pub(super) async fn heard(
        &self,
        from: Incarnation,
        theirs: &Roster,
    ) -> Result<MergeOutcome, RosterError> {
        const OLD: MergeOutcome = MergeOutcome::Taken { new: false };
        // Mostly, and nobody is waited for.
        if Roster::clone(&self.roster()).hear(from, theirs)? == OLD {
            return Ok(OLD);
        }
        let _turn = self.changing.lock().await;
        let mut roster = Roster::clone(&self.roster());
        let heard = roster.hear(from, theirs)?;
        if heard != (MergeOutcome::Taken { new: true }) {
            return Ok(heard);
        }
        if let Err(error) = self.keep(&roster).await {
            tracing::warn!(%error, "cannot store the members of the cluster");
        }
        self.publish(roster).await;
        Ok(heard)
    }

    async fn keep(&self, roster: &Roster) -> Result<(), FilesError> {
        let (files, cluster) = (self.files.clone(), self.credentials.cluster());
        let roster = roster.clone();
        let kept = tokio::task::spawn_blocking(move || files.keep_roster(cluster, &roster));
        match kept.await {
            Ok(kept) => kept,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    async fn publish(&self, roster: Roster) {
        let roster = &Arc::new(roster);
        // First: who finds a member among them lets its frames come to the machines.
        self.tell_machines(roster).await;
        // As one: whoever finds a new member says nothing to others before they are told of it (docs/decisions/0018), and a link that comes up is
        // told, or finds it.
        self.links
            .tell_all(&Frame::Roster(Roster::clone(roster)), || {
                self.roster.send_replace(Arc::clone(roster));
            });
        // Behind that: whoever was removed hears it before its link ends.
        self.removed.send_replace(removed(roster));
        if let Some(me) = self.me.get().filter(|me| roster.members().is_out(**me)) {
            self.die(&was_removed(roster, *me));
        }
        if self.me.get().is_some() {
            self.transport.dial(self.peers(roster));
        }
    }

    async fn tell_machines(&self, roster: &Roster) {
        if let Some((board, _)) = self.served.get() {
            let former = roster.former();
            board
                .tell_of_peers(|| PeerInput::Former(former.clone()))
                .await;
            let slots = roster.slots();
            board
                .tell_of_peers(|| PeerInput::Members(slots.clone()))
                .await;
            let holders = roster.holders();
            board
                .tell_of_peers(|| PeerInput::Holders(holders.clone()))
                .await;
        }
    }

    pub(super) async fn dial(&self) {
        let _turn = self.changing.lock().await;
        self.transport.dial(self.peers(&self.roster()));
    }

    /// Whether this node holds a partition, has all of it that clients may know, as far as its own returns go, and goes on with it.
    pub(super) fn holds(&self, partition: PartitionId) -> bool {
        self.serves(&self.roster(), partition)
    }

    /// As [`Self::holds`].
    pub(super) fn serves(&self, roster: &Roster, partition: PartitionId) -> bool {
        self.placing().serves(roster, self.me(), partition)
    }

    /// This node serves accounts of the partition no more: their sessions end, and come again elsewhere.
    pub(super) fn turn_out(&self, partition: PartitionId) {
        if let Some((registry, _)) = self.sessions.get() {
            registry.turn_out(|account| partition_of(account) == partition);
        }
    }

    /// Whether a node of this name is a member, and not one that was removed and runs on beside the one that has the name now. Earlier versions do
    /// not say which they are.
    pub(super) fn is_member(&self, name: &NodeName, incarnation: Option<Incarnation>) -> bool {
        let roster = self.roster();
        let mut present = roster.present();
        let is_named = present.any(|(of, _)| of == name.as_str());
        is_named && incarnation.is_none_or(|id| !roster.members().is_out(id))
    }

    /// Whom to dial, and to ask.
    pub(super) fn peers(&self, roster: &Roster) -> Vec<Peer> {
        let told = roster.present().filter_map(|(name, place)| {
            let name = NodeName::new(name).ok()?;
            let address = self.overrides.get(&name).unwrap_or(&place.address);
            let address = address.clone();
            (name != *self.credentials.name()).then_some(Peer { name, address })
        });
        told.collect()
    }

    /// Where the logs of one incarnation stand here.
    pub(super) async fn logs_of(
        &self,
        incarnation: Incarnation,
    ) -> Result<Vec<RememberedLog>, StoreError> {
        logs_of(&self.store, incarnation).await
    }

    /// With the partitions that `reports` are of, if the machines answer.
    pub(super) async fn status(&self) -> Status {
        let roster = self.roster();
        let (cluster, me) = (self.credentials.cluster(), self.me.get().copied());
        let links = self.transport.links();
        let mut status = Status::of(cluster, &roster, me, &links);
        let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        status.clock = clock.map(|refused| refused.to_string());
        for node in &mut status.nodes {
            let id = u64::from_str_radix(&node.incarnation, 16).map(Incarnation::from_hash);
            node.seconds = id.ok().and_then(|id| self.links.seconds(id));
        }
        if let Some((registry, _)) = self.sessions.get() {
            for node in status.nodes.iter_mut().filter(|node| node.this) {
                node.drained = registry.is_draining();
            }
        }
        if let Some((board, _)) = self.served.get()
            && let Some(reports) = board.reports().await
        {
            let now = self.sessions.get().map(|(_, clock)| clock.now());
            let now = now.map_or(0, |now| now.mono_micros);
            let workers = self.workers.get().copied().unwrap_or(0);
            let served = |of| super::relay::serving(self, &roster, &links, of, workers);
            status.add((roster.as_ref(), me), &reports, now, served);
        }
        status
    }
}

/// Where the logs of one incarnation stand in a store.
pub(super) async fn logs_of<S: Store>(
    store: &S,
    incarnation: Incarnation,
) -> Result<Vec<RememberedLog>, StoreError> {
    let mut logs = Vec::new();
    for partition in store.partitions().await? {
        let Ok(number) = u16::try_from(partition.0) else {
            continue;
        };
        let positions = store.log_positions(partition).await?;
        logs.extend(RememberedLog::of(
            PartitionId(number),
            incarnation,
            &positions,
        ));
    }
    Ok(logs)
}

/// Members that were removed.
fn removed(roster: &Roster) -> BTreeSet<Incarnation> {
    let members = roster.members();
    let all = members.iter().map(|(id, _)| id);
    all.filter(|id| members.is_out(*id)).collect()
}

/// Who has removed a node, for people.
pub(super) fn was_removed(roster: &Roster, id: Incarnation) -> String {
    let members = roster.members();
    let by = members
        .get(id)
        .and_then(|member| member.removals().next())
        .map_or("when the node that had let it in was".to_owned(), |dot| {
            let by = members.get(dot.origin);
            let by = by.map_or("a node that is not known", |by| by.name.as_str());
            format!("by {by}")
        });
    format!(
        "this node was removed from the cluster ({by}): it does not serve. What it holds stays as it is. To take part again, join as a new node: an empty \
         data directory, and a token of a member (docs/cluster.md, \"A node that was removed\")"
    )
}

/// What a running cluster can be asked.
pub(crate) enum Ask {
    /// How it is.
    Status(oneshot::Sender<Status>),
    /// The names of its nodes.
    Names(oneshot::Sender<NodeNames>),
    /// Drain this node or another one, or take it back.
    Drain(
        Option<String>,
        DrainAsk,
        oneshot::Sender<Result<Drain, String>>,
    ),
    /// Remove a node, or say what that would mean.
    Remove(Remove, oneshot::Sender<Result<Removal, String>>),
}

/// Asks a running cluster.
#[derive(Clone)]
pub(crate) struct Told {
    ask: Arc<dyn Fn(Ask) + Send + Sync>,
    filled: watch::Receiver<bool>,
}

impl Told {
    pub(super) fn new<S: Store>(state: Arc<State<S>>, filled: watch::Receiver<bool>) -> Self {
        let ask = move |ask: Ask| {
            let state = Arc::clone(&state);
            tokio::spawn(async move {
                // Whoever asked may be gone.
                match ask {
                    Ask::Status(answer) => drop(answer.send(state.status().await)),
                    Ask::Names(answer) => {
                        let names = NodeNames::of(&state.roster(), state.me.get().copied());
                        drop(answer.send(names));
                    }
                    Ask::Drain(node, ask, answer) => {
                        let drain = state.drain_node(node.as_deref(), ask);
                        drop(answer.send(drain.await));
                    }
                    Ask::Remove(remove, answer) => drop(answer.send(state.remove(&remove).await)),
                }
            });
        };
        Told {
            ask: Arc::new(ask),
            filled,
        }
    }

    /// Why nothing may be written here yet.
    pub(crate) fn refuses(&self) -> Option<&'static str> {
        (!*self.filled.borrow()).then_some(NOT_FILLED)
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Status(answer));
        answered.await.ok()
    }

    /// `None`: the server is stopping.
    pub(crate) async fn names(&self) -> Option<NodeNames> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Names(answer));
        answered.await.ok()
    }

    pub(crate) async fn drain(&self, node: Option<String>, ask: DrainAsk) -> Result<Drain, String> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Drain(node, ask, answer));
        let answered = answered.await;
        answered.unwrap_or_else(|_| Err("the server is stopping".into()))
    }

    pub(crate) async fn remove(&self, remove: Remove) -> Result<Removal, String> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Remove(remove, answer));
        let answered = answered.await;
        answered.unwrap_or_else(|_| Err("the server is stopping".into()))
    }
}
