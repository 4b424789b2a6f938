//! Extensions that are offered by configuration: DSN (RFC 3461), REQUIRETLS (RFC 8689), FUTURERELEASE (RFC 4865).

use super::script::{check, check_with, config};
use crate::session::{Config, Role};

fn offering() -> Config {
    Config {
        offer_dsn: true,
        offer_requiretls: true,
        offer_future_release: Some(3_600),
        starttls: false,
        auth_without_tls: true,
        ..config()
    }
}

const HELLO: &str = "S: 220 mx.example.org ESMTP
     C: EHLO a
     S: 250-mx.example.org
     S: 250-PIPELINING
     S: 250-SIZE 1000
     S: 250-8BITMIME
     S: 250-SMTPUTF8
     S: 250-CHUNKING
     S: 250-ENHANCEDSTATUSCODES\n";

#[test]
fn dsn() {
    let script = "S: 250 DSN
         C: MAIL FROM:<a@b> RET=HDRS ENVID=a+20b
         = mail <a@b> ret=HDRS envid=\"a b\"
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<c@d> NOTIFY=FAILURE,SUCCESS ORCPT=RFC822;C+2B@d
         = rcpt <c@d> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;C+2B@d
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<unknown@d> NOTIFY=NEVER
         = rcpt <unknown@d> NOTIFY=NEVER
         S: 550 5.1.1 No such mailbox here
         C: RCPT TO:<e@d> NOTIFY=NEVER,DELAY
         S: 501 5.5.4 Invalid arguments
         C: RCPT TO:<e@d> ORCPT=rfc822;e@d ORCPT=rfc822;e@d
         S: 501 5.5.4 Invalid arguments
         C: RSET
         S: 250 2.0.0 OK
         C: MAIL FROM:<a@b> RET=FULL RET=FULL
         S: 501 5.5.4 Invalid arguments
         C: MAIL FROM:<a@b> ENVID=a+0Ab
         S: 501 5.5.4 Invalid arguments
         C: MAIL FROM:<a@b> REQUIRETLS
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<a@b> HOLDFOR=60
         S: 555 5.5.4 Parameter not supported";
    check_with(Role::Smtp, offering(), false, &format!("{HELLO}{script}"));
}

/// RFC 5321 4.1.1.11: parameters are EHLO's.
#[test]
fn not_after_helo() {
    check_with(
        Role::Smtp,
        offering(),
        true,
        "S: 220 mx.example.org ESMTP
         C: MAIL FROM:<> RET=FULL
         S: 555 5.5.4 Parameter not supported
         C: HELO a
         S: 250 mx.example.org
         C: MAIL FROM:<> ENVID=a
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<> REQUIRETLS
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<>
         = mail <>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<c@d> NOTIFY=NEVER
         S: 555 5.5.4 Parameter not supported",
    );
}

#[test]
fn requiretls_inside_tls() {
    let script = "S: 250-DSN
         S: 250 REQUIRETLS
         C: MAIL FROM:<a@b> REQUIRETLS
         = mail <a@b> requiretls
         S: 250 2.1.0 Sender OK";
    check_with(Role::Smtp, offering(), true, &format!("{HELLO}{script}"));
}

#[test]
fn future_release_in_submission() {
    let script = "S: 250-DSN
         S: 250-REQUIRETLS
         S: 250-FUTURERELEASE 3600 2026-11-20T17:00:00Z
         S: 250 AUTH PLAIN LOGIN
         C: AUTH PLAIN cmlnaHQ=
         = auth PLAIN \"right\"
         S: 235 2.7.0 Authentication succeeded
         C: MAIL FROM:<a@b> HOLDFOR=3601
         S: 501 5.5.4 Messages are held for 3600 seconds at most
         C: MAIL FROM:<a@b> HOLDUNTIL=2026-11-20T16:00:00Z
         S: 501 5.5.4 HOLDUNTIL is in the past
         C: MAIL FROM:<a@b> HOLDUNTIL=2026-11-20T17:00:01Z
         S: 501 5.5.4 Messages are held for 3600 seconds at most
         C: MAIL FROM:<a@b> HOLDUNTIL=2026-11-20T18:00:00+01:00
         = mail <a@b> until=1795194000
         S: 250 2.1.0 Sender OK
         C: RSET
         S: 250 2.0.0 OK
         * wait 60
         C: MAIL FROM:<a@b> HOLDUNTIL=2026-11-20T16:01:00Z
         S: 501 5.5.4 HOLDUNTIL is in the past
         C: MAIL FROM:<a@b> HOLDFOR=3600
         = mail <a@b> for=3600
         S: 250 2.1.0 Sender OK";
    check_with(
        Role::Submission,
        offering(),
        true,
        &format!("{HELLO}{script}"),
    );
}

/// By default nothing of it is offered or understood, well formed or not.
#[test]
fn off_by_default() {
    check(
        Role::Smtp,
        &format!(
            "{HELLO}S: 250 STARTTLS
         C: MAIL FROM:<a@b> RET=NONSENSE
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<a@b> HOLDUNTIL=never
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<a@b> REQUIRETLS=1
         S: 555 5.5.4 Parameter not supported
         C: MAIL FROM:<a@b>
         = mail <a@b>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<c@d> NOTIFY=NONSENSE
         S: 555 5.5.4 Parameter not supported"
        ),
    );
}
