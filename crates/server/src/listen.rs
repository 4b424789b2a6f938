//! Listeners: let clients in, within bounds.
//!
//! Invariants: exactly as many places are taken as connections are counted; the loop outlives every error of accept; connections never get the last
//! descriptors of the process.
//!
//! size: places, pools and their loop are one matter, and half of it is their tests.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
};
use whimbrel_cluster::socket;
use whimbrel_frontend::session::{Peer, Resume, Session};
use whimbrel_mailbox::AccountId;

use crate::{
    config::{Config, LimitsSection},
    crowd::{Crowd, Ending},
    driver::{Connection, Context},
    metrics::{self, Fault, Stage},
    registry::Registry,
    store_calls::Store,
    transport::Transport,
};

/// Connections that the kernel holds until we take them.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept: a full table of descriptors stays full for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors that connections leave to the store and all else: the store needs new files, and a write that fails stops the node.
const DESCRIPTORS_KEPT: usize = 256;

/// How many of these descriptors connections leave: [`DESCRIPTORS_KEPT`], or half of them where there are few.
fn kept(descriptors: usize) -> usize {
    DESCRIPTORS_KEPT.min(descriptors / 2)
}

/// How many closable files the store may keep open: half of what connections leave. The other half is for what it writes and merges, for its
/// journals, and for all else.
#[must_use]
pub fn files_open_max(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.and_then(|all| usize::try_from(all).ok());
    kept(descriptors.unwrap_or(usize::MAX)) / 2
}

/// Connections for which there are descriptors: the configured number or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections of clients: `limits.connections_max`.
    pub connections: usize,
    /// Relays to other nodes: `cluster.relays_max`.
    pub relays: usize,
    /// Relays from other nodes: `cluster.relayed_max`.
    pub relayed: usize,
}

impl Room {
    /// At most so many connections that [`kept`] descriptors are left. If that is less than configured, each kind gets the same part of it; a node
    /// that is alone has one kind.
    #[must_use]
    pub fn within(config: &Config, descriptors: Option<u64>) -> Self {
        let (limits, cluster) = (&config.limits, &config.cluster);
        let mut room = Room {
            connections: limits.connections_max,
            relays: cluster.relays_max,
            relayed: cluster.relayed_max,
        };
        let is_alone = cluster.name.is_empty();
        let wanted = match is_alone {
            true => room.connections,
            false => room.connections + room.relays + room.relayed,
        };
        let descriptors = descriptors.and_then(|all| usize::try_from(all).ok());
        let left = descriptors.map_or(usize::MAX, |all| all - kept(all));
        if left >= wanted {
            return room;
        }
        // The product may exceed a number of descriptors.
        let part = |most: usize| {
            let part = most as u128 * left as u128 / wanted as u128;
            usize::try_from(part).unwrap_or(most).max(1)
        };
        let configured = room;
        room.connections = part(room.connections);
        if !is_alone {
            room.relays = part(room.relays);
            room.relayed = part(room.relayed);
        }
        let default = Config::default();
        let is_default = configured.connections == default.limits.connections_max
            && configured.relays == default.cluster.relays_max
            && configured.relayed == default.cluster.relayed_max;
        room.log(is_alone, is_default, descriptors);
        room
    }

    /// Logs that there is room for fewer connections than configured. The defaults are more than many systems allow, and nobody chose them: they
    /// bring no warning.
    fn log(self, is_alone: bool, is_default: bool, descriptors: Option<usize>) {
        let keys = match is_alone {
            true => "limits.connections_max",
            false => "limits.connections_max, cluster.relays_max and cluster.relayed_max together",
        };
        let text = format!(
            "the limit of open files allows fewer connections than {keys}: raise it (LimitNOFILE= of systemd, ulimit -Hn)"
        );
        let connections = self.connections;
        let relays = (!is_alone).then_some(self.relays);
        let relayed = (!is_alone).then_some(self.relayed);
        if is_default {
            tracing::info!(connections, relays, relayed, descriptors, "{text}");
        } else {
            tracing::warn!(connections, relays, relayed, descriptors, "{text}");
        }
    }
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// IMAP4rev1 and IMAP4rev2.
    Imap,
    /// POP3.
    Pop3,
    /// SMTP from anywhere.
    Smtp,
    /// Submission: SMTP from users.
    Submission,
    /// LMTP from a server in front.
    Lmtp,
}

