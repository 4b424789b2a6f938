//! Each limit of a session, and what a client cannot do to one.

use whimbrel_frontend::session::{Note, Session};
use whimbrel_service::api::{Event, Failure};

use super::world::{Cut, World};

fn logged_in() -> World {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    assert!(said(&mut world).contains("a OK"));
    world
}

fn said(world: &mut World) -> String {
    String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
}

fn closed(world: &mut World, reason: &'static str) -> bool {
    world.get("1").closed && world.get("1").notes.contains(&Note::Closed(reason))
}

#[test]
fn login_seconds_max() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", true);
    world.pass(100);
    // What is sent meanwhile gives no more time.
    world.send("1", b"a NOOP\r\n");
    world.pass(19);
    assert!(!world.get("1").closed);
    said(&mut world);
    world.pass(1);
    assert!(said(&mut world).starts_with("* BYE"));
    assert!(closed(&mut world, "login timeout"));
}

#[test]
fn idle_seconds_max() {
    let mut world = logged_in();
    world.pass(1800);
    assert!(!world.get("1").closed, "RFC 9051, 5.4: at least 30 minutes");
    world.send("1", b"b NOOP\r\n");
    world.pass(1859);
    said(&mut world);
    assert!(!world.get("1").closed);
    world.pass(1);
    assert!(said(&mut world).starts_with("* BYE"));
    assert!(closed(&mut world, "idle timeout"));
}

/// The store cannot take what the session is told (its disk is full): it is not asked again and again.
#[test]
fn idle_pauses_when_it_is_refused() {
    let mut world = logged_in();
    world.send("1", b"b SELECT INBOX\r\nc IDLE\r\n");
    said(&mut world);
    for _ in 0..3 {
        let asked = world.get("1").calls["Changes"];
        world.fake.fail = Some(("Changes", Failure::Storage));
        world.event("1", Event::Changed);
        world.event("1", Event::Changed);
        world.pass(1);
        assert_eq!(world.get("1").calls["Changes"], asked + 1);
        world.pass(1);
        assert_eq!(world.get("1").calls["Changes"], asked + 2);
    }
    assert_eq!(said(&mut world), "");
    world.fake.fail = Some(("Changes", Failure::Storage));
    world.event("1", Event::Changed);
    world.send("1", b"DONE\r\n");
    assert_eq!(said(&mut world), "c OK Done idling\r\n");
}

/// What is refused after an EXPUNGE could not be told: the client hears up to where it knows everything, not up to where the mailbox is.
#[test]
fn a_refused_look_tells_no_more_than_is_known() {
    let mut world = logged_in();
    world.fake.fill("INBOX", 3, |_| vec![b'x'; 10]);
    world.send("1", b"b ENABLE QRESYNC\r\nc SELECT INBOX\r\n");
    let selected = said(&mut world);
    let known = |said: &str| {
        let (_, rest) = said.rsplit_once("[HIGHESTMODSEQ ")?;
        rest.split_once(']')?.0.parse::<u64>().ok()
    };
    let before = known(&selected).unwrap();
    world.connect("2", true);
    world.send("2", b"a LOGIN anne secret\r\n");
    world.send("2", b"b SELECT INBOX\r\nc STORE 2 +FLAGS (\\Deleted)\r\nd EXPUNGE\r\ne STORE 1 +FLAGS (\\Flagged)\r\n");
    world.send("1", b"d FETCH 1 (FLAGS)\r\n");
    let held_back = said(&mut world);
    assert!(
        known(&held_back).is_some_and(|known| known >= before),
        "{held_back}"
    );
    let held_back = known(&held_back).unwrap();
    world.fake.fail = Some(("Changes", Failure::Storage));
    world.send("1", b"e NOOP\r\n");
    let refused = said(&mut world);
    assert_eq!(known(&refused), Some(held_back), "{refused}");
    world.send("1", b"f NOOP\r\n");
    let told = said(&mut world);
    assert!(told.contains("* VANISHED "), "{told}");
    assert!(
        known(&told).is_some_and(|known| known > held_back),
        "{told}"
    );
}

