//! Submission: who may send what as whom, and what becomes of it.

use whimbrel_frontend::session::Note;
use whimbrel_service::senders::Limits;
use whimbrel_smtp::Role;

use super::world::{ANNE, BOB, Cut, World};

const TO_BOB: &str = "C: RCPT TO:<bob@example.org>
S: 250 2.1.5 Recipient OK
C: DATA
S: 354 ...
";

/// A world with aliases, and Anne logged in.
fn world() -> World {
    let mut world = World::new(Cut::AtOnce);
    world.alias("sales@example.org", "anne@example.org");
    world.alias("team@example.org", "anne@example.org");
    world.alias("team@example.org", "bob@example.org");
    world
}

#[test]
fn nobody_sends_without_a_login() {
    let mut world = world();
    world.config.starttls = true;
    world.config.require_tls = true;
    world.connect(Role::Submission);
    world.script(
        "S: 220 mx.example.org ESMTP
         C: EHLO client.example
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 300000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250-ENHANCEDSTATUSCODES
         S: 250 STARTTLS
         C: MAIL FROM:<anne@example.org>
         S: 530 5.7.0 Must issue a STARTTLS command first
         C: AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: 538 5.7.11 ...
         C: STARTTLS
         S: 220 2.0.0 Ready to start TLS
         tls
         C: EHLO client.example
         S: 250-mx.example.org
         S: 250-PIPELINING
         S: 250-SIZE 300000
         S: 250-8BITMIME
         S: 250-SMTPUTF8
         S: 250-CHUNKING
         S: 250-ENHANCEDSTATUSCODES
         S: 250 AUTH SCRAM-SHA-256 PLAIN LOGIN
         C: MAIL FROM:<anne@example.org>
         S: 530 5.7.0 Authentication required
         C: AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAd3Jvbmc=
         S: 535 5.7.8 Authentication credentials invalid
         C: AUTH CRAM-MD5
         S: 504 5.5.4 Mechanism not supported
         C: AUTH SCRAM-SHA-256-PLUS
         S: 504 5.5.4 Mechanism not supported
         C: AUTH PLAIN Ym9iAGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: 535 5.7.8 Authentication credentials invalid
         C: AUTH LOGIN
         S: 334 VXNlcm5hbWU6
         C: YW5uZUBleGFtcGxlLm9yZw==
         S: 334 UGFzc3dvcmQ6
         C: c2VjcmV0
         S: 235 2.7.0 Authentication succeeded
         C: MAIL FROM:<anne@example.org>
         S: 250 2.1.0 Sender OK",
    );
    let notes = &world.client().notes;
    let logged_in = Note::LoggedIn {
        login: "anne@example.org".into(),
        mechanism: "LOGIN",
    };
    assert!(notes.contains(&logged_in), "{notes:?}");
    // The other roles have no AUTH, inside TLS neither.
    for (role, hello) in [(Role::Smtp, "EHLO"), (Role::Lmtp, "LHLO")] {
        world.connect_tls(role);
        world.send(format!("{hello} client.example\r\nAUTH PLAIN\r\n").as_bytes());
        let told = world.told();
        assert!(
            !told.contains("250-AUTH") && !told.contains("250 AUTH"),
            "{told}"
        );
        assert!(told.contains("502 5.5.1"), "{told}");
    }
}

#[test]
fn the_envelope_names_the_client_itself() {
    let mut world = world();
    world.script("submit anne");
    let mut check = |sender: &str, expected: &str| {
        world.script(&format!(
            "C: MAIL FROM:<{sender}>\nS: {expected}\nC: RSET\nS: 250 2.0.0 OK"
        ));
    };
    const OK: &str = "250 2.1.0 Sender OK";
    const FOREIGN: &str = "553 5.7.1 This sender address is not yours";
    check("anne@example.org", OK);
    check("ANNE@Example.org", OK);
    check("anne+shop@example.org", OK);
    check("sales@example.org", OK);
    check("", OK);
    check("bob@example.org", FOREIGN);
    check("team@example.org", FOREIGN);
    check("nobody@example.org", FOREIGN);
    check("postmaster@example.org", FOREIGN);
    check("anne@elsewhere.example", FOREIGN);
    check("anne@[192.0.2.1]", FOREIGN);
}

