//! Name servers, a network and a clock around one resolver.
//!
//! The world holds the resolver to its contract: each socket and connection is used once, no question is on the way twice, bounds hold, each lookup is
//! answered once, and in the end nothing is left open.

mod zone;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use bytes::Bytes;
use hickory_proto::{
    op::{Message, ResponseCode},
    rr::RecordType,
};
use whimbrel_dns::{
    Answer, Config, Failure, Found, Input, Kind, Name, Output, Records, Resolver, Socket, Stream,
    Ticket,
};
use whimbrel_testkit::Rng;
pub use zone::{Zone, record};

pub const MILLI: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// How a server does by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    Works,
    /// One octet after the other.
    Trickles,
    Refuses,
    /// Takes the question, and says nothing.
    Silent,
    /// Ends in the midst of the answer.
    Ends,
}

/// A server and the way to it.
#[derive(Clone)]
pub struct Server {
    pub delay: Duration,
    /// At most so much more.
    pub jitter: Duration,
    /// One datagram of so many is lost; 0: none.
    pub lost: u64,
    /// One of so many arrives twice; 0: none.
    pub doubled: u64,
    pub silent: bool,
    pub unreachable: bool,
    pub edns: bool,
    pub keeps_case: bool,
    pub authentic: bool,
    /// After so many aliases an answer says no more.
    pub hops: usize,
    pub code: Option<ResponseCode>,
    pub tcp: Tcp,
    /// What it does to its answers.
    pub twist: Option<fn(&mut Message)>,
    /// What it does to their octets.
    pub raw: Option<fn(&mut Vec<u8>)>,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            delay: 10 * MILLI,
            jitter: Duration::ZERO,
            lost: 0,
            doubled: 0,
            silent: false,
            unreachable: false,
            edns: true,
            keeps_case: true,
            authentic: false,
            hops: usize::MAX,
            code: None,
            tcp: Tcp::Works,
            twist: None,
            raw: None,
        }
    }
}

/// A question that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Duration,
    pub server: SocketAddr,
    pub by_tcp: bool,
    pub message: Message,
}

impl Sent {
    /// Its name, in the case in which it was sent.
    pub fn name(&self) -> String {
        self.message.queries[0].name.to_ascii()
    }
}

/// A question in lower case.
type Key = (String, RecordType);

fn key(message: &Message) -> Key {
    let query = &message.queries[0];
    (query.name.to_ascii().to_lowercase(), query.query_type)
}

#[derive(Clone)]
struct Connection {
    server: SocketAddr,
    key: Option<Key>,
}

/// Octets that a forger sends to a socket, from an address.
pub type Forger = fn(&mut Rng, &Sent) -> Option<(SocketAddr, Vec<u8>)>;

pub struct World {
    pub now: Duration,
    pub resolver: Resolver,
    pub zone: Zone,
    pub servers: BTreeMap<SocketAddr, Server>,
    pub sent: Vec<Sent>,
    pub answers: BTreeMap<Ticket, Result<Answer, Failure>>,
    pub answered: BTreeMap<Ticket, Duration>,
    pub rng: Rng,
    /// Sees each question, and sends what it likes.
    pub forger: Option<Forger>,
    /// The most that were open at a time.
    pub sockets_seen: usize,
    pub streams_seen: usize,
    config: Config,
    events: BTreeMap<(Duration, u64), Input>,
    tickets: u64,
    order: u64,
    waiting: BTreeSet<Ticket>,
    used: BTreeSet<u64>,
    sockets: BTreeMap<Socket, Key>,
    streams: BTreeMap<Stream, Connection>,
}

pub fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 53))
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Times that tests can wait for.
pub fn config(servers: u8) -> Config {
    let mut config = Config::new((1..=servers).map(address).collect());
    config.timeout = SECOND;
    config.timeout_max = 4 * SECOND;
    config
}

impl World {
    pub fn new(config: Config, zone: &str, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut key = [0; 32];
        key.fill_with(|| u8::try_from(rng.below(256)).unwrap());
        World {
            now: Duration::ZERO,
            resolver: Resolver::new(config.clone(), key),
            zone: Zone::new(zone),
            servers: config
                .servers
                .iter()
                .map(|server| (*server, Server::default()))
                .collect(),
            sent: Vec::new(),
            answers: BTreeMap::new(),
            answered: BTreeMap::new(),
            rng,
            forger: None,
            sockets_seen: 0,
            streams_seen: 0,
            config,
            events: BTreeMap::new(),
            tickets: 0,
            order: 0,
            waiting: BTreeSet::new(),
            used: BTreeSet::new(),
            sockets: BTreeMap::new(),
            streams: BTreeMap::new(),
        }
    }

    pub fn server(&mut self, number: u8) -> &mut Server {
        self.servers.get_mut(&address(number)).unwrap()
    }

    pub fn all_servers(&mut self, change: impl Fn(&mut Server)) {
        self.servers.values_mut().for_each(change);
    }

