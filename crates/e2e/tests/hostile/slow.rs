//! Row 24: clients that send an octet now and then, that never read, that never log in.
//!
//! Nothing here is measured: a server without the limit would never close, and then the deadline of the tests objects.

use std::time::Duration;

use whimbrel_e2e::{
    imap::Imap,
    mail::Mail,
    message,
    process::wait_for,
    server::{ACCOUNTS, Server},
    wire::{Trouble, Wire},
};

use super::{Watch, lean, unless_closed};

/// How long to wait for what may have come already.
const MOMENT: Duration = Duration::from_millis(5);

/// The head of a record that announces a ClientHello of 512 octets.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/// Sends these bytes one at a time, over and over, and takes what comes, until the server has closed.
fn drip(what: &str, wire: &mut Wire, bytes: &[u8]) {
    let mut next = bytes.iter().cycle();
    wait_for(&format!("the end of {what}"), || {
        let sent = match next.next() {
            Some(byte) => wire.send(&[*byte]),
            None => Ok(()),
        };
        let heard = wire.within(MOMENT, Wire::line);
        matches!(sent, Err(Trouble::Closed))
            .then_some(())
            .or_else(|| matches!(heard, Err(Trouble::Closed)).then_some(()))
    });
}

#[test]
#[ignore = "long: hostile clients"]
fn row_24_an_octet_at_a_time() {
    let server = lean()
        .set("imap", "login_timeout = \"1s\"")
        .set("tls", "handshake_timeout = \"1s\"")
        .set("smtp", "command_wait_max = \"5s\"")
        .set("smtp", "command_line_wait_max = \"5s\"")
        .set("smtp", "data_block_wait_max = \"5s\"")
        .set("smtp", "data_wait_max = \"5s\"")
        .set("smtp", "data_rate_bytes_per_second_min = 1000000")
        .start();
    let watch = Watch::start(&server);
    let imap = || Imap::connect(server.ports.imaps, &server.tls).unwrap().wire;
    let clear = |port| Wire::clear(port).unwrap();
    drip(
        "a handshake that does not begin",
        &mut clear(server.ports.imaps),
        b"",
    );
    drip(
        "a handshake that does not end",
        &mut clear(server.ports.imaps),
        CLIENT_HELLO,
    );
    drip("IMAP without a command", &mut imap(), b"");
    drip("IMAP with a command without end", &mut imap(), b"a");
    drip(
        "IMAP with commands that are no login",
        &mut imap(),
        b"a NOOP\r\n",
    );
    drip("a login without end", &mut imap(), b"a LOGIN {4000+}\r\n");
    for (protocol, port) in [("SMTP", server.ports.smtp), ("LMTP", server.ports.lmtp)] {
        drip(
            &format!("{protocol} without a command"),
            &mut clear(port),
            b"",
        );
        drip(
            &format!("{protocol} with a line without end"),
            &mut clear(port),
            b"N",
        );
    }
    for (what, command) in [("DATA", "DATA"), ("BDAT", "BDAT 60000000 LAST")] {
        let mut mail = Mail::lmtp(server.ports.lmtp).unwrap();
        let _ = mail.command("MAIL FROM:<carl@example.net>").unwrap();
        let _ = mail
            .command(&format!("RCPT TO:<{}>", ACCOUNTS[0].0))
            .unwrap();
        mail.wire.send(format!("{command}\r\n").as_bytes()).unwrap();
        drip(&format!("a message by {what}"), &mut mail.wire, b"x\r\n");
    }
    watch.end();
    assert_eq!(
        server
            .contents(&mut server.anne(), "INBOX")
            .unwrap()
            .messages
            .len(),
        0,
        "nothing of it was taken for a message"
    );
}

/// A handshake in the middle of a connection has the time of one at its beginning, and nothing else ends it: the session's own deadlines rest
/// meanwhile.
#[test]
#[ignore = "long: hostile clients"]
fn row_24_a_handshake_after_starttls() {
    let server = lean()
        .set("tls", "handshake_timeout = \"1s\"")
        // Each of the clients below holds the only place for its time.
        .set("tls", "handshakes_max = 1")
        .start();
    let watch = Watch::start(&server);
    for (port, command, ready) in [
        (server.ports.imap, "a STARTTLS", "a OK"),
        (server.ports.pop3, "STLS", "+OK"),
        (server.ports.smtp, "STARTTLS", "220"),
        (server.ports.submission, "STARTTLS", "220"),
    ] {
        for (what, bytes) in [("begin", &b""[..]), ("end", CLIENT_HELLO)] {
            let mut wire = Wire::clear(port).unwrap();
            let _greeting = wire.line().unwrap();
            wire.send(format!("{command}\r\n").as_bytes()).unwrap();
            let answer = wire.line().unwrap();
            assert!(answer.starts_with(ready.as_bytes()), "{answer:?}");
            drip(
                &format!("{command} and a handshake that does not {what}"),
                &mut wire,
                bytes,
            );
        }
    }
    watch.end();
}

