//! Who belongs to the cluster, as this node knows it: kept, told to machines and peers, and what other nodes ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc, oneshot};
use whimbrel_cluster::{
    Asked, ClusterId, Credentials, Linked, NodeName, Peer, Refused, Shown, TokenError, Transport,
};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    roster::{Place, Roster, RosterError},
    wire::Frame,
};
use whimbrel_service::peers::PeerInput;
use whimbrel_storage::{LogPosition, Origin, StoreError};

use super::{
    files::{Files, FilesError},
    links::Links,
    question::{Held, Question, Remembered, encoded},
};
use crate::{
    actor::{Fatal, PanicStops},
    clock::wall_micros,
    serve::StartError,
    store_calls::Store,
    switchboard::Switchboard,
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
    /// Held while a change is kept and told, so that all hear of changes in one order.
    pub(super) roster: Mutex<Roster>,
    me: OnceLock<Incarnation>,
    served: OnceLock<(Arc<Switchboard>, Fatal)>,
    /// What peers remember of this node has been looked at: which partition, of which peer.
    judged: std::sync::Mutex<BTreeSet<(Incarnation, PartitionId)>>,
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
    #[error("the cluster has a node {0}; set another cluster.name")]
    Name(NodeName),
}

impl<S: Store> State<S> {
    pub(super) fn new(
        files: Files,
        credentials: Credentials,
        roster: Roster,
        store: S,
        transport: Arc<Transport>,
        overrides: BTreeMap<NodeName, String>,
    ) -> Self {
        State {
            files,
            credentials,
            store,
            transport,
            links: Arc::default(),
            overrides,
            roster: Mutex::new(roster),
            me: OnceLock::new(),
            served: OnceLock::new(),
            judged: std::sync::Mutex::default(),
        }
    }

    /// This node's incarnation is settled.
    pub(super) async fn begin(&self, me: Incarnation, place: Place) -> Result<(), StartError> {
        let name = self.credentials.name().to_string();
        let told = self.change(|roster| roster.tell(&name, place)).await;
        told.map_err(|error| StartError::Cluster(error.to_string()))?;
        // Nobody else says it.
        let _ = self.me.set(me);
        Ok(())
    }

    /// The machines run.
    pub(super) async fn serve(&self, board: Arc<Switchboard>, fatal: Fatal) {
        let _ = self.served.set((board, fatal));
        // Somebody may have been let in since the machines were made.
        let roster = self.roster.lock().await;
        self.tell_machines(&roster).await;
    }

