//! A client is told that something is done when another node has it (`imap.other_nodes`, `pop3.other_nodes`).

use super::*;

fn two() -> (Node, Node) {
    let ports = [free_port(), free_port()];
    // As long as it takes a slow machine.
    let more = [
        ("imap", "other_nodes = 1"),
        ("pop3", "other_nodes = 1"),
        ("cluster", "write_timeout = \"5m\""),
    ];
    let node = |name, port, first| Node::with(name, port, port, first, &more);
    let (mut a, mut b) = (node("a", ports[0], true), node("b", ports[1], false));
    let _ = a.cluster(&["init"]).expect("cluster init");
    a.server.start(&[]);
    b.join(&a);
    wait_for("links", || (a.links() == 1 && b.links() == 1).then_some(()));
    (a, b)
}

/// As clients do that are told to come later: owners hear of a link a moment after it is there.
fn append(node: &Node, text: &[u8]) {
    wait_for("a message to be appended", || {
        let reply = node.server.anne().append("INBOX", &[], text).unwrap();
        assert!(
            reply.status == Status::Ok || reply.code == "UNAVAILABLE",
            "{reply:?}"
        );
        (reply.status == Status::Ok).then_some(())
    });
}

/// The node that answered is killed at once, and its disk is gone.
#[test]
fn what_was_appended_survives_the_loss_of_the_node_that_said_so() {
    let (mut a, mut b) = two();
    append(&a, &message::bytes("first", 3_000));
    // Larger than what is given unasked, too.
    let texts = [("small", 3_000), ("large", 3_000_000)];
    let texts = texts.map(|(name, size)| message::bytes(name, size));
    let mut imap = a.server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let _ = imap.command("STORE 1 +FLAGS (kept)").unwrap().ok("STORE");
    for text in &texts {
        let _ = imap.append("INBOX", &[], text).unwrap().ok("APPEND");
    }
    a.server.kill();
    fs::remove_dir_all(a.server.path("data")).unwrap();
    let found = wait_for("the messages", || {
        let mut imap = b.server.login(ACCOUNTS[0]).ok()?;
        let contents = b.server.contents(&mut imap, "INBOX").ok()?;
        (contents.messages.len() >= 3).then_some(contents.messages)
    });
    assert_eq!(found.len(), 3);
    assert!(found[0].flags.contains(&"kept".to_owned()), "{found:?}");
    for text in &texts {
        assert!(found.iter().any(|message| message.bytes == *text));
    }
    b.server.stop();
}

#[test]
fn without_the_other_node_writes_are_refused_for_a_while() {
    let (mut a, mut b) = two();
    append(&a, &message::bytes("before", 3_000));
    b.server.stop();
    wait_for("the link to end", || (a.links() == 0).then_some(()));
    let mut imap = a.server.anne();
    let selected = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    assert_eq!(selected.exists(), Some(1));
    let text = message::bytes("refused", 3_000);
    let appended = imap.append("INBOX", &[], &text).unwrap();
    let others = ["STORE 1 +FLAGS (\\Deleted)", "CREATE new"];
    let others = others.map(|command| imap.command(command).unwrap());
    for reply in others.into_iter().chain([appended]) {
        assert_eq!(
            (reply.status, reply.code.as_str()),
            (Status::No, "UNAVAILABLE")
        );
    }
    let mut pop3 = a.server.anne_pop3();
    pop3.command("DELE 1").unwrap().expect("DELE");
    let refused = pop3.command("QUIT").unwrap();
    assert!(
        !refused.ok && refused.text.contains("[SYS/TEMP]"),
        "{refused:?}"
    );
    // Reading goes on.
    let read = imap.command("FETCH 1 BODY[]").unwrap().ok("FETCH");
    assert_eq!(read.fetched().count(), 1);
    let contents = a.server.contents(&mut imap, "INBOX").unwrap();
    assert_eq!(contents.messages.len(), 1);
    b.server.start(&[]);
    append(&a, &message::bytes("after", 3_000));
    for node in [&mut a, &mut b] {
        node.server.stop();
    }
}