/// The figure of a kind of refusal.
fn refused(server: &Server, reason: &str) -> usize {
    let wanted = format!("whimbrel_connections_refused_total{{reason=\"{reason}\"}} ");
    server
        .http("/metrics")
        .lines()
        .find_map(|line| line.strip_prefix(&wanted)?.trim().parse().ok())
        .unwrap_or(0)
}

#[test]
#[ignore = "long: hostile clients"]
fn row_24_clients_that_never_read() {
    let server = lean()
        .set("limits", "write_timeout = \"1s\"")
        // Another defence against the same client.
        .set("smtp", "idle_commands_max = 1000000")
        .start();
    let mut imap = server.anne();
    for n in 0..100 {
        let text = message::bytes(&format!("large-{n}"), 200_000);
        let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
    }
    let watch = Watch::start(&server);
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut imap = server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let _ = imap.send(b"FETCH 1:* BODY.PEEK[]").unwrap();
        held.push(imap.wire);
    }
    // Answers to commands, too, are read by nobody: more than two sockets hold.
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let _ = unless_closed(mail.wire.send(&b"EHLO a\r\n".repeat(100_000)));
    held.push(mail.wire);
    wait_for("the end of those who do not read", || {
        (refused(&server, "write timeout") >= held.len()).then_some(())
    });
    // Some chunks each, as in `answers`.
    watch.end_within(256 << 10);
}

#[test]
#[ignore = "long: hostile clients"]
fn row_24_many_who_never_log_in() {
    let server = lean()
        .set("limits", "unauthenticated_max = 100")
        // They all come from one address here.
        .set("limits", "unauthenticated_per_address_max = 100")
        .start();
    let watch = Watch::start(&server);
    let mut held = Vec::new();
    let mut sent_away = 0;
    for _ in 0..300 {
        let mut wire = Wire::clear(server.ports.imap).unwrap();
        let greeting = unless_closed(wire.line()).unwrap_or_default();
        if greeting.starts_with(b"* OK") {
            held.push(wire);
        } else {
            assert!(greeting.starts_with(b"* BYE"), "{greeting:?}");
            sent_away += 1;
        }
    }
    assert_eq!((held.len(), sent_away), (100, 200));
    // Strangers have no place; mail still comes in, and is read by whom was there before.
    assert!(server.login(ACCOUNTS[1]).is_err());
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let replies = lmtp
        .deliver(
            "carl@example.net",
            &[ACCOUNTS[0].0],
            b"Subject: x\r\n\r\ny\r\n",
            true,
        )
        .unwrap();
    assert!(replies[0].is(2), "{replies:?}");
    drop(held);
    wait_for("places that became free", || server.login(ACCOUNTS[1]).ok());
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_24_places_of_strangers_become_free() {
    let server = lean()
        .set("limits", "unauthenticated_max = 20")
        .set("limits", "unauthenticated_per_address_max = 20")
        .set("imap", "login_timeout = \"1s\"")
        .start();
    let watch = Watch::start(&server);
    let held: Vec<Wire> = (0..20)
        .map(|_| Wire::clear(server.ports.imap).unwrap())
        .collect();
    // They are still connected as far as they know; it is the server that makes room.
    wait_for("a place", || server.login(ACCOUNTS[1]).ok());
    watch.end();
    drop(held);
}

#[test]
#[ignore = "long: hostile clients"]
fn row_24_places_of_one_address() {
    let server = lean()
        .set("limits", "connections_per_address_max = 40")
        .start();
    let mut watch = Watch::start(&server);
    let mut held = Vec::new();
    let mut sent_away = 0;
    for n in 0..180 {
        let port = [server.ports.imap, server.ports.smtp, server.ports.lmtp][n % 3];
        let mut wire = Wire::clear(port).unwrap();
        let greeting = unless_closed(wire.line()).unwrap_or_default();
        if greeting.starts_with(b"* OK") || greeting.starts_with(b"220") {
            held.push(wire);
        } else {
            assert!(
                greeting.starts_with(b"* BYE") || greeting.starts_with(b"421"),
                "{greeting:?}"
            );
            sent_away += 1;
        }
    }
    // Users, SMTP and LMTP have places of their own. One place is that of the connection of the watch.
    assert_eq!((held.len(), sent_away), (3 * 40 - 1, 61));
    drop(held);
    wait_for("places that became free", || server.login(ACCOUNTS[1]).ok());
    watch.others_work();
    watch.end();
}
