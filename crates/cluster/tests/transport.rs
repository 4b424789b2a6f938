//! Nodes on sockets of loopback: joining, linking, strangers, doubles, restarts.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use whimbrel_cluster::{
    Authority, Clock, Credentials, Event, FEATURE_LZ4, Handle, Lanes, LinkId, MemberRequest,
    NodeName, Peer, PeerIdentity, Refused, Token, Tokens, Transport, ask, ask_member, handshake,
};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    Now,
    blobs::{FEATURE_CONFIRM, FEATURE_PUSH},
    link::Agreed,
    wire::{BlobChunk, BlobName, FEATURE_HOLDERS, Frame, Handshake},
};

/// Longer than anything here takes on the slowest machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn clock() -> Clock {
    let started = Instant::now();
    Arc::new(move || Now {
        wall_micros: 0,
        mono_micros: started.elapsed().as_micros() as u64,
    })
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn copy(authority: &Authority) -> Authority {
    Authority::from_pem(
        authority.cluster(),
        authority.certificate_pem(),
        &authority.key_pem(),
    )
    .unwrap()
}

/// A node that listens.
struct Node {
    transport: Arc<Transport>,
    address: SocketAddr,
    events: mpsc::Receiver<Event>,
    asked: mpsc::Receiver<MemberRequest>,
    strangers: mpsc::Receiver<MemberRequest>,
    listening: JoinHandle<()>,
}

impl Node {
    async fn start(authority: &Authority, credentials: &Credentials, id: u64) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Node::start_on(authority, credentials, id, listener)
    }

    fn start_on(
        authority: &Authority,
        credentials: &Credentials,
        id: u64,
        listener: TcpListener,
    ) -> Node {
        let ours = handshake(credentials, Incarnation::new(id).unwrap());
        Node::start_as(authority, credentials, ours, listener)
    }

    /// A node of another version has another handshake.
    fn start_as(
        authority: &Authority,
        credentials: &Credentials,
        ours: Handshake,
        listener: TcpListener,
    ) -> Node {
        let (to_events, events) = mpsc::channel(16);
        let (members, asked) = mpsc::channel(1);
        let (to_strangers, strangers) = mpsc::channel(1);
        let lanes = Lanes {
            members,
            strangers: to_strangers,
        };
        let transport = Transport::new(credentials, copy(authority), clock(), to_events, lanes);
        let transport = Arc::new(transport.unwrap());
        transport.begin(ours);
        let address = listener.local_addr().unwrap();
        let listening = tokio::spawn({
            let transport = Arc::clone(&transport);
            async move { transport.listen(listener).await }
        });
        Node {
            transport,
            address,
            events,
            asked,
            strangers,
            listening,
        }
    }

    fn dial(&self, peer: &str, at: &Node) {
        self.transport.dial(vec![Peer {
            name: name(peer),
            address: at.address.to_string(),
        }]);
    }

    async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv())
            .await
            .unwrap()
            .unwrap()
    }

    async fn up(&mut self) -> (LinkId, Agreed, Handle) {
        let (link, agreed, handle, _) = self.up_with_frames().await;
        (link, agreed, handle)
    }

    async fn up_with_frames(&mut self) -> (LinkId, Agreed, Handle, mpsc::Receiver<Frame>) {
        match self.event().await {
            Event::Up {
                link,
                agreed,
                handle,
                frames,
            } => (link, agreed, handle, frames),
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        self.listening.abort();
        // The task owns the transport.
        let _ = self.listening.await;
    }
}

fn body(bytes: usize) -> Frame {
    Frame::BlobChunk(BlobChunk {
        name: BlobName([0; 48]),
        offset: 9,
        data: Bytes::from(vec![b'm'; bytes]),
    })
}

/// A token that names this member.
fn token_of(authority: &Authority, member: &Node, id: u8) -> Token {
    Token {
        address: member.address.to_string(),
        sponsor: "a".into(),
        fingerprint: authority.fingerprint(),
        id: id.into(),
        secret: [id; 32],
    }
}

