use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use whimbrel_cluster::BULK_BYTES_MAX;
use whimbrel_mailbox::AccountId;
use whimbrel_replication::wire::StateChunk;
use whimbrel_service::{
    api::{Call, Event, MailboxCall, SessionId},
    machine::Now,
};
use whimbrel_storage::{LogEntry, Mutation, memory::MemoryStore};

use super::*;
use crate::router::Inboxes;

/// A machine whose outputs the test writes, and whose inputs the test reads.
#[derive(Default)]
struct Script {
    log: Arc<Mutex<Vec<String>>>,
    out: VecDeque<Output>,
    deadline: Option<u64>,
    answer: Option<fn(Input) -> Vec<Output>>,
}

impl Machine for Script {
    fn handle(&mut self, _: Now, input: Input) {
        self.log.lock().unwrap().push(match &input {
            Input::Loaded { ticket, rows, done } => {
                format!("Loaded {} {} {done}", ticket.0, rows.len())
            }
            Input::Call(_, Call::Mailbox { account, .. }) => format!("Call {}", account.0[0]),
            Input::Committed(ticket) => format!("Committed {}", ticket.0),
            Input::CommitFailed(ticket) => format!("CommitFailed {}", ticket.0),
            Input::Time => {
                self.deadline = None;
                "Time".to_owned()
            }
            other => format!("{other:?}"),
        });
        if let Some(answer) = self.answer {
            self.out.extend(answer(input));
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline
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
    board: Arc<Router>,
    registry: Arc<Registry>,
    store: MemoryStore,
    log: Arc<Mutex<Vec<String>>>,
    died: Arc<Mutex<Vec<String>>>,
    /// Held so that their lanes stay open.
    _others: (Inbox, Inbox),
}

/// Runs `script` as the only owner.
fn world(mut script: Script) -> World {
    let (
        board,
        Inboxes {
            directory,
            queue,
            mut owners,
        },
    ) = Router::new(1);
    let registry = Registry::new(10);
    let store = MemoryStore::new();
    let died = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::new(Shared {
        clock: Clock::start(),
        store: store.clone(),
        board: Arc::clone(&board),
        registry: Arc::clone(&registry),
        verifier: Verifier::new(&crate::config::Config::default().auth),
        loads: Arc::new(Semaphore::new(1)),
        // Nobody fetches what is wanted.
        wants: Some(mpsc::unbounded_channel().0),
        fatal: {
            let died = Arc::clone(&died);
            Arc::new(move |reason| died.lock().unwrap().push(reason.to_owned()))
        },
    });
    let log = Arc::default();
    script.log = Arc::clone(&log);
    let actor = Actor::new("owner", script, owners.remove(0), shared);
    tokio::spawn(actor.run());
    World {
        board,
        registry,
        store,
        log,
        died,
        _others: (directory, queue),
    }
}

impl World {
    /// Waits until nothing is under way.
    async fn settle(&self) {
        // So that what is under way is known.
        tokio::time::sleep(Duration::from_millis(1)).await;
        until("an end", || self.board.work().is_idle(1)).await;
    }
}

fn call() -> Call {
    Call::mailbox(AccountId([7; 16]), MailboxCall::list())
}

fn put(key: &str) -> Commit {
    let mut commit = Commit::new(PartitionId(1));
    commit.mutations.push(Mutation::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"v"),
    });
    commit
}

fn entry(first: u64) -> Commit {
    let mut commit = put("entry");
    commit.entry = Some(LogEntry {
        origin: Origin(1),
        first,
        count: 1,
        previous: whimbrel_storage::Hash::ZERO,
        bytes: Bytes::from_static(b"batch"),
    });
    commit
}

#[tokio::test]
async fn outputs_are_carried_out_and_completions_come_back_in_order() {
    let mut script = Script::default();
    script
        .out
        .extend((1..=5).map(|n| Output::Commit(Ticket(n), put(&format!("k{n}")))));
    let world = world(script);
    world.settle().await;
    let expected: Vec<_> = (1..=5).map(|n| format!("Committed {n}")).collect();
    assert_eq!(*world.log.lock().unwrap(), expected);
    let page = world
        .store
        .scan(PartitionId(1), KeyRange::all(), ScanLimit::default())
        .await
        .unwrap();
    assert_eq!(page.rows.len(), 5);
}

