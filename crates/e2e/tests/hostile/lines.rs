//! Rows 5, 6 and 8: lines without end in every state of the parser, parentheses that are never closed, NUL.

use whimbrel_e2e::{
    imap::{Imap, Status},
    mail::Mail,
    server::{ACCOUNTS, Server},
};

use super::{Watch, lean, pump, unless_closed};

/// Beginnings after which a line never ends, and what it goes on with.
const BEFORE_LOGIN: &[(&str, &str)] = &[
    ("", "A"),
    ("", "\0"),
    ("z ", "A"),
    ("z LOGIN \"", "a"),
    ("z LOGIN \"", "\\\""),
    ("z LOGIN ", "("),
    ("z LOGIN {3+}\r\nabc \"", "a"),
    ("z LOGIN {3+}\r\nabc", "a"),
    ("z AUTHENTICATE PLAIN ", "QUFB"),
    ("z AUTHENTICATE PLAIN\r\n", "QUFB"),
    ("z ID (", "\"a\" \"b\" "),
    ("z NOOP {", "1"),
    ("z ENABLE", " X"),
];

/// The same after login, with INBOX selected.
const AFTER_LOGIN: &[(&str, &str)] = &[
    ("z IDLE\r\n", "A"),
    ("z UID FETCH ", "1,"),
    ("z UID FETCH ", "1"),
    ("z FETCH 1 (", "FLAGS "),
    ("z FETCH 1 BODY[HEADER.FIELDS (", "A "),
    ("z FETCH 1 BODY[", "1."),
    ("z SEARCH ", "NOT "),
    ("z SEARCH ", "("),
    ("z SEARCH OR ", "OR "),
    ("z SEARCH SUBJECT \"", "a"),
    ("z STORE 1 FLAGS (", "\\Seen "),
    ("z APPEND INBOX (", "\\Seen "),
    ("z APPEND INBOX {3+}\r\nabc", "A"),
    ("z LIST (", "SUBSCRIBED "),
    ("z LIST \"\" (", "a* "),
    ("z STATUS INBOX (", "MESSAGES "),
    ("z CREATE \"", "a/"),
    ("z SELECT INBOX (", "CONDSTORE "),
];

/// Bytes sent of each line: what all of them would cost together, if they were kept, is far above what a command may cost.
const ENDLESS_BYTES: usize = 24 << 20;

#[test]
#[ignore = "long: hostile clients"]
fn row_5_lines_without_end() {
    let server = lean().start();
    let watch = Watch::start(&server);
    // All of them are held at once, still without an end, when memory is looked at.
    let mut imaps = Vec::new();
    for (start, more) in BEFORE_LOGIN {
        let imap = Imap::connect(server.ports.imaps, &server.tls).unwrap();
        imaps.push(endless(imap, start, more));
    }
    for (start, more) in AFTER_LOGIN {
        let mut imap = server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        imaps.push(endless(imap, start, more));
    }
    let mut mails = Vec::new();
    for start in [
        "",
        "EHLO ",
        "MAIL FROM:<",
        "MAIL FROM:<a@example.net> ",
        "VRFY ",
    ] {
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        let _ = unless_closed(mail.wire.send(start.as_bytes()));
        let _ = unless_closed(pump(&mut mail.wire, &vec![b'a'; 1 << 20], ENDLESS_BYTES));
        mails.push(mail);
    }
    // A line of a message without end, header fields without end, among them one whose value is looked at.
    let mut messages = Vec::new();
    for start in ["Subject: ", "Delivered-To: ", "Received: ", "\r\n"] {
        let mut mail = Mail::lmtp(server.ports.lmtp).unwrap();
        let _ = mail.command("MAIL FROM:<carl@example.net>").unwrap();
        let _ = mail
            .command(&format!("RCPT TO:<{}>", ACCOUNTS[0].0))
            .unwrap();
        let _ = mail.command("DATA").unwrap();
        let _ = unless_closed(mail.wire.send(start.as_bytes()));
        let _ = unless_closed(pump(&mut mail.wire, &vec![b'a'; 1 << 20], ENDLESS_BYTES));
        messages.push(mail);
    }
    watch.end();
    // Each is closed, or is answered when its line ends after all; silence would be an error of the wire.
    for mut imap in imaps {
        let _ = unless_closed(imap.wire.send(b"\r\n"));
        let _ = unless_closed(imap.wire.line());
    }
    for mut mail in mails {
        let _ = unless_closed(mail.command("\r\nNOOP"));
    }
    for mut mail in messages {
        if let Some(reply) = unless_closed(mail.command("\r\n.")) {
            assert!(reply.is(5), "{reply:?}");
        }
    }
}

/// A set of that many numbers, no two of them neighbours, so that nothing of it can be written shorter: whether it was carried out.
fn scattered(server: &Server, count: u32) -> bool {
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let set: Vec<String> = (0..count).map(|n| (2 * n + 1).to_string()).collect();
    let command = format!("UID FETCH {} (FLAGS)", set.join(","));
    unless_closed(imap.raw_command(command.as_bytes()))
        .is_some_and(|reply| reply.status == Status::Ok)
}

/// A set of one number, repeated up to so many bytes.
fn repeated(server: &Server, bytes: usize) -> bool {
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let command = format!("UID FETCH {}1 (FLAGS)", "1,".repeat(bytes / 2));
    unless_closed(imap.raw_command(command.as_bytes()))
        .is_some_and(|reply| reply.status == Status::Ok)
}

