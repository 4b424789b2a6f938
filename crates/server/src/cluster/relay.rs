//! Sessions that another node serves, and sessions that other nodes relay to this one (`docs/decisions/0031`).
//!
//! The node that a client has reached checks the login. The head of the session (protocol, account, address) then goes to a node that serves the
//! account, on a stream of its own, and bytes pass both ways until one side ends it. The client's bytes are passed unchanged. Bytes to the client are
//! in frames of at most [`FRAME_BYTES_MAX`], so that the node in front knows when it may send a line of its own: an empty frame means that the
//! session waits for its client, with no answer half sent.
//!
//! Invariants:
//! - A relayed session is never relayed again: there are no circles.
//! - No line of this node is sent in the middle of an answer. SMTP has answers of whole lines, and may be ended by one more line after any of them: a
//!   sender that was not told that its mail is accepted sends it again.
//! - This node holds at most one frame and one read of a session; a side that does not read stops the other side's reading.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use minicbor::{Decode, Encode};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at},
};
use whimbrel_cluster::{
    Linked, NodeName, Peer as Address, RelayStream, Relayed, Relays as Streams,
};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_frontend::session::{Handover, Peer, Resume, Tls};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::{
    placement::{self, Node, Role},
    roster::Roster,
};
use whimbrel_service::{api::Event, owner::keys::partition_of};
use whimbrel_smtp::HostName;

use super::{links::link_of, roster_store::State};
use crate::{
    driver::{Connection, Context},
    listen::{Places, Protocol},
    metrics::{self, Stage, Traffic},
    registry::{Registered, Registry},
    store_calls::Store,
    transport::{Transport, read_some},
};

/// Bytes in one frame to the client.
pub(crate) const FRAME_BYTES_MAX: usize = 16 * 1024;
/// Sessions relayed to this node that wait to be looked at.
const BROUGHT_MAX: usize = 16;
/// Time limit for all nodes together that are asked to accept a session: its client waits.
const OPEN_TIME_MAX: Duration = Duration::from_secs(15);
/// How often this node checks that it still has a link to the serving node: a stream whose other end vanished is silent.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time to pass on what has arrived from a node that is gone.
const REST_TIME_MAX: Duration = Duration::from_secs(1);
/// A node that stops ends a session when nothing was sent to the serving node for so long: longer than the round trip and most commands.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// How long a session goes on whose login is no longer valid: the serving node hears the same, and ends it in its own words.
const ENDED_TIME: Duration = Duration::from_secs(4);

/// The head of a relayed session.
#[derive(Encode, Decode)]
struct Head {
    /// `None` for mail from strangers, which older nodes do not accept.
    #[cbor(n(0), with = "minicbor::bytes")]
    account: Option<[u8; 16]>,
    /// The address of the client.
    #[n(1)]
    address: String,
    #[n(2)]
    tls: Option<HeadTls>,
    #[n(3)]
    at: At,
    /// The incarnation of the relaying node: a removed node may run on under a name that belongs to another one now. Earlier versions do not send it.
    #[n(4)]
    from: Option<Incarnation>,
}

#[derive(Encode, Decode)]
struct HeadTls {
    #[n(0)]
    version: String,
    #[n(1)]
    cipher: String,
}

/// As [`Resume`].
#[derive(Encode, Decode)]
enum At {
    #[n(0)]
    Imap {
        #[n(0)]
        tag: String,
    },
    #[n(1)]
    Pop3 {
        #[n(0)]
        mailbox: String,
        #[n(1)]
        utf8: bool,
    },
    #[n(2)]
    Mail {
        #[n(0)]
        role: MailRole,
        #[n(1)]
        helo: String,
        #[n(2)]
        basic: bool,
    },
}

#[derive(Clone, Copy, Encode, Decode)]
#[cbor(index_only)]
enum MailRole {
    #[n(0)]
    Smtp,
    #[n(1)]
    Lmtp,
    #[n(2)]
    Submission,
}

