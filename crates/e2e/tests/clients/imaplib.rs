//! Python's imaplib: `scripts/imaplib_session.py` asserts as it goes.

use whimbrel_e2e::{process::run, server::Server};

use super::{ANNE, PASSWORD, program, script};

fn session(mode: &str) {
    let server = Server::start_plain();
    let port = if mode == "tls" {
        server.ports.imaps
    } else {
        server.ports.imap
    };
    let mut python = program(&server, "python3");
    python
        .arg(script("imaplib_session.py"))
        .args([mode, &port.to_string()])
        .arg(server.path("authority.pem"))
        .args([ANNE, PASSWORD]);
    assert_eq!(run(&mut python, b"").expect("imaplib"), "done\n");

    // What the script left, seen by a client of another make.
    let mut imap = server.anne();
    let archive = server.contents(&mut imap, "Archive").unwrap();
    let subjects: Vec<String> = archive
        .messages
        .iter()
        .map(|message| {
            String::from_utf8_lossy(&message.bytes)
                .lines()
                .find_map(|line| line.strip_prefix("Subject: ").map(str::to_owned))
                .unwrap()
        })
        .collect();
    assert_eq!(subjects, ["number 1", "number 2", "number 5", "number 9"]);
    server.assert_no_panic();
}

#[test]
#[ignore = "long: python3"]
fn by_tls() {
    session("tls");
}

#[test]
#[ignore = "long: python3"]
fn by_starttls() {
    session("starttls");
}
