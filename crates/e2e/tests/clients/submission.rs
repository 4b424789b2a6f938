//! Submission by swaks, curl and Python's smtplib: what was sent, who got it, and what lies in Sent.

use std::fs;

use whimbrel_e2e::{
    message,
    process::{Done, run, wait_for},
    server::{ACCOUNTS, Server},
};

use super::{ANNE, PASSWORD, program, script};

const BOB: &str = ACCOUNTS[1].0;

/// A message from Anne to Bob.
fn letter(name: &str) -> Vec<u8> {
    let text = String::from_utf8(message::bytes(name, 3000)).unwrap();
    text.replace(
        "From: Carl <carl@example.net>",
        &format!("From: Anne <{ANNE}>"),
    )
    .into_bytes()
}

/// All messages of a mailbox, when there are so many.
fn mailbox(
    server: &Server,
    account: usize,
    mailbox: &str,
    count: u64,
) -> Vec<(Vec<u8>, Vec<String>)> {
    let mut imap = server.login(ACCOUNTS[account]).unwrap();
    server.wait_count(&mut imap, mailbox, count);
    let contents = server.contents(&mut imap, mailbox).unwrap();
    contents
        .messages
        .into_iter()
        .map(|message| (message.bytes, message.flags))
        .collect()
}

fn swaks(server: &Server, port: u16, text: &[u8], more: &[&str]) -> Done {
    let file = server.path("letter.eml");
    // swaks makes CRLF of line ends, stuffs dots, and ends the last line.
    let text = String::from_utf8(text.to_vec())
        .unwrap()
        .replace("\r\n", "\n");
    fs::write(&file, text.trim_end()).unwrap();
    let mut command = program(server, "swaks");
    command.args(["--server", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--from", ANNE, "--to", BOB, "--helo", "client.example.net"]);
    command
        .arg("--data")
        .arg(format!("@{}", file.display()))
        .args(["--tls-verify", "--tls-ca-path"])
        .arg(server.path("authority.pem"))
        .args(more);
    run(&mut command, b"")
}

#[test]
fn swaks_sends() {
    let server = Server::start_plain();
    let login = ["--auth-user", ANNE, "--auth-password", PASSWORD];
    let mut sent = Vec::new();
    for (port, tls, mechanism) in [
        (server.ports.submission, "--tls", "PLAIN"),
        (server.ports.submission, "--tls", "LOGIN"),
        (server.ports.submissions, "--tls-on-connect", "PLAIN"),
    ] {
        let text = letter(&format!("{mechanism}-{port}"));
        let said = swaks(
            &server,
            port,
            &text,
            &[&[tls, "--auth", mechanism][..], &login].concat(),
        );
        assert!(said.success, "{}", said.stdout);
        assert!(said.stdout.contains("235 2.7.0"), "{}", said.stdout);
        sent.push(text);
    }
    let count = sent.len() as u64;
    let got = mailbox(&server, 1, "INBOX", count);
    let kept = mailbox(&server, 0, "Sent", count);
    for ((text, (got, flags)), (kept, kept_flags)) in sent.iter().zip(&got).zip(&kept) {
        let trace = String::from_utf8_lossy(&got[..got.len() - text.len()]).replace("\r\n ", " ");
        assert!(got.ends_with(text) && trace.starts_with(&format!("Return-Path: <{ANNE}>\r\n")));
        assert!(trace.contains(" with ESMTPSA id "), "{trace}");
        assert_eq!(flags, &[""; 0]);
        assert!(kept.ends_with(text));
        assert_eq!(kept_flags, &["\\Seen"]);
    }

    // In the clear there is no login, and without one no mail.
    let refused = swaks(&server, server.ports.submission, &sent[0], &login);
    assert!(
        !refused.success && !refused.stdout.contains("235"),
        "{}",
        refused.stdout
    );
    let refused = swaks(&server, server.ports.submission, &sent[0], &["--tls"]);
    assert!(refused.stdout.contains("530 5.7.0"), "{}", refused.stdout);
    let wrong = [
        "--tls",
        "--auth",
        "PLAIN",
        "--auth-user",
        ANNE,
        "--auth-password",
        "x",
    ];
    let refused = swaks(&server, server.ports.submission, &sent[0], &wrong);
    assert!(refused.stdout.contains("535 5.7.8"), "{}", refused.stdout);
    assert_eq!(mailbox(&server, 1, "INBOX", count).len() as u64, count);
    assert!(!server.log().contains(PASSWORD), "no password in the log");
    server.assert_no_panic();
}

#[test]
fn curl_sends() {
    let server = Server::start_plain();
    let text = letter("by-curl");
    fs::write(server.path("letter"), &text).unwrap();
    let send = |url: &str| {
        let mut command = program(&server, "curl");
        command
            .args([
                "--disable",
                "--silent",
                "--show-error",
                "--ssl-reqd",
                "--noproxy",
                "*",
            ])
            .arg("--cacert")
            .arg(server.path("authority.pem"))
            .args(["--user", &format!("{ANNE}:{PASSWORD}"), "--mail-from", ANNE])
            .args(["--mail-rcpt", BOB, "--upload-file"])
            .arg(server.path("letter"))
            .arg(url);
        run(&mut command, b"")
    };
    let _ = send(&format!("smtps://localhost:{}", server.ports.submissions)).expect("smtps");
    let _ = send(&format!("smtp://localhost:{}", server.ports.submission)).expect("STARTTLS");
    for (got, _) in mailbox(&server, 1, "INBOX", 2) {
        assert!(got.ends_with(&text));
    }

    // As a client that keeps its copies itself does it: each takes the place of one of ours, which have one Message-ID.
    assert_eq!(mailbox(&server, 0, "Sent", 2).len(), 2);
    let mut imap = server.anne();
    let own = [b"X-Own: yes\r\n", &text[..]].concat();
    for kept in 1..=2 {
        let _ = imap.append("Sent", &["\\Seen"], &own).unwrap().ok("APPEND");
        // Counted first: a FETCH while one goes would be told that it is gone.
        wait_for("one of the server's copies to go", || {
            let status = imap.command("STATUS Sent (MESSAGES)").unwrap().ok("STATUS");
            (status.status_figures().get("MESSAGES") == Some(&2)).then_some(())
        });
        let left = server.contents(&mut imap, "Sent").unwrap().messages;
        let clients = left.iter().filter(|message| message.bytes == own);
        assert_eq!((left.len(), clients.count()), (2, kept));
    }
    let figures = server.http("/metrics");
    assert!(
        figures.contains("whimbrel_connections_total{protocol=\"submission\"}"),
        "{figures}"
    );
    server.assert_no_panic();
}

fn smtplib(mode: &str) {
    let server = Server::start_plain();
    let port = if mode == "tls" {
        server.ports.submissions
    } else {
        server.ports.submission
    };
    let mut python = program(&server, "python3");
    python
        .arg(script("smtplib_session.py"))
        .args([mode, &port.to_string()])
        .arg(server.path("authority.pem"))
        .args([ANNE, PASSWORD, BOB]);
    assert_eq!(run(&mut python, b"").expect("smtplib"), "done\n");

    let subjects = |messages: &[(Vec<u8>, Vec<String>)]| -> Vec<String> {
        let subject = |(bytes, _): &(Vec<u8>, Vec<String>)| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix("Subject: ").map(str::to_owned))
                .unwrap()
        };
        messages.iter().map(subject).collect()
    };
    let all = [
        "by PLAIN",
        "once more by PLAIN",
        "by LOGIN",
        "once more by LOGIN",
    ];
    let bobs = mailbox(&server, 1, "INBOX", 4);
    assert_eq!(subjects(&bobs), all);
    let sent = mailbox(&server, 0, "Sent", 4);
    assert_eq!(subjects(&sent), all);
    assert_eq!(
        subjects(&mailbox(&server, 0, "INBOX", 2)),
        ["by PLAIN", "by LOGIN"]
    );
    for (bytes, _) in &bobs {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains("secret@example.org"), "{text}");
        // smtplib adds neither.
        assert!(
            text.contains("\r\nDate: ") && text.contains("\r\nMessage-ID: <"),
            "{text}"
        );
        assert!(text.contains("Grüße."), "{text}");
    }
    let with_bcc = sent.iter().filter(|(bytes, _)| {
        String::from_utf8_lossy(bytes).contains("\r\nBcc: secret@example.org\r\n")
    });
    assert_eq!(with_bcc.count(), 2);
    server.assert_no_panic();
}

#[test]
#[ignore = "long: python3"]
fn smtplib_by_tls() {
    smtplib("tls");
}

#[test]
#[ignore = "long: python3"]
fn smtplib_by_starttls() {
    smtplib("starttls");
}