impl Head {
    fn of(handover: &Handover, from: Incarnation) -> Vec<u8> {
        let tls = handover.peer.tls.as_ref().map(|tls| HeadTls {
            version: tls.version.to_owned(),
            cipher: tls.cipher.clone(),
        });
        let at = match handover.at.clone() {
            Resume::Imap { tag } => At::Imap { tag },
            Resume::Pop3 { mailbox, utf8 } => At::Pop3 { mailbox, utf8 },
            Resume::Mail { role, helo, basic } => At::Mail {
                role: match role {
                    whimbrel_smtp::Role::Smtp => MailRole::Smtp,
                    whimbrel_smtp::Role::Lmtp => MailRole::Lmtp,
                    whimbrel_smtp::Role::Submission => MailRole::Submission,
                },
                helo: helo.to_string(),
                basic,
            },
        };
        super::rpc::encoded(&Head {
            account: handover.account.map(|account| account.0),
            address: handover.peer.address.to_string(),
            tls,
            at,
            from: Some(from),
        })
    }

    fn tls(&self) -> Option<Tls> {
        self.tls.as_ref().map(|tls| Tls {
            version: match tls.version.as_str() {
                "TLSv1.3" => "TLSv1.3",
                "TLSv1.2" => "TLSv1.2",
                _ => "TLS",
            },
            cipher: tls.cipher.clone(),
            // The channel binding belongs to a channel that does not end here.
            binding: Default::default(),
        })
    }

    /// `None`: the HELO name is not valid.
    fn at(self) -> Option<(Protocol, Resume)> {
        Some(match self.at {
            At::Imap { tag } => (Protocol::Imap, Resume::Imap { tag }),
            At::Pop3 { mailbox, utf8 } => (Protocol::Pop3, Resume::Pop3 { mailbox, utf8 }),
            At::Mail { role, helo, basic } => {
                let (protocol, role) = match role {
                    MailRole::Smtp => (Protocol::Smtp, whimbrel_smtp::Role::Smtp),
                    MailRole::Lmtp => (Protocol::Lmtp, whimbrel_smtp::Role::Lmtp),
                    MailRole::Submission => (Protocol::Submission, whimbrel_smtp::Role::Submission),
                };
                let helo = HostName::new(&helo).ok()?;
                (protocol, Resume::Mail { role, helo, basic })
            }
        })
    }
}

/// Finds the node that serves an account, and relays sessions to it.
pub(crate) struct Relays<S> {
    state: Arc<State<S>>,
    streams: Streams,
    registry: Arc<Registry>,
    role: Role,
    workers: usize,
    places: Arc<Semaphore>,
}

/// The node that goes on with a session.
pub(crate) enum Way {
    /// This node.
    Here,
    /// Another node.
    There(Box<There>),
}

/// Another node that has accepted a session.
pub(crate) struct There {
    stream: RelayStream,
    name: String,
    incarnation: Incarnation,
    /// Whether its answers are whole lines.
    is_mail: bool,
    _place: OwnedSemaphorePermit,
}

impl<S: Store> Relays<S> {
    pub(super) fn new(
        state: Arc<State<S>>,
        streams: Streams,
        registry: Arc<Registry>,
        of: &crate::config::ClusterSection,
        sessions_max: usize,
    ) -> Self {
        Relays {
            state,
            streams,
            registry,
            role: of.role.placed(),
            workers: of.workers_per_partition,
            places: Arc::new(Semaphore::new(sessions_max)),
        }
    }

    fn me(&self) -> &str {
        self.state.credentials.name().as_str()
    }

    /// Whether this node serves the account of a session that was not relayed to it. Mail from strangers (no account) is accepted by any worker.
    pub(crate) fn is_here(&self, account: Option<AccountId>) -> bool {
        if self.registry.is_draining() || self.state.is_syncing() {
            return false;
        }
        let partition = account.map_or(PartitionId::QUEUE, partition_of);
        if self.role == Role::Worker && (self.workers == 0 || account.is_none()) {
            return self.state.holds(partition);
        }
        let (nodes, _) = self.nodes(partition);
        self.serve(partition, &nodes).by(self.me())
    }