async fn pair() -> (Authority, Node, Node) {
    let authority = Authority::found([7; 16]).unwrap();
    let a = authority.certify(&name("a")).unwrap();
    let b = authority.certify(&name("b")).unwrap();
    let a = Node::start(&authority, &a, 1).await;
    let b = Node::start(&authority, &b, 2).await;
    (authority, a, b)
}

#[tokio::test]
async fn frames_go_both_ways() {
    let (_authority, mut a, mut b) = pair().await;
    // The node with the greater name may dial alone: it may be unreachable for the other one.
    b.dial("a", &a);
    let (at_a, agreed, to_b, mut from_b) = a.up_with_frames().await;
    assert_eq!(
        (agreed.name.as_str(), agreed.features),
        (
            "b",
            FEATURE_LZ4 | FEATURE_PUSH | FEATURE_CONFIRM | FEATURE_HOLDERS
        )
    );
    let (at_b, agreed, to_a, mut from_a) = b.up_with_frames().await;
    assert_eq!(agreed.incarnation, Incarnation::new(1).unwrap());
    let (there, back) = (body(5_000_000), body(10));
    to_b.offer(&there).unwrap();
    to_a.offer(&back).unwrap();
    assert!(from_a.recv().await == Some(there));
    assert!(from_b.recv().await == Some(back));
    let linked = &a.transport.links()[0];
    assert_eq!((linked.name.as_str(), linked.wire), ("b", 2));
    // Compressed.
    assert!((1..1_000_000).contains(&linked.sent), "{linked:?}");

    to_b.close();
    assert!(matches!(b.event().await, Event::Down { link } if link == at_b));
    assert!(matches!(a.event().await, Event::Down { link } if link == at_a));
    assert_eq!((from_a.recv().await, from_b.recv().await), (None, None));
}