#[test]
fn recipients_elsewhere_are_refused_for_good() {
    let mut world = world();
    world.script(
        "submit anne
         C: MAIL FROM:<anne@example.org>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<carl@elsewhere.example>
         S: 550 5.7.1 This server does not send mail to other domains
         C: RCPT TO:<nobody@example.org>
         S: 550 5.1.1 No such mailbox here
         C: RCPT TO:<Postmaster>
         S: 250 2.1.5 Recipient OK
         C: DATA
         S: 354 ...
         C: From: anne@example.org
         C: .
         S: 250 2.0.0 ...",
    );
    assert_eq!(world.bodies(ANNE, "INBOX").len(), 1);
}

/// What is said of a message with this header, and whether Bob has it.
fn check(header: &str, expected: &str) {
    for cut in [Cut::AtOnce, Cut::Sizes(vec![1]), Cut::Sizes(vec![13, 2])] {
        let mut world = World::new(cut);
        world.alias("sales@example.org", "anne@example.org");
        world.alias("team@example.org", "anne@example.org");
        world.alias("team@example.org", "bob@example.org");
        world.script(&format!(
            "submit anne\nC: MAIL FROM:<anne@example.org>\nS: 250 2.1.0 Sender OK\n{TO_BOB}"
        ));
        world.send(format!("{}\r\nbody\r\n.\r\n", header.replace('\n', "\r\n")).as_bytes());
        world.script(&format!("S: {expected}"));
        let accepted = usize::from(expected.starts_with('2'));
        assert_eq!(world.bodies(BOB, "INBOX").len(), accepted, "{header}");
        assert_eq!(world.bodies(ANNE, "Sent").len(), accepted, "{header}");
        assert_eq!(world.left_over(), (0, accepted), "{header}");
        // The session goes on.
        world.script("C: MAIL FROM:<>\nS: 250 2.1.0 Sender OK");
    }
}

#[test]
fn the_header_names_the_client_itself() {
    const OK: &str = "250 2.0.0 ...";
    check("From: anne@example.org\n", OK);
    check("From: \"Anne, B.\" <Anne+x@Example.org>\n", OK);
    check("From: sales@example.org\nSender: anne@example.org\n", OK);
    check(
        "From: anne@example.org,\n sales@example.org\nSender: anne@example.org\n",
        OK,
    );
    check(
        "From: bob@example.org\n",
        "550 5.7.1 The sender <bob@example.org> in the header is not yours",
    );
    check(
        "From: anne@example.org, Bob <bob@example.org>\n",
        "550 5.7.1 The sender <bob@example.org> in the header is not yours",
    );
    check(
        "From: team@example.org\n",
        "550 5.7.1 The sender <team@example.org> in the header is not yours",
    );
    check(
        "From: anne@example.org\nSender: ceo@elsewhere.example\n",
        "550 5.7.1 The sender <ceo@elsewhere.example> in the header is not yours",
    );
    check(
        "Resent-From: sales@example.org\nResent-Sender: anne@example.org\nFrom: anne@example.org\n",
        OK,
    );
    for resent in ["Resent-From", "Resent-Sender", "RESENT-FROM "] {
        check(
            &format!("From: anne@example.org\n{resent}: bob@example.org\n"),
            "550 5.7.1 The sender <bob@example.org> in the header is not yours",
        );
    }
    // Another's mail, which was resent before it came.
    check(
        "Resent-From: anne@example.org\nResent-From: x@y.example\nFrom: bob@example.org\n",
        OK,
    );
    check(
        "Resent-From: anne@example.org\nResent-Sender: x@y.example\nFrom: anne@example.org\n",
        "550 5.7.1 The sender <x@y.example> in the header is not yours",
    );
    // Resent-Sender alone resends nothing (RFC 5322, 3.6.6).
    check(
        "Resent-Sender: anne@example.org\nFrom: bob@example.org\n",
        "550 5.7.1 The sender <bob@example.org> in the header is not yours",
    );
    check(
        "From: \"a\n <bob@example.org>\" <anne@example.org>\n",
        "554 5.6.0 From field cannot be read",
    );
    check(
        "From: (bob@example.org) anne@example.org\n",
        "554 5.6.0 From field cannot be read",
    );
    check(
        "From: anne@example.org <bob@example.org>\n",
        "554 5.6.0 From field cannot be read",
    );
    check(
        "From: anne@example.org\nFrom: bob@example.org\n",
        "554 5.6.0 More than one From field",
    );
    check("Subject: x\n", "554 5.6.0 No From field");
    check("", "554 5.6.0 No From field");
    check(
        "rubbish\nFrom: anne@example.org\n",
        "554 5.6.0 Malformed header field",
    );
}

