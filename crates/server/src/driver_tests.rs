//! A toy session on real sockets: what the driver owes to every session.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use whimbrel_frontend::session::Peer;
use whimbrel_service::{
    api::{Asker, Authenticate, BlobName, BlobRange, Event},
    machine::{Input, Now},
};
use whimbrel_storage::memory::MemoryStore;

use super::*;
use crate::{
    config::Config,
    listen::{Listener, MakeSession, Pools, bind},
    registry::Registry,
    router::{Inboxes, Question},
    tls::{Certificates, provider},
};

/// Understands lines: `STARTTLS`, `BIG n`, `CALL`, `STORE`, `READ n`, `TURN`, `DONE`, `YIELD`, `WAIT`, `QUIT`; answers with the line. Keeps what it heard.
struct Toy {
    heard: Arc<Mutex<Vec<String>>>,
    input: Vec<u8>,
    actions: std::collections::VecDeque<Action>,
    /// Bytes still to be sent, made when polled for.
    big: usize,
    /// As many when the answer has come.
    then: usize,
    wants: bool,
    deadline: Option<u64>,
}

impl Toy {
    fn line(&mut self, now: Now, line: &str) {
        self.heard.lock().unwrap().push(line.to_owned());
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["STARTTLS"] => {
                self.send("go ahead\r\n");
                self.actions.push_back(Action::StartTls);
            }
            ["BIG", n] => self.big = n.parse().unwrap(),
            ["CALL"] => {
                self.send("asking\r\n");
                self.actions.push_back(Action::Call(Call::Resolve {
                    local: "anne".to_owned(),
                    domain: None,
                    asker: Asker::Front,
                }));
            }
            ["LOGIN"] => self
                .actions
                .push_back(Action::Call(Call::Authenticate(Authenticate {
                    login: "anne".to_owned(),
                    password: zeroize::Zeroizing::new(b"secret".to_vec()),
                    peer: IpAddr::from([127, 0, 0, 1]),
                }))),
            ["LOGOUT"] => {
                self.actions.push_back(Action::LoggedOut);
                self.send("out\r\n");
            }
            ["READ", n] => {
                self.then = n.parse().unwrap();
                self.actions
                    .push_back(Action::Call(Call::BlobReadMany(vec![BlobRange {
                        blob: BlobName {
                            upload: [0; 16],
                            hash: [0; 32],
                        },
                        offset: 0,
                        len: 1,
                    }])));
            }
            ["TURN"] => self.actions.push_back(Action::Call(Call::TurnBegin)),
            ["DONE"] => self.actions.push_back(Action::Call(Call::TurnEnd)),
            ["YIELD"] => {
                self.actions.push_back(Action::Yield);
                self.send("went on\r\n");
            }
            ["STORE"] => self.actions.push_back(Action::Call(Call::BlobCreate(None))),
            ["STOP"] => self.wants = false,
            ["WAIT"] => self.deadline = Some(now.mono_micros + 1_000),
            ["QUIT"] => {
                self.send("bye\r\n");
                self.actions.push_back(Action::Close);
            }
            _ => self.send(&format!("{line}\r\n")),
        }
    }

    fn send(&mut self, text: &str) {
        self.actions
            .push_back(Action::Send(text.as_bytes().to_vec()));
    }
}

