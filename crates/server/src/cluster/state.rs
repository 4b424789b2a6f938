//! Who belongs to the cluster, as this node knows it: kept, told to machines and peers, and what other nodes ask.
//!
//! size: what is known of the members, how it changes, and how it is shown to people and programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    time::timeout,
};
use whimbrel_cluster::{
    Asked, ClusterId, Credentials, Linked, NodeName, Peer, Refused, Shown, TokenError, Transport,
    ask_member,
};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    members::Member,
    roster::{Heard, Place, Roster, RosterError},
    wire::Frame,
};
use whimbrel_service::peers::{PartitionReport, PeerInput, PeerReport};
use whimbrel_storage::{LogPosition, Origin, StoreError};

use super::{
    NOT_FILLED,
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

/// For a peer to say how much of what it was sent is not in its place.
const UNFINISHED_WAIT_MAX: Duration = Duration::from_secs(2);

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
    /// Members that were removed: nothing is taken from them.
    pub(super) removed: watch::Sender<BTreeSet<Incarnation>>,
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
    #[error(
        "this node was removed from the cluster; it may join as a new one, with an empty \
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
    ) -> Self {
        State {
            files,
            credentials,
            store,
            transport,
            links: Arc::default(),
            overrides,
            removed: watch::Sender::new(removed(&roster)),
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

    pub(super) async fn former(&self) -> BTreeMap<Incarnation, u8> {
        self.roster.lock().await.former()
    }

    /// Whether all that was written under this node's slot is here: that was seen before, or nobody had it.
    pub(super) async fn is_filled(&self) -> bool {
        self.files.is_filled(self.me()) || self.holders_before().await.is_empty()
    }

    /// Who had this node's slot before, and left logs behind it must know.
    pub(super) async fn holders_before(&self) -> BTreeSet<Incarnation> {
        self.roster.lock().await.members().holders_before(self.me())
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

    /// Removes a node, or says what that would mean.
    async fn remove(&self, remove: &Remove) -> Result<Removal, String> {
        let me = self.me();
        let roster = self.roster.lock().await.clone();
        let lives = remove.lives(&roster)?;
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
            let done = self.change(|roster| {
                for life in &lives {
                    let new = roster.remove(me, *life, wall_micros())?;
                    if new {
                        let incarnation = format!("{:016x}", life.get());
                        tracing::warn!(
                            node = remove.node,
                            incarnation,
                            "is removed from the cluster"
                        );
                    }
                }
                Ok::<_, RosterError>(())
            });
            done.await.map_err(|error| error.to_string())?;
        }
        Ok(removal)
    }

    /// A peer has shown its members. What cannot be kept now (a full disk) counts all the same: the peer shows it again at the next start.
    pub(super) async fn heard(
        &self,
        from: Incarnation,
        theirs: &Roster,
    ) -> Result<Heard, RosterError> {
        let mut roster = self.roster.lock().await;
        let heard = roster.hear(from, theirs)?;
        if heard != (Heard::Taken { new: true }) {
            return Ok(heard);
        }
        if let Err(error) = self.keep(&roster).await {
            tracing::warn!(%error, "the members of the cluster cannot be kept");
        }
        self.tell(&roster).await;
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

    async fn tell(&self, roster: &Roster) {
        self.tell_machines(roster).await;
        self.links.push_all(&Frame::Roster(roster.clone()));
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
        }
    }

    pub(super) async fn dial(&self) {
        let roster = self.roster.lock().await;
        self.transport.dial(self.peers(&roster));
    }

    /// Whom to dial, and to ask.
    pub(super) fn peers(&self, roster: &Roster) -> Vec<Peer> {
        let places = roster.places().iter();
        let members = places.filter(|(_, place)| !roster.members().is_out(place.incarnation));
        let told = members.filter_map(|(name, place)| {
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
                Ok(Question::Unfinished) => match asked.shown {
                    Shown::Certificate => self.unfinished().await,
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

    /// How much of what this node was sent is not in its place.
    async fn unfinished(&self) -> Result<Vec<u8>, Refused> {
        let here = match self.served.get() {
            Some((board, _)) => board.reports().await,
            None => None,
        };
        let starting = || Refused("this node is starting; try again".into());
        let mut unfinished = 0;
        for report in here.ok_or_else(starting)? {
            let open = report.open.ok_or_else(starting)?;
            let waiting = open.logs.values().map(|log| log.taken - log.applied);
            unfinished += waiting.sum::<u64>() + report.bodies_missing;
        }
        Ok(encoded(&unfinished))
    }

    /// Who else holds what is here.
    async fn others(&self) -> Vec<DrainLine> {
        let peers = self.peers(&*self.roster.lock().await);
        let status = self.status().await;
        let mut lines = Vec::new();
        // A life before the present one has no address, and nothing is held there.
        for node in status.nodes {
            let peer = peers.iter().find(|peer| peer.name.as_str() == node.name);
            let Some(peer) = peer.filter(|_| node.address.is_some() && !node.removed) else {
                continue;
            };
            let unfinished = match node.linked {
                true => self.ask_unfinished(peer).await,
                false => None,
            };
            lines.push(DrainLine {
                name: node.name,
                linked: node.linked,
                lacks: node.lacks,
                unfinished,
            });
        }
        lines
    }

    async fn ask_unfinished(&self, peer: &Peer) -> Option<u64> {
        let question = encoded(&Question::Unfinished);
        let asking = ask_member(&self.credentials, &peer.name, &peer.address, question);
        let answer = timeout(UNFINISHED_WAIT_MAX, asking).await.ok()?.ok()?;
        minicbor::decode(&answer).ok()
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
            let members = roster.members();
            // Its own earlier question, of which the answer was lost, is no other's.
            let is_other = |id: Incarnation, member: &Member| {
                id != incarnation && member.name == name.as_str() && !members.is_out(id)
            };
            let named = members.iter().any(|(id, member)| is_other(id, member));
            let known = members.get(incarnation).is_some();
            if !named && !known && matches!(shown, Shown::Certificate) {
                return Err(ChangeError::Removed);
            }
            if let Shown::Token { id, secret } = shown {
                if named {
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

    /// With the partitions that `reports` are of, if the machines answer.
    async fn status(&self) -> Status {
        let roster = self.roster.lock().await.clone();
        let (cluster, me) = (self.credentials.cluster(), self.me.get().copied());
        let mut status = Status::of(cluster, &roster, me, &self.transport.links());
        for node in &mut status.nodes {
            let id = u64::from_str_radix(&node.incarnation, 16).map(Incarnation::from_hash);
            node.seconds = id.ok().and_then(|id| self.links.seconds(id));
        }
        if let Some((board, _)) = self.served.get()
            && let Some(reports) = board.reports().await
        {
            status.add(&reports);
        }
        status
    }
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
         data directory, and a token of a member (docs/operations.md, \"A node that was removed\")"
    )
}

/// A node that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// Its name, or the incarnation of one of its lives.
    pub node: String,
    /// Only the lives before the present one.
    pub earlier: bool,
    /// Not only what it would mean.
    pub really: bool,
}

impl Remove {
    fn lives(&self, roster: &Roster) -> Result<Vec<Incarnation>, String> {
        let members = roster.members();
        let present = roster
            .places()
            .get(&self.node)
            .map(|place| place.incarnation);
        let named = members.iter().filter(|(id, member)| {
            let named = member.name == self.node || format!("{:016x}", id.get()) == self.node;
            named && !(self.earlier && Some(*id) == present)
        });
        let named: Vec<Incarnation> = named.map(|(id, _)| id).collect();
        let lives: Vec<Incarnation> = named
            .iter()
            .copied()
            .filter(|id| !members.is_out(*id))
            .collect();
        match (lives.is_empty(), named.is_empty()) {
            (false, _) => Ok(lives),
            (true, false) => Err(format!("{} was removed already", self.node)),
            (true, true) if self.earlier => Err(format!("{} has no earlier lives", self.node)),
            (true, true) => Err(format!("there is no node {} in the cluster", self.node)),
        }
    }
}

/// How far a node is that is being drained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Sessions that have not ended yet.
    pub sessions: u64,
    /// Accepted messages that are not in their mailboxes yet.
    pub queue_entries: u64,
    /// Who else holds what is here.
    pub others: Vec<DrainLine>,
}

/// What another member holds of what is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainLine {
    /// Its name.
    pub name: String,
    /// Whether there is a link to it.
    pub linked: bool,
    /// Operations that it has not said to have.
    pub lacks: Option<u64>,
    /// What it has been sent and not in its place: operations that are not applied, bodies that are missing; `None`: it does not answer.
    pub unfinished: Option<u64>,
}

impl DrainLine {
    /// Whether all that is here is there.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.linked && self.lacks == Some(0) && self.unfinished == Some(0)
    }
}

/// What a removal means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// What goes.
    pub lives: Vec<RemovalLine>,
    /// Who stays, this node aside.
    pub others: Vec<RemovalLine>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalLine {
    /// Its name.
    pub name: String,
    /// Hexadecimal.
    pub incarnation: String,
    /// Whether there is a link to it.
    pub linked: bool,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its id, hexadecimal.
    pub cluster: String,
    /// All incarnations that belong to it, or did.
    pub nodes: Vec<NodeLine>,
    /// What the node that was asked has; `None`: no server runs there.
    #[serde(default)]
    pub here: Option<Here>,
    /// Its partitions.
    #[serde(default)]
    pub partitions: Vec<PartitionLine>,
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
                removed: roster.members().is_out(incarnation),
                closed: member.closed().is_some(),
                region: place.map(|place| place.region.clone()),
                role: place.map(|place| place.role().name().to_owned()),
                address: place.map(|place| place.address.clone()),
                this: me == Some(incarnation),
                linked: link.is_some(),
                round_trip_micros: link.and_then(|link| link.round_trip_micros),
                received: link.map_or(0, |link| link.received),
                sent: link.map_or(0, |link| link.sent),
                seconds: None,
                lacks: None,
                has_more: None,
                queued_bytes: 0,
            }
        });
        Status {
            cluster: cluster.iter().map(|byte| format!("{byte:02x}")).collect(),
            nodes: lines.collect(),
            here: None,
            partitions: Vec::new(),
        }
    }

    /// What the machines tell.
    fn add(&mut self, reports: &[PartitionReport]) {
        let mut here = Here::default();
        let mut peers: BTreeMap<Incarnation, PeerReport> = BTreeMap::new();
        for report in reports {
            let open = report.open.as_ref();
            let logs = || open.iter().flat_map(|open| open.logs.values());
            let of_peers = open.iter().flat_map(|open| &open.peers);
            let line = PartitionLine {
                partition: report.partition.0,
                open: open.is_some(),
                operations: logs().map(|log| log.stored).sum(),
                applied: logs().map(|log| log.applied).sum(),
                stable: open.map_or(0, |open| open.stable),
                lacks: of_peers
                    .clone()
                    .filter(|(_, peer)| peer.lacks > 0)
                    .map(|(id, peer)| (format!("{:016x}", id.get()), peer.lacks))
                    .collect(),
                bodies_missing: report.bodies_missing,
                accounts_stalled: report.accounts_stalled,
            };
            for (id, peer) in of_peers {
                let sum = peers.entry(*id).or_default();
                *sum = sum.plus(*peer);
            }
            here.partitions += 1;
            here.opening += u64::from(!line.open);
            here.operations += line.operations;
            here.applied += line.applied;
            here.stable += line.stable;
            here.bodies_missing += line.bodies_missing;
            here.accounts_stalled += line.accounts_stalled;
            self.partitions.push(line);
        }
        self.partitions.sort_by_key(|line| line.partition);
        for node in &mut self.nodes {
            let mut known = peers.iter();
            let known = known.find(|(id, _)| format!("{:016x}", id.get()) == node.incarnation);
            if let Some((_, peer)) = known {
                node.lacks = Some(peer.lacks);
                node.has_more = Some(peer.has_more);
                node.queued_bytes = peer.queued_bytes;
            }
        }
        self.here = Some(here);
    }
}