    /// # Panics
    /// Before it is settled: nothing that needs it runs then.
    pub(super) fn me(&self) -> Incarnation {
        *self.me.get().expect("links are made when it is settled")
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

    pub(super) async fn slots(&self) -> BTreeMap<Incarnation, u8> {
        self.roster.lock().await.slots()
    }

    /// Whether this peer's view of the partition has to be judged still; asked once.
    pub(super) fn to_be_judged(&self, peer: Incarnation, partition: PartitionId) -> bool {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.insert((peer, partition))
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
        let mut roster = self.roster.lock().await;
        let mut changed = roster.clone();
        change(&mut changed).map_err(Into::into)?;
        if changed == *roster {
            return Ok(());
        }
        self.keep(&changed).await?;
        *roster = changed;
        self.tell(&roster).await;
        Ok(())
    }

    /// A peer has shown its members. What cannot be kept now (a full disk) counts all the same: the peer shows it again at the next start.
    pub(super) async fn heard(&self, theirs: &Roster) -> Result<(), RosterError> {
        let mut roster = self.roster.lock().await;
        if !roster.join(theirs)? {
            return Ok(());
        }
        if let Err(error) = self.keep(&roster).await {
            tracing::warn!(%error, "the members of the cluster cannot be kept");
        }
        self.tell(&roster).await;
        Ok(())
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

    async fn tell(&self, roster: &Roster) {
        self.tell_machines(roster).await;
        self.links.push_all(&Frame::Roster(roster.clone()));
        if self.me.get().is_some() {
            self.transport.dial(self.peers(roster));
        }
    }

    async fn tell_machines(&self, roster: &Roster) {
        if let Some((board, _)) = self.served.get() {
            let slots = roster.slots();
            board
                .tell_of_peers(|| PeerInput::Members(slots.clone()))
                .await;
        }
    }

    pub(super) async fn dial(&self) {
        let roster = self.roster.lock().await;
        self.transport.dial(self.peers(&roster));
    }

    /// Whom to dial, and to ask.
    pub(super) fn peers(&self, roster: &Roster) -> Vec<Peer> {
        let told = roster.places().iter().filter_map(|(name, place)| {
            let name = NodeName::new(name).ok()?;
            let address = self.overrides.get(&name).unwrap_or(&place.address);
            let address = address.clone();
            (name != *self.credentials.name()).then_some(Peer { name, address })
        });
        told.collect()
    }

    // --- What others ask -----------------------------------------------------------------------------------------------

    /// Answers until the transport is gone.
    pub(super) async fn answer_all(self: Arc<Self>, mut asked: mpsc::Receiver<Asked>) {
        while let Some(asked) = asked.recv().await {
            let answer = match minicbor::decode(&asked.detail) {
                Ok(Question::Remember { incarnation }) => match asked.shown {
                    Shown::Certificate => self.remember(incarnation).await,
                    Shown::Token { .. } => Err(Refused("that is for members".into())),
                },
                Ok(Question::Join { incarnation }) => {
                    self.let_in(&asked.shown, &asked.name, incarnation).await
                }
                Err(_) => Err(Refused("this node does not understand the question".into())),
            };
            if let Err(Refused(why)) = &answer {
                tracing::warn!(node = %asked.name, why, "a node asked in vain");
            }
            // It may have lost patience.
            let _ = asked.answer.send(answer);
        }
    }

    async fn let_in(
        &self,
        shown: &Shown,
        name: &NodeName,
        incarnation: Incarnation,
    ) -> Result<Vec<u8>, Refused> {
        let Some(me) = self.me.get().copied() else {
            return Err(Refused("this node is starting; try again".into()));
        };
        let let_in = self.change(|roster| {
            if let Shown::Token { id, secret } = shown {
                let mut others = roster.members().iter();
                // Its own earlier question, of which the answer was lost, is no other's.
                if others.any(|(id, member)| id != incarnation && member.name == name.as_str()) {
                    return Err(ChangeError::Name(name.clone()));
                }
                // A file is synced here, on a thread that should not wait: once for each node that joins.
                self.files.tokens(|tokens| {
                    let taken = tokens.take(wall_micros(), *id, secret, incarnation.get());
                    taken.map_err(ChangeError::from)
                })?;
            }
            roster.sponsor(me, incarnation, name.as_str())?;
            Ok(())
        });
        let_in.await.map_err(|error| {
            let more = match error {
                ChangeError::Roster(RosterError::NoSlot) => "; take a token of another member",
                _ => "",
            };
            Refused(format!("{error}{more}"))
        })?;
        let roster = self.roster.lock().await;
        let slot = roster.members().get(incarnation).map(|member| member.slot);
        tracing::info!(
            node = %name,
            incarnation = format!("{:016x}", incarnation.get()),
            slot,
            "let in"
        );
        Ok(encoded(&*roster))
    }

    async fn remember(&self, incarnation: Incarnation) -> Result<Vec<u8>, Refused> {
        let logs = self.logs_of(incarnation).await.map_err(|error| {
            tracing::warn!(%error, "a peer cannot be told what is here of it");
            Refused("reading failed here; try again".into())
        })?;
        let roster = self.roster.lock().await.clone();
        Ok(encoded(&Remembered { roster, logs }))
    }

    /// Where the logs of one incarnation stand here.
    pub(super) async fn logs_of(&self, incarnation: Incarnation) -> Result<Vec<Held>, StoreError> {
        let origin = Origin(incarnation.get());
        let mut logs = Vec::new();
        for partition in self.store.partitions().await? {
            let Ok(number) = u16::try_from(partition.0) else {
                continue;
            };
            let positions = self.store.log_positions(partition).await?;
            let own = positions.into_iter().find(|(of, _)| *of == origin);
            if let Some((_, LogPosition { next, hash, .. })) = own.filter(|(_, at)| at.next > 1) {
                logs.push(Held {
                    partition: PartitionId(number),
                    last: next - 1,
                    hash: hash.0,
                });
            }
        }
        Ok(logs)
    }

    pub(super) async fn status(&self) -> Status {
        let roster = self.roster.lock().await.clone();
        let (cluster, me) = (self.credentials.cluster(), self.me.get().copied());
        Status::of(cluster, &roster, me, &self.transport.links())
    }
}

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its id, hexadecimal.
    pub cluster: String,
    /// All incarnations that belong to it.
    pub nodes: Vec<NodeLine>,
}

impl Status {
    /// From what is known.
    pub(crate) fn of(
        cluster: ClusterId,
        roster: &Roster,
        me: Option<Incarnation>,
        links: &[Linked],
    ) -> Self {
        let lines = roster.members().iter().map(|(incarnation, member)| {
            let place = roster.places().get(&member.name);
            let place = place.filter(|place| place.incarnation == incarnation);
            let link = links.iter().find(|link| link.incarnation == incarnation);
            NodeLine {
                name: member.name.clone(),
                incarnation: format!("{:016x}", incarnation.get()),
                slot: member.slot,
                region: place.map(|place| place.region.clone()),
                address: place.map(|place| place.address.clone()),
                this: me == Some(incarnation),
                linked: link.is_some(),
                round_trip_micros: link.and_then(|link| link.round_trip_micros),
                received: link.map_or(0, |link| link.received),
                sent: link.map_or(0, |link| link.sent),
            }
        });
        Status {
            cluster: cluster.iter().map(|byte| format!("{byte:02x}")).collect(),
            nodes: lines.collect(),
        }
    }
}

/// One incarnation of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Of the node.
    pub name: String,
    /// Hexadecimal.
    pub incarnation: String,
    /// Of its UIDs.
    pub slot: u8,
    /// Where it stands; `None`: the node has another incarnation now, or was never heard.
    pub region: Option<String>,
    /// Where it is reached.
    pub address: Option<String>,
    /// Whether it is the node that was asked.
    pub this: bool,
    /// Whether there is a link to it.
    pub linked: bool,
    /// The last round trip.
    pub round_trip_micros: Option<u64>,
    /// Bytes that came on the link.
    pub received: u64,
    /// Bytes that went.
    pub sent: u64,
}

type Ask = dyn Fn(oneshot::Sender<Status>) + Send + Sync;

/// Asks a running cluster how it is.
#[derive(Clone)]
pub(crate) struct Told(Arc<Ask>);

impl Told {
    pub(super) fn new(ask: impl Fn(oneshot::Sender<Status>) + Send + Sync + 'static) -> Self {
        Told(Arc::new(ask))
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        let (answer, answered) = oneshot::channel();
        (self.0)(answer);
        answered.await.ok()
    }
}
