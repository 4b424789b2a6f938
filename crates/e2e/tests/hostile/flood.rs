//! Row 26: recipients without end, messages beyond the limit, harvesting of addresses, mail that goes round in circles.

use whimbrel_e2e::{
    mail::{Mail, MailReply, stuffed},
    message,
    server::{ACCOUNTS, Server},
};

use super::{Watch, lean, unless_closed};

/// Sends that many commands, a hundred at a time, and reads their answers, until the server closes. What it answered.
fn talk(mail: &mut Mail, count: usize, command: impl Fn(usize) -> String) -> Vec<MailReply> {
    let mut replies = Vec::new();
    for start in (0..count).step_by(100) {
        let commands: String = (start..start + 100).map(&command).collect();
        if unless_closed(mail.wire.send(commands.as_bytes())).is_none() {
            return replies;
        }
        for _ in 0..100 {
            match unless_closed(mail.reply()) {
                Some(reply) => replies.push(reply),
                None => return replies,
            }
        }
    }
    replies
}

fn count(replies: &[MailReply], code: u16) -> usize {
    replies.iter().filter(|reply| reply.code == code).count()
}

#[test]
#[ignore = "long: hostile clients"]
fn row_26_a_million_recipients() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for lmtp in [false, true] {
        let mut mail = if lmtp {
            Mail::lmtp(server.ports.lmtp).unwrap()
        } else {
            Mail::smtp(server.ports.smtp).unwrap()
        };
        let _ = mail.command("MAIL FROM:<carl@example.net>").unwrap();
        let replies = talk(&mut mail, 1_000_000, |n| {
            format!("RCPT TO:<anne+{n}@example.org>\r\n")
        });
        assert_eq!(
            (
                count(&replies, 250),
                count(&replies, 452),
                count(&replies, 421)
            ),
            (1000, 1001, 1),
            "recipients_max, recipients_refused_max, the end"
        );
        // The same of addresses that are not there: harvesting ends sooner, over all transactions together.
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        let replies = talk(&mut mail, 1_000_000, |n| match n % 4 {
            0 => "MAIL FROM:<carl@example.net>\r\n".to_owned(),
            3 => "RSET\r\n".to_owned(),
            _ => format!("RCPT TO:<nobody{n}@example.org>\r\n"),
        });
        assert_eq!(
            (count(&replies, 550), count(&replies, 421)),
            (51, 1),
            "unknown_recipients_max"
        );
    }
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_26_commands_without_end() {
    let server = lean()
        .set("smtp", "transactions_max = 50")
        .set("smtp", "commands_max = 1000")
        .start();
    let watch = Watch::start(&server);
    for (command, code) in [
        ("NOOP", 250),
        ("RSET", 250),
        ("VRFY anne", 252),
        ("HELP", 214),
        ("EHLO client.example.net", 250),
    ] {
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        let replies = talk(&mut mail, 1_000_000, |_| format!("{command}\r\n"));
        // The hello that came first is one of them.
        assert_eq!(
            (count(&replies, code), count(&replies, 421)),
            (99, 1),
            "{command}: idle_commands_max"
        );
    }
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let replies = talk(&mut mail, 1_000_000, |_| "WHAT\r\n".to_owned());
    assert_eq!(
        (count(&replies, 500), count(&replies, 421)),
        (20, 1),
        "errors_max"
    );
    // Three NOOPs a message are more in all than may be without one.
    let message = |n: usize| match n % 6 {
        0 => "MAIL FROM:<carl@example.net>\r\n".to_owned(),
        1 => "RCPT TO:<anne@example.org>\r\n".to_owned(),
        2 => "BDAT 4 LAST\r\n\r\n\r\n".to_owned(),
        _ => "NOOP\r\n".to_owned(),
    };
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let replies = talk(&mut mail, 1_000_000, message);
    // The 51st is not begun.
    assert_eq!((count(&replies, 250), count(&replies, 421)), (6 * 50, 1));
    watch.end();
    server.wait_count(&mut server.anne(), "INBOX", 50);
}

/// The limit of all commands, where the other does not hold.
#[test]
#[ignore = "long: hostile clients"]
fn row_26_a_thousand_commands() {
    let server = lean()
        .set("smtp", "commands_max = 1000")
        .set("smtp", "idle_commands_max = 1000000")
        .start();
    let watch = Watch::start(&server);
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let replies = talk(&mut mail, 1_000_000, |_| "NOOP\r\n".to_owned());
    assert_eq!((count(&replies, 250), count(&replies, 421)), (999, 1));
    watch.end();
}

