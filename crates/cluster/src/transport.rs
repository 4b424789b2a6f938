//! All streams of a node: the transport listens, dials the peers, and keeps one link to each.
//!
//! Two nodes dial each other, since one of them may be unreachable from outside. When both streams come up, the stream that the node with the lesser
//! name has dialed stays. The transport does not know the members: the receiver of [`Event::Up`] closes the link of a node that is none.
//!
//! size: the accept loop, the dial loops and the table of links share one state and are read together.
//!
//! Before [`Transport::begin`] a node answers questions ([`MemberRequest`]) and has no links, so that nodes that start at once can ask each other.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    Now,
    blobs::{FEATURE_CONFIRM, FEATURE_PUSH},
    link::{Agreed, Link, LinkError},
    wire::{FEATURE_HOLDERS, Frame, Handshake, WIRE_MAX, WIRE_MIN},
};

use crate::{
    Authority, AuthorityError, Credentials, FEATURE_LZ4, Handle, NodeName, Refused, Relayed,
    authority::{ALPN_ASK, ALPN_JOIN, ALPN_NODE, ALPN_RELAY, name_in},
    join::{self, Question},
    places::{Place, Places, network},
    socket,
    stream::{self, Ended, Hears},
};

/// Frames of one link that were not taken yet, beyond the one that is being passed on.
const FRAMES_MAX: usize = 4;

/// Links to nodes of one name: the present node of that name, and an earlier one that has not heard of its removal.
const LINKS_PER_NAME_MAX: usize = 2;

/// Time limit for connecting and TLS.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts to reach a peer: at first, and at most while nothing answers there. When a network partition heals, nodes link at the
/// next attempt.
const DIAL_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// The greatest time for a peer that answers and does not stay linked. Most likely it refuses this node, which costs both nodes work.
const DIAL_REFUSED_AFTER_MAX: Duration = Duration::from_secs(15);
/// After a link that lasted so long, the next attempt comes soon.
const GOOD: Duration = Duration::from_secs(10);
/// A missing link is reported when it lasts so long: a shorter time is a start, or a network that stumbled.
const OUTAGE: Duration = Duration::from_secs(60);
/// Pause after a failed accept: the system is out of descriptors or memory, which does not end at once.
const ACCEPT_AFTER: Duration = Duration::from_millis(100);

/// Reads both clocks.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Names one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// A node to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, which its certificate must show.
    pub name: NodeName,
    /// Host and port.
    pub address: String,
}

/// Events of the streams. A link that replaces another may be up before the other one is down.
#[derive(Debug)]
pub enum Event {
    /// A link is up.
    Up {
        /// The link.
        link: LinkId,
        /// The peer.
        agreed: Agreed,
        /// The sending end.
        handle: Handle,
        /// Frames from the peer, until the link ends. Each link has its own channel, so that one peer whose frames are not taken holds up no other.
        frames: mpsc::Receiver<Frame>,
    },
    /// There is room for frames that [`Handle::offer`] refused.
    Room {
        /// The link.
        link: LinkId,
    },
    /// A link has ended.
    Down {
        /// The link.
        link: LinkId,
    },
}

/// A node asks to be let in, or a member asks a question ([`crate::ask_member`]).
pub struct MemberRequest {
    /// Its proof of identity.
    pub shown: PeerIdentity,
    /// The name that it wants, or has.
    pub name: NodeName,
    /// The content of the question.
    pub detail: Vec<u8>,
    /// The answer, with what this node adds.
    pub answer: oneshot::Sender<Result<Vec<u8>, Refused>>,
    /// The place of a stream with a token: it may be ended for others until the token is judged.
    pub place: Option<Arc<Place>>,
}

/// The channels for questions, which may each need a sync. They are apart, so that invalid tokens hold up no member.
pub struct Lanes {
    /// Questions of members.
    pub members: mpsc::Sender<MemberRequest>,
    /// Questions of nodes that want to join.
    pub strangers: mpsc::Sender<MemberRequest>,
}

/// The identity of a node that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// A token.
    Token {
        /// Names the token.
        id: u64,
        /// Its secret.
        secret: [u8; 32],
    },
    /// A certificate of the cluster, which has the name in the question.
    Certificate,
}

