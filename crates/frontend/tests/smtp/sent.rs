//! The sender's own copy: where it goes, that it is there once, and what a client's own does to it.

use bytes::Bytes;
use whimbrel_mime::{Limits, Parser};
use whimbrel_service::{
    api::{
        Call, Date, EntryId, Flag, FlagChange, Flags, Keyword, MailboxCall, MailboxName, NewMail,
        Reply, SessionId,
    },
    content::Content,
};

use super::world::{ANNE, BOB, Cut, World};

fn name(text: &str) -> MailboxName {
    MailboxName::new(text).unwrap()
}

impl World {
    /// Anne sends a message with this Message-ID to Bob.
    fn send_mail(&mut self, id: &str) {
        self.submit(id);
        self.script("S: 250 2.0.0 ...");
    }

    /// The same, up to the reply.
    fn submit(&mut self, id: &str) {
        self.script(
            "submit anne
             C: MAIL FROM:<anne@example.org>
             S: 250 2.1.0 Sender OK
             C: RCPT TO:<bob@example.org>
             S: 250 2.1.5 Recipient OK
             C: DATA
             S: 354 ...",
        );
        self.send(&[message(id, "server").as_bytes(), b".\r\n"].concat());
    }

    /// Her client appends it to a mailbox.
    fn append(&mut self, mailbox: &str, id: &str) {
        let append = self.appending(mailbox, id);
        let reply = self.call(append);
        assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    }

    /// The call of that, with a date of long ago.
    fn appending(&mut self, mailbox: &str, id: &str) -> Call {
        let Reply::Upload(upload) = self.call(Call::BlobCreate(None)) else {
            panic!("no upload");
        };
        let text = message(id, "client");
        let bytes = Bytes::from(text.clone());
        assert!(matches!(
            self.call(Call::BlobWrite { upload, bytes }),
            Reply::Done
        ));
        let Reply::Blob(blob) = self.call(Call::BlobFinish { upload }) else {
            panic!("no blob");
        };
        let mut parser = Parser::new(&Limits::default());
        parser.push(text.as_bytes());
        let content = Content {
            prefix: Bytes::new(),
            summary: parser.finish().encode().into(),
        };
        let call = MailboxCall::Append {
            session: SessionId(77),
            name: name(mailbox),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 1,
                    zone_minutes: 0,
                },
                size: u32::try_from(text.len()).unwrap(),
                open_end: false,
                blob,
                content: content.encode(),
            }],
            replaces: None,
        };
        Call::mailbox(ANNE, call)
    }

    /// The call that moves all that is in her mailbox for sent mail to another.
    fn moving(&mut self, to: &str) -> Call {
        let select = MailboxCall::Select {
            session: SessionId(9),
            name: name("Sent"),
            read_only: false,
        };
        let Reply::Selected(selected) = self.mailbox(ANNE, select) else {
            panic!("no Sent");
        };
        let call = MailboxCall::Copy {
            session: SessionId(9),
            name: name("Sent"),
            uids: selected.uids.to_vec(),
            to: name(to),
            remove: true,
        };
        Call::mailbox(ANNE, call)
    }

    fn uids(&mut self, mailbox: &str) -> Vec<u32> {
        let select = MailboxCall::Select {
            session: SessionId(1 << 41),
            name: name(mailbox),
            read_only: true,
        };
        match self.mailbox(ANNE, select) {
            Reply::Selected(selected) => selected.uids.to_vec(),
            other => panic!("{mailbox}: {other:?}"),
        }
    }

    /// Who made the messages of a mailbox: `server` or `client`, and `seen`.
    fn copies(&mut self, mailbox: &str) -> Vec<String> {
        let rows = MailboxCall::Rows {
            name: name(mailbox),
            uids: self.uids(mailbox),
        };
        let Reply::Rows(rows) = self.mailbox(ANNE, rows) else {
            panic!("{mailbox}");
        };
        rows.into_iter()
            .map(|row| {
                let body = String::from_utf8(self.blob(row.blob)).unwrap();
                let by = body.trim_end().rsplit(' ').next().unwrap().to_owned();
                let seen = row.flags.contains(&Flag::Seen);
                format!("{by}{}", if seen { " seen" } else { "" })
            })
            .collect()
    }
}

fn message(id: &str, by: &str) -> String {
    format!("From: anne@example.org\r\nMessage-ID: {id}\r\n\r\nmade by {by}\r\n")
}

const SERVER: &str = "server seen";

