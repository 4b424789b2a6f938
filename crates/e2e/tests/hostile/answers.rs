//! Row 15: a small request with a huge answer, and a client that does not read it.
//!
//! Fails when responses are made before the transport has room: the process then grows by what is not read.

use whimbrel_e2e::message;

use super::{Watch, lean};

const MESSAGES: usize = 200;
const SIZE: usize = 200_000;
const CLIENTS: usize = 20;

/// What all of them together may cost: some chunks each, and what an allocator keeps for the threads that read the disk. What they asked
/// for is two hundred times as much.
const ALL_KIB_MAX: u64 = 256 << 10;

#[test]
#[ignore = "long: hostile clients"]
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

/// With memory for the answer of one session at a time: clients that read all get theirs, beside those that do not.
///
/// Fails when a session keeps its share of the memory while its client does not read.
#[test]
#[ignore = "long: hostile clients"]
fn row_15_and_holds_nobody_up() {
    let server = lean()
        .set("limits", "answers_bytes_max = \"512KiB\"")
        .set("limits", "write_timeout = \"1h\"")
        .start();
    let mut imap = server.anne();
    let names: Vec<String> = (0..40).map(|n| format!("large-{n}")).collect();
    for name in &names {
        let message = message::bytes(name, SIZE);
        let _ = imap.append("INBOX", &[], &message).unwrap().ok("APPEND");
    }
    let mut watch = Watch::start(&server);
    let held: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut imap = server.anne();
            let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
            let items = ["BODY.PEEK[]", "(ENVELOPE BODY.PEEK[])"][n % 2];
            for _ in 0..60 {
                let _ = imap.send(format!("FETCH 1:* {items}").as_bytes()).unwrap();
            }
            imap
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let _ = scope.spawn(|| {
                let mut reader = server.anne();
                let _ = reader.command("EXAMINE INBOX").unwrap().ok("EXAMINE");
                let fetched = reader.command("FETCH 1:* (ENVELOPE BODY.PEEK[])");
                let fetched = fetched.unwrap().ok("FETCH");
                let mut read = 0;
                for (number, items) in fetched.fetched() {
                    let expected = message::bytes(&names[number as usize - 1], SIZE);
                    assert!(items.bytes("BODY[]") == Some(&expected[..]), "{number}");
                    read += 1;
                }
                assert_eq!(read, names.len());
            });
        }
    });
    let page = server.http("/metrics");
    let waited = page
        .lines()
        .find_map(|line| line.strip_prefix("whimbrel_answer_waits_total "));
    assert_ne!(waited, Some("0"), "nobody had to wait: {page}");
    drop(held);
    watch.others_work();
    server.assert_no_panic();
}
