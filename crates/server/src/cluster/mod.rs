//! This node in its cluster: files, joining, membership, links, and the frames on them.
//!
//! Order of a start: the files; the listener (peers that start at the same time can ask); then what the peers remember of this node, and with it its
//! incarnation and slot ([`startup_identity`]); then the machines of the service; then the links.
//!
//! Invariants:
//! - Nothing is written under an incarnation that has no slot from a sponsor, and no node is let in before the sponsor's roster is on disk.
//! - On a link the roster comes first. Machines know a new member before they see any frame from a node that knew it.
//! - Frames of one link reach a machine in their order. Frames of the next link follow the end of the one before.
//! - No link waits for another link. A slow machine holds up only links that have frames for it.
//!
//! Reading order: [`files`], `rpc`, [`roster_store`] (members), `rpc_server` (answers), [`status`], [`startup_identity`], `duplicate_node` (whether
//! another machine runs as this node), `unverified` (peers that were not reached at the start), `links` (outgoing frames), `link_input` (incoming
//! frames), `blobs`, `calls`, `clocks`, `removal` (removed members), `drain` (a node before its shutdown), [`relay`] (clients' sessions that another
//! node serves), `syncing` (a new node), `placing` (which partitions it holds).

mod blobs;
mod calls;
mod clocks;
mod closing_logs;
mod drain;
mod duplicate_node;
pub mod files;
mod link_input;
mod links;
mod log_retention;
mod node_names;
mod placing;
pub(crate) mod relay;
mod removal;
mod roster_store;
mod rpc;
mod rpc_server;
mod slots;
mod startup_identity;
mod status;
mod syncing;
mod unverified_peers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use whimbrel_cluster::{Clock as Clocks, Lanes, NodeName, Transport, handshake};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{holders::Holders, roster::Place};

pub use self::status::{
    Drain, DrainAsk, DrainLine, Here, Lag, LogLine, NodeLine, PartitionLine, Removal, Remove,
    Status,
};
pub(crate) use self::{blobs::Ask, node_names::NodeNames, placing::least, roster_store::Told};
use self::{files::Files, roster_store::State, startup_identity::StartupIdentity};
use crate::{
    actor::Fatal,
    clock::{Clock, wall_micros},
    config::Config,
    driver::Context,
    node::DataDir,
    registry::Registry,
    router::Router,
    serve::StartError,
    store_calls::Store,
};

/// What the machines know of other nodes, and where they send requests for these.
#[derive(Clone)]
pub struct Membership {
    /// The other members, and their slots.
    pub(crate) peers: BTreeMap<Incarnation, u8>,
    /// The partitions that they and this node hold.
    pub(crate) holders: Holders,
    /// Former members, whose logs are closed.
    pub(crate) former: BTreeMap<Incarnation, u8>,
    /// Whether this node came with an empty disk, or lost a part of its rows.
    pub(crate) syncing: bool,
    /// How its clock differs from those of the members that were asked, if any was.
    pub(crate) clock: Option<whimbrel_service::peers::Clock>,
    /// Requests for blobs.
    pub(crate) wants: mpsc::UnboundedSender<Ask>,
}

/// This node's part of its cluster.
pub struct Cluster<S> {
    state: Arc<State<S>>,
    membership: Membership,
    wants: mpsc::UnboundedReceiver<Ask>,
    events: mpsc::Receiver<whimbrel_cluster::Event>,
    /// The most bytes of all logs.
    log_retention_bytes: u64,
    bodies: whimbrel_service::peers::blobs::Config,
    tasks: JoinSet<()>,
    clock: Clock,
    guard: clocks::Guard,
    /// Peers that could not be asked.
    unverified: BTreeSet<NodeName>,
}

/// The answer of a newcomer that has the slot of a removed node.
pub(crate) const NOT_FILLED: &str = "this node has the slot of one that was removed, and does not know yet all that that one wrote: while the server \
                                     runs it gets it from the others, and serves nobody before";

/// Events of links that wait: a few for each peer.
const EVENTS_MAX: usize = 64;
/// Questions that wait, of members and of unknown nodes. Each is answered in some milliseconds.
const ASKED_MAX: usize = 16;