impl Session for Toy {
    fn on_bytes(&mut self, now: Now, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") {
            let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
            self.input.drain(..end + 2);
            self.line(now, &line);
            if line == "STARTTLS" {
                return;
            }
        }
    }

    fn on_eof(&mut self, _: Now) {
        self.heard.lock().unwrap().push("<eof>".to_owned());
        self.actions.push_back(Action::Close);
    }

    fn on_reply(&mut self, _: Now, reply: Reply) {
        let then = std::mem::take(&mut self.then);
        if then > 0 {
            self.big = then;
            return;
        }
        self.send(
            &format!("{reply:?}\r\n")
                .split('(')
                .next()
                .unwrap()
                .replace("\r\n", "")
                .to_string(),
        );
        self.send("\r\n");
    }

    fn on_event(&mut self, _: Now, event: Event) {
        self.send(&format!("{event:?}\r\n"));
        if event == Event::Shutdown {
            self.actions.push_back(Action::Close);
        }
    }

    fn on_tls(&mut self, _: Now, tls: Tls) {
        // What any session owes: nothing heard before counts.
        self.input.clear();
        self.heard
            .lock()
            .unwrap()
            .push(format!("<{}>", tls.version));
    }

    fn on_time(&mut self, _: Now) {
        self.deadline = None;
        self.send("time\r\n");
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    fn wants_input(&self) -> bool {
        self.wants
    }

    fn shed(&mut self) {
        self.heard.lock().unwrap().push("<shed>".to_owned());
    }

    fn poll(&mut self, _: Now) -> Option<Action> {
        if self.big > 0 {
            let chunk = self.big.min(8 * 1024);
            self.big -= chunk;
            return Some(Action::Send(vec![b'x'; chunk]));
        }
        self.actions.pop_front()
    }
}

/// Waits for what takes milliseconds; a hang is a failure.
async fn until(what: &str, mut there: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let waiting = async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
        "waited too long for {what}"
    );
}

struct World {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    registry: Arc<Registry>,
    /// What reached the owners.
    inboxes: Inboxes,
    store: MemoryStore,
    certificates: Certificates,
    _directory: tempfile::TempDir,
}

async fn world(tls: bool, text: &str) -> World {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::parse(text).unwrap();
    config.server.data_dir = directory.path().to_owned();
    let certificates = Certificates::open(&config).unwrap();
    let (board, inboxes) = Router::new(1);
    let registry = Registry::new(config.limits.connections_per_account_max);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let store = MemoryStore::new();
    let make: MakeSession = {
        let heard = Arc::clone(&heard);
        Arc::new(move |peer: Peer| {
            heard.lock().unwrap().push(format!(
                "<new, {}>",
                peer.tls.map_or("clear", |tls| tls.version)
            ));
            let mut toy = Toy {
                heard: Arc::clone(&heard),
                input: Vec::new(),
                actions: Default::default(),
                big: 0,
                then: 0,
                wants: true,
                deadline: None,
            };
            toy.send("hello\r\n");
            Box::new(toy)
        })
    };
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let context = Arc::new(Context {
        clock: Clock::start(),
        board,
        store: store.clone(),
        fatal: Arc::new(|reason| panic!("{reason}")),
        tls: certificates.server_config().unwrap(),
        shown: certificates.served(),
        handshakes: Handshakes::new(&config.tls),
        write_timeout: config.limits.write_timeout,
        uploads_max: config.limits.uploads_max,
        turns: Arc::new(Semaphore::new(config.imap.sorts_at_once_max)),
        answers: Answers::new(config.limits.answers_bytes_max.bytes()),
        finished_max: config.imap.append_messages_max,
        resume: Arc::new(|_, _, _| None),
        relays: None,
    });
    let listener = Listener {
        protocol: Protocol::Imap,
        tls,
        socket: Arc::new(socket),
        make,
        places: Pools::new(&config.limits, config.limits.connections_max).users,
        registry: Arc::clone(&registry),
        context,
    };
    tokio::spawn(listener.run());
    World {
        address,
        heard,
        registry,
        inboxes,
        store,
        certificates,
        _directory: directory,
    }
}