impl Protocol {
    /// The name for log and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Imap => "imap",
            Protocol::Pop3 => "pop3",
            Protocol::Smtp => "smtp",
            Protocol::Submission => "submission",
            Protocol::Lmtp => "lmtp",
        }
    }

    /// Whether a client has to log in.
    fn logs_in(self) -> bool {
        matches!(self, Protocol::Imap | Protocol::Pop3 | Protocol::Submission)
    }

    /// Whether anybody may connect: until the login, and with SMTP for good, a connection has a place of strangers.
    fn is_for_strangers(self) -> bool {
        self != Protocol::Lmtp
    }

    /// The answer to a client that is not let in at present.
    pub(crate) fn refusal(self, why: &str) -> String {
        let code = match self {
            Protocol::Imap => "* BYE [UNAVAILABLE]",
            Protocol::Pop3 => "-ERR [SYS/TEMP]",
            Protocol::Smtp | Protocol::Submission | Protocol::Lmtp => "421 4.3.2",
        };
        format!("{code} {why}, try again later\r\n")
    }
}

/// Makes the session of a new connection.
pub type MakeSession = Arc<dyn Fn(Peer) -> Box<dyn Session + Send> + Send + Sync>;

/// Makes the session that goes on where another has stopped; `None`: the handover makes no sense.
pub(crate) type ResumeSession =
    Arc<dyn Fn(Peer, Option<AccountId>, &Resume) -> Option<Box<dyn Session + Send>> + Send + Sync>;

/// The part of all strangers that one address may have, one in so many, if the configuration does not set it: so it takes many addresses to keep
/// strangers out.
const STRANGERS_SHARE: usize = 8;
/// The part of all strangers that one IPv6 network of 48 bits may have, one in so many, and no fewer than two addresses may. One site gets such a
/// network, with 65,536 of what counts as one address ([`client`]).
const SITE_SHARE: usize = 4;
/// At least as many as one mail program opens at once.
const STRANGERS_OF_ADDRESS_MIN: usize = 8;

/// When one in so many places of strangers is taken, connections that were silent for [`SHORT_WAIT`] end.
const CROWDED_SHARE: usize = 2;
/// A client logs in within seconds; one that does not is not missed when places run out.
const SHORT_WAIT: Duration = Duration::from_secs(10);
/// The part of all connections that SMTP has, one in so many, if the configuration does not set it.
const MAIL_SHARE: usize = 4;
/// The part of all connections that LMTP has, one in so many: it is for a server in front, which does not log in.
const FRONT_SHARE: usize = 8;
/// Connections that have to go and have not gone yet: they use descriptors of those that are [`kept`]. Beyond this number a new connection waits for
/// a moment.
const DISPLACED_MAX: usize = DESCRIPTORS_KEPT / 4;

/// The pools of places; none can take places of another.
#[derive(Clone, Debug)]
pub struct Pools {
    /// IMAP, POP3 and submission.
    pub users: Arc<Places>,
    /// SMTP.
    pub mail: Arc<Places>,
    /// LMTP.
    pub front: Arc<Places>,
}

impl Pools {
    /// The configured pools, for so many connections.
    #[must_use]
    pub fn new(limits: &LimitsSection, connections_max: usize) -> Self {
        let mail = match limits.smtp_connections_max {
            0 => connections_max / MAIL_SHARE,
            most => most,
        };
        // Where descriptors are few, the others have half at least.
        let mail = mail.clamp(1, (connections_max / 2).max(1));
        let front = (connections_max / FRONT_SHARE).max(1);
        let users = connections_max.saturating_sub(mail + front).max(1);
        Pools {
            users: Places::new(limits, users, limits.unauthenticated_max.min(users)),
            mail: Places::new(limits, mail, mail),
            front: Places::new(limits, front, front),
        }
    }

