//! BAD_INPUTS rows 1, 3, 5, 7 and 26 (row 2 is in `starttls`): inputs that broke other servers.

use super::script::{Owner, check, check_with, config};
use crate::session::{CloseReason, Output, Role, Session};

const PRELUDE: &str = "S: 220 mx.example.org ESMTP
     C: HELO a
     C: MAIL FROM:<a@b>
     C: RCPT TO:<bob@x>
     = mail <a@b>
     = rcpt <bob@x>
     S: 250 mx.example.org
     S: 250 2.1.0 Sender OK
     S: 250 2.1.5 Recipient OK
     ";

/// Row 1: no variant of the end of data smuggles a second transaction, and the message is refused after its true end.
#[test]
fn smuggling_in_data() {
    for end in [
        "\\n.\\n",
        "\\n.\\r\\n",
        "\\r.\\r",
        "\\r.\\r\\n",
        "\\r\\n.\\n",
        "\\r\\n.\\r",
        "\\n\\n.\\r\\n",
        "\\r\\n\\r.\\r\\n",
        "\\r\\r\\n.\\r\\r\\n",
    ] {
        check(
            Role::Smtp,
            &format!(
                "{PRELUDE}
                 C: DATA
                 = begin <a@b> -> <bob@x>
                 S: 354 End data with <CRLF>.<CRLF>
                 C: Subject: outer
                 C: text{end}\\
                 C: MAIL FROM:<evil@b>
                 C: RCPT TO:<bob@x>
                 C: DATA
                 C: Subject: inner
                 C: .
                 C: NOOP
                 = abort BareLineEnd
                 S: 554 5.6.0 Message has a bare CR or LF
                 S: 250 2.0.0 OK"
            ),
        );
    }
    check(
        Role::Smtp,
        &format!(
            "{PRELUDE}
             C: DATA
             = begin <a@b> -> <bob@x>
             S: 354 End data with <CRLF>.<CRLF>
             C: a\\0b
             C: .
             = abort Nul
             S: 554 5.6.0 Message has a NUL"
        ),
    );
}

/// Row 1 in BDAT.
#[test]
fn bare_line_ends_in_bdat() {
    for text in ["a\\nb", "a\\rb", "\\n\\nb", "a\\0b"] {
        let (reason, reply) = if text.contains('0') {
            ("Nul", "Message has a NUL")
        } else {
            ("BareLineEnd", "Message has a bare CR or LF")
        };
        check(
            Role::Smtp,
            &format!(
                "{PRELUDE}
                 C: BDAT 3
                 C: {text}\\
                 C: BDAT 1 LAST
                 C: c\\
                 C: NOOP
                 = begin <a@b> -> <bob@x>
                 = abort {reason}
                 S: 554 5.6.0 {reply}
                 S: 503 5.5.1 The message has failed; RSET
                 S: 250 2.0.0 OK"
            ),
        );
    }
}

/// Row 1 in commands: a line is what ends in CRLF; one with a bare CR or LF is refused as a whole.
#[test]
fn bare_line_ends_in_commands() {
    check(
        Role::Smtp,
        "S: 220 mx.example.org ESMTP
         C: NOOP\\nMAIL FROM:<evil@b>
         C: NOOP\\rQUIT
         C: NOOP\\nQUIT\\nQUIT\\r\\r
         C: NOOP\\0
         C: NOOP
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         S: 500 5.5.2 Invalid characters
         S: 250 2.0.0 OK",
    );
}

/// Row 3: TLS is shut down, or the connection lost, within BDAT: nothing is delivered, nothing that was buffered is read, and nothing that comes later.
#[test]
fn connection_lost_in_a_message() {
    for (begin, said) in [
        ("BDAT 10 LAST\r\nQUIT\r\n", ""),
        ("BDAT 2\r\nabBDAT 5 LA", "250"),
        ("DATA\r\na\r\n.\r", "354"),
        ("BDAT 0\r\n", "250"),
    ] {
        for size in [1, usize::MAX] {
            let mut owner = Owner::new(Role::Smtp, config(), true);
            owner.run();
            owner.feed(b"EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<bob@x>\r\n", size);
            owner.events.clear();
            owner.sent.clear();
            owner.feed(begin.as_bytes(), size);
            assert!(String::from_utf8_lossy(&owner.sent).starts_with(said));
            owner.sent.clear();
            owner.session.on_eof(owner.now);
            owner.run();
            assert_eq!(
                owner.events,
                [
                    "begin <a@b> -> <bob@x>",
                    "abort ConnectionLost",
                    "close ConnectionLost"
                ],
                "{begin:?}"
            );
            assert!(owner.messages.is_empty());
            assert_eq!(owner.session.input(owner.now, b"\r\nNOOP\r\nabcd"), 0);
            assert_eq!(owner.session.poll(), None);
            assert_eq!((owner.session.buffered_bytes(), owner.sent.len()), (0, 0));
        }
    }
}

