//! Sessions that another node serves, and sessions that others bring (`docs/decisions/0031`).
//!
//! The node that a client has reached logs it in; whose session it is then goes to a node that serves the account, on a stream of its own, and bytes go to and
//! fro until one side ends it. The client's bytes are as they come; what goes back is in frames of at most [`FRAME_BYTES_MAX`], so that the node in front
//! knows when it may say something itself: an empty frame says that the session waits for its client, in the middle of nothing.
//!
//! Invariants:
//! - A session that was brought is never brought on: there are no circles.
//! - Nothing is said to a client in the middle of an answer. SMTP has answers of whole lines, and may be ended by one more behind any of them; whoever was not
//!   told that his mail is accepted sends it again.
//! - Of a session no more is held here than one frame and one read; who does not read stops the other side's reading.

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

/// Bytes in one frame of what goes back to the client.
pub(crate) const FRAME_BYTES_MAX: usize = 16 * 1024;
/// Sessions that others bring and nobody has looked at yet.
const BROUGHT_MAX: usize = 16;
/// For all nodes together that are asked to take a session: its client waits.
const OPEN_TIME_MAX: Duration = Duration::from_secs(15);
/// How often it is looked whether there is a link still to the node that serves: a stream of which the other end vanished says nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// For what has arrived from a node that is gone.
const REST_TIME_MAX: Duration = Duration::from_secs(1);
/// A node that stops ends a session when nothing was sent to the node that serves it for so long: longer than the way there and back, and most commands.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// So long a session goes on of which nobody may be logged in any more: the node that serves it hears the same, and ends it in its own words.
const ENDED_TIME: Duration = Duration::from_secs(4);

/// Whose session it is.
#[derive(Encode, Decode)]
struct Head {
    /// None of mail that comes from strangers, which older nodes do not take.
    #[cbor(n(0), with = "minicbor::bytes")]
    account: Option<[u8; 16]>,
    /// The client's.
    #[n(1)]
    address: String,
    #[n(2)]
    tls: Option<HeadTls>,
    #[n(3)]
    at: At,
    /// The incarnation of the node that brings it: one that was removed may run on under a name that is another's now. Earlier versions do not say it.
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
            // Of a channel that does not end here.
            binding: Default::default(),
        })
    }

    /// `None`: that is no name.
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

/// Finds who serves an account, and brings sessions there.
pub(crate) struct Relays<S> {
    state: Arc<State<S>>,
    streams: Streams,
    registry: Arc<Registry>,
    role: Role,
    workers: usize,
    places: Arc<Semaphore>,
}

/// Who goes on with a session.
pub(crate) enum Way {
    /// This node.
    Here,
    /// Another one.
    There(Box<There>),
}

/// A node that has taken a session.
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

    /// Whether this node serves the account, when it is not asked to by another one. Mail from strangers (no account) any worker takes.
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

    /// The members as they stand to a partition, and where those are that there is a link to.
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

    /// Finds a node that goes on with a session; if none does: why, for the client.
    pub(crate) async fn find(&self, handover: &Handover) -> Result<Way, &'static str> {
        let until = Instant::now() + OPEN_TIME_MAX;
        let head = Head::of(handover, self.state.me());
        // Mail from strangers is spread over the nodes, which all have the queue.
        let any = || PartitionId::accounts((handover.peer.session.0 % 256) as u8);
        let partition = handover.account.map_or_else(any, partition_of);
        // Mail from strangers goes to the queue, which all hold.
        let held = handover.account.map_or(PartitionId::QUEUE, partition_of);
        let (nodes, linked) = self.nodes(held);
        let order = self.serve(partition, &nodes).order;
        let is_taken_here = !self.registry.is_draining() && !self.state.is_syncing();
        let is_here = |node: &&Node| is_taken_here && node.name == self.me();
        let or_here = order.iter().any(&is_here);
        // Who comes behind this node is not asked: it serves by itself.
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
            // It serves what it has all of, and tells clients of the rest to come later.
            return Ok(Way::Here);
        }
        Err("No node that serves this can be reached")
    }

    /// Carries a session that another node serves. Whether the client is told that it is over, which by itself it is not.
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

/// The members as they are placed and stand to a partition.
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

/// Who serves a partition where the node of this name stands.
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

/// The names of those who serve accounts of a partition in this node's region, to be shown; none: each that holds it serves what comes to it.
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

/// Whose session is carried.
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
        // Whoever has logged in may not be here any more: it ends, whatever is under way.
        let mut ends_at: Option<(Instant, &str)> = None;
        // Something that the client has sent since the session last waited may be under way.
        let mut asked = way.has_more();
        let mut asked_at = Instant::now();
        let mut read_now = Vec::new();
        loop {
            // The other node may have waited for what was sent last when it said so, not yet behind that: of this the client would be told that it
            // was not done.
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
                // An answer that has arrived is the client's, who would do again what was done.
                let until = Instant::now() + REST_TIME_MAX;
                while Instant::now() < until {
                    let read = read_some(&mut from, |bytes| frames.take(bytes));
                    match timeout_at(until, read).await {
                        Ok(Ok(Taken::Some(bytes))) => self.write(&bytes).await?,
                        // It had ended the session itself.
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

/// What is on its way to the node that serves. Each step can be dropped and begun again: a node that writes and does not read meanwhile must be read.
struct Towards {
    bytes: Vec<u8>,
    sent: usize,
    flushed: bool,
    end: End,
}

/// Of what the client sends.
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

    /// Whether the client may say more.
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

/// What of a read is for the client.
enum Taken {
    Some(Vec<u8>),
    End,
}

/// Frames of what goes back to the client, as they come.
#[derive(Default)]
struct Frames {
    /// What is still to come of a frame.
    left: usize,
    /// The first byte of a length.
    high: Option<u8>,
    /// The last frame was empty, and nothing has come since.
    at_rest: bool,
    /// What was for the client last did not end a line.
    in_line: bool,
}

impl Frames {
    /// Whether the client has heard whole lines only.
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

/// Puts bytes for the client into frames.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    for piece in bytes.chunks(FRAME_BYTES_MAX) {
        out.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// The frame that says that the session waits for its client.
pub(crate) const AT_REST: [u8; 2] = [0; 2];

/// Serves sessions that others bring, until dropped; those that are served live on.
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
    // Behind that: when the partition is left from now on the session is told.
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
