//! Relays: a client's session that another node serves. Each has a stream of its own between two members, with their certificates.
//!
//! The node that the client has reached sends the head of the session (opaque here). The other node accepts it or says why not; from then on the
//! stream carries the session. Each session has its own stream, so a client that does not read holds up no other, and its bytes wait in a socket.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use minicbor::{Decode, Encode, bytes::ByteVec};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, TlsStream};

use crate::{
    AuthorityError, Credentials, NodeName, Peer,
    authority::ALPN_RELAY,
    join::{receive, send},
    socket,
};

/// Time limit to reach the other node and get its answer: a client waits.
const OPEN_TIME_MAX: Duration = Duration::from_secs(5);

/// Streams that are being opened to one node at once. Until the handshake is done, such a stream counts there as one of an unknown peer, of which few
/// from one address are allowed ([`crate::places`]). The rest is left for the link and for questions.
const OPENING_MAX: usize = 5;

/// Longest wait for one's turn at a node while others can be asked. A node that is cut off holds each stream for [`OPEN_TIME_MAX`], so a client's
/// whole time could go by in its queue. At a node that answers, hundreds get their turn in this time.
const TURN_TIME_MAX: Duration = Duration::from_secs(3);

/// For so long a node that did not answer in time is asked last: its link may take longer to break than a client waits.
const SILENT_TIME: Duration = Duration::from_secs(10);

/// A stream that carries one session.
pub type RelayStream = TlsStream<TcpStream>;

/// The answer of the other node.
#[derive(Encode, Decode)]
enum Answer {
    #[n(0)]
    Come,
    #[n(1)]
    No {
        #[n(0)]
        why: String,
    },
}

/// Opens streams for sessions that other nodes serve.
pub struct Relays {
    client: Arc<ClientConfig>,
    /// Streams by the node to which they are opened: as many entries as there are members.
    nodes: Mutex<BTreeMap<NodeName, Node>>,
}

/// The streams that are being opened to one node.
struct Node {
    turns: Arc<Semaphore>,
    /// The node did not answer in time: until then it is asked last.
    silent_until: Option<Instant>,
}

impl Relays {
    /// Relays with the certificate of this node.
    ///
    /// If the certificate cannot be used.
    pub fn new(credentials: &Credentials) -> Result<Self, AuthorityError> {
        Ok(Relays {
            client: credentials.client_for(ALPN_RELAY)?,
            nodes: Mutex::default(),
        })
    }

    /// Brings a session to the first of these nodes that accepts it. `head` names the account. Returns the node and the stream; `None`: this node may
    /// serve the session itself (`or_here`), or no node accepts it. Nodes that did not answer lately are asked last, and so are nodes to which so
    /// many sessions are being brought that no turn comes soon. After `until` no node is asked for the first time, nor a node that `is_linked` does
    /// not know when its turn has come.
    pub async fn open<'p>(
        &self,
        peers: &[&'p Peer],
        head: &[u8],
        or_here: bool,
        is_linked: impl Fn(&NodeName) -> bool,
        until: Instant,
    ) -> Option<(&'p Peer, RelayStream)> {
        let is_silent = |peer: &Peer| self.is_silent(&peer.name);
        let (late, early): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| is_silent(peer));
        let early = early.into_iter().map(|peer| (peer, false));
        let late = late.into_iter().map(|peer| (peer, true));
        // With each peer, whether it was put off before: none is put off twice for its silence.
        let mut left: VecDeque<(&'p Peer, bool)> = match or_here {
            true => early.collect(),
            false => early.chain(late).collect(),
        };
        while let Some((peer, was_put_off)) = left.pop_front()
            && Instant::now() < until
        {
            let has_other = or_here || !left.is_empty();
            let turn_until = match has_other {
                true => until.min(Instant::now() + TURN_TIME_MAX),
                false => until,
            };
            let turns = self.turns(&peer.name);
            let Ok(Ok(turn)) = timeout_at(turn_until, turns.acquire()).await else {
                left.push_back((peer, true));
                continue;
            };
            // The attempts before may have taken long.
            if !is_linked(&peer.name) {
                continue;
            }
            if or_here && is_silent(peer) {
                continue;
            }
            if has_other && !was_put_off && is_silent(peer) {
                left.push_back((peer, true));
                continue;
            }
            let opened = self.open_to(peer, head).await;
            drop(turn);
            match opened {
                Ok(stream) => return Some((peer, stream)),
                Err(error) => {
                    tracing::info!(node = %peer.name, %error, "a node does not take a session; asking the next one");
                }
            }
        }
        None
    }

    async fn open_to(&self, peer: &Peer, head: &[u8]) -> io::Result<RelayStream> {
        let opened = timeout(OPEN_TIME_MAX, async {
            let tcp = TcpStream::connect(&peer.address).await?;
            socket::prepare(&tcp, socket::PROBED_AFTER)?;
            let server = ServerName::try_from(peer.name.to_string()).map_err(io::Error::other)?;
            let config = Arc::clone(&self.client);
            let mut stream = TlsConnector::from(config).connect(server, tcp).await?;
            send(&mut stream, &ByteVec::from(head.to_vec())).await?;
            match receive::<Answer, _>(&mut stream).await? {
                Answer::Come => Ok(TlsStream::from(stream)),
                Answer::No { why } => {
                    let plain = why.chars().filter(|letter| !letter.is_control());
                    Err(io::Error::other(plain.take(500).collect::<String>()))
                }
            }
        });
        let opened = opened.await;
        let silent_until = opened.is_err().then(|| Instant::now() + SILENT_TIME);
        self.node(&peer.name, |node| node.silent_until = silent_until);
        opened?
    }

    fn turns(&self, name: &NodeName) -> Arc<Semaphore> {
        self.node(name, |node| Arc::clone(&node.turns))
    }

    fn is_silent(&self, name: &NodeName) -> bool {
        let until = self.node(name, |node| node.silent_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn node<T>(&self, name: &NodeName, of: impl FnOnce(&mut Node) -> T) -> T {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        of(nodes.entry(name.clone()).or_insert_with(|| Node {
            turns: Arc::new(Semaphore::new(OPENING_MAX)),
            silent_until: None,
        }))
    }
}

/// A session that another member relays to this node.
pub struct Relayed {
    /// The member, by its certificate.
    pub from: NodeName,
    /// The head of the session.
    pub head: Vec<u8>,
    stream: RelayStream,
    until: Instant,
}

impl Relayed {
    /// Reads the head of the session.
    pub(crate) async fn read(from: NodeName, mut stream: RelayStream) -> io::Result<Self> {
        let until = Instant::now() + OPEN_TIME_MAX;
        let head = timeout_at(until, receive::<ByteVec, _>(&mut stream)).await??;
        Ok(Relayed {
            from,
            head: head.into(),
            stream,
            until,
        })
    }

    /// Accepts the session.
    ///
    /// If the member is gone.
    pub async fn take(mut self) -> io::Result<RelayStream> {
        timeout_at(self.until, send(&mut self.stream, &Answer::Come)).await??;
        Ok(self.stream)
    }

    /// Refuses the session: the member asks another node.
    pub async fn refuse(mut self, why: &str) {
        let why = why.to_owned();
        let answer = Answer::No { why };
        // A member that does not read the answer has given up.
        let _ = timeout_at(self.until, send(&mut self.stream, &answer)).await;
    }
}
