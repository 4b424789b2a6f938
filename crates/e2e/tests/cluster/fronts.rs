//! Mail that comes to a node which does not take it itself: one that is drained, or of role `storage`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use whimbrel_e2e::mail::{MailReply, stuffed};

use super::{relays::region, *};

const ANNE: (&str, &str) = ACCOUNTS[0];
const BOB: &str = ACCOUNTS[1].0;

impl Node {
    /// How many messages it has accepted.
    fn accepted(&self) -> usize {
        let log = self.server.log();
        log.matches(" accepted session=").count()
    }

    /// Submission: logged in, which is answered here.
    pub(crate) fn submission(&self) -> Mail {
        let mut mail = Mail::connect(self.server.ports.submission).unwrap();
        let hello = "EHLO client.example.net";
        assert!(mail.command(hello).unwrap().is(2));
        mail.start_tls(&self.server.tls, hello).unwrap();
        let login = STANDARD.encode(format!("\0{}\0{}", ANNE.0, ANNE.1));
        let logged_in = mail.command(&format!("AUTH PLAIN {login}")).unwrap();
        assert_eq!(logged_in.code, 235, "{logged_in:?}");
        mail
    }
}

/// From Anne, to Bob.
pub(crate) fn letter(name: &str, size: usize) -> Vec<u8> {
    let text = String::from_utf8(message::bytes(name, size)).unwrap();
    let from = format!("From: Anne <{}>", ANNE.0);
    text.replace("From: Carl <carl@example.net>", &from)
        .into_bytes()
}

fn replies(mail: &mut Mail, count: usize) -> Vec<MailReply> {
    (0..count).map(|_| mail.reply().unwrap()).collect()
}