fn begin(server: &Server, parameter: &str) -> (Mail, MailReply) {
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    let reply = mail
        .command(&format!("MAIL FROM:<carl@example.net>{parameter}"))
        .unwrap();
    if reply.is(2) {
        let _ = mail
            .command(&format!("RCPT TO:<{}>", ACCOUNTS[0].0))
            .unwrap();
    }
    (mail, reply)
}

#[test]
#[ignore = "long: hostile clients"]
fn row_26_messages_beyond_the_limit() {
    let server = lean()
        .set("smtp", "message_bytes_max = \"64KiB\"")
        .set("smtp", "discard_bytes_max = \"1MiB\"")
        .set("smtp", "bdat_chunk_bytes_max = \"512KiB\"")
        .start();
    let watch = Watch::start(&server);
    assert_eq!(begin(&server, " SIZE=70000").1.code, 552);
    let text = |size| stuffed(&message::bytes("large", size));
    let large = |size| [text(size), b".\r\n".to_vec()].concat();
    // A little above the limit: read to its end, refused, and the connection goes on.
    let (mut mail, _) = begin(&server, "");
    assert_eq!(mail.command("DATA").unwrap().code, 354);
    mail.wire.send(&large(500 << 10)).unwrap();
    assert_eq!(mail.reply().unwrap().code, 552);
    assert_eq!(mail.command("NOOP").unwrap().code, 250);
    // Far above it: who does not stop is not read to the end.
    let (mut mail, _) = begin(&server, "");
    assert_eq!(mail.command("DATA").unwrap().code, 354);
    let chunk = text(1 << 20);
    let taken = unless_closed(super::pump(&mut mail.wire, &chunk, 100 << 20));
    assert!(taken.is_none(), "a hundred megabytes were taken in");
    for size in [
        "600000",
        "99999999999",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        let (mut mail, _) = begin(&server, "");
        let reply = unless_closed(mail.command(&format!("BDAT {size} LAST"))).unwrap();
        assert!(reply.is(5), "BDAT {size}: {reply:?}");
        assert!(
            unless_closed(mail.reply()).is_none(),
            "BDAT {size}: what follows is no command"
        );
    }
    let (mut mail, _) = begin(&server, "");
    mail.wire
        .send(&[b"BDAT 100000 LAST\r\n".to_vec(), vec![b'x'; 100_000]].concat())
        .unwrap();
    assert_eq!(mail.reply().unwrap().code, 552);
    assert_eq!(mail.command("NOOP").unwrap().code, 250);
    watch.end();
    let inbox = server.contents(&mut server.anne(), "INBOX").unwrap();
    assert_eq!(inbox.messages.len(), 0);
}

/// Who asks learns the same of those who are there and of those who are not.
#[test]
#[ignore = "long: hostile clients"]
fn row_26_harvesting() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for command in ["VRFY", "EXPN"] {
        let answers: Vec<_> = [
            "anne@example.org",
            "<anne@example.org>",
            "anne",
            "nobody@example.org",
            "all",
        ]
        .into_iter()
        .map(|name| {
            let mut mail = Mail::smtp(server.ports.smtp).unwrap();
            let reply = mail.command(&format!("{command} {name}")).unwrap();
            (reply.code, reply.lines)
        })
        .collect();
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:?}"
        );
        assert!(matches!(answers[0].0, 252 | 502), "{answers:?}");
    }
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_26_loops() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let hops = |count: usize| {
        format!(
            "{}Subject: round and round\r\n\r\nbody\r\n",
            "Received: from a by b;\r\n Mon, 02 Nov 2026 10:00:00 +0000\r\n".repeat(count)
        )
    };
    let been_here = format!(
        "Delivered-To: {}\r\nSubject: again\r\n\r\nbody\r\n",
        ACCOUNTS[0].0
    );
    for (text, code) in [
        (hops(50), 250),
        (hops(51), 554),
        (hops(10_000), 554),
        (hops(51).replace("Received", "rEcEiVeD"), 554),
        (been_here, 554),
    ] {
        let replies = lmtp
            .deliver("carl@example.net", &[ACCOUNTS[0].0], text.as_bytes(), true)
            .unwrap();
        assert_eq!(replies[0].code, code, "{}: {replies:?}", &text[..40]);
    }
    server.wait_count(&mut server.anne(), "INBOX", 1);
    watch.end();
}