impl World {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn tls(
        &self,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for cert in rustls_pki_types_of(self.certificates.path()) {
            roots.add(cert).unwrap();
        }
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
            .connect("localhost".try_into().unwrap(), stream)
            .await
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Until all connections have ended.
    async fn ended(&self) {
        until("the end", || self.registry.is_empty()).await;
    }
}

fn rustls_pki_types_of(path: &std::path::Path) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::pem_file_iter(path)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// An idle connection costs its task, its session, TLS's own state, and no buffer of ours: 16 KiB in all, measured on a running server.
/// What a test can hold is the task, so that no buffer slips into its future.
#[tokio::test]
async fn the_task_of_a_connection_is_small() {
    let world = world(true, "").await;
    let stream = world.connect().await;
    let (registry, places) = (
        Registry::new(1),
        Pools::new(&Config::default().limits, 1).users,
    );
    let (board, _inboxes) = Router::new(1);
    let context = Arc::new(Context {
        clock: Clock::start(),
        board,
        store: world.store.clone(),
        fatal: Arc::new(|_| {}),
        tls: world.certificates.server_config().unwrap(),
        shown: world.certificates.served(),
        handshakes: Handshakes::new(&Config::default().tls),
        write_timeout: Duration::from_secs(1),
        uploads_max: 1,
        turns: Arc::new(Semaphore::new(1)),
        answers: Answers::new(0),
        finished_max: 1,
        resume: Arc::new(|_, _, _| None),
        relays: None,
    });
    let toy = Toy {
        heard: Arc::default(),
        input: Vec::new(),
        actions: Default::default(),
        big: 0,
        then: 0,
        wants: true,
        deadline: None,
    };
    let connection = Connection {
        address: IpAddr::from([127, 0, 0, 1]),
        session: Box::new(toy),
        protocol: Protocol::Imap,
        registered: registry.enter(),
        place: places.enter(IpAddr::from([127, 0, 0, 1]), true).unwrap(),
        context,
        open: crate::metrics::open("imap", crate::metrics::Stage::Unauthenticated),
    };
    let bytes = std::mem::size_of_val(&connection.run(Transport::Clear(stream)));
    assert!(bytes <= 4096, "{bytes}");
}

async fn expect(stream: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) {
    let mut read = vec![0; text.len()];
    // A hang is a failure.
    let whole = tokio::time::timeout(Duration::from_secs(60), stream.read_exact(&mut read)).await;
    assert!(matches!(whole, Ok(Ok(_))), "{text:?} did not come");
    assert_eq!(String::from_utf8_lossy(&read), text);
}

#[tokio::test]
async fn lines_go_there_and_back_in_clear_and_in_tls() {
    let clear = world(false, "").await;
    let mut stream = clear.connect().await;
    expect(&mut stream, "hello\r\n").await;
    stream.write_all(b"one\r\ntwo\r\nWAIT\r\n").await.unwrap();
    expect(&mut stream, "one\r\ntwo\r\ntime\r\n").await;
    stream.write_all(b"QUIT\r\n").await.unwrap();
    expect(&mut stream, "bye\r\n").await;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    drop(stream);
    clear.ended().await;

    let secret = world(true, "").await;
    let mut stream = secret.tls(secret.connect().await).await.unwrap();
    expect(&mut stream, "hello\r\n").await;
    stream.write_all(b"BIG 200000\r\nQUIT\r\n").await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 200_000 + "bye\r\n".len());
    assert_eq!(secret.heard(), ["<new, TLSv1.3>", "BIG 200000", "QUIT"]);
    secret.ended().await;
}

#[tokio::test]
async fn starttls_goes_on_in_tls() {
    let world = world(false, "").await;
    let mut stream = world.connect().await;
    expect(&mut stream, "hello\r\n").await;
    stream.write_all(b"STARTTLS\r\n").await.unwrap();
    expect(&mut stream, "go ahead\r\n").await;
    let mut stream = world.tls(stream).await.unwrap();
    stream.write_all(b"inside\r\n").await.unwrap();
    expect(&mut stream, "inside\r\n").await;
    // Cut without a closing alert: an end like any other to the session.
    drop(stream);
    world.ended().await;
    assert_eq!(
        world.heard(),
        ["<new, clear>", "STARTTLS", "<TLSv1.3>", "inside", "<eof>"]
    );
}

