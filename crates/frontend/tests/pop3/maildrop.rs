//! The TRANSACTION and UPDATE states: numbers, marks, removal, several sessions, ends of all kinds.

use whimbrel_service::api::{Call, Event, Failure, MailboxCall, Reply};

use super::{
    script::check,
    world::{ANNE, Cut, World, name},
};

fn three(world: &mut World) {
    world.put("INBOX", b"A: 1\r\n", b"\r\none\r\n");
    world.put("INBOX", b"", b"A: 2\r\n\r\n.two\r\n..\r\n");
    world.put("INBOX", b"", b"three\r\n");
}

#[test]
fn a_session() {
    check(
        three,
        "login a
         C: STAT
         S: +OK 3 38
         C: LIST
         S: +OK The list follows
         S: 1 13
         S: 2 18
         S: 3 7
         S: .
         C: LIST 2
         S: +OK 2 18
         C: LIST 4
         S: -ERR No such message
         C: LIST 0
         S: -ERR No such message
         C: RETR 1
         S: +OK 13 octets
         S: A: 1
         S:
         S: one
         S: .
         C: RETR 2
         S: +OK 18 octets
         S: A: 2
         S:
         S: ..two
         S: ...
         S: .
         C: TOP 2 1
         S: +OK 18 octets
         S: A: 2
         S:
         S: ..two
         S: .
         C: TOP 1 0
         S: +OK 13 octets
         S: A: 1
         S:
         S: .
         C: TOP 3 5
         S: +OK 7 octets
         S: three
         S: .
         C: TOP 9 1
         S: -ERR No such message
         C: TOP 1
         S: -ERR Invalid arguments
         C: DELE 2
         S: +OK Marked as deleted
         C: DELE 2
         S: -ERR Message is marked as deleted
         C: RETR 2
         S: -ERR Message is marked as deleted
         C: UIDL 2
         S: -ERR Message is marked as deleted
         C: STAT
         S: +OK 2 20
         C: LIST
         S: +OK The list follows
         S: 1 13
         S: 3 7
         S: .
         C: RSET
         S: +OK No message is marked as deleted
         C: STAT
         S: +OK 3 38
         C: NOOP
         S: +OK NOOP completed
         C: DELE 1
         S: +OK Marked as deleted
         C: DELE 3
         S: +OK Marked as deleted
         C: QUIT
         S: +OK Bye, the messages are removed
         closed
         login b
         C: STAT
         S: +OK 1 18
         C: QUIT
         S: +OK Bye",
    );
}

#[test]
fn unique_ids_are_message_ids_for_ever() {
    let mut world = World::new(Cut::AtOnce);
    three(&mut world);
    let ids = world.ids("INBOX");
    let listing = |numbers: &[usize]| {
        let mut text = "+OK The list follows\r\n".to_owned();
        for (at, number) in numbers.iter().enumerate() {
            text += &format!("{} {}\r\n", at + 1, ids[*number]);
        }
        text + ".\r\n"
    };
    world.login("a");
    assert_eq!(world.ask("UIDL"), listing(&[0, 1, 2]));
    assert_eq!(world.ask("UIDL 2"), format!("+OK 2 {}\r\n", ids[1]));
    // Away and back: another UID, another number, the same id.
    let uid = world.rows("INBOX")[0].uid;
    world.copy("INBOX", vec![uid], "Archive", true);
    let uid = world.rows("Archive")[0].uid;
    world.copy("Archive", vec![uid], "INBOX", true);
    world.login("b");
    assert_eq!(world.ask("UIDL"), listing(&[1, 2, 0]));
    world.crash(3);
    world.login("c");
    assert_eq!(world.ask("UIDL"), listing(&[1, 2, 0]));
    assert!(
        listing(&[0])
            .lines()
            .nth(1)
            .is_some_and(|line| line.len() - 2 <= 70)
    );
}

/// What was marked stays, and no further message is read.
#[test]
fn a_session_ends_when_its_account_is_removed() {
    check(
        three,
        "login a
         C: DELE 1
         S: +OK Marked as deleted
         ended
         S: -ERR [AUTH] The account was removed
         closed",
    );
}