#[test]
#[ignore = "long: hostile clients"]
fn row_5_sets_without_end() {
    let server = lean().start();
    let watch = Watch::start(&server);
    assert!(scattered(&server, 1_000_000));
    assert!(!scattered(&server, 1_200_000));
    // The same number again and again is one range, but it is text that is read.
    assert!(repeated(&server, 15 << 20));
    assert!(!repeated(&server, 17 << 20));
    watch.end();

    let raised = lean()
        .set("imap", "sequence_set_ranges_max = 2000000")
        .set("imap", "sequence_set_bytes_max = \"64MiB\"")
        .start();
    assert!(
        scattered(&raised, 1_200_000) && repeated(&raised, 17 << 20),
        "with the limits raised this test would object"
    );
}

fn endless(mut imap: Imap, start: &str, more: &str) -> Imap {
    let _ = unless_closed(imap.wire.send(start.as_bytes()));
    let chunk = more.repeat((1 << 18) / more.len());
    let _ = unless_closed(pump(&mut imap.wire, chunk.as_bytes(), ENDLESS_BYTES));
    imap
}

/// Nesting of that depth: whether it was carried out.
fn nested(server: &Server, depth: usize) -> bool {
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let command = format!("SEARCH {}ALL{}", "(".repeat(depth), ")".repeat(depth));
    let accepted = imap.command(&command).unwrap().status == Status::Ok;
    // NOT and OR nest without parentheses: refused or answered, and the connection goes on.
    for command in [
        format!("SEARCH {}ALL", "NOT ".repeat(depth)),
        format!("SEARCH {}ALL", "OR ALL ".repeat(depth)),
    ] {
        let _ = imap.command(&command).unwrap();
    }
    let _ = imap.command("NOOP").unwrap().ok("NOOP");
    accepted
}

#[test]
#[ignore = "long: hostile clients"]
fn row_6_parentheses() {
    let server = lean().start();
    let watch = Watch::start(&server);
    assert!(nested(&server, 20));
    assert!(!nested(&server, 100));
    assert!(!nested(&server, 10_000));
    // 4,000 of them held about 1 MB a connection elsewhere; never closed, on many connections.
    let mut held = Vec::new();
    for n in 0..200 {
        let mut imap = if n % 4 == 0 {
            server.anne()
        } else {
            Imap::connect(server.ports.imaps, &server.tls).unwrap()
        };
        let _ = unless_closed(
            imap.wire
                .send(format!("z NOOP {}", "(".repeat(12_000)).as_bytes()),
        );
        held.push(imap);
    }
    watch.end();
    drop(held);

    let raised = lean().set("imap", "nesting_depth_max = 200").start();
    assert!(
        nested(&raised, 100),
        "with the limit raised this test would object"
    );
}

#[test]
#[ignore = "long: hostile clients"]
fn row_8_nul() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let user = ACCOUNTS[0].0;
    for command in [
        format!("LOGIN \"{user}\0\" \"x\""),
        "LOGIN \"\0\" \"\0\"".to_owned(),
        "LOGIN \"a\\\0\" \"b\"".to_owned(),
        "LOGIN {3+}\r\na\0b {3+}\r\na\0b".to_owned(),
        "NO\0OP".to_owned(),
        "\0".to_owned(),
        "ID (\"a\" \"\0\")".to_owned(),
    ] {
        let mut imap = Imap::connect(server.ports.imaps, &server.tls).unwrap();
        let tag = imap.send(command.as_bytes()).unwrap();
        if let Some(reply) = unless_closed(imap.reply(&tag)) {
            assert_ne!(reply.status, Status::Ok, "{command:?}");
            let _ = imap.command("NOOP").unwrap().ok("NOOP");
        }
    }
    let mut imap = server.anne();
    for command in [
        "CREATE \"a\0b\"",
        "SELECT \"IN\0BOX\"",
        "LIST \"\" \"a\0*\"",
        "STATUS \"\0\" (MESSAGES)",
        "CREATE {3+}\r\na\0b",
    ] {
        if unless_closed(imap.command(command)).is_none_or(|reply| reply.status != Status::Ok) {
            continue;
        }
        panic!("{command:?} was carried out");
    }
    // In a string that nothing else would object to.
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    for command in [
        "SEARCH SUBJECT {3+}\r\na\0b",
        "SEARCH SUBJECT \"a\0b\"",
        "ID (\"a\" {1+}\r\n\0)",
    ] {
        let reply = imap.command(command).unwrap();
        assert_eq!(reply.status, Status::Bad, "{command:?}");
    }
    // NUL in a message: a literal cannot carry it (RFC 9051, 4.3), and in a literal8 it cannot be kept, as no FETCH could show it.
    let sent = b"Subject: a\0b\r\n\r\nc\0d\r\n";
    let reply = imap.append("INBOX", &[], sent).unwrap();
    assert_eq!(reply.status, Status::Bad, "{reply:?}");
    let mut command = format!("APPEND INBOX ~{{{}+}}\r\n", sent.len()).into_bytes();
    command.extend_from_slice(sent);
    let reply = imap.raw_command(&command).unwrap();
    assert_eq!(
        (reply.status, reply.code.as_str()),
        (Status::No, "UNKNOWN-CTE"),
        "{reply:?}"
    );
    let inbox = server.contents(&mut imap, "INBOX").unwrap();
    assert_eq!(inbox.messages.len(), 0);
    watch.end();
}