/// RFC 3207, 4.2 and the "nostarttls" study: a command injected behind STARTTLS must not count as sent inside TLS.
#[tokio::test]
async fn what_is_pipelined_behind_starttls_never_comes_out_of_tls() {
    // In one packet with STARTTLS: the session has it, and drops it.
    let one = world(false, "").await;
    let mut stream = one.connect().await;
    expect(&mut stream, "hello\r\n").await;
    stream.write_all(b"STARTTLS\r\nevil\r\n").await.unwrap();
    expect(&mut stream, "go ahead\r\n").await;
    let mut stream = one.tls(stream).await.unwrap();
    stream.write_all(b"inside\r\n").await.unwrap();
    expect(&mut stream, "inside\r\n").await;
    drop(stream);
    one.ended().await;
    assert_eq!(
        one.heard(),
        ["<new, clear>", "STARTTLS", "<TLSv1.3>", "inside", "<eof>"]
    );

    // After it, before the handshake: it is not a handshake.
    let two = world(false, "").await;
    let mut stream = two.connect().await;
    expect(&mut stream, "hello\r\n").await;
    stream.write_all(b"STARTTLS\r\n").await.unwrap();
    expect(&mut stream, "go ahead\r\n").await;
    stream.write_all(b"evil\r\n").await.unwrap();
    assert!(two.tls(stream).await.is_err());
    two.ended().await;
    assert_eq!(two.heard(), ["<new, clear>", "STARTTLS"]);
}

