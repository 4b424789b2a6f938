//! Notifications: who is told, and that programs can read what is told.

mod postfix;

use whimbrel_mime::summary::{Content, Part};
use whimbrel_mime::{Limits, Parser};
use whimbrel_relay::Status;
use whimbrel_relay::dsn::{
    Action, Config, DIAGNOSTIC_BYTES_MAX, Diagnostic, Encoding, EnvelopeId, Form, Kind,
    Notification, Notify, Original, QuotedPrintable, RECIPIENTS_MAX, Recipient, Report, Return,
    SUBJECT_BYTES_MAX, is_told,
};
use whimbrel_smtp::trace::WallTime;
use whimbrel_smtp::{Domain, Enhanced, Mailbox, Reply, ReversePath};

use crate::Case;

pub const ALL: &[Case] = &[
    ("who is told", who_is_told),
    ("fields of Postfix", postfix::fields_are_those_of_postfix),
    ("names", two_nodes_make_the_same),
    ("hostile texts", hostile_texts_stay_in_their_fields),
    ("what is returned", what_is_returned),
    ("forms", forms),
    ("many recipients", many_recipients_are_told_in_parts),
    ("people", people_are_told_what_they_can_do),
];

/// When Postfix took the messages.
const ARRIVED: i64 = 1_796_071_240;

fn wall(seconds: i64) -> WallTime {
    WallTime::new(seconds, 0)
}

/// Owns what a report borrows.
struct World {
    reporting: Domain,
    from: Mailbox,
    help: Mailbox,
    sender: ReversePath,
    message: String,
    utf8: bool,
    subject: Option<String>,
    envelope_id: Option<EnvelopeId>,
    returns: Option<Return>,
}

const MESSAGE: &str = "From: Anne <anne@example.org>\r\nSubject: Lunch\r\nMessage-ID: <m1@example.org>\r\n\r\nHello\r\n.dot\r\n";

impl World {
    fn new() -> World {
        World {
            reporting: Domain::new("mail.example.org").unwrap(),
            from: mailbox("MAILER-DAEMON@mail.example.org"),
            help: mailbox("postmaster@mail.example.org"),
            sender: ReversePath::Mailbox(mailbox("anne@example.org")),
            message: MESSAGE.to_owned(),
            utf8: false,
            subject: Some("Lunch".to_owned()),
            envelope_id: None,
            returns: None,
        }
    }

    fn original(&self) -> Original<'_> {
        let header = self.message.find("\r\n\r\n").unwrap() + 2;
        Original {
            bytes: self.message.len() as u64,
            header_bytes: header as u64,
            utf8: self.utf8,
            header_is_ascii: self.message[..header].is_ascii(),
            is_ascii: self.message.is_ascii(),
            subject: self.subject.as_deref(),
        }
    }

    fn report<'a>(&'a self, recipients: &'a [Recipient<'a>]) -> Report<'a> {
        Report {
            entry: *b"0123456789abcdef",
            reporting: &self.reporting,
            from: &self.from,
            help: &self.help,
            sender: &self.sender,
            envelope_id: self.envelope_id.as_ref(),
            returns: self.returns,
            arrived: wall(ARRIVED),
            now: wall(ARRIVED + 5),
            original: self.original(),
            recipients,
        }
    }

    fn one(&self, recipients: &[Recipient<'_>], kind: Kind) -> Notification {
        let report = self.report(recipients);
        let form = Form::of(&self.sender, &report.original);
        let mut made = report.notifications(kind, form, &Config::default());
        assert_eq!(made.len(), 1);
        made.remove(0)
    }
}

fn mailbox(text: &str) -> Mailbox {
    Mailbox::parse(text).unwrap()
}

fn failed<'a>(address: &'a Mailbox, diagnostic: Diagnostic<'a>) -> Recipient<'a> {
    Recipient {
        address,
        original: None,
        notify: Notify::Default,
        action: Action::Failed,
        status: Status::permanent(1, 1),
        remote: Some("127.0.0.1"),
        diagnostic: Some(diagnostic),
        last_attempt: None,
        retry_until: None,
    }
}