#[test]
fn idle_ends_it_too() {
    let mut world = logged_in();
    world.send("1", b"b IDLE\r\n");
    said(&mut world);
    world.pass(1860);
    assert!(said(&mut world).starts_with("* BYE"));
    assert!(closed(&mut world, "idle timeout"));
}

#[test]
fn stall_seconds_max() {
    let mut world = logged_in();
    world.fake.fill("INBOX", 2, |_| vec![b'x'; 300_000]);
    world.send("1", b"b SELECT INBOX\r\n");
    said(&mut world);
    let before = world.get("1").sends;
    world.get("1").stuck = true;
    world.send("1", b"c FETCH 1:* BODY.PEEK[]\r\n");
    assert_eq!(world.get("1").sends, before, "it is stuck before the first");
    world.get("1").stuck = false;
    world.get("1").sends = 0;
    world.get("1").stuck = true;
    world.run();
    assert_eq!(
        world.get("1").sends,
        1,
        "one chunk is made, and no more until it is taken"
    );
    world.pass(299);
    assert!(!world.get("1").closed);
    world.pass(1);
    world.get("1").stuck = false;
    world.run();
    assert!(closed(&mut world, "client does not take its output"));
}

#[test]
fn login_failures_max() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.login_failures_max = 2;
    world.connect("1", true);
    world.send(
        "1",
        b"a LOGIN anne x\r\nb AUTHENTICATE PLAIN AGFubmUAeA==\r\nc LOGIN anne secret\r\n",
    );
    let said = said(&mut world);
    assert!(
        said.contains("b NO [AUTHENTICATIONFAILED]")
            && said.contains("* BYE")
            && !said.contains("c OK"),
        "{said}"
    );
    assert!(closed(&mut world, "too many wrong logins"));
}

#[test]
fn bad_commands_max() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.bad_commands_max = 3;
    world.connect("1", true);
    // A good one begins the count anew.
    world.send("1", b"a x\r\na x\r\na NOOP\r\na x\r\na x\r\n");
    assert!(!world.get("1").closed);
    world.send("1", b"GET / HTTP/1.1\r\nHost: x\r\n");
    assert!(closed(&mut world, "too many bad commands"));
}

#[test]
fn keywords_max() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.keywords_max = 2;
    world.connect("1", true);
    world.fake.fill("INBOX", 3, |_| b"x".to_vec());
    world.send("1", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    said(&mut world);
    world.send("1", b"c STORE 1 +FLAGS (one)\r\nd STORE 2 +FLAGS (two)\r\n");
    assert!(
        said(&mut world)
            .contains("* FLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft one two)")
    );
    world.send("1", b"e STORE 3 +FLAGS (three)\r\n");
    let said = said(&mut world);
    assert!(
        !said.contains("* FLAGS") && said.contains("* 3 FETCH (FLAGS (three))"),
        "{said}"
    );
}

/// What APPEND stored in INBOX, and its answer.
fn append(world: &mut World, messages: &str) -> (String, u32) {
    world.send("1", format!("b APPEND INBOX{messages}\r\n").as_bytes());
    let answer = said(world);
    world.send("1", b"c STATUS INBOX (MESSAGES)\r\n");
    let status = said(world);
    let count = status.split_once("MESSAGES ").unwrap().1;
    (answer, count.split_once(')').unwrap().0.parse().unwrap())
}

#[test]
fn append_messages_max() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.append_messages_max = 2;
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    said(&mut world);
    let (answer, stored) = append(&mut world, &" {1+}\r\nx".repeat(3));
    assert!(answer.starts_with("b NO [LIMIT]"), "{answer}");
    assert_eq!(stored, 0);
    assert_eq!(append(&mut world, &" {1+}\r\nx".repeat(2)).1, 2);
    // Parts are no messages.
    let parts = " TEXT {1+}\r\nx".repeat(9);
    assert_eq!(
        append(&mut world, &format!(" CATENATE (TEXT {{1+}}\r\nx{parts})")).1,
        3
    );
}

