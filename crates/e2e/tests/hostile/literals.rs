//! Rows 4 and 7: many or huge literals, also before login; memory taken by a declared size.

use whimbrel_e2e::{
    imap::{Imap, Response, Status},
    mail::Mail,
    memory, message,
    server::Server,
};

use super::{Watch, lean, pump, unless_closed};

/// Whether a synchronizing literal of this size is asked for.
fn is_asked_for(imap: &mut Imap, command: &str, size: usize) -> bool {
    imap.wire
        .send(format!("z {command} {{{size}}}\r\n").as_bytes())
        .unwrap();
    loop {
        match unless_closed(imap.response()) {
            Some(Response::Continue(_)) => return true,
            Some(Response::Tagged(tag, status, ..)) => {
                assert!(tag == "z" && status != Status::Ok, "{tag} {status:?}");
                return false;
            }
            Some(Response::State(..) | Response::Data(..)) => {}
            None => return false,
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// Sizes just above the limits of the documentation, so that raising a limit shows.
fn asked_for(server: &Server) -> [bool; 2] {
    let stranger = Imap::connect(server.ports.imaps, &server.tls).unwrap();
    let before_login = is_asked_for(&mut stranger.unwatched(), "LOGIN", (4 << 10) + 1);
    let after_login = is_asked_for(
        &mut server.anne().unwatched(),
        "SEARCH SUBJECT",
        (64 << 10) + 1,
    );
    [before_login, after_login]
}

#[test]
#[ignore = "long: hostile clients"]
fn row_4_large_literals_are_refused() {
    let server = lean().start();
    let watch = Watch::start(&server);
    assert_eq!(asked_for(&server), [false, false]);
    for size in [
        "1000000000",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        for command in ["LOGIN", "AUTHENTICATE", "NOOP", "APPEND INBOX"] {
            let stranger = Imap::connect(server.ports.imaps, &server.tls).unwrap();
            let mut stranger = stranger.unwatched();
            stranger
                .wire
                .send(format!("z {command} {{{size}}}\r\n").as_bytes())
                .unwrap();
            let first = unless_closed(stranger.response());
            assert!(
                !matches!(first, Some(Response::Continue(_))),
                "{command} {{{size}}} was asked for"
            );
        }
    }
    watch.end();

    let raised = lean()
        .set("imap", "literal_bytes_max_before_login = \"64KiB\"")
        .set("imap", "command_bytes_max_before_login = \"1MiB\"")
        .set("imap", "literal_bytes_max = \"1MiB\"")
        .set("imap", "command_bytes_max = \"4MiB\"")
        .start();
    assert_eq!(
        asked_for(&raised),
        [true, true],
        "with the limits raised this test would object"
    );
}

#[test]
#[ignore = "long: hostile clients"]
fn row_4_literals_that_wait_for_nobody() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let chunk = vec![b'x'; 1 << 20];
    for command in ["LOGIN", "NOOP", "APPEND INBOX"] {
        let mut stranger = Imap::connect(server.ports.imaps, &server.tls).unwrap();
        let _ = unless_closed(
            stranger
                .wire
                .send(format!("z {command} {{1000000000+}}\r\n").as_bytes()),
        );
        let taken = unless_closed(pump(&mut stranger.wire, &chunk, 200 << 20));
        assert!(taken.is_none(), "{command}: all of it was taken in");
    }
    // After login an APPEND above its limit: more than is read and dropped for the sake of the connection.
    let mut imap = server.anne();
    let _ = unless_closed(imap.wire.send(b"z APPEND INBOX {1000000000+}\r\n"));
    let taken = unless_closed(pump(&mut imap.wire, &chunk, 200 << 20));
    assert!(taken.is_none(), "APPEND: all of it was taken in");
    watch.end();
    assert_eq!(
        server
            .contents(&mut server.anne(), "INBOX")
            .unwrap()
            .messages
            .len(),
        0
    );
}

/// Sends that many literals in one command; whether it was carried out.
fn many(server: &Server, count: usize) -> bool {
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let command = format!("SEARCH {}", "SUBJECT {3+}\r\nabc ".repeat(count));
    unless_closed(imap.raw_command(command.trim_end().as_bytes()))
        .is_some_and(|reply| reply.status == Status::Ok)
}

#[test]
#[ignore = "long: hostile clients"]
fn row_4_many_literals() {
    let server = lean().start();
    let watch = Watch::start(&server);
    assert!(many(&server, 900));
    assert!(!many(&server, 1100));
    let mut stranger = Imap::connect(server.ports.imaps, &server.tls).unwrap();
    let _ = unless_closed(stranger.wire.send(b"z LOGIN"));
    let _ = unless_closed(pump(
        &mut stranger.wire,
        " {10+}\r\n0123456789".repeat(1000).as_bytes(),
        50 << 20,
    ));
    watch.end();

    let raised = lean()
        .set("imap", "literal_count_max = 5000")
        .set("imap", "command_bytes_max = \"1MiB\"")
        .start();
    assert!(
        many(&raised, 1100),
        "with the limit raised this test would object"
    );
}

/// What an allocator and its threads may reserve beside what they use. Declared are 150 times 60 MiB and 20 times 60 MiB.
const RESERVED_KIB_MAX: u64 = 512 << 10;

#[test]
#[ignore = "long: hostile clients"]
fn row_7_declared_sizes_cost_nothing() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let reserved = memory::private_kib(server.pid());
    let mut held = Vec::new();
    for n in 0..150 {
        let mut stranger = Imap::connect(server.ports.imaps, &server.tls).unwrap();
        let size = if n % 2 == 0 { 4000 } else { 2_000_000_000 };
        let _ = unless_closed(
            stranger
                .wire
                .send(format!("z LOGIN {{{size}}}\r\n").as_bytes()),
        );
        held.push(stranger.wire);
        let mut smtp = Mail::smtp(server.ports.smtp).unwrap();
        let _ = smtp
            .command(&format!("MAIL FROM:<carl@example.net> SIZE={}", 60 << 20))
            .unwrap();
        let _ = smtp.command("RCPT TO:<anne@example.org>").unwrap();
        let _ = unless_closed(smtp.wire.send(format!("BDAT {}\r\nx", 60 << 20).as_bytes()));
        held.push(smtp.wire);
    }
    let imap = server.anne();
    let mut appends = vec![imap.wire];
    for _ in 0..20 {
        let mut imap = server.anne();
        imap.wire
            .send(format!("z APPEND INBOX {{{}+}}\r\nx", 60 << 20).as_bytes())
            .unwrap();
        appends.push(imap.wire);
    }
    // What is reserved and not touched is no resident memory, but it is what a declared size would take.
    let reserved = memory::private_kib(server.pid()).saturating_sub(reserved);
    assert!(
        reserved <= RESERVED_KIB_MAX,
        "{reserved} KiB were reserved by declared sizes"
    );
    watch.end();
    drop((held, appends));
}

/// What a message may cost on its way to the disk: what a session holds, and buffers of the store that fill while the disk is behind.
const STREAM_KIB_MAX: u64 = 160 << 10;

/// A message larger than what it may cost.
#[test]
#[ignore = "long: hostile clients"]
fn a_large_message_is_streamed() {
    let server = lean().set("imap", "append_bytes_max = \"512MiB\"").start();
    let mut imap = server.anne();
    let piece = message::bytes("large", 1 << 20);
    // First a smaller one: threads and buffers that any message brings into being are not what is measured.
    for pieces in [16, 320] {
        let watch = Watch::start(&server);
        let text = piece.repeat(pieces);
        let _ = imap.append("Archive", &[], &text).unwrap().ok("APPEND");
        let _ = imap.command("SELECT Archive").unwrap().ok("SELECT");
        let fetched = imap.command("FETCH * BODY.PEEK[]").unwrap().ok("FETCH");
        let (_, items) = fetched.fetched().next().unwrap();
        assert!(items.bytes("BODY[]") == Some(&text[..]), "all of its bytes");
        watch.end_within(STREAM_KIB_MAX);
    }
}

/// An upload of a refused APPEND is given up: a connection that was refused often can still append.
#[test]
#[ignore = "long: hostile clients"]
fn refused_appends_leave_nothing_behind() {
    let server = lean().start();
    let mut imap = server.anne();
    let text = message::bytes("refused", 3000);
    for _ in 0..100 {
        let reply = imap.append("not there", &[], &text).unwrap();
        assert_eq!(
            (reply.status, reply.code.as_str()),
            (Status::No, "TRYCREATE"),
            "{reply:?}"
        );
    }
    let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
}