/// However many inputs wait, what was written is not told of later and later.
#[tokio::test]
async fn what_is_durable_goes_before_what_is_new() {
    const INPUTS: usize = 200;
    let script = Script {
        answer: Some(|input| {
            static TICKETS: AtomicU64 = AtomicU64::new(0);
            let commits = match input {
                Input::Hangup(_) => 3,
                _ => 0,
            };
            let commit = |_| {
                let ticket = TICKETS.fetch_add(1, Ordering::SeqCst);
                Output::Commit(Ticket(ticket), put(&format!("k{ticket}")))
            };
            (0..commits).map(commit).collect()
        }),
        ..Script::default()
    };
    let world = world(script);
    for _ in 0..INPUTS {
        world.board.hang_up(AccountId([7; 16]), SessionId(1));
    }
    until("the last one", || {
        world.log.lock().unwrap().len() == 4 * INPUTS
    })
    .await;
    let (mut waiting, mut most) = (0_usize, 0);
    for line in world.log.lock().unwrap().iter() {
        match line.starts_with("Committed") {
            true => waiting -= 1,
            false => waiting += 3,
        }
        most = most.max(waiting);
    }
    // A task that has done much is told to wait by the runtime: then another input may be next.
    assert!(most <= 9, "{most} at once");
}

#[tokio::test]
async fn questions_are_answered_and_sessions_are_told() {
    let script = Script {
        answer: Some(|input| match input {
            Input::Call(request, _) => {
                vec![
                    Output::Notify(SessionId(1), Event::Changed),
                    Output::Reply(request, Reply::Done),
                ]
            }
            _ => Vec::new(),
        }),
        ..Script::default()
    };
    let world = world(script);
    let session = world.registry.enter();
    let reply = world.board.call(call()).await.unwrap().await.unwrap();
    assert!(matches!(reply, Reply::Done));
    assert_eq!(session.signal.next().await, Event::Changed);
    world.settle().await;
}

/// One account's heavy questions leave room for another's in between.
#[tokio::test]
async fn who_asks_heavy_questions_rests_between_them() {
    let script = Script {
        answer: Some(|input| match input {
            Input::Call(request, Call::Mailbox { account, .. }) => {
                if account == HEAVY {
                    std::thread::sleep(Duration::from_millis(500));
                }
                vec![Output::Reply(request, Reply::Done)]
            }
            _ => Vec::new(),
        }),
        ..Script::default()
    };
    const HEAVY: AccountId = AccountId([8; 16]);
    let world = world(script);
    let light = async || world.board.call(call()).await.unwrap().await.unwrap();
    light().await;
    let mut heavy = Vec::new();
    for _ in 0..2 {
        let call = Call::mailbox(HEAVY, MailboxCall::list());
        heavy.push(world.board.call(call).await.unwrap());
    }
    heavy.remove(0).await.unwrap();
    for _ in 0..3 {
        light().await;
    }
    heavy.remove(0).await.unwrap();
    let log = world.log.lock().unwrap().join(" ");
    assert_eq!(log, "Call 7 Call 8 Call 7 Call 7 Call 7 Call 8");
}

#[tokio::test]
async fn a_scan_comes_in_pages() {
    let mut script = Script::default();
    let rows = ScanLimit::default().rows * 2 + 1;
    let mut commit = Commit::new(PartitionId(0));
    for n in 0..rows {
        let key = Bytes::from(format!("{n:08}"));
        commit.mutations.push(Mutation::Put {
            key,
            value: Bytes::from_static(b"v"),
        });
    }
    script.out.push_back(Output::Commit(Ticket(1), commit));
    script.answer = Some(|input| match input {
        Input::Committed(_) => {
            let partition = whimbrel_crdt::PartitionId::accounts(0);
            vec![Output::Load {
                ticket: Ticket(2),
                partition,
                from: vec![0],
                to: vec![0xff],
            }]
        }
        _ => Vec::new(),
    });
    let world = world(script);
    world.settle().await;
    assert_eq!(
        *world.log.lock().unwrap(),
        [
            "Committed 1",
            "Loaded 2 1024 false",
            "Loaded 2 1024 false",
            "Loaded 2 1 true"
        ]
    );
}

#[tokio::test]
async fn a_deadline_is_kept() {
    let world = world(Script {
        deadline: Some(1_000),
        ..Script::default()
    });
    until("the deadline", || !world.log.lock().unwrap().is_empty()).await;
    assert_eq!(*world.log.lock().unwrap(), ["Time"]);
}

#[tokio::test]
async fn a_full_disk_is_told_and_what_follows_is_lost_with_it() {
    let mut script = Script::default();
    // As a log makes them: all but the first rest on those before.
    let mut second = entry(2);
    second.follows = true;
    script.out.extend([
        Output::Commit(Ticket(1), entry(1)),
        Output::Commit(Ticket(2), second),
        Output::Commit(Ticket(3), entry(2)),
    ]);
    let full = MemoryStore::new();
    full.with(|memory| memory.faults.full = true);
    let (board, Inboxes { mut owners, .. }) = Router::new(1);
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    script.log = Arc::clone(&log);
    let died = Arc::new(AtomicBool::new(false));
    let shared = Arc::new(Shared {
        clock: Clock::start(),
        store: full,
        board: Arc::clone(&board),
        registry: Registry::new(1),
        verifier: Verifier::new(&crate::config::Config::default().auth),
        loads: Arc::new(Semaphore::new(1)),
        wants: None,
        fatal: {
            let died = Arc::clone(&died);
            Arc::new(move |_| died.store(true, Ordering::SeqCst))
        },
    });
    tokio::spawn(Actor::new("owner", script, owners.remove(0), shared).run());
    until("the answers", || log.lock().unwrap().len() == 3).await;
    assert_eq!(
        *log.lock().unwrap(),
        ["CommitFailed 1", "CommitFailed 2", "CommitFailed 3"]
    );
    assert!(!died.load(Ordering::SeqCst));
}