/// The whole message, as it is sent.
fn whole(notification: &Notification, original: &str) -> Vec<u8> {
    let range = usize::try_from(notification.returned.start).unwrap()
        ..usize::try_from(notification.returned.end).unwrap();
    let returned = &original.as_bytes()[range];
    let mut out = notification.prefix.clone();
    match notification.encoding {
        Encoding::AsIs => out.extend_from_slice(returned),
        Encoding::QuotedPrintable => {
            let mut encoder = QuotedPrintable::new();
            returned
                .chunks(7)
                .for_each(|piece| encoder.push(piece, &mut out));
            encoder.finish(&mut out);
        }
    }
    out.extend_from_slice(&notification.suffix);
    out
}

/// A part as a parser sees it.
#[derive(Debug)]
struct Seen {
    kind: String,
    encoding: String,
    body: String,
}

/// Parses a notification: its parts; all that must always hold is asserted.
fn parse(notification: &Notification, original: &str) -> Vec<Seen> {
    let bytes = whole(notification, original);
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
    assert!(notification.eight_bit || text.is_ascii());
    let mut parser = Parser::new(&Limits::default());
    bytes.chunks(100).for_each(|piece| parser.push(piece));
    let summary = parser.finish();
    let top = &summary.message.body;
    assert!(top.is("multipart", "report"));
    assert_eq!(top.param("report-type"), Some(&b"delivery-status"[..]));
    let span = |part: &Part| {
        let (start, end) = (
            usize::try_from(part.body.start).unwrap(),
            usize::try_from(part.body.end()).unwrap(),
        );
        text[start..end].to_owned()
    };
    let Content::Multipart(parts) = &top.content else {
        panic!("{top:?}");
    };
    assert_eq!(parts.len(), 3);
    let header = text.split("\r\n\r\n").next().unwrap();
    for field in [
        "Date: ",
        "From: Mail Delivery System <",
        "To: <",
        "Subject: ",
        "Message-ID: <",
        "MIME-Version: 1.0",
    ] {
        assert_eq!(
            header
                .split("\r\n")
                .filter(|line| line.starts_with(field))
                .count(),
            1,
            "{header}"
        );
    }
    assert!(header.contains("\r\nAuto-Submitted: auto-replied\r\n"));
    assert!(notification.utf8 || header.is_ascii());
    let seen = parts.iter().map(|part| {
        let name = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
        Seen {
            kind: format!("{}/{}", name(&part.media_type), name(&part.subtype)),
            encoding: name(&part.encoding),
            body: span(part),
        }
    });
    let seen: Vec<Seen> = seen.collect();
    for seen in &seen {
        assert!(seen.encoding != "7bit" || seen.body.is_ascii(), "{seen:?}");
        assert!(["7bit", "8bit", "quoted-printable"].contains(&seen.encoding.as_str()));
    }
    seen
}

