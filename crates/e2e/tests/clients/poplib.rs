//! Python's poplib: `scripts/poplib_session.py` asserts as it goes.

use whimbrel_e2e::{
    mail::Mail,
    process::run,
    server::{ACCOUNTS, Server},
};

use super::{ANNE, PASSWORD, program, script};

fn session(mode: &str) {
    let server = Server::start_plain();
    let mut mail = Mail::lmtp(server.ports.lmtp).unwrap();
    let mut imap = server.anne();
    for n in 1..=3 {
        let text = format!(
            "Subject: number {n}\r\n\r\n.\r\n..stuffed {n}\r\n{}\r\n",
            "xxxxxxx\r\n".repeat(n * 100)
        );
        let replies = mail
            .deliver("carl@example.net", &[ACCOUNTS[0].0], text.as_bytes(), true)
            .unwrap();
        assert!(replies[0].is(2), "{replies:?}");
        server.wait_count(&mut imap, "INBOX", n as u64);
    }
    let port = if mode == "tls" {
        server.ports.pop3s
    } else {
        server.ports.pop3
    };
    let mut python = program(&server, "python3");
    python
        .arg(script("poplib_session.py"))
        .args([mode, &port.to_string()])
        .arg(server.path("authority.pem"))
        .args([ANNE, PASSWORD]);
    assert_eq!(run(&mut python, b"").expect("poplib"), "done\n");
    // What the script left, seen by IMAP.
    let left = server.contents(&mut imap, "INBOX").unwrap().messages;
    let has = |n: usize, text: &str| {
        String::from_utf8_lossy(&left[n].bytes).contains(&format!("Subject: {text}\r\n"))
    };
    assert!(left.len() == 2 && has(0, "number 1") && has(1, "number 3"));
    server.assert_no_panic();
}

#[test]
#[ignore = "long: python3"]
fn by_tls() {
    session("tls");
}

#[test]
#[ignore = "long: python3"]
fn by_stls() {
    session("stls");
}
