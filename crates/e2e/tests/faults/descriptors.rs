//! No more file descriptors: who comes too late is told to try later, and who is there goes on reading and writing.

use std::{collections::VecDeque, fs, process::Command};

use whimbrel_e2e::{
    imap::Status,
    message,
    process::{run, wait_for},
    server::{ACCOUNTS, Builder, Server},
    wire::Wire,
};

use super::{names, times_opened_again, until_refused, until_taken, writing_works};

const SIZE: usize = 3000;

/// How many descriptors the server has.
fn open(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .unwrap()
        .count()
}

/// Sets the server's limit while it runs.
fn limit(server: &Server, descriptors: usize) {
    let mut prlimit = Command::new("prlimit");
    prlimit
        .arg(format!("--pid={}", server.pid()))
        .arg(format!("--nofile={descriptors}:"));
    let _ = run(&mut prlimit, b"").expect("prlimit");
}

/// The table is full: not one descriptor can be had. Those who are there read and write; those who come hear their protocol's temporary error.
#[test]
#[ignore = "long: faults of the machine"]
fn without_descriptors() {
    let mut server = Builder::default()
        // What is written here soon becomes files that reading has to open.
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .set("storage", "cache_bytes = \"1MiB\"")
        .build();
    server.start(&[]);
    let mut all: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    limit(&server, 200);
    let mut held = Vec::new();
    for (port, start) in [
        (server.ports.imap, "* BYE [UNAVAILABLE] "),
        (server.ports.pop3, "-ERR [SYS/TEMP] "),
        (server.ports.smtp, "421 4.3.2 "),
        (server.ports.lmtp, "421 4.3.2 "),
    ] {
        let refused = loop {
            let mut wire = Wire::clear(port).unwrap();
            let line = wire.line().expect("a word for who cannot be served");
            let line = String::from_utf8(line).unwrap();
            if ["* OK ", "+OK ", "220 "]
                .iter()
                .all(|ok| !line.starts_with(ok))
            {
                break line;
            }
            held.push(wire);
            assert!(held.len() < 200, "more connections than descriptors");
        };
        assert!(refused.starts_with(start), "{refused}");
    }
    assert_eq!(names(&server, &mut imap, SIZE), all);
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    for n in 0..5 {
        all.push(format!("without-{n}"));
        let text = message::bytes(all.last().unwrap(), SIZE);
        let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
        let _ = imap
            .command("STORE 1 +FLAGS (\\Flagged)")
            .unwrap()
            .ok("STORE");
    }
    assert_eq!(names(&server, &mut imap, SIZE), all);

    drop(held);
    limit(&server, 4096);
    wait_for("new clients to be served", || {
        server.answers().then_some(())
    });
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "after", SIZE));
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    server.stop();
}

/// Reading needs files that are not open: who asks is told to try later, not that his mail is damaged, and is given it afterwards.
#[test]
#[ignore = "long: faults of the machine"]
fn files_that_cannot_be_opened() {
    const LARGE: usize = 1 << 20;
    let mut server = Builder::default()
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .set("storage", "cache_bytes = \"1MiB\"")
        .build();
    server.start(&[]);
    let all: Vec<String> = (0..20).map(|n| format!("large-{n}")).collect();
    server.deliver(&all, LARGE);
    // A start has no file open that nobody has read yet.
    server.stop();
    server.start(&[]);
    let mut imap = server.anne();
    let mut pop3 = server.anne_pop3();
    let _ = imap.command("EXAMINE INBOX").unwrap().ok("EXAMINE");
    limit(&server, 8);
    let mut refused = 0;
    for (n, name) in all.iter().enumerate() {
        let status = pop3.command(&format!("RETR {}", n + 1)).unwrap();
        if status.ok {
            assert!(pop3.list().unwrap().ends_with(&message::bytes(name, LARGE)));
        } else {
            assert!(status.text.starts_with("[SYS/TEMP] "), "{status:?}");
            refused += 1;
        }
    }
    assert!(refused > 0, "all files were open");
    let replies = (1..=all.len()).map(|n| imap.command(&format!("FETCH {n} BODY.PEEK[]")).unwrap());
    let refused: Vec<_> = replies.filter(|reply| reply.status != Status::Ok).collect();
    assert!(!refused.is_empty(), "all files were open");
    for reply in refused {
        assert!(reply.code == "UNAVAILABLE", "{reply:?}");
    }
    limit(&server, 4096);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, LARGE), all);
    let text = pop3.fetch("RETR 1").unwrap();
    assert!(text.ends_with(&message::bytes(&all[0], LARGE)));
    server.stop();
}

/// The store has to begin files and cannot: who writes is told to try later, and is served again when there are descriptors.
#[test]
#[ignore = "long: faults of the machine"]
fn files_that_cannot_be_begun() {
    const LARGE: usize = 1 << 20;
    let mut server = Builder::default()
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .build();
    server.start(&[]);
    let mut all: Vec<String> = Vec::new();
    let mut imap = server.anne();
    limit(&server, 8);
    until_refused(&mut imap, &mut all, LARGE);
    limit(&server, 4096);
    until_taken(&mut imap, &mut all, LARGE);
    assert!(times_opened_again(&server) >= 1, "{}", server.tail());
    assert_eq!(names(&server, &mut imap, LARGE), all);
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, LARGE), all);
    server.stop();
}

/// With few descriptors to begin with, connections do not get those that the store needs for its files.
#[test]
#[ignore = "long: faults of the machine"]
fn connections_leave_descriptors_to_the_store() {
    let mut server = Builder::default()
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .set("storage", "cache_bytes = \"1MiB\"")
        .build();
    server.start(&["prlimit", "--nofile=300:300"]);
    let mut imap = server.anne();
    let mut held = VecDeque::new();
    let refused = loop {
        let mut wire = Wire::clear(server.ports.smtp).unwrap();
        let line = String::from_utf8(wire.line().unwrap()).unwrap();
        if !line.starts_with("220 ") {
            break line;
        }
        held.push_back(wire);
        assert!(held.len() < 300, "more connections than descriptors");
    };
    assert!(refused.starts_with("421 4.3.2 "), "{refused}");
    // Users have places of their own.
    let mut sessions = Vec::new();
    while let Ok(session) = server.login(ACCOUNTS[sessions.len() % 2]) {
        sessions.push(session);
        assert!(sessions.len() < 300, "more sessions than descriptors");
    }
    let (strangers, users) = (held.len(), sessions.len());
    assert!(strangers + users > 50, "{strangers} and {users}");
    assert!(open(&server) < 250, "{strangers} and {users}");
    // Much more than the buffers hold: files are made, journals begun and read again.
    let mut all = Vec::new();
    for n in 0..40 {
        all.push(format!("large-{n}"));
        let text = message::bytes(&all[n], 1 << 20);
        let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
    }
    assert_eq!(names(&server, &mut imap, 1 << 20), all);
    held.clear();
    sessions.clear();
    wait_for("new clients to be served", || {
        server.answers().then_some(())
    });
    server.stop();
}