/// Groups of fields, unfolded, with the white space behind the colon as one space; the groups of recipients in their order.
fn groups(text: &str) -> Vec<Vec<String>> {
    let unfolded = text
        .replace("\r\n", "\n")
        .replace("\n ", " ")
        .replace("\n\t", " ");
    let group = |group: &str| {
        let lines = group.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    let mut groups: Vec<Vec<String>> = unfolded.trim_end().split("\n\n").map(group).collect();
    groups[1..].sort();
    groups
}

fn unknown() -> Reply {
    let lines = [
        "<unknown@remote.example>: Recipient address rejected:",
        "User unknown in virtual mailbox table",
    ];
    Reply::multi(550, Some(Enhanced(1, 1)), lines)
}

#[test]
fn who_is_told() {
    let sender = ReversePath::Mailbox(mailbox("anne@example.org"));
    let check = |notify: &str, expected: &str| {
        let notify = match notify {
            "" => Notify::Default,
            text => Notify::parse(text).unwrap(),
        };
        let actions = [
            Action::Failed,
            Action::Delayed,
            Action::Delivered,
            Action::Relayed,
            Action::Expanded,
        ];
        let told: String = actions
            .iter()
            .map(|action| {
                if is_told(&sender, notify, *action) {
                    'x'
                } else {
                    '-'
                }
            })
            .collect();
        assert_eq!(told, expected, "{notify:?}");
        assert!(
            actions
                .iter()
                .all(|action| !is_told(&ReversePath::Null, notify, *action))
        );
    };
    check("", "xx---");
    check("NEVER", "-----");
    check("FAILURE", "x----");
    check("DELAY", "-x---");
    check("SUCCESS", "--xxx");
    check("SUCCESS,FAILURE,DELAY", "xxxxx");
    // Of a message's recipients only those that are to be told stand in it.
    let mut world = World::new();
    let (one, two) = (mailbox("one@remote.example"), mailbox("two@remote.example"));
    let unknown = unknown();
    let silent = Recipient {
        notify: Notify::Never,
        ..failed(&two, Diagnostic::Reply(&unknown))
    };
    let recipients = [silent, failed(&one, Diagnostic::Reply(&unknown))];
    let made = world.one(&recipients, Kind::Failure);
    let text = String::from_utf8(made.prefix).unwrap();
    assert!(text.contains("one@remote.example") && !text.contains("two@remote.example"));
    let count = |world: &World, recipients: &[Recipient<'_>], kind| {
        world
            .report(recipients)
            .notifications(kind, Form::EightBit, &Config::default())
            .len()
    };
    assert_eq!(count(&world, &recipients, Kind::Delay), 0);
    assert_eq!(count(&world, &[silent], Kind::Failure), 0);
    world.sender = ReversePath::Null;
    assert_eq!(count(&world, &recipients, Kind::Failure), 0);
}

/// Two owners of an entry that both tell of it: another name of the server, another time, another order, another reply.
#[test]
fn two_nodes_make_the_same() {
    let mut world = World::new();
    let (one, two) = (mailbox("one@remote.example"), mailbox("two@remote.example"));
    let unknown = unknown();
    let a = [
        failed(&one, Diagnostic::Reply(&unknown)),
        failed(&two, Diagnostic::Reply(&unknown)),
    ];
    let b = [
        failed(&two, Diagnostic::Own("lost")),
        failed(&one, Diagnostic::Own("lost")),
    ];
    let first = world.one(&a, Kind::Failure);
    world.reporting = Domain::new("other.example.org").unwrap();
    let mut report = world.report(&b);
    report.now = wall(ARRIVED + 400);
    let second = report
        .notifications(Kind::Failure, Form::SevenBit, &Config::default())
        .remove(0);
    assert_eq!(
        (&first.message_id, &first.suffix),
        (&second.message_id, &second.suffix)
    );
    assert!(first.message_id.ends_with("@mail.example.org>"));
    assert_eq!(first, World::new().one(&a, Kind::Failure));
    // Anything else is another.
    let mut others = vec![first.message_id.clone()];
    others.push(world.one(&a[..1], Kind::Failure).message_id);
    others.push(world.one(&a[1..], Kind::Failure).message_id);
    let delayed = a.map(|recipient| Recipient {
        action: Action::Delayed,
        ..recipient
    });
    others.push(world.one(&delayed, Kind::Delay).message_id);
    let mut report = world.report(&a);
    report.entry[15] ^= 1;
    others.push(
        report
            .notifications(Kind::Failure, Form::SevenBit, &Config::default())
            .remove(0)
            .message_id,
    );
    let count = others.len();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), count);
}