    fn serve<'n>(&self, partition: PartitionId, nodes: &'n [Node]) -> placement::Served<'n> {
        served(partition, nodes, self.me(), self.workers)
    }

    /// The members with their placement for a partition, and the addresses of the linked ones.
    fn nodes(&self, partition: PartitionId) -> (Vec<Node>, Vec<(Address, Incarnation)>) {
        let links = self.state.transport.links();
        let roster = self.state.roster();
        let nodes = placed(&self.state, &roster, &links, partition);
        let linked = self.state.peers(&roster).into_iter().filter_map(|peer| {
            let name = peer.name.as_str();
            let link = link_of(&links, name, roster.places().get(name)?)?;
            Some((peer, link.incarnation))
        });
        (nodes, linked.collect())
    }

    /// Finds a node that goes on with a session. The error is the text for the client.
    pub(crate) async fn find(&self, handover: &Handover) -> Result<Way, &'static str> {
        let until = Instant::now() + OPEN_TIME_MAX;
        let head = Head::of(handover, self.state.me());
        // Mail from strangers is spread over the nodes, since any can accept it.
        let any = || PartitionId::accounts((handover.peer.session.0 % 256) as u8);
        let partition = handover.account.map_or_else(any, partition_of);
        // Mail from strangers goes to the queue: each node has one.
        let held = handover.account.map_or(PartitionId::QUEUE, partition_of);
        let (nodes, linked) = self.nodes(held);
        let order = self.serve(partition, &nodes).order;
        let is_taken_here = !self.registry.is_draining() && !self.state.is_syncing();
        let is_here = |node: &&Node| is_taken_here && node.name == self.me();
        let or_here = order.iter().any(&is_here);
        // Nodes after this one are not asked: this node serves the session itself.
        let before = order.iter().take_while(|node| !is_here(node));
        let peers = before.filter_map(|node| {
            let mut linked = linked.iter();
            linked.find(|(peer, _)| peer.name.as_str() == node.name)
        });
        let peers: Vec<_> = peers.collect();
        if !peers.is_empty() {
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                return Err("Too many sessions are served elsewhere");
            };
            let of = |name: &NodeName| peers.iter().find(|(peer, _)| peer.name == *name);
            let is_linked = |name: &NodeName| {
                let mut links = self.state.transport.links().into_iter();
                of(name).is_some_and(|(_, id)| links.any(|link| link.incarnation == *id))
            };
            let addresses: Vec<&Address> = peers.iter().map(|(peer, _)| peer).collect();
            let opened = self
                .streams
                .open(&addresses, &head, or_here, is_linked, until);
            if let Some((peer, stream)) = opened.await
                && let Some((_, incarnation)) = of(&peer.name)
            {
                return Ok(Way::There(Box::new(There {
                    stream,
                    name: peer.name.to_string(),
                    incarnation: *incarnation,
                    is_mail: matches!(handover.at, Resume::Mail { .. }),
                    _place: place,
                })));
            }
        }
        if or_here {
            return Ok(Way::Here);
        }
        if self.state.is_syncing() && !self.registry.is_draining() {
            // This node serves the partitions that it has completely, and clients of others are told to come later.
            return Ok(Way::Here);
        }
        Err("No node that serves this can be reached")
    }

    /// Carries a session that another node serves. Returns what to tell the client at the end; `None`: the session has ended by itself.
    pub(crate) async fn carry(
        &self,
        there: There,
        client: &mut Transport,
        registered: &Registered,
        rest: Vec<u8>,
        traffic: &Traffic,
        patience: Duration,
    ) -> io::Result<Option<&'static str>> {
        let is_linked = || self.state.links.is_up(there.incarnation);
        let client = Client {
            stream: client,
            registered,
            traffic,
            patience,
        };
        tracing::info!(
            session = registered.id.0,
            node = there.name,
            "is served there"
        );
        let (from, to) = split(there.stream);
        let node = (there.name.as_str(), there.is_mail);
        client.carry(node, (from, to), rest, is_linked).await
    }
}