#[test]
fn it_is_in_the_mailbox_for_sent_mail_and_seen() {
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    assert_eq!(world.copies("Sent"), [SERVER]);
    assert_eq!(world.copies("INBOX"), [""; 0]);
    assert_eq!(world.bodies(BOB, "INBOX").len(), 1);
    assert_eq!(world.bodies(BOB, "Sent").len(), 0);
    // The mailbox of that use, whatever its name.
    let rename = |from: &str, to: &str| MailboxCall::Rename {
        from: name(from),
        to: name(to),
        rest: None,
    };
    assert!(matches!(
        world.mailbox(ANNE, rename("Sent", "Gesendet")),
        Reply::Done
    ));
    world.send_mail("<2@x>");
    assert_eq!(world.copies("Gesendet"), [SERVER, SERVER]);
    // Without one, one of the usual name; without that, none. The message is delivered all the same.
    let delete = |mailbox: &str| MailboxCall::Delete {
        name: name(mailbox),
    };
    assert!(matches!(
        world.mailbox(ANNE, delete("Gesendet")),
        Reply::Done
    ));
    world.send_mail("<3@x>");
    let create = MailboxCall::Create {
        name: name("Sent"),
        special_use: None,
    };
    assert!(matches!(world.mailbox(ANNE, create), Reply::Created(_)));
    world.send_mail("<4@x>");
    assert_eq!(world.copies("Sent"), [SERVER]);
    assert_eq!(world.bodies(BOB, "INBOX").len(), 4);
    assert_eq!(world.node.queue_len(), 0);
    // It can be turned off.
    world.limits.submission.save_sent = false;
    world.send_mail("<5@x>");
    assert_eq!(world.copies("Sent"), [SERVER]);
    assert_eq!(world.bodies(BOB, "INBOX").len(), 5);
}

/// Mail to oneself is two messages; so is mail to one's own mailbox for sent mail.
#[test]
fn mail_to_oneself_is_there_as_well() {
    let mut world = World::new(Cut::AtOnce);
    world.script(
        "submit anne
         C: MAIL FROM:<anne@example.org>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<anne@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<anne+Sent@example.org>
         S: 250 2.1.5 Recipient OK
         C: DATA
         S: 354 ...",
    );
    world.send(&[message("<1@x>", "server").as_bytes(), b".\r\n"].concat());
    world.script("S: 250 2.0.0 ...");
    assert_eq!(world.copies("INBOX"), ["server"]);
    assert_eq!(world.copies("Sent"), ["server", SERVER]);
    // A client's copy takes the place of one of them alone: the other is mail that she has received.
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["server", "client"]);
}

/// Accepted is accepted with its copy, and both are there once, wherever a crash comes.
#[test]
fn a_crash_neither_loses_nor_doubles_it() {
    for steps in 0..60 {
        let mut world = World::new(Cut::AtOnce);
        world.script(
            "submit anne
             C: MAIL FROM:<anne@example.org>
             S: 250 2.1.0 Sender OK
             C: RCPT TO:<bob@example.org>
             S: 250 2.1.5 Recipient OK
             C: DATA
             S: 354 ...",
        );
        world.push(&[message("<1@x>", "server").as_bytes(), b".\r\n"].concat());
        let mut done = 0;
        while done < steps && !world.node.is_quiet() && world.step() {
            done += 1;
        }
        let accepted = world.told().starts_with("250");
        world.crash(steps);
        let there = (world.bodies(BOB, "INBOX").len(), world.copies("Sent").len());
        assert_eq!(there.0, there.1, "after {steps} steps: both or none");
        assert!(
            there.0 == 1 || (there.0 == 0 && !accepted),
            "after {steps} steps"
        );
        world.crash(steps);
        assert_eq!(
            (world.bodies(BOB, "INBOX").len(), world.copies("Sent").len()),
            there
        );
    }
}

#[test]
fn a_clients_own_copy_takes_its_place() {
    // After.
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client"]);
    // Before: the server's is gone as soon as it has come.
    world.append("Sent", "<2@x>");
    world.send_mail("<2@x>");
    assert_eq!(world.copies("Sent"), ["client", "client"]);
    // Once more by the client: that is its own affair.
    world.append("Sent", "<2@x>");
    assert_eq!(world.copies("Sent"), ["client"; 3]);
    assert_eq!(world.bodies(BOB, "INBOX").len(), 2, "and Bob's are Bob's");
    // While others come in between.
    world.send_mail("<3@x>");
    world.send_mail("<4@x>");
    world.append("Sent", "<5@x>");
    world.append("Sent", "<3@x>");
    assert_eq!(world.copies("Sent")[3..], [SERVER, "client", "client"]);
    // The bytes go, too.
    world.wait(120);
    assert_eq!(world.left_over().0, 0);
}

