//! All streams of a node: it listens, dials its peers, and keeps one link to each.
//!
//! Two nodes dial each other, since one of them may be unreachable from outside. When both streams come up, the one stays that the node with the lesser
//! name has dialed. Which nodes are members is not known here: whoever hears [`Event::Up`] closes the link of one that is not.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    Now,
    link::Agreed,
    wire::{Frame, Handshake, WIRE_MAX, WIRE_MIN},
};

use crate::{
    Authority, AuthorityError, Credentials, FEATURE_LZ4, Handle, NodeName, Refused,
    authority::{ALPN_JOIN, ALPN_NODE, name_in},
    join::{self, Question},
    stream::{self, Ended, Hears},
};

/// Streams at once that have not shown who they are. A cluster has some dozens of nodes.
const HANDSHAKES_MAX: usize = 64;
/// To connect, and for TLS.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two tries to reach a peer: at first, and at most.
const DIAL_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// A link that lasted so long was a good one: the next try comes soon.
const GOOD: Duration = Duration::from_secs(10);
/// After a failed accept: it is out of descriptors or memory, which does not end at once.
const ACCEPT_AFTER: Duration = Duration::from_millis(100);

/// Reads both clocks.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Names one stream of this node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Whom to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, which its certificate must show.
    pub name: NodeName,
    /// Host and port.
    pub address: String,
}

/// What the streams bring. Of one link: `Up`, then frames, then `Down`; a link that takes the place of another may be up before that one is down.
#[derive(Debug)]
pub enum Event {
    /// A link is up.
    Up {
        /// Which.
        link: LinkId,
        /// With whom.
        agreed: Agreed,
        /// To send.
        handle: Handle,
    },
    /// A frame came.
    Frame {
        /// On which.
        link: LinkId,
        /// What.
        frame: Frame,
    },
    /// There is room for frames that [`Handle::offer`] refused.
    Room {
        /// On which.
        link: LinkId,
    },
    /// A link is over.
    Down {
        /// Which.
        link: LinkId,
    },
}

/// A node asks to be let in.
pub struct Asked {
    /// Which token it shows.
    pub id: u64,
    /// The token's secret.
    pub secret: [u8; 32],
    /// The name it wants.
    pub name: NodeName,
    /// What it says of itself.
    pub detail: Vec<u8>,
    /// Its answer: what this node adds.
    pub answer: oneshot::Sender<Result<Vec<u8>, Refused>>,
}

/// One link, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// With whom.
    pub name: NodeName,
    /// Its present life.
    pub incarnation: Incarnation,
    /// The version of the wire format that is spoken.
    pub wire: u16,
    /// What both can do.
    pub features: u64,
    /// The last round trip; `None` before the first ping has come back.
    pub round_trip_micros: Option<u64>,
    /// Bytes that came.
    pub received: u64,
    /// Bytes that went.
    pub sent: u64,
}

/// This program's handshake.
pub fn handshake(credentials: &Credentials, incarnation: Incarnation) -> Handshake {
    Handshake {
        cluster: credentials.cluster(),
        name: credentials.name().to_string(),
        incarnation,
        wire_min: WIRE_MIN,
        wire_max: WIRE_MAX,
        features: FEATURE_LZ4,
    }
}

