//! Rows 12 and 13: MIME of thousands of levels, and messages in messages that never end.
//!
//! Fails when the depth limit of the MIME parser is taken out: the answer then is as deep as the message, or the stack ends.

use whimbrel_e2e::{imap::Status, mail::Mail, server::ACCOUNTS};

use super::{Watch, lean};

const LEVELS: usize = 10_000;

/// What each of them is, and its text.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let head = "From: carl@example.net\r\nSubject: deep\r\nMIME-Version: 1.0\r\n";
    let mut all = Vec::new();
    let mut text = head.to_owned();
    for level in 0..LEVELS {
        text.push_str(&format!(
            "Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n"
        ));
    }
    text.push_str("Content-Type: text/plain\r\n\r\nneedle at the bottom\r\n");
    all.push(("multiparts that are never closed", text.clone()));
    for level in (0..LEVELS).rev() {
        text.push_str(&format!("--b{level}--\r\n"));
    }
    all.push(("multiparts", text));
    let same = format!(
        "{head}{}",
        "Content-Type: multipart/mixed; boundary=same\r\n\r\n--same\r\n".repeat(LEVELS)
    );
    all.push(("multiparts with one boundary", same));
    let within = format!(
        "{head}{}\r\nneedle\r\n",
        "Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS)
    );
    all.push(("messages in messages", within));
    let both = format!(
        "{head}{}",
        "Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n\r\nContent-Type: message/rfc822\r\n\r\n".repeat(LEVELS / 2)
    );
    all.push(("digests in messages", both));
    let cycle = format!(
        "{head}Content-Type: message/rfc822\r\n\r\n{}",
        "Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: message/rfc822\r\n\r\n--x--\r\n--x\r\n".repeat(LEVELS / 4)
    );
    all.push(("boundaries of the parent in the child", cycle));
    all.push((
        "an empty message in a message",
        format!("{head}Content-Type: message/rfc822\r\n\r\n"),
    ));
    all.push((
        "no end of the header",
        format!("{head}Content-Type: message/rfc822\r\n\r\nContent-Type: message/rfc822"),
    ));
    let many = format!(
        "{head}Content-Type: multipart/mixed; boundary=b\r\n\r\n{}",
        "--b\r\n\r\n".repeat(100_000)
    );
    all.push(("a hundred thousand parts", many));
    let parameters = format!(
        "{head}Content-Type: text/plain{}\r\n\r\nx\r\n",
        (0..50_000)
            .map(|n| format!(";\r\n a*{n}*=b"))
            .collect::<String>()
    );
    all.push(("parameters in pieces", parameters));
    all.into_iter()
        .map(|(what, text)| (what, text.into_bytes()))
        .collect()
}

#[test]
#[ignore = "long: hostile clients"]
fn rows_12_and_13_deep_messages() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let mut imap = server.anne();
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let mut count = 0;
    for (what, text) in messages() {
        let reply = imap.append("INBOX", &[], &text).unwrap();
        assert_eq!(reply.status, Status::Ok, "{what}: {reply:?}");
        // By LMTP lines end with CRLF, whatever the message says of itself.
        let mut lines = text.clone();
        if !lines.ends_with(b"\r\n") {
            lines.extend_from_slice(b"\r\n");
        }
        let replies = lmtp
            .deliver("carl@example.net", &[ACCOUNTS[0].0], &lines, true)
            .unwrap();
        assert!(replies[0].is(2), "{what}: {replies:?}");
        count += 2;
        server.wait_count(&mut imap, "INBOX", count);
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        for (number, sent) in [(count - 1, &text), (count, &lines)] {
            let fetched = imap
                .command(&format!(
                    "FETCH {number} (ENVELOPE BODYSTRUCTURE RFC822.SIZE BODY.PEEK[])"
                ))
                .unwrap()
                .ok(what);
            let items: Vec<_> = fetched.fetched().map(|(_, items)| items.clone()).collect();
            assert!(
                items[0].bytes("BODY[]").unwrap().ends_with(sent),
                "{what}: its bytes"
            );
            let section = format!("{}1", "1.".repeat(20));
            for command in [
                format!("FETCH {number} BODY.PEEK[{section}]"),
                format!("FETCH {number} BODY.PEEK[1.MIME]"),
                format!("SEARCH {number} TEXT needle"),
            ] {
                let reply = imap.command(&command).unwrap();
                assert_eq!(reply.status, Status::Ok, "{what}: {command}: {reply:?}");
            }
        }
    }
    watch.end();
}

/// What is refused to go deep must not refuse what is ordinary.
#[test]
#[ignore = "long: hostile clients"]
fn an_ordinary_structure_is_still_told() {
    let server = lean().start();
    let mut imap = server.anne();
    let text = b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n\r\none\r\n--a\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ntwo\r\n--a--\r\n";
    let _ = imap.append("INBOX", &[], text).unwrap().ok("APPEND");
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let fetched = imap
        .command("FETCH 1 (BODY.PEEK[1] BODY.PEEK[2] BODY.PEEK[2.1] BODY.PEEK[2.HEADER])")
        .unwrap()
        .ok("FETCH");
    let (_, items) = fetched.fetched().next().unwrap();
    for (section, expected) in [
        ("BODY[1]", "one"),
        ("BODY[2]", "Subject: inner\r\n\r\ntwo"),
        ("BODY[2.1]", "two"),
        ("BODY[2.HEADER]", "Subject: inner\r\n\r\n"),
    ] {
        assert_eq!(items.bytes(section), Some(expected.as_bytes()), "{section}");
    }
}