    /// The pool of a protocol.
    #[must_use]
    pub fn of(&self, protocol: Protocol) -> &Arc<Places> {
        match protocol {
            Protocol::Imap | Protocol::Pop3 | Protocol::Submission => &self.users,
            Protocol::Smtp => &self.mail,
            Protocol::Lmtp => &self.front,
        }
    }
}

/// Places for connections: in total, for each client address, and for strangers, of which one address has not all either. When all are taken, the
/// oldest stranger of the network that has most ends ([`Crowd`]), so that nobody keeps the others out.
#[derive(Debug)]
pub struct Places {
    connections_max: usize,
    per_address_max: usize,
    unauthenticated_max: usize,
    unauthenticated_per_address_max: usize,
    unauthenticated_per_site_max: usize,
    taken: Mutex<Taken>,
    /// Notified when fewer than [`DISPLACED_MAX`] connections have to go.
    settled: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    /// By client; never iterated.
    addresses: HashMap<IpAddr, OfAddress>,
    /// Strangers, by [`site`].
    strangers: Crowd,
    /// Strangers that have to go and have not gone yet.
    displaced: usize,
}

#[derive(Debug, Default)]
struct OfAddress {
    connections: usize,
    unauthenticated: usize,
}

impl Taken {
    /// `address` has a connection.
    fn stranger_enters(&mut self, address: IpAddr, ending: Ending) -> u64 {
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.unauthenticated += 1;
        }
        self.strangers.enter(Instant::now(), site(address), ending)
    }

    fn stranger_leaves(&mut self, address: IpAddr, number: u64) {
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.unauthenticated -= 1;
        }
        if !self.strangers.leave(number) {
            self.displaced -= 1;
        }
    }

    fn displace(&mut self) -> bool {
        let displaced = self.strangers.displace();
        self.displaced += usize::from(displaced);
        displaced
    }
}

impl Places {
    /// So many places, and so many of them for strangers.
    fn new(limits: &LimitsSection, connections_max: usize, strangers_max: usize) -> Arc<Self> {
        let of_address = match limits.unauthenticated_per_address_max {
            0 => (strangers_max / STRANGERS_SHARE).max(STRANGERS_OF_ADDRESS_MIN),
            most => most,
        };
        Arc::new(Places {
            connections_max,
            per_address_max: limits.connections_per_address_max,
            unauthenticated_max: strangers_max,
            unauthenticated_per_address_max: of_address,
            unauthenticated_per_site_max: (strangers_max / SITE_SHARE).max(2 * of_address),
            taken: Mutex::default(),
            settled: Notify::new(),
        })
    }

