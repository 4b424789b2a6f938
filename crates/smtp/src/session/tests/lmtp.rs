//! RFC 2033: a reply for each recipient.

use super::script::check;
use crate::session::Role;

const PRELUDE: &str = "S: 220 mx.example.org LMTP
     C: EHLO a
     C: HELO a
     C: LHLO a
     C: MAIL FROM:<>
     C: RCPT TO:<bob@x>
     C: RCPT TO:<unknown@x>
     C: RCPT TO:<full@x>
     = mail <>
     = rcpt <bob@x>
     = rcpt <unknown@x>
     = rcpt <full@x>
     S: 500 5.5.1 Command not recognized
     S: 500 5.5.1 Command not recognized
     S: 250-mx.example.org
     S: 250-PIPELINING
     S: 250-SIZE 1000
     S: 250-8BITMIME
     S: 250-SMTPUTF8
     S: 250-CHUNKING
     S: 250-ENHANCEDSTATUSCODES
     S: 250 STARTTLS
     S: 250 2.1.0 Sender OK
     S: 250 2.1.5 Recipient OK
     S: 550 5.1.1 No such mailbox here
     S: 250 2.1.5 Recipient OK
     ";

fn after_prelude(script: &str) {
    check(Role::Lmtp, &format!("{PRELUDE}{script}"));
}

#[test]
fn each_recipient() {
    after_prelude(
        "C: DATA
         = begin <> -> <bob@x> <full@x>
         S: 354 End data with <CRLF>.<CRLF>
         C: x
         C: .
         C: NOOP
         = end \"x\\r\\n\"
         S: 250 2.0.0 Message accepted
         S: 452 4.2.2 Mailbox full
         S: 250 2.0.0 OK",
    );
    after_prelude(
        "C: BDAT 1
         C: x\\
         C: BDAT 0 LAST
         C: NOOP
         = begin <> -> <bob@x> <full@x>
         = end \"x\"
         S: 250 2.0.0 1 octets received
         S: 250 2.0.0 Message accepted
         S: 452 4.2.2 Mailbox full
         S: 250 2.0.0 OK",
    );
}

/// A message that fails has a reply for each recipient, too, or client and server would drift apart.
#[test]
fn failed_messages() {
    after_prelude(
        "C: DATA
         = begin <> -> <bob@x> <full@x>
         S: 354 End data with <CRLF>.<CRLF>
         C: x\\ny
         C: .
         C: NOOP
         = abort BareLineEnd
         S: 554 5.6.0 Message has a bare CR or LF
         S: 554 5.6.0 Message has a bare CR or LF
         S: 250 2.0.0 OK",
    );
    after_prelude(
        "C: BDAT 2
         C: \\nx\\
         C: BDAT 1 LAST
         C: y\\
         C: NOOP
         = begin <> -> <bob@x> <full@x>
         = abort BareLineEnd
         S: 554 5.6.0 Message has a bare CR or LF
         S: 503 5.5.1 The message has failed; RSET
         S: 503 5.5.1 The message has failed; RSET
         S: 250 2.0.0 OK",
    );
    after_prelude(
        "C: BDAT 2 LAST
         C: x\\r\\
         C: NOOP
         = begin <> -> <bob@x> <full@x>
         = abort BareLineEnd
         S: 554 5.6.0 Message has a bare CR or LF
         S: 554 5.6.0 Message has a bare CR or LF
         S: 250 2.0.0 OK",
    );
}

/// RFC 2033 4.2: no 354 without a recipient.
#[test]
fn no_recipients() {
    check(
        Role::Lmtp,
        "S: 220 mx.example.org LMTP
         C: MAIL FROM:<>
         S: 503 5.5.1 Say hello first
         C: DATA
         S: 503 5.5.1 MAIL first",
    );
    after_prelude(
        "C: RSET
         C: MAIL FROM:<a@b>
         C: RCPT TO:<unknown@x>
         C: DATA
         = mail <a@b>
         = rcpt <unknown@x>
         S: 250 2.0.0 OK
         S: 250 2.1.0 Sender OK
         S: 550 5.1.1 No such mailbox here
         S: 503 5.5.1 No valid recipients",
    );
}
