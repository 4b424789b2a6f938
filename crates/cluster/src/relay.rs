//! A client's session that another node serves: a stream of its own between two members, with their certificates.
//!
//! The node that the client has reached says whose session it is (opaque here), the other one takes it or says why not, and from then on the stream is
//! theirs. A stream for each session, so that one client that does not read holds up no other, and what is not read waits in a socket.

use std::{
    collections::BTreeMap,
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
    AuthorityError, Credentials, NodeName,
    authority::ALPN_RELAY,
    join::{receive, send},
};

/// For the other node to be reached, and to say whether it takes the session: a client waits.
const OPEN_TIME_MAX: Duration = Duration::from_secs(5);

/// Streams that are being opened to one node. Until its handshake is done a stream is a stranger's there, of whom it takes few from one address and drops the
/// others ([`crate::transport`]): the rest is left to the link and to questions.
const OPENING_MAX: usize = 5;

/// A stream that carries one session.
pub type RelayStream = TlsStream<TcpStream>;

/// The answer of the node that is asked.
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

/// Opens streams for sessions that others serve.
pub struct Relays {
    client: Arc<ClientConfig>,
    /// By the node to which they are opened: as many as there are members.
    opening: Mutex<BTreeMap<NodeName, Arc<Semaphore>>>,
}

impl Relays {
    /// With a member's certificate.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn new(credentials: &Credentials) -> Result<Self, AuthorityError> {
        Ok(Relays {
            client: credentials.client_for(ALPN_RELAY)?,
            opening: Mutex::default(),
        })
    }

    /// Brings a session to another node: `head` says whose it is. When many are brought there at once it waits for its turn until then.
    ///
    /// # Errors
    /// If the node cannot be reached, does not know relays, or does not take it.
    pub async fn open(
        &self,
        name: &NodeName,
        address: &str,
        head: Vec<u8>,
        until: Instant,
    ) -> io::Result<RelayStream> {
        let turns = self.turns(name);
        let turn = timeout_at(until, turns.acquire()).await?;
        let _turn = turn.map_err(io::Error::other)?;
        let opened = timeout(OPEN_TIME_MAX, async {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            let server = ServerName::try_from(name.to_string()).map_err(io::Error::other)?;
            let config = Arc::clone(&self.client);
            let mut stream = TlsConnector::from(config).connect(server, tcp).await?;
            send(&mut stream, &ByteVec::from(head)).await?;
            match receive::<Answer, _>(&mut stream).await? {
                Answer::Come => Ok(TlsStream::from(stream)),
                Answer::No { why } => {
                    let plain = why.chars().filter(|letter| !letter.is_control());
                    Err(io::Error::other(plain.take(500).collect::<String>()))
                }
            }
        });
        opened.await?
    }

    fn turns(&self, name: &NodeName) -> Arc<Semaphore> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = opening.entry(name.clone());
        let turns = turns.or_insert_with(|| Arc::new(Semaphore::new(OPENING_MAX)));
        Arc::clone(turns)
    }
}

/// A session that another member brings.
pub struct Relayed {
    /// Who brings it, by its certificate.
    pub from: NodeName,
    /// Whose session it is.
    pub head: Vec<u8>,
    stream: RelayStream,
    until: Instant,
}

impl Relayed {
    /// Reads whose it is.
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

    /// Takes the session.
    ///
    /// # Errors
    /// If whoever brought it is gone.
    pub async fn take(mut self) -> io::Result<RelayStream> {
        timeout_at(self.until, send(&mut self.stream, &Answer::Come)).await??;
        Ok(self.stream)
    }

    /// Does not take it: its node asks another one.
    pub async fn refuse(mut self, why: &str) {
        let why = why.to_owned();
        let answer = Answer::No { why };
        // Whoever does not hear it has lost patience.
        let _ = timeout_at(self.until, send(&mut self.stream, &answer)).await;
    }
}
