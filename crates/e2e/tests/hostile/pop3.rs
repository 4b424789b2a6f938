//! POP3: rows 2, 5, 7, 15, 16 and 24, and the throttle that all protocols share.

use std::time::Duration;

use whimbrel_e2e::{
    imap::{Imap, Status},
    message,
    pop3::Pop3,
    process::wait_for,
    server::ACCOUNTS,
    wire::Trouble,
};

use super::{Watch, lean, pump, unless_closed};

/// What is pipelined behind STLS is not carried out; the session within TLS knows nothing of it.
#[test]
#[ignore = "long: hostile clients"]
fn row_2_stls() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let (user, password) = ACCOUNTS[0];
    for injected in [
        format!("USER {user}\r\nPASS {password}\r\n"),
        format!("USER {user}\r\n"),
        "CAPA\r\n".to_owned(),
        "QUIT\r\n".to_owned(),
        "CA".to_owned(),
    ] {
        let mut pop3 = Pop3::connect_clear(server.ports.pop3).unwrap();
        pop3.wire
            .send(format!("STLS\r\n{injected}").as_bytes())
            .unwrap();
        // Refusing is one right answer, going on without what was injected the other.
        if pop3.status().unwrap().ok
            && pop3.wire.start_tls(&server.tls).is_ok()
            && let Some(status) = unless_closed(pop3.command("STAT"))
        {
            assert_eq!(status.text, "Log in first", "{injected:?}");
            let status = pop3.command(&format!("PASS {password}")).unwrap();
            assert!(!status.ok, "{injected:?} had its effect");
        }
    }
    // Without an injection it works; in the clear no password is asked for.
    let mut pop3 = Pop3::connect_clear(server.ports.pop3).unwrap();
    assert!(!pop3.command(&format!("USER {user}")).unwrap().ok);
    pop3.command("STLS").unwrap().expect("STLS");
    pop3.wire.start_tls(&server.tls).unwrap();
    pop3.command(&format!("USER {user}"))
        .unwrap()
        .expect("USER");
    pop3.command(&format!("PASS {password}"))
        .unwrap()
        .expect("PASS");
    watch.end();
}

/// Lines without end, before the login and after it.
#[test]
#[ignore = "long: hostile clients"]
fn rows_5_and_7_endless_lines() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for (start, more) in [
        ("", "A"),
        ("", "\0"),
        ("USER ", "a"),
        ("AUTH PLAIN ", "QUFB"),
        ("AUTH PLAIN\r\n", "QUFB"),
        ("LIST ", "1"),
    ] {
        for stranger in [true, false] {
            let mut pop3 = if stranger {
                Pop3::connect(server.ports.pop3s, &server.tls).unwrap()
            } else {
                server.anne_pop3()
            };
            let _ = unless_closed(pop3.wire.send(start.as_bytes()));
            let chunk = more.repeat((1 << 18) / more.len());
            // Sooner or later the server has had enough; it does not read for ever.
            let sent = pump(&mut pop3.wire, chunk.as_bytes(), 64 << 20);
            assert!(matches!(sent, Err(Trouble::Closed)), "{start:?}: {sent:?}");
        }
    }
    watch.end();
}

/// A small request with a huge answer that nobody reads.
#[test]
#[ignore = "long: hostile clients"]
fn row_15_answers_nobody_reads() {
    let server = lean().start();
    server.deliver(&["large".to_owned()], 2 << 20);
    let watch = Watch::start(&server);
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut pop3 = server.anne_pop3();
        pop3.wire
            .send("RETR 1\r\n".repeat(1000).as_bytes())
            .unwrap();
        held.push(pop3);
    }
    // As for IMAP: some chunks each, and what an allocator keeps for the threads that read the disk. They asked for 80 GB.
    watch.end_within(256 << 10);
    drop(held);
}

/// Whatever stands in a login name is a name and nothing else, in the log, too.
#[test]
#[ignore = "long: hostile clients"]
fn row_16_names() {
    let server = lean().set("auth", "failures_max = 1000").start();
    let watch = Watch::start(&server);
    for user in [
        "%s%s%n",
        "%{password}",
        "${PATH}",
        "anne@example.org%0aINFO",
        "../../../etc/passwd",
    ] {
        let mut pop3 = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
        pop3.command(&format!("USER {user}"))
            .unwrap()
            .expect("USER");
        assert!(!pop3.command("PASS wrong").unwrap().ok);
        assert!(server.log().contains(user), "{user} in the log as it is");
    }
    // A line end cannot be part of a name.
    let mut pop3 = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    assert!(!pop3.command("USER a\rINFO logged in").unwrap().ok);
    watch.end();
}

/// Failures count for a client whatever protocol it speaks.
#[test]
#[ignore = "long: hostile clients"]
fn guessing_is_slowed_down_for_all_protocols() {
    let server = lean().set("auth", "failures_max = 3").start();
    let (user, password) = ACCOUNTS[0];
    for _ in 0..3 {
        assert!(Pop3::login(server.ports.pop3s, &server.tls, user, "wrong").is_err());
    }
    let mut pop3 = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    pop3.command(&format!("USER {user}"))
        .unwrap()
        .expect("USER");
    let status = pop3.command(&format!("PASS {password}")).unwrap();
    assert!(
        !status.ok && status.text.starts_with("[SYS/TEMP] "),
        "{status:?}"
    );
    let mut imap = Imap::connect(server.ports.imaps, &server.tls).unwrap();
    let refused = imap
        .command(&format!("LOGIN {user} \"{password}\""))
        .unwrap();
    assert_eq!(refused.status, Status::No);
    let raised = lean().set("auth", "failures_max = 4").start();
    for _ in 0..3 {
        assert!(Pop3::login(raised.ports.pop3s, &raised.tls, user, "wrong").is_err());
    }
    let _ = raised.anne_pop3();
}

/// Who sends an octet now and then, who says nothing, who does not read.
#[test]
#[ignore = "long: hostile clients"]
fn row_24_slow_clients() {
    let server = lean()
        .set("pop3", "login_timeout = \"1s\"")
        .set("limits", "write_timeout = \"1s\"")
        .start();
    server.deliver(&["large".to_owned()], 4 << 20);
    let watch = Watch::start(&server);
    let mut silent = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    let mut trickle = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    // Commands do not help a stranger either.
    let mut busy = Pop3::connect(server.ports.pop3s, &server.tls).unwrap();
    let mut deaf = server.anne_pop3();
    deaf.wire.send("RETR 1\r\n".repeat(50).as_bytes()).unwrap();
    wait_for("the trickle to be cut", || {
        std::thread::sleep(Duration::from_millis(50));
        trickle.wire.send(b"U").err()
    });
    wait_for("the busy one to be cut", || busy.command("CAPA").err());
    assert!(silent.wire.drain().unwrap().is_empty());
    wait_for("the deaf one to be cut", || {
        server
            .http("/metrics")
            .contains("whimbrel_sessions{protocol=\"pop3\",state=\"authenticated\"} 0\n")
            .then_some(())
    });
    drop(deaf);
    let text = server.anne_pop3().fetch("RETR 1").unwrap();
    assert!(text.ends_with(&message::bytes("large", 4 << 20)));
    watch.end();
}