/// What the node that was asked has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// Partitions with a log.
    pub partitions: u64,
    /// Of these, those that are being opened, of which nothing is known yet.
    pub opening: u64,
    /// Operations on disk, of all nodes: the sum of the last numbers of all logs.
    pub operations: u64,
    /// Of these, applied.
    pub applied: u64,
    /// Of these, applied by all members: what was hidden before can be forgotten.
    pub stable: u64,
    /// Bodies that are named and not here.
    pub bodies_missing: u64,
    /// Accounts that cannot go on.
    pub accounts_stalled: u64,
}

/// A partition at the node that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLine {
    /// Its number: 256 is the directory.
    pub partition: u16,
    /// Whether it is open; the rest is nothing else.
    pub open: bool,
    /// As of [`Here`].
    pub operations: u64,
    /// As of [`Here`].
    pub applied: u64,
    /// As of [`Here`].
    pub stable: u64,
    /// Peers that have not said to have all that is here, and how many operations of it.
    pub lacks: BTreeMap<String, u64>,
    /// As of [`Here`].
    pub bodies_missing: u64,
    /// As of [`Here`].
    pub accounts_stalled: u64,
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
    /// Whether it was removed.
    #[serde(default)]
    pub removed: bool,
    /// Whether its logs are closed: it counts no more, and its slot is free.
    #[serde(default)]
    pub closed: bool,
    /// Where it stands; `None`: the node has another incarnation now, or was never heard.
    pub region: Option<String>,
    /// What it is there for.
    #[serde(default)]
    pub role: Option<String>,
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
    /// For how long there is a link, or there is none; `None`: there was none since the start.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Operations that are on disk here, and that it has not said to have.
    #[serde(default)]
    pub lacks: Option<u64>,
    /// Operations that it has said to have, and that are not on disk here.
    #[serde(default)]
    pub has_more: Option<u64>,
    /// Bytes that wait to be sent to it, or for its acknowledgement.
    #[serde(default)]
    pub queued_bytes: u64,
}

/// What a running cluster can be asked.
pub(crate) enum Ask {
    /// How it is.
    Status(oneshot::Sender<Status>),
    /// Who else holds what is here.
    Others(oneshot::Sender<Vec<DrainLine>>),
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
                    Ask::Others(answer) => drop(answer.send(state.others().await)),
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

    pub(crate) async fn others(&self) -> Vec<DrainLine> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Others(answer));
        answered.await.unwrap_or_default()
    }

    pub(crate) async fn remove(&self, remove: Remove) -> Result<Removal, String> {
        let (answer, answered) = oneshot::channel();
        (self.ask)(Ask::Remove(remove, answer));
        let answered = answered.await;
        answered.unwrap_or_else(|_| Err("the server is stopping".into()))
    }
}
