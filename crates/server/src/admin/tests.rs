//! The protocol on a real socket, with the directory's part played by the test.

use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::UnixStream};
use whimbrel_crdt::Incarnation;
use whimbrel_mailbox::{AccountId, Date, EntryId, MailboxName};
use whimbrel_service::{
    admin::{AccountLine, AdminCall, AdminReply},
    api::{Call, Failure, QueueCall, QueueEntry, QueuePage, QueueState, Reply},
};

use super::{
    client::ask_server,
    protocol::{Answer, LINES_PER_FRAME_MAX, QUESTION_BYTES_MAX, Question, status_frames},
    queue::{Entry, Filter, RECIPIENTS_LISTED_MAX, State},
    server::{bind, may_administer, serve},
    *,
};
use crate::{
    config::Config,
    password::make_verifier,
    router::{Inboxes, Question as Asked, Router},
};

struct World {
    directory: tempfile::TempDir,
    inboxes: Inboxes,
}

fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let (board, inboxes) = Router::new(1);
    let listener = bind(directory.path()).unwrap();
    let none: session::Sessions = Arc::new(|_| Err("no sessions here"));
    tokio::spawn(serve(listener, Arc::clone(&board), none, None));
    World { directory, inboxes }
}

impl World {
    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join(SOCKET))
            .await
            .unwrap()
    }

    /// Asks, and answers as the directory would.
    async fn exchange(&mut self, question: Question, reply: AdminReply) -> (AdminCall, Answer) {
        let stream = self.connect().await;
        let answering = async {
            let Some(Asked::Admin(call, answer, _)) = self.inboxes.directory.questions.recv().await
            else {
                panic!("not asked")
            };
            answer.send(reply).unwrap();
            call
        };
        let (call, answer) = tokio::join!(answering, ask_server(stream, &question));
        (call, answer.unwrap())
    }
}

impl World {
    /// Asks, and answers as a queue with these entries and a directory with two accounts would. Once `pages` are read, the queue fails.
    async fn ask_queue(
        &mut self,
        question: &Question,
        entries: &[QueueEntry],
        mut pages: usize,
    ) -> Answer {
        let stream = self.connect().await;
        let mut asking = std::pin::pin!(ask_server(stream, question));
        loop {
            tokio::select! {
                answer = &mut asking => return answer.unwrap(),
                asked = self.inboxes.queue.questions.recv() => {
                    let Some(Asked::Call(Call::Queue(call), answer, _)) = asked else {
                        panic!("another question")
                    };
                    let reply = match pages.checked_sub(1) {
                        Some(_) => Reply::Queue(page_of(entries, call)),
                        None => Reply::Failed(Failure::Temporary),
                    };
                    pages = pages.saturating_sub(1);
                    assert!(answer.send(reply).is_ok());
                }
                asked = self.inboxes.directory.questions.recv() => {
                    let Some(Asked::Admin(AdminCall::ListAccounts, answer, _)) = asked else {
                        panic!("another question")
                    };
                    let line = |number| AccountLine {
                        address: format!("user-{number}@example.org"),
                        account: AccountId([number; 16]),
                        created: 0,
                        set_aside: false,
                    };
                    let accounts = AdminReply::Accounts((0..2).map(line).collect());
                    assert!(answer.send(accounts).is_ok());
                }
            }
        }
    }
}

/// As the machine makes it.
fn page_of(entries: &[QueueEntry], call: QueueCall) -> QueuePage {
    let (from, limit, last) = match call {
        QueueCall::List { from, limit } => (from, limit.min(100), None),
        QueueCall::Show(id) => (Some(id), 1, Some(id)),
    };
    let wanted = |of: &&QueueEntry| {
        from.is_none_or(|from| of.id >= from) && last.is_none_or(|last| of.id <= last)
    };
    let mut rest = entries.iter().filter(wanted);
    let page = rest.by_ref().take(limit).cloned().collect();
    QueuePage {
        entries: page,
        next: rest.next().map(|of| of.id),
    }
}

fn numbered(number: u32) -> EntryId {
    EntryId(u128::from(number).to_be_bytes())
}

