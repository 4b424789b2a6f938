//! Mail is accepted when another node has it.

use whimbrel_e2e::{mail::stuffed, process::signal};

use super::*;

fn two() -> (Node, Node) {
    let ports = [free_port(), free_port()];
    // As long as it may be: a slow machine takes its time for what is large.
    let more = [
        ("queue", "other_nodes = 1"),
        ("queue", "confirm_timeout = \"25s\""),
    ];
    let node = |name, port, first| Node::with(name, port, port, first, &more);
    let (mut a, mut b) = (node("a", ports[0], true), node("b", ports[1], false));
    let _ = a.cluster(&["init"]).expect("cluster init");
    a.server.start(&[]);
    b.join(&a);
    (a, b)
}

/// As senders do, which come back when they are told to.
fn deliver(node: &Node, name: &str) {
    let text = message::bytes(name, 3_000);
    wait_for("mail to be accepted", || {
        let mut mail = Mail::lmtp(node.server.ports.lmtp).unwrap();
        let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true);
        let reply = &replies.unwrap()[0];
        assert!(reply.is(2) || reply.code == 451, "{reply:?}");
        reply.is(2).then_some(())
    });
}

/// The node that accepted it is killed at once, and its disk is gone.
#[test]
fn accepted_mail_survives_the_loss_of_the_node_that_accepted_it() {
    let (mut a, mut b) = two();
    wait_for("links", || (a.links() == 1 && b.links() == 1).then_some(()));
    // Larger than what is read and sent at once, too.
    let sizes = [("small", 3_000), ("large", 3_000_000)];
    let texts = sizes.map(|(name, size)| message::bytes(name, size));
    deliver(&a, "first");
    let mut mail = Mail::lmtp(a.server.ports.lmtp).unwrap();
    for text in &texts {
        let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], text, true);
        let replies = replies.unwrap();
        assert!(replies[0].is(2), "{replies:?}");
    }
    a.server.kill();
    fs::remove_dir_all(a.server.path("data")).unwrap();
    let found = wait_for("the mail", || {
        let mut imap = b.server.login(ACCOUNTS[0]).ok()?;
        let contents = b.server.contents(&mut imap, "INBOX").ok()?;
        (contents.messages.len() >= 3).then_some(contents.messages)
    });
    assert_eq!(found.len(), 3);
    for text in &texts {
        let mut found = found.iter();
        assert!(found.any(|message| message.bytes.ends_with(text)));
    }
    b.server.stop();
}

#[test]
fn without_the_other_node_mail_is_refused_for_a_while() {
    let (mut a, mut b) = two();
    deliver(&a, "before");
    b.server.stop();
    wait_for("the link to end", || (a.links() == 0).then_some(()));
    let both = [ACCOUNTS[0].0, ACCOUNTS[1].0];
    let text = message::bytes("refused", 3_000);
    for lmtp in [true, false] {
        let mut mail = match lmtp {
            true => Mail::lmtp(a.server.ports.lmtp).unwrap(),
            false => Mail::smtp(a.server.ports.smtp).unwrap(),
        };
        let replies = mail.deliver("carl@example.net", &both, &text, lmtp);
        let replies = replies.unwrap();
        assert_eq!(replies.len(), if lmtp { 2 } else { 1 });
        for reply in replies {
            assert_eq!(reply.code, 451, "{reply:?}");
            let line = reply.lines.concat();
            assert!(line.contains("4.3.2") && line.contains("nodes"), "{line}");
        }
    }
    // Who is logged in reads and writes all the same.
    a.append("alone");
    b.server.start(&[]);
    deliver(&a, "after");
    let shown = wait_for("all of it", || {
        let mut imap = b.server.login(ACCOUNTS[0]).ok()?;
        let contents = b.server.contents(&mut imap, "INBOX").ok()?;
        let names = shown(&contents.messages).into_keys().collect::<Vec<_>>();
        (names.len() == 3).then_some(names)
    });
    assert_eq!(shown, ["after", "alone", "before"]);
    for node in [&mut a, &mut b] {
        node.server.stop();
    }
}

/// A node that stops lets senders end what they have begun, and asks the others for that: the links are there as long as the sessions.
#[test]
fn a_message_that_comes_while_the_node_stops_is_accepted() {
    let (mut a, mut b) = two();
    wait_for("links", || (a.links() == 1 && b.links() == 1).then_some(()));
    deliver(&a, "first");
    let mut mail = Mail::lmtp(a.server.ports.lmtp).unwrap();
    let from = mail.command("MAIL FROM:<carl@example.net>").unwrap();
    assert!(from.is(2), "{from:?}");
    let to = format!("RCPT TO:<{}>", ACCOUNTS[0].0);
    assert!(mail.command(&to).unwrap().is(2));
    assert!(mail.command("DATA").unwrap().is(3));
    signal(a.server.pid(), "TERM");
    wait_for("it to stop", || {
        a.server.log().contains("stopping").then_some(())
    });
    let text = stuffed(&message::bytes("last", 3_000));
    mail.wire.send(&[&text, &b".\r\n"[..]].concat()).unwrap();
    let reply = mail.expect(2).unwrap();
    assert!(reply.is(2), "{reply:?}");
    assert_eq!(a.server.wait_end(), 0, "{}", a.server.tail());
    wait_for("the mail", || {
        let mut imap = b.server.login(ACCOUNTS[0]).ok()?;
        let contents = b.server.contents(&mut imap, "INBOX").ok()?;
        (contents.messages.len() == 2).then_some(())
    });
    b.server.stop();
}