/// One link, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The peer.
    pub name: NodeName,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The version of the wire format that is spoken.
    pub wire: u16,
    /// What both can do.
    pub features: u64,
    /// The last round trip; `None` before the first ping was answered.
    pub round_trip_micros: Option<u64>,
    /// How far its wall clock is ahead of ours at present; `None` before the first ping was answered.
    pub ahead_micros: Option<i64>,
    /// How many pings were answered.
    pub pongs: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
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
        features: FEATURE_LZ4 | FEATURE_PUSH | FEATURE_CONFIRM | FEATURE_HOLDERS,
    }
}

struct Registered {
    link: LinkId,
    handle: Handle,
    /// Whether the node with the lesser name has dialed.
    dialed_by_lesser: bool,
    agreed: Agreed,
    /// The network of its other end.
    at: Option<IpAddr>,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    /// 0: not known.
    round_trip_micros: AtomicU64,
    /// [`Link::ahead_of_mono_micros`]; 0: not known.
    ahead_of_mono_micros: AtomicI64,
    pongs: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// A missing link to a peer.
struct Outage {
    /// By the monotonic clock.
    since_micros: u64,
    /// Whether it was reported: then its end is reported, too.
    told: bool,
}

struct Dialer {
    address: String,
    /// Dropped to end the task. An aborted task could not report that its link is down.
    _stop: watch::Sender<()>,
}

#[derive(Default)]
struct Links {
    up: BTreeMap<(NodeName, Incarnation), Registered>,
    /// The transport is gone: no more links.
    over: bool,
}

impl Links {
    /// The links to nodes of this name.
    fn of(&self, name: &NodeName) -> impl Iterator<Item = &Registered> {
        let end = |id| (name.clone(), Incarnation::from_hash(id));
        self.up.range(end(0)..=end(u64::MAX)).map(|(_, link)| link)
    }
}

struct Inner {
    name: NodeName,
    handshake: OnceLock<Handshake>,
    authority: Authority,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    clock: Clock,
    events: mpsc::Sender<Event>,
    asked: Lanes,
    /// The channel for relayed sessions; none are accepted before it is set.
    relayed: OnceLock<mpsc::Sender<Relayed>>,
    handshakes: Places,
    links: Mutex<Links>,
    dialers: Mutex<BTreeMap<NodeName, Dialer>>,
    /// Locked before the links.
    outages: Mutex<BTreeMap<NodeName, Outage>>,
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
    // A panic leaves no change half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport {
    /// A transport, which does nothing before [`Transport::listen`] or [`Transport::dial`]. Frames that nobody takes wait in the peers' sockets; pings go on.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn new(
        credentials: &Credentials,
        authority: Authority,
        clock: Clock,
        events: mpsc::Sender<Event>,
        asked: Lanes,
    ) -> Result<Self, AuthorityError> {
        Ok(Transport(Arc::new(Inner {
            name: credentials.name().clone(),
            handshake: OnceLock::new(),
            authority,
            server: credentials.server_config()?,
            client: credentials.client_config()?,
            clock,
            events,
            asked,
            relayed: OnceLock::new(),
            handshakes: Places::default(),
            links: Mutex::default(),
            dialers: Mutex::default(),
            outages: Mutex::default(),
            next_link: AtomicU64::new(1),
        })))
    }

    /// Sets this node's handshake. From now on links are made.
    ///
    /// # Panics
    /// When it was said before.
    pub fn begin(&self, handshake: Handshake) {
        assert!(self.0.handshake.set(handshake).is_ok(), "begun twice");
    }

    /// From now on relayed sessions are accepted. Those that come when the last ones are not taken are refused.
    ///
    /// # Panics
    /// When it was said before.
    pub fn take_relays(&self, relayed: mpsc::Sender<Relayed>) {
        assert!(self.0.relayed.set(relayed).is_ok(), "said twice");
    }