#[test]
fn hostile_texts_stay_in_their_fields() {
    let mut world = World::new();
    world.subject = Some(format!("a\r\n\r\n--x{}", "y".repeat(5_000)));
    let address = mailbox("a@remote.example");
    let lines: Vec<String> = (0..128)
        .map(|at| format!("{at} {}", "é".repeat(240)))
        .collect();
    let long = Reply::multi(550, None, lines.iter().map(String::as_str));
    let texts = [
        "\r\nAction: delivered\r\n\r\nFinal-Recipient: rfc822; b@c",
        "a\0b\x1b[31m\u{85}\u{2028}",
        &"x".repeat(5_000),
        &"é ".repeat(3_000),
        "",
    ];
    let mut diagnostics: Vec<Diagnostic<'_>> =
        texts.iter().map(|text| Diagnostic::Own(text)).collect();
    diagnostics.push(Diagnostic::Reply(&long));
    for diagnostic in diagnostics {
        for form in [Form::SevenBit, Form::EightBit, Form::Utf8] {
            let recipients = [Recipient {
                remote: Some("mx\r\nX: y\u{e9}"),
                ..failed(&address, diagnostic)
            }];
            let report = world.report(&recipients);
            let made = report
                .notifications(Kind::Failure, form, &Config::default())
                .remove(0);
            let parts = parse(&made, &world.message);
            let groups = groups(&parts[1].body);
            assert_eq!(groups.len(), 2, "{groups:?}");
            let names: Vec<&str> = groups[1]
                .iter()
                .map(|line| line.split(':').next().unwrap())
                .collect();
            let mut expected = vec![
                "Final-Recipient",
                "Action",
                "Status",
                "Remote-MTA",
                "Diagnostic-Code",
            ];
            if matches!(diagnostic, Diagnostic::Own(_)) {
                expected.remove(3);
            }
            assert_eq!(names, expected);
            let text = String::from_utf8(made.prefix).unwrap();
            assert!(text.split("\r\n").all(|line| line.len() <= 998));
            assert!(
                !text.replace("\r\n", "").contains(char::is_control),
                "{text:?}"
            );
            assert!(
                parts[1].body.len() < DIAGNOSTIC_BYTES_MAX + 600,
                "{}",
                parts[1].body.len()
            );
            assert!(
                parts[0].body.len() < 6 * (DIAGNOSTIC_BYTES_MAX + SUBJECT_BYTES_MAX),
                "{}",
                parts[0].body.len()
            );
        }
    }
}

#[test]
fn what_is_returned() {
    let address = mailbox("a@remote.example");
    let unknown = unknown();
    let check = |returns, kind, bytes: usize, expected: &str| {
        let mut world = World::new();
        world.returns = returns;
        world.message = format!("Subject: x\r\n\r\n{}", "x".repeat(bytes));
        let action = match kind {
            Kind::Failure => Action::Failed,
            Kind::Delay => Action::Delayed,
            Kind::Success => Action::Delivered,
        };
        let notify = Notify::parse("SUCCESS,FAILURE,DELAY").unwrap();
        let recipients = [Recipient {
            notify,
            action,
            ..failed(&address, Diagnostic::Reply(&unknown))
        }];
        let made = world.one(&recipients, kind);
        let parts = parse(&made, &world.message);
        assert_eq!(parts[2].kind, expected);
        match expected {
            "message/rfc822" => assert_eq!(parts[2].body, world.message),
            _ => assert_eq!(parts[2].body, "Subject: x\r\n"),
        }
    };
    let most = (1 << 20) - "Subject: x\r\n\r\n".len();
    check(None, Kind::Failure, 10, "message/rfc822");
    check(Some(Return::Full), Kind::Failure, most, "message/rfc822");
    check(
        Some(Return::Full),
        Kind::Failure,
        most + 1,
        "text/rfc822-headers",
    );
    check(
        Some(Return::Headers),
        Kind::Failure,
        10,
        "text/rfc822-headers",
    );
    check(Some(Return::Full), Kind::Delay, 10, "text/rfc822-headers");
    check(Some(Return::Full), Kind::Success, 10, "text/rfc822-headers");
    // A header without end is cut.
    let mut world = World::new();
    world.message = format!("Subject: {}\r\n\r\n", "x".repeat(100_000));
    world.returns = Some(Return::Headers);
    let made = world.one(
        &[failed(&address, Diagnostic::Reply(&unknown))],
        Kind::Failure,
    );
    assert_eq!(made.returned, 0..Config::default().header_bytes_max);
    parse(&made, &world.message);
}

