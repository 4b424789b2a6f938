//! What a client can make a session hold, and for how long.

use whimbrel_frontend::{
    pop3::Pop3Session,
    session::{Note, Session as _},
};

use super::{
    script::check,
    world::{Cut, World},
};

fn one(world: &mut World) {
    world.put("INBOX", b"", b"one\r\n");
}

/// Row 5: a line that never ends, in every state.
#[test]
fn endless_lines() {
    for (start, more) in [
        ("", "A"),
        ("", "\0"),
        ("USER ", "a"),
        ("USER anne\r\nPASS ", "s"),
        ("AUTH PLAIN ", "QUFB"),
        ("AUTH PLAIN\r\n", "QUFB"),
        ("AUTH LOGIN\r\n", "QUFB"),
        ("USER anne\r\nPASS secret\r\n", "RETR "),
        ("USER anne\r\nPASS secret\r\nLIST ", "1"),
    ] {
        let mut world = World::new(Cut::Sizes(vec![500]));
        one(&mut world);
        world.connect("a", true);
        world.send(start.as_bytes());
        let mut largest = 0;
        for _ in 0..100 {
            world.send(more.repeat(1000 / more.len()).as_bytes());
            largest = largest.max(world.client().session.buffered_bytes());
        }
        assert!(world.client().closed, "{start:?}");
        assert!(world.told().ends_with("-ERR Line is too long\r\n"));
        assert!(largest < 32 * 1024, "{start:?}: {largest} bytes were held");
    }
    // With the limit raised this test would object.
    let mut world = World::new(Cut::Sizes(vec![500]));
    world.limits.syntax.command_line_bytes_max = 1 << 20;
    world.connect("a", true);
    world.send(&[b'A'; 100_000]);
    assert!(!world.client().closed);
    assert!(world.client().session.buffered_bytes() > 32 * 1024);
}

#[test]
fn what_is_no_pop3_is_cut_off() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("a", true);
    for _ in 0..19 {
        world.send(b"GET / HTTP/1.1\r\n");
    }
    world.send(b"CAPA\r\n");
    for _ in 0..19 {
        world.send(b"\r\n");
    }
    assert!(!world.client().closed);
    world.send(b"x\r\n");
    assert!(world.client().closed);
}

/// Row 24: who does not log in, who sends an octet a minute, who does not read.
#[test]
fn slow_clients() {
    check(
        one,
        "secure a
         S: +OK Whimbrel is ready
         C: USER anne
         S: +OK Now the password
         wait 119
         C: NOOP
         S: -ERR Log in first
         open
         wait 1
         closed
         login b
         wait 599
         C: NOOP
         S: +OK NOOP completed
         wait 599
         open
         wait 1
         closed
         login c
         wait 300
         C| NO
         wait 299
         C| OP
         open
         wait 1
         closed",
    );
    let mut world = World::new(Cut::AtOnce);
    world.put("INBOX", b"", &vec![b'x'; 400_000]);
    world.login("a");
    world.client().takes = 1;
    world.send(b"RETR 1\r\nRETR 1\r\n");
    let held = world.client().session.buffered_bytes();
    assert!(held < 256 * 1024, "{held} bytes are held");
    assert!(world.client().outbox.len() < 256 * 1024);
    world.wait(299);
    assert!(!world.client().closed);
    world.client().takes = usize::MAX;
    let now = world.node.now();
    assert!(world.client().session.deadline().unwrap() <= now.mono_micros + 1_000_000);
    // It reads again, and gets everything.
    world.run();
    assert!(world.told().len() > 800_000);
    world.client().takes = 1;
    world.send(b"RETR 1\r\n");
    world.client().takes = usize::MAX;
    world.client().session.on_time(now);
    assert!(world.client().session.deadline().is_some());
    world.wait(300);
    world.run();
}

#[test]
fn a_client_that_never_reads_is_cut() {
    let mut world = World::new(Cut::AtOnce);
    world.put("INBOX", b"", &vec![b'x'; 400_000]);
    world.login("a");
    world.client().takes = 1;
    world.send(b"RETR 1\r\n");
    let until = world.client().session.deadline().unwrap();
    world.node.advance_to(until);
    let now = world.node.now();
    world.client().session.on_time(now);
    world.client().takes = usize::MAX;
    world.run();
    assert!(world.client().closed);
    assert!(
        world
            .client()
            .notes
            .contains(&Note::Closed("client does not take its output"))
    );
}

/// Four bytes a message and the machine itself.
#[test]
fn an_idle_session_is_small() {
    assert!(
        size_of::<Pop3Session>() < 640,
        "{}",
        size_of::<Pop3Session>()
    );
    let mut world = World::new(Cut::AtOnce);
    one(&mut world);
    while world.rows("INBOX").len() < 1024 {
        let uids = world.rows("INBOX").iter().map(|row| row.uid).collect();
        world.copy("INBOX", uids, "INBOX", false);
    }
    world.login("a");
    let bytes = |world: &mut World| world.client().session.buffered_bytes();
    let idle = bytes(&mut world);
    assert!(idle <= 4 * 1024 + 256, "{idle}");
    world.send(&[&b"RETR 5\r\n".repeat(300)[..], b"UIDL\r\nLIST\r\n"].concat());
    assert!(bytes(&mut world) <= 4 * 1024 + 256);
    world.send(b"DELE 7\r\n");
    assert!(bytes(&mut world) <= 4 * 1024 + 256 + 128);
}