    /// Accepts streams until the future is dropped.
    pub async fn listen(&self, listener: TcpListener) {
        loop {
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a stream from another node");
                    sleep(ACCEPT_AFTER).await;
                    continue;
                }
            };
            let linked = self.0.linked_from(from.ip());
            let Some((place, ending)) = self.0.handshakes.take(from.ip(), linked) else {
                tracing::debug!(address = %from.ip(), "a stream is dropped: too many have not shown yet who they are");
                continue;
            };
            let inner = Arc::clone(&self.0);
            tokio::spawn(async move {
                tokio::select! {
                    done = inner.accepted(stream, place) => {
                        if let Err(ended) = done {
                            tracing::debug!(%ended, "a stream from another node is over");
                        }
                    }
                    () = ending.comes() => {
                        tracing::debug!(address = %from.ip(), "a stream has not shown who it is, and another one comes");
                    }
                }
            });
        }
    }

    /// Sets the peers to dial. Existing links stay.
    pub fn dial(&self, peers: Vec<Peer>) {
        let mut dialers = lock(&self.0.dialers);
        dialers.retain(|name, dialer| {
            let mut wanted = peers.iter();
            wanted.any(|peer| peer.name == *name && peer.address == dialer.address)
        });
        // Before the new peers are set: earlier attempts went to another address, or to another node.
        lock(&self.0.outages).retain(|name, _| dialers.contains_key(name));
        for peer in peers {
            if peer.name == self.0.name || dialers.contains_key(&peer.name) {
                continue;
            }
            let (name, address) = (peer.name.clone(), peer.address.clone());
            // Weak, so that the task does not keep its own transport alive.
            let inner = Arc::downgrade(&self.0);
            let (_stop, mut stopped) = watch::channel(());
            tokio::spawn(async move {
                let mut wait = DIAL_AFTER.0;
                let mut told = false;
                while let Some(inner) = inner.upgrade() {
                    wait = inner.dial(&peer, wait, &mut told).await;
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
        let now = (self.0.clock)();
        let ahead = |counted: &Counted| {
            let of_mono = counted.ahead_of_mono_micros.load(Ordering::Relaxed);
            let here = i128::from(now.wall_micros) - i128::from(now.mono_micros);
            let ahead = i64::try_from(i128::from(of_mono) - here).unwrap_or(i64::MAX);
            (of_mono != 0).then_some(ahead)
        };
        let links = lock(&self.0.links);
        let linked = links.up.iter().map(|((name, _), registered)| Linked {
            name: name.clone(),
            incarnation: registered.agreed.incarnation,
            wire: registered.agreed.wire,
            features: registered.agreed.features,
            round_trip_micros: some(registered.counted.round_trip_micros.load(Ordering::Relaxed)),
            ahead_micros: ahead(&registered.counted),
            pongs: registered.counted.pongs.load(Ordering::Relaxed),
            received: registered.counted.received.load(Ordering::Relaxed),
            sent: registered.counted.sent.load(Ordering::Relaxed),
        });
        linked.collect()
    }
}

impl Inner {
    /// One attempt, and a link if it succeeds. Returns how long to wait before the next one. `told`: a reason that waiting does not remove was
    /// reported; this happens once.
    async fn dial(&self, peer: &Peer, wait: Duration, told: &mut bool) -> Duration {
        if lock(&self.links).of(&peer.name).next().is_some() {
            return DIAL_AFTER.0;
        }
        let mut no_link = |ended: Ended| {
            let (name, address) = (&peer.name, &peer.address);
            let why = match &ended {
                ended if is_distrust(ended) => {
                    "no link: one of the two does not trust the other's certificate; is what answers there of this cluster?"
                }
                Ended::Link(error) if *error != LinkError::Silent => {
                    "no link, and trying again will not help"
                }
                _ => "",
            };
            if !why.is_empty() && !std::mem::replace(told, true) {
                tracing::warn!(peer = %name, address, %ended, "{why}");
            } else {
                tracing::debug!(peer = %name, address, %ended, "no link");
            }
        };
        let stream = match self.reach(peer).await {
            Ok(stream) => stream,
            Err(ended) => {
                self.is_away(peer, &ended);
                no_link(ended);
                return (wait * 2).min(DIAL_AFTER.1);
            }
        };
        let began = (self.clock)().mono_micros;
        if let Err(ended) = self.run(stream, &peer.name, true).await {
            self.is_away(peer, &ended);
            no_link(ended);
        }
        let lasted = (self.clock)().mono_micros.saturating_sub(began);
        if Duration::from_micros(lasted) >= GOOD {
            *told = false;
            DIAL_AFTER.0
        } else {
            (wait * 2).min(DIAL_REFUSED_AFTER_MAX)
        }
    }

    /// An attempt has failed. If there has been no link for long, that is reported once; whether it was now.
    fn is_away(&self, peer: &Peer, ended: &Ended) -> bool {
        let now = (self.clock)().mono_micros;
        let mut outages = lock(&self.outages);
        // The peer may have dialed this node in the meantime.
        if lock(&self.links).of(&peer.name).next().is_some() {
            return false;
        }
        let outage = outages.entry(peer.name.clone()).or_insert(Outage {
            since_micros: now,
            told: false,
        });
        let seconds = now.saturating_sub(outage.since_micros) / 1_000_000;
        let is_said = seconds >= OUTAGE.as_secs() && !std::mem::replace(&mut outage.told, true);
        if is_said {
            let (name, address) = (&peer.name, &peer.address);
            tracing::warn!(peer = %name, address, seconds, %ended, "no link yet; trying again");
        }
        is_said
    }

    async fn reach(&self, peer: &Peer) -> Result<TlsStream<TcpStream>, Ended> {
        let connected = timeout(CONNECT_TIME_MAX, async {
            let tcp = TcpStream::connect(&peer.address).await?;
            socket::prepare(&tcp, socket::PROBED_AFTER)?;
            let name = ServerName::try_from(peer.name.to_string()).map_err(io::Error::other)?;
            TlsConnector::from(Arc::clone(&self.client))
                .connect(name, tcp)
                .await
        });
        Ok(TlsStream::from(connected.await.map_err(late)??))
    }

    async fn accepted(&self, tcp: TcpStream, place: Place) -> Result<(), Ended> {
        socket::prepare(&tcp, socket::PROBED_AFTER)?;
        let accepting = TlsAcceptor::from(Arc::clone(&self.server)).accept(tcp);
        let mut stream = timeout(CONNECT_TIME_MAX, accepting).await.map_err(late)??;
        let connection = stream.get_ref().1;
        match connection.alpn_protocol() {
            Some(ALPN_JOIN) => {
                let place = Arc::new(place);
                let ask = |question| self.ask_as_stranger(question, Arc::clone(&place));
                join::answer(&mut stream, &self.authority, ask).await?;
                Ok(())
            }
            Some(ALPN_ASK) => {
                let name = certified(connection)?;
                place.is_known();
                let ask = |question: Question| {
                    self.ask(PeerIdentity::Certificate, name, question.detail, None)
                };
                join::tell(&mut stream, ask).await?;
                Ok(())
            }
            Some(ALPN_RELAY) => {
                let from = certified(connection)?;
                place.is_known();
                let relayed = Relayed::read(from, TlsStream::from(stream)).await?;
                drop(place);
                let refused = match self.relayed.get() {
                    None => relayed,
                    Some(to) => match to.try_send(relayed) {
                        Ok(()) => return Ok(()),
                        Err(error) => error.into_inner(),
                    },
                };
                refused.refuse("the node is busy, or starting").await;
                Ok(())
            }
            Some(ALPN_NODE) => {
                let name = certified(connection)?;
                drop(place);
                self.run(TlsStream::from(stream), &name, false).await
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no protocol").into()),
        }
    }

    async fn ask_as_stranger(
        &self,
        question: Question,
        place: Arc<Place>,
    ) -> Result<Vec<u8>, Refused> {
        let name = NodeName::new(&question.name);
        let name = name.map_err(|error| Refused(error.to_string()))?;
        let (id, secret) = (question.id, question.secret);
        let shown = PeerIdentity::Token { id, secret };
        self.ask(shown, name, question.detail, Some(place)).await
    }

    /// Passes on the question of a node that wants to join, or of a member, and returns the answer.
    async fn ask(
        &self,
        shown: PeerIdentity,
        name: NodeName,
        detail: Vec<u8>,
        place: Option<Arc<Place>>,
    ) -> Result<Vec<u8>, Refused> {
        let refused = |why: &str| Refused(why.to_owned());
        let lane = match shown {
            PeerIdentity::Certificate => &self.asked.members,
            PeerIdentity::Token { .. } => &self.asked.strangers,
        };
        let (answer, answered) = oneshot::channel();
        let asked = MemberRequest {
            shown,
            name,
            detail,
            answer,
            place,
        };
        // One question at a time, without a queue: each takes a sync.
        let busy = |_| refused("the node is busy; try again");
        lane.try_send(asked).map_err(busy)?;
        let gone = |_| refused("the node is stopping");
        answered.await.map_err(gone)?
    }

    async fn run(
        &self,
        stream: TlsStream<TcpStream>,
        certified: &NodeName,
        dialed: bool,
    ) -> Result<(), Ended> {
        let ours = self.handshake.get().ok_or(Ended::NotBegun)?.clone();
        let at = stream.get_ref().0.peer_addr().ok();
        let up = stream::greet(stream, ours, certified, &self.clock).await?;
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
                at: at.map(|at| network(at.ip())),
                counted: Arc::clone(&counted),
            },
        )?;
        let _registered = Unregister {
            inner: self,
            id: (certified.clone(), up.agreed.incarnation),
            link,
        };
        let (to_frames, frames) = mpsc::channel(FRAMES_MAX);
        let ears = Ears {
            link,
            frames: to_frames,
            events: &self.events,
            counted: &counted,
        };
        let said = Event::Up {
            link,
            agreed: up.agreed.clone(),
            handle: handle.clone(),
            frames,
        };
        if self.events.send(said).await.is_err() {
            return Err(Ended::Deaf);
        }
        tracing::info!(peer = %certified, link = link.0, dialed, "linked");
        let outage = lock(&self.outages).remove(certified);
        if let Some(outage) = outage.filter(|outage| outage.told) {
            let now = (self.clock)().mono_micros;
            let seconds = now.saturating_sub(outage.since_micros) / 1_000_000;
            tracing::warn!(peer = %certified, seconds, "linked again");
        }
        let ended = up.run(&handle, &self.clock, &ears).await;
        handle.close();
        drop(ears);
        tracing::info!(peer = %certified, link = link.0, %ended, "link lost");
        // The receiver may be gone.
        let _ = self.events.send(Event::Down { link }).await;
        Err(ended)
    }

    /// How many linked peers come from this network.
    fn linked_from(&self, address: IpAddr) -> usize {
        let from = Some(network(address));
        let links = lock(&self.links);
        links.up.values().filter(|link| link.at == from).count()
    }

    /// Registers one link to each incarnation of a peer. A removed node may run on beside the node that has its name now, and has to hear of its
    /// removal. A third one is refused.
    fn register(&self, name: &NodeName, new: Registered) -> Result<(), Ended> {
        let mut links = lock(&self.links);
        if links.over {
            return Err(Ended::Closed);
        }
        let id = (name.clone(), new.agreed.incarnation);
        if let Some(old) = links.up.get(&id) {
            if old.dialed_by_lesser || !new.dialed_by_lesser {
                return Err(Ended::Double(name.clone()));
            }
            old.handle.close();
        } else if links.of(name).count() >= LINKS_PER_NAME_MAX {
            return Err(Ended::Double(name.clone()));
        }
        links.up.insert(id, new);
        Ok(())
    }
}

/// Whether a certificate was refused, here or at the peer: waiting does not help.
fn is_distrust(ended: &Ended) -> bool {
    use rustls::AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateUnknown, DecryptError,
        UnknownCA, UnsupportedCertificate,
    };
    let Ended::Io(error) = ended else {
        return false;
    };
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref());
    match of_tls {
        Some(rustls::Error::InvalidCertificate(_)) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            AccessDenied
                | BadCertificate
                | CertificateExpired
                | CertificateUnknown
                | DecryptError
                | UnknownCA
                | UnsupportedCertificate
        ),
        _ => false,
    }
}