#[test]
fn append_summary_bytes_max() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.append_summary_bytes_max = 1000;
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    said(&mut world);
    let text = format!("Subject: {}\r\n\r\n", "x".repeat(600));
    let message = format!(" {{{}+}}\r\n{text}", text.len());
    assert_eq!(append(&mut world, &message).1, 1);
    let (answer, stored) = append(&mut world, &message.repeat(2));
    assert!(answer.starts_with("b NO [LIMIT]"), "{answer}");
    assert_eq!(stored, 1);
    assert_eq!(append(&mut world, &" {1+}\r\nx".repeat(2)).1, 3);
}

/// RFC 6855, section 4, when it is asked for.
#[test]
fn ascii_headers() {
    let mut world = World::new(Cut::Sizes(vec![3]));
    world.limits.ascii_headers = true;
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    said(&mut world);
    let literal = |text: &str| format!(" {{{}+}}\r\n{text}", text.len());
    for (text, stored) in [
        ("Subject: \u{fc}\r\n\r\n", false),
        ("a: b\r\n \u{fc}\r\n\r\n", false),
        ("\u{fc}", false),
        ("a: b\r\n\r\n\u{fc}", true),
        ("a: b\n\n\u{fc}", true),
        ("\r\n\u{fc}", true),
        ("\r\u{fc}", false),
    ] {
        let before = append(&mut world, " {1+}\r\nx").1;
        let (answer, after) = append(&mut world, &literal(text));
        assert_eq!(
            answer.starts_with("b NO [CANNOT]"),
            !stored,
            "{text:?}: {answer}"
        );
        assert_eq!(after > before, stored, "{text:?}");
    }
    world.send("1", b"d ENABLE UTF8=ACCEPT\r\n");
    said(&mut world);
    assert!(
        append(&mut world, &literal("\u{fc}: x\r\n\r\n"))
            .0
            .contains("b OK")
    );
    assert!(
        append(&mut world, " UTF8 (~{6+}\r\n\u{fc}\u{fc}\r\n)")
            .0
            .contains("b OK")
    );
}

/// A message that is made of parts is as long as they are together.
#[test]
fn append_bytes_max_of_a_message_in_parts() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.syntax.append_bytes_max = 10;
    world.connect("1", true);
    world.fake.fill("INBOX", 1, |_| b"a: b\r\n".to_vec());
    world.send(
        "1",
        b"a LOGIN anne secret\r\nb SELECT INBOX\r\nc FETCH 1 UID\r\n",
    );
    let uid = said(&mut world);
    let uid: u32 = uid
        .split_once("(UID ")
        .unwrap()
        .1
        .split_once(')')
        .unwrap()
        .0
        .parse()
        .unwrap();
    let message = |parts: &str| format!(" CATENATE ({parts})");
    let text = "TEXT {4+}\r\nabcd";
    let url = format!("URL ;UID={uid}");
    for (parts, stored) in [
        (format!("{text} {text} TEXT {{3+}}\r\nabc"), 1),
        (format!("{url} TEXT {{5+}}\r\nabcde"), 1),
        (format!("{url} {url}"), 1),
        (format!("{url} {text}"), 2),
    ] {
        let (answer, found) = append(&mut world, &message(&parts));
        assert_eq!(
            answer.contains("b NO [TOOBIG]"),
            stored == 1,
            "{parts}: {answer}"
        );
        assert_eq!(found, stored);
    }
}

