//! DATA and BDAT: what is given to the owner, refusals, limits of size and of lines.

use super::script::{Owner, check_with, config};
use crate::session::{Config, DataSummary, Role};

/// A script after the greeting, HELO, MAIL and one RCPT.
fn check(script: &str) {
    check_config(config(), script);
}

fn check_config(mut config: Config, script: &str) {
    config.starttls = false;
    let prelude = "S: 220 mx.example.org ESMTP
         C: HELO a
         C: MAIL FROM:<a@b>
         C: RCPT TO:<bob@x>
         = mail <a@b>
         = rcpt <bob@x>
         S: 250 mx.example.org
         S: 250 2.1.0 Sender OK
         S: 250 2.1.5 Recipient OK
         ";
    check_with(Role::Smtp, config, false, &format!("{prelude}{script}"));
}

#[test]
fn chunks() {
    check(
        "C: BDAT 5
         C: ab\\r\\nc\\
         C: BDAT 3
         C: d\\r\\n\\
         C: BDAT 3 LAST
         C: .\\r\\n\\
         C: NOOP
         = begin <a@b> -> <bob@x>
         = end \"ab\\r\\ncd\\r\\n.\\r\\n\"
         S: 250 2.0.0 5 octets received
         S: 250 2.0.0 3 octets received
         S: 250 2.0.0 Message accepted
         S: 250 2.0.0 OK",
    );
    // A CRLF may be cut by a chunk's end; a message may end without one, and be empty.
    check(
        "C: BDAT 2
         C: a\\r\\
         C: BDAT 2 LAST
         C: \\nb\\
         = begin <a@b> -> <bob@x>
         = end \"a\\r\\nb\"
         S: 250 2.0.0 2 octets received
         S: 250 2.0.0 Message accepted",
    );
    check(
        "C: BDAT 0
         C: BDAT 0 LAST
         C: BDAT 0 LAST
         = begin <a@b> -> <bob@x>
         = end \"\"
         S: 250 2.0.0 0 octets received
         S: 250 2.0.0 Message accepted
         S: 503 5.5.1 MAIL first",
    );
}

#[test]
fn between_chunks() {
    check(
        "C: BDAT 1
         C: a\\
         C: DATA
         C: RCPT TO:<x@y>
         C: MAIL FROM:<x@y>
         C: NOOP
         C: RSET
         C: BDAT 2 LAST
         C: bc\\
         C: NOOP
         = begin <a@b> -> <bob@x>
         = abort Reset
         S: 250 2.0.0 1 octets received
         S: 503 5.5.1 DATA after BDAT
         S: 503 5.5.1 RCPT after BDAT
         S: 503 5.5.1 Nested MAIL
         S: 250 2.0.0 OK
         S: 250 2.0.0 OK
         S: 503 5.5.1 MAIL first
         S: 250 2.0.0 OK",
    );
    check(
        "C: BDAT 1
         C: a\\
         C: QUIT
         = begin <a@b> -> <bob@x>
         = abort Reset
         = close Quit
         S: 250 2.0.0 1 octets received
         S: 221 2.0.0 Bye",
    );
}

/// The octets of a chunk are octets, also when there is nothing to do with them.
#[test]
fn refused_chunks_are_skipped() {
    check(
        "C: RSET
         C: BDAT 6
         C: QUIT\\r\\n\\
         C: MAIL FROM:<nobegin@b>
         C: RCPT TO:<bob@x>
         C: BDAT 6
         C: QUIT\\r\\n\\
         C: BDAT 6 LAST
         C: QUIT\\r\\n\\
         C: NOOP
         = mail <nobegin@b>
         = rcpt <bob@x>
         = begin <nobegin@b> -> <bob@x>
         S: 250 2.0.0 OK
         S: 503 5.5.1 MAIL first
         S: 250 2.1.0 Sender OK
         S: 250 2.1.5 Recipient OK
         S: 452 4.3.1 Insufficient storage, try again later
         S: 503 5.5.1 The message has failed; RSET
         S: 250 2.0.0 OK",
    );
    check(
        "C: BDAT x
         C: QUIT
         = close TooMuchData
         S: 501 5.5.4 Invalid BDAT",
    );
    check(
        "C: BDAT 1\\n
         C: QUIT
         = close TooMuchData
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF",
    );
}

#[test]
fn data_refused() {
    check(
        "C: RSET
         C: MAIL FROM:<nobegin@b>
         C: RCPT TO:<bob@x>
         C: DATA
         C: DATA
         = mail <nobegin@b>
         = rcpt <bob@x>
         = begin <nobegin@b> -> <bob@x>
         S: 250 2.0.0 OK
         S: 250 2.1.0 Sender OK
         S: 250 2.1.5 Recipient OK
         S: 452 4.3.1 Insufficient storage, try again later
         S: 503 5.5.1 MAIL first",
    );
}

