//! Sessions that one member relays to another.

use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};
use whimbrel_cluster::{Authority, Lanes, NodeName, Peer, Relays, Transport};
use whimbrel_replication::Now;

/// Longer than anything here takes on the slowest machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The relays of node `a`, and node `b`, which accepts the sessions.
async fn relays(tasks: &mut JoinSet<()>) -> (Relays, Peer) {
    let authority = Authority::found([7; 16]).unwrap();
    let of = |name: &str| authority.certify(&NodeName::new(name).unwrap()).unwrap();
    let (a, b) = (of("a"), of("b"));
    let clock = Arc::new(|| Now {
        wall_micros: 0,
        mono_micros: 0,
    });
    let lane = || mpsc::channel(1).0;
    let asked = Lanes {
        members: lane(),
        strangers: lane(),
    };
    let transport = Transport::new(&b, authority, clock, mpsc::channel(1).0, asked).unwrap();
    let (to_brought, mut brought) = mpsc::channel(16);
    transport.take_relays(to_brought);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer("b", &listener);
    tasks.spawn(async move { transport.listen(listener).await });
    tasks.spawn(async move {
        while let Some(relayed) = brought.recv().await {
            tokio::spawn(relayed.take());
        }
    });
    (Relays::new(&a).unwrap(), peer)
}

fn peer(name: &str, listener: &TcpListener) -> Peer {
    Peer {
        name: NodeName::new(name).unwrap(),
        address: listener.local_addr().unwrap().to_string(),
    }
}

/// As when a node is drained and all its clients connect again: of so many unknown streams from one address, some would be dropped.
#[tokio::test]
async fn many_sessions_are_relayed_at_once() {
    const SESSIONS: u8 = 60;
    let mut tasks = JoinSet::new();
    let (relays, b) = relays(&mut tasks).await;
    let relays = Arc::new(relays);
    let mut opening = JoinSet::new();
    for session in 0..SESSIONS {
        let (relays, b) = (Arc::clone(&relays), b.clone());
        opening.spawn(async move {
            let until = Instant::now() + PATIENCE;
            let (peers, head) = ([&b], [session]);
            let opened = relays.open(&peers, &head, false, |_| true, until);
            opened.await.is_some()
        });
    }
    let opened = timeout(2 * PATIENCE, opening.join_all()).await.unwrap();
    let lost = opened.iter().filter(|opened| !**opened).count();
    assert_eq!(lost, 0);
}

/// Streams to a node that is cut off, and still linked, wait for as long as they may.
#[tokio::test]
async fn a_session_for_a_node_that_is_cut_off_is_served_by_another() {
    /// Less than any client waits, and than two attempts take.
    const SOON: Duration = Duration::from_secs(8);
    let mut tasks = JoinSet::new();
    let (relays, b) = relays(&mut tasks).await;
    let relays = Arc::new(relays);
    // The system takes the streams; nobody reads them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cut = peer("cut", &listener);
    let open = |or_here: bool, is_linked: fn(&NodeName) -> bool| {
        let (relays, cut, b) = (Arc::clone(&relays), cut.clone(), b.clone());
        async move {
            let began = Instant::now();
            let peers: &[&Peer] = if or_here { &[&cut] } else { &[&cut, &b] };
            let opened = relays.open(peers, b"", or_here, is_linked, began + PATIENCE);
            let by = opened.await.map(|(by, _)| by.name.to_string());
            (by, began.elapsed())
        }
    };
    let mut opening = JoinSet::new();
    for _ in 0..40 {
        opening.spawn(open(false, |_| true));
    }
    for (by, after) in opening.join_all().await {
        assert_eq!(by.as_deref(), Some("b"));
        assert!(after < SOON, "{after:?}");
    }
    // From then on the node is asked last, and not at all by a node that can serve the session itself.
    let at_once = Duration::from_secs(2);
    let (by, after) = open(false, |_| true).await;
    assert!(by.as_deref() == Some("b") && after < at_once, "{after:?}");
    let (by, after) = open(true, |_| true).await;
    assert!(by.is_none() && after < at_once, "{after:?}");
    // A node whose link is lost is not asked.
    let (by, after) = open(false, |_| false).await;
    assert!(by.is_none() && after < at_once, "{after:?}");
}
