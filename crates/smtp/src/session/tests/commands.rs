use super::script::{check, check_with, config};
use crate::session::Role;

#[test]
fn a_message() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: EHLO mail.example.net
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 1000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250-ENHANCEDSTATUSCODES
         S: 250 STARTTLS
         C: MAIL FROM:<anne@example.net> SIZE=100 BODY=8BITMIME
         = mail <anne@example.net> 100 8bit
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<bob@example.org>
         = rcpt <bob@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<unknown@example.org>
         = rcpt <unknown@example.org>
         S: 550 5.1.1 No such mailbox here
         C: RCPT TO:<later@example.org>
         = rcpt <later@example.org>
         S: 451 4.7.1 Try later
         C: RCPT TO:<Postmaster>
         = rcpt <Postmaster>
         S: 250 2.1.5 Recipient OK
         C: DATA
         = begin <anne@example.net> -> <bob@example.org> <Postmaster>
         S: 354 End data with <CRLF>.<CRLF>
         C: Subject: x
         C:
         C: ..dot
         C: .
         = end \"Subject: x\\r\\n\\r\\n.dot\\r\\n\"
         S: 250 2.0.0 Message accepted
         C: QUIT
         = close Quit
         S: 221 2.0.0 Bye",
    );
}

/// RFC 2920 3.1: commands in one piece, and the replies in their order.
#[test]
fn pipelined() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: HELO a
         C: MAIL FROM:<>
         C: RCPT TO:<unknown@x>
         C: RCPT TO:<bob@x>
         C: DATA
         = mail <>
         = rcpt <unknown@x>
         = rcpt <bob@x>
         = begin <> -> <bob@x>
         S: 250 mx.example.org
         S: 250 2.1.0 Sender OK
         S: 550 5.1.1 No such mailbox here
         S: 250 2.1.5 Recipient OK
         S: 354 End data with <CRLF>.<CRLF>
         C: .
         C: QUIT
         = end \"\"
         = close Quit
         S: 250 2.0.0 Message accepted
         S: 221 2.0.0 Bye",
    );
}

#[test]
fn small_commands() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: NOOP
         C: HELP me
         C: VRFY anne
         C: EXPN staff
         C: RSET
         C: LHLO a
         C: FROB
         C: AUTH PLAIN
         C: EHLO a b
         C: EHLO a
         S: 250 2.0.0 OK
         S: 214 2.0.0 See RFC 5321
         S: 252 2.5.0 Cannot VRFY user; try RCPT to attempt delivery
         S: 502 5.5.1 EXPN not available
         S: 250 2.0.0 OK
         S: 500 5.5.1 Command not recognized
         S: 500 5.5.1 Command not recognized
         S: 502 5.5.1 AUTH not available
         S: 501 5.5.4 Invalid arguments
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 1000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250-ENHANCEDSTATUSCODES
         S: 250 STARTTLS",
    );
}

#[test]
fn order() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: MAIL FROM:<a@b>
         C: RCPT TO:<a@b>
         C: DATA
         C: HELO a
         C: RCPT TO:<a@b>
         C: DATA
         C: MAIL FROM:<later@b>
         C: MAIL FROM:<a@b>
         C: MAIL FROM:<a@b>
         C: DATA
         C: RSET
         C: DATA
         = mail <later@b>
         = mail <a@b>
         S: 503 5.5.1 Say hello first
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 250 mx.example.org
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 451 4.7.1 Try later
         S: 250 2.1.0 Sender OK
         S: 503 5.5.1 Nested MAIL
         S: 554 5.5.1 No valid recipients
         S: 250 2.0.0 OK
         S: 503 5.5.1 MAIL first",
    );
}

/// A second EHLO or HELO is a RSET, too.
#[test]
fn hello_resets() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: HELO a
         C: MAIL FROM:<a@b>
         C: HELO a
         C: RCPT TO:<a@b>
         = mail <a@b>
         S: 250 mx.example.org
         S: 250 2.1.0 Sender OK
         S: 250 mx.example.org
         S: 503 5.5.1 MAIL first",
    );
}

#[test]
fn parameters() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: HELO a
         C: MAIL FROM:<a@b> SIZE=1
         C: MAIL FROM:<a@b> BODY=BINARYMIME
         S: 250 mx.example.org
         S: 555 5.5.4 Parameter not supported
         S: 555 5.5.4 Parameter not supported",
    );
    let mut quiet = config();
    quiet.starttls = false;
    check_with(
        Role::Smtp,
        quiet,
        false,
        "S: 220 mx.example.org ESMTP
         C: EHLO a
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 1000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250 ENHANCEDSTATUSCODES
         C: MAIL FROM:<a@b> SIZE=1001
         C: MAIL FROM:<é@b>
         C: MAIL FROM:<a@b> SIZE=1000
         C: RCPT TO:<é@b>
         C: RSET
         C: MAIL FROM:<é@b> SMTPUTF8
         C: RCPT TO:<ö@é>
         = mail <a@b> 1000
         = mail <é@b> utf8
         = rcpt <ö@é>
         S: 552 5.3.4 Message too large
         S: 553 5.6.7 Address needs SMTPUTF8
         S: 250 2.1.0 Sender OK
         S: 553 5.6.7 Address needs SMTPUTF8
         S: 250 2.0.0 OK
         S: 250 2.1.0 Sender OK
         S: 250 2.1.5 Recipient OK",
    );
}
