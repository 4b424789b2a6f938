//! Deadlines: the client's time is counted, the server's is not.

use super::script::{Owner, check_with, config};
use crate::session::{CloseReason, Role};

const GREETING: &str = "S: 220 mx.example.org ESMTP
     ";
const DATA: &str = "S: 220 mx.example.org ESMTP
     C: HELO a
     C: MAIL FROM:<a@b>
     C: RCPT TO:<bob@x>
     C: DATA
     = mail <a@b>
     = rcpt <bob@x>
     = begin <a@b> -> <bob@x>
     S: 250 mx.example.org
     S: 250 2.1.0 Sender OK
     S: 250 2.1.5 Recipient OK
     S: 354 End data with <CRLF>.<CRLF>
     ";

fn check(script: &str) {
    check_with(Role::Smtp, config(), false, script);
}

#[test]
fn commands() {
    // RFC 5321 4.5.3.2.7: five minutes for the next command, each.
    check(&format!(
        "{GREETING}* wait 299\nC: NOOP\nS: 250 2.0.0 OK\n* wait 299\nC: NOOP\nS: 250 2.0.0 OK"
    ));
    check(&format!(
        "{GREETING}* wait 300\n= close Timeout\nS: 421 4.4.2 Timeout, closing connection"
    ));
    // A line that drips is not a sequence of commands.
    check(&format!(
        "{GREETING}C: NO\\\n* wait 30\nC: O\\\n* wait 30\n= close Timeout\nS: 421 4.4.2 Timeout, closing connection"
    ));
    check(&format!(
        "{GREETING}C: NO\\\n* wait 59\nC: OP\nS: 250 2.0.0 OK\n* wait 59\nC: NOOP\nS: 250 2.0.0 OK"
    ));
    // Nor is one that is thrown away.
    check(&format!(
        "{GREETING}C: a\\n\\\nS: 500 5.5.2 Bare CR or LF; lines end with CRLF\n* wait 30\nC: b\\\n* wait 30\n= close Timeout\nS: 421 4.4.2 Timeout, closing connection"
    ));
}

#[test]
fn messages() {
    check(&format!(
        "{DATA}C: a\n* wait 179\nC: b\n* wait 179\nC: .\n= end \"a\\r\\nb\\r\\n\"\nS: 250 2.0.0 Message accepted"
    ));
    check(&format!(
        "{DATA}C: a\n* wait 180\n= abort Timeout\n= close Timeout\nS: 421 4.4.2 Timeout, closing connection"
    ));
    // An octet now and then: the mean rate is too low.
    let drip = "* wait 150\nC: a\n".repeat(3);
    check(&format!(
        "{DATA}{drip}* wait 150\n= abort Timeout\n= close Timeout\nS: 421 4.4.2 Timeout, closing connection"
    ));
}

/// The rate is that of the whole message: what came fast pays for what comes slowly, and no more than that.
#[test]
fn a_message_may_take_as_long_as_its_mean_rate_allows() {
    let mut large = config();
    large.limits.message_bytes_max = 100_000;
    let mut owner = Owner::new(Role::Smtp, large, false);
    owner.run();
    owner.feed(
        b"HELO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<bob@x>\r\nDATA\r\n",
        usize::MAX,
    );
    let line = [&[b'x'; 62][..], b"\r\n"].concat();
    // 64 octets a second for twice as long as a message may take.
    for _ in 0..8 {
        owner.feed(&line.repeat(150), usize::MAX);
        owner.wait(150);
    }
    assert_eq!(owner.closed, None);
    for _ in 0..3 {
        owner.feed(b"x", usize::MAX);
        owner.wait(150);
    }
    assert_eq!(owner.closed, None);
    owner.feed(b"x", usize::MAX);
    owner.wait(150);
    assert_eq!(owner.closed, Some(CloseReason::Timeout));
}

#[test]
fn the_handshake() {
    check(
        "S: 220 mx.example.org ESMTP\nC: STARTTLS\n= starttls\nS: 220 2.0.0 Ready to start TLS\n* tls\n* wait 1",
    );
    let mut owner = Owner::new(Role::Smtp, config(), false);
    owner.manual_tls = true;
    owner.run();
    owner.feed(b"STARTTLS\r\n", usize::MAX);
    owner.wait(300);
    assert_eq!(owner.closed, Some(CloseReason::Timeout));
}

#[test]
fn greeting_delay() {
    let mut slow = config();
    slow.greeting_delay = core::time::Duration::from_secs(5);
    check_with(
        Role::Smtp,
        slow.clone(),
        false,
        "* wait 4\n* wait 1\nS: 220 mx.example.org ESMTP\nC: NOOP\nS: 250 2.0.0 OK",
    );
    check_with(
        Role::Smtp,
        slow.clone(),
        false,
        "* wait 4\nC: NOOP\n= close EarlyTalker\nS: 554 5.5.1 Client spoke before the greeting",
    );
    slow.refuse_early_talkers = false;
    check_with(
        Role::Smtp,
        slow,
        false,
        "* wait 4\nC: NOOP\n* wait 1\nS: 220 mx.example.org ESMTP\nS: 250 2.0.0 OK",
    );
}

#[test]
fn shutdown() {
    check(&format!(
        "{GREETING}* shutdown\n= close ShuttingDown\nS: 421 4.3.2 Service shutting down"
    ));
    check(&format!(
        "{DATA}C: a\n* shutdown\nC: .\n= end \"a\\r\\n\"\n= close ShuttingDown\nS: 250 2.0.0 Message accepted\nS: 421 4.3.2 Service shutting down"
    ));
}