#[test]
fn a_session_that_watches_is_told() {
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    let session = SessionId(5);
    let select = MailboxCall::Select {
        session,
        name: name("Sent"),
        read_only: false,
    };
    let Reply::Selected(selected) = world.mailbox(ANNE, select) else {
        panic!();
    };
    let own = selected.uids.to_vec();
    world.append("Sent", "<1@x>");
    let changes = MailboxCall::Changes {
        session,
        since: selected.as_of,
        expunges: true,
    };
    let Reply::Changes(changes) = world.mailbox(ANNE, changes) else {
        panic!();
    };
    assert_eq!(changes.vanished, own);
    assert_eq!(changes.arrived.len(), 1);
}

#[test]
fn what_is_no_twin_stays() {
    let check = |prepare: &dyn Fn(&mut World), mailbox: &str, expected: &[&str]| {
        let mut world = World::new(Cut::AtOnce);
        prepare(&mut world);
        assert_eq!(world.copies(mailbox), expected);
    };
    let both = [SERVER, "client"];
    // Another message.
    check(
        &|world| {
            world.send_mail("<1@x>");
            world.append("Sent", "<2@x>");
        },
        "Sent",
        &both,
    );
    // Another mailbox.
    check(
        &|world| {
            world.send_mail("<1@x>");
            world.append("Drafts", "<1@x>");
        },
        "Sent",
        &[SERVER],
    );
    // Ten minutes, and a little more.
    check(
        &|world| {
            world.send_mail("<1@x>");
            world.wait(590);
            world.append("Sent", "<1@x>");
        },
        "Sent",
        &["client"],
    );
    check(
        &|world| {
            world.send_mail("<1@x>");
            world.wait(610);
            world.append("Sent", "<1@x>");
        },
        "Sent",
        &both,
    );
    check(
        &|world| {
            world.append("Sent", "<1@x>");
            world.wait(610);
            world.send_mail("<1@x>");
        },
        "Sent",
        &["client", SERVER],
    );
    // Moved away by then, or while it is looked for: somebody wants it there.
    check(
        &|world| {
            world.send_mail("<1@x>");
            let moving = world.moving("Archive");
            world.call(moving);
            world.append("Sent", "<1@x>");
        },
        "Archive",
        &[SERVER],
    );
    check(
        &|world| {
            world.send_mail("<1@x>");
            let calls = vec![world.appending("Sent", "<1@x>"), world.moving("Archive")];
            let replies = world.calls(calls);
            assert!(matches!(replies[1], Reply::Copied { .. }), "{replies:?}");
        },
        "Archive",
        &[SERVER],
    );
}

/// Further down than anybody looks.
#[test]
fn a_twin_is_looked_for_among_the_newest() {
    for (between, both) in [(4_094, false), (4_096, true)] {
        let mut world = World::new(Cut::AtOnce);
        world.send_mail("<1@x>");
        let ours = world.uids("Sent")[0];
        let mut left = between;
        while left > 0 {
            let Call::Mailbox {
                account, mut call, ..
            } = world.appending("Sent", "<other@x>")
            else {
                panic!("no append");
            };
            if let MailboxCall::Append { messages, .. } = &mut call {
                *messages = vec![messages[0].clone(); left.min(512)];
                left -= messages.len();
            }
            let reply = world.mailbox(account, call);
            assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
        }
        world.append("Sent", "<1@x>");
        let stays = world.uids("Sent").contains(&ours);
        assert_eq!(stays, both, "{between}");
    }
}

