//! Sessions that one member brings to another.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};
use whimbrel_cluster::{Authority, NodeName, Relays, Transport};
use whimbrel_replication::Now;

/// Longer than anything here takes on the slowest machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// As when a node is drained and all its clients come again: of strangers of one address so many would be dropped.
#[tokio::test]
async fn many_sessions_are_brought_at_once() {
    const SESSIONS: u8 = 60;
    let authority = Authority::found([7; 16]).unwrap();
    let of = |name: &str| authority.certify(&NodeName::new(name).unwrap()).unwrap();
    let (a, b) = (of("a"), of("b"));
    let clock = Arc::new(|| Now {
        wall_micros: 0,
        mono_micros: 0,
    });
    let (events, asked) = (mpsc::channel(1).0, mpsc::channel(1).0);
    let transport = Transport::new(&b, authority, clock, events, asked).unwrap();
    let (to_brought, mut brought) = mpsc::channel(16);
    transport.take_relays(to_brought);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { transport.listen(listener).await });
    tasks.spawn(async move {
        while let Some(relayed) = brought.recv().await {
            tokio::spawn(relayed.take());
        }
    });

    let relays = Arc::new(Relays::new(&a).unwrap());
    let mut opening = JoinSet::new();
    for session in 0..SESSIONS {
        let (relays, address) = (Arc::clone(&relays), address.clone());
        opening.spawn(async move {
            let until = Instant::now() + PATIENCE;
            let to = NodeName::new("b").unwrap();
            let opened = relays.open(&to, &address, vec![session], until);
            opened.await.map(drop).map_err(|error| error.to_string())
        });
    }
    let opened = timeout(2 * PATIENCE, opening.join_all()).await.unwrap();
    let lost: Vec<_> = opened.into_iter().filter_map(Result::err).collect();
    assert!(lost.is_empty(), "{} are lost: {lost:?}", lost.len());
}