impl<S: Store> Cluster<S> {
    /// Settles this node's identity, if it belongs to a cluster; `clock` is that of the machines. The store has been opened, and was not used
    /// otherwise.
    ///
    /// # Errors
    /// When the configuration and the files do not fit, or the node needs a slot and no member can be asked.
    pub async fn open(
        config: &Config,
        data: &mut DataDir,
        listener: Vec<TcpListener>,
        store: S,
        clock: Clock,
    ) -> Result<Option<Self>, StartError> {
        let files = Files::of(data.path());
        let Some(kept) = files.open()? else {
            return match config.cluster.name.as_str() {
                "" => Ok(None),
                name => Err(StartError::Cluster(format!(
                    "cluster.name is {name:?}, but this node belongs to no cluster yet: run `whimbrel cluster init` to found one, or \
                     `whimbrel cluster join TOKEN`"
                ))),
            };
        };
        let name = kept.credentials.name().clone();
        if config.cluster.name != name.as_str() {
            return Err(StartError::Cluster(format!(
                "{} belongs to the node {name} of a cluster; set cluster.name = \"{name}\"",
                data.path().display()
            )));
        }
        let (to_events, events) = mpsc::channel(EVENTS_MAX);
        let (members, asked) = mpsc::channel(ASKED_MAX);
        let (strangers, of_strangers) = mpsc::channel(ASKED_MAX);
        let clocks: Clocks = Arc::new(move || clock.of_peers());
        let transport = Transport::new(
            &kept.credentials,
            kept.authority,
            clocks,
            to_events,
            Lanes { members, strangers },
        );
        let transport =
            Arc::new(transport.map_err(|error| StartError::Cluster(error.to_string()))?);
        let mut tasks = JoinSet::new();
        for listener in listener {
            let transport = Arc::clone(&transport);
            tasks.spawn(async move { transport.listen(listener).await });
        }
        let overrides = config.cluster_addresses();
        let state = Arc::new(State::new(
            files,
            kept.credentials,
            kept.roster,
            store,
            transport,
            overrides,
            placing::wanted(config),
        ));
        tasks.spawn(Arc::clone(&state).answer_all(asked));
        tasks.spawn(Arc::clone(&state).answer_all(of_strangers));
        let settled =
            startup_identity::settle(&state, data, config.cluster.startup_timeout, clock).await?;
        let StartupIdentity {
            me,
            slot,
            asked,
            unverified,
        } = settled;
        let roster = state.roster();
        let known = roster.places().get(name.as_str());
        let place = Place {
            // Above the version that a clock ahead of the time has announced.
            version: wall_micros().max(known.map_or(0, |known| known.version + 1)),
            incarnation: me,
            address: config.cluster_address(),
            region: config.cluster.region.clone(),
            role: config.cluster.role.placed().number(),
            shares: Some(true),
        };
        state.begin(me, place).await?;
        tracing::info!(name = %name, slot, members = state.roster().slots().len(), "a member of a cluster");
        let (to_wants, wants) = mpsc::unbounded_channel();
        let mut peers = state.roster().slots();
        peers.remove(&me);
        let holders = state.roster().holders();
        let mut guard = clocks::Guard::new(clock.of_peers(), &asked);
        let membership = Membership {
            peers,
            holders,
            former: state.roster().former(),
            syncing: state.is_syncing(),
            clock: guard.judge(&state, clock),
            wants: to_wants,
        };
        Ok(Some(Cluster {
            state,
            membership,
            wants,
            events,
            log_retention_bytes: config.cluster.log_retention_bytes.0,
            bodies: whimbrel_service::peers::blobs::Config {
                ahead_bytes_max: config.cluster.ahead_bytes.0,
                ..Default::default()
            },
            tasks,
            clock,
            guard,
            unverified,
        }))
    }

    pub(crate) fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// Makes links, once the machines run.
    pub(crate) async fn run(self, board: Arc<Router>, fatal: Fatal) -> Running<S> {
        let Cluster {
            state,
            wants,
            events,
            log_retention_bytes,
            bodies,
            mut tasks,
            clock,
            mut guard,
            unverified,
            ..
        } = self;
        state.serve(Arc::clone(&board), fatal).await;
        // Before any client is served.
        guard.tell(&state, &board, clock).await;
        tasks.spawn(clocks::watch(
            Arc::clone(&state),
            Arc::clone(&board),
            clock,
            guard,
        ));
        let (to_bodies, told) = mpsc::channel(blobs::TOLD_MAX);
        let bodies = blobs::Driver::new(Arc::clone(&state), Arc::clone(&board), clock, bodies);
        let room = bodies.room();
        tasks.spawn(bodies.run(wants, told));
        tasks.spawn(link_input::drive(
            Arc::clone(&state),
            Arc::clone(&board),
            events,
            to_bodies,
            room,
        ));
        tasks.spawn(link_input::measure(Arc::clone(&state), Arc::clone(&board)));
        let (found, told) = (Arc::clone(&state), Arc::clone(&board));
        tasks.spawn(async move { found.is_older(&told.older().await) });
        if !unverified.is_empty() {
            tasks.spawn(unverified_peers::ask_later(
                Arc::clone(&state),
                unverified,
                clock,
            ));
        }
        if state.is_syncing() {
            tasks.spawn(syncing::watch(Arc::clone(&state), Arc::clone(&board)));
        }
        tasks.spawn(log_retention::watch(
            Arc::clone(&state),
            Arc::clone(&board),
            log_retention_bytes,
        ));
        tasks.spawn(placing::watch(Arc::clone(&state), Arc::clone(&board)));
        tasks.spawn(slots::watch(Arc::clone(&state), clock));
        let (to_filled, filled) = watch::channel(state.is_filled());
        tasks.spawn(removal::watch(
            Arc::clone(&state),
            Arc::clone(&board),
            to_filled,
        ));
        state
            .transport
            .begin(handshake(&state.credentials, state.me()));
        state.dial().await;
        Running {
            state,
            clock,
            tasks,
            filled,
        }
    }
}

