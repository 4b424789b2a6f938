//! Fields of notifications, compared with those of Postfix 3.7.11 (Debian 12, package `postfix` 3.7.11-0+deb12u1) for the same cases: it took each message by
//! SMTP with the parameters given, and its next hop gave the replies that stand here. What it sent back is transcribed, with the queue id left out.

use whimbrel_relay::Status;
use whimbrel_relay::dsn::{
    Action, Diagnostic, EnvelopeId, Kind, Notify, OriginalRecipient, Recipient, Return,
};
use whimbrel_smtp::{Enhanced, Reply};

use super::{ARRIVED, World, failed, groups, mailbox, parse, unknown, wall};

/// What Postfix wrote, without what it alone has: the fields X-Postfix, a comment behind dates, and an Original-Recipient where none was given.
fn postfix(text: &str, no_orcpt: &[&str]) -> Vec<Vec<String>> {
    let mut groups = groups(text);
    for group in &mut groups {
        let invented = no_orcpt
            .iter()
            .any(|address| group.contains(&format!("Original-Recipient: rfc822;{address}")));
        group.retain(|line| {
            let is_invented = invented && line.starts_with("Original-Recipient");
            !(is_invented || line.starts_with("X-Postfix"))
        });
        for line in group.iter_mut() {
            *line = line.replace(" (UTC)", "").replace(
                "Diagnostic-Code: X-Postfix;",
                "Diagnostic-Code: x-whimbrel;",
            );
        }
        group.sort();
    }
    groups[1..].sort();
    groups
}

