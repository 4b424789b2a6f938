//! The administrator's side while the server serves: commands through the socket, new certificates, metrics, the demo, an orderly end.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use whimbrel_e2e::{
    imap::{Imap, Status},
    mail::Mail,
    message,
    process::{self, ended, wait_for},
    server::{ACCOUNTS, Server, binary},
    wire::Trouble,
};

const CAROL: (&str, &str) = ("carol@example.org", "carol's secret");

fn rcpt(server: &Server, to: &str) -> u16 {
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let _ = mail.command("MAIL FROM:<carl@example.net>").unwrap();
    mail.command(&format!("RCPT TO:<{to}>")).unwrap().code
}

fn last_words(mut imap: Imap) -> String {
    let said = imap.wire.drain().expect("the server closes the connection");
    String::from_utf8(said).expect("it is text")
}

#[test]
fn accounts_and_aliases_while_serving() {
    let server = Server::start_plain();
    assert!(server.login(CAROL).is_err() && rcpt(&server, CAROL.0) == 550);
    let _ = server
        .admin(&["account", "add", CAROL.0, "--password-stdin"], CAROL.1)
        .expect("account add");
    let imap = server.login(CAROL).expect("a new account");
    assert_eq!(rcpt(&server, CAROL.0), 250);
    let listed = server
        .admin(&["account", "list"], "")
        .expect("account list");
    for address in [CAROL.0, ACCOUNTS[0].0, ACCOUNTS[1].0] {
        assert!(
            listed.lines().any(|line| line.contains(address)),
            "{listed}"
        );
    }
    let twice = server.admin(&["account", "add", CAROL.0, "--password-stdin"], "other");
    assert!(!twice.success && !twice.stderr.is_empty(), "{twice:?}");
    assert!(
        server.login(CAROL).is_ok(),
        "the first password still holds"
    );

    let _ = server
        .admin(
            &["account", "passwd", CAROL.0, "--password-stdin"],
            "new secret",
        )
        .expect("account passwd");
    assert!(
        server.login(CAROL).is_err(),
        "the old password, which was remembered"
    );
    assert!(server.login((CAROL.0, "new secret")).is_ok());
    assert!(last_words(imap).starts_with("* BYE The password was changed"));
    let mut imap = server.login((CAROL.0, "new secret")).unwrap();
    let keeps = [
        "account",
        "passwd",
        CAROL.0,
        "--keep-sessions",
        "--password-stdin",
    ];
    let _ = server
        .admin(&keeps, "newest secret")
        .expect("account passwd");
    let _ = imap
        .command("NOOP")
        .unwrap()
        .ok("a session that was there before");

    assert_eq!(rcpt(&server, "team@example.org"), 550);
    let _ = server
        .admin(&["alias", "add", "team@example.org", CAROL.0], "")
        .expect("alias add");
    assert_eq!(rcpt(&server, "team@example.org"), 250);
    let listed = server.admin(&["alias", "list"], "").expect("alias list");
    assert!(
        listed
            .lines()
            .any(|line| line.contains("team@example.org") && line.contains(CAROL.0)),
        "{listed}"
    );
    let _ = server
        .admin(&["alias", "remove", "team@example.org"], "")
        .expect("alias remove");
    assert_eq!(rcpt(&server, "team@example.org"), 550);

    let _ = server
        .admin(&["account", "remove", CAROL.0, "--yes"], "")
        .expect("account remove");
    assert_eq!(last_words(imap), "* BYE The account was removed\r\n");
    assert!(server.login((CAROL.0, "newest secret")).is_err() && rcpt(&server, CAROL.0) == 550);
    server.assert_no_panic();
}