struct Registered {
    link: LinkId,
    handle: Handle,
    /// By the node with the lesser name.
    dialed_by_lesser: bool,
    agreed: Agreed,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    /// 0: not known.
    round_trip_micros: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

struct Dialer {
    address: String,
    /// Dropped to end it. A task that was aborted could not say that its link is down.
    _stop: watch::Sender<()>,
}

#[derive(Default)]
struct Links {
    up: BTreeMap<NodeName, Registered>,
    /// The transport is gone: no more.
    over: bool,
}

struct Inner {
    name: NodeName,
    handshake: Handshake,
    authority: Authority,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    clock: Clock,
    events: mpsc::Sender<Event>,
    asked: mpsc::Sender<Asked>,
    handshakes: Arc<Semaphore>,
    links: Mutex<Links>,
    dialers: Mutex<BTreeMap<NodeName, Dialer>>,
    next_link: AtomicU64,
}

/// The streams of one node. They end when it is dropped.
pub struct Transport(Arc<Inner>);

impl Drop for Transport {
    fn drop(&mut self) {
        self.dial(Vec::new());
        let mut links = lock(&self.0.links);
        links.over = true;
        for registered in links.up.values() {
            registered.handle.close();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing behind these is left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport {
    /// A node's streams. Nothing happens before [`Transport::listen`] or [`Transport::dial`]. What the receiver of `events` does not
    /// take waits in the peers' sockets; one that takes nothing for three seconds loses its links.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn new(
        credentials: &Credentials,
        authority: Authority,
        handshake: Handshake,
        clock: Clock,
        events: mpsc::Sender<Event>,
        asked: mpsc::Sender<Asked>,
    ) -> Result<Self, AuthorityError> {
        Ok(Transport(Arc::new(Inner {
            name: credentials.name().clone(),
            handshake,
            authority,
            server: credentials.server_config()?,
            client: credentials.client_config()?,
            clock,
            events,
            asked,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            links: Mutex::default(),
            dialers: Mutex::default(),
            next_link: AtomicU64::new(1),
        })))
    }

    /// Takes streams until the future is dropped.
    pub async fn listen(&self, listener: TcpListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot take a stream from another node");
                    sleep(ACCEPT_AFTER).await;
                    continue;
                }
            };
            // Those that come when too many are strangers are dropped, so that members find a place soon.
            let Ok(place) = Arc::clone(&self.0.handshakes).try_acquire_owned() else {
                continue;
            };
            let inner = Arc::clone(&self.0);
            tokio::spawn(async move {
                if let Err(ended) = inner.accepted(stream, place).await {
                    tracing::debug!(%ended, "a stream from another node is over");
                }
            });
        }
    }

    /// Says whom to dial from now on. Links that are up stay.
    pub fn dial(&self, peers: Vec<Peer>) {
        let mut dialers = lock(&self.0.dialers);
        dialers.retain(|name, dialer| {
            let mut wanted = peers.iter();
            wanted.any(|peer| peer.name == *name && peer.address == dialer.address)
        });
        for peer in peers {
            if peer.name == self.0.name || dialers.contains_key(&peer.name) {
                continue;
            }
            let (name, address) = (peer.name.clone(), peer.address.clone());
            // Weak, so that it does not keep alive what it belongs to.
            let inner = Arc::downgrade(&self.0);
            let (_stop, mut stopped) = watch::channel(());
            tokio::spawn(async move {
                let mut wait = DIAL_AFTER.0;
                while let Some(inner) = inner.upgrade() {
                    wait = inner.dial(&peer, wait).await;
                    drop(inner);
                    tokio::select! {
                        _ = stopped.changed() => return,
                        () = sleep(wait) => {}
                    }
                }
            });
            dialers.insert(name, Dialer { address, _stop });
        }
    }

    /// The links that are up.
    pub fn links(&self) -> Vec<Linked> {
        let some = |micros: u64| (micros != 0).then_some(micros);
        let links = lock(&self.0.links);
        let linked = links.up.iter().map(|(name, registered)| Linked {
            name: name.clone(),
            incarnation: registered.agreed.incarnation,
            wire: registered.agreed.wire,
            features: registered.agreed.features,
            round_trip_micros: some(registered.counted.round_trip_micros.load(Ordering::Relaxed)),
            received: registered.counted.received.load(Ordering::Relaxed),
            sent: registered.counted.sent.load(Ordering::Relaxed),
        });
        linked.collect()
    }
}

impl Inner {
    /// One try, and a link if it succeeds: how long to wait before the next.
    async fn dial(&self, peer: &Peer, wait: Duration) -> Duration {
        if lock(&self.links).up.contains_key(&peer.name) {
            return DIAL_AFTER.0;
        }
        let began = (self.clock)().mono_micros;
        if let Err(ended) = self.dialed(peer).await {
            tracing::debug!(peer = %peer.name, address = peer.address, %ended, "no link");
        }
        let lasted = (self.clock)().mono_micros.saturating_sub(began);
        if Duration::from_micros(lasted) >= GOOD {
            DIAL_AFTER.0
        } else {
            (wait * 2).min(DIAL_AFTER.1)
        }
    }

    async fn dialed(&self, peer: &Peer) -> Result<(), Ended> {
        let connected = timeout(CONNECT_TIME_MAX, async {
            let tcp = TcpStream::connect(&peer.address).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from(peer.name.to_string()).map_err(io::Error::other)?;
            TlsConnector::from(Arc::clone(&self.client))
                .connect(name, tcp)
                .await
        });
        let stream = connected.await.map_err(late)??;
        self.run(TlsStream::from(stream), &peer.name, true).await
    }

