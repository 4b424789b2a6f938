//! curl: imaps:// to list, append, fetch and search; smtp:// with STARTTLS to send.

use std::fs;

use whimbrel_e2e::{
    message,
    process::{Done, run},
    server::{ACCOUNTS, Server},
};

use super::{ANNE, PASSWORD, program};

fn curl(server: &Server, arguments: &[&str]) -> Done {
    let mut command = program(server, "curl");
    command.args([
        "--disable",
        "--silent",
        "--show-error",
        "--ssl-reqd",
        "--noproxy",
        "*",
    ]);
    command
        .arg("--cacert")
        .arg(server.path("authority.pem"))
        .args(arguments);
    run(&mut command, b"")
}

#[test]
fn imaps() {
    let server = Server::start_plain();
    let user = format!("{ANNE}:{PASSWORD}");
    let url = |path: &str| format!("imaps://localhost:{}/{path}", server.ports.imaps);
    let text = message::bytes("by-curl", 5000);
    fs::write(server.path("message"), &text).unwrap();
    let imap = |arguments: &[&str]| {
        let mut all = vec!["--user", user.as_str()];
        all.extend_from_slice(arguments);
        curl(&server, &all).expect("curl")
    };

    let listed = imap(&[&url("")]);
    for name in ["INBOX", "Drafts", "Sent", "Archive", "Junk", "Trash"] {
        assert!(
            listed
                .lines()
                .any(|line| line.starts_with("* LIST ") && line.contains(name)),
            "{name} in {listed}"
        );
    }

    let path = server.path("message");
    let _ = imap(&["--upload-file", path.to_str().unwrap(), &url("Archive")]);
    let mut session = server.anne();
    let archive = server.contents(&mut session, "Archive").unwrap();
    assert_eq!(archive.messages.len(), 1);
    assert_eq!(archive.messages[0].bytes, text);

    let uid = archive.messages[0].uid;
    assert_eq!(
        imap(&[&url(&format!("Archive;UID={uid}"))]).as_bytes(),
        text
    );
    assert_eq!(
        imap(&[&url(&format!("Archive;UID={uid};SECTION=TEXT"))]).as_bytes(),
        text_of(&text)
    );
    assert_eq!(
        imap(&[&url("Archive?SUBJECT%20by-curl")]).trim(),
        "* SEARCH 1"
    );
    assert_eq!(
        imap(&[&url("Archive?SUBJECT%20by-nobody")]).trim(),
        "* SEARCH"
    );
    let _ = imap(&["--request", "STORE 1 +FLAGS (\\Flagged)", &url("Archive")]);
    let flags = server.contents(&mut session, "Archive").unwrap().messages[0]
        .flags
        .clone();
    assert!(flags.contains(&"\\Flagged".to_owned()), "{flags:?}");

    let refused = curl(&server, &["--user", &format!("{ANNE}:wrong"), &url("")]);
    assert_eq!(refused.code, 67, "login denied: {}", refused.stderr);
    server.assert_no_panic();
}

fn text_of(message: &[u8]) -> &[u8] {
    let head = message
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    &message[head + 4..]
}

#[test]
fn smtp() {
    let server = Server::start_plain();
    let text = message::bytes("sent-by-curl", 3000);
    fs::write(server.path("message"), &text).unwrap();
    let path = server.path("message");
    let url = format!("smtp://localhost:{}/client.example.net", server.ports.smtp);
    let send = |to: &str| {
        curl(
            &server,
            &[
                "--mail-from",
                "carl@example.net",
                "--mail-rcpt",
                to,
                "--upload-file",
                path.to_str().unwrap(),
                &url,
            ],
        )
    };
    let _ = send(ACCOUNTS[1].0).expect("curl");
    let mut bob = server.login(ACCOUNTS[1]).unwrap();
    server.wait_count(&mut bob, "INBOX", 1);
    let inbox = server.contents(&mut bob, "INBOX").unwrap();
    assert!(
        inbox.messages[0].bytes.ends_with(&text),
        "the message as sent, behind its trace"
    );
    let head = String::from_utf8_lossy(&inbox.messages[0].bytes);
    // RFC 3848: ESMTPS says that TLS was used.
    assert!(
        head.lines().take(12).any(|line| line.contains("ESMTPS")),
        "{head}"
    );

    let refused = send("nobody@example.org");
    assert_eq!(refused.code, 55, "send error: {}", refused.stderr);
    server.wait_count(&mut bob, "INBOX", 1);
    server.assert_no_panic();
}

#[test]
fn pop3s() {
    let server = Server::start_plain();
    let names: Vec<String> = (0..3).map(|n| format!("pop-{n}")).collect();
    server.deliver(&names, 4000);
    let pop3 = |user: &str, arguments: &[&str], path: &str| {
        let url = format!("pop3s://localhost:{}/{path}", server.ports.pop3s);
        let mut all = vec!["--user", user];
        all.extend_from_slice(arguments);
        all.push(&url);
        curl(&server, &all)
    };
    let user = format!("{ANNE}:{PASSWORD}");
    let listed = pop3(&user, &[], "").expect("LIST");
    let sizes: Vec<usize> = listed
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    for (n, name) in names.iter().enumerate() {
        let message = pop3(&user, &[], &(n + 1).to_string()).expect("RETR");
        assert!(message.as_bytes().ends_with(&message::bytes(name, 4000)));
        assert_eq!(message.len(), sizes[n]);
    }
    let ids = pop3(&user, &["--request", "UIDL"], "").expect("UIDL");
    let _ = pop3(&user, &["--list-only", "--request", "DELE 2", "--head"], "").expect("DELE");
    let left = pop3(&user, &["--request", "UIDL"], "").expect("UIDL");
    let id = |text: &str, n: usize| text.lines().nth(n).map(|line| line[2..].to_owned());
    assert_eq!(left.lines().count(), 2);
    assert_eq!((id(&left, 0), id(&left, 1)), (id(&ids, 0), id(&ids, 2)));
    // SASL, by STLS, another mailbox, and a wrong password.
    for mechanism in ["AUTH=PLAIN", "AUTH=LOGIN"] {
        let clear = format!("pop3://localhost:{}/1", server.ports.pop3);
        let message = curl(
            &server,
            &["--user", &user, "--login-options", mechanism, &clear],
        );
        assert!(
            message
                .expect(mechanism)
                .as_bytes()
                .ends_with(&message::bytes(&names[0], 4000))
        );
    }
    let archive = format!("{ANNE}|Archive:{PASSWORD}");
    // It shows the line end before the dot of an empty list.
    assert_eq!(pop3(&archive, &[], "").expect("LIST"), "\r\n");
    // 67: the server did not like the login.
    assert_eq!(pop3(&format!("{ANNE}:x"), &[], "").code, 67);
    server.assert_no_panic();
}