/// Compares with what Postfix wrote: the fields and the types of the parts.
fn check(
    world: &World,
    recipients: &[Recipient<'_>],
    kind: Kind,
    types: [&str; 2],
    expected: &str,
    no_orcpt: &[&str],
) {
    let notification = world.one(recipients, kind);
    let parts = parse(&notification, &world.message);
    let kinds: Vec<&str> = parts.iter().map(|part| part.kind.as_str()).collect();
    assert_eq!(kinds, ["text/plain", types[0], types[1]]);
    let mut got = groups(&parts[1].body);
    got.iter_mut().for_each(|group| group.sort());
    got[1..].sort();
    assert_eq!(got, postfix(expected, no_orcpt));
}

#[test]
pub fn fields_are_those_of_postfix() {
    let unknown = unknown();
    let address = mailbox("unknown@remote.example");
    // RET=HDRS ENVID=QQ+2B314159; NOTIFY=FAILURE,DELAY with ORCPT, and a recipient with nothing.
    let mut world = World::new();
    world.envelope_id = Some(EnvelopeId::parse("QQ+2B314159").unwrap());
    world.returns = Some(Return::Headers);
    let original = OriginalRecipient::parse("rfc822;Bob+2Btag@remote.example").unwrap();
    let plain = mailbox("plain@remote.example");
    let no_such = Reply::new(550, None, "No such user here");
    let recipients = [
        Recipient {
            original: Some(&original),
            notify: Notify::parse("FAILURE,DELAY").unwrap(),
            ..failed(&address, Diagnostic::Reply(&unknown))
        },
        Recipient {
            status: Status::permanent(0, 0),
            ..failed(&plain, Diagnostic::Reply(&no_such))
        },
    ];
    let expected = "Reporting-MTA: dns; mail.example.org
Original-Envelope-Id: QQ+314159
X-Postfix-Sender: rfc822; anne@example.org
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; plain@remote.example
Original-Recipient: rfc822;plain@remote.example
Action: failed
Status: 5.0.0
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 550 No such user here

Final-Recipient: rfc822; unknown@remote.example
Original-Recipient: rfc822;Bob+tag@remote.example
Action: failed
Status: 5.1.1
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 550-5.1.1 <unknown@remote.example>: Recipient address
    rejected: 550 5.1.1 User unknown in virtual mailbox table
";
    let headers = ["message/delivery-status", "text/rfc822-headers"];
    check(
        &world,
        &recipients,
        Kind::Failure,
        headers,
        expected,
        &["plain@remote.example"],
    );
    // RET=FULL.
    let mut world = World::new();
    world.returns = Some(Return::Full);
    let recipients = [failed(&address, Diagnostic::Reply(&unknown))];
    let expected = "Reporting-MTA: dns; mail.example.org
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; unknown@remote.example
Original-Recipient: rfc822;unknown@remote.example
Action: failed
Status: 5.1.1
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 550-5.1.1 <unknown@remote.example>: Recipient address
    rejected: 550 5.1.1 User unknown in virtual mailbox table
";
    let full = ["message/delivery-status", "message/rfc822"];
    check(
        &world,
        &recipients,
        Kind::Failure,
        full,
        expected,
        &["unknown@remote.example"],
    );
    // NOTIFY=SUCCESS at a server without DSN: relayed.
    let address = mailbox("relayed@remote.example");
    let queued = Reply::new(250, Some(Enhanced(0, 0)), "Ok: queued as ABC123");
    let success = |address, diagnostic| Recipient {
        notify: Notify::parse("SUCCESS").unwrap(),
        action: Action::Relayed,
        status: Status::success(0, 0),
        ..failed(address, diagnostic)
    };
    let expected = "Reporting-MTA: dns; mail.example.org
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; relayed@remote.example
Original-Recipient: rfc822;relayed@remote.example
Action: relayed
Status: 2.0.0
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 250 2.0.0 Ok: queued as ABC123
";
    let recipients = [success(&address, Diagnostic::Reply(&queued))];
    check(
        &world,
        &recipients,
        Kind::Success,
        headers,
        expected,
        &["relayed@remote.example"],
    );
    // Delivered into a mailbox here.
    let mut world = World::new();
    world.envelope_id = Some(EnvelopeId::parse("s1").unwrap());
    let original = OriginalRecipient::parse("rfc822;anne@vmail.example").unwrap();
    let address = mailbox("anne@vmail.example");
    let recipients = [Recipient {
        original: Some(&original),
        action: Action::Delivered,
        remote: None,
        ..success(
            &address,
            Diagnostic::Own("delivery via virtual: delivered to maildir"),
        )
    }];
    let expected = "Reporting-MTA: dns; mail.example.org
Original-Envelope-Id: s1
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; anne@vmail.example
Original-Recipient: rfc822;anne@vmail.example
Action: delivered
Status: 2.0.0
Diagnostic-Code: X-Postfix; delivery via virtual: delivered to maildir
";
    check(&world, &recipients, Kind::Success, headers, expected, &[]);
    // An alias of two addresses.
    world.envelope_id = Some(EnvelopeId::parse("e1").unwrap());
    let original = OriginalRecipient::parse("rfc822;list@alias.example").unwrap();
    let address = mailbox("list@alias.example");
    let recipients = [Recipient {
        original: Some(&original),
        action: Action::Expanded,
        remote: None,
        ..success(&address, Diagnostic::Own("alias expanded"))
    }];
    let expected = "Reporting-MTA: dns; mail.example.org
Original-Envelope-Id: e1
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; list@alias.example
Original-Recipient: rfc822;list@alias.example
Action: expanded
Status: 2.0.0
Diagnostic-Code: X-Postfix; alias expanded
";
    check(&world, &recipients, Kind::Success, headers, expected, &[]);
    // Delayed.
    world.envelope_id = Some(EnvelopeId::parse("d1").unwrap());
    let original = OriginalRecipient::parse("rfc822;grey@remote.example").unwrap();
    let address = mailbox("grey@remote.example");
    let greylisted = Reply::new(450, Some(Enhanced(2, 0)), "Greylisted, try again later");
    let recipients = [Recipient {
        original: Some(&original),
        notify: Notify::parse("DELAY").unwrap(),
        action: Action::Delayed,
        status: Status::temporary(2, 0),
        retry_until: Some(wall(ARRIVED + 5 * 86_400)),
        ..failed(&address, Diagnostic::Reply(&greylisted))
    }];
    let expected = "Reporting-MTA: dns; mail.example.org
Original-Envelope-Id: d1
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: rfc822; grey@remote.example
Original-Recipient: rfc822;grey@remote.example
Action: delayed
Status: 4.2.0
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 450 4.2.0 Greylisted, try again later
Will-Retry-Until: Sat,  5 Dec 2026 20:40:40 +0000 (UTC)
";
    check(&world, &recipients, Kind::Delay, headers, expected, &[]);
    // SMTPUTF8, to a server that does not offer it, and to one that does.
    let mut world = World::new();
    world.utf8 = true;
    world.message = "From: Anne <anne@example.org>\r\nSubject: Ünder\r\n\r\nHellö\r\n".to_owned();
    let original = OriginalRecipient::parse("utf-8;\\x{3B4}oki@remote.example").unwrap();
    let address = mailbox("δοκιμή@remote.example");
    let cause = "SMTPUTF8 is required, but was not offered by host 127.0.0.1[127.0.0.1]";
    let recipients = [Recipient {
        original: Some(&original),
        status: Status::permanent(6, 7),
        ..failed(&address, Diagnostic::Own(cause))
    }];
    let expected = "Reporting-MTA: dns; mail.example.org
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: utf-8; δοκιμή@remote.example
Original-Recipient: utf-8;δoki@remote.example
Action: failed
Status: 5.6.7
Diagnostic-Code: X-Postfix; SMTPUTF8 is required, but was not offered by host
    127.0.0.1[127.0.0.1]
";
    let global = ["message/global-delivery-status", "message/global"];
    check(&world, &recipients, Kind::Failure, global, expected, &[]);
    let address = mailbox("unknown-δοκιμή@dsnful.example");
    let recipients = [Recipient {
        original: Some(&original),
        ..failed(&address, Diagnostic::Reply(&unknown))
    }];
    let expected = "Reporting-MTA: dns; mail.example.org
Arrival-Date: Mon, 30 Nov 2026 20:40:40 +0000 (UTC)

Final-Recipient: utf-8; unknown-δοκιμή@dsnful.example
Original-Recipient: utf-8;δoki@remote.example
Action: failed
Status: 5.1.1
Remote-MTA: dns; 127.0.0.1
Diagnostic-Code: smtp; 550-5.1.1 <unknown@remote.example>: Recipient address
    rejected: 550 5.1.1 User unknown in virtual mailbox table
";
    check(&world, &recipients, Kind::Failure, global, expected, &[]);
}
