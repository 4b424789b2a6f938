//! A node that starts, and one member that it can ask.

use std::{future::poll_fn, net::SocketAddr, path::Path, pin::Pin, sync::Arc, task::Poll};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
};
use whimbrel_cluster::{Authority, Lanes, Transport, handshake};
use whimbrel_crdt::PartitionId;
use whimbrel_replication::roster::{MergeOutcome, Place};
use whimbrel_storage::memory::MemoryStore;

use super::*;
use crate::cluster::files::{Files, Kept};

const A: u64 = 1;
/// The node that starts, before.
const WAS: u64 = 2;
/// Who has replaced it.
const NEW: u64 = 3;
const B: u64 = 4;

fn node(id: u64) -> Incarnation {
    Incarnation::new(id).unwrap()
}

fn place(version: u64, id: u64) -> Place {
    Place {
        shares: None,
        version,
        incarnation: node(id),
        // Nobody is there.
        address: "127.0.0.1:9".into(),
        region: "land".into(),
        role: None,
    }
}

/// Of `a`, which has let in `c`.
fn two() -> Roster {
    let mut roster = Roster::found(node(A), "a", 0, !1);
    roster.announce("a", place(1, A)).unwrap();
    roster.sponsor(node(A), node(WAS), "c").unwrap();
    roster.announce("c", place(1, WAS)).unwrap();
    roster
}

/// As it is when another `c` has come in the place of the first.
fn replaced() -> Roster {
    let mut roster = two();
    roster.remove(node(A), node(WAS), 1).unwrap();
    roster.sponsor(node(A), node(NEW), "c").unwrap();
    roster.announce("c", place(2, NEW)).unwrap();
    roster
}

struct Scene {
    authority: Authority,
    directory: tempfile::TempDir,
    clock: Clock,
    tasks: JoinSet<()>,
    /// Members that take streams and say nothing; their names come before that of the one that can be asked.
    silent: Vec<(&'static str, TcpListener)>,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            authority: Authority::found([7; 16]).unwrap(),
            directory: tempfile::tempdir().unwrap(),
            clock: Clock::start(),
            tasks: JoinSet::new(),
            silent: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn authority(&self) -> Authority {
        let (of, key) = (&self.authority, self.authority.key_pem());
        Authority::from_pem(of.cluster(), of.certificate_pem(), &key).unwrap()
    }

    /// A node that listens and answers.
    async fn state(
        &mut self,
        name: &str,
        roster: Roster,
        data: &Path,
        of: &[(&str, SocketAddr)],
    ) -> (Arc<State<MemoryStore>>, SocketAddr) {
        let credentials = self.authority.certify(&NodeName::new(name).unwrap());
        let kept = Kept {
            authority: self.authority(),
            credentials: credentials.unwrap(),
            roster,
        };
        let files = Files::of(data);
        files.keep(&kept).unwrap();
        let clock = self.clock;
        let ((events, mut came), (members, asked)) = (mpsc::channel(1), mpsc::channel(1));
        // Links stay, whoever has them.
        self.tasks
            .spawn(async move { while came.recv().await.is_some() {} });
        let transport = Transport::new(
            &kept.credentials,
            self.authority(),
            Arc::new(move || clock.of_peers()),
            events,
            Lanes {
                members,
                strangers: mpsc::channel(1).0,
            },
        );
        let transport = Arc::new(transport.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listens = Arc::clone(&transport);
        self.tasks
            .spawn(async move { listens.listen(listener).await });
        let of = of
            .iter()
            .map(|(name, at)| (NodeName::new(name).unwrap(), at.to_string()));
        let state = Arc::new(State::new(
            files,
            kept.credentials,
            kept.roster,
            MemoryStore::new(),
            transport,
            of.collect(),
            crate::cluster::placing::wanted(&crate::config::Config::default()),
        ));
        self.tasks.spawn(Arc::clone(&state).answer_all(asked));
        (state, address)
    }

    /// `c` beside `a`: who each of them knows, and of which life the directory of `c` says that it is.
    async fn ready(
        &mut self,
        a: Roster,
        c: Roster,
        life: Option<u64>,
        renewed: bool,
    ) -> (Arc<State<MemoryStore>>, DataDir) {
        let (a, address) = self.state("a", a, &self.path("a"), &[]).await;
        a.begin(node(A), place(3, A)).await.unwrap();
        let mut data = DataDir::open(&self.path("c")).unwrap();
        data.start(None);
        data.join(WAS, 1);
        if renewed {
            data.renew(Copy::Asked);
        }
        let mut of = vec![("a", address)];
        for (name, listener) in &self.silent {
            of.push((name, listener.local_addr().unwrap()));
        }
        let (state, _) = self.state("c", c, data.path(), &of).await;
        if let Some(life) = life {
            state.files.keep_life(node(life)).unwrap();
        }
        (state, data)
    }

    /// Starts it.
    async fn start(
        &mut self,
        a: Roster,
        c: Roster,
        life: Option<u64>,
        renewed: bool,
        patience: Duration,
    ) -> (Result<StartupIdentity, StartError>, Files) {
        let (state, mut data) = self.ready(a, c, life, renewed).await;
        let settled = settle(&state, &mut data, patience, self.clock).await;
        (settled, state.files.clone())
    }
}

/// For who answers at once; only who never does takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The certificates of both say `c`: which of them comes under an incarnation of which nobody knows says only its directory.
#[tokio::test]
async fn a_node_that_was_removed_does_not_come_back_under_the_name_of_its_replacement() {
    for (what, c, life, patience, is_let_in) in [
        ("from before", two(), None, PATIENCE, false),
        ("whose life is kept", two(), Some(WAS), PATIENCE, false),
        ("that heard of it", replaced(), Some(WAS), PATIENCE, false),
        ("that asks late", two(), Some(WAS), Duration::ZERO, false),
        ("the new one", replaced(), Some(NEW), PATIENCE, true),
    ] {
        let mut scene = Scene::new();
        let (settled, files) = scene.start(replaced(), c, life, true, patience).await;
        match settled {
            Ok(settled) => {
                assert!(is_let_in, "{what}");
                assert_eq!(files.life().unwrap(), Some(settled.me), "{what}");
            }
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !is_let_in && error.contains("was removed"),
                    "{what}: {error}"
                );
                // What was asked about it is what it was.
                assert!(
                    error.contains("have all that was written"),
                    "{what}: {error}"
                );
            }
        }
    }
}