    /// Places for relayed sessions: the other node has let in its own clients.
    #[must_use]
    pub(crate) fn of_nodes(sessions_max: usize) -> Arc<Self> {
        Arc::new(Places {
            connections_max: sessions_max,
            per_address_max: sessions_max,
            unauthenticated_max: sessions_max,
            unauthenticated_per_address_max: sessions_max,
            unauthenticated_per_site_max: sessions_max,
            taken: Mutex::default(),
            settled: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing behind it is left half done by a panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection from `address`; the error names the kind of place that is missing. `stranger`: the client has not logged in.
    pub fn enter(self: &Arc<Self>, address: IpAddr, stranger: bool) -> Result<Place, &'static str> {
        let address = client(address);
        let mut taken = self.lock();
        let of_address = taken.addresses.get(&address);
        if of_address.is_some_and(|of| of.connections >= self.per_address_max) {
            return Err("address");
        }
        let of_strangers = of_address.map_or(0, |of| of.unauthenticated);
        if stranger && of_strangers >= self.unauthenticated_per_address_max {
            return Err("unauthenticated address");
        }
        let of_site = taken.strangers.of(site(address));
        if stranger && of_site >= self.unauthenticated_per_site_max {
            return Err("unauthenticated address");
        }
        let strangers = taken.strangers.len();
        if stranger && strangers > self.unauthenticated_max / CROWDED_SHARE {
            taken.displaced += taken.strangers.displace_silent(Instant::now(), SHORT_WAIT);
        }
        if stranger && taken.strangers.len() >= self.unauthenticated_max && !taken.displace() {
            return Err("unauthenticated");
        }
        if taken.connections >= self.connections_max + taken.displaced && !taken.displace() {
            return Err("total");
        }
        taken.connections += 1;
        taken.addresses.entry(address).or_default().connections += 1;
        let ending = Ending::default();
        let stranger = stranger.then(|| taken.stranger_enters(address, ending.clone()));
        Ok(Place {
            places: Arc::clone(self),
            address,
            stranger,
            ending,
        })
    }

    /// Waits until connections that had to go have gone.
    async fn settles(&self) {
        while self.lock().displaced >= DISPLACED_MAX {
            self.settled.notified().await;
        }
    }
}

/// A place taken, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    address: IpAddr,
    /// Its number among strangers.
    stranger: Option<u64>,
    ending: Ending,
}

impl Place {
    /// Completes when the connection has to go, because others need its place.
    pub(crate) fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// The client has logged in, and is no stranger any more.
    pub fn authenticated(&mut self) {
        if let Some(number) = self.stranger.take() {
            self.places.lock().stranger_leaves(self.address, number);
        }
    }

    /// The client is a stranger again. There may then be more strangers than are let in: existing ones end only for new ones.
    pub fn unauthenticated(&mut self) {
        if self.stranger.is_none() {
            let mut taken = self.places.lock();
            self.stranger = Some(taken.stranger_enters(self.address, self.ending.clone()));
        }
    }

    /// The stranger is not silent any more.
    pub fn has_spoken(&self) {
        if let Some(number) = self.stranger {
            self.places.lock().strangers.has_spoken(number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.authenticated();
        let mut taken = self.places.lock();
        taken.connections -= 1;
        if let Some(of_address) = taken.addresses.get_mut(&self.address) {
            of_address.connections -= 1;
            if of_address.connections == 0 {
                taken.addresses.remove(&self.address);
            }
        }
        drop(taken);
        self.places.settled.notify_waiters();
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits, which is what one customer gets.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        v4 => v4,
    }
}

/// The network of 48 bits of a client; IPv4 has none.
fn site(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            IpAddr::V6([a, b, c, 0, 0, 0, 0, 0].into())
        }
        v4 => v4,
    }
}

/// A client on whose stream nothing comes for so long is probed: a client that vanished holds a place. Clients in IDLE hear from the server before
/// that, so that a telephone is not woken twice.
const PROBED_AFTER: Duration = Duration::from_secs(5 * 60);

/// A spare descriptor, closed when there is no other.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether the table of descriptors, of the process or of the system, is full.
fn is_table_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

/// Logs and counts that a stranger has to go, since others need its place.
pub(crate) fn displaced(protocol: Protocol, address: IpAddr) {
    metrics::refused("displaced");
    tracing::debug!(protocol = protocol.name(), %address, "cut: others need its place");
}

/// Opens a listening socket.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// One listener and what it needs for each connection.
pub(crate) struct Listener<S: Store> {
    pub(crate) protocol: Protocol,
    /// TLS from the first byte.
    pub(crate) tls: bool,
    pub(crate) socket: Arc<TcpListener>,
    pub(crate) make: MakeSession,
    pub(crate) places: Arc<Places>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) context: Arc<Context<S>>,
}