/// BAD_INPUTS, row 2.
#[test]
fn what_follows_starttls_is_not_acted_upon() {
    for cut in [Cut::AtOnce, Cut::Sizes(vec![10, 7])] {
        let mut world = World::new(cut);
        world.connect("1", false);
        said(&mut world);
        world.send("1", b"a STARTTLS\r\nb NOOP\r\n");
        let connection = world.get("1");
        assert!(connection.closed || !connection.session.wants_input());
        if connection.closed {
            assert!(!said(&mut world).contains("b OK"));
            continue;
        }
        // The rest is still in the socket, where the handshake will find it.
        assert!(connection.wants_tls);
        world.tls("1");
        world.get("1").session.buffered_bytes();
    }
    // In one piece it is seen, and ends the connection.
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", false);
    said(&mut world);
    world.send("1", b"a STARTTLS\r\nb LOGIN anne secret\r\n");
    assert!(closed(&mut world, "input after STARTTLS"));
    assert!(!world.get("1").wants_tls);
    assert!(!world.get("1").calls.contains_key("Authenticate"));
}

/// BAD_INPUTS, row 2: bytes that reach the session between its answer to STARTTLS and the end of the handshake.
#[test]
fn what_races_the_handshake_ends_the_connection() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", false);
    said(&mut world);
    world.send("1", b"a STARTTLS\r\n");
    assert!(world.get("1").wants_tls);
    // Nobody asked for them: the session does not want input now.
    let now = world.now;
    let session = &mut world.get("1").session;
    assert!(!session.wants_input());
    session.on_bytes(now, b"b LOGIN anne secret\r\n");
    world.run();
    assert!(closed(&mut world, "bytes in the clear after STARTTLS"));
    assert!(!world.get("1").calls.contains_key("Authenticate"));
}

#[test]
fn an_idle_session_holds_no_buffer() {
    let mut world = logged_in();
    world.fake.fill("INBOX", 50, |_| vec![b'x'; 3000]);
    world.send("1", b"b SELECT INBOX\r\nc FETCH 1:* BODY.PEEK[]\r\nd SEARCH TEXT y\r\ne APPEND INBOX {4+}\r\na\r\nb\r\n");
    world.send("1", b"f IDLE\r\n");
    let held = world.get("1").session.buffered_bytes();
    assert!(held <= 4096, "{held}");
    let size = std::mem::size_of_val(&world.get("1").session);
    assert!(size <= 4096, "{size}");
}