/// The disk may be older than a member of which only others know.
#[tokio::test]
async fn who_is_heard_of_in_the_answers_is_asked_later() {
    let mut a = two();
    a.sponsor(node(A), node(B), "b").unwrap();
    a.announce("b", place(1, B)).unwrap();
    let mut scene = Scene::new();
    let (settled, files) = scene.start(a, two(), None, false, PATIENCE).await;
    let settled = settled.unwrap();
    assert_eq!(settled.me, node(WAS));
    let names: Vec<&str> = settled.unverified.iter().map(NodeName::as_str).collect();
    assert_eq!(names, ["b"]);
    assert!(files.unverified().unwrap().is_some());
}

#[tokio::test]
async fn who_has_asked_all_notes_nothing() {
    let mut scene = Scene::new();
    let (settled, files) = scene.start(two(), two(), None, false, PATIENCE).await;
    assert!(settled.unwrap().unverified.is_empty());
    assert_eq!(files.unverified().unwrap(), None);
}

/// Two that are cut off took the whole time, in which the third was not asked.
#[tokio::test]
async fn a_slot_is_given_by_who_answers_though_others_are_cut_off() {
    let sponsored = async |answered: &[&str]| {
        let (mut roster, mut scene) = (two(), Scene::new());
        for (name, id) in [("0a", 10), ("0b", 11)] {
            roster.sponsor(node(A), node(id), name).unwrap();
            roster.announce(name, place(1, id)).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            scene.silent.push((name, listener));
        }
        let (state, mut data) = scene.ready(roster.clone(), roster, None, true).await;
        let names = answered.iter().map(|name| NodeName::new(name).unwrap());
        let answered: BTreeSet<NodeName> = names.collect();
        let former = Former {
            was: node(WAS),
            clock: scene.clock,
        };
        let began = Instant::now();
        let sponsored = be_sponsored(&state, &mut data, &former, &answered).await;
        sponsored.unwrap();
        let members = state.roster();
        assert!(members.members().get(incarnation(&data)).is_some());
        began.elapsed()
    };
    let (known, unknown) = tokio::join!(sponsored(&["a"]), sponsored(&[]));
    assert!(known < ANSWER_TIME_MAX, "who has answered is asked first");
    // Each of them has its share.
    assert!(unknown >= 2 * ANSWER_TIME_MAX, "{unknown:?}");
    assert!(unknown < 4 * ANSWER_TIME_MAX, "{unknown:?}");
}