#[test]
fn one_account_has_a_quota_of_its_own() {
    let mut server = Server::start_plain();
    let quota = |server: &Server, arguments: &[&str]| {
        let command = [&["account", "quota", ACCOUNTS[0].0], arguments].concat();
        server.admin(&command, "").expect("account quota")
    };
    assert_eq!(
        quota(&server, &[]),
        "storage    20GiB (default)\nmessages   1000000 (default)\nmailboxes  10000 (default)\n"
    );
    let none = server.admin(&["account", "quota", "nobody@example.org"], "");
    assert!(!none.success && none.stderr.contains("nobody@example.org"));
    let set = ["--messages", "1", "--storage", "unlimited"];
    assert_eq!(quota(&server, &set), "");
    let mut anne = server.anne();
    let append = |of: &mut Imap| {
        of.append("INBOX", &[], &message::bytes("one", 100))
            .unwrap()
    };
    let _ = append(&mut anne).ok("the first message");
    let refused = append(&mut anne);
    assert_eq!((refused.status, &*refused.code), (Status::No, "OVERQUOTA"));
    assert_eq!(rcpt(&server, ACCOUNTS[0].0), 452);
    let _ = append(&mut server.login(ACCOUNTS[1]).unwrap()).ok("another account");
    // It is there after a start, and while nothing serves.
    drop(anne);
    server.stop();
    assert!(quota(&server, &[]).contains("messages   1\n"));
    server.start(&[]);
    let mut anne = server.anne();
    assert_eq!(append(&mut anne).status, Status::No);
    let _ = quota(&server, &["--messages", "default"]);
    let _ = append(&mut anne).ok("no limit of its own any more");
    server.assert_no_panic();
}

#[test]
fn what_is_refused_is_in_the_log() {
    let server = Server::start_plain();
    assert_eq!(rcpt(&server, "nobody@example.org"), 550);
    let line = wait_for("a line of the log", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("nobody@example.org"));
        line.map(ToOwned::to_owned)
    });
    for part in [
        "refused",
        "recipient",
        "carl@example.net",
        "127.0.0.1",
        "550 5.1.1",
    ] {
        assert!(line.contains(part), "{line}");
    }
    server.assert_no_panic();
}

#[test]
fn accounts_while_nothing_serves() {
    let mut server = Server::start_plain();
    server.stop();
    let _ = server
        .admin(&["account", "add", CAROL.0, "--password-stdin"], CAROL.1)
        .expect("account add");
    let _ = server
        .admin(
            &["account", "passwd", ACCOUNTS[1].0, "--password-stdin"],
            "other",
        )
        .expect("account passwd");
    server.start(&[]);
    assert!(server.login(CAROL).is_ok() && server.login(ACCOUNTS[0]).is_ok());
    assert!(server.login(ACCOUNTS[1]).is_err() && server.login((ACCOUNTS[1].0, "other")).is_ok());
}

#[test]
fn a_new_certificate_is_taken_up() {
    let server = Server::start_plain();
    // A client that resumes its TLS session is not shown a certificate again: each is a new one.
    let shown = || {
        Imap::connect(server.ports.imaps, &server.authority.client())
            .unwrap()
            .wire
            .server_certificate()
            .unwrap()
    };
    let first = shown();
    let mut old_session = server.anne();
    let second = server.authority.write_leaf(&server.path(""), "second");
    assert_ne!(first, second);
    wait_for("the new certificate", || (shown() == second).then_some(()));
    let _ = old_session
        .command("NOOP")
        .unwrap()
        .ok("a session of the old certificate");

    // A broken file changes nothing, and is told.
    let log_before = server.log().len();
    std::fs::write(server.path("certificate.pem"), "no certificate").unwrap();
    process::signal(server.pid(), "HUP");
    wait_for("a line of the log", || {
        server.log()[log_before..]
            .to_lowercase()
            .contains("certificate")
            .then_some(())
    });
    assert_eq!(shown(), second);

    // And a good one again, this time at once.
    let third = server.authority.write_leaf(&server.path(""), "third");
    process::signal(server.pid(), "HUP");
    wait_for("the third certificate", || (shown() == third).then_some(()));
    server.assert_no_panic();
}

#[test]
fn an_orderly_end() {
    let mut server = Server::start_plain();
    let mut imap = server.anne();
    let _ = imap
        .append("INBOX", &["\\Flagged"], &message::bytes("kept", 1000))
        .unwrap()
        .ok("APPEND");
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let mut idle = server.anne();
    let _ = idle.send(b"IDLE").unwrap();
    process::signal(server.pid(), "TERM");
    // RFC 9051, 7.1.5, RFC 5321, 3.8: who is connected is told.
    let text = String::from_utf8_lossy(&imap.wire.drain().unwrap()).into_owned();
    assert!(text.contains("* BYE"), "{text:?}");
    let text = String::from_utf8_lossy(&idle.wire.drain().unwrap()).into_owned();
    assert!(text.contains("* BYE"), "{text:?}");
    match lmtp.reply() {
        Ok(reply) => assert_eq!(reply.code, 421),
        Err(trouble) => assert!(matches!(trouble, Trouble::Closed), "{trouble:?}"),
    }
    assert_eq!(server.wait_end(), 0);
    server.start(&[]);
    let inbox = server.contents(&mut server.anne(), "INBOX").unwrap();
    assert_eq!(inbox.messages[0].bytes, message::bytes("kept", 1000));
    assert_eq!(inbox.messages[0].flags, ["\\Flagged"]);
}