#[tokio::test]
async fn a_handshake_that_does_not_come_is_not_waited_for() {
    let world = world(true, "[tls]\nhandshake_timeout = '1s'\nhandshakes_max = 1").await;
    // Two clients that say nothing are cut.
    let (mut one, mut two) = (world.connect().await, world.connect().await);
    assert_eq!(one.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(two.read(&mut [0; 1]).await.unwrap_or(0), 0);
    world.ended().await;
    assert!(world.heard().is_empty(), "no session before the handshake");
}

/// One place each for handshakes of one address, and of all of eight.
#[tokio::test]
async fn who_does_not_go_on_with_a_handshake_keeps_nobody_from_it() {
    let world = world(true, "[tls]\nhandshake_timeout = '5m'\nhandshakes_max = 8").await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(world.connect().await);
    }
    let patience = Duration::from_secs(60);
    let quick = tokio::time::timeout(patience, world.tls(world.connect().await));
    let quick = quick.await.expect("who says nothing holds no place");
    drop(quick.unwrap());
    // The first byte of a handshake, and no more: places of that address are taken.
    for stream in &mut held {
        stream.write_all(&[22]).await.unwrap();
    }
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let elsewhere = socket.connect(world.address).await.unwrap();
    let other = tokio::time::timeout(patience, world.tls(elsewhere)).await;
    let other = other.expect("one address holds no more than its share");
    drop(other.unwrap());
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_and_costs_no_more_than_buffers() {
    for tls in [false, true] {
        let world = world(tls, "[limits]\nwrite_timeout = '1s'").await;
        let stream = world.connect().await;
        // A gigabyte is asked for; the session makes it chunk by chunk as the socket takes it.
        if tls {
            let mut stream = world.tls(stream).await.unwrap();
            stream.write_all(b"BIG 1000000000\r\n").await.unwrap();
            world.ended().await;
        } else {
            let mut stream = stream;
            stream.write_all(b"BIG 1000000000\r\n").await.unwrap();
            world.ended().await;
        }
    }
}

#[tokio::test]
async fn bytes_that_are_not_wanted_stay_in_the_socket() {
    let world = world(false, "").await;
    let mut stream = world.connect().await;
    stream.write_all(b"STOP\r\n").await.unwrap();
    expect(&mut stream, "hello\r\n").await;
    until("STOP", || world.heard().len() == 2).await;
    stream.write_all(b"later\r\n").await.unwrap();
    // Events are heard meanwhile; so many that a driver which reads too would have read by then.
    for _ in 0..20 {
        world
            .registry
            .notify(whimbrel_service::api::SessionId(1), Event::Changed);
        expect(&mut stream, "Changed\r\n").await;
    }
    assert_eq!(world.heard(), ["<new, clear>", "STOP"]);
}

#[tokio::test]
async fn calls_are_carried_and_the_owner_learns_of_the_end() {
    let mut world = world(false, "").await;
    let mut stream = world.connect().await;
    stream.write_all(b"CALL\r\n").await.unwrap();
    // What was sent before the call does not wait for its answer for ever.
    expect(&mut stream, "hello\r\nasking\r\n").await;
    let Some(Question::Call(Call::Resolve { .. }, reply, work)) =
        world.inboxes.directory.questions.recv().await
    else {
        panic!("not asked")
    };
    reply.send(Reply::Done).unwrap();
    drop(work);
    expect(&mut stream, "Done\r\n").await;
    stream.write_all(b"STORE\r\n").await.unwrap();
    expect(&mut stream, "Upload\r\n").await;
    // The upload is open: its place is taken until the connection ends.
    world
        .store
        .with(|memory| assert!(memory.blob_list(None, 10).is_empty()));

    // The machine is gone: nothing is said any more.
    stream.write_all(b"CALL\r\n").await.unwrap();
    expect(&mut stream, "asking\r\n").await;
    world.inboxes.directory.questions.close();
    drop(world.inboxes.directory.questions.recv().await);
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    world.ended().await;
    assert!(
        world.inboxes.owners[0].inputs.try_recv().is_err(),
        "it asked no owner anything"
    );
}

#[tokio::test]
async fn turns_come_one_after_another() {
    let world = world(false, "[imap]\nsorts_at_once_max = 1").await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = world.connect().await;
        expect(&mut stream, "hello\r\n").await;
        streams.push(stream);
    }
    let [first, second, third] = &mut streams[..] else {
        unreachable!("there are three")
    };
    first.write_all(b"TURN\r\n").await.unwrap();
    expect(first, "Done\r\n").await;
    second.write_all(b"TURN\r\n").await.unwrap();
    let turns = || world.heard().iter().filter(|line| *line == "TURN").count();
    until("the second asks", || turns() == 2).await;
    // Who has a turn goes on; who waits is told nothing.
    first.write_all(b"YIELD\r\n").await.unwrap();
    expect(first, "went on\r\n").await;
    let silent = |stream: &TcpStream| {
        let read = stream.try_read(&mut [0; 8]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    assert!(silent(second));
    first.write_all(b"DONE\r\n").await.unwrap();
    expect(first, "Done\r\n").await;
    expect(second, "Done\r\n").await;
    third.write_all(b"TURN\r\n").await.unwrap();
    until("the third asks", || turns() == 3).await;
    assert!(silent(third));
    // A connection that ends gives its turn back.
    drop(streams.remove(1));
    expect(&mut streams[1], "Done\r\n").await;
    drop(streams);
    world.ended().await;
}

/// One share of the memory for answers: who does not read what it asked for gives it to those who do.
#[tokio::test]
async fn who_does_not_read_holds_nobody_up() {
    let world = world(
        false,
        "[limits]\nanswers_bytes_max = '512KiB'\nwrite_timeout = '1h'",
    )
    .await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let mut stream = world.connect().await;
        expect(&mut stream, "hello\r\n").await;
        stream.write_all(b"READ 1000000000\r\n").await.unwrap();
        stuck.push(stream);
    }
    let asked = || {
        let heard = world.heard();
        heard.iter().filter(|line| line.starts_with("READ")).count()
    };
    until("all to ask", || asked() == stuck.len()).await;
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut stream = world.connect().await;
        reading.spawn(async move {
            expect(&mut stream, "hello\r\n").await;
            for _ in 0..3 {
                stream.write_all(b"READ 200000\r\n").await.unwrap();
                expect(&mut stream, &"x".repeat(200_000)).await;
            }
        });
    }
    reading.join_all().await;
    // Those who do not read have given up what they had read, and were not cut.
    assert!(world.heard().iter().any(|line| line == "<shed>"));
    until("those who read to go", || {
        world.registry.len() == stuck.len()
    })
    .await;
}