/// An entry to so many recipients; each third one is a copy.
fn queued(number: u32, recipients: usize) -> QueueEntry {
    // The longest name, with a character that takes two in JSON.
    let target = MailboxName::new(&"\"x".repeat(500)).unwrap();
    QueueEntry {
        id: numbered(number),
        sender: format!("{number}@example.net"),
        size: number,
        date: Date {
            seconds: number.into(),
            zone_minutes: 0,
        },
        deliveries: (0..recipients)
            .map(|of| (AccountId([of as u8 % 3; 16]), target.clone()))
            .collect(),
        owners: vec![Incarnation::new(1).unwrap()],
        state: match number % 3 {
            0 => QueueState::Copy,
            _ => QueueState::Waiting {
                not_before_micros: 0,
            },
        },
    }
}

fn listed(answer: Answer) -> (Vec<Entry>, Option<String>) {
    match answer {
        Answer::Queue {
            entries,
            next,
            more: false,
        } => (entries, next),
        other => panic!("{other:?}"),
    }
}

fn of_numbers(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.size).collect()
}

#[tokio::test]
async fn the_queue_is_listed_page_by_page() {
    let mut world = world();
    let entries: Vec<_> = (1..=250).map(|number| queued(number, 1)).collect();
    let mut check = async |filter: Filter, expected: Vec<u32>, next: Option<u32>| {
        let question = Question::QueueList(filter.clone());
        let answer = world.ask_queue(&question, &entries, usize::MAX).await;
        let (entries, then) = listed(answer);
        assert_eq!(of_numbers(&entries), expected, "{filter:?}");
        assert_eq!(then, next.map(|of| numbered(of).to_string()), "{filter:?}");
    };
    let all = || Filter {
        limit: 1000,
        ..Filter::default()
    };
    check(all(), (1..=250).collect(), None).await;
    let some = |limit| Filter { limit, ..all() };
    check(some(120), (1..=120).collect(), Some(121)).await;
    check(some(200), (1..=200).collect(), Some(201)).await;
    check(some(250), (1..=250).collect(), None).await;
    let rest = Filter {
        from: Some(numbered(121).to_string()),
        ..all()
    };
    check(rest, (121..=250).collect(), None).await;
    let copies = Filter {
        state: Some(State::Copy),
        limit: 40,
        ..all()
    };
    check(copies, (1..=40).map(|of| 3 * of).collect(), Some(123)).await;
    let old = Filter {
        until: Some(2),
        recipient: Some("@EXAMPLE.org".to_owned()),
        ..all()
    };
    check(old, vec![1, 2], None).await;
    let nobody = Filter {
        recipient: Some("user-1@example.org".to_owned()),
        ..all()
    };
    check(nobody, vec![], None).await;
}

/// Others can ask in between, and no question exceeds its time.
#[tokio::test]
async fn a_question_looks_at_a_part_of_a_long_queue() {
    let mut world = world();
    let entries: Vec<_> = (1..=10_050).map(|number| queued(number, 0)).collect();
    let mut filter = Filter {
        sender: Some("10001@example.net".to_owned()),
        limit: 1000,
        ..Filter::default()
    };
    let question = Question::QueueList(filter.clone());
    let (found, next) = listed(world.ask_queue(&question, &entries, usize::MAX).await);
    assert!(found.is_empty());
    assert_eq!(next, Some(numbered(10_001).to_string()));
    filter.from = next;
    let question = Question::QueueList(filter);
    let (found, next) = listed(world.ask_queue(&question, &entries, usize::MAX).await);
    assert_eq!((of_numbers(&found), next), (vec![10_001], None));
}