fn of_three(limits: impl FnOnce(&mut World), message: fn(u32) -> Vec<u8>) -> World {
    let mut world = World::new(Cut::AtOnce);
    limits(&mut world);
    world.connect("1", true);
    world.fake.fill("INBOX", 3, message);
    world.send("1", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    said(&mut world);
    world
}

#[test]
fn sort_messages_max() {
    let mut world = of_three(
        |world| world.limits.sort_messages_max = 2,
        |_| b"x".to_vec(),
    );
    for command in [
        "SORT (SIZE) UTF-8",
        "UID SORT RETURN (MIN) (DATE) UTF-8",
        "THREAD REFERENCES UTF-8",
    ] {
        world.send("1", format!("c {command} ALL\r\n").as_bytes());
        assert!(said(&mut world).starts_with("c NO [LIMIT] "), "{command}");
        world.send("1", format!("d {command} 1:2\r\n").as_bytes());
        assert!(said(&mut world).contains("d OK "), "{command}");
    }
    // To count them needs no order.
    world.send("1", b"e SORT RETURN (COUNT) (SIZE) UTF-8 ALL\r\n");
    assert!(said(&mut world).contains("COUNT 3\r\ne OK "));
    assert_eq!(world.fake.turns, 0);
}

/// "In this case, the server MUST return a tagged NO response containing the NOTSAVED response code and set the search result variable to the empty
/// sequence" (RFC 9051, 6.4.4.4).
#[test]
fn saved_ranges_max() {
    let mut world = of_three(|world| world.limits.saved_ranges_max = 1, |_| b"x".to_vec());
    let saved = |world: &mut World| {
        world.send("1", b"z SEARCH RETURN (ALL) $\r\n");
        said(world)
    };
    for (command, ends) in [
        ("SEARCH", ""),
        ("UID SEARCH", ""),
        ("SORT", "(SIZE) UTF-8 "),
    ] {
        world.send(
            "1",
            format!("c {command} RETURN (SAVE) {ends}1:2\r\n").as_bytes(),
        );
        assert!(said(&mut world).contains("c OK "), "{command}");
        assert!(saved(&mut world).contains("ALL 1:2\r\n"), "{command}");
        for returns in ["SAVE", "SAVE ALL", "SAVE MIN MAX"] {
            world.send(
                "1",
                format!("d {command} RETURN ({returns}) {ends}1,3\r\n").as_bytes(),
            );
            let told = said(&mut world);
            assert!(told.starts_with("d NO [NOTSAVED] "), "{command}: {told}");
            assert!(saved(&mut world).contains("* ESEARCH (TAG \"z\")\r\n"));
        }
    }
}

#[test]
fn sort_key_bytes_max() {
    let subject = |n| format!("Subject: {}{}\r\n\r\n", "x".repeat(50), 9 - n).into_bytes();
    let mut world = of_three(|_| {}, subject);
    world.send("1", b"c SORT (SUBJECT) UTF-8 ALL\r\n");
    assert!(said(&mut world).contains("* SORT 3 2 1\r\n"));
    // What is longer than there is room for is compared by its beginning.
    let mut world = of_three(|world| world.limits.sort_key_bytes_max = 120, subject);
    world.send("1", b"c SORT (SUBJECT) UTF-8 ALL\r\n");
    assert!(said(&mut world).contains("* SORT 1 2 3\r\n"));
}

#[test]
fn thread_references_max() {
    let message = |n| {
        let references = if n == 2 { "<1@x> <gone@x>" } else { "" };
        format!("Message-ID: <{n}@x>\r\nReferences: {references}\r\n\r\n").into_bytes()
    };
    let mut world = of_three(|_| {}, message);
    world.send("1", b"c THREAD REFERENCES UTF-8 ALL\r\n");
    assert!(said(&mut world).starts_with("* THREAD (1 2)(3)\r\n"));
    // Only the last one is looked at.
    let mut world = of_three(|world| world.limits.thread_references_max = 1, message);
    world.send("1", b"c THREAD REFERENCES UTF-8 ALL\r\n");
    assert!(said(&mut world).starts_with("* THREAD (1)(2)(3)\r\n"));
}

/// RFC 8437, 8: it can be turned off. And who has logged out is a stranger again, to the driver and by the clock.
#[test]
fn unauthenticate() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.unauthenticate = false;
    world.connect("1", true);
    world.send(
        "1",
        b"a LOGIN anne secret\r\nb UNAUTHENTICATE\r\nc CAPABILITY\r\n",
    );
    let told = said(&mut world);
    assert!(
        told.contains("b BAD") && !told.contains("UNAUTHENTICATE"),
        "{told}"
    );

    let mut world = logged_in();
    world.pass(1000);
    world.send("1", b"b UNAUTHENTICATE\r\n");
    assert!(said(&mut world).contains("b OK"));
    assert_eq!(world.get("1").log_outs, 1);
    world.pass(119);
    assert!(!world.get("1").closed);
    world.pass(1);
    assert!(closed(&mut world, "login timeout"));
}