/// A message whose end has come stands though the connection is lost before the verdict; the verdict ends the session.
#[test]
fn connection_lost_before_the_verdict() {
    let mut owner = Owner::new(Role::Smtp, config(), false);
    owner.run();
    owner.feed(
        b"EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<bob@x>\r\nDATA\r\n",
        usize::MAX,
    );
    assert_eq!(owner.session.input(owner.now, b"a\r\n.\r\nQUIT\r\n"), 12);
    let mut asked = false;
    while let Some(output) = owner.session.poll() {
        asked |= matches!(output, Output::DataEnd(_));
        assert!(!matches!(output, Output::DataAbort(_)));
    }
    assert!(asked);
    owner.session.on_eof(owner.now);
    assert_eq!(owner.session.poll(), None);
    owner.session.answer_data_end(
        owner.now,
        crate::session::DataAnswer::All(Ok(Default::default())),
    );
    assert_eq!(
        owner.session.poll(),
        Some(Output::Close(CloseReason::ConnectionLost))
    );
    assert_eq!(owner.session.counters().messages, 1);
}

/// What the session holds stays below its limits, whatever comes, in any state, with questions unanswered.
fn assert_bounded(session: &Session) {
    let limits = config().limits;
    let reply_bytes_max = 4_096;
    assert!(
        session.buffered_bytes()
            <= limits.input_buffer_bytes_max + limits.output_buffer_bytes_max + reply_bytes_max
    );
}

/// Row 5: each state has its limit. A client that sends without end, in a state it chose, fills nothing.
#[test]
fn no_state_bypasses_the_buffer_limit() {
    let mut small = config();
    small.limits.errors_max = u32::MAX;
    small.limits.commands_max = u32::MAX;
    small.limits.discard_bytes_max = u64::MAX;
    small.auth_without_tls = true;
    let mail = "EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<bob@x>\r\n";
    for (role, prelude) in [
        (Role::Smtp, String::new()),
        (Role::Smtp, "x\ny".into()),
        (Role::Smtp, format!("{mail}DATA\r\n")),
        (Role::Smtp, format!("{mail}DATA\r\n\n")),
        (Role::Smtp, format!("{mail}BDAT 1000 LAST\r\n")),
        (Role::Smtp, "BDAT 1000\r\n".into()),
        (Role::Submission, "EHLO a\r\nAUTH PLAIN\r\n".into()),
        (Role::Submission, "EHLO a\r\nAUTH LOGIN\r\n".into()),
    ] {
        for flood in ["x", "\r", "HELP\r\n", ".\r", "\r\n.", "BDAT 9\r\n"] {
            let mut owner = Owner::new(role, small.clone(), false);
            owner.run();
            owner.feed(prelude.as_bytes(), usize::MAX);
            let flood = flood.repeat(40_000);
            for _ in 0..20 {
                // Poll only as often as something is given out: nothing may pile up.
                let taken = owner.session.input(owner.now, flood.as_bytes());
                assert!(taken <= config().limits.input_buffer_bytes_max);
                while let Some(output) = owner.session.poll() {
                    assert_bounded(&owner.session);
                    match output {
                        Output::Send(bytes) => assert!(bytes.len() < 64 * 1024),
                        Output::DataChunk(bytes) => {
                            owner.session.acknowledge(owner.now, bytes.len())
                        }
                        Output::Close(_) => break,
                        _ => {}
                    }
                }
                assert_bounded(&owner.session);
            }
        }
    }
}

/// Row 5: while a question is open nothing more is taken.
#[test]
fn an_open_question_stops_the_input() {
    let mut owner = Owner::new(Role::Smtp, config(), false);
    owner.run();
    owner.feed(b"EHLO a\r\n", usize::MAX);
    assert_eq!(
        owner
            .session
            .input(owner.now, b"MAIL FROM:<a@b>\r\nNOOP\r\n"),
        23
    );
    assert!(matches!(owner.session.poll(), Some(Output::Mail(_))));
    assert_eq!(owner.session.poll(), None);
    assert_eq!(owner.session.input(owner.now, b"NOOP\r\n"), 0);
    assert!(!owner.session.wants_input());
    assert_eq!(owner.session.buffered_bytes(), 6);
    owner.session.answer_mail(owner.now, Ok(()));
    assert_eq!(
        owner.session.poll(),
        Some(Output::Send(
            b"250 2.1.0 Sender OK\r\n250 2.0.0 OK\r\n".to_vec()
        ))
    );
    assert!(owner.session.wants_input());
}