fn codes(replies: &[MailReply]) -> Vec<u16> {
    replies.iter().map(|reply| reply.code).collect()
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn a_drained_node_brings_mail_to_another() {
    let mut scene = region(&[("a", "worker"), ("b", "worker")], 0, &[]);
    let mut early = Mail::smtp(scene.nodes[1].server.ports.smtp).unwrap();
    let drained = scene.nodes[1].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");
    // Who was there already is told to come again.
    assert_eq!(early.reply().unwrap().code, 421);

    scene.deliver(1, "by lmtp");
    // All at once: two chunks, the reply of the node that takes it to who is unknown, and a second transaction behind a new hello.
    let port = scene.nodes[1].server.ports.smtp;
    let mut mail = Mail::connect(port).unwrap();
    let text = message::bytes("by smtp", 300_000);
    let (head, tail) = text.split_at(200_000);
    let again = message::bytes("again", 3_000);
    let mut client =
        b"EHLO client.example.net\r\nNOOP\r\nMAIL FROM:<carl@example.net> BODY=8BITMIME\r\n"
            .to_vec();
    client.extend(format!("RCPT TO:<nobody@example.org>\r\nRCPT TO:<{}>\r\n", ANNE.0).bytes());
    client.extend(format!("BDAT {}\r\n", head.len()).bytes());
    client.extend(head);
    client.extend(format!("BDAT {} LAST\r\n", tail.len()).bytes());
    client.extend(tail);
    client.extend(b"EHLO again.example.net\r\nMAIL FROM:<>\r\n");
    client.extend(format!("RCPT TO:<{}>\r\nDATA\r\n", ANNE.0).bytes());
    mail.wire.send(&client).unwrap();
    let heard = replies(&mut mail, 11);
    let expected = [250, 250, 250, 550, 250, 250, 250, 250, 250, 250, 354];
    assert_eq!(codes(&heard), expected, "{heard:?}");
    assert!(heard[0].lines.iter().any(|line| line == "STARTTLS"));
    // TLS ends at the node in front, and cannot begin behind it.
    assert!(!heard[7].lines.iter().any(|line| line == "STARTTLS"));
    let mut data = stuffed(&again);
    data.extend(b".\r\nQUIT\r\n");
    mail.wire.send(&data).unwrap();
    assert_eq!(codes(&replies(&mut mail, 2)), [250, 221]);
    assert!(mail.wire.line().is_err());
    scene.expected.insert("by smtp".into(), BTreeSet::new());
    scene.expected.insert("again".into(), BTreeSet::new());
    scene.wait_alike(&[0, 1]);

    // A wrong password, and what is not Anne's to say, are refused; the login by the node in front, the rest by the other.
    let brought = scene.nodes[0].was_brought();
    let mut user = scene.nodes[1].submission();
    assert_eq!(scene.nodes[0].was_brought(), brought);
    let refused = user.command(&format!("MAIL FROM:<{BOB}>")).unwrap();
    assert_eq!(refused.code, 553, "{refused:?}");
    assert_eq!(scene.nodes[0].was_brought(), brought + 1);
    let sent = user.deliver(ANNE.0, &[BOB], &letter("sent", 3_000_000), false);
    assert_eq!(codes(&sent.unwrap()), [250]);
    for (account, mailbox) in [(0, "Sent"), (1, "INBOX")] {
        let server = &scene.nodes[1].server;
        let found = wait_for("what was sent", || {
            let mut imap = server.login(ACCOUNTS[account]).ok()?;
            let contents = server.contents(&mut imap, mailbox).ok()?;
            contents.messages.into_iter().next()
        });
        let text = letter("sent", 3_000_000);
        assert!(found.bytes.ends_with(&text), "{mailbox}");
        if account == 1 {
            let trace = String::from_utf8_lossy(&found.bytes[..1000]).replace("\r\n", "");
            // RFC 3848: extended, by TLS, with a login; and who the client was.
            assert!(trace.contains("with ESMTPSA"), "{trace}");
            assert!(trace.contains("client.example.net") && trace.contains("127.0.0.1"));
            assert!(trace.contains("TLS"), "{trace}");
        }
    }
    let taken = scene.nodes.iter().map(Node::accepted).collect::<Vec<_>>();
    assert_eq!(taken, [4, 0]);
    // None of them keeps the node from being stopped.
    let drained = scene.nodes[1].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");
    assert!(user.command("NOOP").unwrap().is(2));

    // Nobody else is there: it is said, and when the node may, it takes mail itself.
    drop(user);
    scene.nodes[0].server.kill();
    wait_for("the link to go", || {
        (scene.nodes[1].links() == 0).then_some(())
    });
    let mut mail = Mail::smtp(port).unwrap();
    let refused = mail.command("MAIL FROM:<>").unwrap();
    assert!(
        refused.code == 421 && refused.lines[0].contains("No node"),
        "{refused:?}"
    );
    let _ = scene.nodes[1]
        .cluster(&["drain", "--cancel"])
        .expect("cancelled");
    scene.deliver(1, "at last");
    assert_eq!(scene.nodes[1].accepted(), 1);
    scene.nodes[0].server.start(&[]);
    scene.wait_alike(&[0, 1]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

/// The node that takes the mail is killed in the middle of a message: that is refused for now, and taken by the next from the same front door. What was
/// accepted is there when the node that accepted it is gone for ever.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn who_takes_the_mail_is_killed() {
    let of = [("a", "worker"), ("b", "worker"), ("s", "storage")];
    let mut scene = region(&of, 0, &[("queue", "other_nodes = 1")]);
    let index = |name: &str| of.iter().position(|(known, _)| *known == name).unwrap();
    let front = scene.nodes[2].server.ports;
    let stuffed = stuffed(&message::bytes("cut", 100_000));
    let data = [stuffed.as_slice(), b".\r\n"].concat();
    let (head, tail) = data.split_at(50_000);
    let mut mail = Mail::lmtp(front.lmtp).unwrap();
    let begin = format!(
        "MAIL FROM:<carl@example.net>\r\nRCPT TO:<{}>\r\nDATA\r\n",
        ANNE.0
    );
    mail.wire.send(begin.as_bytes()).unwrap();
    assert_eq!(codes(&replies(&mut mail, 3)), [250, 250, 354]);
    mail.wire.send(head).unwrap();
    let there = index(scene.nodes[2].brought_to().last().unwrap());
    assert_ne!(there, 2);
    scene.nodes[there].server.kill();
    // Whether the rest is still sent or not: no 250.
    let _ = mail.wire.send(tail);
    let said = mail.reply().unwrap();
    assert_eq!(said.code, 421, "{said:?}");
    assert!(mail.wire.line().is_err());

    // With one other node left to confirm it.
    let deliver = |mail: &mut Mail, name: &str| {
        let text = message::bytes(name, 100_000);
        mail.deliver("carl@example.net", &[ANNE.0], &text, true)
    };
    wait_for("the next node", || {
        let heard = deliver(&mut Mail::lmtp(front.lmtp).ok()?, "cut").ok()?;
        heard[0].is(2).then_some(())
    });
    let next = index(scene.nodes[2].brought_to().last().unwrap());
    assert!(next != there && next != 2);
    assert_eq!(scene.nodes[next].accepted(), 1);
    scene.nodes[next].server.kill();
    fs::remove_dir_all(scene.nodes[next].server.path("data")).unwrap();
    scene.expected.insert("cut".into(), BTreeSet::new());
    scene.nodes[there].server.start(&[]);
    scene.wait_alike(&[there, 2]);
    for node in [there, 2] {
        scene.nodes[node].server.stop();
    }
}

/// swaks, at a front door that takes nothing by itself: SMTP with STARTTLS and PIPELINING, LMTP, submission with a login.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn swaks_uses_a_front_door() {
    let mut scene = region(&[("a", "worker"), ("s", "storage")], 0, &[]);
    let server = &scene.nodes[1].server;
    let ports = server.ports;
    let login = [
        "--auth",
        "PLAIN",
        "--auth-user",
        ANNE.0,
        "--auth-password",
        ANNE.1,
    ];
    let user = [&["--tls-on-connect", "--from", ANNE.0], &login[..]].concat();
    let stranger: &[&str] = &["--from", "carl@example.net"];
    for (port, more) in [
        (ports.smtp, [stranger, &["--tls", "--pipeline"]].concat()),
        (ports.lmtp, [stranger, &["--protocol", "LMTP"]].concat()),
        (ports.submissions, user),
    ] {
        let mut swaks = Command::new("swaks");
        swaks.args(["--server", "127.0.0.1", "--port", &port.to_string()]);
        swaks.args(["--to", ANNE.0, "--helo", "client.example.net"]);
        swaks.args(["--header", &format!("X-Name: by {port}")]);
        swaks.arg("--tls-ca-path").arg(server.path("authority.pem"));
        let done = whimbrel_e2e::process::run(swaks.args(more), b"");
        let said = done.expect("swaks");
        assert!(said.contains("250 2.0.0"), "{said}");
        scene.expected.insert(format!("by {port}"), BTreeSet::new());
    }
    scene.wait_alike(&[0, 1]);
    let taken = scene.nodes.iter().map(Node::accepted).collect::<Vec<_>>();
    assert_eq!(taken, [3, 0]);
    assert_eq!(
        scene.nodes[1]
            .brought_to()
            .iter()
            .filter(|to| *to == "a")
            .count(),
        scene.nodes[0].was_brought()
    );
    for node in &mut scene.nodes {
        node.server.stop();
    }
}