#[tokio::test]
async fn an_account_has_so_many_connections() {
    let mut world = world(false, "[limits]\nconnections_per_account_max = 1").await;
    let account = AccountId([1; 16]);
    let mut streams = Vec::new();
    for expected in [
        "hello\r\nAuthenticated",
        "hello\r\nFailed",
        "hello\r\nAuthenticated",
    ] {
        let mut stream = world.connect().await;
        stream.write_all(b"LOGIN\r\n").await.unwrap();
        let Some(Question::Call(Call::Authenticate(_), reply, _)) =
            world.inboxes.directory.questions.recv().await
        else {
            panic!("not asked")
        };
        reply
            .send(Reply::Authenticated {
                account,
                login: "anne@example.org".to_owned(),
            })
            .unwrap();
        expect(&mut stream, expected).await;
        if streams.len() == 1 {
            // The first one gives up its login, not its connection.
            let first: &mut TcpStream = &mut streams[0];
            first.write_all(b"LOGOUT\r\n").await.unwrap();
            let mut told = Vec::new();
            while !told.ends_with(b"\r\nout\r\n") {
                told.push(first.read_u8().await.unwrap());
            }
        }
        streams.push(stream);
    }
}

#[tokio::test]
async fn who_finds_no_place_is_told() {
    let world = world(
        false,
        "[limits]\nconnections_max = 10\nconnections_per_address_max = 2\nunauthenticated_max = 10",
    )
    .await;
    let mut held = vec![world.connect().await, world.connect().await];
    for stream in &mut held {
        expect(stream, "hello\r\n").await;
    }
    let mut third = world.connect().await;
    expect(&mut third, "* BYE [UNAVAILABLE] Too many").await;
    // A place that is given up can be taken.
    drop(held.pop());
    until("one to go", || world.registry.len() == 1).await;
    // The place goes a moment after the session's name.
    loop {
        let mut stream = world.connect().await;
        let mut first = [0; 1];
        if stream.read_exact(&mut first).await.is_ok() && first[0] == b'h' {
            break;
        }
    }
}

#[tokio::test]
async fn a_stopping_server_tells_its_sessions() {
    let world = world(false, "").await;
    let mut stream = world.connect().await;
    expect(&mut stream, "hello\r\n").await;
    world.registry.shutdown();
    expect(&mut stream, "Shutdown\r\n").await;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    drop(stream);
    world.ended().await;
}

/// What a session that is gone has asked for last comes before its end: it may be a SELECT that waits.
#[tokio::test]
async fn the_owner_of_a_session_that_is_gone_is_told() {
    for asks in [false, true] {
        let (board, mut inboxes) = Router::new(1);
        let (reply, answer) = oneshot::channel();
        let watching = Watching {
            account: Some(AccountId([1; 16])),
            answer: asks.then_some(answer),
            session: whimbrel_service::api::SessionId(5),
            board: Arc::clone(&board),
        };
        drop(watching);
        let inputs = &mut inboxes.owners[0].inputs;
        if asks {
            tokio::task::yield_now().await;
            assert!(inputs.try_recv().is_err(), "it is not answered");
            drop(reply.send(Reply::Done));
            tokio::task::yield_now().await;
        }
        let told = inputs.try_recv().unwrap().0;
        let session = whimbrel_service::api::SessionId(5);
        assert!(matches!(told, Input::Hangup(of) if of == session));
    }
}