#[test]
fn a_header_that_does_not_end_is_refused() {
    let mut world = world();
    world.limits.submission.header_bytes_max = 1_000;
    let long = format!("From: anne@example.org\nX: {}\n", "x".repeat(1_000));
    world.script(&format!(
        "submit anne\nC: MAIL FROM:<anne@example.org>\nS: 250 2.1.0 Sender OK\n{TO_BOB}"
    ));
    world.send(long.replace('\n', "\r\n").as_bytes());
    world.send(&b"y: z\r\n".repeat(20_000));
    world.script("C: .\nS: 552 5.3.4 Message header too long");
    assert_eq!(world.left_over(), (0, 0));
    // A long body behind a short header is none of its business.
    world.script(&format!(
        "C: MAIL FROM:<>\nS: 250 2.1.0 Sender OK\n{TO_BOB}"
    ));
    world.send(b"From: anne@example.org\r\n\r\n");
    world.send(&b"y: z\r\n".repeat(20_000));
    world.script("C: .\nS: 250 2.0.0 ...");
    assert_eq!(world.bodies(BOB, "INBOX").len(), 1);
}

#[test]
fn what_is_missing_is_added_for_all() {
    let mut world = world();
    world.script(&format!(
        "submit anne\nC: MAIL FROM:<anne@example.org>\nS: 250 2.1.0 Sender OK\n{TO_BOB}"
    ));
    world.send(b"From: anne@example.org\r\nSubject: x\r\n\r\nhello\r\n.\r\n");
    world.script("S: 250 2.0.0 ...");
    let bobs = world.bodies(BOB, "INBOX").pop().unwrap();
    let mut lines = bobs.split("\r\n");
    let (date, id) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(
        date.starts_with("Date: ") && date.ends_with(" +0000"),
        "{date}"
    );
    let id = id.strip_prefix("Message-ID: <").unwrap();
    let (local, host) = id.split_once('@').unwrap();
    assert_eq!((local.len(), host), (32, "mx.example.org>"));
    assert!(
        bobs.ends_with("From: anne@example.org\r\nSubject: x\r\n\r\nhello\r\n"),
        "{bobs}"
    );
    assert_eq!(
        world.bodies(ANNE, "Sent"),
        [bobs],
        "the same in her own copy"
    );
    // With BDAT, and no empty line at all.
    world.script(
        "C: MAIL FROM:<anne@example.org>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<bob@example.org>
         S: 250 2.1.5 Recipient OK",
    );
    world.send(b"BDAT 10\r\nFrom: anneBDAT 12 LAST\r\n@example.org");
    world.script("S: 250 2.0.0 ...\nS: 250 2.0.0 ...");
    let bobs = world.bodies(BOB, "INBOX").pop().unwrap();
    assert!(bobs.ends_with("\r\nFrom: anne@example.org"), "{bobs}");
    assert!(bobs.starts_with("Date: "), "{bobs}");
}