/// A running cluster: its links, until dropped.
pub struct Running<S> {
    state: Arc<State<S>>,
    clock: Clock,
    tasks: JoinSet<()>,
    filled: watch::Receiver<bool>,
}

impl<S: Store> Running<S> {
    /// Whether this node has all that was written under its slot. Before that it must claim no UID, and serves nobody.
    pub(crate) fn filled(&self) -> watch::Receiver<bool> {
        self.filled.clone()
    }

    /// What a command may ask about the cluster.
    pub(crate) fn told(&self) -> Told {
        let state = Arc::clone(&self.state);
        Told::new(state, self.filled.clone())
    }

    /// Relays to the nodes that serve what this one does not, for so many sessions.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub(crate) fn relays(
        &self,
        config: &Config,
        sessions_max: usize,
        registry: Arc<Registry>,
    ) -> Result<relay::Relays<S>, StartError> {
        // Before any node can ask for it.
        let _ = self.state.sessions.set((Arc::clone(&registry), self.clock));
        let workers = config.cluster.workers_per_partition;
        let _ = self.state.workers.set(workers);
        let streams = whimbrel_cluster::Relays::new(&self.state.credentials);
        let streams = streams.map_err(|error| StartError::Cluster(error.to_string()))?;
        let state = Arc::clone(&self.state);
        Ok(relay::Relays::new(
            state,
            streams,
            registry,
            &config.cluster,
            sessions_max,
        ))
    }

    /// Serves sessions that other nodes relay.
    pub(crate) fn serve(
        &self,
        context: Arc<Context<S>>,
        registry: Arc<Registry>,
        sessions_max: usize,
    ) -> impl Future<Output = ()> + Send + use<S> {
        relay::serve(Arc::clone(&self.state), context, registry, sessions_max)
    }

    /// Ends all links.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.state.links.close_all();
    }
}

/// The question of `whimbrel cluster join`.
pub(crate) fn question_of_join(incarnation: Incarnation) -> Vec<u8> {
    rpc::encoded(&rpc::Question::Join { incarnation })
}

/// What a command that works on the store without a server must know of the members, so that it forgets nothing which others lack. It does not ask
/// peers whether this disk is older: the ends of the own logs are stored before it writes, and the next start asks.
///
/// # Errors
/// When the files are damaged, this directory is a copy that has no slot yet, or others know more of this node.
pub(crate) async fn offline<S: Store>(
    data: &DataDir,
    store: &S,
) -> Result<Option<Membership>, StartError> {
    let files = Files::of(data.path());
    let Some(kept) = files.open()? else {
        return Ok(None);
    };
    if files.must_renew() {
        return Err(StartError::Cluster(
            "this disk is older than what other nodes know of this node, and nothing may be written under its present incarnation: start the server, which takes a new one, and run the \
             command again, or run it on another node"
                .into(),
        ));
    }
    let me = Incarnation::from_hash(data.identity().incarnation);
    let members = kept.roster.members();
    if members.is_out(me) {
        return Err(StartError::Cluster(roster_store::was_removed(
            &kept.roster,
            me,
        )));
    }
    if !members.holders_before(me).is_empty() && !files.is_filled(me) {
        return Err(StartError::Cluster(NOT_FILLED.into()));
    }
    let mut peers = kept.roster.slots();
    if peers.remove(&me) != Some(data.identity().slot) {
        return Err(StartError::Cluster(
            "this node has a new incarnation, and no slot for it yet: start the server, so that a member gives it one".into(),
        ));
    }
    unverified_peers::keep(&files, store, me).await?;
    Ok(Some(Membership {
        peers,
        holders: kept.roster.holders(),
        former: kept.roster.former(),
        syncing: files.is_syncing(),
        clock: None,
        // Nothing is fetched: requests are repeated at the next start.
        wants: mpsc::unbounded_channel().0,
    }))
}
