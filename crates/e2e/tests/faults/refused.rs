//! A file system that refuses writes for a while and then takes them again, without being unmounted: one that is remounted, a quota, a server of files.

use whimbrel_e2e::server::{Builder, Server};

use super::{
    names, preloaded, reading_works, tell, times_opened_again, until_refused, until_taken,
    writing_is_refused, writing_works,
};

const SIZE: usize = 3000;

fn server() -> Server {
    let builder = Builder::default().set("storage", "write_buffer_bytes = \"1MiB\"");
    preloaded(builder, "refuse", "REFUSE_WRITES")
}

/// From now on writes fail with this error; 0: they do not.
fn set(server: &Server, errno: i32) {
    tell(server, errno.into());
}

#[test]
#[ignore = "long: faults of the machine"]
fn writes_that_are_refused_for_a_while() {
    const EROFS: i32 = 30;
    const EDQUOT: i32 = 122;
    let mut server = server();
    let mut all: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    let process = server.pid();
    for (errno, text) in [(EROFS, "Read-only file system"), (EDQUOT, "quota exceeded")] {
        set(&server, errno);
        until_refused(&mut imap, &mut all, SIZE);
        writing_is_refused(&server, &mut imap, SIZE);
        reading_works(&server, &mut imap, &all, SIZE);
        assert!(server.log().contains(text), "{}", server.tail());
        set(&server, 0);
        until_taken(&mut imap, &mut all, SIZE);
        let mark = format!("after-{errno}");
        all.append(&mut writing_works(&server, &mut imap, &mark, SIZE));
        assert_eq!(names(&server, &mut imap, SIZE), all);
    }
    assert_eq!(server.pid(), process, "nobody started it again");
    assert!(times_opened_again(&server) >= 2, "{}", server.tail());
    set(&server, EROFS);
    until_refused(&mut imap, &mut all, SIZE);
    server.kill();
    set(&server, 0);
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "last", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    server.stop();
}

/// Clients that write all the time, on a disk that refuses now and then: what was acknowledged is there, and nothing else.
#[test]
#[ignore = "long: faults of the machine"]
fn writes_that_are_refused_now_and_then() {
    const ENOSPC: i32 = 28;
    let mut server = server();
    let mut imap = server.anne();
    let mut all = Vec::new();
    for _ in 0..6 {
        // Enough for tables to be written and journals to be put in order meanwhile.
        let appended: Vec<Vec<String>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (server, turn) = (&server, all.len());
                    scope.spawn(move || writes(server, &format!("{turn}-{writer}")))
                })
                .collect();
            let refused = scope.spawn(|| {
                set(&server, ENOSPC);
                until_refused(&mut server.anne(), &mut Vec::new(), LARGE);
                set(&server, 0);
            });
            refused.join().unwrap();
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        all.extend(appended.into_iter().flatten());
    }
    assert!(times_opened_again(&server) >= 6, "{}", server.tail());
    all.sort();
    let mut found = names(&server, &mut imap, LARGE);
    found.sort();
    // What the thread that waited for a refusal had acknowledged is named otherwise.
    found.retain(|name| !name.starts_with("filling-"));
    assert_eq!(found, all);
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    let mut found = names(&server, &mut imap, LARGE);
    found.sort();
    found.retain(|name| !name.starts_with("filling-"));
    assert_eq!(found, all);
    server.stop();
}

const LARGE: usize = 100_000;

/// Appends ten messages, each until it is taken; their names.
fn writes(server: &Server, mark: &str) -> Vec<String> {
    let mut imap = server.anne();
    let mut all: Vec<String> = Vec::new();
    for n in 0..10 {
        let mut one = Vec::new();
        let name = format!("{mark}-{n}");
        whimbrel_e2e::process::wait_for("writes to be taken again", || {
            let reply = imap.append("INBOX", &[], &whimbrel_e2e::message::bytes(&name, LARGE));
            let reply = reply.unwrap();
            if reply.status == whimbrel_e2e::imap::Status::Ok {
                one.push(name.clone());
                return Some(());
            }
            super::assert_unavailable(&reply, "APPEND");
            None
        });
        all.append(&mut one);
    }
    all
}
