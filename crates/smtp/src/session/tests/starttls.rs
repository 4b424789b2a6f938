//! RFC 3207, and BAD_INPUTS row 2: nothing sent in the clear survives the handshake.

use super::script::{Owner, check, check_with, config};
use crate::session::{CloseReason, Role};

const HELLO: &str = "S: 220 mx.example.org ESMTP
     C: HELO a
     S: 250 mx.example.org
     ";

#[test]
fn starts_afresh() {
    check(
        Role::Smtp,
        &format!(
            "{HELLO}
         C: MAIL FROM:<a@b>
         = mail <a@b>
         S: 250 2.1.0 Sender OK
         C: STARTTLS
         = starttls
         S: 220 2.0.0 Ready to start TLS
         * tls
         C: RCPT TO:<a@b>
         C: MAIL FROM:<a@b>
         C: EHLO a
         C: STARTTLS
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 Say hello first
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 1000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250 ENHANCEDSTATUSCODES
         S: 503 5.5.1 TLS is active"
        ),
    );
}

/// A message begun in the clear does not go on under TLS.
#[test]
fn within_bdat() {
    check(
        Role::Smtp,
        &format!(
            "{HELLO}
         C: MAIL FROM:<a@b>
         C: RCPT TO:<bob@x>
         C: BDAT 1
         C: xSTARTTLS
         = mail <a@b>
         = rcpt <bob@x>
         = begin <a@b> -> <bob@x>
         = abort Reset
         = starttls
         S: 250 2.1.0 Sender OK
         S: 250 2.1.5 Recipient OK
         S: 250 2.0.0 1 octets received
         S: 220 2.0.0 Ready to start TLS
         * tls
         C: BDAT 0 LAST
         S: 503 5.5.1 MAIL first"
        ),
    );
}

#[test]
fn handshake_fails() {
    check(
        Role::Smtp,
        &format!(
            "{HELLO}
         C: STARTTLS
         = starttls
         S: 220 2.0.0 Ready to start TLS
         * tls
         * eof
         = close ConnectionLost"
        ),
    );
}

#[test]
fn not_offered_or_required() {
    let mut none = config();
    none.starttls = false;
    check_with(
        Role::Smtp,
        none,
        false,
        &format!("{HELLO}\nC: STARTTLS\nS: 502 5.5.1 STARTTLS not available"),
    );
    let mut required = config();
    required.require_tls = true;
    check_with(
        Role::Smtp,
        required.clone(),
        false,
        &format!("{HELLO}\nC: MAIL FROM:<>\nS: 530 5.7.0 Must issue a STARTTLS command first"),
    );
    check_with(
        Role::Smtp,
        required,
        true,
        &format!("{HELLO}\nC: MAIL FROM:<>\n= mail <>\nS: 250 2.1.0 Sender OK"),
    );
}

/// Whatever comes behind STARTTLS in one piece with it is thrown away, counted, and the connection is closed.
#[test]
fn bytes_behind() {
    for behind in [
        "NOOP\r\n",
        "X",
        "\x16\x03\x01",
        "MAIL FROM:<evil@b>\r\nRCPT TO:<a@b>\r\n",
    ] {
        let mut owner = Owner::new(Role::Smtp, config(), false);
        owner.run();
        owner.sent.clear();
        owner.feed(
            format!("EHLO a\r\nSTARTTLS\r\n{behind}").as_bytes(),
            usize::MAX,
        );
        assert_eq!(owner.closed, Some(CloseReason::BytesBehindStartTls));
        assert_eq!(
            owner.session.counters().bytes_behind_starttls,
            behind.len() as u64
        );
        assert_eq!(owner.session.counters().errors, 1);
        assert_eq!(owner.events, ["close BytesBehindStartTls"]);
        assert!(
            owner
                .sent
                .ends_with(b"\r\n554 5.5.1 Nothing may be sent behind STARTTLS\r\n")
        );
    }
}

/// While the handshake runs the machine takes nothing, and a STARTTLS that waits behind a question does not lose sight of what
/// follows it.
#[test]
fn racing_the_handshake() {
    let mut owner = Owner::new(Role::Smtp, config(), false);
    owner.manual_tls = true;
    owner.run();
    owner.feed(b"EHLO a\r\nSTARTTLS\r\n", usize::MAX);
    assert_eq!(owner.session.input(owner.now, b"MAIL FROM:<evil@b>\r\n"), 0);
    assert!(!owner.session.wants_input());
    assert_eq!(owner.session.buffered_bytes(), 0);
    owner.session.tls_started(
        owner.now,
        crate::session::TlsInfo {
            version: String::new(),
            cipher: String::new(),
        },
    );
    owner.run();
    assert_eq!(owner.events, ["starttls"]);

    let mut owner = Owner::new(Role::Smtp, config(), false);
    owner.run();
    owner.feed(
        b"EHLO a\r\nMAIL FROM:<a@b>\r\nSTARTTLS\r\nRCPT TO:<evil@b>\r\n",
        usize::MAX,
    );
    assert_eq!(owner.events, ["mail <a@b>", "close BytesBehindStartTls"]);
}