/// Carries one stream to `a`, until it has given a slot: of that nothing comes through. Whether it has.
async fn lose_slot(near: TcpStream, at: SocketAddr, a: &State<MemoryStore>) -> bool {
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = TcpStream::connect(at).await.unwrap().into_split();
    let asking = async {
        let _ = copy(&mut from_near, &mut to_far).await;
        std::future::pending().await
    };
    let answering = async {
        let mut bytes = [0; 4096];
        loop {
            let count = from_far.read(&mut bytes).await.unwrap_or(0);
            // It is in the roster before it is answered.
            if a.roster().members().iter().count() > 2 {
                return true;
            }
            if count == 0 || to_near.write_all(&bytes[..count]).await.is_err() {
                return false;
            }
        }
    };
    tokio::select! {
        lost = answering => lost,
        () = asking => unreachable!("it does not end"),
    }
}

/// Each new incarnation of which an answer was lost took another slot, and left a member that never lived.
#[tokio::test]
async fn who_lost_the_answer_asks_for_the_same_slot() {
    let mut scene = Scene::new();
    let (a, at) = scene.state("a", two(), &scene.path("a"), &[]).await;
    a.begin(node(A), place(3, A)).await.unwrap();
    let way = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = way.local_addr().unwrap();
    let roster = Arc::clone(&a);
    scene.tasks.spawn(async move {
        loop {
            let (near, _) = way.accept().await.unwrap();
            if lose_slot(near, at, &roster).await {
                break;
            }
        }
        loop {
            let (mut near, _) = way.accept().await.unwrap();
            let mut far = TcpStream::connect(at).await.unwrap();
            let _ = copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let mut data = DataDir::open(&scene.path("c")).unwrap();
    data.start(None);
    data.join(WAS, 1);
    data.renew(Copy::Asked);
    let asked = incarnation(&data);
    let (c, _) = scene
        .state("c", two(), data.path(), &[("a", address)])
        .await;
    let former = Former {
        was: node(WAS),
        clock: scene.clock,
    };
    let sponsored = be_sponsored(&c, &mut data, &former, &BTreeSet::new()).await;
    sponsored.unwrap();
    assert_eq!(incarnation(&data), asked);
    assert_eq!(a.roster().members().iter().count(), 3);
}

/// A start was given a slot under the new incarnation, which is on disk, and came no further: the next one knows that it is new all the same.
#[tokio::test]
async fn who_was_given_a_slot_before_is_new_still() {
    let mut scene = Scene::new();
    let (c, mut data) = scene.ready(two(), two(), Some(WAS), true).await;
    let me = incarnation(&data);
    let former = Former {
        was: node(WAS),
        clock: scene.clock,
    };
    be_sponsored(&c, &mut data, &former, &BTreeSet::new())
        .await
        .unwrap();
    assert!(!c.files.is_syncing());
    let settled = settle(&c, &mut data, PATIENCE, scene.clock).await.unwrap();
    assert_eq!(settled.me, me);
    assert!(c.files.is_syncing());
}

/// An earlier start asked somebody for a slot who does not answer now: another one is asked for another incarnation, since one must not have two slots.
#[tokio::test]
async fn who_may_have_a_slot_asks_nobody_else_for_it() {
    for asked in [false, true] {
        let mut scene = Scene::new();
        let (c, mut data) = scene.ready(two(), two(), Some(WAS), true).await;
        let me = incarnation(&data);
        if asked {
            c.files.asks_for_slot(me).unwrap();
        }
        let settled = settle(&c, &mut data, PATIENCE, scene.clock).await.unwrap();
        assert_eq!(settled.me != me, asked);
        assert!(c.files.may_have_slot(me).unwrap());
    }
}

/// What another process does that is linked to `a` as `c`, once `c` starts, too.
#[derive(Clone, Copy, Debug)]
enum Other {
    Alive,
    /// Its machine is without power: nobody hears that it has ended.
    IsSilent,
    /// Its process has ended, which is heard a little later.
    Ends,
}

/// Carries one stream there, until it is cut: from then on nothing, of which neither end is told.
async fn carry(listener: TcpListener, to: SocketAddr, mut cut: watch::Receiver<bool>) {
    let (mut near, _) = listener.accept().await.unwrap();
    let mut far = TcpStream::connect(to).await.unwrap();
    let is_cut = async move {
        // It is never dropped before.
        let _ = cut.wait_for(|cut| *cut).await;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        () = is_cut => std::future::pending().await,
    }
}

/// How a start of `c` ends beside it, and how long that takes.
async fn beside(other: Other) -> (Result<StartupIdentity, StartError>, Duration) {
    let mut scene = Scene::new();
    let (a, at) = scene.state("a", two(), &scene.path("a"), &[]).await;
    a.begin(node(A), place(3, A)).await.unwrap();
    a.transport.begin(handshake(&a.credentials, node(A)));

    let (cut, is_cut) = watch::channel(false);
    let way = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = way.local_addr().unwrap().to_string();
    let carried = scene.tasks.spawn(carry(way, at, is_cut));
    let (c, _) = scene.state("c", two(), &scene.path("c"), &[]).await;
    c.transport.begin(handshake(&c.credentials, node(WAS)));
    let name = NodeName::new("a").unwrap();
    c.transport.dial(vec![Peer { name, address }]);
    while a.transport.links().iter().all(|link| link.pongs == 0) {
        sleep(PAUSE).await;
    }

    let mut data = DataDir::open(&scene.path("copy")).unwrap();
    data.start(None);
    data.join(WAS, 1);
    let (copy, _) = scene.state("c", two(), data.path(), &[("a", at)]).await;
    if matches!(other, Other::IsSilent) {
        cut.send_replace(true);
    }
    let began = Instant::now();
    let settling = settle(&copy, &mut data, PATIENCE, scene.clock);
    let ending = async {
        if matches!(other, Other::Ends) {
            sleep(Duration::from_millis(500)).await;
            carried.abort();
        }
    };
    let (settled, ()) = tokio::join!(settling, ending);
    (settled, began.elapsed())
}

#[tokio::test]
async fn a_node_does_not_start_while_another_lives_as_it() {
    let (lives, is_silent, ends) = tokio::join!(
        beside(Other::Alive),
        beside(Other::IsSilent),
        beside(Other::Ends)
    );
    let refused = lives.0.err().unwrap().to_string();
    assert!(
        refused.contains("another machine runs as this node: a is linked"),
        "{refused}"
    );
    // Its last life may look so until silence ends the link, which was heard on a second ago at most.
    assert_eq!(is_silent.0.unwrap().me, node(WAS));
    assert!(is_silent.1 > Duration::from_secs(1), "{:?}", is_silent.1);
    assert_eq!(ends.0.unwrap().me, node(WAS));
    assert!(ends.1 > Duration::from_millis(400), "{:?}", ends.1);
}

/// A disk that hangs while the members are kept holds up nobody who only asks for them, nor a link to a node that knows the same.
#[test]
fn members_are_read_while_they_are_kept() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    runtime.unwrap().block_on(async {
        let mut scene = Scene::new();
        let (a, _) = scene.state("a", two(), &scene.path("a"), &[]).await;
        a.begin(node(A), place(3, A)).await.unwrap();
        let known = a.roster();
        let (disk, goes_on) = std::sync::mpsc::channel::<()>();
        let hangs = tokio::task::spawn_blocking(move || goes_on.recv());
        let mut changes = Box::pin(a.change(|roster| roster.announce("c", place(2, WAS))));
        assert!(
            poll_once(changes.as_mut()).await.is_none(),
            "it waits for the disk"
        );
        assert!(a.holds(PartitionId::accounts(0)));
        assert_eq!(a.roster(), known, "what is not kept is not told");
        let heard = a.heard(node(WAS), &known);
        assert_eq!(heard.await, Ok(MergeOutcome::Taken { new: false }));
        disk.send(()).unwrap();
        changes.await.unwrap();
        let _ = hangs.await;
        assert_ne!(a.roster(), known);
    });
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