/// The cluster ends the node for it, and keeps that the next start takes a new incarnation.
#[tokio::test]
async fn an_older_disk_is_told_to_the_cluster() {
    let world = world(Script {
        answer: Some(|input| match input {
            Input::Call(request, _) => vec![
                Output::Log(Note::Older("a peer knows more".to_owned())),
                Output::Log(Note::Older("and another one".to_owned())),
                Output::Reply(request, Reply::Done),
            ],
            _ => Vec::new(),
        }),
        ..Script::default()
    });
    assert!(world.board.call(call()).await.unwrap().await.is_ok());
    assert_eq!(world.board.older().await, "a peer knows more");
}

/// A machine that broke its log, a store that broke, or an invariant that does not hold: nothing is said any more.
#[tokio::test]
async fn the_node_stops_and_nothing_is_acknowledged_after() {
    type Answer = fn(Input) -> Vec<Output>;
    let cases: [(Answer, &str); 4] = [
        (
            |_| panic!("an assertion that does not hold"),
            "owner: panicked",
        ),
        (
            |input| match input {
                Input::Call(request, _) => {
                    vec![
                        Output::Fatal("the books do not balance".to_owned()),
                        Output::Reply(request, Reply::Done),
                    ]
                }
                _ => Vec::new(),
            },
            "owner: the books do not balance",
        ),
        (
            |input| match input {
                Input::Call(..) => vec![Output::Commit(Ticket(1), entry(5))],
                Input::Committed(_) | Input::CommitFailed(_) => {
                    vec![Output::Reply(RequestId(1), Reply::Done)]
                }
                _ => Vec::new(),
            },
            "owner: a commit failed: refused",
        ),
        (
            |_| vec![Output::Reply(RequestId(99), Reply::Done)],
            "owner: an answer to nobody's question",
        ),
    ];
    for (answer, expected) in cases {
        let world = world(Script {
            answer: Some(answer),
            ..Script::default()
        });
        let reply = world.board.call(call()).await.unwrap().await;
        assert!(reply.is_err(), "acknowledged after {expected}: {reply:?}");
        let died = world.died.lock().unwrap().clone();
        assert!(died.len() == 1 && died[0].starts_with(expected), "{died:?}");
        assert_eq!(
            world.board.call(call()).await.err(),
            Some(crate::router::Stopped)
        );
    }
}

/// Rows wait in their partitions when a link has no room for them, and what else these have to say does not; whoever gives them from many partitions at once
/// fills no memory.
#[tokio::test]
async fn rows_wait_for_room_on_their_link() {
    const PARTITIONS: u16 = 64;
    let peer = Incarnation::from_hash(1);
    let world = world(Script {
        answer: Some(|input| match input {
            Input::Peer(PeerInput::Linked(peer, _)) => {
                let of = whimbrel_crdt::PartitionId::accounts;
                let wake = |id| Output::Peer(PeerOutput::Wake(of(id), peer));
                (0..PARTITIONS as u8).map(wake).collect()
            }
            Input::Peer(PeerInput::Ready(_, to)) if !to.takes_bulk => Vec::new(),
            // They never come to an end.
            Input::Peer(PeerInput::Ready(partition, to)) => {
                let peer = to.peer;
                let chunk = Frame::StateChunk(StateChunk {
                    partition,
                    state: 1,
                    after: Vec::new(),
                    last: vec![1],
                    rows: vec![0; 64 << 10].into(),
                });
                vec![Output::Peer(PeerOutput::Send(peer, chunk))]
            }
            Input::Call(request, _) => vec![Output::Reply(request, Reply::Done)],
            _ => Vec::new(),
        }),
        ..Script::default()
    });
    world.board.link_up(peer, &Handle::default(), 0).await;
    until("rows", || {
        let log = world.log.lock().unwrap();
        log.iter().any(|line| line.contains("Ready"))
    })
    .await;
    let reply = world.board.call(call()).await.unwrap().await;
    assert!(reply.is_ok(), "it goes on");
    let log = world.log.lock().unwrap();
    let asked = |bulk: &str| {
        let asked = log.iter().filter(|line| line.contains("Ready"));
        asked.filter(|line| line.contains(bulk)).count()
    };
    let most = (BULK_BYTES_MAX >> 16) + 1;
    assert!((1..=most).contains(&asked("takes_bulk: true")));
    assert_eq!(asked("takes_bulk: false"), usize::from(PARTITIONS));
}
