//! AUTH in submission (RFC 4954).

use super::script::{check_with, config};
use crate::session::Role;

const HELLO: &str = "S: 220 mx.example.org ESMTP
     C: EHLO a
     S: 250-mx.example.org
     S: 250-PIPELINING
     S: 250-SIZE 1000
     S: 250-8BITMIME
     S: 250-SMTPUTF8
     S: 250-CHUNKING
     S: 250-ENHANCEDSTATUSCODES
     S: 250 AUTH PLAIN LOGIN
     ";

fn check(script: &str) {
    check_with(
        Role::Submission,
        config(),
        true,
        &format!("{HELLO}{script}"),
    );
}

#[test]
fn in_one_message() {
    check(
        "C: MAIL FROM:<a@b>
         C: AUTH PLAIN cmlnaHQ=
         C: AUTH PLAIN cmlnaHQ=
         C: MAIL FROM:<a@b>
         = auth PLAIN \"right\"
         = mail <a@b>
         S: 530 5.7.0 Authentication required
         S: 235 2.7.0 Authentication succeeded
         S: 503 5.5.1 AUTH not allowed now
         S: 250 2.1.0 Sender OK",
    );
    check(
        "C: auth plain
         = auth PLAIN
         S: 334 \n         C: cmlnaHQ=
         = response \"right\"
         S: 235 2.7.0 Authentication succeeded",
    );
    // An empty one, and one that is not there, are not the same.
    check(
        "C: AUTH PLAIN =
         = auth PLAIN \"\"
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN
         = auth PLAIN
         S: 334 \n         C: \n         = response \"\"
         S: 501 5.5.2 Malformed credentials",
    );
}

#[test]
fn in_several_messages() {
    check(
        "C: AUTH LOGIN bW9yZQ==
         = auth LOGIN \"more\"
         S: 334 Z28gb24=
         C: bW9yZSBhbmQgbW9yZQ==
         = response \"more and more\"
         S: 334 Z28gb24=
         C: cmlnaHQ=
         = response \"right\"
         S: 235 2.7.0 Authentication succeeded",
    );
    check(
        "C: AUTH LOGIN bW9yZQ==
         = auth LOGIN \"more\"
         S: 334 Z28gb24=
         C: bGF0ZXI=
         = response \"later\"
         S: 454 4.7.0 Temporary authentication failure
         C: cmlnaHQ=
         S: 500 5.5.1 Command not recognized",
    );
}

#[test]
fn refused() {
    check(
        "C: AUTH LOGIN
         = auth LOGIN
         S: 334 \n         C: *
         S: 501 5.0.0 Authentication cancelled
         C: AUTH CRAM-MD5
         = auth CRAM-MD5
         S: 504 5.5.4 Mechanism not supported
         C: AUTH PLAIN A
         S: 501 5.5.2 Invalid base64
         C: AUTH PLAIN YmFk
         = auth PLAIN \"bad\"
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN
         = auth PLAIN
         S: 334 \n         C: !
         S: 501 5.5.2 Invalid base64
         C: AUTH PLAIN
         = auth PLAIN
         S: 334 \n         C: NOOP\\nx
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         C: NOOP
         S: 250 2.0.0 OK",
    );
    let wrong = "C: AUTH PLAIN d3Jvbmc=\n= auth PLAIN \"wrong\"\nS: 535 5.7.8 Authentication credentials invalid\n";
    check(&format!(
        "{}C: AUTH PLAIN d3Jvbmc=
         = auth PLAIN \"wrong\"
         = close TooManyAuthFailures
         S: 535 5.7.8 Authentication credentials invalid
         S: 421 4.7.0 Too many failed authentications",
        wrong.repeat(2)
    ));
}

#[test]
fn sizes() {
    let long = "A".repeat(12_288);
    let answer = "\0".repeat(9_000);
    check(&format!(
        "C: AUTH PLAIN {}
         = auth PLAIN {answer:?}
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN
         = auth PLAIN
         S: 334 \n         C: {long}
         S: 500 5.5.6 Authentication exchange line too long
         C: NOOP {}
         S: 500 5.5.2 Line too long
         C: NOOP
         S: 250 2.0.0 OK",
        "A".repeat(12_000),
        &long[..3_000]
    ));
}

/// What was offered in the clear says nothing about what is offered inside TLS.
#[test]
fn nothing_offered() {
    use super::script::Owner;
    let mut owner = Owner::new(Role::Submission, config(), true);
    owner.session.offer_auth(String::new());
    owner.run();
    owner.feed(b"EHLO a\r\nAUTH PLAIN\r\n", usize::MAX);
    let sent = String::from_utf8(owner.sent).unwrap();
    assert!(
        !sent.contains("250 AUTH") && !sent.contains("250-AUTH"),
        "{sent}"
    );
    assert!(
        sent.ends_with("538 5.7.11 Encryption required for authentication\r\n"),
        "{sent}"
    );
}

#[test]
fn only_encrypted() {
    let hello = HELLO.replace("AUTH PLAIN LOGIN", "STARTTLS");
    let script = format!(
        "{hello}C: AUTH PLAIN AGFubmUAcmlnaHQ=\nS: 538 5.7.11 Encryption required for authentication"
    );
    check_with(Role::Submission, config(), false, &script);
}