/// The UIDs of a mailbox with many gaps are not kept while it waits, and its sequence numbers are right when it is told what happened.
#[test]
fn an_idle_session_holds_no_index_of_many_gaps() {
    for real in [false, true] {
        let mut world = if real {
            World::real(Cut::AtOnce)
        } else {
            World::new(Cut::AtOnce)
        };
        world.fake.fill("INBOX", 1200, |_| b"x: y\r\n".to_vec());
        let thirds: Vec<String> = (1..=400).map(|n| (n * 3).to_string()).collect();
        let flagged = format!("c STORE {} +FLAGS.SILENT (\\Deleted)\r\n", thirds.join(","));
        for name in ["1", "2"] {
            world.connect(name, true);
            world.send(name, b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
        }
        world.send("2", flagged.as_bytes());
        world.send("2", b"d EXPUNGE\r\n");
        world.send("1", b"c NOOP\r\nd IDLE\r\n");
        said(&mut world);
        // Of 800 messages the first one, the 400th and the last go, and one comes.
        world.send("2", b"e STORE 1,400,800 +FLAGS.SILENT (\\Deleted)\r\n");
        world.send("2", b"f EXPUNGE\r\ng APPEND INBOX {4+}\r\nx: y\r\n");
        let known = |world: &mut World| world.get("1").calls.get("Known").copied();
        assert!(known(&mut world).is_some_and(|asked| asked > 0), "{real}");
        let told = said(&mut world);
        let gone: Vec<&str> = told
            .lines()
            .filter(|line| line.ends_with(" EXPUNGE"))
            .collect();
        assert_eq!(
            gone,
            ["* 800 EXPUNGE", "* 400 EXPUNGE", "* 1 EXPUNGE"],
            "{real}: {told}"
        );
        assert!(told.contains("* 798 EXISTS\r\n"), "{real}: {told}");
        // What comes next has an index.
        world.send("1", b"DONE\r\nh UID SEARCH ALL\r\n");
        let first = said(&mut world);
        world.send("2", b"h UID SEARCH ALL\r\n");
        let second = String::from_utf8(std::mem::take(&mut world.get("2").outbox)).unwrap();
        let found = |told: &str| {
            let line = told.lines().find(|line| line.starts_with("* SEARCH"));
            line.unwrap_or_default().to_owned()
        };
        assert_eq!(found(&first), found(&second), "{real}");
        assert_eq!(found(&first).split(' ').count(), 2 + 798);
        // Also when nothing happened.
        let before = known(&mut world);
        world.send("1", b"i IDLE\r\n");
        world.send("1", b"DONE\r\nj FETCH 798 UID\r\n");
        assert!(known(&mut world) > before);
        assert!(said(&mut world).contains("* 798 FETCH (UID "));
    }
}

/// What it knew is not known any more: it cannot go on with its numbers.
#[test]
fn an_idle_session_whose_index_is_lost_ends() {
    let mut world = logged_in();
    world.fake.fill("INBOX", 1200, |_| b"x".to_vec());
    let thirds: Vec<String> = (1..=400).map(|n| (n * 3).to_string()).collect();
    let flagged = format!("c STORE {} +FLAGS.SILENT (\\Deleted)\r\n", thirds.join(","));
    world.send("1", b"b SELECT INBOX\r\n");
    world.send("1", flagged.as_bytes());
    world.send("1", b"d EXPUNGE\r\ne IDLE\r\n");
    world.fake.forgets = true;
    world.send("1", b"DONE\r\n");
    assert!(said(&mut world).contains("* BYE The server no longer knows"));
    assert!(closed(
        &mut world,
        "what an idle client knows cannot be found out"
    ));
}

#[test]
fn other_nodes() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.other_nodes = 2;
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    world
        .fake
        .fill("INBOX", 1, |_| b"Subject: x\r\n\r\nx".to_vec());
    world.send("1", b"b SELECT INBOX\r\nc APPEND Sent {1+}\r\nx\r\n");
    // Reading waits for nobody.
    world.send("1", b"d FETCH 1 BODY[]\r\n");
    world.send("1", b"e STORE 1 +FLAGS (\\Flagged)\r\n");
    let expected = [("Append", 2), ("Store", 0), ("Store", 2)];
    let expected = expected.map(|(call, others)| (call.to_owned(), others));
    assert_eq!(world.fake.writes, expected);
    said(&mut world);
    for (failure, text) in [
        (Failure::TooFewNodes, "Too few other nodes"),
        (Failure::NotConfirmed, "Other nodes do not answer"),
        (Failure::DoneHere, "Done on this node"),
    ] {
        world.fake.fail = Some(("Store", failure));
        world.send("1", b"f STORE 1 +FLAGS (\\Flagged)\r\n");
        let said = said(&mut world);
        assert!(
            said.contains(&format!("f NO [UNAVAILABLE] {text}")),
            "{said}"
        );
    }
}