/// A frame that is too long would end the connection of [`ask_server`].
#[tokio::test]
async fn entries_with_very_many_recipients_come_whole() {
    let mut world = world();
    let entries: Vec<_> = [2, 5_000, 0, 100, 101]
        .into_iter()
        .zip(1..)
        .map(|(recipients, number)| queued(number, recipients))
        .collect();
    let question = Question::QueueList(Filter {
        limit: 10,
        ..Filter::default()
    });
    let (found, _) = listed(world.ask_queue(&question, &entries, usize::MAX).await);
    assert_eq!(of_numbers(&found), [1, 2, 3, 4, 5]);
    for (found, entry) in found.iter().zip(&entries) {
        let count = entry.deliveries.len();
        assert_eq!(found.recipient_count, count as u64);
        assert_eq!(found.recipients.len(), count.min(RECIPIENTS_LISTED_MAX));
    }
    let id = numbered(2).to_string();
    let question = Question::QueueShow { id };
    let (found, next) = listed(world.ask_queue(&question, &entries, usize::MAX).await);
    assert_eq!((of_numbers(&found), next), (vec![2], None));
    let accounts: Vec<_> = found[0].recipients.iter().map(|of| &of.account).collect();
    let expected = entries[1].deliveries.iter().map(|(of, _)| of.to_string());
    assert!(accounts.into_iter().cloned().eq(expected));
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_says_so() {
    let mut world = world();
    let entries: Vec<_> = (1..=250).map(|number| queued(number, 1)).collect();
    let list = Question::QueueList(Filter {
        limit: 1000,
        ..Filter::default()
    });
    let show = |id: &str| Question::QueueShow { id: id.to_owned() };
    let known = numbered(1).to_string();
    let mut refused = async |question: &Question, pages: usize, expected: &str| {
        let answer = world.ask_queue(question, &entries, pages).await;
        let Answer::Refused { reason } = answer else {
            panic!("{answer:?}")
        };
        assert!(reason.contains(expected), "{reason}");
    };
    refused(&list, 0, "cannot be read now").await;
    refused(&show(&known), 0, "cannot be read now").await;
    refused(&show(&"f".repeat(32)), 1, "no queue entry ffff").await;
    refused(&show("1"), 1, "not the id").await;
    let wrong = Question::QueueList(Filter {
        from: Some("1".to_owned()),
        ..Filter::default()
    });
    refused(&wrong, 1, "not the id").await;
    // What was read comes, and the next question goes on behind it.
    let (found, next) = listed(world.ask_queue(&list, &entries, 2).await);
    assert_eq!(of_numbers(&found), (1..=200).collect::<Vec<_>>());
    assert_eq!(next, Some(numbered(201).to_string()));
}

/// Without a server nothing is opened: that would deliver.
#[test]
fn the_queue_wants_a_running_server() {
    for question in [
        Question::QueueList(Filter::default()),
        Question::QueueShow { id: "f".repeat(32) },
    ] {
        let refusal = question.into_call().unwrap_err();
        assert!(refusal.contains("no server runs here"), "{refusal}");
    }
}

#[tokio::test]
async fn questions_reach_the_directory() {
    let mut world = world();
    let config = Config::parse("[auth]\nargon2_memory = '1MiB'\nargon2_passes = 1").unwrap();
    let verifier = make_verifier(&config.auth, b"secret").unwrap();
    let address = "anne@example.org".to_owned();
    let question = Question::AccountAdd {
        address: address.clone(),
        verifier: verifier.clone(),
        scram: None,
    };
    let (call, answer) = world.exchange(question, AdminReply::Done).await;
    assert_eq!(answer, Answer::Done {});
    let AdminCall::AddAccount {
        address: asked,
        verifier: given,
        ..
    } = call
    else {
        panic!("{call:?}")
    };
    assert_eq!((asked, given), (address.clone(), verifier));

    let refusal = AdminReply::Refused("no such account".to_owned());
    let (call, answer) = world
        .exchange(Question::AccountRemove { address }, refusal)
        .await;
    assert!(matches!(call, AdminCall::RemoveAccount { .. }));
    assert_eq!(
        answer,
        Answer::Refused {
            reason: "no such account".to_owned()
        }
    );
}

#[tokio::test]
async fn long_lists_come_whole() {
    let mut world = world();
    for lines in [0, 1, LINES_PER_FRAME_MAX, 2 * LINES_PER_FRAME_MAX + 1] {
        let accounts = (0..lines)
            .map(|n| AccountLine {
                address: format!("{n}@{}.example.org", "x".repeat(200)),
                account: AccountId([n as u8; 16]),
                created: n as u64,
                set_aside: n == 3,
            })
            .collect();
        let (_, answer) = world
            .exchange(Question::AccountList {}, AdminReply::Accounts(accounts))
            .await;
        let Answer::Accounts {
            accounts,
            more: false,
        } = answer
        else {
            panic!("{answer:?}")
        };
        assert_eq!(accounts.len(), lines);
        assert!(
            accounts
                .iter()
                .enumerate()
                .all(|(n, line)| line.created == n as u64)
        );
    }
}

/// As many nodes have written in all partitions as may, and as few as in most clusters.
#[tokio::test]
async fn the_status_of_a_large_cluster_comes_completely() {
    use crate::cluster::{LogLine, PartitionLine, Status};
    for (writers, is_one) in [(3, true), (1024, false)] {
        let log = LogLine {
            stored: u64::MAX,
            applied: u64::MAX,
        };
        let line = |partition| PartitionLine {
            partition,
            held_by: (1..=9).map(|of| format!("region-{of}")).collect(),
            comes_back: Vec::new(),
            leaves: Vec::new(),
            served_by: vec!["region-1".to_owned()],
            open: true,
            operations: u64::MAX,
            applied: u64::MAX,
            stable: u64::MAX,
            lag: Default::default(),
            uids_reassigned: 0,
            blobs_missing: 0,
            accounts_stalled: 0,
            syncing: false,
            logs: (0..writers).map(|of| (format!("{of:016x}"), log)).collect(),
        };
        let status = Status {
            cluster: "07".repeat(16),
            nodes: Vec::new(),
            clock: None,
            here: None,
            partitions: (0..258).map(line).collect(),
        };
        let frames = status_frames(status.clone());
        // A command of an earlier version reads one frame.
        assert_eq!(frames.len() == 1, is_one, "{}", frames.len());
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let writing = tokio::spawn(async move {
            let _: Question = super::protocol::read(&mut near, QUESTION_BYTES_MAX)
                .await
                .unwrap();
            for frame in &frames {
                super::protocol::write(&mut near, frame).await.unwrap();
            }
        });
        let answer = ask_server(far, &Question::ClusterStatus {}).await;
        writing.await.unwrap();
        let more = false;
        assert_eq!(answer.unwrap(), Answer::Cluster { status, more });
    }
}

#[tokio::test]
async fn what_is_no_question_is_not_asked() {
    let mut world = world();
    // A password instead of a verifier.
    let stream = world.connect().await;
    let question = Question::AccountPasswd {
        address: "a@b".to_owned(),
        verifier: "secret".to_owned(),
        scram: None,
        keep_sessions: false,
    };
    let answer = ask_server(stream, &question).await.unwrap();
    assert_eq!(
        answer,
        Answer::Refused {
            reason: "this is not an argon2id verifier".to_owned()
        }
    );
    let frame = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    for bytes in [
        frame("{\"ask\":\"reboot\"}"),
        frame("{\"ask\":\"alias-list\",\"x\":1}"),
        frame("[[[["),
    ] {
        let mut stream = world.connect().await;
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert!(world.inboxes.directory.questions.try_recv().is_err());
}

/// A frame that is declared too long is refused before anything is allocated or waited for.
#[tokio::test]
async fn a_declared_length_is_checked_first() {
    let check = async |length: u32, expected: std::io::ErrorKind| {
        let bytes = length.to_be_bytes();
        let read = super::protocol::read::<Question>(&mut &bytes[..], QUESTION_BYTES_MAX).await;
        assert_eq!(read.unwrap_err().kind(), expected, "{length}");
    };
    check(QUESTION_BYTES_MAX as u32, std::io::ErrorKind::UnexpectedEof).await;
    check(
        QUESTION_BYTES_MAX as u32 + 1,
        std::io::ErrorKind::InvalidData,
    )
    .await;
    check(u32::MAX, std::io::ErrorKind::InvalidData).await;
}

#[test]
fn only_the_owner_and_root_may_ask() {
    let check = |peer, own, expected| assert_eq!(may_administer(peer, own), expected);
    check(1000, 1000, true);
    check(0, 1000, true);
    check(1001, 1000, false);
    check(1000, 0, false);
}

#[tokio::test]
async fn the_socket_is_private_and_replaces_a_dead_one() {
    let directory = tempfile::tempdir().unwrap();
    let first = bind(directory.path()).unwrap();
    let mode = std::fs::metadata(directory.path().join(SOCKET))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(first);
    let _second = bind(directory.path()).unwrap();

    // A path that sun_path cannot hold.
    let deep = directory.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let _listener = bind(&deep).unwrap();
    let (path, _open) = short_path(&deep).unwrap();
    UnixStream::connect(path).await.unwrap();
    assert!(deep.join(SOCKET).exists());
}
