//! swaks: SMTP with STARTTLS and PIPELINING, LMTP, and what becomes of addresses.

use std::fs;

use whimbrel_e2e::{
    message,
    process::{Done, run},
    server::{ACCOUNTS, Server},
};

use super::{ANNE, program};

const BOB: &str = ACCOUNTS[1].0;

fn swaks(server: &Server, protocol: &str, to: &str, name: &str, more: &[&str]) -> Done {
    let text = message::bytes(name, 2000);
    let file = server.path(&format!("{name}.eml"));
    // swaks makes CRLF of line ends, stuffs dots, and ends the last line.
    let text = String::from_utf8(text).unwrap().replace("\r\n", "\n");
    fs::write(&file, text.trim_end()).unwrap();
    let port = if protocol == "LMTP" {
        server.ports.lmtp
    } else {
        server.ports.smtp
    };
    let mut command = program(server, "swaks");
    command.args([
        "--server",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--protocol",
        protocol,
    ]);
    command.args([
        "--from",
        "carl@example.net",
        "--to",
        to,
        "--helo",
        "client.example.net",
    ]);
    command
        .arg("--data")
        .arg(format!("@{}", file.display()))
        .args(more);
    run(&mut command, b"")
}

/// The one new message of a mailbox: its bytes must end in those sent; its header before them is given back.
fn trace_of(server: &Server, account: usize, mailbox: &str, count: u64, name: &str) -> String {
    let mut imap = server.login(ACCOUNTS[account]).unwrap();
    server.wait_count(&mut imap, mailbox, count);
    let contents = server.contents(&mut imap, mailbox).unwrap();
    let sent = message::bytes(name, 2000);
    let found: Vec<&[u8]> = contents
        .messages
        .iter()
        .map(|message| message.bytes.as_slice())
        .filter(|bytes| bytes.ends_with(&sent))
        .collect();
    assert_eq!(found.len(), 1, "{name} in {mailbox}");
    String::from_utf8(found[0][..found[0].len() - sent.len()].to_vec()).unwrap()
}

fn check_trace(trace: &str, protocol: &str, delivered_to: &str) {
    let fields: Vec<&str> = trace.split("\r\n").collect();
    // RFC 5321, 4.4: Return-Path stands first; it is set at final delivery.
    assert_eq!(fields[0], "Return-Path: <carl@example.net>", "{trace}");
    assert!(
        fields.contains(&format!("Delivered-To: {delivered_to}").as_str()),
        "{trace}"
    );
    let received = trace
        .split_once("Received: ")
        .unwrap()
        .1
        .replace("\r\n", "");
    assert!(received.starts_with("from client.example.net"), "{trace}");
    assert!(received.contains("by mail.example.org"), "{trace}");
    assert!(received.contains(&format!("with {protocol}")), "{trace}");
    assert!(received.contains("127.0.0.1"), "{trace}");
}

#[test]
fn smtp_and_lmtp() {
    let server = Server::start_plain();
    let authority = server.path("authority.pem");
    let tls = [
        "--tls",
        "--tls-verify",
        "--tls-ca-path",
        authority.to_str().unwrap(),
    ];
    let said = swaks(&server, "ESMTP", ANNE, "first", &tls).expect("SMTP with STARTTLS");
    assert!(said.contains("TLS started"), "{said}");
    for extension in [
        "PIPELINING",
        "8BITMIME",
        "SMTPUTF8",
        "SIZE",
        "CHUNKING",
        "ENHANCEDSTATUSCODES",
    ] {
        assert!(said.contains(extension), "{extension}: {said}");
    }
    check_trace(&trace_of(&server, 0, "INBOX", 1, "first"), "ESMTPS", ANNE);

    let said = swaks(
        &server,
        "ESMTP",
        &format!("{ANNE},{BOB}"),
        "second",
        &["--pipeline"],
    )
    .expect("PIPELINING");
    assert!(said.contains("250"), "{said}");
    check_trace(&trace_of(&server, 0, "INBOX", 2, "second"), "ESMTP ", ANNE);
    check_trace(&trace_of(&server, 1, "INBOX", 1, "second"), "ESMTP ", BOB);

    let said = swaks(&server, "LMTP", &format!("{ANNE},{BOB}"), "third", &[]).expect("LMTP");
    // One answer for each recipient, RFC 2033, 4.2.
    assert_eq!(
        said.split(" -> .\n")
            .nth(1)
            .unwrap()
            .lines()
            .filter(|line| line.contains("<-  250 "))
            .count(),
        2,
        "{said}"
    );
    check_trace(&trace_of(&server, 0, "INBOX", 3, "third"), "LMTP", ANNE);
    check_trace(&trace_of(&server, 1, "INBOX", 2, "third"), "LMTP", BOB);
    server.assert_no_panic();
}

#[test]
fn unknown_recipients_are_refused_at_once() {
    let server = Server::start_plain();
    for (to, code) in [
        ("nobody@example.org", "550 5.1.1"),
        ("anne@example.com", "5"),
    ] {
        let done = swaks(&server, "ESMTP", to, "unknown", &[]);
        assert_eq!(done.code, 24, "no recipient accepted: {}", done.stdout);
        let answer = done
            .stdout
            .lines()
            .skip_while(|line| !line.contains("RCPT TO"))
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        assert!(answer.contains(&format!("<** {code}")), "{answer}");
    }
    // The known one beside it gets the message.
    let done = swaks(
        &server,
        "ESMTP",
        &format!("nobody@example.org,{ANNE}"),
        "known",
        &[],
    );
    assert!(done.success, "{}", done.stdout);
    check_trace(&trace_of(&server, 0, "INBOX", 1, "known"), "ESMTP ", ANNE);
}

#[test]
fn addresses() {
    let server = Server::start_plain();
    for (from, to) in [
        ("info@example.org", ANNE),
        ("all@example.org", ANNE),
        ("all@example.org", BOB),
        ("@catch.example", BOB),
    ] {
        let _ = server
            .admin(&["alias", "add", from, to], "")
            .expect("alias add");
    }
    let mut imap = server.anne();
    let _ = imap.command("CREATE lists").unwrap().ok("CREATE");
    // To, name, account, mailbox, messages there then.
    let cases: &[(&str, &str, usize, &str, u64)] = &[
        ("info@example.org", "alias", 0, "INBOX", 1),
        ("INFO@EXAMPLE.ORG", "any-case", 0, "INBOX", 2),
        ("anne+lists@example.org", "plus", 0, "lists", 1),
        // The mailbox does not exist: INBOX.
        ("anne+nothing@example.org", "plus-unknown", 0, "INBOX", 3),
        ("whoever@catch.example", "catch-all", 1, "INBOX", 1),
    ];
    for (to, name, account, mailbox, count) in cases {
        let done = swaks(&server, "ESMTP", to, name, &[]);
        assert!(done.success, "{to}: {}", done.stdout);
        let _ = trace_of(&server, *account, mailbox, *count, name);
    }
    let _ = swaks(&server, "LMTP", "all@example.org", "to-both", &[]).expect("LMTP");
    let _ = trace_of(&server, 0, "INBOX", 4, "to-both");
    let _ = trace_of(&server, 1, "INBOX", 2, "to-both");
    // Named twice, by an alias and by itself, and yet one message.
    let _ = swaks(
        &server,
        "ESMTP",
        &format!("info@example.org,{ANNE}"),
        "once",
        &[],
    )
    .expect("SMTP");
    let _ = trace_of(&server, 0, "INBOX", 5, "once");
    server.assert_no_panic();
}