/// A later version, which also speaks this one, and has other features: both speak what they have in common, and nothing is compressed for a node
/// that cannot read it.
#[tokio::test]
async fn nodes_of_different_versions_speak_what_both_can() {
    const TO_COME: u64 = 1 << 40;
    let authority = Authority::found([7; 16]).unwrap();
    let start = async |named: &str, id: u64, wire: (u16, u16), features: u64| {
        let credentials = authority.certify(&name(named)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = Handshake {
            wire_min: wire.0,
            wire_max: wire.1,
            features,
            ..handshake(&credentials, Incarnation::new(id).unwrap())
        };
        Node::start_as(&authority, &credentials, ours, listener)
    };
    let credentials = authority.certify(&name("a")).unwrap();
    for (wire, lz4, dials) in [
        ((2, 3), 0, true),
        ((2, 3), FEATURE_LZ4, false),
        ((1, 2), 0, false),
    ] {
        let mut a = Node::start(&authority, &credentials, 1).await;
        let has = FEATURE_PUSH | FEATURE_HOLDERS;
        let mut b = start("b", 2, wire, has | lz4 | TO_COME).await;
        match dials {
            true => b.dial("a", &a),
            false => a.dial("b", &b),
        }
        let (_, at_a, to_b, mut from_b) = a.up_with_frames().await;
        let (_, at_b, to_a, mut from_a) = b.up_with_frames().await;
        for agreed in [at_a, at_b] {
            assert_eq!((agreed.wire, agreed.features), (2, has | lz4));
        }
        let frame = body(1_000_000);
        to_b.offer(&frame).unwrap();
        to_a.offer(&frame).unwrap();
        for from in [&mut from_a, &mut from_b] {
            let heard = timeout(PATIENCE, from.recv()).await.unwrap();
            assert!(heard.as_ref() == Some(&frame));
        }
        for node in [&a, &b] {
            let linked = &node.transport.links()[0];
            assert_eq!((linked.wire, linked.features), (2, has | lz4));
            assert_eq!(linked.sent < 1_000_000, lz4 != 0, "{linked:?}");
        }
    }

    // With a node that speaks none of our versions there is no link, and the log says so once.
    let logged = Logged::default();
    let _guard = logged.listen();
    let mut a = Node::start(&authority, &credentials, 1).await;
    let far = start("b", 2, (3, 4), FEATURE_LZ4).await;
    a.dial("b", &far);
    logged.says_once("versions 3 to 4").await;
    assert!(a.events.try_recv().is_err());
    assert!(a.transport.links().is_empty() && far.transport.links().is_empty());
}

#[tokio::test]
async fn one_peer_that_is_not_listened_to_holds_up_no_other() {
    let (authority, mut a, b) = pair().await;
    let credentials = authority.certify(&name("c")).unwrap();
    let c = Node::start(&authority, &credentials, 3).await;
    let mut ends = Vec::new();
    for mut node in [b, c] {
        node.dial("a", &a);
        let (_, agreed, _, frames) = a.up_with_frames().await;
        let (_, _, to_a) = node.up().await;
        ends.push((agreed.name, frames, to_a, node));
    }
    let (_, _unheard, to_a, _b) = &mut ends[0];
    // More than the buffers hold: the last frames wait in sockets.
    for _ in 0..50 {
        to_a.push(&body(100_000));
    }
    let (_, frames, to_a, _c) = &mut ends[1];
    for bytes in 0..50 {
        to_a.push(&body(bytes));
        let heard = timeout(PATIENCE, frames.recv()).await.unwrap();
        assert!(heard == Some(body(bytes)));
    }
}

#[tokio::test]
async fn members_ask_each_other_before_they_are_linked() {
    let (authority, mut a, b) = pair().await;
    let credentials = authority.certify(&name("c")).unwrap();
    let address = a.address.to_string();
    let asking = {
        let (address, asks) = (address.clone(), authority.certify(&name("c")).unwrap());
        tokio::spawn(async move { ask_member(&asks, &name("a"), &address, b"who".to_vec()).await })
    };
    let asked = timeout(PATIENCE, a.asked.recv()).await.unwrap().unwrap();
    let MemberRequest {
        shown,
        name: of,
        detail,
        answer,
        ..
    } = asked;
    assert_eq!(
        (shown, of.as_str(), &detail[..]),
        (PeerIdentity::Certificate, "c", &b"who"[..])
    );
    answer.send(Ok(b"all".to_vec())).unwrap();
    assert_eq!(
        timeout(PATIENCE, asking).await.unwrap().unwrap().unwrap(),
        b"all"
    );

    // Nobody answers under another name, or to another's certificate.
    let error = ask_member(&credentials, &name("b"), &address, Vec::new()).await;
    assert!(error.is_err());
    let stranger = Authority::found([7; 16]).unwrap();
    let stranger = stranger.certify(&name("c")).unwrap();
    assert!(
        ask_member(&stranger, &name("a"), &address, Vec::new())
            .await
            .is_err()
    );
    assert!(a.asked.try_recv().is_err());
    drop(b);
}

#[tokio::test]
async fn a_node_that_has_not_begun_answers_and_is_not_linked() {
    let (authority, mut a, b) = pair().await;
    let credentials = authority.certify(&name("c")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (to_events, _events) = mpsc::channel(16);
    let (members, mut asked) = mpsc::channel(1);
    let lanes = Lanes {
        members,
        strangers: mpsc::channel(1).0,
    };
    let early = Transport::new(&credentials, copy(&authority), clock(), to_events, lanes);
    let early = Arc::new(early.unwrap());
    tokio::spawn({
        let early = Arc::clone(&early);
        async move { early.listen(listener).await }
    });
    let peer = Peer {
        name: name("c"),
        address: address.clone(),
    };
    a.transport.dial(vec![peer]);
    let asks = authority.certify(&name("b")).unwrap();
    let asking =
        tokio::spawn(async move { ask_member(&asks, &name("c"), &address, Vec::new()).await });
    let asked = timeout(PATIENCE, asked.recv()).await.unwrap().unwrap();
    asked.answer.send(Ok(Vec::new())).unwrap();
    assert!(timeout(PATIENCE, asking).await.unwrap().unwrap().is_ok());
    assert!(a.events.try_recv().is_err());
    early.begin(handshake(&credentials, Incarnation::new(3).unwrap()));
    assert_eq!(a.up().await.1.name, "c");
    drop(b);
}

#[tokio::test]
async fn two_that_dial_each_other_keep_one_link() {
    let (_authority, mut a, mut b) = pair().await;
    a.dial("b", &b);
    b.dial("a", &a);
    // A link that takes the place of another comes up before that one is down, and one that is refused is tried again: at the end one is up on both
    // sides, and stays for a while.
    let mut up: [BTreeSet<LinkId>; 2] = Default::default();
    let settle = async {
        loop {
            let (side, event) = tokio::select! {
                event = a.events.recv() => (0, event.unwrap()),
                event = b.events.recv() => (1, event.unwrap()),
                () = sleep(Duration::from_secs(3)) => {
                    match [up[0].len(), up[1].len()] {
                        [1, 1] => return,
                        _ => continue,
                    }
                }
            };
            let new = match event {
                Event::Up { link, .. } => up[side].insert(link),
                Event::Down { link } => up[side].remove(&link),
                other => panic!("{other:?}"),
            };
            assert!(new);
        }
    };
    let settled = timeout(PATIENCE, settle).await;
    assert!(settled.is_ok(), "{up:?}");
    assert_eq!(
        (a.transport.links().len(), b.transport.links().len()),
        (1, 1)
    );
}

/// A node that was removed while it was cut off dials, and another node has its name. Both are linked, so that the removed one can be told. A third
/// one is refused.
#[tokio::test]
async fn an_earlier_node_of_a_name_is_linked_too() {
    let (authority, mut a, mut b) = pair().await;
    b.dial("a", &a);
    let (_, agreed, _) = a.up().await;
    assert_eq!(agreed.incarnation, Incarnation::new(2).unwrap());
    let _ = b.up().await;
    let credentials = authority.certify(&name("b")).unwrap();
    let mut former = Node::start(&authority, &credentials, 3).await;
    former.dial("a", &a);
    let (link, agreed, to_former) = a.up().await;
    assert_eq!(agreed.incarnation, Incarnation::new(3).unwrap());
    let _ = former.up().await;
    assert_eq!(a.transport.links().len(), 2);
    let third = Node::start(&authority, &credentials, 4).await;
    third.dial("a", &a);
    assert!(
        timeout(Duration::from_secs(2), a.events.recv())
            .await
            .is_err()
    );
    to_former.close();
    assert!(matches!(a.event().await, Event::Down { link: over } if over == link));
    let links = a.transport.links();
    assert!(
        links.iter().any(|link| link.incarnation.get() == 2),
        "{links:?}"
    );
}

/// What is logged on this thread, from a level of `warn` on.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let to = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || to.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Exactly one line comes, with this reason, while the peer is dialed again and again.
    async fn says_once(&self, why: &str) {
        let said = timeout(PATIENCE, async {
            loop {
                let lines = self.lines();
                if !lines.is_empty() {
                    return lines;
                }
                sleep(Duration::from_millis(10)).await;
            }
        });
        let lines = said.await.unwrap();
        assert!(lines[0].contains(why), "{lines:?}");
        sleep(Duration::from_secs(2)).await;
        let more = [&lines[1..], &self.lines()].concat();
        assert_eq!(more, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_node_that_is_not_trusted_is_told_of_once() {
    let logged = Logged::default();
    let _guard = logged.listen();
    let (_authority, mut a, mut b) = pair().await;
    let other = Authority::found([8; 16]).unwrap();
    let credentials = other.certify(&name("c")).unwrap();
    let stranger = Node::start(&other, &credentials, 3).await;
    // The node dials, and is dialed.
    let said = async |by: &Node, peer: &str, at: &Node| {
        by.dial(peer, at);
        logged.says_once("does not trust").await;
    };
    said(&a, "c", &stranger).await;
    said(&stranger, "a", &a).await;
    // A peer that does not run is not reported, nor is one that is trusted.
    b.dial("a", &a);
    let _ = (a.up().await, b.up().await);
    assert_eq!(logged.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn strangers_are_not_heard() {
    let (authority, mut a, b) = pair().await;
    let check = async |authority: &Authority, node: &str, id: u64| {
        let credentials = authority.certify(&name(node)).unwrap();
        let mut stranger = Node::start(authority, &credentials, id).await;
        stranger.dial("a", &a);
        let heard = timeout(Duration::from_secs(2), stranger.events.recv()).await;
        assert!(heard.is_err(), "{heard:?}");
    };
    // Another authority, even of the same cluster's name.
    check(&Authority::found([8; 16]).unwrap(), "b", 2).await;
    check(&Authority::found([7; 16]).unwrap(), "b", 2).await;
    // The same node twice: a copied disk.
    check(&authority, "b", 1).await;
    assert!(a.events.try_recv().is_err());

    // No certificate at all.
    let token = token_of(&authority, &a, 1);
    let asking = tokio::spawn(async move { ask(&token, &name("c"), Vec::new()).await.map(|_| ()) });
    let asked = a.strangers.recv();
    let asked = timeout(PATIENCE, asked).await.unwrap().unwrap();
    let (id, secret) = (1, [1; 32]);
    assert_eq!(
        (asked.shown, asked.name.as_str()),
        (PeerIdentity::Token { id, secret }, "c")
    );
    asked
        .answer
        .send(Err(Refused("not\x1b[31m you".into())))
        .unwrap();
    let refused = timeout(PATIENCE, asking).await.unwrap().unwrap();
    assert_eq!(refused.unwrap_err().to_string(), "refused: not[31m you");
    assert!(a.events.try_recv().is_err());
    drop(b);
}

#[tokio::test]
async fn a_node_joins_by_a_token_and_is_linked() {
    let (authority, mut a, b) = pair().await;
    let mut tokens = Tokens::default();
    let token = token_of(&authority, &a, 5);
    tokens.give(0, &token, 100).unwrap();
    let text = token.to_text().to_string();
    let join = tokio::spawn(async move {
        let token = Token::from_text(&text).unwrap();
        ask(&token, &name("c"), b"region".to_vec()).await
    });
    let asked = a.strangers.recv();
    let asked = timeout(PATIENCE, asked).await.unwrap().unwrap();
    assert_eq!(asked.detail, b"region");
    let PeerIdentity::Token { id, secret } = &asked.shown else {
        panic!("{:?}", asked.shown)
    };
    tokens.take(1, *id, secret, 3).unwrap();
    asked.answer.send(Ok(b"members".to_vec())).unwrap();
    let admission = timeout(PATIENCE, join).await.unwrap().unwrap().unwrap();
    assert_eq!(admission.detail, b"members");
    let credentials = admission.authority.certify(&name("c")).unwrap();
    let mut c = Node::start(&admission.authority, &credentials, 3).await;
    c.dial("b", &b);
    assert_eq!(c.up().await.1.name, "b");

    // A token that names another authority is sent to nobody.
    let wrong = Token {
        fingerprint: [0; 32],
        ..token
    };
    let error = ask(&wrong, &name("d"), Vec::new()).await.err().unwrap();
    assert!(error.to_string().contains("not the cluster"), "{error}");
    assert!(a.asked.try_recv().is_err());
}

#[tokio::test]
async fn a_node_that_comes_back_is_linked_again() {
    let (authority, mut a, mut b) = pair().await;
    a.dial("b", &b);
    let (first, ..) = a.up().await;
    b.up().await;
    let address = b.address;
    b.stop().await;
    assert!(matches!(a.event().await, Event::Down { link } if link == first));
    let credentials = authority.certify(&name("b")).unwrap();
    let listener = loop {
        // Earlier links may keep the port for a moment.
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    let _b = Node::start_on(&authority, &credentials, 4, listener);
    let (second, agreed, _) = a.up().await;
    assert!(second != first);
    assert_eq!(agreed.incarnation, Incarnation::new(4).unwrap());
}

/// Silent streams, each from its own address of loopback.
async fn silent(from: impl Iterator<Item = [u8; 4]>, to: SocketAddr) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for from in from {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        streams.push(socket.connect(to).await.unwrap());
    }
    streams
}

/// Whether the other side has ended it.
async fn is_over(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let read = timeout(Duration::from_secs(1), stream.read(&mut byte));
    read.await.is_ok()
}

/// Strangers of 32 networks take all places: new streams were dropped until the strangers' time was over.
#[tokio::test]
async fn a_member_is_heard_when_strangers_hold_all_places() {
    let (authority, mut a, mut b) = pair().await;
    let from = (0..=255).map(|at| [127, 0, 1, 1 + at / 8]);
    let mut strangers = silent(from, a.address).await;
    let began = Instant::now();
    let credentials = authority.certify(&name("b")).unwrap();
    let address = a.address.to_string();
    let to = name("a");
    let asking = ask_member(&credentials, &to, &address, Vec::new());
    let answering = async {
        let MemberRequest { answer, .. } = a.asked.recv().await.unwrap();
        answer.send(Ok(b"all".to_vec())).unwrap();
    };
    let (told, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) })
        .await
        .unwrap();
    assert_eq!(told.unwrap(), b"all");
    b.dial("a", &a);
    b.up().await;
    // Sooner than any of them is late.
    let after = began.elapsed();
    assert!(after < Duration::from_secs(5), "{after:?}");
    assert!(is_over(&mut strangers[0]).await);
    assert!(!is_over(&mut strangers[255]).await);
}

/// Invalid tokens took the lane of members: a node that started was told that this node is busy, and went on without having asked what is known of
/// it.
#[tokio::test]
async fn a_member_is_answered_while_strangers_ask() {
    let (authority, mut a, _b) = pair().await;
    let token = token_of(&authority, &a, 1);
    let mut strangers = JoinSet::new();
    for _ in 0..2 {
        let token = token.clone();
        strangers.spawn(async move { ask(&token, &name("c"), Vec::new()).await.map(|_| ()) });
    }
    // One waits, and the other is told that there is no room.
    let refused = strangers.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(refused.to_string().contains("busy"), "{refused}");
    let credentials = authority.certify(&name("b")).unwrap();
    let (to, address) = (name("a"), a.address.to_string());
    let asking = ask_member(&credentials, &to, &address, Vec::new());
    let answering = async {
        let MemberRequest { answer, shown, .. } = a.asked.recv().await.unwrap();
        assert_eq!(shown, PeerIdentity::Certificate);
        answer.send(Ok(b"all".to_vec())).unwrap();
    };
    let both = async { tokio::join!(asking, answering) };
    let (told, ()) = timeout(PATIENCE, both).await.unwrap();
    assert_eq!(told.unwrap(), b"all");
}

/// Each member opens some streams at once. Behind one address, all had the places of one together.
#[tokio::test]
async fn members_behind_one_address_have_the_places_of_all_of_them() {
    let (_authority, mut a, mut b) = pair().await;
    b.dial("a", &a);
    a.up().await;
    b.up().await;
    let mut streams = silent((0..17).map(|_| [127, 0, 0, 1]), a.address).await;
    assert!(is_over(&mut streams[16]).await, "more than two have");
    for stream in [0, 7, 8, 15] {
        assert!(!is_over(&mut streams[stream]).await, "{stream}");
    }
}