/// The members with their placement for a partition.
fn placed<S: Store>(
    state: &State<S>,
    roster: &Roster,
    links: &[Linked],
    partition: PartitionId,
) -> Vec<Node> {
    let me = state.credentials.name().as_str();
    let nodes = roster.present().map(|(name, place)| {
        let link = link_of(links, name, place);
        let distance = link.and_then(|link| link.round_trip_micros);
        Node {
            name: name.to_owned(),
            region: place.region.clone(),
            role: place.role(),
            distance: distance.unwrap_or(u64::MAX),
            holds: match name == me {
                true => state.serves(roster, partition),
                false => roster.holds(place.incarnation, partition),
            },
        }
    });
    nodes.collect()
}

/// The nodes that serve a partition in the region of the node with this name.
fn served<'n>(
    partition: PartitionId,
    nodes: &'n [Node],
    me: &str,
    workers: usize,
) -> placement::Served<'n> {
    let mine = nodes.iter().find(|node| node.name == me);
    let region = mine.map_or("", |node| node.region.as_str());
    placement::serve(partition, nodes, region, workers)
}

/// The names of the nodes that serve accounts of a partition in this node's region, for status. Empty: each holder serves the clients that reach it.
pub(super) fn serving<S: Store>(
    state: &State<S>,
    roster: &Roster,
    links: &[Linked],
    partition: PartitionId,
    workers: usize,
) -> Vec<String> {
    if workers == 0 || partition.bucket().is_none() {
        return Vec::new();
    }
    let nodes = placed(state, roster, links, partition);
    let me = state.credentials.name().as_str();
    let served = served(partition, &nodes, me, workers);
    let first = served.order.iter().take(served.first);
    first.map(|node| node.name.clone()).collect()
}

/// The client of a relayed session.
struct Client<'c> {
    stream: &'c mut Transport,
    registered: &'c Registered,
    traffic: &'c Traffic,
    patience: Duration,
}

