//! Who receives, and who is refused.

use whimbrel_frontend::session::Note;
use whimbrel_smtp::Role;

use super::world::{ANNE, BOB, Cut, World};

/// Mail to `to` from a new connection: the replies to each RCPT, and to the end of DATA if any was accepted.
fn mail(world: &mut World, role: Role, to: &[&str], body: &str) -> Vec<String> {
    let hello = if role == Role::Lmtp { "LHLO" } else { "EHLO" };
    world.connect(role);
    world.send(
        format!("{hello} client.example\r\nMAIL FROM:<carl@elsewhere.example>\r\n").as_bytes(),
    );
    world.told();
    let mut replies = Vec::new();
    for to in to {
        world.send(format!("RCPT TO:<{to}>\r\n").as_bytes());
        replies.push(world.told());
    }
    if replies.iter().any(|reply| reply.starts_with('2')) {
        world.send(b"DATA\r\n");
        assert_eq!(world.told(), "354 End data with <CRLF>.<CRLF>\r\n");
        world.send(format!("{body}.\r\n").as_bytes());
        replies.extend(world.told().lines().map(|line| format!("{line}\r\n")));
    }
    world.send(b"QUIT\r\n");
    assert_eq!(world.told(), "221 2.0.0 Bye\r\n");
    assert!(world.client().closed);
    replies
}