/// RFC 5322, 3.6.3.
#[test]
fn who_was_copied_blindly_is_known_to_the_sender_alone() {
    for cut in [Cut::AtOnce, Cut::Sizes(vec![3])] {
        let mut world = World::new(cut);
        world.script(
            "submit anne
             C: MAIL FROM:<anne@example.org>
             S: 250 2.1.0 Sender OK
             C: RCPT TO:<anne@example.org>
             S: 250 2.1.5 Recipient OK
             C: RCPT TO:<bob@example.org>
             S: 250 2.1.5 Recipient OK
             C: DATA
             S: 354 ...
             C: Date: x
             C: Message-ID: <y@z>
             C: From: anne@example.org
             C: Bcc: bob@example.org,
             C:  carl@example.org
             C:
             C: .
             S: 250 2.0.0 ...",
        );
        let own = "Date: x\r\nMessage-ID: <y@z>\r\nFrom: anne@example.org\r\n\r\n";
        for account in [ANNE, BOB] {
            let arrived = world.arrived(account, "INBOX").pop().unwrap();
            assert_eq!(arrived.text(), own);
            assert!(!arrived.prefix.contains("carl"), "{}", arrived.prefix);
        }
        let sent = world.arrived(ANNE, "Sent").pop().unwrap();
        assert_eq!(sent.text(), own);
        let (received, bcc) = sent.prefix.split_once("Bcc: ").unwrap();
        assert_eq!(bcc, "bob@example.org, carl@example.org\r\n");
        assert!(
            received.starts_with("Received: from client.example ([192.0.2.7])")
                && received.contains(" with ESMTPSA id ")
                && !received.contains(" for "),
            "{received}"
        );
    }
    // However it is folded: a line of white space ends no header.
    let mut world = world();
    world.script(&format!(
        "submit anne\nC: MAIL FROM:<>\nS: 250 2.1.0 Sender OK\n{TO_BOB}"
    ));
    world.send(b"From: anne@example.org\r\nBcc: \r\n \r\n\t\r\nTo: x\r\nBcc:\r\n\r\n\r\n.\r\n");
    world.script("S: 250 2.0.0 ...");
    let sent = world.arrived(ANNE, "Sent").pop().unwrap();
    assert!(
        sent.text()
            .ends_with("From: anne@example.org\r\nTo: x\r\n\r\n\r\n")
    );
}

#[test]
fn an_account_sends_so_many_messages() {
    let mut world = world();
    world.node.senders = Limits {
        messages_max: 3,
        recipients_max: 2,
        window_seconds: 600,
    };
    world.crash(1);
    world.script("submit anne");
    let begin = |world: &mut World, expected: &str| {
        world.script(&format!(
            "C: MAIL FROM:<anne@example.org>\nS: {expected}\nC: RSET\nS: 250 2.0.0 OK"
        ));
    };
    for _ in 0..3 {
        begin(&mut world, "250 2.1.0 Sender OK");
    }
    const LATER: &str = "450 4.7.1 You have sent too many messages, try again later";
    begin(&mut world, LATER);
    // On any connection; others are not concerned.
    world.script("submit anne");
    begin(&mut world, LATER);
    world.script("submit bob\nC: MAIL FROM:<bob@example.org>\nS: 250 2.1.0 Sender OK");
    // Recipients by themselves, unknown ones too.
    world.script(
        "C: RCPT TO:<anne@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<nobody@example.org>
         S: 550 5.1.1 ...
         C: RCPT TO:<anne@example.org>
         S: 450 4.7.1 You have named too many recipients, try again later",
    );
    world.wait(600);
    world.script("submit anne");
    begin(&mut world, "250 2.1.0 Sender OK");
}

#[test]
fn strangers_do_not_stay() {
    let mut world = world();
    world.connect_tls(Role::Submission);
    world.told();
    for _ in 0..4 {
        world.wait(25);
        world.script("C: NOOP\nS: 250 2.0.0 OK");
    }
    world.wait(20);
    world.script("S: 421 4.4.2 Timeout, closing connection\nclosed");
    // Who has logged in has the time that RFC 5321 gives.
    world.script("submit anne");
    world.wait(200);
    world.script("C: NOOP\nS: 250 2.0.0 OK\nopen");
}

/// A message whose bytes were coming is not sent any more.
#[test]
fn nobody_sends_after_the_password_was_changed() {
    let mut world = world();
    world.script("submit anne\nended\nS: 421 4.7.0 The password was changed, log in again\nclosed");
    world.script(&format!(
        "submit anne
         C: MAIL FROM:<anne@example.org>
         S: 250 2.1.0 Sender OK
         {TO_BOB}C: From: anne@example.org
         ended
         open
         C:
         C: text
         C: .
         S: 554 5.7.0 The password was changed, log in again
         S: 421 4.7.0 The password was changed, log in again
         closed"
    ));
    assert_eq!(world.bodies(BOB, "INBOX"), [""; 0]);
}