impl Client<'_> {
    /// As [`Relays::carry`]; `is_mail`: the session is of SMTP.
    async fn carry(
        mut self,
        (node, is_mail): (&str, bool),
        (mut from, mut to): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        rest: Vec<u8>,
        is_linked: impl Fn() -> bool,
    ) -> io::Result<Option<&'static str>> {
        let mut way = Towards::new(rest);
        let mut frames = Frames::default();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        let mut leaves = None;
        // The login may have become invalid: then the session ends, whatever is under way.
        let mut ends_at: Option<(Instant, &str)> = None;
        // The client may have sent a command since the session last waited.
        let mut asked = way.has_more();
        let mut asked_at = Instant::now();
        let mut read_now = Vec::new();
        loop {
            // The other node may have reported that it waits before it read the last bytes: the client would be told that a command was not done.
            let ends = leaves.filter(|_| frames.at_rest && !asked);
            if let Some(why) = ends.filter(|_| asked_at.elapsed() >= QUIET_TIME) {
                return Ok(Some(why));
            }
            if let Some((_, why)) = ends_at.filter(|(at, _)| *at <= Instant::now()) {
                let may_be_told = frames.at_rest || is_mail && frames.is_complete();
                return Ok(may_be_told.then_some(why));
            }
            let (has_more, takes) = (way.has_more(), way.takes() && ends.is_none());
            let lost = tokio::select! {
                read = read_some(&mut from, |bytes| frames.take(bytes)) => match read {
                    Ok(Taken::Some(bytes)) => {
                        self.write(&bytes).await?;
                        asked &= !frames.at_rest;
                        None
                    }
                    Ok(Taken::End) => return Ok(None),
                    Err(error) => Some(error),
                },
                stepped = way.step(&mut to), if has_more => stepped.err(),
                read = self.stream.read(|bytes| {
                    self.traffic.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    read_now.extend_from_slice(bytes);
                    !bytes.is_empty()
                }), if takes => {
                    match read {
                        Ok(true) => {
                            (asked, asked_at) = (true, Instant::now());
                            way = Towards::new(std::mem::take(&mut read_now));
                        }
                        _ => way.end = End::Wanted,
                    }
                    None
                }
                event = self.registered.signal.next() => {
                    match event {
                        Event::Changed => {}
                        Event::Shutdown => _ = leaves.get_or_insert("Server is shutting down"),
                        Event::Ended(why) => {
                            leaves = Some(why.text());
                            ends_at = Some((Instant::now() + ENDED_TIME, why.text()));
                        }
                    }
                    None
                }
                () = sleep_until(asked_at + QUIET_TIME), if ends.is_some() => None,
                () = sleep_until(ends_at.map_or(asked_at, |(at, _)| at)), if ends_at.is_some() => None,
                _ = looks.tick() => {
                    missed = if is_linked() { 0 } else { missed + 1 };
                    (missed > 1).then(|| io::ErrorKind::TimedOut.into())
                }
            };
            if let Some(error) = lost {
                let session = self.registered.id.0;
                tracing::info!(session, node, %error, "the node that serves this session is unreachable");
                // An answer that has arrived must reach the client, which would otherwise repeat what was done.
                let until = Instant::now() + REST_TIME_MAX;
                while Instant::now() < until {
                    let read = read_some(&mut from, |bytes| frames.take(bytes));
                    match timeout_at(until, read).await {
                        Ok(Ok(Taken::Some(bytes))) => self.write(&bytes).await?,
                        // The serving node had ended the session itself.
                        Ok(Ok(Taken::End)) => return Ok(None),
                        _ => break,
                    }
                }
                let may_be_told = frames.at_rest || is_mail && frames.is_complete();
                return Ok(may_be_told.then_some("The node that served this session is gone"));
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = &self.traffic.sent;
        sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.stream.write(bytes, self.patience).await
    }
}

/// Bytes on their way to the serving node. Each step can be dropped and begun again: a node that writes and does not read meanwhile must be read.
struct Towards {
    bytes: Vec<u8>,
    sent: usize,
    flushed: bool,
    end: End,
}

/// How the client's side ends.
#[derive(PartialEq, Eq)]
enum End {
    Open,
    Wanted,
    Said,
}

impl Towards {
    fn new(bytes: Vec<u8>) -> Self {
        Towards {
            flushed: bytes.is_empty(),
            bytes,
            sent: 0,
            end: End::Open,
        }
    }

    fn has_more(&self) -> bool {
        !self.flushed || self.end == End::Wanted
    }

    /// Whether more bytes of the client are read.
    fn takes(&self) -> bool {
        self.flushed && self.end == End::Open
    }

    async fn step(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.sent < self.bytes.len() {
            match to.write(&self.bytes[self.sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => self.sent += bytes,
            }
        } else if !self.flushed {
            to.flush().await?;
            self.flushed = true;
            // An idle session holds no buffer.
            self.bytes = Vec::new();
            self.sent = 0;
        } else {
            to.shutdown().await?;
            self.end = End::Said;
        }
        Ok(())
    }
}

/// The part of a read that is for the client.
enum Taken {
    Some(Vec<u8>),
    End,
}

/// Reads the frames for the client.
#[derive(Default)]
struct Frames {
    /// Bytes of the present frame that are still to come.
    left: usize,
    /// The first byte of a length.
    high: Option<u8>,
    /// The last frame was empty, and nothing has come since.
    at_rest: bool,
    /// The last bytes for the client did not end a line.
    in_line: bool,
}

impl Frames {
    /// Whether the client has received complete lines only.
    fn is_complete(&self) -> bool {
        self.left == 0 && self.high.is_none() && !self.in_line
    }