#[test]
fn only_quit_removes() {
    for end in ["eof", "wait 601", "shutdown", "crash"] {
        let mut world = World::new(Cut::AtOnce);
        three(&mut world);
        world.login("a");
        world.ask("DELE 1");
        // A command that is not whole is none.
        world.send(b"QUIT");
        match end {
            "crash" => world.crash(1),
            end => {
                world.script(end.strip_prefix("shutdown").map_or(end, |_| ""));
                if end == "shutdown" {
                    world.event(Event::Shutdown);
                    assert_eq!(world.told(), "-ERR [SYS/TEMP] Server is shutting down\r\n");
                }
                assert_eq!(world.told(), "", "{end}");
                assert!(world.client().closed, "{end}");
            }
        }
        world.login("b");
        assert_eq!(world.ask("STAT"), "+OK 3 38\r\n", "{end}");
    }
    // A client that has gone before it hears the answer has given QUIT all the same.
    let mut world = World::new(Cut::AtOnce);
    three(&mut world);
    world.login("a");
    world.send(b"DELE 1\r\nQUIT\r\n");
    world.eof();
    world.login("b");
    assert_eq!(world.ask("STAT"), "+OK 2 25\r\n");
}

#[test]
fn what_came_later_is_neither_seen_nor_removed() {
    check(
        |world| {
            three(world);
            world.login("a");
            world.put("INBOX", b"", b"four\r\n");
        },
        "C: STAT
         S: +OK 3 38
         C: RETR 4
         S: -ERR No such message
         C: DELE 4
         S: -ERR No such message
         C: DELE 1
         S: +OK Marked as deleted
         C: DELE 2
         S: +OK Marked as deleted
         C: DELE 3
         S: +OK Marked as deleted
         C: QUIT
         S: +OK Bye, the messages are removed
         login b
         C: STAT
         S: +OK 1 6
         C: RETR 1
         S: +OK 6 octets
         S: four
         S: .",
    );
}

#[test]
fn several_sessions_are_open_at_once() {
    check(
        three,
        "login a
         login b
         C: DELE 2
         S: +OK Marked as deleted
         as a
         C: RETR 2
         S: +OK 18 octets
         S: A: 2
         S:
         S: ..two
         S: ...
         S: .
         C: DELE 2
         S: +OK Marked as deleted
         C: DELE 3
         S: +OK Marked as deleted
         as b
         C: QUIT
         S: +OK Bye, the messages are removed
         as a
         C: STAT
         S: +OK 1 31
         C: RSET
         S: +OK No message is marked as deleted
         C: LIST
         S: +OK The list follows
         S: 1 13
         S: 3 7
         S: .
         C: UIDL 2
         S: -ERR [SYS/TEMP] Message was removed by another session
         C: RETR 2
         S: -ERR [SYS/TEMP] Message was removed by another session
         C: TOP 2 0
         S: -ERR [SYS/TEMP] Message was removed by another session
         C: DELE 2
         S: +OK Marked as deleted
         C: DELE 3
         S: +OK Marked as deleted
         C: QUIT
         S: +OK Bye, the messages are removed
         login c
         C: LIST
         S: +OK The list follows
         S: 1 13
         S: .",
    );
}

