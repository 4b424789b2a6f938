//! The disk is full: below the reserve (`storage.free_bytes_min`) nothing is added, and users can make room; below a smaller one
//! (`storage.removal_free_bytes_min`) they cannot; without any room at all nothing is written until there is some.

use std::fs;

use whimbrel_e2e::{
    message,
    server::{ACCOUNTS, Builder},
};

use super::{
    Disk, assert_unavailable, by_mail, does_not_start, names, reading_works, times_opened_again,
    until_refused, until_taken, wait_until_delivered, waits_for_its_disk, writing_is_refused,
    writing_works,
};

const SIZE: usize = 3000;
/// What the server keeps free.
const RESERVE: u64 = 16 << 20;

#[test]
#[ignore = "long: faults of the machine"]
fn below_the_reserve_clients_are_told_to_try_later() {
    let disk = Disk::memory(256);
    let mut server = Builder::default()
        .set("server", &disk.data_dir())
        // The default of the smaller reserve is greater than this: it is the same then.
        .set("storage", &format!("free_bytes_min = \"{RESERVE}B\""))
        .start();
    let mut all: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");

    // Mail that nobody has been told of yet.
    let unseen = by_mail(&server, true, "unseen", SIZE);
    assert!(unseen.iter().all(|reply| reply.is(2)), "{unseen:?}");
    all.push("unseen".to_owned());
    wait_until_delivered(&server);

    disk.fill(RESERVE / 2);
    let mut bob = server.login(ACCOUNTS[1]).unwrap();
    let _ = bob.command("SELECT INBOX").unwrap().ok("SELECT");
    let refused = message::bytes("refused", SIZE);
    let reply = imap.append("INBOX", &[], &refused).unwrap();
    assert_unavailable(&reply, "APPEND");
    let large = imap.append("INBOX", &[], &message::bytes("refused", 1 << 20));
    assert_unavailable(&large.unwrap(), "APPEND of a large message");
    for command in [
        "STORE 1 +FLAGS (\\Answered)",
        "CREATE new",
        "COPY 1 Archive",
        "MOVE 1 Archive",
        "SUBSCRIBE Sent",
    ] {
        assert_unavailable(&imap.command(command).unwrap(), command);
    }
    let replies = by_mail(&server, true, "refused", SIZE);
    assert_eq!(replies.len(), 2, "one for each recipient");
    for reply in replies
        .iter()
        .chain(&by_mail(&server, false, "refused", SIZE))
    {
        assert_eq!(reply.code, 452, "{reply:?}");
        assert!(reply.lines[0].starts_with("4.3.1 "), "{reply:?}");
    }
    let mut pop3 = server.anne_pop3();
    pop3.command("DELE 1").unwrap().expect("DELE");
    let quit = pop3.command("QUIT").unwrap();
    assert!(!quit.ok && quit.text.starts_with("[SYS/TEMP] "), "{quit:?}");
    let added = server.admin(
        &["account", "add", "new@example.org", "--password-stdin"],
        "x",
    );
    assert!(!added.success);
    reading_works(&server, &mut imap, &all, SIZE);
    assert!(server.http("/readyz").starts_with("HTTP/1.1 200 "));

    // A start finds it so and serves all the same.
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    reading_works(&server, &mut imap, &all, SIZE);
    let reply = imap.append("INBOX", &[], &refused).unwrap();
    assert_unavailable(&reply, "APPEND after a start");

    // Room again: nobody has to do anything more.
    disk.clear();
    all.append(&mut writing_works(&server, &mut imap, "after", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    // What was refused left nothing behind, and after a crash the rest is there.
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    let flags = &server.contents(&mut imap, "INBOX").unwrap().messages[0].flags;
    assert_eq!(*flags, ["\\Flagged"]);
    let listed = imap.command("LIST \"\" new").unwrap().ok("LIST");
    assert!(listed.data("LIST").is_empty());
    let bob = server
        .login(ACCOUNTS[1])
        .unwrap()
        .command("STATUS INBOX (MESSAGES)");
    assert_eq!(bob.unwrap().status_figures()["MESSAGES"], 3);
    server.stop();
}

#[test]
#[ignore = "long: faults of the machine"]
fn below_the_reserve_users_can_make_room() {
    let disk = Disk::memory(256);
    let mut server = Builder::default()
        .set("server", &disk.data_dir())
        .set(
            "storage",
            &format!("free_bytes_min = \"{RESERVE}B\"\nremoval_free_bytes_min = \"4MiB\""),
        )
        .start();
    let all: Vec<String> = (0..6).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    for command in ["SELECT INBOX", "CREATE old", "COPY 1:3 old"] {
        let _ = imap.command(command).unwrap().ok(command);
    }

    disk.fill(RESERVE / 2);
    let refused = [
        "STORE 1 +FLAGS (\\Answered)",
        "COPY 1 Archive",
        "MOVE 1 Archive",
    ];
    for command in refused {
        assert_unavailable(&imap.command(command).unwrap(), command);
    }
    for command in [
        "STORE 1:3 +FLAGS.SILENT (\\Deleted)",
        "UID EXPUNGE 1",
        "EXPUNGE",
        "DELETE old",
        "STORE 1 +FLAGS.SILENT (\\Deleted)",
        "CLOSE",
    ] {
        let _ = imap.command(command).unwrap().ok(command);
    }
    let mut pop3 = server.anne_pop3();
    pop3.command("DELE 1").unwrap().expect("DELE");
    pop3.command("QUIT").unwrap().expect("QUIT");

    // It holds, and with less room than the store needs nothing is removed any more.
    server.kill();
    server.start(&[]);
    disk.fill(2 << 20);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all[5..]);
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let command = "STORE 1 +FLAGS (\\Deleted)";
    assert_unavailable(&imap.command(command).unwrap(), command);
    disk.clear();
    let _ = imap.command(command).unwrap().ok(command);
    server.stop();
}

/// Whoever makes the disk full behind the server's back, past its reserve: the tree takes no more writes, and is opened again when there is room.
fn without_any_room(disk: &Disk) {
    let mut server = Builder::default()
        .set("server", &disk.data_dir())
        // Tables are written all the time, too.
        .set(
            "storage",
            "free_bytes_min = \"0B\"\nwrite_buffer_bytes = \"1MiB\"",
        )
        .start();
    let mut all: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    for _ in 0..2 {
        disk.fill(0);
        until_refused(&mut imap, &mut all, SIZE);
        writing_is_refused(&server, &mut imap, SIZE);
        reading_works(&server, &mut imap, &all, SIZE);
        assert!(server.http("/readyz").starts_with("HTTP/1.1 200 "));
        disk.clear();
        until_taken(&mut imap, &mut all, SIZE);
        all.append(&mut writing_works(
            &server,
            &mut imap,
            &format!("after-{}", all.len()),
            SIZE,
        ));
        assert_eq!(names(&server, &mut imap, SIZE), all);
    }

    assert!(times_opened_again(&server) >= 2, "{}", server.tail());

    // In the middle of it the power goes.
    disk.fill(0);
    until_refused(&mut imap, &mut all, SIZE);
    server.kill();
    // Still full: it waits, may be stopped, and serves when there is room.
    waits_for_its_disk(&mut server, &["No space left on device"]);
    server.stop();
    waits_for_its_disk(&mut server, &["No space left on device"]);
    disk.clear();
    server.wait_until_it_serves();
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "last", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    // However often it was tried, it is the same disk.
    assert!(!server.log().contains("an older copy"), "{}", server.tail());
    server.stop();
}

/// What no room would mend is told at once.
#[test]
#[ignore = "long: faults of the machine"]
fn a_start_that_cannot_succeed_does_not_wait() {
    let disk = Disk::memory(256);
    let mut server = Builder::default()
        .set("server", &disk.data_dir())
        .set("storage", "free_bytes_min = \"0B\"")
        .start();
    server.deliver(&["m-0".to_owned()], SIZE);
    server.stop();
    let store = disk.at().join("data/store");
    let format = store.join("FORMAT");
    let good = fs::read_to_string(&format).unwrap();
    let (name, rest) = good.split_once(' ').unwrap();
    let (_, rest) = rest.split_once(' ').unwrap();
    let newer = format!("{name} 99 {rest}");
    fs::write(&format, newer).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let version = store.join("lsm/version");
    disk.fill(0);
    does_not_start(&mut server, &["written by a newer version"]);
    disk.clear();
    fs::write(&format, &good).unwrap();
    // What is gone is damage.
    fs::copy(&version, copy.path().join("version")).unwrap();
    fs::remove_file(&version).unwrap();
    disk.fill(0);
    does_not_start(&mut server, &["the tree's version file is missing"]);
    disk.clear();
    fs::copy(copy.path().join("version"), &version).unwrap();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), ["m-0"]);
    server.stop();
}

#[test]
#[ignore = "long: faults of the machine"]
fn without_any_room_in_memory() {
    without_any_room(&Disk::memory(256));
}

#[test]
#[ignore = "long: faults of the machine"]
fn without_any_room_on_a_disk() {
    without_any_room(&Disk::file(256));
}