    fn take(&mut self, mut bytes: &[u8]) -> Taken {
        if bytes.is_empty() {
            return Taken::End;
        }
        let mut out = Vec::with_capacity(bytes.len());
        while let [first, rest @ ..] = bytes {
            if self.left > 0 {
                let (now, later) = bytes.split_at(self.left.min(bytes.len()));
                out.extend_from_slice(now);
                self.left -= now.len();
                bytes = later;
                continue;
            }
            bytes = rest;
            match self.high.take() {
                None => self.high = Some(*first),
                Some(high) => {
                    self.left = usize::from(u16::from_be_bytes([high, *first]));
                    self.at_rest = self.left == 0;
                }
            }
        }
        if let Some(last) = out.last() {
            self.in_line = *last != b'\n';
        }
        Taken::Some(out)
    }
}

/// Cuts bytes for the client into frames.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    for piece in bytes.chunks(FRAME_BYTES_MAX) {
        out.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// The frame that means that the session waits for its client.
pub(crate) const AT_REST: [u8; 2] = [0; 2];

/// Serves relayed sessions, until dropped; sessions that are being served go on.
pub(super) async fn serve<S: Store>(
    state: Arc<State<S>>,
    context: Arc<Context<S>>,
    registry: Arc<Registry>,
    sessions_max: usize,
) {
    let (to_brought, mut brought) = mpsc::channel(BROUGHT_MAX);
    state.transport.take_relays(to_brought);
    let places = Places::of_nodes(sessions_max);
    while let Some(relayed) = brought.recv().await {
        let (state, context) = (Arc::clone(&state), Arc::clone(&context));
        let (registry, places) = (Arc::clone(&registry), Arc::clone(&places));
        tokio::spawn(async move {
            let from = relayed.from.to_string();
            match admit(&state, &context, &registry, &places, &relayed) {
                Err(why) => {
                    tracing::info!(from, why, "refused a session that another node relays");
                    relayed.refuse(why).await;
                }
                Ok((connection, account)) => {
                    let session = connection.registered.id.0;
                    let protocol = connection.protocol.name();
                    let account = account.map(tracing::field::display);
                    tracing::info!(
                        session,
                        protocol,
                        from,
                        account,
                        "a session that was brought"
                    );
                    match relayed.take().await {
                        Ok(stream) => connection.run(Transport::relayed(stream)).await,
                        Err(error) => tracing::debug!(session, %error, "brought in vain"),
                    }
                }
            }
        });
    }
}

fn admit<S: Store>(
    state: &State<S>,
    context: &Arc<Context<S>>,
    registry: &Arc<Registry>,
    places: &Arc<Places>,
    relayed: &Relayed,
) -> Result<(Connection<S>, Option<AccountId>), &'static str> {
    if registry.is_draining() {
        return Err("this node is drained");
    }
    if state.is_syncing() {
        return Err("this node is new, and has not all that it would have to serve");
    }
    let head: Head =
        minicbor::decode(&relayed.head).map_err(|_| "this node does not know such sessions")?;
    if !state.is_member(&relayed.from, head.from) {
        return Err("that node is no member");
    }
    let address: IpAddr = head.address.parse().map_err(|_| "no address")?;
    let account = head.account.map(AccountId);
    let place = places.enter(address, false);
    let place = place.map_err(|_| "this node serves as many sessions for others as it may")?;
    let mut registered = registry.enter();
    if account.is_some_and(|account| !registered.log_in(account)) {
        return Err("the account has as many connections as it may");
    }
    // After that: if the partition is left from now on, the session hears it.
    if let Some(account) = account
        && !state.holds(partition_of(account))
    {
        return Err("this node does not hold the account's partition");
    }
    let peer = Peer {
        session: registered.id,
        address,
        tls: head.tls(),
    };
    let (protocol, at) = head.at().ok_or("the session makes no sense")?;
    let session = (context.resume)(peer, account, &at);
    let connection = Connection {
        session: session.ok_or("the session makes no sense")?,
        address,
        protocol,
        registered,
        place,
        context: Arc::clone(context),
        open: metrics::open(protocol.name(), Stage::Authenticated),
    };
    Ok((connection, account))
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