/// Where mail to `to` goes: mailboxes of Anne and Bob, or the reply that refuses it.
fn check(world: &mut World, to: &str, expected: &str) {
    let places = [
        (ANNE, "anne", "INBOX"),
        (ANNE, "anne", "Lists"),
        (BOB, "bob", "INBOX"),
        (BOB, "bob", "Junk"),
        (ANNE, "anne", "Junk"),
    ];
    let before = places.map(|(account, _, mailbox)| world.bodies(account, mailbox).len());
    let body = format!("Subject: to {to}\r\n\r\ntext\r\n");
    let replies = mail(world, Role::Smtp, &[to], &body);
    let mut found = Vec::new();
    for ((account, name, mailbox), before) in places.into_iter().zip(before) {
        let bodies = world.bodies(account, mailbox);
        if bodies.len() > before {
            assert_eq!(&bodies[before..], std::slice::from_ref(&body));
            found.push(format!("{name}/{mailbox}"));
        }
    }
    match replies.as_slice() {
        [refused] => found.push(refused[..9].to_owned()),
        [accepted, done] => {
            assert!(accepted.starts_with("250 2.1.5") && done.starts_with("250 2.0.0"))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(found.join(" "), expected, "{to}");
    assert_eq!(world.node.queue_len(), 0);
}

#[test]
fn recipients() {
    let mut world = World::new(Cut::AtOnce);
    world.alias("info@example.org", "anne@example.org");
    world.alias("info@example.org", "bob@example.org");
    world.alias("team@example.org", "info@example.org");
    for (to, expected) in [
        ("anne@example.org", "anne/INBOX"),
        ("ANNE@Example.ORG", "anne/INBOX"),
        ("info@example.org", "anne/INBOX bob/INBOX"),
        ("team@example.org", "anne/INBOX bob/INBOX"),
        ("anne+Lists@example.org", "anne/Lists"),
        // Names of mailboxes are case-sensitive, and a wish for one that is missing ends in INBOX.
        ("anne+lists@example.org", "anne/INBOX"),
        ("anne+nowhere@example.org", "anne/INBOX"),
        ("\"anne+a//b\"@example.org", "anne/INBOX"),
        ("info+Junk@example.org", "bob/Junk anne/Junk"),
        ("nobody@example.org", "550 5.1.1"),
        ("\"an ne\"@example.org", "550 5.1.1"),
        ("anne@sub.example.org", "550 5.7.1"),
        ("anne@elsewhere.example", "550 5.7.1"),
        ("anne@[192.0.2.1]", "550 5.7.1"),
    ] {
        check(&mut world, to, expected);
    }
}

#[test]
fn catch_all_and_postmaster() {
    let mut world = World::new(Cut::AtOnce);
    check(&mut world, "nobody@example.org", "550 5.1.1");
    world.script("smtp\nC: MAIL FROM:<>\nS: 250 2.1.0 Sender OK\nC: RCPT TO:<Postmaster>\nS: 250 2.1.5 Recipient OK");
    // Anne came first (RFC 5321, 4.5.1).
    check(&mut world, "PostMaster@Example.org", "anne/INBOX");
    world.alias("@example.org", "bob@example.org");
    check(&mut world, "postmaster@example.org", "bob/INBOX");
    check(&mut world, "nobody@example.org", "bob/INBOX");
    check(&mut world, "\"an ne\"@example.org", "bob/INBOX");
    check(&mut world, "anne+x@example.org", "anne/INBOX");
    world.alias("postmaster@example.org", "anne@example.org");
    check(&mut world, "postmaster@example.org", "anne/INBOX");
    world.script("smtp\nC: MAIL FROM:<>\nS: 250 2.1.0 Sender OK\nC: RCPT TO:<Postmaster>\nS: 250 2.1.5 Recipient OK");
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let mut world = World::new(Cut::AtOnce);
    let to = [
        "anne@example.org",
        "nobody@example.org",
        "bob@example.org",
        "anne@example.org",
    ];
    let replies = mail(&mut world, Role::Lmtp, &to, "\r\nhello\r\n");
    let codes: Vec<&str> = replies.iter().map(|reply| &reply[..9]).collect();
    assert_eq!(
        codes,
        [
            "250 2.1.5",
            "550 5.1.1",
            "250 2.1.5",
            "250 2.1.5",
            "250 2.0.0",
            "250 2.0.0",
            "250 2.0.0"
        ]
    );
    assert_eq!(
        world.bodies(ANNE, "INBOX"),
        ["\r\nhello\r\n"],
        "named twice, delivered once"
    );
    assert_eq!(world.bodies(BOB, "INBOX"), ["\r\nhello\r\n"]);
    world.script(
        "lmtp
         C: MAIL FROM:<a@b.example>
         S: 250 2.1.0 Sender OK
         C: DATA
         S: 503 5.5.1 No valid recipients",
    );
}

#[test]
fn targets_are_counted_through_aliases() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.targets_max = 2;
    world.alias("info@example.org", "anne@example.org");
    world.alias("info@example.org", "bob@example.org");
    world.script(
        "smtp
         C: MAIL FROM:<a@b.example>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<info@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<anne@example.org>
         S: 452 4.5.3 Too many recipients in this transaction
         C: RSET
         S: 250 2.0.0 OK
         C: MAIL FROM:<a@b.example>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<anne@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<info@example.org>
         S: 452 4.5.3 Too many recipients in this transaction
         C: DATA
         S: 354 End data with <CRLF>.<CRLF>
         C| \\r\\nx\\r\\n.\\r\\n
         S: 250 2.0.0 ...",
    );
    assert_eq!(
        (
            world.bodies(ANNE, "INBOX").len(),
            world.bodies(BOB, "INBOX").len()
        ),
        (1, 0)
    );
}

#[test]
fn the_log_is_told() {
    let mut world = World::new(Cut::AtOnce);
    mail(
        &mut world,
        Role::Smtp,
        &["anne@example.org", "bob@example.org"],
        "\r\n12345\r\n",
    );
    let notes = &world.client().notes;
    let commands: Vec<_> = notes
        .iter()
        .filter_map(|note| match note {
            Note::Command(name, _) => Some(*name),
            _ => None,
        })
        .collect();
    assert_eq!(commands, ["MAIL", "RCPT", "RCPT", "DATA"]);
    assert!(
        notes.iter().any(|note| matches!(
            note,
            Note::Accepted {
                bytes: 9,
                deliveries: 2,
                ..
            }
        )),
        "{notes:?}"
    );
    assert_eq!(notes.last(), Some(&Note::Closed("quit")));
}