/// Somebody has flagged the server's copy: the client's has the flags then. One that was moved, or marked as deleted, stays.
#[test]
fn what_was_touched_is_not_lost() {
    let check = |touch: &dyn Fn(&mut World), copies: &[&str], flag: Option<&Flag>| {
        let mut world = World::new(Cut::AtOnce);
        world.send_mail("<1@x>");
        touch(&mut world);
        world.append("Sent", "<1@x>");
        assert_eq!(world.copies("Sent"), copies);
        let rows = MailboxCall::Rows {
            name: name("Sent"),
            uids: world.uids("Sent"),
        };
        let Reply::Rows(rows) = world.mailbox(ANNE, rows) else {
            panic!("no rows");
        };
        let carried = flag.is_none_or(|flag| rows.iter().all(|row| row.flags.contains(flag)));
        assert!(carried, "{flag:?}: {rows:?}");
    };
    let store = |world: &mut World, change, flag: &Flag| {
        let call = MailboxCall::Store {
            session: SessionId(9),
            name: name("Sent"),
            uids: world.uids("Sent"),
            change,
            flags: Flags::from_iter([flag.clone()]),
            unchanged_since: None,
        };
        let reply = world.mailbox(ANNE, call);
        assert!(matches!(reply, Reply::Stored { .. }), "{reply:?}");
    };
    let keyword = Flag::Keyword(Keyword::new("$Important").unwrap());
    for flag in [Flag::Flagged, Flag::Answered, keyword] {
        let touch = |world: &mut World| store(world, FlagChange::Add, &flag);
        check(&touch, &["client"], Some(&flag));
    }
    let touch = |world: &mut World| store(world, FlagChange::Remove, &Flag::Seen);
    check(&touch, &["client"], None);
    let touch = |world: &mut World| store(world, FlagChange::Add, &Flag::Deleted);
    check(&touch, &[SERVER, "client"], None);
    // Away and back.
    check(
        &|world| {
            for (from, to) in [("Sent", "Archive"), ("Archive", "Sent")] {
                let call = MailboxCall::Copy {
                    session: SessionId(9),
                    name: name(from),
                    uids: world.uids(from),
                    to: name(to),
                    remove: true,
                };
                world.mailbox(ANNE, call);
            }
        },
        &[SERVER, "client"],
        None,
    );
    // The client's came first, and what it did with its own says nothing of ours.
    let mut world = World::new(Cut::AtOnce);
    world.append("Sent", "<1@x>");
    store(&mut world, FlagChange::Add, &Flag::Flagged);
    world.send_mail("<1@x>");
    assert_eq!(world.copies("Sent"), ["client"]);
}

/// One for one: who sends a message twice and keeps one copy has two.
#[test]
fn a_copy_takes_the_place_of_one() {
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    world.send_mail("<1@x>");
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), [SERVER, "client"]);
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client", "client"]);
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client"; 3]);
    // The third has taken the place of none yet.
    world.send_mail("<1@x>");
    assert_eq!(world.copies("Sent"), ["client"; 3]);
    world.send_mail("<1@x>");
    assert_eq!(world.copies("Sent")[3..], [SERVER]);
    // One that was touched is passed over.
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    let moving = world.moving("Archive");
    world.call(moving);
    world.send_mail("<1@x>");
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client"]);
    assert_eq!(world.copies("Archive"), [SERVER]);
}

/// However many come before their twins do, whichever are first, and also if what was remembered of them is lost in between.
#[test]
fn many_at_once() {
    let ids: Vec<_> = (0..40).map(|number| format!("<{number}@x>")).collect();
    for (ours_first, crash, backwards) in [
        (true, false, false),
        (true, false, true),
        (true, true, false),
        (false, false, false),
        (false, true, true),
    ] {
        let mut world = World::new(Cut::AtOnce);
        let mut second = ids.clone();
        if backwards {
            second.reverse();
        }
        for (round, ids) in [&ids, &second].into_iter().enumerate() {
            for id in ids {
                if (round == 0) == ours_first {
                    world.send_mail(id);
                } else {
                    world.append("Sent", id);
                }
            }
            if crash && round == 0 {
                world.crash(1);
            }
        }
        assert_eq!(world.copies("Sent"), vec!["client"; 40]);
    }
}

/// What an administrator has imported is the user's own, however alike.
#[test]
fn what_was_imported_stays() {
    let mut world = World::new(Cut::AtOnce);
    let Call::Mailbox {
        account,
        call: MailboxCall::Append {
            name, mut messages, ..
        },
        ..
    } = world.appending("Sent", "<1@x>")
    else {
        panic!("no append");
    };
    let mut new = messages.remove(0);
    new.date.seconds = i64::try_from(world.node.now().wall_seconds()).unwrap();
    new.flags = Flags::from_iter([Flag::Seen]);
    let messages = vec![(EntryId([7; 16]), new)];
    let call = MailboxCall::Import { name, messages };
    let reply = world.mailbox(account, call);
    assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client seen", "client"]);
}

/// What is looked for is read from the disk: a restart between the two copies makes no difference.
#[test]
fn a_restart_in_between_makes_no_difference() {
    let mut world = World::new(Cut::AtOnce);
    world.send_mail("<1@x>");
    world.crash(1);
    world.append("Sent", "<1@x>");
    assert_eq!(world.copies("Sent"), ["client"]);
    world.append("Sent", "<2@x>");
    world.crash(2);
    world.send_mail("<2@x>");
    assert_eq!(world.copies("Sent"), ["client", "client"]);
}
