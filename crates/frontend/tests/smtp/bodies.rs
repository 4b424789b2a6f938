//! What is delivered, byte by byte.

use super::world::{ANNE, BOB, Cut, World};

fn id_of(reply: &str) -> String {
    reply
        .trim_end()
        .strip_prefix("250 2.0.0 ")
        .unwrap_or_else(|| panic!("{reply}"))
        .to_owned()
}

fn begin(world: &mut World, to: &[&str]) {
    world.script("smtp\nC: MAIL FROM:<Carl@elsewhere.example>\nS: 250 2.1.0 Sender OK");
    for to in to {
        world.script(&format!("C: RCPT TO:<{to}>\nS: 250 2.1.5 Recipient OK"));
    }
}

fn data(world: &mut World, to: &[&str], bytes: &[u8]) -> String {
    begin(world, to);
    world.script("C: DATA\nS: 354 End data with <CRLF>.<CRLF>");
    world.send(bytes);
    world.send(b".\r\n");
    id_of(&world.told())
}

fn trace(to: &str, with: &str, id: &str, alone: &str) -> String {
    format!(
        "Return-Path: <Carl@elsewhere.example>\r\nDelivered-To: {to}\r\nReceived: from client.example ([192.0.2.7]) by mx.example.org \
         with {with} id {id}{alone}; Thu, 1 Jan 2026 00:00:00 +0000\r\n"
    )
}

#[test]
fn one_recipient_is_named() {
    let mut world = World::new(Cut::AtOnce);
    let id = data(
        &mut world,
        &["Anne+Lists@example.org"],
        b"Subject: x\r\n\r\ntext\r\n",
    );
    let arrived = world.arrived(ANNE, "Lists");
    assert_eq!(
        arrived[0].prefix,
        trace(
            "anne@example.org",
            "ESMTP",
            &id,
            " for <Anne+Lists@example.org>"
        )
    );
    assert_eq!(arrived[0].text(), "Subject: x\r\n\r\ntext\r\n");
}

#[test]
fn of_several_recipients_each_sees_only_itself() {
    let mut world = World::new(Cut::AtOnce);
    let id = data(
        &mut world,
        &["anne@example.org", "bob@example.org"],
        b"Subject: x\r\n\r\n",
    );
    for (account, name) in [(ANNE, "anne@example.org"), (BOB, "bob@example.org")] {
        let arrived = world.arrived(account, "INBOX");
        assert_eq!(arrived.len(), 1);
        assert_eq!(arrived[0].prefix, trace(name, "ESMTP", &id, ""));
    }
    // One blob for both.
    assert_eq!(world.left_over(), (0, 1));
    // An alias of several: who else is behind it is nobody's business, either.
    world.alias("info@example.org", "anne@example.org");
    world.alias("info@example.org", "bob@example.org");
    let id = data(&mut world, &["info@example.org"], b"\r\n");
    assert_eq!(
        world.arrived(BOB, "INBOX")[1].prefix,
        trace("bob@example.org", "ESMTP", &id, "")
    );
}

#[test]
fn the_null_sender_helo_and_tls() {
    let mut world = World::new(Cut::AtOnce);
    world.config.starttls = true;
    world.script("lmtp");
    world.connect(whimbrel_smtp::Role::Smtp);
    world.script(
        "S: 220 ...
         C: HELO client.example
         S: 250 mx.example.org
         C: MAIL FROM:<>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<anne@example.org>
         S: 250 2.1.5 Recipient OK
         C: DATA
         S: 354 End data with <CRLF>.<CRLF>
         C: .
         S: 250 2.0.0 ...
         C: STARTTLS
         S: 220 2.0.0 Ready to start TLS
         tls
         C: MAIL FROM:<>
         S: 503 5.5.1 Say hello first",
    );
    world.send(
        b"EHLO client.example\r\nMAIL FROM:<>\r\nRCPT TO:<anne@example.org>\r\nBDAT 2 LAST\r\n\r\n",
    );
    assert!(world.told().contains("250 2.0.0 "));
    let arrived = world.arrived(ANNE, "INBOX");
    assert!(
        arrived[0].prefix.starts_with("Return-Path: <>\r\n")
            && arrived[0].prefix.contains(" with SMTP id ")
    );
    assert_eq!(arrived[0].text(), "");
    assert!(arrived[1].prefix.contains(
        "(using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384) by mx.example.org with ESMTPS id "
    ));
}

#[test]
fn bytes_are_kept_as_they_came() {
    let long: Vec<u8> = (0..5000)
        .flat_map(|n| {
            format!("Line {n} of a long body, with \u{e4} and \u{1f426}.\r\n").into_bytes()
        })
        .collect();
    let mut mixed =
        b"Content-Type: multipart/mixed; boundary=b\r\nSubject: =?utf-8?q?=C3=A4?=\r\n\r\npre\r\n"
            .to_vec();
    for n in 0..40 {
        mixed.extend_from_slice(
            format!("--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\npart {n}\r\n")
                .as_bytes(),
        );
    }
    mixed.extend_from_slice(b"--b--\r\n");
    let odd = b"From: a@b.example, c@d.example\r\nno field\r\n folded\r\n\r\n\xff\xfe raw \x01\r\n"
        .to_vec();
    let bodies = [
        long,
        mixed,
        odd,
        b"\r\n".to_vec(),
        b"no end of header\r\n".to_vec(),
    ];
    let mut world = World::new(Cut::Sizes(vec![1000, 1, 7, 64 * 1024]));
    for (index, body) in bodies.iter().enumerate() {
        data(&mut world, &["anne@example.org"], body);
        // The same in two chunks; a BDAT need not end with a line end.
        begin(&mut world, &["bob@example.org"]);
        let body = &body[..body.len() - 2];
        let half = body.len() / 2;
        world.send(format!("BDAT {half}\r\n").as_bytes());
        world.send(&body[..half]);
        world.script(&format!("S: 250 2.0.0 {half} octets received"));
        world.send(format!("BDAT {} LAST\r\n", body.len() - half).as_bytes());
        world.send(&body[half..]);
        world.script("S: 250 2.0.0 ...");
        let by_data = world.arrived(ANNE, "INBOX");
        let by_bdat = world.arrived(BOB, "INBOX");
        assert!(by_data[index].body == bodies[index], "{index}");
        assert!(by_bdat[index].body == body, "{index}");
    }
    // Dots are taken out where they were put in.
    data(
        &mut world,
        &["anne@example.org"],
        b"\r\n..one\r\n...two\r\n. three\r\n",
    );
    assert_eq!(
        world.arrived(ANNE, "INBOX").last().unwrap().text(),
        "\r\n.one\r\n..two\r\n three\r\n"
    );
}
