//! AUTH in submission (RFC 4954, 4616).

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
fn plain() {
    // NUL anne NUL right
    check(
        "C: MAIL FROM:<a@b>
         C: AUTH PLAIN AGFubmUAcmlnaHQ=
         C: AUTH PLAIN AGFubmUAcmlnaHQ=
         C: MAIL FROM:<a@b>
         = auth :anne:right
         = mail <a@b>
         S: 530 5.7.0 Authentication required
         S: 235 2.7.0 Authentication succeeded
         S: 503 5.5.1 AUTH not allowed now
         S: 250 2.1.0 Sender OK",
    );
    // bob NUL anne NUL right
    check(
        "C: auth plain
         S: 334 \n         C: Ym9iAGFubmUAcmlnaHQ=
         = auth bob:anne:right
         S: 235 2.7.0 Authentication succeeded",
    );
}

#[test]
fn login() {
    check(
        "C: AUTH LOGIN
         S: 334 VXNlcm5hbWU6
         C: YW5uZQ==
         S: 334 UGFzc3dvcmQ6
         C: cmlnaHQ=
         = auth :anne:right
         S: 235 2.7.0 Authentication succeeded",
    );
    check(
        "C: AUTH LOGIN YW5uZQ==
         S: 334 UGFzc3dvcmQ6
         C: bGF0ZXI=
         = auth :anne:later
         S: 454 4.7.0 Temporary authentication failure",
    );
}

#[test]
fn refused() {
    check(
        "C: AUTH LOGIN
         S: 334 VXNlcm5hbWU6
         C: *
         S: 501 5.0.0 Authentication cancelled
         C: AUTH CRAM-MD5
         S: 504 5.5.4 Mechanism not supported
         C: AUTH PLAIN =
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN A
         S: 501 5.5.2 Invalid base64
         C: AUTH PLAIN AGEAYgA=
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN
         S: 334 \n         C: NOOP\\nx
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         C: NOOP
         S: 250 2.0.0 OK",
    );
    let wrong = "C: AUTH PLAIN AGFubmUAeA==\n= auth :anne:x\nS: 535 5.7.8 Authentication credentials invalid\n";
    check(&format!(
        "{}C: AUTH PLAIN AGFubmUAeA==
         = auth :anne:x
         = close TooManyAuthFailures
         S: 535 5.7.8 Authentication credentials invalid
         S: 421 4.7.0 Too many failed authentications",
        wrong.repeat(2)
    ));
}

#[test]
fn sizes() {
    let long = "A".repeat(12_288);
    check(&format!(
        "C: AUTH PLAIN {}
         S: 501 5.5.2 Malformed credentials
         C: AUTH PLAIN
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

#[test]
fn only_encrypted() {
    let hello = HELLO.replace("AUTH PLAIN LOGIN", "STARTTLS");
    let script = format!(
        "{hello}C: AUTH PLAIN AGFubmUAcmlnaHQ=\nS: 538 5.7.11 Encryption required for authentication"
    );
    check_with(Role::Submission, config(), false, &script);
}