/// Backpressure: chunks that are not acknowledged stop the input, acknowledged ones let it go on.
#[test]
fn unacknowledged_chunks_stop_the_input() {
    let mut config = config();
    config.limits.message_bytes_max = 10_000_000;
    config.limits.data_unacknowledged_bytes_max = 100_000;
    let mut owner = Owner::new(Role::Smtp, config, false);
    owner.run();
    owner.feed(
        b"EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<bob@x>\r\nDATA\r\n",
        usize::MAX,
    );
    let text = b"0123456789\r\n".repeat(5_000);
    let mut given = 0;
    for _ in 0..10 {
        let _ = owner.session.input(owner.now, &text);
        while let Some(output) = owner.session.poll() {
            let Output::DataChunk(bytes) = output else {
                panic!("{output:?}")
            };
            given += bytes.len();
        }
    }
    assert!((100_000..200_000).contains(&given), "{given}");
    assert!(!owner.session.wants_input());
    assert_eq!(
        owner.session.deadline(),
        None,
        "the server's own slowness is no timeout"
    );
    owner.session.acknowledge(owner.now, given);
    assert!(owner.session.wants_input());
    assert!(owner.session.deadline().is_some());
}

/// Row 7: a declared size allocates nothing; nor does it before anything was accepted.
#[test]
fn declared_sizes_allocate_nothing() {
    let mut large = config();
    large.limits.message_bytes_max = u64::MAX;
    large.limits.bdat_chunk_bytes_max = u64::MAX;
    check_with(
        Role::Smtp,
        large,
        false,
        &format!(
            "{PRELUDE}
             C: RSET
             C: MAIL FROM:<a@b>
             C: RCPT TO:<bob@x>
             C: BDAT 18446744073709551615 LAST
             C: QUIT
             = mail <a@b>
             = rcpt <bob@x>
             = begin <a@b> -> <bob@x>
             S: 250 2.0.0 OK
             S: 250 2.1.0 Sender OK
             S: 250 2.1.5 Recipient OK
             * eof
             = abort ConnectionLost
             = close ConnectionLost"
        ),
    );
}

/// Row 26: RCPT without end.
#[test]
fn recipients_without_end() {
    let mut few = config();
    few.limits.recipients_max = 2;
    few.limits.recipients_refused_max = 2;
    check_with(
        Role::Smtp,
        few.clone(),
        false,
        &format!(
            "{PRELUDE}
             C: RCPT TO:<1@x>
             C: RCPT TO:<2@x>
             C: RCPT TO:<3@x>
             C: DATA
             = rcpt <1@x>
             = begin <a@b> -> <bob@x> <1@x>
             S: 250 2.1.5 Recipient OK
             S: 452 4.5.3 Too many recipients
             S: 452 4.5.3 Too many recipients
             S: 354 End data with <CRLF>.<CRLF>
             C: .
             = end \"\"
             S: 250 2.0.0 Message accepted"
        ),
    );
    check_with(
        Role::Smtp,
        few,
        false,
        &format!(
            "{PRELUDE}
             C: RCPT TO:<1@x>
             C: RCPT TO:<2@x>
             C: RCPT TO:<3@x>
             C: RCPT TO:<4@x>
             C: RCPT TO:<5@x>
             = rcpt <1@x>
             = close TooManyRefusedRecipients
             S: 250 2.1.5 Recipient OK
             S: 452 4.5.3 Too many recipients
             S: 452 4.5.3 Too many recipients
             S: 452 4.5.3 Too many recipients
             S: 421 4.7.0 Too many refused recipients"
        ),
    );
}

/// Row 26: harvesting. Unknown recipients count over the whole session; VRFY and EXPN tell nothing.
#[test]
fn harvesting() {
    let mut few = config();
    few.limits.unknown_recipients_max = 2;
    check_with(
        Role::Smtp,
        few,
        false,
        &format!(
            "{PRELUDE}
             C: VRFY bob
             C: VRFY nobody
             C: RCPT TO:<unknown1@x>
             C: RCPT TO:<unknown2@x>
             C: RSET
             C: MAIL FROM:<>
             C: RCPT TO:<relay@x>
             C: RCPT TO:<unknown3@x>
             C: RCPT TO:<unknown4@x>
             = rcpt <unknown1@x>
             = rcpt <unknown2@x>
             = mail <>
             = rcpt <relay@x>
             = rcpt <unknown3@x>
             = close TooManyRefusedRecipients
             S: 252 2.5.0 Cannot VRFY user; try RCPT to attempt delivery
             S: 252 2.5.0 Cannot VRFY user; try RCPT to attempt delivery
             S: 550 5.1.1 No such mailbox here
             S: 550 5.1.1 No such mailbox here
             S: 250 2.0.0 OK
             S: 250 2.1.0 Sender OK
             S: 550 5.7.1 Relaying denied
             S: 550 5.1.1 No such mailbox here
             S: 421 4.7.0 Too many refused recipients"
        ),
    );
}