    /// Asks now.
    pub fn ask(&mut self, text: &str, kind: Kind) -> Ticket {
        self.tickets += 1;
        let ticket = self.tickets;
        self.waiting.insert(ticket);
        self.input(Input::Ask {
            ticket,
            name: name(text),
            kind,
        });
        ticket
    }

    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.input(Input::Cancel(ticket));
    }

    /// Asks, and waits for the answer.
    pub fn lookup(&mut self, text: &str, kind: Kind) -> Result<Answer, Failure> {
        let ticket = self.ask(text, kind);
        self.run();
        self.answers[&ticket].clone()
    }

    /// The records of an answer that has some.
    pub fn records(&mut self, text: &str, kind: Kind) -> Records {
        match self.lookup(text, kind).map(|answer| answer.found) {
            Ok(Found::Records(records)) => (*records).clone(),
            other => panic!("{other:?} instead of records"),
        }
    }

    pub fn found(&mut self, text: &str, kind: Kind) -> Result<Found, Failure> {
        self.lookup(text, kind).map(|answer| answer.found)
    }

    /// The one socket that is open.
    pub fn socket(&self) -> Socket {
        assert_eq!(self.sockets.len(), 1);
        *self.sockets.keys().next().unwrap()
    }

    /// A datagram arrives now.
    pub fn datagram(&mut self, socket: Socket, from: SocketAddr, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        self.input(Input::Datagram {
            socket,
            from,
            bytes,
        });
    }

    /// Octets arrive now on the one connection that is open.
    pub fn stream_bytes(&mut self, bytes: Vec<u8>) {
        assert_eq!(self.streams.len(), 1);
        let stream = *self.streams.keys().next().unwrap();
        self.input(Input::Bytes(stream, bytes.into()));
    }

    /// Servers and ways by which questions went, in their order: 1, 2, ... by UDP, -1, -2, ... by TCP.
    pub fn ways(&self) -> Vec<i16> {
        let way = |sent: &Sent| match sent.server.ip() {
            std::net::IpAddr::V4(ip) => {
                let number = i16::from(ip.octets()[3]);
                if sent.by_tcp { -number } else { number }
            }
            std::net::IpAddr::V6(_) => 0,
        };
        self.sent.iter().map(way).collect()
    }

    /// Something happens to the resolver now.
    pub fn input(&mut self, input: Input) {
        if let Input::Closed(stream) = &input {
            self.streams.remove(stream);
        }
        self.resolver.handle(self.now, input);
        while let Some(output) = self.resolver.poll() {
            self.carry_out(output);
        }
    }

    /// Until nothing is to come; what is left open then is an error.
    pub fn run(&mut self) {
        self.run_until(Duration::MAX);
        assert!(self.waiting.is_empty(), "lookups without an answer");
        assert_eq!(self.resolver.lookups(), 0);
        assert!(self.sockets.is_empty(), "sockets left open");
        assert!(self.streams.is_empty(), "connections left open");
    }

    pub fn run_until(&mut self, end: Duration) {
        for _ in 0..2_000_000 {
            let event = self.events.keys().next().copied();
            let deadline = self.resolver.deadline();
            let at = event.map(|(at, _)| at).into_iter().chain(deadline).min();
            let Some(at) = at.filter(|at| *at <= end) else {
                if end < Duration::MAX {
                    self.now = end;
                }
                return;
            };
            self.now = self.now.max(at);
            match event.filter(|(event, _)| *event <= at) {
                Some(event) => {
                    let input = self.events.remove(&event).unwrap();
                    self.input(input);
                }
                None => self.input(Input::Time),
            }
        }
        panic!("it never ends");
    }

    /// Something that happens later.
    pub fn later(&mut self, delay: Duration, input: Input) {
        self.order += 1;
        self.events.insert((self.now + delay, self.order), input);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send {
                socket,
                server,
                bytes,
            } => self.on_send(socket, server, &bytes),
            Output::Shut(socket) => {
                let was_open = self.sockets.remove(&socket).is_some();
                assert!(was_open, "a socket is shut that is not open");
            }
            Output::Connect { stream, server } => self.on_connect(stream, server),
            Output::Write(stream, bytes) => self.on_write(stream, &bytes),
            Output::Close(stream) => {
                let was_open = self.streams.remove(&stream).is_some();
                assert!(was_open, "a connection is closed that is not open");
            }
            Output::Answer { ticket, result } => {
                let waited = self.waiting.remove(&ticket);
                assert!(waited, "an answer for which nobody waits");
                self.answers.insert(ticket, result);
                self.answered.insert(ticket, self.now);
            }
        }
    }

    fn assert_not_on_the_way(&self, key: &Key) {
        let by_tcp = self.streams.values().filter_map(|other| other.key.as_ref());
        let mut all = self.sockets.values().chain(by_tcp);
        assert!(
            all.all(|other| other != key),
            "{key:?} is on the way twice at once"
        );
    }

    fn delay(&mut self, server: &Server) -> Duration {
        let jitter = u64::try_from(server.jitter.as_micros()).unwrap();
        server.delay + Duration::from_micros(self.rng.below(jitter + 1))
    }

    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.one_in(n)
    }

    fn on_send(&mut self, socket: Socket, to: SocketAddr, bytes: &[u8]) {
        assert!(self.used.insert(socket.0), "a socket is used twice");
        let message = Message::from_vec(bytes).unwrap();
        self.assert_not_on_the_way(&key(&message));
        self.sockets.insert(socket, key(&message));
        self.sockets_seen = self.sockets_seen.max(self.sockets.len());
        assert!(
            self.sockets.len() <= self.config.questions_max,
            "too many sockets"
        );
        let sent = Sent {
            at: self.now,
            server: to,
            by_tcp: false,
            message,
        };
        self.sent.push(sent.clone());
        if let Some((from, bytes)) = self.forger.and_then(|forger| forger(&mut self.rng, &sent)) {
            let bytes = Bytes::from(bytes);
            self.later(
                MILLI,
                Input::Datagram {
                    socket,
                    from,
                    bytes,
                },
            );
        }
        let server = self.servers[&to].clone();
        let delay = self.delay(&server);
        if server.unreachable {
            self.later(delay, Input::Unreachable(socket));
        }
        if server.unreachable || server.silent || self.one_in(server.lost) {
            return;
        }
        let bytes = Bytes::from(server.reply(&self.zone, &sent.message, false));
        let times = if self.one_in(server.doubled) { 2 } else { 1 };
        for _ in 0..times {
            let delay = self.delay(&server);
            let bytes = bytes.clone();
            self.later(
                delay,
                Input::Datagram {
                    socket,
                    from: to,
                    bytes,
                },
            );
        }
    }

    fn on_connect(&mut self, stream: Stream, to: SocketAddr) {
        assert!(self.used.insert(stream.0), "a connection is used twice");
        let connection = Connection {
            server: to,
            key: None,
        };
        self.streams.insert(stream, connection);
        self.streams_seen = self.streams_seen.max(self.streams.len());
        assert!(
            self.streams.len() <= self.config.streams_max,
            "too many connections"
        );
        let server = self.servers[&to].clone();
        let delay = self.delay(&server);
        if server.tcp == Tcp::Refuses || server.unreachable {
            self.later(delay, Input::Closed(stream));
        } else if !server.silent {
            self.later(delay, Input::Connected(stream));
        }
    }

    fn on_write(&mut self, stream: Stream, bytes: &[u8]) {
        let (length, bytes) = bytes.split_at(2);
        assert_eq!(
            usize::from(u16::from_be_bytes([length[0], length[1]])),
            bytes.len()
        );
        let message = Message::from_vec(bytes).unwrap();
        self.assert_not_on_the_way(&key(&message));
        let connection = self.streams.get_mut(&stream).unwrap();
        connection.key = Some(key(&message));
        let to = connection.server;
        self.sent.push(Sent {
            at: self.now,
            server: to,
            by_tcp: true,
            message: message.clone(),
        });
        let server = self.servers[&to].clone();
        let reply = server.reply(&self.zone, &message, true);
        let length = u16::try_from(reply.len()).unwrap().to_be_bytes();
        let reply = Bytes::from([&length[..], &reply].concat());
        let delay = self.delay(&server);
        match server.tcp {
            Tcp::Works => self.later(delay, Input::Bytes(stream, reply)),
            Tcp::Trickles => {
                for at in 0..reply.len() {
                    self.later(delay, Input::Bytes(stream, reply.slice(at..=at)));
                }
            }
            Tcp::Ends => {
                let half = reply.slice(..reply.len() / 2);
                self.later(delay, Input::Bytes(stream, half));
                self.later(delay, Input::Closed(stream));
            }
            Tcp::Silent | Tcp::Refuses => {}
        }
    }
}

impl Server {
    fn reply(&self, zone: &Zone, asked: &Message, by_tcp: bool) -> Vec<u8> {
        let mut answer = zone.answer(asked, self.hops);
        answer.metadata.authentic_data = self.authentic && asked.metadata.authentic_data;
        let code = match self.code {
            _ if asked.edns.is_some() && !self.edns => Some(ResponseCode::FormErr),
            code => code,
        };
        if let Some(code) = code {
            let question = answer.queries.clone();
            answer = Message::error_msg(asked.id, answer.metadata.op_code, code);
            answer.add_queries(question);
        }
        if !self.keeps_case {
            for query in &mut answer.queries {
                query.name = query.name.to_lowercase();
            }
        }
        if let Some(twist) = self.twist {
            twist(&mut answer);
        }
        let mut bytes = answer.to_vec().unwrap();
        if !by_tcp && bytes.len() > usize::from(asked.max_payload()) {
            bytes = answer.truncate().to_vec().unwrap();
        }
        if let Some(raw) = self.raw {
            raw(&mut bytes);
        }
        bytes
    }
}
