//! Row 15: a small request with a huge answer, and a client that does not read it.
//!
//! Fails when responses are made before the transport has room: the process then grows by what is not read.

use whimbrel_e2e::message;

use crate::{Watch, lean};

const MESSAGES: usize = 200;
const SIZE: usize = 200_000;
const CLIENTS: usize = 20;

/// What all of them together may cost: some chunks each, and what an allocator keeps for the threads that read the disk. What they asked
/// for is two hundred times as much.
const ALL_KIB_MAX: u64 = 256 << 10;

#[test]
fn row_15_answers_that_nobody_reads() {
    let server = lean().start();
    let mut imap = server.anne();
    for n in 0..MESSAGES {
        let _ = imap
            .append("INBOX", &[], &message::bytes(&format!("large-{n}"), SIZE))
            .unwrap()
            .ok("APPEND");
    }
    let requests: &[String] = &[
        "FETCH 1:* BODY.PEEK[]".to_owned(),
        format!("FETCH 1:* ({})", vec!["BODY.PEEK[]"; 100].join(" ")),
        "FETCH 1:* (FLAGS ENVELOPE BODYSTRUCTURE BODY.PEEK[HEADER])".to_owned(),
        "SEARCH RETURN (ALL COUNT) TEXT end".to_owned(),
        "LIST \"\" * RETURN (STATUS (MESSAGES UIDNEXT SIZE))".to_owned(),
    ];
    let mut watch = Watch::start(&server);
    let mut held = Vec::new();
    for n in 0..CLIENTS {
        let mut imap = server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        // Sixty times forty megabytes, asked for at once.
        for m in 0..60 {
            let _ = imap
                .send(requests[(n + m) % requests.len()].as_bytes())
                .unwrap();
        }
        held.push(imap);
    }
    // Others are served while those wait; what they read is right.
    watch.others_work();
    let mut reader = server.anne();
    for _ in 0..3 {
        let _ = reader.command("EXAMINE INBOX").unwrap().ok("EXAMINE");
        let fetched = reader
            .command("FETCH 1:* (BODY.PEEK[])")
            .unwrap()
            .ok("FETCH");
        for (number, items) in fetched.fetched() {
            let expected = message::bytes(&format!("large-{}", number - 1), SIZE);
            assert!(
                items.bytes("BODY[]") == Some(&expected[..]),
                "message {number}"
            );
        }
    }
    let grown = watch.grown();
    assert!(
        grown <= ALL_KIB_MAX,
        "{CLIENTS} clients that do not read made the process grow by {grown} KiB"
    );
    drop(held);
    watch.others_work();
    server.assert_no_panic();
}