#[test]
fn forms() {
    let unknown = unknown();
    let ascii = "Subject: x\r\n\r\ny\r\n";
    let eight = "Subject: x\r\n\r\né\r\n";
    let raw = "Subject: é\r\n\r\né\r\n";
    // Message, its SMTPUTF8, the form: the encodings of the parts, the type of the third, and whether SMTPUTF8 and 8BITMIME are needed.
    let check = |message: &str, utf8: bool, form: Form, expected: (&str, &str, bool, bool)| {
        let mut world = World::new();
        world.message = message.to_owned();
        world.utf8 = utf8;
        world.subject = None;
        let address = mailbox(if utf8 {
            "é@remote.example"
        } else {
            "e@remote.example"
        });
        let recipients = [failed(&address, Diagnostic::Reply(&unknown))];
        let made = world
            .report(&recipients)
            .notifications(Kind::Failure, form, &Config::default())
            .remove(0);
        let parts = parse(&made, message);
        let encodings: Vec<&str> = parts.iter().map(|part| part.encoding.as_str()).collect();
        let got = (encodings.join(" "), parts[2].kind.as_str());
        assert_eq!(
            ((got.0.as_str()), got.1, made.utf8, made.eight_bit),
            expected,
            "{message:?} {form:?}"
        );
        if !made.eight_bit {
            assert!(whole(&made, message).is_ascii());
        }
        // utf-8-addr-xtext of RFC 6533 3 where the fields are ASCII.
        let written = match (utf8, form) {
            (false, _) => "Final-Recipient: rfc822; e@remote.example",
            (true, Form::Utf8) => "Final-Recipient: utf-8; é@remote.example",
            (true, _) => "Final-Recipient: utf-8; \\x{E9}@remote.example",
        };
        assert!(parts[1].body.contains(written), "{}", parts[1].body);
    };
    let (rfc822, headers, global) = ("message/rfc822", "text/rfc822-headers", "message/global");
    check(
        ascii,
        false,
        Form::SevenBit,
        ("7bit 7bit 7bit", rfc822, false, false),
    );
    check(
        ascii,
        false,
        Form::EightBit,
        ("7bit 7bit 7bit", rfc822, false, false),
    );
    check(
        eight,
        false,
        Form::EightBit,
        ("7bit 7bit 8bit", rfc822, false, true),
    );
    check(
        raw,
        false,
        Form::EightBit,
        ("7bit 7bit 8bit", rfc822, false, true),
    );
    // message/rfc822 cannot be encoded: the header is returned.
    check(
        eight,
        false,
        Form::SevenBit,
        ("7bit 7bit 7bit", headers, false, false),
    );
    check(
        raw,
        false,
        Form::SevenBit,
        ("7bit 7bit quoted-printable", headers, false, false),
    );
    check(
        raw,
        true,
        Form::Utf8,
        ("8bit 8bit 8bit", global, true, true),
    );
    check(
        raw,
        true,
        Form::EightBit,
        ("8bit 7bit quoted-printable", global, false, true),
    );
    check(
        raw,
        true,
        Form::SevenBit,
        (
            "quoted-printable 7bit quoted-printable",
            global,
            false,
            false,
        ),
    );
    let form = |sender: &str, message: &str, utf8| {
        let mut world = World::new();
        world.sender = ReversePath::Mailbox(mailbox(sender));
        world.message = message.to_owned();
        world.utf8 = utf8;
        Form::of(&world.sender, &world.original())
    };
    assert_eq!(form("a@b", ascii, false), Form::SevenBit);
    assert_eq!(form("a@b", eight, false), Form::EightBit);
    assert_eq!(form("a@b", ascii, true), Form::Utf8);
    assert_eq!(form("é@b", ascii, false), Form::Utf8);
    // A sender that is not ASCII can be named in one form alone.
    let mut world = World::new();
    world.sender = ReversePath::Mailbox(mailbox("é@example.org"));
    let address = mailbox("e@remote.example");
    let recipients = [failed(&address, Diagnostic::Reply(&unknown))];
    let made =
        world
            .report(&recipients)
            .notifications(Kind::Failure, Form::SevenBit, &Config::default());
    assert!(made[0].utf8);
    assert!(String::from_utf8_lossy(&made[0].prefix).contains("\r\nTo: <é@example.org>\r\n"));
}