impl<S: Store> Listener<S> {
    /// Accepts until its task is dropped; connections go on.
    pub(crate) async fn run(self) {
        let listener = Arc::new(self);
        let mut spare = spare();
        loop {
            listener.places.settles().await;
            match listener.socket.accept().await {
                Ok((stream, address)) => listener.admit(stream, address.ip()),
                Err(error) if is_table_full(&error) && spare.is_some() => {
                    metrics::fault(Fault::Accept);
                    listener.turn_away(&mut spare, &error).await;
                }
                Err(error) => {
                    // Too many descriptors, or a client that is gone already: neither ends the loop.
                    metrics::fault(Fault::Accept);
                    tracing::warn!(protocol = listener.protocol.name(), %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    spare = spare.or_else(self::spare);
                }
            }
        }
    }

    /// Uses the spare descriptor for one client, so that it hears why it is not served and does not wait.
    async fn turn_away(&self, spare: &mut Option<File>, error: &io::Error) {
        *spare = None;
        // Another task may take the descriptor first; then the client waits for its turn.
        let waiting = self.socket.accept();
        if let Ok(Ok((stream, address))) = tokio::time::timeout(ACCEPT_PAUSE, waiting).await {
            metrics::refused("total");
            tracing::warn!(protocol = self.protocol.name(), address = %address.ip(), %error, "refused: no descriptor");
            self.refuse(stream);
        }
        *spare = self::spare();
    }

    /// Sends as much as the socket takes at once: nothing waits for a client that is refused. Within TLS nothing can be sent.
    fn refuse(&self, stream: TcpStream) {
        if !self.tls
            && let Ok(mut stream) = stream.into_std()
        {
            let word = self.protocol.refusal("Too many connections");
            let _ = stream.write(word.as_bytes());
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, address: IpAddr) {
        let place = match self.places.enter(address, self.protocol.is_for_strangers()) {
            Ok(place) => place,
            Err(reason) => {
                metrics::refused(reason);
                tracing::info!(protocol = self.protocol.name(), %address, reason, "refused: no place");
                self.refuse(stream);
                return;
            }
        };
        let listener = Arc::clone(self);
        tokio::spawn(async move { listener.serve(stream, address, place).await });
    }

    pub(crate) async fn serve(self: Arc<Self>, stream: TcpStream, address: IpAddr, place: Place) {
        // Answers are written at once: Nagle's algorithm would only delay their ends.
        if socket::prepare(&stream, PROBED_AFTER).is_err() {
            return;
        }
        let passes = self.context.relays.is_some() && self.registry.is_draining();
        let registered = match passes {
            true => self.registry.pass(),
            false => self.registry.enter(),
        };
        let mut open = metrics::open(
            self.protocol.name(),
            match self.tls {
                true => Stage::Handshake,
                false => Stage::Unauthenticated,
            },
        );
        let ending = place.ending();
        let (transport, tls) = if self.tls {
            let handshake = Box::pin(self.context.handshake(stream));
            let shaken = tokio::select! {
                shaken = handshake => shaken,
                () = ending.comes() => return displaced(self.protocol, address),
            };
            match shaken {
                Ok((transport, tls)) => {
                    open.is_now(Stage::Unauthenticated);
                    (transport, Some(tls))
                }
                Err(error) => {
                    metrics::refused("handshake");
                    tracing::debug!(protocol = self.protocol.name(), %address, %error, "TLS handshake failed");
                    return;
                }
            }
        } else {
            (Transport::Clear(stream), None)
        };
        tracing::debug!(session = registered.id.0, protocol = self.protocol.name(), %address, tls = tls.is_some(), "connected");
        let mut session = (self.make)(Peer {
            session: registered.id,
            address,
            tls,
        });
        // The node for a user is looked for after the login.
        let elsewhere = match &self.context.relays {
            Some(relays) if !self.protocol.logs_in() => !relays.is_here(None),
            _ => false,
        };
        if passes || elsewhere {
            session.relay();
        }
        let connection = Connection {
            session,
            address,
            protocol: self.protocol,
            registered,
            place,
            context: Arc::clone(&self.context),
            open,
        };
        drop(self);
        connection.run(transport).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted() {
        let config = Config::parse(
            "[limits]\nconnections_max = 10\nconnections_per_address_max = 8\nunauthenticated_max = 7",
        )
        .unwrap();
        let places = Places::new(&config.limits, 10, config.limits.unauthenticated_max);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let mut held: Vec<_> = (0..7).map(|_| places.enter(a, true).unwrap()).collect();
        held[0].authenticated();
        held[0].authenticated();
        held[1].authenticated();
        held[1].unauthenticated();
        held[1].unauthenticated();
        assert_eq!(places.lock().strangers.len(), 6);
        held.push(places.enter(a, true).unwrap());
        assert_eq!(places.enter(a, false).unwrap_err(), "address");
        held.iter_mut().for_each(Place::authenticated);
        held.push(places.enter(b, false).unwrap());
        held.push(places.enter(b, false).unwrap());
        // No connection is left that might have to go.
        assert_eq!(places.enter(b, true).unwrap_err(), "total");
        drop(held);
        let taken = places.lock();
        let left = (taken.connections, taken.strangers.len(), taken.displaced);
        assert_eq!((left, taken.addresses.len()), ((0, 0, 0), 0));
    }

    #[test]
    fn strangers_of_one_address_leave_places_to_others() {
        let (a, b): (IpAddr, IpAddr) =
            ("2001:db8::1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let check = |text: &str, expected: usize| {
            let config = Config::parse(&format!("[limits]\n{text}")).unwrap();
            let places = Pools::new(&config.limits, config.limits.connections_max).users;
            let enter = || places.enter(a, true);
            let mut held: Vec<_> = (0..expected).map(|_| enter().unwrap()).collect();
            assert_eq!(enter().unwrap_err(), "unauthenticated address", "{text:?}");
            // Mail still comes in, and so do strangers from elsewhere.
            held.push(places.enter(a, false).unwrap());
            held.push(places.enter(b, true).unwrap());
            // A client that has logged in is no stranger.
            held[0].authenticated();
            held.push(enter().unwrap());
            held[0].unauthenticated();
            held.pop();
            assert!(enter().is_err());
            held.swap_remove(0);
            drop(enter().unwrap());
            drop(held);
            assert!(places.lock().addresses.is_empty());
        };
        check("", 250);
        check("unauthenticated_max = 20", 8);
        check("unauthenticated_per_address_max = 3", 3);
    }

    /// Eight networks of one site took all places.
    #[test]
    fn strangers_of_one_site_leave_places_to_others() {
        let check = |text: &str, expected: usize| {
            let config = Config::parse(&format!("[limits]\n{text}")).unwrap();
            let places = Pools::new(&config.limits, config.limits.connections_max).users;
            let at = |network: usize| -> IpAddr {
                format!("2001:db8:0:{network:x}::1").parse().unwrap()
            };
            let mut held: Vec<_> = (0..expected)
                .map(|network| places.enter(at(network), true).unwrap())
                .collect();
            let refused = places.enter(at(expected), true).unwrap_err();
            assert_eq!(refused, "unauthenticated address", "{text:?}");
            held.push(places.enter(at(expected), false).unwrap());
            for other in ["2001:db8:1::1", "192.0.2.1", "192.0.2.2"] {
                held.push(places.enter(other.parse().unwrap(), true).unwrap());
            }
            held[0].authenticated();
            held.push(places.enter(at(expected), true).unwrap());
            drop(held);
            assert_eq!(places.lock().strangers.len(), 0);
        };
        check("", 500);
        check("unauthenticated_max = 40", 16);
        check(
            "unauthenticated_max = 40\nunauthenticated_per_address_max = 3",
            10,
        );
    }

    /// Eight addresses took all places of users, and ten all places of mail.
    #[test]
    fn a_new_connection_gets_a_place_when_strangers_have_all() {
        let config = Config::parse("[limits]\nunauthenticated_max = 100").unwrap();
        let pools = Pools::new(&config.limits, 200);
        let of = |network: usize| IpAddr::from([192, 0, 2, network as u8]);
        for (places, most) in [(&pools.users, 100), (&pools.mail, 50)] {
            let mut held = Vec::new();
            let mut own: Vec<Place> = Vec::new();
            for turn in 0..20 {
                held.extend((0..20).filter_map(|network| places.enter(of(network), true).ok()));
                assert!(!own.iter().any(|place| place.ending.has_come()));
                // From networks of its own.
                let from = [
                    of(100 + turn),
                    format!("2001:db8:{turn:x}::1").parse().unwrap(),
                ];
                own = from
                    .map(|from| places.enter(from, true).expect("there is a place"))
                    .into();
                assert!(places.lock().strangers.len() <= most);
            }
            drop(own);
            let gone = held.iter().filter(|place| place.ending.has_come()).count();
            assert_eq!(held.len() - gone, places.lock().strangers.len());
            drop(held);
            let taken = places.lock();
            assert_eq!((taken.connections, taken.displaced), (0, 0));
        }
    }

    #[test]
    fn users_and_mail_have_places_of_their_own() {
        let check = |text: &str, connections: usize, expected: [usize; 3]| {
            let config = Config::parse(&format!("[limits]\n{text}")).unwrap();
            let pools = Pools::new(&config.limits, connections);
            let found = [&pools.users, &pools.mail, &pools.front].map(|of| of.connections_max);
            assert_eq!(found, expected, "{text:?} {connections}");
        };
        check("", 20_000, [12_500, 5_000, 2_500]);
        check("", 100, [63, 25, 12]);
        check("smtp_connections_max = 100", 20_000, [17_400, 100, 2_500]);
        check("smtp_connections_max = 100", 100, [38, 50, 12]);
        check("", 1, [1, 1, 1]);
    }

    #[test]
    fn connections_leave_descriptors() {
        let check = |descriptors: Option<u64>, expected: usize| {
            let room = Room::within(&Config::default(), descriptors);
            assert_eq!(room.connections, expected, "{descriptors:?}");
            // The store's open files leave as much again for all else.
            let all = descriptors.map_or(usize::MAX, |all| all as usize);
            let left = (all - room.connections).min(DESCRIPTORS_KEPT);
            assert_eq!(files_open_max(descriptors), left / 2, "{descriptors:?}");
        };
        check(None, 20_000);
        check(Some(1 << 20), 20_000);
        check(Some(1024), 768);
        check(Some(512), 256);
        check(Some(100), 50);
    }

    /// Each relayed session needs one more descriptor, at the relaying node and at the serving one.
    #[test]
    fn relayed_sessions_leave_descriptors() {
        let config = Config::parse("[cluster]\nname = 'a'").unwrap();
        let check = |descriptors: Option<u64>, expected: [usize; 3]| {
            let room = Room::within(&config, descriptors);
            let all = [room.connections, room.relays, room.relayed];
            assert_eq!(all, expected, "{descriptors:?}");
            if let Some(descriptors) = descriptors {
                let taken = all.iter().sum::<usize>();
                assert!(taken + kept(descriptors as usize) <= descriptors as usize);
            }
        };
        check(None, [20_000, 10_000, 10_000]);
        check(Some(1 << 20), [20_000, 10_000, 10_000]);
        check(Some(40_256), [20_000, 10_000, 10_000]);
        check(Some(20_256), [10_000, 5_000, 5_000]);
        check(Some(1024), [384, 192, 192]);
        check(Some(100), [25, 12, 12]);
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let check = |address: &str, expected: &str| {
            assert_eq!(
                client(address.parse().unwrap()),
                expected.parse::<IpAddr>().unwrap()
            );
        };
        check("192.0.2.1", "192.0.2.1");
        check("::ffff:192.0.2.1", "192.0.2.1");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
    }
}
