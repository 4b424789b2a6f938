//! A mailbox that is deleted, or renamed away, while a session has it selected, and another one of the same name in its place: the session
//! sees nothing of that one, removes nothing there, and ends.

use whimbrel_e2e::{
    imap::{Imap, Response, Status},
    message,
    server::Server,
    wire::Trouble,
};

fn done(imap: &mut Imap, command: &str) {
    let _ = imap.command(command).unwrap().ok(command);
}

/// `replace` puts another mailbox under the name `box`, with one message that is marked as deleted.
fn check(replace: impl Fn(&mut Imap)) {
    let server = Server::start_plain();
    let (mut watcher, mut other) = (server.anne(), server.anne());
    done(&mut other, "CREATE box");
    let append = |imap: &mut Imap, name: &str, marker: &str| {
        let text = message::bytes(marker, 1000);
        let _ = imap
            .append(name, &["\\Deleted"], &text)
            .unwrap()
            .ok("APPEND");
        text
    };
    append(&mut other, "box", "old");
    done(&mut watcher, "SELECT box");
    let mut closer = server.anne();
    done(&mut closer, "SELECT box");
    replace(&mut other);
    let text = append(&mut other, "box", "new");
    // It asks, and is told that there is nothing to ask any more.
    watcher.send(b"NOOP").unwrap();
    let Response::State(Status::Bye, ..) = watcher.response().unwrap() else {
        panic!("another mailbox is shown as the one that was selected");
    };
    assert!(matches!(watcher.response(), Err(Trouble::Closed)));
    // CLOSE removes what is marked, of what was shown.
    done(&mut closer, "CLOSE");
    let there = server.contents(&mut closer, "box").unwrap().messages;
    assert!(
        there.iter().any(|message| message.bytes == text),
        "a message was removed that the session has never seen"
    );
    server.assert_no_panic();
}

#[test]
fn made_again() {
    check(|other| {
        done(other, "DELETE box");
        done(other, "CREATE box");
    });
}

#[test]
fn renamed_away_and_made_again() {
    check(|other| {
        done(other, "RENAME box aside");
        done(other, "CREATE box");
    });
}

#[test]
fn another_was_renamed_to_it() {
    check(|other| {
        done(other, "CREATE second");
        done(other, "DELETE box");
        done(other, "RENAME second box");
    });
}
