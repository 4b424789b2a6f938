//! POP3 against the real process: pipelines, sessions beside each other and beside IMAP, what QUIT means when the process is killed.

use whimbrel_e2e::{
    message,
    pop3::Pop3,
    server::{ACCOUNTS, Builder, Server},
};

fn names(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("m-{n}")).collect()
}

/// The names of the messages that a new session has, in order; each must be whole.
fn there(server: &Server) -> Vec<String> {
    let mut pop3 = server.anne_pop3();
    let listed = pop3.lines("LIST").unwrap();
    let mut found = Vec::new();
    for line in listed {
        let (number, size) = line.split_once(' ').unwrap();
        let bytes = pop3.fetch(&format!("RETR {number}")).unwrap();
        assert_eq!(bytes.len().to_string(), size);
        let name = message::name_of(&bytes).unwrap();
        assert!(
            bytes.ends_with(&message::bytes(&name, 2000)),
            "{name} is not whole"
        );
        found.push(name);
    }
    pop3.command("QUIT").unwrap().expect("QUIT");
    found
}

#[test]
fn a_long_pipeline() {
    let server = Server::start_plain();
    let all = names(300);
    server.deliver(&all, 2000);
    let mut pop3 = server.anne_pop3();
    let ids = pop3.lines("UIDL").unwrap();
    assert_eq!(ids.len(), 300);
    let mut commands = String::new();
    for n in 1..=300 {
        commands += &format!("RETR {n}\r\n");
    }
    // More than the server reads at once, and the client reads nothing yet.
    pop3.wire.send(commands.as_bytes()).unwrap();
    for name in &all {
        pop3.status().unwrap().expect("RETR");
        let bytes = pop3.list().unwrap();
        assert!(bytes.ends_with(&message::bytes(name, 2000)), "{name}");
    }
    // The whole of a session in one packet.
    let (user, password) = ACCOUNTS[0];
    let mut pop3 = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    let script = format!(
        "CAPA\r\nUSER {user}\r\nPASS {password}\r\nSTAT\r\nDELE 1\r\nDELE 300\r\nQUIT\r\nNOOP\r\n"
    );
    pop3.wire.send(script.as_bytes()).unwrap();
    let told = String::from_utf8(pop3.wire.drain().unwrap()).unwrap();
    assert!(
        told.ends_with("+OK Bye, the messages are removed\r\n"),
        "{told}"
    );
    assert_eq!(there(&server), all[1..299]);
    server.assert_no_panic();
}

#[test]
fn beside_imap() {
    let server = Server::start_plain();
    let all = names(4);
    server.deliver(&all, 2000);
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let mut pop3 = server.anne_pop3();
    let ids = pop3.lines("UIDL").unwrap();
    // \Deleted means nothing to POP3, and a mark of POP3 nothing to EXPUNGE.
    let _ = imap
        .command("STORE 1 +FLAGS (\\Deleted)")
        .unwrap()
        .ok("STORE");
    pop3.command("DELE 2").unwrap().expect("DELE");
    let _ = imap.command("EXPUNGE").unwrap().ok("EXPUNGE");
    assert!(!pop3.command("RETR 1").unwrap().ok);
    pop3.command("QUIT").unwrap().expect("QUIT");
    let noop = imap.command("NOOP").unwrap().ok("NOOP");
    assert_eq!(noop.exists(), None, "one went, none came: {noop:?}");
    assert_eq!(there(&server), all[2..]);
    // Away and back by IMAP: the same ids, restarts included.
    let _ = imap.command("MOVE 1 Archive").unwrap().ok("MOVE");
    let _ = imap.command("SELECT Archive").unwrap().ok("SELECT");
    let _ = imap.command("MOVE 1 INBOX").unwrap().ok("MOVE");
    let id = |line: &String| line.split_once(' ').unwrap().1.to_owned();
    let mut server = server;
    for _ in 0..2 {
        let again: Vec<String> = server
            .anne_pop3()
            .lines("UIDL")
            .unwrap()
            .iter()
            .map(id)
            .collect();
        assert_eq!(again, [id(&ids[3]), id(&ids[2])]);
        server.stop();
        server.start(&[]);
    }
}

/// RETR sends one line end more than such a message has: sizes say so.
#[test]
fn a_message_without_a_final_line_end() {
    let mut server = Server::start_plain();
    let mut imap = server.anne();
    for message in ["X: 1\r\n\r\nno end", "X: 2\r\n\r\nend\r\n"] {
        let _ = imap
            .append("INBOX", &[], message.as_bytes())
            .unwrap()
            .ok("APPEND");
    }
    for _ in 0..2 {
        let mut pop3 = server.anne_pop3();
        let stat = pop3.command("STAT").unwrap();
        assert!(stat.ok && stat.text.starts_with("2 29"), "{stat:?}");
        assert_eq!(pop3.lines("LIST").unwrap(), ["1 16", "2 13"]);
        assert_eq!(pop3.fetch("RETR 1").unwrap(), b"X: 1\r\n\r\nno end\r\n");
        server.stop();
        server.start(&[]);
    }
}

/// Killed between DELE and QUIT nothing is gone; killed after the answer to QUIT everything that was marked is.
#[test]
fn kill_9() {
    let mut server = Server::start_plain();
    let all = names(6);
    server.deliver(&all, 2000);
    let mut left = all.clone();
    for round in 0..3 {
        let mut pop3 = server.anne_pop3();
        pop3.command("DELE 1").unwrap().expect("DELE");
        pop3.command("DELE 2").unwrap().expect("DELE");
        server.kill();
        server.start(&[]);
        assert_eq!(there(&server), left, "round {round}");

        let mut pop3 = server.anne_pop3();
        pop3.command("DELE 1").unwrap().expect("DELE");
        pop3.command("QUIT").unwrap().expect("QUIT");
        server.kill();
        server.start(&[]);
        left.remove(0);
        assert_eq!(there(&server), left, "round {round}");
    }
    // Cut without QUIT, in clear and within TLS.
    let mut pop3 = server.anne_pop3();
    pop3.command("DELE 1").unwrap().expect("DELE");
    pop3.wire.send(b"QUI").unwrap();
    pop3.wire.half_close();
    let _ = pop3.wire.drain();
    assert_eq!(there(&server), left);
    server.stop();
}

/// As many sessions of an account as it may have, and no more; then again.
#[test]
fn places() {
    let server = Builder::default()
        .set("limits", "connections_per_account_max = 2")
        .start();
    let (user, password) = ACCOUNTS[0];
    let first = server.anne_pop3();
    let _second = server.anne();
    let mut third = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    third
        .command(&format!("USER {user}"))
        .unwrap()
        .expect("USER");
    let refused = third.command(&format!("PASS {password}")).unwrap();
    assert!(
        !refused.ok && refused.text.starts_with("[IN-USE] "),
        "{refused:?}"
    );
    drop(first);
    whimbrel_e2e::process::wait_for("the place", || {
        third
            .command(&format!("USER {user}"))
            .unwrap()
            .expect("USER");
        third
            .command(&format!("PASS {password}"))
            .unwrap()
            .ok
            .then_some(())
    });
}