    async fn accepted(
        &self,
        tcp: TcpStream,
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<(), Ended> {
        tcp.set_nodelay(true)?;
        let accepting = TlsAcceptor::from(Arc::clone(&self.server)).accept(tcp);
        let mut stream = timeout(CONNECT_TIME_MAX, accepting).await.map_err(late)??;
        let connection = stream.get_ref().1;
        match connection.alpn_protocol() {
            Some(ALPN_JOIN) => {
                join::answer(&mut stream, &self.authority, |question| self.ask(question)).await?;
                Ok(())
            }
            Some(ALPN_NODE) => {
                let shown = connection.peer_certificates().and_then(<[_]>::first);
                let stranger = || io::Error::new(io::ErrorKind::PermissionDenied, "no certificate");
                let name = name_in(shown.ok_or_else(stranger)?).map_err(io::Error::other)?;
                drop(place);
                self.run(TlsStream::from(stream), &name, false).await
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no protocol").into()),
        }
    }

    /// What the node says to one that wants to join.
    async fn ask(&self, question: Question) -> Result<Vec<u8>, Refused> {
        let refused = |why: &str| Refused(why.to_owned());
        let name = NodeName::new(&question.name).map_err(|error| Refused(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            id: question.id,
            secret: question.secret,
            name,
            detail: question.detail,
            answer,
        };
        // One at a time, and no row of them: each takes a sync.
        let busy = |_| refused("the node is busy; try again");
        self.asked.try_send(asked).map_err(busy)?;
        let gone = |_| refused("the node is stopping");
        answered.await.map_err(gone)?
    }

    async fn run(
        &self,
        stream: TlsStream<TcpStream>,
        certified: &NodeName,
        dialed: bool,
    ) -> Result<(), Ended> {
        let up = stream::greet(stream, self.handshake.clone(), certified, &self.clock).await?;
        let link = LinkId(self.next_link.fetch_add(1, Ordering::Relaxed));
        let counted = Arc::new(Counted::default());
        let handle = Handle::default();
        self.register(
            certified,
            Registered {
                link,
                handle: handle.clone(),
                dialed_by_lesser: dialed == (self.name < *certified),
                agreed: up.agreed.clone(),
                counted: Arc::clone(&counted),
            },
        )?;
        let _registered = Unregister {
            inner: self,
            name: certified,
            link,
        };
        let ears = Ears {
            link,
            events: &self.events,
            counted: &counted,
        };
        let said = Event::Up {
            link,
            agreed: up.agreed.clone(),
            handle: handle.clone(),
        };
        if self.events.send(said).await.is_err() {
            return Err(Ended::Deaf);
        }
        tracing::info!(peer = %certified, link = link.0, dialed, "linked");
        let ended = up.run(&handle, &self.clock, &ears).await;
        handle.close();
        tracing::info!(peer = %certified, link = link.0, %ended, "link lost");
        // Nobody may be left to hear it.
        let _ = self.events.send(Event::Down { link }).await;
        Err(ended)
    }

    /// One link to each peer.
    fn register(&self, name: &NodeName, new: Registered) -> Result<(), Ended> {
        let mut links = lock(&self.links);
        if links.over {
            return Err(Ended::Closed);
        }
        if let Some(old) = links.up.get(name) {
            if old.dialed_by_lesser || !new.dialed_by_lesser {
                return Err(Ended::Double(name.clone()));
            }
            old.handle.close();
        }
        links.up.insert(name.clone(), new);
        Ok(())
    }
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// However a link ends, it is no longer there.
struct Unregister<'i> {
    inner: &'i Inner,
    name: &'i NodeName,
    link: LinkId,
}

impl Drop for Unregister<'_> {
    fn drop(&mut self) {
        let mut links = lock(&self.inner.links);
        if links
            .up
            .get(self.name)
            .is_some_and(|at| at.link == self.link)
        {
            links.up.remove(self.name);
        }
    }
}

struct Ears<'i> {
    link: LinkId,
    events: &'i mpsc::Sender<Event>,
    counted: &'i Counted,
}

impl Hears for Ears<'_> {
    async fn frame(&self, frame: Frame) -> bool {
        let link = self.link;
        self.events.send(Event::Frame { link, frame }).await.is_ok()
    }

    async fn room(&self) -> bool {
        let link = self.link;
        self.events.send(Event::Room { link }).await.is_ok()
    }

    fn round_trip(&self, micros: u64) {
        let counted = &self.counted.round_trip_micros;
        counted.store(micros.max(1), Ordering::Relaxed);
    }

    fn moved(&self, received: usize, sent: usize) {
        let add = |counter: &AtomicU64, bytes: usize| {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        add(&self.counted.received, received);
        add(&self.counted.sent, sent);
    }
}