#[test]
fn many_recipients_are_told_in_parts() {
    let world = World::new();
    let addresses: Vec<Mailbox> = (0..250)
        .map(|at| mailbox(&format!("r{at:03}@remote.example")))
        .collect();
    let unknown = unknown();
    let recipients: Vec<Recipient<'_>> = addresses
        .iter()
        .rev()
        .map(|address| failed(address, Diagnostic::Reply(&unknown)))
        .collect();
    let made =
        world
            .report(&recipients)
            .notifications(Kind::Failure, Form::EightBit, &Config::default());
    let counts: Vec<usize> = made
        .iter()
        .map(|made| groups(&parse(made, MESSAGE)[1].body).len() - 1)
        .collect();
    assert_eq!(counts, [RECIPIENTS_MAX, RECIPIENTS_MAX, 50]);
    assert!(
        String::from_utf8_lossy(&made[0].prefix).contains("r099@")
            && !String::from_utf8_lossy(&made[0].prefix).contains("r100@")
    );
    assert_ne!(made[0].message_id, made[1].message_id);
}

#[test]
fn people_are_told_what_they_can_do() {
    let mut world = World::new();
    let address = mailbox("unknown@remote.example");
    let unknown = unknown();
    let made = world.one(
        &[failed(&address, Diagnostic::Reply(&unknown))],
        Kind::Failure,
    );
    let parts = parse(&made, MESSAGE);
    let expected = "This is the mail server mail.example.org.

Your message \"Lunch\" of Mon, 30 Nov 2026 20:40:40 +0000 could not be
delivered to this recipient. The server has given up:

  unknown@remote.example
    There is no such address. Check its spelling, then send the message
    again.
    The server 127.0.0.1 said:
      550-5.1.1 <unknown@remote.example>: Recipient address rejected:
      550 5.1.1 User unknown in virtual mailbox table

If you need help, write to postmaster@mail.example.org and enclose this
message.
";
    assert_eq!(parts[0].body.replace("\r\n", "\n"), expected);
    // Each status has something to say, and no other line is longer than a screen.
    world.subject = None;
    for class in [
        Status::temporary as fn(u16, u16) -> Status,
        Status::permanent,
    ] {
        for subject in 0..=8 {
            for detail in 0..=20 {
                let recipients = [Recipient {
                    status: class(subject, detail),
                    ..failed(&address, Diagnostic::Own("x"))
                }];
                let made = world.one(&recipients, Kind::Failure);
                let text = &parse(&made, MESSAGE)[0].body;
                assert!(
                    text.contains("Cause: x") && text.lines().all(|line| line.len() <= 72),
                    "{text}"
                );
            }
        }
    }
    let until = Some(wall(ARRIVED + 86_400));
    let delayed = Recipient {
        action: Action::Delayed,
        retry_until: until,
        ..failed(&address, Diagnostic::Reply(&unknown))
    };
    let text = parse(&world.one(&[delayed], Kind::Delay), MESSAGE)
        .remove(0)
        .body;
    assert!(
        text.contains("You need not send it again") && text.contains("Tue, 1 Dec 2026"),
        "{text}"
    );
}