/// Row 26: a line without end.
#[test]
fn lines_without_end() {
    let long = "x".repeat(2_100);
    check(
        Role::Smtp,
        &format!(
            "S: 220 mx.example.org ESMTP
             C: NOOP {}
             C: NOOP {}
             C: {long}{long}
             C: NOOP
             S: 250 2.0.0 OK
             S: 500 5.5.2 Line too long
             S: 500 5.5.2 Line too long
             S: 250 2.0.0 OK",
            &long[..2_048 - 7],
            &long[..2_048 - 6],
        ),
    );
}

/// Row 26: mail loops.
#[test]
fn loops() {
    let mut few = config();
    few.limits.received_hops_max = 2;
    let hop = "C: Received: x\n";
    let script = |hops: usize, end: &str| {
        format!(
            "{PRELUDE}
             C: DATA
             = begin <a@b> -> <bob@x>
             S: 354 End data with <CRLF>.<CRLF>
             {}C: .
             {end}",
            hop.repeat(hops)
        )
    };
    let fine = "= end \"Received: x\\r\\nReceived: x\\r\\n\"\nS: 250 2.0.0 Message accepted";
    check_with(Role::Smtp, few.clone(), false, &script(2, fine));
    let looping = "= abort Loop\nS: 554 5.4.6 Too many hops, this message is looping";
    check_with(Role::Smtp, few, false, &script(3, looping));
}

/// Limits of the session as a whole.
#[test]
fn session_limits() {
    let mut few = config();
    few.limits.errors_max = 3;
    let errors = "S: 220 mx.example.org ESMTP
         C: a
         C: DATA
         C: b\\nc
         C: NOOP
         = close TooManyErrors
         S: 500 5.5.1 Command not recognized
         S: 503 5.5.1 MAIL first
         S: 500 5.5.2 Bare CR or LF; lines end with CRLF
         S: 421 4.7.0 Too many errors";
    check_with(Role::Smtp, few, false, errors);

    let mut few = config();
    few.limits.commands_max = 2;
    let commands = "S: 220 mx.example.org ESMTP
         C: NOOP
         C: NOOP
         C: NOOP
         = close TooManyCommands
         S: 250 2.0.0 OK
         S: 250 2.0.0 OK
         S: 421 4.7.0 Too many commands";
    check_with(Role::Smtp, few, false, commands);

    // What brings no message nearer is counted from message to message; all else is not.
    let mut few = config();
    few.limits.idle_commands_max = 3;
    let idle = "S: 220 mx.example.org ESMTP
         C: HELO a
         C: NOOP
         C: MAIL FROM:<>
         C: VRFY a
         C: HELP
         = mail <>
         = close TooManyCommands
         S: 250 mx.example.org
         S: 250 2.0.0 OK
         S: 250 2.1.0 Sender OK
         S: 252 2.5.0 Cannot VRFY user; try RCPT to attempt delivery
         S: 421 4.7.0 Too many commands without a message";
    check_with(Role::Smtp, few, false, idle);
    let mut few = config();
    few.limits.idle_commands_max = 1;
    let anew = "C: BDAT 0 LAST
         C: NOOP
         C: NOOP
         = begin <a@b> -> <bob@x>
         = end \"\"
         = close TooManyCommands
         S: 250 2.0.0 Message accepted
         S: 250 2.0.0 OK
         S: 421 4.7.0 Too many commands without a message";
    check_with(Role::Smtp, few, false, &format!("{PRELUDE}{anew}"));

    let mut few = config();
    few.limits.transactions_max = 1;
    let transactions = "C: RSET
         C: MAIL FROM:<>
         = close TooManyTransactions
         S: 250 2.0.0 OK
         S: 421 4.7.0 Too many transactions";
    check_with(Role::Smtp, few, false, &format!("{PRELUDE}{transactions}"));

    let mut few = config();
    few.limits.errors_max = 2;
    // A refused chunk is an error, too.
    let chunks = "C: RSET
         C: BDAT 1
         C: xBDAT 1
         C: xNOOP
         = close TooManyErrors
         S: 250 2.0.0 OK
         S: 503 5.5.1 MAIL first
         S: 503 5.5.1 MAIL first
         S: 421 4.7.0 Too many errors";
    check_with(Role::Smtp, few, false, &format!("{PRELUDE}{chunks}"));
}
