//! The protocol on a real socket, with the directory's part played by the test.

use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::UnixStream};
use whimbrel_mailbox::AccountId;
use whimbrel_service::admin::{AccountLine, AdminCall, AdminReply};

use super::{
    client::ask_server,
    protocol::{Answer, LINES_PER_FRAME_MAX, QUESTION_BYTES_MAX, Question, status_frames},
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