#[test]
fn too_large() {
    let line = "x".repeat(98);
    let data = |lines: usize| format!("C: {line}\n").repeat(lines);
    let text = format!("{line}\\r\\n").repeat(10);
    check(&format!(
        "C: DATA
         = begin <a@b> -> <bob@x>
         S: 354 End data with <CRLF>.<CRLF>
         {}C: .
         = end \"{text}\"
         S: 250 2.0.0 Message accepted",
        data(10)
    ));
    check(&format!(
        "C: DATA
         = begin <a@b> -> <bob@x>
         S: 354 End data with <CRLF>.<CRLF>
         {}C: y
         C: .
         C: NOOP
         = abort TooLarge
         S: 552 5.3.4 Message too large
         S: 250 2.0.0 OK",
        data(10)
    ));
    // What is thrown away is bounded.
    check(&format!(
        "C: DATA
         = begin <a@b> -> <bob@x>
         S: 354 End data with <CRLF>.<CRLF>
         {}C: .
         = abort TooLarge
         = close TooMuchData
         S: 421 4.3.4 Far too much data",
        data(31)
    ));
    // BDAT: by the declared sizes.
    let chunk = "x".repeat(600);
    check(&format!(
        "C: BDAT 600
         C: {chunk}\\
         C: BDAT 600
         C: {chunk}\\
         C: BDAT 600 LAST
         C: {chunk}\\
         C: NOOP
         = begin <a@b> -> <bob@x>
         = abort TooLarge
         S: 250 2.0.0 600 octets received
         S: 552 5.3.4 Message too large
         S: 503 5.5.1 The message has failed; RSET
         S: 250 2.0.0 OK"
    ));
    // The owner is not even asked.
    let large = "x".repeat(1_001);
    check(&format!(
        "C: BDAT 1001 LAST\nC: {large}\\\nC: NOOP\nS: 552 5.3.4 Message too large\nS: 250 2.0.0 OK"
    ));
    // Refused chunks are skipped up to a limit, too.
    let skipped = "C: BDAT 700\nC: ".to_owned() + &"x".repeat(700) + "\\\n";
    check(&format!(
        "C: RSET
         {}= close TooMuchData
         S: 250 2.0.0 OK
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 421 4.3.4 Far too much data",
        skipped.repeat(3)
    ));
    check(
        "C: BDAT 99999999999 LAST
         C: x
         = close TooMuchData
         S: 552 5.3.4 Message too large",
    );
}

#[test]
fn long_lines() {
    let mut short = config();
    short.limits.text_line_bytes_max = 10;
    check_config(
        short.clone(),
        "C: DATA
         = begin <a@b> -> <bob@x>
         S: 354 End data with <CRLF>.<CRLF>
         C: 0123456789
         C: .0123456789
         C: .
         = end \"0123456789\\r\\n0123456789\\r\\n\"
         S: 250 2.0.0 Message accepted",
    );
    check_config(
        short.clone(),
        "C: DATA
         = begin <a@b> -> <bob@x>
         S: 354 End data with <CRLF>.<CRLF>
         C: 01234567890
         C: .
         = abort LineTooLong
         S: 554 5.6.0 Message has an overlong line",
    );
    check_config(
        short,
        "C: BDAT 12 LAST
         C: 012345678901\\
         = begin <a@b> -> <bob@x>
         = abort LineTooLong
         S: 554 5.6.0 Message has an overlong line",
    );
}

/// In SMTP a message accepted for some is accepted (RFC 5321 4.4).
#[test]
fn partly_accepted() {
    check(
        "C: RCPT TO:<full@x>
         C: DATA
         = rcpt <full@x>
         = begin <a@b> -> <bob@x> <full@x>
         S: 250 2.1.5 Recipient OK
         S: 354 End data with <CRLF>.<CRLF>
         C: .
         = end \"\"
         S: 250 2.0.0 Message accepted",
    );
}

/// What a client pipelined behind a refusal is refused, too, but is no error of the client: it could not know.
#[test]
fn pipelined_behind_a_refusal() {
    let mut strict = config();
    strict.limits.errors_max = 2;
    check_config(
        strict.clone(),
        "C: RSET
         C: MAIL FROM:<later@b>
         C: RCPT TO:<1@x>
         C: RCPT TO:<2@x>
         C: RCPT TO:<3@x>
         C: DATA
         = mail <later@b>
         S: 250 2.0.0 OK
         S: 451 4.7.1 Try later
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         C: DATA
         C: RCPT TO:<4@x>
         = close TooManyErrors
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 421 4.7.0 Too many errors",
    );
    let chunk = "C: BDAT 1\nC: \\n\\\n";
    check_config(
        strict,
        &format!(
            "{}C: NOOP
         = begin <a@b> -> <bob@x>
         = abort BareLineEnd
         S: 554 5.6.0 Message has a bare CR or LF
         S: 503 5.5.1 The message has failed; RSET
         S: 503 5.5.1 The message has failed; RSET
         S: 503 5.5.1 The message has failed; RSET
         S: 250 2.0.0 OK",
            chunk.repeat(4)
        ),
    );
}

/// What a loop is known by, in DATA and in BDAT, with dots and chunk ends in between.
#[test]
fn summaries() {
    let text = "Received: a\r\n..x: y\r\nDelivered-To: bob@x\r\n\r\nReceived: b\r\n";
    let data = format!("DATA\r\n{text}.\r\n");
    let bdat = format!(
        "BDAT 30\r\n{}BDAT {} LAST\r\n{}",
        &text[..30],
        text.len() - 30,
        &text[30..]
    );
    for (message, bytes) in [(data, text.len() - 1), (bdat, text.len())] {
        for size in [1, usize::MAX] {
            let mut owner = Owner::new(Role::Smtp, config(), false);
            owner.run();
            owner.feed(
                format!("EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<bob@x>\r\n{message}").as_bytes(),
                size,
            );
            let expected = DataSummary {
                bytes: bytes as u64,
                received: 1,
                delivered_to: vec!["bob@x".into()],
            };
            assert_eq!(owner.summary, expected);
        }
    }
}