/// One that went between two commands of a pipeline, after it was looked up for the second.
#[test]
fn a_message_that_goes_while_it_is_sent() {
    let mut world = World::new(Cut::AtOnce);
    three(&mut world);
    world.login("a");
    let uids: Vec<u32> = world.rows("INBOX").iter().map(|row| row.uid).collect();
    world.remove("INBOX", vec![uids[1]]);
    world.send(b"RETR 1\r\nRETR 2\r\nRETR 3\r\nDELE 3\r\nRSET\r\nRETR 3\r\n");
    assert_eq!(
        world.told(),
        "+OK 13 octets\r\nA: 1\r\n\r\none\r\n.\r\n-ERR [SYS/TEMP] Message was removed by another session\r\n\
         +OK 7 octets\r\nthree\r\n.\r\n+OK Marked as deleted\r\n+OK No message is marked as deleted\r\n+OK 7 octets\r\nthree\r\n.\r\n"
    );
    // What was marked when the others were looked up.
    world.send(b"DELE 3\r\nRETR 1\r\nRSET\r\nRETR 3\r\nNOOP\r\n");
    assert!(world.told().contains("+OK 7 octets\r\nthree\r\n.\r\n"));
    // The mailbox itself.
    world.mailbox(MailboxCall::Rename {
        from: name("INBOX"),
        to: name("Old"),
        rest: None,
    });
    assert_eq!(world.ask("LIST"), "+OK The list follows\r\n.\r\n");
    world.ask("DELE 1");
    assert_eq!(world.ask("QUIT"), "+OK Bye, the messages are removed\r\n");
    assert_eq!(world.rows("Old").len(), 2);
}

#[test]
fn a_mailbox_that_is_gone_is_an_error() {
    let mut world = World::new(Cut::AtOnce);
    world.put("Archive", b"", b"one\r\n");
    world.connect("a", true);
    world.send(b"USER anne|Archive\r\nPASS secret\r\nDELE 1\r\n");
    world.told();
    let renamed = world.mailbox(MailboxCall::Rename {
        from: name("Archive"),
        to: name("Other"),
        rest: None,
    });
    assert!(matches!(renamed, Reply::Done));
    assert_eq!(
        world.ask("QUIT"),
        "-ERR [SYS/TEMP] Some of the messages were not removed\r\n"
    );
    assert_eq!(world.rows("Other").len(), 1);
}

#[test]
fn uids_of_another_validity_remove_nothing() {
    let mut world = World::new(Cut::AtOnce);
    three(&mut world);
    let uids = world.rows("INBOX").iter().map(|row| row.uid).collect();
    let uid_validity = world.uid_validity("INBOX") + 1;
    let call = MailboxCall::Remove {
        name: name("INBOX"),
        uids,
    };
    let call = Call::Mailbox {
        account: ANNE,
        call,
        uid_validity: Some(uid_validity),
        other_nodes: 0,
    };
    assert!(matches!(world.call(call), Reply::Failed(Failure::Gone)));
    assert_eq!(world.rows("INBOX").len(), 3);
}

/// "If there is an error [...] the maildrop may result in having some or none of the messages marked as deleted be removed" (RFC 1939, 6).
#[test]
fn a_removal_that_fails_is_told() {
    check(
        three,
        "login a
         C: DELE 1
         S: +OK Marked as deleted
         full
         C: QUIT
         S: -ERR [SYS/TEMP] Some of the messages were not removed
         closed
         room
         login b
         C: STAT
         S: +OK 3 38",
    );
}

/// More than one batch of the owner, more than one page of rows.
#[test]
fn a_large_maildrop() {
    let mut world = World::new(Cut::AtOnce);
    world.put("INBOX", b"", b"one\r\n");
    while world.rows("INBOX").len() < 8192 {
        let uids = world.rows("INBOX").iter().map(|row| row.uid).collect();
        world.copy("INBOX", uids, "INBOX", false);
    }
    world.login("a");
    let ids = world.ids("INBOX");
    let listed = world.ask("UIDL");
    let found: Vec<&str> = listed.lines().collect();
    assert_eq!(found.len(), 8192 + 2);
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(found[at + 1], format!("{} {id}", at + 1));
    }
    let dele: String = (1..=8191).map(|n| format!("DELE {n}\r\n")).collect();
    world.send(dele.as_bytes());
    assert_eq!(world.told(), "+OK Marked as deleted\r\n".repeat(8191));
    assert_eq!(world.client().calls.get("Remove"), None);
    assert_eq!(world.ask("STAT"), "+OK 1 5\r\n");
    assert_eq!(world.ask("LIST"), "+OK The list follows\r\n8192 5\r\n.\r\n");
    assert_eq!(world.ask("QUIT"), "+OK Bye, the messages are removed\r\n");
    assert_eq!(world.ids("INBOX"), ids[8191..]);
}