#[test]
fn an_unknown_key_is_refused_with_a_suggestion() {
    let server = whimbrel_e2e::server::Builder::default().build();
    let path = server.path("wrong.toml");
    std::fs::write(&path, "[imap]\nliteral_bytes_maximum = \"4KiB\"\n").unwrap();
    let mut command = Command::new(binary());
    let done = process::run(command.arg("serve").arg("--config").arg(&path), b"");
    assert!(!done.success, "{done:?}");
    assert!(
        done.stderr.contains("line 2")
            && done.stderr.contains("did you mean `imap.literal_bytes_max"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start_plain();
    let mut command = Command::new(binary());
    let done = process::run(
        command
            .arg("serve")
            .arg("--config")
            .arg(server.path("whimbrel.toml")),
        b"",
    );
    assert!(!done.success && !done.stderr.is_empty(), "{done:?}");
    assert!(server.login(ACCOUNTS[0]).is_ok(), "the first goes on");
}

#[test]
fn passwords_and_mail_are_not_logged() {
    let server = whimbrel_e2e::server::Builder::default()
        .set("log", "level = \"trace\"")
        .start();
    let mut imap = server.anne();
    let _ = imap
        .append("INBOX", &[], &message::bytes("confidential", 1000))
        .unwrap()
        .ok("APPEND");
    assert!(server.login((ACCOUNTS[0].0, "a wrong password")).is_err());
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let _ = lmtp
        .deliver(
            "carl@example.net",
            &[ACCOUNTS[1].0],
            &message::bytes("confidential", 1000),
            true,
        )
        .unwrap();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    assert_eq!(
        imap.command("FETCH 1 (BODY.PEEK[])").unwrap().status,
        Status::Ok
    );
    let log = server.log();
    for secret in [
        ACCOUNTS[0].1,
        "a wrong password",
        "subject of confidential",
        "end of confidential",
    ] {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
    assert!(log.contains("anne@example.org"), "who logged in is told");
}

/// The ports that the demo prints.
fn ports(text: &str) -> Vec<u16> {
    text.match_indices("127.0.0.1:")
        .filter_map(|(at, start)| {
            let digits: String = text[at + start.len()..]
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse().ok()
        })
        .collect()
}

#[test]
fn the_demo_ends_with_zero() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    let shown = process::run(
        command
            .args(["demo", "--exit"])
            .current_dir(directory.path()),
        b"",
    )
    .expect("demo --exit");
    assert!(
        shown.lines().any(|line| line.trim() == "demo: ready"),
        "{shown}"
    );
    for word in [
        "anne@example.org",
        "bob@example.org",
        "IMAP",
        "SMTP",
        "LMTP",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let mut ports = ports(&shown);
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() >= 5, "five ports are printed: {shown}");
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}

/// While one demo runs, its ports are taken: another finds others.
#[test]
fn the_demo_serves_until_it_is_told_to_end() {
    let start = || {
        let mut child = Command::new(binary())
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let ready = line.trim() == "demo: ready";
            lines.push(line);
            if ready {
                break;
            }
        }
        assert!(
            lines
                .last()
                .is_some_and(|line| line.trim() == "demo: ready"),
            "{lines:#?}"
        );
        (child, ports(&lines.join("\n")))
    };
    let (mut one, ports_of_one) = start();
    let (mut other, ports_of_other) = start();
    for port in &ports_of_one {
        assert!(
            std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok(),
            "port {port}"
        );
        assert!(!ports_of_other.contains(port), "port {port} twice");
    }
    for child in [&mut one, &mut other] {
        process::signal(child.id(), "TERM");
        assert_eq!(ended(child, "a demo asked to stop"), 0);
    }
}