/// The name in the certificate that a member has shown.
fn certified(connection: &rustls::ServerConnection) -> io::Result<NodeName> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let stranger = || io::Error::new(io::ErrorKind::PermissionDenied, "no certificate");
    name_in(shown.ok_or_else(stranger)?).map_err(io::Error::other)
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Unregisters the link, however it ends.
struct Unregister<'i> {
    inner: &'i Inner,
    id: (NodeName, Incarnation),
    link: LinkId,
}

impl Drop for Unregister<'_> {
    fn drop(&mut self) {
        let mut links = lock(&self.inner.links);
        if links
            .up
            .get(&self.id)
            .is_some_and(|at| at.link == self.link)
        {
            links.up.remove(&self.id);
        }
    }
}

struct Ears<'i> {
    link: LinkId,
    frames: mpsc::Sender<Frame>,
    events: &'i mpsc::Sender<Event>,
    counted: &'i Counted,
}

impl Hears for Ears<'_> {
    async fn frame(&self, frame: Frame) -> bool {
        self.frames.send(frame).await.is_ok()
    }

    async fn room(&self) -> bool {
        let link = self.link;
        self.events.send(Event::Room { link }).await.is_ok()
    }

    fn round_trip(&self, link: &Link) {
        if let Some(micros) = link.round_trip_micros() {
            let counted = &self.counted.round_trip_micros;
            counted.store(micros.max(1), Ordering::Relaxed);
        }
        if let Some(micros) = link.ahead_of_mono_micros() {
            let counted = &self.counted.ahead_of_mono_micros;
            counted.store(micros, Ordering::Relaxed);
        }
        self.counted.pongs.store(link.pongs(), Ordering::Relaxed);
    }

    fn moved(&self, received: usize, sent: usize) {
        let add = |counter: &AtomicU64, bytes: usize| {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        add(&self.counted.received, received);
        add(&self.counted.sent, sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes() -> Lanes {
        Lanes {
            members: mpsc::channel(1).0,
            strangers: mpsc::channel(1).0,
        }
    }

    #[tokio::test]
    async fn an_outage_is_said_once_when_it_has_lasted() {
        let authority = Authority::found([7; 16]).unwrap();
        let credentials = authority.certify(&NodeName::new("a").unwrap()).unwrap();
        let mono_micros = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&mono_micros);
        let clock: Clock = Arc::new(move || Now {
            wall_micros: 0,
            mono_micros: read.load(Ordering::Relaxed),
        });
        let events = mpsc::channel(1).0;
        let transport = Transport::new(&credentials, authority, clock, events, lanes()).unwrap();
        // No node listens there any more.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer {
            name: NodeName::new("b").unwrap(),
            address: listener.local_addr().unwrap().to_string(),
        };
        drop(listener);
        for (at, told) in [(5, false), (64, false), (65, true), (99, false)] {
            mono_micros.store(at * 1_000_000, Ordering::Relaxed);
            let said = transport.0.is_away(&peer, &Ended::Over);
            assert_eq!(said, told, "{at}");
        }
        // A failed attempt.
        lock(&transport.0.outages).clear();
        let _ = transport.0.dial(&peer, DIAL_AFTER.0, &mut false).await;
        assert_eq!(lock(&transport.0.outages).len(), 1);
        // A node that is no peer any more is not missed.
        transport.dial(Vec::new());
        assert!(lock(&transport.0.outages).is_empty());
    }

    /// After a network partition of 20 s the next attempt came 10 s after its end.
    #[tokio::test]
    async fn a_peer_that_is_not_reached_is_tried_more_often_than_one_that_refuses() {
        let authority = Authority::found([7; 16]).unwrap();
        let start = |name: &str| {
            let credentials = authority.certify(&NodeName::new(name).unwrap()).unwrap();
            let key = authority.key_pem();
            let of = Authority::from_pem(authority.cluster(), authority.certificate_pem(), &key);
            let clock: Clock = Arc::new(|| Now {
                wall_micros: 0,
                mono_micros: 0,
            });
            let events = mpsc::channel(1).0;
            Transport::new(&credentials, of.unwrap(), clock, events, lanes()).unwrap()
        };
        // Neither has begun: a link ends as soon as it is up.
        let (dials, answers) = (start("a"), start("b"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer {
            name: answers.0.name.clone(),
            address: listener.local_addr().unwrap().to_string(),
        };
        let listening = tokio::spawn(async move { answers.listen(listener).await });
        let mut wait = DIAL_AFTER.0;
        for _ in 0..8 {
            wait = dials.0.dial(&peer, wait, &mut false).await;
        }
        assert_eq!(wait, DIAL_REFUSED_AFTER_MAX);
        listening.abort();
        let _ = listening.await;
        for _ in 0..8 {
            wait = dials.0.dial(&peer, wait, &mut false).await;
            assert!(wait <= Duration::from_secs(2), "{wait:?}");
        }
        assert_eq!(
            dials.0.dial(&peer, DIAL_AFTER.0, &mut false).await,
            2 * DIAL_AFTER.0
        );
    }
}
